"""A text that begins within a table: its rows are not of the next one, and do not vanish."""

import pytest

from tests.support.corpus import CORPUS
from tests.support.read_logs import read

OSU = """\
# OSU MPI Latency Test v7.4
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)
1                       1.25
2                       1.27
4                       1.30
"""


@pytest.mark.parametrize("first", [1, 2, 3])
def test_rows_without_the_title_of_their_table_are_damaged(first: int) -> None:
    rest = "\n".join(OSU.split("\n")[first:])
    (log,) = read(rest + OSU)
    assert (len(log.points), [each.line for each in log.damaged]) == (
        3,
        [4 - first, 5 - first, 6 - first],
    )


def test_a_comment_above_a_whole_table_is_no_head() -> None:
    (log,) = read(f"# job 4711\n\n{OSU}")
    assert (len(log.points), log.damaged) == (3, ())


def test_a_banner_below_rows_is_that_of_the_next_run() -> None:
    text = (CORPUS / "nccl/a-text-that-begins-below-the-head-of-a-table.txt").read_text("utf-8")
    cut, whole = read(text)
    assert ("nccl_tests" in cut.facts, cut.case) == (False, None)
    assert (whole.facts["nccl_tests"], whole.case) == ("2.19.6", "all_gather")
    assert len(cut.points) == len(whole.points)
