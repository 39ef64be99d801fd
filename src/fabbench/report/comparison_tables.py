"""A comparison → tables of text, in the layout of the published EFA table, and records of its rows."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

from fabbench.analysis.aggregate import FIELDS, RAIL
from fabbench.analysis.compare import ColumnSummary, Comparison, ComparisonRow, ComparisonSection
from fabbench.analysis.footnotes import footnotes, versions_of
from fabbench.analysis.headline import headline, headline_row
from fabbench.analysis.highlights import (
    LAGGING,
    RailFigures,
    bounds,
    confidence,
    highlights,
    rails_of,
)
from fabbench.model.errors import Exit, worst
from fabbench.model.log import Outcome
from fabbench.model.units import Scale, format_ratio, format_size, scale
from fabbench.report.expectations import expectation_record, expectations_of, of_key
from fabbench.report.table import Table, TableColumn, picked, table_of

if TYPE_CHECKING:
    from fabbench.analysis.gate_results import GateState, Verdict


def tables_of_comparison(
    comparison: Comparison, verdict: "Verdict | None" = None, *, terminal: bool = False
) -> list[Table]:
    """Return a summary of many sections, their tables, the notes below them, and what stands out."""
    groups = section_groups(comparison)
    summary = [summary_table(comparison, terminal=terminal)] if len(groups) >= SEVERAL else []
    tables = [section_table(comparison, sections, terminal=terminal) for sections in groups]
    return [*summary, *tables, *remarks(comparison, verdict)]


def section_groups(comparison: Comparison) -> list[list[ComparisonSection]]:
    """Return sections by table: those that differ only by device share one."""
    groups: dict[tuple[str, str], list[ComparisonSection]] = {}
    for section in comparison.sections:
        groups.setdefault((title_of(section, (RAIL,)), section.metric.name), []).append(section)
    return list(groups.values())


def remarks(comparison: Comparison, verdict: "Verdict | None" = None) -> list[Table]:
    """Return what is below the figures.

    Notes, what stands out, whether it is normal, rails, gates.
    """
    tables = [
        Table(
            header=(), rows=(), notes=[*footnotes(comparison), *(verdict.notes if verdict else ())]
        )
    ]
    first, found = (
        0 if len(comparison.columns) > 2 else 1,
        highlights(comparison),
    )  # a single column needs no name
    for index, section in enumerate(comparison.sections):
        if rows := [
            (each.label, each.span, each.text)[first:] for each in found if each.section == index
        ]:
            title = f"What stands out: {title_of(section)}" if section.key else "What stands out"
            tables.append(
                Table(title=title, header=("Column", "Range", "Observation")[first:], rows=rows)
            )
    if expected := [
        f"{each.column}{of_key(each)}: {each.sentence()}" for each in expectations_of(comparison)
    ]:
        tables.append(Table(title="Is it normal?", header=(), rows=(), notes=expected))
    if rails := rails_of(comparison):
        tables.append(
            table_of(_RAILS, rails, title="Rails", notes=list(dict.fromkeys(_rail_notes(rails))))
        )
    return [
        *tables,
        *([replace(gates_table(verdict), title=GATES)] if verdict and verdict.results else []),
    ]


_RAILS: Sequence[TableColumn] = (
    ("Configuration", "l", lambda each: each.column),
    ("Metric", "l", lambda each: each.metric.name),
    ("Message Size", "l", lambda each: format_size(each.size)),
    ("Rails", "r", lambda each: str(len(each.figures))),
    ("Mean", "r", lambda each: _of_rail(each, each.mean)),
    ("Sum", "r", lambda each: _of_rail(each, each.total)),
    ("Slowest", "l", lambda each: f"{each.slowest} ({_of_rail(each, each.figures[each.slowest])})"),
)


def _of_rail(rails: RailFigures, value: float | None) -> str:
    return (
        "-"
        if value is None
        else scale(rails.metric.unit, max(rails.figures.values())).quantity(value)
    )


def _rail_notes(rails: Sequence[RailFigures]) -> Iterator[str]:
    """Say how to read the sum, and which rails stand out."""
    for each in rails:
        if each.together and each.total is not None:
            yield (
                "The sum is what the NICs moved concurrently, as far as their programs overlapped."
            )
        elif each.total is not None:
            yield (
                "The NICs were measured one after another: the sum is what they would move if "
                "they shared nothing."
            )
    for each in rails:
        for device, part in each.lagging().items():
            seen, usual = _of_rail(each, each.figures[device]), _of_rail(each, each.mean)
            worse = (
                f"{100 * part:.0f} % worse than the mean of {usual} (more than {LAGGING:.0%} "
                "is marked)"
            )
            yield (
                f"{each.column}: {device} stands out at {format_size(each.size)}: {seen}, {worse}."
            )


GATES, _MAX_SENTENCES = "Gates", 8


def gates_table(verdict: "Verdict", marks: "Mapping[GateState, str]" = {}) -> Table:  # noqa: B006 - read only
    """Return a row per gate: whether it passed, with a mark, and why not."""
    rows = []
    for result in verdict.results:
        texts = [*result.breaches, *result.notes]
        more = [f"And {len(texts) - _MAX_SENTENCES} more."] if len(texts) > _MAX_SENTENCES else []
        details = " ".join(
            text.removeprefix(f"{result.gate}: ") for text in (*texts[:_MAX_SENTENCES], *more)
        )
        rows.append(
            (result.gate, f"{marks.get(result.state, '')} {result.state}".strip(), details or "-")
        )
    return Table(header=("Gate", "Result", "Details"), rows=rows)


SUMMARY, SEVERAL = "Summary", 3  # The title of the table that stands before so many others or more


def summary_table(comparison: Comparison, *, terminal: bool = False) -> Table:
    """Return a row per section.

    A rate at the largest size that every column has, a time at the smallest.
    """
    labels = [column.label for column in comparison.columns]
    columns: list[TableColumn] = [
        (
            "Table",
            "l",
            lambda line: " ".join(filter(None, (*line[0].key.values(), line[0].metric.name))),
        ),
        ("Size", "r", lambda line: format_size(line[1][0].size)),
        *(
            (label, "r", partial(_figure, index, Scale.quantity))
            for index, label in enumerate(labels)
        ),
        *(
            (name, "r", partial(_ratio, index, terminal))
            for index, name in enumerate(_speedups(labels))
        ),
    ]
    lines = [
        (section, [row])
        for section in comparison.sections
        if (row := headline_row(section)) is not None
    ]
    return table_of(columns, lines, title=SUMMARY)


def section_table(
    comparison: Comparison,
    sections: Sequence[ComparisonSection],
    *,
    terminal: bool = False,
    live: bool = False,
) -> Table:
    """Return the table of sections that share it: on a terminal columns are narrow.

    Live, there are no verdicts.

    The first sizes, where a rate displays as 0, share a line that shows their time.
    """
    metric, unit, title = sections[0].metric, sections[0].scale.unit, title_of(sections[0], (RAIL,))
    before, after = ("", "") if terminal else (f"{metric.name} ", f" ({unit})")
    labels = [column.label for column in comparison.columns]
    rails = any(RAIL in section.key for section in sections)
    verdicts, speedups = [] if live else _verdict_header(comparison, sections), _speedups(labels)
    columns: list[TableColumn] = [
        *([("Device", "l", lambda line: line[0].key.get(RAIL) or "-")] if rails else []),
        ("Size" if terminal else "Message Size", "lr"[terminal], _size),
        *(
            (f"{before}{name}{after}{_mark(sections, at)}", "r", partial(_value, at))
            for at, name in enumerate(labels)
        ),
        *((name, "r", partial(_ratio, at, terminal)) for at, name in enumerate(speedups)),
        *((name, "l", partial(_verdict, at)) for at, name in enumerate(verdicts)),
    ]
    what = f"{metric.name} in {unit}"
    if terminal:
        title = f"{title}: {what}" if title else what[0].upper() + what[1:]
    # a table of several rails has none
    alone = (
        headline(comparison, comparison.sections.index(sections[0])) if len(sections) == 1 else ""
    )
    lines = [(section, rows) for section in sections for rows in _lines(section)]
    return table_of(columns, lines, title=title, headline=alone, keys=(rails + 1) * terminal)


def _speedups(labels: Sequence[str]) -> list[str]:
    return ["Speed-up"] if len(labels) == 2 else [f"Speed-up {label}" for label in labels[:-1]]


def title_of(section: ComparisonSection, without: Collection[str] = ()) -> str:
    """Return what distinguishes a section, but for some of its fields; empty for the only one."""
    fields = ((name, value) for name, value in section.key.items() if name not in without)
    return ", ".join(f"{name} {value or 'unknown'}" for name, value in fields)


def _mark(sections: Sequence[ComparisonSection], at: int) -> str:
    """Return a suffix for a column's header: the outcome, where figures are shown but not ok."""
    seen = (section.outcomes[at] for section in sections if section.shown[at])
    return next((f", {outcome}" for outcome in seen if outcome is not Outcome.OK), "")


