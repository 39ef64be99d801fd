"""Values in the order in which they were measured → where their level changed. Pure.

Each possible cut of a series is tested by Wilcoxon's rank-sum test of the values before it against those
after it: only the order of values counts, so neither a single outlier nor the shape of the noise makes a
change. Tied values, such as rounded figures, count against a change. The test is exact up to `_EXACT` values,
and beyond by the normal approximation, whose tails are wider than the exact ones. Bonferroni's bound over the
cuts, over the series that are examined together, and over the parts that a change leaves to search, keeps
the chance of any change in series without one at 5 %. docs/runs.md states the assumptions.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

from fabbench.analysis.statistics import LEVEL, NEGLIGIBLE, median

LEAST = 3
"""Minimum number of values on each side of a change."""
LEAST_VALUES = 10
"""With fewer values, no order is rare enough to show a change."""
_EXACT = 40
_NEAR = 8  # how far from the most significant cut the change may be: ranks favor cuts in the middle
_SEEN = 2 * _NEAR  # how many values on each side locate and size a change: values farther away may have other levels
_WHOLE = 0.8  # the fraction of the level for a series as a whole
_PARTS = 0.08  # the fraction for the parts that changes leave, depth by depth
_WINDOWS = 1 / 8  # the extra fraction for halves, when the whole shows nothing: for a change that was later reverted


def change_points(values: Sequence[float], *, series: int = 1, level: float = LEVEL) -> tuple[int, ...]:
    """Return the indices at which a new level begins, in order. `series`: how many are examined together.

    A change of the median by less than `NEGLIGIBLE` does not count.
    """
    found = sorted(_search(values, 0, 0, level / max(series, 1)))
    # In a long series the first cut may miss its change by more than `_NEAR`, and a later one finds it.
    for cut in tuple(found):
        index = found.index(cut)
        start, end = ([0, *found][index], [*found, len(values)][index + 1])
        if abs(math.log(median(values[cut:end]) / median(values[start:cut]))) < math.log1p(NEGLIGIBLE):
            found.remove(cut)
    return tuple(found)


def _search(values: Sequence[float], start: int, depth: int, level: float) -> Iterator[int]:
    # At depth d there are at most 2^d parts: (_WHOLE + _PARTS) * (1 + _WINDOWS) is less than 1.
    allowed = level * (_WHOLE if depth == 0 else _PARTS / 4**depth)
    cut, chance = _best_cut(values)
    if chance > allowed:
        cut, chance = _best_in_halves(values)
        allowed *= _WINDOWS
    if cut is None or chance > allowed:
        return
    cut = _refined(values, cut)
    before, after = values[:cut], values[cut:]
    apart = abs(math.log(median(after[:_SEEN]) / median(before[-_SEEN:])))
    if apart >= math.log1p(NEGLIGIBLE):
        yield start + cut
    yield from _search(before, start, depth + 1, level)
    yield from _search(after, start + cut, depth + 1, level)


def _refined(values: Sequence[float], cut: int) -> int:
    """Return the cut near a significant one that leaves values closest to the medians before and after it."""
    low, high = max(0, cut - _SEEN), cut + _SEEN

    def distance(position: int) -> float:
        return sum(
            abs(math.log(value / middle))
            for side in (values[low:position], values[position:high])
            for middle in [median(side)]
            for value in side
        )

    near = range(max(LEAST, cut - _NEAR), min(len(values) - LEAST, cut + _NEAR) + 1)
    return min(near, key=distance)


def _best_in_halves(values: Sequence[float]) -> tuple[int | None, float]:
    """Return the best cut of the first, middle and last half, and its chance among all three."""
    half = len(values) // 2
    starts = (0, half // 2, len(values) - half)
    found = [
        (chance, start + cut) for start in starts for cut, chance in [_best_cut(values[start : start + half])] if cut
    ]
    chance, best = min(found, default=(1.0, None))
    return best, min(1.0, len(starts) * chance)


def _best_cut(values: Sequence[float]) -> tuple[int | None, float]:
    """Return the cut whose two sides differ most significantly, and its chance without a change."""
    count = len(values)
    cuts = count - 2 * LEAST + 1
    if count < LEAST_VALUES:
        return None, 1.0
    backwards = range(count - 1, -1, -1)
    found = []
    # Among tied values, those that count against the direction come first.
    for falls in (False, True):
        ranks = [0] * count
        for rank, index in enumerate(sorted(backwards, key=values.__getitem__, reverse=falls)):
            ranks[index] = rank
        found.append(_most_significant(ranks))
    chance, cut = min(found)
    return cut, min(1.0, 2 * chance * cuts)


def _most_significant(ranks: Sequence[int]) -> tuple[float, int]:
    """Return the least chance that later values are so often above earlier ones, and its cut."""
    count, before = len(ranks), sum(ranks[:LEAST])
    cuts = []
    for cut in range(LEAST, count - LEAST + 1):
        # How many pairs have the later value above the earlier one.
        cuts.append((cut * (count - cut) - before + cut * (cut - 1) // 2, cut))
        before += ranks[cut]
    if count <= _EXACT:
        return min((_exact_tails(min(cut, count - cut), count)[above], cut) for above, cut in cuts)
    # The chance falls with the distance from the mean; many deviations away it underflows.
    far, cut = max(
        ((above - 0.5 - cut * (count - cut) / 2) / math.sqrt(cut * (count - cut)), -cut) for above, cut in cuts
    )
    return 0.5 * math.erfc(far * math.sqrt(6 / (count + 1))), -cut


@lru_cache(maxsize=512)
def _exact_tails(few: int, count: int) -> tuple[float, ...]:
    """Return the chance of each number of pairs or more: Mann and Whitney's distribution.

    The numbers of ways are the coefficients of the Gaussian binomial: a product of 1 - q^(n-few+i), divided
    by 1 - q^i.
    """
    pairs = few * (count - few)
    ways = [1] + [0] * pairs
    for step in range(1, few + 1):
        larger = count - few + step
        for power in range(pairs, larger - 1, -1):
            ways[power] -= ways[power - larger]
        for power in range(step, pairs + 1):
            ways[power] += ways[power - step]
    total, above, tails = math.comb(count, few), 0, []
    for number in reversed(ways):
        above += number
        tails.append(above / total)
    return tuple(reversed(tails))
