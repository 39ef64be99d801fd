"""A comparison → tables of text, as the published EFA table, and records of its rows."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from fabbench.analysis.aggregate import FIELDS, RAIL
from fabbench.analysis.compare import (
    ColumnSummary,
    Comparison,
    ComparisonRow,
    ComparisonSection,
    Plateau,
)
from fabbench.analysis.footnotes import footnotes, versions_of
from fabbench.analysis.headline import headline, headline_row, headlines
from fabbench.analysis.highlights import (
    LAGGING,
    RailFigures,
    bounds,
    confidence,
    highlights,
    rails_of,
)
from fabbench.analysis.statistics import Difference
from fabbench.model.errors import Exit, worst
from fabbench.model.log import Outcome
from fabbench.model.mappings import distinct, first_of, gathered, only
from fabbench.model.messages import key_words
from fabbench.model.units import (
    Scale,
    format_change,
    format_ends,
    format_size,
    scale,
    whole_or_text,
)
from fabbench.report.expectations import expectation_record, expectations_of, judgement, sentences
from fabbench.report.table import PlainData, Table, TableColumn, picked, table_of

if TYPE_CHECKING:
    from fabbench.analysis.gate_results import GateResult, GateState, Verdict


def tables_of_comparison(
    comparison: Comparison, verdict: "Verdict | None" = None, *, terminal: bool = False
) -> list[Table]:
    """Return a summary of many sections, their tables, notes below them, and what stands out."""
    groups = section_groups(comparison)
    tables: list[Table] = []
    if len(groups) >= SEVERAL:
        tables.append(summary_table(comparison))
    tables += [section_table(comparison, sections, terminal=terminal) for sections in groups]
    return [*tables, *remarks(comparison, verdict)]


def section_groups(comparison: Comparison) -> list[list[ComparisonSection]]:
    """Return sections by table: those that differ only by device share one."""
    # By what distinguishes them but for the device
    groups = gathered(
        ((title_of(section, (RAIL,)), section.metric.name), section)
        for section in comparison.sections
    )
    return list(groups.values())


def remarks(comparison: Comparison, verdict: "Verdict | None" = None) -> list[Table]:
    """Return the tables below the figures: notes, what stands out, what is normal, rails, gates."""
    tables = [
        Table(notes=all_notes(comparison, verdict)),
        *_stands_out(comparison),
    ]
    expected = list(sentences(expectations_of(comparison)))
    if expected:
        tables.append(Table(title="Is it normal?", notes=expected))
    rails = rails_of(comparison)
    if rails:
        of_rails = distinct(_rail_notes(rails))
        tables.append(table_of(_RAIL_COLUMNS, rails, title="Rails", notes=of_rails))
    if verdict and verdict.results:
        tables.append(replace(gates_table(verdict), title=GATES))
    return tables


def all_notes(comparison: Comparison, verdict: "Verdict | None") -> list[str]:
    """Return the notes on the figures, and those of the gates."""
    return [*footnotes(comparison), *(verdict.notes if verdict else ())]


def _stands_out(comparison: Comparison) -> Iterator[Table]:
    """Yield what stands out in each section; a single column beside the baseline needs no name."""
    skipped = (
        0 if len(comparison.compared) > 1 else 1
    )  # Cells at the start of each row: the name of the column
    header = ("Column", "Range", "Observation")[skipped:]
    of_all_sections = highlights(comparison)
    for index, section in enumerate(comparison.sections):
        of_section = [each for each in of_all_sections if each.section == index]
        cells = [(each.label, each.span, each.text) for each in of_section]
        rows = [row[skipped:] for row in cells]
        title = "What stands out"
        if section.key:
            title = f"{title}: " + title_of(section)
        if rows:
            yield Table(title=title, header=header, rows=rows)


def _slowest_rail(rails: RailFigures) -> str:
    value = _rail_quantity(rails, rails.figures[rails.slowest])
    return f"{rails.slowest} ({value})"


_RAIL_COLUMNS: Sequence[TableColumn] = (
    ("Configuration", "l", lambda each: each.column),
    ("Metric", "l", lambda each: each.metric.name),
    ("Message Size", "l", lambda each: format_size(each.size)),
    ("Rails", "r", lambda each: str(len(each.figures))),
    ("Mean", "r", lambda each: _rail_quantity(each, each.mean)),
    ("Sum", "r", lambda each: _rail_quantity(each, each.total)),
    ("Slowest", "l", _slowest_rail),
)


def _rail_quantity(rails: RailFigures, value: float | None) -> str:
    """Write a figure in the unit that all rails of a line share; None: what does not add up."""
    if value is None:
        return "-"
    largest = max(rails.figures.values())
    return scale(rails.metric.unit, largest).quantity(value)


def _rail_notes(rails: Sequence[RailFigures]) -> Iterator[str]:
    """Say how to read the sum, and which rails stand out."""
    for each in rails:
        if each.total is None:  # as of times, which have no sum
            continue
        if each.together:
            yield (
                "The sum is what the NICs moved concurrently, as far as their programs overlapped."
            )
        else:
            yield (
                "The NICs were measured one after another: the sum is what they would move if "
                "they shared nothing."
            )
    for each in rails:
        for device, part in each.lagging().items():
            yield _lagging_sentence(each, device, part)


def _lagging_sentence(rails: RailFigures, device: str, part: float) -> str:
    """Say by which part of the mean a NIC is worse than it."""
    measured = _rail_quantity(rails, rails.figures[device])
    usual = _rail_quantity(rails, rails.mean)
    percent = format(100 * part, ".0f")
    marked = format(100 * LAGGING, ".0f")
    at = format_size(rails.size)
    worse = f"{percent} % worse than the mean of {usual} (more than {marked} % is marked)"
    return f"{rails.column}: {device} stands out at {at}: {measured}, {worse}."


GATES = "Gates"
_MAX_SENTENCES = 8


def gates_table(verdict: "Verdict", marks: "Mapping[GateState, str]" = {}) -> Table:  # noqa: B006 - read only
    """Return a row per gate: whether it passed, with a mark, and why not."""
    rows: list[tuple[str, str, str]] = []
    for result in verdict.results:
        mark = marks.get(result.state, "")
        state = f"{mark} {result.state}".strip()
        rows.append((result.gate, state, _gate_details(result) or "-"))
    return Table(header=("Gate", "Result", "Details"), rows=rows)


def _gate_details(result: "GateResult") -> str:
    """Return why a gate failed, and its notes: the first sentences of many."""
    sentences = [*result.breaches, *result.notes]
    shown = [each.removeprefix(f"{result.gate}: ") for each in sentences[:_MAX_SENTENCES]]
    if len(sentences) > _MAX_SENTENCES:
        rest = len(sentences) - _MAX_SENTENCES
        shown.append(f"And {rest} more.")
    return " ".join(shown)


SUMMARY = "Summary"
"""The title of the table that stands before many others."""
SEVERAL = 3
"""From so many tables on, there is a summary."""


def summary_table(comparison: Comparison) -> Table:
    """Return a row per section.

    A rate at the largest size that every column has, a time at the smallest.
    """
    labels = [column.label for column in comparison.columns]
    columns: list[TableColumn] = [
        ("Table", "l", _section_cell),
        ("Size", "r", lambda line: format_size(line.rows[0].size)),
    ]
    for index, label in enumerate(labels):
        columns.append((label, "r", partial(_figure_cell, index, Scale.quantity)))
    for index, speedup in enumerate(_speedups(labels)):
        columns.append((speedup, "r", partial(_change_cell, index)))
    lines: list[_Line] = []
    for section in comparison.sections:
        row = headline_row(section)
        if row is not None:
            lines.append(_Line(section, [row]))
    return table_of(columns, lines, title=SUMMARY)


def _section_cell(line: "_Line") -> str:
    section = line.section
    words = [*section.key.values(), section.metric.name]
    return " ".join(filter(None, words))


def section_table(
    comparison: Comparison,
    sections: Sequence[ComparisonSection],
    *,
    terminal: bool,
    live: bool = False,
) -> Table:
    """Return the table of sections that share it: those of one key, or of its rails.

    On a `terminal` columns are narrow, and the title has the unit. A `live` one, of an execution
    that goes on, has no verdicts. The first sizes, where a rate displays as 0, share a line that
    shows their time.
    """
    first = sections[0]
    rails = any(RAIL in section.key for section in sections)
    columns: list[TableColumn] = []
    if rails:
        columns.append(("Device", "l", _device_cell))
    if terminal:
        columns.append(("Size", "r", _size_cell))
    else:
        columns.append(("Message Size", "l", _size_cell))
    columns += _figure_columns(comparison, sections, terminal=terminal)
    if not live:
        verdicts = enumerate(_verdict_header(comparison, sections))
        columns += [(name, "l", partial(_verdict_cell, index)) for index, name in verdicts]
    title = title_of(first, (RAIL,))
    if terminal:
        metric = first.metric.name
        unit = first.scale.unit
        what = f"{metric} in {unit}"
        if title:
            title = f"{title}: {what}"
        else:
            title = what[0].upper() + what[1:]
    above = ""  # a table of several rails has no headline, and a live one shows none
    if len(sections) == 1 and not live:
        above = headline(comparison, comparison.sections.index(first))
    lines = [line for section in sections for line in _lines_of(section)]
    # How many columns are repeated in each part of a table that is split to the width.
    keys = 0  # other formats are not split to a width
    if terminal:
        keys = 2 if rails else 1  # the size, after the device
    return table_of(columns, lines, title=title, headline=above, keys=keys)


def _figure_columns(
    comparison: Comparison, sections: Sequence[ComparisonSection], *, terminal: bool
) -> Iterator[TableColumn]:
    """Yield the columns of figures, and of how many times one is better than the last."""
    metric = sections[0].metric.name
    unit = sections[0].scale.unit
    labels = [column.label for column in comparison.columns]
    for index, label in enumerate(labels):
        name = label if terminal else f"{metric} {label} ({unit})"
        suffix = _outcome_suffix(sections, index)
        yield f"{name}{suffix}", "r", partial(_value_cell, index)
    for index, speedup in enumerate(_speedups(labels)):
        yield speedup, "r", partial(_change_cell, index)


def _speedups(labels: Sequence[str]) -> list[str]:
    """Return the headers of the columns of ratios: one for each column but the baseline."""
    if len(labels) == 2:
        return ["Speed-up"]
    return [f"Speed-up {label}" for label in labels[:-1]]


def title_of(section: ComparisonSection, without: Collection[str] = ()) -> str:
    """Return what distinguishes a section, but for some of its fields; empty for the only one."""
    return ", ".join(key_words(section.key, without))


def _outcome_suffix(sections: Sequence[ComparisonSection], index: int) -> str:
    """Return a suffix for a column's header: the outcome, where figures are shown but not ok."""
    outcomes = (section.outcomes[index] for section in sections if section.shown[index])
    return next((f", {outcome}" for outcome in outcomes if outcome is not Outcome.OK), "")


