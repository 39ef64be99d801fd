"""What a running sweep asks: which tests are next? It tells what came of them, in any order.

A planner is a pure function of the results that it was given: one that is given the stored results of a sweep
that was cut off goes on where that one ended.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

from fabbench.sweep.values import Round, SweepResult, SweepTest


class Planner(Protocol):
    """Says which tests are next."""

    def add(self, result: SweepResult) -> None:
        """Take what came of a test."""

    def next_round(self) -> Round | None:
        """Return the tests of the current round that have no result yet; None: the sweep is done.

        A round whose tests all have results is over, and the next one begins.
        """

    @property
    def most_rounds(self) -> int | None:
        """Return the number of rounds, at most; None: not known."""


class FixedPlanner:
    """Rounds that do not depend on results: all pairs, random matchings, rails, groups, nodes alone."""

    def __init__(self, rounds: Iterable[Round], *, most_rounds: int | None = None) -> None:
        self._rounds: Iterator[Round] = iter(rounds)
        self._most_rounds = most_rounds
        self._current: Round | None = None
        self._left: dict[SweepTest, None] = {}
        self._early: dict[int, set[SweepTest]] = {}
        """Results of rounds that have not begun here: those of the sweep that is resumed."""

    def add(self, result: SweepResult) -> None:
        """Take what came of a test."""
        if self._current is not None and result.round == self._current.number:
            self._left.pop(result.test, None)
        else:
            self._early.setdefault(result.round, set()).add(result.test)

    def next_round(self) -> Round | None:
        """Return the tests of the current round that have no result yet; None: the sweep is done."""
        while not self._left:
            self._current = next(self._rounds, None)
            if self._current is None:
                return None
            done = self._early.pop(self._current.number, set())
            self._left = dict.fromkeys(test for test in self._current.tests if test not in done)
        assert self._current is not None  # noqa: S101 - something is left of it
        return Round(number=self._current.number, tests=tuple(self._left), purpose=self._current.purpose)

    @property
    def most_rounds(self) -> int | None:
        """Return the number of rounds, where it is known."""
        return self._most_rounds
