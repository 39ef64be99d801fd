"""Sizes, times and rates: text to numbers and back; the sizes of a sweep.

The only place that scales.

Inside fabbench every value is in its base unit: bytes, seconds, bytes per second, 1/s.
Sizes are 1024-based (as nccl-tests and fi_pingpong read them), rates are 1000-based.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from fabbench.model.errors import RequestError
from fabbench.model.mappings import distinct
from fabbench.model.patterns import lazy
from fabbench.model.values import frozen

ValueT = TypeVar("ValueT", int, float)

# 1024-based
SIZE_STEPS = (
    ("TB", 1 << 40),
    ("GB", 1 << 30),
    ("MB", 1 << 20),
    ("KB", 1 << 10),
    ("B", 1),
)
"""Units of sizes, the largest first, and their bytes: 1024-based."""

_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
RATE_UNITS = {
    f"{prefix}{unit}/s": factor / parts
    for unit, parts in (("B", 1), ("b", 8))
    for prefix, factor in _PREFIXES.items()
}
"""Bytes per second in one of each unit; `Gb/s` (bits) is not `GB/s`."""

TIME_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}

# `4 GB (4e9 B)`, as decimal sizes are written, is what stands in parentheses.
_SIZE = lazy(
    r"(\d+ [MGT]B \()?(\d+(?:\.\d+)?(?:e\d\d?)?)\s*([kmgt]?)(?:i?b)?(?(1)\))",
    re.IGNORECASE | re.ASCII,
)
_WHOLE = lazy(r"[0-9]{1,19}")
_QUANTITY = lazy(r"(\d{1,18}(?:\.\d{0,30})?(?:[eE][-+]?\d\d?)?)\s*(.*)", re.ASCII)


def parse_size(text: str) -> int:
    """Read a size in bytes, 1024-based: ``"8"``, ``"64K"``, ``"1.5 MB"``, ``"4e9"``.

    Raise ValueError.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a valid size; use 8, 64K, 4M or 2G (1024-based)")
    _, number, prefix = match.groups()  # of `4 GB (4e9 B)`, those in parentheses
    unit = 1024 ** " kmgt".index(prefix.lower() or " ")
    value = float(number) * unit
    if math.isinf(value) or value != int(value):
        raise ValueError(f"{text!r} is not a whole number of bytes")
    whole = parse_whole(number)  # a float may not have all its digits
    return int(value) if whole is None else whole * unit


@frozen
class Sizes:
    """The sizes that somebody asks for, in bytes: those in any of some ranges."""

    ranges: tuple[range, ...]

    def __contains__(self, size: int) -> bool:
        """Return whether a size is among them."""
        return any(size in sizes for sizes in self.ranges)

    def __str__(self) -> str:
        """Write them for messages: ``"at 1 GB"``, ``"at 64 KB and from 1 MB to 1 GB"``."""
        return self.without(())

    def without(self, measured: Collection[int]) -> str:
        """Write the ranges in which none of some sizes is, as messages do; empty: none."""
        matched = {each for each in self.ranges for size in measured if size in each}
        unmatched = [each for each in self.ranges if each not in matched]
        return " and ".join(map(_range_in_words, unmatched))

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest size."""
        first = min(sizes[0] for sizes in self.ranges)
        last = max(sizes[-1] for sizes in self.ranges)
        return first, last


def _range_in_words(sizes: range) -> str:
    first = format_size(sizes[0])
    last = format_size(sizes[-1])
    return f"at {first}" if first == last else f"from {first} to {last}"


def parse_sizes(text: str, low: str = "0", high: str = "1T") -> Sizes:
    """Read sizes and ranges of sizes: ``1M``, ``64K,4M``, ``1M..1G``, ``1M..``, ``..64K``.

    `low` and `high`: where open ranges end, as text. Raise ValueError.
    """
    ranges = [parse_range(part, low, high) for part in text.split(",")]
    return Sizes(ranges=tuple(ranges))


def parse_range(text: str, low: str, high: str) -> range:
    """Read one size or range, as `parse_sizes` does."""
    first, dots, last = text.partition("..")
    try:
        smallest = parse_size(first or low if dots else text)
        largest = parse_size(last or high) if dots else smallest
    except ValueError as error:
        raise ValueError(f"{error}. Write 1M, or a range such as 1M..1G") from None
    if largest < smallest:
        raise ValueError(f"{text!r} ends before it begins")
    return range(smallest, largest + 1)


def format_size(size: int) -> str:
    """Write a size in the largest unit that divides it exactly: 102400 is ``"100 KB"``.

    A decimal size is written as people say it, and as what it is: ``"4 GB (4e9 B)"``.
    """
    number, unit = _in_largest_unit(size)
    power = _power_of_1000(size)
    count = size // 10**power
    # From a million on, if its decimal `count` is short, and its binary `number` is long
    if number > 9999 and 6 <= power <= 12 and count < 1000:
        prefix = " KMGT"[power // 3]
        return f"{count} {prefix}B ({count}e{power} B)"
    return f"{number} {unit}"


def _in_largest_unit(size: int) -> tuple[int, str]:
    for unit, step in SIZE_STEPS:  # the largest first
        if step <= size and size % step == 0:
            return size // step, unit
    return size, "B"


def _power_of_1000(size: int) -> int:
    """Return the exponent of the largest power of 1000 that divides a size: 6 for 5000000."""
    digits = str(size)
    zeros = len(digits) - len(digits.rstrip("0"))
    return zeros // 3 * 3


def format_time(moment: str) -> str:
    """Write a time that a run stores: ``2026-01-02T03:04:05Z`` is ``"2026-01-02 03:04:05 UTC"``."""
    return moment.replace("T", " ").replace("Z", " UTC")


def format_sizes(sizes: Iterable[int]) -> str:
    """Write several sizes in ascending order.

    Each of a few, ``"29 sizes from 8 B to 2 GB"`` of many.
    """
    names = [format_size(size) for size in sorted(set(sizes))]
    count = len(names)
    if count <= 6:
        return ", ".join(names)
    return f"{count} sizes from {names[0]} to {names[-1]}"


def parse_whole(text: str) -> int | None:
    """Read a whole number of as many digits as 64 bits always hold; None: it is none."""
    return int(text) if _WHOLE.fullmatch(text) else None


def whole_or_text(text: str) -> int | str:
    """Return what a program printed, as a number if it is a whole one."""
    number = parse_whole(text)
    return text if number is None else number


def parse_quantity(text: str, units: dict[str, float]) -> float:
    """Read a number with one of `units`, into the base unit. Raise ValueError."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[2] not in units:
        known = ", ".join(units)
        raise ValueError(f"{text!r} is not a number with a unit; one of {known}")
    return float(match[1]) * units[match[2]]


