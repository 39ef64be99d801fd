"""Writes what fi_pingpong and the fabtests print, by their printf statements, for tests."""

from collections.abc import Iterable
from typing import NamedTuple

PINGPONG_HEADER = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec"
FABTESTS_HEADER = "bytes   iters   total       time     MB/sec    usec/xfer   Mxfers/sec"


class Measured(NamedTuple):
    """What one row measured."""

    size: int
    iterations: int
    us: float
    """Elapsed microseconds; the programs count whole ones."""


def size_str(size: int) -> str:
    """Print a size as `size_str` does."""
    steps = ((1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k"))
    base, mag = next(((base, mag) for base, mag in steps if size >= base), (1, ""))
    fraction = size % base * 10 // base if size // base < 10 else 0
    return f"{size // base}.{fraction}{mag}" if fraction else f"{size // base}{mag}"


def cnt_str(count: int) -> str:
    """Print a count as `cnt_str` does."""
    for base, mag in ((10**9, "b"), (10**6, "m"), (10**3, "k")):
        if count >= base:
            return f"{count // base}{mag}"
    return str(count)


def fabtests_row(row: Measured, times: int) -> str:
    """Print a row as `show_perf` does. `times`: transfers in an iteration, 2 for a ping-pong."""
    total = row.size * row.iterations * times
    usec = row.us / row.iterations / times
    text = f"{size_str(row.size):<8}{cnt_str(row.iterations):<8}{size_str(total):<8}"
    return f"{text}{row.us / 1e6:8.2f}s{total / row.us:10.2f}{usec:11.2f}{1 / usec:11.2f}"


def fabtests_table(rows: Iterable[Measured], times: int = 1) -> list[str]:
    """Print a header and rows."""
    return [FABTESTS_HEADER, *(fabtests_row(row, times) for row in rows)]


def pingpong_row(size: int, sent: int, us: str) -> str:
    """Print a row of fi_pingpong; `us` is usec/xfer as it shall read."""
    elapsed = float(us) * sent * 2
    count = cnt_str(sent)
    return (
        f"{size_str(size):<8}{count:<8}={count:<8}{size_str(size * sent * 2):<8}"
        f"{elapsed / 1e6:8.2f}s{size / float(us):10.2f}{float(us):11.2f}{1 / float(us):11.2f}"
    )


def pingpong_table(rows: Iterable[tuple[int, str]], sent: int) -> str:
    """Print a whole table of fi_pingpong; rows are (size, usec/xfer)."""
    return "\n".join([PINGPONG_HEADER, *(pingpong_row(size, sent, us) for size, us in rows), ""])
