"""Reads the rows of one table, into the results of one process."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fabbench.benchmarks.consistency import out_of_order, rows_after_restart
from fabbench.benchmarks.perftest import findings
from fabbench.benchmarks.perftest.table_formats import (
    Damage,
    PerftestLayout,
    PerftestRow,
    RowContext,
    damage,
    numbers,
    points,
    read_row,
)
from fabbench.benchmarks.perftest.text import FACTS
from fabbench.model.log import Damaged, Finding, Line, Point

_MAX_KEPT = 50  # at most this many failures and findings are kept


@dataclass(slots=True)
class ProcessResults:
    """What was read from the output of one process; the numbers are line numbers."""

    points: list[tuple[int, Point]] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)
    facts: dict[tuple[str, str], None] = field(default_factory=dict)  # each fact and value once, in order of appearance
    findings: list[Finding] = field(default_factory=list)
    failures: list[tuple[int, str]] = field(default_factory=list)
    wrong: int = 0

    def add_failure(self, sentence: str, line: Line) -> None:
        """Add an error once."""
        if len(self.failures) < _MAX_KEPT and sentence not in {known for _, known in self.failures}:
            self.failures.append((line.number, sentence))

    def add_finding(self, finding: Finding) -> None:
        """Add a finding once."""
        if len(self.findings) < _MAX_KEPT and finding not in self.findings:
            self.findings.append(finding)

    def add_fact(self, name: str, value: str) -> None:
        """Add a fact."""
        self.facts[name, value] = None

    def add_setup(self, setup: Mapping[str, str]) -> None:
        """Add the set-up as facts, given by its names in the text."""
        for name, value in setup.items():
            if name == "Transport type" and value.strip() == "IW":
                self.add_fact("transport", "iWARP")  # its connections are named as InfiniBand's are
            elif name in FACTS and not (name == "Connection type" and ("transport", "iWARP") in self.facts):
                self.add_fact(FACTS[name], value.partition("[")[0])


class PerftestTable:
    """Reads the rows below one header, or below those of two processes that print in turn."""

    def __init__(
        self, layout: PerftestLayout, context: RowContext, results: ProcessResults, *, indent: str, ruled: bool
    ) -> None:
        self.rows = 0
        self.copies = 1
        self.titled = False
        self._layouts = [layout]
        self._context = context
        self._results = results
        self._indent = _indent(indent)
        self._ruled = ruled
        self._timed = True
        self.closed = False  # whether the rule below its rows was read
        self._pieces: list[Line] = []
        self._sizes: set[int] = set()
        self._order: list[tuple[int, Line, list[Point]]] = []  # size, line and points of each row
        self._seen: set[PerftestRow] = set()
        stats = {column.stat for column in layout.columns if column.metric == "latency"}
        if "min" in stats and "median" not in stats:
            results.add_finding(findings.OLD_LAYOUT)
        if any(column.factor is None for column in layout.columns):
            self.leave_times_out()

    def leave_times_out(self) -> None:
        """Leave times out because their unit is unknown."""
        if any(layout.has("latency") for layout in self._layouts):
            self._timed = False
            self._results.add_finding(findings.CYCLES)

    def add_header(self, layout: PerftestLayout, *, ruled: bool) -> None:
        """Add the header of another process that prints into the same text."""
        self._ruled = self._ruled or ruled
        self._context = self._context._replace(side="")
        if layout not in self._layouts:
            self._layouts.append(layout)

    @property
    def finished(self) -> bool | None:
        """Return whether the closing rule was seen; None: not expected, as in excerpts or endless runs."""
        if self.closed:
            return True
        endless = self.rows > 1 and len(self._sizes) == 1 and self.copies == 1
        return None if endless or not self._ruled or not self.rows else False

    def row(self, line: Line) -> list[Point] | None:
        """Return the points of a complete row; none for a damaged one; None for any other line."""
        row = self._whole(line.text)
        if row is None:
            return self._damaged(line)
        fits = findings.row_is_consistent(row)
        if self.closed and self.copies == 1:
            # It belongs to another table, whose heading is missing.
            self._results.damaged.append(Damaged(line.number, line.text))
            return []
        if self._pieces and not _indent(line.text) and self._indent:
            # The second half of a row that was torn within its size would look like a row.
            self._results.damaged.append(Damaged(line.number, line.text))
            self.interrupt()
            return []
        self._pieces.clear()
        self.closed = False
        self._indent = _indent(line.text)
        self.rows += 1
        average, rate = row.cell("latency"), row.cell("tps")
        # The latency of a duration run must fit its round trips per second.
        way = findings.consistent_way(average, rate) if average and rate else self._context.way
        timed = not average or not rate or (way and self._context.way in {"", way})
        if fits is not False and findings.is_ordered(row) and timed:
            return self._add_row(row, line, way)
        self._results.damaged.append(Damaged(line.number, line.text))
        unit = findings.mismatch(row, line.text.strip())
        if unit is not None:
            self._results.add_finding(unit)
        return []

    def _whole(self, text: str) -> PerftestRow | None:
        rows = [row for layout in self._layouts if (row := read_row(text, layout)) is not None]
        if len(rows) > 1:
            # Two processes, two units: only arithmetic shows which one printed the row.
            rows = [row for row in rows if findings.row_is_consistent(row)]
        return rows[0] if len(rows) == 1 else None

    def _damaged(self, line: Line) -> list[Point] | None:
        if self.closed and self.copies == 1:
            return None
        context = max(damage(line.text, layout) for layout in self._layouts)
        if context is Damage.NONE or (context is Damage.POSSIBLE and _indent(line.text) != self._indent):
            return None
        if context is Damage.POSSIBLE:
            self._pieces.append(line)
        if context is Damage.CERTAIN or self._indent:
            self._results.damaged.append(Damaged(line.number, line.text))
        return []

    def _add_row(self, row: PerftestRow, line: Line, way: str) -> list[Point]:
        if row.layout.has("latency") and not way:
            self._results.add_fact("way", "ambiguous")
            self._results.add_finding(findings.AMBIGUOUS_WAY)
        if self.copies > 1:
            if row in self._seen:
                self._results.add_finding(findings.BOTH_SIDES)
            self._seen.add(row)
        self._sizes.add(row.size)
        self._results.add_fact("iterations", str(row.iterations))
        if (busy := row.cell("cpu_util")) is not None:
            self._results.add_fact("cpu_util", str(busy))
        measured = numbers(row)
        if not self._timed:
            measured = [number._replace(value=None) for number in measured]
        new = points(row.size, measured, self._context._replace(way=way), service_level=row.sl)
        self._results.points += [(line.number, point) for point in new]
        self._order.append((row.size, line, new))
        return new

    def interrupt(self) -> None:
        """Handle a line that is not a row: possible truncated rows before it count as damaged."""
        pieces = (Damaged(piece.number, piece.text) for piece in self._pieces)
        self._results.damaged += [piece for piece in pieces if piece not in self._results.damaged]
        self._pieces.clear()

    def end(self) -> None:
        """End the table: a row whose size does not fit the sweep is damaged."""
        self.interrupt()
        sizes = [size for size, _, _ in self._order] if self.copies == 1 else []
        # Below a title are the rows of one process; an excerpt may have those of several.
        wrong = {*out_of_order(sizes), *(rows_after_restart(sizes) if self.titled else ())}
        results, dropped = self._results, set[int]()
        for at in sorted(wrong):
            _, line, points = self._order[at]
            results.damaged.append(Damaged(line.number, line.text))
            dropped |= {id(point) for point in points}
        results.points = [entry for entry in results.points if id(entry[1]) not in dropped]


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
