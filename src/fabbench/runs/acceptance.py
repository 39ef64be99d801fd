"""The use case of ``fabbench accept``: the rungs of a ladder on machines that are held once, and one verdict.

The certificate is written after every rung, so that an interrupted ladder goes on where it was. Each rung is a
run or a sweep of the store.
"""

import secrets
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from typing import Any

import yaml

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import Comparison, compare
from fabbench.analysis.expectations import Assessment, expectations
from fabbench.analysis.gate import check
from fabbench.analysis.headline import headline, headline_row
from fabbench.benchmarks import DEFAULT
from fabbench.evidence.causes import causes
from fabbench.hosts.check import Progress, Requirements, Status, check_hosts
from fabbench.launchers import Allocation, DivisibleAllocation, Launcher, launcher_named, require_support
from fabbench.launchers.pod_options import with_image
from fabbench.model.errors import Exit, MachineError, RequestError
from fabbench.model.hosts import Host, Inventory, Target
from fabbench.model.log import METRICS, Ending, Log, Outcome, Severity
from fabbench.model.messages import counted, listed
from fabbench.model.plan import Execution
from fabbench.model.units import format_duration, format_size, scale
from fabbench.plan.build import plan
from fabbench.plan.gates import GateKind, parse_gates
from fabbench.plan.request import RunRequest
from fabbench.report.certificate import Certificate, FigureResult, NodeRecord, RungResult, State
from fabbench.runs.document import read, read_value, write, writing
from fabbench.runs.ladder import ALL, CHECK, INTERFERENCE, LEVELS, SOAK, Rung, needs, planned
from fabbench.runs.report_pages import sweep_report
from fabbench.runs.run import RunResult, run
from fabbench.runs.store import StoredRun, runs
from fabbench.runs.sweep import SweepRequest, SweepRun, end_sweep, require_divisible, sweep
from fabbench.runs.sweep_modes import unfinished
from fabbench.sweep.readings import Readings
from fabbench.sweep.values import SuspectKind

_EXITS = {State.PASSED: Exit.FINE, State.FAILED: Exit.BAD_ANSWER, State.INCOMPLETE: Exit.UNTRUSTED}
_LEAST_S = 5.0
"""No rung starts with less time than this left."""
_NEWEST = 20
"""So many of the newest runs may be a rung that was interrupted."""
_DOUBTFUL = frozenset({Outcome.UNPROVEN, Outcome.TRUNCATED, Outcome.SKIPPED})
"""Outcomes of runs that say nothing about the nodes."""
_REPEATS = 5
"""Of each of the two states that the rung of interference compares."""
_OF_ONE_NODE = (SuspectKind.NODE, SuspectKind.NIC)
CERTIFICATES = "certificates"
"""The directory of a store that holds the certificates."""
_ALL = "all nodes"
FLOOR = 0.5
"""The fraction of the ceiling of its NICs that a configuration without a published figure must reach."""
MARGIN = 0.1
"""How much worse than a good run nodes may be, where its figures become thresholds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What figures must reach: the document of ``--thresholds``."""

    source: str
    """Where they come from, for people."""
    rungs: Mapping[str, tuple[str, ...]]
    """Rung → gates."""

    def of(self, rung: str) -> tuple[str, ...]:
        """Return the gates of a rung."""
        return self.rungs.get(rung, ())


