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
from fabbench.cli.options import COMPARED
from fabbench.model.log import Outcome
from fabbench.model.messages import printable
from fabbench.plan.gates import parse_gate
from fabbench.report import FORMATS, comparison_tables, render_comparison
from fabbench.report.table import Table, to_csv, to_markdown, to_terminal
from tests.support.logs_by_hand import GB, KB, column, log, rates
from tests.support.nccl_text import EFA, NON_EFA, PUBLISHED, SIZES

COLUMNS = [rates(name, zip(SIZES, values, strict=True)) for name, values in (("EFA", EFA), ("non-EFA", NON_EFA))]


def test_the_command_line_names_the_formats_that_there_are() -> None:
    assert COMPARED == FORMATS


def test_markdown_has_the_published_layout() -> None:
    first, blank, *lines = render_comparison(compare(COLUMNS)).splitlines()
    assert first == (
        "all_reduce, 2 × 8 GPUs: EFA 77.35 GB/s vs non-EFA 4.13 GB/s at 2 GB (18.7x); "
        "faster from 1 MB up (measured once)"
    )
    assert blank == ""
    assert lines[0] == "| Message Size | busbw EFA (GB/s) | busbw non-EFA (GB/s) | Speed-up |"
    assert lines[1] == "|--------------|-----------------:|---------------------:|---------:|"
    assert lines[30] == "| 2 GB         |            77.35 |                 4.13 |   18.7 x |"
    assert [re.sub(r" *\| *", "|", line).strip("|") for line in lines[2:31]] == PUBLISHED
    assert lines[31] == ""
    assert len({len(line) for line in lines[:31]}) == 1
    assert "### What stands out" in lines


def test_a_bar_in_a_label_stays_in_its_cell() -> None:
    text = render_comparison(compare([rates("a|b", [(8, 2)]), rates("c\\|d", [(8, 1)])]))
    header = text.splitlines()[2]
    assert "busbw a\\|b (GB/s)" in header
    assert "busbw c\\\\&#124;d (GB/s)" in header
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", header)) == 5


