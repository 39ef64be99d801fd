"""What may be chance: the rates of this cluster's own tests limit how likely a node or a link is bad."""

from math import exp, lgamma, log
from typing import NamedTuple

import numpy as np

from fabbench.sweep.beliefs import FREEDOM, OUTLIERS, USUAL, States
from fabbench.sweep.readings import Flags, Floats, Ints

DOUBTED = 0.5
"""From this chance on, a node is doubted."""
_LOOKS = 10
"""How often each is looked at while tests go on, of which any may be by chance."""
_PARTLY = 0.25
"""The fraction of its tests in which a flaky node is slow."""


class PairTests(NamedTuple):
    """All tests of two nodes."""

    members: Ints
    """Test × 2 → node."""
    values: Floats
    """The logarithm of each figure; NaN: it failed."""
    slower: Floats
    """The same relative to the typical figure; minus infinity: it failed."""
    between: Flags
    """Whether the nodes are of different groups."""
    path: Floats
    """The logarithm by which the path between groups makes this test slower; negative."""


def by_chance(values: Floats, others: Floats, limit: float, noise: float) -> float:
    """Return the chance that so many of `values` or more are below a limit, at the rate of others.

    The rate is no better known than these show: a beta-binomial distribution. Before any, it is that of the noise.
    """
    sine = -limit / noise / np.hypot(limit / noise, np.sqrt(FREEDOM)) if np.isfinite(limit) else 1.0
    cosine = 1 - sine**2
    usual = max((1 - sine * (1 + cosine / 2 + 3 * cosine**2 / 8)) / 2, OUTLIERS)  # of Student's t with 6 degrees
    tests, slow, below = len(values), int((values <= limit).sum()), int((others <= limit).sum())
    a, b = below + USUAL * usual, len(others) - below + USUAL * (1 - usual)

    def logs(some: int) -> float:
        ways = lgamma(tests + 1) - lgamma(some + 1) - lgamma(tests - some + 1)
        return ways + lgamma(some + a) + lgamma(tests - some + b) - lgamma(tests + a + b)

    whole = lgamma(a) + lgamma(b) - lgamma(a + b)
    return min(sum(exp(logs(some) - whole) for some in range(slow, tests + 1)), 1.0)


def nodes_not_by_chance(pairs: PairTests, bad: Floats, levels: Floats, states: States, *, found: bool) -> Floats:
    """Return the chance that each node is bad, no higher than this cluster's own rate of slow tests allows.

    A node is slow in k of m tests with healthy partners, several of them of its own group. That any of all nodes is so
    by chance is at most their number times the chance of one, at the rate at which healthy pairs are as slow.
    `levels`: node → the level of its likeliest state; `found`: whether the tests show the groups.
    """
    known, count = bad.copy(), len(bad)
    members, _, slower, between, path = pairs
    healthy, near = bad < DOUBTED, max(-states.tolerated, 2 * states.noise)
    # Most doubted nodes are slow by chance, and count for its rate; those that are mostly slow are bad.
    tests = np.bincount(members.reshape(-1), minlength=count)
    often = np.bincount(members.reshape(-1), np.repeat(slower < states.tolerated, 2), count) * 2 >= tests
    fine = ~(often & ~healthy)[members].any(axis=1)
    for node in np.flatnonzero(~healthy).tolist() if len(members) else ():
        limit = levels[node] / 2
        met = (members == node).any(axis=1)
        others = members.sum(axis=1) - node
        # A slower path hides it.
        mine = np.flatnonzero(met & (levels[node] - path <= limit) & healthy[np.where(met, others, node)])
        below = slower[mine] < limit
        numbers = np.unique(others[mine], return_inverse=True)[1]
        slow, own = np.bincount(numbers, below), np.bincount(numbers, ~between[mine]) > 0
        typical = np.median(slower[mine][below]) if below.any() else 0.0
        # As slow as the path between found groups: it may be in none of them.
        elsewhere = found and abs(typical - path.min()) < near
        if typical > states.tolerated or elsewhere or (slow[own] > 0).sum() < min(2, own.sum()):
            known[node] = DOUBTED
            continue
        # Those with one partner may be the link's.
        rest = numbers != slow.argmax()
        chance = by_chance(slower[mine][rest], slower[fine & ~met], limit, states.noise)
        known[node] = max(1 - _LOOKS * count * chance, DOUBTED)
    return known


def links_not_by_chance(link: Floats, factor_of: Ints, slower: Floats, fine: Flags, states: States) -> Floats:
    """Return the chance that each link is bad, limited in the same way. `fine`: tests of healthy nodes."""
    known, slower = link.copy(), np.nan_to_num(slower, nan=-np.inf)
    for row in np.flatnonzero(known >= DOUBTED).tolist():
        mine = factor_of == row
        limit = min(float(np.median(slower[mine])) / 2, states.tolerated)
        chance = by_chance(slower[mine], slower[fine & ~mine], limit, states.noise)
        known[row] = max(1 - _LOOKS * len(known) * chance, DOUBTED)
    return known


def flakiness(pairs: PairTests, bad: Floats, states: States, slow: float) -> Floats:
    """Return how much better the tests of each node fit a flaky one than chance, as a logarithm.

    Minus infinity: none of its tests was slow.
    """
    ends, count = np.concatenate((pairs.members, pairs.members[:, ::-1])), len(bad)
    known = bad[ends[:, 1]] < DOUBTED
    ends, below = ends[known], np.tile(pairs.slower < slow, 2)[known]
    tests = np.bincount(ends[:, 0], minlength=count)
    keys, numbers = np.unique(ends @ np.array([count, 1]), return_inverse=True)
    # Those with one partner may be the link's, if there are several.
    worst = np.ones(count)
    np.maximum.at(worst, keys // max(count, 1), np.bincount(numbers, below))
    found = np.bincount(ends[:, 0], below, count) - (worst - 1)
    rate = states.outliers + states.failures
    ratio = found * log(_PARTLY / rate) + (tests - worst + 1 - found) * log((1 - _PARTLY) / (1 - rate))
    return np.where(found > 0, ratio, -np.inf)
