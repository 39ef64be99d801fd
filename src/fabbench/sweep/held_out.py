"""Do groups hold for pairs that they were not fitted to? Else noise made them."""

from collections.abc import Iterator

import numpy as np

from fabbench.sweep.beliefs import PairTests, all_healthy
from fabbench.sweep.groups import Grouping, proposals
from fabbench.sweep.readings import Flags, Floats, Ints

_FOLDS = 5
"""Each fifth of the pairs is held out once."""
_BETTER = 3.0
"""By how much groups must predict held-out tests better than their rate, as a log-likelihood."""
_ENOUGH = 10
"""Of fewer pairs nothing can be held out."""


def holds(groups: Grouping, pairs: PairTests, bad: Floats, slow: float, least: float) -> bool:
    """Return whether groups that are fitted to a part of the pairs tell which of the rest are slow.

    `pairs`: relative to the fastest; `slow`: the logarithm below which a test is slow; `least`:
    the least difference between fast and slow pairs.
    """
    healthy = all_healthy(bad, pairs.members) & np.isfinite(pairs.log_ratio)
    tests = pairs.only(healthy)
    count = len(groups.of)
    links, link_of_test = np.unique(tests.links(count), return_inverse=True)
    if len(links) < _ENOUGH:  # too few to hold any out: then nothing speaks against the groups
        return True
    chance = np.random.default_rng(0)
    fold_of_link: Ints = chance.permutation(len(links)) % _FOLDS
    folds = fold_of_link[link_of_test]  # all tests of a pair are in one fold
    gain = 0.0
    for fold in range(_FOLDS):
        gain += _gain_of_fold(groups, tests, held_out=folds == fold, slow=slow, least=least)
    return gain > _BETTER


def _gain_of_fold(
    groups: Grouping, tests: PairTests, held_out: Flags, slow: float, least: float
) -> float:
    """Return how much better groups of the other tests predict those that are held out.

    Better than the rate of slow tests alone, as a log-likelihood.
    """
    others = tests.only(~held_out)
    refitted = _of_same_kind(groups, proposals(others, slow, least, len(groups.of)))
    if refitted is None:  # the other tests show no groups: nothing is predicted
        return 0.0
    is_slow = tests.log_ratio < slow
    paths = _path_of_tests(refitted, tests.members)
    rate = _rate(is_slow[~held_out])
    predicted = np.zeros(len(paths))  # test → the rate at which others on its path are slow
    for path in np.unique(paths).tolist():
        of_path = paths == path
        predicted[of_path] = _rate(is_slow[~held_out & of_path])
    if_slow = np.log(predicted / rate)
    if_fast = np.log((1 - predicted) / (1 - rate))
    gain = np.where(is_slow, if_slow, if_fast)
    return float(gain[held_out].sum())


def _of_same_kind(groups: Grouping, proposed: Iterator[Grouping]) -> Grouping | None:
    """Return the first proposed groups that are types, or are not, as these; None: none are."""
    return next((each for each in proposed if each.apart == groups.apart), None)


def _path_of_tests(groups: Grouping, members: Ints) -> Ints:
    """Return test → the number of its path: whether it crosses groups.

    Of types, which have figures of their own (`apart`), it is the slowest one that takes part.
    """
    of = groups.of[members]
    first, second = of.T
    if groups.apart:
        return of.max(axis=1)  # the fastest is number 0
    return first != second


def _rate(flags: Flags) -> float:
    """Return the part that is slow; never 0 or 1, as few tests cannot show that."""
    slow = float(flags.sum())
    return (slow + 0.5) / (len(flags) + 1)
