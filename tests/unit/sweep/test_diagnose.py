"""The planner that finds what is bad with few tests."""

from typing import TYPE_CHECKING, Any

import pytest

from fabbench.model.log import METRICS
from fabbench.sweep.analyze import analyze
from fabbench.sweep.diagnose import SCREENING, DiagnosePlanner
from fabbench.sweep.planner import all_pairs, single
from tests.support.simulated_sweeps import Cluster, blocks, named
from tests.support.tiers import sampled, seeds

if TYPE_CHECKING:
    from fabbench.sweep.values import Round, SweepResult

BUSBW = METRICS["busbw"]
slow = pytest.mark.slow


def found(cluster: Cluster, seed: int = 0) -> set[tuple[str, str]]:
    planner = DiagnosePlanner(cluster.nodes, BUSBW, group_of=cluster.group_of, seed=seed)
    readings, _ = cluster.carried_out(planner)
    return {(each.kind.value, each.name) for each in analyze(readings).suspects}


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 9, 64])
def test_healthy_clusters_have_a_quick_answer(count: int) -> None:
    cluster = Cluster(named(count), noise=0.02)
    assert found(cluster) == set()
    assert cluster.tests <= SCREENING * (count // 2)


@pytest.mark.parametrize("racks", [0, 4])
def test_several_bad_nodes_are_found_and_nobody_else(racks: int) -> None:
    group_of = {name: f"rack-{index % racks}" for index, name in enumerate(named(32)) if racks}
    bad = {"node-07": 0.4, "node-23": 1.0, "node-29": 0.6}
    cluster = Cluster(named(32), bad, group_of=group_of)
    assert found(cluster) == {("node", name) for name in bad}
    assert cluster.tests < 300


@slow
def test_groups_that_are_slow_with_others_are_found_and_nobody_else() -> None:
    group_of = {name: f"rack-{index // 8}" for index, name in enumerate(named(32))}
    cluster = Cluster(named(32), bad_uplinks={"rack-3": 0.5}, group_of=group_of)
    assert found(cluster) == {("group", "rack-3")}


def test_flaky_nodes_are_found_and_nobody_else() -> None:
    """Each is slow in half of its tests."""
    cluster = Cluster(named(64), {"node-23": 0.6}, flaky=0.5, congestion=0.002)
    assert found(cluster) == {("node", "node-23")}


@pytest.mark.parametrize(
    "sizes", [(5, 3), pytest.param((9, 8), marks=slow), pytest.param((6, 5, 4), marks=slow)]
)
@pytest.mark.parametrize("bad", [{}, {"node-00": 0.6}])
def test_nodes_behind_slow_paths_are_groups_and_not_bad(
    sizes: tuple[int, ...], bad: dict[str, float]
) -> None:
    names = [f"node-{number:02}" for number in range(sum(sizes))]
    cluster = Cluster(names, bad, islands=blocks(names, *sizes), between=0.7)
    readings, _ = cluster.carried_out(DiagnosePlanner(names, BUSBW))
    said = analyze(readings)
    assert {each.name for each in said.suspects if each.kind == "node"} == bad.keys()
    assert [len(each.nodes) for each in said.groups] == list(sizes)
    assert {*said.groups[0].nodes} == {*names[: sizes[0]]}


@pytest.mark.parametrize("sizes", [(5, 3), (4, 4), (8, 4), (3, 3, 3)])
@seeds(1, 3)
def test_a_path_that_the_tests_of_a_round_share_is_slow_and_no_node(
    sizes: tuple[int, ...], seed: int
) -> None:
    names = named(sum(sizes))
    islands = blocks(names, *sizes)
    cluster = Cluster(names, islands=islands, between=0.6, shared=True, noise=0.03, seed=seed)
    screening = all_pairs(names)
    planner = DiagnosePlanner(names, BUSBW, tolerance=0.3, seed=seed, screening=screening)
    said = analyze(cluster.carried_out(planner)[0], tolerance=0.3)
    assert ([each.kind for each in said.suspects], said.undecided) == (["group"], [])


@pytest.mark.slow
def test_an_older_type_is_a_group_and_not_bad() -> None:
    names = named(32)
    cluster = Cluster(names, types=dict.fromkeys(names[:11], 0.7), noise=0.04, congestion=0.02)
    said = analyze(cluster.carried_out(DiagnosePlanner(names, BUSBW))[0])
    assert (said.suspects, said.contradiction) == ([], "")
    assert [{*each.nodes} for each in said.groups] == [{*names[11:]}, {*names[:11]}]
    assert [(each.kind, {*each.nodes}) for each in said.undecided] == [
        ("slow-group", {*names[:11]})
    ]


@pytest.mark.parametrize(
    "more",
    sampled(
        [
            {"congestion": 0.05},
            {"failures": 0.03},
            {"tails": "skewed", "noise": 0.08},
            {"tails": "t3"},
        ],
        every=4,
    ),
)
def test_nobody_is_accused_of_what_happens_to_all(more: dict[str, Any]) -> None:
    assert found(Cluster(named(17), **more)) == set()


def test_figures_of_nics_that_one_test_measured_share_its_noise() -> None:
    """What eight NICs show together of a node is as much as one figure does."""
    nics = [f"mlx5_{number}" for number in range(8)]
    assert found(Cluster(named(24), noise=0.06, nics=nics)) == set()


def test_a_bad_link_that_screening_meets_is_no_node() -> None:
    first = DiagnosePlanner(named(32), BUSBW).next_round()
    assert first is not None
    pair = first.tests[3].nodes
    cluster = Cluster(named(32), bad_links={frozenset(pair): 0.5})
    assert found(cluster) == {("link", " – ".join(sorted(pair)))}


def test_after_all_pairs_slow_ones_are_tested_again() -> None:
    """One slow test of a pair may be chance: more of them name the link."""
    link = frozenset({"node-1", "node-3"})
    cluster = Cluster(named(8), {"node-5": 0.6, "node-6": 1.0}, {link: 1.0}, noise=0.05)
    planner = DiagnosePlanner(cluster.nodes, BUSBW, screening=all_pairs(cluster.nodes))
    readings, rounds = cluster.carried_out(planner)
    named_bad = {(each.kind.value, each.name) for each in analyze(readings).suspects}
    assert named_bad == {("node", "node-5"), ("node", "node-6"), ("link", "node-1 – node-3")}
    assert rounds > 7
    assert 28 < cluster.tests < 80


def test_nodes_alone_are_tested_again_where_they_stand_out() -> None:
    cluster = Cluster(named(20), {"node-05": 0.3, "node-11": 1.0}, noise=0.05, congestion=0.01)
    planner = DiagnosePlanner(cluster.nodes, BUSBW, size=1, screening=single(cluster.nodes))
    readings, _ = cluster.carried_out(planner)
    said = analyze(readings)
    assert {each.name for each in said.suspects} == {"node-05", "node-11"}
    assert not said.undecided
    assert {suspect.evidence.split(" alone")[0] for suspect in said.suspects} == {
        "node-05 is slow",
        "node-11 fails",
    }
    assert 20 < cluster.tests < 30


def test_a_bad_nic_is_named_where_tests_have_a_figure_for_each() -> None:
    nics = [f"mlx5_{number}" for number in range(4)]
    cluster = Cluster(named(12), {"node-07": 0.6}, bad_nics={("node-09", "mlx5_3"): 0.5}, nics=nics)
    assert found(cluster) == {("node", "node-07"), ("nic", "node-09:mlx5_3")}


def test_of_two_nodes_it_cannot_tell_and_ends() -> None:
    cluster = Cluster(["a", "b"], {"a": 1.0})
    assert found(cluster) == set()
    assert cluster.tests < 10


def test_rounds_share_no_node_and_tests_are_of_two() -> None:
    cluster = Cluster(named(50), {"node-11": 0.5, "node-12": 0.3}, noise=0.08)
    planner = DiagnosePlanner(cluster.nodes, BUSBW)
    while (each := planner.next_round()) is not None:
        used = [node for test in each.tests for node in test.nodes]
        assert len(used) == len(set(used))
        assert {len(test.nodes) for test in each.tests} == {2}
        for test in each.tests:
            planner.add(cluster.measure(test, each.number))


def test_a_sweep_that_was_cut_off_goes_on_alike() -> None:
    """Results are given in another order, and one test of the last round has none yet."""
    planner = DiagnosePlanner(named(24), BUSBW)
    first = planner.next_round()
    assert first is not None
    cluster = Cluster(
        named(24), {"node-05": 0.5}, {frozenset(first.tests[0].nodes): 1.0}, noise=0.05
    )
    rounds: list[Round] = []
    results: list[SweepResult] = []
    while (each := planner.next_round()) is not None:
        rounds.append(each)
        measured = [cluster.measure(test, each.number) for test in each.tests]
        results += measured
        for result in measured:
            planner.add(result)
    assert len(rounds) > 2
    for kept in range(0, len(results), 5):
        resumed = DiagnosePlanner(cluster.nodes, BUSBW)
        for result in reversed(results[:kept]):
            resumed.add(result)
        left = resumed.next_round()
        assert left is not None
        assert left.tests[0] == results[kept].test
        assert left.number == results[kept].round


def test_a_round_says_what_it_is_for_and_how_many_tests_may_follow() -> None:
    cluster = Cluster(named(8), {"node-5": 0.75}, noise=0.02)
    planner = DiagnosePlanner(cluster.nodes, BUSBW)
    purposes: list[str] = []
    while (each := planner.next_round()) is not None:
        purposes += [each.purpose]
        for test in each.tests:
            planner.add(cluster.measure(test, each.number))
    confirming = [each for each in purposes if "confirm node-5" in each]
    assert confirming == purposes[-3:]
    assert confirming[-1].endswith("at most 0 tests after these")


def test_a_nic_that_is_bad_is_confirmed_by_three_tests() -> None:
    nics = [f"mlx5_{number}" for number in range(4)]
    cluster = Cluster(named(8), bad_nics={("node-3", "mlx5_1"): 0.6}, nics=nics, noise=0.02)
    assert found(cluster) == {("nic", "node-3:mlx5_1")}
    assert cluster.tests <= 28 + 3
