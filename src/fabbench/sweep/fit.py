"""Results → the typical figures, their noise, and how likely each node, NIC and link is bad."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import log1p

import numpy as np

from fabbench.model.values import frozen
from fabbench.sweep.beliefs import (
    DOUBTED,
    FLAKY,
    FLAKY_IN_GROUPS,
    LINK_PRIOR,
    NODE_PRIOR,
    USUAL_NOISE,
    USUAL_WEIGHT,
    Beliefs,
    Factors,
    PairTests,
    States,
    all_healthy,
    links,
    links_not_by_chance,
    nodes_not_by_chance,
    propagate,
)
from fabbench.sweep.groups import Grouping, deviation_of_most, given, proposals, ranked
from fabbench.sweep.readings import Flags, Floats, Ints, Readings, TestClass, by_key

TOLERANCE = 0.10
"""The fraction by which a healthy node may be slower than others."""
_LEAST_NOISE = 0.01


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
    link: Floats
    """Factor → the chance that the link between its nodes is bad."""
    typical: Floats
    """Series → the value of healthy tests."""
    log_ratio: Floats = field(default_factory=lambda: np.zeros(0))
    """Test → the logarithm of its figure relative to the typical one; NaN: it failed."""
    path: float = 0.0
    """The logarithm by which the path between groups makes these tests slower; negative."""

    steady: float = 1.0
    """The noise of all tests as a part of this class's, at most 1.

    Tests that share a path vary more, and their differences count this much less.
    """

    def compare_with_typical(self) -> None:
        """Set `log_ratio`: each test, compared with the typical figure."""
        self.log_ratio = self.steady * self.tests.log_ratio(self.typical)

    def allow_sharing(self, noise: float) -> None:
        """Allow tests through a slow path to vary: how many share it differs between rounds.

        Their differences are scaled down, until most of them are no more than the noise.
        """
        measured = self.tests.log_ratio(self.typical)[~self.failed]
        if self.tests.between and len(measured):
            spread = deviation_of_most(measured)
            self.steady = noise / max(spread, noise)
            self.compare_with_typical()

    def log_scale(self) -> float:
        """Return by how much `steady` makes the density of all figures smaller, as a logarithm."""
        return np.count_nonzero(~self.failed) * math.log(self.steady)

    def among_healthy(self, bad: Floats) -> Flags:
        """Return which tests have only members that are likely healthy, by the chances of parts."""
        return all_healthy(bad, self.members)[self.factor_of]

    def tests_of_factors(self) -> Ints:
        """Return factor → the number of its tests."""
        return np.bincount(self.factor_of, minlength=len(self.pairs))

    def per_factor(self, tests: Flags) -> Ints:
        """Return factor → how many of some tests are its own."""
        return np.bincount(self.factor_of, tests, len(self.pairs))

    def per_node(self, tests: Flags, nodes: int) -> Ints:
        """Return node → how many of some tests it takes part in."""
        members = self.tests.members[tests]
        return np.bincount(members.ravel(), minlength=nodes)

    def always(self, tests: Flags) -> Flags:
        """Return the factors whose tests are all among some."""
        return self.per_factor(tests) == self.tests_of_factors()

    def tests_of(self, row: int) -> Flags:
        """Return which tests are those of a factor."""
        return self.factor_of == row

    @property
    def ends(self) -> Ints:
        """Return test × 2 → its first and its last node, or its only one twice."""
        return self.tests.members[:, [0, -1]]

    @property
    def failed(self) -> Flags:
        """Test → whether it failed or hung."""
        return np.isnan(self.tests.values)


@frozen
class Fit:
    """The beliefs after all results."""

    nodes: Sequence[str]
    bad: Floats
    """Node → the chance that it is bad."""
    nics: Mapping[tuple[int, str], float]
    """Node and rail → the chance that this NIC is bad."""
    uplinks: Mapping[str, float]
    """Group → the chance that its uplink to others is bad."""
    groups: Grouping | None
    """The groups, named by the user or found; None: one."""
    score: float
    """The log-likelihood of the tests in the likeliest states, less what groups cost."""
    classes: Sequence[FittedClass]
    noise: float
    slow: float
    """Tests with a logarithm below this count as slow; negative."""
    tolerated: float
    """The logarithm by which healthy nodes may be slower; negative."""
    broken: Collection[int]
    """Nodes that cannot run the program; their tests say nothing else."""

    @property
    def least_apart(self) -> float:
        """The least difference of two speeds, as a logarithm; negative."""
        return _APART * self.tolerated

    @property
    def pairs(self) -> PairTests:
        """Return all tests of two nodes."""
        return _pair_tests(self.of_two())

    @property
    def pairs_below_best(self) -> PairTests:
        """Return all tests of two nodes, relative to the best figure of the same measurement."""
        log_ratio = _concatenated([below_best(each, self.classes) for each in self.of_two()])
        return self.pairs._replace(log_ratio=log_ratio)

    def of_two(self) -> Iterator[FittedClass]:
        """Yield the classes of tests of two nodes."""
        return (each for each in self.classes if each.tests.nodes_per_test == 2)


def fit(readings: Readings, *, tolerance: float = TOLERANCE) -> Fit:
    """Return the beliefs from all results, with the groups that explain them best.

    Without more, these are the user's, or none. Groups that the tests propose, and the user's as
    types, count if they explain the tests much better (`_SURE`).
    """
    readings.judge_hung()
    named = given(readings.nodes, readings.group_of)
    known = _fit_with_groups(readings, named, tolerance)
    # Found groups are proposed by tests that are not compared within the user's groups.
    plain = known if named is None else _fit_with_groups(readings, groups=None, tolerance=tolerance)
    least = -_APART * log1p(-tolerance)  # positive, unlike `Fit.least_apart`
    best = known
    count = len(plain.nodes)
    possible = list(proposals(plain.pairs, plain.slow, least, count))
    if named is not None:
        # A proposal that merges some of the user's groups: their slow uplinks say the same.
        possible = [each for each in possible if not each.merges(named)]
        # The user's groups may also be types, each with its own speed.
        possible.append(ranked(named, plain.pairs))
    # A round's tests may share the path between groups: then their figures vary, and count less.
    for groups, shared in product(possible, (False, True)):
        candidate = _fit_with_groups(readings, groups, tolerance, path_is_shared=shared)
        if candidate.score > max(best.score, known.score + _SURE):
            best = candidate
    return best


_APART = 1.5
"""Two speeds differ by at least so many tolerances."""
_SURE = 4.6
"""By how much groups must explain tests better than what is known without.

