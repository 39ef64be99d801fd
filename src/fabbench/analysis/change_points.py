"""Values in the order in which they were measured → where their level changed. Pure.

A verdict after a run uses only the runs up to it: looking after each run and looking once are the
same, and a change that was reported stays. The last few runs are compared with those before them,
whose noise (deviation and autocorrelation, as of an AR(1) process) counts: the runs in question
teach nothing. Correlation is overstated by its uncertainty, and few runs count as Student's t does:
what is not known well has to differ more.

`_LIMIT` was chosen by trial, and checked by simulation (tests/performance/history.py): the chance
that 200 runs without a change ever have one reported is at most 5 % where docs/honest-numbers.md
promises it.
"""

import math
from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

from fabbench.analysis.statistics import NEGLIGIBLE, mean, median

LEAST = 8
"""Minimum number of runs before a change."""
_WINDOWS = (5, 6, 7, 8, 10, 12, 16, 24, 32, 48)
"""How many of the last runs are compared with those before them."""
FEWEST = 3
"""Minimum number of runs after a change that was found, and how many on each side tell what else changed."""
_LIMIT = 3.7
_MEMORY = 200  # how many runs before the last ones tell the noise
_NEAR = 8  # how far from the most significant cut the change may be
_SEEN = (
    2 * _NEAR
)  # how many values on each side locate a change: values farther away may have other levels
_CLIP = 2.5  # deviations beyond which a run before says nothing more about level and noise
# the same for the last runs, from the one after the fifth that is nearest to the level before
_CLIP_LAST = 1.0
_LOST = 0.9776  # the fraction of a normal variance that is left by `_CLIP`
_UNSURE = 0.8  # standard errors by which the correlation is overstated
_LINE = 40  # as many runs show a drift
_STEEP = 0.7  # the fraction of their variance that is one
_FREEDOM = 0.7  # degrees of freedom per independent run, of a robust estimate


class LevelShift(NamedTuple):
    """A change of level."""

    start: int  # the first value of the new level; of a drift, the first that shows it
    rises: bool
    drift: bool  # whether a line describes the values better than two levels do
    shown: int  # after how many values it was reported


class _Noise(NamedTuple):
    level: float
    deviation: float
    correlation: float
    runs: int  # of this level
    freedom: float


def level_shifts(values: Sequence[float]) -> tuple[LevelShift, ...]:
    """Return the changes of level of positive values, in order."""
    logs, start, shifts, noises = (
        [math.log(value) for value in values],
        0,
        list[LevelShift](),
        dict[int, _Noise](),
    )
    for end in range(LEAST + _WINDOWS[0], len(logs) + 1):
        cuts = [end - width for width in _WINDOWS if end - width >= start + LEAST]
        noises.update({cut: _noise(logs, start, cut) for cut in cuts if cut not in noises})
        strength, cut = max(
            ((_strength(noises[cut], logs[cut:end]), cut) for cut in cuts), default=(0.0, 0)
        )
        if strength > _LIMIT:
            index = _refined(logs[start:end], cut - start) + start
            step = median(logs[index:end]) - noises[cut].level
            shift = LevelShift(index, step > 0, _is_drift(logs[start:end], index - start), end)
            if not (
                shift.drift and shifts and shifts[-1][1:3] == shift[1:3]
            ):  # the same drift goes on
                shifts.append(shift)
            # The noise is that of all runs, each around its own level.
            logs[:index] = [each + step for each in logs[:index]]
            start = index
            noises.clear()
    return tuple(shifts)


def _noise(logs: Sequence[float], start: int, end: int) -> _Noise:
    """Estimate the level from the values of this level, and the noise from all before `end`."""
    seen = logs[max(0, end - _MEMORY) : end]
    middle, count = median(seen), len(seen)
    around = [value - middle for value in seen]
    most = _CLIP * 1.4826 * median([abs(value) for value in around])
    clipped = [-most if value < -most else min(value, most) for value in around]
    center = mean(clipped)
    apart = [value - center for value in clipped]
    variance = sum(map(mul, apart, apart)) / count
    if count >= _LINE:
        slope, spread = (
            sum(map(mul, apart, range(count))) * 12 / (count**3 - count),
            (count**2 - 1) / 12,
        )
        if slope * slope * spread > _STEEP * variance:  # a drift is no noise
            apart = [value - slope * (place - (count - 1) / 2) for place, value in enumerate(apart)]
            variance = max(variance - slope * slope * spread, 0.0)
    lagged = sum(map(mul, apart, apart[1:])) / count / variance if variance else 0.0
    correlation = min(
        max(lagged + (1 + 4 * max(lagged, 0.0)) / count, 0.0), 0.95
    )  # without Kendall's bias
    correlation = min(correlation + _UNSURE * math.sqrt((1 - correlation**2) / count), 0.95)
    level = clipped[max(start - end, -count) :]
    return _Noise(
        level=middle + mean(level),
        deviation=math.sqrt(variance / _LOST / max(1 - _variance_of_mean(correlation, count), 0.2)),
        correlation=correlation,
        runs=len(level),
        freedom=max(_FREEDOM * count * (1 - correlation) / (1 + correlation) - 1, 2.0),
    )


def _strength(noise: _Noise, last: Sequence[float]) -> float:
    """Return how far the last values are from the level before.

    In standard errors, as of a normal value.
    """
    count, before, rho = len(last), noise.runs, noise.correlation
    common = rho * (1 - rho**before) * (1 - rho**count) / ((1 - rho) ** 2 * before * count)
    variance = _variance_of_mean(rho, count) + _variance_of_mean(rho, before) - 2 * common
    known = noise.deviation**2 * variance
    # A level that wanders by less than `NEGLIGIBLE` does not count, however small the noise. That
    # adds no doubt.
    error = known + (NEGLIGIBLE / _LIMIT) ** 2
    freedom = noise.freedom * (error / max(known, 1e-12)) ** 2
    sign = 1 if median(last) > noise.level else -1
    above = sorted(sign * (value - noise.level) for value in last)
    nearest, most = (
        above[count // 5],
        _CLIP_LAST * noise.deviation,
    )  # outliers do not move the nearest
    apart = max(mean([min(max(value, nearest - most), nearest + most) for value in above]), 0.0)
    # Wallace's approximation: the normal value that is as rare as this one of Student's t.
    return math.sqrt(freedom * math.log1p(apart * apart / error / freedom))


def _variance_of_mean(rho: float, count: int) -> float:
    """Return the variance of the mean of an AR(1) process, as a fraction of that of its values."""
    return ((1 + rho) / (1 - rho) - 2 * rho * (1 - rho**count) / (count * (1 - rho) ** 2)) / count


def _refined(logs: Sequence[float], cut: int) -> int:
    """Return the cut near a significant one that leaves values closest to the medians before and after it."""
    low, high = max(0, cut - _SEEN), cut + _SEEN
    near = range(max(FEWEST, cut - _NEAR), min(len(logs) - FEWEST, cut + _NEAR) + 1)
    return min(near, key=lambda place: _distance(logs[low:place]) + _distance(logs[place:high]))


def _distance(logs: Sequence[float]) -> float:
    middle = median(logs)
    return math.fsum(abs(value - middle) for value in logs)


def _is_drift(logs: Sequence[float], cut: int) -> bool:
    """Return whether Tukey's resistant line fits values better than two levels do."""
    third = len(logs) // 3
    slope = (median(logs[-third:]) - median(logs[:third])) / (len(logs) - third)
    line = _distance([value - slope * place for place, value in enumerate(logs)])
    return line < _distance(logs[:cut]) + _distance(logs[cut:])
