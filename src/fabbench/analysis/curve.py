"""How time grows with size in one log: regimes, what stands out, and what it would be elsewhere.

Pure.

In each regime of a protocol the time is that of a start plus the size over a rate (Hockney's
model). The regimes and their borders are those with the smallest Bayesian information criterion,
fitted to relative errors.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from fabbench.analysis.statistics import mean, median, squares, t_quantile
from fabbench.catalog.expectations import PAIRS, assumed_noise, noise_kinds
from fabbench.evidence.known_errors import finding
from fabbench.model.log import Finding, Log
from fabbench.model.units import format_size, scale

_LEAST = 4  # points of a regime
_MOST = 3  # regimes
_PRECISION = 0.01  # relative errors below this are rounding
_WORST = 0.15  # a fit with larger relative errors is none
_LEVEL = 0.03  # the last rates of a curve that has leveled off differ by no more
_STEADY = 4  # how many last rates must have leveled off
_FARTHEST = 8  # a prediction is for at most this many times the largest size
_NODES_FARTHEST = 4  # and for at most this many times the most nodes
_WIDEST = 0.35  # an interval that is wider than this to either side is no prediction
_SIGMAS = 3.0  # of the noise that a catalog assumes: less is no finding
_SMALLEST_FALL = 0.15
OF_TIME = "size/time"  # the rate of a series that has times alone
_SIDES = ("out-of-place", "in-place")


class Curve(NamedTuple):
    """The figures of one kind in a log, by growing size; of several at one size the median."""

    labels: str
    metric: str
    sizes: tuple[int, ...]
    times: tuple[float, ...]  # seconds; of a bandwidth, those that a message takes at that rate
    rates: tuple[float, ...]  # bytes per second: busbw where there is one


class Regime(NamedTuple):
    """Sizes with one start-up time and one rate, in seconds and bytes per second."""

    first: int
    last: int
    start: float
    rate: float  # of `Curve.rates`; infinite where the time does not grow
    error: float  # the standard deviation of relative errors


def series_of(log: Log) -> list[Curve]:
    """Return the series of a log that have a rate, the longest first."""
    found: dict[tuple[str, str], dict[int, list[tuple[float, float]]]] = {}
    for point in log.points:
        values = dict(zip(point.metrics, point.values, strict=True))
        metric = next((name for name in ("busbw", "bandwidth") if values.get(name)), "")
        time = values.get("time") or values.get("latency") or 0.0
        rate = values.get(metric, 0.0) or (point.size / time if time else 0.0)
        if point.size and rate and (time or metric):
            labels = " ".join(f"{name} {value}" for name, value in point.labels.items())
            key = (labels, metric or OF_TIME)
            found.setdefault(key, {}).setdefault(point.size, []).append(
                (time or point.size / rate, rate)
            )
    made = []
    for key, by_size in found.items():
        sizes = sorted(by_size)
        columns = (
            tuple(median(each[at] for each in by_size[size]) for size in sizes) for at in (0, 1)
        )
        made.append(Curve(*key, tuple(sizes), *columns))
    return sorted(made, key=lambda series: -len(series.sizes))


def fit(series: Curve) -> tuple[Regime, ...]:
    """Return the regimes of a series; none where no model fits, or too few sizes were measured."""
    count = len(series.sizes)
    best: dict[tuple[int, int], tuple[float, tuple[Regime, ...]]] = {(0, 0): (0.0, ())}
    segments = {
        (i, j): _segment(series, i, j) for i in range(count) for j in range(i + _LEAST, count + 1)
    }
    for regimes in range(1, _MOST + 1):
        for (i, j), (cost, regime) in segments.items():
            before = best.get((regimes - 1, i))
            if (
                before is not None
                and (found := before[0] + cost) < best.get((regimes, j), (math.inf, ()))[0]
            ):
                best[regimes, j] = found, (*before[1], regime)

    def information(regimes: int) -> float:
        cost = best[regimes, count][0]
        return count * math.log(max(cost / count, _PRECISION**2)) + 3 * regimes * math.log(count)

    whole = (regimes for regimes in range(1, _MOST + 1) if (regimes, count) in best)
    _, fitted = best.get((min(whole, key=information, default=0), count), (0.0, ()))
    return fitted if all(regime.error <= _WORST for regime in fitted) else ()


def _segment(series: Curve, i: int, j: int) -> tuple[float, Regime]:
    """Return the sum of squared relative errors of one regime over points i to j - 1, and the regime."""
    times, sizes = series.times[i:j], series.sizes[i:j]
    u, v = (
        [1 / time for time in times],
        [size / time for size, time in zip(sizes, times, strict=True)],
    )
    uu, vv, uv = (
        sum(a * b for a, b in zip(x, y, strict=True)) for x, y in ((u, u), (v, v), (u, v))
    )
    determinant, start, slope = uu * vv - uv * uv, 0.0, sum(v) / vv
    if determinant > 1e-12 * uu * vv and (found := (sum(u) * vv - sum(v) * uv) / determinant) >= 0:
        start, slope = found, (sum(v) * uu - sum(u) * uv) / determinant
    if slope < 0:
        start, slope = sum(u) / uu, 0.0
    cost = sum((1 - start * a - slope * b) ** 2 for a, b in zip(u, v, strict=True))
    factor = median(
        rate * time / size for rate, time, size in zip(series.rates[i:j], times, sizes, strict=True)
    )
    rate = factor / slope if slope else math.inf
    return cost, Regime(
        sizes[0], sizes[-1], start, rate, max(math.sqrt(cost / max(j - i - 2, 1)), _PRECISION)
    )


class Prediction(NamedTuple):
    """A rate in bytes per second with its 95 % interval; or why there is none."""

    rate: float = 0.0
    low: float = 0.0
    high: float = 0.0
    refused: str = ""


def predict(series: Curve, size: int) -> Prediction:
    """Return the rate at a size.

    Beyond the largest one what the curve has leveled off at, else its regime's.
    """
    regimes = fit(series)
    if refused := _refusal(series, size, regimes):
        return Prediction(refused=refused)
    if size > series.sizes[-1]:
        return _between(median(series.rates[-_STEADY:]), max(regimes[-1].error, _LEVEL))
    regime = next(each for each in reversed(regimes) if each.first <= size or each is regimes[0])
    every = zip(series.rates, series.times, series.sizes, strict=True)
    factor = median(rate * time / each for rate, time, each in every)
    return _between(factor * size / (regime.start + factor * size / regime.rate), regime.error)


def _refusal(series: Curve, size: int, regimes: Sequence[Regime]) -> str:
    """Return why nothing is predicted; empty if something is."""
    smallest, largest, last = series.sizes[0], series.sizes[-1], series.rates[-_STEADY:]
    if not regimes:
        return "no start-up time and rate fit its figures"
    if size < smallest:
        return f"the smallest size measured is {format_size(smallest)}"
    if size > _FARTHEST * largest:
        return f"that is more than {_FARTHEST} times the largest size measured"
    if size > largest and (len(last) < _STEADY or max(last) - min(last) > _LEVEL * max(last)):
        return "the rate has not leveled off at the largest sizes measured"
    return "the rate falls at large sizes" if size > largest and fall(series) is not None else ""


def predict_nodes(logs: Sequence[Log], size: int, nodes: int) -> Prediction:
    """Return the rate at a size between other numbers of nodes, from logs of at least three numbers.

    The logarithm of the rate is taken to be linear in that of the nodes.
    """
    known: dict[int, list[float]] = {}
    for log in logs:
        count = log.facts.get("nodes") or log.facts.get("hosts")
        found = predict(series[0], size) if (series := series_of(log)) else None
        if isinstance(count, int) and found is not None and not found.refused:
            known.setdefault(count, []).append(found.rate)
    if len(known) < 3:
        return Prediction(
            refused=f"it needs logs of three or more numbers of nodes, and has {len(known)}"
        )
    if nodes > _NODES_FARTHEST * max(known):
        return Prediction(
            refused=f"that is more than {_NODES_FARTHEST} times the most nodes measured"
        )
    x = [math.log2(count) for count in known]
    y = [math.log(median(rates)) for rates in known.values()]
    middle, level, target, spread = mean(x), mean(y), math.log2(nodes), squares(x)
    slope = sum((a - middle) * (b - level) for a, b in zip(x, y, strict=True)) / spread
    residual = sum((b - level - slope * (a - middle)) ** 2 for a, b in zip(x, y, strict=True)) / (
        len(x) - 2
    )
    error = math.sqrt(
        max(residual, _PRECISION**2) * (1 + 1 / len(x) + (target - middle) ** 2 / spread)
    )
    half = t_quantile(0.025, len(x) - 2) * error
    if half > _WIDEST:
        return Prediction(refused="the logs do not agree on a trend that would carry that far")
    return _between(math.exp(level + slope * (target - middle)), half / 2)


def _between(rate: float, error: float) -> Prediction:
    return Prediction(rate, rate * math.exp(-2 * error), rate * math.exp(2 * error))


class Fall(NamedTuple):
    """Where a rate is lower than at smaller sizes."""

    size: int
    rate: float
    before: float  # the best rate at a smaller size
    recovers: bool


def fall(series: Curve, noise: Callable[[int], float] | None = None) -> Fall | None:
    """Return the deepest fall of the rate that noise does not explain, at sizes that matter."""
    best, found = 0.0, None
    for at, (size, rate) in enumerate(zip(series.sizes, series.rates, strict=True)):
        allowed = max(1 - math.exp(-_SIGMAS * noise(size)) if noise else 0.0, _SMALLEST_FALL)
        fell = best > max(series.rates) / 10 and rate < best * (1 - allowed)
        if fell and (found is None or rate / best < found.rate / found.before):
            recovers = max(series.rates[at + 1 :], default=0.0) >= best * (1 - allowed)
            found = Fall(size, rate, best, recovers)
        best = max(best, rate)
    return found


def curve_findings(log: Log) -> Iterator[Finding]:
    """Yield what a log's curves show.

    Dips, cliffs, jumps, rates that still grow, sides that differ.
    """
    every = [
        each for each in series_of(log) if len(each.sizes) >= _LEAST and "stat " not in each.labels
    ]
    collective = any(each.metric == "busbw" for each in every)
    kinds = noise_kinds({str(log.facts.get("transport", ""))}) if collective else {PAIRS}

    def noise(size: int) -> float:
        return assumed_noise(kinds, size)

    falls = [
        (found.rate / found.before, each, found) for each in every if (found := fall(each, noise))
    ]
    if falls:
        factor, series, found = min(falls)
        code = "latency-jump" if series.metric == OF_TIME else "dip" if found.recovers else "cliff"
        rate, before = map(scale("B/s", found.before).quantity, (found.rate, found.before))
        which = f" ({series.labels})" if len(every) > 1 else ""
        time = scale("s", 0).quantity(series.times[series.sizes.index(found.size)])
        words = {
            "rate": rate,
            "before": before,
            "which": which,
            "time": time,
            "factor": f"{1 / factor:.2g}",
        }
        yield finding(code, size=format_size(found.size), **words)
    elif every and every[0].metric != OF_TIME:
        rates = every[0].rates
        doubled = min(math.log2(every[0].sizes[-1] / every[0].sizes[-2]), 1.0)
        if rates[-1] == max(rates) and rates[-1] > rates[-2] * (1 + 0.2 * doubled):
            yield finding("still-grows", size=format_size(every[0].sizes[-1]))
    yield from _sides(every, noise)


def _sides(every: Sequence[Curve], noise: Callable[[int], float]) -> Iterator[Finding]:
    by_side = {
        side: each for each in every for side in _SIDES if f"placement {side}" in each.labels
    }
    if len(by_side) < 2:
        return
    out, into = (
        dict(zip(by_side[side].sizes, by_side[side].rates, strict=True)) for side in _SIDES
    )
    apart = {
        size: max(out[size], into[size]) / min(out[size], into[size])
        for size in out
        if size in into
    }
    worst = max(apart, key=lambda size: math.log(apart[size]) / noise(size), default=0)
    if worst and math.log(apart[worst]) > max(_SIGMAS * noise(worst), math.log(1.5)):
        slower = _SIDES[0] if out[worst] < into[worst] else _SIDES[1]
        yield finding(
            "sides-differ", size=format_size(worst), factor=f"{apart[worst]:.2g}", slower=slower
        )


def with_curve(log: Log) -> Log:
    """Return a log with what its curves show among its findings."""
    return replace(log, findings=(*log.findings, *curve_findings(log)))


def curve_line(log: Log) -> str:
    """Return what the longest series of a log shows in one line; empty where no model fits."""
    series = series_of(log)
    regimes = fit(series[0]) if series else ()
    if not regimes:
        return ""
    fastest = max((each.rate for each in regimes if not math.isinf(each.rate)), default=0.0)
    begins = ", ".join(format_size(after.first) for after in regimes[1:])
    text = f"{scale('s', regimes[0].start).quantity(regimes[0].start)} to start"
    text += f", {scale('B/s', fastest).quantity(fastest)} at most" if fastest else ""
    return text + (f"; regimes begin at {begins}" if begins else "")
