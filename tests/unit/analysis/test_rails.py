"""Rails: what they come to, and how that is shown."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import compare
from fabbench.analysis.highlights import RailFigures, rails_of
from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.model.hosts import Host
from fabbench.model.log import Log, Outcome, Point
from fabbench.report import render_comparison
from fabbench.report.comparison_tables import remarks
from tests.support.rail_plans import first_execution, measured


def log_of(
    figures: Mapping[str, Sequence[float]],
    *,
    metric: str = "bandwidth",
    outcome: Outcome = Outcome.OK,
    facts: Mapping[str, str] | None = None,
) -> Log:
    """A log with one row for each figure of each device, at 64 KB."""
    points = [
        Point(65536, {"device": device, "side": "client"}, (metric,), (value,))
        for device, values in figures.items()
        for value in values
    ]
    return Log(
        source="x",
        benchmark="perftest",
        case="ib_write_bw",
        outcome=outcome,
        reason=None,
        facts={"transport": "RC", **(facts or {})},
        points=points,
    )


TWO = log_of({"mlx5_0": [10e9], "mlx5_1": [5e9]})


def rails(*logs: Log) -> list[RailFigures]:
    return rails_of(compare([Column(label="ib", logs=logs, source="x")]))


# ---------------------------------------------------------------- what they come to


def test_mean_sum_and_the_slowest() -> None:
    (spread,) = rails(log_of({"mlx5_1": [10e9], "mlx5_0": [12e9], "mlx5_2": [5e9]}))
    assert (spread.size, spread.mean, spread.total, spread.slowest) == (65536, 9e9, 27e9, "mlx5_2")
    assert spread.lagging() == {"mlx5_2": pytest.approx(4 / 9)}


def test_latencies_do_not_add_up_and_the_longest_is_the_slowest() -> None:
    (spread,) = rails(log_of({"a": [2e-6], "b": [3e-6]}, metric="latency"))
    assert (spread.total, spread.slowest, list(spread.lagging())) == (None, "b", ["b"])


def test_repeats_give_their_median_and_columns_that_are_not_ok_nothing() -> None:
    good = [log_of({"a": [value], "b": [1.0]}) for value in (1.0, 2.0, 9.0)]
    bad = log_of({"a": [100.0], "b": [100.0]}, outcome=Outcome.OFF_FABRIC)
    (spread,) = rails(*good)
    assert spread.figures == {"a": 2.0, "b": 1.0}
    assert rails(bad) == []


def test_one_device_is_no_rails() -> None:
    assert rails(log_of({"a": [1.0]})) == []


def test_the_client_counts_where_both_sides_printed() -> None:
    log = log_of({"a": [2.0], "b": [3.0]})
    server = [Point(65536, {"device": "a", "side": "server"}, ("bandwidth",), (9.0,))]
    (spread,) = rails(replace(log, points=[*server, *log.points]))
    assert spread.figures == {"a": 2.0, "b": 3.0}


@pytest.mark.parametrize(
    ("facts", "expected"), [({}, "one after another"), ({"together": "yes"}, "concurrently")]
)
def test_the_table_says_how_to_read_the_sum(facts: Mapping[str, str], expected: str) -> None:
    log = log_of({"a": [10e9], "b": [10e9], "c": [7e9]}, facts=facts)
    shown = remarks(compare([Column(label="ib", logs=(log,), source="x")]))[-1]
    assert list(shown.rows) == [
        ["ib", "bandwidth", "64 KB", "3", "9 GB/s", "27 GB/s", "c (7 GB/s)"]
    ]
    first, second = shown.notes
    assert expected in first
    assert second.startswith(
        "ib: c stands out at 64 KB: 7 GB/s, 22 % worse than the mean of 9 GB/s"
    )


def test_rails_are_no_repeats_in_a_comparison_and_share_its_table() -> None:
    comparison = compare([Column(label="ib", logs=(TWO,), source="x")])
    figures = [row.figures[0] for section in comparison.sections for row in section.rows]
    assert [(figure.value, figure.n) for figure in figures if figure] == [(10e9, 1), (5e9, 1)]
    lines = [line.split() for line in render_comparison(comparison).splitlines()]
    assert ["|", "mlx5_0", "|", "64", "KB", "|", "10.00", "|"] in lines
    assert ["|", "mlx5_1", "|", "64", "KB", "|", "5.00", "|"] in lines
    assert ["###", "Rails"] in lines


def test_single_devices_of_other_names_are_compared_anyway() -> None:
    one, other = (
        Column(label=name, logs=(log_of({name: [value]}),), source=name)
        for name, value in (("mlx5_0", 10e9), ("mlx5_1", 5e9))
    )
    (section,) = compare([one, other]).sections
    assert section.rows[0].ratios == (2.0, None)


def test_a_configuration_without_rails_stands_beside_each_of_them() -> None:
    tcp = replace(log_of({}), points=[Point(65536, {"side": "client"}, ("bandwidth",), (2e9,))])
    comparison = compare(
        [Column(label=label, logs=(log,), source="x") for label, log in (("ib", TWO), ("tcp", tcp))]
    )
    assert [each.column for each in rails_of(comparison)] == ["ib"]
    assert [(section.key["device"], section.rows[0].ratios) for section in comparison.sections] == [
        ("mlx5_0", (5.0, None)),
        ("mlx5_1", (2.5, None)),
    ]


@pytest.mark.local
@pytest.mark.parametrize(
    ("wanted", "outcome"),
    [pytest.param("lo", Outcome.OK, marks=pytest.mark.slow), ("eth7", Outcome.OFF_FABRIC)],
)
def test_each_steps_own_domain_is_proven(wanted: str, outcome: Outcome) -> None:
    """Two real ping-pongs over lo, as steps of two devices.

    The second one says that it is on `wanted`.
    """
    host = Host(name="here", providers={"tcp": frozenset({"msg"})})
    execution, on_lo = (
        first_execution(
            "pingpong", PingpongWork(sizes=(64,), iterations=10, domain=domain), "tcp", (host,)
        )
        for domain in (None, "lo")
    )
    (step,) = on_lo.steps
    steps = [
        replace(
            step,
            id=f"{execution.id}/{name}-64",
            facts={**step.facts, "device": name, "domain": domain},
        )
        for name, domain in (("one", "lo"), ("two", wanted))
    ]
    log = measured(replace(execution, steps=tuple(steps)), host)
    assert log.outcome is outcome, log.reason
    assert [point.labels["device"] for point in log.points] == ["one", "one", "two", "two"]
    if outcome is Outcome.OFF_FABRIC:
        assert log.reason is not None
        assert re.fullmatch(r"Step two-64 requested domain eth7, but the \w+ used lo\.", log.reason)
