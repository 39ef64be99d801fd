"""Whether the figures of a row are consistent, as far as their rounding shows.

Pure; every reader uses it.

A printed number stands for all numbers that round to it: half of its last digit to either side.
Programs print several figures computed from one measurement (time, rate, bus rate, total, …), so
their ranges must overlap. If they do not, the row is not what the program printed. A line of a
table that cannot be read may be the remains of a row.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import NamedTuple, TypeAlias, TypeVar

from fabbench.benchmarks.findings import finding
from fabbench.model.log import Finding
from fabbench.model.patterns import NO_NUMBER, lazy
from fabbench.model.units import format_size, format_sizes

_TIES = (
    1.000001  # half-digits are widened a little: ties round either way, and floats are not exact
)
_ROWS_TO_SETTLE = 64  # So many rows choose a formula: more would take time, and say the same
_SHAPES_OF_ONE = 2  # at most this many formulas have existed for one collective
_NUMBER = lazy(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_NAME = lazy(r"[A-Za-z_]{3}")
_CELL = lazy(r"\S+")


@lru_cache
def _halves(exponent: int) -> float:
    """Return half of a digit that stands for 10^exponent."""
    half = 0.5 * _TIES
    return float(f"{half}e{exponent}")


class Printed(NamedTuple):
    """A printed number, and the smallest and largest numbers that print the same."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> "Printed":
        """Return it converted to another unit."""
        value, low, high = self
        return Printed(value * factor, low * factor, high * factor)

    def overlaps(self, low: float, high: float) -> bool:
        """Return whether a number in this range could have been printed like this."""
        return self.low <= high and low <= self.high

    def agrees(self, other: "Printed") -> bool:
        """Return whether one number could have been printed like both."""
        return self.overlaps(other.low, other.high)

    def is_measured(self) -> bool:
        """Return whether it is neither zero, as far as it is printed, nor inf or nan."""
        return 0 < self.value < math.inf


ANYTHING = Printed(value=0.0, low=0.0, high=math.inf)  # no information: `nan`
_HUGE = Printed(math.inf, low=1e15, high=math.inf)


def printed(token: str, exponent: int = 0, *, decimals: int | None = None) -> Printed:
    """Read a printed number; the printed unit is 10^exponent base units.

    inf stands for any huge number, nan for any number. `decimals`: how many the program rounds to,
    if trailing zeros may have been omitted. Raise ValueError for anything that is not a number.
    """
    if _NUMBER.fullmatch(token):
        return printed_number(token, exponent, decimals)
    if token.endswith("inf"):
        return _HUGE
    if token.endswith("nan"):
        return ANYTHING
    raise ValueError(f"{token!r} is not a number")


def printed_number(token: str, exponent: int, decimals: int | None) -> Printed:
    """Return what `printed` does, for a text that is known to be a number."""
    digits, _, power = token.lower().partition("e")
    exponent += int(power or 0)
    value = float(f"{digits}e{exponent}")
    if decimals is None:
        _, _, fraction = digits.partition(".")
        decimals = len(fraction)
    # Half of the last digit; and a float is not exact.
    slack = _halves(exponent - decimals) + value * 1e-12
    low = value - slack if value > slack else 0.0
    return tuple.__new__(Printed, (value, low, value + slack))  # faster than `Printed(…)`


def product(first: Printed, second: Printed) -> tuple[float, float]:
    """Return the range of the product of two printed numbers."""
    low = first.low * second.low
    high = first.high * second.high
    if math.isnan(low):  # inf * 0
        low = 0.0
    if math.isnan(high):
        high = math.inf
    return low, high


def is_ordered(*rising: Printed) -> bool:
    """Return whether printed numbers can be in ascending order: minimum, mean, maximum."""
    return all(less.low <= more.high for less, more in pairwise(rising))


def out_of_order(sizes: Sequence[int]) -> Iterator[int]:
    """Yield the positions of sizes that break the order of their neighbors.

    An ascending sweep has none.

    Such a size may be the remains of a larger one. Several sweeps, one after another, are in order:
    a size that is smaller than both neighbors, or larger, is not, if these ascend.
    """
    before = 0  # the last size in order
    has_restarted = False
    following = (*sizes[1:], None)
    for at, (size, after) in enumerate(zip(sizes, following, strict=False)):
        if after is None:  # the last one: it may begin a sweep only if another has before
            is_wrong = size < before and not has_restarted
        else:  # where the neighbors ascend, it has to lie between them
            is_wrong = before < after and not before <= size <= after
        if at and is_wrong:  # the first size has only one neighbor
            yield at
        else:
            has_restarted = has_restarted or size < before
            before = size


