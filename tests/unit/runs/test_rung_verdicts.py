"""What a rung of `fabbench accept` says about its nodes: rejected only by what would show again."""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from fabbench.hosts.check import Check, Status
from fabbench.model.errors import Fault, MachineError
from fabbench.model.log import Finding, Log, Outcome, Severity
from fabbench.remote.transport import SilentHostError
from fabbench.report.certificate import RungResult, State
from fabbench.runs.document import SweepDocument, TestResult
from fabbench.runs.rung_verdicts import _judged_without_figures, judge_checks, judge_sweep
from fabbench.runs.store import StoredSweep
from fabbench.runs.sweep import SweepRun

BLANK = RungResult(name="pairs", what="Pairs", state=State.INCOMPLETE)
LOG = Log(
    source="", benchmark="osu", case=None, outcome=Outcome.FAILED, reason="It exited.", facts={}
)
NODES = ("a", "b", "c", "d")


def found(code: str) -> Finding:
    return Finding(code=code, severity=Severity.ERROR, meaning="")


@pytest.mark.parametrize(
    ("log", "state", "fault"),
    [
        (LOG, State.INCOMPLETE, Fault.SOFTWARE),
        (replace(LOG, findings=(found("program-missing"),)), State.INCOMPLETE, Fault.SOFTWARE),
        (replace(LOG, findings=(found("crashed"),)), State.INCOMPLETE, Fault.SOFTWARE),
        (replace(LOG, outcome=Outcome.TIMEOUT), State.INCOMPLETE, Fault.SOFTWARE),
        (replace(LOG, findings=(found("no-route"),)), State.INCOMPLETE, Fault.INFRASTRUCTURE),
        (replace(LOG, lost=True), State.INCOMPLETE, Fault.INFRASTRUCTURE),
        (replace(LOG, outcome=Outcome.UNPROVEN), State.INCOMPLETE, None),
        (replace(LOG, findings=(found("port-down"),)), State.FAILED, Fault.HARDWARE),
        (replace(LOG, findings=(found("xid"),)), State.FAILED, Fault.HARDWARE),
        (replace(LOG, outcome=Outcome.CORRUPT), State.FAILED, Fault.HARDWARE),
        (replace(LOG, outcome=Outcome.OFF_FABRIC), State.FAILED, Fault.SOFTWARE),
    ],
)
def test_only_what_would_show_again_rejects(log: Log, state: State, fault: Fault | None) -> None:
    result = _judged_without_figures(BLANK, None, [log])
    assert (result.state, result.fault_class) == (state, fault)


def test_a_lost_host_is_named_and_another_error_is_a_doubt() -> None:
    lost = _judged_without_figures(BLANK, SilentHostError("b", "No answer from b.", hint=""), [LOG])
    assert (lost.state, set(lost.bad), lost.fault_class) == (
        State.FAILED,
        {"b"},
        Fault.INFRASTRUCTURE,
    )
    assert (
        _judged_without_figures(BLANK, MachineError("no mpirun"), [LOG]).state is State.INCOMPLETE
    )


def sweep_where(node: str, **broken: object) -> SweepRun:
    """A sweep of all pairs, twice, in which those of a node fail."""
    pairs = [(a, b) for a in NODES for b in NODES if a < b] * 2
    tests = []
    for number, pair in enumerate(pairs):
        test = TestResult(
            number=number, round=number, nodes=pair, outcome="ok", value=1e9, seconds=10
        )
        if node in pair or node == "all":
            failed = {"outcome": "failed", "value": None, "reason": "It exited.", **broken}
            test = replace(test, **failed)  # type: ignore[arg-type]
        tests.append(test)
    return sweep_of(tests)


def sweep_of(tests: Sequence[TestResult], nodes: tuple[str, ...] = NODES) -> SweepRun:
    document = SweepDocument(
        mode="diagnose",
        benchmark="pingpong",
        fabric="tcp",
        nodes=nodes,
        metric="bandwidth",
        seed=0,
        confidence=0.99,
        tolerance=0.1,
    )
    return SweepRun(sweep=StoredSweep(Path("r"), document, tests, ()), out_of_time=True)


