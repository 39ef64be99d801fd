"""Readers of tables, on a made-up program: lines in, executions out."""

import re
from collections.abc import Sequence
from dataclasses import replace
from string import ascii_letters
from typing import Any

import pytest

from fabbench.benchmarks import Reading, tables
from fabbench.benchmarks.commands import read_command_line
from fabbench.benchmarks.consistency import is_ordered
from fabbench.benchmarks.events import Note, Setting
from fabbench.benchmarks.executions import Assembler, Execution, Table, join_processes
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.tables import Column, Row
from fabbench.model.log import (
    Damaged,
    Line,
    Point,
    Record,
    Stream,
    begin_marker,
    end_marker,
    read_marker,
)
from tests.support.toy_tables import KNOWN, stated, toy


class Reader:
    """What a table makes of lines: the readings of each line, and all of them."""

    def __init__(self, table: Any = None) -> None:
        self.reader = Assembler(table or toy())
        self.readings: list[Reading] = []
        self.number = 0

    def line(self, text: str, stream: Stream | None = None) -> Sequence[Reading] | None:
        """Return the readings of one line; None if it is not one of the program."""
        self.number += 1
        marker = read_marker(text)
        if marker is not None:
            found: Sequence[Reading] | None = self.reader.mark(marker)
        else:
            found = self.reader.feed(Line(self.number, text, stream or Stream()))
        self.readings += found or ()
        return found

    def close(self) -> list[Record]:
        """Return every execution so far."""
        self.readings += self.reader.close()
        return [each for each in self.readings if isinstance(each, Record)]


def executions(*lines: str, table: Any = None) -> list[Record]:
    """Return the executions in a text."""
    reader = Reader(table)
    for line in lines:
        reader.line(line)
    return reader.close()


def execution(*lines: str, table: Any = None) -> Record:
    """Return the only execution in a text."""
    (record,) = executions(*lines, table=table)
    return record


def sizes(record: Record) -> list[int]:
    return [point.size for point in record.points]


def rows(*sizes: int) -> list[str]:
    """Print rows of 100 MB/s each."""
    return [f"{size:>10}  {size / 100:>10.2f}  {100:>10.2f}" for size in sizes]


TITLE, NAMES, DONE = "# toy copy", "size time(us) rate(mb/s)", "# done"
START = (TITLE, NAMES)
OCTAVES = [1 << power for power in range(10, 22)]


# ---------------------------------------------------------------- one table


def test_a_whole_table() -> None:
    record = execution(*START, *rows(1024, 2048), DONE)
    assert (record.benchmark, record.case, record.finished) == ("toy", "copy", True)
    assert record.points == [
        Point(1024, {}, ("time", "bandwidth"), (10.24e-6, 100e6)),
        Point(2048, {}, ("time", "bandwidth"), (20.48e-6, 100e6)),
    ]
    assert (record.damaged, record.failures, record.findings) == ([], [], [])
    assert (record.incomplete, record.wrong, record.facts) == ("", 0, {})


def test_each_row_is_returned_when_it_comes() -> None:
    reader = Reader()
    assert [reader.line(each) for each in START] == [(), ()]
    found = [reader.line(each) for each in rows(1024, 2048)]
    assert [[each.size for each in row or () if isinstance(each, Point)] for row in found] == [
        [1024],
        [2048],
    ]
    (record,) = reader.close()
    assert reader.readings == [*record.points, record]
    assert reader.reader.close() == ()


def test_a_table_that_is_settled_returns_its_rows_at_the_end() -> None:
    def settle(found: Any) -> Any:
        return found.reread_rows(lambda row: row if row.size != 2048 else None)

    reader = Reader(toy(settle=settle))
    lines = (*START, *rows(1024, 2048, 4096))
    assert [reader.line(each) for each in lines] == [()] * 5
    (record,) = reader.close()
    assert sizes(record) == [1024, 4096]
    assert reader.readings == [*record.points, record]
    assert [each.line for each in record.damaged] == [4]


def test_rows_without_a_table_are_not_read() -> None:
    reader = Reader()
    assert [reader.line(each) for each in (*rows(1024), TITLE, *rows(1024))] == [None, (), None]
    assert sizes(*reader.close()) == []


@pytest.mark.parametrize(
    ("last", "finished"), [(DONE, True), ("# maybe done", None), ("# anything", False)]
)
def test_the_closing_line(last: str, finished: bool | None) -> None:
    assert execution(*START, *rows(1024), last).finished is finished


def test_a_program_without_a_closing_line() -> None:
    assert execution(*START, table=toy(finished=None)).finished is None


def test_the_case_is_the_tables_unless_a_line_names_it() -> None:
    table = toy(case="usual")
    assert execution(NAMES, "# failed: x", table=table).case == "usual"
    assert execution(TITLE, table=table).case == "copy"