def _verdict_header(comparison: Comparison, sections: Sequence[ComparisonSection]) -> list[str]:
    """Return the headers of verdicts; empty without repeats.

    The headline and ranges have the others.
    """
    tests = (test for section in sections for row in section.rows for test in row.tests)
    if all(test is None or test.once for test in tests):
        return []
    words = f"Verdict ({confidence(sections[0].level)} interval)"
    labels = [column.label for column in comparison.columns[:-1]]
    return [words] if len(labels) == 1 else [f"{label} {words.lower()}" for label in labels]


_Line: TypeAlias = tuple[ComparisonSection, Sequence[ComparisonRow]]
"""A section, and the rows of one line of it: none if the section has none."""


def _lines(section: ComparisonSection) -> list[Sequence[ComparisonRow]]:
    """Return the rows of each line.

    The first ones that display as 0 wherever there is a figure share a line.
    """
    texts = [
        [figure and section.scale.text(figure.value) for figure in row.figures]
        for row in section.rows
    ]
    zeros = (
        len(list(takewhile(texts[0].__eq__, texts)))
        if texts and {*texts[0]} - {None} == {"0"}
        else 1
    )
    return [section.rows[:zeros], *([row] for row in section.rows[zeros:])]


def _size(line: _Line) -> str:
    sizes = [format_size(row.size) for row in line[1]] or ["-"]
    return f"{'≤ ' if len(sizes) > 1 else ''}{sizes[-1]}"


