"""The use case of ``fabbench accept``.

The rungs of a ladder on machines that are held once, and one verdict.

Each rung is a run or a sweep of the store. The certificate is written after every rung: an
interrupted ladder goes on.
"""

import math
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import InitVar, dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from threading import Event
from typing import Any, cast

from fabbench.analysis.expectations import Assessment, expectations
from fabbench.analysis.headline import headline, headline_row
from fabbench.benchmarks import DEFAULT
from fabbench.evidence.known_errors import causes, told
from fabbench.hosts.check import Progress, Status, check_hosts
from fabbench.launchers import (
    AllocationLostError,
    DivisibleAllocation,
    Launcher,
    launcher_named,
    require_support,
)
from fabbench.model.errors import FabbenchError, MachineError, RequestError
from fabbench.model.hostlist import compress_hostlist
from fabbench.model.hosts import Needs, Target
from fabbench.model.log import METRICS, Log, Outcome, Severity
from fabbench.model.messages import counted, listed, redacted
from fabbench.model.units import format_duration
from fabbench.plan.gates import AT_LEAST, Gate, parse_gates
from fabbench.plan.request import RunRequest
from fabbench.report.certificate import ALL, EXITS, Certificate, RungFigure, RungResult, State
from fabbench.runs.document import StoreError, TestResult, read, write
from fabbench.runs.execute import Watcher
from fabbench.runs.ladder import (
    CHECK,
    LEVELS,
    SOAK,
    AcceptOptions,
    Rung,
    ladder,
    needs,
    read_thresholds,
)
from fabbench.runs.run import RunResult, run
from fabbench.runs.store import StoredRun
from fabbench.runs.sweep import (
    SweepRequest,
    SweepRun,
    Watching,
    diagnosed,
    end_sweep,
    require_divisible,
    same_nodes,
    sweep,
    unfinished,
)
from fabbench.sweep.values import SuspectKind

_LEAST_S = 5.0  # Nothing starts with less time than this left
_DOUBTFUL = frozenset(
    {Outcome.UNPROVEN, Outcome.TRUNCATED, Outcome.SKIPPED}
)  # They say nothing about the nodes
_NOT_STARTED = "program-missing"  # The code of a failure that says nothing about them either
_OF_HALVES = 5  # Repeats of half of the nodes
_FLOOR = (
    0.5  # The fraction of the ceiling of its NICs that a figure must reach if none is published
)


def certificate_path(store: Path, name: str) -> Path:
    """Return where a certificate is stored."""
    return store / "certificates" / f"{name}.json"


def open_certificate(name: str, store: Path) -> Certificate:
    """Read a certificate by its id, or a file. Raise MachineError or RequestError."""
    path = certificate_path(store, name) if not Path(name).suffix else Path(name)
    if name == "last":
        path = max(path.parent.glob("*.json"), default=path)
    if not path.is_file():
        raise RequestError(
            f"There is no certificate {name} in {store}.", hint="fabbench accept makes one."
        )
    return read(path, Certificate)


def go_on(certificate: Certificate, store: Path) -> str:
    """Return how to test what is left."""
    return f"To go on: {shlex.join(['fabbench', 'accept', '--resume', certificate.id, '--store', str(store)])}"


