"""What stands out: only what the figures show, in ranges that leave nothing out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.analysis.compare import Column, Comparison, compare
from fabbench.analysis.highlights import MAX_RANGES, RANGE_FACTOR, Trend, highlights
from tests.support.logs_by_hand import GB, KB, MB, column, latencies, log, rates
from tests.support.nccl_text import EFA, NON_EFA, SIZES


def said(*columns: Column) -> list[tuple[str, str]]:
    return [(remark.span, remark.text) for remark in highlights(compare(columns))]


def test_the_published_table() -> None:
    efa, base = (rates(name, zip(SIZES, values, strict=True)) for name, values in (("EFA", EFA), ("non-EFA", NON_EFA)))
    best = "Best figures: EFA {} GB/s at {size} against non-EFA {} GB/s at {size}."
    assert said(efa, base) == [
        ("≤ 256 B", f"Both display as 0. {best.format(0, 0, size='256 B')}"),
        (
            "512 B – 512 KB",
            "Undecided: 0.8 x to 3 x (95 % intervals 0.044 to 38.3, measured once); repeats would decide. "
            + best.format(3.03, 1.01, size="512 KB"),
        ),
        (
            "1 MB – 16 MB",
            "EFA is ahead: 2.8 x to 5.9 x (95 % intervals 1.6 to 7.81, measured once). "
            + best.format(19.03, 3.22, size="16 MB"),
        ),
        (
            "≥ 32 MB",
            "EFA is ahead: 8.9 x to 18.7 x (95 % intervals 6.73 to 24.8, measured once). "
            + best.format(77.35, 4.13, size="2 GB"),
        ),
    ]


def test_times_are_ahead_when_shorter() -> None:
    (remark,) = said(latencies("shm", [(64, 1), (256, 2)]), latencies("tcp", [(64, 10), (256, 20)]))
    assert remark == (
        "64 B – 256 B",
        (
            "shm is ahead: 10 x (95 % intervals 3.77 to 26.5, measured once). "
            "Best figures: shm 1 us at 64 B against tcp 10 us at 64 B."
        ),
    )


def test_behind() -> None:
    ((span, text),) = said(rates("a", [(GB, 1)]), rates("b", [(GB, 4)]))
    assert (span, text[:19]) == ("1 GB", "a is behind: 0.3 x ")


def test_one_shows_zero() -> None:
    ((_, text),) = said(rates("a", [(8, 1)]), rates("b", [(8, 0)]))
    assert text.startswith("One of the two displays as 0, so there is no ratio. Best figures: a 1 GB/s")


def test_repeats_that_overlap_are_undecided() -> None:
    new = column("a", log([(8, 2e9)]), log([(8, 9e9)]))
    base = column("b", log([(8, 1e9)]), log([(8, 3e9)]))
    ((_, text),) = said(new, base)
    assert text.startswith("Undecided: 2.8 x (95 % interval 0.045 to 134.7); about 10 repeats would decide.")


def test_rows_of_one_execution_are_no_repeats() -> None:
    new = column("a", log([(8, 2e9), (8, 9e9)]))
    base = column("b", log([(8, 1e9), (8, 3e9)]))
    ((_, text),) = said(new, base)
    assert text.startswith("Undecided: 2.8 x (95 % interval 0.17 to 44.7, measured once)")


@pytest.mark.parametrize(
    ("factor", "text"),
    [
        (0.7, "a is behind: 0.7 x (95 % intervals 0.68 to 0.72)."),
        (1.5, "a is ahead: 1.5 x (95 % intervals 1.46 to 1.54)."),
        (0.014, "a is behind: 0.01 x (95 % intervals 0.0062 to 0.031)."),
        (1.01, "The same within 5 %: 1 x (95 % intervals 0.985 to 1.036)."),
    ],
)
def test_repeats_give_verdicts(factor: float, text: str) -> None:
    repeats = (1.0, 1.01, 0.99)
    sides = [
        column(label, *(log([(KB, 1e9 * part * n), (MB, 5e9 * part * n)]) for n in repeats))
        for label, part in (("a", factor), ("b", 1.0))
    ]
    ((_, found),) = said(*sides)
    assert found.startswith(text)


def test_sizes_that_one_lacks_are_not_spoken_of() -> None:
    new, base = rates("a", [(KB, 2), (MB, 2)]), rates("b", [(8, 1), (KB, 1), (4 * KB, 1), (MB, 1), (GB, 1)])
    (remark,) = highlights(compare([new, base]))
    assert (remark.span, remark.low, remark.high) == ("1 KB – 1 MB", KB, MB)


def test_every_column_is_held_against_the_base() -> None:
    remarks = highlights(compare([rates("a", [(8, 4)]), rates("b", [(8, 2)]), rates("c", [(8, 1)])]))
    assert [(remark.label, remark.base, remark.best) for remark in remarks] == [("a", "c", 4), ("b", "c", 2)]


@pytest.mark.parametrize("columns", [1, 2])
def test_nothing_to_compare_is_nothing_to_say(columns: int) -> None:
    made = [rates("a", [(8, 1)]), rates("b", [(16, 1)])][:columns]
    assert highlights(compare(made)) == ()


# ---------------------------------------------------------------- laws

sizes = st.sampled_from([1 << power for power in range(3, 32)])
values = st.floats(min_value=0, max_value=1e12)
pairs = st.dictionaries(sizes, st.tuples(values, values), min_size=1, max_size=12)


def compared(rows: dict[int, tuple[float, float]]) -> Comparison:
    halves = [[(size, pair[side]) for size, pair in rows.items()] for side in (0, 1)]
    return compare([column(name, log(half)) for name, half in zip("ab", halves, strict=True)])


@given(pairs)
def test_ranges_are_contiguous_and_cover_every_compared_size(rows: dict[int, tuple[float, float]]) -> None:
    remarks = highlights(compared(rows))
    covered = [[size for size in sorted(rows) if remark.low <= size <= remark.high] for remark in remarks]
    assert [size for sizes_ in covered for size in sizes_] == sorted(rows)
    assert 1 <= len(remarks) <= MAX_RANGES


@given(pairs)
def test_no_claim_goes_beyond_the_figures(rows: dict[int, tuple[float, float]]) -> None:
    comparison = compared(rows)
    ratios = {row.size: row.ratios[0] for row in comparison.sections[0].rows}
    for remark in highlights(comparison):
        inside = [ratio for size, ratio in ratios.items() if remark.low <= size <= remark.high]
        known = [ratio for ratio in inside if ratio is not None]
        assert remark.worst == min(known, default=None)
        assert remark.best == max(known, default=None)
        if remark.trend is Trend.AHEAD:
            assert min(known) > 1.1
            assert known == inside
        if remark.trend is Trend.BEHIND:
            assert max(known) < 1 / 1.1
        if remark.trend in {Trend.AHEAD, Trend.BEHIND} and len(rows) <= MAX_RANGES:
            assert max(known) <= RANGE_FACTOR * min(known) * (1 + 1e-9)


few = st.dictionaries(sizes, st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=MAX_RANGES)
TURNED = {Trend.AHEAD: Trend.BEHIND, Trend.BEHIND: Trend.AHEAD}


@given(few)
def test_turned_round_ahead_is_behind(rows: dict[int, tuple[int, int]]) -> None:
    there = compared({size: (1e9 * one, 1e9 * other) for size, (one, other) in rows.items()})
    back = compared({size: (1e9 * other, 1e9 * one) for size, (one, other) in rows.items()})
    assert [(remark.low, remark.high, TURNED.get(remark.trend, remark.trend)) for remark in highlights(there)] == [
        (remark.low, remark.high, remark.trend) for remark in highlights(back)
    ]
