"""What a sweep shows on standard error while in progress: one line on a terminal, one per round elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from fabbench.cli import terminal
from fabbench.cli.live import SIGN_OF_LIFE_S, ticking
from fabbench.model.log import Outcome
from fabbench.model.messages import counted, listed
from fabbench.model.units import format_duration
from fabbench.runs.sweep import SweepWatcher
from fabbench.runs.sweep_store import SweepDocument, TestResult
from fabbench.sweep.values import Round

if TYPE_CHECKING:
    from rich.live import Live

Suspects = Callable[[Sequence[TestResult]], Sequence[str]]  # Returns the names of the suspects of results
SuspectsOf = Callable[[SweepDocument, Sequence[TestResult]], Sequence[str]]


@contextmanager
def watching_sweep(suspects_of: SuspectsOf, document: SweepDocument) -> Iterator[SweepWatcher]:
    """Show a line that changes on a terminal, and a line per round elsewhere."""
    suspects = partial(suspects_of, document)
    if terminal.is_quiet():
        yield SweepProgress(suspects, lambda text: None)  # noqa: ARG005 - nothing is shown
        return
    console = terminal.console() if sys.stderr.isatty() else None
    if console is None or console.is_dumb_terminal:
        lines = SweepProgress(suspects, terminal.notify)
        with ticking(lines.tick):
            yield lines
        return
    from rich.live import Live

    with Live(console=console, auto_refresh=False, transient=True) as live:
        screen = SweepScreen(suspects, live)
        with ticking(screen.tick):
            yield screen


class SweepProgress(SweepWatcher):
    """One line per round, and a sign of life every half minute."""

    def __init__(
        self, suspects: Suspects, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._find, self._write, self._clock = suspects, write, clock
        self._started = self._written = clock()
        self._round: Round | None = None
        self._rounds_done = 0
        self._most_rounds: int | None = None
        self._done = self._bad = self._in_round = 0
        self._suspects: Sequence[str] = ()

    def begin(self, planned: Round, max_rounds: int | None) -> None:
        """Remember the round."""
        self._round, self._most_rounds, self._in_round = planned, max_rounds, 0

    def measured(self, result: TestResult) -> None:
        """Count the test."""
        self._done += 1
        self._in_round += 1
        self._bad += result.outcome != Outcome.OK

    def end(self, planned: Round, results: Sequence[TestResult]) -> None:
        """Write the result of the round."""
        self._rounds_done += 1
        self._suspects = self._find(results)
        self._line()
        del planned

    def tick(self) -> None:
        """Write a sign of life where nothing has been written for half a minute."""
        if self._round is not None and self._clock() - self._written >= SIGN_OF_LIFE_S:
            self._line()

    def text(self) -> str:
        """Return the status line: how far the sweep is."""
        planned = self._round
        if planned is None:
            return "Sweep: starting"
        of = f" of {self._most_rounds}" if self._most_rounds else ""
        bad = f", {self._bad} not ok" if self._bad else ""
        spent = self._clock() - self._started
        left = self._left(spent)
        tests = f"{self._in_round}/{counted(len(planned.tests), 'test')} ({planned.purpose})"
        parts = [
            f"[round {planned.number}{of}] {tests}",
            f"{self._done} total{bad}",
            format_duration(spent),
            *([f"about {format_duration(left)} left"] if left else []),
        ]
        suspects = f"; suspects: {listed(self._suspects)}" if self._suspects else ""
        return ", ".join(parts) + suspects

    def _line(self) -> None:
        self._written = self._clock()
        self._write(self.text())

    def _left(self, spent: float) -> float | None:
        if not self._most_rounds or not self._rounds_done or self._round is None:
            return None
        rounds = max(0, self._most_rounds - self._round.number + (not self._over()))
        return spent / self._rounds_done * rounds

    def _over(self) -> bool:
        return self._round is not None and self._in_round >= len(self._round.tests)


class SweepScreen(SweepProgress):
    """The same in one line of a terminal, redrawn in place."""

    def __init__(self, suspects: Suspects, live: "Live", clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(suspects, self._draw, clock)
        self._live = live

    def measured(self, result: TestResult) -> None:
        """Count the test, and show it."""
        super().measured(result)
        self._draw(self.text())

    def tick(self) -> None:
        """Show the elapsed time."""
        self._draw(self.text())

    def _draw(self, text: str) -> None:
        from rich.text import Text

        self._live.update(Text(text, overflow="ellipsis"), refresh=True)
