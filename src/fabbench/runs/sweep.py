"""The use case of ``fabbench sweep``.

Allocate machines once, and run tests on parts of them, round by round.

A round's tests share no node, and run concurrently where that disturbs none. Each is measured and
judged as in a run; one that fails, hangs or uses another network is a result like any other.
Nothing is printed here.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import field, replace
from functools import partial
from typing import Any, TypeAlias

from fabbench.analysis.aggregate import printed_step
from fabbench.benchmarks import benchmark_named
from fabbench.benchmarks.standard import Work
from fabbench.catalog.offline_inventory import require_names
from fabbench.evidence.known_errors import fault_of
from fabbench.execution.worker_pool import PARTS, concurrently
from fabbench.launchers import (
    LABEL,
    AllocationLostError,
    BatchAllocation,
    DivisibleAllocation,
    RenderInput,
    launcher_named,
)
from fabbench.model.errors import Exit, FabbenchError, RequestError, gravest
from fabbench.model.hosts import Host, Inventory, Target
from fabbench.model.log import METRICS, Log, Outcome, Point, Severity
from fabbench.model.mappings import GroupOfNode, Names, distinct
from fabbench.model.messages import counted, listed
from fabbench.model.plan import Plan
from fabbench.model.values import frozen
from fabbench.plan.build import plan, require_measurable
from fabbench.plan.request import RunRequest
from fabbench.report.table import picked
from fabbench.runs.document import StoreError, SweepDocument, TestResult
from fabbench.runs.execute import (
    Notify,
    RunningExecution,
    Stop,
    Watcher,
    on_machines,
    preview_machines,
)
from fabbench.runs.store import RunWriter, StoredRun, StoredSweep, stored_sweep, write_verdict
from fabbench.runs.summary import neighbors, write_summary
from fabbench.sweep.analyze import analyze, too_coarse
from fabbench.sweep.diagnose import MAX_ROUNDS, SCREENING, DiagnosePlanner
from fabbench.sweep.planner import Planner, all_pairs, rails, rounds_of_all, single
from fabbench.sweep.readings import Readings
from fabbench.sweep.values import LONGER, MEASURED, Diagnosis, Round, SweepResult, rounded_part

Progress: TypeAlias = Callable[[Round, int | None, Sequence[TestResult], int], None]
"""Called in the main thread with a round, the most rounds, all results, and how many are of it."""
Watching: TypeAlias = Callable[[SweepDocument], AbstractContextManager[Progress]]
PARTNERS = {"diagnose": SCREENING, "rails": 3}
"""Mode → random partners that each node, or each of its NICs, is tested with."""
_MOST_IN_PAIRS = 1000
_MIN_TIME_S = 1.0  # No test starts with less time than this left


@frozen
class SweepRequest:
    """One sweep, as requested."""

    run: RunRequest  # What a test measures, and where
    mode: str
    confidence: float
    tolerance: float
    # Node → its rack or other group; of all nodes or of none
    group_of: GroupOfNode = field(default_factory=dict)
    # What the launcher groups nodes by (`Launcher.node_groups`); empty if it is not queried
    groups_by: str = ""
    seed: int = 0
    partners: int | None = None  # Random partners of each node; None: the mode's default
    max_time: float | None = None  # Seconds after which no test starts; None: no limit
    raises_limit: bool = False  # Whether tests that ran out of time may be repeated with more
    resume: StoredRun | None = None


@frozen
class SweepRun:
    """A sweep that has ended in any way."""

    sweep: StoredSweep
    interrupted: bool = False
    out_of_time: bool = False
    failure: FabbenchError | None = None
    release_failure: Stop | None = None

    @property
    def whole(self) -> bool:
        """Return whether every planned test has ended."""
        return not (self.interrupted or self.out_of_time or self.failure)


def end_sweep(sweep: StoredSweep, status: Exit) -> None:
    """Write the result of a sweep, which marks its end."""
    write_verdict(sweep.path, status)
    write_summary(sweep.path)


def sweep(
    request: SweepRequest,
    *,
    notify: Notify,
    watching: Watching,
    held: DivisibleAllocation | None = None,
) -> SweepRun:
    """Carry out a sweep, on machines that are `held` or its target's.

    Raise FabbenchError if it cannot start.
    """
    stored = stored_sweep(request.resume) if request.resume else None
    if stored is not None:  # it goes on with its own options
        nodes_named = same_nodes(request.run, stored.document.nodes)
        request = replace(request, run=nodes_named, mode=stored.document.mode)
    request = _of_one_test(request)
    run = request.run

    def held_s(inventory: Inventory) -> float | None:
        """Raise RequestError for devices whose names are unknown until the hosts are probed."""
        require_names(_whole_plan(request, inventory))
        return request.max_time

    needs = replace(run.work.needs, fabrics=run.fabrics, divided=True, held_s=held_s)
    measure = partial(_measure, request, stored, notify, watching)
    result, release_failure = on_machines(run.target, needs, held, measure)
    return replace(
        result,
        interrupted=result.interrupted or isinstance(release_failure, KeyboardInterrupt),
        release_failure=release_failure,
    )


@frozen
class SweepPreview:
    """What a sweep would do first, and how long it may take."""

    inventory: Inventory
    first_round: Round
    """Later ones depend on what stands out."""
    test: Plan
    """Of the first test."""
    tested: Inventory
    """The nodes of the first test."""
    longest_s: float


def preview_sweep(request: SweepRequest) -> SweepPreview:
    """Return what `sweep` would do. Nothing is started.

    Raise FabbenchError if it could not start.
    """
    request = _of_one_test(request)
    inventory = preview_machines(request.run)
    require_nodes(len(inventory.hosts), request.mode)
    fabric = _only_fabric(_whole_plan(request, inventory))
    run = replace(request.run, fabrics=(fabric,))
    planner = planner_of(_new_document(request, run, inventory), ())
    first_round = next(iter(planner.next_round, None))  # two nodes have a test
    test = first_round.tests[0]
    tested = inventory.part(_places(inventory, test.nodes))
    on_rail = replace(run, work=_work_on_rail(run, test.rail))
    return SweepPreview(
        inventory=inventory,
        first_round=first_round,
        test=plan(on_rail, tested),
        tested=tested,
        longest_s=min(longest_s(request, inventory), request.max_time or math.inf),
    )


def _of_one_test(request: SweepRequest) -> SweepRequest:
    """Return the request with what one test measures, once. Raise RequestError."""
    run = request.run
    require_divisible(run.target)
    _require_groups(run.target, request.groups_by)
    require_measurable(run)
    work = run.work
    if request.mode == "single":  # of one node alone each NIC is measured, if it can be chosen
        work = benchmark_named(run.benchmark).each_nic(work)
    return replace(request, run=replace(run, work=work, repeats=1))


def _only_fabric(whole: Plan) -> str:
    """Return the fabric of all tests. Raise RequestError if there are several."""
    fabrics = [each.fabric for each in whole.configurations]
    if len(fabrics) != 1:
        raise RequestError(
            f"A sweep has one fabric, not {len(fabrics)}.", hint="Run a sweep for each."
        )
    return fabrics[0]


def _places(inventory: Inventory, nodes: Iterable[str]) -> list[int]:
    """Return where nodes are in the inventory. The first is the server, or runs mpirun."""
    return [inventory.names.index(node) for node in nodes]


def _work_on_rail(run: RunRequest, rail: str) -> Work:
    """Return what a test measures: on its NIC, if one was chosen for it."""
    if not rail:
        return run.work
    of_nic: Work = benchmark_named(run.benchmark).on_nic(run.work, rail)
    return of_nic


def _require_groups(target: Target, groups_by: str) -> None:
    """Raise RequestError if a launcher cannot group nodes by something."""
    launcher = launcher_named(target.launcher)
    # Of a label, `groups_by` has the key, too; the launcher names only what keys follow.
    if groups_by and not groups_by.startswith(launcher.groups_by):
        known = [each.replace(LABEL, f"{LABEL}KEY") for each in launcher.groups_by]
        others = "".join(f"--groups {each}, or " for each in known)
        raise RequestError(
            f"--groups {groups_by} has no effect with --on {launcher.name}.",
            hint=f"Pass {others}a file with lines such as node[01-08] rack-1.",
        )


def require_divisible(target: Target) -> None:
    """Raise RequestError if a launcher's machines cannot be measured in parts."""
    if not target.options.divides:
        raise RequestError(
            f"fabbench sweep does not run on {target.launcher}.",
            hint="It runs with --on ssh, kubernetes, slurm and local. Elsewhere, test pairs with "
            "a loop of your own, and pass the logs to fabbench sweep --from.",
        )


