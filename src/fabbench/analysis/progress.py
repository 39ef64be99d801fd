"""What a run has measured so far, and how long it may still take.

Pure: the time is passed in, in seconds.

During a run the live view shows the comparison of everything read so far, made like the final one.
"""

from collections.abc import Sequence
from statistics import fmean

from fabbench.analysis.compare import Column, Comparison, compare
from fabbench.model.errors import FabbenchError
from fabbench.model.log import Log, Outcome, Point
from fabbench.model.mappings import map_values
from fabbench.model.messages import counted
from fabbench.model.plan import Execution, Plan
from fabbench.model.units import format_size

ALLOWED = ("endpoint",)
"""Configurations of one plan may differ in their endpoint only because their providers do."""
UNKNOWN = "…"
"""A program's case while only its rows have been read."""


class RunProgress:
    """The progress of a plan that is being executed, updated as events arrive."""

    def __init__(self, plan: Plan, *, metric: str | None = None) -> None:
        self.plan = plan
        self.number = 0
        """The current or last execution; counts from 1."""
        self.current: Execution | None = None
        self.newest: int | None = None  # The size of the row read last
        self._metric = metric
        self._started = 0.0  # When the current execution began
        self._logs: dict[str, list[Log]] = {}  # Configuration → logs of executions that ended
        self._read: list[Log] = []  # Of the current execution
        self._points: list[Point] = []  # Rows after those of `_read`
        self._took: dict[str, list[float]] = {}  # Configuration → seconds of each execution
        self._cases: list[str | None] = []
        """The cases of an execution's programs, in order, as far as any has shown them."""

    @property
    def case(self) -> str | None:
        """The case of the program whose rows come in; between programs, of the one that ended.

        None: no program has shown one yet.
        """
        number = len(self._read)
        if not self._points:
            return self._cases[max(number - 1, 0)] if self._cases else None
        # Rows are of the program after those whose logs are read; earlier executions told its case.
        if number < len(self._cases):
            return self._cases[number]
        # A later program of several, whose case no log has shown yet
        return UNKNOWN if number else None

    def begin(self, execution: Execution, number: int, now: float) -> None:
        """Record the start of an execution."""
        self.current = execution
        self.number = number
        self._started = now
        self._forget_rows()

    def point(self, point: Point) -> None:
        """Record a row."""
        self._points.append(point)
        self.newest = point.size

    def read(self, log: Log) -> None:
        """Record the log of a program whose output is complete.

        Its rows are not rows of the next.
        """
        complete = {id(point) for point in log.points}  # the very objects that came one by one
        self._points = [point for point in self._points if id(point) not in complete]
        self._read.append(log)
        if len(self._read) > len(self._cases):
            self._cases.append(log.case)

    def end(self, execution: Execution, logs: Sequence[Log], now: float) -> float:
        """Record the end of an execution; return how long it took."""
        label = execution.configuration.label
        took = now - self._started
        self._logs.setdefault(label, []).extend(logs)
        self._took.setdefault(label, []).append(took)
        self.current = None
        self._forget_rows()
        return took

    def _forget_rows(self) -> None:
        self.newest = None
        self._read = []
        self._points = []

    def comparison(self) -> Comparison | None:
        """Compare what has been read so far; None if there is nothing to compare."""
        labels = (configuration.label for configuration in self.plan.configurations)
        columns = [
            Column(label=label, logs=logs, source="")
            for label in labels
            if (logs := self._logs_of(label))
        ]
        if not columns:
            return None
        try:
            # One column may have come to a program that others have not.
            return compare(columns, metric=self._metric, allow=(*ALLOWED, "case"), only_ok=True)
        except FabbenchError:
            return None

    def spent(self, now: float) -> float:
        """Return how long the current execution has been running."""
        return now - self._started

    def measured_count(self) -> int:
        """Return how many of its planned sizes the current execution has measured."""
        measured = {point.size for point in self._points}
        for log in self._read:
            measured.update(point.size for point in log.points)
        return len(measured & self._planned())

    def remaining(self, now: float) -> float | None:
        """Estimate how long the run may still take; None if unknown.

        An execution takes as long as the earlier ones of its configuration did. The first is
        extrapolated from the sizes that it has measured.
        """
        usual_s = map_values(fmean, self._took)
        rest = 0.0
        if self.current is not None:
            label = self.current.configuration.label
            estimate = usual_s.get(label) or self._extrapolated(now)
            if estimate is None:
                return None
            usual_s.setdefault(label, estimate)
            rest = max(0.0, estimate - self.spent(now))
        if not usual_s:
            return None
        of_others = fmean(usual_s.values())  # for a configuration that has not run yet
        later = self.plan.executions[self.number :]  # the number of the first is 1
        return rest + sum(usual_s.get(each.configuration.label, of_others) for each in later)

    def _extrapolated(self, now: float) -> float | None:
        """Return how long the current execution takes at its pace; None: no size is measured."""
        measured = self.measured_count()
        if not measured:
            return None
        return self.spent(now) * len(self._planned()) / measured

    def _logs_of(self, label: str) -> tuple[Log, ...]:
        # Of what is running, also the programs that are complete, and the rows of the next one
        logs = list(self._logs.get(label, ()))
        if self.current is not None and self.current.configuration.label == label:
            logs += self._read
            if self._points:
                logs.append(self._unfinished())
        return tuple(logs)

    def _unfinished(self) -> Log:
        """Return the rows of the program that is running as a log."""
        return Log(
            source="",
            benchmark=self.plan.benchmark,
            case=self.case,
            outcome=Outcome.OK,  # nothing is wrong so far
            reason=None,
            facts={},
            points=tuple(self._points),
        )

    def _planned(self) -> set[int]:
        return set(self.current.planned_sizes) if self.current is not None else set()


def best(logs: Sequence[Log], metric: str | None = None) -> str:
    """Return the best figure of an execution: ``"peak 77.35 GB/s at 2 GB"``.

    Empty where there is none.
    """
    try:
        comparison = compare(
            [Column(label="-", logs=tuple(logs), source="")], metric=metric, only_ok=True
        )
    except FabbenchError:
        return ""
    for section in comparison.sections:
        rows = [
            (figure.value, row.size) for row in section.rows for figure in row.figures if figure
        ]
        if not rows:
            continue
        if section.metric.lower_is_better:
            word = "best"
            value, size = min(rows)
        else:
            word = "peak"
            value, size = max(rows)
        return f"{word} {section.scale.quantity(value)} at {format_size(size)}"
    return ""


def name_of(execution: Execution) -> str:
    """Return the name of an execution."""
    return f"{execution.configuration.label}, repeat {execution.repeat}"


def summary(execution: Execution, logs: Sequence[Log]) -> str:
    """Return the result of an execution in one line."""
    results = "; ".join(
        f"{log.outcome}: {log.reason}" if log.reason else str(log.outcome) for log in logs
    )
    measured = _measured_sizes(set(execution.planned_sizes), logs)
    sizes = counted_of(len(measured), len(execution.planned_sizes))
    return f"{name_of(execution)}: {sizes}, {results}"


def _measured_sizes(planned: set[int], logs: Sequence[Log]) -> set[int]:
    """Return the planned sizes that every log has; without a plan, the sizes of any log."""
    measured = [{point.size for point in log.points} for log in logs]
    if not planned:
        return set().union(*measured)
    # Several programs may have other sizes too.
    return planned.intersection(*measured) if logs else set()


def counted_of(number: int, planned: int) -> str:
    """Return ``"2 of 29 sizes"``; without a plan ``"2 sizes"``."""
    return f"{number} of {counted(planned, 'size')}" if planned else counted(number, "size")
