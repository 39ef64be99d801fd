"""Nothing slow or failed goes unexplained: what no suspect accounts for becomes a suspect itself.

A test is slow if it is below the tolerance and below what noise makes of so many tests. It is
explained by a suspect that takes part in it, or it was chance: the only such test of its nodes,
which were fine when they were tested again. A test that failed is then not fine either.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from fabbench.sweep.beliefs import by_chance
from fabbench.sweep.fit import Fit, FittedClass, below_best
from fabbench.sweep.readings import Flags
from fabbench.sweep.values import Suspect, SuspectKind

_BY_NOISE = 0.02
"""The chance that noise alone makes any test of a sweep slow."""
_AGAIN = 2
"""As many fine tests of the same nodes show that a slow or failed one was chance."""
_BY_CHANCE = 0.05
"""Below this chance that any node is so, one whose tests are slow now and then is no chance."""


@dataclass(frozen=True, slots=True)
class Unexplained:
    """Tests of the same nodes, of which some are slow or failed and no suspect says why."""

    tests: FittedClass
    row: int
    """Which nodes: a row of the pairs of these tests."""
    once: bool
    """Whether one test was slow or failed, and the same nodes were fine when tested again."""

    @property
    def nodes(self) -> Sequence[int]:
        """Return the numbers of its nodes."""
        nodes: list[int] = self.tests.pairs[self.row].tolist()
        return nodes


def unexplained(fitted: Fit, suspects: Sequence[Suspect]) -> Iterator[Unexplained]:
    """Yield what is slow or failed and has no suspect."""
    for each in fitted.classes:
        odd = odd_tests(fitted, each)
        odd |= _of_odd_pairs(fitted, each)
        odd &= ~accounted_for(fitted, each, suspects)
        count = np.bincount(each.factor_of, odd, len(each.pairs))
        fine = each.tests_of_factors() - count
        once = (fine >= _AGAIN) & (count == 1)
        for row in np.flatnonzero(count).tolist():
            yield Unexplained(each, row, bool(once[row]))


def slow_now_and_then(fitted: Fit, once: Sequence[Unexplained]) -> set[int]:
    """Return the nodes of which too many tests were slow or failed once for that to be chance."""
    pairs = Counter(node for each in once for node in each.nodes)
    several = [node for node, count in pairs.items() if count > 1]
    if not several:
        return set()
    tests = fitted.pairs
    limit = surprising(fitted)
    found: set[int] = set()
    for node in several:
        mine = (tests.members == node).any(axis=1)
        own = tests.slower[mine]
        others = tests.slower[~mine]
        chance = by_chance(own, others, limit, fitted.noise)
        if chance * len(fitted.nodes) < _BY_CHANCE:
            found.add(node)
    return found


def odd_tests(fitted: Fit, each: FittedClass) -> Flags:
    """Return which tests failed, or are slower than tolerance and noise allow.

    Groups that the tests show are no excuse: these are slow compared with the fastest.
    """
    slower = each.slower
    if fitted.groups is not None and not fitted.groups.given:
        slower = below_best(each, fitted.classes)
    return np.asarray(each.failed | (slower < surprising(fitted)))


def _of_odd_pairs(fitted: Fit, each: FittedClass) -> Flags:
    """Return the slow tests of pairs that are slower in all of their tests than noise allows.

    The median of several tests has less noise than one.
    """
    count = each.tests_of_factors()
    noise_of_median = surprising(fitted) / np.sqrt(count)
    limits = np.minimum(fitted.tolerated, noise_of_median)
    slower = np.nan_to_num(each.slower, nan=-np.inf)
    slow = slower < fitted.tolerated
    always = np.bincount(each.factor_of, slow, len(each.pairs)) == count
    odd = np.zeros(len(each.pairs), dtype=np.bool_)
    for row in np.flatnonzero(always & (count > 1)).tolist():
        tests = each.tests_of(row)
        odd[row] = np.median(slower[tests]) < limits[row]
    return np.asarray(odd[each.factor_of])


def surprising(fitted: Fit) -> float:
    """Return the logarithm below which noise hardly makes any of so many tests."""
    tests = sum(len(each.slower) for each in fitted.classes)
    deviations = NormalDist().inv_cdf(_BY_NOISE / max(tests, 1))
    return min(fitted.tolerated, deviations * fitted.noise)


def accounted_for(fitted: Fit, each: FittedClass, suspects: Sequence[Suspect]) -> Flags:
    """Return which tests any of some suspects can have made slow."""
    numbers = {name: number for number, name in enumerate(fitted.nodes)}
    accounted = np.zeros(len(each.slower), dtype=np.bool_)
    for suspect in suspects:
        accounted |= _accounts_for(suspect, each, numbers)
    return accounted


def _accounts_for(suspect: Suspect, each: FittedClass, numbers: dict[str, int]) -> Flags:
    """Return which tests a suspect can have made slow."""
    if suspect.rail and suspect.rail != each.tests.rail:
        return np.zeros(len(each.slower), dtype=np.bool_)
    nodes = [numbers[node] for node in suspect.nodes]
    taking_part = np.isin(each.tests.members, nodes).sum(axis=1)
    if suspect.kind is SuspectKind.LINK:
        return np.asarray(taking_part == each.tests.size)
    if suspect.kind is not SuspectKind.GROUP:
        return np.asarray(taking_part > 0)
    crossing = np.full(len(each.slower), each.tests.between)
    return crossing & (taking_part > 0) if nodes else crossing
