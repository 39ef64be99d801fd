"""What stands out in the curves of one log, as findings and in one line. Pure."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from fabbench.analysis.curve import OF_TIME, SIGMAS, Curve, Drop, fall, fit, series_of
from fabbench.analysis.dips import Noise, dip
from fabbench.catalog.expectations import PAIRS, assumed_noise, noise_kinds
from fabbench.evidence.known_errors import finding
from fabbench.model.log import INSPECTOR, Finding, Log, fact_text
from fabbench.model.units import format_quantity, format_size, scale

_LEAST = 4
"""Sizes of a curve that is judged."""
_LEAST_APART = 1.5
"""A smaller factor between placements is no finding."""
_SIDES = ("out-of-place", "in-place")
_GROWS = 0.2
"""A rate that grows by more at the last doubling of the size still grows."""
_OF_COLLECTIVES = "busbw"


def with_curve(log: Log) -> Log:
    """Return a log with what its curves show among its findings."""
    return replace(log, findings=(*log.findings, *curve_findings(log)))


def curve_line(log: Log) -> str:
    """Return what the longest series of a log shows in one line; empty where no model fits."""
    series = series_of(log)
    regimes = fit(series[0]) if series else ()
    if not regimes:
        return ""
    start = format_quantity(regimes[0].start, "s")
    text = f"{start} to start"
    rates = [each.rate for each in regimes if not math.isinf(each.rate)]
    if rates:
        fastest = format_quantity(max(rates), "B/s")
        text += f", {fastest} at most"
    later = [format_size(each.first) for each in regimes[1:]]
    begins = ", ".join(later)
    return f"{text}; regimes begin at {begins}" if later else text


def curve_findings(log: Log) -> Iterator[Finding]:
    """Yield dips, cliffs, jumps, rates that still grow, and sides that differ."""
    curves = _judged_curves(log)
    noise = _noise_of(log, curves)
    several = len(curves) > 1
    fell = _deepest(fall, curves, noise)
    dipped = _deepest(dip, curves, noise)
    # A fall that larger sizes recover from is a dip, if at all, which `dip` judges better.
    deepest = fell
    if dipped is not None and (fell is None or fell.drop.recovers):
        deepest = dipped
    if deepest is not None:
        yield _drop_finding(*deepest, several=several)
    elif curves and _still_grows(curves[0]):
        largest = curves[0].sizes[-1]
        yield finding("still-grows", size=format_size(largest))
    yield from _placements_apart(curves, noise)


def _judged_curves(log: Log) -> list[Curve]:
    """Return the curves of a log that are long enough, without those of statistics, or of a job."""
    if log.benchmark == INSPECTOR:
        return []
    curves = [each for each in series_of(log) if "stat " not in each.labels]
    return [each for each in curves if len(each.sizes) >= _LEAST]


def _noise_of(log: Log, curves: Sequence[Curve]) -> Noise:
    # Size → the standard deviation of logarithms: of the transport, or of tests between two.
    transport = fact_text(log.facts, "transport")
    collective = any(each.metric == _OF_COLLECTIVES for each in curves)
    kinds = noise_kinds({transport}) if collective else {PAIRS}
    return lambda size: assumed_noise(kinds, size)


_Find: TypeAlias = Callable[[Curve, Noise], Drop | None]


class _Place(NamedTuple):
    """A drop, and the curve that has it."""

    drop: Drop
    curve: Curve


def _deepest(find: _Find, curves: Sequence[Curve], noise: Noise) -> _Place | None:
    """Return the deepest drop that is found in curves."""
    places: list[_Place] = []
    for curve in curves:
        drop = find(curve, noise)
        if drop is not None:
            places.append(_Place(drop, curve))
    return max(places, key=lambda each: each.drop.factor, default=None)


def _drop_finding(drop: Drop, curve: Curve, *, several: bool) -> Finding:
    # `several`: whether the log has more curves, so that this one must be named
    code = "dip" if drop.recovers else "cliff"
    if curve.metric == OF_TIME:
        code = "latency-jump"
    sizes = format_size(drop.first)
    if drop.last != drop.first:
        sizes = f"{sizes} to {format_size(drop.last)}"
    before = drop.rate * drop.factor
    rates = scale("B/s", before)
    time = curve.times[curve.sizes.index(drop.worst)]
    return finding(
        code,
        size=sizes,
        rate=rates.quantity(drop.rate),
        before=rates.quantity(before),
        time=scale("s", largest=0).quantity(time),  # in us, whatever the largest
        factor=format(drop.factor, ".2g"),
        which=f" ({curve.labels})" if several else "",
    )


def _still_grows(curve: Curve) -> bool:
    """Return whether the rate is highest at the largest size, and grew much by the last step."""
    if curve.metric == OF_TIME:
        return False
    last = curve.rates[-1]
    # Curves of fewer sizes are not judged.
    before, largest = curve.sizes[-2:]
    doublings = math.log2(largest / before)
    grown = 1 + _GROWS * min(doublings, 1.0)  # a step of less than twice has to grow less
    if last < max(curve.rates):
        return False
    return last > curve.rates[-2] * grown


def _placements_apart(curves: Sequence[Curve], noise: Noise) -> Iterator[Finding]:
    """Yield the size at which one placement is slower by more than noise, most significantly."""
    rates: dict[str, dict[int, float]] = {}
    for side in _SIDES:
        for curve in curves:
            if f"placement {side}" in curve.labels:
                rates[side] = curve.rate_at
    if len(rates) < len(_SIDES):  # only one placement was measured
        return
    step = max(curve.step for curve in curves)
    one, other = rates.values()
    apart = _factors_apart(one, other, step)
    # Size → the difference, in standard deviations
    significance: dict[int, float] = {}
    for size, times in apart.items():
        significance[size] = math.log(times) / noise(size)
    worst = max(significance, key=significance.__getitem__, default=0)
    if significance.get(worst, 0.0) <= SIGMAS:
        return
    if apart[worst] <= _LEAST_APART:
        return
    slower = min(_SIDES, key=lambda side: rates[side][worst])
    factor = format(apart[worst], ".2g")
    yield finding("sides-differ", size=format_size(worst), factor=factor, slower=slower)


_Rates: TypeAlias = Mapping[int, float]
"""Size → rate, in bytes per second."""


def _factors_apart(one: _Rates, other: _Rates, step: float) -> dict[int, float]:
    """Return size → by what factor two series are apart at least, where both have the size.

    A rate stands for all that are printed alike, in such steps.
    """
    apart: dict[int, float] = {}
    for size, rate in one.items():
        if size in other:
            pair = (rate, other[size])
            lower = min(pair) + step / 2
            higher = max(pair) - step / 2
            apart[size] = max(higher / lower, 1.0)
    return apart