def _figure(index: int, write: Callable[[Scale, float], str], line: _Line) -> str:
    """Write a figure; the outcome where the column has none."""
    section, rows = line
    if not section.shown[index]:
        return section.outcomes[index].value
    figure = rows[0].figures[index] if rows else None
    return write(section.scale, figure.value) if figure else "-"


def _value(index: int, line: _Line) -> str:
    """Write a figure with all its decimals; the time where a rate displays as 0 in any column."""
    section, rows = line
    took = [time.value for row in rows if (time := row.times[index]) is not None]
    zero = any(
        figure and section.scale.text(figure.value) == "0"
        for row in rows[:1]
        for figure in row.figures
    )
    if not (zero and took and section.shown[index]):
        return _figure(index, Scale.fixed, line)
    time_scale = scale("s", max(took))
    return (
        f"{'–'.join(dict.fromkeys(map(time_scale.fixed, (min(took), max(took)))))} "
        f"{time_scale.unit}"
    )


def _ratio(index: int, narrow: bool, line: _Line) -> str:  # noqa: FBT001 - of a column
    ratio = line[1][0].ratios[index] if line[1] else None
    number = format_ratio(ratio).removesuffix(" x")
    return (
        f"{number if '.' in number else f'{number}.0'}{'' if narrow else ' '}x"
        if ratio is not None
        else number
    )


