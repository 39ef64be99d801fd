"""Groups of nodes, such as those behind one leaf switch, as the tests show them.

Faults make tests slower, never faster: nodes that a chain of fast pairs connects are behind one
switch, and where no fast pair leads from one such set to another, the path between them is slow.
Nodes of an older type are slow with everybody, themselves included: a pair is as fast as the slower
type. Both are proposals; `fit` decides whether they explain tests better than bad nodes.
"""

import math
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from string import ascii_uppercase

import numpy as np

from fabbench.sweep.beliefs import USUAL_NOISE, USUAL_WEIGHT, PairTests, student
from fabbench.sweep.readings import Flags, Floats, Ints

FEW = 0.25
"""More than this part of the nodes is not bad, but different."""

_ANYTHING = 0.03
"""The density of a figure that has nothing to do with its group."""
_SUPPOSED = math.log(10)
"""What tests must say for any groups that nobody named: a tenth as likely as none, beforehand."""


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
        """Return whether one group here is several of the others, and the rest are the same.

        Slow uplinks of the others say the same.
        """
        both = np.stack((others.of, self.of), axis=1)
        pairs = np.unique(both, axis=0)
        if len(pairs) != len(others.names):  # one of the others is divided here
            return False
        merged = np.sort(np.bincount(pairs[:, 1]))  # group here → how many others it has
        return bool((merged[:-1] == 1).all())  # only one has several

    def cost(self, tests: int) -> float:
        """Return the cost of nodes to place and figures to fit, in units of a log-likelihood.

        Half a logarithm of the tests per figure; per node, the entropy of the groups' sizes. Groups
        that the user named are placed already.
        """
        if self.given and not self.apart:
            return 0.0
        sizes = np.bincount(self.of)
        shares = sizes[sizes > 0] / len(self.of)
        # Types have a figure each; other groups one more, of the tests between them.
        figures = len(shares) if self.apart else 1
        fitting = 0.5 * figures * math.log(max(tests, 2))
        if self.given:
            return fitting
        entropy = float(-(shares * np.log(shares)).sum())
        return len(self.of) * entropy + _SUPPOSED + fitting


def given(nodes: Sequence[str], group_of: Mapping[str, str]) -> Grouping | None:
    """Return the groups that the user named; None if there are fewer than two.

    Nodes that the user did not place are a group of their own.
    """
    names = sorted({group_of.get(node, "") for node in nodes})
    if len(names) < 2:
        return None
    numbers = [names.index(group_of.get(node, "")) for node in nodes]
    return Grouping(np.array(numbers), names, given=True)


def proposals(tests: PairTests, slow: float, least: float, count: int) -> Iterator[Grouping]:
    """Yield groups of nodes that could explain the results of pairs; those below `slow` are slow.

    `least`: the least difference between fast and slow pairs. `count`: the number of nodes.
    """
    tests = tests.only(np.isfinite(tests.log_ratio))
    pairs = tests.members
    log_ratio = tests.log_ratio
    links = tests.links(count)
    if not len(pairs):
        return
    types = _types(count, pairs, log_ratio, least)
    if types is not None:
        yield types
    # There may be more slow pairs than fast ones: then the middle of both speeds divides them.
    middle = between_two(log_ratio, least)
    limits = [slow] if middle is None else [slow, middle]
    for limit in limits:
        fast = log_ratio >= limit
        groups = _islands(count, pairs, fast)
        if groups is None:
            # Perhaps one measurement of several alone loads the path between groups: then pairs
            # are fast all of whose tests are.
            always_fast = ~np.isin(links, links[~fast])
            groups = _islands(count, pairs, always_fast)
        if groups is not None:
            yield _refined(groups, pairs, log_ratio)


