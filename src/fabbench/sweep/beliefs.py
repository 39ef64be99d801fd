"""How likely is it that a node, a NIC or a link is bad? One model for all of them.

Everything that takes part in a test (its nodes, their NICs, the link between them) has a state:
healthy, slower by a certain fraction, or failing. A test is as slow as the worst of them, plus or
minus noise with heavy tails; one in two tests of something bad shows nothing (flaky). Links are bad
more rarely than nodes: a node that is slow with two partners is bad, because two bad links would be
a coincidence; a node that is slow with one of many is not.

The posterior is computed by belief propagation, as for other noisy group tests: each test sends
each of its members a message about its state, given what other tests show about the other members.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from fabbench.model.values import frozen
from fabbench.sweep.readings import Flags, Floats, Ints

NODE_PRIOR = 0.01
"""The chance that a node or a NIC is bad, before any test."""
LINK_PRIOR = 0.002
"""The chance that the link of a pair is bad, before any test."""
FLAKY = 0.5
"""The fraction of its tests in which something bad does not show."""
FLAKY_IN_GROUPS = 0.35
"""The same in tests of more than two nodes, as logs may have.

With half, 24 such tests instead of 14 were needed to clear 232 healthy nodes.
"""
_MILD_PRIOR = 0.05
"""The chance that something is a little slower, within the tolerance."""
_SLOWEST = 3.2
"""The largest slowdown, as a logarithm: a factor of 25."""
_FAILING = 0.3
"""The part of bad nodes, NICs and links that fail; the others are slow."""
_ALSO_FAILS = 0.03
"""The chance that a test of something slow fails."""
_UNEVEN = 0.25
"""The figures of something slow vary by this part of its slowness, if noise is less."""
FREEDOM = 6.0
"""Degrees of freedom of Student's t, for the tails of noise."""
_NORMALIZING = 0.383
"""By this factor, the integral of Student's t is 1."""
_FIRST_SLOW = 1.5
"""The first level of slowness, in tolerances: what is tolerated is then nearer to healthy."""
_STEP = 1.4
"""The logarithm of each level of slowness is so many times that of the one before."""
_LEAST = 1e-30
"""The least likelihood, so that it has a logarithm."""
_ROUNDS = 30
"""The most rounds of belief propagation."""
_DAMPING = 0.4
"""The part of each message that stays from round to round."""
_SETTLED = 1e-4
"""When no chance changes by more than this, the beliefs have settled."""
OUTLIERS = 0.01
"""How often healthy tests are slow by chance, before any test."""
_FAILURES = 0.0025
"""How often healthy tests fail by chance, before any test."""
USUAL = 50
"""As how many tests these rates count."""
USUAL_NOISE = 0.05
"""The noise between executions that is assumed before any test."""
USUAL_WEIGHT = 4
"""As how many results the usual noise counts."""


