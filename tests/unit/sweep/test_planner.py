"""Rounds that do not depend on results."""

from collections.abc import Iterable, Sequence
from itertools import combinations

import pytest

from fabbench.sweep.planner import Planner, all_pairs, grouped, matchings, rails, single
from fabbench.sweep.values import Round, SweepOutcome, SweepResult, SweepTest
from tests.support.simulated_sweeps import named


def pairs(rounds: Iterable[Round]) -> list[frozenset[str]]:
    return [frozenset(test.nodes) for each in rounds for test in each.tests]


def disjoint(each: Round) -> bool:
    used = [node for test in each.tests for node in test.nodes]
    return len(used) == len(set(used))


@pytest.mark.parametrize(
    ("count", "rounds"), [(0, 0), (1, 0), (2, 1), (3, 3), (8, 7), (9, 9), (64, 63)]
)
def test_all_pairs_once_in_as_few_rounds_as_there_can_be(count: int, rounds: int) -> None:
    found = list(all_pairs(named(count)))
    assert len(found) == rounds
    assert all(map(disjoint, found))
    assert sorted(map(sorted, pairs(found))) == sorted(map(list, combinations(named(count), 2)))


@pytest.mark.parametrize("count", [2, 7, 8, 33])
def test_matchings_give_every_node_new_partners(count: int) -> None:
    found = list(matchings(named(count), 3, seed=1))
    assert len(found) == min(3, count - 1 + count % 2)
    assert all(map(disjoint, found))
    assert all(len(each.tests) == count // 2 for each in found)
    assert len(set(pairs(found))) == len(pairs(found))


def test_matchings_depend_on_the_seed_alone() -> None:
    assert list(matchings(named(9), 2, seed=1)) == list(matchings(named(9), 2, seed=1))
    assert list(matchings(named(9), 2, seed=1)) != list(matchings(named(9), 2, seed=2))


def test_partners_may_meet_again_where_more_are_asked_for_than_there_are() -> None:
    found = list(matchings(named(4), 7, seed=0, again=True))
    assert [each.number for each in found] == list(range(1, 8))
    assert [each.tests for each in found[3:6]] == [each.tests for each in found[:3]]
    assert len(list(matchings(named(4), 7, seed=0))) == 3
    assert list(matchings(named(1), 7, seed=0, again=True)) == []


def test_nodes_alone() -> None:
    assert [test.nodes for each in single(named(3)) for test in each.tests] == [
        (name,) for name in named(3)
    ]


def test_rails_test_each_nic_with_several_partners() -> None:
    found = list(rails(named(4), ["efa0", "efa1"], rounds=2))
    assert all(map(disjoint, found))
    partners = {
        (node, test.rail): {
            other
            for each in found
            for t in each.tests
            if t.rail == test.rail and node in t.nodes
            for other in t.nodes
            if other != node
        }
        for each in found
        for test in each.tests
        for node in test.nodes
    }
    assert set(partners) == {(node, nic) for node in named(4) for nic in ("efa0", "efa1")}
    assert all(len(met) == 2 for met in partners.values())


@pytest.mark.parametrize("sizes", [(4, 4), (5, 3, 2), (1, 1, 6), (8,)])
def test_groups_are_tested_within_and_then_between(sizes: Sequence[int]) -> None:
    """And no node is idle that could be tested."""
    group_of = {
        f"{rack}-{n}": f"rack{rack}" for rack, size in enumerate(sizes) for n in range(size)
    }
    found = list(grouped(group_of, 4))
    assert all(map(disjoint, found))
    assert [len(each.tests) for each in found] == [sum(sizes) // 2] * 4
    inside = [
        sum(len({group_of[node] for node in test.nodes}) == 1 for test in each.tests)
        for each in found
    ]
    assert inside[0] == sum(size // 2 for size in sizes)
    reach = min(sum(sizes) // 2, sum(sizes) - max(sizes))
    assert inside[2:] == [sum(sizes) // 2 - reach] * 2
    assert ["within" in each.purpose for each in found] == [True, True, False, False]


def ran(test: SweepTest, each: Round) -> SweepResult:
    return SweepResult(test, SweepOutcome.OK, 1e9, each.number)


def test_a_fixed_plan_goes_on_where_another_was_cut_off() -> None:
    first = Planner(all_pairs(named(6)))
    stored = []
    for _ in range(2):
        each = first.next_round()
        assert each is not None
        stored += [ran(test, each) for test in each.tests]
        for result in stored[-3:]:
            first.add(result)
    third = first.next_round()
    assert third is not None
    stored.append(ran(third.tests[1], third))
    resumed = Planner(all_pairs(named(6)))
    for result in reversed(stored):
        resumed.add(result)
    left = resumed.next_round()
    assert left is not None
    assert (left.number, left.tests) == (3, (third.tests[0], third.tests[2]))
    seen = 0
    while (each := resumed.next_round()) is not None:
        for test in each.tests:
            resumed.add(ran(test, each))
            seen += 1
    assert seen == 15 - len(stored)
