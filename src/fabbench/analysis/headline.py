"""The result of a section in one line. Pure.

``all_reduce, 2 × 8 GPUs: EFA 77.35 GB/s vs TCP 4.13 GB/s at 2 GB (18.7x); faster from 8 KB up``

It claims what the table's verdicts show, size by size, and says where a side was measured once.
"""

from collections.abc import Sequence
from itertools import groupby

from fabbench.analysis.compare import Comparison, ComparisonRow, ComparisonSection
from fabbench.analysis.statistics import Difference, RowTest
from fabbench.model.units import format_decimal, format_ratio, format_size, scale

_MAX_QUOTED = 3  # columns besides the base that are quoted
_MAX_SPANS = 3
_CLEAR = (Difference.FASTER, Difference.SLOWER)
_NO_DIFFERENCE = {
    frozenset({Difference.SAME}): "no clear difference",
    frozenset({Difference.UNDECIDED}): "undecided",
    frozenset({Difference.SAME, Difference.UNDECIDED}): "no difference shown",
}


def headline(comparison: Comparison, index: int) -> str:
    """Return the result of section `index`; empty where no column has a figure.

    A rate is quoted at the largest size that every column has, a time at the smallest.
    """
    section = comparison.sections[index]
    row = headline_row(section)
    if row is None:
        return ""
    figures = [
        _figure(comparison, section, row, column) for column in range(len(comparison.columns))
    ]
    at = f" at {format_size(row.size)}"
    if len(figures) == 1:
        return f"{_subject(comparison, section)}: {figures[0]}{at}"
    *others, base = figures
    kinds = {test.once for each in section.rows for test in each.tests if test}
    once = f" ({'in part ' if False in kinds else ''}measured once)" if True in kinds else ""
    verdict = "" if len(others) > 1 else _verdicts(section)
    mark = len(others) > 1 or verdict.startswith(_CLEAR)
    ratios = [
        _times(ratio, test, mark=mark) for ratio, test in zip(row.ratios, row.tests, strict=True)
    ]
    compared = [f"{one}{ratio}" for one, ratio in zip(others, ratios, strict=False)]
    more = f" and {len(compared) - _MAX_QUOTED} more" if len(compared) > _MAX_QUOTED else ""
    text = f"{', '.join(compared[:_MAX_QUOTED])}{more} vs {base}{at}"
    if len(others) == 1:
        text = f"{others[0]} vs {base}{at}{ratios[0]}{f'; {verdict}' if verdict else ''}"
    return f"{_subject(comparison, section)}: {text}{once}"


def _verdicts(section: ComparisonSection) -> str:
    """Describe at which sizes the first column is faster or slower: ``"faster from 8 KB up"``."""
    rows = [row for row in section.rows if row.figures[0] and row.figures[-1]]
    spans = [(verdict, list(span)) for verdict, span in groupby(rows, lambda row: row.verdict(0))]
    clear = [(verdict, span) for verdict, span in spans if verdict in _CLEAR]
    if not clear:
        return _NO_DIFFERENCE.get(frozenset(filter(None, (verdict for verdict, _ in spans))), "")
    if len(clear) > _MAX_SPANS:
        counts = {word: sum(row.verdict(0) is word for row in rows) for word in _CLEAR}
        return ", ".join(
            f"{word} at {count} of {len(rows)} sizes" for word, count in counts.items() if count
        )
    return ", ".join(
        f"{verdict} {_span(span, first=span[0] is rows[0], last=span[-1] is rows[-1])}"
        for verdict, span in clear
    )


def _span(rows: Sequence[ComparisonRow], *, first: bool, last: bool) -> str:
    low, high = format_size(rows[0].size), format_size(rows[-1].size)
    if first and last:
        return "at every size"
    ends = f"from {low} to {high}" if low != high else f"at {low}"
    return f"from {low} up" if last else f"up to {high}" if first else ends


def headline_row(section: ComparisonSection) -> ComparisonRow | None:
    """Return the row to quote: one that every column has if possible, else one with any figure."""
    rows = section.rows if section.metric.lower_is_better else section.rows[::-1]
    for least in (sum(section.shown), 1):
        for row in rows:
            if 0 < least <= sum(figure is not None for figure in row.figures):
                return row
    return None


def _figure(
    comparison: Comparison, section: ComparisonSection, row: ComparisonRow, column: int
) -> str:
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


def _times(ratio: float | None, test: RowTest | None, *, mark: bool) -> str:
    """Write ``" (18.7x)"``; with `mark`, also a verdict that is neither faster nor slower."""
    if ratio is None:
        return ""
    text, clear = format_ratio(ratio).replace(" ", ""), test is not None and test.verdict in _CLEAR
    if clear and text == "1x":
        text = f"{format_decimal(ratio, 2)}x"
    return f" ({text}{f', {test.verdict}' if mark and test and not clear else ''})"


def _subject(comparison: Comparison, section: ComparisonSection) -> str:
    """Return what was measured, and between how many: ``"all_reduce, 2 × 8 GPUs"``."""
    names = ("case", "benchmark", "ranks", "hosts", "gpus_per_host")
    case, benchmark, ranks, hosts, gpus = (
        section.key.get(name) or comparison.common(name) for name in names
    )
    what = case or benchmark or section.metric.name
    if hosts and gpus:
        many = "" if hosts == "1" else f"{hosts} × "
        return f"{what}, {many}{gpus} GPU{'' if many + gpus == '1' else 's'}"
    return f"{what}, {ranks} rank{'' if ranks == '1' else 's'}" if ranks else what
