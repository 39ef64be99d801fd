"""Values in the order in which they were measured → where their level changed. Pure.

A verdict after a run uses only the runs up to it: looking after each run and looking once are the
same, and a change that was reported stays. The last 5 to 96 runs are compared with those before
them, so a change is looked for again, and farther back, with every run. The noise (deviation and
autocorrelation, as of an AR(1) process) is that of both sides, each around its own level.
Correlation is overstated by its uncertainty, and few runs count as Student's t does: what is not
known well has to differ more. The noise that was assumed before the first run is on the safe side:
what stands out of it too needs fewer runs.

`_LIMIT` was chosen by trial, and checked by simulation (tests/performance/history.py): the chance
that 200 runs without a change ever have one reported is at most 5 % where docs/honest-numbers.md
promises it.
"""

import math
from collections.abc import Sequence
from operator import sub
from statistics import fmean, median
from typing import NamedTuple, TypeAlias

from fabbench.analysis.statistics import NEGLIGIBLE, dot

Values: TypeAlias = Sequence[float]

LEAST = 5
"""Minimum number of runs before a change."""
FEWEST = 3
"""Minimum number of runs after a change that was found.

As many on each side tell what else changed.
"""
_WINDOWS = (5, 6, 8, 10, 12, 16, 24, 32, 48, 64, 96)
"""How many of the last runs are compared with those before them."""
_LIMIT = 4.0
_ASSUMED_FREEDOM = 6.0
"""Degrees of freedom of noise that is assumed."""
_MEMORY = 200
"""How many runs before the last ones tell the noise."""
_NEAR = 8
"""How far from the most significant cut the change may be."""
_SEEN = 2 * _NEAR
"""How many values on each side locate a change: those farther away may have other levels."""
_CLIP = 2.5
"""Deviations beyond which a run says nothing more about level and noise."""
_CLIP_LAST = 1.0
"""The same for the last runs, from the one after the fifth that is nearest to the level before."""
_LOST = 0.9776
"""The fraction of a normal variance that is left by `_CLIP`."""
_TO_DEVIATION = 1.4826
"""From the median distance of normal values to their standard deviation."""
_TELLING = 8
"""As many of the last runs tell correlation."""
_UNSURE = 0.8
"""Standard errors by which the correlation is overstated."""
_MOST_CORRELATED = 0.95
_LEAST_SCATTER = 0.2
"""The fraction of a variance that is left around the mean of a correlated series, at least."""
_LINE = 40
"""As many runs show a drift."""
_STEEP = 0.7
"""The fraction of their variance that is one."""
_PROBABLE = 1.0
"""Standard errors by which a step may look smaller than it is, in five of six series."""
_FREEDOM = 0.7
"""Degrees of freedom per independent run, of a robust estimate."""


class LevelShift(NamedTuple):
    """A change of level."""

    start: int  # the first value of the new level; of a drift, the first that shows it
    rises: bool
    drift: bool  # whether a line describes the values better than two levels do
    shown: int  # after how many values it was reported

    def continues(self, earlier: "LevelShift") -> bool:
        """Return whether it is the same drift going on."""
        return self.drift and earlier.drift and self.rises == earlier.rises


class _Noise(NamedTuple):
    """A level, and the noise around it."""

    level: float
    deviation: float
    correlation: float
    runs: int  # of this level
    freedom: float
    lagged: float  # the likeliest correlation: `correlation` overstates it
    sample: int  # how many runs tell it

    def variance_of_step(self, after: int) -> float:
        """Return the variance of a step to the mean of so many runs more.

        As a fraction of that of single runs.
        """
        rho = self.correlation
        # The runs beside the step are alike: the covariance of the two means is the mean of
        # rho^distance over all pairs of runs, which is rho * ends / pairs.
        ends = (1 - rho**self.runs) * (1 - rho**after)
        pairs = (1 - rho) ** 2 * self.runs * after
        of_later = _variance_of_mean(rho, after)
        of_these = _variance_of_mean(rho, self.runs)
        return of_later + of_these - 2 * rho * ends / pairs


