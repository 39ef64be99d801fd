"""Results → the typical figures, their noise, and how likely each node, NIC and link is bad."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log1p

import numpy as np

from fabbench.sweep.beliefs import (
    DOUBTED,
    FLAKY,
    FLAKY_IN_GROUPS,
    LINK_PRIOR,
    NODE_PRIOR,
    USUAL_NOISE,
    Beliefs,
    Factors,
    PairTests,
    States,
    flakiness,
    links,
    links_not_by_chance,
    nodes_not_by_chance,
    propagate,
)
from fabbench.sweep.groups import Grouping, given, proposals
from fabbench.sweep.readings import Flags, Floats, Ints, Readings, TestClass

TOLERANCE = 0.10
"""The fraction by which a healthy node may be slower than others."""
_LEAST_NOISE, _USUAL_WEIGHT = 0.01, 4
"""The least noise, and how many results the usual one counts as."""
_MAX_FACTORS = 80_000
"""Beliefs about nodes come from a sample of at most so many pairs.

With 4,096 nodes, each has forty.
"""


@dataclass(slots=True)
class FittedClass:
    """Tests of one class, compared with their typical figures. It changes while it is fitted."""

    tests: TestClass
    pairs: Ints
    """Distinct sets of nodes that were tested, ascending: each is one factor."""
    factor_of: Ints
    """Test → row of `pairs`."""
    members: Ints
    """Factor × slot → a node, its NIC, or its group's uplink."""
    order: Ints
    """Tests by factor."""
    first: Ints
    """Factor → its first test in `order`; plus one element for the end of the last one."""
    link: Floats
    """Factor → the chance that the link between its nodes is bad."""
    typical: Floats
    """Series → the value of healthy tests."""
    slower: Floats = field(default_factory=lambda: np.zeros(0))
    """Test → the logarithm of its figure relative to the typical one; NaN: it failed."""
    path: float = 0.0
    """The logarithm by which the path between groups makes these tests slower; negative."""

    def measure(self) -> None:
        """Compare each test with the typical figure."""
        self.slower = self.tests.values - self.typical[self.tests.series]

    @property
    def failed(self) -> Flags:
        """Test → whether it failed or hung."""
        return np.isnan(self.tests.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The beliefs after all results."""

    nodes: Sequence[str]
    bad: Floats
    """Node → the chance that it is bad."""
    flaky: Floats
    """Node → how much better its tests fit one that is slow in a quarter of them than one that is slow by chance."""
    nics: Mapping[tuple[int, str], float]
    """Node and rail → the chance that this NIC is bad."""
    uplinks: Mapping[str, float]
    """Group → the chance that its uplink to others is bad."""
    groups: Grouping | None
    """The groups, named by the user or found; None: one."""
    score: float
    """How well this explains the tests.

    The logarithm of their likelihood in the likeliest states, less the cost.
    """
    classes: Sequence[FittedClass]
    noise: float
    slow: float
    """Tests with a logarithm below this count as slow; negative."""

    @property
    def pairs(self) -> PairTests:
        """Return all tests of two nodes."""
        return _pairs(self.classes)


def fit(readings: Readings, *, tolerance: float = TOLERANCE) -> Fit:
    """Return the beliefs from all results, with the groups that explain them best.

    None, those given, or found ones.
    """
    named = given(readings.nodes, readings.group_of)
    best = _fit(readings, named, tolerance)
    plain = best if named is None else _fit(readings, None, tolerance)
    proposed = proposals(plain.pairs, plain.slow, -1.5 * log1p(-tolerance), plain.bad >= DOUBTED)
    found = [
        _fit(readings, each, tolerance)
        for each in proposed
        if named is None or not each.merges(named)
    ]
    return max(
        [best, *(each for each in found if each.score > best.score + SURE)],
        key=lambda each: each.score,
    )


SURE = 4.6
"""By how much groups must explain tests better than what is known without.

A hundred times as likely.
"""


def _fit(readings: Readings, groups: Grouping | None, tolerance: float) -> Fit:
    """Return the beliefs from all results, with these groups."""
    states, count = States.of(tolerance), len(readings.nodes)
    own = None if groups is None else groups.of
    tested = readings.classes(own, apart=groups is not None and groups.apart)
    rails = sorted({each.rail for each in tested if each.rail})
    classes = [_class(each, rails, groups, count) for each in tested]
    for each in classes:
        each.measure()
    _measure_paths(classes)
    total = count * (1 + len(rails)) + (0 if groups is None else len(groups.names))
    states, kinds = (
        replace(states, noise=_noise(classes, None)),
        len({each.rail for each in tested}),
    )
    for _ in range(3):
        beliefs = propagate([_factors(each, states, kinds) for each in classes], total, states)
        chances = beliefs.chances()
        bad = chances[:, states.healthy :].sum(axis=1)
        shift = max((_center(each, bad) for each in classes), default=0.0)
        _measure_paths(classes)
        before, states = states.noise, replace(states, noise=_noise(classes, bad))
        fine = [
            each.slower[(bad[each.members] < DOUBTED).all(axis=1)[each.factor_of]]
            for each in classes
        ]
        states = states.learned(np.concatenate([np.zeros(0), *fine]))
        if shift < 0.1 * states.noise and abs(states.noise - before) < 0.1 * before:
            break
    state, slow = chances.argmax(axis=1), min(states.tolerated, -2.5 * states.noise)
    parts = {
        part for each in classes for part in np.unique(each.members[:, each.tests.size :]).tolist()
    }
    last = count * (1 + len(rails))
    names = [] if groups is None else groups.names
    uplinks = {names[part - last]: float(bad[part]) for part in sorted(parts) if part >= last}
    # Through a slow uplink, tests show nothing of nodes.
    judging = _pairs(
        each
        for each in classes
        if not each.tests.between or max(uplinks.values(), default=0.0) < DOUBTED
    )
    levels = np.append(states.levels, states.levels[-1])[state[:count]]
    found, cost = False, 0.0
    if groups is not None:
        found, cost = not groups.given, groups.cost(sum(len(each.slower) for each in classes))
    known = nodes_not_by_chance(judging, bad[:count], levels, states, found=found)
    for each, messages in zip(classes, beliefs.messages, strict=True):
        link, healthy = (
            _links(each, beliefs, messages, states),
            (known[each.tests.members] < DOUBTED).all(axis=1),
        )
        each.link = links_not_by_chance(
            link, each.factor_of, each.slower, np.asarray(healthy), states
        )
    return Fit(
        nodes=readings.nodes,
        bad=known,
        flaky=flakiness(judging, bad[:count], states, slow),
        nics={
            (part % count, rails[part // count - 1]): float(bad[part])
            for part in sorted(parts)
            if part < last
        },
        uplinks=uplinks,
        groups=groups,
        score=max(_joint(classes, states, state, flaky) for flaky in (FLAKY, _STEADY)) - cost,
        classes=classes,
        noise=states.noise,
        slow=slow,
    )


def _pairs(classes: Iterable[FittedClass]) -> PairTests:
    chosen = [each for each in classes if each.tests.size == 2]
    counts = [len(each.slower) for each in chosen]
    return PairTests(
        np.concatenate([np.zeros((0, 2), np.int64), *(each.tests.members for each in chosen)]),
        np.concatenate([np.zeros(0), *(each.tests.values for each in chosen)]),
        np.nan_to_num(
            np.concatenate([np.zeros(0), *(each.slower for each in chosen)]), nan=-np.inf
        ),
        np.repeat(np.array([each.tests.between for each in chosen], dtype=np.bool_), counts),
        np.repeat(np.array([each.path for each in chosen], dtype=np.float64), counts),
    )


_STEADY = 0.05
"""The fraction of its tests in which something steadily bad does not show."""


def _joint(classes: Sequence[FittedClass], states: States, state: Ints, flaky: float) -> float:
    """Return the logarithm of the likelihood of all tests and of the likeliest states of all parts."""
    total = float(np.log(states.prior(NODE_PRIOR))[state].sum())
    link = np.log(states.prior(LINK_PRIOR))
    for each in classes:
        chosen = _sample(len(each.pairs))
        evidence = _evidence(each, states, chosen, flaky)
        worst = state[each.members[chosen]].max(axis=1)
        # The link is healthy, or in a worse state than its nodes.
        healthy = np.take_along_axis(evidence, worst[:, None], axis=1)[:, 0]
        possible = np.arange(states.count) > np.maximum(worst, states.healthy - 1)[:, None]
        worse = np.where(possible, evidence + link, -np.inf)
        total += (
            float(np.maximum(healthy, worse.max(axis=1)).sum())
            * len(each.pairs)
            / max(len(chosen), 1)
        )
    return total


def _class(
    tests: TestClass, rails: Sequence[str], groups: Grouping | None, nodes: int
) -> FittedClass:
    order = np.lexsort(tests.members.T[::-1]).astype(np.int32)
    ordered = tests.members[order]
    begins = np.concatenate(([True], (ordered[1:] != ordered[:-1]).any(axis=1)))[: len(order)]
    first = np.append(np.flatnonzero(begins), len(order)).astype(np.int32)
    factor_of = np.empty(len(order), dtype=np.int32)
    factor_of[order] = np.cumsum(begins, dtype=np.int32) - 1
    pairs = ordered[first[:-1]]
    members, links = [pairs], np.zeros(len(pairs))
    # NICs are numbered after all nodes, a rail after another; uplinks of groups after these.
    if tests.rail:
        members.append(pairs + nodes * (1 + rails.index(tests.rail)))
    if groups is not None and tests.between and tests.size == 2:
        members.append(groups.of[pairs] + nodes * (1 + len(rails)))
    parts = np.concatenate(members, axis=1)
    return FittedClass(tests, pairs, factor_of, parts, order, first, links, _first_typical(tests))


def _first_typical(tests: TestClass) -> Floats:
    """Return series → the value of the median node, before it is known which tests are healthy.

    A node's value is its upper quartile, or its best test if it has few: faults make tests slower,
    never faster.
    """
    typical = np.zeros(int(tests.series.max(initial=-1)) + 1, dtype=np.float32)
    for series in tests.known_series():
        chosen = (tests.series == series) & ~np.isnan(tests.values)
        if chosen.any():
            typical[series] = _typical_of(tests.members[chosen], tests.values[chosen])
    return typical


def _typical_of(members: Ints, measured: Floats) -> float:
    chosen = _sample(len(measured))
    members, measured = members[chosen], measured[chosen]
    nodes, values = members.T.reshape(-1), np.tile(measured, members.shape[1])
    order = np.lexsort((values, nodes))
    nodes, values = nodes[order], values[order]
    starts = np.flatnonzero(np.diff(nodes, prepend=-1))
    lengths = np.diff(starts, append=len(nodes))
    good = np.where(lengths < 9, lengths - 1, 3 * lengths // 4)
    typical = float(np.median(values[starts + good]))
    near = measured[np.abs(measured - typical) < 0.2]
    return float(np.median(near)) if len(near) else typical


def _sample(count: int) -> Ints:
    """Return all numbers below a count, or a sample of them, ascending."""
    every = np.arange(count)
    return (
        every
        if count <= _MAX_FACTORS
        else np.sort(np.random.default_rng(0).choice(every, _MAX_FACTORS, replace=False))
    )


def _center(each: FittedClass, bad: Floats) -> float:
    """Update the typical figures of a class from its healthy tests; return how far they moved."""
    fine, moved = _healthy(each, bad), 0.0
    for series in each.tests.known_series():
        chosen = fine & (each.tests.series == series)
        if chosen.any():
            typical = float(np.median(each.tests.values[chosen]))
            moved = max(moved, abs(typical - each.typical[series]))
            each.typical[series] = typical
    each.measure()
    return moved


def _measure_paths(classes: Sequence[FittedClass]) -> None:
    """Set how much slower tests between groups are than those within the fastest one."""
    for each in classes:
        if each.tests.between:
            slower = best_typical(each, [other for other in classes if not other.tests.between])
            known = slower[each.tests.known_series()]
            each.path = min(-float(np.median(known)), 0.0)


def best_typical(each: FittedClass, others: Iterable[FittedClass]) -> Floats:
    """Return series → by how much the best typical figure of the same measurement, of any group, is better."""
    better = np.zeros(len(each.typical))
    alike = [
        other
        for other in others
        if (other.tests.size, other.tests.rail) == (each.tests.size, each.tests.rail)
    ]
    for series in each.tests.known_series():
        for other in alike:
            same = [
                number
                for number in other.tests.known_series()
                if (number - series) % each.tests.kinds == 0
            ]
            best = max((other.typical[number] for number in same), default=-np.inf)
            better[series] = max(better[series], best - each.typical[series])
    return better


def _healthy(each: FittedClass, bad: Floats | None) -> Flags:
    """Return which tests have only members that are likely healthy, and are not far from typical."""
    near = np.abs(np.nan_to_num(each.slower, nan=9.0)) < 0.5
    healthy = (
        True
        if bad is None
        else np.asarray((bad[each.members] < DOUBTED).all(axis=1))[each.factor_of]
    )
    return np.asarray(near & healthy)


def _noise(classes: Sequence[FittedClass], bad: Floats | None) -> float:
    """Return the spread of healthy tests.

    The shortest interval with half of them, which faults do not affect.
    """
    values = np.sort(
        np.concatenate([each.slower[_healthy(each, bad)] for each in classes] or [np.zeros(0)])
    )
    count, half = len(values), (len(values) + 1) // 2
    spread = (
        (values[half - 1 :] - values[: count - half + 1]).min(initial=np.inf)
        / 1.349
        * (1 + 2 / max(count, 1))
    )
    known = (count * spread**2 if count else 0.0) + _USUAL_WEIGHT * USUAL_NOISE**2
    return max(float(np.sqrt(known / (count + _USUAL_WEIGHT))), _LEAST_NOISE)


def _factors(each: FittedClass, states: States, rails: int) -> Factors:
    """Return the factors of a class, or a sample.

    For nodes, all NICs of one test count as one test.
    """
    chosen = _sample(len(each.pairs))
    size = each.tests.size
    # The NICs of a test share its noise.
    weights: Floats = np.full(each.members.shape[1], 1 / rails)
    if each.tests.rail:
        weights[size : 2 * size] = 1.0
    return Factors(
        members=each.members[chosen],
        evidence=_evidence(each, states, chosen),
        link_prior=min(LINK_PRIOR * (size - 1), 0.05),  # of some link among so many nodes
        weights=weights,
    )


def _evidence(each: FittedClass, states: States, chosen: Ints, flaky: float = FLAKY) -> Floats:
    """Return factor × state → the logarithm of the likelihood of the tests of chosen factors, ascending."""
    starts, stops = each.first[chosen], each.first[chosen + 1]
    counts = stops - starts
    rows = np.repeat(np.arange(len(chosen)), counts)
    tests = each.order[
        np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    ]
    flaky = flaky if each.tests.size <= 2 else min(flaky, FLAKY_IN_GROUPS)
    logs = np.log(states.likelihood(each.slower[tests], flaky, each.path))
    evidence = np.zeros((len(chosen), states.count))
    np.add.at(evidence, rows, logs)
    return evidence


def _links(each: FittedClass, beliefs: Beliefs, messages: Floats, states: States) -> Floats:
    """Return factor → the chance of its link.

    If only a sample of pairs judged the nodes, one pair is negligible.
    """
    chances, step = np.zeros(len(each.pairs), dtype=np.float32), 1 << 16
    # Links without a test that is slow or failed, or nearly so, are fine.
    slow = each.failed | (each.slower < -max(-states.levels[states.healthy] / 2, states.noise))
    likely = np.unique(each.factor_of[slow & (each.tests.size > 1)])
    for start in range(0, len(likely), step):
        chosen = likely[start : start + step]
        contributed = messages[chosen] if len(messages) == len(each.pairs) else None
        others = beliefs.without(each.members[chosen], contributed)
        chances[chosen] = links(_evidence(each, states, chosen), others, states)
    return chances
