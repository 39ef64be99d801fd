"""Groups of nodes, such as those behind one leaf switch, as the tests show them.

Faults make tests slower, never faster: nodes that a chain of fast pairs connects are behind one
switch, and where no fast pair leads from one such set to another, the path between them is slow.
Nodes of an older type are slow with everybody, themselves included: a pair is as fast as the slower
type. Both are proposals; `fit` decides whether they explain tests better than bad nodes.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import TypeAlias

import numpy as np

from fabbench.sweep.beliefs import USUAL_NOISE, USUAL_WEIGHT, PairTests
from fabbench.sweep.readings import Flags, Floats, Ints

FEW = 0.25
"""More than this part of the nodes is not bad, but different."""


Clusters: TypeAlias = list[list[int]]
"""Nodes of about one speed each, the fastest first."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """Which group each node is in."""

    of: Ints
    """Node → number of its group."""
    names: Sequence[str]
    apart: bool = False
    """Whether each group has a figure of its own, as types have; the fastest group is first."""
    given: bool = False
    """Whether the user named the groups."""

    def merges(self, others: "Grouping") -> bool:
        """Return whether these are others, of which several are one group.

        Slow uplinks of others say the same.
        """
        both = np.stack((others.of, self.of), axis=1)
        pairs = np.unique(both, axis=0)
        if len(pairs) != len(others.names):
            return False
        merged = np.sort(np.bincount(pairs[:, 1]))
        return bool((merged[:-1] == 1).all())

    def cost(self, tests: int) -> float:
        """Return the cost of nodes to place and figures to fit, in units of a log-likelihood."""
        if self.given and not self.apart:
            return 0.0
        sizes = np.bincount(self.of)
        shares = sizes[sizes > 0] / len(self.of)
        figures = len(shares) if self.apart else 1
        fitting = 0.5 * figures * math.log(max(tests, 2))
        if self.given:
            return fitting
        entropy = float(-(shares * np.log(shares)).sum())
        return len(self.of) * entropy + math.log(10) + fitting


def given(nodes: Sequence[str], group_of: Mapping[str, str]) -> Grouping | None:
    """Return the groups that the user named; None if there are fewer than two."""
    names = sorted({group_of.get(node, "") for node in nodes})
    if len(names) < 2:
        return None
    numbers = [names.index(group_of.get(node, "")) for node in nodes]
    return Grouping(np.array(numbers), names, given=True)


def proposals(tests: PairTests, slow: float, least: float, count: int) -> Iterator[Grouping]:
    """Yield groups of nodes that could explain the results of pairs; those below `slow` are slow.

    `least`: the least difference between fast and slow pairs. `count`: the number of nodes.
    """
    known = np.isfinite(tests.slower)
    pairs = tests.members[known]
    slower = tests.slower[known]
    if not len(pairs):
        return
    types = _types(count, pairs, slower, least)
    if types is not None:
        yield types
    for limit in dict.fromkeys((slow, valley(slower, slow, least))):
        groups = _islands(count, pairs, slower >= limit)
        if groups is not None:
            yield _refined(groups, pairs, slower)


def _types(count: int, pairs: Ints, slower: Floats, least: float) -> Grouping | None:
    """Return nodes by their speed, that of their best test, if there are several speeds.

    Nodes that are alone with their speed, and few slow ones, are bad rather than another type.
    """
    speeds = _speeds(count, pairs, slower)
    clusters: Clusters = []
    before = math.inf
    for node in np.argsort(-speeds, kind="stable").tolist():
        speed = float(speeds[node])
        if before - speed <= least / 2:
            clusters[-1].append(node)
        elif np.isfinite(speed):
            clusters.append([node])
        before = speed
    types = _joined(clusters, speeds, least)
    others = count - max(map(len, types))
    if len(types) < 2 or others <= FEW * count:
        return None
    of = np.zeros(count, dtype=np.int64)
    for number, members in enumerate(types):
        of[members] = number
    names = [_letter(number) for number in range(len(types))]
    return Grouping(of, names, apart=True)


def _speeds(count: int, pairs: Ints, slower: Floats) -> Floats:
    """Return node → its best test; minus infinity: none succeeded."""
    speeds = np.full(count, -np.inf)
    for nodes in pairs.T:
        np.maximum.at(speeds, nodes, slower)
    return speeds


def _joined(clusters: Clusters, speeds: Floats, least: float) -> Clusters:
    """Return clusters of which each has several nodes, and another speed than the one before."""
    joined: Clusters = []
    last: list[int] = []
    median = math.inf
    for members in _with_nearest(clusters, speeds, least):
        own = float(np.median(speeds[members]))
        near = median - own <= least
        alone = len(members) == 1
        if joined and (near or alone or len(last) == 1):
            last += members
        else:
            last = [*members]
            joined.append(last)
        median = float(np.median(speeds[last]))
    return joined


def _with_nearest(clusters: Clusters, speeds: Floats, least: float) -> Iterator[list[int]]:
    """Yield clusters, with nodes that are alone in the next slower one if that is the nearer."""
    medians = [float(np.median(speeds[members])) for members in clusters]
    differences: list[float] = (-np.diff(medians)).tolist()
    apart = [math.inf, *differences, math.inf]
    # Before each cluster, and after it: by how much the slower of two is slower.
    waiting: list[int] = []
    for number, members in enumerate(clusters):
        from_faster, to_slower = apart[number : number + 2]
        if len(members) == 1 and to_slower < min(from_faster, least):
            waiting += members
            continue
        yield waiting + members
        waiting = []


def ranked(groups: Grouping, tests: PairTests) -> Grouping:
    """Return groups as types, the fastest first by the best tests of their nodes."""
    speeds = _speeds(len(groups.of), tests.members, tests.slower)
    numbers = range(len(groups.names))
    medians = [np.median(speeds[groups.of == number]) for number in numbers]
    order = np.argsort(np.negative(medians), kind="stable")
    place = np.argsort(order)
    names = [groups.names[number] for number in order.tolist()]
    return Grouping(place[groups.of], names, apart=True, given=groups.given)


@dataclass(frozen=True, slots=True)
class _TwoSpeeds:
    """Values, divided by the middle between the medians of both parts."""

    fast: Flags
    low: float
    """The median of the slow ones."""
    high: float
    """The median of the fast ones."""
    deviation: Floats
    """Value → how far it is from the median of its part."""

    @property
    def apart(self) -> float:
        """Return how far the two medians are apart."""
        return self.high - self.low


def _two_speeds(values: Floats) -> _TwoSpeeds | None:
    """Return values in two parts; None: they have but one."""
    low, high = np.quantile(values, (0.1, 0.9))
    for _ in range(20):
        upper = values >= (low + high) / 2
        if upper.all() or not upper.any():
            return None
        low = np.median(values[~upper])
        high = np.median(values[upper])
    deviation = np.where(upper, values - high, values - low)
    return _TwoSpeeds(upper, float(low), float(high), deviation)


def valley(values: Floats, slow: float, least: float) -> float:
    """Return what separates fast values from slow ones, of which there may be more, by two medians.

    Else `slow`.
    """
    speeds = _two_speeds(values)
    if speeds is None:
        return slow
    within = deviation_of_most(speeds.deviation)
    if speeds.apart <= max(least, _APART * within):
        return slow
    return (speeds.low + speeds.high) / 2


def slower_of_two(values: Floats, least: float) -> int:
    """Return how many values have the lower of two speeds; 0: noise may have made both.

    The fewer they are, the more often noise alone divides them. Thresholds are by simulation: at
    8 % of noise, 2 % of values of one speed pass for two.
    """
    count = len(values)
    speeds = _two_speeds(values)
    if speeds is None or speeds.apart <= least:
        return 0
    usual = USUAL_WEIGHT * USUAL_NOISE**2
    squares = float((speeds.deviation**2).sum()) + usual
    within = math.sqrt(squares / (count - 2 + USUAL_WEIGHT))
    if speeds.apart <= (_TWO_SPEEDS + _FEW_VALUES / count) * within:
        return 0
    return int((~speeds.fast).sum())


def deviation_of_most(deviation: Floats) -> float:
    """Return the standard deviation of most, from the median absolute deviation."""
    return 1.4826 * float(np.median(np.abs(deviation)))


_APART = 3.5
"""How many standard deviations separate two kinds of pairs.