def nics_where(nic: str, slow: Collection[str]) -> SweepRun:
    """A sweep of all pairs by NIC, three times, in which a NIC of some nodes is at half speed."""
    nics = ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")
    pairs = [(a, b) for a in NODES for b in NODES if a < b] * 3
    tests = []
    for number, (pair, name) in enumerate(product(pairs, nics)):
        value = 0.5e9 if name == nic and set(pair) & set(slow) else 1e9
        value *= 1 + 0.01 * math.sin(number)
        test = TestResult(number=number, round=number, nodes=pair, outcome="ok", value=value)
        tests.append(replace(test, rail=name))
    document = SweepDocument(
        mode="diagnose",
        benchmark="perftest",
        fabric="roce",
        nodes=NODES,
        metric="bandwidth",
        seed=0,
        confidence=0.99,
        tolerance=0.1,
        nics=nics,
    )
    return SweepRun(sweep=StoredSweep(Path("r"), document, tests, ()), out_of_time=True)


def test_a_node_that_lacks_the_program_is_left_out_and_not_rejected() -> None:
    result = judge_sweep(sweep_where("c", fault=Fault.SOFTWARE, said="not found"), BLANK, ())
    assert (result.state, result.bad, set(result.left_out), result.fault_class) == (
        State.INCOMPLETE,
        {},
        {"c"},
        Fault.SOFTWARE,
    )
    assert "not found" in result.why


def test_a_node_whose_tests_fail_without_a_reason_is_rejected() -> None:
    result = judge_sweep(sweep_where("c"), BLANK, ())
    assert (result.state, set(result.nodes), result.fault_class) == (
        State.FAILED,
        {"c"},
        Fault.HARDWARE,
    )


def test_a_host_that_is_lost_is_no_fault_of_its_hardware() -> None:
    """Some of its tests time out, the others end when it is given up."""
    ended = sweep_where("c", fault=Fault.INFRASTRUCTURE)
    tests = [*ended.sweep.tests]
    failed = [at for at, each in enumerate(tests) if each.fault]
    tests[failed[0]] = replace(tests[failed[0]], outcome="timeout", fault=None, seconds=30)
    for at in failed[1:]:
        tests[at] = replace(tests[at], outcome="truncated")
    result = judge_sweep(sweep_of(tests), BLANK, ())
    assert (set(result.nodes), result.fault_class) == ({"c"}, Fault.INFRASTRUCTURE)


@pytest.mark.parametrize(("seconds", "state"), [(30, State.FAILED), (15, State.INCOMPLETE)])
def test_what_ran_out_of_time_too_soon_rejects_nobody(seconds: float, state: State) -> None:
    """Healthy tests take 10 s."""
    result = judge_sweep(sweep_where("c", outcome="timeout", seconds=seconds), BLANK, ())
    assert result.state is state
    assert ("--timeout 20" in result.why) == (state is State.INCOMPLETE)


@pytest.mark.parametrize(
    ("again", "seconds"), [("ok", 31.0), ("ok", 28.0), ("ok", 20.0), ("timeout", 60.0), (None, 0.0)]
)
def test_a_test_that_is_repeated_with_more_time_counts_by_that_alone(
    again: str | None, seconds: float
) -> None:
    """Healthy tests take 20 s; one of 30 s ran out of time.

    One whose repeat takes 20 s had time enough, and failed; of 28 s, why it hung is open.
    """
    pairs = [*combinations(NODES, 2)] * 3
    tests = [
        TestResult(number=number, round=number, nodes=pair, outcome="ok", value=1e9, seconds=20)
        for number, pair in enumerate(pairs)
    ]
    out_of_time: dict[str, Any] = {"outcome": "timeout", "value": None, "seconds": 30}
    tests[0] = replace(tests[0], **out_of_time)
    if again:
        more: dict[str, Any] = {} if again == "ok" else out_of_time
        more = {**more, "seconds": seconds}
        repeated = replace(tests[1], number=99, round=99, nodes=pairs[0], longer=True, **more)
        tests.append(repeated)
    result = judge_sweep(replace(sweep_of(tests), out_of_time=False), BLANK, ())
    assert (result.state is State.PASSED) == (seconds == 31), result.why
    assert ("--timeout 40" in result.why) == (again is None or seconds == 28)