def same_nodes(run: RunRequest, nodes: Sequence[str]) -> RunRequest:
    """Return the request with a run's or sweep's nodes, if it gives only their number.

    Others may be free now. A node whose name has blanks stands for one that Slurm is yet to choose.
    """
    target = run.target
    names_all = target.hosts and target.nodes is None
    if any(" " in node for node in nodes):
        return run
    if names_all or "hosts" in target.options.without:  # the launcher takes no names of nodes
        return run
    among = set(target.hosts or nodes)
    # Another number or other hosts are asked for: left as they are, resuming refuses them.
    if target.nodes not in {None, len(nodes)} or not among.issuperset(nodes):
        return run
    return replace(run, target=replace(target, hosts=tuple(nodes), nodes=None))


def _measure(
    request: SweepRequest,
    stored: StoredSweep | None,
    notify: Notify,
    watching: Watching,
    allocation: DivisibleAllocation,
) -> SweepRun:
    """Measure until the planner is done, the time is up, or an error or interrupt ends it.

    `stored`: the sweep to go on with; None: this is a new one. What has been measured is returned
    in each of these cases, with what ended it.
    """
    inventory = allocation.inventory
    _announce(request.run, inventory, notify)
    require_nodes(len(inventory.hosts), request.mode)
    whole = _whole_plan(request, inventory)
    fabric = _only_fabric(whole)
    run = replace(request.run, fabrics=(fabric,))
    document = stored.document if stored else _new_document(request, run, inventory)
    writer = RunWriter(run, inventory, whole, request.resume, document)
    if request.resume is None:
        writer.write_rendered(allocation.documents)
    tests = SweepTests(
        request=run,
        allocation=allocation,
        writer=writer,
        metric=document.metric,
        tolerance=document.tolerance,
        deadline=time.monotonic() + (request.max_time or math.inf),
    )
    ended = stored.tests if stored else ()
    kept = ", " + counted(len(ended), "test") + " kept" if stored else ""
    notify(f"Sweep of {run.benchmark} on {fabric}, mode {request.mode}{kept}.")
    interrupted = False
    out_of_time = False
    failure: FabbenchError | None = None
    try:
        with watching(document) as progress:
            out_of_time = _measure_rounds(planner_of(document, ended), ended, tests, progress)
    except KeyboardInterrupt:
        interrupted = True
    except FabbenchError as error:
        failure = error
    writer.close()
    return SweepRun(
        sweep=stored_sweep(StoredRun(writer.path)),
        interrupted=interrupted,
        out_of_time=out_of_time,
        failure=failure,
    )


