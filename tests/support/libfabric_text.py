"""Writes what fi_pingpong and the fabtests print, from the printf statements of their sources, for tests."""

from collections.abc import Iterable
from typing import NamedTuple

PINGPONG_HEADER = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec"


class Measured(NamedTuple):
    """What one row measured."""

    size: int
    iterations: int
    us: int
    """Elapsed microseconds, a whole number as in the programs."""


class Era(NamedTuple):
    """A version of the fabtests' printer."""

    header: str
    name: int = 0
    """Width of the name column; 0: there is none."""
    xfers: bool = False
    bits: bool = False
    rate: bool = False


ERAS = {
    "2014-06": Era(
        f"{'name':<10}{'bytes':<8}{'xfers':<8}{'iters':<8}{'total':<8}{'time':>8} {'Gb/sec':>10}{'usec/xfer':>13}",
        name=10,
        xfers=True,
        bits=True,
    ),
    "2015": Era(
        f"{'name':<50}{'bytes':<8}{'iters':<8}{'total':<8}{'time':>8} {'Gb/sec':>10}{'usec/xfer':>13}",
        name=50,
        bits=True,
    ),
    "2016-02-05": Era(f"{'bytes':<8}{'iters':<8}{'total':<8}{'time':>8} {'Gb/sec':>10}{'usec/xfer':>13}", bits=True),
    "2016-02-11": Era(f"{'bytes':<8}{'iters':<8}{'total':<8}{'time':>8} {'MB/sec':>10}{'usec/xfer':>13}"),
    "now": Era(
        f"{'bytes':<8}{'iters':<8}{'total':<8}{'time':>8} {'MB/sec':>10}{'usec/xfer':>13}{'Mxfers/sec':>13}", rate=True
    ),
    "now, named": Era(
        f"{'name':<50}{'bytes':<8}{'iters':<8}{'total':<8}{'time':>8} {'MB/sec':>10}{'usec/xfer':>13}"
        f"{'Mxfers/sec':>13}",
        name=50,
        rate=True,
    ),
}


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


def fabtests_row(row: Measured, era: Era, times: int, name: str = "test_lat") -> str:
    """Print a row as `show_perf` does. `times`: transfers in an iteration, 2 for a ping-pong."""
    total = row.size * row.iterations * times
    bandwidth = total * 8 / (1000.0 * row.us) if era.bits else total / row.us
    usec = row.us / row.iterations / times
    text = f"{name:<{era.name}}" if era.name else ""
    text += f"{size_str(row.size):<8}"
    text += f"{cnt_str(row.iterations * times):<8}" if era.xfers else ""
    text += f"{cnt_str(row.iterations):<8}{size_str(total):<8}{row.us / 1e6:8.2f}s{bandwidth:10.2f}{usec:11.2f}"
    return text + (f"{1 / usec:11.2f}" if era.rate else "")


def fabtests_table(rows: Iterable[Measured], era: str = "now", times: int = 1, name: str = "test_lat") -> list[str]:
    """Print a header and rows."""
    form = ERAS[era]
    return [form.header, *(fabtests_row(row, form, times, name) for row in rows)]


def machine_row(row: Measured, times: int, *, bits: bool = False, separated: bool = True) -> str:
    """Print a row as `show_perf_mr` does; `separated` False: as it did from 2016-02 to 2016-08."""
    total = row.size * row.iterations * times
    usec = row.us / row.iterations / times
    rate = f"Gb/sec: {total * 8 / (1000.0 * row.us):f}" if bits else f"MB/sec: {total / row.us:f}"
    last = "" if bits else f"{', ' if separated else ''}Mxfers/sec: {1 / usec:f}"
    return (
        f"- {{ xfer_size: {row.size}, iterations: {row.iterations}, total: {total}, time: {row.us / 1e6:f}, "
        f"{rate}, usec/xfer: {usec:f}{last} }}"
    )


def pingpong_row(size: int, sent: int, us: str) -> str:
    """Print a row of fi_pingpong; `us` is usec/xfer as it shall read."""
    elapsed = float(us) * sent * 2
    count = cnt_str(sent)
    return (
        f"{size_str(size):<8}{count:<8}={count:<8}{size_str(size * sent * 2):<8}{elapsed / 1e6:8.2f}s"
        f"{size / float(us):10.2f}{float(us):11.2f}{1 / float(us):11.2f}"
    )


def pingpong_table(rows: Iterable[tuple[int, str]], sent: int) -> str:
    """Print a whole table of fi_pingpong; rows are (size, usec/xfer)."""
    return "\n".join([PINGPONG_HEADER, *(pingpong_row(size, sent, us) for size, us in rows), ""])
