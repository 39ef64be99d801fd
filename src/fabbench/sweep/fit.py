"""Results → the typical figures, their noise, and how likely each node, NIC and link is bad."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from fabbench.sweep.beliefs import FLAKY, FLAKY_IN_GROUPS, LINK_PRIOR, Beliefs, Factors, States, links, propagate
from fabbench.sweep.readings import Flags, Floats, Ints, Readings, TestClass

TOLERANCE = 0.10
"""The fraction by which a healthy node may be slower than others."""
_LEAST_NOISE = 0.01
_USUAL_NOISE = 0.05
_USUAL_WEIGHT = 4
"""The noise between executions that is assumed before any results, and how many results it counts as."""
_MAX_FACTORS = 80_000
"""Beliefs about nodes come from a sample of at most so many pairs: with 4,096 nodes, each has forty."""
_PASSES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedClass:
    """Tests of one class, compared with their typical figures."""

    tests: TestClass
    typical: Floats
    """Series → the value of healthy tests."""
    slower: Floats
    """Test → the logarithm of its figure relative to the typical one; NaN: it failed."""
    factor_of: Ints
    """Test → row of `pairs`."""
    pairs: Ints
    """Distinct sets of nodes that were tested, ascending."""
    link: Floats
    """Row of `pairs` → the chance that the link between its nodes is bad."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The beliefs after all results."""

    nodes: Sequence[str]
    bad: Floats
    """Node → the chance that it is bad."""
    state: Ints
    """Node → its likeliest state."""
    nics: Mapping[tuple[int, str], float]
    """Node and rail → the chance that this NIC is bad."""
    uplinks: Mapping[str, float]
    """Group → the chance that its uplink to others is bad."""
    classes: Sequence[FittedClass]
    noise: float
    slow: float
    """Tests with a logarithm below this count as slow; negative."""


@dataclass(slots=True)
class _Class:
    """A class while it is fitted."""

    tests: TestClass
    pairs: Ints
    factor_of: Ints
    members: Ints
    order: Ints
    """Tests by factor."""
    first: Ints
    """Factor → its first test in `order`; plus one element for the end of the last one."""
    typical: Floats = field(default_factory=lambda: np.zeros(0))
    slower: Floats = field(default_factory=lambda: np.zeros(0))

    def measure(self) -> None:
        """Compare each test with the typical figure."""
        self.slower = self.tests.values - self.typical[self.tests.series]


def fit(readings: Readings, *, tolerance: float = TOLERANCE) -> Fit:
    """Return the beliefs from all results."""
    states, count = States.of(tolerance), len(readings.nodes)
    parts = _Parts(readings)
    classes = [_class(tests, parts) for tests in readings.classes()]
    for each in classes:
        each.typical = _first_typical(each.tests)
        each.measure()
    total = parts.count
    noise, rails = _noise(classes, None), len({each.tests.rail for each in classes})
    for _ in range(_PASSES):
        beliefs = propagate([_factors(each, states, noise, rails) for each in classes], total, states)
        chances = beliefs.chances()
        bad = chances[:, states.healthy :].sum(axis=1)
        shift = max((_center(each, bad) for each in classes), default=0.0)
        noise, before = _noise(classes, bad), noise
        if shift < 0.1 * noise and abs(noise - before) < 0.1 * before:
            break
    return Fit(
        nodes=readings.nodes,
        bad=bad[:count],
        state=chances[:count].argmax(axis=1),
        nics={key: float(bad[index]) for key, index in parts.nics.items()},
        uplinks={key: float(bad[index]) for key, index in parts.uplinks.items()},
        classes=[_fitted(each, beliefs, beliefs.messages[index], states, noise) for index, each in enumerate(classes)],
        noise=noise,
        slow=min(1.5 * float(np.log1p(-tolerance)), -2.5 * noise),
    )


_Key = TypeVar("_Key")


class _Parts:
    """Numbers the parts that can be bad besides nodes and links: NICs, and uplinks of groups."""

    def __init__(self, readings: Readings) -> None:
        self.count = self._nodes = len(readings.nodes)
        self.nics: dict[tuple[int, str], int] = {}
        self.uplinks: dict[str, int] = {}
        self._groups = [readings.group_of.get(node, "") for node in readings.nodes]

    def of(self, pairs: Ints, tests: TestClass) -> Ints:
        """Return set of nodes × slot → number of a node, of its NIC, of its group's uplink."""
        members = [pairs]
        across = tests.between and tests.size == 2
        nodes = np.unique(pairs).tolist() if tests.rail or across else []
        if tests.rail:
            members.append(self._numbered(self.nics, {node: (node, tests.rail) for node in nodes})[pairs])
        if across:
            members.append(self._numbered(self.uplinks, {node: self._groups[node] for node in nodes})[pairs])
        return np.concatenate(members, axis=1)

    def _numbered(self, numbers: dict[_Key, int], parts: Mapping[int, _Key]) -> Ints:
        """Return node → number of its part, after numbering new parts."""
        table = np.zeros(self._nodes, dtype=np.int64)
        for node, part in parts.items():
            number = table[node] = numbers.setdefault(part, self.count)
            self.count = max(self.count, number + 1)
        return table


