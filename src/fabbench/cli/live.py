"""What a run shows on standard error while in progress: a screen on a terminal, and short lines elsewhere."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from fabbench.analysis.progress import RunProgress, best, counted_of, name_of, summary
from fabbench.cli import terminal
from fabbench.model.log import Log, Outcome, Point
from fabbench.model.plan import Execution, Plan
from fabbench.model.units import format_duration, format_size

TICK_S = 1.0
SIGN_OF_LIFE_S = 30.0  # lines come at least this often


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

    def begin(self, execution: Execution, number: int) -> None:
        """Remember the execution."""
        self._progress.begin(execution, number, self._clock())

    def point(self, execution: Execution, point: Point) -> None:
        """Remember the row."""
        del execution
        self._progress.point(point)

    def read(self, execution: Execution, log: Log) -> None:
        """Learn which rows belong together."""
        del execution
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
