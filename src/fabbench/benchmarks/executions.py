"""Executions, put together from what lines mean.

A benchmark gives its table as data and a few functions (`Table`). `read_line` returns the events of
one line; an `Execution` is what they add up to; an `Assembler` knows where executions begin and
end. A line that looks like a row and is not a whole, consistent one is damaged; it is never
guessed.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import itemgetter
from typing import assert_never

from fabbench.benchmarks import LogReadings, Reader, Reading, consistency
from fabbench.benchmarks.commands import whole_number
from fabbench.benchmarks.events import (
    Ahead,
    Begin,
    Command,
    End,
    Error,
    Event,
    Events,
    Fail,
    Half,
    Header,
    Note,
    Remains,
    RowLine,
    Setting,
    Statement,
    Stop,
    Wrong,
)
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.mpi_transport import TransportLines
from fabbench.benchmarks.tables import (
    PASSED,
    Cells,
    Layout,
    Row,
    are_of_test,
    is_rest_of_row,
    rate_agrees,
    read_figures,
    row_pattern,
    row_texts,
)
from fabbench.model.compat import override
from fabbench.model.log import Damaged, Facts, Finding, Labels, Line, Marker, Point, Record
from fabbench.model.mappings import without_empty
from fabbench.model.messages import LONGEST_QUOTE
from fabbench.model.values import frozen

NEVER = re.compile("(?!)")
_MOST_FAILURES = 50


@frozen
class Table:
    """The tables of one benchmark."""

    benchmark: str
    program: str = ""
    """Its name in sentences about errors."""
    case: str | None = None
    """The case, unless an event names it."""
    events: Callable[[str, "Execution | None"], Events | None] = lambda text, execution: None  # noqa: ARG005
    """Return what a line other than a row means, given the open execution.

    None for a line of another program.
    """
    failed: re.Pattern[str] = NEVER
    """Lines that report an error."""
    failing: str = ""
    """A word that an error needs to count outside of executions and of fabbench's own steps."""
    wrong: re.Pattern[str] = NEVER
    """Lines that report wrong data; they count where errors do."""
    fits: Callable[[Row], bool] = lambda row: True  # noqa: ARG005
    """Return whether the figures of a row are consistent."""
    cells: Callable[[str], Cells] = Cells
    """Return the cells of a line that may be a row."""
    begins_row: Callable[[str], bool] | None = None
    """Return whether a line is the first half of a row."""
    remains: Callable[[str, Layout], bool] = is_rest_of_row
    """Return whether a line may be what is left of a row."""
    points: Callable[[Row], list[Point]] = Row.points
    """Return the points of a row that counts as soon as it is read."""
    settle: "Callable[[Execution], Sequence[Row]] | None" = None
    """Return the rows that count, once the table has ended.

    None: every row counts as soon as it is read.
    """
    notes_ahead: bool = False
    """Whether notes below the last row are about the execution that begins there, if one does."""
    over_mpi: bool = True
    """Whether MPI carries its data, so that what MPI says of its transport counts."""
    finished: bool | None = None
    """Whether a table is finished without a closing line.

    None: this benchmark has no closing line.
    """
    usual_end: Callable[[str | None], int] = lambda case: 0  # noqa: ARG005
    """Return the last size of a program's whole table by default; 0: it is not known."""
    ascending: bool = True
    """Whether its sizes ascend: one that does not is damaged."""
    is_sweep: bool = True
    """Whether its sizes are a sweep, and its cells stand in columns.

    If not, rows are sentences, and their sizes a list of the user's.
    """

    def record(self) -> Record:
        """Return the record of an execution that begins."""
        return Record(benchmark=self.benchmark, case=self.case, finished=self.finished)


# ---------------------------------------------------------------- a line → events


def read_line(table: Table, line: Line, execution: "Execution | None") -> Events | None:
    """Return what a line means; None for a line of another program.

    Below a header it is tried as a row first, else by the table's own `events`. No events at all:
    it is of this program, and says nothing.
    """
    if execution is not None and execution.layouts:
        row = _row_event(table, line, execution)
        if row is not None:
            return (row,)
    meanings = (table.events(text, execution) for text in row_texts(line.text))
    events = next((meaning for meaning in meanings if meaning is not None), None)
    if not events:
        return events
    for event in events:
        # Where each row is a header too, a line that is no whole row is what is left of one.
        if isinstance(event, Header) and event.is_row:
            row = whole_row(line, event.layouts, table.cells)
            return [*events, row or Remains(line)]
    return events