def _class(tests: TestClass, parts: _Parts) -> _Class:
    # Compact types matter here: there may be millions of pairs.
    if tests.size <= 2:
        kind = np.int32 if parts.count**2 <= np.iinfo(np.int32).max else np.int64
        radix: Ints = np.array([parts.count, 1][-tests.size :], dtype=kind)
        members: Ints = tests.members.astype(kind, copy=False)
        key = members @ radix
        order = np.argsort(key).astype(np.int32)
        begins = np.diff(key[order], prepend=-1) != 0
        del key
    else:
        order = np.lexsort(tests.members.T[::-1]).astype(np.int32)
        ordered = tests.members[order]
        begins = np.concatenate(([True], (ordered[1:] != ordered[:-1]).any(axis=1)))[: len(order)]
    first = np.append(np.flatnonzero(begins), len(order)).astype(np.int32)
    factor_of = np.empty(len(order), dtype=np.int32)
    factor_of[order] = np.cumsum(begins, dtype=np.int32) - 1
    pairs = tests.members[order[first[:-1]]]
    return _Class(tests, pairs, factor_of, parts.of(pairs, tests), order, first)


def _first_typical(tests: TestClass) -> Floats:
    """Return series → the value of healthy tests, before it is known which tests those are.

    It is that of the median node. A node's value is its upper quartile, or its best test if it has few:
    faults make tests slower, never faster, and a healthy node has had some healthy partner.
    """
    typical = np.zeros(int(tests.series.max(initial=-1)) + 1, dtype=np.float32)
    for series in tests.known_series():
        chosen = (tests.series == series) & ~np.isnan(tests.values)
        if chosen.any():
            typical[series] = _typical_of(tests.members[chosen], tests.values[chosen])
    return typical


def _typical_of(members: Ints, measured: Floats) -> float:
    if len(measured) > _MAX_FACTORS:
        chosen = np.random.default_rng(0).choice(len(measured), _MAX_FACTORS, replace=False)
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


def _center(each: _Class, bad: Floats) -> float:
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


def _healthy(each: _Class, bad: Floats | None) -> Flags:
    """Return which tests have only members that are likely healthy, and are not far from typical."""
    near = np.abs(np.nan_to_num(each.slower, nan=9.0)) < 0.5
    if bad is None:
        return np.asarray(near)
    healthy = np.asarray((bad[each.members] < 0.5).all(axis=1))
    return np.asarray(near & healthy[each.factor_of])


def _noise(classes: Sequence[_Class], bad: Floats | None) -> float:
    """Return the spread of healthy tests, from the faster half only, which faults do not affect."""
    deviations = [np.abs(each.slower[(each.slower >= 0) & _healthy(each, bad)]) for each in classes]
    values = np.concatenate(deviations) if deviations else np.zeros(0)
    spread = float(np.median(values)) * 1.4826 if len(values) else _USUAL_NOISE
    known = (len(values) * spread**2 + _USUAL_WEIGHT * _USUAL_NOISE**2) / (len(values) + _USUAL_WEIGHT)
    return max(float(np.sqrt(known)), _LEAST_NOISE)


def _factors(each: _Class, states: States, noise: float, rails: int) -> Factors:
    """Return the factors of a class, or a sample. For nodes, all NICs of one test count as one test."""
    chosen = np.arange(len(each.pairs))
    if len(chosen) > _MAX_FACTORS:
        chosen = np.sort(np.random.default_rng(0).choice(chosen, _MAX_FACTORS, replace=False))
    size = each.tests.size
    # The NICs of a test share its noise.
    weights: Floats = np.full(each.members.shape[1], 1 / rails)
    if each.tests.rail:
        weights[size : 2 * size] = 1.0
    return Factors(
        members=each.members[chosen],
        evidence=_evidence(each, states, noise, chosen),
        link_prior=min(LINK_PRIOR * (size - 1), 0.05),  # of some link among so many nodes
        weights=weights,
    )


def _evidence(each: _Class, states: States, noise: float, chosen: Ints) -> Floats:
    """Return factor × state → the logarithm of the likelihood of the tests of chosen factors, ascending."""
    starts, stops = each.first[chosen], each.first[chosen + 1]
    counts = stops - starts
    rows = np.repeat(np.arange(len(chosen)), counts)
    tests = each.order[np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())]
    flaky = FLAKY if each.tests.size <= 2 else FLAKY_IN_GROUPS
    logs = np.log(states.likelihood(each.slower[tests], noise, flaky))
    evidence = np.zeros((len(chosen), states.count))
    np.add.at(evidence, rows, logs)
    return evidence


def _fitted(each: _Class, beliefs: Beliefs, messages: Floats, states: States, noise: float) -> FittedClass:
    """Judge links. If only a sample of pairs judged the nodes, the contribution of one pair is negligible."""
    chances, step = np.zeros(len(each.pairs), dtype=np.float32), 1 << 16
    # Links without a test that is slow or failed, or nearly so, are fine.
    slow = np.isnan(each.slower) | (each.slower < -max(-states.levels[states.healthy] / 2, noise))
    likely = np.unique(each.factor_of[slow & (each.tests.size > 1)])
    for start in range(0, len(likely), step):
        chosen = likely[start : start + step]
        contributed = messages[chosen] if len(messages) == len(each.pairs) else None
        others = beliefs.without(each.members[chosen], contributed)
        chances[chosen] = links(_evidence(each, states, noise, chosen), others, states)
    return FittedClass(
        tests=each.tests,
        typical=each.typical,
        slower=each.slower,
        factor_of=each.factor_of,
        pairs=each.pairs,
        link=chances,
    )
