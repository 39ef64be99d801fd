"""What a diagnosis says besides who is bad: counts, figures, groups, and why nobody can be told."""

import re
from collections.abc import Mapping, Sequence
from itertools import combinations

import pytest

from fabbench.model.errors import Exit
from fabbench.model.log import METRICS
from fabbench.sweep.analyze import analyze, too_coarse
from fabbench.sweep.planner import all_pairs, rails, single
from fabbench.sweep.readings import Readings
from fabbench.sweep.values import (
    Diagnosis,
    SuspectKind,
    SweepOutcome,
    SweepResult,
    SweepTest,
)
from tests.support.simulated_sweeps import TYPICAL, Cluster, blocks, named

EIGHT = named(8)


def swept(cluster: Cluster) -> Diagnosis:
    return cluster.diagnosed(all_pairs(cluster.nodes))


def test_what_was_tested_is_counted() -> None:
    cluster = Cluster(EIGHT, noise=0.03)
    said = cluster.diagnosed([*all_pairs(EIGHT), *[*all_pairs(EIGHT)][:2]])
    assert (said.contradiction, said.undecided) == ("", [])
    assert (said.tests, said.links, said.nodes) == (28 + 8, (28, 28), tuple(EIGHT))
    assert said.spread == pytest.approx(0.03, rel=0.4)
    few = cluster.diagnosed([next(all_pairs(EIGHT))])
    assert few.links == (4, 28)


def test_the_required_confidence_is_that_which_was_asked() -> None:
    cluster = Cluster(EIGHT, bad_links={frozenset(EIGHT[:2]): 0.5}, noise=0.02)
    readings = cluster.readings([*all_pairs(EIGHT)] * 2)
    sure, unsure = (analyze(readings, confidence=each) for each in (0.999, 0.3))
    assert (sure.required, unsure.required) == (0.999, 0.3)
    assert [len(each.suspects) for each in (sure, unsure)] == [0, 1]


def test_suspects_come_by_their_confidence() -> None:
    said = swept(Cluster(named(16), {"node-03": 0.4, "node-07": 0.3, "node-11": 1.0}, noise=0.05))
    confidences = [each.confidence for each in said.suspects]
    assert len(confidences) == 3
    assert confidences == sorted(confidences, reverse=True)


def test_what_may_be_bad_comes_by_its_chance() -> None:
    links = {frozenset(EIGHT[:2]): 0.5, frozenset(EIGHT[2:4]): 0.3}
    said = swept(Cluster(EIGHT, bad_links=links, noise=0.02))
    assert [each.name for each in said.undecided] == ["node-2 – node-3", "node-0 – node-1"]


# ---------------------------------------------------------------- groups


def test_groups_have_their_nodes_their_figures_and_how_many_pairs_showed_them() -> None:
    nodes = named(12)
    cluster = Cluster(nodes, islands=blocks(nodes, 8, 4), between=0.6, noise=0.01)
    said = swept(cluster)
    assert (said.groups_found, said.slow_path, said.misgrouped) == (True, True, False)
    assert [(len(each.nodes), each.pairs) for each in said.groups] == [(8, (28, 32)), (4, (6, 32))]
    for each in said.groups:
        assert each.inside == pytest.approx(TYPICAL, rel=0.02)
        assert each.between == pytest.approx(0.4 * TYPICAL, rel=0.02)


def test_some_tests_that_are_far_faster_than_most_are_said() -> None:
    """Faults make tests slower, never faster: most are slow, although nothing says by what."""
    fast = {"node-0", "node-1", "node-2"}
    readings = Readings(METRICS["busbw"], EIGHT)
    for each in all_pairs(EIGHT):
        for test in each.tests:
            figure = TYPICAL if fast.issuperset(test.nodes) else 0.2 * TYPICAL
            readings.add(SweepResult(test, SweepOutcome.OK, figure, each.number))
    said = analyze(readings)
    assert said.status is not Exit.FINE


def test_a_path_between_many_groups_is_named_by_the_first_and_the_last() -> None:
    for sizes, name in (
        ((4, 4, 4), r"group A – group B – group C"),
        ((4,) * 4, "group A … group D"),
    ):
        nodes = named(sum(sizes))
        said = swept(Cluster(nodes, islands=blocks(nodes, *sizes), between=0.6, noise=0.01))
        assert [each.name for each in said.suspects] == [name]


def test_a_slow_path_is_a_hundred_times_as_likely_as_none() -> None:
    nodes = named(12)
    cluster = Cluster(nodes, islands=blocks(nodes, 8, 4), between=0.6, noise=0.01)
    readings = cluster.readings(all_pairs(nodes))
    # Another measurement, of one pair within a group: it shows nothing of the path.
    readings.add(SweepResult(SweepTest((nodes[0], nodes[1])), SweepOutcome.OK, 1e9, series="x"))
    (path,) = analyze(readings, confidence=0.5).suspects
    assert (path.kind, path.nodes) == (SuspectKind.GROUP, ())
    assert path.confidence == pytest.approx(0.99, abs=1e-3)


