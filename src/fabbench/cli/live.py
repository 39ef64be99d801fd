"""What a run shows while it is going on, on standard error: a table that grows, or short lines."""

import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from fabbench.model import METRICS, Log, Outcome, Plan, Point, Trial
from fabbench.run import Watcher
from fabbench.units import format_size, scale

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

_SHOWN = ("busbw", "latency", "bandwidth", "time")


@contextmanager
def watching(plan: Plan) -> Iterator[Watcher]:
    """Show a table on a terminal, and lines elsewhere."""
    if not sys.stderr.isatty():
        yield Lines(plan)
        return
    from rich.console import Console
    from rich.live import Live

    # No refresh thread: fabbench starts programs, which is safest without threads (see process.py).
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield Table(plan, live)


class Lines:
    """One short line for each trial."""

    def __init__(self, plan: Plan) -> None:
        self._total = len(plan.trials)
        self._number = 0

    def begin(self, trial: Trial, number: int) -> None:
        """Remember the number."""
        del trial
        self._number = number

    def point(self, trial: Trial, point: Point) -> None:
        """Say nothing: there would be a line for every row."""

    def end(self, trial: Trial, logs: tuple[Log, ...]) -> None:
        """Say what came of it."""
        click.echo(f"[{self._number}/{self._total}] {_summary(trial, logs)}", err=True)


class Table:
    """A table on a terminal: sizes, and the latest figures of each arm."""

    def __init__(self, plan: Plan, live: "Live") -> None:
        self._plan = plan
        self._live = live
        self._doing = ""
        self._done: list[str] = []
        self._metric = ""
        self._values: dict[tuple[int, str], list[float]] = {}

    def begin(self, trial: Trial, number: int) -> None:
        """Say what is being measured."""
        self._doing = f"{number} of {len(self._plan.trials)}: {trial.arm.label}, repeat {trial.repeat} …"
        self._show()

    def point(self, trial: Trial, point: Point) -> None:
        """Add a row's figure."""
        self._metric = self._metric or next((name for name in _SHOWN if name in point.metrics), "")
        if self._metric in point.metrics:
            value = point.values[point.metrics.index(self._metric)]
            self._values.setdefault((point.size, trial.arm.label), []).append(value)
            self._show()

    def end(self, trial: Trial, logs: tuple[Log, ...]) -> None:
        """Keep what went wrong in sight."""
        if any(log.outcome is not Outcome.OK for log in logs):
            self._done.append(_summary(trial, logs))
        self._doing = ""
        self._show()

    def _show(self) -> None:
        self._live.update(self._drawn(), refresh=True)

    def _drawn(self) -> "Group":
        from rich.console import Group
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(title=self._metric or None, title_justify="left")
        table.add_column("size", justify="right")
        for arm in self._plan.arms:
            table.add_column(arm.label, justify="right")
        for size in sorted({size for size, _ in self._values}):
            cells = (self._values.get((size, arm.label)) for arm in self._plan.arms)
            table.add_row(format_size(size), *(self._cell(values) for values in cells))
        return Group(table, *(Text(line) for line in [*self._done, self._doing] if line))

    def _cell(self, values: list[float] | None) -> str:
        if not values:
            return ""
        value = statistics.median(values)
        return scale(METRICS[self._metric].unit, value, coarse=False).quantity(value)


def _summary(trial: Trial, logs: tuple[Log, ...]) -> str:
    what = f"{trial.arm.label}, repeat {trial.repeat}"
    told = [f"{log.outcome}{f': {log.reason}' if log.reason else ''}" for log in logs]
    sizes = len({point.size for log in logs for point in log.points})
    return f"{what}: {sizes} of {len(trial.planned_sizes)} sizes, {'; '.join(told)}"