def _verdict_header(comparison: Comparison, sections: Sequence[ComparisonSection]) -> list[str]:
    """Return the headers of verdicts, one for each column but the baseline.

    Empty if no size was repeated on both sides: a verdict on one measurement is for the headline
    and for what stands out.
    """
    rows = (row for section in sections for row in section.rows)
    tests = (test for row in rows for test in row.tests)
    if all(test is None or test.once for test in tests):
        return []
    level = confidence(sections[0].level)
    header = f"Verdict ({level} interval)"
    if len(comparison.compared) == 1:
        return [header]
    words = header.lower()
    return [f"{column.label} {words}" for column in comparison.compared]


class _Line(NamedTuple):
    """A line of a table: the rows of a section that share it; none if the section has none."""

    section: ComparisonSection
    rows: Sequence[ComparisonRow]

    @property
    def first(self) -> ComparisonRow | None:
        """The first row."""
        return first_of(self.rows, None)


def _lines_of(section: ComparisonSection) -> Iterator[_Line]:
    """Yield the lines of a section.

    The first rows that display as 0 wherever there is a figure share a line.
    """
    shared = max(1, _count_zero_rows(section))  # a section without rows has a line, too
    yield _Line(section, section.rows[:shared])
    for row in section.rows[shared:]:
        yield _Line(section, [row])


