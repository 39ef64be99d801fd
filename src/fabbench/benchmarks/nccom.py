"""AWS Neuron's nccom-test: collectives between NeuronCores. Read only: fabbench does not start it.

Its GB are 2³⁰ bytes: 33554432 bytes in 768 us are printed as 40.69 GB/s (AWS Neuron's documentation).
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
    RateCheck,
    is_damaged_row,
    printed,
    ratios,
)
from fabbench.model.compat import override
from fabbench.model.log import Damaged, Line, Point, Record
from fabbench.model.patterns import lazy

_GIB = float(1 << 30)
_HEADER = lazy(
    r"\s*size\(B\)\s+count\(elems\)\s+type\s+time(?::avg)?\(us\)\s+algbw\(GB/s\)\s+busbw\(GB/s\)\s*"
)
_COUNT, _FIGURE = lazy(r"\d{1,18}", re.ASCII), lazy(r"\d+(?:\.\d+)?", re.ASCII)
_CELLS = (_COUNT, _COUNT, lazy(r"[a-z][a-z0-9_]*", re.ASCII), _FIGURE, _FIGURE, _FIGURE)
_AVERAGE = lazy(r"\s*Avg bus bandwidth:\s*(\d+\.\d+)\s?GB/s\s*", re.ASCII)
_SHAPES = (ALL_REDUCE, GATHERING, SAME)
"""The table does not name its collective."""


def _number(cell: str) -> Printed:
    """Read a number rounded to two decimals, whose trailing zeros may be omitted."""
    return printed(cell, decimals=2 if "." in cell else 0)


@dataclass(slots=True)
class _NccomTable:
    """One table while it is read."""

    record: Record = field(default_factory=lambda: Record(benchmark="nccom", case="nccom-test"))
    busbws: list[Printed] = field(default_factory=list)
    rates: RateCheck[tuple[Line, Point]] = field(default_factory=RateCheck)

    def row(self, line: Line) -> Sequence[Reading]:
        """Read a row, or what is left of one. A row that contradicts itself is damaged."""
        cells = line.text.split()
        if len(cells) != len(_CELLS) or not all(
            kind.fullmatch(cell) for kind, cell in zip(_CELLS, cells, strict=True)
        ):
            return self.damage(line)
        size, count = int(cells[0]), int(cells[1])
        time, algbw, busbw = map(_number, cells[3:])
        allowed = ratios(size, time.times(1e-6), algbw.times(_GIB), busbw.times(_GIB))
        if (size % count if count else size) or not allowed.share_low <= 1 <= allowed.share_high:
            return self.damage(line)
        values = (time.value * 1e-6, algbw.value * _GIB, busbw.value * _GIB)
        point = Point(size, {"dtype": cells[2]}, ("time", "algbw", "busbw"), values)
        self.busbws.append(busbw)
        self.record.points.append(point)
        self.rates.fits((line, point), (allowed,))
        return (point,)

    def damage(self, line: Line) -> Sequence[Reading]:
        """Report a row that cannot be right."""
        self.record.damaged.append(Damaged(line.number, line.text))
        return ()

    def average(self, cell: str) -> None:
        """Compare the rows with the printed mean: a mismatch means that rows are missing."""
        count = max(len(self.busbws), 1)
        low, high = sum(busbw.low for busbw in self.busbws), sum(busbw.high for busbw in self.busbws)
        self.record.finished = printed(cell).meets(low / count, high / count)

    def finish(self) -> Record:
        """End the table: rows whose bus rate does not fit the others are damaged."""
        contradicting = self.rates.settle(_SHAPES, None)
        wrong = {id(point) for _, point in contradicting}
        self.record.points = [point for point in self.record.points if id(point) not in wrong]
        for line, _ in contradicting:
            self.damage(line)
        return self.record


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
            self._table.average(match[1])
            return ()
        return self._table.row(line) if is_damaged_row(line.text.split(), _CELLS) else None

    @override
    def close(self) -> Sequence[Reading]:
        table, self._table = self._table, None
        return () if table is None else (table.finish(),)


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