def read_any_line(
    table: Table,
    line: Line,
    execution: "Execution | None",
    transport: TransportLines | None = None,
    *,
    may_fail: bool,
) -> Events | None:
    """Return what a line means, also if it is an error, what is left of a row, or MPI's text.

    None for a line of another program. `transport`: collects what MPI says of its transport; None:
    MPI does not carry the data. `may_fail`: whether an error here is one of the benchmark.
    """
    events = read_line(table, line, execution)
    if not events and transport is not None and transport.read(line.text):
        events = ()
    elif events is None and may_fail:
        events = read_other_line(table, line, execution)
    # A line that says nothing belongs to the benchmark only where an execution is open.
    return None if execution is None and not events else events


def read_other_line(table: Table, line: Line, execution: "Execution | None") -> Events | None:
    """Return the error, or what is left of a row, that a line is which means nothing else.

    None: it is neither. Empty: it is what is left of a row that does not count.
    """
    if table.failed.fullmatch(line.text):
        return (Error(line.text),)
    if table.wrong.fullmatch(line.text):
        return (Wrong(),)
    if execution is None:
        return None
    left = _what_is_left(table, line, execution.layouts)
    if left is None:
        return None
    # Rows of progress do not count: what is left of one is no loss.
    return () if table.cells(line.text).final is False else (left,)


def _row_event(table: Table, line: Line, execution: "Execution") -> RowLine | Half | None:
    """Return the row that a line is, or that it completes, or of which it is the first half."""
    half_row = execution.half_row
    if half_row is not None:
        joined = Line(half_row.number, f"{half_row.text} {line.text}", line.stream)
        row = whole_row(joined, execution.layouts, table.cells)
        if row is not None:
            return row
    row = whole_row(line, execution.layouts, table.cells)
    if row is not None:
        return row
    if table.begins_row is not None and table.begins_row(line.text):
        return Half(line)
    return None


def whole_row(
    line: Line, layouts: Sequence[Layout], cells_of: Callable[[str], Cells] = Cells
) -> RowLine | None:
    """Return the line as a row of the first layout that fits; None: none does."""
    for text in row_texts(line.text):  # the line and, of a row of Markdown, its cells alone
        cells = cells_of(text)
        for layout in layouts:
            match = row_pattern(layout).fullmatch(cells.text)
            if match is not None:
                return RowLine(line, layout, match.groups(), cells.name, cells.final)
    return None


def _what_is_left(table: Table, line: Line, layouts: Sequence[Layout]) -> Remains | None:
    # The line, if it is what is left of a row of one of these layouts; None: it is none.
    for text in row_texts(line.text):  # the line and, of a row of Markdown, its cells alone
        cells = table.cells(text).text
        if any(table.remains(cells, layout) for layout in layouts):
            return Remains(line)
    return None


# ---------------------------------------------------------------- events → an execution


