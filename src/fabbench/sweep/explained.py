"""Nothing slow or failed goes unexplained: what no suspect accounts for becomes a suspect itself.

A test is slow if it is below the tolerance and below what noise makes of so many tests. It is
explained by a suspect that takes part in it, or it was chance: the only such test of its nodes,
which were fine when they were tested again, and so often that neither is slow in a quarter of its
tests. A test that failed is then not fine either.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import NormalDist

import numpy as np

from fabbench.sweep.beliefs import at_most, by_chance
from fabbench.sweep.fit import Fit, FittedClass, below_best
from fabbench.sweep.readings import Flags, Ints, Readings
from fabbench.sweep.values import Suspect, SuspectKind

_BY_NOISE = 0.02
"""The chance that noise alone makes any test of a sweep slow."""
_AGAIN = 2
"""As many fine tests of the same nodes show that a slow or failed one was chance."""
_BY_CHANCE = 0.05
"""Below this chance that any node is so, one whose tests are slow now and then is no chance."""
_NOW_AND_THEN = 0.25
"""In this part of its tests, a node is slow that is so now and then."""
_EXCLUDED = 0.03
"""Below this chance of so few slow tests, a node is not slow now and then."""


@dataclass(frozen=True, slots=True)
class Unexplained:
    """Tests of the same nodes, of which some are slow or failed and no suspect says why."""

    tests: FittedClass
    row: int
    """Which nodes: a row of the pairs of these tests."""
    once: bool
    """Whether one test was slow or failed, and the same nodes were fine when tested again."""
    steady: bool
    """Whether so many tests of each of its nodes are fine that none is slow now and then."""

    @property
    def nodes(self) -> Sequence[int]:
        """Return the numbers of its nodes."""
        return self.tests.pairs[self.row].tolist()

    @property
    def failed(self) -> bool:
        """Whether any of these tests failed."""
        rows = self.tests.tests_of(self.row)
        return bool(self.tests.failed[rows].any())

    @property
    def by_chance(self) -> bool:
        """Whether it was chance, as far as such tests can show."""
        return self.once and self.steady

    def is_of(self, flaky: Collection[int]) -> bool:
        """Return whether one of some nodes that are slow now and then accounts for it."""
        return self.once and not set(flaky).isdisjoint(self.nodes)


def unexplained(fitted: Fit, suspects: Sequence[Suspect]) -> Iterator[Unexplained]:
    """Yield what is slow or failed and has no suspect."""
    # For each class, which of its tests are so.
    odd = [_odd_without_suspect(fitted, each, suspects) for each in fitted.classes]
    maybe_flaky = _maybe_flaky(fitted, odd)
    for each, of_class in zip(fitted.classes, odd, strict=True):
        odd_of_pair = each.per_factor(of_class)
        fine_of_pair = each.tests_of_factors() - odd_of_pair
        members = maybe_flaky[each.tests.rail][each.pairs]
        has_maybe_flaky = np.any(members, axis=1)
        for row in np.flatnonzero(odd_of_pair).tolist():
            # Once, and not when the same nodes were tested again.
            once = odd_of_pair[row] == 1 and fine_of_pair[row] >= _AGAIN
            yield Unexplained(each, row, bool(once), steady=not has_maybe_flaky[row])


def _odd_without_suspect(
    fitted: Fit, fitted_class: FittedClass, suspects: Sequence[Suspect]
) -> Flags:
    """Return which tests of a class are slow or failed, and no suspect's."""
    odd = odd_tests(fitted, fitted_class) | _of_odd_pairs(fitted, fitted_class)
    return odd & ~accounted_for(fitted, fitted_class, suspects)


def maybe_now_and_then(fitted: Fit, accused: Flags) -> Flags:
    """Return the nodes of which more tests must show that they are not slow now and then.

    Tests in which an accused node is show nothing of the others.
    """
    limit = surprising(fitted)  # a logarithm that noise alone hardly makes
    odd: list[Flags] = []
    for each in fitted.classes:
        by_others = accused[each.tests.members].any(axis=1)
        odd.append((each.log_ratio < limit) & ~by_others)
    nobody = np.zeros(len(fitted.nodes), dtype=np.bool_)
    return np.logical_or.reduce([nobody, *_maybe_flaky(fitted, odd).values()])


def maybe_hanging(readings: Readings) -> set[str]:
    """Return the nodes of which more tests must show that they do not hang now and then.

    One of theirs ran out of time, and its repeat did not.
    """
    nodes = chain.from_iterable(each.test.nodes for each in readings.hung_once)
    hung = Counter(nodes)
    in_time = {node: readings.in_time(node) for node in hung}
    return {node for node in hung if _may_be(hung[node], in_time[node])}


def _maybe_flaky(fitted: Fit, odd: Sequence[Flags]) -> Mapping[str, Flags]:
    """Return rail → the nodes whose tests do not exclude that they are slow now and then.

    `odd`: for each class, which tests are slow, or failed, and no suspect's.
    """
    nodes = len(fitted.nodes)
    limit = surprising(fitted)
    slow: dict[str, Ints] = {}
    fine: dict[str, Ints] = {}
    for each, of_class in zip(fitted.classes, odd, strict=True):
        rail = each.tests.rail
        slow_tests = each.per_node(of_class, nodes)
        slow[rail] = slow.get(rail, 0) + slow_tests
        fine_tests = each.per_node(each.log_ratio >= limit, nodes)
        fine[rail] = fine.get(rail, 0) + fine_tests
    return {rail: _not_excluded(slow[rail], fine[rail]) for rail in slow}


