"""One reader for programs that print tables of figures.

A benchmark gives its table as data and a few functions.

A `Table` says what each line means (`Statement`), which columns a row has (`Layout`), and whether
the figures of a row are consistent. A line that looks like a row and is not a whole, consistent one
is damaged; it is never guessed.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from fabbench.benchmarks import Reader, Reading, consistency
from fabbench.benchmarks.mpi_transport import TransportLines
from fabbench.benchmarks.tables import (
    COUNT,
    Cells,
    Layout,
    Row,
    is_left,
    row_pattern,
)
from fabbench.model.compat import override
from fabbench.model.log import METRICS, Damaged, Facts, Finding, Labels, Line, Marker, Point, Record
from fabbench.model.messages import LONGEST_QUOTE

if TYPE_CHECKING:
    from fabbench.benchmarks.consistency import Printed

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Note(NamedTuple):
    """What a benchmark keeps of a line until the execution is over."""

    kind: str
    value: str = ""
    line: str = ""
    rows: int = 0  # how many rows stand above it


class Statement(NamedTuple):
    """What a line other than a row means."""

    begins: bool = False  # whether it begins an execution
    execution: "Execution | None" = (
        None  # the execution that begins, where the benchmark keeps more of it
    )
    # whether it is about the execution that begins next: a command line, the output of a server
    above: bool = False
    ends: bool = False  # whether it ends the open execution, without being part of it
    late: bool = False
    """Whether it is about the open execution, if more of its rows follow, or about one that begins before."""
    row: bool = False  # whether it is a row, too, of its own layouts
    case: str | None = None
    facts: Facts = _NOTHING
    layouts: Sequence[Layout] = ()
    """The layouts of the rows below it; several where a program may print more or fewer columns."""
    labels: Labels = (
        _NOTHING  # labels of the rows below it, beside those before; an empty one removes it
    )
    title: str | None = None  # the title of the rows below it
    notes: Sequence[Note] = ()
    size: int | None = None  # the size of rows that do not print theirs
    end: int | None = (
        # The last size, or number of iterations, of a whole table; 0: not known to a command line
        None
    )
    finished: bool | None = False
    """True: it is the closing line.

    None: a closing line that does not prove that nothing is missing.
    """
    wrong: int = 0
    failure: str = ""
    finding: Finding | None = None


NO_MEANING = Statement()


@dataclass(slots=True)
class Execution:
    """One execution while it is read."""

    record: Record
    layouts: Sequence[Layout] = ()
    labels: Labels = field(default_factory=dict)
    size: int | None = None
    end: int | None = None
    rows: list[Row] = field(default_factory=list)
    points: list[list[Point]] = field(
        default_factory=list
    )  # those of each row, where every row counts
    begun: Line | None = None  # the first half of a row
    title: str = ""
    tables: int = 0  # how many lines of column names were read
    notes: list[Note] = field(default_factory=list)
    late: list[Statement] = field(default_factory=list)
    """What was said since the last row and may be about the next execution."""
    last: int = 0  # the number of its last line

    def damage(self, line: Line) -> None:
        """Note a row that cannot be read."""
        self.record.damaged.append(Damaged(line.number, line.text))

    def kept(self, read: Callable[[Row], Row | None]) -> list[Row]:
        """Return the rows as `read` returns them; those for which it returns None are damaged."""
        pairs = [(row, read(row)) for row in self.rows]
        self.record.damaged += (
            Damaged(row.line.number, row.line.text) for row, kept in pairs if kept is None
        )
        return [kept for _, kept in pairs if kept is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The tables of one benchmark."""

    benchmark: str
    program: str = ""  # its name in sentences about errors
    case: str | None = None  # the case, unless a statement names it
    statement: Callable[[str, Execution | None], Statement | None]
    """Return what a line means, given the open execution; None for a line of another program."""
    failed: re.Pattern[str] = re.compile("(?!)")  # lines that report an error
    # an error counts outside of executions and of fabbench's own steps only if it has this word
    failing: str = ""
    fits: Callable[[Row], bool] = lambda row: True  # noqa: ARG005
    """Return whether the figures of a row are consistent."""
    cells: Callable[[str], Cells] = Cells  # return the cells of a line that may be a row
    begins_row: Callable[[str], bool] | None = None
    """Return whether a line is the first half of a row.

    The other follows, maybe below lines of others.
    """
    remains: Callable[[str, Layout], bool] = is_left
    points: Callable[[Row], list[Point]] = (
        Row.points
    )  # return the points of a row that counts as soon as it is read
    settle: Callable[[Execution], Sequence[Row]] | None = None
    """Return the rows that count, once the table has ended.

    None: every row counts as soon as it is read.
    """
    another: Callable[[Execution, Row], bool] = lambda execution, row: False  # noqa: ARG005
    """Return whether the first row of a table can only be of another execution than the rows before it."""
    over_mpi: bool = (
        True  # whether MPI carries its data, so that what MPI says of its transport counts
    )
    finished: bool | None = None
    """Whether a table is finished without a closing line.

    None: this benchmark has no closing line.
    """
    ascending: bool = True  # whether its sizes ascend: one that does not is damaged