@dataclass(slots=True, eq=False)
class Execution:
    """One execution of one process while it is read."""

    table: Table
    record: Record
    layouts: Sequence[Layout] = ()
    labels: Labels = field(default_factory=dict)
    size: int | None = None
    """In bytes, that of rows that do not print theirs."""
    first_size: int | None = None
    """That of a whole table, as the program states it; None: it does not."""
    last_size: int | None = None
    """That of a whole table; None: nothing states it, 0: not known, whatever was stated."""
    iterations: int | None = None
    """Those of its command line."""
    rows: list[Row] = field(default_factory=list)
    points: list[Sequence[Point]] = field(default_factory=list)
    """Those of each of `rows`; empty where only the whole table shows which rows count."""
    half_row: Line | None = None
    """The first half of a row, whose other half has not come yet."""
    title: str = ""
    """That of the rows below."""
    headers_read: int = 0
    """How many lines of column names were read."""
    may_mix_rows: bool = False
    """Whether some of its rows may be those of another table: of the one above it, which has none,
    or of one in another stream."""
    progress: list[Row] = field(default_factory=list)
    """Rows on the way to the result. They do not count."""
    notes: list[Note] = field(default_factory=list)
    last_line: int = 0
    """The number of its last line."""

    def add(self, statement: Statement) -> None:
        """Add what a line says."""
        record = self.record
        match statement:
            case Setting():
                self._apply_setting(statement)
            case Header():
                self.layouts = statement.layouts
                self.headers_read += 1
            case Half():
                self._begin_row(statement.line)
            case Remains():
                self.damage(statement.line)
            case Note():
                self.notes.append(statement._replace(rows_above=len(self.rows)))
            case End():
                record.finished = statement.complete
            case Error():
                program = self.table.program
                quote = statement.text.strip()[:LONGEST_QUOTE]
                self._add_failure(f"{program} said: {quote}")
            case Fail():
                self._add_failure(statement.sentence)
            case Wrong():
                record.wrong += statement.checks
            case Finding():
                record.findings.append(statement)
            case _:
                assert_never(statement)

    def _apply_setting(self, setting: Setting) -> None:
        """Replace what the setting states; what it leaves out stays as it was."""
        record = self.record
        record.case = setting.case or record.case
        record.facts |= setting.facts
        if setting.labels:
            self.labels = without_empty({**self.labels, **setting.labels})
        if setting.title is not None:
            self.title = setting.title
        if setting.size is not None:
            self.size = setting.size
        if setting.first_size is not None:
            self.first_size = setting.first_size
        if setting.last_size is not None:
            self.last_size = setting.last_size
        if setting.iterations is not None:
            self.iterations = setting.iterations

    def _add_failure(self, sentence: str) -> None:
        failures = self.record.failures
        if len(failures) < _MOST_FAILURES and sentence not in failures:
            failures.append(sentence)

    def _begin_row(self, line: Line) -> None:
        """Keep the first half of a row; one whose other half has not come is damaged."""
        if self.half_row is not None:
            self.damage(self.half_row)
        self.half_row = line

    def damage(self, line: Line) -> None:
        """Note a row that cannot be read."""
        self.record.damaged.append(Damaged(line.number, line.text))

    def reread_rows(self, read: Callable[[Row], Row | None]) -> list[Row]:
        """Return the rows as `read` returns them; those for which it returns None are damaged."""
        whole_rows: list[Row] = []
        for row in self.rows:
            whole = read(row)
            if whole is None:
                self.damage(row.line)
            else:
                whole_rows.append(whole)
        return whole_rows

    # -- rows

    def add_row(self, printed: RowLine) -> Sequence[Point]:
        """Add a row; return its points: none of one of progress, which does not count."""
        # A row joined of two halves has the line number of the first.
        if self.half_row is not None and self.half_row.number == printed.line.number:
            self.half_row = None
        row = self.read(printed)
        if printed.final is False:
            self.progress.append(row)
            return ()
        return self.count_row(row)

    def accepts(self, row: Row) -> bool:
        """Return whether the figures of a row are consistent; if not, add it as damaged."""
        if self.fits(row):
            return True
        self.damage(row.line)
        # One finding is enough for all rows of an execution.
        if all(found.code != _CONTRADICTION for found in self.record.findings):
            quote = row.line.text.strip()[:LONGEST_QUOTE]
            self.record.findings.append(finding(_CONTRADICTION, row=quote))
        return False

    def fits(self, row: Row) -> bool:
        """Return whether a row can be what the program printed for one measurement."""
        return self.table.fits(row)

    def read(self, printed: RowLine) -> Row:
        """Return a row with what its cells say; what they do not say is that of the execution."""
        size = self.size or 0  # as in rows whose size nothing states
        is_wrong = False
        labels = self.labels
        for column, cell in zip(printed.layout, printed.cells, strict=True):
            if column.metric == "size":
                size = column.bytes(cell)
            elif column.label:
                labels = {**labels, column.label: cell}
            elif column.metric == "check":
                is_wrong = cell not in PASSED
        if printed.name:
            labels = {**labels, "operation": printed.name}
        return Row(
            printed.line,
            printed.layout,
            printed.cells,
            size,
            labels,
            figures=read_figures(printed.layout, printed.cells),
            final=printed.final,
            wrong=is_wrong,
            record=self.record,
            title=self.title,
            table=self.headers_read,
        )

    def count_row(self, row: Row) -> Sequence[Point]:
        """Add a row, as damaged if its figures are not consistent.

        Return its points; none where only the whole table shows which rows count.
        """
        if not self.accepts(row):
            return ()
        self.record.wrong += row.wrong
        self.rows.append(row)
        if self.table.settle is not None:
            return ()
        points = self.table.points(row)
        self.points.append(points)
        return points

    def take_notes_below(self) -> list[Note]:
        """Remove the notes below the last row; return them as standing above the next rows."""
        count = len(self.rows)
        below = [note for note in self.notes if note.rows_above == count]
        self.notes = [note for note in self.notes if note.rows_above < count]
        return [note._replace(rows_above=0) for note in below]

    # -- the end

    def finish(self) -> Record:
        """Return the record of what was read."""
        record = self.record
        if self.half_row is not None:
            self.damage(self.half_row)
        record.points = [*chain.from_iterable(self.checked())]
        record.damaged.sort()
        if self.table.settle is None:  # else that function judges how the table ends
            sizes = [point.size for point in record.points]
            missing = consistency.missing_end(sizes, self.first_size, self.last_size)
            record.incomplete = missing or record.incomplete
            last = self.last_size or self.table.usual_end(record.case)
            record.is_at_end = bool(last) and last in sizes
        return record

    def checked(self) -> Sequence[Sequence[Point]]:
        """Remove the rows that only a whole table shows to be damaged, and note missing sizes.

        Return the points of each row that counts.
        """
        damaged: list[int] = []  # positions among the rows of all tables
        gap = ""  # of the first table that has one, as a sentence
        begin = 0  # the position of a table's first row
        for _, table in groupby(self.rows, key=lambda row: row.table):
            rows = [*table]
            odd = self._odd_rows(rows)
            damaged += (begin + at for at in odd)
            sizes = [row.size for at, row in enumerate(rows) if at not in odd]
            if self.table.is_sweep:
                gap = gap or consistency.gap(sizes, once=self.table.ascending)
            begin += len(rows)
        for at in sorted(damaged, reverse=True):  # from the end: positions above stay the same
            self.damage(self.rows.pop(at).line)
            del self.points[at : at + 1]  # none where rows count only at the end
        self.record.incomplete = gap
        if self.table.settle is None:
            return self.points
        return [row.points() for row in self.table.settle(self)]

    def _odd_rows(self, rows: Sequence[Row]) -> set[int]:
        """Return the positions of rows of one table that cannot be whole.

        All of them, if several programs print it, or its columns are those of another test. (Of
        tables whose sizes need not ascend, neither is asked.)
        """
        is_of_test = are_of_test(rows[0].layout, self.record.case or "")
        if self.table.ascending and (self.are_mixed(rows) or not is_of_test):
            self.record.findings.append(finding(MIXED_TABLES))
            return {*range(len(rows))}
        sizes = [row.size for row in rows]
        odd: set[int] = set()
        if self.table.is_sweep and any(sizes):  # without sizes they are sentences
            shifted = consistency.odd_rows([row.line.text for row in rows])
            # Two figures that agree prove a row, wherever its cells stand.
            odd |= {at for at in shifted if not rate_agrees(rows[at])}
        if self.table.ascending:
            odd |= {*consistency.out_of_order(sizes)} | consistency.off_sweep(sizes)
        # A benchmark that settles its rows holds them to a formula itself.
        if self.table.settle is None and rows[0].main("busbw"):
            odd |= consistency.unlike([row.bus_ratio() for row in rows])
        return odd

    def are_mixed(self, rows: Sequence[Row]) -> bool:
        """Return whether the rows below one line of column names are those of several tables."""
        groups = {row.line.stream.group for row in rows}
        if len(groups) > 1:  # some of them may have lost their label, and which ones is not known
            return True
        sweeps: dict[Hashable, list[int]] = {}  # stream and labels → sizes
        for row in rows:
            # Rows that may be those of the execution above may be so in any stream.
            stream = None if self.may_mix_rows else row.line.stream
            # Rows of one sweep may differ in what is measured, such as a count that is a label.
            measured = {column.label for column in row.layout if column.metric}
            names = sorted(row.labels.keys() - measured)
            labels = map(row.labels.get, names)
            key = (stream, *names, *labels)
            sweep = sweeps.setdefault(key, [])
            sweep.append(row.size)
        # Sweeps one after another are usual, unless one of them may be that of another table.
        is_mixed = consistency.are_several if self.may_mix_rows else consistency.are_in_turns
        return any(map(is_mixed, sweeps.values()))