@frozen
class States:
    """The states of a node, from healthy to worst.

    Fine, a little slow, slow (several levels), failing.
    """

    levels: Floats
    """The logarithm by which tests are slower, for each state but the last, which fails."""
    tolerated: float
    """The logarithm by which healthy nodes may be slower; negative."""
    first_bad: int = 2
    """The index of the first state that counts as bad; those before it are healthy."""
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
        """Return the states for a tolerance: the fraction by which healthy nodes may be slower.

        It is more than 0 and at most 0.8, as the command line has it. Levels of slowness go from a
        little more than the tolerance to `_SLOWEST`, ever farther apart.
        """
        tolerated = float(np.log1p(-tolerance))
        level = _FIRST_SLOW * tolerated
        slow: list[float] = []
        while level > -_SLOWEST:
            slow.append(level)
            level *= _STEP
        a_little = tolerated / 2
        return cls(levels=np.array([0.0, a_little, *slow]), tolerated=tolerated)

    def learned(self, healthy: Floats) -> "States":
        """Return the states with the rates at which healthy tests are slow, or fail (NaN).

        The rates that are usual count as some more tests.
        """
        # Slow is what is at the first level of slowness, and not by noise.
        far = min(self.levels[self.first_bad], -3 * self.noise)
        outliers = float((healthy < far).sum()) + USUAL * OUTLIERS
        failures = float(np.isnan(healthy).sum()) + USUAL * _FAILURES
        known = len(healthy) + USUAL
        return replace(self, outliers=outliers / known, failures=failures / known)

    @property
    def count(self) -> int:
        """Return the number of states."""
        return len(self.levels) + 1

    def prior(self, bad: float) -> Floats:
        """Return the chances of all states; those of bad ones sum to `bad`.

        In order: healthy, a little slower, each that is slow (all alike), failing.
        """
        slow_states = self.count - self.first_bad - 1  # without the last, failing
        fine = (1 - bad) * np.array([1 - _MILD_PRIOR, _MILD_PRIOR])
        each_slow = (1 - _FAILING) * bad / slow_states
        slow_chances = np.full(slow_states, each_slow)
        return np.concatenate((fine, slow_chances, [_FAILING * bad]))

    def likelihood(self, log_ratio: Floats, flaky: float = FLAKY, path: float = 0.0) -> Floats:
        """Return test × state → the density of a result, given the worst state of its members.

        `log_ratio` is the logarithm of the figure relative to that of healthy tests; NaN: the test
        failed. `flaky` is the fraction of tests in which something bad does not show. `path` is the
        logarithm by which the path between groups slows these tests: it hides members that are no
        slower.
        """
        failed = np.isnan(log_ratio)
        known = np.where(failed, 0.0, log_ratio)
        levels = np.minimum(self.levels - path, 0.0)  # relative to tests on the same path
        # What is slow varies by a part of its slowness, not only by noise.
        spread = np.maximum(self.noise, _UNEVEN * np.abs(levels))
        deviation = (known[:, None] - levels) / spread
        # Anywhere in the range of figures, alike: from the slowest to 1.6 times the typical one.
        by_chance = self.outliers / (_SLOWEST + 0.5)
        density = (1 - self.outliers) * student(deviation) / spread + by_chance
        fine = density[:, :1]
        bad = density[:, self.first_bad :]  # a part of `density`, which changes with it
        bad *= 1 - flaky
        bad += flaky * fine
        # State → the chance that a test fails. If something failing does not fail, it looks fine.
        fails = np.full(self.count, _ALSO_FAILS)
        fails[: self.first_bad] = self.failures
        fails[-1] = 1 - flaky
        whole = np.concatenate((density, fine), axis=1) * (1 - fails)
        return np.where(failed[:, None], fails, whole)


def student(deviation: Floats) -> Floats:
    """Return the density of Student's t, per standard deviation."""
    squared = 1 + deviation**2 / FREEDOM
    return _NORMALIZING * squared ** (-(FREEDOM + 1) / 2)


@frozen
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

    def without(self, members: Ints, messages: Floats) -> Floats:
        """Return the chances of members, without the contributions of their own factors."""
        return _normalized(self.logs[members] - messages)


def propagate(factors: Sequence[Factors], count: int, states: States) -> Beliefs:
    """Return the beliefs from all factors together; `count`: how many members there are.

    In rounds: each factor tells its members what it says of them, given what all others say of the
    rest of its members, until no chance moves.
    """
    prior = np.log(states.prior(NODE_PRIOR))
    beliefs = np.tile(prior, (count, 1))
    kernels = [_kernel(each, states) for each in factors]
    messages = [np.zeros((*each.members.shape, states.count)) for each in factors]
    for _ in range(_ROUNDS):
        fresh = np.tile(prior, (count, 1))
        for index, each in enumerate(factors):
            before = messages[index]
            # What each member is by all that is not this factor.
            cavity = _normalized(beliefs[each.members] - before)
            update = _factor_messages(cavity, kernels[index])
            update *= each.weights[:, None]  # several NICs of one test are not as many tests
            damped = _DAMPING * before + (1 - _DAMPING) * update
            for slot, members in enumerate(each.members.T):
                np.add.at(fresh, members, damped[:, slot])
            messages[index] = damped
        change = np.abs(_normalized(fresh) - _normalized(beliefs))
        moved = change.max(initial=0.0)
        beliefs = fresh
        if moved < _SETTLED:
            break
    return Beliefs(beliefs, messages)


def links(evidence: Floats, others: Floats, states: States) -> Floats:
    """Return factor → the chance that the link between its members is bad.

    `evidence` is as in `Factors`; `others` has the chances of the members (factor × slot × state),
    according to their other tests.
    """
    # The chance that all members are in a state or a better one; from it, that of the worst one.
    all_at_most = np.prod(np.cumsum(others, axis=2), axis=1)
    worst = np.diff(all_at_most, prepend=0.0, axis=1)
    given = _likelihood_given(worst, _relative(evidence)) * states.prior(LINK_PRIOR)
    bad = given[:, states.first_bad :].sum(axis=1)
    whole = np.maximum(given.sum(axis=1), _LEAST)
    return bad / whole


def _relative(evidence: Floats) -> Floats:
    """Return likelihoods relative to the highest of each factor."""
    highest = evidence.max(axis=1, keepdims=True, initial=-np.inf)
    return np.exp(evidence - highest)


