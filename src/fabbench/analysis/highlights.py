"""What stands out in a comparison: columns in ranges of sizes, and rails. Pure.

The trend of each size is its verdict (`fabbench.analysis.statistics`). Sizes are joined into ranges
from the largest down, as long as the trend is the same and the best ratio is at most three times
the worst. Of more than five ranges the smallest neighbors are joined. Sizes that one of the two
columns lacks are not compared.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from fabbench.analysis.aggregate import RAIL
from fabbench.analysis.compare import Comparison, ComparisonRow, ComparisonSection
from fabbench.analysis.statistics import EQUIVALENT, MAX_REPEATS, Difference, RowTest, mean
from fabbench.model.log import Metric, Outcome
from fabbench.model.units import format_decimal, format_ratio, format_size

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


_TRENDS = dict(
    zip(
        Difference,
        (Trend.AHEAD, Trend.BEHIND, Trend.SAME, Trend.UNDECIDED, Trend.MIXED),
        strict=True,
    )
)


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


@dataclass(frozen=True, slots=True)
class _Range:
    column: int
    rows: tuple[ComparisonRow, ...]
    trends: frozenset[Trend]

    def __add__(self, other: "_Range") -> "_Range":
        return _Range(self.column, self.rows + other.rows, self.trends | other.trends)

    @property
    def trend(self) -> Trend:
        return next(iter(self.trends)) if len(self.trends) == 1 else Trend.MIXED

    @property
    def ratios(self) -> list[float]:
        return [ratio for row in self.rows if (ratio := row.ratios[self.column]) is not None]

    @property
    def tests(self) -> list[RowTest]:
        return [test for row in self.rows if (test := row.tests[self.column])]

    def takes(self, other: "_Range") -> bool:
        """Return whether the two are one range by the rules above."""
        ratios = self.ratios + other.ratios
        # Without the allowance for rounding, the two directions of a comparison could read
        # differently.
        widest = RANGE_FACTOR * (1 + 1e-9)
        wide = self.trend in {Trend.AHEAD, Trend.BEHIND} and max(ratios) > min(ratios) * widest
        return self.trend is other.trend and not wide


def highlights(comparison: Comparison) -> tuple[Highlight, ...]:
    """Return, per section and per shown column but the base, where it is ahead, behind or the same.

    The ranges of one column are contiguous and cover every size that was compared.
    """
    return tuple(
        remark
        for index, section in enumerate(comparison.sections)
        for column in range(len(comparison.columns) - 1)
        if all(section.shown[each] and not section.partial[each] for each in (column, -1))
        for remark in _column(comparison, index, column)
    )


def _column(comparison: Comparison, index: int, column: int) -> Iterator[Highlight]:
    section = comparison.sections[index]
    ranges: list[_Range] = []
    for row in reversed(section.rows):
        new, base, ratio = row.figures[column], row.figures[-1], row.ratios[column]
        if new is None or base is None:
            continue
        if test := row.tests[column]:
            trend = _TRENDS[test.verdict]
        elif ratio is not None:
            trend = Trend.UNDECIDED  # an execution has 0
        else:
            both_zero = section.scale.text(new.value) == section.scale.text(base.value) == "0"
            trend = Trend.SAME if both_zero else Trend.NO_RATIO
        single = _Range(column, (row,), frozenset({trend}))
        if ranges and single.takes(ranges[0]):
            ranges[0] = single + ranges[0]
        else:
            ranges.insert(0, single)
    for part in _joined(ranges):
        ratios = part.ratios
        yield Highlight(
            section=index,
            label=comparison.columns[column].label,
            base=comparison.base.label,
            low=part.rows[0].size,
            high=part.rows[-1].size,
            trend=part.trend,
            worst=min(ratios, default=None),
            best=max(ratios, default=None),
            span=_span(section, part.rows),
            text=_text(comparison, section, part),
        )


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
    if len(rows) == 1:
        return low
    first, last = rows[0] is section.rows[0], rows[-1] is section.rows[-1]
    if first is last:
        return f"{low} – {high}"
    return f"≤ {high}" if first else f"≥ {low}"


def _text(comparison: Comparison, section: ComparisonSection, part: _Range) -> str:
    tests, ratios, label = part.tests, part.ratios, comparison.columns[part.column].label
    compared = {part.column: label, len(comparison.columns) - 1: comparison.base.label}
    best = " vs ".join(_best(section, part.rows, column, name) for column, name in compared.items())
    once = any(test.once for test in tests)
    text = {
        Trend.SAME: f"The same within {100 * EQUIVALENT:g} %" if tests else "Both display as 0",
        Trend.AHEAD: f"{label} is ahead",
        Trend.BEHIND: f"{label} is behind",
        Trend.NO_RATIO: "One of the two displays as 0, so there is no ratio",
        Trend.UNDECIDED: "Undecided",
        Trend.MIXED: {
            (True, True): f"{label} is ahead at some sizes, behind at others",
            (True, False): f"{label} is ahead at some sizes, never behind",
            (False, True): f"{label} is behind at some sizes, never ahead",
            (False, False): "Mixed: same or undecided",
        }[Trend.AHEAD in part.trends, Trend.BEHIND in part.trends],
    }[part.trend]
    if ratios:
        text += f": {' to '.join(dict.fromkeys(format_ratio(end) for end in (min(ratios), max(ratios))))}"
    if tests:
        intervals = f"{confidence(section.level)} interval{'s' if len(tests) > 1 else ''}"
        text += f" ({intervals} {bounds(tests)}{', measured once' if once else ''})"
    if tests and part.trend is Trend.UNDECIDED:
        text += f"; {would_decide([test.repeats for test in tests], once=once)}"
    return f"{text}. Best: {best}."


def would_decide(counts: Sequence[int | None], *, once: bool) -> str:
    """Return how many repeats would decide, in words.

    Nobody knows where a side was measured `once`.
    """
    if once:
        return "repeats would decide"
    largest = max(count or math.inf for count in counts)
    noise = (
        f"the noise is the problem, not the number of repeats (more than {MAX_REPEATS} would "
        "decide)"
    )
    return f"about {largest} repeats would decide" if largest < math.inf else noise


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


def _best(
    section: ComparisonSection, rows: Sequence[ComparisonRow], column: int, label: str
) -> str:
    choose = min if section.metric.lower_is_better else max
    figures = [(cell.value, row.size) for row in rows if (cell := row.figures[column]) is not None]
    value, _ = choose(figures, key=lambda pair: pair[0])
    size = max(size for each, size in figures if each == value)
    return f"{label} {section.scale.quantity(value)} at {format_size(size)}"


# ---------------------------------------------------------------- rails

LAGGING = 0.1  # A rail that is worse than the mean by more than this fraction stands out


class RailFigures(NamedTuple):
    """The figures of all rails of a column at one size, in the metric's base unit."""

    column: str  # With what else distinguishes the section
    metric: Metric
    size: int
    together: bool  # Whether they were measured concurrently
    figures: Mapping[str, float]  # By device

    @property
    def mean(self) -> float:
        """The mean of the rails."""
        return mean(self.figures.values())

    @property
    def total(self) -> float | None:
        """The sum of the rails; None for what does not add up, such as a latency."""
        return None if self.metric.lower_is_better else sum(self.figures.values())

    @property
    def slowest(self) -> str:
        """The device with the worst figure."""
        worst = max if self.metric.lower_is_better else min
        return worst(self.figures, key=lambda device: self.figures[device])

    def lagging(self) -> Mapping[str, float]:
        """Return the rails that stand out.

        Device → how much worse it is, as a fraction of the mean.
        """
        sign = 1 if self.metric.lower_is_better else -1
        parts = {device: sign * (value / self.mean - 1) for device, value in self.figures.items()}
        return {device: part for device, part in parts.items() if part > LAGGING}


def rails_of(comparison: Comparison) -> list[RailFigures]:
    """Return the figures of the rails of each column that is ok and has several."""
    rails: dict[tuple[str, Metric, int, bool], dict[str, float]] = defaultdict(dict)
    for index, column in enumerate(comparison.columns):
        together = column.facts.get("together") == ("yes",)
        for section in comparison.sections:
            device, others = (
                section.key.get(RAIL, ""),
                (each for name, each in section.key.items() if name != RAIL),
            )
            label = ", ".join(filter(None, (column.label, *others)))
            # Where only other columns have rails, all of theirs have this one's figure beside them.
            if device in column.fields[RAIL] and section.outcomes[index] is Outcome.OK:
                for row in section.rows:
                    if figure := row.figures[index]:
                        rails[label, section.metric, row.size, together][device] = figure.value
    return [RailFigures(*key, figures) for key, figures in rails.items() if len(figures) > 1]