def join_processes(record: Record, processes: Iterable[Execution]) -> None:
    """Add to a record the points of processes that printed into one log, by line.

    Its damaged rows are put in order, too, and sizes without a figure are found.
    """
    by_line = [
        (row.line.number, points)
        for process in processes
        for row, points in zip(process.rows, process.points, strict=True)
    ]
    by_line.sort(key=itemgetter(0))
    record.points = [point for _, points in by_line for point in points]
    record.damaged.sort()
    without_figure = (point.size for point in record.points if not point.metrics)
    record.findings += consistency.unmeasured(without_figure)


MIXED_TABLES = "mixed-tables"
_CONTRADICTION = "row-arithmetic"


# ---------------------------------------------------------------- where executions begin and end


class Assembler(Reader):
    """Puts the executions of one stream group together, one after another."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.execution: Execution | None = None
        self._transport = TransportLines()
        self._ahead: list[Command | Ahead] = []
        """What was said about the execution that begins next."""
        self._is_marked = False
        """Whether fabbench's own marker began a step of this benchmark."""
        self._marked_facts: Facts = {}
        """What that marker states of each execution: `ranks`, or nothing."""

    @override
    def feed(self, line: Line) -> LogReadings | None:
        # Return what the line completes; None: it is of another program, or of the next execution.
        execution = self.execution
        if execution is not None:
            execution.last_line = line.number
        may_fail = self._may_fail(line.text)
        transport = self._transport if self._table.over_mpi else None
        events = read_any_line(self._table, line, execution, transport, may_fail=may_fail)
        return None if events is None else self._assemble(events)

    def _may_fail(self, text: str) -> bool:
        # Whether an error in the line can be one of this benchmark.
        return self.execution is not None or self._is_marked or self._table.failing in text

    @override
    def mark(self, marker: Marker) -> LogReadings:
        before = super().mark(marker)  # a begin marker ends the execution above it
        self._ahead.clear()
        begins = marker.kind == "begin"
        self._is_marked = begins and marker.facts.get("benchmark") == self._table.benchmark
        ranks = whole_number(marker.facts, "ranks")  # how many fabbench itself started
        self._marked_facts = {}
        if self._is_marked and ranks is not None:
            self._marked_facts = {"ranks": ranks}
        return before

    @override
    def doubt_rows(self) -> None:
        if self.execution is not None:
            self.execution.may_mix_rows = True

    @override
    def close(self) -> LogReadings:
        execution = self.execution
        transport = self._transport
        self.execution = None
        self._transport = TransportLines()
        if execution is None:
            return ()
        record = execution.finish()
        transport.keep_stated_operation(record.facts)
        record.facts = {**transport.facts(), **record.facts}  # the benchmark's own come first
        record.hosts = frozenset(transport.nodes)
        record.evidence |= transport.evidence()
        if self._table.settle is None:
            return (record,)  # Its points were returned as they were read
        return (*record.points, record)  # only now it is known which rows count

    def _assemble(self, events: Events) -> LogReadings | None:
        """Add events to the executions that they are about.

        None if all are about the next one: another benchmark may read the line, too.
        """
        readings: list[Reading] = []
        is_claimed = not events  # a line of the program that says nothing is its own, too
        for event in events:
            readings += self._add_event(event)
            is_claimed = is_claimed or not isinstance(event, Command | Ahead | Stop)
        if readings:
            return readings
        return () if is_claimed else None

    def _add_event(self, event: Event) -> LogReadings:
        # Return what the event completes. What is about the next execution waits for its beginning;
        # anything else is about the open one, or opens one.
        match event:
            case RowLine():
                return self._opened().add_row(event)
            case Begin():
                return self._begin_execution()
            case Stop():
                return self.close()
            case Command():
                # The program of an earlier command line printed no table.
                self._ahead = [event for event in self._ahead if not isinstance(event, Command)]
                self._ahead.append(event)
            case Ahead():
                self._ahead.append(event)
            case _:
                self._opened().add(event)
        return ()

    def _begin_execution(self) -> LogReadings:
        """Begin an execution, with what was said ahead of it.

        Of a table with notes ahead, that includes the notes below the rows of the one before.
        """
        readings: LogReadings = ()
        notes: list[Note] = []
        before = self.execution
        if before is not None:
            if before.rows and self._table.notes_ahead:
                notes = before.take_notes_below()
            readings = self.close()
        self.execution = self._new_execution()
        self.execution.record.facts |= self._marked_facts
        # Where the one before has no rows yet, some of its rows may stand among those of this one.
        self.execution.may_mix_rows = before is not None and not before.rows
        for event in self._ahead:
            for statement in event.statements:
                self.execution.add(statement)
        self.execution.notes += notes
        self._ahead.clear()
        return readings

    def _opened(self) -> Execution:
        """Return the open execution; if there is none, one that begins without any facts."""
        if self.execution is None:
            self.execution = self._new_execution()
        return self.execution

    def _new_execution(self) -> Execution:
        return Execution(self._table, self._table.record())