The halves of one normal distribution are 2.6 apart.
"""
_TWO_SPEEDS = 3.0
"""The same of many healthy tests, from the root mean square of their deviations."""
_FEW_VALUES = 15.0
"""By how much more, divided by their number, few values must be apart."""


def _grouping(of: Ints) -> Grouping:
    """Return groups that are numbered by their first node, and named by letters."""
    _, first, numbers = np.unique(of, return_index=True, return_inverse=True)
    names = [_letter(number) for number in range(len(first))]
    place = np.argsort(np.argsort(first))
    return Grouping(place[numbers], names)


def _letter(number: int) -> str:
    """Return the name of a group: A to Z, then A1."""
    letter = ascii_uppercase[number % 26]
    again = number // 26
    return f"group {letter}{again}" if again else f"group {letter}"


def _islands(count: int, pairs: Ints, fast: Flags) -> Grouping | None:
    """Return the sets of nodes that fast pairs connect, if several have two or more nodes."""
    root = _connected(count, pairs[fast])
    _, numbers, sizes = np.unique(root, return_inverse=True, return_counts=True)
    if (sizes > 1).sum() < 2:
        return None
    islands = _Islands(sizes, numbers[pairs[~fast]])
    islands.join()
    if len(islands.kept) < 2:
        return None
    return _grouping(islands.joined[numbers])


class _Islands:
    """Sets of nodes that fast pairs connect, of which some join others."""

    def __init__(self, sizes: Ints, slow_pairs: Ints) -> None:
        """`slow_pairs`: the sets of both nodes of each slow pair."""
        count = len(sizes)
        self.joined: Ints = np.arange(count)
        """Set → the one that it joined, or itself."""
        self.kept: list[int] = []
        """Sets that joined no other, the largest first."""
        self._sizes = sizes
        self._slow: Ints = np.zeros((count, count), dtype=np.int64)
        """Set × set → the number of slow pairs between them."""
        first, second = slow_pairs.T
        np.add.at(self._slow, (first, second), 1)
        self._slow += self._slow.T
        np.fill_diagonal(self._slow, 0)

    def join(self) -> None:
        """Let each set join the largest one to which it has no slow pair."""
        for number in np.argsort(-self._sizes, kind="stable").tolist():
            home = self._home(number)
            if home is None:
                self.kept.append(number)
            else:
                self._merge(number, home)

    def _home(self, number: int) -> int | None:
        """Return the set that another one joins, if there is one.

        A single node that is slow with everybody, such as a bad one, joins where it is so least.
        """
        for other in self.kept:
            if not self._slow[number, other]:
                return other
        if self._sizes[number] > 1:
            return None
        share: list[float] = (self._slow[number] / self._sizes).tolist()
        return min(self.kept, key=lambda other: share[other], default=None)

    def _merge(self, number: int, home: int) -> None:
        self.joined[number] = home
        self._slow[home] += self._slow[number]
        self._slow[:, home] += self._slow[:, number]
        self._sizes[home] += self._sizes[number]


def _connected(count: int, pairs: Ints) -> Ints:
    """Return node → the lowest node that pairs connect it to."""
    root = np.arange(count)
    while len(pairs):
        low = root[pairs].min(axis=1)
        before = root.copy()
        np.minimum.at(root, pairs[:, 0], low)
        np.minimum.at(root, pairs[:, 1], low)
        root = root[root]
        if (root == before).all():
            break
    return root


def _refined(groups: Grouping, pairs: Ints, slower: Floats) -> Grouping:
    """Move nodes to the group that their tests fit best, until none moves."""
    of = groups.of.copy()
    for _ in range(30):
        first, second = of[pairs].T
        inside = first == second
        if inside.all() or not inside.any():
            break
        gain = _gain_inside(slower, inside)
        fits = _fits(of, len(groups.names), pairs, gain)
        current = fits[np.arange(len(of)), of]
        better = fits.max(axis=1) - current
        moving = np.flatnonzero(better > 1e-2)
        if not len(moving):
            break
        # Half of them at once: two that belong together do not change places for ever.
        order = np.argsort(-better[moving], kind="stable")
        half = max(len(moving) // 2, 1)
        chosen = moving[order][:half]
        of[chosen] = fits[chosen].argmax(axis=1)
    return _grouping(of)


def _gain_inside(slower: Floats, inside: Flags) -> Floats:
    """Return how much better each test fits its nodes being in one group, as a logarithm.

    What a bad node or chance made says little.
    """
    within = np.median(slower[inside])
    across = np.median(slower[~inside])
    noise = max(deviation_of_most(slower[inside] - within), 0.02)
    one_group = _density(slower - within, noise)
    two_groups = _density(slower - across, noise)
    return np.asarray(np.log(one_group / two_groups))


def _fits(of: Ints, count: int, pairs: Ints, gain: Floats) -> Floats:
    """Return node × group → how well the tests of the node fit it; large groups win ties."""
    fits = np.zeros((len(of), count))
    for node, partner in (pairs.T, pairs.T[::-1]):
        np.add.at(fits, (node, of[partner]), gain)
    shares = np.bincount(of, minlength=count) / len(of)
    return np.asarray(fits + 1e-3 * shares)


def _density(deviation: Floats, noise: float) -> Floats:
    """Return the density of Student's t with 6 degrees of freedom, and some of anything."""
    tails = (1 + (deviation / noise) ** 2 / 6) ** -3.5
    return np.asarray(tails * 0.383 / noise + 0.03)