@dataclass(frozen=True, slots=True)
class Scale:
    """How numbers of one metric are written.

    Divided by `factor`, rounded to nccl-tests' two decimals, and trimmed.

    `fine` keeps three significant digits of numbers below 1, where a benchmark prints finer than
    that.
    """

    unit: str
    factor: float
    fine: bool = False

    def text(self, value: float) -> str:
        """Write a value in base units as a number, without the unit.

        6.5e9 B/s in GB/s is ``"6.5"``.
        """
        if not math.isfinite(value):
            return str(value)
        number = value / self.factor
        decimals = 2  # as nccl-tests prints
        if self.fine and 0 < abs(number) < 1:
            decimals -= math.floor(math.log10(abs(number)))
        return format_decimal(number, min(decimals, 9))

    def fixed(self, value: float) -> str:
        """Write it with every decimal, for numbers in a column: 6.5e9 B/s in GB/s is ``"6.50"``."""
        text = self.text(value)
        whole, _, fraction = text.partition(".")
        if not whole.lstrip("-").isdigit():
            return text
        return f"{whole}.{fraction:0<2}"

    def quantity(self, value: float) -> str:
        """Write a value in base units with the unit: ``"6.5 GB/s"``."""
        return f"{self.text(value)} {self.unit}"


def scale(unit: str, largest: float, *, coarse: bool = False) -> Scale:
    """Choose how to write numbers of base unit `unit`, that of a `Metric`, up to the `largest`.

    Rates are GB/s, or MB/s where nothing reaches 1 GB/s; times are us. `coarse` is for a benchmark
    whose own table has GB/s with two decimals (nccl-tests): it is always written like that.
    """
    if unit == "B/s":
        if coarse or largest >= RATE_UNITS["GB/s"]:
            return Scale("GB/s", RATE_UNITS["GB/s"], fine=not coarse)
        return Scale("MB/s", RATE_UNITS["MB/s"], fine=True)  # fine: with more decimals
    if unit == "s":
        return Scale("us", TIME_UNITS["us"])
    if unit == "1/s":
        return Scale("M/s", factor=1e6, fine=True)
    return Scale(unit, factor=1.0)


def format_quantity(value: float, unit: str) -> str:
    """Write a number of base unit `unit` as a table of it alone would."""
    return scale(unit, value).quantity(value)


def format_decimal(number: float, decimals: int) -> str:
    """Round half up to `decimals` and trim: 6.50 is ``"6.5"``, 2.25 to one decimal is ``"2.3"``.

    Halves are decided as the decimal number reads: 1.005 is slightly less as a float, and still
    rounds up.
    """
    scaled = abs(number) * 10**decimals
    error = 4 * math.ulp(scaled)  # more than scaling adds to what a float cannot hold
    steps = math.floor(scaled + 0.5 + error)
    text = f"{steps / 10**decimals:.{decimals}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"-{text}" if number < 0 and steps else text


