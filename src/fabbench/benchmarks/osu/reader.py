"""Reads tables of the OSU micro-benchmarks: title, column names, rows; and the transport that MPI reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fabbench.benchmarks import Reader, Reading
from fabbench.benchmarks.consistency import Printed, is_ordered, out_of_order, printed, stopped_early
from fabbench.benchmarks.mpi_transport import TransportLines
from fabbench.benchmarks.osu import text as osu_text
from fabbench.benchmarks.osu.text import NO_METRIC, SIZE, Column, Row, Title
from fabbench.model.compat import override
from fabbench.model.log import Damaged, Finding, Labels, Line, Marker, Point, Record, Severity
from fabbench.model.messages import LONGEST_QUOTE


@dataclass(slots=True)
class _Table:
    """One table while it is read."""

    record: Record
    one_way: bool = False
    end: int | None = None
    rates: bool = False
    columns: tuple[Column | None, ...] = ()
    stats: dict[str, Labels] = field(default_factory=dict)
    rows: list[tuple[int, Line, list[Point]]] = field(default_factory=list)

    def row(self, row: Row, line: Line) -> list[Point]:
        """Return the points of a row, one per statistic; none if it contradicts itself."""
        size, values = 0, dict[str, dict[str, Printed]]()
        for cell, column in zip(row.cells, self.columns, strict=True):
            if column is SIZE:
                size = int(cell)
            elif column is not None and column.metric not in {"", "check"}:
                metric = "latency" if column.metric == "time" and self.one_way else column.metric
                values.setdefault(column.stat, {})[metric] = printed(cell).times(column.factor)
        if not _fits(size, values):
            self.record.damaged.append(Damaged(line.number, line.text))
            return []
        self.record.wrong += row.wrong
        points = [
            Point(
                size,
                self.stats.setdefault(stat, {"stat": stat} if stat else {}),
                tuple(figures),
                tuple(each.value for each in figures.values()),
            )
            for stat, figures in values.items()
        ]
        self.rows.append((size, line, points))
        return points

    def finish(self) -> Record:
        """End the table: a row whose size does not fit the sweep is damaged."""
        wrong = set(out_of_order([size for size, _, _ in self.rows]))
        for at, (_, line, points) in enumerate(self.rows):
            if at in wrong:
                self.record.damaged.append(Damaged(line.number, line.text))
            else:
                self.record.points += points
        return self.record


def _fits(size: int, values: Mapping[str, Mapping[str, Printed]]) -> bool:
    main = values.get("", {})
    if {"bandwidth", "message_rate"} <= main.keys():
        rate = main["message_rate"].times(size)
        if not main["bandwidth"].overlaps(rate.low, rate.high):
            return False
    times = {stat: figures.get("time", figures.get("latency")) for stat, figures in values.items()}
    ascending = (("min", "", "max"), ("min-comm", "max-comm"), ("p50", "p90", "p95", "p99"))
    return all(is_ordered(*filter(None, map(times.get, stats))) for stats in ascending)


class OsuReader(Reader):
    """Reads one stream group."""

    def __init__(self) -> None:
        self._table: _Table | None = None
        self._transport = TransportLines()
        self._end: int | None = None  # the last size of the command line above; None: not known
        self._marked = False  # whether fabbench's own markers show that a step is in progress
        self._marked_facts: dict[str, str | int] = {}  # facts about the step that only that marker states

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        text = line.text
        if self._transport.read(text):
            return None if self._table is None else ()
        if "OSU" in text and (title := osu_text.read_title(text)) is not None:
            return self._begin(title)
        if self._table is not None and (readings := self._inside(line, self._table)) is not None:
            return readings
        if "osu_" in text and (end := osu_text.last_size(text)) is not None:
            self._end = end
        if osu_text.is_invalid(text):
            self._ensure_table().record.wrong += 1
            return ()
        if (sentence := osu_text.read_failure(text)) is not None and ("osu_" in text or self._marked):
            return self._fail(sentence)
        return None

    @override
    def mark(self, marker: Marker) -> Sequence[Reading]:
        before = super().mark(marker)
        self._marked = marker.kind == "begin" and marker.facts.get("benchmark") == "osu"
        ranks = marker.facts.get("ranks", "")
        self._marked_facts = {"ranks": int(ranks)} if self._marked and ranks.isdecimal() else {}
        return before

    @override
    def close(self) -> Sequence[Reading]:
        table, self._table = self._table, None
        transport, self._transport = self._transport, TransportLines()
        if table is None:
            return ()
        record = table.finish()
        largest = max((point.size for point in record.points), default=0)
        if table.end is not None and 0 < largest < table.end:
            record.incomplete = stopped_early(largest, table.end)
        record.facts = {**transport.facts(), **record.facts}
        record.hosts = frozenset(transport.nodes)
        record.evidence |= transport.evidence()
        return (record,)

    def _begin(self, title: Title) -> Sequence[Reading]:
        """Begin a table. MPI's text before it belongs to it, unless another table precedes."""
        before = self.close() if self._table is not None else ()
        record = Record(benchmark="osu", case=title.case, facts={**self._marked_facts, **title.facts}, finished=None)
        self._table, self._end = _Table(record, title.one_way, self._end), None
        return before

    def _inside(self, line: Line, table: _Table) -> Sequence[Reading] | None:
        text, record = line.text, table.record
        if text.lstrip().startswith("#"):
            if (facts := osu_text.read_facts(text)) is not None:
                record.facts |= facts
            elif "Message Rate Profile" in text:
                table.rates = True
            elif (columns := osu_text.read_columns(text, rates=table.rates)) is not None:
                self._begin_rows(columns, text, table)
            return ()
        if not table.columns or not osu_text.seems_row(text, table.columns):
            return self._fail(sentence) if (sentence := osu_text.read_failure(text)) is not None else None
        row = osu_text.read_row(text, table.columns)
        if row is None:
            record.damaged.append(Damaged(line.number, text))
            return ()
        return table.row(row, line)

    def _begin_rows(self, columns: tuple[Column | None, ...], text: str, table: _Table) -> None:
        # osu_get_mbw prints a second number without a name.
        table.columns = (*columns, NO_METRIC) if "get_multiple" in str(table.record.case) else columns
        if None in columns:
            table.record.findings.append(
                Finding(
                    code="unknown-column",
                    severity=Severity.NOTE,
                    meaning="The table has a column that is not read.",
                    line=text.strip()[:LONGEST_QUOTE],
                )
            )

    def _fail(self, sentence: str) -> Sequence[Reading]:
        record = self._ensure_table().record
        if sentence not in record.failures:
            record.failures.append(sentence)
        return ()

    def _ensure_table(self) -> _Table:
        """Return the open table, or a new one of which only an error is known."""
        if self._table is None:
            self._table = _Table(Record(benchmark="osu", finished=None))
        return self._table