def test_a_line_of_another_program_is_none_of_its() -> None:
    reader = Reader()
    assert reader.line("something else") is None
    assert reader.line("# a comment") is None
    reader.line(TITLE)
    assert reader.line("something else") is None
    assert reader.line("# a comment") == ()


def test_a_line_of_a_program_of_more_columns_is_none_of_its() -> None:
    reader = Reader()
    for each in (*START, *rows(1024)):
        reader.line(each)
    assert reader.line("node-1 is up since 12 days") is None
    assert not reader.close()[0].damaged


# ---------------------------------------------------------------- columns


def test_the_first_layout_that_fits_a_row_is_taken() -> None:
    record = execution(TITLE, "size time(us) note", "8  1.50  3", "16  1.75", DONE)
    assert [point.values for point in record.points] == [(1.5e-6,), (1.75e-6,)]


def test_statistics_are_points_of_their_own() -> None:
    record = execution(TITLE, "size time(us) min(us) max(us)", "8 2.00 1.00 3.00")
    assert [(point.labels, point.values) for point in record.points] == [
        ({}, (2e-6,)),
        ({"stat": "min"}, (1e-6,)),
        ({"stat": "max"}, (3e-6,)),
    ]


def test_a_statistic_may_be_another_label() -> None:
    layout = (tables.SIZE, Column("bandwidth", 1e9, "rank=0->1"))
    named = toy(says=lambda text, _: stated(text, layout))
    assert execution("begin", "8 1.00", table=named).points == [
        Point(8, {"rank": "0->1"}, ("bandwidth",), (1e9,))
    ]


def test_a_label_may_be_a_column() -> None:
    record = execution(TITLE, "type size time(us) x", "half 8 1.00 in", "float 8 1.00 out")
    assert [point.labels for point in record.points] == [
        {"dtype": "half", "x": "in"},
        {"dtype": "float", "x": "out"},
    ]


@pytest.mark.parametrize(
    ("column", "cell", "wrong"),
    [
        ("check", "Pass", 0),
        ("check", "Fail", 1),
        ("errors", "0.00", 0),
        ("errors", "0.01", 1),
    ],
)
def test_a_column_of_checks(column: str, cell: str, wrong: int) -> None:
    assert execution(TITLE, f"size time(us) {column}", f"8 1.00 {cell}").wrong == wrong


def test_failed_checks_are_counted() -> None:
    lines = ("8 1.00 Fail", "16 1.00 Pass", "32 1.00 Fail", "# wrong 3")
    assert execution(TITLE, "size time(us) check", *lines).wrong == 5


@pytest.mark.parametrize(("cell", "size"), [("512B", 512), ("2KB", 2048)])
def test_a_size_may_have_a_unit(cell: str, size: int) -> None:
    assert sizes(execution(TITLE, "volume time(us)", f"{cell} 1.00")) == [size]


def test_rows_without_a_size_have_that_of_a_line() -> None:
    assert sizes(execution(TITLE, "# size 4096", "time(us) x", "1.00 a")) == [4096]
    assert sizes(execution(TITLE, "time(us) x", "1.00 a")) == [0]


@pytest.mark.parametrize("letter", ascii_letters)
def test_a_unit_may_be_of_any_letters(letter: str) -> None:
    column = Column("bandwidth", units=((letter, 2.0), ("/", 1.0)))
    assert column.read(f"1.5{letter}").value == 3.0
    assert re.fullmatch(column.pattern, f"1.5{letter}")
    assert not re.fullmatch(column.pattern, "1.5")


def test_a_figure_is_read_as_exactly_as_it_is_printed() -> None:
    assert Column("bandwidth", units=(("GB", 1e9),)).read("1.1GB").value == 1.1e9
    assert Column("time", exponent=-6).read("1.1").value == 1.1e-6
    whole = Column("time", 2.0).read("1.5")
    assert (whole.low, whole.value, whole.high) == pytest.approx((2.9, 3.0, 3.1))
    # Trailing zeros are left out: 1.5 is 1.500, and 2 is a whole number.
    three = Column("time", decimals=3)
    assert three.read("1.5").high == pytest.approx(1.5005, rel=1e-8)
    assert three.read("2").high == pytest.approx(2.5, rel=1e-5)


def test_cells_may_stand_without_a_blank_between() -> None:
    layout = (tables.SIZE, Column(label="x", cell="[a-z]+", joined=True))
    table = toy(says=lambda text, _: stated(text, layout))
    assert execution("begin", "8abc", table=table).damaged == []
    spread = (tables.SIZE, Column(label="x", cell="[a-z]+"))
    table = toy(says=lambda text, _: stated(text, spread))
    reader = Reader(table)
    assert [reader.line(each) for each in ("begin", "8abc")] == [(), None]


