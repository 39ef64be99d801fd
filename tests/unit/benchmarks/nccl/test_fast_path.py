"""The fast path for rows reads what the slow one does."""

from pathlib import Path

import pytest

from fabbench.logs.parser import LogParser
from tests.support.corpus import CORPUS

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
