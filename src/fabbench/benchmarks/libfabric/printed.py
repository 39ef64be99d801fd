"""Numbers as libfabric's programs print them, and what can be known of the number behind the print.

Sizes and totals are 1024-based and cut down to one decimal digit, or none from 10 on: 1500 bytes are ``1.4k``
(`size_str`). Counts are 1000-based and cut down (`cnt_str`). Times and rates have two decimals. The code is
the same in util/pingpong.c and fabtests/common/shared.c.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

REAL = r"(?:\d{1,18}\.\d\d|-?inf|-?nan)"
REAL_CUT = r"(?:\d{1,18}(?:\.\d{0,2})?|-?(?:inf|in|i|nan|na|n)?)"
SIZE = r"\d{1,18}(?:\.\d)?[kmg]?"
SIZE_CUT = r"\d{1,18}(?:\.\d?)?[kmg]?"
COUNT = r"\d{1,18}[kmb]?"

_BINARY = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
_ANY = (0, 1 << 62)

Range = tuple[int, int]
"""The smallest and the largest number that it may be."""


def number(token: str, exponent: str) -> float | None:
    """Read ``6.5`` with exponent ``e-6`` as exactly 6.5e-6; None where the print left nothing of it."""
    if not token[0].isdigit() or not token.strip("0."):
        return None
    return float(token + exponent)


def printed_size(size: int) -> str:
    """Write a size as the programs print it, with everything that they cut away."""
    for suffix in ("g", "m", "k"):
        base = _BINARY[suffix]
        if size >= base:
            fraction = size % base * 10 // base if size // base < 10 else 0
            return f"{size // base}.{fraction}{suffix}" if fraction else f"{size // base}{suffix}"
    return str(size)


def printed_count(count: int) -> str:
    """Write a number of messages as the programs print it: 1234 is ``1k``."""
    for suffix in ("b", "m", "k"):
        if count >= _DECIMAL[suffix]:
            return f"{count // _DECIMAL[suffix]}{suffix}"
    return str(count)


def count_range(printed: str) -> Range:
    """Give the numbers of messages that print so."""
    step = _DECIMAL[printed[-1] if printed[-1] in _DECIMAL else ""]
    fewest = int(printed.rstrip("kmb")) * step
    return fewest, fewest + step - 1


def size_range(printed: str) -> Range:
    """Give the sizes that print so."""
    base = _BINARY[printed[-1] if printed[-1] in _BINARY else ""]
    whole, _, digit = printed.rstrip("kmg").partition(".")
    start = int(whole) * base
    if digit:
        tenth = int(digit)
        return start + -(-tenth * base // 10), start + -(-(tenth + 1) * base // 10) - 1
    return start, start + (-(-base // 10) if int(whole) < 10 and base > 1 else base) - 1


class Size(NamedTuple):
    """A size in bytes; `exact` is False where the print does not tell which of several it was."""

    value: int
    exact: bool


def known_size(printed: str, *, asked: int | None = None, others: Iterable[Range] = ()) -> Size:
    """Say which size a row measured.

    `asked` is the size that was asked for: it counts if the row prints it so. `others` are the sizes that the
    row's other columns allow: they narrow down a size that was cut to its first digits.
    """
    if asked is not None and printed_size(asked) == printed:
        return Size(asked, exact=True)
    if printed.isdigit():
        return Size(int(printed), exact=True)
    low, high = size_range(printed)
    for other_low, other_high in others:
        narrow_low, narrow_high = max(low, other_low), min(high, other_high)
        if narrow_low <= narrow_high:
            low, high = narrow_low, narrow_high
    plain = _plain(printed)
    if plain is not None and low <= plain <= high:
        return Size(plain, exact=True)
    return Size(low, exact=low == high)


def _plain(printed: str) -> int | None:
    """Read ``64k``, or a half such as ``1.5m`` as ``-S all`` has it: meant so, unless shown otherwise."""
    low, _ = size_range(printed)
    _, _, digit = printed.rstrip("kmg").partition(".")
    return low if digit in {"", "5"} else None


def by_total(total: str, sent: str, *, asked: int | None, times: Range) -> Range:
    """Give the sizes that the columns `total` and `sent` allow: the total is sent x size x times.

    `asked` is the number of messages that was asked for: it counts if the row prints it so.
    """
    known = asked is not None and printed_count(asked) == sent
    fewest, most = (asked, asked) if known and asked is not None else count_range(sent)
    low, high = size_range(total)
    if not fewest:
        return _ANY
    return -(-low // (times[1] * most)), high // (times[0] * fewest)


def by_product(bandwidth: str, latency: str, *, megabytes: float = 1.0) -> Range:
    """Give the sizes that bandwidth times usec/xfer allows; each is rounded to two decimals.

    `megabytes`: 1e6 bytes per second in one unit of `bandwidth`.
    """
    try:
        rate, us = float(bandwidth), float(latency)
    except ValueError:
        return _ANY
    if not (math.isfinite(rate) and math.isfinite(us)):
        return _ANY
    half = 0.00501
    low = max(rate - half, 0) * max(us - half, 0)
    return math.ceil(low * megabytes), math.floor((rate + half) * (us + half) * megabytes)