def test_columns_are_known_by_their_names() -> None:
    time, least = KNOWN[r"time\(us\)"], Column("time", 1e-6, "min")
    assert tables.read_columns(["Size", "TIME (us)"], KNOWN) == (tables.SIZE, time)
    assert tables.read_columns(["min(us)"], KNOWN) == (least,)
    # Where blanks are collapsed, one text may be the names of several.
    assert tables.read_columns(["Size Time (us) x"], KNOWN) == (tables.SIZE, time, KNOWN["x"])
    assert tables.read_columns(["size of"], KNOWN) == (tables.UNKNOWN,)
    assert tables.read_columns(["of size"], KNOWN) == (tables.UNKNOWN,)
    assert tables.read_columns(["", "x"], KNOWN) == (tables.UNKNOWN, KNOWN["x"])
    assert tables.read_columns([" ".join(["x"] * 39)], KNOWN) == (KNOWN["x"],) * 39
    assert tables.read_columns([" ".join(["x"] * 40)], KNOWN) == (tables.UNKNOWN,)


def test_a_column_that_is_not_read_is_found() -> None:
    record = execution(TITLE, "size time(us) speed", "8 1.00 fast")
    assert [each.code for each in record.findings] == ["unknown-column"]
    assert record.findings[0].line == "size time(us) speed"
    assert len(record.points) == 1


def test_a_row_is_asked_for_its_cells() -> None:
    seen: list[Row] = []

    def note(row: Row) -> bool:
        seen.append(row)
        return True

    lines = (TITLE, "# title first", "size time(us) min(us) note", "8 2.00 1.00 7")
    execution(*lines, table=toy(fits=note))
    (row,) = seen
    assert (row.title, row.table, row.cell("note"), row.cell("other")) == ("first", 1, "7", "")
    figure, least = row.read("note"), row.figures["min"]["time"]
    assert figure is not None
    assert (figure.value, least.value, row.read("other")) == (7, 1e-6, None)
    assert row.main("bandwidth") is None
    assert row.main("time") == row.figures[""]["time"]


# ---------------------------------------------------------------- labels, titles, notes


def test_labels_hold_for_the_rows_below_until_they_are_removed() -> None:
    lines = ("8 1.00", "# label a=1", "16 1.00", "# label b=2", "32 1.00", "# label a=", "64 1.00")
    record = execution(TITLE, "size time(us)", *lines)
    assert [point.labels for point in record.points] == [
        {},
        {"a": "1"},
        {"a": "1", "b": "2"},
        {"b": "2"},
    ]


def test_notes_know_how_many_rows_stand_above_them() -> None:
    found: list[Note] = []

    def settle(read: Any) -> Any:
        found.extend(read.notes)
        return read.rows

    lines = ("# keep first", NAMES, *rows(1024, 2048), "# keep last")
    execution(TITLE, *lines, table=toy(settle=settle))
    assert [(each.kind, each.rows_above) for each in found] == [("first", 0), ("last", 2)]


def test_a_row_may_have_a_name() -> None:
    def cells(text: str) -> tables.Cells:
        name, bar, rest = text.partition("|")
        return tables.Cells(rest, name.strip()) if bar else tables.Cells(text)

    lines = (TITLE, "size time(us)", "put | 8 1.00", "16 1.00")
    record = execution(*lines, table=toy(cells=cells))
    assert [point.labels for point in record.points] == [{"operation": "put"}, {}]


def test_a_row_of_progress_does_not_count() -> None:
    def cells(text: str) -> tables.Cells:
        if text.startswith("..."):
            return tables.Cells(text.removeprefix("..."), final=False)
        return tables.Cells(text)

    lines = (*START, "..." + rows(512)[0], "...      512   5", *rows(1024))
    record = execution(*lines, table=toy(cells=cells))
    assert (sizes(record), record.damaged) == ([1024], [])
    seen: list[int] = []

    def settle(execution: Execution) -> Sequence[Row]:
        seen.extend(row.size for row in execution.progress)
        return execution.rows

    execution(*START, "..." + rows(512)[0], *rows(1024), table=toy(cells=cells, settle=settle))
    assert seen == [512]


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize(
    "row",
    [
        "      2048       20.48",  # cut
        "      2048       20.48      100",  # without its decimals
        "      2048       20.48      100.00    4",
    ],
)
def test_what_is_left_of_a_row_is_damaged(row: str) -> None:
    above, below = rows(*OCTAVES[:3]), rows(*OCTAVES[4:8])
    record = execution(*START, *above, row, *below)
    assert [(each.line, each.text) for each in record.damaged] == [(6, row)]
    assert sizes(record) == [*OCTAVES[:3], *OCTAVES[4:8]]


