"""How likely is it that a node, a NIC or a link is bad? One model for all of them.

Everything that takes part in a test (its nodes, their NICs, the link between them) has a state:
healthy, slower by a certain fraction, or failing. A test is as slow as the worst of them, plus or
minus noise with heavy tails; one in two tests of something bad shows nothing (flaky). Links are bad
more rarely than nodes: a node that is slow with two partners is bad, because two bad links would be
a coincidence; a node that is slow with one of many is not.

The posterior is computed by belief propagation, as for other noisy group tests: each test sends
each of its members a message about its state, given what other tests show about the other members.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, lgamma, log
from typing import NamedTuple

import numpy as np

from fabbench.sweep.readings import Flags, Floats, Ints

NODE_PRIOR = 0.01
"""The chance that a node or a NIC is bad, before any test."""
LINK_PRIOR = 0.002
"""The chance that the link of a pair is bad, before any test."""
FLAKY = 0.5
"""The fraction of its tests in which something bad does not show."""
FLAKY_IN_GROUPS = 0.35
"""The same in tests of more than two nodes, as logs may have."""
_MILD_PRIOR = 0.05
"""The chance that something is a little slower, within the tolerance."""
_SLOWEST = 3.2
"""The largest slowdown, as a logarithm: a factor of 25."""
FREEDOM = 6.0
"""Degrees of freedom of Student's t, for the tails of noise."""
_STEP, _LEAST, _ROUNDS, _DAMPING, _SETTLED = 1.4, 1e-30, 30, 0.4, 1e-4
OUTLIERS, _FAILURES, USUAL = 0.01, 0.0025, 50
"""How often healthy tests are slow, or fail, by chance, before any test.

And as how many tests that counts.
"""
USUAL_NOISE = 0.05
"""The noise between executions that is assumed before any test."""


@dataclass(frozen=True, slots=True)
class States:
    """The states of a node, from healthy to worst.

    Fine, a little slow, slow (several levels), failing.
    """

    levels: Floats
    """The logarithm by which tests are slower, for each state but the last, which fails."""
    tolerated: float
    """The logarithm by which healthy nodes may be slower; negative."""
    healthy: int = 2
    """How many states count as healthy."""
    outliers: float = OUTLIERS
    """The fraction of healthy tests that are slow by chance, such as congestion.

    Learned from the tests.
    """
    failures: float = _FAILURES
    """The fraction of healthy tests that fail by chance; learned too."""
    noise: float = USUAL_NOISE
    """The standard deviation of the logarithm between executions of healthy tests; learned too."""

    @classmethod
    def of(cls, tolerance: float) -> "States":
        """Return the states for a tolerance: the fraction by which healthy nodes may be slower."""
        tolerated = float(np.log1p(-tolerance))
        slow, level = [], -1.5 * tolerated
        while level < _SLOWEST:
            slow.append(-level)
            level *= _STEP
        return cls(np.array([0.0, slow[0] / 3, *slow]), tolerated)

    def learned(self, healthy: Floats) -> "States":
        """Return the states with the rates at which tests of healthy nodes are slow, or failed (NaN), by chance."""
        known, slow = (
            len(healthy) + USUAL,
            (healthy < min(self.levels[self.healthy], -3 * self.noise)).sum(),
        )
        outliers, failures = slow + USUAL * OUTLIERS, np.isnan(healthy).sum() + USUAL * _FAILURES
        return replace(self, outliers=float(outliers / known), failures=float(failures / known))

    @property
    def count(self) -> int:
        """Return the number of states."""
        return len(self.levels) + 1

    def prior(self, bad: float) -> Floats:
        """Return the chances of all states.

        Those of bad states sum to `bad`, three in ten failing.
        """
        slow = self.count - self.healthy - 1
        fine = (1 - bad) * np.array([1 - _MILD_PRIOR, _MILD_PRIOR])
        return np.concatenate((fine, np.full(slow, 0.7 * bad / slow), [0.3 * bad]))

    def likelihood(self, slower: Floats, flaky: float = FLAKY, path: float = 0.0) -> Floats:
        """Return test × state → the density of a result, given the worst state of its members.

        `slower` is the logarithm of the figure relative to that of healthy tests; NaN: the test
        failed. `path` is by how much the path between groups slows these tests: it hides members
        that are no slower.
        """
        failed = np.isnan(slower)
        known = np.where(failed, 0.0, slower)
        levels = np.minimum(self.levels - path, 0.0)
        spread = np.maximum(self.noise, 0.25 * np.abs(levels))
        deviation = (known[:, None] - levels) / spread
        density = (1 + deviation**2 / FREEDOM) ** (-(FREEDOM + 1) / 2) * (0.383 / spread)
        density = (1 - self.outliers) * density + self.outliers / (_SLOWEST + 0.5)
        fine = density[:, :1]
        bad = slice(self.healthy, None)
        density[:, bad] = (1 - flaky) * density[:, bad] + flaky * fine
        fails = np.full(self.count, 0.03)
        fails[: self.healthy], fails[-1] = self.failures, 1 - flaky
        whole = np.concatenate((density, fine), axis=1) * (1 - fails)
        return np.asarray(np.where(failed[:, None], fails, whole))


