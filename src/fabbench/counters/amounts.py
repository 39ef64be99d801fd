"""Bytes and rates of NICs as text, 1000-based."""

from fabbench.units import RATE_UNITS, Scale, scale

_AMOUNTS = [
    Scale(unit.removesuffix("/s"), RATE_UNITS[unit]) for unit in ("TB/s", "GB/s", "MB/s", "KB/s", "B/s")
]


def amount_scale(largest: float) -> Scale:
    """Choose how to write numbers of bytes of which `largest` is the largest."""
    return next((found for found in _AMOUNTS if largest >= found.factor), _AMOUNTS[-1])


def amount(count: float | None) -> str:
    """Write a number of bytes: 12.1e9 is ``"12.1 GB"``, and ``"-"`` stands for what is not known."""
    return "-" if count is None else amount_scale(count).quantity(count)


def rate(value: float | None) -> str:
    """Write bytes per second: ``"12.1 GB/s"``, ``"-"``."""
    return "-" if value is None else scale("B/s", value).quantity(value)


def names(found: list[str], most: int = 4) -> str:
    """Write some names: all of a few, else the first and how many more."""
    more = len(found) - most
    return f"{', '.join(found[:most])} and {more} more" if more > 0 else ", ".join(found)
