"""Printed numbers → base units, and sizes → bytes: what depends on the version. Pure.

From the sources of 1.0.1 to 3.6 (perftest/common/utils.cu and the programs): point-to-point bandwidth is in
2^30 bytes a second up to 3.1.7, and in 1e9 from 3.2.5 on. The size of alltoall, fcollect and reducescatter is
one PE's block up to 3.0.6, the total in 3.1.7, the block again for the device programs of 3.2.5, and the
total from 3.3.9 on.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from fabbench.benchmarks.nvshmem import jobs
from fabbench.benchmarks.nvshmem.layouts import (
    ALL,
    GB,
    GIGABYTES,
    MICROSECONDS,
    V1,
    V2,
    V31,
    V32,
    V33,
    Eras,
    Row,
)

BINARY, DECIMAL, AMBIGUOUS = "GiB/s", "GB/s", "ambiguous"
"""Values of the fact `unit`."""
TOTAL, BLOCK = "total", "per-pe"
"""Values of the fact `size_means`."""

_EXPONENTS = {GIGABYTES: "e9", MICROSECONDS: "e-6", GB: "e9"}


def era_of(version: str) -> Eras:
    """Say how a version behaves; every way, where no version is known."""
    if not version:
        return ALL
    major, minor = (int(part) for part in version.split(".")[:2])
    if major < 2:
        return frozenset({V1})
    if major == 2 or (major, minor) == (3, 0):
        return frozenset({V2})
    if major == 3 and minor < 3:
        return frozenset({V31 if minor == 1 else V32})
    return frozenset({V33})


def unit_of(eras: Eras) -> str:
    """Say what point-to-point bandwidth is printed in."""
    units = {BINARY if era in {V1, V2, V31} else DECIMAL for era in eras}
    return units.pop() if len(units) == 1 else AMBIGUOUS


def size_of(eras: Eras, job: str | None) -> str:
    """Say what the size of a collective that gathers is."""
    blocks = {V1, V2} if "on_stream" in (job or "") else {V1, V2, V32}
    meanings = {BLOCK if era in blocks else TOTAL for era in eras}
    return meanings.pop() if len(meanings) == 1 else AMBIGUOUS


def value(token: str, unit: str, binary: str) -> float | None:
    """Turn a printed number into base units; None for what is no number. `binary`: what `GB` is (`unit_of`).

    Exact: the exponent joins the text, and 2^30 only moves the point. An ambiguous GB is read as 1e9,
    which is what the print says, and the lower of the two.
    """
    if not token[0].isdigit():
        return None
    if unit == GB and binary == BINARY:
        return float(token) * 2**30
    return float(token + _EXPONENTS.get(unit, "e6"))


@dataclass(slots=True)
class Range:
    """What busbw / algbw can be, as far as the digits tell."""

    low: float = 0.0
    high: float = 1e9

    def narrow(self, row: Row) -> None:
        """Take in one row."""
        cells = {figure.metric: figure.token for figure in row.figures if not figure.labels}
        if not {"latency", "algbw", "busbw"} <= cells.keys():
            return
        try:
            latency, algbw, busbw = (float(cells[name]) for name in ("latency", "algbw", "busbw"))
        except ValueError:
            return
        half = 0.000501
        low, high = algbw - half, algbw + half
        if latency > 0:
            # Size over latency has more digits than the printed algbw; where they differ, the print counts.
            exact, error = row.size / latency / 1e3, 1e-6 / latency + 1e-9
            if low <= exact <= high:
                low, high = exact * (1 - error), exact * (1 + error)
        if low > 0 and high < 1e12:
            self.low = max(self.low, (busbw - half) / high)
            self.high = min(self.high, (busbw + half) / low)


def ranks_of(rows: Iterable[Row], job: str | None) -> int | None:
    """Find the number of PEs for which busbw / algbw is what these rows show; None where it is not just one.

    The ratio is 2(n-1)/n for reductions, and (n-1)/n for alltoall, fcollect and reducescatter.
    """
    ratio = Range()
    for row in rows:
        ratio.narrow(row)
    kind = jobs.collective(job)
    if kind == "reduction" or (not job and ratio.low > 1):
        top = 2.0
    elif kind in jobs.GATHERING or (not job and ratio.high < 1):
        top = 1.0
    else:
        return None
    return _only_whole(1 / (1 - ratio.low / top), ratio.high / top) if 0 <= ratio.low < top else None


def _only_whole(fewest: float, share: float) -> int | None:
    """Give the whole number from `fewest` to 1 / (1 - share), if there is just one."""
    if share >= 1:
        return None
    first = max(int(-(-(fewest - 1e-9) // 1)), 1)
    last = int(1 / (1 - share) + 1e-9)
    return first if first == last else None


def gathers(rows: Iterable[Row], job: str | None) -> bool:
    """Whether these rows are, or may be, of a collective whose size has several meanings."""
    if job:
        return jobs.collective(job) in jobs.GATHERING
    ratio = Range()
    for row in rows:
        ratio.narrow(row)
    return ratio.low < 1
