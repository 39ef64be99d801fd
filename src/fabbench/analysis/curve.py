"""How time grows with size in one log: regimes, and where the rate falls.

Pure.

In each regime of a protocol the time is that of a start plus the size over a rate (Hockney's
model). The regimes and their borders are those with the smallest Bayesian information criterion,
fitted to relative errors.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple, TypeAlias

from fabbench.analysis.aggregate import printed_step
from fabbench.analysis.statistics import dot
from fabbench.model.log import Log, Point
from fabbench.model.mappings import gathered
from fabbench.model.messages import key_words

_LEAST = 4  # points of a regime
_MOST = 3  # regimes
_PRECISION = 0.01  # relative errors below this are rounding
_WORST = 0.15  # a fit with larger relative errors is none
SIGMAS = 3.0  # of the noise that a catalog assumes: less is no finding
_SMALLEST_FALL = 0.15
_RATES = ("busbw", "bandwidth")
OF_TIME = "size/time"  # the rate of a series that has times alone


class Curve(NamedTuple):
    """The figures of one kind in a log, by growing size; of several at one size the median."""

    labels: str
    metric: str
    sizes: tuple[int, ...]
    times: tuple[float, ...]  # seconds; of a bandwidth, those that a message takes at that rate
    rates: tuple[float, ...]  # bytes per second: busbw where there is one
    step: float = 0.0  # in which the rates were printed; 0: not rounded, or not known

    def rounded(self, rate: float) -> float:
        """Return half of the last printed digit, as a part of a rate."""
        return self.step / 2 / rate

    @property
    def rate_at(self) -> dict[int, float]:
        """The rates by size."""
        return dict(zip(self.sizes, self.rates, strict=True))

    @property
    def points(self) -> list[tuple[int, float]]:
        """The sizes with their times."""
        return list(zip(self.sizes, self.times, strict=True))

    def part(self, first: int, end: int) -> "Curve":
        """Return the points from `first` to before `end`."""
        return self._replace(
            sizes=self.sizes[first:end],
            times=self.times[first:end],
            rates=self.rates[first:end],
        )


class Regime(NamedTuple):
    """Sizes with one start-up time and one rate, in seconds and bytes per second."""

    first: int
    last: int
    start: float
    rate: float  # of `Curve.rates`; infinite where the time does not grow
    error: float  # the standard deviation of relative errors


class _Sample(NamedTuple):
    """What one row says of its size."""

    size: int
    time: float
    rate: float


class _Kind(NamedTuple):
    """What the figures of one curve share."""

    labels: str
    metric: str


def _samples(points: Iterable[Point]) -> Iterator[tuple[_Kind, _Sample]]:
    """Yield the time and the rate of rows; nothing of a row without a size, or with neither."""
    for point in points:
        values = dict(zip(point.metrics, point.values, strict=True))
        metric = next((name for name in _RATES if values.get(name)), "")
        time = values.get("time") or values.get("latency") or 0.0
        rate = values.get(metric, 0.0)
        if time and not metric:
            rate = point.size / time
        if rate and point.size:  # without a rate the time is infinite
            kind = _Kind(" ".join(key_words(point.labels)), metric or OF_TIME)
            took = time or point.size / rate
            yield kind, _Sample(point.size, took, rate)


def series_of(log: Log) -> list[Curve]:
    """Return the series of a log that have a rate, the longest first.

    Where only times are printed, the rate is size / time.
    """
    curves: list[Curve] = []
    for kind, samples in gathered(_samples(log.points)).items():
        # A median may lie between two printed figures.
        printed = [sample.rate for sample in samples]
        step = printed_step(str(log.benchmark), kind.metric, printed)
        curves.append(_curve(kind, samples, step))
    return sorted(curves, key=lambda curve: -len(curve.sizes))


def _curve(kind: _Kind, samples: Iterable[_Sample], rate_step: float) -> Curve:
    # Of a size that was measured several times the medians count.
    by_size = gathered((sample.size, sample) for sample in samples)
    sizes = sorted(by_size)
    alike = [by_size[size] for size in sizes]
    times = [median(sample.time for sample in each) for each in alike]
    rates = [median(sample.rate for sample in each) for each in alike]
    return Curve(
        *kind,
        tuple(sizes),
        tuple(times),
        tuple(rates),
        rate_step,
    )


# ---------------------------------------------------------------- regimes


class _Fit(NamedTuple):
    """Regimes that follow each other, and the sum of squares of their relative errors."""

    cost: float
    regimes: tuple[Regime, ...]


_NO_FIT = _Fit(math.inf, regimes=())
_Segments: TypeAlias = Mapping[tuple[int, int], _Fit]
"""The first point of a segment and that after its last → its fit."""


def fit(series: Curve) -> tuple[Regime, ...]:
    """Return the regimes of a series; none where no model fits, or too few sizes were measured."""
    count = len(series.sizes)

    def information(candidate: _Fit) -> float:  # Bayesian criterion: the least is the best
        # Smaller errors are rounding: a fit is no better for them.
        variance = max(candidate.cost / count, _PRECISION**2)
        parameters = 3 * len(candidate.regimes)  # start, rate and border of each
        return count * math.log(variance) + parameters * math.log(count)

    chosen = min(_fits(series), key=information, default=_NO_FIT)
    fits = all(regime.error <= _WORST for regime in chosen.regimes)
    return chosen.regimes if fits else ()


def _fits(series: Curve) -> list[_Fit]:
    """Return the best fit to the whole series of each number of regimes, the fewest first."""
    count = len(series.sizes)
    segments = {
        (first, end): _one_regime(series.part(first, end))
        for first in range(count)
        for end in range(first + _LEAST, count + 1)
    }
    # How many of the first points are covered → the best fit to them.
    best = {0: _Fit(cost=0.0, regimes=())}
    best_fits = []
    for _ in range(_MOST):
        best = _extended(best, segments)
        if count in best:
            best_fits.append(best[count])
    return best_fits


def _extended(before: Mapping[int, _Fit], segments: _Segments) -> dict[int, _Fit]:
    """Return the best fits with one regime more, by how many points they cover."""
    best: dict[int, _Fit] = {}
    for (first, end), segment in segments.items():
        if first not in before:
            continue
        cost = before[first].cost + segment.cost
        if cost < best.get(end, _NO_FIT).cost:
            best[end] = _Fit(cost, before[first].regimes + segment.regimes)
    return best


class TimeLine(NamedTuple):
    """The time that a size takes: `start` + `slope` × size."""

    start: float
    slope: float

    def at(self, size: int) -> float:
        """Return the time of a size, in seconds."""
        return self.start + self.slope * size

    def error(self, size: int, time: float) -> float:
        """Return by which part of a measured time the line differs from it."""
        return 1 - self.at(size) / time


def line_of(points: Sequence[tuple[int, float]]) -> TimeLine:
    """Return the line through sizes and times with the least relative errors.

    Of those that do not fall or begin below 0. That is least squares of 1 = start × inverse +
    slope × speed: the time of the line over the time measured.
    """
    inverses = [1 / time for _, time in points]
    speeds = [size / time for size, time in points]
    inverse_sum = sum(inverses)
    speed_sum = sum(speeds)
    inverse_squares = dot(inverses, inverses)
    speed_squares = dot(speeds, speeds)
    products = dot(inverses, speeds)
    line = TimeLine(start=0.0, slope=speed_sum / speed_squares)  # the best one that begins at 0
    determinant = inverse_squares * speed_squares - products * products
    # A smaller one is 0 but for rounding: all points are at one size, or nearly.
    if determinant > 1e-12 * inverse_squares * speed_squares:
        start = (inverse_sum * speed_squares - speed_sum * products) / determinant
        slope = (speed_sum * inverse_squares - inverse_sum * products) / determinant
        line = TimeLine(start, slope) if start >= 0 else line
    if line.slope < 0:  # then the best one that does not fall is constant
        return TimeLine(inverse_sum / inverse_squares, slope=0.0)
    return line


def _one_regime(part: Curve) -> _Fit:
    """Fit one regime to all points of a curve; its cost is the sum of squares of its errors."""
    line = line_of(part.points)
    errors = [line.error(*point) for point in part.points]
    cost = dot(errors, errors)
    freedom = max(len(part.sizes) - 2, 1)
    regime = Regime(
        part.sizes[0],
        part.sizes[-1],
        line.start,
        # Of collectives the rate is busbw, which is size / time times a factor.
        rate=_bus_factor(part) / line.slope if line.slope else math.inf,
        error=max(math.sqrt(cost / freedom), _PRECISION),
    )
    return _Fit(cost, (regime,))


def _bus_factor(series: Curve) -> float:
    """Return the median of rate / (size / time): the collective's factor for busbw, else 1."""
    every = zip(series.rates, series.times, series.sizes, strict=True)
    return median(rate * time / size for rate, time, size in every)


