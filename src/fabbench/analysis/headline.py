"""The result of a section in one line. Pure.

``all_reduce, 2 × 8 GPUs: EFA 77.35 GB/s vs TCP 4.13 GB/s at 2 GB; plateau 18.6 x (10.9 to 31.7);
faster from 8 KB up (measured once)``

It claims what the table's verdicts show: of the plateau, then size by size.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from fabbench.analysis.compare import (
    BASE,
    Comparison,
    ComparisonRow,
    ComparisonSection,
)
from fabbench.analysis.statistics import Difference, RowTest
from fabbench.model.log import Outcome
from fabbench.model.units import (
    format_bounds,
    format_change,
    format_ends,
    format_quantity,
    format_size,
)

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
    columns = range(len(comparison.columns))
    judgements = [list(_judgement(comparison, section, column)) for column in columns]
    words_of_all = _words_of_all(judgements)  # said once, at the end
    figures: list[str] = []
    for column, words in enumerate(judgements):
        column_words = [word for word in words if word not in words_of_all]
        figures.append(_figure_words(comparison, section, row, column, column_words))
    subject = _subject(comparison, section)
    at = f" at {format_size(row.size)}"
    if len(figures) == 1:
        return f"{subject}: {figures[0]}{at}"
    *others, base = figures
    if len(others) > 1:
        text = f"{_first_figures(others, row)} vs {base}{at}"
    else:
        verdicts = _verdicts(section)
        text = f"{others[0]} vs {base}{at}{_change(section, row, verdicts)}"
        text += f"; {verdicts}" if verdicts else ""
    of_all = ", ".join(words_of_all)
    text += f"; all {of_all}" if of_all else ""
    return f"{subject}: {text}{_repeats_words(section)}"


def headlines(comparison: Comparison) -> list[str]:
    """Return the headlines of all sections that have one."""
    sections = range(len(comparison.sections))
    return list(filter(None, (headline(comparison, index) for index in sections)))


def _change(section: ComparisonSection, row: ComparisonRow, verdicts: str) -> str:
    """Write how much better the plateau is; where it is one size, how much better a row is.

    `verdicts`: the words on sizes that follow. Its own verdict is added where they say another.
    """
    mark = verdicts.startswith(_CLEAR)  # they begin with "faster" or "slower"
    plateau = section.plateaus[0]
    if plateau is None or len(plateau.sizes) < 2:
        return _ratio_words(row, column=0, mark=mark)
    verdict = plateau.test.verdict
    change = _with_bounds(plateau.ratio, plateau.test)
    is_said = verdict in verdicts if verdict in _CLEAR else not mark
    return f"; plateau {change}" if is_said else f"; plateau {change}, {verdict}"


def _with_bounds(ratio: float, test: RowTest) -> str:
    """Write a change and its interval in the same unit: ``"-5.6 % (-7.2 to -4.0)"``."""
    bounds = format_bounds(test.low, test.high, [ratio])
    numbers, _, _ = bounds.rpartition(" ")  # The unit stands behind the change already
    return f"{format_change(ratio)} ({numbers})"


def _first_figures(others: Sequence[str], row: ComparisonRow) -> str:
    """Return the first figures, each with its ratio, and how many more there are."""
    first = others[:_MAX_QUOTED]
    compared = [
        f"{figure}{_ratio_words(row, column, mark=True)}" for column, figure in enumerate(first)
    ]
    more = len(others) - len(first)
    text = ", ".join(compared)
    return f"{text} and {more} more" if more else text


def _repeats_words(section: ComparisonSection) -> str:
    """Say how many repeats there are, or whether the noise of all or of some sizes is assumed."""
    tests = [test for row in section.rows for test in row.tests if test]
    once = {test.once for test in tests}
    if once == {False}:
        return f" (n = {_count(section)})"
    if not any(once):
        return ""
    return " (measured once)" if all(once) else " (in part measured once)"


def _count(section: ComparisonSection) -> str:
    """Return how many repeats the figures have: ``"3"``, ``"3 to 5"``."""
    counts = {figure.n for row in section.rows for figure in row.figures if figure}
    return format_ends(counts, str)


class _Span(NamedTuple):
    """Neighboring sizes with one verdict."""

    verdict: Difference | None
    rows: Sequence[ComparisonRow]


def _verdicts(section: ComparisonSection) -> str:
    """Describe at which sizes the first column is faster or slower: ``"faster from 8 KB up"``.

    By the verdict of each size alone: none is claimed that the table has as undecided. Where the
    spans are too many, the sizes are counted.
    """
    rows = [row for row in section.rows if row.figures[0]]
    rows = [row for row in rows if row.figures[BASE]]  # that the base has, too
    spans = list(_spans(rows))
    clear = [span for span in spans if span.verdict in _CLEAR]
    if not clear:
        verdicts = {span.verdict for span in spans if span.verdict}
        no_difference = _NO_DIFFERENCE.get(frozenset(verdicts), "")
        plateau = section.plateaus[0]
        is_plateau_clear = plateau is not None and plateau.test.verdict in _CLEAR
        return f"{no_difference} at single sizes" if is_plateau_clear else no_difference
    if len(clear) > _MAX_SPANS:
        counts = Counter(row.verdict(column=0) for row in rows)
        total = len(rows)
        shown = [word for word in _CLEAR if counts[word]]
        return ", ".join(f"{word} at {counts[word]} of {total} sizes" for word in shown)
    words = [f"{span.verdict} {_sizes_words(span.rows, rows)}" for span in clear]
    return ", ".join(words)


def _spans(rows: Sequence[ComparisonRow]) -> Iterator[_Span]:
    """Yield neighbors with one verdict."""
    for verdict, neighbors in groupby(rows, lambda row: row.verdict(column=0)):
        yield _Span(verdict, list(neighbors))


def _sizes_words(span: Sequence[ComparisonRow], rows: Sequence[ComparisonRow]) -> str:
    """Write which of all rows are in a span; rows are in order of size."""
    low = format_size(span[0].size)
    high = format_size(span[-1].size)
    first = span[0] is rows[0]
    last = span[-1] is rows[-1]
    if first and last:
        return "at every size"
    if last:
        return f"from {low} up"
    if first:
        return f"up to {high}"
    return f"from {low} to {high}" if low != high else f"at {low}"


def headline_row(section: ComparisonSection) -> ComparisonRow | None:
    """Return the row to quote: one that every column has if possible, else one with any figure."""
    # Rates are best at large sizes, times at small ones.
    rows = section.rows if section.metric.lower_is_better else section.rows[::-1]
    for least in (sum(section.shown), 1):  # figures in a row; no column may be shown at all
        for row in rows:
            if 0 < least <= sum(figure is not None for figure in row.figures):
                return row
    return None


def _words_of_all(judgements: Sequence[Sequence[str]]) -> Sequence[str]:
    """Return what is said of all of several columns: whether they are normal, and the type."""
    first, *others = judgements
    if not others:
        return []
    common = set(first).intersection(*others)
    return [word for word in first if word in common]


def _figure_words(
    comparison: Comparison,
    section: ComparisonSection,
    row: ComparisonRow,
    column: int,
    judgement: Sequence[str],
) -> str:
    """Write a column's label, its figure in a row, and in parentheses what qualifies it.

    A rate so small that it displays as 0 is replaced by the time, if that is known.
    """
    label = comparison.columns[column].label
    figure = row.figures[column]
    if not section.shown[column]:
        return f"{label} {section.outcomes[column]}"
    outcome = section.outcomes[column]
    words = [] if outcome is Outcome.OK else [outcome.value]
    remarks = ", ".join([*words, *judgement])
    doubt = f" ({remarks})" if remarks else ""
    if figure is None:
        return f"{label} -{doubt}"
    took = row.times[column] if row.times else None
    if took is not None and section.scale.text(figure.value) == "0":
        time = format_quantity(took.value, "s")
        return f"{label} {time}{doubt}"
    value = section.scale.quantity(figure.value)
    return f"{label} {value}{doubt}"


def _judgement(comparison: Comparison, section: ComparisonSection, column: int) -> Iterator[str]:
    """Yield whether a figure is normal, if anything says what is, and the type if assumed."""
    of_column, _ = comparison.inputs[column]
    if not of_column.logs[0].instance_type:
        return
    from fabbench.analysis.expectations import expectation_of  # most logs do not name their nodes

    expected = expectation_of(comparison, section, column)
    if expected is not None and expected.judgement != "unknown":
        assumed = of_column.logs[0].assumed_type
        yield expected.judgement
        if assumed:
            yield f"{assumed} assumed"


def _ratio_words(row: ComparisonRow, column: int, *, mark: bool) -> str:
    """Write ``" (18.7 x)"``; with `mark`, also a verdict that is neither faster nor slower."""
    ratio = row.ratios[column]
    if ratio is None:
        return ""
    verdict = row.verdict(column)
    doubt = f", {verdict}" if mark and verdict and verdict not in _CLEAR else ""
    return f" ({format_change(ratio)}{doubt})"


def _subject(comparison: Comparison, section: ComparisonSection) -> str:
    """Return what was measured, and between how many: ``"all_reduce, 2 × 8 GPUs"``."""
    names = ("case", "benchmark", "ranks", "hosts", "gpus_per_host")
    case, benchmark, ranks, hosts, gpus = (
        section.key.get(name) or comparison.common(name) for name in names
    )
    what = case or benchmark or section.metric.name
    # What differs between columns, or is not known, is empty.
    if hosts and gpus:
        many = gpus if hosts == "1" else f"{hosts} × {gpus}"
        return f"{what}, {_plural(many, 'GPU')}"
    return f"{what}, {_plural(ranks, 'rank')}" if ranks else what


def _plural(many: str, noun: str) -> str:
    return f"{many} {noun}" if many == "1" else f"{many} {noun}s"
