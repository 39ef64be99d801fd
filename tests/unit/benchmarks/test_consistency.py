"""A printed number stands for all that round to it: rows are held to that, and to no more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.benchmarks.consistency import (
    ALL_REDUCE,
    GATHERING,
    SAME,
    Ratios,
    choose_formula,
    gap,
    odd_rows,
    off_sweep,
    out_of_order,
    printed,
    ratios,
)

DOUBLING = [1 << power for power in range(22)]  # up to 2 MiB


@pytest.mark.parametrize(
    ("sizes", "wrong"),
    [
        ([8, 16, 32, 64], []),
        ([8, 16, 32, 8, 16, 32], []),
        ([8, 16, 8, 16, 8], []),
        ([512, 24, 2048], [1]),
        ([512, 11024, 2048], [1]),
        ([512, 1024, 48], [2]),
        ([8, 8, 8], []),
        ([], []),
    ],
)
def test_a_size_out_of_its_sweep(sizes: list[int], wrong: list[int]) -> None:
    assert list(out_of_order(sizes)) == wrong


@pytest.mark.parametrize(
    ("sizes", "damaged"),
    [
        ([1, 2, 4, 8, 16, 64], True),
        ([1, 2, 4, 8, 16, 1632], True),
        ([2, 2, 4, 8, 16, 32], True),
        ([6, 8, 16, 32, 64, 128], False),
        ([0, 1, 2, 4, 8, 16, 1, 2, 4, 8], False),
        ([64, 256, 1024, 4096, 65536], False),
        ([4, 8, 8, 16], True),
        ([8, 8, 8], False),
    ],
)
def test_a_sweep_that_lost_rows(sizes: list[int], *, damaged: bool) -> None:
    assert bool(gap(sizes, once=True)) == damaged
    assert len(sizes) < 5 or bool(gap(sizes)) == damaged


@pytest.mark.parametrize(
    ("sizes", "off"),
    [
        # OSU, the first size of 0: a last size with another digit, one more, one less
        ([0, *DOUBLING, 4194204], {23}),
        ([*DOUBLING, 44194304], {22}),
        ([*DOUBLING, 419404], {22}),
        # Two rows that lost their heads, which by themselves are a sweep in order
        ([*DOUBLING[:-1], 97152, 194304], {21, 22}),
        # Above a second sweep a size that lost its head is no sweep of its own
        ([*DOUBLING, 194304, *DOUBLING], {22}),
        ([11, *DOUBLING[1:]], {0}),
        # OSU with -m 3:3072, and from a size below the round ones on
        ([3 << power for power in range(11)], set()),
        ([6, *DOUBLING[3:]], set()),
        # perftest, libfabric with -S all, and by default
        ([*DOUBLING, *DOUBLING], set()),
        ([64, 96, 128, 192, 256, 384, 512, 768, 1024], set()),
        ([64, 256, 1024, 4096, 65536, 1048576, 1572864, 2097152], set()),
        # NVSHMEM rounds sizes down to a multiple of the bytes of all PEs: here of 15
        ([(1 << power) // 60 * 60 for power in range(6, 26)], set()),
        # Too few to know; or none
        ([8, 16, 32, 63], set()),
        ([65536] * 9, set()),
        ([], set()),
    ],
)
def test_a_size_that_no_step_of_its_sweep_leads_to(sizes: list[int], off: set[int]) -> None:
    assert off_sweep(sizes) == off


@pytest.mark.parametrize(
    ("row", "odd"),
    [
        ("64       10.25", False),
        ("1048576  10.25", False),
        ("64        9.50", False),
        ("64     123456.25", False),
        ("64      10.25", True),
        ("64            10.25", True),
        ("64        1025", True),
        ("64       10.25  1", True),
    ],
)
def test_a_row_whose_cells_are_elsewhere(row: str, *, odd: bool) -> None:
    table = [f"{size:<7}{size / 7 + 1.25:>7.2f}" for size in (8, 16, 32, 128, 256)]
    assert odd_rows([*table, row]) == ({5} if odd else set())


@given(st.floats(1e-3, 1e9), st.integers(0, 6))
def test_the_number_behind_a_print_is_in_its_range(number: float, decimals: int) -> None:
    assert printed(f"{number:.{decimals}f}").overlaps(number, number)
    assert printed(f"{number:.{decimals}e}").overlaps(number, number)


@pytest.mark.parametrize(
    ("token", "low", "high"),
    [("12.30", 12.295, 12.305), ("7", 6.5, 7.5), ("1e+06", 0.5e6, 1.5e6), ("0.00", 0.0, 0.005)],
)
def test_the_last_digit_tells_the_rounding(token: str, low: float, high: float) -> None:
    found = printed(token)
    assert found.low == pytest.approx(low, rel=1e-5)
    assert found.high == pytest.approx(high, rel=1e-5)


def test_what_is_no_number_says_nothing_or_that_it_is_large() -> None:
    assert printed("nan").overlaps(1e9, 1e9)
    assert printed("inf").low > 1e12
    with pytest.raises(ValueError, match="not a number"):
        printed("7x5")


RATES = st.floats(0.01, 3000)


def row(size: int, gigabytes: float, ranks: int, factor: float = 2.0) -> Ratios:
    """Print a row of a collective, and read what it allows."""
    us = size / gigabytes / 1e3
    bus = gigabytes * factor * (ranks - 1) / ranks
    return ratios(
        size, printed(f"{us:.2f}", -6), printed(f"{gigabytes:.2f}", 9), printed(f"{bus:.2f}", 9)
    )


@given(
    st.lists(st.tuples(st.integers(1, 1 << 34), RATES), min_size=1, max_size=40),
    st.integers(1, 5000),
)
def test_no_table_that_was_printed_is_contradicted(
    rows: list[tuple[int, float]], ranks: int
) -> None:
    found = [row(size, rate, ranks) for size, rate in rows]
    for stated in (ranks, None):
        formula = choose_formula(found, (ALL_REDUCE,), stated)
        assert formula is not None
        if stated is not None:
            assert all(map(formula.fits, found))


@pytest.mark.parametrize("stated", [16, None, 9])
def test_most_rows_decide_and_the_stated_ranks_need_not_be_right(stated: int | None) -> None:
    rows = [row(1 << power, 10.0 + power, 16) for power in range(10, 30)]
    formula = choose_formula(rows, (ALL_REDUCE, GATHERING, SAME), stated)
    assert formula is not None
    assert formula.share == 1.0
    assert formula.bus == pytest.approx(1.875, rel=1e-3)


@pytest.mark.parametrize("stated", [16, None])
def test_a_row_that_the_others_contradict_is_found(stated: int | None) -> None:
    rows = [
        (power, row(1 << power, 10.0 + power, 16 if power != 20 else 3)) for power in range(10, 30)
    ]
    formula = choose_formula([each for _, each in rows], (ALL_REDUCE,), stated)
    assert [power for power, each in rows if formula is None or not formula.fits(each)] == [20]


def test_a_row_alone_is_held_to_its_own_figures() -> None:
    alone = row(1 << 20, 10.0, 16, factor=3.0)
    formula = choose_formula([alone], (ALL_REDUCE,), None)
    assert formula is not None
    assert not formula.fits(alone)