def are_several(sizes: Sequence[int]) -> bool:
    """Return whether the rows may be those of several sweeps: sizes repeat, or fall.

    A single size may come again and again.
    """
    distinct = {*sizes}
    return len(distinct) > 1 and [*sizes] != sorted(distinct)


def are_in_turns(sizes: Sequence[int]) -> bool:
    """Return whether the rows of several sweeps stand in turns, not one sweep after the other.

    A sweep that begins again begins with the first size.
    """
    sizes_above: set[int] = set()
    repeated: set[int] = set()
    is_resumed = False  # whether the row goes on with a sweep that another has interrupted
    for before, size in pairwise(sizes):
        sizes_above.add(before)
        if size <= before:  # another sweep than in the row above
            is_resumed = size != sizes[0]  # else it begins again
        if is_resumed and size in sizes_above:
            repeated.add(size)
    return len(repeated) > 1  # one may be the remains of a larger size


def odd_rows(texts: Sequence[str]) -> set[int]:
    """Return the positions of rows that lost or gained characters.

    They have another number of cells than most, or a cell is not below those of most others, or it
    has no decimals where most have some.

    A figure too wide for its column stands closer to the cell before it, and shifts those behind
    it to the right: these are not odd.
    """
    texts = [text.replace(" |", "") for text in texts]  # of Markdown
    # Row → where each of its cells starts and ends in the line.
    rows = [[cell.span() for cell in _CELL.finditer(text)] for text in texts]
    everything = {*range(len(rows))}
    half = max(len(rows) // 2, 2)  # most are more than this: three rows at least
    lengths = [len(row) for row in rows]
    length, count = _most_common(lengths)
    odd = everything - _positions(lengths, length) if count > half else set()
    wide: set[int] = set()  # the rows that had a wide figure so far, from left to right
    is_shifted = False  # whether all rows that end alike had one: others may end further left
    columns = zip(*rows, strict=False)  # as many as the shortest row has
    for left, cells in pairwise(columns):  # two neighbors
        ends = [end_of_cell for _, end_of_cell in cells]
        end, _ = _most_common(ends)
        usual = _positions(ends, end)
        tight = _tight(left, cells)
        wide |= tight
        is_shifted = is_shifted or usual <= tight
        for at in _displaced(cells, usual, half):
            # A cell further right is shifted by a wide one; one further left is itself not shifted.
            is_explained = at in wide if ends[at] > end else is_shifted
            if not is_explained:
                odd.add(at)
        spans = zip(texts, cells, strict=True)
        have_decimals = ["." in text[slice(*cell)] for text, cell in spans]
        if sum(have_decimals) > half:
            odd |= _positions(have_decimals, value=False)
    return odd


_Number = TypeVar("_Number", int, float)
_Cells: TypeAlias = Sequence[tuple[int, int]]
"""Where the cells of a column begin and end."""


def _most_common(values: Sequence[_Number]) -> tuple[_Number, int]:
    """Return the value that most have, and how many have it."""
    return Counter(values).most_common(1)[0]


def _positions(values: Sequence[int], value: int) -> set[int]:
    return {at for at, other in enumerate(values) if other == value}


def _tight(left: _Cells, cells: _Cells) -> set[int]:
    """Return the positions of the cells with the fewest blanks before them, if others have more.

    `left`: the column left of them.
    """
    pairs = zip(left, cells, strict=True)
    blanks = [start - end_of_left for (_, end_of_left), (start, _) in pairs]
    fewest = min(blanks)
    # With a single blank in every row, all figures may be too wide for their column.
    are_alike = fewest >= max(2, *blanks)
    return set() if are_alike else _positions(blanks, fewest)


def _displaced(cells: _Cells, ending_alike: AbstractSet[int], half: int) -> set[int]:
    """Return the positions of the cells that are not in line with more than half of the others.

    Where the ends of these agree and their starts do not, the column is aligned right, and only
    ends count; else a cell may start or end where most do. `ending_alike`: those that end where
    most do.
    """
    starts = [start_of_cell for start_of_cell, _ in cells]
    start, starting_alike = _most_common(starts)
    others = {*range(len(cells))} - ending_alike
    if max(starting_alike, len(ending_alike)) <= half:
        return set()
    starts_vary = len({starts[at] for at in ending_alike}) > 1
    if len(ending_alike) > half and starts_vary:
        return others
    return others - _positions(starts, start)


def gap(sizes: Sequence[int], *, once: bool = False) -> str:
    """Return the sentence that a sweep by one factor lacks sizes or, with `once`, has one twice.

    Empty if not.
    """
    steps = _steps_up(sizes)
    usual, is_regular = _usual_factor(steps)
    odd: list[_Step] = []
    for step in steps:
        before, after = step
        is_first = step == steps[0] and before != after  # it may be below a round size
        if after != before * usual and not is_first:
            odd.append(step)
    is_twice = once and any(before == after for before, after in odd)
    # A usual factor of 1 is that of no sweep: sizes repeat.
    if not odd or usual <= 1 or not (is_regular or is_twice):
        return ""
    last, following = map(format_size, odd[0])
    return f"The sizes of the table do not go on from {last} to {following}."


_Step: TypeAlias = tuple[int, int]
"""Two sizes, one after the other."""


def _steps_up(sizes: Sequence[int]) -> Sequence[_Step]:
    """Return the steps that may be a sweep's: up, or to the same size."""
    steps = pairwise(sizes)
    return [step for step in steps if 0 < step[0] <= step[1]]


def _usual_factor(steps: Sequence[_Step]) -> tuple[float, bool]:
    """Return the factor of most steps, and whether they are those of a regular sweep.

    It is regular if three quarters of them, and at least 4, have the factor.
    """
    factors = [after / before for before, after in steps]
    usual, count = _most_common(factors or [1.0])
    return usual, count >= max(4, 0.75 * len(steps))


def off_sweep(sizes: Sequence[int]) -> set[int]:
    """Return the positions of sizes that a sweep by one factor does not have, if this is one.

    Three quarters of its sizes, or more, are one odd number times powers of two. Others are what is
    left of these; only the first may be any smaller size, below a round one.
    """
    factor, is_regular = _usual_factor(_steps_up(sizes))
    if not is_regular or factor == 1:
        return set()
    odd_factors = [*map(_odd_factor, sizes)]
    usual, _ = _most_common(odd_factors)
    of_series = _positions(odd_factors, usual) | _positions(odd_factors, 0)
    others = {*range(len(sizes))} - of_series
    if len(others) > 0.25 * len(sizes):
        return set()
    if sizes[0] < sizes[1]:
        others.discard(0)
    return others


def _odd_factor(size: int) -> int:
    """Return a size without its factors of two; 0 of no bytes."""
    return size // (size & -size) if size else 0


def powers(first: int, last: int, factor: int) -> Sequence[int]:
    """Return the sizes of a sweep by a factor; none if they are not known."""
    sizes: list[int] = []
    while first > 0 and factor > 1 and first <= last:
        sizes.append(first)
        first *= factor
    return sizes


def ranks_of_hosts(ranks: int, hosts: int) -> dict[str, int]:
    """Return the facts `hosts` and, if each has as many ranks, `gpus_per_host`."""
    if not hosts or ranks % hosts:
        return {"hosts": hosts}
    return {"hosts": hosts, "gpus_per_host": ranks // hosts}


def missing_end(sizes: Sequence[int], first: int | None, last: int | None) -> str:
    """Return the sentence that a table lacks its last sizes, or its first one; empty if not.

    `first`, `last`: those of its program and command line; None, and 0 as the last: not known.
    """
    smallest = min(sizes, default=0)
    largest = max(sizes, default=0)
    if 0 < largest < (last or 0):
        to, end = map(format_size, (last or 0, largest))
        return f"The command measures up to {to}, and the table ends at {end}."
    if first is not None and smallest > first:
        start, begin = map(format_size, (first, smallest))
        return f"The command measures from {start} on, and the table begins at {begin}."
    return ""


def unmeasured(sizes: Iterable[int], of: str = "") -> Iterator[Finding]:
    """Yield a finding that lists the sizes whose figures are not measurements."""
    if distinct := set(sizes):
        yield finding("not-a-number", of, sizes=format_sizes(distinct))


class Ratios(NamedTuple):
    """The ranges that a row allows for its share, rate x time / size, and for bus rate / rate."""

    share_low: float
    share_high: float
    bus_low: float
    bus_high: float


def ratios(size: float, time: Printed, rate: Printed, bus: Printed) -> Ratios:
    """Return the ratios of a row: any share for a size of 0, any bus ratio for a rate of 0.

    Pass `ANYTHING` for a time that is not printed or not that of the rate.
    """
    low, high = product(rate, time)
    return Ratios(
        share_low=low / size if size else 0.0,
        share_high=high / size if size else math.inf,
        bus_low=bus.low / rate.high if rate.high else 0.0,
        bus_high=bus.high / rate.low if rate.low else math.inf,
    )


class Formula(NamedTuple):
    """How rates are computed: rate = share x size / time, bus rate = bus x rate. None: unknown."""

    share: float | None
    bus: float | None

    def fits(self, row: Ratios) -> bool:
        """Return whether a row may have been computed with this formula."""
        share, bus = self
        moved = share is None or row.share_low <= share <= row.share_high
        return moved and (bus is None or row.bus_low <= bus <= row.bus_high)

    def agrees(self, size: int, sides: Iterable[tuple[Printed, Printed, Printed]]) -> bool:
        """Return whether times, rates and bus rates of one size fit: as `fits`, without ratios.

        For speed. `sides`: these three figures of each side of a row (out of place, in place).
        """
        share, bus = self  # None: not known, so nothing contradicts it
        moved = size * (share or 0)  # 0: says nothing
        for (_, low, high), (_, rate_low, rate_high), (_, bus_low, bus_high) in sides:
            # Time x rate is what moved, and rate x factor the bus rate.
            if moved and (low * rate_low > moved or high * rate_high < moved):
                return False
            if bus is not None and (rate_low * bus > bus_high or rate_high * bus < bus_low):
                return False
        return True


_MOST_ABOVE = 8
"""Damaged rows whose ratio may be larger than that of the others."""


def unlike(rows: Sequence[Ratios]) -> set[int]:
    """Return the positions of rows without the ratio of bus rates that the others share.

    Which of two rows is altered is not known where either fits the others: then both. Empty: most
    share none, or too many have a larger one.
    """
    # What all share begins where the last of them begins; damaged ones may begin later.
    begins = sorted(row.bus_low for row in rows)[-_MOST_ABOVE:]
    without = [_misfits(rows, Formula(None, ratio)) for ratio in begins]
    fewest = min(map(len, without), default=0)
    if 2 * fewest >= len(rows):
        return set()
    return {at for odd in without if len(odd) == fewest for at in odd}


def _misfits(rows: Sequence[Ratios], formula: Formula) -> set[int]:
    return {at for at, row in enumerate(rows) if not formula.fits(row)}


class BandwidthFormula(NamedTuple):
    """The formulas of one collective.

    `share` and `bus` are `1`, `n` for (n-1)/n, or `2n` for 2(n-1)/n.

    Empty: the printed figures do not determine it.
    """

    share: str
    bus: str

    def of(self, ranks: int) -> Formula:
        """Return the formula for a number of ranks."""
        share = (ranks - 1) / ranks
        factors = {"1": 1.0, "n": share, "2n": 2 * share}
        return Formula(factors.get(self.share), factors.get(self.bus))

    def candidates(self, row: Ratios) -> Iterable[int]:
        """Yield the minimum and the maximum number of ranks that a row allows.

        Bus bandwidth or the share of data is a multiple of (n-1)/n, which is solved for n.
        """
        if self.bus in {"n", "2n"}:  # (n-1)/n, or twice that
            multiple = 2.0 if self.bus == "2n" else 1.0
            yield from _ranks(row.bus_low / multiple, row.bus_high / multiple)
        elif self.share == "n":
            yield from _ranks(row.share_low, row.share_high)
        else:
            yield 2  # the formula is the same for any number


ALL_REDUCE = BandwidthFormula("1", "2n")
GATHERING = BandwidthFormula("1", "n")
SAME = BandwidthFormula("1", "1")


_MAX_RANKS = 1 << 20
"""Ranks that no job has: where printed digits do not tell (n-1)/n from 1, the number is open."""


def _ranks(low: float, high: float) -> Iterable[int]:
    """Yield the minimum and the maximum number of ranks n for which (n-1)/n is in a range.

    Ends are widened by 1e-9, as floats are not exact.
    """
    if low >= 1:  # which no number has
        return
    fewest = 1 / (1 - low)
    minimum = max(math.ceil(fewest - 1e-9), 1)
    maximum = _MAX_RANKS
    if high < 1 - 1 / _MAX_RANKS:  # else the range reaches 1, and any large number fits
        maximum = math.floor(1 / (1 - high) + 1e-9)
    if minimum <= maximum:
        yield minimum
        yield maximum


def choose_formula(
    rows: Sequence[Ratios], shapes: Sequence[BandwidthFormula], ranks: int | None
) -> Formula | None:
    """Return the formula that most rows fit.

    If none fits half: the best for few shapes (of a known collective), None for many.

    The stated number of ranks counts unless most rows contradict it: a log may list only some of
    the devices.
    """

    def votes(formula: Formula) -> int:
        return sum(map(formula.fits, rows))

    of_stated_ranks = [shape.of(ranks) for shape in shapes] if ranks is not None else []
    best = max(of_stated_ranks, key=votes, default=None)
    if best is not None and 2 * votes(best) > len(rows):
        return best
    # Where the ratio of the two rates is known within 20 %: wider ones allow many numbers of ranks.
    sharp = [row for row in rows if row.bus_low > 0 and row.bus_high < 1.2 * row.bus_low]
    sharp = (sharp or [*rows])[:_ROWS_TO_SETTLE]
    computed = (
        shape.of(number) for row in sharp for shape in shapes for number in shape.candidates(row)
    )
    best = max(dict.fromkeys((*of_stated_ranks, *computed)), key=votes, default=None)
    few = 0 < len(shapes) <= _SHAPES_OF_ONE  # then the collective is known
    if best is None:
        # No number of ranks explains even a single row: whichever is returned contradicts all of
        # them.
        return shapes[0].of(ranks=2) if few else None
    # If the collective is unknown, rows that no formula explains may have another formula.
    return best if few or 2 * votes(best) >= len(rows) else None


_CUT_CELL = lazy(r"[=+-]?\d*+(?:\.\d*+)?[kmgbs]?|-?(?:inf?|i|nan?|n)")


def is_remains(cells: Sequence[str], columns: Sequence[re.Pattern[str]]) -> bool:
    """Return whether these are the cells of a row without its end, or most of those of a whole one.

    Most are counted from the start or the end of the line. Other programs' output may have numbers
    too, but not in the columns of the table. A whole line that begins with a name is theirs.
    """
    if not cells or cells == ["-"]:  # of a list
        return False
    from_start = _matching(cells, columns)
    from_end = _matching(cells[::-1], columns[::-1])
    if _are_without_end(cells, columns, from_start):
        return True
    if len(cells) == len(columns) == 2:
        # Any two words may match one column: both need digits, and one of them decimals.
        are_numbers = all(re.search(rf"\d|{NO_NUMBER}", cell) for cell in cells)
        return are_numbers and "." in "".join(cells) and from_start + from_end > 0
    # At least half of the columns, and never fewer than two: one cell may match by chance.
    majority = max((len(columns) + 1) // 2, 2)
    is_complete = len(cells) >= len(columns)  # else a part of the row is missing
    first = cells[0]
    begins_with_name = _NAME.match(first) and not columns[0].fullmatch(first)
    if is_complete and begins_with_name:
        return False
    # From the start of the line, the one cell of a table of one column is enough, too.
    has_many = from_start >= min(majority, len(columns)) or from_end >= majority
    # Three cells of its end are enough behind other text.
    if has_many or (not is_complete and 2 < from_end < len(cells)):
        return True
    # A row that is damaged in the middle has about as many cells as there are columns.
    missing = abs(len(cells) - len(columns))
    return missing <= 1 and from_start + from_end >= majority


def _are_without_end(
    cells: Sequence[str], columns: Sequence[re.Pattern[str]], matching: int
) -> bool:
    """Return whether all cells but the last match, which may be cut, or more than two of them.

    `matching`: how many cells match before the first that does not. Behind fewer than two whole
    cells the last one has to look like a cut number.
    """
    whole = len(cells) - 1
    if min(matching, whole) > 2:
        return True
    if matching < whole or whole >= len(columns):
        return False
    return whole == 2 or _CUT_CELL.fullmatch(cells[-1]) is not None


def _matching(cells: Sequence[str], columns: Sequence[re.Pattern[str]]) -> int:
    """Return how many cells match before the first that does not."""
    pairs = zip(cells, columns, strict=False)
    matches = (column.fullmatch(cell) for cell, column in pairs)
    return len([*takewhile(bool, matches)])