def format_ends(
    values: Collection[ValueT], write: Callable[[ValueT], str], between: str = " to "
) -> str:
    """Write the least and the greatest of values, once if they read alike: ``"10 to 12"``."""
    ends = map(write, (min(values), max(values)))
    return between.join(distinct(ends))


def format_percent(part: float, decimals: int) -> str:
    """Write a fraction in percent, rounded and trimmed: 0.1718 to one decimal is ``"17.2 %"``."""
    return f"{format_decimal(100 * part, decimals)} %"


_FACTOR = 2.0
"""From this factor on, a change is written as one; below it, in percent."""


def format_change(ratio: float | None) -> str:
    """Write how much better something is, given how many times better.

    ``"-6.2 %"``, ``"+30.0 %"``; from twice or half on a factor: ``"18.7 x"``, ``"0.40 x"``; ``"-"``
    where there is no ratio.
    """
    if ratio is None:
        return "-"
    return f"{_factor_digits(ratio)} x" if _is_factor(ratio) else f"{_percent_digits(ratio)} %"


def format_bounds(low: float, high: float, ratios: Collection[float]) -> str:
    """Write the bounds of ratios: ``"-7.2 to -4.0 %"``.

    As factors, ``"1.8 to 2.1 x"``, if `format_change` writes one of the ratios so.
    """
    if any(map(_is_factor, ratios)):
        return f"{_factor_digits(low)} to {_factor_digits(high)} x"
    return f"{_percent_digits(low)} to {_percent_digits(high)} %"


def _is_factor(ratio: float) -> bool:
    return ratio >= _FACTOR or ratio * _FACTOR <= 1


def _factor_digits(ratio: float) -> str:
    """Return a ratio with one decimal, and with two significant digits below 1."""
    if not 0 < ratio < 1:
        return _with_all_decimals(ratio, decimals=1)
    magnitude = math.floor(math.log10(ratio))
    return _with_all_decimals(ratio, 1 - magnitude)


def _percent_digits(ratio: float) -> str:
    """Return a change in percent with its sign and one decimal."""
    change = 100 * (ratio - 1)
    digits = _with_all_decimals(change, decimals=1)
    return f"+{digits}" if change > 0 and digits != "0.0" else digits


def _with_all_decimals(number: float, decimals: int) -> str:
    whole, _, fraction = format_decimal(number, decimals).partition(".")
    return f"{whole}.{fraction.ljust(decimals, '0')}"


def format_duration(seconds: float) -> str:
    """Write a duration: ``"0:42"``, ``"1:02:03"``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}"


_MAX_SIZES = 10_000


@frozen
class Sweep:
    """The requested sizes, in bytes: from `first` to `last`, times `factor` or plus `step`."""

    first: int = 8
    last: int = 2 << 30
    factor: int = 2
    step: int = 0  # Instead of `factor`, if not 0
    # The program that steps through the sizes by itself; empty: each size is a program of its own
    program: str = ""

    def __post_init__(self) -> None:
        """Raise RequestError for an invalid or endless sweep, or a last size that is skipped."""
        if not self._is_valid():
            raise RequestError(
                f"Invalid range of sizes: {self}.",
                hint=f"Set both -b and -e: each has a default. At most {_MAX_SIZES} steps.",
            )
        # A program that steps by itself stops before a last size that its steps do not meet.
        reached = self._size_before_last()
        if self.program and self.last not in {reached, self._size_after(reached)}:
            shown = format_size(reached)
            raise RequestError(
                f"{format_size(self.last)} would not be measured: {self}, {self.program} stops at "
                f"{shown}.",
                hint=f"Make {shown} the largest size (-e), or choose steps that reach yours.",
            )

    def __str__(self) -> str:
        """Write it for messages."""
        how = f"steps of {format_size(self.step)}" if self.step else f"factor {self.factor}"
        return f"from {format_size(self.first)} to {format_size(self.last)} with {how}"

    def _is_valid(self) -> bool:
        """Return whether it ascends, and ends soon: by a step or, without one, by a factor."""
        if not 0 <= self.first <= self.last:
            return False
        if self.step:
            steps = (self.last - self.first) // self.step
            return self.step > 0 and steps < _MAX_SIZES
        return self.factor > 1 and self.first > 0  # doubling, at least, ends soon

    def _size_before_last(self) -> int:
        """Return the largest size before `last`; of a single size, that."""
        return [*self.sizes()][-2:][0]  # the first of the last two, or the only one

    def words(self) -> tuple[str, ...]:
        """Return it as the options that nccl-tests take."""
        ends = ("-b", str(self.first), "-e", str(self.last))
        if self.step:
            return (*ends, "-i", str(self.step))
        return (*ends, "-f", str(self.factor))

    def sizes(self) -> Iterator[int]:
        """Yield the sizes. The last one is always among them."""
        size = self.first
        while size < self.last:
            yield size
            size = self._size_after(size)
        yield self.last

    def _size_after(self, size: int) -> int:
        return size + self.step if self.step else size * self.factor