_NO_LIMITS = Limits(source="", rungs={})


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptRequest:
    """One ladder, as requested."""

    target: Target
    target_reason: str = ""
    level: str = "quick"
    profile: str = "training"
    fabrics: tuple[str, ...] = ()
    limits: Limits = _NO_LIMITS
    """What figures are judged by, besides published ones."""
    tolerance: float
    confidence: float
    max_time: float | None = None
    soak: float | None = None
    """For how many seconds all nodes stay loaded after the other rungs."""
    background: bool = False
    """Whether to measure half of the nodes while the others are loaded."""
    env: Mapping[str, str] = field(default_factory=dict)
    store: Path
    command: tuple[str, ...] = ()
    resume: Certificate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """How what happens is shown."""

    notify: Callable[[str], None]
    run: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of `run`."""
    sweep: Callable[..., Any]
    examine: Callable[[], AbstractContextManager[Progress]]


def certificate_path(store: Path, name: str) -> Path:
    """Return where a certificate is stored."""
    return store / CERTIFICATES / f"{name}.json"


def open_certificate(name: str, store: Path) -> Certificate:
    """Read a certificate by its id, or a file. Raise MachineError or RequestError."""
    path = Path(name)
    if name == "last":
        known = sorted((store / CERTIFICATES).glob("*.json"))
        path = known[-1] if known else path
    elif not path.suffix:
        path = certificate_path(store, name)
    if not path.is_file():
        raise RequestError(f"There is no certificate {name} in {store}.", hint="fabbench accept makes one.")
    return read(path, Certificate)


def accept(request: AcceptRequest, watched: Watched) -> Certificate:
    """Climb the ladder. Raise FabbenchError if no machine can be reached or held.

    What ends it early, an interrupt too, leaves a certificate that can be resumed.
    """
    launcher = launcher_named(request.target.launcher)
    require_divisible(request.target)
    require_support(launcher, request.target)
    climb = _Climb(request, watched)
    climb.check(launcher)
    wanted = replace(needs(request.profile), fabrics=request.fabrics, held_s=request.max_time)
    target, bad = request.target, climb.certificate.bad
    if target.hosts:
        target = replace(
            target, hosts=tuple(each for each in target.hosts[: target.nodes] if each not in bad), nodes=None
        )
    at_top = False
    try:
        if target.hosts or not request.target.hosts:
            with launcher.open(target, wanted) as allocation:
                assert isinstance(allocation, DivisibleAllocation)  # noqa: S101 - as its options declare
                climb.up(allocation)
                at_top = True
    except MachineError as error:
        if not at_top:
            raise
        watched.notify(f"{error} {error.hint}")  # a node that is gone cannot be cleaned up
    return climb.end()


class _Climb:
    def __init__(self, request: AcceptRequest, watched: Watched) -> None:
        self._request, self._watched = request, watched
        self._deadline = None if request.max_time is None else time.monotonic() + request.max_time
        now = time.time()
        self.certificate = request.resume or Certificate(
            id=f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}-{secrets.token_hex(3)}",
            level=request.level,
            profile=request.profile,
            target=request.target.name,
            command=request.command,
            started=now,
            limits=request.limits.source,
        )
        # What is certain stays; what was not tested is tested now.
        kept = [each for each in self.certificate.rungs if each.state is not State.INCOMPLETE]
        self._write(rungs=tuple(kept), ended=None)

    def _write(self, **changes: Any) -> None:
        self.certificate = replace(self.certificate, **changes)
        path = certificate_path(self._request.store, self.certificate.id)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path, self.certificate)

    def _ended(self, result: RungResult) -> None:
        self._write(rungs=(*self.certificate.rungs, result))
        self._watched.notify(f"{result.what}: {result.state}{f'. {result.why}' if result.why else '.'}")

    def _state(self, name: str) -> State | None:
        return next((each.state for each in self.certificate.rungs if each.name == name), None)

    def check(self, launcher: Launcher) -> None:
        """Check all nodes before anything is measured."""
        if self._state(CHECK) is not None:
            return
        started, request = time.monotonic(), self._request
        wanted = replace(needs(request.profile), fabrics=request.fabrics)
        with self._watched.examine() as progress:
            examined = launcher.examine(request.target, wanted, deep=False, progress=progress)
        checks = list(examined.checks)
        if examined.probes or examined.relations.unreachable:
            requirements = Requirements(fabric=next(iter(request.fabrics), ""))
            checks += check_hosts(examined.probes, requirements=requirements, relations=examined.relations)
        failed: dict[str, str] = {}
        for each in checks:
            if each.status is Status.FAIL:
                failed.setdefault(each.host, f"{each.name}: {each.seen}")
        silent = examined.relations.unreachable
        if silent and not examined.probes:
            raise MachineError(f"No node answers. {' '.join(silent.values())}", hint="fabbench check shows more.")
        why = f"{listed(list(failed))} failed checks." if failed else ""
        self._ended(
            RungResult(
                name=CHECK,
                what="Checks of each node, and of differences between nodes",
                state=State.FAILED if failed else State.PASSED,
                why=why,
                bad=failed,
                nodes=failed,
                seconds=time.monotonic() - started,
            )
        )

    def up(self, allocation: DivisibleAllocation) -> None:
        """Carry out the rungs that are left."""
        hosts = allocation.inventory.hosts
        self._write(nodes=tuple(map(_record, hosts)))
        rungs, without = planned(allocation.inventory, self._request.level, self._request.profile)
        for name, why in without.items():
            if self._state(name) is None:
                self._ended(RungResult(name=name, what=name, state=State.NOT_APPLICABLE, why=why))
        more = [each for each, asked in ((SOAK, self._request.soak), (INTERFERENCE, self._request.background)) if asked]
        for number, rung in enumerate((*rungs, *more), 1):
            if self._state(rung.name) is None:
                left = self._left()
                until = "" if left is None else f", {format_duration(max(left, 0))} left"
                self._watched.notify(f"[{number}/{len(rungs) + len(more)}] {rung.what}{until}")
                started = time.monotonic()
                result = self._rung(rung, allocation, rungs)
                self._ended(replace(result, seconds=round(time.monotonic() - started, 1)))

    def _left(self) -> float | None:
        return None if self._deadline is None else self._deadline - time.monotonic()

    def _rung(self, rung: Rung, allocation: DivisibleAllocation, rungs: Sequence[Rung]) -> RungResult:
        """Carry out one rung on the nodes that nothing speaks against."""
        bad = {name for each in self.certificate.rungs for name in each.nodes}
        chosen = [index for index, host in enumerate(allocation.inventory.hosts) if host.name not in bad]
        held, blank = (
            _Part(allocation, tuple(chosen)),
            RungResult(name=rung.name, what=rung.what, state=State.INCOMPLETE),
        )
        if why := self._hindrance(rung, held):
            return replace(blank, why=f"Not tested: {why}")
        try:
            if not rung.benchmark:
                fine = [each for each in rungs if each.name.startswith(ALL) and self._state(each.name) is State.PASSED]
                if not fine:
                    return replace(blank, why="Not tested: nothing runs on all nodes.")
                return self._soak(fine, held, blank) if rung is SOAK else self._interference(fine[0], held, blank)
            if rung.mode:
                return self._sweep(rung, held, blank)
            return replace(_ran(self._run(self._request_of(rung), held), blank), together=not rung.alone)
        except (RequestError, MachineError) as error:  # before anything was measured
            return replace(blank, why=f"Not tested: {error} {error.hint}".rstrip())

    def _hindrance(self, rung: Rung, held: "_Part") -> str:
        """Return what keeps a rung from being tested, as a sentence; empty: nothing does."""
        before = next((each for each in self.certificate.rungs if each.name == rung.after), None)
        if before is not None and before.state is State.FAILED and not before.nodes:
            return f"{rung.after} failed."
        if (count := len(held.chosen)) < (1 if rung.alone else 2):
            return f"{counted(count, 'node')} left of {len(held.whole.inventory.hosts)}."
        if (left := self._left()) is not None and left < _LEAST_S:
            return "the time is up."
        return _lacking(rung, held.inventory.hosts) if rung.benchmark else ""

    def _request_of(self, rung: Rung) -> RunRequest:
        request = self._request
        return RunRequest(
            benchmark=rung.benchmark,
            work=rung.work,
            target=with_image(request.target, rung.benchmark, request.fabrics),
            fabrics=() if rung.alone and rung.benchmark == DEFAULT else request.fabrics,
            repeats=3 if request.level != LEVELS[0] and not rung.mode else 1,
            env=request.env,
            gates=() if rung.mode else request.limits.of(rung.name),
            store=request.store,
            name=f"{self.certificate.id[-6:]}-{rung.name.replace(':', '-')}",
            command=request.command,
        )

    def _sweep(self, rung: Rung, held: "_Part", blank: RungResult) -> RungResult:
        request, wanted = self._request, self._request_of(rung)
        ended = sweep(
            SweepRequest(
                run=wanted,
                mode=rung.mode,
                confidence=request.confidence,
                tolerance=request.tolerance,
                max_time=self._left(),
                resume=_begun(wanted),
            ),
            notify=_nothing,
            watching=self._watched.sweep,
            held=held,
        )
        result = _swept(ended, blank, request.limits.of(rung.name))
        if ended.whole:
            end_sweep(ended.sweep, _EXITS[result.state])
        if ended.interrupted:
            raise KeyboardInterrupt
        return result

    def _run(self, wanted: RunRequest, held: "_Part") -> RunResult:
        before = _begun(wanted) if wanted.name else None
        before = None if before is None or all(each.is_ok for each in before.executions) else before
        ended = run(wanted, notify=_nothing, resume=before, held=held.whole_part(), **self._watched.run)
        if ended.interrupted:
            raise KeyboardInterrupt
        return ended

    def _soak(self, rungs: Sequence[Rung], held: "_Part", blank: RungResult) -> RungResult:
        """Repeat what all nodes run together, one after the other, until the time is up or something fails."""
        end, number, warned = time.monotonic() + (self._request.soak or 0), 0, dict[str, int]()
        logs: dict[str, list[Log]] = {each.name: [] for each in rungs}
        while time.monotonic() < end:
            rung, number = rungs[number % len(rungs)], number + 1
            ended = self._run(replace(self._request_of(rung), repeats=1, name=""), held)
            result = _ran(ended, blank)
            if result.state is not State.PASSED:
                return replace(result, why=f"Run {number}, {rung.name}: {result.why}")
            logs[rung.name] += [log for each in ended.columns for log in each.logs]
            for log in logs[rung.name][-1:]:
                for finding in log.findings:
                    if finding.severity is Severity.WARNING:
                        warned[finding.meaning] = warned.get(finding.meaning, 0) + 1
        said = [f"{counted(times, 'run')} of {number}: {meaning}" for meaning, times in warned.items()]
        figures, drifted = list[FigureResult](), list[str]()
        for name, known in logs.items():
            third = max(1, len(known) // 3)
            parts = {"end": known[-third:], "beginning": known[:third]}
            comparison = compare([Column(label=each, logs=tuple(part), source=name) for each, part in parts.items()])
            figures += _figures(comparison, "its beginning")
            gates = {f"{each.metric.name}:{100 * self._request.tolerance:g}%" for each in comparison.sections}
            drifted += check(parse_gates(tuple(gates)), comparison).breaches if len(known) > 1 else ()
        why = " ".join((*drifted, *said)) or f"{counted(number, 'run')}."
        state = State.FAILED if drifted else State.PASSED
        return replace(blank, state=state, why=why, figures=tuple(figures), bad={_ALL: why} if drifted else {})

    def _interference(self, rung: Rung, held: "_Part", blank: RungResult) -> RungResult:
        """Measure half of the nodes while the others are quiet, and while they run the same."""
        count = len(held.chosen) // 2
        if count < 2 or not held.concurrent:
            return replace(blank, why="Not tested: it takes four nodes that can be used at the same time.")
        measured, others = (replace(held, chosen=each) for each in (held.chosen[:count], held.chosen[count:]))
        wanted = replace(self._request_of(rung), repeats=1, name="", gates=())
        endless = self._request_of(replace(rung, options={**rung.options, "iterations": "1000000"}))
        logs: dict[str, list[Log]] = {"loaded": [], "quiet": []}
        for repeat in range(_REPEATS):
            for name in sorted(logs, reverse=bool(repeat % 2)):
                with _load(others, endless) if name == "loaded" else nullcontext():
                    ended = self._run(wanted, measured)
                if (result := _ran(ended, blank)).state is State.FAILED:
                    return replace(result, why=f"{name}: {result.why}")
                logs[name] += [log for each in ended.columns for log in each.logs]
        comparison = compare([Column(label=name, logs=tuple(each), source=name) for name, each in logs.items()])
        why = " ".join(headline(comparison, index) for index in range(len(comparison.sections)))
        missed = check(parse_gates(self._request.limits.of(INTERFERENCE.name)), comparison).breaches
        state, bad = (State.FAILED, {"interference": why}) if missed else (State.PASSED, {})
        return replace(blank, state=state, why=why, bad=bad, figures=tuple(_figures(comparison, "quiet nodes")))

    def end(self) -> Certificate:
        """Write that the ladder has ended, and return the certificate."""
        self._write(ended=time.time())
        return self.certificate


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of the machines of an allocation, to be split further."""

    whole: DivisibleAllocation
    chosen: tuple[int, ...]

    @property
    def inventory(self) -> Inventory:
        return self.whole.inventory.part(self.chosen)

    @property
    def documents(self) -> Mapping[str, str]:
        return self.whole.documents

    @property
    def concurrent(self) -> bool:
        return self.whole.concurrent

    def part(self, hosts: Sequence[int], ended: Event) -> Allocation:
        return self.whole.part([self.chosen[index] for index in hosts], ended)

    def whole_part(self) -> Allocation:
        """Return all of them together."""
        return self.part(range(len(self.chosen)), Event())

    def execute(self, execution: Execution) -> Generator[str, None, Ending]:
        return self.whole_part().execute(execution)

    def counters(self) -> Mapping[str, Sequence[str]]:
        return self.whole_part().counters()


