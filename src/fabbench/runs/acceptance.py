"""The use case of ``fabbench accept``.

The rungs of a ladder on machines that are held once, and one verdict.

Each rung is a run or a sweep of the store. The certificate is written after every rung: an
interrupted ladder goes on.
"""

import math
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import InitVar, dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from threading import Event
from typing import Any, cast

from fabbench.benchmarks import DEFAULT
from fabbench.hosts.check import Progress, check_hosts
from fabbench.hosts.discover import inventory, missing_programs, unmet
from fabbench.launchers import (
    AllocationLostError,
    DivisibleAllocation,
    Examined,
    Launcher,
    launcher_named,
    require_support,
)
from fabbench.model.errors import FabbenchError, Fault, MachineError, RequestError
from fabbench.model.hosts import Inventory, Needs, Target
from fabbench.model.log import Severity
from fabbench.model.messages import counted, redacted
from fabbench.model.plan import Plan
from fabbench.model.units import format_duration
from fabbench.plan.build import plan
from fabbench.plan.gates import parse_gates
from fabbench.plan.request import RunRequest
from fabbench.remote.host import UnwritableError
from fabbench.remote.transport import SilentHostError
from fabbench.report.certificate import ALL, EXITS, Certificate, RungResult, State
from fabbench.runs.document import StoreError, read, write
from fabbench.runs.execute import Notify, Watcher
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
from fabbench.runs.rung_verdicts import judge_checks, judge_lost, judge_run, judge_sweep, judged
from fabbench.runs.store import StoredRun, failed_after_s
from fabbench.runs.sweep import (
    SweepRequest,
    SweepRun,
    Watching,
    end_sweep,
    longest_s,
    require_divisible,
    same_nodes,
    sweep,
)

_LEAST_S = 5.0  # Nothing starts with less time than this left
_REPEATS_OF_HALVES = 5  # Repeats of half of the nodes
_REPEATS = 3  # Repeats of every other rung, unless the level is the quickest


def certificate_path(store: Path, name: str) -> Path:
    """Return where a certificate is stored."""
    return store / "certificates" / f"{name}.json"


def open_certificate(name: str, store: Path) -> Certificate:
    """Read a certificate by its id, or a file. Raise MachineError or RequestError."""
    is_file_name = Path(name).suffix
    path = Path(name) if is_file_name else certificate_path(store, name)
    if name == "last":  # ids begin with the time, so that the greatest name is the latest
        path = max(path.parent.glob("*.json"), default=path)
    if not path.is_file():
        raise RequestError(
            f"There is no certificate {name} in {store}.", hint="fabbench accept makes one."
        )
    return read(path, Certificate)


def how_to_resume(certificate: Certificate, store: Path) -> str:
    """Return how to test what is left."""
    argv = ["fabbench", "accept", "--resume", certificate.id, "--store", str(store)]
    return f"To go on: {shlex.join(argv)}"


