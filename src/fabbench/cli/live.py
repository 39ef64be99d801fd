"""What a run shows while it is going on, on standard error: a table that grows, or short lines."""

import statistics
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from fabbench.model import METRICS, Log, Outcome, Plan, Point, Trial
from fabbench.report import nics
from fabbench.run import Watcher
from fabbench.units import format_size, scale

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table as Grid

    from fabbench.counters.traffic import Traffic

_SHOWN = ("busbw", "latency", "bandwidth", "time")
_GAP = 4
_MOST, _LEAST = 16, 3
"""Lines for NICs: however high the terminal is, and however low."""
_AROUND = 5
"""Lines of the table without its rows, and of what is below it."""


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

    nics = None
    """There is no room for what NICs move."""

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
    """A table on a terminal: sizes, and the latest figures of each arm, by the metric measured now."""

    def __init__(self, plan: Plan, live: "Live") -> None:
        self._plan = plan
        self._live = live
        self._doing = ""
        self._done: list[str] = []
        self._metric = ""
        self._values: dict[tuple[str, int, str], list[float]] = {}
        """Figures by metric, size and arm."""
        self._nics: Mapping[str, Traffic] = {}
        self._lock = threading.Lock()  # NICs of other hosts are told in a thread

    def begin(self, trial: Trial, number: int) -> None:
        """Say what is being measured."""
        with self._lock:
            self._doing = f"{number} of {len(self._plan.trials)}: {trial.arm.label}, repeat {trial.repeat} …"
            self._show()

    def point(self, trial: Trial, point: Point) -> None:
        """Add a row's figure."""
        with self._lock:
            metric = next((name for name in _SHOWN if name in point.metrics), "")
            if metric:
                self._metric = metric
                value = point.values[point.metrics.index(metric)]
                self._values.setdefault((metric, point.size, trial.arm.label), []).append(value)
                self._show()

    def nics(self, hosts: "Mapping[str, Traffic]") -> None:
        """Show what the NICs move now."""
        with self._lock:
            self._nics = hosts
            self._show()

    def end(self, trial: Trial, logs: tuple[Log, ...]) -> None:
        """Keep what went wrong in sight."""
        with self._lock:
            if any(log.outcome is not Outcome.OK for log in logs):
                self._done.append(_summary(trial, logs))
            self._doing = ""
            self._nics = {}
            self._show()

    def _show(self) -> None:
        self._live.update(self.drawn(), refresh=True)

    def drawn(self) -> "Group":
        """Give what is shown now."""
        from rich.console import Group
        from rich.text import Text

        told = [Text(line) for line in [*self._done, self._doing] if line]
        return Group(self._beside(self._table()) if self._nics else self._table(), *told)

    def _beside(self, table: "Grid") -> "Group | Grid":
        """Put the NICs beside the table, or below it where the terminal is narrow."""
        from rich.console import Group
        from rich.table import Table as Grid
        from rich.text import Text

        console = self._live.console
        wide = console.measure(table).maximum + _GAP + nics.COLUMNS <= console.width
        taken = len(self._done) + (0 if wide else table.row_count + _AROUND)
        most = max(_LEAST, min(_MOST, console.height - taken - 2))
        lines = Text("\n".join(nics.live(self._nics, most=most)), no_wrap=True, overflow="ellipsis")
        if not wide:
            return Group(table, lines)
        grid = Grid.grid(padding=(0, _GAP))
        grid.add_row(table, lines)
        return grid

    def _table(self) -> "Grid":
        from rich.table import Table as Grid

        table = Grid(title=self._metric or None, title_justify="left")
        table.add_column("size", justify="right")
        for arm in self._plan.arms:
            table.add_column(arm.label, justify="right")
        for size in sorted({size for metric, size, _ in self._values if metric == self._metric}):
            cells = (self._values.get((self._metric, size, arm.label)) for arm in self._plan.arms)
            table.add_row(format_size(size), *(self._cell(values) for values in cells))
        return table

    def _cell(self, values: list[float] | None) -> str:
        if not values:
            return ""
        value = statistics.median(values)
        return scale(METRICS[self._metric].unit, value, coarse=False).quantity(value)


def _summary(trial: Trial, logs: tuple[Log, ...]) -> str:
    what = f"{trial.arm.label}, repeat {trial.repeat}"
    told = [f"{log.outcome}{f': {log.reason}' if log.reason else ''}" for log in logs]
    return f"{what}: {_sizes(trial.planned_sizes, logs)}, {'; '.join(told)}"


def _sizes(planned: Sequence[int], logs: Sequence[Log]) -> str:
    """Say how many of the planned sizes every log has: of several programs each has its own besides."""
    measured = [{point.size for point in log.points} for log in logs]
    if not planned:
        number = len(set().union(*measured))
        return f"{number} size{'' if number == 1 else 's'}"
    return f"{len(set(planned).intersection(*measured)) if measured else 0} of {len(planned)} sizes"
