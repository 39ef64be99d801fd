"""What stands out in a comparison, in ranges of sizes. Pure.

The trend of each size is its verdict (`fabbench.analysis.statistics`). Sizes are joined into ranges from the
largest down, as long as the trend is the same and the best ratio is at most three times the worst. Of more
than five ranges the smallest neighbors are joined. Sizes that one of the two columns lacks are not compared.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fabbench.analysis.compare import Comparison, ComparisonRow, ComparisonSection, Figure
from fabbench.analysis.statistics import EQUIVALENT, MAX_REPEATS, Difference, RowTest
from fabbench.model.units import Scale, format_decimal, format_ratio, format_size

RANGE_FACTOR = 3.0
MAX_RANGES = 5


class Trend(StrEnum):
    """How a column compares with the base in a range of sizes."""

    SAME = "same"
    AHEAD = "ahead"
    BEHIND = "behind"
    NO_RATIO = "no-ratio"
    """Only one of the two displays as 0."""
    UNDECIDED = "undecided"
    """The repeats neither show a difference nor exclude one."""
    MIXED = "mixed"


_TRENDS = {
    Difference.FASTER: Trend.AHEAD,
    Difference.SLOWER: Trend.BEHIND,
    Difference.SAME: Trend.SAME,
    Difference.UNDECIDED: Trend.UNDECIDED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Highlight:
    """One range of sizes of one column against the base. Sizes in bytes."""

    section: int
    """Index of the comparison's section."""
    label: str
    base: str
    low: int
    high: int
    trend: Trend
    worst: float | None
    """The smallest ratio in the range; None without a ratio."""
    best: float | None
    span: str
    """The range as it is written: `≤ 4 KB`, `64 KB – 16 MB`."""
    text: str


@dataclass(slots=True)
class _Range:
    trend: Trend
    rows: list[ComparisonRow]
    ratios: list[float]
    tests: list[RowTest]
    trends: set[Trend]

    def __add__(self, other: "_Range") -> "_Range":
        trend = self.trend if self.trend is other.trend else Trend.MIXED
        rows, ratios = self.rows + other.rows, self.ratios + other.ratios
        return _Range(trend, rows, ratios, self.tests + other.tests, self.trends | other.trends)

    def takes(self, other: "_Range") -> bool:
        """Return whether the two are one range by the rules above."""
        ratios = self.ratios + other.ratios
        # Without the allowance for rounding, the two directions of a comparison could read differently.
        widest = RANGE_FACTOR * (1 + 1e-9)
        wide = self.trend in {Trend.AHEAD, Trend.BEHIND} and max(ratios) > min(ratios) * widest
        return self.trend is other.trend and not wide


def highlights(comparison: Comparison) -> tuple[Highlight, ...]:
    """Return, per section and per column but the base, where it is ahead, behind or the same.

    The ranges of one column are contiguous and cover every size that was compared. A column that is not
    shown, and a comparison of one column, have none.
    """
    remarks: list[Highlight] = []
    for index, section in enumerate(comparison.sections):
        for column in range(len(comparison.columns) - 1):
            compared = all(section.shown[each] and not section.partial[each] for each in (column, -1))
            if section.rows and compared:
                remarks += _column(comparison, index, column)
    return tuple(remarks)


def _column(comparison: Comparison, index: int, column: int) -> list[Highlight]:
    section = comparison.sections[index]
    ranges: list[_Range] = []
    for row in reversed(section.rows):
        new, base, ratio = row.figures[column], row.figures[-1], row.ratios[column]
        if new is None or base is None:
            continue
        test = row.tests[column]
        trend = _TRENDS[test.verdict] if test else _untested(new, base, ratio, section.scale)
        single = _Range(trend, [row], [] if ratio is None else [ratio], [test] if test else [], {trend})
        if ranges and single.takes(ranges[0]):
            ranges[0] = single + ranges[0]
        else:
            ranges.insert(0, single)
    return [
        Highlight(
            section=index,
            label=comparison.columns[column].label,
            base=comparison.base.label,
            low=part.rows[0].size,
            high=part.rows[-1].size,
            trend=part.trend,
            worst=min(part.ratios, default=None),
            best=max(part.ratios, default=None),
            span=_span(section, part.rows),
            text=_text(comparison, index, column, part),
        )
        for part in _joined(ranges)
    ]


def _untested(new: Figure, base: Figure, ratio: float | None, scale: Scale) -> Trend:
    if ratio is not None:
        return Trend.UNDECIDED  # an execution has 0
    both_zero = scale.text(new.value) == scale.text(base.value) == "0"
    return Trend.SAME if both_zero else Trend.NO_RATIO


