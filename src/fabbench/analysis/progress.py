"""What a run has measured until now, and how long it may still take. Pure: the time is passed in, in seconds.

What is shown while a run goes on is the comparison of what was read until then, made as the final one is.
"""

from collections.abc import Sequence

from fabbench.analysis.compare import Column, Comparison, compare
from fabbench.analysis.statistics import mean
from fabbench.model.errors import FabbenchError
from fabbench.model.log import Log, Outcome, Point
from fabbench.model.messages import counted
from fabbench.model.plan import Execution, Plan
from fabbench.model.units import format_size

ALLOWED = ("endpoint",)
"""Configurations of one plan may differ in their endpoint only because their providers do."""

UNKNOWN = "…"
"""A program's case while only its rows were read."""


class RunProgress:
    """A plan that is carried out. Grows with what happens."""

    def __init__(self, plan: Plan, *, metric: str | None = None) -> None:
        self.plan = plan
        self.number = 0
        """Of the execution that is going on, or was the last; counts from 1."""
        self.current: Execution | None = None
        self.newest: int | None = None
        """The size measured last, in the execution that is going on."""
        self._metric = metric
        self._begun = 0.0
        self._logs: dict[str, list[Log]] = {}
        self._read: list[Log] = []
        self._points: list[Point] = []
        self._took: dict[str, list[float]] = {}
        self._cases: list[str | None] = []
        """Of the programs of an execution, in order, as far as one has shown them."""

    @property
    def case(self) -> str | None:
        """The case that is being measured, or was the last; None: not known yet, and there is one only."""
        if not self._points:
            return self._cases[-1] if self._cases else None
        number = len(self._read)
        return self._cases[number] if number < len(self._cases) else UNKNOWN if number else None

    def begin(self, execution: Execution, number: int, now: float) -> None:
        """Take note that an execution begins."""
        self.current, self.number, self.newest, self._begun = execution, number, None, now
        self._read, self._points = [], []

    def point(self, point: Point) -> None:
        """Take note of a row."""
        self._points.append(point)
        self.newest = point.size

    def read(self, log: Log) -> None:
        """Take note that the output of a program was read to its end: its rows are not rows of the next."""
        own = {id(point) for point in log.points}
        self._points = [point for point in self._points if id(point) not in own]
        self._read.append(log)
        if len(self._read) > len(self._cases):
            self._cases.append(log.case)

    def end(self, execution: Execution, logs: Sequence[Log], now: float) -> float:
        """Take note that an execution has ended; return how long it took."""
        label, took = execution.configuration.label, now - self._begun
        self._logs.setdefault(label, []).extend(logs)
        self._took.setdefault(label, []).append(took)
        self.current, self.newest = None, None
        self._read, self._points = [], []
        return took

    def comparison(self) -> Comparison | None:
        """Compare what was read until now; None where there is nothing, or nothing that can be compared."""
        columns = [
            Column(label=configuration.label, logs=logs, source="")
            for configuration in self.plan.configurations
            if (logs := self._of(configuration.label))
        ]
        try:
            allow = (*ALLOWED, "case")
            return compare(columns, metric=self._metric, allow=allow, only_ok=True) if columns else None
        except FabbenchError:
            return None

    def spent(self, now: float) -> float:
        """Return for how long the execution has been going on."""
        return now - self._begun

    def sizes(self) -> int:
        """Return how many of the planned sizes the execution has measured."""
        measured = {point.size for log in self._read for point in log.points}
        return len((measured | {point.size for point in self._points}) & self._planned())

    def remaining(self, now: float) -> float | None:
        """Estimate how long the run may still take; None where nothing tells.

        An execution takes as long as the earlier ones of its configuration did. The first is taken to go on
        as it did for the sizes that it has.
        """
        known = {label: mean(took) for label, took in self._took.items()}
        rest = 0.0
        if self.current is not None:
            label, spent = self.current.configuration.label, self.spent(now)
            own = known.get(label) or self._extrapolated(spent)
            if own is None:
                return None
            known.setdefault(label, own)
            rest = max(0.0, own - spent)
        if not known:
            return None
        usual = mean(known.values())
        later = self.plan.executions[self.number :]
        return rest + sum(known.get(each.configuration.label, usual) for each in later)

    def _of(self, label: str) -> tuple[Log, ...]:
        logs = [*self._logs.get(label, ())]
        if self.current is not None and self.current.configuration.label == label:
            logs += self._read
            if self._points:
                logs.append(_going_on(self.plan.benchmark, self.case, self._points))
        return tuple(logs)

    def _planned(self) -> set[int]:
        return set(self.current.planned_sizes) if self.current is not None else set()

    def _extrapolated(self, spent: float) -> float | None:
        sizes = self.sizes()
        return spent * len(self._planned()) / sizes if sizes else None


def _going_on(benchmark: str, case: str | None, points: Sequence[Point]) -> Log:
    return Log(
        source="",
        benchmark=benchmark,
        case=case,
        outcome=Outcome.OK,
        reason=None,
        facts={},
        points=tuple(points),
    )


def best(logs: Sequence[Log], metric: str | None = None) -> str:
    """Return the best figure of an execution: ``"peak 77.35 GB/s at 2 GB"``; empty where there is none."""
    try:
        comparison = compare([Column(label="-", logs=tuple(logs), source="")], metric=metric, only_ok=True)
    except FabbenchError:
        return ""
    for section in comparison.sections:
        rows = [(figure.value, row.size) for row in section.rows for figure in row.figures if figure]
        if rows:
            lower = section.metric.lower_is_better
            value, size = (min if lower else max)(rows)
            return f"{'best' if lower else 'peak'} {section.scale.quantity(value)} at {format_size(size)}"
    return ""


def name_of(execution: Execution) -> str:
    """Return what an execution is called."""
    return f"{execution.configuration.label}, repeat {execution.repeat}"


def summary(execution: Execution, logs: Sequence[Log]) -> str:
    """Say what came of an execution."""
    told = [f"{log.outcome}{f': {log.reason}' if log.reason else ''}" for log in logs]
    return f"{name_of(execution)}: {_sizes(execution.planned_sizes, logs)}, {'; '.join(told)}"


def _sizes(planned: Sequence[int], logs: Sequence[Log]) -> str:
    """Return how many of the planned sizes every log has: of several programs each has its own besides."""
    measured = [{point.size for point in log.points} for log in logs]
    if not planned:
        return counted(len(set().union(*measured)), "size")
    return counted_of(len(set(planned).intersection(*measured)) if measured else 0, len(planned))


def counted_of(number: int, planned: int) -> str:
    """Return ``"2 of 29 sizes"``; without a plan ``"2 sizes"``."""
    return f"{number} of {counted(planned, 'size')}" if planned else counted(number, "size")