A hundred times as likely.
"""


def certain(confidence: float) -> float:
    """Return the confidence of a path or a rail that is bad: it counts, whatever is required."""
    return max(confidence, 1 - math.exp(-_SURE))


@frozen
class _Parts:
    """The numbers of what takes part in tests: nodes, their NICs rail by rail, then uplinks."""

    nodes: int
    rails: Sequence[str]
    groups: Sequence[str]
    path_is_shared: bool = False
    """Whether the tests of a round share the path between groups."""

    @property
    def first_uplink(self) -> int:
        """Return the number of the first group's uplink."""
        return self.nodes * (1 + len(self.rails))

    @property
    def count(self) -> int:
        """Return how many there are."""
        return self.first_uplink + len(self.groups)

    def first_nic(self, rail: str) -> int:
        """Return the number of the first node's NIC of a rail."""
        return self.nodes * (1 + self.rails.index(rail))

    def nic(self, part: int) -> tuple[int, str]:
        """Return the node and the rail of a NIC."""
        block, node = divmod(part, self.nodes)
        return node, self.rails[block - 1]  # before the NICs is a block of the nodes themselves


@dataclass(frozen=True, slots=True)
class _Settled:
    """The beliefs, once the typical figures and the noise no longer move."""

    states: States
    beliefs: Beliefs
    likeliest: Ints
    """Part → its likeliest state."""
    bad: Floats
    """Part → the chance that it is bad."""


