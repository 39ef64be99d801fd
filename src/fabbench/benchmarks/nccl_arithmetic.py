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
        consistent(point, rounding) and point.values[2] <= 2.06 * point.values[1] + 1.1e7
        for point in row.points
        if "stat" not in point.labels
    )


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