@contextmanager
def _load(held: _Part, request: RunRequest) -> Iterator[None]:
    """Keep machines busy with an execution, again and again. Its output is not kept."""
    ended, began = Event(), Event()
    part = held.part(range(len(held.chosen)), ended)
    execution = plan(request, part.inventory).executions[0]

    def work() -> None:
        with suppress(KeyboardInterrupt, MachineError):
            while not ended.is_set():
                for line in part.execute(execution):
                    if not line.startswith("@fabbench"):
                        began.set()
        began.set()

    thread = Thread(target=work)
    thread.start()
    try:
        began.wait()
        yield
    finally:
        ended.set()
        thread.join()


def _nothing(sentence: str) -> None:
    """Ignore what runs and sweeps say at their start: rungs say enough."""


def _record(host: Host) -> NodeRecord:
    return NodeRecord(
        name=host.name,
        instance_type=host.instance_type,
        gpus=host.gpus,
        gpu_model=host.gpu_model,
        nics=host.devices,
        versions=host.versions,
    )


def _lacking(rung: Rung, hosts: Sequence[Host]) -> str:
    """Return which of a rung's programs hosts lack, as sentences; empty: none is known to be missing."""
    wanted = rung.work.needs
    for host in hosts:
        if missing := [each for each in wanted.programs if each not in host.programs and each not in host.searched]:
            return f"{listed(missing)} not found on {host.name}. Install it: {wanted.install}."
    return ""