def _announce(run: RunRequest, inventory: Inventory, notify: Notify) -> None:
    """Say what was chosen, and which nodes are left out."""
    reason = f": {run.target_reason}" if run.target_reason else ""
    name = run.target.name
    notify(f"Target {name} ({len(inventory.hosts)} nodes){reason}.")
    for node, why in inventory.unreachable.items():
        notify(f"{why} {node} is left out.")


def require_nodes(count: int, mode: str) -> None:
    """Raise RequestError for too few nodes, or more than all pairs can be judged of at once."""
    if mode == "pairs" and count > _MOST_IN_PAIRS:
        raise RequestError(
            f"All pairs of {count} nodes are too many: the limit is {_MOST_IN_PAIRS} nodes.",
            hint="Leave --mode out: it finds what stands out in some ten rounds.",
        )
    if count < 2:
        raise RequestError(
            f"A sweep needs 2 nodes or more, not {count}.",
            hint=(
                "Name more with --host or --nodes. On local, --virtual-nodes 4 --gpus 4 makes four."
            ),
        )


def _whole_plan(request: SweepRequest, inventory: Inventory) -> Plan:
    """Return the plan of a test of all nodes, or of one node if nodes are tested alone.

    Raise FabbenchError if a node cannot measure it.
    """
    run = request.run
    if request.mode != "single":
        return plan(run, inventory)
    nodes = range(len(inventory.hosts))
    plans = [plan(run, inventory.part((node,))) for node in nodes]
    fabrics = distinct(each.fabric for alone in plans for each in alone.configurations)
    if len(fabrics) > 1 and not run.fabrics:
        best = ", ".join(fabrics)
        raise RequestError(
            f"The best fabric of one node alone is not the same on all nodes: {best}.",
            hint="Choose one with --fabric.",
        )
    return plans[0]  # stands for the others, which can be planned, too


