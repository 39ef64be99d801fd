"""What differs between executions, and how sure that is."""

import math
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from statistics import stdev

import pytest

from fabbench.analysis.sequential import spent_levels
from fabbench.analysis.statistics import (
    LEVEL,
    Difference,
    RowTest,
    TwoSamples,
    any_above,
    compare_sizes,
    compare_table,
    loss_test,
    overall,
    pooled,
    repeats_within,
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


def noisy(deviation: float, apart: float = 0.0) -> TwoSamples:
    """Two executions of each side, with this standard deviation and difference of means."""
    around = deviation / math.sqrt(2)
    return TwoSamples(new={0: apart - around, 1: apart + around}, base={0: -around, 1: around})


def by_chance(chance: float) -> TwoSamples:
    """A new side that is larger by as much as noise alone reaches with this chance, or exceeds."""
    return noisy(1.0, t_quantile(chance, 2))


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
        (0.3, 10, 0.541528),
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
    swapped = row((100, 110, 96), (70, 80, 75))
    assert (1 / swapped.high, 1 / swapped.low) == pytest.approx((found.low, found.high))


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.009, Difference.SAME), (1.011, Difference.FASTER)]
)
def test_a_certain_difference_below_1_percent_does_not_count(
    ratio: float, verdict: Difference
) -> None:
    assert row((ratio, ratio), (1, 1)).verdict is verdict


@pytest.mark.parametrize(
    ("possible", "verdict"), [(0.048, Difference.SAME), (0.052, Difference.UNDECIDED)]
)
def test_same_means_shown_to_be_within_5_percent(possible: float, verdict: Difference) -> None:
    deviation = math.log1p(possible) / t_quantile(0.025, 2)
    found = compare_sizes({1: noisy(deviation)})[1]
    assert found.high == pytest.approx(1 + possible)
    assert found.verdict is verdict


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ([], None),
        ([Difference.SAME, Difference.SAME], "same"),
        ([Difference.SAME, Difference.UNDECIDED], "undecided"),
        ([Difference.SAME, Difference.SLOWER, Difference.UNDECIDED], "slower"),
        ([Difference.SAME, Difference.FASTER], "faster"),
        ([Difference.FASTER, Difference.SLOWER], "mixed"),
    ],
)
def test_verdict_of_a_table_is_that_of_the_sizes_that_differ(
    verdicts: Collection[Difference], said: str | None
) -> None:
    assert overall(verdicts) == said


def test_undecided_names_the_repeats_that_would_decide() -> None:
    found = row((94, 100, 106), (95, 101, 107))
    assert found.low < 1 < found.high
    assert found.repeats is not None
    assert 15 < found.repeats < 25
    assert row((80, 100, 120), (82, 101, 122)).repeats is None
    assert row((70, 71, 72), (100, 101, 102)).repeats is None  # It is decided.


@pytest.mark.parametrize(
    ("margin", "repeats"),
    [
        # t(0.975; 2 n - 2) of tables, times the square root of 2 / n, is below the margin.
        (3.0, 3),
        (2.0, 4),
        (1.9, 4),
        (1.0, 9),
        (0.5, 32),
        (0.4, 50),
        (0.396, None),
        (0.0, None),
    ],
)
def test_repeats_narrow_the_interval_to_a_margin(margin: float, repeats: int | None) -> None:
    assert repeats_within(noisy(1.0), margin, 0.025) == repeats


@pytest.mark.parametrize(("apart", "repeats"), [(0.0, 3), (0.01, 4), (0.04, 4), (0.046, 3)])
def test_repeats_decide_by_what_is_shown_sooner_a_difference_or_that_there_is_none(
    apart: float, repeats: int
) -> None:
    assert compare_sizes({1: noisy(0.02, apart)})[1].repeats == repeats


STEADY = (99.4, 99.7, 99.9, 100, 100, 100.1, 100.2, 100.3, 100.6)


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Difference.SAME), (0.9, Difference.SLOWER)])
def test_one_slow_execution_in_ten_hides_neither_a_loss_nor_that_there_is_none(
    factor: float, verdict: Difference
) -> None:
    new = [factor * value for value in (*STEADY, 50)]
    assert row(new, (*STEADY, 40)).verdict is verdict


def test_one_slow_execution_in_ten_asks_for_no_more_repeats() -> None:
    assert repeats_within(pair((*STEADY, 50), (*STEADY, 40)), 0.01, 0.025) == 11


def test_of_few_executions_none_is_left_out() -> None:
    assert len(pair(STEADY[:4], STEADY).estimates) == 1
    assert len(pair(STEADY[:5], STEADY).estimates) == 2


@pytest.mark.slow
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


@pytest.mark.parametrize("rounding", [0.05, 0.04999])
def test_one_printed_step_apart_is_no_difference(rounding: float) -> None:
    tenth, eleven, fifth = (0.10,) * 30, (0.11,) * 30, (0.20,) * 30
    assert row(tenth, eleven, rounding).high == 1
    assert row(eleven, tenth, rounding).low == 1
    assert row(tenth, fifth, rounding).verdict is Difference.SLOWER
    assert row(fifth, tenth, rounding).verdict is Difference.FASTER