@dataclass
class Acceptance:
    """A ladder in progress; the rest is how it is shown."""

    asked: SweepRequest  # What its sweeps and runs have in common
    how: AcceptOptions
    resume: InitVar[Certificate | None]
    notify: Callable[[str], None]
    watching: Any  # As in `run`
    watching_sweep: Watching
    examine: Callable[[], AbstractContextManager[Progress]]

    def __post_init__(self, resume: Certificate | None) -> None:
        """Keep what is certain; what was not tested is tested now, or goes on."""
        how, run, self._rungs = self.how, self.asked.run, list[Rung]()
        self._deadline = time.monotonic() + (how.max_time or math.inf)
        self._limits = read_thresholds(how.thresholds) if how.thresholds else {}
        what: Any = {
            "level": how.level,
            "profile": how.profile,
            "limits": str(how.thresholds or ""),
        }
        known = resume or Certificate(
            **what, target=run.target.name, command=tuple(redacted(run.command))
        )
        self.asked = replace(self.asked, run=same_nodes(run, [each.name for each in known.nodes]))
        kept = tuple(each for each in known.rungs if each.state is not State.INCOMPLETE)
        self._begun = {
            each.name: StoredRun(run.store / each.run) for each in known.rungs if each.run
        }
        self.certificate = replace(known, rungs=kept, ended=None)

    def accept(self) -> Certificate:
        """Climb the ladder; an early end leaves a certificate, too.

        Raise FabbenchError if no machine can be held.
        """
        run, launcher = self.asked.run, launcher_named(self.asked.run.target.launcher)
        require_divisible(run.target)
        require_support(launcher, run.target)
        wanted = replace(needs(), fabrics=run.fabrics, held_s=self.how.max_time)
        try:
            if target := self._check(launcher, wanted):
                with launcher.open(target, wanted) as allocation:
                    self._climb(cast("DivisibleAllocation", allocation))
        except (FabbenchError, KeyboardInterrupt) as error:
            if not self.certificate.ended or not isinstance(error, MachineError):
                if self.certificate.rungs:
                    error.add_note(go_on(self.certificate, run.store))
                raise
            self.notify(
                f"{error} {error.hint or ''}".rstrip()
            )  # a node that is gone cannot be cleaned up
        return self.certificate

    def _write(self, **changes: Any) -> None:
        """Change the certificate, and store it."""
        self.certificate = replace(self.certificate, **changes)
        write(certificate_path(self.asked.run.store, self.certificate.id), self.certificate)

    def _climbed(
        self, name: str, what: str, tested: Callable[[RungResult], RungResult]
    ) -> RungResult:
        """Carry out a rung, unless its result is known, and store the result."""
        if name not in self.certificate.results:
            started = time.monotonic()
            result = tested(RungResult(name=name, what=what, state=State.INCOMPLETE))
            result = replace(result, seconds=round(time.monotonic() - started, 1))
            self._write(rungs=(*self.certificate.rungs, result))
            self.notify(f"{what}: {result.state}. {result.why}".rstrip())
        return self.certificate.results[name]

    def _check(self, launcher: Launcher, wanted: Needs) -> Target | None:
        """Check all nodes before anything is measured. Return the target without those that failed.

        None: all did.
        """

        def tested(blank: RungResult) -> RungResult:
            with self.examine() as progress:
                examined = launcher.examine(target, wanted, deep=False, progress=progress)
            if not examined.probes and (silent := examined.relations.unreachable):
                raise MachineError(
                    f"No node answers. {' '.join(silent.values())}",
                    hint="fabbench check shows more.",
                )
            required = Needs(fabrics=(self.how.fabric,) if self.how.fabric else ())
            checks = [
                *examined.checks,
                *check_hosts(examined.probes, required, relations=examined.relations),
            ]
            failed = {
                each.host: f"{each.name}: {each.seen}"
                for each in reversed(checks)
                if each.status is Status.FAIL
            }
            doubts = (
                ["Nothing could be checked."]
                if all(each.status is Status.SKIP for each in checks)
                else ()
            )
            return _judged(replace(blank, bad=failed, nodes=failed), (), doubts)

        target = self.asked.run.target
        checked = self._climbed(
            CHECK, "Checks of each node, and of differences between nodes", tested
        )
        fine = tuple(each for each in target.hosts[: target.nodes] if each not in checked.nodes)
        if target.hosts and not fine:
            self._write(ended=time.time())
            return None
        return replace(target, hosts=fine, nodes=None) if fine else target

    def _climb(self, allocation: DivisibleAllocation) -> None:
        """Carry out the rungs that are left.

        Raise RequestError for other nodes than those of rungs that are kept.
        """
        inventory, before = allocation.inventory, {each.name for each in self.certificate.nodes}
        if before and before != {*(each.name for each in inventory.hosts), *inventory.unreachable}:
            raise RequestError(
                "These are other nodes than before.",
                hint="Name the same ones, or start a new ladder.",
            )
        self._write(nodes=inventory.hosts)
        if lost := inventory.unreachable:
            self._climbed(
                "reach", "Nodes answer", lambda blank: _judged(replace(blank, bad=lost, nodes=lost))
            )
        self._rungs = ladder(inventory, self.how)
        for rung in self._rungs:
            self._climbed(rung.name, rung.what, partial(self._tested, rung, allocation))
        self._write(ended=time.time())

    def _tested(self, rung: Rung, allocation: DivisibleAllocation, blank: RungResult) -> RungResult:
        """Carry out one rung on the nodes that nothing speaks against."""
        if rung.absent:
            return replace(blank, state=State.NOT_APPLICABLE, why=rung.absent)
        bad = self.certificate.bad_nodes
        chosen = [at for at, host in enumerate(allocation.inventory.hosts) if host.name not in bad]
        held = allocation.part(chosen, Event())
        try:
            self._require(rung, held)
            until = f", {format_duration(left)} left" if (left := self._left()) < math.inf else ""
            self.notify(f"[{self._rungs.index(rung) + 1}/{len(self._rungs)}] {rung.what}{until}")
            if rung.mode:
                return self._sweep(rung, held, blank)
            if rung.name == SOAK:
                return self._soak(held, blank)
            count = len(chosen) // 2 if rung.half else len(chosen)
            others = range(count, len(chosen) if rung.baseline else count)
            with self._load(rung, held, others) if others else nullcontext():
                return _ran(self._measure(rung, held.part(range(count), Event())), blank)
        except (StoreError, AllocationLostError):
            raise
        except (RequestError, MachineError) as error:  # before anything was measured
            return replace(blank, why=f"Not tested: {error} {error.hint or ''}".rstrip())

    def _require(self, rung: Rung, held: DivisibleAllocation) -> None:
        """Raise RequestError for what keeps a rung from being tested."""
        hosts, before = held.inventory.hosts, self.certificate.results.get(rung.after)
        if before is not None and before.state is State.FAILED and not before.nodes:
            raise RequestError(f"{rung.after} failed.")
        if len(hosts) < (1 if rung.alone else 4 if rung.half else 2):
            raise RequestError(
                f"{counted(len(hosts), 'node')} left of {len(self.certificate.nodes)}."
            )
        if rung.half and not held.concurrent:
            raise RequestError("these nodes cannot be used at the same time.")
        for host in hosts if rung.benchmark else ():
            need = rung.work.needs
            if missing := [
                each for each in need.programs if each not in {*host.programs, *host.searched}
            ]:
                raise RequestError(
                    f"{listed(missing)} not found on {host.name}.",
                    hint=f"Install it: {need.install}.",
                )

    def _left(self) -> float:
        """Return the seconds that are left.

        Raise RequestError if they are too few to measure anything.
        """
        if (left := self._deadline - time.monotonic()) < _LEAST_S:
            raise RequestError("the time is up.")
        return left

    def _request_of(self, rung: Rung) -> RunRequest:
        """Return what a rung measures.

        Raise RequestError if the rung that it is compared with has no figures.
        """
        before, gates = self.certificate.results.get(rung.baseline), self._limits.get(rung.name, ())
        if rung.baseline and not (before and before.figures):
            raise RequestError(f"{rung.baseline} was not measured.")
        if before and not rung.half:
            gates = gates or tuple(
                f"{each.metric}:{100 * self.asked.tolerance:g}%" for each in before.figures
            )
        return replace(
            self.asked.run,
            benchmark=rung.benchmark,
            work=rung.work,
            fabrics=() if rung.alone and rung.benchmark == DEFAULT else self.asked.run.fabrics,
            repeats=_OF_HALVES if rung.half else 1 if self.how.level == LEVELS[0] else 3,
            gates=() if rung.mode else gates,
            baseline=before.run if before else None,
            name=f"{self.certificate.id[-6:]}-{rung.name.replace(':', '-')}",
        )

    def _sweep(self, rung: Rung, held: DivisibleAllocation, blank: RungResult) -> RungResult:
        begun = self._begun.get(rung.name)
        before = begun if begun and not begun.verdict else None
        asked = replace(
            self.asked,
            run=self._request_of(rung),
            mode=rung.mode,
            max_time=self._left(),
            resume=before,
        )
        ended = sweep(asked, notify=lambda _: None, watching=self.watching_sweep, held=held)
        _require_end(ended)
        result = _swept(ended, blank, parse_gates(self._limits.get(rung.name, ())))
        if ended.whole:
            end_sweep(ended.sweep, EXITS[result.state])
        return result

    def _measure(self, rung: Rung, held: DivisibleAllocation, **changes: Any) -> RunResult:
        wanted = replace(self._request_of(rung), **changes)
        limit_s = self._left() / (wanted.repeats or 1)
        end = time.monotonic() + limit_s
        ended = run(replace(wanted, limit_s=limit_s), held=held, watching=self.watching)
        _require_end(ended)
        outcomes = {log.outcome for each in ended.columns for log in each.logs}
        if Outcome.TIMEOUT in outcomes and time.monotonic() > end:
            raise RequestError("the time is up.")
        return ended

    def _soak(self, held: DivisibleAllocation, blank: RungResult) -> RungResult:
        """Repeat what all nodes have run, one after the other, until the time is up or something fails."""
        end, warned, known = (
            time.monotonic() + self.how.soak,
            Counter[str](),
            self.certificate.results,
        )
        rungs = [
            each
            for each in self._rungs
            if each.name.startswith(ALL) and known[each.name].state is State.PASSED
        ]
        for number, rung in enumerate(cycle(rungs), 1):
            ended = self._measure(rung, held, repeats=1, name="")
            if (result := _ran(ended, blank)).state is not State.PASSED:
                return replace(result, why=f"Run {number}, {rung.name}: {result.why}")
            findings = ended.columns[0].logs[-1].findings
            warned.update({each.meaning for each in findings if each.severity is Severity.WARNING})
            if number >= len(rungs) and time.monotonic() >= end:
                said = (
                    f"{counted(count, 'run')} of {number}: {meaning}"
                    for meaning, count in warned.items()
                )
                return _judged(replace(blank, why=" ".join(said) or f"{counted(number, 'run')}."))
        raise RequestError("nothing runs on all nodes.")

    @contextmanager
    def _load(self, rung: Rung, held: DivisibleAllocation, hosts: Sequence[int]) -> Iterator[None]:
        """Keep machines busy. Raise MachineError if it ends by itself."""
        ended, began = Event(), Event()
        endless = self._request_of(replace(rung, options={**rung.options, "iterations": "1000000"}))
        endless = replace(endless, repeats=1, gates=(), baseline=None, name="")
        watcher = Watcher(lambda _: began.set())  # after some seconds
        with ThreadPoolExecutor(1) as pool:
            load = pool.submit(
                run, endless, held=held.part(hosts, ended), watching=lambda _: nullcontext(watcher)
            )
            load.add_done_callback(lambda _: began.set())
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


