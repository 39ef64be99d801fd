"""The interface that tells a running sweep which tests are next, and plans that do not depend on results.

A planner is a pure function of the results added to it: with the stored results of an interrupted sweep, it
continues where that one ended.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, cycle
from typing import Protocol

from fabbench.sweep.values import Round, SweepResult, SweepTest


class Planner(Protocol):
    """Chooses which tests are next."""

    def add(self, result: SweepResult) -> None:
        """Add the result of a test."""

    def next_round(self) -> Round | None:
        """Return the tests of the current round that have no result yet; None: the sweep is done.

        When all tests of a round have results, the next round begins.
        """

    @property
    def max_rounds(self) -> int | None:
        """The maximum number of rounds; None: unknown."""


class FixedPlanner:
    """Rounds that do not depend on results."""

    def __init__(self, rounds: Iterable[Round], *, max_rounds: int | None = None) -> None:
        self._rounds: Iterator[Round] = iter(rounds)
        self._most_rounds = max_rounds
        self._current: Round | None = None
        self._pending: dict[SweepTest, None] = {}
        self._early: dict[int, set[SweepTest]] = {}
        """Results of rounds that have not started here: those of the resumed sweep."""

    def add(self, result: SweepResult) -> None:
        """Add the result of a test."""
        if self._current is not None and result.round == self._current.number:
            self._pending.pop(result.test, None)
        else:
            self._early.setdefault(result.round, set()).add(result.test)

    def next_round(self) -> Round | None:
        """Return the tests of the current round that have no result yet; None: the sweep is done."""
        while not self._pending:
            self._current = next(self._rounds, None)
            if self._current is None:
                return None
            done = self._early.pop(self._current.number, set())
            self._pending = dict.fromkeys(test for test in self._current.tests if test not in done)
        assert self._current is not None  # noqa: S101 - it has pending tests
        return Round(number=self._current.number, tests=tuple(self._pending), purpose=self._current.purpose)

    @property
    def max_rounds(self) -> int | None:
        """The number of rounds, if known."""
        return self._most_rounds


def all_pairs(nodes: Sequence[str]) -> Iterator[Round]:
    """Yield every pair once, in as few rounds as possible: N−1 rounds of N/2 pairs; N rounds if N is odd.

    The circle method: one node stays, the others move by one position after each round.
    """
    circle: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    half, rounds = len(circle) // 2, len(circle) - 1
    for number in range(1, rounds + 1 if len(nodes) > 1 else 1):
        pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
        tests = tuple(SweepTest((a, b)) for a, b in pairs if a is not None and b is not None)
        yield Round(number=number, tests=tests, purpose=f"all pairs, round {number} of {rounds}")
        circle = [circle[0], circle[-1], *circle[1:-1]]


def matchings(nodes: Sequence[str], rounds: int, seed: int, *, again: bool = False) -> Iterator[Round]:
    """Yield random rounds in which every node has a new partner: some rounds of all pairs, shuffled.

    With an odd number of nodes, one is idle in each round. There are no more rounds than all pairs take,
    unless partners may meet `again`.
    """
    shuffled = list(nodes)
    random.Random(seed).shuffle(shuffled)  # noqa: S311 - no secret
    maximum = len(nodes) - 1 + len(nodes) % 2
    rounds = 0 if len(nodes) < 2 else rounds if again else min(rounds, maximum)
    pairs = cycle(all_pairs(shuffled))
    for number, each in zip(range(1, rounds + 1), pairs, strict=False):
        yield Round(number=number, tests=each.tests, purpose=f"random pairs, round {number} of {rounds}")


def single(nodes: Sequence[str]) -> Iterator[Round]:
    """Yield one round in which every node is tested alone."""
    if nodes:
        yield Round(number=1, tests=tuple(SweepTest((node,)) for node in nodes), purpose="every node alone")


def rails(nodes: Sequence[str], nics: Sequence[str], *, rounds: int = 2, seed: int = 0) -> Iterator[Round]:
    """Yield random pairs, tested with one NIC after another, so that each NIC meets several partners."""
    numbers = count(1)
    for each in matchings(nodes, rounds, seed):
        for nic in nics:
            yield Round(
                number=next(numbers),
                tests=tuple(SweepTest(test.nodes, nic) for test in each.tests),
                purpose=f"{nic} of every node, partner {each.number} of {rounds}",
            )


def grouped(group_of: Mapping[str, str], rounds: int, *, seed: int = 0) -> Iterator[Round]:
    """Yield random pairs: in half of the rounds within each group (node → group), then between groups.

    A node that has no such partner left is tested with any other.
    """
    members: dict[str, list[str]] = {}
    for node, group in group_of.items():
        members.setdefault(group, []).append(node)
    half = (rounds + 1) // 2
    within = [list(matchings(nodes, half, seed)) for nodes in members.values()]
    for number in range(1, rounds + 1):
        tests = [test for each in within if number <= min(half, len(each)) for test in each[number - 1].tests]
        used = {node for test in tests for node in test.nodes}
        left = [[node for node in nodes if node not in used] for nodes in members.values()]
        tests += _between(left, random.Random(seed + number))  # noqa: S311 - no secret
        where = "within" if number <= half else "between"
        yield Round(number=number, tests=tuple(tests), purpose=f"pairs {where} groups")


def _between(members: Sequence[Sequence[str]], generator: random.Random) -> Iterator[SweepTest]:
    """Pair nodes of different groups: repeatedly one of the largest remaining group with one of another.

    What remains of the last group is paired within it.
    """
    left = [generator.sample(list(nodes), len(nodes)) for nodes in members]
    generator.shuffle(left)
    while len(left := sorted(filter(None, left), key=len, reverse=True)) > 1:
        other = generator.randrange(1, len(left)) if len(left[0]) > len(left[1]) else 1
        yield SweepTest((left[0].pop(), left[other].pop()))
    for rest in left:
        yield from map(SweepTest, zip(rest[::2], rest[1::2], strict=False))
