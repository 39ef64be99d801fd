"""What a diagnosis makes of a fit, rule by rule: figures without noise, and beliefs as given."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from fabbench.model.log import METRICS
from fabbench.sweep.analyze import analyze, diagnosis, too_coarse
from fabbench.sweep.fit import fit
from fabbench.sweep.readings import Readings
from fabbench.sweep.values import Diagnosis, SuspectKind, SweepOutcome, SweepResult, SweepTest
from tests.support.simulated_sweeps import TYPICAL, blocks, named

EIGHT = named(8)
PAIRS = tuple(combinations(range(8), 2))
HEALTHY = (0.0,) * 8


def readings_of(
    speeds: Iterable[tuple[Sequence[int], float]],
    nodes: Sequence[str] = EIGHT,
    *,
    group_of: Mapping[str, str] | None = None,
) -> Readings:
    """Tests of nodes, each with a part of the typical figure; 0: it failed."""
    readings = Readings(METRICS["busbw"], nodes, group_of=group_of)
    for members, speed in speeds:
        test = SweepTest(tuple(nodes[member] for member in members))
        outcome = SweepOutcome.OK if speed else SweepOutcome.FAILED
        readings.add(SweepResult(test, outcome, speed * TYPICAL or None))
    return readings


def said_of(
    readings: Readings, *, bad: Sequence[float], first_link: float = 0.0, **beliefs: Any
) -> Diagnosis:
    """What is said where this is believed, whatever the fit itself believes."""
    found = fit(readings)
    for each in found.classes:
        each.link[:] = 0.0
        each.link[0] = first_link
    return diagnosis(readings, replace(found, bad=np.array(bad), **beliefs))


def slow_once(partners: int) -> Readings:
    """Each pair is fine twice; node 0 is then slow once with each of some partners."""
    slow = evenly(0.5, [(0, other) for other in range(1, partners + 1)])
    return readings_of([*evenly(), *evenly(), *slow])


def evenly(speed: float = 1.0, pairs: Iterable[tuple[int, int]] = PAIRS) -> list[Any]:
    return [(pair, speed) for pair in pairs]


# ---------------------------------------------------------------- tests faster than most


@pytest.mark.parametrize(
    ("noise", "beyond", "count", "said"),
    [
        (0.02, 0.2, 3, "3 of 31 tests are 1.2x faster"),
        (0.02, 0.2, 2, ""),  # of so many, errors of measurement
        (0.02, 0.14, 3, ""),
        (0.04, 0.26, 3, "3 of 31 tests are 1.3x faster"),
        (0.04, 0.22, 3, ""),
    ],
)
def test_three_tests_beyond_tolerance_and_noise_are_faster_than_most(
    noise: float, beyond: float, count: int, said: str
) -> None:
    fast = [((2 * pair, 2 * pair + 1), math.exp(beyond)) for pair in range(count)]
    found = said_of(readings_of([*evenly(), *fast]), bad=HEALTHY, noise=noise, groups=None)
    assert found.suspects == found.undecided == []
    assert found.contradiction.startswith(said)
    assert bool(found.contradiction) is bool(said)


def test_of_many_tests_three_that_are_faster_count() -> None:
    fast = evenly(1.2, [(0, 1), (2, 3), (4, 5)])
    readings = readings_of([*evenly(), *evenly(), *fast])
    found = said_of(readings, bad=HEALTHY, noise=0.02, groups=None)
    assert found.contradiction.startswith("3 of 59 tests are 1.2x faster")


@pytest.mark.parametrize(("bad", "spread"), [(0, 0.02), (4, 0.02), (5, 0.0)])
def test_the_noise_is_told_if_five_healthy_tests_measured_it(bad: int, spread: float) -> None:
    """Of the healthy nodes among eight, 28, 6 and 3 tests."""
    beliefs = [1.0] * bad + [0.0] * (8 - bad)
    assert said_of(readings_of(evenly()), bad=beliefs, noise=0.02, groups=None).spread == spread


def test_of_few_tests_one_that_is_faster_counts() -> None:
    """Two of four nodes are slow: the other two have one test, and the rest is typical."""
    speeds = [((0, 1), 1.2), *evenly(pairs=[(0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])]
    found = said_of(readings_of(speeds, named(4)), bad=[0.0] * 4, noise=0.02, groups=None)
    assert found.contradiction.startswith("1 of 6 tests are 1.2x faster")


# ---------------------------------------------------------------- a contradiction


@pytest.mark.parametrize(
    ("left", "slower", "two"), [(6, 0.2, True), (5, 0.2, False), (6, 0.12, False)]
)
def test_two_speeds_of_others_are_told_apart_from_six_tests_on(
    left: int, slower: float, two: bool
) -> None:
    """Beyond one and a half times the tolerance, 0.158."""
    pairs = [(1, 2), (3, 4), (5, 6), (1, 3), (2, 5), (4, 6)][:left]
    speeds = [1.0 if number % 2 else math.exp(-slower) for number in range(left)]
    of_bad = evenly(0.4, [(0, other) for other in range(1, 8)])
    readings = readings_of([*of_bad, *zip(pairs, speeds, strict=True)])
    found = fit(readings)
    for each in found.classes:
        each.log_ratio[7:] = np.log(speeds)
    found = replace(found, bad=np.array([1.0, *HEALTHY[1:]]), groups=None)
    said = diagnosis(readings, found).contradiction
    assert (said != "", "others' 6 tests, 3 are slow too" in said) == (two, two)


@pytest.mark.parametrize(("slower", "two"), [(0.17, True), (0.15, False)])
def test_two_speeds_of_many_tests_are_further_apart_than_the_tolerance(
    slower: float, *, two: bool
) -> None:
    """By one and a half times the tolerance, 0.158."""
    others = list(combinations(range(1, 8), 2)) * 4
    of_bad = evenly(0.4, [(0, other) for other in range(1, 8)])
    readings = readings_of([*of_bad, *evenly(1.0, others)])
    found = fit(readings)
    for each in found.classes:
        each.log_ratio[7:] = [-slower if number % 2 else 0.0 for number in range(len(others))]
    found = replace(found, bad=np.array([1.0, *HEALTHY[1:]]), groups=None)
    said = diagnosis(readings, found).contradiction
    assert (said != "", "others' 84 tests, 42 are slow too" in said) == (two, two)


def test_a_bad_node_among_given_groups_is_no_contradiction() -> None:
    group_of = blocks(EIGHT, 4, 4)
    speeds = [(pair, 0.4 if 0 in pair else 1.0) for pair in PAIRS]
    said = analyze(readings_of(speeds, group_of=group_of))
    assert said.contradiction == ""
    assert [each.name for each in said.suspects] == ["node-0"]


def test_three_nodes_with_three_of_ten_tests_fast_are_no_contradiction() -> None:
    """More than that share is: a path, and not the node, is slow then."""
    nodes = named(13)
    pairs = list(combinations(range(3, 13), 2))

    def said(fast: int) -> str:
        own = [
            ((bad, other), 1.0 if other < 3 + fast else 0.4)
            for bad in range(3)
            for other in range(3, 13)
        ]
        readings = readings_of([*evenly(1.0, pairs), *own], nodes)
        return said_of(readings, bad=(1.0,) * 3 + (0.0,) * 10, groups=None).contradiction

    assert said(3) == ""
    assert said(4).startswith("3 of 13 nodes")


# ---------------------------------------------------------------- slow groups


@pytest.mark.parametrize(
    ("sizes", "speeds_of_groups", "which"),
    [((4, 4), (0.36, 1.0), "the other 4"), ((4, 4, 5), (0.36, 0.9, 1.0), "the fastest 5")],
)
def test_a_group_is_slower_than_the_fastest_by_the_median_of_its_own_healthy_pairs(
    sizes: Sequence[int], speeds_of_groups: Sequence[float], which: str
) -> None:
    """A failed test, and those with other groups, say nothing of its own speed."""
    nodes = named(sum(sizes))
    group_of = blocks(nodes, *sizes)
    order = sorted({*group_of.values()})
    speed_of = dict(zip(order, speeds_of_groups, strict=True))
    speeds = []
    for pair in combinations(range(len(nodes)), 2):
        first, second = (group_of[nodes[node]] for node in pair)
        speeds.append((pair, speed_of[first] if first == second else 0.2))
    readings = readings_of([*speeds, ((0, 1), 0.0)], nodes, group_of=group_of)
    said = said_of(readings, bad=(0.0,) * len(nodes))
    texts = [*said.differences, *(each.evidence for each in said.undecided)]
    (text,) = (each for each in texts if "2.8x" in each)
    assert f"2.8x slower than {which}, also among themselves: another type" in text
    assert not any("nan" in each for each in texts)


def test_groups_without_a_pair_of_their_own_are_not_slow() -> None:
    group_of = blocks(EIGHT, 4, 4)
    across = [(pair, 1.0) for pair in PAIRS if pair[0] < 4 <= pair[1]]
    said = said_of(readings_of(across, group_of=group_of), bad=HEALTHY)
    assert [each.inside for each in said.groups] == [None, None]
    assert said.differences == []


def test_a_failed_test_does_not_hide_a_slow_path() -> None:
    nodes = named(12)
    speeds = [(pair, 0.4 if pair[0] < 8 <= pair[1] else 1.0) for pair in combinations(range(12), 2)]
    said = analyze(readings_of([*speeds, ((0, 1), 0.0)], nodes))
    assert said.slow_path


def test_figures_of_groups_are_those_of_healthy_pairs_that_succeeded() -> None:
    group_of = blocks(EIGHT, 4, 4)
    speeds = [(pair, 0.4 if 0 in pair else 1.0) for pair in PAIRS]
    readings = readings_of([*speeds, ((1, 2), 0.0)], group_of=group_of)
    first, second = said_of(readings, bad=(1.0, *HEALTHY[1:])).groups
    assert (first.pairs, second.pairs) == ((3, 12), (6, 12))
    assert first.inside == pytest.approx(TYPICAL)


# ---------------------------------------------------------------- who is a suspect


def test_a_group_is_a_suspect_from_its_uplink_s_chance_on_and_excuses_its_nodes() -> None:
    group_of = blocks(EIGHT, 4, 4)
    first, second = group_of[EIGHT[0]], group_of[EIGHT[7]]
    readings = readings_of(evenly(), group_of=group_of)
    bad = (*HEALTHY[1:], 0.5)
    uplinks = {first: 0.05, second: 1.0, "elsewhere": 1.0}
    said = said_of(readings, bad=bad, uplinks=uplinks)
    assert [(each.kind, each.name) for each in said.suspects] == [("group", second)]
    assert said.undecided == []


def test_one_of_several_nodes_is_bad_from_a_chance_of_a_half_on() -> None:
    readings = readings_of([(range(8), 1.0)])
    for chance, count in ((0.0625, 8), (0.06, 0)):
        said = said_of(readings, bad=(chance,) * 8)
        assert len([each for each in said.undecided if each.kind == "node"]) == count


@pytest.mark.parametrize(("chance", "links"), [(0.7, ["node-0 – node-1"]), (0.3, [])])
def test_a_link_of_a_bad_node_is_undecided_where_it_is_rather_bad(
    chance: float, links: Sequence[str]
) -> None:
    speeds = [(pair, 0.4 if 0 in pair else 1.0) for pair in PAIRS]
    bad = (1.0, *HEALTHY[1:])
    said = said_of(readings_of(speeds), bad=bad, first_link=chance, groups=None)
    assert [each.name for each in said.suspects] == ["node-0"]
    assert [each.name for each in said.undecided] == links


@pytest.mark.parametrize(("slow", "undecided"), [(1, 0), (2, 1)])
def test_a_link_that_is_slow_in_most_of_its_tests_is_undecided_from_three_percent_on(
    slow: int, undecided: int
) -> None:
    """Slow in half of them, it is not. What is believed of the noise explains every test."""
    own = [((0, 1), 0.5)] * slow + [((0, 1), 1.0)] * (2 - slow)
    readings = readings_of([*own, *evenly(1.0, PAIRS[1:]), *evenly(1.0, PAIRS[1:])])
    said = said_of(readings, bad=HEALTHY, first_link=0.05, groups=None, noise=0.5)
    assert [each.name for each in said.undecided] == ["node-0 – node-1"] * undecided


@pytest.mark.parametrize(("again", "both"), [(0.4, True), (1.0, False)])
def test_two_nodes_are_bad_unless_most_tests_of_both_are_fast(again: float, *, both: bool) -> None:
    others = evenly(1.0, combinations(range(2, 8), 2)) * 2
    of_bad = evenly(0.4, [pair for pair in PAIRS if pair[0] < 2 <= pair[1]])
    readings = readings_of([((0, 1), 1.0), ((0, 1), again), *others, *of_bad])
    said = said_of(readings, bad=(1.0, 1.0, *HEALTHY[2:]), groups=None)
    assert {each.name for each in said.suspects} == ({"node-0", "node-1"} if both else set())
    assert said.contradiction.startswith("" if both else "2 of 2 pairs of the 2 nodes")


def test_two_of_six_nodes_may_be_bad() -> None:
    healthy = evenly(1.0, combinations(range(2, 6), 2)) * 3
    first = evenly(0.4, [(0, other) for other in range(2, 6)])
    second = evenly(0.6, [(1, other) for other in range(2, 6)])
    readings = readings_of([*healthy, *first, *second], EIGHT[:6])
    said = said_of(readings, bad=(1.0, 1.0, 0, 0, 0, 0), groups=None)
    assert {each.name for each in said.suspects} == {"node-0", "node-1"}


def test_a_node_that_is_slow_now_and_then_is_undecided_although_its_chance_is_small() -> None:
    said = said_of(slow_once(4), bad=HEALTHY, groups=None)
    assert [(each.kind, each.name) for each in said.undecided] == [("node", "node-0")]
    assert said.by_chance == []


def test_a_node_that_cannot_run_it_is_marked() -> None:
    speeds = [(pair, 0.0 if 5 in pair else 1.0) for pair in PAIRS]
    (suspect,) = analyze(readings_of(speeds), confidence=1.0).suspects
    assert (suspect.name, suspect.confidence, suspect.cannot_run) == ("node-5", 1.0, True)


def test_a_link_that_is_often_slow_is_undecided_and_not_chance() -> None:
    readings = readings_of([*evenly(), *evenly(), *[((0, 1), 0.5)] * 3])
    said = said_of(readings, bad=HEALTHY, groups=None)
    assert [each.name for each in said.undecided] == ["node-0 – node-1"]
    assert said.by_chance == []


def test_a_rail_that_is_slow_everywhere_is_a_suspect() -> None:
    readings = Readings(METRICS["busbw"], EIGHT)
    for pair in PAIRS * 2:
        for rail, speed in (("efa0", 1.0), ("efa1", 0.5), ("efa2", 1.0)):
            test = SweepTest(tuple(EIGHT[node] for node in pair), rail)
            readings.add(SweepResult(test, SweepOutcome.OK, speed * TYPICAL))
    said = analyze(readings)
    assert [(each.kind, each.rail) for each in said.suspects] == [(SuspectKind.RAIL, "efa1")]


# ---------------------------------------------------------------- typical figures


def test_one_test_is_typical_of_itself() -> None:
    assert analyze(readings_of([((0, 1), 1.0)], EIGHT[:2])).typicals == {"": pytest.approx(TYPICAL)}


def test_a_rail_that_measured_two_things_has_no_typical_figure_and_no_other_has() -> None:
    readings = Readings(METRICS["busbw"], EIGHT)
    for rail, series in (("efa0", "ranks 2"), ("efa0", "ranks 16"), ("efa1", "ranks 2")):
        for pair in PAIRS:
            test = SweepTest(tuple(EIGHT[node] for node in pair), rail)
            readings.add(SweepResult(test, SweepOutcome.OK, TYPICAL, series=series))
    assert analyze(readings).typicals == {}


def test_coarse_digits_name_the_tolerance_in_percent() -> None:
    said = too_coarse("busbw", [0.9] * 3, 0.8)
    assert re.findall(r"(\d+)%", said) == ["90", "80"]
    assert "100%" in too_coarse("busbw", [1.0], 0.1)


def test_noise_and_tolerance_are_said_in_percent() -> None:
    said = said_of(readings_of(evenly()), bad=HEALTHY, noise=2.0, tolerated=math.log(0.2))
    assert re.findall(r"(\d+)%", said.contradiction) == ["200", "80"]


@pytest.mark.parametrize(("step", "coarse"), [(0.6, True), (0.01, False)])
def test_figures_with_too_few_digits_have_no_typical_one(step: float, *, coarse: bool) -> None:
    """`step`: the last digit as a part of a figure."""
    readings = Readings(METRICS["busbw"], EIGHT)
    for pair in PAIRS:
        test = SweepTest(tuple(EIGHT[node] for node in pair))
        readings.add(SweepResult(test, SweepOutcome.OK, TYPICAL, step=step * TYPICAL))
    said = analyze(readings)
    assert (said.too_coarse, "30%" in said.contradiction) == (coarse, coarse)
    assert said.typicals == ({} if coarse else {"": pytest.approx(TYPICAL)})
