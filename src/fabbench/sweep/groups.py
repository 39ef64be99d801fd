"""Groups of nodes, such as those behind one leaf switch, as the tests show them.

Faults make tests slower, never faster: nodes that a chain of fast pairs connects are behind one
switch, and where no fast pair leads from one such set to another, the path between them is slow.
Nodes of an older type are slow with everybody, themselves included. Both are proposals; `fit`
decides whether they explain tests better than bad nodes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fabbench.sweep.beliefs import PairTests
from fabbench.sweep.readings import Flags, Floats, Ints

FEW = 0.25
"""More than this part of the nodes is not bad, but different."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """Which group each node is in."""

    of: Ints
    """Node → number of its group."""
    names: Sequence[str]
    apart: bool = False
    """Whether each group has a figure of its own, as older types have."""
    given: bool = False
    """Whether the user named the groups."""

    def merges(self, others: "Grouping") -> bool:
        """Return whether these are others, of which several are one group.

        Slow uplinks of others say the same.
        """
        pairs = np.unique(np.stack((others.of, self.of), axis=1), axis=0)
        merged = np.sort(np.bincount(pairs[:, 1]))
        return bool(len(pairs) == len(others.names) and (merged[:-1] == 1).all())

    def cost(self, tests: int) -> float:
        """Return what the groups cost, in units of the logarithm of a likelihood.

        Nodes to place, figures to fit.
        """
        if self.given:
            return 0.0
        sizes = np.bincount(self.of)
        shares = sizes[sizes > 0] / len(self.of)
        own = len(shares) if self.apart else 1
        return float(
            -len(self.of) * (shares * np.log(shares)).sum()
            + np.log(10)
            + 0.5 * own * np.log(max(tests, 2))
        )


def given(nodes: Sequence[str], group_of: Mapping[str, str]) -> Grouping | None:
    """Return the groups that the user named; None if there are fewer than two."""
    names = sorted({group_of.get(node, "") for node in nodes})
    if len(names) < 2:
        return None
    return Grouping(
        np.array([names.index(group_of.get(node, "")) for node in nodes]), names, given=True
    )


def proposals(tests: PairTests, slow: float, least: float, bad: Flags) -> Iterator[Grouping]:
    """Yield groups of nodes that could explain the results of pairs, of which those below `slow` are slow.

    `least`: the least difference between fast and slow pairs. `bad`: whether each node is likely bad if there are none.
    """
    known, count = np.isfinite(tests.slower), len(bad)
    pairs, slower = tests.members[known], tests.slower[known]
    if not len(pairs):
        return
    if bad.sum() > FEW * count:
        yield _grouping(bad.astype(np.int64), apart=True)
    for limit in dict.fromkeys((slow, _valley(slower, slow, least))):
        groups = _islands(count, pairs, slower >= limit)
        if groups is not None:
            yield groups if groups.apart else _refined(groups, pairs, slower)


def _valley(values: Floats, slow: float, least: float) -> float:
    """Return what separates fast values from slow ones, of which there may be more, by two medians.

    Else `slow`.
    """
    low, high = np.quantile(values, (0.1, 0.9))
    for _ in range(20):
        upper = values >= (low + high) / 2
        if upper.all() or not upper.any():
            return slow
        low, high = np.median(values[~upper]), np.median(values[upper])
    within = 1.4826 * np.median(np.abs(np.where(upper, values - high, values - low)))
    return float((low + high) / 2) if high - low > max(least, _APART * within) else slow


_APART = 3.5
"""How many standard deviations separate two kinds of pairs.

The halves of one normal distribution are 2.6 apart.
"""


def _grouping(of: Ints, *, apart: bool) -> Grouping:
    """Return groups that are numbered by their first node, and named by letters."""
    _, first, numbers = np.unique(of, return_index=True, return_inverse=True)
    names = [
        f"group {chr(ord('A') + number % 26)}{number // 26 or ''}" for number in range(len(first))
    ]
    return Grouping(np.argsort(np.argsort(first))[numbers], names, apart)


def _islands(count: int, pairs: Ints, fast: Flags) -> Grouping | None:
    """Return the sets of nodes that fast pairs connect, if there are several of two or more nodes."""
    root = _connected(count, pairs[fast])
    roots, numbers, sizes = np.unique(root, return_inverse=True, return_counts=True)
    if (sizes > 1).sum() == 1 and FEW * count < (sizes == 1).sum():
        # Fast nodes, and those of another type, which are slow with everybody.
        return _grouping((sizes > 1)[numbers].astype(np.int64), apart=True)
    if (sizes > 1).sum() < 2:
        return None
    # Slow pairs between sets keep them apart; a set joins the largest one to which it has none.
    # What no fast pair connects to anything, such as a bad node, joins the set to which it has
    # fewest.
    slow = np.zeros((len(roots), len(roots)), dtype=np.int64)
    ends = numbers[pairs[~fast]]
    np.add.at(slow, (ends[:, 0], ends[:, 1]), 1)
    slow += slow.T
    np.fill_diagonal(slow, 0)
    joined = np.arange(len(roots))
    largest: list[int] = []
    for number in np.argsort(-sizes, kind="stable").tolist():
        free = [other for other in largest if not slow[number, other]]
        if sizes[number] == 1 and not free:
            free = sorted(largest, key=lambda other: slow[number, other] / sizes[other])
        if not free:
            largest.append(number)
            continue
        joined[number] = free[0]
        slow[free[0]] += slow[number]
        slow[:, free[0]] += slow[:, number]
        sizes[free[0]] += sizes[number]
    return _grouping(joined[numbers], apart=False) if len(largest) > 1 else None


def _connected(count: int, pairs: Ints) -> Ints:
    """Return node → the lowest node that pairs connect it to."""
    root = np.arange(count)
    while len(pairs):
        low, before = root[pairs].min(axis=1), root.copy()
        np.minimum.at(root, pairs[:, 0], low)
        np.minimum.at(root, pairs[:, 1], low)
        root = root[root]
        if (root == before).all():
            break
    return root


def _refined(groups: Grouping, pairs: Ints, slower: Floats) -> Grouping:
    """Move nodes to the group that their tests fit best, until none moves."""
    of, count = groups.of.copy(), len(groups.names)
    ends, values = np.concatenate((pairs, pairs[:, ::-1])), np.tile(slower, 2)
    for _ in range(30):
        inside = of[ends[:, 0]] == of[ends[:, 1]]
        if inside.all() or not inside.any():
            break
        fast, across = np.median(values[inside]), np.median(values[~inside])
        noise = max(1.4826 * float(np.median(np.abs(values[inside] - fast))), 0.02)
        # What a test says for its nodes being in one group; what a bad node or chance made says
        # little.
        gain = np.log(_density(values - fast, noise) / _density(values - across, noise))
        fits = np.zeros((len(of), count))
        np.add.at(fits, (ends[:, 0], of[ends[:, 1]]), gain)
        fits += 1e-3 * np.bincount(of, minlength=count) / len(of)
        better = fits.max(axis=1) - fits[np.arange(len(of)), of]
        moving = np.flatnonzero(better > 1e-2)
        if not len(moving):
            break
        # Half of them at once: two that belong together do not change places for ever.
        moving = moving[np.argsort(-better[moving], kind="stable")][: max(len(moving) // 2, 1)]
        of[moving] = fits[moving].argmax(axis=1)
    return _grouping(of, apart=False)


def _density(deviation: Floats, noise: float) -> Floats:
    return np.asarray((1 + (deviation / noise) ** 2 / 6) ** -3.5 * 0.383 / noise + 0.03)