def _fit_with_groups(
    readings: Readings,
    groups: Grouping | None,
    tolerance: float,
    *,
    path_is_shared: bool = False,
) -> Fit:
    """Return the beliefs from all results, with these groups.

    First what all tests together say of each part (`_settled`); then less, where this cluster's own
    rate of slow tests would explain a node or a link by chance.
    """
    count = len(readings.nodes)
    group_of = None if groups is None else groups.of
    broken = readings.endings.nodes()
    apart = groups is not None and groups.apart
    tests = readings.classes(group_of, apart=apart, without=broken)
    rails = sorted({each.rail for each in tests if each.rail})
    parts = _Parts(
        nodes=count,
        rails=rails,
        groups=[] if groups is None else groups.names,
        path_is_shared=path_is_shared,
    )
    classes = [_fitted_class(each, parts, groups) for each in tests]
    settled = _settled(classes, parts, States.of(tolerance))
    states = settled.states
    chances: list[float] = settled.bad.tolist()
    of_groups = chances[parts.first_uplink :]
    uplinks = dict(zip(parts.groups, of_groups, strict=True))
    tested_nics = _nics_tested(classes, parts)
    slow = min(states.tolerated, -2.5 * states.noise)  # a logarithm that noise hardly makes
    # Pairs may lessen what all tests say of a node; none through a slow uplink shows anything.
    judged = _pair_tests(judging(classes, uplinks))
    # The last state, failing, has no level of its own: it counts as the slowest.
    failing_too = np.append(states.levels, states.levels[-1])
    levels = failing_too[settled.likeliest[:count]]
    by_all_tests = settled.bad[:count]
    groups_found = groups is not None and not groups.given
    bad = nodes_not_by_chance(judged, by_all_tests, levels, states, groups_found=groups_found)
    for each, messages in zip(classes, settled.beliefs.messages, strict=True):
        link = _chances_of_links(each, settled.beliefs, messages, states)
        healthy = all_healthy(bad, each.tests.members)
        each.link = links_not_by_chance(link, each.factor_of, each.log_ratio, healthy, states)
        each.link[_never_connected(each, readings, bad)] = _CERTAIN
    return Fit(
        nodes=readings.nodes,
        bad=bad,
        nics={parts.nic(part): chances[part] for part in tested_nics},
        uplinks=uplinks,
        groups=groups,
        score=_score(classes, settled, groups),
        classes=classes,
        noise=states.noise,
        slow=slow,
        tolerated=states.tolerated,
        broken=broken,
    )


_CERTAIN = 0.999
"""The chance that a pair is bad whose tests all fail alike, and whose nodes are else fine."""


def _never_connected(fitted_class: FittedClass, readings: Readings, bad: Floats) -> Flags:
    """Return which pairs of healthy nodes fail alike in all of their tests."""
    failing = readings.endings.pairs()
    flags = [tuple(pair) in failing for pair in fitted_class.pairs.tolist()]
    return all_healthy(bad, fitted_class.pairs) & np.array(flags, dtype=np.bool_)


def _settled(classes: Sequence[FittedClass], parts: _Parts, states: States) -> _Settled:
    """Return beliefs, and learn typical figures, noise and rates of chance by them.

    In turns: beliefs say which tests are healthy, and these what is typical. At most three turns,
    fewer once nothing moves by more than a tenth of the noise.
    """
    for each in classes:
        each.compare_with_typical()
    _measure_paths(classes)
    rails = len({each.tests.rail for each in classes})
    states = replace(states, noise=_noise(classes, bad=None))
    if parts.path_is_shared:
        for each in classes:
            each.allow_sharing(states.noise)
    for _ in range(3):
        factors = [_factors(each, states, rails) for each in classes]
        beliefs = propagate(factors, parts.count, states)
        chances = beliefs.chances()  # part × state
        bad = chances[:, states.first_bad :].sum(axis=1)
        shift = max((_learn_typical(each, bad) for each in classes), default=0.0)
        _measure_paths(classes)
        before = states.noise
        states = replace(states, noise=_noise(classes, bad))
        fine = [each.log_ratio[each.among_healthy(bad)] for each in classes]
        states = states.learned(_concatenated(fine))
        change = abs(states.noise - before)
        if shift < 0.1 * states.noise and change < 0.1 * before:
            break
    return _Settled(states, beliefs, chances.argmax(axis=1), bad)


