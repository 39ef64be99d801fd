"""Which node, NIC, link or group is bad, from results with known faults."""

import math
from dataclasses import replace
from itertools import combinations
from random import Random

import numpy as np
import pytest

from fabbench.model.log import METRICS
from fabbench.sweep.analyze import analyze
from fabbench.sweep.groups import slower_of_two
from fabbench.sweep.planner import all_pairs, grouped, matchings, rails, single
from fabbench.sweep.readings import Readings
from fabbench.sweep.values import (
    Diagnosis,
    Round,
    SuspectKind,
    SweepOutcome,
    SweepResult,
    SweepTest,
)
from tests.support.simulated_sweeps import TYPICAL, Cluster, blocks, named
from tests.support.tiers import seeds

EIGHT = named(8)


def names(said: Diagnosis) -> set[tuple[str, str]]:
    return {(each.kind.value, each.name) for each in said.suspects}


def test_a_slow_node_is_named_with_its_evidence() -> None:
    said = Cluster(EIGHT, {"node-5": 0.6}, noise=0.01).diagnosed(all_pairs(EIGHT))
    (suspect,) = said.suspects
    assert (suspect.kind, suspect.name, suspect.nodes) == ("node", "node-5", ("node-5",))
    assert suspect.confidence > 0.99
    assert suspect.evidence == "node-5 is slow in 7 of 7 pairs (30–31 GB/s; others 76–78)."
    assert said.suspects
    assert not said.undecided
    assert said.typicals[""] == pytest.approx(TYPICAL, rel=0.02)


@pytest.mark.parametrize("seed", [0, 6, 37, 52])
def test_tests_of_a_node_that_loses_packets_vary_and_say_nothing_of_its_links(seed: int) -> None:
    chance = Random(seed)
    cluster = Cluster(EIGHT, {"node-6": 0.5}, noise=0.05, seed=seed)
    readings = cluster.readings([])
    for test in [test for each in all_pairs(EIGHT) for test in each.tests] * 3:
        result = cluster.measure(test)
        if "node-6" in test.nodes and result.figure:
            varied = result.figure * chance.choice((0.6, 0.9, 1, 1.2, 1.3))
            result = replace(result, figure=varied)
        readings.add(result)
    said = analyze(readings, tolerance=0.3)
    assert (names(said), said.undecided) == ({("node", "node-6")}, [])


def test_a_node_without_a_figure_is_undecided() -> None:
    """Nothing is known of it.

    Neither of one that no test reached, nor of one whose only test failed.
    """
    cluster = Cluster(EIGHT, {"node-6": 1.0}, noise=0.01)
    readings = cluster.readings(all_pairs(EIGHT[:6]))
    readings.add(cluster.measure(SweepTest(("node-5", "node-6"))))
    said = analyze(readings)
    assert said.suspects == []
    undecided = {each.name: each.evidence for each in said.undecided if each.kind == "node"}
    assert set(undecided) == {"node-6", "node-7"}
    assert undecided["node-7"] == "node-7 has no usable test."
    assert "fail" in undecided["node-6"]


def test_several_bad_nodes_at_once_are_named_and_nobody_else() -> None:
    bad = {"node-01": 0.5, "node-02": 1.0, "node-05": 0.3}
    for seed in range(5):
        said = Cluster(named(16), bad, seed=seed).diagnosed(all_pairs(named(16)))
        assert names(said) == {("node", name) for name in bad}
    evidence = {each.name: each.evidence for each in said.suspects}
    assert evidence["node-02"].startswith(
        "node-02 cannot run it: The test failed. All of its 15 tests"
    )
    assert evidence["node-01"].startswith("node-01 is slow in 13 of 13 pairs with healthy nodes (")


def test_more_than_a_quarter_of_the_nodes_are_not_bad() -> None:
    """Each of three is slow with everybody, and so are they with each other."""
    said = Cluster(EIGHT, {"node-1": 0.5, "node-2": 0.9, "node-5": 0.3}).diagnosed(all_pairs(EIGHT))
    assert list(said.suspects) == []
    assert said.contradiction.startswith("3 of 8 nodes ")


def test_groups_that_the_user_names_are_checked() -> None:
    """Node 8 of group a is behind the switch of group b."""
    nodes = named(16)
    said_of = blocks(nodes, 8, 8)
    cluster = Cluster(nodes, group_of=said_of, islands=said_of | {nodes[7]: "b"}, between=0.6)
    said = cluster.diagnosed(all_pairs(nodes))
    assert (said.misgrouped, [len(each.nodes) for each in said.groups]) == (True, [7, 9])
    assert names(said) == {("group", "group A – group B")}
    right = replace(cluster, islands=said_of).diagnosed(all_pairs(nodes))
    assert (right.misgrouped, right.groups_found, names(right)) == (False, False, set())
    assert [(each.inside or 0) / (each.between or 1) for each in right.groups] == pytest.approx(
        [2.5, 2.5], rel=0.1
    )


