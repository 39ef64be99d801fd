"""The planner that finds what is bad with few tests: it screens all nodes, then tests what stands out.

Screening puts every node into four random pairs, or into one group where tests may have more than two nodes;
or it is whatever rounds are asked for, such as all pairs. After that, each round tests what is not decided:
nodes that may be bad, each with healthy ones, and pairs whose link may be bad, once more. Where many nodes of
a group may be bad, half of the chance is tested: bisection. It ends when every node and link is either bad or
healthy with the confidence that is asked for, or when further tests of the rest have stopped to help.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from math import ceil, sqrt
from typing import TYPE_CHECKING

import numpy as np

from fabbench.model.messages import counted
from fabbench.sweep.analyze import CONFIDENCE
from fabbench.sweep.fit import TOLERANCE, Fit, fit
from fabbench.sweep.planner import matchings
from fabbench.sweep.readings import Ints, Readings
from fabbench.sweep.values import Round, SweepResult, SweepTest

if TYPE_CHECKING:
    from fabbench.model.log import Metric

SCREENING = 4
"""Pairs of each node before anything is judged, where no other number is asked for.

A node that is slow in a part p of its tests shows in one of k with the chance 1 − (1 − p)^k: where p is half,
4 pairs miss 6 nodes in 100, and 7 miss 8 in 1,000.
"""
_CLEAR = 0.008
"""Below this chance a node is healthy."""
_SHOWN = 0.001
"""Below this chance an end of a link was shown to be fine: the link itself is tested again."""
_OPEN_LINK = 0.008
_LIKELY_LINK = 0.5
_FOUND = 0.3
"""From this chance on a node is tested by itself, and not half of its group."""
_MOST_ROUNDS = 20
"""Rounds after screening."""
_MOST_ALIKE = 8
"""Tests of one pair."""
_MOST_TESTS = 20
"""Tests of one node that is not decided, besides those that screen."""


class DiagnosePlanner:
    """Plans rounds from the results of earlier ones."""

    def __init__(  # noqa: PLR0913 - what is known, and what is asked for
        self,
        nodes: Sequence[str],
        metric: "Metric",
        *,
        group_of: Mapping[str, str] | None = None,
        size: int = 2,
        confidence: float = CONFIDENCE,
        tolerance: float = TOLERANCE,
        seed: int = 0,
        partners: int | None = None,
        screening: Iterable[Round] | None = None,
    ) -> None:
        """`size` is that of a test: 1, 2, or of a group (`group_size`).

        `screening` are the first rounds; without them, each node meets so many random
        `partners`; default: 4, or as many as there are.
        """
        self._readings = Readings(metric, nodes, group_of=group_of)
        self._size = min(size, len(nodes))
        self._confidence, self._tolerance = confidence, tolerance
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        self._screening = iter(
            _screening(nodes, self._size, partners, seed) if screening is None else screening
        )
        self._number = self._screened = self._later = 0
        self._purpose = ""
        self._left: dict[SweepTest, None] = {}
        self._results: dict[int, list[SweepResult]] = {}
        """Results by round, until the round is over."""

    def add(self, result: SweepResult) -> None:
        """Take what came of a test, also of a round that has not begun here."""
        self._results.setdefault(result.round, []).append(result)
        if result.round == self._number:
            self._left.pop(result.test, None)

    def next_round(self) -> Round | None:
        """Return the tests of the current round that have no result yet; None: all is decided."""
        while not self._left:
            self._close()
            planned = self._plan()
            if planned is None:
                return None
            self._number, self._purpose = planned.number, planned.purpose
            done = {result.test for result in self._results.get(self._number, ())}
            self._left = dict.fromkeys(test for test in planned.tests if test not in done)
        return Round(number=self._number, tests=tuple(self._left), purpose=self._purpose)

    @property
    def most_rounds(self) -> int | None:
        """Return None: it depends on what is found."""
        return None

    def _close(self) -> None:
        """Take the results of the round that is over, in an order that does not depend on time."""
        for result in sorted(self._results.pop(self._number, ()), key=lambda each: each.test.nodes):
            self._readings.add(result)

    def _plan(self) -> Round | None:
        if (screened := next(self._screening, None)) is not None:
            self._screened += 1
            return screened
        self._later += 1
        if self._later > _MOST_ROUNDS or len(self._readings.nodes) < 2:
            return None
        found = fit(self._readings, tolerance=self._tolerance)
        tests = list(_Plan(self, found).tests())
        if not tests:
            return None
        purpose = f"{counted(len(tests), 'test')} of suspects"
        return Round(number=self._number + 1, tests=tuple(tests), purpose=purpose)


def group_size(nodes: int) -> int:
    """Return of how many nodes a test of groups should be: few groups, and few nodes to search in one.

    About one and a half times the square root, such that few nodes are left over.
    """
    if nodes < 16:
        return 2
    middle = 1.4 * sqrt(nodes)
    sizes = range(ceil(0.8 * middle), ceil(1.25 * middle) + 1)
    return min(sizes, key=lambda size: (nodes % size, abs(size - middle)))


def _screening(nodes: Sequence[str], size: int, partners: int | None, seed: int) -> Sequence[Round]:
    """Return the rounds that come first, whatever they show."""
    if size <= 2:
        return list(matchings(nodes, partners or SCREENING, seed, again=partners is not None))
    shuffled = list(nodes)
    random.Random(seed).shuffle(shuffled)  # noqa: S311 - no secret
    parts = [tuple(sorted(shuffled[at : at + size])) for at in range(0, len(nodes) - size + 1, size)]
    return [Round(number=1, tests=tuple(map(SweepTest, parts)), purpose=f"groups of {size} nodes")]


class _History:
    """How often nodes were tested, and with whom."""

    def __init__(self, found: Fit) -> None:
        self._count = len(found.nodes)
        self.tested: Ints = np.zeros(self._count, dtype=np.int64)
        """Node → number of its tests: several NICs of one test count once."""
        self._pairs: list[tuple[Ints, Ints]] = []
        kinds: dict[tuple[int, bool], Ints] = {}
        for each in found.classes:
            own: Ints = np.bincount(each.tests.members.reshape(-1), minlength=self._count)
            kind = each.tests.size, each.tests.between
            kinds[kind] = np.maximum(kinds.get(kind, own), own)
            if each.tests.size == 2:
                # Ascending, as the pairs of a class are.
                keys = each.pairs.astype(np.int64) @ np.array([self._count, 1])
                self._pairs.append((keys, np.bincount(each.factor_of, minlength=len(keys))))
        for own in kinds.values():
            self.tested += own

    def partners(self, node: int) -> Mapping[int, int]:
        """Return whom a node was tested with, and how often."""
        found: dict[int, int] = {}
        for keys, counts in self._pairs:
            first, second = np.divmod(keys, self._count)
            for ends, others in ((first, second), (second, first)):
                own = ends == node
                for other, count in zip(others[own].tolist(), counts[own].tolist(), strict=True):
                    found[other] = max(found.get(other, 0), count)
        return found

    def met(self, pair: Sequence[int]) -> int:
        """Return how often two nodes were tested together."""
        key, most = min(pair) * self._count + max(pair), 0
        for keys, counts in self._pairs:
            at = int(np.searchsorted(keys, key))
            if at < len(keys) and keys[at] == key:
                most = max(most, int(counts[at]))
        return most


class _Plan:
    """One round of tests of what is not decided."""

    def __init__(self, planner: DiagnosePlanner, found: Fit) -> None:
        self._found = found
        self._size, self._confidence = planner._size, planner._confidence  # noqa: SLF001 - a part of it
        bad = found.bad
        self._history = _History(found)
        self._met = self._history.met
        self._most_tests = planner._screened + _MOST_TESTS  # noqa: SLF001
        self._open = {
            node
            for node in np.flatnonzero((bad >= _CLEAR) & (bad < self._confidence)).tolist()
            if self._history.tested[node] < self._most_tests
        }
        self._open |= self._ends() | {
            node
            for (node, _), chance in found.nics.items()
            if _CLEAR <= chance < self._confidence and self._history.tested[node] < self._most_tests
        }
        self._free = set(np.flatnonzero(bad < self._confidence).tolist())
        """Nodes that no test of this round has yet, but for bad ones."""
        healthy = np.flatnonzero(bad < _CLEAR).tolist()
        planner._chance.shuffle(healthy)  # noqa: SLF001
        self._healthy: list[int] = healthy
        self._ranks = (bad >= _CLEAR).tolist()

    def _ends(self) -> set[int]:
        """Return the ends of links that were slow repeatedly: that they are fine elsewhere is to be shown."""
        found: set[int] = set()
        for each in self._found.classes:
            likely = (each.link >= _LIKELY_LINK) & (each.link < self._confidence)
            for pair in each.pairs[likely & (each.tests.size == 2)].tolist():
                if self._met(pair) > 1:
                    found.update(node for node in pair if _SHOWN < self._found.bad[node] < self._confidence)
        return {node for node in found if self._history.tested[node] < self._most_tests}

    def tests(self) -> Iterator[SweepTest]:
        """Yield tests that share no node."""
        yield from self._likely()
        yield from self._halves()
        yield from self._rest()
        yield from self._links()

    def _likely(self) -> Iterator[SweepTest]:
        """Yield tests of nodes that may well be bad, each with healthy ones."""
        bad = self._found.bad
        least = _FOUND if self._size > 2 else 0.0
        for node in sorted(self._open, key=lambda each: (-bad[each], each)):
            if bad[node] >= least and node in self._free:
                yield from self._test([node])

    def _halves(self) -> Iterator[SweepTest]:
        """Yield a test of half of the chance in each group that something is bad in."""
        bad = self._found.bad
        for each in self._found.classes:
            slow = np.isnan(each.slower) | (np.nan_to_num(each.slower) < self._found.slow)
            for row in np.unique(each.factor_of[slow]).tolist():
                members = [node for node in each.pairs[row].tolist() if node in self._open & self._free]
                if each.tests.size <= 2 or len(members) < 2 or (bad[each.pairs[row]] >= _FOUND).any():
                    continue
                members.sort(key=lambda node: (-bad[node], node))
                half = np.cumsum(bad[members]) <= bad[members].sum() / 2
                yield from self._test(members[: max(int(half.sum()), 1)])
                self._free -= set(members)

    def _rest(self) -> Iterator[SweepTest]:
        """Yield tests of nodes that are not likely bad, and were not shown to be healthy: many at once."""
        left = sorted(self._open & self._free, key=lambda node: (self._found.bad[node], node))
        for start in range(0, len(left) if self._size > 2 else 0, self._size):
            yield from self._test(left[start : start + self._size])

    def _links(self) -> Iterator[SweepTest]:
        """Yield pairs once more whose link may be bad."""
        names = self._found.nodes
        for each in self._found.classes:
            likely = (each.link >= _OPEN_LINK) & (each.link < self._confidence)
            for row in np.flatnonzero(likely if each.tests.size == 2 else likely & False).tolist():
                pair = each.pairs[row].tolist()
                nodes = tuple(names[node] for node in pair)
                if self._free.issuperset(pair) and self._met(pair) < _MOST_ALIKE:
                    self._free -= set(pair)
                    yield SweepTest(nodes)

    def _test(self, suspects: Sequence[int]) -> Iterator[SweepTest]:
        """Yield a test of suspects, and of as many healthy nodes as it takes, where there are enough."""
        names = self._found.nodes
        wanted = self._size - len(suspects)
        partners = self._partners(suspects, wanted)
        if len(partners) < wanted and self._size > 2:
            suspects, wanted = suspects[:1], 1
            partners = self._partners(suspects, wanted)
        if len(partners) < wanted:
            return
        chosen = sorted(names[node] for node in (*suspects, *partners))
        self._free -= {*suspects, *partners}
        yield SweepTest(tuple(chosen))

    def _partners(self, suspects: Sequence[int], wanted: int) -> list[int]:
        """Return healthy nodes, those first that the suspects have not met; where none is left, others."""
        found = [node for node in self._healthy if node in self._free and node not in suspects]
        if len(found) < wanted:
            bad = self._found.bad
            rest = self._free - set(found) - set(suspects)
            found += sorted(rest, key=lambda node: (bad[node], node))
        if len(suspects) > 1 or self._size > 2:
            return found[:wanted]
        (one,) = suspects
        pairs = self._history.partners(one)
        fresh = (node for node in found if pairs.get(node, 0) < _MOST_ALIKE)
        rank = self._ranks
        return nsmallest(wanted, fresh, key=lambda node: (rank[node], pairs.get(node, 0)))