def _nics_tested(classes: Iterable[FittedClass], parts: _Parts) -> Sequence[int]:
    """Return the NICs that took part in tests, ascending."""
    tested = {part for each in classes for part in np.unique(each.members).tolist()}
    return [part for part in sorted(tested) if parts.nodes <= part < parts.first_uplink]


def judging(classes: Iterable[FittedClass], uplinks: Mapping[str, float]) -> Iterator[FittedClass]:
    """Yield the tests of two nodes that show something of them: none through a slow uplink."""
    slow_uplink = max(uplinks.values(), default=0.0) >= DOUBTED
    for each in classes:
        if each.tests.nodes_per_test == 2 and not (each.tests.between and slow_uplink):
            yield each


def _score(classes: Sequence[FittedClass], settled: _Settled, groups: Grouping | None) -> float:
    """Return how well the likeliest states explain all tests, less what groups cost.

    As a log-likelihood, of what is bad being flaky, or steady: whichever explains more.
    """
    states = settled.states
    flaky_or_steady = [
        _log_likelihood(classes, states, settled.likeliest, flaky) for flaky in (FLAKY, _STEADY)
    ]
    tests = sum(len(each.log_ratio) for each in classes)
    cost = 0.0 if groups is None else groups.cost(tests)
    # Densities are those of the figures, not of scaled ones.
    scales = [each.log_scale() for each in classes]
    return max(flaky_or_steady) + sum(scales) - cost


def _pair_tests(classes: Iterable[FittedClass]) -> PairTests:
    """Return the tests of classes of two nodes, as one; the logarithm of a failed one is -inf."""
    chosen = [*classes]
    nobody = np.zeros((0, 2), np.int64)  # if there are no classes, too
    members = [nobody, *(each.tests.members for each in chosen)]
    log_ratio = _concatenated([each.log_ratio for each in chosen])
    counts = [len(each.log_ratio) for each in chosen]
    between = np.array([each.tests.between for each in chosen], dtype=np.bool_)
    path = np.array([each.path for each in chosen], dtype=np.float64)
    return PairTests(
        members=np.concatenate(members),
        values=_concatenated([each.tests.values for each in chosen]),
        log_ratio=np.nan_to_num(log_ratio, nan=-np.inf),
        between=np.repeat(between, counts),
        path=np.repeat(path, counts),
    )


def _concatenated(values: Sequence[Floats]) -> Floats:
    """Return the values of several classes, one after another."""
    return np.concatenate([np.zeros(0), *values])


_STEADY = 0.05
"""The fraction of its tests in which something steadily bad does not show."""


def _log_likelihood(
    classes: Sequence[FittedClass], states: States, likeliest: Ints, flaky: float
) -> float:
    """Return the log-likelihood of all tests, and of the likeliest states of all parts.

    `likeliest`: part → its likeliest state, a larger number is worse; `flaky`: the fraction of
    tests in which something bad does not show.
    """
    prior = np.log(states.prior(NODE_PRIOR))
    total = float(prior[likeliest].sum())
    link = np.log(states.prior(LINK_PRIOR))
    for each in classes:
        evidence = _evidence(each, states, flaky)
        worst = likeliest[each.members].max(axis=1)
        # The link is healthy, or in a worse state than its nodes.
        if_healthy = evidence[np.arange(len(worst)), worst]
        worst_fine = np.maximum(worst, states.first_bad - 1)  # a bad link is in no healthy state
        possible = np.arange(states.count) > worst_fine[:, None]
        if_worse = np.where(possible, evidence + link, -np.inf)
        best = np.maximum(if_healthy, if_worse.max(axis=1))
        total += float(best.sum())
    return total


def _fitted_class(tests: TestClass, parts: _Parts, groups: Grouping | None) -> FittedClass:
    """Return tests that are not fitted yet. All tests of the same nodes are one factor."""
    pairs, factor_of = np.unique(tests.members, axis=0, return_inverse=True)
    return FittedClass(
        tests=tests,
        pairs=pairs,
        factor_of=factor_of.reshape(-1),
        members=_members(tests, pairs, parts, groups),
        link=np.zeros(len(pairs)),
        typical=_first_typical(tests),
    )