def test_a_size_out_of_order_is_damaged_where_sizes_ascend() -> None:
    lines = (TITLE, "size x time(us)", "1024 a 1.00", "20 a 1.00", "4096 a 1.00", "8192 a 1.00")
    record = execution(*lines)
    assert [each.line for each in record.damaged] == [4]
    assert sizes(record) == [1024, 4096, 8192]
    any_order = execution(*lines, table=toy(ascending=False))
    assert (any_order.damaged, sizes(any_order)) == ([], [1024, 20, 4096, 8192])


def test_several_damaged_rows_leave_all_others() -> None:
    lines = [*rows(1024), *rows(2), *rows(2048, 4096), *rows(3), *rows(8192)]
    record = execution(*START, *lines, "      512   5")
    assert sizes(record) == [1024, 2048, 4096, 8192]
    assert [each.line for each in record.damaged] == [4, 7, 9]


def test_the_tables_of_an_execution_are_ordered_each() -> None:
    record = execution(*START, *rows(1024, 2048), NAMES, *rows(512, 7, 1024, 2048))
    assert [each.line for each in record.damaged] == [7]
    assert sizes(record) == [1024, 2048, 512, 1024, 2048]


def test_rows_without_sizes_are_not_held_to_columns() -> None:
    lines = ("time(us) x", "1.00 abc", "111111.00        b", "1.50 cc", "2.00 d", "3.00 e")
    assert execution(TITLE, *lines).damaged == []
    sized = execution(TITLE, "# size 4", *lines, table=toy(ascending=False))
    assert [each.line for each in sized.damaged] == [5]


def test_a_row_that_contradicts_itself_is_damaged() -> None:
    wrong = "      2048       20.48      200.00"
    record = execution(*START, *rows(1024), wrong, *rows(4096), wrong)
    assert [each.line for each in record.damaged] == [4, 6]
    assert sizes(record) == [1024, 4096]
    (finding,) = record.findings
    assert finding.code == "row-arithmetic"
    assert wrong.strip() in finding.meaning


# ---------------------------------------------------------------- rows in two halves


def halves() -> Any:
    """Return the table of a program that prints rows in two lines."""
    return toy(begins_row=lambda text: text.startswith("half "))


HALF = (TITLE, "x size time(us)", "half 8")


def test_the_other_half_of_a_row_may_stand_below_other_lines() -> None:
    record = execution(*HALF, "# something", "1.00", table=halves())
    assert (sizes(record), record.damaged) == ([8], [])
    record = execution(*HALF, "1.00", "half 16", "2.00", table=halves())
    assert (sizes(record), record.damaged) == ([8, 16], [])


def test_the_other_half_is_joined_once() -> None:
    record = execution(*HALF, "1.00", "2.00", table=halves())
    assert [point.values for point in record.points] == [(1e-6,)]


def test_half_a_row_is_damaged() -> None:
    record = execution(*HALF, "half 16", "1.00", table=halves())
    assert (sizes(record), [each.line for each in record.damaged]) == ([16], [3])
    assert [each.line for each in execution(*HALF, table=halves()).damaged] == [3]


def test_a_whole_row_below_half_of_one() -> None:
    record = execution(*HALF, "whole 16 1.00", table=halves())
    assert (sizes(record), [each.line for each in record.damaged]) == ([16], [3])


# ---------------------------------------------------------------- what is missing


FIRST = rows(*OCTAVES[:4], *OCTAVES[5:])
LATER = rows(*OCTAVES[:7], *OCTAVES[8:])


@pytest.mark.parametrize(
    ("tables", "gap"),
    [
        ((rows(*OCTAVES), rows(*OCTAVES)), ""),
        ((FIRST, rows(*OCTAVES)), "8 KB to 32 KB"),
        ((rows(*OCTAVES), LATER), "64 KB to 256 KB"),
        ((FIRST, LATER), "8 KB to 32 KB"),
        ((LATER, FIRST), "64 KB to 256 KB"),
    ],
    ids=["none", "first", "last", "both", "both-turned"],
)
def test_the_first_gap_in_the_sizes_of_any_table_is_told(
    tables: tuple[list[str], list[str]], gap: str
) -> None:
    first, last = tables
    incomplete = execution(*START, *first, NAMES, *last, DONE).incomplete
    assert (gap in incomplete, bool(incomplete)) == (True, bool(gap))


def test_a_size_twice_in_one_table_is_a_gap_where_sizes_ascend() -> None:
    lines = (*START, *rows(1024, 2048, 2048, 4096))
    assert execution(*lines).incomplete
    assert not execution(*lines, table=toy(ascending=False)).incomplete


def test_what_is_damaged_is_no_gap_of_its_own() -> None:
    lines = rows(*OCTAVES[:5], 7, *OCTAVES[5:])
    record = execution(*START, *lines)
    assert (len(record.damaged), record.incomplete) == (1, "")


