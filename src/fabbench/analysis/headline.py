"""The result of a section in one line. Pure.

``all_reduce, 2 × 8 GPUs: EFA 77.35 GB/s vs TCP 4.13 GB/s at 2 GB (18.7x); faster from 8 KB up``
"""

from collections.abc import Sequence
from itertools import groupby

from fabbench.analysis.compare import Comparison, ComparisonRow, ComparisonSection
from fabbench.analysis.highlights import Highlight, Trend, highlights
from fabbench.model.units import format_ratio, format_size, scale

_MAX_QUOTED = 3
"""Columns besides the base that are quoted."""
_WORDS = {Trend.AHEAD: "faster", Trend.BEHIND: "slower"}
_NO_DIFFERENCE = {
    frozenset({Trend.SAME}): "no clear difference",
    frozenset({Trend.UNDECIDED}): "undecided",
    frozenset({Trend.SAME, Trend.UNDECIDED}): "no difference shown",
}


def headline(comparison: Comparison, index: int) -> str:
    """Return the result of section `index`; empty where no column has a figure.

    A rate is quoted at the largest size that every column has, a time at the smallest.
    """
    section = comparison.sections[index]
    row = _row(section)
    if row is None:
        return ""
    figures = [_figure(comparison, section, row, column) for column in range(len(comparison.columns))]
    at = f" at {format_size(row.size)}"
    if len(figures) == 1:
        return f"{_subject(comparison, section)}: {figures[0]}{at}"
    *others, base = figures
    if len(others) > 1:
        compared = [f"{one}{_times(ratio)}" for one, ratio in zip(others, row.ratios, strict=False)]
        more = f" and {len(compared) - _MAX_QUOTED} more" if len(compared) > _MAX_QUOTED else ""
        return f"{_subject(comparison, section)}: {', '.join(compared[:_MAX_QUOTED])}{more} vs {base}{at}"
    remarks = [each for each in highlights(comparison) if each.section == index]
    verdict = f"; {text}" if (text := verdict_of(remarks)) else ""
    return f"{_subject(comparison, section)}: {others[0]} vs {base}{at}{_times(row.ratios[0])}{verdict}"


def verdict_of(remarks: Sequence[Highlight]) -> str:
    """Describe at which sizes one column is faster or slower than the base: ``"faster from 8 KB up"``.

    `remarks` are the ranges of that column, in order.
    """
    spans = [
        (word, list(ranges)) for word, ranges in groupby(remarks, lambda each: _WORDS.get(each.trend, ""))
    ]
    parts = [
        f"{word} {_span(ranges, first=number == 0, last=number == len(spans) - 1)}"
        for number, (word, ranges) in enumerate(spans)
        if word
    ]
    if remarks and not parts:
        trends = frozenset(each.trend for each in remarks)
        return _NO_DIFFERENCE.get(trends, "")
    return ", ".join(parts)


def _span(ranges: Sequence[Highlight], *, first: bool, last: bool) -> str:
    low, high = format_size(ranges[0].low), format_size(ranges[-1].high)
    if first and last:
        return "at every size"
    if last:
        return f"from {low} up"
    if first:
        return f"up to {high}"
    return f"at {low}" if low == high else f"from {low} to {high}"


def _row(section: ComparisonSection) -> ComparisonRow | None:
    """Choose the row to quote: one that every column has if possible, else one with any figure."""
    rows = section.rows if section.metric.lower_is_better else section.rows[::-1]
    shown = sum(section.shown)
    for least in (shown, 1):
        for row in rows:
            if least and sum(figure is not None for figure in row.figures) >= least:
                return row
    return None


def _figure(comparison: Comparison, section: ComparisonSection, row: ComparisonRow, column: int) -> str:
    label, figure = comparison.columns[column].label, row.figures[column]
    if not section.shown[column]:
        return f"{label} {section.outcomes[column]}"
    if figure is None:
        return f"{label} -"
    took = row.times[column] if row.times else None
    if took is not None and section.scale.text(figure.value) == "0":
        return f"{label} {scale('s', took.value).quantity(took.value)}"
    cut = f" ({section.outcomes[column]})" if section.partial[column] else ""
    return f"{label} {section.scale.quantity(figure.value)}{cut}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f" ({format_ratio(ratio).replace(' ', '')})"


def _subject(comparison: Comparison, section: ComparisonSection) -> str:
    """Return what was measured, and between how many: ``"all_reduce, 2 × 8 GPUs"``."""
    names = ("case", "benchmark", "ranks", "hosts", "gpus_per_host")
    case, benchmark, ranks, hosts, gpus = (_same(comparison, section, name) for name in names)
    what = case or benchmark or section.metric.name
    if hosts and gpus:
        many = "" if hosts == "1" else f"{hosts} × "
        return f"{what}, {many}{gpus} GPU{'' if many + gpus == '1' else 's'}"
    return f"{what}, {ranks} rank{'' if ranks == '1' else 's'}" if ranks else what


def _same(comparison: Comparison, section: ComparisonSection, name: str) -> str:
    """Return the value of a field that every column has here; empty where they differ, or none states it."""
    values = {value for column in comparison.columns for value in column.fields[name]}
    return section.key.get(name) or (values.pop() if len(values) == 1 else "")
