"""What a sweep shows on standard error while in progress: one line on a terminal, one per round elsewhere."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

from fabbench.cli import terminal
from fabbench.cli.live import SIGN_OF_LIFE_S, ticking
from fabbench.model.log import Outcome
from fabbench.model.messages import counted, listed
from fabbench.model.units import format_duration
from fabbench.runs.document import SweepDocument
from fabbench.runs.sweep import SweepWatcher
from fabbench.runs.sweep_store import TestResult
from fabbench.sweep.values import Round

Suspects = Callable[[Sequence[TestResult]], Sequence[str]]  # Returns the names of the suspects of results
SuspectsOf = Callable[[SweepDocument, Sequence[TestResult]], Sequence[str]]


@contextmanager
def watching_sweep(suspects_of: SuspectsOf, document: SweepDocument) -> Iterator[SweepWatcher]:
    """Show a line that changes on a terminal, and a line per round elsewhere."""
    suspects, live = partial(suspects_of, document), terminal.is_live()
    with terminal.changing_line() if live else nullcontext(terminal.notify) as show:
        progress = SweepProgress(suspects, show, every_s=0.0 if live else SIGN_OF_LIFE_S)
        with ticking(progress.tick):
            yield progress


class SweepProgress(SweepWatcher):
    """A line per round, and at least one `every_s`: on a screen, where it is redrawn in place, one per event."""

    def __init__(self, suspects: Suspects, write: Callable[[str], None], *, every_s: float = SIGN_OF_LIFE_S) -> None:
        self._find, self._write, self._clock, self._every_s = suspects, write, time.monotonic, every_s
        self._started = self._written = self._clock()
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
        if not self._every_s:
            self._line()

    def end(self, planned: Round, results: Sequence[TestResult]) -> None:
        """Write the result of the round."""
        self._rounds_done += 1
        self._suspects = self._find(results)
        self._line()
        del planned

    def tick(self) -> None:
        """Write a sign of life where nothing has been written for so long."""
        if self._clock() - self._written >= self._every_s and (self._round is not None or not self._every_s):
            self._line()

    def text(self) -> str:
        """Return the status line: how far the sweep is."""
        planned = self._round
        if planned is None:
            return "Sweep: starting"
        of = f"/{self._most_rounds}" if self._most_rounds else ""
        bad = f", {self._bad} not ok" if self._bad else ""
        spent = self._clock() - self._started
        left = self._left(spent)
        parts = [
            f"Round {planned.number}{of} ({planned.purpose}): {self._in_round}/{counted(len(planned.tests), 'test')}",
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
        rounds = max(0, self._most_rounds - self._round.number + (self._in_round < len(self._round.tests)))
        return spent / self._rounds_done * rounds