def _not_excluded(slow: Ints, fine: Ints) -> Flags:
    """Return the nodes that may be slow now and then; `slow`, `fine`: node → how many tests are.

    One without a slow test may not; one is excluded if it would rarely show so few slow tests.
    """
    flags = slow > 0
    for node in np.flatnonzero(flags).tolist():
        times = int(slow[node])
        flags[node] = _may_be(times, int(fine[node]))
    return flags


def _may_be(slow: int, fine: int) -> bool:
    """Return whether a node of so many slow and fine tests may be slow now and then."""
    return at_most(slow, slow + fine, _NOW_AND_THEN) >= _EXCLUDED


def slow_now_and_then(fitted: Fit, tests: Sequence[Unexplained]) -> set[int]:
    """Return the nodes of which too many tests were slow or failed once for that to be chance."""
    # Node → how many of its pairs were so.
    times = Counter(node for each in tests if each.once for node in each.nodes)
    several = [node for node, count in times.items() if count > 1]
    pairs = fitted.pairs
    limit = surprising(fitted)  # a logarithm that noise alone hardly makes
    too_often: set[int] = set()
    for node in several:
        mine = (pairs.members == node).any(axis=1)
        of_node = pairs.log_ratio[mine]
        others = pairs.log_ratio[~mine]
        chance = by_chance(of_node, others, limit, fitted.noise)
        # By chance, any of all nodes may be so.
        if chance * len(fitted.nodes) < _BY_CHANCE:
            too_often.add(node)
    return too_often


def odd_tests(fitted: Fit, fitted_class: FittedClass) -> Flags:
    """Return which tests failed, or are slower than tolerance and noise allow.

    Groups that the tests show are no excuse: these are slow compared with the fastest.
    """
    log_ratio = fitted_class.log_ratio
    if fitted.groups is not None and not fitted.groups.given:
        log_ratio = below_best(fitted_class, fitted.classes)
    return fitted_class.failed | (log_ratio < surprising(fitted))


def _of_odd_pairs(fitted: Fit, fitted_class: FittedClass) -> Flags:
    """Return the slow tests of pairs that are slower in all of their tests than noise allows.

    The mean of several tests has less noise than one.
    """
    counts = fitted_class.tests_of_factors()  # of each pair
    log_ratio = np.nan_to_num(fitted_class.log_ratio, nan=-np.inf)
    means = np.bincount(fitted_class.factor_of, log_ratio, len(counts)) / counts
    noise_of_mean = surprising(fitted) / np.sqrt(counts)
    limits = np.minimum(fitted.tolerated, noise_of_mean)  # of two negative logarithms, the lower
    always_slow = fitted_class.always(log_ratio < fitted.tolerated)
    odd = always_slow & (means < limits)
    return odd[fitted_class.factor_of]


def surprising(fitted: Fit) -> float:
    """Return the logarithm below which noise hardly makes any of so many tests; negative."""
    tests = sum(len(each.log_ratio) for each in fitted.classes)
    deviations = NormalDist().inv_cdf(_BY_NOISE / max(tests, 1))  # negative: below the mean
    return min(fitted.tolerated, deviations * fitted.noise)


def accounted_for(fitted: Fit, fitted_class: FittedClass, suspects: Sequence[Suspect]) -> Flags:
    """Return which tests any of some suspects can have made slow."""
    numbers = {name: number for number, name in enumerate(fitted.nodes)}
    accounted = np.zeros(len(fitted_class.log_ratio), dtype=np.bool_)
    for suspect in suspects:
        accounted |= _accounts_for(suspect, fitted_class, numbers)
    return accounted


def _accounts_for(suspect: Suspect, fitted_class: FittedClass, numbers: dict[str, int]) -> Flags:
    """Return which tests of a class a suspect can have made slow; `numbers`: node → its number."""
    if suspect.rail and suspect.rail != fitted_class.tests.rail:
        return np.zeros(len(fitted_class.log_ratio), dtype=np.bool_)
    nodes = [numbers[node] for node in suspect.nodes]
    taking_part = np.isin(fitted_class.tests.members, nodes).sum(axis=1)
    if suspect.kind is SuspectKind.LINK:  # both of its nodes
        return taking_part == fitted_class.tests.nodes_per_test
    if suspect.kind is SuspectKind.SLOW_GROUP:  # slow nodes do not fail
        return (taking_part > 0) & ~fitted_class.failed
    if suspect.kind is not SuspectKind.GROUP:
        return taking_part > 0
    # An uplink: tests of its nodes that leave their group. A path has no nodes: all such tests.
    crossing = np.full(len(fitted_class.log_ratio), fitted_class.tests.between)
    return crossing & (taking_part > 0) if nodes else crossing