class _Cut(NamedTuple):
    """A place where the level may have changed, and how sure that is."""

    strength: float  # standard errors, as of a normal value
    place: int
    noise: _Noise  # of the runs before it


class Watched(NamedTuple):
    """What is known after the last run."""

    shifts: tuple[LevelShift, ...]
    noise: _Noise | None
    """Since the last change; None: too few runs."""
    needed: int
    """How many runs are missing before any change can be seen; 0: none."""
    assumed: float

    def runs_to_see(self, change: float) -> int | None:
        """Return after how many more runs a change of level would probably have been reported.

        `change` is a fraction of the level, negative for a loss. None: not within the largest
        window, or unknown.
        """
        if self.noise is None:
            return None
        apart = abs(math.log1p(change))
        for width in _WINDOWS:
            if _strength_of_step(self.noise, width, apart, self.assumed) > _LIMIT:
                return width
        return None


def watched(values: Values, assumed: float) -> Watched:
    """Look for changes of level of positive values after each of them.

    `assumed` is the standard deviation of their logarithms, as far as it is known beforehand. After
    a change only the runs from there on count for the next one.
    """
    logs = [math.log(value) for value in values]
    start = 0
    shifts: list[LevelShift] = []
    noise_before: dict[int, _Noise] = {}  # place of a cut → noise of the runs before it
    # As if looked at after each run, from the first with enough runs before and after a cut.
    for end in range(LEAST + _WINDOWS[0], len(logs) + 1):
        cut = _strongest_cut(logs, start, end, assumed, noise_before)
        if cut is None or cut.strength <= _LIMIT:
            continue
        runs = logs[start:end]
        place = _refined_cut(runs, cut.place - start)
        step = median(runs[place:]) - cut.noise.level
        start += place
        drift = _is_drift(runs, place)
        shift = LevelShift(start, rises=step > 0, drift=drift, shown=end)
        if not (shifts and shift.continues(shifts[-1])):
            shifts.append(shift)
        # The noise is that of all runs, each around its own level.
        logs[:start] = [each + step for each in logs[:start]]
        noise_before.clear()
    missing = LEAST + start - len(logs)  # runs at this level, until its noise can be told
    if missing > 0:
        needed = missing + _WINDOWS[0]
        return Watched(tuple(shifts), noise=None, needed=needed, assumed=assumed)
    noise = _noise(logs, start, len(logs))
    return Watched(tuple(shifts), noise, needed=0, assumed=assumed)


def _strongest_cut(
    logs: Values, start: int, end: int, assumed: float, noise_before: dict[int, _Noise]
) -> _Cut | None:
    """Return the most significant cut of the runs from `start` to before `end`; None: too few.

    `noise_before` keeps the noise of the runs before each place for the next call.
    """
    cuts = []
    for width in _WINDOWS:
        place = end - width
        if place < start + LEAST:  # the windows grow: all others are too long as well
            break
        if place not in noise_before:
            noise_before[place] = _noise(logs, start, place)
        before = noise_before[place]
        last = logs[place:end]
        strength = _strength(_noise_of_both_sides(before, last), last, assumed)
        cuts.append(_Cut(strength, place, before))
    return max(cuts, default=None)  # a cut begins with its strength


def _noise(logs: Values, start: int, end: int) -> _Noise:
    """Estimate the level from the values since `start`, where it begins, to before `end`.

    The noise is that of all values before `end`.
    """
    recent = logs[max(0, end - _MEMORY) : end]
    count = len(recent)
    middle = median(recent)
    clipped = _clipped_distances(recent, middle)
    apart = _without_drift(_centered(clipped))
    lagged = _correlation_of_neighbors(apart)
    correlation = _overstated_correlation(lagged, count)
    at_level = clipped[-min(end - start, count) :]
    return _Noise(
        level=middle + fmean(at_level),
        deviation=_deviation(apart, correlation),
        correlation=correlation,
        runs=len(at_level),
        freedom=max(_freedom(count, correlation), 2.0),  # few correlated runs would leave none
        lagged=lagged,
        sample=count,
    )


