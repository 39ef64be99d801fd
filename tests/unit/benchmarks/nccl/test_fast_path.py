"""The fast path for rows reads what the slow one does."""

from pathlib import Path

import pytest

from fabbench.logs.parser import LogParser
from tests.support.corpus import CORPUS
from tests.support.nccl_text import HEADER
from tests.support.read_logs import read_one

LOGS = sorted(CORPUS.glob("nccl/*.txt"))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_log_is_read_alike_line_by_line_and_as_a_whole(path: Path) -> None:
    lines = path.read_text(errors="replace").split("\n")
    by_line = LogParser("log")
    slow = [each for line in lines for each in by_line.feed(line)]
    slow += by_line.close()
    at_once = LogParser("log")
    fast = at_once.feed_lines(lines)
    fast += at_once.close()
    assert fast == slow


def ring(*ranks: int) -> str:
    return f"vm:871:871 [0] NCCL INFO Channel 00/02 : {' '.join(map(str, ranks))}"


def test_a_ring_is_not_another_one_that_ends_alike() -> None:
    """Two communicators: the larger one has the ranks of the job."""
    log = read_one([ring(*range(4)), ring(*range(4)), ring(*range(14))])
    assert log.facts["ranks"] == 14


def test_a_row_behind_a_ring_is_read() -> None:
    row = "     1048576        262144     float     sum      -1    120.00    8.74    8.74      0"
    whole = f"{row}    120.0    8.74    8.74      0"
    log = read_one([ring(1, 0), *HEADER.splitlines(), ring(1, 0) + whole])
    assert [point.size for point in log.points] == [1048576, 1048576]