def _new_document(request: SweepRequest, run: RunRequest, inventory: Inventory) -> SweepDocument:
    """Return the document of a new sweep. Raise RequestError for a node without a group."""
    nodes = inventory.names
    benchmark = benchmark_named(run.benchmark)
    metric = run.metric or benchmark.sweep_metric or benchmark.printed_metrics(run.work)[0]
    return SweepDocument(
        **picked(request, "mode", "seed", "confidence", "tolerance", "partners", "raises_limit"),
        benchmark=run.benchmark,
        metric=metric,
        fabric=run.fabrics[0],
        nodes=nodes,
        group_of=_groups_of_nodes(request, run.target, nodes),
        types={host.name: host.instance_type for host in inventory.hosts if host.instance_type},
        nics=_common_nics(run, inventory) if request.mode == "rails" else (),
        unreachable=inventory.unreachable,
    )


def _groups_of_nodes(request: SweepRequest, target: Target, nodes: Sequence[str]) -> GroupOfNode:
    """Return node → its group, if there are groups. Raise RequestError for a node without one."""
    group_of = request.group_of
    if request.groups_by:
        launcher = launcher_named(target.launcher)
        group_of = launcher.node_groups(target, nodes, request.groups_by)
    if not group_of:
        return {}
    missing = [node for node in nodes if node not in group_of]
    if missing:
        raise RequestError(
            f"The groups lack {listed(missing)}.", hint="Add them to the file of --groups."
        )
    return {node: group_of[node] for node in nodes}


def _common_nics(run: RunRequest, inventory: Inventory) -> Names:
    """Return the NICs to test one by one.

    Raise RequestError if nodes have none, or different ones.
    """
    hosts_with = {frozenset(_nics_of(run, host)): host for host in inventory.hosts}
    if len(hosts_with) > 1 or frozenset() in hosts_with:
        which = "; ".join(_nics_in_words(run, host) for host in hosts_with.values())
        raise RequestError(
            f"--mode rails needs the same NICs on all nodes: {which}.",
            hint=(
                "nccl, perftest and pingpong can choose NICs of efa, ib and roce. --mode pairs "
                "pairs them in order."
            ),
        )
    return tuple(_nics_of(run, inventory.first))


def _nics_in_words(run: RunRequest, host: Host) -> str:
    names = listed(_nics_of(run, host))
    if not names:
        names = f"none that {run.benchmark} on {run.fabrics[0]} can choose"
    return f"{host.name} has {names}"


def _nics_of(run: RunRequest, host: Host) -> Sequence[str]:
    """Return the NICs of a host that tests can choose."""
    return benchmark_named(run.benchmark).nics(run.work, run.fabrics[0], host)


def _measure_rounds(
    planner: Planner, stored: Sequence[TestResult], tests: "SweepTests", progress: Progress
) -> bool:
    """Measure until the planner is done, after tests that are `stored`.

    Return whether the time was up before.
    """
    results = [*stored]
    # Of the next test: numbers go on, as tests are stored under them.
    number = 1 + max((each.number for each in stored), default=-1)
    workers = PARTS if tests.request.target.options.concurrent else 1
    while (planned := planner.next_round()) is not None:
        batch = list(_tests_of_round(planned, number))
        number += len(batch)
        before = len(results)  # Of the rounds before this one
        progress(planned, planner.max_rounds, results, 0)  # 0: tests of this round have ended
        out_of_time = False
        with closing(concurrently(batch, tests.measure, tests.ended, workers)) as measured:
            for _, result in measured:
                if result is None:
                    out_of_time = True
                    continue
                results.append(result)
                planner.add(result.result)
                progress(planned, planner.max_rounds, results, len(results) - before)
        if out_of_time:
            return True
        if not before:  # after the first round, while little time is lost
            require_digits(results, tests.metric, tests.tolerance)
    return False


def require_digits(results: Sequence[TestResult], metric: str, tolerance: float) -> None:
    """Raise RequestError if the first tests print too few digits to tell slow nodes by them."""
    measured = [each for each in results if each.result.is_measured]
    rounded = [rounded_part(each.value or 0.0, each.step) for each in measured]
    why = too_coarse(metric, rounded, tolerance)
    if why:
        raise RequestError(why, hint="No more tests were run. --size chooses another.")


def _tests_of_round(planned: Round, number: int) -> Iterator[TestResult]:
    """Yield the tests of a round before they are measured, numbered from `number` on."""
    for at, test in enumerate(planned.tests, number):
        yield TestResult(
            number=at,
            round=planned.number,
            nodes=test.nodes,
            rail=test.rail,
            longer=test.longer,
            outcome=Outcome.SKIPPED,
        )


