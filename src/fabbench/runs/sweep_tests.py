"""The tests of a sweep: its mode says which and what they are, and each is measured and judged as in a run."""

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from fabbench.benchmarks import benchmark_named
from fabbench.launchers import AllocationLostError, BatchAllocation, DivisibleAllocation, RenderInput
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Host, Inventory
from fabbench.model.log import METRICS, Log, Outcome, Severity
from fabbench.model.messages import counted, listed
from fabbench.model.plan import Plan
from fabbench.plan.build import plan
from fabbench.plan.request import RunRequest
from fabbench.runs.document import StoreError, SweepDocument
from fabbench.runs.execute import RunningExecution, Watcher
from fabbench.runs.store import RunWriter
from fabbench.runs.sweep_store import MEASURED, StoredSweep, TestResult, add_test, pack_log, values_of
from fabbench.sweep.analyze import analyze
from fabbench.sweep.diagnose import SCREENING, DiagnosePlanner
from fabbench.sweep.planner import Planner, all_pairs, rails, single
from fabbench.sweep.readings import Readings
from fabbench.sweep.values import Diagnosis, SweepResult

_MIN_TIME_S = 1.0  # No test starts with less time than this left
_OUTCOMES = tuple(Outcome)
PARTNERS = {"diagnose": SCREENING, "rails": 3}
"""Mode → random partners that each node, or each of its NICs, is tested with."""


def planner_of(sweep: SweepDocument, tests: Sequence[TestResult]) -> Planner:
    """Return the planner of a sweep, after the `tests` that have ended."""
    nodes = sweep.nodes
    # What is tested first. Outliers are then tested again: one slow test may be chance.
    screening = {"pairs": all_pairs, "single": single}.get(sweep.mode)
    if sweep.mode == "rails":
        partners = min(sweep.partners or PARTNERS[sweep.mode], len(nodes) - 1 + len(nodes) % 2)
        rounds = rails(nodes, sweep.nics, rounds=partners, seed=sweep.seed)
        planner = Planner(rounds, max_rounds=partners * len(sweep.nics))
    else:
        planner = DiagnosePlanner(
            nodes,
            METRICS[sweep.metric],
            group_of=sweep.group_of,
            confidence=sweep.confidence,
            tolerance=sweep.tolerance,
            seed=sweep.seed,
            partners=sweep.partners,
            size=1 if sweep.mode == "single" else 2,
            screening=screening(nodes) if screening else None,
        )
    for each in tests:
        planner.add(each.result)
    return planner


def diagnosed(sweep: SweepDocument, results: Iterable[SweepResult]) -> Diagnosis:
    """Return what the results of a sweep say."""
    readings = Readings(METRICS[sweep.metric], sweep.nodes, group_of=sweep.group_of)
    for each in results:
        readings.add(each)
    return analyze(readings, tolerance=sweep.tolerance, confidence=sweep.confidence)


def unfinished(sweep: StoredSweep) -> str:
    """Return which planned tests a sweep has no result of, as the end of a sentence; empty: none."""
    left = planner_of(sweep.document, sweep.tests).next_round()
    if left is None:
        return ""
    return f"{counted(len(left.tests), 'test')} of round {left.number} ({left.purpose}) and any later ones"


def work_of(mode: str, request: RunRequest) -> RunRequest:
    """Return the request of a test."""
    work = request.work
    if mode == "single":
        work = benchmark_named(request.benchmark).each_nic(work)
    return replace(request, work=work, repeats=1)


def nics_of(mode: str, request: RunRequest, inventory: Inventory) -> tuple[str, ...]:
    """Return the NICs to test one by one. Raise RequestError if nodes have none, or different ones."""
    if mode != "rails":
        return ()
    first, *others = inventory.hosts
    names = nics_of_host(request, first)
    if not names:
        raise RequestError(
            f"{request.benchmark} on {request.fabrics[0]} cannot choose a NIC, as --mode rails requires.",
            hint="NICs of efa, ib and roce can be chosen, by nccl, perftest and pingpong.",
        )
    for host in others:
        if set(other := nics_of_host(request, host)) != set(names):
            raise RequestError(
                f"{first.name} has the NICs {listed(names)}; {host.name} has {listed(other) or 'none'}.",
                hint="--mode rails needs the same NIC names on all nodes. --mode pairs pairs them in order.",
            )
    return tuple(names)


def nics_of_host(request: RunRequest, host: Host) -> Sequence[str]:
    """Return the NICs of a host that tests can choose."""
    return benchmark_named(request.benchmark).nics(request.work, request.fabrics[0], host)


def on_nic(request: RunRequest, nic: str) -> RunRequest:
    """Return the request of a test over one NIC of each node; empty: over all NICs."""
    work = benchmark_named(request.benchmark).on_nic(request.work, nic) if nic else request.work
    return replace(request, work=work)


