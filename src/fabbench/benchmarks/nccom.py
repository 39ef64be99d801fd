"""AWS Neuron's nccom-test: collectives between NeuronCores. Read only: fabbench does not start it.

Its GB are 2³⁰ or 10⁹ bytes, by version: 33554432 bytes in 768 us were printed as 40.69 GB/s, and 33554432 bytes in
894.24 us as 37.52 GB/s (AWS Neuron's documentation). The rows show which.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from fabbench.benchmarks import Benchmark, Reader, Reading, Signature
from fabbench.benchmarks.consistency import (
    ALL_REDUCE,
    GATHERING,
    SAME,
    Printed,
    choose_formula,
    is_damaged_row,
    printed,
    ratios,
)
from fabbench.model.compat import override
from fabbench.model.log import Damaged, Finding, Line, Point, Record, Severity
from fabbench.model.patterns import lazy

_GIB, _GB = float(1 << 30), 1e9
_HEADER = lazy(r"\s*size\(B\)\s+count\(elems\)\s+type\s+time(?::avg)?\(us\)\s+algbw\(GB/s\)\s+busbw\(GB/s\)\s*")
_COUNT, _FIGURE = lazy(r"\d{1,18}", re.ASCII), lazy(r"\d+(?:\.\d+)?", re.ASCII)
_CELLS = (_COUNT, _COUNT, lazy(r"[a-z][a-z0-9_]*", re.ASCII), _FIGURE, _FIGURE, _FIGURE)
_AVERAGE = lazy(r"\s*Avg bus bandwidth:\s*(\d+\.\d+)\s?GB/s\s*", re.ASCII)
_SHAPES = (ALL_REDUCE, GATHERING, SAME)  # the table does not name its collective


@dataclass(slots=True)
class _NccomTable:
    record: Record = field(default_factory=lambda: Record(benchmark="nccom", case="nccom-test"))
    unit: float = 0.0  # bytes of a GB; 0: no row has shown it
    busbws: list[Printed] = field(default_factory=list)

    def row(self, line: Line) -> Sequence[Reading]:
        """Read a row, or what is left of one. A row that contradicts itself is damaged."""
        cells = line.text.split()
        if len(cells) != len(_CELLS) or not all(kind.fullmatch(cell) for kind, cell in zip(_CELLS, cells, strict=True)):
            return self.damage(line)
        size, count = int(cells[0]), int(cells[1])
        # Trailing zeros may be omitted.
        time, algbw, busbw = (printed(cell, decimals=2 if "." in cell else 0) for cell in cells[3:])
        for unit in (self.unit,) if self.unit else (_GB, _GIB):
            allowed = ratios(size, time.times(1e-6), algbw.times(unit), busbw.times(unit))
            if allowed.share_low <= 1 <= allowed.share_high:
                break
        else:
            return self.damage(line)
        # The table names neither its collective nor its ranks.
        if (size % count if count else size) or choose_formula([allowed], _SHAPES, None) is None:
            return self.damage(line)
        # A rate of few digits may be in either unit.
        self.unit = self.unit or (unit if allowed.share_high < 1.05 * allowed.share_low else 0.0)
        values = (time.value * 1e-6, algbw.value * unit, busbw.value * unit)
        point = Point(size, {"dtype": cells[2]}, ("time", "algbw", "busbw"), values)
        self.busbws.append(busbw)
        self.record.points.append(point)
        return (point,)

    def damage(self, line: Line) -> Sequence[Reading]:
        self.record.damaged.append(Damaged(line.number, line.text))
        return ()

    def average(self, line: Line, cell: str) -> None:
        """Compare the rows with the printed mean: documents quote some of the rows, and the mean of all."""
        count = max(len(self.busbws), 1)
        low, high = sum(busbw.low for busbw in self.busbws), sum(busbw.high for busbw in self.busbws)
        if printed(cell).overlaps(low / count, high / count):
            self.record.finished = True
            return
        self.record.finished = None
        self.record.findings.append(
            Finding(
                code="average-mismatch",
                severity=Severity.WARNING,
                meaning="The printed average is not that of the rows: rows are missing or were altered.",
                line=line.text.strip(),
            )
        )


class NccomReader(Reader):
    """Reads the tables of one stream group."""

    def __init__(self) -> None:
        self._table: _NccomTable | None = None

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        if "size(B)" in line.text and _HEADER.fullmatch(line.text):
            before = self.close()
            self._table = _NccomTable()
            return before
        if self._table is None:
            return None
        if (match := _AVERAGE.fullmatch(line.text)) is not None:
            self._table.average(line, match[1])
            return ()
        return self._table.row(line) if is_damaged_row(line.text.split(), _CELLS) else None

    @override
    def close(self) -> Sequence[Reading]:
        table, self._table = self._table, None
        return () if table is None else (table.record,)


class Nccom(Benchmark):
    """The benchmark ``nccom``."""

    name = "nccom"
    versions = ()
    resolution = MappingProxyType({"busbw": (0.01 * _GIB,), "algbw": (0.01 * _GIB,), "time": (1e-8,)})

    signatures = (
        Signature("count(elems)", r"(?: {4})?size\(B\)\s+count\(elems\)\s+type\s"),
        Signature("Avg bus bandwidth:", r"Avg bus bandwidth:", begins=False),
    )

    first_words = ("size(B)",)

    @override
    def reader(self) -> NccomReader:
        return NccomReader()


BENCHMARK = Nccom()
