"""Comparisons on a terminal of 80 columns."""

import re
import sys
from collections.abc import Iterable
from dataclasses import replace

import pytest

from fabbench.analysis.compare import Column, compare
from fabbench.analysis.gate import check
from fabbench.cli.terminal import print_comparison, safe_streams
from fabbench.model.log import Point
from fabbench.plan.gates import parse_gate
from fabbench.report import render_comparison
from tests.support.logs_by_hand import ALL_REDUCE, KB, MB, column, log, rates
from tests.support.nccl_text import EFA, NON_EFA, SIZES


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")


def drawn(columns: list[Column], width: int = 80) -> list[str]:
    """Draw a comparison, without its colors."""
    text = render_comparison(compare(columns), "text", color=True, width=width)
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()]


def table_of(lines: list[str]) -> list[str]:
    """Return the rows of the first table."""
    start = next(index for index, line in enumerate(lines) if line.startswith("──")) + 1
    return lines[start : lines.index("", start)]


def timed(label: str, rows: Iterable[tuple[int, float, float]]) -> Column:
    """Make a column of rows: size, time in us, busbw in GB/s."""
    points = [
        Point(size, ALL_REDUCE, ("time", "busbw"), (time * 1e-6, rate * 1e9))
        for size, time, rate in rows
    ]
    return column(label, replace(log([]), points=points))


def test_the_published_table_has_its_headline_first_and_its_points_below_each_other() -> None:
    lines = drawn(
        [rates("EFA", zip(SIZES, EFA, strict=True)), rates("TCP", zip(SIZES, NON_EFA, strict=True))]
    )
    assert lines[:2] == [
        "all_reduce, 2 × 8 GPUs: EFA 77.35 GB/s vs TCP 4.13 GB/s at 2 GB; plateau 18.3 x",
        "(13.9 to 24.2); faster from 1 MB up (measured once)",
    ]
    rows = table_of(lines)
    assert rows[-1].split() == ["2", "GB", "77.35", "4.13", "18.7", "x"]
    assert {tuple(match.start() for match in re.finditer(r"\.", row)) for row in rows[2:]} == {
        (12, 18, 27)
    }


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_table_fits_and_cuts_no_number(width: int, count: int) -> None:
    columns = [
        rates(f"configuration-{each}", zip(SIZES, EFA, strict=True)) for each in range(count)
    ]
    lines = drawn(columns, width)
    assert max(map(len, lines)) <= width
    figures = [
        word for line in lines if line.lstrip().startswith("2 GB  ") for word in line.split()[2:]
    ]
    assert figures == ["77.35"] * count + ["0.0", "%"] * (count - 1)


def test_small_sizes_show_their_time_where_the_rate_is_0() -> None:
    rows = [(64, 9.5, 0.001), (128, 10.0, 0.02), (MB, 100.0, 2.0)]
    slower = [(64, 19.25, 0.001), (128, 20.0, 0.001), (MB, 200.0, 1.0)]
    assert [row.split() for row in table_of(drawn([timed("a", rows), timed("b", slower)]))] == [
        ["64", "B", "9.50", "us", "19.25", "us", "-"],
        ["128", "B", "10.00", "us", "20.00", "us", "-"],
        ["1", "MB", "2.00", "1.00", "2.0", "x"],
    ]
    columns = [timed("a", [(8, 9, 0.001), *rows]), timed("b", [(8, 20, 0.001), *slower])]
    assert table_of(drawn(columns))[0].split() == [
        "≤",
        "64",
        "B",
        "9.00–9.50",
        "us",
        "19.25–20.00",
        "us",
        "-",
    ]
    text = render_comparison(compare(columns))
    assert "| ≤ 64 B       |   9.00–9.50 us | 19.25–20.00 us |        - |" in text


@pytest.mark.parametrize("plain", [False, True])
def test_a_terminal_gets_verdicts_in_color_and_the_headline_last(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, plain: bool
) -> None:
    for name, value in (("COLUMNS", "80"), ("LINES", "24"), ("NO_COLOR", "1" if plain else "")):
        monkeypatch.setenv(name, value)
    comparison = compare(
        [rates("EFA", zip(SIZES, EFA, strict=True)), rates("TCP", zip(SIZES, NON_EFA, strict=True))]
    )
    verdict = check([parse_gate("busbw@1G>=80GB/s"), parse_gate("busbw@1G>=70GB/s")], comparison)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with safe_streams():
        print_comparison(comparison, "text", verdict=verdict)
    lines = capsys.readouterr().out.splitlines()
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines)).splitlines()
    assert text[0] == text[-2] != text[-1]  # a headline of two lines
    assert max(map(len, text)) <= 80
    colors = {
        match[2]: match[1]
        for line in lines
        for match in re.finditer(r"\x1b\[(3\d)m(\w+)\x1b\[39m", line)
    }
    assert colors == ({} if plain else {"faster": "32", "failed": "31", "passed": "32"})
    assert (lines == text) == plain


def test_a_pipe_gets_the_same_table_without_escapes_or_folding() -> None:
    text = render_comparison(compare([rates("a" * 90, [(KB, 2)]), rates("b", [(KB, 1)])]), "text")
    assert "\x1b" not in text
    assert "\n1 KB  " in text