@pytest.mark.parametrize(
    ("slow", "nodes", "fault"),
    [
        (NODES, set(), Fault.INFRASTRUCTURE),
        (NODES[:1], set(NODES[:1]), Fault.HARDWARE),
    ],
)
def test_a_slow_nic_of_all_nodes_is_that_of_its_switch_and_no_node(
    slow: tuple[str, ...], nodes: set[str], fault: Fault
) -> None:
    sweep = nics_where("mlx5_1", slow)
    result = judge_sweep(sweep, BLANK, ())
    assert (set(result.nodes), result.fault_class) == (nodes, fault)
    assert result.state is State.FAILED


def test_a_slow_path_between_groups_is_the_infrastructures_and_no_nodes() -> None:
    islands = ({"a0", "a1", "a2", "a3"}, {"b0", "b1", "b2", "b3"})
    nodes = tuple(sorted(islands[0] | islands[1]))
    tests = []
    for number, pair in enumerate([*combinations(nodes, 2)] * 3):
        within = any(set(pair) <= island for island in islands)
        value = (1e9 if within else 0.2e9) * (1 + 0.01 * math.sin(number))
        tests.append(TestResult(number=number, round=number, nodes=pair, outcome="ok", value=value))
    result = judge_sweep(sweep_of(tests, nodes), BLANK, ())
    assert (result.state, set(result.nodes), result.fault_class) == (
        State.FAILED,
        set(),
        Fault.INFRASTRUCTURE,
    )


def test_what_fails_everywhere_rejects_nobody() -> None:
    result = judge_sweep(sweep_where("all", said="Usage: other options"), BLANK, ())
    assert (result.state, result.bad) == (State.INCOMPLETE, {})
    assert "Usage: other options" in result.why


@pytest.mark.parametrize(
    ("name", "state", "fault"),
    [
        ("gpus", State.FAILED, Fault.HARDWARE),
        ("files", State.FAILED, Fault.INFRASTRUCTURE),
        ("memlock", State.INCOMPLETE, Fault.SOFTWARE),
    ],
)
def test_checks_leave_nodes_out(name: str, state: State, fault: Fault) -> None:
    failed = Check(host="a", name=name, status=Status.FAIL, seen="no")
    fine = Check(host="b", name=name, status=Status.PASS, seen="yes")
    result = judge_checks([failed, fine], BLANK)
    assert (result.state, result.fault_class) == (state, fault)
    assert {*result.nodes, *result.left_out} == {"a"}


def test_the_gravest_failure_of_a_node_counts() -> None:
    checks = [
        Check(host="a", name="libfabric", status=Status.FAIL, seen="not found"),
        Check(host="a", name="gpus", status=Status.FAIL, seen="7 of 8"),
        Check(host="a", name="memlock", status=Status.FAIL, seen="64 KiB"),
    ]
    for order in (checks, checks[::-1]):
        result = judge_checks(order, BLANK)
        assert (dict(result.nodes), result.left_out) == ({"a": "gpus: 7 of 8"}, {})
        assert (result.state, result.fault_class) == (State.FAILED, Fault.HARDWARE)


def test_a_neighbors_run_is_a_doubt() -> None:
    """Of a sweep whose tests are else fine."""
    for neighbors, state in (((), State.PASSED), (("Another run was on a.",), State.INCOMPLETE)):
        tests = [
            TestResult(
                number=number,
                round=1,
                nodes=pair,
                outcome="ok",
                value=1e9,
                neighbors=neighbors if number == 2 else (),
            )
            for number, pair in enumerate(combinations(NODES, 2))
        ]
        ended = replace(sweep_of(tests), out_of_time=False)
        result = judge_sweep(ended, BLANK, ())
        assert (result.state, *neighbors) == (state, *([result.why] if neighbors else []))
