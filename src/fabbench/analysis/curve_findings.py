"""What stands out in the curves of one log, as findings and in one line. Pure."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias, TypeVar

from fabbench.analysis.curve import OF_TIME, Curve, Fall, fall, fit, series_of
from fabbench.analysis.dips import Dip, Noise, dip
from fabbench.catalog.expectations import PAIRS, assumed_noise, noise_kinds
from fabbench.evidence.known_errors import finding
from fabbench.model.log import Finding, Log
from fabbench.model.units import format_size, scale

_LEAST = 4
"""Sizes of a curve that is judged."""
_SIGMAS = 3.0
"""Of the noise that the catalog assumes: less is no finding."""
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
    latency = regimes[0].start
    start = scale("s", latency).quantity(latency)
    text = f"{start} to start"
    rates = [each.rate for each in regimes if not math.isinf(each.rate)]
    if rates:
        fastest = scale("B/s", max(rates)).quantity(max(rates))
        text += f", {fastest} at most"
    later = [format_size(each.first) for each in regimes[1:]]
    begins = ", ".join(later)
    return f"{text}; regimes begin at {begins}" if later else text


def curve_findings(log: Log) -> Iterator[Finding]:
    """Yield dips, cliffs, jumps, rates that still grow, and sides that differ."""
    curves = _judged(log)
    noise = _noise_of(log, curves)
    several = len(curves) > 1
    fell = _deepest(fall, curves, noise)
    dipped = _deepest(dip, curves, noise)
    if fell is not None and not fell[1].recovers:
        yield _fall_finding(*fell, several=several)
    elif dipped is not None:
        yield _dip_finding(*dipped, several=several)
    elif fell is not None:
        yield _fall_finding(*fell, several=several)
    elif curves and _still_grows(curves[0]):
        largest = curves[0].sizes[-1]
        yield finding("still-grows", size=format_size(largest))
    yield from _sides(curves, noise)


def _judged(log: Log) -> list[Curve]:
    """Return the curves of a log that are long enough, without those of statistics."""
    curves = [each for each in series_of(log) if "stat " not in each.labels]
    return [each for each in curves if len(each.sizes) >= _LEAST]


def _noise_of(log: Log, curves: Sequence[Curve]) -> Noise:
    transport = str(log.facts.get("transport", ""))
    collective = any(each.metric == _OF_COLLECTIVES for each in curves)
    kinds = noise_kinds({transport}) if collective else {PAIRS}
    return lambda size: assumed_noise(kinds, size)


class _Deep(Protocol):
    """What is lower than it should be, by a factor."""

    @property
    def factor(self) -> float: ...


_DeepT = TypeVar("_DeepT", bound=_Deep)


_Find: TypeAlias = Callable[[Curve, Noise], _DeepT | None]


def _deepest(
    find: _Find[_DeepT], curves: Sequence[Curve], noise: Noise
) -> tuple[Curve, _DeepT] | None:
    """Return the deepest of what is found in curves, with its curve."""
    found: list[tuple[Curve, _DeepT]] = []
    for curve in curves:
        deep = find(curve, noise)
        if deep is not None:
            found.append((curve, deep))
    return max(found, key=_depth, default=None)


def _depth(found: tuple[Curve, _Deep]) -> float:
    _, deep = found
    return deep.factor


def _fall_finding(curve: Curve, found: Fall, *, several: bool) -> Finding:
    code = "dip" if found.recovers else "cliff"
    if curve.metric == OF_TIME:
        code = "latency-jump"
    return _finding(
        code,
        curve,
        found.size,
        several=several,
        size=format_size(found.size),
        before=found.before,
    )


def _dip_finding(curve: Curve, found: Dip, *, several: bool) -> Finding:
    code = "latency-jump" if curve.metric == OF_TIME else "dip"
    sizes = format_size(found.first)
    if found.last != found.first:
        sizes = f"{sizes} to {format_size(found.last)}"
    before = found.rate * found.factor
    return _finding(code, curve, found.worst, several=several, size=sizes, before=before)


def _finding(  # noqa: PLR0913 - the words of a finding
    code: str, curve: Curve, at: int, *, several: bool, size: str, before: float
) -> Finding:
    """Return a finding on a size, of which a rate `before` was expected, in bytes per second."""
    rate = curve.rate_at[at]
    time = curve.times[curve.sizes.index(at)]
    rates = scale("B/s", before)
    return finding(
        code,
        size=size,
        rate=rates.quantity(rate),
        before=rates.quantity(before),
        time=scale("s", 0).quantity(time),
        factor=format(before / rate, ".2g"),
        which=f" ({curve.labels})" if several else "",
    )


def _still_grows(curve: Curve) -> bool:
    """Return whether the rate is highest at the largest size, and grew much by the last step."""
    if curve.metric == OF_TIME:
        return False
    last = curve.rates[-1]
    before, largest = curve.sizes[-2:]
    doublings = math.log2(largest / before)
    grown = 1 + _GROWS * min(doublings, 1.0)
    if last < max(curve.rates):
        return False
    return last > curve.rates[-2] * grown


def _sides(curves: Sequence[Curve], noise: Noise) -> Iterator[Finding]:
    """Yield where one placement is slower than the other by more than noise."""
    rates: dict[str, dict[int, float]] = {}
    for side in _SIDES:
        for curve in curves:
            if f"placement {side}" in curve.labels:
                rates[side] = curve.rate_at
    if len(rates) < len(_SIDES):
        return
    step = max(curve.step for curve in curves)
    one, other = rates.values()
    apart = _apart(one, other, step)
    significance: dict[int, float] = {}
    for size, times in apart.items():
        significance[size] = math.log(times) / noise(size)
    worst = max(significance, key=significance.__getitem__, default=0)
    if significance.get(worst, 0.0) <= _SIGMAS:
        return
    if apart[worst] <= _LEAST_APART:
        return
    slower = min(_SIDES, key=lambda side: rates[side][worst])
    factor = format(apart[worst], ".2g")
    yield finding("sides-differ", size=format_size(worst), factor=factor, slower=slower)


_Rates: TypeAlias = Mapping[int, float]
"""Size → rate, in bytes per second."""


def _apart(one: _Rates, other: _Rates, step: float) -> dict[int, float]:
    """Return by what factor two series are apart at least, at each size that both have.

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