def _types(count: int, pairs: Ints, log_ratio: Floats, least: float) -> Grouping | None:
    """Return nodes by their speed, that of their best test, if there are several speeds.

    Nodes that are alone with their speed, and few slow ones, are bad rather than another type.
    """
    speeds = _speeds(count, pairs, log_ratio)
    typical = np.array(_typical_speeds(speeds, least))  # the fastest first
    if len(typical) < 2:
        return None
    distances = np.abs(speeds[:, None] - typical)
    of = distances.argmin(axis=1)
    others = count - np.bincount(of).max()  # nodes that are not of the largest type
    if others <= FEW * count:  # they are bad, and no type
        return None
    return Grouping(of, _letters(typical), apart=True)


def _speeds(count: int, pairs: Ints, log_ratio: Floats) -> Floats:
    """Return node → its best test, larger is faster; minus infinity: none succeeded."""
    speeds = np.full(count, -np.inf)
    for nodes in pairs.T:
        np.maximum.at(speeds, nodes, log_ratio)
    return speeds


def _typical_speeds(speeds: Floats, least: float) -> list[float]:
    """Return the medians of clusters of several nodes, descending.

    A node that is slower than the median of the last by more than `least` begins the next cluster.
    """
    measured = speeds[np.isfinite(speeds)]
    ascending: list[float] = np.sort(measured).tolist()
    clusters: list[list[float]] = [[]]
    for speed in reversed(ascending):
        last = clusters[-1]
        # Two single speeds differ more by noise than one does from a median.
        near = least if len(last) > 1 else 1.5 * least
        if last and _middle(last) - speed > near:
            clusters.append([speed])
        else:
            last.append(speed)
    return [_middle(each) for each in clusters if len(each) > 1]