def _kernel(factors: Factors, states: States) -> Floats:
    """Return factor × state of the worst member → likelihood of its tests, over all link states."""
    likelihood = _relative(factors.evidence)
    if factors.link_prior:
        link = np.broadcast_to(states.prior(factors.link_prior), likelihood.shape)
        likelihood = _likelihood_given(link, likelihood)
    return np.maximum(likelihood, _LEAST)


def _likelihood_given(other: Floats, likelihood: Floats) -> Floats:
    """Return the likelihood of each state of a part, given the chances of another's states.

    A test is as slow as the worse of both. `likelihood`: factor × state of the worse one.
    """
    # The other is no worse: then the test is in the state of the part.
    other_no_worse = likelihood * np.cumsum(other, axis=1)
    # The other is worse: then the test is in any of its worse states.
    weighted = other * likelihood
    worst_first = np.flip(weighted, axis=1)
    as_bad_or_worse = np.flip(np.cumsum(worst_first, axis=1), axis=1)
    return other_no_worse + (as_bad_or_worse - weighted)


def _factor_messages(cavity: Floats, kernel: Floats) -> Floats:
    """Return factor × slot × state → the factor's message to each member, as a logarithm.

    `cavity`: factor × slot × state → what a member is by all its other factors, as a chance;
    `kernel`: factor × state of the worst member → likelihood.
    """
    at_most = np.cumsum(cavity, axis=2)
    below = np.log(np.maximum(at_most, _LEAST))
    # For each slot, the chance that all other members are in a state or a better one.
    others = np.exp(below.sum(axis=1, keepdims=True) - below)
    messages = np.empty_like(cavity)
    for slot in range(cavity.shape[1]):
        worst = np.diff(others[:, slot], prepend=0.0, axis=1)
        likelihood = _likelihood_given(np.maximum(worst, 0.0), kernel)
        messages[:, slot] = np.log(np.maximum(likelihood, _LEAST))
    return messages - messages.max(axis=2, keepdims=True)  # 0: the state they favor


def _normalized(logs: Floats) -> Floats:
    # Logarithms up to a constant → chances that sum to 1 over the last axis.
    highest = logs.max(axis=-1, keepdims=True, initial=-np.inf)
    chances = np.exp(logs - highest)
    return chances / chances.sum(axis=-1, keepdims=True)


DOUBTED = 0.5
"""From this chance on, a node is doubted."""


def all_healthy(bad: Floats, members: Ints) -> Flags:
    """Return which rows of `members` are all likely healthy; `bad`: member → its chance."""
    return np.all(bad[members] < DOUBTED, axis=1)


_LOOKS = 10
"""How often each is looked at while tests go on, of which any may be by chance."""
_TAILS = 1.2
"""A normal distribution that is so many times as wide has tails as heavy as those of noise."""


class PairTests(NamedTuple):
    """All tests of two nodes."""

    members: Ints
    """Test × 2 → node."""
    values: Floats
    """The logarithm of each figure; NaN: it failed."""
    log_ratio: Floats
    """The same relative to the typical figure; minus infinity: it failed."""
    between: Flags
    """Whether the nodes are of different groups."""
    path: Floats
    """The logarithm by which the path between groups makes this test slower; negative."""

    def only(self, chosen: Flags) -> "PairTests":
        """Return some of the tests."""
        return PairTests._make(column[chosen] for column in self)

    def links(self, count: int) -> Ints:
        """Return test → the number of its link: the same in both directions; `count`: nodes."""
        low = self.members.min(axis=1)
        return low * count + self.members.max(axis=1)


def by_chance(values: Floats, others: Floats, limit: float, noise: float) -> float:
    """Return the chance that so many of `values` or more are below a limit, at the rate of others.

    `values`, `others` and `limit` are logarithms. The rate is no better known than the
    others show: it may be a standard deviation higher. Before any, it is that of the noise.
    """
    tail = NormalDist(sigma=_TAILS * noise).cdf(limit)
    usual = max(tail, OUTLIERS)
    known = len(others) + USUAL
    below = int((others <= limit).sum())
    mean = (below + USUAL * usual) / known
    variance = mean * (1 - mean) / known
    rate = min(mean + math.sqrt(variance), 1.0)
    slow = int((values <= limit).sum())  # a smaller logarithm is slower
    return 1 - at_most(slow - 1, len(values), rate)


def at_most(slow: int, tests: int, rate: float) -> float:
    """Return the chance of at most so many slow tests, at a rate: a binomial distribution."""
    total = 0.0
    for number in range(slow + 1):
        rest_fine = (1 - rate) ** (tests - number)
        total += math.comb(tests, number) * rate**number * rest_fine
    return total