# ---------------------------------------------------------------- falls


class Drop(NamedTuple):
    """Sizes at which a rate is lower than it should be."""

    first: int  # In bytes
    last: int
    worst: int
    rate: float  # At the worst size, in bytes per second
    factor: float  # How many times lower it is, at least
    recovers: bool = True  # Whether larger sizes have the rate that it should have


def fall(series: Curve, noise: Callable[[int], float]) -> Drop | None:
    """Return the deepest fall of the rate below that of smaller sizes; None: there is none.

    One that neither noise nor the last printed digits explain, at sizes that matter. `noise`: size
    → assumed deviation of the logarithm of a rate.
    """
    best = 0.0  # the highest rate of smaller sizes
    deepest: Drop | None = None
    rates = series.rates
    matters_from = max(rates, default=0.0) / 10  # what falls below that was slow anyway
    for at, size in enumerate(series.sizes):
        rate = rates[at]
        by_noise = 1 - math.exp(-SIGMAS * noise(size))
        allowed = max(by_noise, _SMALLEST_FALL)
        least = best * (1 - allowed) - series.step
        fell = best > matters_from and rate < least
        if fell and (deepest is None or best / rate > deepest.factor):
            later = max(rates[at + 1 :], default=0.0)
            deepest = Drop(
                first=size,
                last=size,
                worst=size,
                rate=rate,
                factor=best / rate,
                recovers=later >= least,
            )
        best = max(best, rate)
    return deepest