def _verdict(index: int, line: _Line) -> str:
    test = line[1][0].tests[index] if line[1] else None
    return f"{test.verdict} ({bounds([test])})" if test else "-"


_MEASURED = ("size", "column", "metric", "unit", "value", "n", "min", "max", "ratio", "outcome")
_TESTED = ("ratio_low", "ratio_high", "verdict", "repeats_to_decide")
HEADER = (*_MEASURED, *FIELDS, "placement", "transport", "versions", "source", *_TESTED)
"""Columns of the CSV, and keys of one element of `rows` in the JSON."""


def comparison_document(
    comparison: Comparison, verdict: "Verdict | None" = None
) -> dict[str, object]:
    """Return the document of `fabbench compare --format json`."""
    # Several metrics have nothing in common: each element of `rows` and `stands_out` has its own
    # metric.
    metric = comparison.metrics[0] if len(comparison.metrics) == 1 else None
    return {
        "format": 1,  # Changes when a name or a unit in the output changes
        "metric": metric and metric.name,
        "unit": metric and metric.unit,
        "lower_is_better": metric and metric.lower_is_better,
        "placement": comparison.placement or None,
        "base": comparison.base.label,
        "columns": [_column(column) for column in comparison.columns],
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
                **section.key,
            }
            for section in comparison.sections
            for index, column in enumerate(comparison.columns[:-1])
        ],
        "expectations": [
            {"column": each.column, **expectation_record(each)}
            for each in expectations_of(comparison)
        ],
        "notes": [*footnotes(comparison), *(verdict.notes if verdict else ())],
        "breaches": verdict and verdict.breaches,
        "gates": verdict and list(map(asdict, verdict.results)),
        "status": int(worst(comparison.status, verdict.status if verdict else Exit.FINE)),
    }


def comparison_rows(comparison: Comparison) -> list[dict[str, object]]:
    """Return one record per size and column, with the conditions of its figure.

    Keys are `HEADER`.
    """
    return [
        _record(comparison, section, row, index)
        for section in comparison.sections
        for row in section.rows
        for index in range(len(comparison.columns))
    ]


def _record(
    comparison: Comparison, section: ComparisonSection, row: ComparisonRow, index: int
) -> dict[str, object]:
    column, figure, test = comparison.columns[index], row.figures[index], row.tests[index]
    texts = {name: section.key.get(name) or "/".join(column.fields[name]) for name in FIELDS}
    counts = {
        name: int(texts[name])
        for name in ("ranks", "hosts", "gpus_per_host")
        if texts[name].isdigit()
    }
    return {
        **dict.fromkeys(HEADER),
        **picked(section, metric="metric.name", unit="metric.unit"),
        **(picked(figure, "value", "n", min="low", max="high") if figure else {"n": 0}),
        **{name: counts.get(name, text or None) for name, text in texts.items()},
        **picked(column, "source", column="label"),
        **(
            picked(test, "verdict", ratio_low="low", ratio_high="high", repeats_to_decide="repeats")
            if test
            else {}
        ),
        "size": row.size,
        "ratio": row.ratios[index],
        "outcome": section.outcomes[index].value,
        "placement": comparison.placement or None,
        "transport": "/".join(map(str, column.facts.get("transport", ()))) or None,
        "versions": stated(column, versions_of(column)) or None,
    }


def stated(column: ColumnSummary, names: Iterable[str]) -> str:
    """Return those of some facts that a column's logs state."""
    return ", ".join(
        f"{name} {'/'.join(map(str, column.facts[name]))}" for name in names if name in column.facts
    )


def _column(column: ColumnSummary) -> Mapping[str, object]:
    return {
        **picked(column, "label", "label_given"),
        "variant": str(column.variant) if column.variant is not None else None,
        **picked(column, "source", "outcome", "reasons", "executions"),
        "findings": list(map(asdict, column.findings)),
        "facts": {
            name: values[0] if len(values) == 1 else list(values)
            for name, values in column.facts.items()
        },
    }
