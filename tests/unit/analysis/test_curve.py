"""Curves of one log: regimes, and what stands out."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from fabbench.analysis.curve import fit, series_of
from fabbench.analysis.curve_findings import curve_findings
from fabbench.model.log import Log, Outcome, Point

SIZES = [8 << step for step in range(28)]
ROW = {"placement": "out-of-place"}


def log_of(time: Callable[[int], float], sizes: Sequence[int] = SIZES, **facts: str | int) -> Log:
    """Return a log of an all_reduce, whose busbw is twice size / time."""
    rows = [(size, time(size)) for size in sizes]
    points = [Point(size, ROW, ("time", "busbw"), (took, 2 * size / took)) for size, took in rows]
    known = {"transport": "efa", **facts}
    return Log(
        source="a",
        benchmark="nccl",
        case="x",
        outcome=Outcome.OK,
        reason=None,
        facts=known,
        points=points,
    )


def plain(size: int) -> float:
    """Start in 20 us, then 50 GB/s: busbw 100 GB/s."""
    return 20e-6 + size / 50e9


def codes(log: Log) -> list[str]:
    return [found.code for found in curve_findings(log)]


def test_a_curve_of_one_regime_gives_back_its_start_and_its_rate() -> None:
    (regime,) = fit(series_of(log_of(plain))[0])
    assert [regime.start, regime.rate] == pytest.approx([20e-6, 100e9], rel=0.02)


def test_regimes_begin_where_the_protocol_changes() -> None:
    regimes = fit(
        series_of(log_of(lambda size: plain(size) if size < 1 << 20 else 90e-6 + size / 200e9))[0]
    )
    assert [regime.first for regime in regimes] == [8, 1 << 20]
    assert regimes[-1].rate == pytest.approx(400e9, rel=0.02)


@pytest.mark.parametrize(
    ("factors", "found"),
    [
        ({}, []),
        ({1 << 26: 3.0}, ["dip"]),
        ({size: 3.0 for size in SIZES if size >= 1 << 28}, ["cliff"]),
        ({1 << 26: 1.05}, []),
        ({1 << 26: 2.0, 1 << 27: 2.0}, ["dip"]),
        ({1 << 26: 2.0, 1 << 27: 2.0, 1 << 28: 2.0}, ["dip"]),
        # A start that is slow once is noise.
        ({16: 2.0}, []),
    ],
)
def test_what_stands_out_is_named(factors: dict[int, float], found: list[str]) -> None:
    log = log_of(lambda size: plain(size) * factors.get(size, 1.0))
    assert codes(log) == found
    for each in curve_findings(log):
        assert "64 MB" in each.meaning or "256 MB" in each.meaning


def test_a_time_that_jumps_is_named_where_no_rate_is_printed() -> None:
    times = [(size, plain(size) * (5 if size >= 1 << 26 else 1)) for size in SIZES]
    points = [Point(size, {}, ("latency",), (time,)) for size, time in times]
    assert codes(replace(log_of(plain), points=points)) == ["latency-jump"]


def test_a_rate_that_still_grows_is_said_to() -> None:
    assert codes(log_of(plain, SIZES[:18])) == ["still-grows"]


@pytest.mark.slow
def test_noise_is_rarely_taken_for_a_dip() -> None:
    dice = random.Random(1)
    logs = [log_of(lambda size: plain(size) * dice.lognormvariate(0, 0.05)) for _ in range(200)]
    assert sum("dip" in codes(log) or "cliff" in codes(log) for log in logs) <= 10


def test_sides_that_differ_are_named() -> None:
    log, slow = log_of(plain), log_of(lambda size: plain(size) * (4 if size == 1 << 30 else 1))
    into = [point._replace(labels={"placement": "in-place"}) for point in slow.points]
    found = {
        each.code: each.meaning
        for each in curve_findings(replace(log, points=[*log.points, *into]))
    }
    assert "in-place is 4 times slower" in found["sides-differ"]


COARSE = (0.02, 0.02, 0.01, 0.02, 0.01, 0.01, 0.02, 0.01)
"""GB/s that are printed with two decimals, and may all be 0.015."""


@pytest.mark.parametrize("rate", [1e9, 100e9])
def test_what_last_printed_digits_explain_is_no_finding(rate: float) -> None:
    sides = {"out-of-place": COARSE, "in-place": COARSE[::-1]}
    points = [
        Point(size, {"placement": side}, ("time", "busbw"), (20e-6, figure * rate))
        for side, rates in sides.items()
        for size, figure in zip(SIZES[17:], rates, strict=False)
    ]
    coarse = replace(log_of(plain), points=points)
    found = {*codes(coarse)}.intersection({"cliff", "dip", "sides-differ"})
    assert bool(found) == (rate > 1e9)


def test_a_median_between_two_printed_figures_is_as_coarse_as_they_are() -> None:
    """Two rows of one size, one digit apart: 91.755 lies between two printed figures."""
    points = [Point(1 << 30, ROW, ("busbw",), (rate,)) for rate in (91.75e9, 91.76e9)]
    (series,) = series_of(replace(log_of(plain), points=points))
    assert series.rates == (91.755e9,)
    assert series.step == pytest.approx(0.01e9)