@pytest.mark.parametrize(
    ("end", "missing"), [("4096", True), ("2048", False), ("1024", False), ("0", False)]
)
def test_a_table_ends_where_its_command_line_ends(end: str, missing: bool) -> None:
    record = execution(f"$ toy end={end}", *START, *rows(1024, 2048))
    assert bool(record.incomplete) is missing
    assert ("up to 4 KB" in record.incomplete) is missing


@pytest.mark.parametrize(("end", "shown"), [("4096", False), ("2048", True), ("0", False)])
def test_the_end_is_shown_by_a_row_of_the_last_size(end: str, shown: bool) -> None:
    assert execution(f"$ toy end={end}", *START, *rows(1024, 2048)).is_at_end is shown


def test_no_size_is_the_last_one_of_a_program_whose_usual_end_is_not_known() -> None:
    assert not execution(*START, *rows(1)).is_at_end


def test_a_table_without_rows_does_not_end_early() -> None:
    assert execution("$ toy end=4096", *START).incomplete == ""
    lines = ("$ toy end=4096", TITLE, "time(us) x", "1.00 a")
    assert execution(*lines).incomplete == ""


def test_a_settled_table_says_by_itself_what_is_missing() -> None:
    settled = toy(settle=lambda found: found.rows)
    assert execution("$ toy end=4096", *START, *rows(1024), table=settled).incomplete == ""


def test_a_row_whose_bus_bandwidth_has_another_ratio_than_the_others_is_damaged() -> None:
    layout = (tables.SIZE, Column("algbw", 1e9), Column("busbw", 1e9))
    ratios = ["1024 10.00 17.50", "2048 20.00 35.00", "4096 40.00 40.00", "8192 80.00 140.00"]
    table = toy(says=lambda text, _: stated(text, layout))
    record = execution("begin", *ratios, table=table)
    assert (sizes(record), [row.line for row in record.damaged]) == ([1024, 2048, 8192], [4])
    settled = replace(table, settle=lambda found: found.rows)  # it has a formula of its own
    assert execution("begin", *ratios, table=settled).damaged == []


# ---------------------------------------------------------------- several executions


def test_points_of_two_processes_stand_in_the_order_of_their_lines() -> None:
    one, other = Reader(), Reader()
    for process in (one, other):
        process.line(TITLE)
        process.line(NAMES)
    for number, (process, size) in enumerate([(other, 1024), (one, 4096), (other, 2048)]):
        process.number = 10 + number
        (row,) = rows(size)
        process.line(row)
    opened = [one.reader.execution, other.reader.execution]
    record = Record(benchmark="toy", damaged=[Damaged(30, "late"), Damaged(2, "early")])
    join_processes(record, [each for each in opened if each is not None])
    assert sizes(record) == [1024, 4096, 2048]
    assert [row.line for row in record.damaged] == [2, 30]
    assert record.findings == []


def test_a_size_of_which_no_process_has_a_figure_is_found() -> None:
    reader = Reader(toy(points=lambda row: [Point(row.size, {}, (), ())]))
    for line in (*START, *rows(1024)):
        reader.line(line)
    assert reader.reader.execution is not None
    record = Record(benchmark="toy")
    join_processes(record, [reader.reader.execution])
    assert record.findings == [finding("not-a-number", sizes="1 KB")]


def test_rows_of_several_groups_below_one_header_are_of_several_tables() -> None:
    reader = Reader()
    for line in (*START, *rows(1024)):
        reader.line(line)
    for line in rows(2048):
        reader.line(line, Stream("worker1"))
    (record,) = reader.close()
    assert (sizes(record), [each.code for each in record.findings]) == ([], ["mixed-tables"])


def test_a_title_begins_an_execution() -> None:
    first, second = executions(*START, *rows(1024), "# toy read", NAMES, *rows(2048))
    assert (first.case, sizes(first)) == ("copy", [1024])
    assert (second.case, sizes(second)) == ("read", [2048])


def test_a_statement_that_is_a_row_as_well() -> None:
    reader = Reader()
    (first,) = reader.line("# best copy 1.50") or ()
    assert isinstance(first, Point)
    before, second = reader.line("# best read 2.50") or ()
    assert isinstance(before, Record)
    assert isinstance(second, Point)
    assert (before.case, before.points, second.values) == ("copy", [first], (2.5,))
    assert [each.case for each in reader.close()] == ["copy", "read"]


def test_a_line_above_is_of_the_execution_that_begins_next() -> None:
    first, second = executions("$ toy a=1", TITLE, "$ toy b=2", "# toy read")
    assert (first.facts, second.facts) == ({"a": "1"}, {"b": "2"})


def test_a_command_line_takes_the_place_of_one_that_printed_nothing() -> None:
    record = execution("$ toy a=1 end=4096", "$ toy b=2", "$ toy c=3 end=2048", TITLE)
    assert record.facts == {"b": "2", "c": "3"}
    record = execution("$ toy end=4096", "$ toy end=2048", *START, *rows(1024, 2048))
    assert record.incomplete == ""
    record = execution("$ toy a=1 end=4096", "$ toy b=2", *START, *rows(1024, 2048))
    assert (record.facts, bool(record.incomplete)) == ({"a": "1", "b": "2"}, True)


