"""What stands out: only what the figures show, in ranges that leave nothing out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.analysis.compare import Comparison, compare
from fabbench.analysis.highlights import MAX_RANGES, RANGE_FACTOR, Trend, highlights
from tests.support.logs_by_hand import GB, KB, MB, column, log, rates


def test_sizes_that_one_lacks_are_not_spoken_of() -> None:
    new, base = (
        rates("a", [(KB, 2), (MB, 2)]),
        rates("b", [(8, 1), (KB, 1), (4 * KB, 1), (MB, 1), (GB, 1)]),
    )
    (remark,) = highlights(compare([new, base]))
    assert (remark.span, remark.low, remark.high) == ("1 KB – 1 MB", KB, MB)


def test_every_column_is_compared_with_the_baseline() -> None:
    remarks = highlights(
        compare([rates("a", [(8, 4)]), rates("b", [(8, 2)]), rates("c", [(8, 1)])])
    )
    assert [(remark.label, remark.base, remark.best) for remark in remarks] == [
        ("a", "c", 4),
        ("b", "c", 2),
    ]


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
def test_ranges_are_contiguous_and_cover_every_compared_size(
    rows: dict[int, tuple[float, float]],
) -> None:
    remarks = highlights(compared(rows))
    covered = [
        [size for size in sorted(rows) if remark.low <= size <= remark.high] for remark in remarks
    ]
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


few = st.dictionaries(
    sizes, st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=MAX_RANGES
)
TURNED = {Trend.AHEAD: Trend.BEHIND, Trend.BEHIND: Trend.AHEAD}


@given(few)
def test_turned_round_ahead_is_behind(rows: dict[int, tuple[int, int]]) -> None:
    there = compared({size: (1e9 * one, 1e9 * other) for size, (one, other) in rows.items()})
    back = compared({size: (1e9 * other, 1e9 * one) for size, (one, other) in rows.items()})
    assert [
        (remark.low, remark.high, TURNED.get(remark.trend, remark.trend))
        for remark in highlights(there)
    ] == [(remark.low, remark.high, remark.trend) for remark in highlights(back)]