def _centered(values: Values) -> list[float]:
    center = fmean(values)
    return [value - center for value in values]


def _clipped_distances(values: Values, middle: float) -> list[float]:
    """Return distances from the middle, of which outliers are as far as noise can be."""
    around = [value - middle for value in values]
    distance = median([abs(value) for value in around])
    limit = _CLIP * _TO_DEVIATION * distance
    return [max(-limit, min(value, limit)) for value in around]


def _without_drift(apart: list[float]) -> list[float]:
    """Return distances from the mean without a drift that explains most of them: it is no noise."""
    count = len(apart)
    if count < _LINE:
        return apart
    places = _centered(range(count))
    along = dot(apart, places)
    spread = dot(places, places)
    if along * along <= _STEEP * spread * dot(apart, apart):
        return apart
    slope = along / spread
    drift = [slope * place for place in places]
    return list(map(sub, apart, drift))


def _correlation_of_neighbors(apart: Values) -> float:
    """Return the correlation of neighbors without Kendall's bias."""
    variance = dot(apart, apart)
    if not variance:
        return 0.0  # all runs are the same
    lagged = dot(apart, apart[1:]) / variance
    bias = (1 + 4 * max(lagged, 0.0)) / len(apart)
    return lagged + bias


def _overstated_correlation(lagged: float, count: int) -> float:
    """Return a correlation of so many runs, plus what is not known of it."""
    likely = min(max(lagged, 0.0), _MOST_CORRELATED)
    error = math.sqrt((1 - likely**2) / count)
    return min(likely + _UNSURE * error, _MOST_CORRELATED)


def _deviation(apart: Values, correlation: float) -> float:
    """Return the standard deviation of values from clipped distances to their own mean."""
    count = len(apart)
    left = _LOST * max(1 - _variance_of_mean(correlation, count), _LEAST_SCATTER)
    return math.sqrt(dot(apart, apart) / count / left)


def _freedom(count: int, correlation: float) -> float:
    """Return the degrees of freedom of a deviation of so many correlated runs."""
    independent = count * (1 - correlation) / (1 + correlation)
    return _FREEDOM * independent - 1


def _noise_of_both_sides(noise: _Noise, last: Values) -> _Noise:
    """Return the noise of both sides of a cut, each around its own level."""
    apart = _centered(_clipped_distances(last, median(last)))
    if len(last) >= _TELLING:  # enough to tell a correlation, too
        noise = _with_correlation_of(apart, noise)
    of_last = max(_freedom(len(last), noise.correlation), 0.0)
    deviation = _deviation(apart, noise.correlation)
    freedom = noise.freedom + of_last
    share = of_last / freedom  # each side counts by its degrees of freedom
    differs = deviation**2 - noise.deviation**2
    variance = noise.deviation**2 + share * differs
    return noise._replace(deviation=math.sqrt(variance), freedom=freedom)


def _with_correlation_of(last: Values, noise: _Noise) -> _Noise:
    """Return a noise whose correlation the last runs tell too, from distances to their own mean."""
    runs = noise.sample + len(last)
    of_last = len(last) * _correlation_of_neighbors(last)
    lagged = (noise.sample * noise.lagged + of_last) / runs
    correlation = _overstated_correlation(lagged, runs)
    freedom = max(_freedom(noise.sample, correlation), 2.0)
    return noise._replace(correlation=correlation, freedom=freedom)