def _device_cell(line: _Line) -> str:
    return line.section.key.get(RAIL) or "-"


def _count_zero_rows(section: ComparisonSection) -> int:
    """Return how many of the first rows display as 0, and have figures of the same columns."""
    texts = [_figure_texts(section, row) for row in section.rows]
    first = set(texts[0]) if texts else set()
    if first - {None} != {"0"}:  # not 0, or no column has a figure
        return 0
    alike = takewhile(texts[0].__eq__, texts)
    return sum(1 for _ in alike)


def _figure_texts(section: ComparisonSection, row: ComparisonRow) -> list[str | None]:
    """Return the figure of each column as it is displayed; None where there is none."""
    return [figure and section.scale.text(figure.value) for figure in row.figures]


def _size_cell(line: _Line) -> str:
    """Write a line's size, or the largest of several; "-" for a section without rows."""
    sizes = [format_size(row.size) for row in line.rows]
    if not sizes:
        return "-"
    largest = sizes[-1]
    return f"≤ {largest}" if len(sizes) > 1 else largest


def _figure_cell(index: int, write: Callable[[Scale, float], str], line: _Line) -> str:
    """Write a column's figure as `write` does; the outcome where its figures are not shown."""
    section = line.section
    if not section.shown[index]:
        return section.outcomes[index].value
    figure = line.first.figures[index] if line.first else None
    return write(section.scale, figure.value) if figure else "-"