@dataclass
class Acceptance:
    """A ladder in progress; the rest is how it is shown."""

    asked: SweepRequest  # What its sweeps and runs have in common
    how: AcceptOptions
    resume: InitVar[Certificate | None]
    notify: Notify
    watching: Any  # As in `run`
    watching_sweep: Watching
    examine: Callable[[], AbstractContextManager[Progress]]

    def __post_init__(self, resume: Certificate | None) -> None:
        """Keep the certain rungs of a certificate to resume; the others are tested, or go on."""
        how = self.how
        run = self.asked.run
        self._rungs: list[Rung] = []
        self._deadline = time.monotonic() + (how.max_time or math.inf)
        self._limits = read_thresholds(how.thresholds) if how.thresholds else {}
        certificate = resume or Certificate(
            level=how.level,
            profile=how.profile,
            limits=str(how.thresholds or ""),  # the file that has them
            target=run.target.name,
            command=tuple(redacted(run.command)),
        )
        nodes = [each.name for each in certificate.nodes]  # of a new ladder none: any will do
        self.asked = replace(self.asked, run=same_nodes(run, nodes))
        # Rung → its run or sweep; an unfinished sweep goes on
        self._begun = {
            each.name: StoredRun(run.store / each.run) for each in certificate.rungs if each.run
        }
        certain = tuple(each for each in certificate.rungs if each.state is not State.INCOMPLETE)
        self.certificate = replace(certificate, rungs=certain, ended=None)

    def accept(self) -> Certificate:
        """Climb the ladder; an early end leaves a certificate, too.

        Raise FabbenchError if no machine can be held.
        """
        run = self.asked.run
        launcher = launcher_named(run.target.launcher)
        require_divisible(run.target)
        require_support(launcher, run.target)
        max_time = self.how.max_time
        wanted = replace(needs(), fabrics=run.fabrics, held_s=lambda _: max_time)
        try:
            if target := self._check_nodes(launcher, wanted):
                with launcher.open(target, wanted) as allocation:
                    self._climb(cast("DivisibleAllocation", allocation))
        except (FabbenchError, KeyboardInterrupt) as error:
            if self.certificate.ended and isinstance(error, MachineError):
                # All is tested; only the release failed, as a node that is gone makes it.
                self.notify(error.with_hint)
                return self.certificate
            if self.certificate.rungs:
                error.add_note(how_to_resume(self.certificate, run.store))
            raise
        return self.certificate

    def _update_certificate(self, **changes: Any) -> None:
        """Change the certificate, and store it."""
        self.certificate = replace(self.certificate, **changes)
        write(certificate_path(self.asked.run.store, self.certificate.id), self.certificate)

    def _stored_result(
        self, name: str, what: str, test: Callable[[RungResult], RungResult]
    ) -> RungResult:
        """Return the result of a rung; unless it is known, `test` fills it in, and it is stored."""
        if name not in self.certificate.results:
            started = time.monotonic()
            result = test(RungResult(name=name, what=what, state=State.INCOMPLETE))
            result = replace(result, seconds=round(time.monotonic() - started, 1))
            self._update_certificate(rungs=(*self.certificate.rungs, result))
            self.notify(f"{what}: {result.state}. {result.why}".rstrip())
        return self.certificate.results[name]

    def _check_nodes(self, launcher: Launcher, wanted: Needs) -> Target | None:
        """Check all nodes before anything is measured.

        Return the target without those that failed; None: all did.
        """
        target = self.asked.run.target
        deep = launcher.deep_before_tests  # Whether the checks start pods, too

        def test(blank: RungResult) -> RungResult:
            with self.examine() as progress:
                examined = launcher.examine(target, wanted, deep=deep, progress=progress)
            return self._result_of_checks(examined, blank)

        what = "Checks of each node, and of differences between nodes"
        checked = self._stored_result(CHECK, what, test)
        requested = target.hosts[: target.nodes]  # None: all of them
        left_out = {**checked.nodes, **checked.left_out}  # bad ones, and those not known to be fine
        fine = tuple(each for each in requested if each not in left_out)
        if target.hosts and not fine:  # else the launcher chooses nodes
            self._update_certificate(ended=time.time())
            return None
        return replace(target, hosts=fine, nodes=None) if fine else target

    def _result_of_checks(self, examined: Examined, blank: RungResult) -> RungResult:
        """Return what the checks of nodes say. Raise MachineError if no node answers."""
        silent = examined.relations.unreachable
        if silent and not examined.probes:
            reasons = " ".join(silent.values())
            raise MachineError(f"No node answers. {reasons}", hint="fabbench check shows more.")
        required = Needs(fabrics=(self.how.fabric,) if self.how.fabric else ())
        of_hosts = check_hosts(examined.probes, required, relations=examined.relations)
        missing = missing_programs(examined.probes, self._needed_programs(examined))
        # What the launcher knows without a probe, and what the probes of nodes show
        return judge_checks([*examined.checks, *of_hosts], blank, missing)

    def _needed_programs(self, examined: Examined) -> Mapping[str, Needs]:
        """Return the programs of all rungs that apply to nodes → what needs them."""
        if not examined.probes:
            return {}
        target = self.asked.run.target
        probed = inventory(target, examined.probes, Needs())  # which requires nothing yet
        needed: dict[str, Needs] = {}
        for rung in ladder(probed, self.how):
            if rung.benchmark and not rung.absent:
                needs_of_rung = rung.work.needs
                needed |= dict.fromkeys(needs_of_rung.programs, needs_of_rung)
        return needed

    def _climb(self, allocation: DivisibleAllocation) -> None:
        """Carry out the rungs that are left.

        Raise RequestError for other nodes than those of rungs that are kept.
        """
        inventory = allocation.inventory
        self._require_same_nodes(inventory)
        self._update_certificate(nodes=inventory.hosts)
        # Nodes that were requested and do not answer are a rung of their own, which failed.
        if lost := inventory.unreachable:
            self._stored_result("reach", "Nodes can be used", partial(judge_lost, lost))
        self._rungs = ladder(inventory, self.how)
        self._notify_longest(allocation)
        for rung in self._rungs:
            self._stored_result(rung.name, rung.what, partial(self._test_rung, rung, allocation))
        self._update_certificate(ended=time.time())

    def _require_same_nodes(self, inventory: Inventory) -> None:
        before = {each.name for each in self.certificate.nodes}
        now = {*inventory.names, *inventory.unreachable}
        if before and before != now:  # a new ladder has none before
            raise RequestError(
                "These are other nodes than before.",
                hint="Name the same ones, or start a new ladder.",
            )

    def _test_rung(
        self, rung: Rung, allocation: DivisibleAllocation, blank: RungResult
    ) -> RungResult:
        """Carry out one rung on the nodes that nothing speaks against."""
        if rung.absent:
            return replace(blank, state=State.NOT_APPLICABLE, why=rung.absent)
        if rung.name in self._limits:
            blank = replace(blank, sources=(str(self.how.thresholds),))
        left_out = self.certificate.left_out
        hosts = allocation.inventory.hosts
        chosen = [at for at, host in enumerate(hosts) if host.name not in left_out]
        held = allocation.part(chosen, Event())  # an event that never ends it
        try:
            self._require_testable(rung, held)
            self._announce(rung)
            if rung.mode:  # which only a sweep has
                return self._sweep_rung(rung, held, blank)
            if rung.name == SOAK:
                return self._soak(held, blank)
            return self._run_rung(rung, held, blank)
        except (StoreError, AllocationLostError):
            raise
        except (RequestError, MachineError) as error:  # before anything was measured
            why = f"Not tested: {error.with_hint}"
            return replace(blank, why=why, fault_class=_fault_of(error))

    def _announce(self, rung: Rung) -> None:
        seconds_left = self._seconds_left()
        number = self._rungs.index(rung) + 1
        until = "" if math.isinf(seconds_left) else f", {format_duration(seconds_left)} left"
        count = len(self._rungs)
        self.notify(f"[{number}/{count}] {rung.what}{until}")

    def _notify_longest(self, allocation: DivisibleAllocation) -> None:
        """Notify the user how long the rungs that are left take if every test times out."""
        done = self.certificate.results
        present = [each for each in self._rungs if not each.absent]
        left = [each for each in present if each.name not in done]
        longest_s = sum(self._longest_s(each, allocation) for each in left)
        limit_s = min(longest_s, self._deadline - time.monotonic())
        if left:
            rungs = counted(len(left), "rung")
            self.notify(
                f"{rungs} to test: about {format_duration(limit_s)} if every test times out."
            )

    def _longest_s(self, rung: Rung, allocation: DivisibleAllocation) -> float:
        """Return how many seconds a rung takes if it times out; 0: it cannot be measured here."""
        if rung.name == SOAK:
            return self.how.soak
        try:
            measured = self._measured_by(rung)
            if rung.mode:
                once = replace(measured, repeats=1)  # a sweep repeats by rounds instead
                asked = replace(self.asked, run=once, mode=rung.mode)
                return longest_s(asked, allocation.inventory)
            return plan(measured, allocation.inventory).longest_s
        except FabbenchError:
            return 0.0

    def _run_rung(self, rung: Rung, held: DivisibleAllocation, blank: RungResult) -> RungResult:
        """Measure all nodes; reject them only if a single bad run is bad once more.

        A run of several repeats counts at once, and so does one that names the bad nodes.
        """
        result = self._run_once(rung, held, blank)
        repeated = self._repeats(rung) > 1
        if result.state is not State.FAILED or result.nodes or repeated:
            return result
        try:
            again = self._run_once(rung, held, blank, name="")  # the name stays with the first
        except (RequestError, MachineError) as error:
            doubts = [result.why, f"It was not repeated: {error.with_hint}"]
            return judged(replace(blank, fault_class=result.fault_class), doubts=doubts)
        if again.state is State.FAILED:
            return again
        once = "It failed once, and not again" if again.state is State.PASSED else "Before that"
        doubt = f"{once}: {result.why}"
        # The second run is the result, and the first one's fault what has to be mended.
        return judged(replace(again, fault_class=result.fault_class), doubts=[doubt])

    def _run_once(
        self, rung: Rung, held: DivisibleAllocation, blank: RungResult, **changes: Any
    ) -> RungResult:
        """Measure all nodes, or the first half of them while the others do the same or nothing."""
        nodes = len(held.inventory.hosts)
        measured = range(nodes // 2 if rung.half else nodes)
        others = range(len(measured), nodes)
        load: AbstractContextManager[None] = nullcontext()
        if rung.baseline and others:  # it is compared with halves whose others were quiet
            load = self._keep_busy(rung, held, others)
        with load:
            # With an event that never ends it
            ended = self._run_within_time(rung, held.part(measured, Event()), **changes)
        return judge_run(ended, blank)

    def _require_testable(self, rung: Rung, held: DivisibleAllocation) -> None:
        """Raise RequestError for what keeps a rung from being tested."""
        before = self.certificate.results.get(rung.after)
        # If it named the bad nodes, they are left out, and the others are tested.
        if before is not None and before.state is State.FAILED and not before.nodes:
            raise RequestError(f"{rung.after} failed.")
        nodes = len(held.inventory.hosts)
        if nodes < _fewest_nodes(rung):
            tested = len(self.certificate.nodes)
            raise RequestError(f"{counted(nodes, 'node')} left of {tested}.")
        if rung.half and not self.asked.run.target.options.concurrent:
            raise RequestError("these nodes cannot be used at the same time.")
        if rung.benchmark:
            missing = " ".join(unmet(rung.work.needs, held.inventory.hosts))
            if missing:
                raise MachineError(missing)

    def _seconds_left(self) -> float:
        """Return the seconds that are left.

        Raise RequestError if they are too few to measure anything.
        """
        if (left_s := self._deadline - time.monotonic()) < _LEAST_S:
            raise RequestError("the time is up.")
        return left_s

    def _request_of(self, rung: Rung) -> RunRequest:
        """Return what a rung measures.

        Raise RequestError if the rung that it is compared with has no figures.
        """
        before = self.certificate.results.get(rung.baseline)
        if rung.baseline and not (before and before.figures):
            raise RequestError(f"{rung.baseline} was not measured.")
        ladder_id = self.certificate.id[-6:]
        suffix = rung.name.replace(":", "-")
        return replace(
            self._measured_by(rung),
            gates=self._gates(rung, before),
            baseline=before.run if before else None,
            name=f"{ladder_id}-{suffix}",
        )

    def _measured_by(self, rung: Rung) -> RunRequest:
        """Return what a rung measures, without what it is judged by."""
        # `DEFAULT`, NCCL, uses no network there: the best way inside a node is measured.
        inside_nodes = rung.alone and rung.benchmark == DEFAULT
        return replace(
            self.asked.run,
            benchmark=rung.benchmark,
            work=rung.work,
            fabrics=() if inside_nodes else self.asked.run.fabrics,
            repeats=self._repeats(rung),
        )

    def _repeats(self, rung: Rung) -> int:
        # A rung of halves has its own number; else one has to do at the quickest level.
        if rung.half:
            return _REPEATS_OF_HALVES
        return 1 if self.how.level == LEVELS[0] else _REPEATS

    def _gates(self, rung: Rung, baseline: RungResult | None) -> tuple[str, ...]:
        """Return the gates of a run; without limits, that it is no worse than the baseline.

        Of half of the nodes, the difference is only shown.
        """
        if rung.mode:  # a sweep has no gates: limits judge its typical figure
            return ()
        gates = self._limits.get(rung.name, ())
        if gates or baseline is None or rung.half:
            return gates
        percent = format(100 * self.asked.tolerance, "g")
        return tuple(f"{each.metric}:{percent}%" for each in baseline.figures)

    def _sweep_rung(self, rung: Rung, held: DivisibleAllocation, blank: RungResult) -> RungResult:
        """Sweep the nodes, or go on with the rung's own sweep that did not end."""
        begun = self._begun.get(rung.name)
        asked = replace(
            self.asked,
            run=self._request_of(rung),
            mode=rung.mode,
            max_time=self._seconds_left(),
            resume=begun if begun and not begun.verdict else None,
        )
        ended = sweep(asked, notify=lambda _: None, watching=self.watching_sweep, held=held)
        _raise_early_end(ended)
        limits = self._limits.get(rung.name, ())
        result = judge_sweep(ended, blank, parse_gates(limits))
        if ended.whole:
            end_sweep(ended.sweep, EXITS[result.state])
        return result

    def _run_within_time(self, rung: Rung, held: DivisibleAllocation, **changes: Any) -> RunResult:
        """Run what a rung measures, with `changes` of its request.

        Raise RequestError if the time is up, so that a timeout says nothing about the nodes.
        """
        wanted = replace(self._request_of(rung), **changes)
        limit_s = self._seconds_left() / (wanted.repeats or 1)
        ended = run(replace(wanted, limit_s=limit_s), held=held, watching=self.watching)
        _raise_early_end(ended)
        # Only one that had all of this time was cut by it, and not by a limit of its own.
        if max(failed_after_s(ended.path), default=0.0) >= limit_s:
            raise RequestError("the time is up.")
        return ended

    def _soak(self, held: DivisibleAllocation, blank: RungResult) -> RungResult:
        """Repeat what all nodes have run until the time is up or something fails.

        Each of these rungs runs at least once, in turns; warnings are counted.
        """
        end = time.monotonic() + self.how.soak
        rungs = self._passed_on_all()
        warned = Counter[str]()
        for number, rung in enumerate(cycle(rungs), 1):
            ended = self._run_within_time(rung, held, repeats=1, name="")
            result = judge_run(ended, blank)
            if result.state is not State.PASSED:
                return replace(result, why=f"Run {number}, {rung.name}: {result.why}")
            # The only log of the first configuration: one collective, not repeated
            findings = ended.columns[0].logs[-1].findings
            warned.update({each.meaning for each in findings if each.severity is Severity.WARNING})
            if number >= len(rungs) and time.monotonic() >= end:
                return judged(replace(blank, why=_warnings(warned, number)))
        raise RequestError("nothing runs on all nodes.")

    def _passed_on_all(self) -> list[Rung]:
        """Return the rungs that all nodes have passed together."""
        results = self.certificate.results
        together = [each for each in self._rungs if each.name.startswith(ALL)]
        return [each for each in together if results[each.name].state is State.PASSED]

    @contextmanager
    def _keep_busy(
        self, rung: Rung, held: DivisibleAllocation, hosts: Sequence[int]
    ) -> Iterator[None]:
        """Keep machines busy. Raise MachineError if it ends by itself."""
        ended = Event()
        began = Event()
        endless = self._endless_request(rung)
        # Its NICs are looked at every few seconds: the first time, the load has begun.
        watcher = Watcher(lambda _: began.set())

        def watching(_: Plan) -> AbstractContextManager[Watcher]:
            return nullcontext(watcher)

        part = held.part(hosts, ended)
        with ThreadPoolExecutor(1) as pool:
            load = pool.submit(run, endless, held=part, watching=watching)
            load.add_done_callback(lambda _: began.set())  # it may fail before
            try:
                began.wait()
                yield
                if load.done():
                    raise MachineError("The load on the other nodes ended early.")
            finally:
                ended.set()

    def _endless_request(self, rung: Rung) -> RunRequest:
        """Return what a rung measures, as a load that lasts until it is ended."""
        options = {**rung.options, "iterations": "1000000"}
        asked = self._request_of(replace(rung, options=options))
        return replace(asked, repeats=1, gates=(), baseline=None, name="")


def _fewest_nodes(rung: Rung) -> int:
    """Return how many nodes a rung needs: two together, or two in each half."""
    if rung.alone:
        return 1
    return 4 if rung.half else 2


def _fault_of(error: FabbenchError) -> Fault | None:
    """Return what has to be fixed before a rung can be tested; None: nothing on the machines."""
    if isinstance(error, SilentHostError | UnwritableError):
        return Fault.INFRASTRUCTURE
    return Fault.SOFTWARE if isinstance(error, MachineError) else None


def _warnings(counts: Counter[str], runs: int) -> str:
    """Return in how many runs each warning came; without any, how many runs there were."""
    sentences: list[str] = []
    for meaning, count in counts.items():
        warned = counted(count, "run")
        sentences.append(f"{warned} of {runs}: {meaning}")
    return " ".join(sentences) or counted(runs, "run") + "."


def _raise_early_end(ended: RunResult | SweepRun) -> None:
    """Raise what ended a rung early and says nothing about the nodes: it is carried out again."""
    if ended.interrupted:
        raise KeyboardInterrupt
    if isinstance(ended.failure, StoreError | AllocationLostError):
        raise ended.failure