def _begun(request: RunRequest) -> StoredRun | None:
    """Return the part of a rung that an interrupted ladder has measured; None if there is none."""
    if not request.store.is_dir():
        return None
    known = (StoredRun(path) for path in islice(runs(request.store), _NEWEST))
    return next((each for each in known if each.name == request.name), None)


def _swept(ended: SweepRun, blank: RungResult, gates: Sequence[str]) -> RungResult:
    """Return what a sweep says about its nodes."""
    stored, document = ended.sweep, ended.sweep.document
    outcomes = {each.outcome for each in stored.tests}
    fabric = document.fabric if outcomes <= {Outcome.OK} else ""
    blank = replace(blank, run=stored.path.name, fabric=fabric)
    if not any(each.result.figure for each in stored.tests):
        failure = str(ended.failure or next((each.reason for each in stored.tests if each.reason), ""))
        why = f"No test succeeded. {failure}".rstrip()
        certain = stored.tests and not ended.failure
        state = State.FAILED if certain else State.INCOMPLETE
        return replace(blank, state=state, why=why, bad={_ALL: failure} if certain else {})
    readings = Readings(METRICS[document.metric], document.nodes, group_of=document.group_of)
    how = {"tolerance": document.tolerance, "confidence": document.confidence}
    found = sweep_report(readings, stored.results, rows=1, **how).diagnosis
    typical = found.typicals.values()
    lower = METRICS[document.metric].lower_is_better
    figure = (max if lower else min)(typical) if typical else None
    figures = [FigureResult(document.metric, None, figure, found.tests, ", ".join(gates))] if figure else []
    bad = {each.name: each.evidence for each in found.suspects}
    if missed := " ".join(_missed(gates, document.metric, figure)):
        bad[_ALL] = missed
    nodes = {each.nodes[0]: each.evidence for each in found.suspects if each.kind in _OF_ONE_NODE}
    done = replace(blank, bad=bad, nodes=nodes, figures=tuple(figures))
    if bad:
        return replace(done, state=State.FAILED, why=f"Bad: {listed(list(bad))}.")
    left = unfinished(stored) if not ended.whole else ""
    doubt = (
        f"{listed([each.name for each in found.undecided])} may be bad." if found.undecided else "",
        found.contradiction,
        f"Not tested: {left}." if left else "",
        str(ended.failure or ""),
        f"The tests did not prove that they used {document.fabric}." if outcomes != {Outcome.OK} else "",
    )
    return replace(done, state=State.INCOMPLETE if any(doubt) else State.PASSED, why=" ".join(filter(None, doubt)))