@dataclass(frozen=True, slots=True)
class Factors:
    """Tests with the same number of members. Tests of the same members are one factor."""

    members: Ints
    """Factor × slot → index of a node or a NIC."""
    evidence: Floats
    """Factor × state → the logarithm of the likelihood of its tests."""
    link_prior: float
    """The chance that the link between the members is bad; 0: there is no link."""
    weights: Floats
    """Slot → how much these tests count for its members; 1: each is an independent test."""


@dataclass(frozen=True, slots=True)
class Beliefs:
    """The beliefs about all members."""

    logs: Floats
    """Member × state → the logarithm of its chance, up to a constant."""
    messages: Sequence[Floats]
    """For each class of factors, factor × slot × state → its contribution, as a logarithm."""

    def chances(self) -> Floats:
        """Return member × state → posterior chance."""
        return _normalized(self.logs)

    def without(self, members: Ints, messages: Floats | None) -> Floats:
        """Return the chances of members, without the contributions of their own factors."""
        return _normalized(
            self.logs[members] if messages is None else self.logs[members] - messages
        )


def propagate(factors: Sequence[Factors], count: int, states: States) -> Beliefs:
    """Return the beliefs from all factors together."""
    prior = np.log(states.prior(NODE_PRIOR))
    beliefs = np.tile(prior, (count, 1))
    kernels = [_kernel(each, states) for each in factors]
    messages = [np.zeros((*each.members.shape, states.count)) for each in factors]
    for _ in range(_ROUNDS):
        fresh = np.tile(prior, (count, 1))
        for index, each in enumerate(factors):
            cavity = _normalized(beliefs[each.members] - messages[index])
            update = _factor_messages(cavity, kernels[index]) * each.weights[:, None]
            messages[index] = _DAMPING * messages[index] + (1 - _DAMPING) * update
            for slot in range(each.members.shape[1]):
                np.add.at(fresh, each.members[:, slot], messages[index][:, slot])
        moved = np.abs(_normalized(fresh) - _normalized(beliefs)).max(initial=0.0)
        beliefs = fresh
        if moved < _SETTLED:
            break
    return Beliefs(beliefs, messages)


def links(evidence: Floats, others: Floats, states: States) -> Floats:
    """Return factor → the chance that the link between its members is bad.

    `others` has the chances of the members (factor × slot × state), according to their other tests.
    """
    worst = np.diff(np.prod(np.cumsum(others, axis=2), axis=1), prepend=0.0, axis=1)
    likelihood = np.exp(evidence - evidence.max(axis=1, keepdims=True, initial=-np.inf))
    given = _likelihood_given(worst, likelihood) * states.prior(LINK_PRIOR)
    return np.asarray(
        given[:, states.healthy :].sum(axis=1) / np.maximum(given.sum(axis=1), _LEAST)
    )


def _kernel(factors: Factors, states: States) -> Floats:
    """Return factor × state of the worst member → likelihood, marginalized over the link's state."""
    likelihood = np.exp(
        factors.evidence - factors.evidence.max(axis=1, keepdims=True, initial=-np.inf)
    )
    if factors.link_prior:
        link = np.broadcast_to(states.prior(factors.link_prior), likelihood.shape)
        likelihood = _likelihood_given(link, likelihood)
    return np.asarray(np.maximum(likelihood, _LEAST))