def _joined(ranges: list[_Range]) -> list[_Range]:
    """Join neighbors until there are few enough: those already mixed, or else the smallest."""
    while len(ranges) > MAX_RANGES:
        pairs = range(len(ranges) - 1)
        first = min(pairs, key=lambda index: len(ranges[index].rows) + len(ranges[index + 1].rows))
        ranges[first : first + 2] = [ranges[first] + ranges[first + 1]]
        for index in reversed(range(len(ranges) - 1)):
            if ranges[index].trend is ranges[index + 1].trend is Trend.MIXED:
                ranges[index : index + 2] = [ranges[index] + ranges[index + 1]]
    return ranges


def _span(section: ComparisonSection, rows: Sequence[ComparisonRow]) -> str:
    low, high = format_size(rows[0].size), format_size(rows[-1].size)
    first, last = rows[0] is section.rows[0], rows[-1] is section.rows[-1]
    if len(rows) == 1:
        return low
    if first and not last:
        return f"≤ {high}"
    if last and not first:
        return f"≥ {low}"
    return f"{low} – {high}"


def _text(comparison: Comparison, index: int, column: int, part: _Range) -> str:
    section, label = comparison.sections[index], comparison.columns[column].label
    ratios = " to ".join(dict.fromkeys(format_ratio(choose(part.ratios)) for choose in (min, max) if part.ratios))
    best = " against ".join(
        _best(section, part.rows, each, comparison.columns[each].label)
        for each in (column, len(comparison.columns) - 1)
    )
    statement, once = _statement(label, part), any(test.once for test in part.tests)
    interval = why = ""
    if part.tests:
        intervals = f"{confidence(section.level)} interval{'s' if len(part.tests) > 1 else ''}"
        interval = f" ({intervals} {bounds(part.tests)}{', measured once' if once else ''})"
    if part.tests and part.trend is Trend.UNDECIDED:
        why = f"; {repeats_needed([test.repeats for test in part.tests], once=once)} would decide"
    return f"{statement}{f': {ratios}' if ratios else ''}{interval}{why}. Best figures: {best}."


def _statement(label: str, part: _Range) -> str:
    return {
        Trend.SAME: f"The same within {100 * EQUIVALENT:g} %" if part.tests else "Both display as 0",
        Trend.AHEAD: f"{label} is ahead",
        Trend.BEHIND: f"{label} is behind",
        Trend.NO_RATIO: "One of the two displays as 0, so there is no ratio",
        Trend.UNDECIDED: "Undecided",
        Trend.MIXED: {
            (True, True): f"{label} is ahead at some sizes, behind at others",
            (True, False): f"{label} is ahead at some sizes, behind at none",
            (False, True): f"{label} is behind at some sizes, ahead at none",
            (False, False): "The same at some sizes, undecided at others",
        }[Trend.AHEAD in part.trends, Trend.BEHIND in part.trends],
    }[part.trend]


def repeats_needed(counts: Sequence[int | None], *, once: bool) -> str:
    """Return how many repeats would decide, in words; nobody knows where a side was measured `once`."""
    if once:
        return "repeats"
    largest = max(count or math.inf for count in counts)
    return f"about {largest} repeats" if largest < math.inf else f"more than {MAX_REPEATS} repeats"


def confidence(level: float) -> str:
    """Format the confidence of an interval: ``"95 %"``."""
    return f"{format_decimal(100 * (1 - level), 1)} %"


def bounds(tests: Sequence[RowTest]) -> str:
    """Format the interval that covers those of several sizes: ``"0.71 to 1.24"``."""
    low, high = min(test.low for test in tests), max(test.high for test in tests)
    return f"{_precise(low)} to {_precise(high)}"


def _precise(ratio: float) -> str:
    if 0 < ratio < 0.1:  # two significant digits: 0.013, not 0.01
        return format_decimal(ratio, 1 - math.floor(math.log10(ratio)))
    return format_decimal(ratio, 3 if abs(ratio - 1) < 0.1 else 2 if ratio < 10 else 1)


def _best(section: ComparisonSection, rows: Sequence[ComparisonRow], column: int, label: str) -> str:
    choose = min if section.metric.lower_is_better else max
    figures = [(cell.value, row.size) for row in rows if (cell := row.figures[column]) is not None]
    value, _ = choose(figures, key=lambda pair: pair[0])
    size = max(size for each, size in figures if each == value)
    return f"{label} {section.scale.quantity(value)} at {format_size(size)}"
