"""What differs between executions, and how sure that is."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fabbench.analysis.sequential import spent_levels
from fabbench.analysis.statistics import (
    Difference,
    RowTest,
    TwoSamples,
    compare_sizes,
    loss_test,
    standardized_sum,
    t_quantile,
    t_tail,
)


def pair(new: Sequence[float], base: Sequence[float], rounding: float = 0.0) -> TwoSamples:
    return TwoSamples(
        new={n: math.log(value) for n, value in enumerate(new)},
        base={n: math.log(value) for n, value in enumerate(base)},
        rounding=rounding,
    )


def row(new: Sequence[float], base: Sequence[float], rounding: float = 0.0) -> RowTest:
    return compare_sizes({1: pair(new, base, rounding)})[1]


@pytest.mark.parametrize(
    ("tail", "freedom", "value"),
    [
        (0.025, 1, 12.7062),
        (0.025, 2, 4.30265),
        (0.05, 3, 2.35336),
        (0.025, 4, 2.77645),
        (0.005, 22, 2.81876),
        (0.0005, 5, 6.86883),
    ],
)
def test_quantiles_of_t_are_those_of_tables(tail: float, freedom: int, value: float) -> None:
    assert t_quantile(tail, freedom) == pytest.approx(value, rel=1e-5)
    assert t_tail(value, freedom) == pytest.approx(tail, rel=1e-4)


@pytest.mark.parametrize(
    ("new", "base", "verdict"),
    [
        ((70, 71, 72), (100, 101, 102), Difference.SLOWER),
        ((100, 101, 102), (70, 71, 72), Difference.FASTER),
        ((100, 101, 102), (100, 102, 101), Difference.SAME),
        ((90, 100, 110), (92, 101, 112), Difference.UNDECIDED),
        ((10, 10), (9, 9), Difference.FASTER),
        ((100.1, 100.1, 100.1), (100, 100, 100), Difference.SAME),
    ],
)
def test_verdict_of_one_size(
    new: Sequence[float], base: Sequence[float], verdict: Difference
) -> None:
    assert row(new, base).verdict is verdict


def test_interval_of_one_size_is_that_of_the_t_test_on_logarithms() -> None:
    found = row((70, 80, 75), (100, 110, 96))
    assert (found.low, found.high) == pytest.approx((0.6299, 0.8586), abs=1e-4)


def test_undecided_names_the_repeats_that_would_decide() -> None:
    found = row((94, 100, 106), (95, 101, 107))
    assert found.low < 1 < found.high
    assert found.repeats is not None
    assert 15 < found.repeats < 25
    assert row((80, 100, 120), (82, 101, 122)).repeats is None


STEADY = (99.4, 99.7, 99.9, 100, 100, 100.1, 100.2, 100.3, 100.6)


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Difference.SAME), (0.9, Difference.SLOWER)])
def test_one_slow_execution_in_ten_hides_neither_a_loss_nor_that_there_is_none(
    factor: float, verdict: Difference
) -> None:
    new = [factor * value for value in (*STEADY, 50)]
    assert row(new, (*STEADY, 40)).verdict is verdict


def test_of_few_executions_none_is_left_out() -> None:
    assert len(pair(STEADY[:4], STEADY).estimates) == 1
    assert len(pair(STEADY[:5], STEADY).estimates) == 2


@pytest.mark.parametrize("spikes", [0.0, 0.1])
@pytest.mark.parametrize("count", [5, pytest.param(8, marks=pytest.mark.slow), 12])
def test_equal_configurations_rarely_differ(count: int, spikes: float) -> None:
    chance, tables, alarms = random.Random(3), 2000, 0

    def side() -> list[float]:
        return [
            math.exp(chance.gauss(0, 0.08)) * (0.7 if chance.random() < spikes else 1)
            for _ in range(count)
        ]

    for _ in range(tables):
        alarms += row(side(), side()).verdict in {Difference.FASTER, Difference.SLOWER}
    assert 0.01 < alarms / tables <= 0.05


def test_one_printed_step_apart_is_no_difference() -> None:
    assert (
        row((0.10, 0.10, 0.10), (0.11, 0.11, 0.11), rounding=0.05).verdict is not Difference.SLOWER
    )
    assert row((0.10, 0.10, 0.10), (0.20, 0.20, 0.20), rounding=0.05).verdict is Difference.SLOWER


def test_one_execution_on_a_side_shows_nothing_without_an_assumption() -> None:
    found = compare_sizes({1: pair((7,), (100, 101)), 2: pair((7,), (100,))})
    assert {each.verdict for each in found.values()} == {Difference.UNDECIDED}
    assert all(each.once and each.repeats is None for each in found.values())


@pytest.mark.parametrize("base", [(100.0,), (100.0, 101.0, 99.0)])
@pytest.mark.parametrize(
    ("new", "assumed", "verdict"),
    [
        (70, 0.1, Difference.SLOWER),
        (120, 0.1, Difference.UNDECIDED),
        (150, 0.1, Difference.FASTER),
        (100, 0.1, Difference.UNDECIDED),
        (100, 0.001, Difference.SAME),
    ],
)
def test_one_execution_on_a_side_is_as_noisy_as_assumed(
    base: Sequence[float], new: float, assumed: float, verdict: Difference
) -> None:
    one = replace(pair((new,), base), assumed=assumed)
    assert compare_sizes({1: one})[1].verdict is verdict


def test_what_was_measured_beats_a_smaller_assumption() -> None:
    for base in ((100.0, 150.0, 70.0), (100.0, 101.0, 99.0)):
        one = replace(pair((70,), base), assumed=0.01)
        found = compare_sizes({1: one})[1].verdict
        assert found is (Difference.UNDECIDED if max(base) > 101 else Difference.SLOWER)


def test_a_loss_at_all_sizes_is_found_however_sizes_move_together() -> None:
    """The sum of 20 sizes is as noisy as one of them, not less: a loss of 25 % stays within it."""

    def lost(part: float) -> set[Difference]:
        pairs = {size: replace(pair((part,), (1,)), assumed=0.1) for size in range(20)}
        return {each.verdict for each in compare_sizes(pairs).values()}

    assert lost(0.78) == {Difference.UNDECIDED}
    assert lost(0.7) == {Difference.SLOWER}


def test_a_size_beyond_its_own_interval_is_undecided_where_the_table_shows_no_difference() -> None:
    quiet = {size: pair((100, 104, 98), (103, 99, 101)) for size in range(2, 14)}
    alone = (92, 95, 94), (98, 96.5, 97)
    assert row(*alone).verdict is Difference.SLOWER
    found = compare_sizes({1: pair(*alone), **quiet})[1]
    assert found.verdict is not Difference.SLOWER
    assert found.high >= 1


def test_a_noisy_size_does_not_hide_the_loss_of_quiet_ones() -> None:
    noisy = pair((5, 9, 14), (6, 14, 7))
    quiet = {size: pair((94.9, 95, 95.1), (100, 100.1, 99.9)) for size in range(2, 6)}
    found = compare_sizes({1: noisy, **quiet})
    assert [found[size].verdict for size in quiet] == [Difference.SLOWER] * 4
    assert found[1].verdict is Difference.UNDECIDED


def test_sizes_that_some_executions_lack_stay_out_of_the_sum() -> None:
    whole = pair((70, 71, 72), (100, 101, 102))
    cut = pair((70, 71), (100, 101, 102))
    total = standardized_sum({1: whole, 2: cut})
    assert total is not None
    assert total == standardized_sum({1: whole, 2: pair((5, 5, 5), (5, 5, 5))})
    assert compare_sizes({1: whole, 2: cut})[2].verdict is Difference.SLOWER


@pytest.mark.parametrize(
    ("new", "shown", "possible"),
    [((70, 71, 72), (1,), ()), ((100, 101, 102), (), ()), ((93, 97, 100), (), (1,))],
)
def test_loss_beyond_a_tolerance(
    new: Sequence[float], shown: tuple[int, ...], possible: tuple[int, ...]
) -> None:
    found = loss_test({1: pair(new, (100, 101, 102))}, {1: math.log(0.95)})
    assert (found.shown, found.possible) == (shown, possible)


def test_levels_of_all_looks_together_keep_the_level_of_one() -> None:
    levels = spent_levels(8)
    assert spent_levels(3) == pytest.approx((0.05,), abs=1e-4)
    chance, tables, alarms = random.Random(1), 4000, 0
    limits = [t_quantile(level / 2, 10**4) for level in levels]
    for _ in range(tables):
        total = chance.gauss(0, math.sqrt(2))
        for count, limit in enumerate(limits, 3):
            total += chance.gauss(0, 1)
            if abs(total) > limit * math.sqrt(count):
                alarms += 1
                break
    assert 0.04 < alarms / tables < 0.06
