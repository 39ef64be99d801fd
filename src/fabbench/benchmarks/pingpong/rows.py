"""One row of fi_pingpong's table: from text to numbers, without inventing digits.

The program prints ``%-8s%-8s=%-8s%-8s%8.2fs%10.2f%11.2f%11.2f``, and cuts sizes down to one decimal digit
(1500 bytes are ``1.4k``). Units: MB/sec is 1e6 bytes per second, both directions added; usec/xfer is one way.
"""

import math
import re
from typing import NamedTuple

HEADER = ("bytes", "#sent", "#ack", "total", "time", "MB/sec", "usec/xfer", "Mxfers/sec")

_REAL = r"(?:\d+\.\d\d|-?inf|-?nan)"
_REAL_CUT = r"(?:\d+(?:\.\d{0,2})?|-?(?:inf|in|i|nan|na|n)?)"
_COLUMNS = (
    r"\s*(?P<size>\d+(?:\.\d)?[kmg]?)",
    r"\s+(?P<sent>\d+[kmb]?)",
    r"\s*(?P<sign>[=+-])(?P<ack>\d+[kmb]?)",
    r"\s+(?P<total>\d+(?:\.\d)?[kmg]?)",
    rf"\s+(?P<time>{_REAL})",
    rf"s\s*(?P<bandwidth>{_REAL})",
    rf"\s+(?P<latency>{_REAL})",
    rf"\s+(?P<rate>{_REAL})",
)
# What a row may end with when it stops short inside a column.
_COLUMNS_CUT = (
    r"\s*\d+(?:\.\d?)?[kmg]?",
    r"\s+(?:\d+[kmb]?)?",
    r"\s*(?:[=+-](?:\d+[kmb]?)?)?",
    r"\s+(?:\d+(?:\.\d?)?[kmg]?)?",
    rf"\s+{_REAL_CUT}",
    rf"s\s*{_REAL_CUT}",
    rf"\s+{_REAL_CUT}",
    rf"\s+{_REAL_CUT}",
)
_ROW = re.compile("".join(_COLUMNS) + r"\s*")
_CUT = tuple(
    re.compile(re.sub(r"\?P<\w+>", "?:", "".join(_COLUMNS[:index])) + cut + r"\s*")
    for index, cut in enumerate(_COLUMNS_CUT)
)
_BINARY = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


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


def number(token: str, exponent: str) -> float | None:
    """Read ``6.5`` with exponent ``e-6`` as exactly 6.5e-6; None where the print left nothing of it."""
    if not token[0].isdigit() or not token.strip("0."):
        return None
    return float(token + exponent)


def printed_size(size: int) -> str:
    """Write a size as the program prints it, with everything that it cuts away."""
    for suffix in ("g", "m", "k"):
        base = _BINARY[suffix]
        if size >= base:
            fraction = size % base * 10 // base if size // base < 10 else 0
            return f"{size // base}.{fraction}{suffix}" if fraction else f"{size // base}{suffix}"
    return str(size)


def printed_count(count: int) -> str:
    """Write a number of messages as the program prints it: 1234 is ``1k``."""
    for suffix in ("b", "m", "k"):
        if count >= _DECIMAL[suffix]:
            return f"{count // _DECIMAL[suffix]}{suffix}"
    return str(count)


class Size(NamedTuple):
    """A size in bytes; `exact` is False where the print does not tell which of several it was."""

    value: int
    exact: bool


def row_size(row: Row, *, asked: int | None = None, sent: int | None = None) -> Size:
    """Say which size a row measured.

    `asked` and `sent` are the size and the number of messages that were asked for: they count if the row
    prints them so. Without them, a size that was cut down to its first digits is narrowed by the other
    columns: by `total`, and by MB/sec times usec/xfer, which is the size again.
    """
    if asked is not None and printed_size(asked) == row.size:
        return Size(asked, exact=True)
    if row.size.isdigit():
        return Size(int(row.size), exact=True)
    low, high = _range(row.size)
    for other_low, other_high in (_by_total(row, sent), _by_product(row)):
        narrow_low, narrow_high = max(low, other_low), min(high, other_high)
        if narrow_low <= narrow_high:
            low, high = narrow_low, narrow_high
    plain = _plain(row.size)
    if plain is not None and low <= plain <= high:
        return Size(plain, exact=True)
    return Size(low, exact=low == high)


def _range(text: str) -> tuple[int, int]:
    """Give the smallest and the largest size that print so."""
    base = _BINARY[text[-1] if text[-1] in _BINARY else ""]
    whole, _, digit = text.rstrip("kmg").partition(".")
    start = int(whole) * base
    if digit:
        tenth = int(digit)
        return start + -(-tenth * base // 10), start + -(-(tenth + 1) * base // 10) - 1
    return start, start + (-(-base // 10) if int(whole) < 10 and base > 1 else base) - 1


def _plain(text: str) -> int | None:
    """Read ``64k``, or a half such as ``1.5m`` as ``-S all`` has it: meant so, unless shown otherwise."""
    low, _ = _range(text)
    _, _, digit = text.rstrip("kmg").partition(".")
    return low if digit in {"", "5"} else None


def _by_total(row: Row, sent: int | None) -> tuple[int, int]:
    """Give the range of sizes that `total` allows: it is sent x size x 2, cut down as well."""
    if sent is not None and printed_count(sent) == row.sent:
        fewest = most = sent
    else:
        step = _DECIMAL[row.sent[-1] if row.sent[-1] in _DECIMAL else ""]
        fewest = int(row.sent.rstrip("kmb")) * step
        most = fewest + step - 1
    low, high = _range(row.total)
    if not fewest:
        return 0, 1 << 62
    return -(-low // (2 * most)), high // (2 * fewest)


def _by_product(row: Row) -> tuple[int, int]:
    """Give the range of sizes that MB/sec times usec/xfer allows; each is rounded to two decimals."""
    try:
        bandwidth, latency = float(row.bandwidth), float(row.latency)
    except ValueError:
        return 0, 1 << 62
    if not (math.isfinite(bandwidth) and math.isfinite(latency)):
        return 0, 1 << 62
    half = 0.00501
    low = max(bandwidth - half, 0) * max(latency - half, 0)
    return math.ceil(low), math.floor((bandwidth + half) * (latency + half))
