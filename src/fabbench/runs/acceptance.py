"""The use case of ``fabbench accept``: the rungs of a ladder on machines that are held once, and one verdict.

The certificate is written after every rung, so that an interrupted ladder goes on where it was. Each rung is a
run or a sweep of the store.
"""

import secrets
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, cast

from fabbench.analysis.compare import Column, Comparison, compare
from fabbench.analysis.expectations import Assessment, expectations
from fabbench.analysis.gate import check
from fabbench.analysis.headline import headline, headline_row
from fabbench.benchmarks import DEFAULT
from fabbench.evidence.known_errors import NO_PROGRAM, causes
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
from fabbench.model.hosts import Host, Needs, Target
from fabbench.model.log import MARKER_SIGN, METRICS, Log, Outcome, Severity
from fabbench.model.messages import counted, listed, redacted
from fabbench.model.units import format_duration
from fabbench.plan.build import plan
from fabbench.plan.gates import AT_LEAST, Gate, parse_gates
from fabbench.plan.request import RunRequest
from fabbench.report.certificate import ALL, WORDS, Certificate, RungFigure, RungResult, State
from fabbench.runs.document import StoreError, read, write, writing
from fabbench.runs.inputs import open_run
from fabbench.runs.ladder import CHECK, LEVELS, SOAK, AcceptOptions, Limits, Rung, ladder, needs, read_thresholds
from fabbench.runs.run import RunResult, run
from fabbench.runs.store import StoredRun
from fabbench.runs.sweep import SweepRequest, SweepRun, Watching, end_sweep, require_divisible, same_nodes, sweep
from fabbench.runs.sweep_tests import diagnosed, unfinished
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
    run: Mapping[str, Any]  # Keywords of `run`
    sweep: Watching
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


def go_on(certificate: Certificate, store: Path) -> str:
    """Return how to test what is left."""
    return f"To go on: {shlex.join(['fabbench', 'accept', '--resume', certificate.id, '--store', str(store)])}"


def accept(asked: SweepRequest, how: AcceptOptions, watched: Watched, resume: Certificate | None = None) -> Certificate:
    """Climb the ladder. Raise FabbenchError if no machine can be reached or held.

    `asked` is what its sweeps and runs have in common. What ends it early, an interrupt too, leaves a certificate
    that can be resumed.
    """
    run, launcher = asked.run, launcher_named(asked.run.target.launcher)
    require_divisible(run.target)
    require_support(launcher, run.target)
    climb, at_top = _Climb(asked, how, watched, resume), False
    wanted = replace(needs(), fabrics=run.fabrics, held_s=how.max_time)
    try:
        target = climb.check(launcher, wanted)
        if target.hosts or not run.target.hosts:
            with launcher.open(target, wanted) as allocation:
                climb.up(cast("DivisibleAllocation", allocation))
                at_top = True
    except (FabbenchError, KeyboardInterrupt) as error:
        if not at_top or not isinstance(error, MachineError):
            if climb.certificate.rungs:
                error.add_note(go_on(climb.certificate, run.store))
            raise
        watched.notify(f"{error} {error.hint or ''}".rstrip())  # a node that is gone cannot be cleaned up
    climb.write(ended=time.time())
    return climb.certificate


