"""A test that hung shows something only where healthy ones take half of its time or less.

Else it is repeated with twice the limit, unless the user set it.
"""

from collections import Counter

import pytest

from fabbench.model.errors import Exit
from fabbench.model.log import METRICS
from fabbench.sweep.analyze import analyze
from fabbench.sweep.diagnose import DiagnosePlanner
from fabbench.sweep.planner import all_pairs, matchings, rails
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
    assert said.out_of_time
    assert "--timeout" not in said.out_of_time
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


def patient(nodes: list[str] = EIGHT) -> DiagnosePlanner:
    """A planner of all pairs that may raise the limit."""
    return DiagnosePlanner(
        nodes, METRICS["busbw"], screening=all_pairs(nodes), raises_limit=True, tolerance=0.3
    )


def results_of(cluster: Cluster, planner: DiagnosePlanner) -> list[SweepResult]:
    """All results of what a planner asks for."""
    results: list[SweepResult] = []
    while (planned := planner.next_round()) is not None:
        for test in planned.tests:
            result = cluster.measure(test, planned.number)
            results.append(result)
            planner.add(result)
    return results


def judged(results: list[SweepResult], nodes: list[str] = EIGHT) -> Diagnosis:
    return analyze(Readings(METRICS["busbw"], nodes, results), tolerance=0.3)


def slow_cluster(**more: object) -> Cluster:
    """Healthy tests take 20 s, and the limit is 30 s."""
    given: dict[str, object] = {"takes_s": 20, "limit_s": 30, "noise": 0.02, **more}
    return Cluster(EIGHT, **given)  # type: ignore[arg-type]


def test_a_hang_that_shows_nothing_is_repeated_with_twice_the_limit_and_then_named() -> None:
    results = results_of(slow_cluster(bad_nodes={"node-3": 1.0}), patient())
    said = judged(results)
    assert ([each.name for each in said.suspects], said.out_of_time) == (["node-3"], "")
    assert said.status is Exit.BAD_ANSWER
    assert judged([each for each in results if not each.test.longer]).suspects == []


@pytest.mark.parametrize("part", [1.0, 0.3])
def test_the_round_after_one_ran_out_of_time_too_soon_and_all_later_ones_have_more(
    part: float,
) -> None:
    cluster = slow_cluster(bad_nodes={"node-3": 1.0}, flaky=part, seed=2)
    results = results_of(cluster, patient())
    first = min(each.round for each in results if each.outcome is SweepOutcome.HUNG)
    assert all(each.test.longer == (each.round > first) for each in results)
    if part == 1:  # each test hangs, and the node is accused by those with more time
        assert first == 1
        assert not any(each.test.usual == results[0].test for each in results[1:])


def test_what_ran_out_of_time_is_repeated_once() -> None:
    cluster = slow_cluster(takes_s=28, noise=0.06, seed=3)
    results = results_of(cluster, patient())
    hung = [each for each in results if each.outcome is SweepOutcome.HUNG]
    first = [each.test for each in hung if not each.test.longer]
    after_screening = [each.test for each in results if each.round == 8]
    assert first
    assert [test.usual for test in after_screening] == first


