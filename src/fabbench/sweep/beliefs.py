"""How likely is it that a node, a NIC or a link is bad? One model for all of them.

Everything that takes part in a test (its nodes, their NICs, the link between them) has a state: healthy,
slower by a certain part, or failing. A test is as slow as the worst of them, give or take its noise, which
has heavy tails; one in two tests of something bad shows nothing (flaky). Links are bad more rarely than
nodes: one that is slow with two partners is bad, for two bad links would be a coincidence; one that is slow
with one of many is not.

The posterior is found by belief propagation, as it is for other noisy group tests: each test tells each of
its members what it says of it, given what is known of the others from their other tests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fabbench.sweep.readings import Floats, Ints

NODE_PRIOR = 0.01
"""The chance that a node is bad, before any test; of a NIC, too."""
LINK_PRIOR = 0.002
"""The chance that the link of a pair is."""
FLAKY = 0.5
"""The part of its tests in which something bad is not seen."""
FLAKY_IN_GROUPS = 0.35
"""The same in tests of groups: their search, which halves, takes fewer tests for what shows more often."""
_OUTLIER = 0.004
"""The part of healthy tests that are slow by chance; a quarter as many fail by chance."""
_MILD_PRIOR = 0.05
"""The chance that something is a little slower, within the tolerance."""
_SLOWEST = 3.2
"""The largest slow-down, as a logarithm: a factor of 25."""
_FREEDOM = 6.0
"""Of Student's t: the tails of noise."""
_STEP = 1.4
_ROUNDS = 30
_DAMPING = 0.4
_SETTLED = 1e-4
_LEAST = 1e-30


@dataclass(frozen=True, slots=True)
class States:
    """What a node can be, from healthy to worst: fine, a little slow, slow (several levels), failing."""

    levels: Floats
    """The logarithm by which a test is slower, of all states but the last, which fails."""
    healthy: int = 2
    """How many states count as healthy."""

    @classmethod
    def of(cls, tolerance: float) -> "States":
        """Return the states for a tolerance: a part by which healthy nodes may be slower."""
        slow, level = [], 1.5 * -np.log1p(-tolerance)
        while level < _SLOWEST:
            slow.append(-level)
            level *= _STEP
        return cls(np.array([0.0, slow[0] / 3, *slow]))

    @property
    def count(self) -> int:
        """Return the number of states."""
        return len(self.levels) + 1

    def prior(self, bad: float) -> Floats:
        """Return the chances of all states, of which the bad ones come to `bad`, three in ten failing."""
        slow = self.count - self.healthy - 1
        fine = (1 - bad) * np.array([1 - _MILD_PRIOR, _MILD_PRIOR])
        return np.concatenate((fine, np.full(slow, 0.7 * bad / slow), [0.3 * bad]))

    def likelihood(self, slower: Floats, noise: float, flaky: float = FLAKY) -> Floats:
        """Return test × state → the density of a result, given the worst state of who took part.

        `slower` is the logarithm of the figure against that of healthy tests; NaN: the test failed.
        """
        failed = np.isnan(slower)
        known = np.where(failed, 0.0, slower)
        spread = np.maximum(noise, 0.25 * np.abs(self.levels))
        spread[0] = noise
        away = (known[:, None] - self.levels) / spread
        density = (1 + away**2 / _FREEDOM) ** (-(_FREEDOM + 1) / 2) * (0.383 / spread)
        density = (1 - _OUTLIER) * density + _OUTLIER / (_SLOWEST + 0.5)
        fine = density[:, :1]
        bad = slice(self.healthy, None)
        density[:, bad] = (1 - flaky) * density[:, bad] + flaky * fine
        fails = np.full(self.count, 0.03)
        fails[: self.healthy], fails[-1] = _OUTLIER / 4, 1 - flaky
        whole = np.concatenate((density, fine), axis=1) * (1 - fails)
        return np.asarray(np.where(failed[:, None], fails, whole))


@dataclass(frozen=True, slots=True)
class Factors:
    """Tests of as many members each. Tests of the same members are one factor."""

    members: Ints
    """Factor × place → index of a node or a NIC."""
    evidence: Floats
    """Factor × state → the logarithm of the likelihood of its tests."""
    link_prior: float
    """The chance that what lies between the members is bad; 0: nothing does."""
    weights: Floats
    """Place → how much these tests count for a member there; 1: each is one of its own."""


