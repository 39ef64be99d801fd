"""What of a line patterns see, and that logs with endless lines are read in no time."""

import time

import pytest

from fabbench.model.patterns import LONGEST_LINE, bounded
from tests.support.paths import DATA
from tests.support.read_logs import read

TABLE = (DATA / "corpus" / "osu" / "a-size-of-many-digits-is-damaged.txt").read_text()
METRICS = '{"error":{"value":[' + ",".join(f"{53 + n / 73:.4f}" for n in range(200_000)) + "]}}\n"
LONG = {
    "JSON of an inference benchmark": METRICS,
    "digits": "1" * 1_000_000 + " !\n",
    "a row and blanks": "1 " + " " * 1_000_000 + "2 !\n",
    "a prefix and digits": "[1] [rank 1] " + "1:" * 500_000 + "\n",
    "words that fail": "failed: error " * 100_000 + "\n",
}


def test_a_line_of_the_field_is_whole() -> None:
    line = "x" * LONGEST_LINE
    assert bounded(line) is line


def test_a_longer_line_keeps_its_beginning_and_its_end() -> None:
    line = bounded("head" + "x" * 100_000 + "exit status 1")
    assert len(line) == LONGEST_LINE
    assert line.startswith("headx")
    assert line.endswith("xexit status 1")


@pytest.mark.parametrize("name", LONG)
def test_a_long_line_below_a_table_costs_nothing(name: str) -> None:
    started = time.thread_time()
    (log,) = read(TABLE + LONG[name] + "2 1.24\n")
    assert time.thread_time() - started < 2
    assert log.points