def _ran(ended: RunResult, blank: RungResult) -> RungResult:
    """Return what a run on all nodes says about them."""
    blank, logs = replace(blank, run=ended.path.name), [log for each in ended.columns for log in each.logs]
    wrong = [log for log in logs if log.outcome is not Outcome.OK]
    if error := ended.failure or ended.release_failure:
        lost = isinstance(error, MachineError)
        bad = {_ALL: str(error)} if lost else {}
        return replace(blank, state=State.FAILED if lost else State.INCOMPLETE, why=str(error), bad=bad)
    if wrong or ended.comparison is None:
        why = _reason(wrong[0]) if wrong else "Nothing was measured."
        doubtful = not wrong or all(log.outcome in _DOUBTFUL for log in wrong)
        state = State.INCOMPLETE if doubtful else State.FAILED
        return replace(blank, state=state, why=why, bad={} if doubtful else {_ALL: why})
    comparison = ended.comparison
    gates = [each.gate for each in ended.verdict.results] if ended.verdict else []
    missed, impossible, by = list(ended.verdict.breaches) if ended.verdict else [], list[str](), ", ".join(gates)
    for each in () if gates else expectations(comparison):
        if each.assessment is Assessment.ABOVE:
            impossible.append(each.sentence())
        elif each.assessment is Assessment.LOW or (each.figures == () and (each.share or FLOOR) < FLOOR):
            missed.append(each.sentence())
        by = f"published for {each.setting.words}" if each.figures else f"{100 * FLOOR:g} % of the ceiling of its NICs"
    done = replace(blank, fabric=ended.columns[0].label, figures=tuple(_figures(comparison, by)))
    if missed:
        return replace(done, state=State.FAILED, why=" ".join(missed), bad={_ALL: " ".join(missed)})
    return replace(done, state=State.INCOMPLETE if impossible else State.PASSED, why=" ".join(impossible))