def nodes_not_by_chance(
    pairs: PairTests, bad: Floats, levels: Floats, states: States, *, groups_found: bool
) -> Floats:
    """Return the chance that each node is bad, as far as this cluster's rate of slow tests allows.

    A node is slow in k of m tests with healthy partners, several of them of its own group. That any
    of all nodes is so by chance is at most their number times the chance of one, at the rate at
    which healthy pairs are as slow. What does not show this leaves a node doubted.

    `bad`: node → the chance by all tests together; `levels`: node → the level of its likeliest
    state; `groups_found`: whether the tests show the groups.
    """
    chances = bad.copy()
    if not len(pairs.members):
        return chances
    if len(bad) < _TELLING:  # nobody can be told apart from the others
        return np.minimum(chances, DOUBTED)
    healthy = bad < DOUBTED
    # Most doubted nodes are slow by chance, and count for its rate.
    slow_tests = pairs.log_ratio < states.tolerated
    mostly_slow = ~healthy & _mostly(pairs, slow_tests, len(bad))
    usual = ~mostly_slow[pairs.members].any(axis=1)
    near = max(-states.tolerated, 2 * states.noise)
    for node in np.flatnonzero(~healthy).tolist():
        limit = levels[node] / 2  # half as slow as the node: what it makes slow is below
        met = (pairs.members == node).any(axis=1)
        partner = pairs.members.sum(axis=1) - node  # where it took part
        healthy_partner = healthy[np.where(met, partner, node)]  # the node itself is not healthy
        shown = levels[node] - pairs.path <= limit  # A slower path hides it
        mine = np.flatnonzero(healthy_partner & shown)
        log_ratio = pairs.log_ratio[mine]
        slow = log_ratio < limit
        partners = np.unique(partner[mine], return_inverse=True)[1]  # numbered from 0
        typical = np.median(log_ratio[slow]) if slow.any() else 0.0
        # As slow as the path between found groups: it may be in none of them, and far from all.
        elsewhere = groups_found and abs(typical - pairs.path.min()) < near
        of_few = _few_of_its_group(partners, slow, ~pairs.between[mine])
        # Tolerated, or as slow as the path, or not slow with two partners of its group.
        if typical > states.tolerated or elsewhere or of_few:
            chances[node] = DOUBTED
            continue
        # Those with the partner with which it is slow most often may be the link's.
        rest = partners != np.bincount(partners, slow).argmax()
        of_others = pairs.log_ratio[usual & ~met]
        by_others = by_chance(log_ratio[rest], of_others, limit, states.noise)
        chances[node] = _not_by_chance(by_others, len(bad))
    return chances


_TELLING = 4
"""Of fewer nodes, one that is slow with all others may as well be on a switch of its own."""


def _not_by_chance(chance: float, count: int) -> float:
    """Return the chance that one of `count` is bad and not slow by chance; at least `DOUBTED`."""
    return max(1 - _LOOKS * count * chance, DOUBTED)


def _mostly(pairs: PairTests, flags: Flags, count: int) -> Flags:
    """Return the nodes of which at least half of the tests have a flag."""
    nodes = pairs.members.reshape(-1)
    tests = np.bincount(nodes, minlength=count)
    flagged = np.bincount(nodes, np.repeat(flags, 2), count)
    return 2 * flagged >= tests


def _few_of_its_group(partners: Ints, slow: Flags, inside: Flags) -> bool:
    """Return whether a node is slow with fewer than two partners of its group, if it has two.

    Per test: `partners` has their numbers, `slow` and `inside` whether it is slow, in the group.
    """
    of_its_group = np.bincount(partners, inside) > 0
    slow_with = np.bincount(partners, slow) > 0
    least = min(2, of_its_group.sum())
    return bool((slow_with & of_its_group).sum() < least)


def links_not_by_chance(
    link: Floats, factor_of: Ints, log_ratio: Floats, fine: Flags, states: States
) -> Floats:
    """Return link → the chance that it is bad, as far as the rate of slow tests allows.

    Less than its own tests say (`link`), where the rate at which other links are slow explains
    these by chance.

    `factor_of`, `log_ratio`, `fine`: per test, its link, its logarithm (NaN: failed), and
    whether its nodes are healthy.
    """
    chances = link.copy()
    log_ratio = np.nan_to_num(log_ratio, nan=-np.inf)
    for row in np.flatnonzero(link >= DOUBTED).tolist():
        mine = factor_of == row
        half = (
            float(np.median(log_ratio[mine])) / 2
        )  # half as slow: what the link makes slow is below
        limit = min(half, states.tolerated)
        others = log_ratio[fine & ~mine]
        chance = by_chance(log_ratio[mine], others, limit, states.noise)
        chances[row] = _not_by_chance(chance, len(chances))
    return chances
