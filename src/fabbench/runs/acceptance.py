"""The use case of ``fabbench accept``: the rungs of a ladder on machines that are held once, and one verdict.

The certificate is written after every rung, so that an interrupted ladder goes on where it was. Each rung is a
run or a sweep of the store.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple, cast

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import Comparison, compare
from fabbench.analysis.expectations import Assessment, expectations
from fabbench.analysis.gate import check
from fabbench.analysis.headline import headline, headline_row
from fabbench.benchmarks import DEFAULT
from fabbench.evidence.known_errors import causes
from fabbench.hosts.check import Progress, Requirements, Status, check_hosts
from fabbench.launchers import (
    AllocationLostError,
    BatchAllocation,
    DivisibleAllocation,
    Launcher,
    RenderInput,
    launcher_named,
    require_support,
)
from fabbench.model.errors import FabbenchError, MachineError, RequestError
from fabbench.model.hosts import Host, Target
from fabbench.model.log import MARKER_SIGN, METRICS, Log, Outcome, Severity
from fabbench.model.messages import counted, listed, redacted
from fabbench.model.units import format_duration
from fabbench.plan.build import plan
from fabbench.plan.gates import Gate, GateKind, parse_gates
from fabbench.plan.request import RunRequest
from fabbench.report.certificate import ALL, WORDS, Certificate, RungFigure, RungResult, State
from fabbench.runs.document import StoreError, read, write, writing
from fabbench.runs.inputs import open_run
from fabbench.runs.ladder import CHECK, INTERFERENCE, LEVELS, SOAK, AcceptOptions, Rung, ladder, needs
from fabbench.runs.report_pages import sweep_report
from fabbench.runs.run import RunResult, run
from fabbench.runs.store import StoredRun
from fabbench.runs.sweep import SweepRequest, SweepRun, end_sweep, require_divisible, same_nodes, sweep
from fabbench.runs.sweep import Watching as SweepWatching
from fabbench.runs.sweep_tests import unfinished
from fabbench.runs.thresholds import Limits, read_thresholds
from fabbench.sweep.readings import Readings
from fabbench.sweep.values import SuspectKind

_LEAST_S = 5.0
"""No rung starts with less time than this left."""
_DOUBTFUL = frozenset({Outcome.UNPROVEN, Outcome.TRUNCATED, Outcome.SKIPPED})
"""Outcomes of runs that say nothing about the nodes."""
_REPEATS = 5
"""Of each of the two states that the rung of interference compares."""
_OF_ONE_NODE = (SuspectKind.NODE, SuspectKind.NIC)
_EVERY = "all nodes"
_SOAK_S = 3600.0
FLOOR = 0.5
"""The fraction of the ceiling of its NICs that a configuration without a published figure must reach."""


class Watched(NamedTuple):
    """How what happens is shown."""

    notify: Callable[[str], None]
    run: Mapping[str, Any]
    """Keywords of `run`."""
    sweep: SweepWatching
    examine: Callable[[], AbstractContextManager[Progress]]


def certificate_path(store: Path, name: str) -> Path:
    """Return where a certificate is stored."""
    return store / "certificates" / f"{name}.json"


def open_certificate(name: str, store: Path) -> Certificate:
    """Read a certificate by its id, or a file. Raise MachineError or RequestError."""
    path = certificate_path(store, name) if not Path(name).suffix else Path(name)
    if name == "last":
        path = max(path.parent.glob("*.json"), default=path)
    if not path.is_file():
        raise RequestError(f"There is no certificate {name} in {store}.", hint="fabbench accept makes one.")
    return read(path, Certificate)


def accept(asked: SweepRequest, how: AcceptOptions, watched: Watched, resume: Certificate | None = None) -> Certificate:
    """Climb the ladder. Raise FabbenchError if no machine can be reached or held.

    `asked` is what its sweeps and runs have in common. What ends it early, an interrupt too, leaves a certificate
    that can be resumed.
    """
    run, launcher = asked.run, launcher_named(asked.run.target.launcher)
    require_divisible(run.target)
    require_support(launcher, run.target)
    climb, at_top = _Climb(asked, how, watched, resume), False
    try:
        target = climb.check(launcher)
        wanted = replace(needs(), fabrics=run.fabrics, held_s=how.max_time)
        if target.hosts or not run.target.hosts:
            with launcher.open(target, wanted) as allocation:
                climb.up(cast("DivisibleAllocation", allocation))
                at_top = True
    except (FabbenchError, KeyboardInterrupt) as error:
        if not at_top or not isinstance(error, MachineError):
            if climb.certificate.rungs:
                error.add_note(f"To go on: fabbench accept --resume {climb.certificate.id} --store {run.store}")
            raise
        watched.notify(f"{error} {error.hint or ''}".rstrip())  # a node that is gone cannot be cleaned up
    return climb.end()


class _Climb:
    def __init__(self, asked: SweepRequest, how: AcceptOptions, watched: Watched, resume: Certificate | None) -> None:
        self._asked, self._run, self._how, self._watched, self._resumes = asked, asked.run, how, watched, bool(resume)
        self._deadline = None if how.max_time is None else time.monotonic() + how.max_time
        self._limits, now = read_thresholds(how.thresholds) if how.thresholds else Limits({}), time.time()
        self.certificate = resume or Certificate(
            id=f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}-{secrets.token_hex(3)}",
            level=how.level,
            profile=how.profile,
            target=self._run.target.name,
            command=tuple(redacted(self._run.command)),
            started=now,
            limits=self._limits.source,
        )
        # What is certain stays; what was not tested is tested now.
        kept = tuple(each for each in self.certificate.rungs if each.state is not State.INCOMPLETE)
        self.certificate = replace(self.certificate, rungs=kept, ended=None)
        if names := [each.name for each in self.certificate.nodes]:
            self._run = same_nodes(self._run, names)

    def _write(self, **changes: Any) -> None:
        self.certificate = replace(self.certificate, **changes)
        path = certificate_path(self._run.store, self.certificate.id)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path, self.certificate)

    def _ended(self, result: RungResult) -> None:
        self._write(rungs=(*self.certificate.rungs, result))
        self._watched.notify(f"{result.what}: {result.state}{f'. {result.why}' if result.why else '.'}")

    def _result(self, name: str) -> RungResult | None:
        return next((each for each in self.certificate.rungs if each.name == name), None)

    def check(self, launcher: Launcher) -> Target:
        """Check all nodes before anything is measured. Return the target without those that failed."""
        target, checked = self._run.target, self._result(CHECK)
        if checked is None:
            started = time.monotonic()
            checked = replace(self._examined(launcher), seconds=round(time.monotonic() - started, 1))
            self._ended(checked)
        if not target.hosts:
            return target
        fine = tuple(each for each in target.hosts[: target.nodes] if each not in checked.nodes)
        return replace(target, hosts=fine, nodes=None)

    def _examined(self, launcher: Launcher) -> RungResult:
        wanted = replace(needs(), fabrics=self._run.fabrics)
        with self._watched.examine() as progress:
            examined = launcher.examine(self._run.target, wanted, deep=False, progress=progress)
        checks, silent = list(examined.checks), examined.relations.unreachable
        if examined.probes or silent:
            requirements = Requirements(fabric=self._how.fabric or "")
            checks += check_hosts(examined.probes, requirements=requirements, relations=examined.relations)
        if silent and not examined.probes:
            raise MachineError(f"No node answers. {' '.join(silent.values())}", hint="fabbench check shows more.")
        failed = {each.host: f"{each.name}: {each.seen}" for each in reversed(checks) if each.status is Status.FAIL}
        blank = RungResult(name=CHECK, what="Checks of each node, and of differences between nodes", state=State.PASSED)
        if failed:
            why = f"{listed(list(failed))} failed checks."
            return replace(blank, state=State.FAILED, why=why, bad=failed, nodes=failed)
        skipped = all(each.status is Status.SKIP for each in checks)
        return replace(blank, state=State.INCOMPLETE, why="Nothing could be checked.") if skipped else blank

    def up(self, allocation: DivisibleAllocation) -> None:
        """Carry out the rungs that are left. Raise RequestError for other nodes than those of rungs that are kept."""
        inventory, before = allocation.inventory, {each.name for each in self.certificate.nodes}
        if before and before != {each.name for each in inventory.hosts} | inventory.unreachable.keys():
            raise RequestError("These are other nodes than before.", hint="Name the same ones, or start a new ladder.")
        self._write(nodes=inventory.hosts)
        if lost := inventory.unreachable:
            what, why = "Nodes answer", f"{listed(list(lost))} left out."
            self._ended(RungResult(name="reach", what=what, state=State.FAILED, why=why, bad=lost, nodes=lost))
        rungs = ladder(inventory, self._how)
        for number, rung in enumerate(rungs, 1):
            if self._result(rung.name) is not None:
                continue
            blank = RungResult(name=rung.name, what=rung.what, state=State.INCOMPLETE)
            if rung.absent:
                self._ended(replace(blank, state=State.NOT_APPLICABLE, why=rung.absent))
                continue
            left = self._left()
            until = "" if left is None else f", {format_duration(max(left, 0))} left"
            self._watched.notify(f"[{number}/{len(rungs)}] {rung.what}{until}")
            started = time.monotonic()
            result = self._rung(rung, allocation, rungs, blank)
            self._ended(replace(result, seconds=round(time.monotonic() - started, 1)))

    def _left(self) -> float | None:
        return None if self._deadline is None else self._deadline - time.monotonic()

    def _rung(
        self, rung: Rung, allocation: DivisibleAllocation, rungs: Sequence[Rung], blank: RungResult
    ) -> RungResult:
        """Carry out one rung on the nodes that nothing speaks against."""
        hosts, bad = allocation.inventory.hosts, self.certificate.bad_nodes
        chosen = [index for index, host in enumerate(hosts) if host.name not in bad]
        if why := self._hindrance(rung, [hosts[index] for index in chosen], len(hosts)):
            return replace(blank, why=f"Not tested: {why}")
        try:
            held = _part(allocation, chosen)
            if rung.benchmark:
                return self._sweep(rung, held, blank) if rung.mode else _ran(self._measure(rung, held), blank)
            passed = {each.name for each in self.certificate.rungs if each.state is State.PASSED}
            fine = [each for each in rungs if each.name.startswith(ALL) and each.name in passed]
            if not fine:
                return replace(blank, why="Not tested: nothing runs on all nodes.")
            return self._soak(fine, held, blank) if rung.name == SOAK else self._interference(fine[0], held, blank)
        except (StoreError, AllocationLostError):
            raise
        except (RequestError, MachineError) as error:  # before anything was measured
            return replace(blank, why=f"Not tested: {error} {error.hint or ''}".rstrip())

    def _hindrance(self, rung: Rung, hosts: Sequence[Host], held: int) -> str:
        """Return what keeps a rung from being tested, as a sentence; empty: nothing does."""
        before = self._result(rung.after)
        if before is not None and before.state is State.FAILED and not before.nodes:
            return f"{rung.after} failed."
        if len(hosts) < (1 if rung.alone else 2):
            return f"{counted(len(hosts), 'node')} left of {held}."
        if (left := self._left()) is not None and left < _LEAST_S:
            return "the time is up."
        for host in hosts if rung.benchmark else ():
            wanted = rung.work.needs
            if missing := [each for each in wanted.programs if each not in {*host.programs, *host.searched}]:
                return f"{listed(missing)} not found on {host.name}. Install it: {wanted.install}."
        return ""

    def _request_of(self, rung: Rung, **changes: Any) -> RunRequest:
        asked = replace(
            self._run,
            benchmark=rung.benchmark,
            work=rung.work,
            fabrics=() if rung.alone and rung.benchmark == DEFAULT else self._run.fabrics,
            repeats=3 if self._how.level != LEVELS[0] and not rung.mode else 1,
            gates=() if rung.mode else self._limits.rungs.get(rung.name, ()),
            name=f"{self.certificate.id[-6:]}-{rung.name.replace(':', '-')}",
        )
        return replace(asked, **changes)

    def _begun(self, wanted: RunRequest) -> StoredRun | None:
        """Return the part of a rung that an interrupted ladder has measured; None if there is none."""
        if self._resumes and wanted.name:
            with suppress(RequestError, MachineError):
                return open_run(wanted.name, wanted.store)
        return None

    def _sweep(self, rung: Rung, held: DivisibleAllocation, blank: RungResult) -> RungResult:
        wanted = self._request_of(rung)
        asked = replace(self._asked, run=wanted, mode=rung.mode, max_time=self._left(), resume=self._begun(wanted))
        ended = sweep(asked, notify=_nothing, watching=self._watched.sweep, held=held)
        if ended.interrupted:
            raise KeyboardInterrupt
        result = _swept(ended, blank, parse_gates(self._limits.rungs.get(rung.name, ())))
        if ended.whole:
            end_sweep(ended.sweep, WORDS[result.state].exit)
        return result

    def _measure(self, rung: Rung, held: DivisibleAllocation, **changes: Any) -> RunResult:
        wanted = self._request_of(rung, **changes)
        before = self._begun(wanted)
        before = None if before is None or all(each.is_ok for each in before.executions) else before
        ended = run(wanted, notify=_nothing, resume=before, held=held, **self._watched.run)
        if ended.interrupted:
            raise KeyboardInterrupt
        return ended

    def _soak(self, rungs: Sequence[Rung], held: DivisibleAllocation, blank: RungResult) -> RungResult:
        """Repeat what all nodes run together, one after the other, until the time is up or something fails."""
        end, number, warned = time.monotonic() + (self._how.soak or _SOAK_S), 0, dict[str, int]()
        logs: dict[str, list[Log]] = {each.name: [] for each in rungs}
        while time.monotonic() < end:
            rung, number = rungs[number % len(rungs)], number + 1
            ended = self._measure(rung, held, repeats=1, name="")
            result = _ran(ended, blank)
            if result.state is not State.PASSED:
                return replace(result, why=f"Run {number}, {rung.name}: {result.why}")
            (log,) = ended.columns[0].logs
            logs[rung.name].append(log)
            for meaning in {each.meaning for each in log.findings if each.severity is Severity.WARNING}:
                warned[meaning] = warned.get(meaning, 0) + 1
        figures, drifted = list[RungFigure](), list[str]()
        for known in filter(None, logs.values()):
            third = max(1, len(known) // 3)
            comparison = _compared({"end": known[-third:], "beginning": known[:third]})
            figures += _figures(comparison, {}, "its beginning")
            gates = {f"{each.metric.name}:{100 * self._asked.tolerance:g}%" for each in comparison.sections}
            drifted += check(parse_gates(tuple(gates)), comparison).breaches if len(known) > 1 else ()
        said = [f"{counted(times, 'run')} of {number}: {meaning}" for meaning, times in warned.items()]
        why = " ".join((*drifted, *said)) or f"{counted(number, 'run')}."
        return _judged(replace(blank, figures=tuple(figures), why=why), drifted)

    def _interference(self, rung: Rung, held: DivisibleAllocation, blank: RungResult) -> RungResult:
        """Measure half of the nodes while the others are quiet, and while they run the same."""
        count = len(held.inventory.hosts)
        if count < 4 or not held.concurrent:
            return replace(blank, why="Not tested: it takes four nodes that can be used at the same time.")
        measured = _part(held, range(count // 2))
        endless = self._request_of(replace(rung, options={**rung.options, "iterations": "1000000"}))
        logs: dict[str, list[Log]] = {"loaded": [], "quiet": []}
        for repeat in range(_REPEATS):
            for name in sorted(logs, reverse=bool(repeat % 2)):
                with _load(held, range(count // 2, count), endless) if name == "loaded" else nullcontext():
                    ended = self._measure(rung, measured, repeats=1, name="", gates=())
                if (result := _ran(ended, blank)).state is not State.PASSED:
                    return replace(result, why=f"{name}: {result.why}")
                logs[name] += ended.columns[0].logs
        comparison = _compared(logs)
        why = " ".join(headline(comparison, index) for index in range(len(comparison.sections)))
        missed = check(parse_gates(self._limits.rungs.get(INTERFERENCE, ())), comparison).breaches
        return _judged(replace(blank, why=why, figures=_figures(comparison, {}, "quiet nodes")), missed)

    def end(self) -> Certificate:
        """Write that the ladder has ended, and return the certificate."""
        self._write(ended=time.time())
        return self.certificate


def _part(held: DivisibleAllocation, hosts: Sequence[int], ended: Event | None = None) -> DivisibleAllocation:
    """Return some of the machines, to be split further."""
    return cast("DivisibleAllocation", held.part(hosts, ended or Event()))


@contextmanager
def _load(held: DivisibleAllocation, hosts: Sequence[int], request: RunRequest) -> Iterator[None]:
    """Keep machines busy. Its output is not kept. Raise MachineError if it ends by itself."""
    ended, began = Event(), Event()
    part = _part(held, hosts, ended)
    planned = plan(request, part.inventory)
    if isinstance(part, BatchAllocation):
        part.submit(RenderInput(plan=planned, request=request, inventory=part.inventory))

    def work() -> None:
        with suppress(KeyboardInterrupt, FabbenchError):
            for line in part.execute(planned.executions[0]):
                if not line.startswith(MARKER_SIGN):
                    began.set()
        began.set()

    thread = Thread(target=work)
    thread.start()
    try:
        began.wait()
        yield
        if not thread.is_alive():
            raise MachineError("The load on the other nodes ended early.")
    finally:
        ended.set()
        thread.join()


def _nothing(sentence: str) -> None:
    """Ignore what runs and sweeps say at their start: rungs say enough."""


# ---------------------------------------------------------------- what a rung says


def _judged(result: RungResult, missed: Sequence[str], doubts: Sequence[str] = ()) -> RungResult:
    """Return a result that failed if it missed something, and is incomplete if there are doubts."""
    if missed:
        why = " ".join(missed)
        return replace(result, state=State.FAILED, why=result.why or why, bad={**result.bad, _EVERY: why})
    why = " ".join(filter(None, (result.why, *doubts)))
    return replace(result, state=State.INCOMPLETE if any(doubts) else State.PASSED, why=why)


def _swept(ended: SweepRun, blank: RungResult, gates: Sequence[Gate]) -> RungResult:
    """Return what a sweep says about its nodes."""
    stored, document = ended.sweep, ended.sweep.document
    metric, outcomes = METRICS[document.metric], {each.outcome for each in stored.tests}
    blank = replace(blank, run=stored.path.name, fabric=document.fabric if outcomes == {Outcome.OK} else "")
    if not any(each.result.figure for each in stored.tests):
        failure = str(ended.failure or next((each.reason for each in stored.tests if each.reason), ""))
        why = f"No test succeeded. {failure}".rstrip()
        return _judged(blank, [why] if stored.tests and not ended.failure else (), [why])
    readings = Readings(metric, document.nodes, group_of=document.group_of)
    how = {"tolerance": document.tolerance, "confidence": document.confidence}
    found = sweep_report(readings, stored.results, rows=1, **how).diagnosis
    figure = (max if metric.lower_is_better else min)(found.typicals.values(), default=None)
    fit = [each for each in gates if figure is not None and each.metric == metric and each.sizes is None]
    missed, bad = list[str](), {each.name: each.evidence for each in found.suspects}
    if figure is not None:
        typical = RungFigure(metric.name, None, figure, found.tests, ", ".join(each.text for each in fit))
        blank = replace(blank, figures=(typical,))
        for each in fit:
            if figure < each.bound if each.kind is GateKind.AT_LEAST else figure > each.bound:
                missed.append(f"{each.text}: typical is {typical}.")
    nodes = {each.nodes[0]: each.evidence for each in found.suspects if each.kind in _OF_ONE_NODE}
    done = replace(blank, bad=bad, nodes=nodes)
    if bad:
        return replace(_judged(done, missed), state=State.FAILED, why=f"Bad: {listed([*bad, *missed])}.")
    left = unfinished(stored) if not ended.whole else ""
    doubts = (
        f"{listed([each.name for each in found.undecided])} may be bad." if found.undecided else "",
        found.contradiction,
        f"Not tested: {left}." if left else "",
        str(ended.failure or ended.release_failure or ""),
        "" if outcomes == {Outcome.OK} else f"Not every test succeeded and proved that it used {document.fabric}.",
        *(f"{each.text}: nothing to compare was measured." for each in gates if each not in fit),
    )
    return _judged(done, missed, doubts)


def _ran(ended: RunResult, blank: RungResult) -> RungResult:
    """Return what a run on all nodes says about them."""
    blank, logs = replace(blank, run=ended.path.name), [log for each in ended.columns for log in each.logs]
    if error := ended.failure or ended.release_failure:
        silent = isinstance(error, StoreError | AllocationLostError) or not isinstance(error, MachineError)
        return _judged(blank, () if silent else [str(error)], [str(error)])
    wrong, comparison = [log for log in logs if log.outcome is not Outcome.OK], ended.comparison
    if wrong or comparison is None:
        why = [_reason(wrong[0]) if wrong else "Nothing was measured."]
        return _judged(blank, () if all(log.outcome in _DOUBTFUL for log in wrong) else why, why)
    limits, missed, doubts = dict[str, str](), list[str](), list[str]()
    if ended.verdict is not None:
        for gate in parse_gates([each.gate for each in ended.verdict.results]):
            limits[gate.metric.name] = ", ".join(filter(None, (limits.get(gate.metric.name), gate.text)))
        missed = list(ended.verdict.breaches)
        doubts = list(ended.verdict.notes) if ended.verdict.status else []
    for each in expectations(comparison) if ended.verdict is None else ():
        published = each.assessment in {Assessment.NORMAL, Assessment.LOW}
        if each.assessment in {Assessment.ABOVE, Assessment.HIGH}:
            doubts.append(each.sentence())
        elif published or each.share is not None:
            floor = f"{100 * FLOOR:g} % of the ceiling of its NICs"
            limits[each.metric.name] = f"published for {each.setting.words}" if published else floor
            if each.assessment is Assessment.LOW or (not published and (each.share or 0) < FLOOR):
                missed.append(each.sentence())
    return _judged(replace(blank, fabric=ended.columns[0].label, figures=_figures(comparison, limits)), missed, doubts)


def _reason(log: Log) -> str:
    """Return why a log is not ok, with what most likely explains it."""
    found, _ = causes(log)
    cause = f" {found[0].found.meaning} {found[0].found.advice}" if found else ""
    return f"{log.outcome}: {log.reason or 'no reason was printed.'}{cause}".rstrip()


def _compared(logs: Mapping[str, Sequence[Log]]) -> Comparison:
    return compare([Column(label=name, logs=tuple(each), source=name) for name, each in logs.items()])


def _figures(comparison: Comparison, limits: Mapping[str, str], other: str = "") -> tuple[RungFigure, ...]:
    """Return the figure to quote of each table. `limits`: metric → what it is judged by."""
    rows = [(section.metric.name, headline_row(section)) for section in comparison.sections]
    return tuple(
        RungFigure(metric, row.size, figure.value, figure.n, limits.get(metric, other))
        for metric, row in rows
        if row is not None and (figure := row.figures[0]) is not None
    )
