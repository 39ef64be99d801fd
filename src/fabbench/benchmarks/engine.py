"""One reader for programs that print tables of figures: a benchmark gives its table as data and a few functions.

A `Table` says what each line means (`Statement`), which columns a row has (`Layout`), and whether the figures of a
row are consistent. A line that looks like a row and is not a whole, consistent one is damaged; it is never guessed.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from fabbench.benchmarks import Reader, Reading
from fabbench.benchmarks.consistency import Printed, is_ordered, is_remains, out_of_order, printed, stopped_early
from fabbench.benchmarks.mpi_transport import TransportLines
from fabbench.model.compat import override
from fabbench.model.log import METRICS, Damaged, Facts, Finding, Labels, Line, Marker, Point, Record, Severity
from fabbench.model.messages import LONGEST_QUOTE

COUNT, NUMBER, WORD = r"\d{1,18}", r"\d{1,18}(?:\.\d{1,18})?", r"\S+"  # patterns of cells
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Column(NamedTuple):
    """One column of a table."""

    metric: str = ""
    """A metric of the contract, `size`, or another name, for checks: it is not read."""
    factor: float = 1.0
    """Base units per printed unit."""
    stat: str = ""
    cell: str = NUMBER
    """The pattern of a cell."""
    label: str = ""
    """The label whose value the cell is."""
    decimals: int | None = None
    """How many decimals the program rounds to, where it omits trailing zeros."""


SIZE, IGNORED, UNKNOWN = Column("size", cell=COUNT), Column(), Column(cell=WORD)
CHECK = Column("check", cell="Pass|Fail")
Layout: TypeAlias = tuple[Column, ...]


@lru_cache(maxsize=256)
def _row_pattern(layout: Layout) -> re.Pattern[str]:
    cells = r"\s+".join(f"({column.cell})" for column in layout)
    return re.compile(rf"\s*{cells}\s*", re.ASCII)


@lru_cache(maxsize=256)
def cell_patterns(layout: Layout) -> tuple[re.Pattern[str], ...]:
    """Return the pattern of each cell of a row."""
    return tuple(re.compile(column.cell, re.ASCII) for column in layout)


@lru_cache(maxsize=256)
def _stat(stat: str) -> Labels:
    return {"stat": stat} if stat else {}


class Cells(NamedTuple):
    """The cells of a row, as one text, and what stands beside them."""

    text: str
    name: str = ""
    """The label `operation` of its figures."""
    final: bool | None = None
    """Whether it is marked as the result, or (False) as progress on the way to it; None: it is not marked."""


class Row(NamedTuple):
    """A complete row."""

    line: Line
    layout: Layout
    cells: tuple[str, ...]
    size: int
    labels: Labels
    figures: Mapping[str, Mapping[str, Printed]]
    """Statistic (empty: the main figure) → metric → figure, in base units."""
    final: bool | None
    wrong: bool  # whether its data failed the check

    def main(self, metric: str) -> Printed | None:
        """Return the main figure of a metric."""
        return self.figures.get("", {}).get(metric)

    def cell(self, name: str) -> str:
        """Return what is printed in a column; empty if there is none."""
        return next((cell for column, cell in zip(self.layout, self.cells, strict=True) if column.metric == name), "")

    def points(self) -> list[Point]:
        """Return its points: one per statistic."""
        points = []
        for stat, figures in self.figures.items():
            labels = {**self.labels, **_stat(stat)} if self.labels else _stat(stat)
            points.append(Point(self.size, labels, tuple(figures), tuple(each.value for each in figures.values())))
        return points


class Statement(NamedTuple):
    """What a line other than a row means."""

    begins: bool = False
    """Whether it begins an execution."""
    above: bool = False
    """Whether it is about the execution that begins next: a command line, the output of a server."""
    case: str | None = None
    facts: Facts = _NOTHING
    layouts: Sequence[Layout] = ()
    """The layouts of the rows below it; several where a program may print more or fewer columns."""
    labels: Labels = _NOTHING
    """Labels of the rows below it, beside those before."""
    size: int | None = None
    """The size of rows that do not print theirs."""
    end: int | None = None
    """The last size, or number of iterations, that a whole table reaches; 0: not known to a command line."""
    finished: bool | None = False
    """True: it is the closing line. None: a closing line that does not prove that nothing is missing."""
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
    points: list[list[Point]] = field(default_factory=list)  # those of each row, where every row counts
    last: int = 0  # the number of its last line

    def damage(self, line: Line) -> None:
        """Note a row that cannot be read."""
        self.record.damaged.append(Damaged(line.number, line.text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The tables of one benchmark."""

    benchmark: str
    program: str
    """Its name in sentences."""
    case: str | None = None
    """The case, unless a statement names it."""
    statement: Callable[[str, Execution | None], Statement | None]
    """Return what a line means, given the open execution; None for a line of another program."""
    failed: re.Pattern[str]
    """Lines that report an error."""
    failing: str = ""
    """An error counts outside of executions and of fabbench's own steps only if it has this word."""
    fits: Callable[[Row], bool]
    """Return whether the figures of a row are consistent."""
    cells: Callable[[str], Cells] = Cells
    """Return the cells of a line that may be a row."""
    remains: Callable[[str, Layout], bool] = lambda text, layout: is_remains(text.split(), cell_patterns(layout))
    """Return whether a line that is not a row may be what is left of one."""
    settle: Callable[[Execution], Sequence[Row]] | None = None
    """Return the rows that count, once the table has ended. None: every row counts as soon as it is read."""
    finished: bool | None = None
    """Whether a table is finished without a closing line; None: this benchmark has no closing line."""