@pytest.mark.parametrize(
    ("shown", "rounding"),
    [(0.1, True), (-0.1, True), (0.1 + 1e-9, True), (0.101, False), (-0.101, False), (0.0, True)],
)
def test_two_figures_may_be_one_if_each_is_half_a_step_off(shown: float, rounding: bool) -> None:
    assert replace(noisy(1.0), rounding=0.05, shown=shown).may_be_rounding is rounding


def test_noise_of_both_sides_as_one_includes_what_rounding_hides() -> None:
    both = TwoSamples(new={0: 0.0, 1: 2.0}, base={0: 4.0, 1: 6.0}, rounding=0.5)
    assert both.spread == pytest.approx(math.hypot(stdev([0, 2, 4, 6]), 0.5))
    assert both.estimates[0].deviation == pytest.approx(math.hypot(math.sqrt(2), 0.5))


def test_what_is_exactly_at_a_limit_does_not_exceed_it() -> None:
    """Also where a rounding error of a logarithm says so: 0.8 - 0.1 > 0.7."""
    exact = TwoSamples(new={0: 0.8, 1: 0.8}, base={0: 0.1, 1: 0.1})
    assert [exact.exceeds(limit, LEVEL) for limit in (0.7, 0.699)] == [False, True]
    at = loss_test({1: exact}, {1: 0.7}), loss_test({1: exact.mirrored()}, {1: -0.7})
    assert {(each.shown, each.possible) for each in at} == {((), ())}


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


def test_the_noise_of_the_side_that_was_repeated_counts() -> None:
    one = TwoSamples(new={0: 0.0}, base={0: 0.0, 1: 2.0}, assumed=0.1)
    assert one.estimates[0].deviation == pytest.approx(math.sqrt(2))
    assert replace(one, base={0: 0.0}).estimates[0].deviation == pytest.approx(0.1)


# ---------------------------------------------------------------- the level and its shares


@pytest.mark.parametrize(("chance", "verdict"), [(0.019, "faster"), (0.021, "undecided")])
def test_of_a_level_of_5_percent_each_direction_has_half_and_80_percent_of_that_are_used(
    chance: float, verdict: str
) -> None:
    assert compare_sizes({1: by_chance(chance)})[1].verdict == verdict
    assert compare_sizes({1: by_chance(chance).mirrored()})[1].verdict == verdict.replace(
        "faster", "slower"
    )


@pytest.mark.parametrize(("chance", "shown", "possible"), [(0.039, (1,), ()), (0.041, (), (1,))])
def test_a_loss_has_the_whole_level_for_its_one_direction(
    chance: float, shown: tuple[int, ...], possible: tuple[int, ...]
) -> None:
    found = loss_test({1: by_chance(chance).mirrored()}, {1: 0.0})
    assert (found.shown, found.possible) == (shown, possible)


@pytest.mark.parametrize(("chance", "shown"), [(0.049, (1, 2)), (0.051, (1,))])
def test_where_a_loss_is_shown_each_size_has_the_whole_level(
    chance: float, shown: tuple[int, ...]
) -> None:
    lost = {1: by_chance(0.0001).mirrored(), 2: by_chance(chance).mirrored()}
    assert loss_test(lost, {1: 0.0, 2: 0.0}).shown == shown


def later(pair: TwoSamples) -> TwoSamples:
    """The same figures, of other executions."""
    new, base = ({run + 2: value for run, value in side.items()} for side in (pair.new, pair.base))
    return replace(pair, new=new, base=base)


@pytest.mark.parametrize(("chance", "above"), [(0.95, True), (1.05, False)])
@pytest.mark.parametrize(
    ("most", "sizes"),
    [
        (1, lambda one: [one]),
        # The sum of sizes that move together is as rare as each: it has 80 % of the level.
        (0.8, lambda one: [one, one]),
        # Sizes that contradict each other sum to nothing: two share the other 20 %.
        (0.1, lambda one: [one, one.mirrored()]),
        # Without an execution that has all of them, there is no sum, and no share of it.
        (0.5, lambda one: [one, later(one)]),
    ],
)
def test_sizes_share_the_level(
    most: float, sizes: Callable[[TwoSamples], list[TwoSamples]], chance: float, above: bool
) -> None:
    one = by_chance(chance * most * LEVEL)
    assert any_above(dict(enumerate(sizes(one))), LEVEL) is above


@pytest.mark.parametrize(("chance", "above"), [(0.95, True), (1.05, False)])
def test_a_plateau_has_30_percent_of_the_level_taken_from_the_sum(
    chance: float, above: bool
) -> None:
    nothing, contrary = noisy(1.0), [by_chance(0.4), by_chance(0.4).mirrored()]
    plateau = by_chance(chance * 0.3 * LEVEL)
    assert any_above(dict(enumerate(contrary)), LEVEL, plateau) is above
    alike = dict.fromkeys((1, 2), by_chance(chance * 0.5 * LEVEL))
    assert any_above(alike, LEVEL, nothing) is above


