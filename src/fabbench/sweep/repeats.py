"""Failures that repeat exactly, which are no chance: a missing program, a pair without a way.

A failure is somebody's own if each of its tests ends alike, in several tests of pairs, and no test
of others ends so. Then nothing is learned from more of them.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from fabbench.sweep.values import SweepOutcome, SweepResult

Pair: TypeAlias = tuple[int, ...]
"""The nodes of a test, ascending."""
_AGAIN = 2
"""As many tests that end alike are no chance."""


class Endings:
    """How tests of pairs ended that failed, collected as they arrive."""

    def __init__(self) -> None:
        self._tests: Counter[int] = Counter()
        """Node → its tests."""
        self._tests_of_pair: Counter[Pair] = Counter()
        self._failed: dict[str, list[Pair]] = defaultdict(list)
        """Ending → the tests that ended so; a hang says nothing that could repeat exactly."""

    def add(self, pair: Pair, result: SweepResult) -> None:
        """Add how a test ended; only those of pairs tell whose failure it is."""
        if len(pair) != 2:
            return
        self._tests.update(pair)
        self._tests_of_pair[pair] += 1
        if not (result.is_measured or result.outcome is SweepOutcome.HUNG):
            self._failed[_ending(result)].append(pair)

    def failed(self, node: int) -> Sequence[Pair]:
        """Return the tests of a node that failed, and did not hang."""
        return [pair for pairs in self._failed.values() for pair in pairs if node in pair]

    def nodes(self) -> set[int]:
        """Return the nodes that cannot run the program: all of their tests fail alike."""
        cannot_run: set[int] = set()
        for pairs in self._failed.values():
            nodes = self._nodes_without_other_tests(pairs)
            explain_all = all(nodes.intersection(pair) for pair in pairs)
            # More than half of the nodes would be no exception.
            if explain_all and 2 * len(nodes) < len(self._tests):
                cannot_run |= nodes
        return cannot_run

    def pairs(self) -> set[Pair]:
        """Return the pairs that fail alike in all of their tests, and nobody else does."""
        failing: set[Pair] = set()
        for pairs in self._failed.values():
            times = Counter(pairs)  # pair → how many of its tests ended so
            if all(self._always_fails(*counted) for counted in times.items()):
                failing.update(times)
        return failing

    def _always_fails(self, pair: Pair, count: int) -> bool:
        """Return whether a pair has only `count` tests, several, and its nodes have others."""
        elsewhere = all(self._tests[node] > count for node in pair)
        return elsewhere and _AGAIN <= count == self._tests_of_pair[pair]

    def _nodes_without_other_tests(self, pairs: Sequence[Pair]) -> set[int]:
        """Return the nodes that have no other tests than these, with several partners."""
        partners: dict[int, set[int]] = defaultdict(set)
        times: Counter[int] = Counter()
        for pair in pairs:
            times.update(pair)
            for node in pair:
                partners[node].update(pair)
        return {
            node
            for node, count in times.items()
            # The node itself is among its partners here.
            if count == self._tests[node] and len(partners[node]) > _AGAIN
        }


def _ending(result: SweepResult) -> str:
    """Return how a test failed, without the names of its nodes: alike for all that fail so."""
    reason = result.reason
    for node in sorted(result.test.nodes, key=len, reverse=True):
        reason = reason.replace(node, "…")
    return reason