def test_a_command_line_is_used_once() -> None:
    first, second = executions("$ toy a=1", TITLE, "# toy read")
    assert (first.facts, second.facts) == ({"a": "1"}, {})


def test_a_line_that_ends_an_execution() -> None:
    reader = Reader()
    assert reader.line("# next") is None
    reader.line(TITLE)
    (record,) = reader.line("# next") or ()
    assert isinstance(record, Record)
    assert record.case == "copy"
    assert reader.close() == [record]


def notes(*lines: str) -> list[list[tuple[str, int]]]:
    """Return the notes of each execution with the number of rows above them."""
    found: list[list[tuple[str, int]]] = []

    def settle(read: Any) -> Any:
        found.append([(each.kind, each.rows_above) for each in read.notes])
        return read.rows

    executions(*lines, table=toy(settle=settle, notes_ahead=True))
    return found


def test_a_note_below_the_rows_may_be_of_the_next_execution() -> None:
    lines = (*START, "# keep a", *rows(1024), "# keep b")
    assert notes(*lines) == [[("a", 0), ("b", 1)]]
    assert notes(*lines, *rows(2048)) == [[("a", 0), ("b", 1)]]
    assert notes(*lines, "# toy read", NAMES, *rows(2048)) == [[("a", 0)], [("b", 0)]]


def test_notes_are_of_the_rows_above_unless_a_table_says_otherwise() -> None:
    assert not Table(benchmark="toy").notes_ahead


def test_a_note_above_the_rows_is_of_the_open_execution() -> None:
    assert notes(TITLE, "# keep a", "# toy read", NAMES, *rows(1024)) == [[("a", 0)], []]


# ---------------------------------------------------------------- markers


BEGIN = begin_marker("000-tcp-r1/copy", {"benchmark": "toy", "ranks": 8})


def test_a_step_is_an_execution_of_its_own() -> None:
    reader = Reader()
    for line in (*START, *rows(1024)):
        reader.line(line)
    (record,) = reader.line(BEGIN) or ()
    assert isinstance(record, Record)
    assert sizes(record) == [1024]
    for line in (*START, *rows(2048)):
        reader.line(line)
    assert reader.line(end_marker("000-tcp-r1/copy", 0)) == ()
    assert [sizes(each) for each in reader.close()] == [[1024], [2048]]


@pytest.mark.parametrize(
    ("marker", "facts"),
    [
        (BEGIN, {"ranks": 8}),
        (begin_marker("0/a", {"benchmark": "toy", "ranks": "all"}), {}),
        (begin_marker("0/a", {"benchmark": "toy"}), {}),
        (begin_marker("0/a", {"benchmark": "other", "ranks": 8}), {}),
        (end_marker("0/a", 0), {}),
        ("#@fabbench nics 0 benchmark=toy ranks=8", {}),
    ],
)
def test_a_marker_states_the_ranks_of_its_own_benchmark(
    marker: str, facts: dict[str, object]
) -> None:
    assert execution(marker, *START, *rows(1024)).facts == facts


def test_a_marker_holds_until_the_next() -> None:
    first, second, third = executions(BEGIN, TITLE, "# toy read", end_marker("0/a", 0), "# toy x")
    assert (first.facts, second.facts, third.facts) == ({"ranks": 8}, {"ranks": 8}, {})


def test_lines_above_a_marker_are_not_of_its_step() -> None:
    assert execution("$ toy a=1", BEGIN, TITLE).facts == {"ranks": 8}


# ---------------------------------------------------------------- errors


def test_an_error_outside_of_an_execution_needs_the_programs_name() -> None:
    (record,) = executions("toy: Error: no device")
    assert record.failures == ["toy said: toy: Error: no device"]
    assert executions("Error: no device") == []


@pytest.mark.parametrize("above", [TITLE, BEGIN])
def test_an_error_in_an_execution_or_step_needs_no_name(above: str) -> None:
    assert execution(above, "Error: no device").failures == ["toy said: Error: no device"]


@pytest.mark.parametrize(
    "above", [end_marker("0/a", 0), begin_marker("0/a", {"benchmark": "other"})]
)
def test_an_error_in_another_step_needs_the_name(above: str) -> None:
    assert executions(above, "Error: no device") == []


def test_an_error_alone_is_not_of_the_step_s_ranks() -> None:
    assert execution(BEGIN, "Error: no device").facts == {}


def test_an_error_is_told_once() -> None:
    record = execution(TITLE, "# failed: x", "# failed: x", "# failed: y")
    assert record.failures == ["x", "y"]


# ---------------------------------------------------------------- MPI