def _value_cell(index: int, line: _Line) -> str:
    """Write a figure with all its decimals; the time where a rate displays as 0 in any column."""
    section = line.section
    times = [row.times[index] for row in line.rows]
    seconds = [time.value for time in times if time is not None]
    texts = _figure_texts(section, line.first) if line.first else []
    if "0" not in texts or not seconds or not section.shown[index]:
        return _figure_cell(index, Scale.fixed, line)
    time_scale = scale("s", max(seconds))
    span = format_ends(seconds, time_scale.fixed, "–")
    return f"{span} {time_scale.unit}"


def _change_cell(index: int, line: _Line) -> str:
    """Write how many times better a column is than the baseline."""
    return format_change(line.first.ratios[index] if line.first else None)


def _verdict_cell(index: int, line: _Line) -> str:
    """Return what a size shows by itself; of one that shows nothing, only the interval."""
    test = line.first.tests[index] if line.first else None
    ratio = line.first.ratios[index] if line.first else None
    if not test:
        return "-"
    # In percent, or as a factor, as the ratio is; without one, as no change is
    interval = bounds([test], [ratio or 1.0])
    return interval if test.verdict is Difference.UNDECIDED else f"{test.verdict} ({interval})"


_MEASURED = ("size", "column", "metric", "unit", "value", "n", "min", "max", "ratio", "outcome")
_COUNTS = ("ranks", "hosts", "gpus_per_host")
_TESTED = ("ratio_low", "ratio_high", "verdict", "repeats_to_decide")
HEADER = (*_MEASURED, *FIELDS, "placement", "transport", "versions", "source", *_TESTED)
"""Columns of the CSV, and keys of one element of `rows` in the JSON."""


def comparison_document(comparison: Comparison, verdict: "Verdict | None") -> PlainData:
    """Return the document of `fabbench compare --format json`."""
    # With several metrics the document has none: elements of `rows` and `stands_out` have theirs.
    # (`metric and …` is null then, as `verdict and …` is without gates.)
    metric = only(comparison.metrics, None)
    expected = expectations_of(comparison)
    return {
        "format": 1,  # Changes when a name or a unit in the output changes
        "metric": metric and metric.name,
        "unit": metric and metric.unit,
        "lower_is_better": metric and metric.lower_is_better,
        "placement": comparison.placement or None,
        "base": comparison.base.label,
        "headline": first_of(headlines(comparison), None),
        "columns": [
            {
                **_column_record(column),
                "judgement": judgement(each for each in expected if each.column == column.label),
                "peak": _peak_record(comparison.sections, index),
            }
            for index, column in enumerate(comparison.columns)
        ],
        "rows": comparison_rows(comparison),
        "stands_out": [
            {
                **picked(
                    each,
                    "base",
                    "trend",
                    "text",
                    column="label",
                    ratio_min="worst",
                    ratio_max="best",
                ),
                "from": each.low,
                "to": each.high,
                **picked(comparison.sections[each.section], metric="metric.name"),
                **comparison.sections[each.section].key,
            }
            for each in highlights(comparison)
        ],
        "verdicts": [
            {
                "column": column.label,
                "base": comparison.base.label,
                "verdict": section.verdict(index),
                **picked(section, "level", metric="metric.name"),
                "plateau": _plateau_record(section.plateaus[index]),
                **section.key,
            }
            for section in comparison.sections
            for index, column in enumerate(comparison.compared)
        ],
        "expectations": [{"column": each.column, **expectation_record(each)} for each in expected],
        "notes": all_notes(comparison, verdict),
        "breaches": verdict and verdict.breaches,
        "gates": verdict and list(map(asdict, verdict.results)),
        "status": int(worst(comparison.status, verdict.status if verdict else Exit.FINE)),
    }


