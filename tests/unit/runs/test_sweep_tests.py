"""What the logs of one test of a sweep say of its nodes."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from fabbench.model.errors import RequestError
from fabbench.model.log import Log, Outcome, Point
from fabbench.runs.document import TestResult
from fabbench.runs.sweep import _about_failure, require_digits, require_nodes, with_figures
from fabbench.sweep.values import SweepOutcome


def log(*points: Point, outcome: Outcome = Outcome.OK, **more: Any) -> Log:
    given: dict[str, Any] = {"reason": None, "facts": {}, "case": "all_reduce", "benchmark": "nccl"}
    values: dict[str, Any] = {**given, **more}
    return Log(source="x", outcome=outcome, points=points, **values)


def point(
    size: int, value: float, metric: str = "busbw", labels: Mapping[str, str] | None = None
) -> Point:
    return Point(size, labels or {}, ("time", metric), (1.0, value))


def figures(logs: Sequence[Log], metric: str) -> TestResult:
    return with_figures(
        TestResult(number=0, round=1, nodes=("a", "b"), outcome="skipped"), logs, metric
    )


@pytest.mark.parametrize(("count", "mode"), [(2, "pairs"), (1000, "pairs"), (1001, "diagnose")])
def test_so_many_nodes_can_be_swept(count: int, mode: str) -> None:
    require_nodes(count, mode)


@pytest.mark.parametrize(("count", "mode"), [(1, "diagnose"), (1001, "pairs")])
def test_too_few_nodes_and_too_many_pairs_are_refused(count: int, mode: str) -> None:
    with pytest.raises(RequestError):
        require_nodes(count, mode)


def test_the_largest_size_counts() -> None:
    assert figures([log(point(8, 1.0), point(1024, 5.0))], "busbw").value == 5.0


def test_in_place_and_statistics_do_not() -> None:
    own = {"placement": "out-of-place"}
    points = (
        point(8, 5.0, labels=own),
        point(8, 9.0, labels={"placement": "in-place"}),
        point(8, 7.0, labels={**own, "stat": "max"}),
    )
    assert figures([log(*points)], "busbw").value == 5.0


def test_of_several_nics_the_slowest_decides() -> None:
    points = (
        point(8, 5.0, labels={"device": "mlx5_0"}),
        point(8, 3.0, labels={"device": "mlx5_1"}),
    )
    found = figures([log(*points)], "busbw")
    assert found.value == 3.0
    assert found.nics == {"mlx5_0": 5.0, "mlx5_1": 3.0}


def test_of_times_the_longest_is_the_slowest() -> None:
    points = (
        point(8, 5.0, "latency", labels={"device": "mlx5_0"}),
        point(8, 3.0, "latency", labels={"device": "mlx5_1"}),
    )
    assert figures([log(*points)], "latency").value == 5.0


def test_the_worst_outcome_decides_and_leaves_no_figure() -> None:
    bad = log(point(8, 1.0), outcome=Outcome.OFF_FABRIC, reason="Sockets carried it.")
    found = figures([log(point(8, 1.0)), bad], "busbw")
    assert (found.outcome, found.reason, found.value) == (
        Outcome.OFF_FABRIC,
        "Sockets carried it.",
        None,
    )


def test_a_metric_that_nothing_has_is_no_failure_of_the_nodes() -> None:
    found = figures([log(point(8, 1.0))], "latency")
    assert (found.outcome, found.value) == (Outcome.SKIPPED, None)
    assert "latency" in found.reason
    assert found.result.outcome is SweepOutcome.UNUSABLE


def test_a_figure_that_is_printed_as_0_is_measured_in_steps() -> None:
    found = figures([log(point(8, 0.0))], "busbw")
    assert (found.outcome, found.value, found.step) == (Outcome.OK, 0.0, 1e7)
    assert found.result.is_measured
    assert figures([log(point(8, 0.0, "wrong"))], "wrong").outcome == Outcome.SKIPPED


def test_rows_whose_zeros_are_left_out_print_0() -> None:
    rows = Point(64, {}, ("latency",), (16e-3,))
    found = figures([log(rows, benchmark="pingpong", case="")], "bandwidth")
    assert (found.outcome, found.value, found.step) == (Outcome.OK, 0.0, 1e4)


@pytest.mark.parametrize(("figure", "refused"), [(0.0, True), (2e7, True), (1e8, False)])
def test_too_few_printed_digits_end_a_sweep_after_its_first_tests(
    figure: float, refused: bool
) -> None:
    tests = [figures([log(point(8, figure))], "busbw")] * 4
    with pytest.raises(RequestError, match="too small") if refused else nullcontext():
        require_digits(tests, "busbw", 0.1)


def test_what_is_said_is_that_of_the_nic_that_failed() -> None:
    failed = log(outcome=Outcome.FAILED, said="mlx5_1: port is down")
    logs = [log(point(8, 1.0)), failed]
    assert _about_failure(figures(logs, "busbw"), logs)["said"] == "mlx5_1: port is down"
