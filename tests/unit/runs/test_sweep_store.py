"""Sweeps on disk: what survives, and what is read of one that was cut off."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.model.errors import RequestError
from fabbench.model.plan import Configuration, Plan
from fabbench.runs.document import SweepDocument, TestResult, write
from fabbench.runs.store import RunWriter, StoredRun, StoredSweep, stored_sweep
from fabbench.runs.summary import summary_of
from fabbench.runs.sweep import planner_of, unfinished
from fabbench.runs.sweep_logs import read_sweep_logs
from fabbench.sweep.values import SweepOutcome, SweepTest
from fabbench.testing import two_hosts
from tests.support.requests import request

DOCUMENT = {
    "mode": "pairs",
    "benchmark": "nccl",
    "fabric": "efa",
    "nodes": ["a", "b", "c"],
    "metric": "busbw",
    "seed": 0,
    "confidence": 0.99,
    "tolerance": 0.1,
    "group_of": {"a": "rack-1", "b": "rack-1", "c": "rack-2"},
}


def measured(number: int, *nodes: str, **more: object) -> TestResult:
    values = {"round": 1, "outcome": "ok", "value": 1e9, **more}
    return TestResult(number=number, nodes=nodes, **values)  # type: ignore[arg-type]


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    write(tmp_path / "request.json", {"format": 1, "sweep": DOCUMENT})
    return tmp_path


def add_test(sweep: Path, *results: TestResult) -> None:
    for each in results:
        write(sweep / "tests" / f"{each.number:06}.json", each)


def read(path: Path) -> StoredSweep:
    return stored_sweep(StoredRun(path))


def test_what_is_left_of_a_sweep_is_known_from_its_tests(sweep: Path) -> None:
    number = 0
    planner = planner_of(read(sweep).document, ())
    assert unfinished(read(sweep)).startswith("1 test of round 1 (all pairs, round 1 of 3) and any")
    while (planned := planner.next_round()) is not None:
        for test in planned.tests:
            assert unfinished(read(sweep)).startswith("1 test of round ")
            each = TestResult(
                number=number, round=planned.number, nodes=test.nodes, outcome="ok", value=1e9
            )
            add_test(sweep, each)
            planner.add(each.result)
            number += 1
    assert number >= 3
    assert unfinished(read(sweep)) == ""


@pytest.mark.parametrize("raises_limit", [True, False])
def test_a_test_that_ran_out_of_time_is_left_if_the_limit_may_be_raised(
    tmp_path: Path, *, raises_limit: bool
) -> None:
    document = {**DOCUMENT, "group_of": {}, "raises_limit": raises_limit}
    write(tmp_path / "request.json", {"format": 1, "sweep": document})
    planner = planner_of(read(tmp_path).document, ())
    for number in range(3):  # all pairs
        planned = planner.next_round()
        assert planned is not None
        (test,) = planned.tests
        each = measured(number, *test.nodes, round=planned.number, seconds=20, longer=test.longer)
        if set(test.nodes) == {"b", "c"}:
            each = replace(each, outcome="timeout", value=None, seconds=30)
        add_test(tmp_path, each)
        planner.add(each.result)
    left = unfinished(read(tmp_path))
    assert left.startswith("1 test of round 4 (1 test again") if raises_limit else left == ""


def test_what_is_added_is_read_again(sweep: Path) -> None:
    tests = [
        measured(0, "a", "b", nics={"mlx5_0": 2.0}, notes=("retransmits",)),
        measured(1, "a", "c", outcome="timeout", value=None, reason="It hung."),
        measured(2, "a", "c", outcome="timeout", value=None, reason="It hung.", longer=True),
    ]
    add_test(sweep, *tests)
    found = read(sweep)
    assert list(found.tests) == tests
    assert found.document == msgspec.convert(DOCUMENT, SweepDocument)
    assert found.damage == []


def test_what_went_on_is_forgotten_when_it_is_resumed(tmp_path: Path) -> None:
    asked, efa = (
        request("pingpong", PingpongWork(), store=tmp_path),
        Configuration(label="efa", fabric="efa"),
    )
    whole = Plan(benchmark="pingpong", target="replay", configurations=(efa,), executions=())
    writer = RunWriter(asked, two_hosts(), whole, None, msgspec.convert(DOCUMENT, SweepDocument))
    path, sweep = writer.path, StoredRun(writer.path)
    for name in ("exec/000003-efa-r1/output.log", "counters/000003-efa-r1.json"):
        write(path / name, "half")
    with pytest.raises(RequestError, match="in progress"):
        RunWriter(asked, two_hosts(), whole, sweep)
    del writer
    again = RunWriter(asked, two_hosts().part((1, 0)), whole, sweep)
    assert (again.path, [*(path / "exec").iterdir()], [*(path / "counters").iterdir()]) == (
        path,
        [],
        [],
    )
    with pytest.raises(RequestError, match="other nodes"):
        RunWriter(asked, two_hosts().part((0,)), whole, sweep)


def test_a_damaged_test_is_reported_and_the_others_count(sweep: Path) -> None:
    add_test(sweep, measured(0, "a", "b"), measured(2, "b", "c"))
    (sweep / "tests/000001.json").write_text('{"number": "one"}\n')
    found = read(sweep)
    assert [each.number for each in found.tests] == [0, 2]
    assert "tests/000001.json is damaged" in found.damage[0]
    summary = summary_of(StoredRun(sweep))
    assert (summary.outcomes, found.damage[0] in summary.damaged) == ({"ok": 2}, True)


@pytest.mark.parametrize(
    ("given", "outcome", "figure", "reason"),
    [
        ({}, SweepOutcome.OK, 1e9, ""),
        (
            {"outcome": "timeout", "reason": "It hung."},
            SweepOutcome.HUNG,
            None,
            "timeout: It hung.",
        ),
        ({"outcome": "failed", "reason": "No route."}, SweepOutcome.FAILED, None, "No route."),
        ({"outcome": "off-fabric"}, SweepOutcome.FAILED, None, "off-fabric"),
    ],
)
def test_what_planners_are_reported(
    given: dict[str, str], outcome: SweepOutcome, figure: float | None, reason: str
) -> None:
    result = measured(0, "a", "b", rail="mlx5_1", **given).result
    assert result.test == SweepTest(("a", "b"), "mlx5_1")
    assert (result.outcome, result.figure, result.reason, result.round) == (
        outcome,
        figure,
        reason,
        1,
    )


def test_a_sweep_that_is_judged_again_has_its_types_and_groups(tmp_path: Path) -> None:
    types = {"a": "p5.48xlarge", "b": "p4d.24xlarge"}
    sweep = tmp_path / "20260101T000000Z-nccl-1"
    write(sweep / "request.json", {"format": 1, "sweep": {**DOCUMENT, "types": types}})
    add_test(sweep, measured(0, "a", "b"))
    found = read_sweep_logs([str(sweep)], tmp_path)
    assert (found.types, found.group_of) == (types, DOCUMENT["group_of"])