def longest_s(request: SweepRequest, inventory: Inventory) -> float:
    """Return about how many seconds a sweep takes if each test takes its whole limit.

    A round tests each pair, or each node, in waves of `PARTS` tests at the same time. Raise
    FabbenchError if a node cannot measure it.
    """
    nodes = len(inventory.hosts)
    parts = nodes if request.mode == "single" else nodes // 2
    at_a_time = PARTS if request.run.target.options.concurrent else 1
    waves = math.ceil(parts / at_a_time)
    all_rounds = rounds_of_all(inventory.hosts)
    partners = request.partners or min(PARTNERS.get(request.mode, 1), all_rounds)
    # Rounds of first tests, and then those that test outliers again
    first = all_rounds if request.mode == "pairs" else partners
    later = MAX_ROUNDS
    if request.mode == "rails":
        first *= max(len(host.devices) for host in inventory.hosts)
        later = first * request.raises_limit  # only what ran out of time
    limits = LONGER if request.raises_limit else 1
    whole = _whole_plan(request, inventory)
    return (first + later) * limits * waves * whole.longest_s


# ---------------------------------------------------------------- what a sweep tests


def planner_of(sweep: SweepDocument, tests: Sequence[TestResult]) -> Planner:
    """Return the planner of a sweep, after the `tests` that have ended."""
    planner = DiagnosePlanner(
        sweep.nodes,
        METRICS[sweep.metric],
        size=1 if sweep.mode == "single" else 2,  # nodes of a test
        **_first_rounds(sweep),
        **picked(sweep, "group_of", "confidence", "tolerance", "seed", "partners", "raises_limit"),
    )
    for each in tests:
        planner.add(each.result)
    return planner


def _first_rounds(sweep: SweepDocument) -> Mapping[str, Any]:
    """Return what is tested first, as a planner takes it; nothing: random partners.

    Outliers are then tested again, as one slow test may be chance; of NICs all is tested at first.
    """
    nodes = sweep.nodes
    if sweep.mode == "rails":
        partners = min(sweep.partners or PARTNERS["rails"], rounds_of_all(nodes))
        rounds = rails(nodes, sweep.nics, rounds=partners, seed=sweep.seed)
        return {"screening": rounds, "max_rounds": partners * len(sweep.nics)}
    screening = {"pairs": all_pairs, "single": single}.get(sweep.mode)
    return {"screening": screening(nodes)} if screening else {}


def readings_of(sweep: SweepDocument, results: Iterable[SweepResult]) -> Readings:
    """Return the readings of results of a sweep."""
    known = picked(sweep, "group_of", "types")
    return Readings(METRICS[sweep.metric], sweep.nodes, results, **known)


def diagnosed(sweep: SweepDocument, results: Iterable[SweepResult]) -> Diagnosis:
    """Return what the results of a sweep say."""
    readings = readings_of(sweep, results)
    return analyze(readings, tolerance=sweep.tolerance, confidence=sweep.confidence)


def unfinished(sweep: StoredSweep) -> str:
    """Return which planned tests a sweep has no result of, as the end of a sentence.

    Empty: none.
    """
    left = planner_of(sweep.document, sweep.tests).next_round()
    if left is None:
        return ""
    tests = counted(len(left.tests), "test")
    return f"{tests} of round {left.number} ({left.purpose}) and any later ones"


# ---------------------------------------------------------------- measured


