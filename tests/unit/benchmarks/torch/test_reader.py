"""Reports of torch all_reduce benchmarks: whatever was measured, a report fits itself.

Its forms are in the corpus.
"""

import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.model.log import Outcome
from tests.support.read_logs import figures, read_lines, read_one
from tests.support.torch_report import sentences, table

GIGABYTES = st.floats(1e7, 9e11)


def rates(line: str) -> list[float]:
    """The rates in a line by its own words, in base units."""
    return [float(Decimal(digits) * 10**9) for digits in re.findall(r"(\d+\.\d+) ?GBps", line)]


@given(GIGABYTES, st.integers(2, 4096), st.integers(1, 10**6), st.sampled_from([2000, 1, 17]))
def test_any_report_fits_itself(algbw: float, ranks: int, rows: int, columns: int) -> None:
    lines = sentences(algbw, ranks=ranks, payload=rows * columns * 4)
    log = read_one(lines)
    cut = (
        len(lines[0].split("GB")[0].rpartition(".")[2]) == 3
    )  # decimals of a payload that may have been rounded
    assert (log.outcome, () if cut else log.findings) == (Outcome.OK, ())
    assert log.points[0].size == rows * columns * 4
    assert figures(log.points[0]) == {"algbw": rates(lines[1])[0], "busbw": rates(lines[2])[0]}


@given(
    st.lists(
        st.tuples(st.integers(15, 34).map(lambda power: 1 << power), GIGABYTES),
        min_size=1,
        max_size=8,
    ),
    st.integers(2, 4096),
)
def test_any_table_fits_itself(rows: list[tuple[int, float]], ranks: int) -> None:
    log = read_one(table(rows, ranks=ranks))
    assert (log.outcome, log.findings, [point.size for point in log.points]) == (
        Outcome.OK,
        (),
        [size for size, _ in rows],
    )


RATIO = """\
| payload |    algbw   |    busbw   |
| ------: | ---------: | ---------: |
|   32KiB |   0.48GBps |   0.90GBps |
|    1MiB |   8.84GBps |  16.57GBps |
|  512MiB |  47.50GBps |  89.06GBps |
|   16GiB | 182.33GBps | 341.87GBps |
"""


@pytest.mark.parametrize(
    ("row", "altered"),
    [(2, "0.40GBps"), (3, "16.37GBps"), (4, "69.06GBps"), (5, "351.87GBps")],
)
def test_a_row_with_another_ratio_than_the_others_is_damaged(row: int, altered: str) -> None:
    """Without a number of ranks: busbw by algbw is one number in all rows."""
    lines = RATIO.splitlines()
    assert read_one(lines).outcome == Outcome.OK
    before, _, _ = lines[row].rstrip("|").rpartition("|")
    log = read_one([*lines[:row], f"{before}|  {altered} |", *lines[row + 1 :]])
    assert (log.outcome, [each.line for each in log.damaged]) == (Outcome.TRUNCATED, [row + 1])


def test_a_sentence_that_alone_lost_its_label_is_of_the_open_report() -> None:
    first, second = (sentences(8e9, ranks=16, payload=payload) for payload in (1 << 30, 1 << 32))
    labeled = [f"[1,0]<stdout>:{line}" for line in (*first, *second)]
    labeled[len(first)] = second[0]
    found = read_lines(labeled)
    assert [[point.size for point in log.points] for log in found] == [[1 << 30], [1 << 32]]
    assert [log.outcome for log in found] == [Outcome.OK, Outcome.OK]


def test_of_two_rows_of_which_one_is_altered_neither_counts() -> None:
    """The others are printed with too few digits to tell which."""
    log = read_one(RATIO.replace("341.87GBps", "341.67GBps").splitlines())
    assert (log.outcome, [each.line for each in log.damaged]) == (Outcome.TRUNCATED, [5, 6])