def _likelihood_given(other: Floats, likelihood: Floats) -> Floats:
    """Return the likelihood of each state of one part, given the chances of another part's states."""
    at_most = likelihood * np.cumsum(other, axis=1)
    weighted = other * likelihood
    worse = np.cumsum(weighted[:, ::-1], axis=1)[:, ::-1] - weighted
    return np.asarray(at_most + worse)


def _factor_messages(cavity: Floats, kernel: Floats) -> Floats:
    """Return factor × slot × state → the factor's message to each member, as a logarithm."""
    below = np.log(np.maximum(np.cumsum(cavity, axis=2), _LEAST))
    others = np.exp(below.sum(axis=1, keepdims=True) - below)
    messages = np.empty_like(cavity)
    for slot in range(cavity.shape[1]):
        worst = np.diff(others[:, slot], prepend=0.0, axis=1)
        messages[:, slot] = np.log(
            np.maximum(_likelihood_given(np.maximum(worst, 0.0), kernel), _LEAST)
        )
    return np.asarray(messages - messages.max(axis=2, keepdims=True))


def _normalized(logs: Floats) -> Floats:
    chances = np.exp(logs - logs.max(axis=-1, keepdims=True, initial=-np.inf))
    return np.asarray(chances / chances.sum(axis=-1, keepdims=True))


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

    The rate is no better known than these show: a beta-binomial distribution. Before any, it is
    that of the noise.
    """
    sine = -limit / noise / np.hypot(limit / noise, np.sqrt(FREEDOM)) if np.isfinite(limit) else 1.0
    cosine = 1 - sine**2
    usual = max(
        (1 - sine * (1 + cosine / 2 + 3 * cosine**2 / 8)) / 2, OUTLIERS
    )  # of Student's t with 6 degrees
    tests, slow, below = len(values), int((values <= limit).sum()), int((others <= limit).sum())
    a, b = below + USUAL * usual, len(others) - below + USUAL * (1 - usual)

    def logs(some: int) -> float:
        ways = lgamma(tests + 1) - lgamma(some + 1) - lgamma(tests - some + 1)
        return ways + lgamma(some + a) + lgamma(tests - some + b) - lgamma(tests + a + b)

    whole = lgamma(a) + lgamma(b) - lgamma(a + b)
    return min(sum(exp(logs(some) - whole) for some in range(slow, tests + 1)), 1.0)


def nodes_not_by_chance(
    pairs: PairTests, bad: Floats, levels: Floats, states: States, *, found: bool
) -> Floats:
    """Return the chance that each node is bad, no higher than this cluster's own rate of slow tests allows.

    A node is slow in k of m tests with healthy partners, several of them of its own group. That any of all nodes is so
    by chance is at most their number times the chance of one, at the rate at which healthy pairs are as slow.
    `levels`: node → the level of its likeliest state; `found`: whether the tests show the groups.
    """
    known, count = bad.copy(), len(bad)
    members, _, slower, between, path = pairs
    healthy, near = bad < DOUBTED, max(-states.tolerated, 2 * states.noise)
    # Most doubted nodes are slow by chance, and count for its rate; those that are mostly slow are
    # bad.
    tests = np.bincount(members.reshape(-1), minlength=count)
    often = (
        np.bincount(members.reshape(-1), np.repeat(slower < states.tolerated, 2), count) * 2
        >= tests
    )
    fine = ~(often & ~healthy)[members].any(axis=1)
    for node in np.flatnonzero(~healthy).tolist() if len(members) else ():
        limit = levels[node] / 2
        met = (members == node).any(axis=1)
        others = members.sum(axis=1) - node
        # A slower path hides it.
        mine = np.flatnonzero(
            met & (levels[node] - path <= limit) & healthy[np.where(met, others, node)]
        )
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


def links_not_by_chance(
    link: Floats, factor_of: Ints, slower: Floats, fine: Flags, states: States
) -> Floats:
    """Return the chance that each link is bad, limited in the same way. `fine`.

    Tests of healthy nodes.
    """
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
    ratio = found * log(_PARTLY / rate) + (tests - worst + 1 - found) * log(
        (1 - _PARTLY) / (1 - rate)
    )
    return np.where(found > 0, ratio, -np.inf)