@dataclass(frozen=True, slots=True)
class Beliefs:
    """What is believed of all members."""

    logs: Floats
    """Member × state → the logarithm of its chance, but for a constant."""
    messages: Sequence[Floats]
    """For each class of factors, factor × place × state → what it contributed to that, as a logarithm."""

    def chances(self) -> Floats:
        """Return member × state → posterior chance."""
        return _normal(self.logs)

    def without(self, members: Ints, messages: Floats | None) -> Floats:
        """Return the chances of members, without what their factors themselves contributed."""
        return _normal(self.logs[members] if messages is None else self.logs[members] - messages)


def propagate(factors: Sequence[Factors], count: int, states: States) -> Beliefs:
    """Return what all factors together say."""
    prior = np.log(states.prior(NODE_PRIOR))
    beliefs = np.tile(prior, (count, 1))
    kernels = [_kernel(each, states) for each in factors]
    messages = [np.zeros((*each.members.shape, states.count)) for each in factors]
    for _ in range(_ROUNDS):
        fresh = np.tile(prior, (count, 1))
        for index, each in enumerate(factors):
            cavity = _normal(beliefs[each.members] - messages[index])
            told = _told(cavity, kernels[index]) * each.weights[:, None]
            messages[index] = _DAMPING * messages[index] + (1 - _DAMPING) * told
            for place in range(each.members.shape[1]):
                np.add.at(fresh, each.members[:, place], messages[index][:, place])
        moved = np.abs(_normal(fresh) - _normal(beliefs)).max(initial=0.0)
        beliefs = fresh
        if moved < _SETTLED:
            break
    return Beliefs(beliefs, messages)


def links(evidence: Floats, others: Floats, states: States) -> Floats:
    """Return factor → the chance that the link between its members is bad.

    `others` has the chances of the members (factor × place × state), as their other tests show them.
    """
    worst = np.diff(np.prod(np.cumsum(others, axis=2), axis=1), prepend=0.0, axis=1)
    likelihood = np.exp(evidence - evidence.max(axis=1, keepdims=True, initial=-np.inf))
    given = _told_by(worst, likelihood) * states.prior(LINK_PRIOR)
    return np.asarray(given[:, states.healthy :].sum(axis=1) / np.maximum(given.sum(axis=1), _LEAST))


def _kernel(factors: Factors, states: States) -> Floats:
    """Return factor × state of the worst member → likelihood, the link's state left open."""
    likelihood: Floats = np.asarray(
        np.exp(factors.evidence - factors.evidence.max(axis=1, keepdims=True, initial=-np.inf))
    )
    if not factors.link_prior:
        return np.asarray(np.maximum(likelihood, _LEAST))
    link = np.broadcast_to(states.prior(factors.link_prior), likelihood.shape)
    return np.asarray(np.maximum(_told_by(link, likelihood), _LEAST))


def _told_by(other: Floats, likelihood: Floats) -> Floats:
    """Return for each state of one the likelihood, where `other` has the chances of the other's states."""
    own = likelihood * np.cumsum(other, axis=1)
    weighted = other * likelihood
    later = np.cumsum(weighted[:, ::-1], axis=1)[:, ::-1] - weighted
    return np.asarray(own + later)


def _told(cavity: Floats, kernel: Floats) -> Floats:
    """Return factor × place × state → what the factor tells each member, as a logarithm."""
    below = np.log(np.maximum(np.cumsum(cavity, axis=2), _LEAST))
    others = np.exp(below.sum(axis=1, keepdims=True) - below)
    found = np.empty_like(cavity)
    for place in range(cavity.shape[1]):
        worst = np.diff(others[:, place], prepend=0.0, axis=1)
        found[:, place] = np.log(np.maximum(_told_by(np.maximum(worst, 0.0), kernel), _LEAST))
    return np.asarray(found - found.max(axis=2, keepdims=True))


def _normal(logs: Floats) -> Floats:
    """Return chances of logarithms of them."""
    chances = np.exp(logs - logs.max(axis=-1, keepdims=True, initial=-np.inf))
    return np.asarray(chances / chances.sum(axis=-1, keepdims=True))


__all__: Final = [
    "FLAKY",
    "FLAKY_IN_GROUPS",
    "LINK_PRIOR",
    "NODE_PRIOR",
    "Beliefs",
    "Factors",
    "States",
    "links",
    "propagate",
]