def _members(tests: TestClass, pairs: Ints, parts: _Parts, groups: Grouping | None) -> Ints:
    """Return factor × slot → the number of a node, its NIC, or its group's uplink.

    Uplinks take part in pairs between groups only, not in tests of more nodes.
    """
    slots = [pairs]
    if tests.rail:
        slots.append(pairs + parts.first_nic(tests.rail))
    if groups is not None and tests.between and tests.nodes_per_test == 2:
        slots.append(groups.of[pairs] + parts.first_uplink)
    return np.concatenate(slots, axis=1)


def _first_typical(tests: TestClass) -> Floats:
    """Return series → the value of the median node, before it is known which tests are healthy.

    A node's value is its upper quartile, or its best test if it has few: faults make tests slower,
    never faster.
    """
    last = int(tests.series.max(initial=-1))
    typical = np.zeros(last + 1, dtype=np.float32)
    measured = ~np.isnan(tests.values)
    for series in tests.known_series():
        chosen = measured & (tests.series == series)
        if chosen.any():
            typical[series] = _typical_of(tests.members[chosen], tests.values[chosen])
    return typical


def _typical_of(members: Ints, measured: Floats) -> float:
    # Each node's good tests; of these, the median node; at last, the median of tests near it.
    nodes = members.T.reshape(-1)  # a test is one of each of its nodes
    tests = by_key(nodes, np.tile(measured, members.shape[1]))
    upper_quartile = 3 * tests.counts // 4
    good = np.where(tests.counts < _FEW_TESTS, tests.counts - 1, upper_quartile)
    of_nodes = tests.values[tests.starts + good]
    typical = float(np.median(of_nodes))
    near = measured[np.abs(measured - typical) < _NEAR_TYPICAL]
    return float(np.median(near)) if len(near) else typical


# Of fewer tests of a node, the best counts as its good one.
_FEW_TESTS = 9
# Within this logarithm of the median node, tests tell the typical figure.
_NEAR_TYPICAL = 0.2


def _learn_typical(fitted_class: FittedClass, bad: Floats) -> float:
    """Update the typical figures of a class from its healthy tests; return how far they moved."""
    fine = _healthy(fitted_class, bad)
    moved = 0.0
    for series in fitted_class.tests.known_series():
        chosen = fine & (fitted_class.tests.series == series)
        if chosen.any():
            typical = float(np.median(fitted_class.tests.values[chosen]))
            moved = max(moved, abs(typical - fitted_class.typical[series]))
            fitted_class.typical[series] = typical
    fitted_class.compare_with_typical()
    return moved


def _measure_paths(classes: Sequence[FittedClass]) -> None:
    """Set how much slower tests between groups are than those within the fastest one.

    Of several measurements, that by which the path slows most: others may not load it.
    """
    within = [each for each in classes if not each.tests.between]
    for each in classes:
        if each.tests.between:
            better = better_typical(each, within)
            each.path = -float(better[each.tests.known_series()].max())


def better_typical(fitted_class: FittedClass, others: Iterable[FittedClass]) -> Floats:
    """Return series → by how much the best typical figure of the same measurement is better.

    As a logarithm, at least 0. `others`: where to look for the best.
    """
    kinds = fitted_class.tests.kinds  # a series modulo this is the measurement, in any group
    best = np.full(kinds, -np.inf)  # measurement → its best typical figure
    for other in others:
        if other.tests.is_like(fitted_class.tests):
            series = np.array(other.tests.known_series())
            np.maximum.at(best, series % kinds, other.typical[series])
    kind = np.arange(len(fitted_class.typical)) % kinds  # series → the measurement
    return np.maximum(best[kind] - fitted_class.typical, 0.0)


def below_best(fitted_class: FittedClass, others: Iterable[FittedClass]) -> Floats:
    """Return test → its logarithm relative to the best typical figure of the same measurement."""
    better = better_typical(fitted_class, others)
    return fitted_class.log_ratio - better[fitted_class.tests.series]


