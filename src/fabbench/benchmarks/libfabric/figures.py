"""The rows of fi_pingpong and the fabtests: sizes and counts whose digits are truncated, all from one time. Pure.

Sizes and totals are 1024-based and truncated to one decimal digit, or none from 10 up: 1500 bytes are
``1.4k`` (`size_str`). Counts are 1000-based and truncated (`cnt_str`). Times and rates have two decimals, and
usec/xfer is a C float. The code is the same in util/pingpong.c and fabtests/common/shared.c.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fabbench.benchmarks.consistency import ANYTHING, Printed, printed, product
from fabbench.benchmarks.engine import Column
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
}  # name in a header → column. None is read by the engine alone: `measure` does.

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


class Measured(NamedTuple):
    """What a row measured."""

    size: int
    exact: bool  # whether no other size prints like this
    figures: Mapping[str, Printed]  # the metrics in base units, without those that are rounded to zero or not numbers


def measure(cells: Mapping[str, str], size: int | None, count: int | None, program: str) -> Measured | None:
    """Return what a row measured; None if its figures contradict each other.

    `size` and `count` are those of the command line. The other columns narrow down a truncated size: total = count x
    size x transfers, and MB/sec x usec/xfer.
    """
    sizes, total = size_range(cells["bytes"], size), size_range(cells["total"])
    counts = count_range(cells["count"], count)
    seconds, elapsed = printed(cells["us"], -6), printed(cells["elapsed"].removesuffix("s"))
    bits, per_second = cells.get("gigabits"), printed(cells.get("rate", "nan"), 6)
    bandwidth = printed(cells["megabytes"], 6) if bits is None else printed(bits, 9).times(0.125)
    slack = abs(seconds.value) * 2.0**-23  # a C float has 24 bits, whatever decimals are printed
    each, (low, high) = Printed(seconds.value, seconds.low - slack, seconds.high + slack), sizes
    if ANYTHING not in {bandwidth, each} and math.isfinite(bandwidth.value) and math.isfinite(each.value):
        product_low, product_high = product(bandwidth, each)
        low, high = max(low, math.ceil(product_low)), min(high, math.floor(product_high))
    one = product(per_second, each)
    if not one[0] <= 1 <= one[1]:
        return None
    for times in transfers(program):
        fewest, most = counts.low * times.low, counts.high * times.high
        least, greatest = max(low, -(-total.low // max(most, 1))), min(high, total.high // fewest) if fewest else high
        lasting = ANYTHING in {each, elapsed} or elapsed.overlaps(each.low * fewest, each.high * most)
        if lasting and least <= greatest:
            break
    else:
        return None
    # ``64k``, or a half such as ``1.5m`` as in ``-S all``, is exact unless shown otherwise.
    plain = least == sizes.low and cells["bytes"].rstrip("kmg").partition(".")[2] in {"", "5"}
    # usec/xfer is the latency of one way, or the time per transfer of many.
    time = "latency" if (_ONE_WAY.search(program) if program else times == _TWICE) else "time"
    named = (
        *((time, cells["us"], seconds), ("bandwidth", bits or cells["megabytes"], bandwidth)),
        ("message_rate", cells.get("rate", "nan"), per_second),
    )
    figures = {metric: value for metric, cell, value in named if cell[0].isdigit() and cell.strip("0.")}
    return Measured(least, plain or least == greatest, figures)
