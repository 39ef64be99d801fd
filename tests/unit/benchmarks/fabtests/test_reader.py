"""The fabtests' sizes, printed and read. Their layouts since 2014 are in the corpus."""

from hypothesis import given
from hypothesis import strategies as st

from fabbench.benchmarks.libfabric.facts import printed_count, printed_size
from tests.support.libfabric_text import Measured, cnt_str, fabtests_row, fabtests_table, size_str
from tests.support.read_logs import read_one
from tests.support.tiers import EVERY_CUT

ROWS = (Measured(64, 20000, 29947), Measured(1024, 20000, 34340))


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_sizes_and_counts_are_printed_as_the_source_does(size: int, count: int) -> None:
    assert (printed_size(size), printed_count(count)) == (size_str(size), cnt_str(count))


@given(st.integers(1, 1 << 32), st.integers(1, 10**5), st.integers(1, 10**7), st.sampled_from([1, 2]))
def test_a_size_fits_what_was_printed(size: int, iterations: int, us: int, times: int) -> None:
    (point,) = read_one(fabtests_table([Measured(size, iterations, us)], times=times)).points
    assert size_str(point.size) == size_str(size)


@EVERY_CUT
def test_pieces_of_two_rows_never_become_one(every: int) -> None:
    header, *_ = fabtests_table(ROWS)
    first, second = (fabtests_row(row, 1) for row in ROWS)
    for at in range(1, len(first), every):
        for other in range(1, len(second)):
            log = read_one([header, first[:at], second[other:]])
            assert all(point.size in {64, 1024} for point in log.points)
            assert not log.points or at == other or {first[:at].strip(), second[other:].strip()} & {first, second}
