"""Dips of a curve: one to three sizes that take longer than those around them. Pure.

A dip must exceed two expectations. One is Hockney's model (`start` + size / rate), fitted to the
two sizes on each side. It may be wrong where the protocol changes between them, which costs nothing
that is healthy: then the rate is still not below that of the smaller sizes, and the time not above
that of the larger ones, and that is the other expectation. Noise is that of the curve itself: how
far each size is from the middle of its neighbors, in logarithms of time. A dip is also no smaller
than what the catalog assumes between executions: one measurement shows start-up times badly.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import sub, truediv
from statistics import fmean, median
from typing import NamedTuple, TypeAlias

from fabbench.analysis.curve import Curve, Drop, line_of

_WIDEST = 3
"""Sizes of a dip."""
_ANCHORS = 2
"""Sizes on each side that say what is expected."""
_SIGMAS = 4.0
"""Of noise, above the model: a curve has some eighty places for a dip."""
_SIGMAS_BOUND = 2.0
"""Of noise, above what a rate that does not fall and a time that grows allow."""
_LEAST = 0.22
"""The least dip, as a logarithm of time: a factor of 1.25."""
_LEAST_BOUND = 0.17
_SHARE = 0.5
"""What each size of a dip has of the mean dip at least."""
_LEAST_NOISE = 0.01
"""Smaller differences are rounding."""
_NORMAL = 1.4826
"""The standard deviation of a normal distribution, as a multiple of its median deviation."""


Noise: TypeAlias = Callable[[int], float]
"""Size in bytes → the assumed deviation of the logarithm of a figure."""


class _Place(NamedTuple):
    """The positions from `first` to before `end`."""

    first: int
    end: int

    @property
    def width(self) -> int:
        return self.end - self.first


def _no_noise(_size: int) -> float:
    return 0.0


def dip(series: Curve, assumed: Noise = _no_noise) -> Drop | None:
    """Return the most significant dip of a curve.

    `assumed` is the noise of a size between executions, as a deviation of logarithms.
    """
    noise = _noise(series)
    highest = 0.0
    most_significant: _Place | None = None
    for place in _places(len(series.sizes)):
        least = max(_LEAST, assumed(series.sizes[place.first]))
        least += _depth_by_digits(series, place)
        significance = _significance(series, place, noise, least)
        if significance > max(1.0, highest):  # 1: just as deep as a dip must be
            highest = significance
            most_significant = place
    return None if most_significant is None else _drop_at(series, most_significant)


def _depth_by_digits(series: Curve, place: _Place) -> float:
    """Return what its own last printed digit, and a neighbor's, can add to a dip: a logarithm."""
    around = series.part(place.first - 1, place.end + 1)
    return 2 * math.log1p(around.rounded(min(around.rates)))


def _places(count: int) -> Iterator[_Place]:
    """Yield each run of sizes that has enough others on both sides."""
    for width in range(1, _WIDEST + 1):
        for first in range(_ANCHORS, count - width - _ANCHORS + 1):
            yield _Place(first, first + width)


def _noise(series: Curve) -> float:
    """Return the deviation of a size's time by noise alone, in logarithms.

    It is told by how far each size is from the middle of its two neighbors; infinite: too few.
    """
    times = [math.log(time) for time in series.times]
    two_apart = zip(times, times[2:], strict=False)
    neighbors = map(fmean, two_apart)
    apart: list[float] = [*map(sub, times[1:], neighbors)]
    if not apart:
        return math.inf
    middle = median(apart)
    deviation = median(abs(each - middle) for each in apart)
    return max(_NORMAL * deviation / _deviation_of_mean(width=1), _LEAST_NOISE)


def _deviation_of_mean(width: int) -> float:
    """Return the deviation of the mean of some sizes from that of two others; of noise 1."""
    return math.sqrt(1 / width + 1 / _ANCHORS)


def _significance(series: Curve, place: _Place, noise: float, least: float) -> float:
    """Return by what factor a place exceeds noise and the least dip; 0 where it is none."""
    excess = _over_model(series, place)
    depth = fmean(excess)
    spread = noise * _deviation_of_mean(place.width)
    beyond = max(_SIGMAS_BOUND * spread, _LEAST_BOUND)
    if min(excess) < _SHARE * depth:  # a size beside the dip, not of it
        return 0.0
    # A model may bend wrongly: what the neighbors alone allow must be exceeded, too.
    if fmean(_over_bound(series, place)) < beyond:
        return 0.0
    return depth / max(_SIGMAS * spread, least)


def _over_model(series: Curve, place: _Place) -> list[float]:
    """Return how much longer each size takes than the model of its surroundings, in logarithms."""
    before, after = _sides(series, place)
    line = line_of([*before.points, *after.points])
    part = series.part(*place)
    modeled = map(line.at, part.sizes)
    return _logs_apart(part.times, modeled)


def _over_bound(series: Curve, place: _Place) -> list[float]:
    """Return the excess of each size over the rate of the smaller and the time of the larger ones.

    In logarithms of time.
    """
    before, after = _sides(series, place)
    nearest_first = reversed(before.points)  # those of `after` are so already
    paces = [math.log(time / size) for size, time in nearest_first]
    times = [math.log(time) for time in after.times]
    pace = _typical_of_two(paces)
    longest = _typical_of_two(times)
    part = series.part(*place)
    slowest_pace = math.exp(pace)
    most = math.exp(longest)
    bounds = [min(size * slowest_pace, most) for size in part.sizes]
    return _logs_apart(part.times, bounds)


def _logs_apart(times: Iterable[float], others: Iterable[float]) -> list[float]:
    """Return the logarithm of how many times as long each takes."""
    ratios = map(truediv, times, others)
    return [math.log(ratio) for ratio in ratios]


def _sides(series: Curve, place: _Place) -> tuple[Curve, Curve]:
    """Return the sizes before a place, and those after it."""
    begin = place.first - _ANCHORS
    end = place.end + _ANCHORS
    return series.part(begin, place.first), series.part(place.end, end)


def _typical_of_two(values: Sequence[float]) -> float:
    """Return the nearest of two values, or their mean where the farther one is smaller."""
    nearest, farther = values
    return fmean([nearest, farther]) if farther < nearest else nearest


def _drop_at(series: Curve, place: _Place) -> Drop:
    """Return a dip with the factor that both expectations allow to claim."""
    over_model = _over_model(series, place)
    over_bound = _over_bound(series, place)
    excess = list(map(min, over_model, over_bound))
    largest = max(excess)
    worst = place.first + excess.index(largest)
    return Drop(
        first=series.sizes[place.first],
        last=series.sizes[place.end - 1],
        worst=series.sizes[worst],
        rate=series.rates[worst],
        factor=math.exp(largest),
    )