def _judged(
    result: RungResult, missed: Sequence[str] = (), doubts: Sequence[str] = ()
) -> RungResult:
    """Return a result that failed if something is bad, or missed, and is incomplete if there are doubts."""
    named = [f"Bad: {listed([*result.bad])}."] if result.bad else []
    why = " ".join(filter(None, (*named, *missed, result.why, *doubts)))
    bad = {**result.bad, "all nodes": " ".join(missed)} if missed else result.bad
    state = State.FAILED if bad else State.INCOMPLETE if any(doubts) else State.PASSED
    return replace(result, state=state, why=why, bad=bad)


def _broken(
    result: RungResult, error: Exception | None, ended: Sequence[Log | TestResult]
) -> RungResult:
    """Return a result without figures.

    Failed, unless nothing is proven about the nodes or nothing was started.
    """
    wrong = [each for each in ended if each.outcome != Outcome.OK]
    serious = [
        {each.code for each in told([log.reason or ""])}
        for log in wrong
        if log.outcome not in _DOUBTFUL
    ]
    failed = (
        isinstance(error, MachineError)
        if error
        else any(_NOT_STARTED not in codes for codes in serious)
    )
    reasons = [f"{log.outcome}: {log.reason or 'no reason was printed.'}" for log in wrong[:1]]
    found = causes(wrong[0])[0][:1] if wrong and isinstance(wrong[0], Log) else ()
    reasons += [f"{each.found.meaning} {each.found.advice}" for each in found]
    why = str(error or " ".join(reasons).rstrip() or "Nothing was measured.")
    return _judged(result, [why]) if failed else _judged(result, (), [why])


