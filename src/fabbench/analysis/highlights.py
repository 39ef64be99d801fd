"""What stands out in a comparison: columns in ranges of sizes, and rails. Pure.

The trend of each size is its verdict (`fabbench.analysis.statistics`). Sizes are joined into ranges
from the largest down, as long as the trend is the same and the best ratio is at most three times
the worst. Of more than five ranges the smallest neighbors are joined. Sizes that one of the two
columns lacks are not compared.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from statistics import fmean
from typing import NamedTuple

from fabbench.analysis.aggregate import RAIL
from fabbench.analysis.compare import (
    BASE,
    ColumnSummary,
    Comparison,
    ComparisonRow,
    ComparisonSection,
)
from fabbench.analysis.statistics import EQUIVALENT, MAX_REPEATS, Difference, RowTest
from fabbench.model.log import Metric, Outcome
from fabbench.model.units import format_bounds, format_change, format_percent, format_size
from fabbench.model.values import frozen

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
    Difference.MIXED: Trend.MIXED,
}


@frozen
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


@frozen
class _Range:
    column: int
    rows: tuple[ComparisonRow, ...]
    trends: frozenset[Trend]

    def __add__(self, other: "_Range") -> "_Range":
        rows = self.rows + other.rows
        return _Range(column=self.column, rows=rows, trends=self.trends | other.trends)

    @property
    def trend(self) -> Trend:
        if len(self.trends) > 1:
            return Trend.MIXED
        (trend,) = self.trends
        return trend

    @property
    def ratios(self) -> list[float]:
        every = (row.ratios[self.column] for row in self.rows)
        return [ratio for ratio in every if ratio is not None]

    @property
    def tests(self) -> list[RowTest]:
        return [test for row in self.rows if (test := row.tests[self.column])]

    def takes(self, other: "_Range") -> bool:
        """Return whether the two are one range: with one trend, and if ahead or behind, alike.

        Alike is that no ratio is more than `RANGE_FACTOR` times another.
        """
        if self.trend is not other.trend:
            return False
        if self.trend not in {Trend.AHEAD, Trend.BEHIND}:
            return True
        ratios = self.ratios + other.ratios
        # Without the allowance for rounding, the two directions of a comparison could read
        # differently.
        widest = RANGE_FACTOR * (1 + 1e-9)
        return max(ratios) <= min(ratios) * widest


def highlights(comparison: Comparison) -> tuple[Highlight, ...]:
    """Return, per section and per shown column but the base, where it is ahead, behind or the same.

    The ranges of one column are contiguous and cover every size that was compared.
    """
    return tuple(
        remark
        for index, section in enumerate(comparison.sections)
        for column in range(len(comparison.columns) - 1)
        if _may_have_ratios(section, column) and _may_have_ratios(section, BASE)
        for remark in _column_highlights(comparison, index, column)
    )


def _may_have_ratios(section: ComparisonSection, column: int) -> bool:
    # Figures of a truncated column are shown without a ratio.
    return section.shown[column] and not section.partial[column]


def _column_highlights(comparison: Comparison, index: int, column: int) -> Iterator[Highlight]:
    """Yield what stands out in a column of a section (`index`), for each range of sizes.

    Neighboring sizes with the same trend are one range.
    """
    section = comparison.sections[index]
    ranges: list[_Range] = []
    for row in reversed(section.rows):
        trend = _trend(section, row, column)
        if trend is None:
            continue
        single = _Range(column=column, rows=(row,), trends=frozenset({trend}))
        # From the largest size down: the first range is the one with the next larger sizes.
        if ranges and single.takes(ranges[0]):
            ranges[0] = single + ranges[0]
        else:
            ranges.insert(0, single)
    for part in _few_ranges(ranges):
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
            span=_span_words(section, part.rows),
            text=_sentences(comparison, section, part),
        )


def _trend(section: ComparisonSection, row: ComparisonRow, column: int) -> Trend | None:
    """Return the trend of one size; None: one of the two columns lacks it."""
    new = row.figures[column]
    base = row.figures[BASE]
    if new is None or base is None:
        return None
    test = row.tests[column]
    if test is not None:
        return _TRENDS[test.verdict]
    if row.ratios[column] is not None:
        return Trend.UNDECIDED  # without a test: an execution has 0, which has no logarithm
    write = section.scale.text
    both_zero = write(new.value) == write(base.value) == "0"
    return Trend.SAME if both_zero else Trend.NO_RATIO


def _few_ranges(ranges: list[_Range]) -> list[_Range]:
    """Join neighbors until there are few enough: those already mixed, or else the smallest."""

    def rows_of_pair(index: int) -> int:
        pair = ranges[index : index + 2]
        return sum(len(part.rows) for part in pair)

    while len(ranges) > MAX_RANGES:
        smallest = min(range(len(ranges) - 1), key=rows_of_pair)
        _join_with_next(ranges, smallest)
        for index in reversed(range(len(ranges) - 1)):
            if ranges[index].trend is ranges[index + 1].trend is Trend.MIXED:
                _join_with_next(ranges, index)
    return ranges


def _join_with_next(ranges: list[_Range], index: int) -> None:
    """Join a range with the next one."""
    following = ranges.pop(index + 1)
    ranges[index] += following


def _span_words(section: ComparisonSection, rows: Sequence[ComparisonRow]) -> str:
    # Open to one side if it reaches the end there; both ends are written if it reaches both or none
    low = format_size(rows[0].size)
    high = format_size(rows[-1].size)
    if len(rows) == 1:
        return low
    first = rows[0] is section.rows[0]
    last = rows[-1] is section.rows[-1]
    if first is last:
        return f"{low} – {high}"
    return f"≤ {high}" if first else f"≥ {low}"


def _sentences(comparison: Comparison, section: ComparisonSection, part: _Range) -> str:
    """Describe a range: the trend, the ratios, their interval, what would decide; both bests."""
    tests = part.tests
    label = comparison.columns[part.column].label
    once = any(test.once for test in tests)
    text = _trend_words(part, label)
    if part.ratios:
        text += f": {_range_words(part.ratios)}"
    if tests:
        noun = "intervals" if len(tests) > 1 else "interval"
        doubt = ", measured once" if once else ""
        # In percent or as a factor, as the ratios are
        intervals = f"{confidence(section.level)} {noun} {bounds(tests, part.ratios)}"
        text += f" ({intervals}{doubt})"
    if tests and part.trend is Trend.UNDECIDED:
        remedy = would_decide([test.repeats for test in tests], once=once)
        text += f"; {remedy}"
    new = _best_words(section, part.rows, part.column, label)
    base = _best_words(section, part.rows, BASE, comparison.base.label)
    return f"{text}. Best: {new} vs {base}."


def _range_words(ratios: Collection[float]) -> str:
    """Write the least and the largest change in one unit; once if they read alike."""
    least = min(ratios)
    largest = max(ratios)
    if format_change(least) == format_change(largest):
        return format_change(least)
    return format_bounds(least, largest, ratios)


def _trend_words(part: _Range, label: str) -> str:
    if part.trend is Trend.MIXED:
        return _mixed_words(part, label)
    same = f"The same within {format_percent(EQUIVALENT, 1)}" if part.tests else "Both display as 0"
    words = {
        Trend.SAME: same,
        Trend.AHEAD: f"{label} is ahead",
        Trend.BEHIND: f"{label} is behind",
        Trend.NO_RATIO: "One of the two displays as 0, so there is no ratio",
        Trend.UNDECIDED: "Undecided",
    }
    return words[part.trend]


def _mixed_words(part: _Range, label: str) -> str:
    # A range may have several trends, where too many ranges were put together.
    ahead = Trend.AHEAD in part.trends
    behind = Trend.BEHIND in part.trends
    if ahead:
        others = "behind at others" if behind else "never behind"
        return f"{label} is ahead at some sizes, {others}"
    if behind:
        return f"{label} is behind at some sizes, never ahead"
    return "Mixed: same or undecided"


def would_decide(counts: Sequence[int | None], *, once: bool) -> str:
    """Return how many repeats would decide, in words.

    `counts`: how many at each size; None: more than `MAX_REPEATS`. Nobody knows where a side was
    measured `once`.
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
    return format_percent(1 - level, 1)


