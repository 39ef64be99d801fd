"""Reads tables of the OSU micro-benchmarks: a title, names of columns, rows; MPI's word on its transport."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fabbench.benchmarks import Reader, Reading
from fabbench.benchmarks.consistency import Printed, is_ordered, out_of_order, printed
from fabbench.benchmarks.mpi_transport import TransportLines
from fabbench.benchmarks.osu import text as text_of
from fabbench.benchmarks.osu.text import SIZE, Column, Row, Title
from fabbench.model.compat import override
from fabbench.model.log import Damaged, Finding, Labels, Line, Marker, Point, Record, Severity
from fabbench.model.messages import LONGEST_QUOTE

_MAIN: Labels = {}
_NO_LATENCY = frozenset({"", "size", "check"})
_ORDERS = (("min", "", "max"), ("min-comm", "max-comm"), ("p50", "p90", "p95", "p99"))
"""Statistics of one time, in rising order."""


@dataclass(slots=True)
class _Table:
    """One table while it is read."""

    record: Record
    one_way: bool = False
    columns: tuple[Column | None, ...] = ()
    stats: dict[str, Labels] = field(default_factory=dict)
    rows: list[tuple[int, Line, list[Point]]] = field(default_factory=list)

    def row(self, row: Row, line: Line) -> list[Point]:
        """Return the points of a row, one per statistic; none where it contradicts itself."""
        size, values = 0, dict[str, dict[str, Printed]]()
        for cell, column in zip(row.cells, self.columns, strict=True):
            if column is SIZE:
                size = int(cell)
            elif column is not None and column.metric not in _NO_LATENCY:
                values.setdefault(column.stat, {})[self._metric(column.metric)] = printed(cell).times(
                    column.factor
                )
        if not _fits(size, values):
            self.record.damaged.append(Damaged(line.number, line.text))
            return []
        self.record.wrong += row.wrong
        points = [
            Point(size, self._labels(stat), tuple(figures), tuple(each.value for each in figures.values()))
            for stat, figures in values.items()
        ]
        self.rows.append((size, line, points))
        return points

    def finish(self) -> Record:
        """End the table: a row whose size is not of its sweep is damaged."""
        wrong = set(out_of_order([size for size, _, _ in self.rows]))
        for at, (_, line, points) in enumerate(self.rows):
            if at in wrong:
                self.record.damaged.append(Damaged(line.number, line.text))
            else:
                self.record.points += points
        return self.record

    def _metric(self, metric: str) -> str:
        return "latency" if metric == "time" and self.one_way else metric

    def _labels(self, stat: str) -> Labels:
        return self.stats.setdefault(stat, {"stat": stat}) if stat else _MAIN


def _fits(size: int, values: Mapping[str, Mapping[str, Printed]]) -> bool:
    """Return whether a row's figures are of one measurement, within their rounding."""
    main = values.get("", {})
    if {"bandwidth", "message_rate"} <= main.keys():
        rate = main["message_rate"].times(size)
        if not main["bandwidth"].meets(rate.low, rate.high):
            return False
    times = {stat: figures.get("time", figures.get("latency")) for stat, figures in values.items()}
    return all(is_ordered(*filter(None, map(times.get, order))) for order in _ORDERS)


class OsuReader(Reader):
    """Reads one stream group."""

    def __init__(self) -> None:
        self._table: _Table | None = None
        self._transport = TransportLines()
        self._marked = False
        """Whether fabbench's own marker says that a step is under way."""
        self._stated: dict[str, str | int] = {}
        """What that marker says of the step, and no table does."""

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        text = line.text
        if self._transport.read(text):
            return None if self._table is None else ()
        if "OSU" in text and (title := text_of.read_title(text)) is not None:
            return self._begin(title)
        if self._table is not None and (readings := self._inside(line, self._table)) is not None:
            return readings
        if text_of.is_invalid(text):
            self._opened().record.wrong += 1
            return ()
        if (sentence := text_of.read_failure(text)) is not None and ("osu_" in text or self._marked):
            return self._fail(sentence)
        return None

    @override
    def mark(self, marker: Marker) -> Sequence[Reading]:
        before = super().mark(marker)
        self._marked = marker.kind == "begin" and marker.facts.get("benchmark") == "osu"
        ranks = marker.facts.get("ranks", "")
        self._stated = {"ranks": int(ranks)} if self._marked and ranks.isdecimal() else {}
        return before

    @override
    def close(self) -> Sequence[Reading]:
        table, self._table = self._table, None
        transport, self._transport = self._transport, TransportLines()
        if table is None:
            return ()
        record = table.finish()
        record.facts = {**transport.facts(), **record.facts}
        record.hosts = frozenset(transport.nodes)
        record.evidence |= transport.evidence()
        return (record,)

    # ------------------------------------------------------------ lines

    def _begin(self, title: Title) -> Sequence[Reading]:
        """Begin a table. What MPI said before it belongs to it, unless another table stands before."""
        before = self.close() if self._table is not None else ()
        record = Record(
            benchmark="osu", case=title.case, facts={**self._stated, **title.facts}, finished=None
        )
        self._table = _Table(record, title.one_way)
        return before

    def _inside(self, line: Line, table: _Table) -> Sequence[Reading] | None:
        text, record = line.text, table.record
        if text.lstrip().startswith("#"):
            if (facts := text_of.read_facts(text)) is not None:
                record.facts |= facts
            elif (columns := text_of.read_columns(text)) is not None:
                self._take(columns, text, table)
            return ()
        if not table.columns or not text_of.seems_row(text, table.columns):
            return self._failed_inside(text)
        row = text_of.read_row(text, table.columns)
        if row is None:
            record.damaged.append(Damaged(line.number, text))
            return ()
        return table.row(row, line)

    def _take(self, columns: tuple[Column | None, ...], text: str, table: _Table) -> None:
        """Begin rows under columns; those that are not known are named."""
        table.columns = columns
        if None in columns:
            table.record.findings.append(
                Finding(
                    code="unknown-column",
                    severity=Severity.NOTE,
                    meaning="The table has a column that is not read.",
                    line=text.strip()[:LONGEST_QUOTE],
                )
            )

    def _failed_inside(self, text: str) -> Sequence[Reading] | None:
        sentence = text_of.read_failure(text)
        return self._fail(sentence) if sentence is not None else None

    def _fail(self, sentence: str) -> Sequence[Reading]:
        record = self._opened().record
        if sentence not in record.failures:
            record.failures.append(sentence)
        return ()

    def _opened(self) -> _Table:
        """Return the table that is open, or one of which nothing but an error is known."""
        if self._table is None:
            self._table = _Table(Record(benchmark="osu", finished=None))
        return self._table
