"""Rounds of tests, carried out one after another, and those that do not depend on results.

A planner is a pure function of the results added to it: with the stored results of an interrupted
sweep, it continues where that one ended.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from itertools import count, cycle

from fabbench.model.mappings import gathered
from fabbench.sweep.values import Round, SweepResult, SweepTest


class Planner:
    """Says which tests are next: when all tests of a round have results, the next round begins."""

    def __init__(self, rounds: Iterable[Round], *, max_rounds: int | None = None) -> None:
        """`max_rounds` is the number of rounds, if known."""
        self.max_rounds = max_rounds
        self._rounds = iter(rounds)
        self._current = Round(number=0, tests=(), purpose="")
        self._pending: dict[SweepTest, None] = {}  # Tests of the round without a result, in order
        self._results: dict[int, list[SweepResult]] = {}
        """Results by round, until the round is over."""

    def add(self, result: SweepResult) -> None:
        """Add the result of a test, also of a round that a resumed sweep has not come to."""
        self._results.setdefault(result.round, []).append(result)
        if result.round == self._current.number:
            self._pending.pop(result.test, None)

    def next_round(self) -> Round | None:
        """Return the tests of the round that have no result yet; None: the sweep is done."""
        while not self._pending:
            ended = self._current.number
            results = self._results.pop(ended, [])
            # In an order that does not depend on which test ended first.
            results.sort(key=lambda each: each.test.nodes)
            self._close(results)  # a planner that depends on results learns from them
            planned = next(self._rounds, None)
            if planned is None:
                return None
            self._begin(planned)
        return replace(self._current, tests=tuple(self._pending))

    def _begin(self, planned: Round) -> None:
        """Begin a round, of which some tests may be done: a resumed sweep has their results."""
        self._current = planned
        self._pending = dict.fromkeys(planned.tests)
        for done in self._results.get(planned.number, ()):
            self._pending.pop(done.test, None)

    def _close(self, results: Sequence[SweepResult]) -> None:
        """Take in the results of a round that is over."""


def rounds_of_all(nodes: Sized) -> int:
    """Return in how many rounds of pairs each node meets every other.

    Of an odd number, one pauses in each.
    """
    return len(nodes) - 1 + len(nodes) % 2


def all_pairs(nodes: Sequence[str]) -> Iterator[Round]:
    """Yield every pair once, in as few rounds as possible: N−1 rounds of N/2 pairs.

    N rounds if N is odd.

    The circle method: one node stays, the others move by one position after each round.
    """
    if len(nodes) < 2:
        return
    circle: list[str | None] = [*nodes]
    if len(nodes) % 2:
        circle.append(None)  # Its partner is idle
    half = len(circle) // 2
    rounds = rounds_of_all(nodes)
    for number in range(1, rounds + 1):
        opposite = reversed(circle[half:])
        pairs = [
            SweepTest((first, second))
            for first, second in zip(circle[:half], opposite, strict=True)
            if first is not None and second is not None
        ]
        purpose = f"all pairs, round {number} of {rounds}"
        yield Round(number=number, tests=tuple(pairs), purpose=purpose)
        circle.insert(1, circle.pop())


def matchings(
    nodes: Sequence[str], rounds: int, seed: int, *, again: bool = False
) -> Iterator[Round]:
    """Yield random rounds in which every node has a new partner: some rounds of shuffled all pairs.

    With an odd number of nodes, one is idle in each round. There are no more rounds than all pairs
    take, unless partners may meet `again`.
    """
    shuffled = list(nodes)
    random.Random(seed).shuffle(shuffled)  # noqa: S311 - no secret
    if not again:
        rounds = min(rounds, rounds_of_all(nodes))
    without_end = cycle(all_pairs(shuffled))
    for number, each in zip(range(1, rounds + 1), without_end, strict=False):
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
    """Yield random pairs, tested with one NIC after another: each NIC meets several partners."""
    numbers = count(1)
    for each in matchings(nodes, rounds, seed):
        for nic in nics:
            yield Round(
                number=next(numbers),
                tests=tuple(SweepTest(test.nodes, nic) for test in each.tests),
                purpose=f"{nic} of every node, partner {each.number} of {rounds}",
            )


def grouped(group_of: Mapping[str, str], rounds: int, *, seed: int = 0) -> Iterator[Round]:
    """Yield random pairs: in half of the rounds within each group, then between groups.

    `group_of`: node → group. A node that has no such partner left is tested with any other.
    """
    half = (rounds + 1) // 2  # these are within groups, and one more if the number is odd
    generator = random.Random(seed)  # noqa: S311 - no secret
    members = gathered((group, node) for node, group in group_of.items())
    groups = sorted(members)
    rounds_of_groups = [list(matchings(members[group], half, seed)) for group in groups]
    for number in range(1, rounds + 1):
        inside = number <= half
        tests: list[SweepTest] = []
        for of_group in rounds_of_groups:
            if inside and number <= len(of_group):  # small groups run out of pairs sooner
                tests += of_group[number - 1].tests
        used = {node for test in tests for node in test.nodes}
        left = [node for node in group_of if node not in used]
        tests += _across(left, group_of, groups, generator)
        where = "within" if inside else "between"
        yield Round(number=number, tests=tuple(tests), purpose=f"pairs {where} groups")


def _across(
    nodes: Sequence[str],
    group_of: Mapping[str, str],
    groups: Sequence[str],
    generator: random.Random,
) -> Iterator[SweepTest]:
    """Yield random pairs of nodes of different groups, unless one has more than half of them."""
    # Groups in random order, each with its nodes in random order.
    order = generator.sample(range(len(groups)), len(groups))
    place = dict(zip(groups, order, strict=True))
    shuffled = generator.sample(nodes, len(nodes))
    shuffled.sort(key=lambda node: place[group_of[node]])
    # By group: half of the nodes away is one of another group.
    half = len(shuffled) // 2
    yield from map(SweepTest, zip(shuffled, shuffled[half:], strict=False))