BTL = "[node-1:17] mca: bml: Using tcp btl for send to [[1,1],0] on node node-2"


def test_what_mpi_says_of_its_transport() -> None:
    reader = Reader()
    assert reader.line(BTL) is None  # no sign that the program begins
    reader.line(TITLE)
    assert reader.line(BTL) == ()
    (record,) = reader.close()
    assert (record.facts["transport"], record.evidence["transport"]) == ("socket", BTL)
    assert record.hosts == {"node-1"}


def test_each_execution_has_its_own_transport() -> None:
    first, second = executions(TITLE, BTL, "# toy read", NAMES)
    assert first.facts["transport"] == "socket"
    assert (second.facts, second.evidence, second.hosts) == ({}, {}, frozenset())


def test_a_benchmark_that_does_not_use_mpi() -> None:
    record = execution(TITLE, BTL, table=toy(over_mpi=False))
    assert (record.facts, record.evidence) == ({}, {})


# ---------------------------------------------------------------- statistics and command lines


@pytest.mark.parametrize(
    ("figures", "ascending"),
    [
        ("2.00 1.00 3.00", True),
        ("2.00 2.00 2.00", True),
        ("4.00 1.00 3.00", False),
        ("2.00 3.00 1.00", False),
        ("0.50 1.00 3.00", False),
    ],
)
def test_statistics_of_one_measurement_ascend(figures: str, ascending: bool) -> None:
    table = toy(fits=tables.is_ascending)
    record = execution(TITLE, "size time(us) min(us) max(us)", f"8 {figures}", table=table)
    assert bool(record.points) is ascending
    assert is_ordered() is True


PROGRAM = re.compile(r"\b(toy_\w+)(?=\s|$)")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("toy_copy -n 4", ("toy_copy", ["-n", "4"])),
        ("/opt/bin/toy_copy -n 4", ("toy_copy", ["-n", "4"])),
        ("$ toy_copy 4", ("toy_copy", ["4"])),
        ("user@node:~$ toy_copy", ("toy_copy", [])),
        ("# toy_copy", ("toy_copy", [])),
        ("+ /opt/toy_copy 4", ("toy_copy", ["4"])),
        ("Running: toy_copy 4", ("toy_copy", ["4"])),
        ("NAME=1 OTHER=2 toy_copy -n 4", ("toy_copy", ["-n", "4"])),
        ("$ mpirun -n 2 toy_copy 4 > out.txt", ("toy_copy", ["4"])),
        ("$ toy_copy 4 | tee x", ("toy_copy", ["4"])),
        ("$ toy_copy 4 # twice", ("toy_copy", ["4"])),
        ("toy_copy 4", None),
        ("we ran toy_copy -n 4", None),
        ("## toy_copy 4", None),
        ("## $ toy_copy 4", ("toy_copy", ["4"])),
        ("$ toy_copy [OPTIONS]", None),
        ("$ other -n 4", None),
    ],
)
def test_words_of_a_command_line(line: str, found: tuple[str, list[str]] | None) -> None:
    assert read_command_line(line, PROGRAM) == found


def test_a_command_line_ends_where_its_arguments_end() -> None:
    assert read_command_line("$ toy_copy 4 ; x", PROGRAM, re.compile(";")) == ("toy_copy", ["4"])
    assert read_command_line("$ toy_copy <n> ; x", PROGRAM, re.compile(";")) is None


# ---------------------------------------------------------------- what a benchmark need not say


def test_a_table_of_defaults() -> None:
    layout = (tables.SIZE, Column("time", 1e-6), Column("bandwidth", 1e6))
    seen: list[Any] = []

    def say(text: str, open_: Any) -> Any:
        if open_ is not None and open_ not in seen:
            seen.append(open_)
        return stated(text, layout)

    table = Table(benchmark="plain", events=say)
    record = execution("begin", "8 1.00 99.00", "", table=table)
    assert (record.case, record.finished, record.failures, sizes(record)) == (None, None, [], [8])
    assert [row.title for row in seen[0].rows] == [""]


MIXED = ["mixed-tables"]


@pytest.mark.parametrize(
    ("sizes_", "codes"),
    [
        ((8, 8, 16, 16, 32, 32), MIXED),
        ((8, 16, 16, 32), []),
        ((8, 16, 32, 8, 16, 64, 32, 64), MIXED),
        ((8, 16, 32, 8, 16, 32), []),
        ((8, 8, 8, 8), []),
        ((8, 16, 64, 16, 128), []),
    ],
)
def test_rows_of_two_tables_in_turns(sizes_: tuple[int, ...], codes: list[str]) -> None:
    record = execution(*START, *rows(*sizes_))
    assert [each.code for each in record.findings] == codes
    assert (record.points == []) == bool(codes)