def test_a_plateau_is_the_mean_of_its_sizes_of_each_execution_that_has_all() -> None:
    """An execution's sizes move together: their rounding and assumed noise become no smaller."""
    first = TwoSamples(new={0: 1.0, 1: 2.0}, base={0: 0.0, 1: 1.0}, rounding=0.1, assumed=0.2)
    second = TwoSamples(new={0: 3.0, 1: 5.0, 2: 9.0}, base={1: 4.0, 0: 2.0}, rounding=0.3)
    together = pooled([first, second])
    assert together is not None
    assert (together.new, together.base) == ({0: 2.0, 1: 3.5}, {0: 1.0, 1: 2.5})
    assert (together.rounding, together.assumed) == pytest.approx((0.2, 0.2))


@pytest.mark.parametrize(
    ("assumed", "known"), [((0.1, 0.3), 0.2), ((math.inf, 0.3), 0.3), ((math.inf, math.inf), None)]
)
def test_a_plateau_that_was_measured_once_is_as_noisy_as_assumed(
    assumed: tuple[float, float], known: float | None
) -> None:
    once = [replace(pair((7,), (10,)), assumed=each) for each in assumed]
    together = pooled(once)
    assert (together and together.assumed) == (known and pytest.approx(known))


def test_without_an_execution_of_all_sizes_there_is_no_plateau() -> None:
    one = replace(noisy(1.0), assumed=0.1)
    assert pooled([]) is None
    assert pooled([one, later(one)]) is None


def test_a_table_has_the_ratio_and_the_verdict_of_its_plateau() -> None:
    table = {1: noisy(0.01, 0.1), 2: noisy(0.01, 0.3), 3: noisy(0.01, 0.5)}
    found = compare_table(table, (2, 3, 4))
    assert found.ratio == pytest.approx(math.exp(0.4))
    assert (found.plateau and found.plateau.verdict) == "faster"
    assert compare_table(table, ()).plateau is None


@pytest.mark.parametrize(("rounding", "possible"), [(0.0, (1,)), (0.1, ())])
def test_a_loss_that_is_shown_in_the_table_is_not_excluded_unless_it_is_rounding(
    rounding: float, possible: tuple[int, ...]
) -> None:
    """The medians differ by more than the means."""
    shown = TwoSamples(new={0: 1.0, 1: 1.0}, base={0: 0.0, 1: 0.0}, shown=-0.1, rounding=rounding)
    assert loss_test({1: shown}, {1: -0.05}).possible == possible


def test_no_size_is_above_where_there_is_none() -> None:
    assert any_above({}, LEVEL) is False
    assert compare_sizes({}) == {}


def test_scores_of_a_sum_are_standardized() -> None:
    """Each size counts alike: its scores have the mean 0 and the standard deviation 1."""
    small, large = pair((70, 71, 72), (100, 101, 102)), pair((7e6, 7.4e6, 8e6), (9e6, 9e6, 9e6))
    total, scores = standardized_sum({1: small, 2: large}), standardized_sum({1: small})
    assert total is not None
    assert scores is not None
    assert sum(total.everything) == pytest.approx(0, abs=1e-9)
    assert stdev(scores.everything) == pytest.approx(1)
    assert scores.middle < 0


def test_the_rounding_of_a_sum_is_that_of_its_sizes_in_units_of_their_noise() -> None:
    some = [replace(by_chance(0.1), rounding=rounding) for rounding in (0.3, 0.4)]
    total = standardized_sum(dict(enumerate(some)))
    assert total is not None
    assert total.rounding == pytest.approx(math.hypot(*(one.rounding / one.spread for one in some)))


@pytest.mark.parametrize("base", [(1.0,), (1.0, 1.1, 0.9)])
def test_sizes_that_were_measured_once_are_assumed_to_move_together(base: Sequence[float]) -> None:
    """The deviation of each has its rounding already."""
    once = replace(pair((0.7,), base, rounding=0.01), assumed=0.5)
    total = standardized_sum({1: once, 2: once, 3: once})
    assert total is not None
    assert (total.assumed, total.rounding) == (3, 0)


def test_a_size_beyond_its_own_interval_is_undecided_where_the_table_shows_no_difference() -> None:
    quiet = {size: pair((100, 104, 98), (103, 99, 101)) for size in range(2, 14)}
    alone = (92, 95, 94), (98, 96.5, 97)
    assert row(*alone).verdict is Difference.SLOWER
    found = compare_sizes({1: pair(*alone), **quiet})[1]
    assert (found.verdict, found.high) == (Difference.UNDECIDED, 1)
    better = compare_sizes({1: pair(*alone).mirrored(), **quiet})[1]
    assert (better.verdict, better.low) == (Difference.UNDECIDED, 1)


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
