"""Sizes and counts of libfabric's tools, printed and read.

Their layouts since 2014 are in the corpus.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.benchmarks.libfabric.reader import count_range, size_range
from tests.support.libfabric_text import (
    PINGPONG_HEADER,
    Measured,
    cnt_str,
    fabtests_table,
    pingpong_row,
    size_str,
)
from tests.support.read_logs import read_one


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_ranges_are_of_all_numbers_that_the_source_prints_alike(size: int, count: int) -> None:
    for number, write, found in (
        (size, size_str, size_range(size_str(size))),
        (count, cnt_str, count_range(cnt_str(count), None)),
    ):
        assert found.low <= number <= found.high
        assert write(found.low) == write(found.high) == write(number) != write(found.high + 1)


@given(
    st.integers(1, 1 << 32),
    st.integers(1, 10**5),
    st.integers(10**3, 10**7),
    st.sampled_from([1, 2]),
)
def test_a_size_fits_what_was_printed(size: int, iterations: int, us: int, times: int) -> None:
    (point,) = read_one(fabtests_table([Measured(size, iterations, us)], times=times)).points
    assert size_str(point.size) == size_str(size)


@pytest.mark.parametrize("command", ["", "$ fi_pingpong -I 1000 -S {size} 10.0.0.1"])
@given(size=st.integers(1, 1 << 34), us=st.decimals("0.5", 10**6, places=2))
def test_the_size_on_the_command_line_is_exact(command: str, size: int, us: object) -> None:
    log = read_one([command.format(size=size), PINGPONG_HEADER, pingpong_row(size, 1000, str(us))])
    (point,) = log.points
    assert size_str(point.size) == size_str(size)
    assert not command or (
        point.size == size and "size-truncated" not in {each.code for each in log.findings}
    )
