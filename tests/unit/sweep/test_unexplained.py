"""Which tests no suspect explains, and which of them are chance: rule by rule, without noise."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import NormalDist

import numpy as np
import pytest

from fabbench.model.log import METRICS
from fabbench.sweep.explained import (
    accounted_for,
    maybe_now_and_then,
    odd_tests,
    slow_now_and_then,
    surprising,
    unexplained,
)
from fabbench.sweep.fit import Fit, fit
from fabbench.sweep.readings import Readings
from fabbench.sweep.values import Suspect, SuspectKind, SweepOutcome, SweepResult, SweepTest
from tests.support.simulated_sweeps import TYPICAL, named

EIGHT = named(8)
FAILED = 0.0


def fitted(  # noqa: PLR0913 - every part of a sweep, each with a default
    more: Mapping[tuple[int, int], Sequence[float]] | None = None,
    *,
    times: int = 1,
    noise: float = 0.02,
    group_of: Mapping[str, str] | None = None,
    between: float = 1.0,
    rails: Sequence[str] = ("",),
    pairs: Sequence[tuple[int, int]] = tuple(combinations(range(8), 2)),
) -> Fit:
    """Each pair of eight nodes is fine so many times; then come more tests, each a speed of 1.

    What is believed of the noise is given, and of nodes: that all are healthy.
    """
    readings = Readings(METRICS["busbw"], EIGHT, group_of=group_of)
    for rail in rails:
        for first, second in pairs:
            pair = (EIGHT[first], EIGHT[second])
            crossing = len({(group_of or {}).get(node) for node in pair}) > 1
            for _ in range(times):
                add(readings, pair, between if crossing else 1.0, rail)
    for (first, second), speeds in (more or {}).items():
        for speed in speeds:
            add(readings, (EIGHT[first], EIGHT[second]), speed, rails[0])
    found = fit(readings)
    return replace(found, noise=noise, bad=np.zeros(len(found.bad)))


def add(readings: Readings, pair: tuple[str, ...], speed: float, rail: str) -> None:
    outcome = SweepOutcome.OK if speed else SweepOutcome.FAILED
    test = SweepTest(pair, rail)
    readings.add(
        SweepResult(test, outcome, speed * TYPICAL or None, reason="" if speed else "Died.")
    )


def found(fit: Fit, *suspects: Suspect) -> list[tuple[tuple[int, ...], bool]]:
    """Return the nodes of what is unexplained, and whether it was once."""
    return [(tuple(each.nodes), each.once) for each in unexplained(fit, suspects)]


def suspect(kind: SuspectKind, *nodes: int, rail: str = "") -> Suspect:
    return Suspect(kind, "x", tuple(EIGHT[node] for node in nodes), 1.0, "", rail)


# ---------------------------------------------------------------- what is slow


@pytest.mark.parametrize("times", [1, 4])
def test_noise_makes_any_test_surprising_in_2_percent_of_sweeps(times: int) -> None:
    fit = fitted(times=times, noise=0.1)
    tests = 28 * times
    assert tests * NormalDist(0, 0.1).cdf(surprising(fit)) == pytest.approx(0.02)


def test_nothing_within_the_tolerance_is_surprising() -> None:
    assert surprising(fitted(noise=0.001)) == pytest.approx(np.log(0.9))
    nothing = replace(fitted(), classes=(), noise=0.1)
    assert surprising(nothing) == pytest.approx(NormalDist().inv_cdf(0.02) * 0.1)


@pytest.mark.parametrize(
    ("speeds", "said"),
    [
        ([1.0], []),
        ([0.91], []),
        ([0.7], [((0, 1), False)]),
        ([FAILED], [((0, 1), False)]),
        # One of three tests, and fine twice.
        ([0.7, 1.0], [((0, 1), True)]),
        ([FAILED, 1.0], [((0, 1), True)]),
        ([0.7, 0.7, 1.0, 1.0], [((0, 1), False)]),
    ],
)
def test_a_test_that_failed_or_is_slow_needs_an_explanation(
    speeds: Sequence[float], said: list[tuple[tuple[int, ...], bool]]
) -> None:
    """Once: it was fine at least twice when tested again."""
    assert found(fitted({(0, 1): speeds})) == said


@pytest.mark.parametrize(
    ("speeds", "is_odd"),
    [
        # One test of 0.78 may be noise, and so may four of 0.86; four of 0.78 are not.
        ([0.78], False),
        ([0.86] * 4, False),
        ([0.78] * 4, True),
        ([0.78] * 3 + [0.95], False),
        ([0.78] * 3 + [FAILED], True),
    ],
)
def test_a_pair_that_is_slow_in_all_of_its_tests_has_less_noise_than_one_test(
    speeds: Sequence[float], is_odd: bool
) -> None:
    readings = Readings(METRICS["busbw"], EIGHT)
    for pair in combinations(EIGHT, 2):
        for speed in speeds if pair == tuple(EIGHT[:2]) else [1.0]:
            add(readings, pair, speed, "")
    fit_ = fit(readings)
    noisy = replace(fit_, noise=0.1, bad=np.zeros(8))
    slow = [nodes for nodes, _ in found(noisy)]
    failed = {(0, 1)} if FAILED in speeds else set()
    assert set(slow) == ({(0, 1)} if is_odd else failed)
    (of_pair,) = (each for each in unexplained(noisy, ())) if is_odd else (None,)
    assert of_pair is None or not of_pair.once


SIDES = dict.fromkeys(EIGHT[:4], "a") | dict.fromkeys(EIGHT[4:], "b")


@pytest.mark.parametrize(("given", "odd"), [(True, 0), (False, 16)])
def test_groups_that_are_given_explain_a_slow_path_and_found_ones_do_not(
    given: bool, odd: int
) -> None:
    fit_ = fitted(times=2, group_of=SIDES, between=0.6)
    assert fit_.groups is not None
    groups = replace(fit_.groups, given=given)
    fit_ = replace(fit_, groups=groups)
    of_classes = [odd_tests(fit_, each).sum() for each in fit_.classes]
    assert sorted(of_classes) == [0, 2 * odd]


# ---------------------------------------------------------------- who accounts for it


@pytest.mark.parametrize(
    ("suspects", "left"),
    [
        ([], [(0, 1), (0, 2), (3, 4)]),
        ([suspect(SuspectKind.NODE, 0)], [(3, 4)]),
        ([suspect(SuspectKind.NODE, 0), suspect(SuspectKind.NODE, 4)], []),
        ([suspect(SuspectKind.LINK, 0, 1)], [(0, 2), (3, 4)]),
        ([suspect(SuspectKind.NIC, 0, rail="mlx5_0")], [(3, 4)]),
        ([suspect(SuspectKind.NIC, 0, rail="mlx5_1")], [(0, 1), (0, 2), (3, 4)]),
        ([suspect(SuspectKind.SLOW_GROUP, 2, 3)], [(0, 1)]),
    ],
)
def test_a_suspect_accounts_for_the_tests_in_which_it_takes_part(
    suspects: Sequence[Suspect], left: list[tuple[int, int]]
) -> None:
    fit_ = fitted(
        {(0, 1): [0.5], (0, 2): [0.5], (3, 4): [0.5]}, times=3, rails=("mlx5_0", "mlx5_1")
    )
    assert [nodes for nodes, _ in found(fit_, *suspects)] == left


@pytest.mark.parametrize(
    ("nodes", "inside", "crossing"), [((), 0, 16), ((0,), 0, 4), ((0, 1, 2, 3), 0, 16)]
)
def test_a_group_accounts_for_the_tests_between_it_and_others(
    nodes: tuple[int, ...], inside: int, crossing: int
) -> None:
    """The path between groups has no nodes: it takes part in all tests between groups."""
    fit_ = fitted(group_of=SIDES)
    counts = {
        each.tests.between: accounted_for(fit_, each, [suspect(SuspectKind.GROUP, *nodes)]).sum()
        for each in fit_.classes
    }
    assert counts == {False: inside, True: crossing}


# ---------------------------------------------------------------- chance


@pytest.mark.parametrize(
    ("fine", "steady"),
    [
        # Of a node that is slow in a quarter of its tests, 1 of 20 or fewer has the chance 2.4 %.
        (12, False),
        (13, True),
    ],
)
def test_a_node_is_steady_if_so_few_slow_tests_would_be_rare_for_one_that_is_slow_in_a_quarter(
    fine: int, steady: bool
) -> None:
    """Each node has 7 tests with others, of which one is with its partner."""
    fit_ = fitted({(0, 1): [0.5, *([1.0] * (fine - 1))]})
    (each,) = unexplained(fit_, ())
    assert (each.nodes, each.once, each.steady, each.by_chance) == ([0, 1], True, steady, steady)
    nodes = np.flatnonzero(maybe_now_and_then(fit_, np.zeros(8, dtype=np.bool_)))
    assert nodes.tolist() == ([] if steady else [0, 1])


def test_tests_of_an_accused_node_show_nothing_of_its_partners() -> None:
    accused = np.zeros(8, dtype=np.bool_)
    accused[0] = True
    fit_ = fitted({(0, 1): [0.5], (2, 3): [0.5]})
    assert np.flatnonzero(maybe_now_and_then(fit_, accused)).tolist() == [2, 3]


def test_each_rail_shows_for_itself_who_is_steady() -> None:
    """Thirteen fine tests on another rail say nothing of this one."""
    for times, steady in ((2, False), (3, True)):  # 15 tests of a node on its rail, and 22
        fit_ = fitted({(0, 1): [0.5]}, times=times, rails=("mlx5_0", "mlx5_1"))
        assert [each.steady for each in unexplained(fit_, ())] == [steady]


FEW_OF_NODE_0 = [(0, 1), (0, 2), *combinations(range(1, 8), 2)]


@pytest.mark.parametrize(
    ("partners", "pairs", "nodes"),
    [
        # Two of the 6 tests of node 0 are no chance; two of its 16 may be, and three may not.
        ((1, 2), FEW_OF_NODE_0, {0}),
        ((1, 2), [*combinations(range(8), 2)], set()),
        ((1, 2, 3), [*combinations(range(8), 2)], {0}),
        ((1,), FEW_OF_NODE_0, set()),
    ],
)
def test_a_node_is_slow_now_and_then_if_so_many_slow_tests_are_no_chance(
    partners: Sequence[int], pairs: Sequence[tuple[int, int]], nodes: set[int]
) -> None:
    fit_ = fitted({(0, partner): [0.5] for partner in partners}, times=2, pairs=pairs)
    odd = [*unexplained(fit_, ())]
    assert all(each.once for each in odd)
    assert slow_now_and_then(fit_, odd) == nodes
    assert [each.is_of(nodes) for each in odd] == [bool(nodes)] * len(partners)


def test_slow_tests_of_a_link_that_is_a_suspect_accuse_no_node() -> None:
    fit_ = fitted({(0, 1): [0.5] * 6, (0, 2): [0.5]}, times=2)
    odd = [*unexplained(fit_, [suspect(SuspectKind.LINK, 0, 1)])]
    assert [(each.nodes, each.once) for each in odd] == [([0, 2], True)]
    assert slow_now_and_then(fit_, odd) == set()


def test_what_is_slow_more_than_once_is_not_slow_now_and_then() -> None:
    fit_ = fitted({(0, 1): [0.5, 0.5], (0, 2): [0.5, 0.5]}, times=2)
    odd = [*unexplained(fit_, ())]
    assert slow_now_and_then(fit_, odd) == set()
    assert not any(each.is_of({0}) for each in odd)
