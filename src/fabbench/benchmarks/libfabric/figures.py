"""The rows of fi_pingpong and the fabtests: sizes and counts whose digits are truncated, all from one time. Pure.

Sizes and totals are 1024-based and truncated to one decimal digit, or none from 10 up: 1500 bytes are
``1.4k`` (`size_str`). Counts are 1000-based and truncated (`cnt_str`). Times and rates have two decimals, and
usec/xfer is a C float. The code is the same in util/pingpong.c and fabtests/common/shared.c.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fabbench.benchmarks.consistency import ANYTHING, Printed, c_float, printed, product
from fabbench.benchmarks.engine import Column, Row
from fabbench.model.patterns import lazy

_REAL = r"(?:\d{1,18}\.\d\d|-?inf|-?nan)"
_SIZE = r"\d{1,18}(?:\.\d)?[kmg]?"
_COUNT = r"\d{1,18}[kmb]?"
COLUMNS: Mapping[str, Column] = {
    "name": Column("name", cell=r"\S+", label="name"),
    "bytes": Column("bytes", cell=_SIZE),
    "xfers": Column(cell=_COUNT),
    "iters": Column("count", cell=_COUNT),
    "#sent": Column("count", cell=_COUNT, label="sent"),
    "#ack": Column("ack", cell=f"[=+-]{_COUNT}"),
    "total": Column("total", cell=_SIZE),
    "time": Column("elapsed", cell=f"{_REAL}s"),
    "mb/sec": Column("megabytes", cell=_REAL),
    "gb/sec": Column("gigabits", cell=_REAL),
    "usec/xfer": Column("us", cell=_REAL),
    "mxfers/sec": Column("rate", cell=_REAL),
}
"""Name in a header → column. None is read by the engine alone: `measure` does."""

_BINARY = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


class Range(NamedTuple):
    """The smallest and the largest number that a printed one may stand for."""

    low: int
    high: int


def count_range(cell: str, requested: int | None) -> Range:
    """Return the counts that print like this: only the one on the command line, if it does."""
    step = _DECIMAL[cell.lstrip("0123456789")]
    low = int(cell.rstrip("kmb")) * step
    return _requested(Range(low, low + step - 1), requested)


def size_range(cell: str, requested: int | None = None) -> Range:
    """Return the sizes in bytes that print like this: only the one on the command line, if it does."""
    base = _BINARY[cell[-1] if cell[-1] in _BINARY else ""]
    whole, _, digit = cell.rstrip("kmg").partition(".")
    tenth, start = int(digit or 0), int(whole) * base
    step = -(-(tenth + 1) * base // 10) if base > 1 and int(whole) < 10 else base
    return _requested(Range(start + -(-tenth * base // 10), start + step - 1), requested)


def _requested(printed_range: Range, requested: int | None) -> Range:
    low, high = printed_range
    return Range(requested, requested) if requested is not None and low <= requested <= high else printed_range


_ONE_WAY = lazy(r"pingpong|_lat")  # in names of programs that send one message at a time back and forth
_ANY, _ONCE, _TWICE = Range(1, 1 << 20), Range(1, 1), Range(2, 2)


def transfers(program: str) -> Sequence[Range]:
    """Return the fewest and the most transfers per iteration that a program may make, the likely ones first."""
    if "pingpong" in program:
        return (_TWICE,)
    # Newer programs have options to send both ways; some send several messages per iteration.
    several = (_ANY,) if not program or program.endswith(("_mt", "ubertest")) or "_efa_" in program else ()
    return (_ONCE, _TWICE, *several) if program else (_TWICE, _ONCE, *several)


def measure(row: Row, size: int | None, count: int | None, times: Range) -> tuple[int, bool] | None:
    """Return the size that a row measured, and whether it is exact; None if its figures contradict each other.

    `size` and `count` are those of the command line, `times` is one of `transfers`.
    The other columns narrow down a truncated size: total = count x size x times, and MB/sec x usec/xfer.
    """
    sizes, counts = size_range(row.cell("bytes"), size), count_range(row.cell("count"), count)
    total, us = size_range(row.cell("total")), c_float(printed(row.cell("us")))
    elapsed = printed(row.cell("elapsed").removesuffix("s"))
    rate = printed(row.cell("rate") or "nan")
    megabytes = printed(row.cell("megabytes") or row.cell("gigabits")).times(1.0 if row.cell("megabytes") else 125.0)
    fewest, most = counts.low * times.low, counts.high * times.high
    low, high = sizes
    if fewest:
        low, high = max(low, -(-total.low // most)), min(high, total.high // fewest)
    if ANYTHING not in {megabytes, us} and math.isfinite(megabytes.value) and math.isfinite(us.value):
        bytes_ = product(megabytes, us)
        low, high = max(low, math.ceil(bytes_[0])), min(high, math.floor(bytes_[1]))
    one = product(rate, us)
    lasting = ANYTHING in {us, elapsed} or elapsed.overlaps(us.low * fewest * 1e-6, us.high * most * 1e-6)
    if low > high or not one[0] <= 1 <= one[1] or not lasting:
        return None
    # ``64k``, or a half such as ``1.5m`` as in ``-S all``, is exact unless shown otherwise.
    plain = low == sizes.low and row.cell("bytes").rstrip("kmg").partition(".")[2] in {"", "5"}
    return low, plain or low == high


def figures(row: Row, program: str, times: Range) -> Mapping[str, Printed]:
    """Return the row's metrics in base units, without those that are rounded to zero or not numbers.

    usec/xfer is the latency of one way, or the time per transfer of many.
    """
    time = "latency" if (_ONE_WAY.search(program) if program else times == _TWICE) else "time"
    cells = ((time, "us", -6, 1.0), ("bandwidth", "megabytes", 6, 1.0), ("bandwidth", "gigabits", 9, 0.125))
    return {
        metric: printed(cell, exponent).times(factor)
        for metric, name, exponent, factor in (*cells, ("message_rate", "rate", 6, 1.0))
        if (cell := row.cell(name))[:1].isdigit() and cell.strip("0.")
    }
