"""Sizes, times and rates: text to numbers and back. The only place that scales.

Inside fabbench every value is in its base unit: bytes, seconds, bytes per second, 1/s.
Sizes are 1024-based (as nccl-tests and fi_pingpong read them), rates are 1000-based.
"""

import re

SIZE_STEPS = (("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10), ("B", 1))
"""Size suffixes, largest first. 1024-based, written as the published tables write them."""

RATE_UNITS = {
    "B/s": 1.0,
    "KB/s": 1e3,
    "MB/s": 1e6,
    "GB/s": 1e9,
    "TB/s": 1e12,
    "b/s": 1 / 8,
    "Kb/s": 1e3 / 8,
    "Mb/s": 1e6 / 8,
    "Gb/s": 1e9 / 8,
    "Tb/s": 1e12 / 8,
}
"""Bytes per second in one of each unit; `Gb/s` (bits) is not `GB/s`."""

TIME_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")


def parse_size(text: str) -> int:
    """Read a message size in bytes, 1024-based: ``"8"``, ``"64K"``, ``"2G"``, ``"1.5 MB"``.

    Raises ValueError for anything else, and for a fraction of a byte.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write 8, 64K, 4M or 2G (1024-based)")
    number, suffix = match.groups()
    value = float(number) * 1024 ** " kmgt".index(suffix.lower() or " ")
    if value != int(value):
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(number) * 1024 ** " kmgt".index(suffix.lower() or " ") if number.isdigit() else int(value)


def format_size(size: int) -> str:
    """Write a size in the largest unit that divides it exactly: 102400 is ``"100 KB"``."""
    for suffix, step in SIZE_STEPS:
        if size >= step and size % step == 0:
            return f"{size // step} {suffix}"
    return f"{size} B"


def parse_quantity(text: str, units: dict[str, float]) -> float:
    """Read a number with one of `units` (`RATE_UNITS`, `TIME_UNITS`), into the base unit.

    Raises ValueError that names the units, for a missing or another unit.
    """
    text = text.strip()
    for unit in sorted(units, key=len, reverse=True):
        number = text.removesuffix(unit).strip()
        if text.endswith(unit) and _NUMBER.fullmatch(number):
            return float(number) * units[unit]
    raise ValueError(f"{text!r} is not a number with a unit; one of {', '.join(units)}")
