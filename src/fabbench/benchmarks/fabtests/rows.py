"""Headers and rows of the fabtests' tables, since 2014. Pure.

``[name] bytes [xfers] iters total time RATE usec/xfer [Mxfers/sec]``. RATE is Gb/sec (1e9 bits per second)
until 2016-02 and MB/sec (1e6 bytes per second) since; Mxfers/sec was added after MB/sec, and `xfers` removed
in 2014-10. Machine-readable rows (``-m``) have all digits: ``- { xfer_size: 64, iterations: 10000, … }``.
From `show_perf` and `show_perf_mr` in fabtests/common/shared.c.
"""

import re
from functools import cache
from typing import NamedTuple

from fabbench.benchmarks.consistency import is_remains
from fabbench.benchmarks.libfabric.facts import (
    COUNT,
    REAL,
    SIZE,
    PrintedRow,
    Range,
    Size,
    by_product,
    by_total,
    known_size,
    number,
    sizes_of,
)
from fabbench.model.patterns import lazy
from fabbench.model.units import RATE_UNITS

_REAL_MR = r"(?:\d+\.\d{6}|-?inf|-?nan)"
_HEADER = lazy(
    r"\s*(?P<name>name\s+)?bytes\s+(?P<xfers>xfers\s+)?iters\s+total\s+time\s+(?P<unit>MB/sec|Gb/sec)\s+usec/xfer"
    r"(?P<rate>\s+Mxfers/sec)?\s*"
)
_MACHINE = lazy(
    r"\s*(?:- )?\{ xfer_size: (?P<size>\d+), iterations: (?P<iters>\d+), total: (?P<total>\d+), "
    rf"time: (?P<time>{_REAL_MR}), (?P<unit>MB|Gb)/sec: (?P<bandwidth>{_REAL_MR}), "
    rf"usec/xfer: (?P<latency>{_REAL_MR})(?:(?:, )?Mxfers/sec: (?P<rate>{_REAL_MR}))? \}}\s*"
)
_REST = lazy(rf".*\s{REAL}s\s*{REAL}\s*{REAL}(?:\s*{REAL})?\s*|.*usec/xfer: [^{{}}]*\}}\s*")
_MACHINE_START = lazy(r"\s*(?:- )?\{ xfer_size:.*")


class FabtestLayout(NamedTuple):
    """The columns of a table."""

    name: bool = False
    xfers: bool = False
    unit: str = "MB/sec"
    rate: bool = True


class FabtestRow(NamedTuple):
    """The tokens of one row, as printed."""

    size: str
    iters: str
    total: str
    time: str
    bandwidth: str
    latency: str
    rate: str = ""
    name: str = ""
    xfers: str = ""
    unit: str = "MB/sec"
    machine: bool = False  # whether it is machine-readable: nothing is truncated

    def text(self, name_width: int = 50) -> str:
        """Return the row of a table exactly as the program prints it."""
        before = f"{self.name:<{name_width}}" if self.name else ""
        xfers = f"{self.xfers:<8}" if self.xfers else ""
        rate = f"{self.rate:>11}" if self.rate else ""
        return (
            f"{before}{self.size:<8}{xfers}{self.iters:<8}{self.total:<8}{self.time:>8}s"
            f"{self.bandwidth:>10}{self.latency:>11}{rate}"
        )


def read_header(text: str) -> FabtestLayout | None:
    """Read the header of a table; None for any other text."""
    match = _HEADER.fullmatch(text)
    return (
        FabtestLayout(bool(match["name"]), bool(match["xfers"]), match["unit"], bool(match["rate"])) if match else None
    )


def read_row(text: str, layout: FabtestLayout) -> FabtestRow | None:
    """Read a complete row of a table; None for any other text."""
    match = _pattern(layout).fullmatch(text)
    return _row(match, layout.unit) if match else None