def bounds(tests: Sequence[RowTest], ratios: Collection[float]) -> str:
    """Write the interval that covers those of several ratios: ``"-7.2 to -4.0 %"``.

    From twice or half on, `ratios` make it a factor.
    """
    low = min(test.low for test in tests)
    high = max(test.high for test in tests)
    return format_bounds(low, high, ratios)


def _best_words(
    section: ComparisonSection, rows: Sequence[ComparisonRow], column: int, label: str
) -> str:
    # Of several sizes with the best figure, the largest
    figures: dict[int, float] = {}
    for row in rows:
        figure = row.figures[column]
        if figure is not None:
            figures[row.size] = figure.value
    choose = min if section.metric.lower_is_better else max
    value = choose(figures.values())
    size = max(size for size in figures if figures[size] == value)
    quantity = section.scale.quantity(value)
    return f"{label} {quantity} at {format_size(size)}"


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
        return fmean(self.figures.values())

    @property
    def total(self) -> float | None:
        """The sum of the rails; None for what does not add up, such as a latency."""
        return None if self.metric.lower_is_better else sum(self.figures.values())

    @property
    def slowest(self) -> str:
        """The device with the worst figure."""
        worst = max if self.metric.lower_is_better else min
        return worst(self.figures, key=self.figures.__getitem__)

    def lagging(self) -> Mapping[str, float]:
        """Return the rails that stand out.

        Device → how much worse it is, as a fraction of the mean.
        """
        sign = 1 if self.metric.lower_is_better else -1
        usual = self.mean
        worse_by = {}
        for device, value in self.figures.items():
            part = sign * (value / usual - 1)
            if part > LAGGING:
                worse_by[device] = part
        return worse_by


def rails_of(comparison: Comparison) -> list[RailFigures]:
    """Return the figures of the rails of each column that is ok and has several."""
    # The fields of `RailFigures` without its last, the figures → these
    rails: dict[tuple[str, Metric, int, bool], dict[str, float]] = defaultdict(dict)
    for index, column in enumerate(comparison.columns):
        together = column.facts.get("together") == ("yes",)  # rails measured concurrently
        for section in comparison.sections:
            device = section.key.get(RAIL, "")
            # A column without rails is repeated in each rail's section: its own fields name none.
            is_own_rail = device in column.fields[RAIL]
            is_ok = section.outcomes[index] is Outcome.OK
            if not is_own_rail or not is_ok:
                continue
            label = _column_words(column, section)
            for size, figure in section.figures(index):
                rails[label, section.metric, size, together][device] = figure.value
    of_rails = [RailFigures(*key, figures) for key, figures in rails.items()]
    return [rails_of_column for rails_of_column in of_rails if len(rails_of_column.figures) > 1]


def _column_words(column: ColumnSummary, section: ComparisonSection) -> str:
    """Return a column's label, and what else than the rail distinguishes a section."""
    others = (value for name, value in section.key.items() if name != RAIL)
    return ", ".join(filter(None, (column.label, *others)))
