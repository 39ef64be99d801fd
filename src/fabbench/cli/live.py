"""What runs and sweeps show on standard error: lines, and on a terminal what changes below."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from shutil import get_terminal_size
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from fabbench.analysis.progress import RunProgress, best, counted_of, name_of, summary
from fabbench.cli import terminal
from fabbench.model.compat import override
from fabbench.model.log import Log, Outcome, Point
from fabbench.model.messages import counted, listed
from fabbench.model.plan import Execution, Plan
from fabbench.model.units import format_duration, format_size
from fabbench.report import nics_table
from fabbench.report.comparison_tables import section_table
from fabbench.report.sweep_report import SweepReport, heat_map_text
from fabbench.report.table import align_decimals, grid_pieces, split_to_width
from fabbench.runs.document import SweepDocument, TestResult
from fabbench.runs.execute import Watcher
from fabbench.runs.sweep import Progress, readings_of
from fabbench.sweep.values import Round

if TYPE_CHECKING:
    from fabbench.counters.snapshot import Moved

TICK_S = 1.0
SIGN_OF_LIFE_S = 30.0  # lines come at least this often, where nothing can change
_MAX_ROWS = 8  # of the table
_LINES_AROUND_MATRIX = 7  # The bar, the legend, borders of a few groups, and the cursor's line

_State: TypeAlias = tuple[str, float, float, Sequence[str]]
"""A line (empty: nothing goes on), how much is done, of what total, and the lines below it."""
_NOTHING: _State = ("", 0, 1, ())


class _Screen:
    """How far something is: drawn every second where it can change, else written now and then."""

    def __init__(
        self,
        show: terminal.Show | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._show = show
        self._clock = clock
        self._started = self._written = clock()  # The beginning, and when a line was written last
        self._lock = threading.Lock()  # A tick interrupts anything

    def state(self, now: float) -> _State:
        """Return how far it is at a time of the clock, in seconds."""
        raise NotImplementedError

    def tick(self) -> None:
        """Draw, or write, what is due; not while it changes."""
        now = self._clock()
        # A line is due now and then only; what is drawn, on each tick. The lock is not waited for:
        # who holds it may be the thread that this tick interrupts.
        is_due = self._show is not None or now - self._written >= SIGN_OF_LIFE_S
        if not is_due or not self._lock.acquire(blocking=False):
            return
        try:
            text, done, total, lines = self.state(now)
            if text and self._show is not None:
                self._show(text, done, total, lines)
            elif text:
                self._write(text)
        finally:
            self._lock.release()

    def _write(self, text: str) -> None:
        self._written = self._clock()
        terminal.notify(text)


ScreenT = TypeVar("ScreenT", bound=_Screen)


@contextmanager
def _ticking(make: Callable[[terminal.Show | None], ScreenT]) -> Iterator[ScreenT]:
    """Yield a screen that ticks every second, in this thread: a signal interrupts what goes on.

    Programs are started meanwhile, which is safest without other threads.
    """
    with terminal.changing() as show:
        screen = make(show if terminal.is_live() else None)

        def tick(number: int, frame: FrameType | None) -> None:
            del number, frame
            # Code that is writing to the same stream at this moment goes first: Python refuses a
            # second write within it.
            with suppress(RuntimeError):
                screen.tick()

        before = signal.signal(signal.SIGALRM, tick)
        signal.setitimer(signal.ITIMER_REAL, TICK_S, TICK_S)
        try:
            yield screen
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def watching(plan: Plan, *, metric: str | None = None) -> AbstractContextManager[Watcher]:
    """Show how far a run is."""
    return _ticking(partial(RunScreen, plan, metric=metric))


def watching_sweep(document: SweepDocument) -> AbstractContextManager[Progress]:
    """Show how far a sweep is."""
    return _ticking(partial(SweepScreen, document))


class RunScreen(_Screen, Watcher):
    """A line per execution; below them the last rows, as the final table will have them."""

    def __init__(
        self,
        plan: Plan,
        *show: terminal.Show | None,
        metric: str | None = None,
        **more: Any,
    ) -> None:
        """`show` and `more` are those of any screen; `metric` is the one whose best is told."""
        super().__init__(*show, **more)
        self._progress = RunProgress(plan, metric=metric)
        self._metric = metric
        self._traffic: Moved = {}
        # Gets the NICs' rates while an execution runs; None: they are not read, as nothing is drawn
        self.nics = self._remember_traffic if self._show is not None else None

    def begin(self, execution: Execution, number: int) -> None:
        """Remember the execution."""
        with self._lock:
            self._progress.begin(execution, number, self._clock())

    def point(self, execution: Execution, point: Point) -> None:
        """Remember the row."""
        del execution
        with self._lock:
            self._progress.point(point)

    def read(self, execution: Execution, log: Log) -> None:
        """Learn which rows belong together."""
        del execution
        with self._lock:
            self._progress.read(log)

    def end(self, execution: Execution, logs: tuple[Log, ...]) -> None:
        """Write the result."""
        with self._lock:
            now = self._clock()
            self._traffic = {}
            took = self._progress.end(execution, logs, now)
            outcomes = {log.outcome for log in logs}
            peak = best(logs, self._metric) if outcomes == {Outcome.OK} else ""
            parts = [
                summary(execution, logs).removesuffix("."),
                peak,
                format_duration(took),
                self._time_left(now),
            ]
            self._write(self._with_number(parts))

    def notify(self, sentence: str) -> None:
        """Write what is undecided."""
        with self._lock:
            self._write(self._with_number([sentence]))

    def _remember_traffic(self, hosts: "Moved") -> None:
        self._traffic = hosts

    def _with_number(self, parts: Sequence[str]) -> str:
        """Join what is said of an execution, after its number of all that are planned."""
        total = len(self._progress.plan.executions)
        text = ", ".join(filter(None, parts))
        return f"[{self._progress.number}/{total}] {text}"

    def _time_left(self, now: float) -> str:
        left = self._progress.remaining(now)
        return f"about {format_duration(left)} left" if left else ""

    @override
    def state(self, now: float) -> _State:
        progress = self._progress
        execution = progress.current
        if execution is None:
            return _NOTHING
        name = f"{name_of(execution)}: running for {format_duration(progress.spent(now))}"
        last = "" if progress.newest is None else f"last {format_size(progress.newest)}"
        sizes = counted_of(progress.measured_count(), len(execution.planned_sizes))
        text = self._with_number([name, self._time_left(now), sizes, last])
        done: float = progress.number
        total: float = len(progress.plan.executions)
        if left := progress.remaining(now):  # Seconds tell more than a number of executions
            done = now - self._started
            total = done + left
        rows = self._newest_rows(get_terminal_size().columns)
        return text, done, total, [*rows, *nics_table.live(self._traffic)]

    def _newest_rows(self, width: int) -> Sequence[str]:
        """Return the newest rows of the section that is measured, as wide as fits."""
        progress = self._progress
        comparison = progress.comparison()
        if comparison is None:
            return ()
        filled = [section for section in comparison.sections if section.rows]
        if not filled:
            return ()
        # The case may not be known yet, or not be among the rows
        measured = [each for each in filled if each.key.get("case") == progress.case]
        section = measured[0] if measured else filled[-1]
        # Rows end with the newest: those after it are of other configurations
        sizes = [row.size for row in section.rows]
        end = len(sizes)
        if progress.newest in sizes:
            end = sizes.index(progress.newest) + 1
        newest = section.rows[:end][-_MAX_ROWS:]
        section = replace(section, rows=newest)
        table = align_decimals(section_table(comparison, [section], terminal=True, live=True))
        # Of a table too wide, the part with the column of the current configuration
        parts = list(split_to_width(table, width))
        label = "" if progress.current is None else progress.current.configuration.label
        part = next((part for part in parts if label in part.header), parts[0])
        drawn = "".join(grid_pieces(part, width=width))
        return [table.title, *drawn.splitlines()]


class SweepScreen(_Screen):
    """A line per round; below them the matrix of the tests so far."""

    def __init__(self, document: SweepDocument, show: terminal.Show | None = None) -> None:
        super().__init__(show)
        self._document = document
        self._round: Round | None = None
        self._results: Sequence[TestResult] = ()
        self._suspects: Sequence[str] = ()
        self._matrix: Sequence[str] = ()
        self._max_rounds = 0  # 0: not known
        self._rounds_done = self._tests_done = 0  # The tests are those of the round in progress

    def __call__(
        self, planned: Round, max_rounds: int | None, results: Sequence[TestResult], tests_done: int
    ) -> None:
        """Remember how far a round is; at its end write its result, with what looks bad so far."""
        self._round = planned
        self._max_rounds = max_rounds or 0
        self._results = results
        self._tests_done = tests_done
        if tests_done == len(planned.tests):
            report = self._report(results)
            diagnosis = report.diagnosis
            tested = {node for each in results for node in each.nodes}
            suspects = (*diagnosis.suspects, *diagnosis.undecided)
            with self._lock:
                self._rounds_done += 1
                # Nothing is said yet of nodes that no test has reached
                self._suspects = [each.name for each in suspects if tested.issuperset(each.nodes)]
                self._matrix = heat_map_text(report.matrix).splitlines()
                text, *_ = self.state(self._clock())
                self._write(text)

    def _report(self, results: Sequence[TestResult]) -> SweepReport:
        """Return what the tests so far say, with a matrix that fits the terminal."""
        from fabbench.runs.report_pages import sweep_report  # which other commands do not need

        document = self._document
        readings = readings_of(document, [each.result for each in results])
        rows = get_terminal_size().lines - _LINES_AROUND_MATRIX
        return sweep_report(readings, document, rows=rows)

    @override
    def state(self, now: float) -> _State:
        planned = self._round
        if planned is None:
            return _NOTHING
        tests = len(planned.tests)
        number = str(planned.number)
        if self._max_rounds >= planned.number:
            number = f"{number}/{self._max_rounds}"
        tests_done = f"{self._tests_done}/{counted(tests, 'test')}"
        total = f"{len(self._results)} total"
        if bad := sum(each.outcome != Outcome.OK for each in self._results):
            total = f"{total}, {bad} not ok"
        spent = now - self._started
        parts = [
            f"Round {number} ({planned.purpose}): {tests_done}",
            total,
            format_duration(spent),
        ]
        is_open = self._tests_done < tests  # The round in progress counts among those left
        rounds_left = max(0, self._max_rounds - planned.number + is_open)
        if rounds_left and self._rounds_done:
            left = spent / self._rounds_done * rounds_left
            parts.append(f"about {format_duration(left)} left")
        text = ", ".join(parts)
        if self._suspects:
            text = f"{text}; suspects: {listed(self._suspects)}"
        return text, self._tests_done, tests, self._matrix