@pytest.mark.parametrize("count", [4, 8, 33, 64])
@seeds(2, 5)
def test_no_bad_nodes_are_found_in_a_healthy_cluster(count: int, seed: int) -> None:
    said = Cluster(named(count), noise=0.08, seed=seed).diagnosed(all_pairs(named(count)))
    assert not said.suspects


def test_what_is_typical_within_groups_and_between_them() -> None:
    group_of = {name: f"rack-{index // 8}" for index, name in enumerate(named(24))}
    slower = dict.fromkeys(("rack-0", "rack-1", "rack-2"), 0.5)
    said = Cluster(named(24), group_of=group_of, bad_uplinks=slower).diagnosed(grouped(group_of, 4))
    assert not said.suspects
    assert "" not in said.typicals
    figures = said.typicals
    assert figures == {
        "within groups": pytest.approx(TYPICAL, rel=0.05),
        "between groups": pytest.approx(TYPICAL / 2, rel=0.05),
    }


def test_a_node_that_is_slow_with_one_partner_alone_is_a_link() -> None:
    cluster = Cluster(EIGHT, bad_links={frozenset(("node-1", "node-2")): 0.5})
    once = cluster.diagnosed(all_pairs(EIGHT))
    assert {(each.kind, each.name) for each in once.undecided} == {("link", "node-1 – node-2")}
    assert not once.suspects
    often = cluster.diagnosed(each for _ in range(3) for each in all_pairs(EIGHT))
    (suspect,) = often.suspects
    assert (suspect.kind, suspect.nodes) == ("link", ("node-1", "node-2"))
    assert (
        "node-1 – node-2 is slow in 3 of 3 tests; each node is fine with others" in suspect.evidence
    )


def test_nodes_and_a_link_are_told_apart() -> None:
    cluster = Cluster(named(16), {"node-03": 0.4}, {frozenset(("node-01", "node-02")): 1.0})
    said = cluster.diagnosed(each for _ in range(3) for each in all_pairs(named(16)))
    assert names(said) == {("node", "node-03"), ("link", "node-01 – node-02")}


def test_who_of_two_is_bad_cannot_be_told() -> None:
    cluster = Cluster(["a", "b", "c", "d"], {"b": 1.0})
    said = cluster.diagnosed([next(all_pairs(["a", "b"]))] * 3)
    assert not said.suspects
    assert {each.name for each in said.undecided} >= {"a", "b"}
    assert "" not in said.typicals


def test_a_flaky_node_is_found_by_repeated_tests() -> None:
    cluster = Cluster(named(16), {"node-07": 0.6}, flaky=0.5)
    assert names(cluster.diagnosed(all_pairs(named(16)))) == {("node", "node-07")}


def test_single_tests_compare_nodes_by_themselves() -> None:
    cluster = Cluster(named(8), {"node-4": 0.5}, noise=0.02)
    said = cluster.diagnosed(list(single(named(8))) * 2)
    assert names(said) == {("node", "node-4")}
    assert said.suspects[0].evidence.startswith("node-4 is slow alone (")


def test_a_nic_is_distinguished_from_its_node() -> None:
    nics = [f"efa{number}" for number in range(4)]
    plan = list(rails(named(16), nics, rounds=3))
    nic = Cluster(named(16), bad_nics={("node-03", "efa2"): 0.6}).diagnosed(plan)
    assert names(nic) == {("nic", "node-03:efa2")}
    assert (
        "efa2 of node-03 is slow in 3 of 3 pairs; its other 3 NICs are fine"
        in nic.suspects[0].evidence
    )
    assert names(Cluster(named(16), {"node-03": 0.6}).diagnosed(plan)) == {("node", "node-03")}


def test_a_slow_rack_is_named_whole() -> None:
    group_of = {name: f"rack-{index // 8}" for index, name in enumerate(named(64))}
    plan = list(grouped(group_of, 4))
    uplink = Cluster(named(64), bad_uplinks={"rack-3": 0.5}, group_of=group_of).diagnosed(plan)
    assert names(uplink) == {("group", "rack-3")}
    rack = [name for name, group in group_of.items() if group == "rack-3"]
    assert [*uplink.suspects[0].nodes] == rack
    assert uplink.suspects[0].evidence.startswith(
        "rack-3 is slow in 16 of 16 pairs with other groups ("
    )
    inside = {name: 0.5 for name, group in group_of.items() if group == "rack-3"}
    whole = Cluster(named(64), inside, group_of=group_of).diagnosed(
        [*matchings(named(64), 12, seed=1)]
    )
    (slow_group,) = (each for each in whole.undecided if each.kind is SuspectKind.SLOW_GROUP)
    assert {*slow_group.nodes} == inside.keys()


def test_times_are_better_when_they_are_lower() -> None:
    readings = Readings(METRICS["latency"], EIGHT)
    for each in all_pairs(EIGHT):
        for test in each.tests:
            slow = 3 if "node-6" in test.nodes else 1
            readings.add(
                SweepResult(test, SweepOutcome.OK, slow * 10e-6 * (1 + 0.01 * (each.number % 3)))
            )
    said = analyze(readings)
    assert names(said) == {("node", "node-6")}
    assert said.suspects[0].evidence == "node-6 is slow in 7 of 7 pairs (30–31 us; others 10)."