cell_text = st.text(alphabet=st.characters(blacklist_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=20)


@given(st.lists(st.lists(cell_text, min_size=2, max_size=2), min_size=1, max_size=4))
def test_markdown_keeps_every_row_on_one_line_with_its_cells(rows: list[list[str]]) -> None:
    table = Table(header=["a", "b"], rows=rows, align="lr")
    lines = to_markdown(table).split("\n")
    assert len(lines) == len(rows) + 3
    for line in lines[:-1]:
        # A bar ends a cell unless an odd number of backslashes stands before it.
        bars = [m for m in re.finditer(r"(\\*)\|", line) if len(m[1]) % 2 == 0]
        assert len(bars) == 3


@given(st.lists(st.lists(st.text(max_size=20), min_size=2, max_size=2), max_size=4))
def test_csv_can_be_read_again(rows: list[list[str]]) -> None:
    text = to_csv(Table(header=["a", "b"], rows=rows, title="left out"), raw=True)
    plain = [[printable(cell.replace("\r\n", "\n").replace("\r", "\n")) for cell in row] for row in rows]
    assert list(csv.reader(io.StringIO(text, newline=""))) == [["a", "b"], *plain]


def test_csv_has_one_row_for_each_size_and_column_in_base_units() -> None:
    rows = list(csv.DictReader(io.StringIO(render_comparison(compare(COLUMNS), "csv"))))
    assert len(rows) == 2 * 29
    assert tuple(rows[0]) == comparison_tables.HEADER
    last, base = rows[-2:]
    assert (last["size"], last["column"], last["metric"], last["unit"]) == ("2147483648", "EFA", "busbw", "B/s")
    assert float(last["value"]) == pytest.approx(77.35e9)
    assert float(last["ratio"]) == pytest.approx(77.35 / 4.13)
    assert (last["n"], last["ranks"], last["hosts"], last["dtype"]) == ("1", "16", "2", "float")
    assert base["ratio"] == ""
    assert rows[0]["ratio"] == ""


def test_json_says_everything() -> None:
    comparison = compare(COLUMNS)
    verdict = check([parse_gate("busbw@1G>=80GB/s"), parse_gate("busbw@1G>=70GB/s")], comparison)
    made = json.loads(render_comparison(comparison, "json", verdict=verdict))
    assert (made["format"], made["metric"], made["unit"], made["base"]) == (1, "busbw", "B/s", "non-EFA")
    assert made["placement"] == "out-of-place"
    assert made["status"] == 1
    assert made["breaches"] == list(verdict.breaches)
    failed, passed = made["gates"]
    assert failed == {
        "gate": "busbw@1G>=80GB/s", "state": "failed", "breaches": made["breaches"], "notes": []
    }  # fmt: skip
    assert passed == {"gate": "busbw@1G>=70GB/s", "state": "passed", "breaches": [], "notes": []}
    assert [column_["label"] for column_ in made["columns"]] == ["EFA", "non-EFA"]
    assert made["columns"][0]["facts"]["ranks"] == 16
    assert len(made["rows"]) == 2 * 29
    assert set(made["rows"][0]) == set(comparison_tables.HEADER)
    assert made["rows"][-2]["ratio"] == pytest.approx(77.35 / 4.13)
    assert made["rows"][-2]["ranks"] == 16
    assert [remark["trend"] for remark in made["stands_out"]] == ["same", "undecided", "ahead", "ahead"]
    assert made["stands_out"][0]["from"] == 8


def test_json_of_several_metrics_says_each_where_it_belongs() -> None:
    def pair(label: str, time: float) -> Column:
        late = log([(KB, time)], metric="latency", labels={}, benchmark="perftest", case="ib_write_lat")
        wide = log([(KB, 1e9)], metric="bandwidth", labels={}, benchmark="perftest", case="ib_write_bw")
        return column(label, late, wide)

    made = [pair("a", 2e-6), pair("b", 6e-6)]
    document = json.loads(render_comparison(compare(made), "json"))
    assert [document[name] for name in ("metric", "unit", "lower_is_better")] == [None, None, None]
    assert [(row["case"], row["metric"], row["unit"]) for row in document["rows"]][::2] == [
        ("ib_write_lat", "latency", "s"),
        ("ib_write_bw", "bandwidth", "B/s"),
    ]
    assert [(each["metric"], each["trend"]) for each in document["stands_out"]] == [
        ("latency", "ahead"),
        ("bandwidth", "undecided"),
    ]
    assert "Best figures: a 2 us at 1 KB against b 6 us at 1 KB." in document["stands_out"][0]["text"]


@pytest.mark.parametrize("form", FORMATS)
def test_no_format_shows_a_number_that_cannot_be_trusted(form: str) -> None:
    bad = column("efa", log([(GB, 12.5e9)], outcome=Outcome.OFF_FABRIC, reason="It was not efa."))
    text = render_comparison(compare([bad, rates("tcp", [(GB, 2)])]), form)
    assert "off-fabric" in text
    assert "12.5" not in text
    assert "12500000000" not in text


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_ends_its_last_line(form: str) -> None:
    text = render_comparison(compare(COLUMNS), form)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


# ---------------------------------------------------------------- terminal

TABLE = Table(title="A [bold]title[/]", header=["name", "n"], rows=[["[red]x", "1"]], align="lr", notes=["So."])


def test_plain_text_without_a_terminal() -> None:
    text = to_terminal([TABLE])
    assert "\x1b" not in text
    assert text.splitlines() == [
        "A [bold]title[/]",
        "+--------+---+",
        "| name   | n |",
        "+--------+---+",
        "| [red]x | 1 |",
        "+--------+---+",
        "- So.",
    ]


def test_colour_for_a_terminal_unless_it_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[1m" in to_terminal([TABLE], color=True, width=60)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3\dm", to_terminal([TABLE], color=True, width=60))


def test_a_note_goes_on_below_its_first_word_where_the_terminal_is_narrow() -> None:
    note = "Every column: nccl, all_reduce, 4 ranks, 1 host, dtype float."
    lines = to_terminal([Table(header=(), rows=(), notes=[note])], width=30).splitlines()
    assert lines == ["- Every column: nccl,", "  all_reduce, 4 ranks, 1 host,", "  dtype float."]