@frozen
class SweepTests:
    """Measures tests. `measure` may be called from any thread."""

    request: RunRequest  # With the fabric of all tests
    allocation: DivisibleAllocation
    writer: RunWriter
    metric: str
    tolerance: float
    deadline: float  # In time.monotonic() seconds: no test starts after it
    # Set when tests in progress must end
    ended: threading.Event = field(default_factory=threading.Event)

    def measure(self, test: TestResult) -> TestResult | None:
        """Measure a test, and store and return its result. None if the time is up.

        Raise KeyboardInterrupt if it was interrupted; nothing of it is stored then.
        """
        left_s = self.deadline - time.monotonic()
        if left_s < _MIN_TIME_S or self.ended.is_set():
            return None
        work = _work_on_rail(self.request, test.rail)
        limits = LONGER if test.longer else 1
        request = replace(self.request, work=work, limit_s=left_s, limits=limits)
        hosts = _places(self.allocation.inventory, test.nodes)
        inventory = self.allocation.inventory.part(hosts)
        test_plan = plan(request, inventory)
        (execution,) = test_plan.executions
        label = execution.configuration.label
        execution = replace(execution, id=f"{test.number:06}-{label}-r1")
        part = self.allocation.part(hosts, self.ended)
        if isinstance(part, BatchAllocation):
            test_plan = replace(test_plan, executions=(execution,))
            part.submit(RenderInput(plan=test_plan, request=request, inventory=inventory))
        running = RunningExecution(execution, request.benchmark, Watcher())
        logs, stop = running.run(part, self.writer)
        # What ends the sweep; any other stop is how this test failed, which its logs say.
        if isinstance(stop, KeyboardInterrupt | AllocationLostError | StoreError):
            self.writer.drop_execution(execution.id)
            raise stop
        result = with_figures(test, logs, self.metric)
        # The time that was left, and not a node, may have made it fail.
        if result.outcome not in MEASURED and self.deadline - time.monotonic() < _MIN_TIME_S:
            self.writer.drop_execution(execution.id)
            return None
        measured = replace(
            result,
            nics=result.nics if self._same_nics(inventory) else {},
            notes=_notes(logs),
            neighbors=distinct(neighbors(logs)),
            **_about_failure(result, logs),
            seconds=round(running.longest_s, 3),
        )
        self.writer.add_test(measured, execution.id)
        return measured

    def _same_nics(self, inventory: Inventory) -> bool:
        """Return whether the nodes' NICs have the same names, so that a name is one of each."""
        nics = {frozenset(_nics_of(self.request, host)) for host in inventory.hosts}
        return len(nics) == 1


def _about_failure(result: TestResult, logs: Sequence[Log]) -> Mapping[str, Any]:
    """Return what is kept of a test that failed: what has to be mended, and what it said."""
    if result.outcome in MEASURED:
        return {}
    said = max((log.said for log in logs), key=bool)  # the first that said anything
    return {"fault": gravest(map(fault_of, logs)), "said": said}


def _notes(logs: Sequence[Log]) -> tuple[str, ...]:
    """Return what the logs warn of, each once."""
    return distinct(
        each.meaning for log in logs for each in log.findings if each.severity is not Severity.NOTE
    )


def values_of(log: Log, metric: str) -> Iterator[tuple[Point, float]]:
    """Yield the rows of a log that a sweep may judge by, with their figures.

    They are out-of-place and no statistics.
    """
    for point in log.points:
        if metric not in point.metrics or "stat" in point.labels:
            continue
        if point.labels.get("placement", "out-of-place") == "out-of-place":
            yield point, point.values[point.metrics.index(metric)]


def with_figures(test: TestResult, logs: Sequence[Log], metric: str) -> TestResult:
    """Return a test with the worst outcome in its logs, and the figure of the largest size.

    If NICs were measured one by one, the slowest decides: a pair is only as good as that.
    """
    order = [*Outcome]  # the worst first
    worst = min(logs, key=lambda log: order.index(log.outcome))
    test = replace(test, outcome=worst.outcome, reason=worst.reason or "")
    if worst.outcome not in MEASURED:
        return test
    values: dict[str, float] = {}
    for log in logs:
        values |= _largest_by_nic(log, metric)
    values = values or printed_as_zero(worst, metric)
    step = printed_step(str(worst.benchmark), metric, list(values.values()))
    if not values or not (step or all(values.values())):
        # No figure, or a 0 that is no rounded one. It ran: this is no failure of its nodes.
        reason = f"No {metric} was measured: it is too small to be printed, or the size is."
        return replace(test, outcome=Outcome.SKIPPED, reason=reason)
    slowest = max if METRICS[metric].lower_is_better else min
    value = slowest(values.values())
    nics = {name: each for name, each in values.items() if name}
    return replace(test, value=value, nics=nics, step=step)


def printed_as_zero(log: Log, metric: str) -> dict[str, float]:
    """Return the figure 0 of a log without any, if its rows print the metric, and readers drop 0.

    As NIC (empty: unknown) → figure. A 0 stands for less than a printed step, and is no failure.
    """
    benchmark = benchmark_named(str(log.benchmark))
    prints = metric in benchmark.metrics_of(log.case or "")
    rows = [each for each in log.points if "stat" not in each.labels]
    return {"": 0.0} if rows and prints else {}


def _largest_by_nic(log: Log, metric: str) -> dict[str, float]:
    """Return NIC, empty if unknown → the last figure of its largest size."""
    nic_of_log = str(log.facts.get("device", ""))
    sizes: dict[str, int] = {}
    values: dict[str, float] = {}
    for point, value in values_of(log, metric):
        nic = point.labels.get("device", nic_of_log)
        if point.size >= sizes.get(nic, 0):
            sizes[nic] = point.size
            values[nic] = value
    return values