def test_rows_of_labels_of_their_own_are_no_turns() -> None:
    lines = [f"{label} {size} 1.00 in" for size in (8, 16, 32) for label in ("half", "float")]
    assert not execution(TITLE, "type size time(us) x", *lines).damaged


def test_rows_of_ranks_that_their_lines_name_are_no_turns() -> None:
    reader = Reader()
    for line in START:
        reader.line(line)
    for size in (8, 16, 32):
        for rank in ("0", "1"):
            (text,) = rows(size)
            reader.line(text, Stream(rank=rank))
    (record,) = reader.close()
    assert record.damaged == []


@pytest.mark.parametrize("sizes_", [(8, 16, 8, 16), (8, 8, 16), (1024, 8, 16)])
def test_a_second_sweep_below_a_title_without_rows_may_be_of_that(sizes_: tuple[int, ...]) -> None:
    first, second = executions(TITLE, *START, *rows(*sizes_))
    assert (first.points, second.points) == ([], [])
    assert [each.code for each in second.findings] == MIXED


@pytest.mark.parametrize("header", ["size time(us)", "| size | time(us) |", "|size|time(us)|"])
def test_rows_of_markdown_stand_below_a_header_of_any_form(header: str) -> None:
    record = execution(TITLE, header, "| 8 | 1.00 |", "|16|2.00|", "| 32 | 3.0.0 |")
    assert sizes(record) == [8, 16]
    assert [each.line for each in record.damaged] == [5]


def test_a_table_begins_with_the_first_size() -> None:
    def says(text: str, _: Any) -> Any:
        first = [Setting(first_size=8)] if text == "begin" else []
        return [*(stated(text, (tables.SIZE, Column("time", 1e-6))) or ()), *first] or None

    table = toy(says=says)
    assert not execution("begin", "8 1.00", "16 1.00", table=table).incomplete
    assert "8 B" in execution("begin", "16 1.00", "32 1.00", table=table).incomplete


@pytest.mark.parametrize(
    ("text", "is_prose"),
    [
        ("0 upgraded, 0 newly installed", True),
        ("12 packages", True),
        ("12 nan", False),
        ("12 3.00", False),
        ("12", False),
        ("12      noise", False),
    ],
)
def test_prose_has_a_word_behind_its_number(text: str, is_prose: bool) -> None:
    assert tables.is_prose(text) == is_prose


def test_a_note_is_what_it_says() -> None:
    assert Note("kind") == Note("kind", "", "", 0)


def test_what_is_left_of_a_row_of_any_layout_is_damaged() -> None:
    named = (Column(label="x", cell="[a-z]+"), tables.SIZE, Column("time"), Column("latency"))
    plain = (tables.SIZE, Column("time"), Column("latency"), Column("cpu_time"))
    table = toy(says=lambda text, _: stated(text, named, plain))
    record = execution("begin", "8 1.00 2.00 3.00", "16 1.00 2.00 x", table=table)
    assert [each.line for each in record.damaged] == [3]


def test_names_of_columns_stand_apart() -> None:
    assert tables.GAP.split("size  time (us) rate\tx") == ["size", "time (us)", "rate", "x"]


def test_a_command_line_does_not_end_an_execution() -> None:
    reader = Reader()
    reader.line(TITLE)
    assert reader.line("$ toy a=1") is None


def test_a_table_with_some_sizes_is_held_to_columns() -> None:
    lines = ("size time(us) x", "0 1.00 a", "0 1.50 b", "0 2.00 c", "0 3 d", "8 2.50 e")
    table = toy(ascending=False)
    assert len(execution(TITLE, *lines, table=table).damaged) == 1


ORDERED = [
    ("min", "mean", "max"),
    ("min-comm", "max-comm"),
    ("p25", "p50", "p90", "p95", "p99"),
    ("min", "median", "p99", "p99.9", "max"),
]


@pytest.mark.parametrize("order", ORDERED, ids=" ".join)
def test_statistics_in_their_order(order: tuple[str, ...]) -> None:
    """Each neighbors' swap is noticed, and so is that of the first and the last."""
    layout = (tables.SIZE, *(Column("time", 1e-6, each) for each in order))
    table = toy(says=lambda text, _: stated(text, layout), fits=tables.is_ascending)
    figures = [f"{each}.00" for each in range(1, len(order) + 1)]
    assert execution("begin", " ".join(("8", *figures)), table=table).points
    for at in range(len(order) - 1):
        swapped = [*figures]
        swapped[at : at + 2] = figures[at + 1], figures[at]
        assert not execution("begin", " ".join(("8", *swapped)), table=table).points


def test_percentiles_are_not_held_to_the_most_of_ranks() -> None:
    layout = tuple(Column("time", 1e-6, each) for each in ("p99", "max"))
    table = toy(
        says=lambda text, _: stated(text, (tables.SIZE, *layout)),
        fits=tables.is_ascending,
    )
    assert execution("begin", "8 9.00 1.00", table=table).points
