"""What runs and sweeps show on standard error in progress: on a terminal what changes in place, else short lines.

The screen of a run fits any sweep of sizes: the newest row and the failures are always visible.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

from fabbench.analysis.compare import Comparison, ComparisonSection
from fabbench.analysis.progress import RunProgress, best, counted_of, name_of, summary
from fabbench.cli import terminal
from fabbench.model.compat import override
from fabbench.model.log import Log, Outcome, Point
from fabbench.model.messages import counted, listed, unbroken
from fabbench.model.plan import Execution, Plan
from fabbench.model.units import format_duration, format_size
from fabbench.report import nics_table
from fabbench.report.comparison_tables import section_table
from fabbench.report.table import Table, align_decimals, cut, grid_pieces, split_to_width
from fabbench.runs.document import SweepDocument
from fabbench.runs.execute import Watcher
from fabbench.runs.sweep import SweepWatcher
from fabbench.runs.sweep_store import TestResult
from fabbench.runs.sweep_tests import diagnosed
from fabbench.sweep.values import Round

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.live import Live
    from rich.text import Text

    from fabbench.counters.snapshot import Traffic

TICK_S = 1.0
SIGN_OF_LIFE_S = 30.0  # lines come at least this often
_GAP = 4
_MAX_NIC_LINES, _MIN_NIC_LINES = 16, 3  # Lines for NICs, however tall or short the terminal is
_MAX_FAILURES = 5
_LABEL = 14  # Columns for the label of a configuration
_ECHO = 4  # Columns that stay free after the cursor: if `^C` wrapped, a line of the screen would be left behind
_EVERY_S = 0.1  # Rows that come faster are drawn together


@contextmanager
def ticking(action: Callable[[], None]) -> Iterator[None]:
    """Call `action` every second, in this thread: programs are started, which is safest without others."""

    def tick(number: int, frame: FrameType | None) -> None:
        del number, frame
        # Code that is writing to the same stream at this moment goes first.
        with contextlib.suppress(RuntimeError):
            action()

    before = signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, TICK_S, TICK_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class View:
    """A `Watcher` that keeps the progress of a run up to date; how it is shown is up to each view."""

    nics: Callable[..., None] | None = None  # There is no room for the traffic of NICs

    def __init__(self, plan: Plan, *, metric: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress = RunProgress(plan, metric=metric)
        self._metric = metric
        self._clock = clock
        self._started = self._written = clock()

    @contextmanager
    def _showing(self, *, at_once: bool = True) -> Iterator[None]:
        """Show what changes in this context, after it."""
        del at_once
        yield

    def begin(self, execution: Execution, number: int) -> None:
        """Remember the execution."""
        with self._showing():
            self._progress.begin(execution, number, self._clock())

    def point(self, execution: Execution, point: Point) -> None:
        """Remember the row."""
        del execution
        with self._showing(at_once=False):
            self._progress.point(point)

    def read(self, execution: Execution, log: Log) -> None:
        """Learn which rows belong together."""
        del execution
        with self._showing(at_once=False):
            self._progress.read(log)

    def _left(self, now: float) -> list[str]:
        return [f"about {format_duration(left)} left"] if (left := self._progress.remaining(now)) else []


class Lines(View):
    """One short line for each execution, and a sign of life every half minute."""

    def end(self, execution: Execution, logs: tuple[Log, ...]) -> None:
        """Write the result."""
        number, now = self._progress.number, self._clock()
        took = self._progress.end(execution, logs, now)
        ok = bool(logs) and all(log.outcome is Outcome.OK for log in logs)
        parts = [summary(execution, logs).removesuffix("."), *filter(None, [best(logs, self._metric) if ok else ""])]
        self._notify(number, ", ".join([*parts, format_duration(took), *self._left(now)]))

    def notify(self, sentence: str) -> None:
        """Write what is undecided."""
        self._notify(self._progress.number, sentence)

    def tick(self) -> None:
        """Write a sign of life where nothing has been written for half a minute."""
        execution, now = self._progress.current, self._clock()
        if execution is not None and now - self._written >= SIGN_OF_LIFE_S:
            sizes = counted_of(self._progress.sizes(), len(execution.planned_sizes))
            last = [f"last {format_size(size)}"] if (size := self._progress.newest) is not None else []
            parts = [f"{name_of(execution)}: running for {format_duration(self._progress.spent(now))}", sizes]
            self._notify(self._progress.number, ", ".join([*parts, *last, *self._left(now)]))

    def _notify(self, number: int, text: str) -> None:
        self._written = self._clock()
        terminal.notify(f"[{number}/{len(self._progress.plan.executions)}] {text}")


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

    @override
    @contextmanager
    def _showing(self, *, at_once: bool = True) -> Iterator[None]:
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


# ---------------------------------------------------------------- sweeps


@contextmanager
def watching_sweep(document: SweepDocument) -> Iterator[SweepWatcher]:
    """Show a line that changes on a terminal, and a line per round elsewhere."""
    live = terminal.is_live()
    with terminal.changing_line() if live else nullcontext(terminal.notify) as show:
        progress = SweepProgress(document, show, every_s=0.0 if live else SIGN_OF_LIFE_S)
        with ticking(progress.tick):
            yield progress


class SweepProgress(SweepWatcher):
    """A line per round, and at least one `every_s`: on a screen, where it is redrawn in place, one per event."""

    def __init__(self, document: SweepDocument, write: Callable[[str], None], *, every_s: float) -> None:
        self._document, self._write, self._every_s = document, write, every_s
        self._started = self._written = time.monotonic()
        self._round: Round | None = None
        self._most_rounds: int | None = None
        self._rounds_done = self._done = self._bad = self._in_round = 0
        self._suspects: Sequence[str] = ()

    def begin(self, planned: Round, max_rounds: int | None) -> None:
        """Remember the round."""
        self._round, self._most_rounds, self._in_round = planned, max_rounds, 0

    def measured(self, result: TestResult) -> None:
        """Count the test."""
        self._done += 1
        self._in_round += 1
        self._bad += result.outcome != Outcome.OK
        if not self._every_s:
            self._line()

    def end(self, planned: Round, results: Sequence[TestResult]) -> None:
        """Write the result of the round."""
        del planned
        self._rounds_done += 1
        self._suspects = _suspects(self._document, results)
        self._line()

    def tick(self) -> None:
        """Write a sign of life where nothing has been written for so long."""
        if time.monotonic() - self._written >= self._every_s and (self._round is not None or not self._every_s):
            self._line()

    def _line(self) -> None:
        self._written = time.monotonic()
        self._write(self._text(self._written - self._started))

    def _text(self, spent: float) -> str:
        planned, most = self._round, self._most_rounds or 0
        if planned is None:
            return "Sweep: starting"
        number, tests = f"{planned.number}{f'/{most}' * bool(most)}", len(planned.tests)
        parts = [
            f"Round {number} ({planned.purpose}): {self._in_round}/{counted(tests, 'test')}",
            f"{self._done} total{f', {self._bad} not ok' * bool(self._bad)}",
            format_duration(spent),
        ]
        rounds = max(0, most - planned.number + (self._in_round < tests))
        if rounds and self._rounds_done:
            parts.append(f"about {format_duration(spent / self._rounds_done * rounds)} left")
        return ", ".join(parts) + f"; suspects: {listed(self._suspects)}" * bool(self._suspects)


def _suspects(document: SweepDocument, results: Sequence[TestResult]) -> list[str]:
    """Return the names of what looks bad so far."""
    diagnosis = diagnosed(document, [each.result for each in results])
    tested = {node for each in results for node in each.nodes}
    return [e.name for e in (*diagnosis.suspects, *diagnosis.undecided) if tested.issuperset(e.nodes)]