def _swept(ended: SweepRun, blank: RungResult, gates: Sequence[Gate]) -> RungResult:
    """Return what a sweep says about its nodes."""
    stored, document, failure = ended.sweep, ended.sweep.document, str(ended.failure or "")
    metric, proven = (
        METRICS[document.metric],
        all(each.outcome == Outcome.OK for each in stored.tests),
    )
    blank = replace(blank, run=stored.path.name)
    if not any(each.result.figure for each in stored.tests):
        return _judged(blank, (), [failure]) if failure else _broken(blank, None, stored.tests)
    found = diagnosed(document, stored.results)
    typical = (max if metric.lower_is_better else min)(found.typicals.values(), default=math.nan)
    figures = [RungFigure(metric.name, None, typical, found.tests)] if found.typicals else []
    plain = [each for each in gates if not (each.sizes or each.relative or each.needs_baseline)]
    fit = [each for each in plain if figures and each.metric == metric]
    low = [
        each for each in fit if (typical - each.bound) * (1 if each.kind == AT_LEAST else -1) < 0
    ]
    left = unfinished(stored) if not ended.whole else ""
    doubts = (
        f"{listed([each.name for each in found.undecided])} may be bad." if found.undecided else "",
        found.contradiction,
        f"Not tested: {left}." if left else "",
        failure,
        "" if proven else f"Not every test succeeded and proved that it used {document.fabric}.",
        *(f"{each.text}: nothing to compare was measured." for each in gates if each not in fit),
    )
    groups = "; ".join(f"{each.name} is {compress_hostlist(each.nodes)}" for each in found.groups)
    members = {SuspectKind.GROUP: f" {groups}."}
    bad = {each.name: each.evidence + members.get(each.kind, "") for each in found.suspects}
    nodes = {
        one.nodes[0]: one.evidence
        for one in found.suspects
        if one.kind in {SuspectKind.NODE, SuspectKind.NIC}
    }
    fabric, limits = document.fabric if proven else "", tuple(each.text for each in fit)
    result = replace(
        blank, bad=bad, nodes=nodes, figures=tuple(figures), limits=limits, fabric=fabric
    )
    return _judged(result, [f"{each.text}: typical is {figures[0]}." for each in low], doubts)