def _strength_of_step(noise: _Noise, width: int, apart: float, assumed: float) -> float:
    """Return how significant a step would probably be, so many runs after it."""
    # Few runs may have shown less noise than there is.
    unknown = _PROBABLE / math.sqrt(2 * noise.freedom)
    deviation = noise.deviation * (1 + unknown)
    freedom = noise.freedom + max(_freedom(width, noise.correlation), 0.0)
    expected = noise._replace(deviation=deviation, freedom=freedom)
    error = deviation * math.sqrt(noise.variance_of_step(width))
    # By chance, the step may look smaller than it is.
    level = noise.level + max(apart - _PROBABLE * error, 0.0)
    return _strength(expected, [level] * width, assumed)


def _strength(noise: _Noise, last: Values, assumed: float) -> float:
    """Return how far the last values are from the level before.

    In standard errors, as of a normal value; by the noise that the values show, or by the larger of
    that and the assumed one, which is better known.
    """
    deviation = max(noise.deviation, assumed)
    freedom = noise.freedom + _ASSUMED_FREEDOM
    known = noise._replace(deviation=deviation, freedom=freedom)
    return max(_errors_apart(noise, last), _errors_apart(known, last))


def _errors_apart(noise: _Noise, last: Values) -> float:
    """Return by how many standard errors the last values are apart from the level."""
    known = noise.deviation**2 * noise.variance_of_step(len(last))
    # A level that wanders by less than `NEGLIGIBLE` does not count, however small the noise. What
    # is added for that is certain: with it the degrees of freedom grow.
    error = known + (NEGLIGIBLE / _LIMIT) ** 2
    freedom = noise.freedom * (error / max(known, 1e-12)) ** 2
    apart = _distance_from_level(noise, last)
    # Wallace's approximation: the normal value that is as rare as this one of Student's t.
    squared = freedom * math.log1p(apart**2 / error / freedom)
    return math.sqrt(squared)


def _distance_from_level(noise: _Noise, last: Values) -> float:
    """Return how far the last values are from the level before; outliers do not move them far."""
    # As if they were above: what is on the level's other side is negative.
    sign = 1 if median(last) > noise.level else -1
    above = sorted(sign * (value - noise.level) for value in last)
    nearest = above[len(last) // 5]  # a fifth of the values may lie anywhere nearer
    limit = _CLIP_LAST * noise.deviation
    lowest = nearest - limit
    highest = nearest + limit
    clipped = [max(lowest, min(value, highest)) for value in above]
    return max(fmean(clipped), 0.0)


def _variance_of_mean(rho: float, count: int) -> float:
    """Return the variance of the mean of an AR(1) process, as a fraction of that of its values."""
    # (count (1 - rho²) - 2 rho (1 - rho^count)) / (count (1 - rho))², term by term
    apart = 1 - rho
    pairs = count * apart**2
    shared = 2 * rho * (1 - rho**count) / pairs
    return ((1 + rho) / apart - shared) / count


def _refined_cut(logs: Values, cut: int) -> int:
    """Return the cut near a significant one that leaves values closest to the medians beside it."""
    low = max(0, cut - _SEEN)
    high = cut + _SEEN
    first = max(FEWEST, cut - _NEAR)
    last = min(len(logs) - FEWEST, cut + _NEAR)

    def distance_left(place: int) -> float:
        return _distance_from_two_medians(logs[low:high], place - low)

    return min(range(first, last + 1), key=distance_left)


def _distance_from_median(logs: Values) -> float:
    middle = median(logs)
    return math.fsum(abs(value - middle) for value in logs)


def _distance_from_two_medians(logs: Values, cut: int) -> float:
    before = _distance_from_median(logs[:cut])
    return before + _distance_from_median(logs[cut:])


def _is_drift(logs: Values, cut: int) -> bool:
    """Return whether Tukey's resistant line fits values better than two levels do."""
    count = len(logs)
    third = count // 3
    first = median(logs[:third])
    last = median(logs[-third:])
    slope = (last - first) / (count - third)  # so far apart are the middles of the two thirds
    flat = [value - slope * place for place, value in enumerate(logs)]
    return _distance_from_median(flat) < _distance_from_two_medians(logs, cut)
