"""One row of fi_pingpong's table: from text to numbers, without inventing digits.

The program prints ``%-8s%-8s=%-8s%-8s%8.2fs%10.2f%11.2f%11.2f``, and cuts sizes down to one decimal digit
(1500 bytes are ``1.4k``). Units: MB/sec is 1e6 bytes per second, both directions added; usec/xfer is one way.
"""

import re
from typing import NamedTuple

from fabbench.benchmarks.libfabric.printed import (
    COUNT,
    REAL,
    REAL_CUT,
    SIZE,
    SIZE_CUT,
    Size,
    by_product,
    by_total,
    known_size,
)

HEADER = ("bytes", "#sent", "#ack", "total", "time", "MB/sec", "usec/xfer", "Mxfers/sec")

# Columns that are full stand without a blank between them; suffixes and decimals tell where each ends.
_COLUMNS = (
    rf"\s*(?P<size>{SIZE})",
    rf"\s+(?P<sent>{COUNT})",
    rf"\s*(?P<sign>[=+-])(?P<ack>{COUNT})",
    rf"\s+(?P<total>{SIZE})",
    rf"(?:\s+|(?<=[kmg]))(?P<time>{REAL})",
    rf"s\s*(?P<bandwidth>{REAL})",
    rf"\s*(?P<latency>{REAL})",
    rf"\s*(?P<rate>{REAL})",
)
# What a row may end with when it stops short inside a column.
_COLUMNS_CUT = (
    rf"\s*{SIZE_CUT}",
    rf"\s+(?:{COUNT})?",
    rf"\s*(?:[=+-](?:{COUNT})?)?",
    rf"\s+(?:{SIZE_CUT})?",
    rf"(?:\s+|(?<=[kmg])){REAL_CUT}",
    rf"s\s*{REAL_CUT}",
    rf"\s*{REAL_CUT}",
    rf"\s*{REAL_CUT}",
)
_ROW = re.compile("".join(_COLUMNS) + r"\s*")
_CUT = tuple(
    re.compile(re.sub(r"\?P<\w+>", "?:", "".join(_COLUMNS[:index])) + cut + r"\s*")
    for index, cut in enumerate(_COLUMNS_CUT)
)


class Row(NamedTuple):
    """The tokens of one row, as printed."""

    size: str
    sent: str
    sign: str
    """`=`: everything was acknowledged; `+`: `ack` messages were not; `-`: `ack` too many were."""
    ack: str
    total: str
    time: str
    bandwidth: str
    latency: str
    rate: str

    def layout(self) -> str:
        """Write the row exactly as the program does."""
        return (
            f"{self.size:<8}{self.sent:<8}{self.sign}{self.ack:<8}{self.total:<8}{self.time:>8}s"
            f"{self.bandwidth:>10}{self.latency:>11}{self.rate:>11}"
        )

    def acknowledged(self) -> bool:
        """Whether as many messages were acknowledged as were sent."""
        return self.sign == "=" or not int(self.ack.rstrip("kmb"))


def read_row(text: str) -> Row | None:
    """Read a whole row; None for anything else."""
    match = _ROW.fullmatch(text)
    return Row(*match.groups()) if match else None


def is_header(text: str) -> bool:
    """Whether this is the table's header, whole or cut after two columns or more."""
    words = text.split()
    if len(words) < 2 or tuple(words[:2]) != HEADER[:2] or len(words) > len(HEADER):
        return False
    return all(name.startswith(word) for name, word in zip(HEADER, words, strict=False))


def may_be_cut(text: str) -> bool:
    """Whether this could be a row with its end missing."""
    return bool(text.strip()) and any(pattern.fullmatch(text) for pattern in _CUT)


def joined(first: str, second: str) -> str | None:
    """Put the two pieces of a torn row together; None unless that gives the program's exact layout."""
    text = (first + second).strip()
    row = read_row(text)
    return text if row is not None and row.layout() == text else None


def row_size(row: Row, *, asked: int | None = None, sent: int | None = None) -> Size:
    """Say which size a row measured.

    `asked` and `sent` are the size and the number of messages that were asked for: they count if the row
    prints them so. Without them, a size that was cut down to its first digits is narrowed by the other
    columns: by `total`, and by MB/sec times usec/xfer, which is the size again.
    """
    others = (
        by_total(row.total, row.sent, asked=sent, times=(2, 2)),
        by_product(row.bandwidth, row.latency),
    )
    return known_size(row.size, asked=asked, others=others)
