"""What of a line patterns see, and that logs with endless lines are read in no time."""

import pytest

from fabbench.model.patterns import LONGEST_LINE, bounded, with_usual_numbers
from tests.support.growth import grows_too_fast
from tests.support.paths import DATA
from tests.support.read_logs import read

TABLE = (DATA / "corpus" / "osu" / "a-size-of-many-digits-is-damaged.txt").read_text()
PUMPS = {
    "JSON of an inference benchmark": '53.0137,"value":[',
    "digits": "1",
    "blanks": " ",
    "words": "a ",
    "columns": "1.5 ",
    "cells": "| 1 ",
    "prefixes": "[1] [rank 1] 1:",
    "tags": "[1,0]<stdout>: 1",
    "times": "2024-01-01T00:00:00Z ",
    "colors": "\x1b[1m",
    "progress": "1\r",
    "debug text": "h:1:1 [0] NCCL INFO ",
    "words that fail": "failed: error ",
    "exceptions": "torch.distributed.",
    "calls": "call to a",
    "Ray": "(pid=1",
}


def test_a_line_of_the_field_is_whole() -> None:
    line = "x" * LONGEST_LINE
    assert bounded(line) is line


def test_a_longer_line_keeps_its_beginning_and_its_end() -> None:
    line = bounded("head" + "x" * 100_000 + "exit status 1")
    assert len(line) == LONGEST_LINE
    assert line.startswith("headx")
    assert line.endswith("xexit status 1")


def test_a_number_that_no_program_prints_is_none() -> None:
    usual = f"{'9' * 24} 0x{'f' * 40} 1.{'0' * 24} é"
    assert with_usual_numbers(usual) == usual
    assert with_usual_numbers(f"a{'9' * 25} and {'10' * 300}.5") == "a… and ….5"
    arabic = chr(0x0661)  # a digit that a pattern takes for one, and `int` reads, too
    assert with_usual_numbers(f"{arabic * 25} 1{arabic}.{arabic} KB") == "… 1….… KB"


@pytest.mark.parametrize("name", PUMPS)
def test_a_long_line_below_a_table_takes_time_in_proportion(name: str) -> None:
    pump = PUMPS[name]

    def line(length: int) -> str:
        return f"1 {pump * (length // len(pump))} !"

    def look(text: str) -> None:
        (log,) = read(f"{TABLE}{text}\n2 1.24\n")
        assert log.points

    assert not grows_too_fast(look, line, 16 * LONGEST_LINE)