def read_machine_row(text: str) -> FabtestRow | None:
    """Read a complete machine-readable row; None for any other text."""
    match = _MACHINE.fullmatch(text)
    return _row(match, f"{match['unit']}/sec", machine=True) if match else None


def _row(match: re.Match[str], unit: str, *, machine: bool = False) -> FabtestRow:
    cells = match.groupdict(default="")
    return FabtestRow._make([*(cells.get(name, "") for name in FabtestRow._fields[:-2]), unit, machine])


def is_exact(row: FabtestRow, text: str) -> bool:
    """Return whether a row of a table has exactly the program's layout."""
    return text.strip() in {row.text(), row.text(10)}


def is_rest(text: str) -> bool:
    """Return whether this ends like a row: the remains of one without its beginning."""
    return _REST.fullmatch(text) is not None


def row_size(row: FabtestRow, *, requested: int | None, iterations: int | None, times: Range) -> Size:
    """Return the size that a row measured: see `known_size`."""
    if row.machine:
        return Size(int(row.size), exact=True)
    product = by_product(row.bandwidth, row.latency, megabytes=_megabytes(row))
    others = (by_total(row.total, row.iters, requested=iterations, times=times), product)
    return known_size(row.size, requested=requested, others=others)


def fits(row: FabtestRow, size: Size, *, iterations: int | None, times: Range) -> bool:
    """Return whether the figures of a row are consistent, within their printed precision: see `row_size`."""
    figures = PrintedRow(row.iters, row.total, row.time, row.bandwidth, row.latency, row.rate)
    return figures.fits(sizes_of(row.size, size), requested=iterations, times=times, megabytes=_megabytes(row))


def measured(row: FabtestRow, *, one_way: bool) -> dict[str, float]:
    """Return the row's metrics in base units, without those that are rounded to zero or not numbers.

    `one_way`: usec/xfer is half a round trip. Otherwise it is the time per transfer, with many in flight.
    """
    megabytes = row.unit == "MB/sec"
    rate = number(row.bandwidth, "e6" if megabytes else "e9")
    values = {
        "latency" if one_way else "time": number(row.latency, "e-6"),
        "bandwidth": rate if megabytes or rate is None else rate / 8,
        "message_rate": number(row.rate, "e6") if row.rate else None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _megabytes(row: FabtestRow) -> float:
    return RATE_UNITS[row.unit.removesuffix("ec")] / RATE_UNITS["MB/s"]


def is_damaged(text: str, layout: FabtestLayout | None) -> bool:
    """Return whether this is the remains of a row."""
    if layout is None or _MACHINE_START.fullmatch(text):
        return _MACHINE_START.fullmatch(text) is not None
    cells = text.split()
    # A name alone could be any word: the size identifies a row.
    return (not layout.name or len(cells) > 1) and is_remains(cells, _cells(layout))


@cache
def _cells(layout: FabtestLayout) -> tuple[re.Pattern[str], ...]:
    cells = [SIZE, COUNT, SIZE, f"{REAL}s", REAL, REAL]
    if layout.rate:
        cells.append(REAL)
    if layout.xfers:
        cells.insert(1, COUNT)
    if layout.name:
        cells.insert(0, r"\S+")
    return tuple(map(re.compile, cells))


@cache
def _pattern(layout: FabtestLayout) -> re.Pattern[str]:
    name, xfers = r"(?P<name>\S+)\s+" if layout.name else "", rf"\s+(?P<xfers>{COUNT})" if layout.xfers else ""
    # Two decimals show where a number ends: one that fills its column touches the one before.
    rate = rf"\s*(?P<rate>{REAL})" if layout.rate else ""
    return re.compile(
        rf"\s*{name}(?P<size>{SIZE}){xfers}\s+(?P<iters>{COUNT})\s+(?P<total>{SIZE})\s+(?P<time>{REAL})s"
        rf"\s*(?P<bandwidth>{REAL})\s*(?P<latency>{REAL}){rate}\s*"
    )
