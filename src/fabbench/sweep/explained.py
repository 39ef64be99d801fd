"""Nothing slow or failed goes unexplained: what no suspect accounts for becomes a suspect itself.

A test is slow if it is below the tolerance and below what noise makes of so many tests. It is
explained by a suspect that takes part in it, or by the same nodes being fine when tested again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from fabbench.sweep.fit import Fit, FittedClass, below_best
from fabbench.sweep.readings import Flags
from fabbench.sweep.values import Suspect, SuspectKind

_BY_NOISE = 0.02
"""The chance that noise alone makes any test of a sweep slow."""
_AGAIN = 2
"""As many fine tests of the same nodes show that a slow or failed one was chance."""


@dataclass(frozen=True, slots=True)
class Unexplained:
    """Tests of the same nodes, of which some are slow or failed and no suspect says why."""

    tests: FittedClass
    row: int
    """Which nodes: a row of the pairs of these tests."""
    by_chance: bool
    """Whether the same nodes were fine when they were tested again."""


def unexplained(fitted: Fit, suspects: Sequence[Suspect]) -> Iterator[Unexplained]:
    """Yield what is slow or failed and has no suspect."""
    numbers = {name: number for number, name in enumerate(fitted.nodes)}
    for each in fitted.classes:
        odd = odd_tests(fitted, each)
        for suspect in suspects:
            odd &= ~_accounts_for(suspect, each, numbers)
        count = np.bincount(each.factor_of, odd, len(each.pairs))
        fine = each.tests_of_factors() - count
        again = (fine >= _AGAIN) & (fine > count)
        for row in np.flatnonzero(count).tolist():
            yield Unexplained(each, row, bool(again[row]))


def odd_tests(fitted: Fit, each: FittedClass) -> Flags:
    """Return which tests failed, or are slower than tolerance and noise allow.

    Groups that the tests show are no excuse: these are slow compared with the fastest.
    """
    slower = each.slower
    if fitted.groups is not None and not fitted.groups.given:
        slower = below_best(each, fitted.classes)
    return np.asarray(each.failed | (slower < surprising(fitted)))


def surprising(fitted: Fit) -> float:
    """Return the logarithm below which noise hardly makes any of so many tests."""
    tests = sum(len(each.slower) for each in fitted.classes)
    deviations = NormalDist().inv_cdf(_BY_NOISE / max(tests, 1))
    return min(fitted.tolerated, deviations * fitted.noise)


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
