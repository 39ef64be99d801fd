"""The tests of a sweep: each an execution on some of the nodes, measured and judged as those of a run are."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fabbench.benchmarks import benchmark_named
from fabbench.launchers import AllocationLostError, BatchAllocation, DivisibleAllocation, RenderInput
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Inventory
from fabbench.model.log import METRICS, Log, Outcome, Severity
from fabbench.model.plan import Execution, Plan
from fabbench.plan.build import plan
from fabbench.plan.request import RunRequest
from fabbench.runs.execute import CounterSampler, NullWatcher, RunningExecution
from fabbench.runs.sweep_modes import nics_of_host, on_nic
from fabbench.runs.sweep_store import MEASURED, MeasuredTest, SweepWriter
from fabbench.sweep.values import SweepTest

_SHORTEST_S = 1.0
"""With less time than this left no test begins."""
_OUTCOMES = tuple(Outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTest:
    """One test that is to be measured."""

    number: int
    round: int
    test: SweepTest
    hosts: tuple[int, ...]
    """Indices of the launcher's hosts: the first one is the server, or runs mpirun."""


class Figures(NamedTuple):
    """What the logs of a test show."""

    outcome: Outcome
    reason: str
    value: float | None
    nics: Mapping[str, float]


class SweepTests:
    """Measures tests. `measure` may be called in any thread where the machines are remote."""

    def __init__(
        self,
        request: RunRequest,
        allocation: DivisibleAllocation,
        writer: SweepWriter,
        *,
        metric: str,
        deadline: float | None,
    ) -> None:
        """`request` has the fabric of all tests; `deadline` is of time.monotonic()."""
        self.ended = threading.Event()
        """Set once what is going on is to end."""
        self._request, self._allocation, self._writer = request, allocation, writer
        self._metric, self._deadline = metric, deadline

    def measure(self, test: PlannedTest) -> MeasuredTest | None:
        """Measure a test, and keep what came of it. None: the time is up.

        Raise KeyboardInterrupt where it was interrupted, and then nothing of it is kept.
        """
        inventory = self._allocation.inventory.part(test.hosts)
        request = on_nic(self._request, test.test.rail)
        one = planned(request, inventory, test)
        execution, cut = self._within_time(one.executions[0])
        if self.ended.is_set() or self._left() < _SHORTEST_S:
            return None
        part, begun = self._allocation.part(test.hosts, self.ended), time.monotonic()
        if isinstance(part, BatchAllocation):
            one = replace(one, executions=(execution,))
            part.submit(RenderInput(plan=one, request=request, inventory=inventory))
        with self._writer.execution(execution) as stored:
            running = RunningExecution(execution, stored, NullWatcher(), stops_off_fabric=True)
            logs = running.run(self._request.benchmark, part, CounterSampler(part, execution, None))
        found = figures(logs, self._metric)
        if running.interrupted:
            self._writer.drop(execution)
            raise KeyboardInterrupt
        if isinstance(running.failure, AllocationLostError):
            self._writer.drop(execution)
            raise running.failure
        if cut and found.outcome not in MEASURED and self._left() < _SHORTEST_S:
            self._writer.drop(execution)
            return None
        measured = MeasuredTest(
            number=test.number,
            round=test.round,
            nodes=test.test.nodes,
            rail=test.test.rail,
            outcome=found.outcome,
            reason=found.reason,
            value=found.value,
            nics=found.nics if self._named_alike(inventory) else {},
            notes=tuple(dict.fromkeys(_warnings(logs))),
            seconds=round(time.monotonic() - begun, 3),
        )
        self._writer.pack(execution, test.number)
        self._writer.add(measured)
        return measured

    def _named_alike(self, inventory: Inventory) -> bool:
        """Return whether the nodes call their NICs alike: a figure of one name is then of one NIC each."""
        return len({frozenset(nics_of_host(self._request, host)) for host in inventory.hosts}) == 1

    def _left(self) -> float:
        return float("inf") if self._deadline is None else self._deadline - time.monotonic()

    def _within_time(self, execution: Execution) -> tuple[Execution, bool]:
        """Return the execution as it may take until the sweep's time is up, and whether that is less."""
        left = max(self._left(), _SHORTEST_S)
        steps = tuple(replace(step, timeout_s=min(step.timeout_s, left)) for step in execution.steps)
        return replace(execution, steps=steps), steps != execution.steps


def planned(request: RunRequest, inventory: Inventory, test: PlannedTest) -> Plan:
    """Return the plan of a test: one execution. Raise FabbenchError for what its nodes cannot measure."""
    found = plan(request, inventory)
    (execution,) = found.executions
    name = f"{test.number:06}-{execution.configuration.label}-r1"
    return replace(found, executions=(replace(execution, id=name),))


def metric_of(request: RunRequest) -> str:
    """Return what a sweep compares. Raise RequestError for a metric that is none."""
    if request.metric is not None:
        if request.metric not in METRICS:
            raise RequestError(f"Unknown metric {request.metric}.", hint=f"One of {', '.join(METRICS)}.")
        return request.metric
    return benchmark_named(request.benchmark).sweep_metric(request.work)


def figures(logs: Sequence[Log], metric: str) -> Figures:
    """Return what the logs of a test show: the worst outcome, and the figure of the largest size.

    Where NICs were measured one by one, the slowest decides: a pair is as good as that.
    """
    worst = min(logs, key=lambda log: _OUTCOMES.index(log.outcome))
    if worst.outcome not in MEASURED:
        return Figures(worst.outcome, worst.reason or "", None, {})
    found = dict(value for log in logs for value in _values(log, metric))
    if not found:
        return Figures(Outcome.FAILED, f"No {metric} was measured.", None, {})
    chosen = max if METRICS[metric].lower_is_better else min
    nics = {name: value for name, value in found.items() if name}
    return Figures(worst.outcome, worst.reason or "", chosen(found.values()), nics)


def _values(log: Log, metric: str) -> Iterator[tuple[str, float]]:
    """Yield the figure of the largest size, and of which NIC it is where the log says so."""
    found: dict[str, tuple[int, float]] = {}
    for point in log.points:
        if metric not in point.metrics or "stat" in point.labels:
            continue
        if point.labels.get("placement", "out-of-place") != "out-of-place":
            continue
        device = point.labels.get("device", str(log.facts.get("device", "")))
        if device not in found or point.size >= found[device][0]:
            found[device] = point.size, point.values[point.metrics.index(metric)]
    yield from ((device, value) for device, (_, value) in found.items())


def _warnings(logs: Sequence[Log]) -> Iterator[str]:
    for log in logs:
        for finding in log.findings:
            if finding.severity is not Severity.NOTE:
                yield finding.meaning
