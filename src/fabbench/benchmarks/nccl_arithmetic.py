"""Whether the figures of a row fit each other, within what nccl-tests prints of them. Pure."""

from fabbench.benchmarks.nccl_rows import DTYPE_BYTES, Row
from fabbench.model import Point

_ONE_DIGIT = 1e15
"""Bandwidths from here on (B/s) are printed with one digit."""


def plausible(row: Row, rounding: float) -> bool:
    """Tell whether a row's figures fit each other: demanded of rows that were put together from pieces."""
    unit = row.elements * DTYPE_BYTES[row.dtype]
    if (unit and row.size % unit) or (not unit and row.size):
        return False
    return all(
        consistent(point, rounding) and _bus_fits(*point.values[1:3])
        for point in row.points
        if "stat" not in point.labels
    )


def _bus_fits(algbw: float, busbw: float) -> bool:
    """Tell whether busbw is 0 (one rank), or between half and twice of algbw (two ranks or more)."""
    return not busbw or 0.47 * algbw - 1.1e7 <= busbw <= 2.06 * algbw + 1.1e7


def consistent(point: Point, rounding: float) -> bool:
    """Tell whether algbw is between half of and the whole of size / time, within what is printed.

    Half of it, for the old formulas and two ranks; 0.01 GB/s and `rounding` are the print's resolution.
    """
    time, algbw = point.values[:2]
    if algbw >= _ONE_DIGIT:
        return True
    low = 0.45 * point.size / (time * 1.001 + rounding)
    high = point.size * 1.06 / max(time * 0.999 - rounding, 1e-12)
    return low - 6e6 <= algbw <= high + 6e6