class TableReader(Reader):
    """Reads the tables of one benchmark from one stream group."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._open: Execution | None = None
        self._transport = TransportLines()
        self._above: list[Statement] = []
        self._marked = False
        self._marked_facts: dict[str, str | int] = {}

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        text, execution, cells = line.text, self._open, None
        if execution is not None:
            execution.last = line.number
        if execution is not None and execution.layouts:
            cells = self._table.cells(text)
            for layout in execution.layouts:
                if (match := _row_pattern(layout).fullmatch(cells.text)) is not None:
                    return self._row(_read_row(line, cells, layout, match.groups(), execution), execution)
        if self._transport.read(text):
            return None if execution is None else ()
        said = self._table.statement(text, execution)
        known = execution is not None or self._marked or self._table.failing in text
        if said is None and known and self._table.failed.fullmatch(text):
            said = Statement(failure=f"{self._table.program} said: {text.strip()[:LONGEST_QUOTE]}")
        if said is not None:
            return self._apply(said)
        if cells is None or execution is None or not self._table.remains(cells.text, execution.layouts[0]):
            return None
        if cells.final is not False:
            execution.damage(line)
        return ()

    @override
    def mark(self, marker: Marker) -> Sequence[Reading]:
        before = super().mark(marker)
        self._above.clear()
        self._marked = marker.kind == "begin" and marker.facts.get("benchmark") == self._table.benchmark
        ranks = marker.facts.get("ranks", "")
        self._marked_facts = {"ranks": int(ranks)} if self._marked and ranks.isdecimal() else {}
        return before

    @override
    def close(self) -> Sequence[Reading]:
        execution, self._open = self._open, None
        transport, self._transport = self._transport, TransportLines()
        if execution is None:
            return ()
        record, settle = execution.record, self._table.settle
        for at in sorted(out_of_order([row.size for row in execution.rows]), reverse=True):
            execution.damage(execution.rows.pop(at).line)
            if settle is None:
                del execution.points[at]
        points = execution.points if settle is None else [row.points() for row in settle(execution)]
        record.points = list(chain.from_iterable(points))
        record.damaged.sort()
        largest, end = max((point.size for point in record.points), default=0), execution.end or 0
        if settle is None and 0 < largest < end:
            record.incomplete = stopped_early(largest, end)
        record.facts = {**transport.facts(), **record.facts}
        record.hosts = frozenset(transport.nodes)
        record.evidence |= transport.evidence()
        return (record,) if settle is None else (*record.points, record)

    def _row(self, row: Row, execution: Execution) -> Sequence[Reading]:
        if row.final is False:
            return ()
        if not self._table.fits(row):
            execution.damage(row.line)
            return ()
        execution.record.wrong += row.wrong
        execution.rows.append(row)
        if self._table.settle is not None:
            return ()
        execution.points.append(row.points())
        return execution.points[-1]

    def _apply(self, said: Statement) -> Sequence[Reading] | None:
        if said.above:
            # A command line takes the place of the one before, whose program printed no table.
            self._above = [*(each for each in self._above if said.end is None or each.end is None), said]
            return None
        before: Sequence[Reading] = ()
        if said.begins:
            # What was printed above it belongs to it, unless another table precedes.
            before = self.close() if self._open is not None else ()
            self._open = self._new(self._marked_facts)
            for each in self._above:
                _add(self._open, each)
            self._above.clear()
        elif self._open is None:
            if said is NO_MEANING:
                return None
            self._open = self._new({})  # only an error is known of it
        _add(self._open, said)
        return before

    def _new(self, facts: Facts) -> Execution:
        name, case, finished = self._table.benchmark, self._table.case, self._table.finished
        return Execution(Record(benchmark=name, case=case, facts=dict(facts), finished=finished))


def _add(execution: Execution, said: Statement) -> None:
    """Add what a line means to an execution."""
    record = execution.record
    record.case = said.case or record.case
    record.facts |= said.facts
    execution.layouts = said.layouts or execution.layouts
    if said.labels:
        execution.labels = {**execution.labels, **said.labels}
    execution.size = execution.size if said.size is None else said.size
    execution.end = execution.end if said.end is None else said.end
    record.finished = record.finished if said.finished is False else said.finished
    record.wrong += said.wrong
    if said.failure and said.failure not in record.failures:
        record.failures.append(said.failure)
    if said.finding is not None:
        record.findings.append(said.finding)


def _read_row(line: Line, cells: Cells, layout: Layout, values: tuple[str, ...], execution: Execution) -> Row:
    size, wrong, labels = execution.size or 0, False, execution.labels
    figures: dict[str, dict[str, Printed]] = {}
    for (metric, factor, stat, _, label, decimals), cell in zip(layout, values, strict=True):
        if metric == "size":
            size = int(cell)
        elif label:
            labels = {**labels, label: cell}
        elif metric == "check":
            wrong = cell == "Fail"
        elif metric in METRICS:
            number = printed(cell, decimals=decimals) if decimals is not None and "." in cell else printed(cell)
            figures.setdefault(stat, {})[metric] = number.times(factor) if factor != 1 else number
    if cells.name:
        labels = {**labels, "operation": cells.name}
    return Row(line, layout, values, size, labels, figures, cells.final, wrong)


def read_columns(names: Sequence[str], known: Mapping[str, Column]) -> Layout:
    """Return the layout of a line of column names; names are compared in lower case and without blanks.

    The keys of `known` are regular expressions; the text of their first group replaces `{}` in the statistic.
    """
    layout = []
    for name in ("".join(name.lower().split()) for name in names):
        matches = ((re.fullmatch(pattern, name), column) for pattern, column in known.items())
        match, column = next((each for each in matches if each[0]), (None, UNKNOWN))
        layout.append(column._replace(stat=column.stat.format(*match.groups())) if match else column)
    return tuple(layout)


def unknown_columns(layout: Layout, text: str) -> Finding | None:
    """Return a finding if a line of column names has one that is not read."""
    meaning, line = "The table has a column that is not read.", text.strip()[:LONGEST_QUOTE]
    unknown = Finding(code="unknown-column", severity=Severity.NOTE, meaning=meaning, line=line)
    return unknown if UNKNOWN in layout else None


_ASCENDING = (("min", "", "max"), ("min-comm", "max-comm"), ("p25", "p50", "p90", "p95", "p99"))


def is_ascending(row: Row) -> bool:
    """Return whether the statistics of a row can be those of one measurement."""
    for stats in _ASCENDING if len(row.figures) > 1 else ():
        present = [row.figures[stat] for stat in stats if stat in row.figures]
        for metric in present[0] if present else ():
            if not is_ordered(*(figures[metric] for figures in present if metric in figures)):
                return False
    return True