def test_series_are_not_compared_with_each_other() -> None:
    readings = Readings(METRICS["busbw"], EIGHT)
    for series, figure in (("ranks 2", 13e9), ("ranks 16", 300e9)):
        for each in all_pairs(EIGHT):
            for test in each.tests:
                part = 0.5 if "node-6" in test.nodes else 1.0
                readings.add(SweepResult(test, SweepOutcome.OK, part * figure, series=series))
    said = analyze(readings)
    assert names(said) == {("node", "node-6")}
    assert "" not in said.typicals
    assert "50% of the typical figure" in said.suspects[0].evidence


def test_groups_have_the_figures_of_one_series_where_they_differ() -> None:
    readings, front = Readings(METRICS["busbw"], EIGHT), {*EIGHT[:5]}
    for series, figure in (("ranks 2", 13e9), ("ranks 16", 300e9)):
        for each in all_pairs(EIGHT):
            for test in each.tests:
                part = 0.5 if len(front & {*test.nodes}) == 1 else 1.0
                readings.add(SweepResult(test, SweepOutcome.OK, part * figure, series=series))
    said = analyze(readings)
    figures = [(each.inside, each.between) for each in said.groups]
    assert figures == [pytest.approx((13e9, 6.5e9), rel=1e-6)] * 2
    assert [each.evidence for each in said.suspects] == [
        "30 pairs between groups are up to 2x slower than 26 within."
    ]


def test_a_failed_pair_is_evidence_and_a_hung_one_too() -> None:
    readings = Readings(METRICS["busbw"], EIGHT)
    for each in all_pairs(EIGHT):
        for test in each.tests:
            fine = "node-2" not in test.nodes
            outcome = SweepOutcome.OK if fine else SweepOutcome.HUNG
            figure, seconds = (TYPICAL, 10) if fine else (None, 30)
            readings.add(SweepResult(test, outcome, figure, seconds=seconds))
    assert names(analyze(readings)) == {("node", "node-2")}


def test_nothing_measured_is_no_answer() -> None:
    said = analyze(Readings(METRICS["busbw"], EIGHT))
    assert (said.suspects, said.tests, said.typicals) == ([], 0, {})


def test_a_figure_that_is_no_number_of_a_rate_counts_as_failed() -> None:
    readings = Readings(METRICS["busbw"], ["a", "b"])
    readings.add(SweepResult(SweepTest(("a", "b")), SweepOutcome.OK, 0.0))
    assert math.isnan(readings.classes()[0].values[0])


def test_one_of_many_nodes_may_be_bad() -> None:
    """A test of 30 nodes failed.

    Each of them is hardly likely to be the bad one, and one of them is.
    """
    nodes = named(120)
    groups = [tuple(nodes[start : start + 30]) for start in range(0, 120, 30)]
    cluster = Cluster(nodes, bad_nodes={nodes[31]: 1.0})
    said = cluster.diagnosed([Round(number=1, tests=tuple(map(SweepTest, groups)), purpose="")] * 2)
    assert said.suspects == []
    assert {each.name for each in said.undecided} == set(groups[1])


@pytest.mark.slow
@pytest.mark.parametrize("count", [6, 7, 13, 21, 40])
def test_noise_alone_hardly_makes_two_speeds(count: int) -> None:
    chance = np.random.default_rng(count)
    draws = [chance.normal(0, 0.08, count) for _ in range(400)]
    assert sum(slower_of_two(values, 0.158) > 0 for values in draws) <= 16


@pytest.mark.parametrize("count", [12, 24])
def test_two_speeds_are_told_apart(count: int) -> None:
    chance = np.random.default_rng(count)
    values = np.concatenate([chance.normal(mean, 0.03, count // 2) for mean in (0.0, -0.4)])
    assert slower_of_two(values, 0.158) == count // 2


def test_others_are_those_that_were_measured_alike() -> None:
    """Neither nodes alone, which are faster, nor logs of another size."""
    slow = frozenset({"node-3"})
    pairs = [
        SweepResult(each, SweepOutcome.OK, 40e9 if slow & {*each.nodes} else 77e9, series="1G")
        for each in (SweepTest(pair) for pair in combinations(EIGHT, 2))
    ]
    alone = [SweepResult(SweepTest((node,)), SweepOutcome.OK, 210e9) for node in EIGHT]
    small = [replace(each, figure=9e9, series="1M") for each in pairs]
    said = analyze(Readings(METRICS["busbw"], EIGHT, [*pairs, *alone]))
    assert "(40 GB/s; others 77)" in said.suspects[0].evidence
    less = [each for each in small if "node-3" not in each.test.nodes]
    said = analyze(Readings(METRICS["busbw"], EIGHT, [*pairs, *less]))
    assert "(40 GB/s; others 77)" in said.suspects[0].evidence
