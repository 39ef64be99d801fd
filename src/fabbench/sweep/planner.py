"""Rounds of tests, carried out one after another, and those that do not depend on results.

A planner is a pure function of the results added to it: with the stored results of an interrupted
sweep, it continues where that one ended.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, cycle

from fabbench.sweep.values import Round, SweepResult, SweepTest


class Planner:
    """Says which tests are next: when all tests of a round have results, the next round begins."""

    def __init__(self, rounds: Iterable[Round], *, max_rounds: int | None = None) -> None:
        """`max_rounds` is the number of rounds, if known."""
        self.max_rounds = max_rounds
        self._rounds = iter(rounds)
        self._current = Round(number=0, tests=(), purpose="")
        self._pending: dict[SweepTest, None] = {}
        self._results: dict[int, list[SweepResult]] = {}
        """Results by round, until the round is over."""

    def add(self, result: SweepResult) -> None:
        """Add the result of a test, also of a round that has not started here.

        Of the resumed sweep.
        """
        self._results.setdefault(result.round, []).append(result)
        if result.round == self._current.number:
            self._pending.pop(result.test, None)

    def next_round(self) -> Round | None:
        """Return the tests of the current round that have no result yet; None.

        The sweep is done.
        """
        while not self._pending:
            # In an order that does not depend on time.
            self._close(
                sorted(
                    self._results.pop(self._current.number, ()), key=lambda each: each.test.nodes
                )
            )
            planned = next(self._rounds, None)
            if planned is None:
                return None
            self._current = planned
            done = {result.test for result in self._results.get(planned.number, ())}
            self._pending = dict.fromkeys(test for test in planned.tests if test not in done)
        return replace(self._current, tests=tuple(self._pending))

    def _close(self, results: Sequence[SweepResult]) -> None:
        """Take in the results of a round that is over."""


def all_pairs(nodes: Sequence[str]) -> Iterator[Round]:
    """Yield every pair once, in as few rounds as possible: N−1 rounds of N/2 pairs.

    N rounds if N is odd.

    The circle method: one node stays, the others move by one position after each round.
    """
    circle: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    half, rounds = len(circle) // 2, len(circle) - 1
    for number in range(1, rounds + 1 if len(nodes) > 1 else 1):
        pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
        tests = tuple(SweepTest((a, b)) for a, b in pairs if a is not None and b is not None)
        yield Round(number=number, tests=tests, purpose=f"all pairs, round {number} of {rounds}")
        circle = [circle[0], circle[-1], *circle[1:-1]]


def matchings(
    nodes: Sequence[str], rounds: int, seed: int, *, again: bool = False
) -> Iterator[Round]:
    """Yield random rounds in which every node has a new partner.

    Some rounds of all pairs, shuffled.

    With an odd number of nodes, one is idle in each round. There are no more rounds than all pairs
    take, unless partners may meet `again`.
    """
    shuffled = list(nodes)
    random.Random(seed).shuffle(shuffled)  # noqa: S311 - no secret
    maximum = len(nodes) - 1 + len(nodes) % 2
    rounds = 0 if len(nodes) < 2 else rounds if again else min(rounds, maximum)
    pairs = cycle(all_pairs(shuffled))
    for number, each in zip(range(1, rounds + 1), pairs, strict=False):
        yield Round(
            number=number, tests=each.tests, purpose=f"random pairs, round {number} of {rounds}"
        )


def single(nodes: Sequence[str]) -> Iterator[Round]:
    """Yield one round in which every node is tested alone."""
    if nodes:
        yield Round(
            number=1, tests=tuple(SweepTest((node,)) for node in nodes), purpose="every node alone"
        )


def rails(
    nodes: Sequence[str], nics: Sequence[str], *, rounds: int = 2, seed: int = 0
) -> Iterator[Round]:
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
    """Yield random pairs.

    In half of the rounds within each group (node → group), then between groups.

    A node that has no such partner left is tested with any other.
    """
    half, generator = (rounds + 1) // 2, random.Random(seed)  # noqa: S311 - no secret
    groups = sorted({*group_of.values()})
    members = [[node for node, group in group_of.items() if group == each] for each in groups]
    within = [list(matchings(nodes, half, seed)) for nodes in members]
    for number in range(1, rounds + 1):
        tests = [
            test
            for each in within
            if number <= min(half, len(each))
            for test in each[number - 1].tests
        ]
        used = {node for test in tests for node in test.nodes}
        rank = dict(zip(groups, generator.sample(range(len(groups)), len(groups)), strict=True))
        left = generator.sample(
            [node for node in group_of if node not in used], len(group_of) - len(used)
        )
        left.sort(key=lambda node: rank[group_of[node]])
        # By group: half of them away is a node of another group, unless one group has more than
        # half.
        tests += map(SweepTest, zip(left, left[len(left) // 2 :], strict=False))
        where = "within" if number <= half else "between"
        yield Round(number=number, tests=tuple(tests), purpose=f"pairs {where} groups")
