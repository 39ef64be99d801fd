"""Headers and rows of the fabtests' tables, since 2014. Pure.

``[name] bytes [xfers] iters total time RATE usec/xfer [Mxfers/sec]``. RATE is Gb/sec (1e9 bits per second)
until 2016-02 and MB/sec (1e6 bytes per second) since; Mxfers/sec came after MB/sec, and `xfers` went in
2014-10. Machine readable rows (``-m``) have every digit: ``- { xfer_size: 64, iterations: 10000, … }``. From
`show_perf` and `show_perf_mr` in fabtests/common/shared.c.
"""

import re
from functools import cache
from typing import NamedTuple

from fabbench.benchmarks.libfabric.printed import (
    COUNT,
    REAL,
    REAL_CUT,
    SIZE,
    SIZE_CUT,
    Range,
    Size,
    by_product,
    by_total,
    known_size,
    number,
)
from fabbench.units import RATE_UNITS

_RATES = {"MB/sec": "MB/s", "Gb/sec": "Gb/s"}
_REAL_MR = r"(?:\d+\.\d{6}|-?inf|-?nan)"
_HEADER = re.compile(
    r"\s*(?P<name>name\s+)?bytes\s+(?P<xfers>xfers\s+)?iters\s+total\s+time\s+(?P<unit>MB/sec|Gb/sec)\s+usec/xfer"
    r"(?P<rate>\s+Mxfers/sec)?\s*"
)
_WHOLE_HEADER = "bytes iters total time MB/sec usec/xfer Mxfers/sec"
_MACHINE = re.compile(
    r"\s*(?:- )?\{ xfer_size: (?P<size>\d+), iterations: (?P<iters>\d+), total: (?P<total>\d+), "
    rf"time: (?P<time>{_REAL_MR}), (?P<unit>MB|Gb)/sec: (?P<bandwidth>{_REAL_MR}), "
    rf"usec/xfer: (?P<latency>{_REAL_MR})(?:(?:, )?Mxfers/sec: (?P<rate>{_REAL_MR}))? \}}\s*"
)
_REST = re.compile(rf".*\s{REAL}s\s*{REAL}\s*{REAL}(?:\s*{REAL})?\s*|.*usec/xfer: [^{{}}]*\}}\s*")
_MACHINE_START = re.compile(r"\s*(?:- )?\{ xfer_size:.*")


class Layout(NamedTuple):
    """Which columns a table has."""

    name: bool = False
    xfers: bool = False
    unit: str = "MB/sec"
    rate: bool = True


class Row(NamedTuple):
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
    machine: bool = False
    """Whether it is machine readable: nothing is cut away."""

    def text(self, name_width: int = 50) -> str:
        """Write a row of a table exactly as the program does."""
        before = f"{self.name:<{name_width}}" if self.name else ""
        xfers = f"{self.xfers:<8}" if self.xfers else ""
        rate = f"{self.rate:>11}" if self.rate else ""
        return (
            f"{before}{self.size:<8}{xfers}{self.iters:<8}{self.total:<8}{self.time:>8}s"
            f"{self.bandwidth:>10}{self.latency:>11}{rate}"
        )


def read_header(text: str) -> Layout | None:
    """Read a table's header; one that is cut must have three columns, and only the newest can be meant."""
    match = _HEADER.fullmatch(text)
    if match is not None:
        return Layout(bool(match["name"]), bool(match["xfers"]), match["unit"], bool(match["rate"]))
    words = " ".join(text.split())
    unnamed = words.removeprefix("name ")
    if unnamed.count(" ") >= 2 and _WHOLE_HEADER.startswith(unnamed):
        return Layout(name=unnamed != words)
    return None


def read_row(text: str, layout: Layout) -> Row | None:
    """Read a whole row of a table; None for anything else."""
    match = _patterns(layout)[0].fullmatch(text)
    return _row(match, layout.unit) if match else None


def read_machine_row(text: str) -> Row | None:
    """Read a whole machine readable row; None for anything else."""
    match = _MACHINE.fullmatch(text)
    return _row(match, f"{match['unit']}/sec", machine=True) if match else None


def _row(match: re.Match[str], unit: str, *, machine: bool = False) -> Row:
    found = match.groupdict(default="")
    return Row._make([*(found.get(name, "") for name in Row._fields[:-2]), unit, machine])