class _Climb:
    def __init__(self, asked: SweepRequest, how: AcceptOptions, watched: Watched, resume: Certificate | None) -> None:
        self._asked, self._run, self._how, self._watched, self._resumes = asked, asked.run, how, watched, bool(resume)
        self._deadline = None if how.max_time is None else time.monotonic() + how.max_time
        self._limits, now = read_thresholds(how.thresholds) if how.thresholds else Limits({}), time.time()
        self._rungs: Sequence[Rung] = ()
        certificate = resume or Certificate(
            id=f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}-{secrets.token_hex(3)}",
            level=how.level,
            profile=how.profile,
            target=self._run.target.name,
            command=tuple(redacted(self._run.command)),
            started=now,
            limits=self._limits.source,
        )
        # What is certain stays; what was not tested is tested now.
        kept = tuple(each for each in certificate.rungs if each.state is not State.INCOMPLETE)
        self.certificate = replace(certificate, rungs=kept, ended=None)
        if names := [each.name for each in certificate.nodes]:
            self._run = same_nodes(self._run, names)

    def write(self, **changes: Any) -> None:
        """Change the certificate, and store it."""
        self.certificate = replace(self.certificate, **changes)
        path = certificate_path(self._run.store, self.certificate.id)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path, self.certificate)

    def _climbed(self, name: str, what: str, tested: Callable[[RungResult], RungResult]) -> RungResult:
        """Carry out a rung, unless its result is known, and store the result."""
        if name in self.certificate.results:
            return self.certificate.results[name]
        started = time.monotonic()
        result = tested(RungResult(name=name, what=what, state=State.INCOMPLETE))
        result = replace(result, seconds=round(time.monotonic() - started, 1))
        self.write(rungs=(*self.certificate.rungs, result))
        self._watched.notify(f"{what}: {result.state}{f'. {result.why}' if result.why else '.'}")
        return result

    def check(self, launcher: Launcher, wanted: Needs) -> Target:
        """Check all nodes before anything is measured. Return the target without those that failed."""
        target, what = self._run.target, "Checks of each node, and of differences between nodes"
        checked = self._climbed(CHECK, what, partial(self._checked, launcher, wanted))
        fine = tuple(each for each in target.hosts[: target.nodes] if each not in checked.nodes)
        return replace(target, hosts=fine, nodes=None) if target.hosts else target

    def _checked(self, launcher: Launcher, wanted: Needs, blank: RungResult) -> RungResult:
        with self._watched.examine() as progress:
            examined = launcher.examine(self._run.target, wanted, deep=False, progress=progress)
        checks, silent = list(examined.checks), examined.relations.unreachable
        if silent and not examined.probes:
            raise MachineError(f"No node answers. {' '.join(silent.values())}", hint="fabbench check shows more.")
        if examined.probes:
            requirements = Requirements(fabric=self._how.fabric or "")
            checks += check_hosts(examined.probes, requirements=requirements, relations=examined.relations)
        failed = {each.host: f"{each.name}: {each.seen}" for each in reversed(checks) if each.status is Status.FAIL}
        if failed:
            return _left_out(failed, f"{listed(list(failed))} failed checks.", blank)
        skipped = all(each.status is Status.SKIP for each in checks)
        return replace(blank, why="Nothing could be checked.") if skipped else replace(blank, state=State.PASSED)

    def up(self, allocation: DivisibleAllocation) -> None:
        """Carry out the rungs that are left. Raise RequestError for other nodes than those of rungs that are kept."""
        inventory, before = allocation.inventory, {each.name for each in self.certificate.nodes}
        lost = inventory.unreachable
        if before and before != {*(each.name for each in inventory.hosts), *lost}:
            raise RequestError("These are other nodes than before.", hint="Name the same ones, or start a new ladder.")
        self.write(nodes=inventory.hosts)
        if lost:
            self._climbed("reach", "Nodes answer", partial(_left_out, lost, f"{listed(list(lost))} left out."))
        self._rungs = ladder(inventory, self._how)
        for rung in self._rungs:
            self._climbed(rung.name, rung.what, partial(self._tested, rung, allocation))

    def _left(self) -> float | None:
        return None if self._deadline is None else self._deadline - time.monotonic()

    def _tested(self, rung: Rung, allocation: DivisibleAllocation, blank: RungResult) -> RungResult:
        """Carry out one rung on the nodes that nothing speaks against."""
        if rung.absent:
            return replace(blank, state=State.NOT_APPLICABLE, why=rung.absent)
        hosts, bad = allocation.inventory.hosts, self.certificate.bad_nodes
        chosen = [index for index, host in enumerate(hosts) if host.name not in bad]
        try:
            self._require(rung, [hosts[index] for index in chosen], len(hosts))
            held, left = _part(allocation, chosen), self._left()
            until = "" if left is None else f", {format_duration(max(left, 0))} left"
            self._watched.notify(f"[{self._rungs.index(rung) + 1}/{len(self._rungs)}] {rung.what}{until}")
            if rung.benchmark:
                return self._sweep(rung, held, blank) if rung.mode else _ran(self._measure(rung, held), blank)
            return self._soak(held, blank) if rung.name == SOAK else self._interference(held, blank)
        except (StoreError, AllocationLostError):
            raise
        except (RequestError, MachineError) as error:  # before anything was measured
            return replace(blank, why=f"Not tested: {error} {error.hint or ''}".rstrip())

    def _require(self, rung: Rung, hosts: Sequence[Host], held: int) -> None:
        """Raise RequestError for what keeps a rung from being tested."""
        before, left = self.certificate.results.get(rung.after), self._left()
        if before is not None and before.state is State.FAILED and not before.nodes:
            raise RequestError(f"{rung.after} failed.")
        if len(hosts) < (1 if rung.alone else 2):
            raise RequestError(f"{counted(len(hosts), 'node')} left of {held}.")
        if left is not None and left < _LEAST_S:
            raise RequestError("the time is up.")
        if not rung.benchmark and not self._fine():
            raise RequestError("nothing runs on all nodes.")
        for host in hosts if rung.benchmark else ():
            wanted = rung.work.needs
            if missing := [each for each in wanted.programs if each not in {*host.programs, *host.searched}]:
                raise RequestError(
                    f"{listed(missing)} not found on {host.name}.", hint=f"Install it: {wanted.install}."
                )

    def _fine(self) -> list[Rung]:
        """Return the rungs that all nodes have passed together."""
        known = self.certificate.results
        return [each for each in self._rungs if each.name.startswith(ALL) and known[each.name].state is State.PASSED]

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
        """Return the part of a rung that an interrupted ladder has measured; None if there is none, or it is whole."""
        if self._resumes and wanted.name:
            with suppress(RequestError, MachineError):
                before = open_run(wanted.name, wanted.store)
                whole = before.verdict if before.sweep else all(each.is_ok for each in before.executions)
                return None if whole else before
        return None

    def _sweep(self, rung: Rung, held: DivisibleAllocation, blank: RungResult) -> RungResult:
        wanted = self._request_of(rung)
        asked = replace(self._asked, run=wanted, mode=rung.mode, max_time=self._left(), resume=self._begun(wanted))
        ended = sweep(asked, notify=lambda _: None, watching=self._watched.sweep, held=held)
        _require_end(ended)
        result = _swept(ended, blank, parse_gates(self._limits.rungs.get(rung.name, ())))
        if ended.whole:
            end_sweep(ended.sweep, WORDS[result.state].exit)
        return result

    def _measure(self, rung: Rung, held: DivisibleAllocation, **changes: Any) -> RunResult:
        wanted = self._request_of(rung, **changes)
        ended = run(wanted, resume=self._begun(wanted), held=held, **self._watched.run)
        _require_end(ended)
        return ended

    def _soak(self, held: DivisibleAllocation, blank: RungResult) -> RungResult:
        """Repeat what all nodes run together, one after the other, until the time is up or something fails."""
        end, rungs = time.monotonic() + (self._how.soak or _SOAK_S), self._fine()
        logs, warned = list[Log](), Counter[str]()
        while time.monotonic() < end:
            rung = rungs[len(logs) % len(rungs)]
            ended = self._measure(rung, held, repeats=1, name="")
            if (result := _ran(ended, blank)).state is not State.PASSED:
                return replace(result, why=f"Run {len(logs) + 1}, {rung.name}: {result.why}")
            logs += ended.columns[0].logs
            warned.update({each.meaning for each in logs[-1].findings if each.severity is Severity.WARNING})
        said = [f"{counted(number, 'run')} of {len(logs)}: {meaning}" for meaning, number in warned.items()]
        third = max(len(logs) // 3, len(rungs))
        blank = replace(blank, why=" ".join(said) or f"{counted(len(logs), 'run')}.")
        return self._beside({"its end": logs[-third:], "its beginning": logs[:third]}, blank)

    def _interference(self, held: DivisibleAllocation, blank: RungResult) -> RungResult:
        """Measure half of the nodes while the others are quiet, and while they run the same."""
        count, rung = len(held.inventory.hosts), self._fine()[0]
        if count < 4 or not held.concurrent:
            raise RequestError("it takes four nodes that can be used at the same time.")
        measured = _part(held, range(count // 2))
        endless = self._request_of(replace(rung, options={**rung.options, "iterations": "1000000"}))
        logs: dict[str, list[Log]] = {"loaded": [], "quiet nodes": []}
        for repeat in range(_REPEATS):
            for name in sorted(logs, reverse=bool(repeat % 2)):
                with _load(held, range(count // 2, count), endless) if name == "loaded" else nullcontext():
                    ended = self._measure(rung, measured, repeats=1, name="", gates=())
                if (result := _ran(ended, blank)).state is not State.PASSED:
                    return replace(result, why=f"{name}: {result.why}")
                logs[name] += ended.columns[0].logs
        return self._beside(logs, blank)

    def _beside(self, logs: Mapping[str, Sequence[Log]], blank: RungResult) -> RungResult:
        """Return how two states of the nodes differ, judged by limits; what should be steady by --tolerance."""
        comparison = compare([Column(label=name, logs=tuple(each), source=name) for name, each in logs.items()])
        steady = tuple(f"{each.metric.name}:{100 * self._asked.tolerance:g}%" for each in comparison.sections)
        gates = steady if blank.name == SOAK else self._limits.rungs.get(blank.name, ())
        why = blank.why or " ".join(headline(comparison, index) for index in range(len(comparison.sections)))
        figures = _figures(comparison, {}, [*logs][1])
        missed = check(parse_gates(gates), comparison).breaches
        return _judged(replace(blank, figures=figures, why=why), missed)


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

    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(work)
        try:
            began.wait()
            yield
            if load.done():
                raise MachineError("The load on the other nodes ended early.")
        finally:
            ended.set()


def _require_end(ended: RunResult | SweepRun) -> None:
    """Raise what ended a rung early and says nothing about the nodes, so that it is carried out again."""
    if ended.interrupted:
        raise KeyboardInterrupt
    if isinstance(ended.failure, StoreError | AllocationLostError):
        raise ended.failure


# ---------------------------------------------------------------- what a rung says


def _left_out(bad: Mapping[str, str], why: str, blank: RungResult) -> RungResult:
    return replace(blank, state=State.FAILED, why=why, bad=bad, nodes=bad)


def _judged(result: RungResult, missed: Sequence[str], doubts: Sequence[str] = ()) -> RungResult:
    """Return a result that failed if it missed something, and is incomplete if there are doubts."""
    if missed:
        why = " ".join(missed)
        return replace(result, state=State.FAILED, why=f"{why} {result.why}".rstrip(), bad={**result.bad, _EVERY: why})
    why = " ".join(filter(None, (result.why, *doubts)))
    return replace(result, state=State.INCOMPLETE if any(doubts) else State.PASSED, why=why)


def _swept(ended: SweepRun, blank: RungResult, gates: Sequence[Gate]) -> RungResult:
    """Return what a sweep says about its nodes."""
    stored, document = ended.sweep, ended.sweep.document
    metric, outcomes = METRICS[document.metric], {each.outcome for each in stored.tests}
    blank = replace(blank, run=stored.path.name, fabric=document.fabric if outcomes == {Outcome.OK} else "")
    if not any(each.result.figure for each in stored.tests):
        reason = str(ended.failure or next((each.reason for each in stored.tests if each.reason), ""))
        why, told = f"No test succeeded. {reason}".rstrip(), stored.tests and not ended.failure
        return _judged(blank, [why] if told and not reason.startswith(NO_PROGRAM) else (), [why])
    found = diagnosed(document, stored.results)
    figure = (max if metric.lower_is_better else min)(found.typicals.values(), default=None)
    fit = [each for each in gates if figure is not None and each.metric == metric and each.sizes is None]
    missed, bad = list[str](), {each.name: each.evidence for each in found.suspects}
    if figure is not None:
        typical = RungFigure(metric.name, None, figure, found.tests, ", ".join(each.text for each in fit))
        blank = replace(blank, figures=(typical,))
        for each in fit:
            if figure < each.bound if each.kind == AT_LEAST else figure > each.bound:
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
    error, wrong = ended.failure or ended.release_failure, [log for log in logs if log.outcome is not Outcome.OK]
    if error or wrong or ended.comparison is None:
        why = str(error) if error else _reason(wrong[0]) if wrong else "Nothing was measured."
        serious = [log.reason or "" for log in wrong if log.outcome not in _DOUBTFUL]
        told = isinstance(error, MachineError) if error else any(not each.startswith(NO_PROGRAM) for each in serious)
        return _judged(blank, [why] if told else (), [why])
    limits, missed, doubts = dict[str, str](), list[str](), list[str]()
    if verdict := ended.verdict:
        for gate in parse_gates([each.gate for each in verdict.results]):
            limits[gate.metric.name] = ", ".join(filter(None, (limits.get(gate.metric.name), gate.text)))
        missed, doubts = list(verdict.breaches), list(verdict.notes) if verdict.status else []
    for each in expectations(ended.comparison) if verdict is None else ():
        published = each.assessment in {Assessment.NORMAL, Assessment.LOW}
        if each.assessment in {Assessment.ABOVE, Assessment.HIGH}:
            doubts.append(each.sentence())
        elif published or each.share is not None:
            floor = f"{100 * FLOOR:g} % of the ceiling of its NICs"
            limits[each.metric.name] = f"published for {each.setting.words}" if published else floor
            if each.assessment is Assessment.LOW or (not published and (each.share or 0) < FLOOR):
                missed.append(each.sentence())
    figures = _figures(ended.comparison, limits)
    return _judged(replace(blank, fabric=ended.columns[0].label, figures=figures), missed, doubts)


def _reason(log: Log) -> str:
    """Return why a log is not ok, with what most likely explains it."""
    found, _ = causes(log)
    cause = f" {found[0].found.meaning} {found[0].found.advice}" if found else ""
    return f"{log.outcome}: {log.reason or 'no reason was printed.'}{cause}".rstrip()


def _figures(comparison: Comparison, limits: Mapping[str, str], other: str = "") -> tuple[RungFigure, ...]:
    """Return the figure to quote of each table. `limits`: metric → what it is judged by."""
    rows = [(section.metric.name, headline_row(section)) for section in comparison.sections]
    return tuple(
        RungFigure(metric, row.size, figure.value, figure.n, limits.get(metric, other))
        for metric, row in rows
        if row is not None and (figure := row.figures[0]) is not None
    )