def test_groups_of_two_types_have_no_slow_path_between_them() -> None:
    nodes = named(12)
    said = swept(Cluster(nodes, types=dict.fromkeys(nodes[:4], 0.5), noise=0.01))
    assert (said.groups_found, said.slow_path, said.suspects) == (True, False, [])


def test_a_given_group_that_was_not_tested_has_no_figure() -> None:
    group_of = blocks(EIGHT, 4, 4)
    cluster = Cluster(EIGHT, group_of=group_of, noise=0.01)
    said = cluster.diagnosed(all_pairs(EIGHT[:4]))
    first, second = said.groups
    assert (first.pairs, first.between) == ((6, 0), None)
    assert (second.nodes, second.pairs, second.inside) == (EIGHT[4:], (0, 0), None)
    assert not said.groups_found


# ---------------------------------------------------------------- typical figures


def test_each_rail_has_a_typical_figure() -> None:
    said = Cluster(EIGHT, noise=0.01).diagnosed(rails(EIGHT, ("efa0", "efa1"), rounds=3))
    assert said.typicals == {
        "efa0": pytest.approx(TYPICAL, rel=0.02),
        "efa1": pytest.approx(TYPICAL, rel=0.02),
    }


def test_of_each_rail_within_groups_and_between_them() -> None:
    group_of = blocks(EIGHT, 4, 4)
    cluster = Cluster(EIGHT, group_of=group_of, noise=0.01)
    said = cluster.diagnosed(
        each for _ in range(4) for each in rails(EIGHT, ("efa0", "efa1"), rounds=7)
    )
    ways = ("within groups", "between groups")
    assert {*said.typicals} == {f"{rail}, {way}" for rail in ("efa0", "efa1") for way in ways}


# ---------------------------------------------------------------- nobody can be told


@pytest.mark.parametrize(
    ("count", "bad", "contradicted"),
    [(4, 1, False), (5, 2, True), (6, 2, False), (8, 3, True), (16, 4, False), (16, 5, True)],
)
def test_more_than_a_quarter_of_the_nodes_is_another_type(
    count: int, bad: int, contradicted: bool
) -> None:
    """They are slow with each other too. Of six nodes and more, two may be bad."""
    nodes = named(count)
    factors = dict(zip(nodes, (0.3, 0.5, 0.7, 0.9, 0.2)[:bad], strict=False))
    said = Cluster(nodes, factors, noise=0.01).diagnosed([*all_pairs(nodes)] * 3)
    assert said.contradiction.startswith(f"{bad} of {count} nodes ") is contradicted
    assert len(said.suspects) == (0 if contradicted else bad)


@pytest.mark.parametrize(
    ("count", "bad", "slow", "contradicted"),
    [(16, 3, 0.55, True), (16, 2, 0.55, False), (16, 3, 0.9, False), (64, 3, 0.5, False)],
)
def test_several_nodes_that_are_slow_with_some_partners_have_a_slow_path(
    count: int, bad: int, slow: float, contradicted: bool
) -> None:
    """More than two, and more than one node in twenty; and slow in less than 70 % of tests."""
    nodes = named(count)
    cluster = Cluster(nodes, dict.fromkeys(nodes[:bad], 0.5), flaky=slow, noise=0.01)
    said = cluster.diagnosed([*all_pairs(nodes)] * 2)
    assert (said.contradiction != "") is contradicted
    assert len(said.suspects) == (0 if contradicted else bad)


def test_tests_that_differ_more_than_the_tolerance_would_hide_a_slow_node() -> None:
    readings = Readings(METRICS["busbw"], EIGHT)
    for number, pair in enumerate(combinations(EIGHT, 2)):
        factor = 1 + 0.18 * ((number * 5 % 14) / 6.5 - 1)
        readings.add(SweepResult(SweepTest(pair), SweepOutcome.OK, factor * TYPICAL))
    said = analyze(readings)
    assert said.spread > 0.105
    match = re.search(r"± (\d+)%: .* (\d+)% slower", said.contradiction)
    assert match is not None
    assert match.groups() == (str(round(100 * said.spread)), "10")


@pytest.mark.parametrize(
    ("rounded", "said"),
    [
        ([], ""),
        ([0.05], ""),
        # The tolerance itself, as precisely as figures are stored.
        ([0.1], ""),
        ([0.10000005], ""),
        ([0.11], "is 11%.* 2 times"),
        ([0.3], "is 30%.* 4 times"),
        ([0.05, 0.05, 0.3], ""),
        ([0.05, 0.05, 0.3, 0.3], "is 30%.* 4 times"),
        ([2.0], "as 0.* 32 times"),
    ],
)
def test_a_last_digit_that_is_more_than_the_tolerance_hides_a_slow_node(
    rounded: Sequence[float], said: str
) -> None:
    """`rounded`: half of the last digit as a part of the figure; that of the middle test counts."""
    found = too_coarse("busbw", rounded, 0.1)
    assert re.search(said, found)
    assert bool(found) is bool(said)


