"""Writers: the same table as Markdown, CSV, JSON, and for a terminal."""

import csv
import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.analysis.compare import Column, compare
from fabbench.analysis.gate import check
from fabbench.model.formats import FORMATS
from fabbench.model.log import Outcome
from fabbench.model.messages import printable
from fabbench.plan.gates import parse_gate
from fabbench.report import comparison_tables, render_comparison
from fabbench.report.table import Table, to_csv, to_markdown, to_terminal
from tests.support.any_text import CHARACTERS
from tests.support.golden import GOLDEN, assert_golden
from tests.support.logs_by_hand import GB, KB, column, log, rates
from tests.support.nccl_text import EFA, NON_EFA, SIZES

COLUMNS = [
    rates(name, zip(SIZES, values, strict=True))
    for name, values in (("EFA", EFA), ("non-EFA", NON_EFA))
]


@pytest.mark.parametrize("form", [form for form in FORMATS["comparison"] if form != "html"])
def test_a_comparison_is_written_as_recorded(form: str) -> None:
    """The published table, with a gate that holds and one that does not.

    And a table of each of two metrics.
    """
    comparison = compare(COLUMNS)
    verdict = check([parse_gate("busbw@1G>=80GB/s"), parse_gate("busbw@1G>=70GB/s")], comparison)
    text = render_comparison(comparison, form, verdict=verdict)
    text += render_comparison(compare([two_metrics("a", 2e-6), two_metrics("b", 6e-6)]), form)
    # The last digits are those of the machine's own logarithm.
    text = re.sub(r"\d+\.\d{7,}(?:e-?\d+)?", lambda found: f"{float(found[0]):.6g}", text)
    assert_golden(GOLDEN / f"comparison-{form}.txt", text)


def two_metrics(label: str, time: float) -> Column:
    late = log([(KB, time)], metric="latency", labels={}, benchmark="perftest", case="ib_write_lat")
    wide = log([(KB, 1e9)], metric="bandwidth", labels={}, benchmark="perftest", case="ib_write_bw")
    return column(label, late, wide)


def test_three_tables_begin_with_a_summary_at_the_largest_size() -> None:
    kinds = [("float", 2.0), ("half", 3.0), ("double", 4.0)]
    new, old = (
        column(
            name,
            *(
                log([(KB, 1e9), (GB, times * rate * 1e9)], labels={"dtype": kind})
                for kind, rate in kinds
            ),
        )
        for name, times in (("new", 2), ("old", 1))
    )
    summary = comparison_tables.tables_of_comparison(compare([new, old]), terminal=True)[0]
    assert summary.title == "Summary"
    assert summary.rows[1] == ["half busbw", "1 GB", "6 GB/s", "3 GB/s", "2.0 x"]
    few = compare([rates("new", [(GB, 2)]), rates("old", [(GB, 1)])])
    assert comparison_tables.tables_of_comparison(few)[0].title == ""


def test_json_and_csv_are_complete() -> None:
    comparison = compare(COLUMNS)
    made = json.loads(render_comparison(comparison, "json"))
    rows = list(csv.DictReader(io.StringIO(render_comparison(comparison, "csv"))))
    assert len(made["rows"]) == len(rows) == 2 * 29
    assert {*made["rows"][0]} == {*rows[0]} == {*comparison_tables.HEADER}
    assert made["rows"][-2]["ratio"] == float(rows[-2]["ratio"]) == pytest.approx(77.35 / 4.13)


cell_text = st.text(
    alphabet=st.characters(blacklist_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=20
)


@given(st.lists(st.lists(cell_text, min_size=2, max_size=2), min_size=1, max_size=4))
def test_markdown_keeps_every_row_on_one_line_with_its_cells(rows: list[list[str]]) -> None:
    table = Table(header=["a", "b"], rows=rows, align="lr")
    lines = to_markdown(table).split("\n")
    assert len(lines) == len(rows) + 3
    for line in lines[:-1]:
        # A bar ends a cell unless an odd number of backslashes stands before it.
        bars = [m for m in re.finditer(r"(\\*)\|", line) if len(m[1]) % 2 == 0]
        assert len(bars) == 3


@given(st.lists(st.lists(st.text(CHARACTERS, max_size=20), min_size=2, max_size=2), max_size=4))
def test_csv_can_be_read_again(rows: list[list[str]]) -> None:
    text = to_csv(Table(header=["a", "b"], rows=rows, title="left out"))
    made = list(csv.reader(io.StringIO(text, newline="")))
    plain = [
        [printable(cell.replace("\r\n", "\n").replace("\r", "\n")) for cell in row] for row in rows
    ]
    for row, known in zip(made, [["a", "b"], *plain], strict=True):
        assert all(cell in {each, f"'{each}"} for cell, each in zip(row, known, strict=True))


@pytest.mark.parametrize("form", FORMATS["comparison"])
def test_no_format_shows_a_number_that_cannot_be_trusted(form: str) -> None:
    bad = column("efa", log([(GB, 12.5e9)], outcome=Outcome.OFF_FABRIC, reason="It was not efa."))
    text = render_comparison(compare([bad, rates("tcp", [(GB, 2)])]), form)
    assert "off-fabric" in text
    assert "12.5" not in text
    assert "12500000000" not in text


# ---------------------------------------------------------------- terminal


def test_a_note_goes_on_below_its_first_word_where_the_terminal_is_narrow() -> None:
    note = "Conditions: nccl, all_reduce, 4 ranks, 1 host, dtype float."
    lines = to_terminal([Table(header=(), rows=(), notes=[note])], width=30).splitlines()
    assert lines == ["- Conditions: nccl,", "  all_reduce, 4 ranks, 1 host,", "  dtype float."]
