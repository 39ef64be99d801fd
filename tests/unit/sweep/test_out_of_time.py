"""A test that hung shows something only where healthy ones take half of its time or less."""

import pytest

from fabbench.model.errors import Exit
from fabbench.model.log import METRICS
from fabbench.sweep.analyze import analyze
from fabbench.sweep.diagnose import DiagnosePlanner
from fabbench.sweep.planner import all_pairs
from fabbench.sweep.readings import Readings
from fabbench.sweep.values import Diagnosis, SweepOutcome, SweepResult, SweepTest
from tests.support.simulated_sweeps import Cluster, named

EIGHT = named(8)


def diagnosed(takes_s: float, limit_s: float = 30) -> Diagnosis:
    """All tests of a node hang until the limit; the others take so long, more or less."""
    cluster = Cluster(EIGHT, {"node-3": 1.0}, takes_s=takes_s, limit_s=limit_s, noise=0.02)
    return cluster.diagnosed(all_pairs(EIGHT))


@pytest.mark.parametrize("takes_s", [1, 9, 14])
def test_a_node_hangs_that_had_twice_the_time_of_healthy_ones(takes_s: float) -> None:
    said = diagnosed(takes_s)
    assert ([each.name for each in said.suspects], said.out_of_time) == (["node-3"], "")
    assert said.status is Exit.BAD_ANSWER


@pytest.mark.parametrize("takes_s", [16, 20, 25])
def test_one_that_had_less_is_undecided_with_the_limit_that_decides(takes_s: float) -> None:
    said = diagnosed(takes_s)
    assert (said.suspects, [each.name for each in said.undecided]) == ([], ["node-3"])
    assert said.status is Exit.UNTRUSTED
    assert said.out_of_time.count("node-3") == 4  # and 3 more
    _, _, advice = said.out_of_time.partition("--timeout ")
    limit_s = float(advice.split()[0])
    assert limit_s == pytest.approx(2 * takes_s, rel=0.1)
    assert diagnosed(takes_s, limit_s + 1).suspects


def test_where_no_time_is_known_a_hang_shows_nothing() -> None:
    cluster = Cluster(EIGHT, takes_s=60, limit_s=30)
    said = cluster.diagnosed(all_pairs(EIGHT))
    assert (said.suspects, said.status) == ([], Exit.UNTRUSTED)
    assert "--timeout SECONDS" in said.out_of_time
    assert {each.name for each in said.undecided} == {*EIGHT}


def test_the_order_in_which_tests_end_is_nothing_to_it() -> None:
    cluster = Cluster(EIGHT, {"node-3": 1.0}, takes_s=9, limit_s=30, noise=0.02)
    tests = [test for each in all_pairs(EIGHT) for test in each.tests]
    readings = cluster.readings([])
    for test in sorted(tests, key=lambda each: "node-3" not in each.nodes):
        readings.add(cluster.measure(test))
    assert [each.name for each in analyze(readings).suspects] == ["node-3"]


@pytest.mark.parametrize("bad", [{"node-3": 1.0}, dict.fromkeys(EIGHT, 1.0)])
def test_no_more_tests_of_nodes_that_run_out_of_time(bad: dict[str, float]) -> None:
    cluster = Cluster(EIGHT, bad, takes_s=20, limit_s=30, noise=0.02)
    planner = DiagnosePlanner(EIGHT, METRICS["busbw"], screening=all_pairs(EIGHT))
    readings, rounds = cluster.carried_out(planner)
    assert rounds == 7
    assert analyze(readings).status is Exit.UNTRUSTED


def loses_packets(test: SweepTest) -> SweepResult:
    """Node 3 of four is bad: one of its tests ends, after nearly twice the usual time."""
    if "node-3" not in test.nodes:
        return SweepResult(test, SweepOutcome.OK, 20.0, seconds=25.0)
    if "node-0" in test.nodes:
        return SweepResult(test, SweepOutcome.OK, 10.0, seconds=47.0)
    return SweepResult(test, SweepOutcome.HUNG, seconds=60.0)


def test_tests_of_a_bad_node_that_do_end_do_not_raise_the_bar() -> None:
    four = named(4)
    readings = Readings(METRICS["busbw"], four)
    for each in all_pairs(four):
        for test in each.tests:
            readings.add(loses_packets(test))
    readings.judge_hung()
    assert (readings.hung, readings.least_s) == ([], 50.0)