@pytest.mark.parametrize("takes_s", [27, 28, 29, 30])
@pytest.mark.parametrize("draws", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_healthy_tests_that_take_as_long_as_the_limit_are_fine(takes_s: float, draws: int) -> None:
    """A repeat that ended within the usual limit leaves open why the first one did not.

    Then more tests of its nodes show that they do not hang now and then.
    """
    hung = 0
    for seed in range(draws):
        cluster = slow_cluster(takes_s=takes_s, noise=0.06, seed=seed)
        results = results_of(cluster, patient())
        hung += sum(each.outcome is SweepOutcome.HUNG for each in results)
        said = judged(results)
        assert (said.suspects, said.undecided, said.out_of_time) == ([], [], ""), seed
        assert said.status is Exit.FINE, seed
    assert hung


def test_a_hang_that_did_not_repeat_is_in_doubt_until_its_nodes_have_twenty_tests() -> None:
    cluster = slow_cluster(takes_s=28, noise=0.06, seed=3)
    results = results_of(cluster, patient())
    hung = [each for each in results if each.outcome is SweepOutcome.HUNG]
    ends = {node for each in hung for node in each.test.nodes}
    tests = Counter(node for each in results for node in each.test.nodes)
    assert min(tests[node] for node in ends) >= 20
    few = [each for each in results if each.round <= 8]
    said = judged(few)
    assert (said.suspects, said.undecided, said.status) == ([], [], Exit.UNTRUSTED)
    assert "--timeout 5" in said.out_of_time


@pytest.mark.parametrize(
    ("again_s", "failed", "in_doubt"),
    [
        (20, True, False),
        (24, True, False),
        (25, False, True),
        (29, False, True),
        (31, False, False),
    ],
)
def test_a_limit_was_enough_if_the_repeat_took_less(
    again_s: float, failed: bool, in_doubt: bool
) -> None:
    """Then the first test failed, or why it hung is open; else it had too little time."""
    pair = EIGHT[2], EIGHT[5]
    cluster = slow_cluster(seed=1)
    results = [cluster.measure(test) for each in all_pairs(EIGHT) for test in each.tests]
    results = [each for each in results if {*each.test.nodes} != {*pair}]
    results.append(SweepResult(SweepTest(pair), SweepOutcome.HUNG, seconds=30))
    longer = SweepTest(pair, longer=True)
    results.append(SweepResult(longer, SweepOutcome.OK, 77e9, seconds=again_s))
    said = judged(results)
    assert (said.failed_once or bool(said.undecided)) == failed
    assert (" – ".join(pair) in said.out_of_time) == in_doubt
    status = Exit.UNTRUSTED if failed or in_doubt else Exit.FINE
    assert {said.status, judged(results[::-1]).status} == {status}


@pytest.mark.parametrize("takes_s", [20, pytest.param(28, marks=pytest.mark.slow)])
@pytest.mark.parametrize("part", [0.5, 0.25])
@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 12), marks=pytest.mark.slow)])
def test_a_node_that_hangs_now_and_then_is_never_fine(
    part: float, takes_s: float, seeds: range
) -> None:
    """Its tests that are repeated end in their usual time, or hang again."""
    for seed in seeds:
        cluster = slow_cluster(
            bad_nodes={"node-3": 1.0}, flaky=part, takes_s=takes_s, noise=0.01, seed=seed
        )
        said = judged(results_of(cluster, patient()))
        assert (said.status is Exit.FINE) == (not cluster.shown), seed


def test_a_pair_that_hangs_is_named_and_its_nodes_are_not() -> None:
    cluster = slow_cluster(bad_links={frozenset({"node-2", "node-5"}): 1.0})
    said = judged(results_of(cluster, patient()))
    found = {*said.suspects, *said.undecided}
    assert {each.name for each in found} == {"node-2 – node-5"}
    assert (said.out_of_time, said.status) != ("", Exit.FINE)


@pytest.mark.parametrize("takes_s", [9, 60])
def test_nothing_is_repeated_where_the_limit_was_enough_or_no_time_is_known(takes_s: int) -> None:
    results = results_of(slow_cluster(takes_s=takes_s, bad_nodes={"node-3": 1.0}), patient())
    assert not any(each.test.longer for each in results)
    assert bool(judged(results).out_of_time) == (takes_s == 60)


def test_a_limit_of_the_user_stays() -> None:
    planner = DiagnosePlanner(EIGHT, METRICS["busbw"], screening=all_pairs(EIGHT))
    results = results_of(slow_cluster(bad_nodes={"node-3": 1.0}), planner)
    assert not any(each.test.longer for each in results)
    assert "--timeout 4" in judged(results).out_of_time


def test_of_nics_too_and_nothing_else_follows() -> None:
    nics = ("mlx5_0", "mlx5_1")
    planner = DiagnosePlanner(
        EIGHT,
        METRICS["busbw"],
        screening=rails(EIGHT, nics, rounds=3),
        raises_limit=True,
        max_rounds=6,
    )
    results = results_of(slow_cluster(bad_nodes={"node-3": 1.0}), planner)
    screened = [each for each in results if each.round <= 6]
    assert len(screened) == 6 * 4
    assert all(each.test.longer == (each.round > 1) for each in screened)
    assert all("node-3" in each.test.nodes for each in results if each.round > 6)
    assert "node-3" in {each.name for each in judged(results).suspects}


def test_a_sweep_that_is_resumed_goes_on_where_it_ended() -> None:
    planner = DiagnosePlanner(
        EIGHT, METRICS["busbw"], screening=matchings(EIGHT, 8, 0), raises_limit=True
    )
    results = results_of(slow_cluster(bad_nodes={"node-3": 1.0}), planner)
    (first_longer, *_) = [at for at, each in enumerate(results) if each.test.longer]
    for kept in (first_longer - 1, first_longer, first_longer + 1, len(results) - 1):
        resumed = DiagnosePlanner(
            EIGHT, METRICS["busbw"], screening=matchings(EIGHT, 8, 0), raises_limit=True
        )
        for each in results[:kept]:
            resumed.add(each)
        planned = resumed.next_round()
        assert planned is not None
        left = [each.test for each in results[kept:] if each.round == planned.number]
        assert set(planned.tests) == set(left)


def test_the_order_in_which_a_test_and_its_repeat_are_read_is_nothing_to_it() -> None:
    results = results_of(slow_cluster(bad_nodes={"node-3": 1.0}), patient())
    assert judged(results[::-1]).status is judged(results).status is Exit.BAD_ANSWER