def _healthy(fitted_class: FittedClass, bad: Floats | None) -> Flags:
    """Return which tests are of likely healthy members, and within a factor of 1.6 of typical."""
    # A failed test is far; `bad` is None while nothing is known of the members.
    near = np.abs(np.nan_to_num(fitted_class.log_ratio, nan=9.0)) < 0.5
    return near if bad is None else near & fitted_class.among_healthy(bad)


def _noise(classes: Sequence[FittedClass], bad: Floats | None) -> float:
    """Return the standard deviation of healthy tests, with the usual noise as some more of them."""
    healthy = [each.log_ratio[_healthy(each, bad)] for each in classes]
    values = np.sort(_concatenated(healthy))
    squares = USUAL_WEIGHT * USUAL_NOISE**2
    if len(values):
        squares = len(values) * _shorth(values) ** 2 + squares
    mean_square = squares / (len(values) + USUAL_WEIGHT)
    return max(math.sqrt(mean_square), _LEAST_NOISE)


def _shorth(values: Floats) -> float:
    """Return the standard deviation that the shortest half of ascending values shows.

    Faults do not affect it.
    """
    count = len(values)
    half = (count + 1) // 2
    last = half - 1
    lengths = values[last:] - values[: count - last]
    small_sample = 1 + 2 / count  # the shortest half of few values is too short
    # Half of a normal distribution is 1.349 standard deviations wide.
    return float(lengths.min() / 1.349 * small_sample)


def _factors(fitted_class: FittedClass, states: States, rails: int) -> Factors:
    """Return the factors of a class: for nodes, all NICs of a test are one test.

    `rails`: how many rails all tests together have; 1 where NICs are not tested one by one.
    """
    nodes_per_test = fitted_class.tests.nodes_per_test
    # The NICs of a test share its noise: for a node and an uplink, each is a part of one test.
    weights: Floats = np.full(fitted_class.members.shape[1], 1 / rails)
    if fitted_class.tests.rail:
        weights[nodes_per_test : 2 * nodes_per_test] = 1.0  # the columns of the NICs themselves
    return Factors(
        members=fitted_class.members,
        evidence=_evidence(fitted_class, states),
        # That any link among so many is bad, at most 5 %
        link_prior=min(LINK_PRIOR * (nodes_per_test - 1), 0.05),
        weights=weights,
    )


def _evidence(fitted_class: FittedClass, states: States, flaky: float = FLAKY) -> Floats:
    """Return factor × state → the log-likelihood of its tests.

    `flaky`: the fraction of tests in which something bad does not show; of more than two nodes it
    is at most `FLAKY_IN_GROUPS`. That the path between groups slows them is no sign of a fault.
    """
    if fitted_class.tests.nodes_per_test > 2:
        flaky = min(flaky, FLAKY_IN_GROUPS)
    likelihood = states.likelihood(fitted_class.log_ratio, flaky, fitted_class.path)
    evidence = np.zeros((len(fitted_class.pairs), states.count))
    np.add.at(evidence, fitted_class.factor_of, np.log(likelihood))
    return evidence


def _chances_of_links(
    fitted_class: FittedClass, beliefs: Beliefs, messages: Floats, states: States
) -> Floats:
    """Return factor → the chance that its link is bad; 0 where no test is slow or failed.

    `messages`: what the tests of this class say of their members. Without these, the members are
    known by their other tests only.
    """
    chances = np.zeros(len(fitted_class.pairs), dtype=np.float32)
    if fitted_class.tests.nodes_per_test < 2:  # a node that is tested alone has no link
        return chances
    # Links without a test that is slow or failed, or nearly so, are fine.
    nearly_slow = min(states.levels[states.first_bad] / 2, -states.noise)
    slow = fitted_class.failed | (fitted_class.log_ratio < nearly_slow)
    likely = np.unique(fitted_class.factor_of[slow])
    others = beliefs.without(fitted_class.members[likely], messages[likely])
    evidence = _evidence(fitted_class, states)
    chances[likely] = links(evidence[likely], others, states)
    return chances
