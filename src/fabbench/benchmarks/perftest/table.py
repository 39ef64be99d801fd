"""One table of perftest's while its rows are read."""

from fabbench.benchmarks.perftest import arithmetic, findings
from fabbench.benchmarks.perftest.found import Found
from fabbench.benchmarks.perftest.points import Kind, numbers, points
from fabbench.benchmarks.perftest.tables import Damage, Layout, Row, damage, read_row
from fabbench.model import Damaged, Line, Point


class Table:
    """Reads the rows below one header, or below those of two processes that print in turn."""

    def __init__(self, layout: Layout, kind: Kind, found: Found, *, indent: str, ruled: bool) -> None:
        self.rows = 0
        self.copies = 1
        self._layouts = [layout]
        self._kind = kind
        self._found = found
        self._indent = _indent(indent)
        self._ruled = ruled
        self._timed = True
        self._closed = False
        self._pieces: list[Line] = []
        self._sizes: set[int] = set()
        self._seen: set[Row] = set()
        stats = {column.stat for column in layout.columns if column.metric == "latency"}
        if "min" in stats and "median" not in stats:
            found.find(findings.OLD_LAYOUT)
        if any(column.factor is None for column in layout.columns):
            self.without_times()

    def without_times(self) -> None:
        """Leave times out, as their unit is not known."""
        if any(layout.has("latency") for layout in self._layouts):
            self._timed = False
            self._found.find(findings.CYCLES)

    def another(self, layout: Layout, *, ruled: bool) -> None:
        """Take in the header of another process that prints into the same text."""
        self._ruled = self._ruled or ruled
        self._kind = self._kind._replace(side="")
        if layout not in self._layouts:
            self._layouts.append(layout)

    @property
    def finished(self) -> bool | None:
        """Whether the closing rule was seen. None: there is none, as in an excerpt or an endless run."""
        if self._closed:
            return True
        endless = self.rows > 1 and len(self._sizes) == 1 and self.copies == 1
        return None if endless or not self._ruled or not self.rows else False

    # ------------------------------------------------------------ rows

    def row(self, line: Line) -> list[Point] | None:
        """Read a line: the points of a whole row; nothing of a damaged one; None for any other line."""
        row = self._whole(line.text)
        if row is None:
            return self._damaged(line)
        fits = arithmetic.row_fits(row)
        if self._closed and self.copies == 1 and not fits:
            return None
        if self._pieces and not _indent(line.text) and self._indent:
            # The second half of a row that was torn inside its size would pass for a row.
            self._found.damaged.append(Damaged(line.number, line.text))
            self.interrupt()
            return []
        self._pieces.clear()
        self._closed = False
        self._indent = _indent(line.text)
        self.rows += 1
        return self._take(row, line, fits=fits)

    def _whole(self, text: str) -> Row | None:
        rows = [row for layout in self._layouts if (row := read_row(text, layout)) is not None]
        if len(rows) > 1:
            # Two processes, two units: only arithmetic tells whose row it is.
            rows = [row for row in rows if arithmetic.row_fits(row)]
        return rows[0] if len(rows) == 1 else None

    def _damaged(self, line: Line) -> list[Point] | None:
        """Note what is left of a row."""
        if self._closed and self.copies == 1:
            return None
        kind = max(damage(line.text, layout) for layout in self._layouts)
        if kind is Damage.NONE or (kind is Damage.POSSIBLE and _indent(line.text) != self._indent):
            return None
        if kind is Damage.POSSIBLE:
            self._pieces.append(line)
        if kind is Damage.CERTAIN or self._indent:
            self._found.damaged.append(Damaged(line.number, line.text))
        return []

    def _take(self, row: Row, line: Line, *, fits: bool | None) -> list[Point]:
        kind = self._kind
        average, rate = row.cell("latency"), row.cell("tps")
        if average is not None and rate is not None:
            way = arithmetic.way_of(average, rate)
            if kind.way and way != kind.way and average and rate:
                self._found.find(findings.duration_mismatch(line.text.strip()))
            kind = kind._replace(way=kind.way or way)
        if row.layout.has("latency") and not kind.way:
            self._found.fact("way", "ambiguous")
            self._found.find(findings.AMBIGUOUS_WAY)
        if fits is False:
            self._found.find(findings.mismatch(row, line.text.strip()))
        if self.copies > 1 and row in self._seen:
            self._found.find(findings.BOTH_SIDES)
        if self.copies > 1:
            self._seen.add(row)
        self._sizes.add(row.size)
        self._found.fact("iterations", str(row.iterations))
        busy = row.cell("cpu_util")
        if busy is not None:
            self._found.fact("cpu_util", str(busy))
        measured = numbers(row)
        if not self._timed:
            measured = [number._replace(value=None) for number in measured]
        new = points(row.size, measured, kind, service_level=row.sl)
        self._found.points += [(line.number, point) for point in new]
        return new

    # ------------------------------------------------------------ what ends it

    def rule(self) -> None:
        """Take in a rule: below rows, it is the table's end."""
        if self.rows:
            self._closed = True

    def interrupt(self) -> None:
        """Something else than a row comes: what may have been a row that stops short was one."""
        for piece in self._pieces:
            row = Damaged(piece.number, piece.text)
            if row not in self._found.damaged:
                self._found.damaged.append(row)
        self._pieces.clear()

    def end(self) -> None:
        """End of the text."""
        self.interrupt()


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