class TableReader(Reader):
    """Reads the tables of one benchmark from one stream group."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.execution: Execution | None = None
        self._transport = TransportLines()
        self._above: list[Statement] = []
        self._marked = False
        self._marked_facts: dict[str, str | int] = {}

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        text, execution = line.text, self.execution
        if execution is not None:
            execution.last = line.number
        tabular = execution if execution is not None and execution.layouts else None
        if tabular is not None and (points := self._as_row(line, tabular)) is not None:
            return points
        said = self._table.statement(text, execution)
        if self._table.over_mpi and said in (None, NO_MEANING) and self._transport.read(text):
            return None if execution is None else ()
        known = execution is not None or self._marked or self._table.failing in text
        if said is None and known and self._table.failed.fullmatch(text):
            said = self._failure(text)
        if said is not None:
            out = self._apply(said)
            return [*(out or ()), *(self.feed(line) or ())] if said.row else out
        cells = self._table.cells(text)
        if tabular is None or not any(
            self._table.remains(cells.text, each) for each in tabular.layouts
        ):
            return None
        if cells.final is not False:
            tabular.damage(line)
        return ()

    @override
    def mark(self, marker: Marker) -> Sequence[Reading]:
        before = super().mark(marker)
        self._above.clear()
        self._marked = (
            marker.kind == "begin" and marker.facts.get("benchmark") == self._table.benchmark
        )
        ranks = marker.facts.get("ranks", "")
        self._marked_facts = (
            {"ranks": int(ranks)} if self._marked and re.fullmatch(COUNT, ranks) else {}
        )
        return before

    @override
    def close(self) -> Sequence[Reading]:
        execution, self.execution = self.execution, None
        transport, self._transport = self._transport, TransportLines()
        if execution is None:
            return ()
        record, settle = execution.record, self._table.settle
        if execution.begun is not None:
            execution.damage(execution.begun)
        for said in execution.late:
            _add(execution, said)
        record.points = list(chain.from_iterable(self._points(execution)))
        record.damaged.sort()
        largest, end = max((point.size for point in record.points), default=0), execution.end or 0
        if settle is None and 0 < largest < end:
            record.incomplete = consistency.stopped_early(largest, end)
        record.facts = {**transport.facts(), **record.facts}
        record.hosts = frozenset(transport.nodes)
        record.evidence |= transport.evidence()
        return (record,) if settle is None else (*record.points, record)

    def _points(self, execution: Execution) -> Sequence[list[Point]]:
        strays, gaps = list[int](), list[str]()
        for _, table in groupby(enumerate(execution.rows), key=lambda each: each[1].table):
            places, sizes, texts = zip(
                *((at, row.size, row.line.text) for at, row in table), strict=True
            )
            odd = (
                consistency.odd_rows(texts) if any(sizes) else set[int]()
            )  # without sizes they are sentences
            odd.update(consistency.out_of_order(sizes) if self._table.ascending else ())
            strays += (places[at] for at in odd)
            gaps.append(
                consistency.gap(
                    [n for at, n in enumerate(sizes) if at not in odd], once=self._table.ascending
                )
            )
        for at in sorted(strays, reverse=True):
            execution.damage(execution.rows.pop(at).line)
            del execution.points[at : at + 1]
        execution.record.incomplete = next(filter(None, gaps), "")
        return (
            [row.points() for row in settle(execution)]
            if (settle := self._table.settle)
            else execution.points
        )

    def _failure(self, text: str) -> Statement:
        return Statement(failure=f"{self._table.program} said: {text.strip()[:LONGEST_QUOTE]}")

    def _as_row(self, line: Line, execution: Execution) -> Sequence[Reading] | None:
        if (begun := execution.begun) is not None:
            whole = Line(begun.number, f"{begun.text} {line.text}", line.stream)
            if (row := _whole_row(whole, self._table.cells(whole.text), execution)) is not None:
                execution.begun = None
                return self._take(row, execution)
        if (row := _whole_row(line, self._table.cells(line.text), execution)) is not None:
            return self._take(row, execution)
        if self._table.begins_row is None or not self._table.begins_row(line.text):
            return None
        if begun is not None:
            execution.damage(begun)
        execution.begun = line
        return ()

    def _take(self, row: Row, execution: Execution) -> Sequence[Reading]:
        if row.final is False:
            return ()
        if not self._table.fits(row):
            execution.damage(row.line)
            if not any(each.code == "row-arithmetic" for each in execution.record.findings):
                meaning = (
                    "The figures of a row contradict each other: "
                    f"{row.line.text.strip()[:LONGEST_QUOTE]}"
                )
                execution.record.findings.append(consistency.warning("row-arithmetic", meaning))
            return ()
        before: Sequence[Reading] = ()
        new_table = execution.rows and execution.rows[-1].table != row.table
        if new_table and self._table.another(execution, row):
            count, late, execution.late = len(execution.rows), execution.late, []
            notes = [note._replace(rows=0) for note in execution.notes if note.rows == count]
            del execution.notes[len(execution.notes) - len(notes) :]
            before, self.execution = self.close(), self._new(self._marked_facts)
            new, before_it = self.execution, execution
            new.layouts, new.labels, new.title, new.tables = (
                before_it.layouts,
                before_it.labels,
                row.title,
                row.table,
            )
            execution, new.notes, new.late = new, notes, late
        for said in execution.late:
            _add(execution, said)
        execution.late.clear()
        execution.record.wrong += row.wrong
        execution.rows.append(row)
        if self._table.settle is not None:
            return before
        execution.points.append(self._table.points(row))
        return [*before, *execution.points[-1]]

    def _apply(self, said: Statement) -> Sequence[Reading] | None:
        if said.above:
            # A command line takes the place of the one before, whose program printed no table.
            self._above = [
                *(each for each in self._above if said.end is None or each.end is None),
                said,
            ]
            return (self.close() if said.ends and self.execution is not None else ()) or None
        before: Sequence[Reading] = ()
        if said.late and self.execution is not None and self.execution.rows and not said.begins:
            self.execution.late.append(said)
            return ()
        if said.begins:
            # What was printed above it belongs to it, unless another table precedes.
            if self.execution is not None:
                self._above, self.execution.late = [*self._above, *self.execution.late], []
                before = self.close()
            self.execution = said.execution or self._new(self._marked_facts)
            for each in self._above:
                _add(self.execution, each)
            self._above.clear()
        elif self.execution is None:
            if said is NO_MEANING:
                return None
            self.execution = self._new({})  # only an error is known of it
        _add(self.execution, said)
        return before

    def _new(self, facts: Facts) -> Execution:
        name, case, finished = self._table.benchmark, self._table.case, self._table.finished
        return Execution(Record(benchmark=name, case=case, facts=dict(facts), finished=finished))


def _add(execution: Execution, said: Statement) -> None:
    record = execution.record
    record.case = said.case or record.case
    record.facts |= said.facts
    execution.layouts = said.layouts or execution.layouts
    execution.tables += bool(said.layouts)
    execution.title = execution.title if said.title is None else said.title
    execution.notes += (note._replace(rows=len(execution.rows)) for note in said.notes)
    if said.labels:
        execution.labels = {
            name: label for name, label in {**execution.labels, **said.labels}.items() if label
        }
    execution.size = execution.size if said.size is None else said.size
    execution.end = execution.end if said.end is None else said.end
    record.finished = record.finished if said.finished is False else said.finished
    record.wrong += said.wrong
    if said.failure and said.failure not in record.failures:
        record.failures.append(said.failure)
    if said.finding is not None:
        record.findings.append(said.finding)


def _whole_row(line: Line, cells: Cells, execution: Execution) -> Row | None:
    of, match, layout = execution, None, Layout()
    for layout in of.layouts:
        if (match := row_pattern(layout).fullmatch(cells.text)) is not None:
            break
    if match is None:
        return None
    size, wrong, labels, values = of.size or 0, False, of.labels, match.groups()
    figures: dict[str, dict[str, Printed]] = {}
    for column, cell in zip(layout, values, strict=True):
        if column.metric == "size":
            size = int(column.read(cell).value) if column.units else int(cell)
        elif column.label:
            labels = {**labels, column.label: cell}
        elif column.metric == "check":
            wrong = cell not in {"Pass", "0.00"}
        elif column.metric in METRICS:
            figures.setdefault(column.stat, {})[column.metric] = column.read(cell)
    labels = {**labels, "operation": cells.name} if cells.name else labels
    return Row(
        line,
        layout,
        values,
        size,
        labels,
        figures,
        cells.final,
        wrong,
        of.record,
        of.title,
        of.tables,
    )