def is_exact(row: Row, text: str) -> bool:
    """Whether a row of a table is laid out exactly as the program does it."""
    return text.strip() in {row.text(), row.text(10)}


def is_rest(text: str) -> bool:
    """Whether this ends as a row does: what is left of one that lost its beginning."""
    return _REST.fullmatch(text) is not None


def may_be_cut(text: str, layout: Layout | None) -> bool:
    """Whether this could be a row with its end missing."""
    if _MACHINE_START.fullmatch(text):
        return True
    return (
        layout is not None and bool(text.strip()) and any(cut.fullmatch(text) for cut in _patterns(layout)[1])
    )


def joined(first: str, second: str, layout: Layout | None) -> str | None:
    """Put the two pieces of a torn row together; None unless they are plainly of one row.

    That is the program's exact layout, and figures that fit each other.
    """
    whole = (first + second).strip()
    row = read_machine_row(whole)
    if row is not None:
        return whole
    row = read_row(whole, layout) if layout is not None else None
    if row is None or not is_exact(row, whole):
        return None
    return whole if fits(row, row_size(row, asked=None, iterations=None, times=(1, 2)).value) else None


def row_size(row: Row, *, asked: int | None, iterations: int | None, times: Range) -> Size:
    """Say which size a row measured: see `known_size`."""
    if row.machine:
        return Size(int(row.size), exact=True)
    others = (by_total(row.total, row.iters, asked=iterations, times=times), _product(row))
    return known_size(row.size, asked=asked, others=others)


def fits(row: Row, size: int) -> bool:
    """Whether rate times usec/xfer is the size again, as far as their rounding tells."""
    low, high = _product(row)
    return low * 0.98 <= size <= high * 1.02


def measured(row: Row) -> dict[str, float]:
    """Give the row's metrics in base units, less those that the print left nothing of."""
    megabytes = row.unit == "MB/sec"
    rate = number(row.bandwidth, "e6" if megabytes else "e9")
    values = {
        "latency": number(row.latency, "e-6"),
        "bandwidth": rate if megabytes or rate is None else rate / 8,
        "message_rate": number(row.rate, "e6") if row.rate else None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _product(row: Row) -> Range:
    return by_product(row.bandwidth, row.latency, megabytes=RATE_UNITS[_RATES[row.unit]] / RATE_UNITS["MB/s"])


@cache
def _patterns(layout: Layout) -> tuple[re.Pattern[str], tuple[re.Pattern[str], ...]]:
    """Give the pattern of a whole row, and those of a row that ends inside each of its columns."""
    columns = [
        (rf"\s*(?P<size>{SIZE})", rf"\s*{SIZE_CUT}"),
        (rf"\s+(?P<iters>{COUNT})", rf"\s+(?:{COUNT})?"),
        (rf"\s+(?P<total>{SIZE})", rf"\s+(?:{SIZE_CUT})?"),
        (rf"\s+(?P<time>{REAL})", rf"\s+{REAL_CUT}"),
        (rf"s\s*(?P<bandwidth>{REAL})", rf"s\s*{REAL_CUT}"),
        # Two decimals tell where a number ends: one that fills its column touches the one before.
        (rf"\s*(?P<latency>{REAL})", rf"\s*{REAL_CUT}"),
    ]
    if layout.rate:
        columns.append((rf"\s*(?P<rate>{REAL})", rf"\s*{REAL_CUT}"))
    if layout.xfers:
        columns.insert(1, (rf"\s+(?P<xfers>{COUNT})", rf"\s+(?:{COUNT})?"))
    wholes = [whole for whole, _ in columns]
    cuts = [cut for _, cut in columns]
    before = ""
    if layout.name:
        # A name alone could be any word: a row is known by its size.
        before, wholes[0], cuts[0] = r"\s*(?P<name>\S+)", rf"\s+(?P<size>{SIZE})", rf"\s+{SIZE_CUT}"
    unnamed = [re.sub(r"\?P<\w+>", "?:", whole) for whole in (before, *wholes)]
    return (
        re.compile(before + "".join(wholes) + r"\s*"),
        tuple(re.compile("".join(unnamed[: index + 1]) + cut + r"\s*") for index, cut in enumerate(cuts)),
    )