def whole_plan(mode: str, request: RunRequest, inventory: Inventory) -> Plan:
    """Return the plan of a test of all nodes, or of one node if nodes are tested alone.

    Raise FabbenchError if a node cannot measure it.
    """
    if mode != "single":
        return plan(request, inventory)
    plans = [plan(request, inventory.part((index,))) for index in range(len(inventory.hosts))]
    fabrics = {each.fabric: None for one in plans for each in one.configurations}
    if len(fabrics) > 1 and not request.fabrics:
        raise RequestError(
            f"The best fabric of one node alone is not the same on all nodes: {', '.join(fabrics)}.",
            hint="Choose one with --fabric.",
        )
    return plans[0]


# ---------------------------------------------------------------- measured


def hosts_of(nodes: Sequence[str], inventory: Inventory) -> list[int]:
    """Return the indices of nodes: the first is the server, or runs mpirun."""
    names = [host.name for host in inventory.hosts]
    return [names.index(node) for node in nodes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTests:
    """Measures tests. `measure` may be called from any thread."""

    request: RunRequest  # With the fabric of all tests
    allocation: DivisibleAllocation
    writer: RunWriter
    metric: str
    deadline: float | None  # In time.monotonic() seconds: no test starts after it
    ended: threading.Event = field(default_factory=threading.Event)  # Set when tests in progress must end

    def measure(self, test: TestResult) -> TestResult | None:
        """Measure a test, and store and return its result. None if the time is up.

        Raise KeyboardInterrupt if it was interrupted; nothing of it is stored then.
        """
        hosts = hosts_of(test.nodes, self.allocation.inventory)
        inventory = self.allocation.inventory.part(hosts)
        if self.ended.is_set() or (left := self._left()) < _MIN_TIME_S:
            return None
        request = replace(on_nic(self.request, test.rail), limit_s=left)
        test_plan = planned(request, inventory, test.number)
        (execution,), started = test_plan.executions, time.monotonic()
        part = self.allocation.part(hosts, self.ended)
        if isinstance(part, BatchAllocation):
            part.submit(RenderInput(plan=test_plan, request=request, inventory=inventory))
        logs, stop = RunningExecution(execution, self.request.benchmark, Watcher()).run(part, self.writer)
        if isinstance(stop, KeyboardInterrupt | AllocationLostError | StoreError):
            self.writer.drop(execution)
            raise stop
        result = with_figures(test, logs, self.metric)
        if result.outcome not in MEASURED and self._left() < _MIN_TIME_S:
            self.writer.drop(execution)
            return None
        found = (finding for log in logs for finding in log.findings)
        # If the nodes' NICs have the same names, a name is one NIC of each node.
        names = {frozenset(nics_of_host(self.request, host)) for host in inventory.hosts}
        measured = replace(
            result,
            nics=result.nics if len(names) == 1 else {},
            notes=tuple(dict.fromkeys(each.meaning for each in found if each.severity is not Severity.NOTE)),
            seconds=round(time.monotonic() - started, 3),
        )
        pack_log(self.writer.path, execution, test.number)
        self.writer.drop(execution)
        add_test(self.writer.path, measured)
        return measured

    def _left(self) -> float:
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()


def planned(request: RunRequest, inventory: Inventory, number: int) -> Plan:
    """Return the plan of a test: one execution. Raise FabbenchError if its nodes cannot measure it."""
    single = plan(request, inventory)
    (execution,) = single.executions
    name = f"{number:06}-{execution.configuration.label}-r1"
    return replace(single, executions=(replace(execution, id=name),))


def metric_of(request: RunRequest) -> str:
    """Return the metric that a sweep compares."""
    benchmark = benchmark_named(request.benchmark)
    return request.metric or benchmark.sweep_metric or benchmark.printed_metrics(request.work)[0]


def with_figures(test: TestResult, logs: Sequence[Log], metric: str) -> TestResult:
    """Return a test with the worst outcome in its logs, and the figure of the largest size.

    If NICs were measured one by one, the slowest decides: a pair is only as good as that.
    """
    worst = min(logs, key=lambda log: _OUTCOMES.index(log.outcome))
    test = replace(test, outcome=worst.outcome, reason=worst.reason or "")
    if worst.outcome not in MEASURED:
        return test
    values: dict[str, float] = {}
    for log in logs:
        sizes: dict[str, int] = {}
        for point, value in values_of(log, metric):
            device = point.labels.get("device", str(log.facts.get("device", "")))
            if point.size >= sizes.get(device, 0):
                sizes[device], values[device] = point.size, value
    if not values:
        return replace(test, outcome=Outcome.FAILED, reason=f"No {metric} was measured.")
    chosen = max if METRICS[metric].lower_is_better else min
    nics = {name: value for name, value in values.items() if name}
    return replace(test, value=chosen(values.values()), nics=nics)