def _ran(ended: RunResult, blank: RungResult) -> RungResult:
    """Return what a run on all nodes says about them."""
    blank, logs = (
        replace(blank, run=ended.path.name),
        [log for each in ended.columns for log in each.logs],
    )
    verdict, comparison = ended.verdict, ended.comparison
    if ended.failure or comparison is None or any(log.outcome is not Outcome.OK for log in logs):
        return _broken(blank, ended.failure, logs)
    limits, missed = (
        ([each.gate for each in verdict.results], [*verdict.breaches]) if verdict else ([], [])
    )
    alone, doubts = len(comparison.columns) == 1, list[str]()
    for each in expectations(comparison) if alone and not verdict else ():
        published = each.assessment in {Assessment.NORMAL, Assessment.LOW}
        if each.assessment in {Assessment.ABOVE, Assessment.HIGH}:
            doubts.append(each.sentence())
        elif published or each.share is not None:
            floor = f"{100 * _FLOOR:g} % of the ceiling of its NICs"
            limits.append(f"published for {each.setting.words}" if published else floor)
            if each.assessment is Assessment.LOW or (not published and (each.share or 0) < _FLOOR):
                missed.append(each.sentence())
    said = (
        ""
        if alone
        else " ".join(headline(comparison, index) for index in range(len(comparison.sections)))
    )
    rows = [(section.metric.name, headline_row(section)) for section in comparison.sections]
    figures = tuple(
        RungFigure(metric, row.size, first.value, first.n)
        for metric, row in rows
        if row and (first := row.figures[0])
    )
    result = replace(
        blank, fabric=ended.columns[0].label, figures=figures, limits=tuple(limits), why=said
    )
    return _judged(result, missed, doubts)