def _middle(ordered: Sequence[float]) -> float:
    # The median; of an even number, the second of the middle ones.
    return ordered[len(ordered) // 2]


def ranked(groups: Grouping, tests: PairTests) -> Grouping:
    """Return groups as types, the fastest first by the best tests of their nodes."""
    speeds = _speeds(len(groups.of), tests.members, tests.log_ratio)
    numbers = range(len(groups.names))
    medians = [np.median(speeds[groups.of == number]) for number in numbers]
    order = np.argsort(np.negative(medians), kind="stable")  # groups, the fastest first
    place = np.argsort(order)  # group → its number in this order
    names = [groups.names[number] for number in order.tolist()]
    return Grouping(place[groups.of], names, apart=True, given=groups.given)


def slower_of_two(values: Floats, least: float) -> int:
    """Return how many values have the lower of two speeds; 0: noise may have made both."""
    limit = between_two(values, least)
    return 0 if limit is None else int((values < limit).sum())


def between_two(values: Floats, least: float) -> float | None:
    """Return the middle of two speeds; None: they are less than `least` apart, or made by noise.

    The fewer the values, the more often noise alone divides them. Thresholds are by simulation: at
    8 % of noise, 2 % of values of one speed pass for two.
    """
    # From both ends: the medians of the values nearer to each, until they settle.
    low, high = np.quantile(values, (0.1, 0.9))
    for _ in range(20):
        slow = values < (low + high) / 2
        if slow.all() or not slow.any():
            return None
        low = np.median(values[slow])
        high = np.median(values[~slow])
    count = len(values)
    deviation = values - np.where(slow, low, high)
    usual = USUAL_WEIGHT * USUAL_NOISE**2
    squares = float((deviation**2).sum()) + usual
    # The noise of one speed. Two levels are fitted; the usual noise is as of some values more.
    within = math.sqrt(squares / (count - 2 + USUAL_WEIGHT))
    by_noise = (_TWO_SPEEDS + _FEW_VALUES / count) * within
    if high - low <= max(least, by_noise):
        return None
    return float(low + high) / 2


def deviation_of_most(deviation: Floats) -> float:
    """Return the standard deviation of most, by the median absolute deviation: without outliers."""
    return 1.4826 * float(np.median(np.abs(deviation)))


_TWO_SPEEDS = 3.0
"""How many standard deviations separate two speeds of many tests."""
_FEW_VALUES = 15.0
"""By how much more, divided by their number, few values must be apart."""


def _grouping(of: Ints) -> Grouping:
    """Return groups that are numbered by their first node, and named by letters.

    `of`: node → any number that all nodes of its group share.
    """
    _, first, numbers = np.unique(of, return_index=True, return_inverse=True)
    place = np.argsort(np.argsort(first))  # group in the order of `of` → its new number
    return Grouping(place[numbers], _letters(first))


def _letters(groups: Sized) -> Sequence[str]:
    return [_letter(number) for number in range(len(groups))]


def _letter(number: int) -> str:
    """Return the name of a group: A to Z, then AA, BB and so on."""
    letters = ascii_uppercase[number % 26] * (1 + number // 26)
    return f"group {letters}"


def _islands(count: int, pairs: Ints, fast: Flags) -> Grouping | None:
    """Return the sets of nodes that fast pairs connect, if several have two or more nodes.

    Single nodes, such as bad ones, are with the largest until they are moved.
    """
    root = _connected(count, pairs[fast])
    sizes = np.bincount(root)  # root → how many nodes it connects
    if (sizes > 1).sum() < 2:
        return None
    root[sizes[root] == 1] = sizes.argmax()
    return _grouping(root)


def _connected(count: int, pairs: Ints) -> Ints:
    """Return node → the lowest node that pairs connect it to, over however many others."""
    root = np.arange(count)
    while len(pairs):  # lower numbers spread along the pairs, until none changes
        low = root[pairs].min(axis=1)
        before = root.copy()
        np.minimum.at(root, pairs[:, 0], low)
        np.minimum.at(root, pairs[:, 1], low)
        root = root[root]
        if (root == before).all():
            break
    return root


def _refined(groups: Grouping, pairs: Ints, log_ratio: Floats) -> Grouping:
    """Move nodes to the group that their tests fit best, until none moves."""
    of = groups.of.copy()
    for _ in range(30):
        first, second = of[pairs].T
        inside = first == second
        if inside.all() or not inside.any():
            break
        gain = _gain_inside(log_ratio, inside)
        fits = _fits(of, len(groups.names), pairs, gain)  # node × group, larger is better
        current = fits[np.arange(len(of)), of]
        better = fits.max(axis=1) - current
        moving = np.flatnonzero(better > 1e-2)  # less is only the size of a group
        if not len(moving):
            break
        # Half of them at once: two that belong together do not change places for ever.
        order = np.argsort(-better[moving], kind="stable")
        half = max(len(moving) // 2, 1)
        chosen = moving[order][:half]
        of[chosen] = fits[chosen].argmax(axis=1)
    return _grouping(of)


def _gain_inside(log_ratio: Floats, inside: Flags) -> Floats:
    """Return how much better each test fits its nodes being in one group, as a logarithm.

    What a bad node or chance made says little.
    """
    within = np.median(log_ratio[inside])
    across = np.median(log_ratio[~inside])
    noise = max(deviation_of_most(log_ratio[inside] - within), 0.02)  # at least 2 %
    if_inside = _density(log_ratio - within, noise)
    if_across = _density(log_ratio - across, noise)
    return np.log(if_inside / if_across)


def _fits(of: Ints, count: int, pairs: Ints, gain: Floats) -> Floats:
    """Return node × group → how well the tests of the node fit it; large groups win ties.

    `of`: node → its group now; `count`: groups; `gain`: test → how much better it fits one group.
    """
    fits = np.zeros((len(of), count))
    for node, partner in (pairs.T, pairs.T[::-1]):
        np.add.at(fits, (node, of[partner]), gain)  # if the node were in its partner's group
    shares = np.bincount(of, minlength=count) / len(of)
    return fits + 1e-3 * shares


def _density(deviation: Floats, noise: float) -> Floats:
    """Return the density of a test: Student's t, and a small density of any figure at all."""
    return student(deviation / noise) / noise + _ANYTHING