# ---------------------------------------------------------------- logs that say nothing


@pytest.mark.parametrize(
    ("pair", "again", "named_"),
    [
        ((0, 1), False, ["node-0 – node-1"]),
        ((0, 1), True, []),
        # That nothing is known of node 7 is said of the node.
        ((0, 7), False, ["node-7"]),
    ],
)
def test_a_pair_whose_only_log_says_nothing_is_undecided(
    pair: tuple[int, int], again: bool, named_: Sequence[str]
) -> None:
    readings = Readings(METRICS["busbw"], EIGHT)
    unusable = SweepTest((EIGHT[pair[1]], EIGHT[pair[0]]))
    readings.add(SweepResult(unusable, SweepOutcome.UNUSABLE, reason="It is empty."))
    for other in combinations(range(8 if pair[1] != 7 else 7), 2):
        if other != pair or again:
            test = SweepTest((EIGHT[other[0]], EIGHT[other[1]]))
            readings.add(SweepResult(test, SweepOutcome.OK, TYPICAL))
    said = analyze(readings)
    assert [each.name for each in said.undecided] == named_
    assert said.suspects == []
    if named_ and pair == (0, 1):
        (link,) = said.undecided
        assert (link.kind, link.confidence) == (SuspectKind.LINK, 0)
        assert "It is empty." in link.evidence


# ---------------------------------------------------------------- what no suspect explains


def readings_of(times: int, more: Mapping[tuple[int, ...], Sequence[float]]) -> Readings:
    """Each node, or pair of nodes, was fine so many times, and then had some more speeds."""
    readings = Readings(METRICS["busbw"], EIGHT)
    size = len(next(iter(more)))
    for nodes in combinations(range(8), size):
        for speed in (*([1.0] * times), *more.get(nodes, ())):
            test = SweepTest(tuple(EIGHT[node] for node in nodes))
            outcome = SweepOutcome.OK if speed else SweepOutcome.FAILED
            readings.add(SweepResult(test, outcome, speed * TYPICAL or None))
    return readings


def test_one_slow_test_of_steady_nodes_is_chance_and_of_a_node_alone_one_of_a_node() -> None:
    link = analyze(readings_of(3, {(0, 1): [0.5]})).by_chance
    assert [(each.kind, each.nodes) for each in link] == [("link", ("node-0", "node-1"))]
    node = analyze(readings_of(20, {(0,): [0.5]})).by_chance
    assert [(each.kind, each.nodes) for each in node] == [("node", ("node-0",))]


def test_a_node_that_was_slow_alone_has_no_others_that_it_is_fine_with() -> None:
    readings = readings_of(1, {(0, 1): []})
    for node in named(8):
        figure = 5 * TYPICAL if node != "node-4" else TYPICAL
        readings.add(SweepResult(SweepTest((node,)), SweepOutcome.OK, figure))
    found = {each.name: each.evidence for each in analyze(readings).undecided}
    assert "with others" not in found["node-4"]


@pytest.mark.parametrize(
    ("speeds", "failed_once"), [((0.5, 0.5), False), ((0.5, 0.0), True), ((0.0, 0.0), True)]
)
def test_one_of_what_was_chance_failed(speeds: tuple[float, float], failed_once: bool) -> None:
    said = analyze(readings_of(3, {(0, 1): speeds[:1], (2, 3): speeds[1:]}))
    assert (len(said.by_chance), said.failed_once) == (2, failed_once)


def test_a_slow_group_beside_nodes_of_unknown_type_may_be_bad() -> None:
    older = dict.fromkeys(EIGHT[:3], "older")
    cluster = Cluster(EIGHT, types=dict.fromkeys(older, 0.5), noise=0.01)
    for types, known in (older, False), ({**dict.fromkeys(EIGHT, "newer"), **older}, True):
        readings = Readings(METRICS["busbw"], EIGHT, types=types)
        for each in all_pairs(EIGHT):
            for test in each.tests:
                readings.add(cluster.measure(test))
        said = analyze(readings)
        kinds = [each.kind for each in said.undecided]
        assert kinds == ([] if known else [SuspectKind.SLOW_GROUP])
        assert bool(said.differences) is known


def test_a_node_that_is_slow_now_and_then_is_undecided_and_not_its_links() -> None:
    said = analyze(readings_of(2, {(0, 1): [0.5], (0, 2): [0.5], (0, 3): [0.5], (0, 4): [0.5]}))
    everything = [*said.suspects, *said.undecided]
    assert [(each.kind, each.name) for each in everything] == [("node", "node-0")]
    assert said.by_chance == []


def test_single_tests_name_a_node_without_a_figure() -> None:
    cluster = Cluster(EIGHT, {"node-4": 1.0}, noise=0.02, varied=True)
    said = cluster.diagnosed([*single(EIGHT)] * 2)
    assert {each.name for each in (*said.suspects, *said.undecided)} == {"node-4"}
