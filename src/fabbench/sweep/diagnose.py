"""The planner that finds what is bad with few tests: it screens all nodes, then tests what stands out.

Screening puts every node into four random pairs, half of them within groups where these are known; or it is
any requested rounds, such as all pairs. After that, each round tests what is undecided: nodes that may be
bad, each with a healthy one, and again pairs whose link may be bad. It ends when every node and link is
either bad or healthy with the requested confidence, or when further tests of the rest no longer help.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import TYPE_CHECKING

import numpy as np

from fabbench.model.messages import counted
from fabbench.sweep.analyze import CONFIDENCE
from fabbench.sweep.fit import TOLERANCE, Fit, fit
from fabbench.sweep.planner import grouped, matchings
from fabbench.sweep.readings import Ints, Readings
from fabbench.sweep.values import Round, SweepResult, SweepTest

if TYPE_CHECKING:
    from fabbench.model.log import Metric

SCREENING = 4
"""Pairs of each node before anything is judged, unless another number is requested.

A node that is slow in a fraction p of its tests shows in k tests with the chance 1 − (1 − p)^k: if p is half,
4 pairs miss 6 nodes in 100, and 7 miss 8 in 1,000.
"""
_CLEAR = 0.008
"""Below this chance, a node is healthy."""
_SHOWN = 0.001
"""Below this chance, an end of a link was shown to be fine: the link itself is tested again."""
_OPEN_LINK = 0.008
_LIKELY_LINK = 0.5
_MAX_ROUNDS = 20
"""Maximum number of rounds after screening."""
_MAX_REPEATS = 8
"""Maximum number of tests of one pair."""
_MAX_TESTS = 20
"""Maximum number of tests of an undecided node after screening."""


class DiagnosePlanner:
    """Plans rounds from the results of earlier ones."""

    def __init__(  # noqa: PLR0913 - what is known, and what is requested
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
        """`size` is the number of nodes per test: 1 or 2.

        `screening` are the first rounds; without them, each node meets `partners` random partners;
        default: 4, or as many as there are.
        """
        self._readings = Readings(metric, nodes, group_of=group_of)
        self._size = min(size, len(nodes))
        self._confidence, self._tolerance = confidence, tolerance
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._screening = iter(_screening(nodes, group_of or {}, partners, seed) if screening is None else screening)
        self._number = self._screened = self._rounds = 0
        self._purpose = ""
        self._pending: dict[SweepTest, None] = {}
        self._results: dict[int, list[SweepResult]] = {}
        """Results by round, until the round is over."""

    def add(self, result: SweepResult) -> None:
        """Add the result of a test, also of a round that has not started here."""
        self._results.setdefault(result.round, []).append(result)
        if result.round == self._number:
            self._pending.pop(result.test, None)

    def next_round(self) -> Round | None:
        """Return the tests of the current round that have no result yet; None: everything is decided."""
        while not self._pending:
            self._close()
            planned = self._plan()
            if planned is None:
                return None
            self._number, self._purpose = planned.number, planned.purpose
            done = {result.test for result in self._results.get(self._number, ())}
            self._pending = dict.fromkeys(test for test in planned.tests if test not in done)
        return Round(number=self._number, tests=tuple(self._pending), purpose=self._purpose)

    @property
    def max_rounds(self) -> int | None:
        """None: it depends on the results."""
        return None

    def _close(self) -> None:
        """Add the results of the finished round, in an order that does not depend on time."""
        for result in sorted(self._results.pop(self._number, ()), key=lambda each: each.test.nodes):
            self._readings.add(result)

    def _plan(self) -> Round | None:
        if (screened := next(self._screening, None)) is not None:
            self._screened += 1
            return screened
        self._rounds += 1
        if self._rounds > _MAX_ROUNDS or len(self._readings.nodes) < 2:
            return None
        fitted = fit(self._readings, tolerance=self._tolerance)
        tests = list(_Plan(self, fitted).tests())
        if not tests:
            return None
        purpose = f"{counted(len(tests), 'test')} of suspects"
        return Round(number=self._number + 1, tests=tuple(tests), purpose=purpose)


def _screening(nodes: Sequence[str], group_of: Mapping[str, str], partners: int | None, seed: int) -> Iterator[Round]:
    """Return the first rounds, which do not depend on results."""
    if len({*group_of.values()}) > 1:
        return grouped(group_of, partners or SCREENING, seed=seed)
    return matchings(nodes, partners or SCREENING, seed, again=partners is not None)


class _History:
    """How often nodes were tested, and with whom."""

    def __init__(self, fitted: Fit) -> None:
        self._count = len(fitted.nodes)
        self.tested: Ints = np.zeros(self._count, dtype=np.int64)
        """Node → number of its tests: several NICs of one test count once."""
        self._pairs: list[tuple[Ints, Ints]] = []
        kinds: dict[tuple[int, bool], Ints] = {}
        for each in fitted.classes:
            tested: Ints = np.bincount(each.tests.members.reshape(-1), minlength=self._count)
            kind = each.tests.size, each.tests.between
            kinds[kind] = np.maximum(kinds.get(kind, tested), tested)
            if each.tests.size == 2:
                # Ascending, as the pairs of a class are.
                keys = each.pairs.astype(np.int64) @ np.array([self._count, 1])
                self._pairs.append((keys, np.bincount(each.factor_of, minlength=len(keys))))
        for tested in kinds.values():
            self.tested += tested

    def partners(self, node: int) -> Mapping[int, int]:
        """Return the nodes that a node was tested with, and how often."""
        partners: dict[int, int] = {}
        for keys, counts in self._pairs:
            first, second = np.divmod(keys, self._count)
            for ends, others in ((first, second), (second, first)):
                mask = ends == node
                for other, count in zip(others[mask].tolist(), counts[mask].tolist(), strict=True):
                    partners[other] = max(partners.get(other, 0), count)
        return partners

    def met(self, pair: Sequence[int]) -> int:
        """Return how often two nodes were tested together."""
        key, highest = min(pair) * self._count + max(pair), 0
        for keys, counts in self._pairs:
            index = int(np.searchsorted(keys, key))
            if index < len(keys) and keys[index] == key:
                highest = max(highest, int(counts[index]))
        return highest


class _Plan:
    """One round of tests of what is undecided."""

    def __init__(self, planner: DiagnosePlanner, fitted: Fit) -> None:
        self._fit = fitted
        self._size, self._confidence = planner._size, planner._confidence  # noqa: SLF001 - a part of it
        bad = fitted.bad
        self._history = _History(fitted)
        self._met = self._history.met
        self._max_tests = planner._screened + _MAX_TESTS  # noqa: SLF001
        self._open = {
            node
            for node in np.flatnonzero((bad >= _CLEAR) & (bad < self._confidence)).tolist()
            if self._history.tested[node] < self._max_tests
        }
        self._open |= self._ends() | {
            node
            for (node, _), chance in fitted.nics.items()
            if _CLEAR <= chance < self._confidence and self._history.tested[node] < self._max_tests
        }
        self._free = set(np.flatnonzero(bad < self._confidence).tolist())
        """Nodes that are not in a test of this round yet, except bad ones."""
        healthy = np.flatnonzero(bad < _CLEAR).tolist()
        planner._random.shuffle(healthy)  # noqa: SLF001
        self._healthy: list[int] = healthy
        self._ranks = (bad >= _CLEAR).tolist()

    def _ends(self) -> set[int]:
        """Return the ends of repeatedly slow links: it must be shown that they are fine elsewhere."""
        ends: set[int] = set()
        for each in self._fit.classes:
            likely = (each.link >= _LIKELY_LINK) & (each.link < self._confidence)
            for pair in each.pairs[likely & (each.tests.size == 2)].tolist():
                if self._met(pair) > 1:
                    ends.update(node for node in pair if _SHOWN < self._fit.bad[node] < self._confidence)
        return {node for node in ends if self._history.tested[node] < self._max_tests}

    def tests(self) -> Iterator[SweepTest]:
        """Yield tests that share no node."""
        bad = self._fit.bad
        for node in sorted(self._open, key=lambda each: (-bad[each], each)):
            partners = self._partners(node, self._size - 1) if node in self._free else []
            if node in self._free and len(partners) == self._size - 1:
                self._free -= {node, *partners}
                yield SweepTest(tuple(sorted(self._fit.nodes[each] for each in (node, *partners))))
        yield from self._links()

    def _links(self) -> Iterator[SweepTest]:
        """Yield pairs again whose link may be bad."""
        names = self._fit.nodes
        for each in self._fit.classes:
            likely = (each.link >= _OPEN_LINK) & (each.link < self._confidence)
            for row in np.flatnonzero(likely if each.tests.size == 2 else likely & False).tolist():
                pair = each.pairs[row].tolist()
                nodes = tuple(names[node] for node in pair)
                if self._free.issuperset(pair) and self._met(pair) < _MAX_REPEATS:
                    self._free -= set(pair)
                    yield SweepTest(nodes)

    def _partners(self, suspect: int, needed: int) -> list[int]:
        """Return healthy nodes, those first that the suspect has not met; if too few are left, others."""
        nodes = [node for node in self._healthy if node in self._free and node != suspect]
        if len(nodes) < needed:
            bad = self._fit.bad
            nodes += sorted(self._free - {*nodes, suspect}, key=lambda node: (bad[node], node))
        met = self._history.partners(suspect)
        fresh = (node for node in nodes if met.get(node, 0) < _MAX_REPEATS)
        return nsmallest(needed, fresh, key=lambda node: (self._ranks[node], met.get(node, 0)))
