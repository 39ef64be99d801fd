"""The screen of a run in progress. It fits any sweep: the newest row and the failures are always visible."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fabbench.analysis.compare import Comparison, ComparisonSection
from fabbench.analysis.progress import summary
from fabbench.cli import terminal
from fabbench.cli.live import Lines, View, ticking
from fabbench.model.compat import override
from fabbench.model.log import Log, Outcome, Point
from fabbench.model.messages import unbroken
from fabbench.model.plan import Execution, Plan
from fabbench.model.units import format_duration, format_size
from fabbench.report import nics_table
from fabbench.report.comparison_tables import section_table
from fabbench.report.table import Table, align_decimals, cut, grid_pieces, split_to_width
from fabbench.runs.execute import Watcher

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.live import Live
    from rich.text import Text

    from fabbench.counters.snapshot import Traffic

_GAP = 4
_MAX_NIC_LINES, _MIN_NIC_LINES = 16, 3  # Lines for NICs, however tall or short the terminal is
_MAX_FAILURES = 5
_LABEL = 14  # Columns for the label of a configuration
_ECHO = 4  # Columns that stay free after the cursor: if `^C` wrapped, a line of the screen would be left behind
_EVERY_S = 0.1  # Rows that come faster are drawn together


@contextmanager
def watching(plan: Plan, *, metric: str | None = None) -> Iterator[Watcher]:
    """Show a screen on a terminal, and lines elsewhere."""
    if not terminal.is_live():
        lines = Lines(plan, metric=metric)
        with ticking(lines.tick):
            yield lines
        return
    from rich.live import Live

    with Live(console=terminal.console(), auto_refresh=False, transient=True) as live:
        screen = LiveScreen(plan, live, metric=metric)
        with ticking(screen.tick):
            yield screen


class LiveScreen(View):
    """Sizes and figures of all configurations, as the final table will have them, and how far the run is."""

    def __init__(self, plan: Plan, live: "Live", **more: Any) -> None:
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        super().__init__(plan, **more)
        self._live = live
        self._failed: list[str] = []
        self._undecided = ""
        self._nics: Mapping[str, Traffic] = {}
        self._next = 0.0
        columns = ("{task.description}", "{task.fields[time]}")
        what, spent = (TextColumn(each, markup=False, table_column=Column(no_wrap=True)) for each in columns)
        bar = BarColumn(bar_width=None, table_column=Column(ratio=1))
        self._bar = Progress(what, bar, spent, console=live.console, expand=True, auto_refresh=False)
        self._task = self._bar.add_task("", total=100.0, time="")
        self._lock = threading.Lock()  # NICs of other hosts are reported by a thread

    @override
    def begin(self, execution: Execution, number: int) -> None:
        with self._showing():
            super().begin(execution, number)

    @override
    def point(self, execution: Execution, point: Point) -> None:
        with self._showing(at_once=False):
            super().point(execution, point)

    @override
    def read(self, execution: Execution, log: Log) -> None:
        with self._lock:
            super().read(execution, log)

    def nics(self, hosts: "Mapping[str, Traffic]") -> None:
        """Show what the NICs move now."""
        with self._showing():
            self._nics = hosts

    def end(self, execution: Execution, logs: tuple[Log, ...]) -> None:
        """Keep what went wrong in sight."""
        with self._showing():
            if any(log.outcome is not Outcome.OK for log in logs):
                self._failed.append(summary(execution, logs))
            self._progress.end(execution, logs, self._clock())
            self._nics = {}

    def notify(self, sentence: str) -> None:
        """Show what is undecided."""
        with self._showing():
            self._undecided = sentence

    def tick(self) -> None:
        """Show the time, unless the screen is being drawn: this may interrupt that."""
        if not self._lock.locked():
            with self._showing():
                pass

    @contextmanager
    def _showing(self, *, at_once: bool = True) -> Iterator[None]:
        """Show what changes in this context, after it."""
        with self._lock:
            yield
            started = self._clock()
            if at_once or started >= self._next:
                self._live.update(self.drawn(), refresh=True)
                ended = self._clock()
                self._next = ended + max(_EVERY_S, 10 * (ended - started))

    # ------------------------------------------------------------ what it looks like

    def drawn(self) -> "Group":
        """Return what is shown now, in as many lines as the terminal has."""
        from rich.console import Group

        below: list[RenderableType] = [
            *(_lines([line]) for line in [*self._failures(), *filter(None, [self._undecided])]),
            self._status(),
        ]
        return Group(*self._measured(self._live.console.height - len(below)), *below)

    def _failures(self) -> Sequence[str]:
        shown = self._failed[-min(_MAX_FAILURES, max(1, self._live.console.height // 4)) :]
        more = len(self._failed) - len(shown)
        return [f"{more} more failed before:", *shown] if more else shown

    def _status(self) -> "RenderableType":
        from rich.padding import Padding

        progress, now = self._progress, self._clock()
        execution, total = progress.current, len(progress.plan.executions)
        what = [] if execution is None else [cut(execution.configuration.label, _LABEL), f"repeat {execution.repeat}"]
        what += [format_size(progress.newest)] if progress.newest is not None else []
        remaining, spent = progress.remaining(now), now - self._started
        part = spent / (spent + remaining) if remaining else progress.number / max(1, total)
        self._bar.update(
            self._task,
            description=f"[{progress.number}/{total}] {', '.join(what)}",
            completed=100 * part,
            time=", ".join([f"{format_duration(spent)} elapsed", *self._left(now)]),
        )
        return Padding(self._bar.get_renderable(), (0, _ECHO, 0, 0))

    def _measured(self, room: int) -> "list[RenderableType]":
        from rich.table import Table as Grid

        comparison = self._progress.comparison()
        section = _section(comparison, self._progress.case) if comparison is not None else None
        if comparison is None or section is None:
            return [_lines(self._traffic(room))] if self._nics else []
        table = self._part(align_decimals(section_table(comparison, [section], terminal=True, live=True)))
        newest = next((index for index, row in enumerate(section.rows) if row.size == self._progress.newest), -1)
        width = self._live.console.width
        head = len(_drawn(replace(table, rows=table.rows[:1]), width)) - 1
        room -= 1 + head
        title = _lines([table.title])
        if not self._nics:
            return [title, _lines(_drawn(_window(table, newest, room), width))]
        drawn = _drawn(_window(table, newest, room), width)
        if max(map(len, drawn)) + _GAP + nics_table.COLUMNS <= width:
            grid = Grid.grid(padding=(0, _GAP))
            grid.add_row(_lines(drawn), _lines(self._traffic(room)))
            return [title, grid]
        traffic = self._traffic(max(_MIN_NIC_LINES, room - len(table.rows)))
        return [title, _lines(_drawn(_window(table, newest, room - len(traffic)), width)), _lines(traffic)]

    def _part(self, table: Table) -> Table:
        current = self._progress.current
        parts = list(split_to_width(table, self._live.console.width))
        label = current.configuration.label if current is not None else ""
        return next((part for part in parts if label in part.header), parts[0])

    def _traffic(self, room: int) -> list[str]:
        return nics_table.live(self._nics, max_lines=max(_MIN_NIC_LINES, min(_MAX_NIC_LINES, room)))


def _section(comparison: Comparison, case: str | None) -> ComparisonSection | None:
    filled = [section for section in comparison.sections if section.rows]
    return next((each for each in filled if each.key.get("case") == case), filled[-1] if filled else None)


def _window(table: Table, newest: int, room: int) -> Table:
    """Keep as many rows as there is room for, including the newest, in columns as wide as before."""
    room = max(1, room)
    last = max(newest + 1, min(room, len(table.rows))) if newest >= 0 else len(table.rows)
    widths = [max(map(len, column)) for column in zip(*table.rows, strict=True)]
    rows = table.rows[max(0, last - room) : last]
    padded = [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return replace(table, rows=padded)


def _drawn(table: Table, width: int) -> list[str]:
    return "".join(grid_pieces(table, width=width)).splitlines()


def _lines(lines: Sequence[str]) -> "Text":
    """Return lines that are truncated at the width of the terminal."""
    from rich.text import Text

    return Text("\n".join(map(unbroken, lines)), no_wrap=True, overflow="ellipsis")