def _peak_record(sections: Iterable[ComparisonSection], column: int) -> Mapping[str, object] | None:
    """Return the highest rate of a column, with the key of its table; None without any.

    Of several sizes with it the largest, as for a log.
    """
    peak = None
    highest = 0.0
    for section in sections:
        if section.metric.lower_is_better:
            continue
        for size, figure in section.figures(column):
            if figure.value and figure.value >= highest:
                highest = figure.value
                measured = picked(section, metric="metric.name", unit="metric.unit")
                peak = {**measured, "value": highest, "size": size, **section.key}
    return peak


def _plateau_record(plateau: Plateau | None) -> PlainData | None:
    if plateau is None:  # of the baseline, or of a column that has no execution of all sizes
        return None
    return {
        "from": plateau.sizes[0],
        "to": plateau.sizes[-1],
        "ratio": plateau.ratio,
        **picked(plateau.test, "verdict", ratio_low="low", ratio_high="high"),
    }


def comparison_rows(comparison: Comparison) -> list[PlainData]:
    """Return one record per size and column, with the conditions of its figure.

    Keys are `HEADER`.
    """
    return [
        _row_record(comparison, section, row, index)
        for section in comparison.sections
        for row in section.rows
        for index in range(len(comparison.columns))
    ]


def _row_record(
    comparison: Comparison, section: ComparisonSection, row: ComparisonRow, index: int
) -> PlainData:
    # What one column shows at one size; without a figure n is 0, and values are null.
    column = comparison.columns[index]
    figure = row.figures[index]
    test = row.tests[index]
    transports = map(str, column.facts.get("transport", ()))
    record: PlainData = {
        **dict.fromkeys(HEADER),  # all keys, in their order
        **picked(section, metric="metric.name", unit="metric.unit"),
        **_conditions(section, column),
        **picked(column, "source", column="label"),
        "n": 0,
        "size": row.size,
        "ratio": row.ratios[index],
        "outcome": section.outcomes[index].value,
        "placement": comparison.placement or None,
        "transport": "/".join(transports) or None,
        "versions": stated(column, versions_of(column)) or None,
    }
    if figure:
        record |= picked(figure, "value", "n", min="low", max="high")
    if test:
        record |= picked(test, "verdict", ratio_low="low", ratio_high="high")
        record["repeats_to_decide"] = test.repeats
    return record


def _conditions(section: ComparisonSection, column: ColumnSummary) -> PlainData:
    """Return the fields of a section, or else of its column: counts as numbers."""
    conditions: PlainData = {}
    for name in FIELDS:
        of_column = "/".join(column.fields[name])
        text = section.key.get(name) or of_column
        value = whole_or_text(text) if name in _COUNTS else text
        conditions[name] = None if value == "" else value
    return conditions


def stated(column: ColumnSummary, names: Iterable[str]) -> str:
    """Return those of some facts that a column's logs state."""
    words: list[str] = []
    for name in names:
        if name in column.facts:
            values = "/".join(map(str, column.facts[name]))
            words.append(f"{name} {values}")
    return ", ".join(words)


def _column_record(column: ColumnSummary) -> PlainData:
    return {
        **picked(column, "label", "label_given"),
        "variant": str(column.variant) if column.variant is not None else None,
        **picked(column, "source", "outcome", "reasons", "executions"),
        "findings": list(map(asdict, column.findings)),
        "facts": {
            name: only(values, default=list(values))  # several are a list
            for name, values in column.facts.items()
        },
    }