def _reason(log: Log) -> str:
    """Return why a log is not ok, with what most likely explains it."""
    found, _ = causes(log)
    cause = f" {found[0].found.meaning} {found[0].found.advice}" if found else ""
    return f"{log.outcome}: {log.reason or 'no reason was printed.'}{cause}".rstrip()


def _figures(comparison: Comparison, by: str) -> Iterator[FigureResult]:
    """Yield the figure to quote of each table."""
    for section in comparison.sections:
        row = headline_row(section)
        if row is not None and (figure := row.figures[0]) is not None:
            yield FigureResult(section.metric.name, row.size, figure.value, figure.n, by)


def _missed(gates: Sequence[str], metric: str, figure: float | None) -> Iterator[str]:
    """Yield a sentence for each limit that the typical figure of a sweep misses."""
    for gate in parse_gates(gates):
        if figure is not None and gate.metric.name == metric:
            holds = figure >= gate.bound if gate.kind is GateKind.AT_LEAST else figure <= gate.bound
            if not holds:
                yield f"{gate.text}: typical is {_quantity(metric, figure)}."


def _quantity(metric: str, value: float) -> str:
    return scale(METRICS[metric].unit, value).quantity(value)


def write_thresholds(file: Path, certificate: Certificate) -> None:
    """Write limits from the figures of a ladder that found nothing bad: `MARGIN` worse than these."""
    if certificate.bad:
        raise RequestError("No thresholds were written: something is bad.", hint="Write them on healthy nodes.")
    rungs: dict[str, list[str]] = {}
    for rung in certificate.rungs:
        for figure in rung.figures:
            at = "" if figure.size is None else f"@{format_size(figure.size)}"
            lower = METRICS[figure.metric].lower_is_better
            bound = figure.value * (1 + MARGIN if lower else 1 - MARGIN)
            limit = f"{figure.metric}{at}{'<=' if lower else '>='}{_quantity(figure.metric, bound)}"
            rungs.setdefault(rung.name, []).append(limit.replace(" ", ""))
    source = f"certificate {certificate.id}, minus {100 * MARGIN:g} %"
    with writing(file):
        file.write_text(yaml.safe_dump({"source": source, "rungs": rungs}, sort_keys=False), "utf-8")


def read_thresholds(file: Path) -> Limits:
    """Read limits. Raise MachineError if they cannot be read, RequestError for an invalid one."""
    try:
        limits = read_value(yaml.safe_load(file.read_text("utf-8")), Limits, str(file))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise MachineError(f"{file} cannot be read: {error}.") from error
    for gates in limits.rungs.values():
        if relative := [each.text for each in parse_gates(gates) if each.needs_baseline]:
            raise RequestError(f"{file}: {relative[0]} compares with a baseline.", hint="Write >= or <= and a limit.")
    return limits
