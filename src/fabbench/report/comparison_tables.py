"""A comparison → tables of text, in the layout of the published EFA table, and records of its rows."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from fabbench.analysis.aggregate import FIELDS, RAIL
from fabbench.analysis.compare import ColumnSummary, Comparison, ComparisonRow, ComparisonSection
from fabbench.analysis.footnotes import footnotes, versions_of
from fabbench.analysis.headline import headline, headline_row
from fabbench.analysis.highlights import bounds, confidence, highlights
from fabbench.model.errors import Exit, worst
from fabbench.model.log import Outcome
from fabbench.model.units import format_ratio, format_size, scale
from fabbench.report.expectations import expectation_record, expectations_of, of_key
from fabbench.report.json_contract import finding, picked
from fabbench.report.table import Table, columns_of

if TYPE_CHECKING:
    from fabbench.analysis.gate_results import GateState, Verdict


def tables_of_comparison(
    comparison: Comparison, verdict: "Verdict | None" = None, *, terminal: bool = False
) -> list[Table]:
    """Return one table per section, the notes below them, and what stands out.

    Sections that differ only by device share a table. The first sizes, where a rate displays as 0, share a line
    that shows their time. On a terminal, columns are narrow.
    """
    groups: dict[tuple[str, str], list[ComparisonSection]] = {}
    for section in comparison.sections:
        groups.setdefault((title_of(section, (RAIL,)), section.metric.name), []).append(section)
    tables = [_table(comparison, title, sections, terminal=terminal) for (title, _), sections in groups.items()]
    if len(groups) >= SEVERAL:
        tables.insert(0, replace(summary_table(comparison, terminal=terminal), title=SUMMARY))
    notes = [*footnotes(comparison), *(verdict.notes if verdict else ())]
    tables.append(Table(header=(), rows=(), notes=notes))
    tables += _stands_out(comparison)
    if expected := [f"{each.column}{of_key(each)}: {each.sentence()}" for each in expectations_of(comparison)]:
        tables.append(Table(title="Is it normal?", header=(), rows=(), notes=expected))
    if verdict and verdict.results:
        tables.append(replace(gates_table(verdict), title=GATES))
    return tables


GATES, _MAX_SENTENCES = "Gates", 8


def gates_table(verdict: "Verdict", marks: "Mapping[GateState, str]" = {}) -> Table:  # noqa: B006 - read only
    """Return a row per gate: whether it passed, with a mark, and why not."""
    rows = []
    for result in verdict.results:
        texts = [*result.breaches, *result.notes]
        more = [f"And {len(texts) - _MAX_SENTENCES} more."] if len(texts) > _MAX_SENTENCES else []
        details = " ".join(text.removeprefix(f"{result.gate}: ") for text in (*texts[:_MAX_SENTENCES], *more))
        rows.append((result.gate, f"{marks.get(result.state, '')} {result.state}".strip(), details or "-"))
    return Table(header=("Gate", "Result", "Details"), rows=rows)


SUMMARY, SEVERAL = "Summary", 3  # The title of the table that stands before so many others or more


def summary_table(comparison: Comparison, *, terminal: bool = False) -> Table:
    """Return a row per section: a rate at the largest size that every column has, a time at the smallest."""
    rows = []
    for section in comparison.sections:
        if (row := headline_row(section)) is not None:
            texts = [figure and section.scale.quantity(figure.value) for figure in row.figures]
            name = " ".join(filter(None, (*section.key.values(), section.metric.name)))
            ratios = (_ratio(each, "" if terminal else " ") for each in row.ratios[:-1])
            rows.append([name, format_size(row.size), *_cells(section, texts), *ratios])
    labels = [column.label for column in comparison.columns]
    speedups = [f"Speed-up{f' {label}' * (len(labels) > 2)}" for label in labels[:-1]]
    return Table(header=["Table", "Size", *labels, *speedups], align="lr" + "r" * len(labels + speedups), rows=rows)


def _table(comparison: Comparison, title: str, sections: Sequence[ComparisonSection], *, terminal: bool) -> Table:
    metric, unit, columns = sections[0].metric, sections[0].scale.unit, comparison.columns
    before, after = ("", "") if terminal else (f"{metric.name} ", f" ({unit})")
    figures = [f"{before}{each.label}{after}{mark}" for each, mark in zip(columns, _marks(sections), strict=True)]
    ratios = ["Speed-up"] if len(columns) == 2 else [f"Speed-up {column.label}" for column in columns[:-1]]
    rails, verdicts = _rails(sections), _verdict_header(comparison, sections)
    rows = _rows(comparison, sections, "" if terminal else " ")
    if terminal:
        what = f"{metric.name} in {unit}"
        title = f"{title}: {what}" if title else what[0].upper() + what[1:]
    return Table(
        title=title,
        # a table of several rails has none
        headline=headline(comparison, comparison.sections.index(sections[0])) if len(sections) == 1 else "",
        header=[*rails, "Size" if terminal else "Message Size", *figures, *ratios, *verdicts],
        align="l" * len(rails) + "lr"[terminal] + "r" * (len(figures) + len(ratios)) + "l" * len(verdicts),
        rows=rows,
        keys=len(rails) + 1 if terminal else 0,
    )


def live_table(comparison: Comparison, section: ComparisonSection) -> Table:
    """Lay out one section while it is being measured: only figures and ratios."""
    table = _table(comparison, title_of(section), [section], terminal=True)
    return replace(columns_of(table, range(len(table.aligns().rstrip("l")))), headline="")


def _marks(sections: Sequence[ComparisonSection]) -> list[str]:
    """Return a suffix for each column's header: the outcome, where figures are shown but not ok."""
    marks = []
    for index in range(len(sections[0].shown)):
        seen = (section.outcomes[index] for section in sections if section.shown[index])
        marks.append(next((f", {outcome}" for outcome in seen if outcome is not Outcome.OK), ""))
    return marks


def _rails(sections: Sequence[ComparisonSection]) -> list[str]:
    return ["Device"] if any(RAIL in section.key for section in sections) else []


def title_of(section: ComparisonSection, without: Collection[str] = ()) -> str:
    """Return what distinguishes a section, but for some of its fields; empty for the only one."""
    fields = ((name, value) for name, value in section.key.items() if name not in without)
    return ", ".join(f"{name} {value or 'unknown'}" for name, value in fields)


def _rows(comparison: Comparison, sections: Sequence[ComparisonSection], space: str) -> list[list[str]]:
    rails, tested = _rails(sections), bool(_verdict_header(comparison, sections))
    table_rows = []
    for section in sections:
        lines = [_row(section, each, space, tested=tested) for each in _lines(section)]
        if not lines:
            others = ["-"] * (len(comparison.columns) - 1)
            lines = [["-", *_cells(section, [None] * len(section.shown)), *others, *(others if tested else ())]]
        table_rows += [[*(section.key.get(RAIL) or "-" for _ in rails), *row] for row in lines]
    return table_rows


def _lines(section: ComparisonSection) -> list[Sequence[ComparisonRow]]:
    """Return the rows of each line: the first ones that display as 0 wherever there is a figure share a line."""
    texts = [[figure and section.scale.text(figure.value) for figure in row.figures] for row in section.rows]
    zeros = len(list(takewhile(texts[0].__eq__, texts))) if texts and {*texts[0]} - {None} == {"0"} else 1
    return [section.rows[:zeros], *([row] for row in section.rows[zeros:])] if texts else []


def _verdict_header(comparison: Comparison, sections: Sequence[ComparisonSection]) -> list[str]:
    """Return the headers of verdicts; empty without repeats: the headline and ranges have the others."""
    tests = (test for section in sections for row in section.rows for test in row.tests)
    if all(test is None or test.once for test in tests):
        return []
    words = f"Verdict ({confidence(sections[0].level)} interval)"
    labels = [column.label for column in comparison.columns[:-1]]
    return [words] if len(labels) == 1 else [f"{label} {words.lower()}" for label in labels]


def _row(section: ComparisonSection, rows: Sequence[ComparisonRow], space: str, *, tested: bool) -> list[str]:
    """Write figures with all their decimals, and the time where a rate displays as 0; `rows`: those of one line."""
    row, size = rows[0], f"{'≤ ' if len(rows) > 1 else ''}{format_size(rows[-1].size)}"
    texts = [figure and section.scale.fixed(figure.value) for figure in row.figures]
    if any(figure and section.scale.text(figure.value) == "0" for figure in row.figures):
        for index in range(len(row.times)):
            if took := [time.value for each in rows if (time := each.times[index]) is not None]:
                time_scale = scale("s", max(took))
                ends = (time_scale.fixed(min(took)), time_scale.fixed(max(took)))
                texts[index] = f"{'–'.join(dict.fromkeys(ends))} {time_scale.unit}"
    verdicts = (f"{test.verdict} ({bounds([test])})" if test else "-" for test in row.tests[: -1 if tested else 0])
    return [size, *_cells(section, texts), *(_ratio(each, space) for each in row.ratios[:-1]), *verdicts]


def _ratio(ratio: float | None, space: str) -> str:
    number = format_ratio(ratio).removesuffix(" x")
    return f"{number if '.' in number else f'{number}.0'}{space}x" if ratio is not None else number


def _cells(section: ComparisonSection, texts: Sequence[str | None]) -> list[str]:
    """Return the figures of a row; the outcome where a column has none."""
    return [
        (text or "-") if shown else outcome.value
        for text, shown, outcome in zip(texts, section.shown, section.outcomes, strict=True)
    ]


def _stands_out(comparison: Comparison) -> list[Table]:
    remarks = highlights(comparison)
    first = 0 if len(comparison.columns) > 2 else 1  # a single column needs no name
    tables: list[Table] = []
    for index, section in enumerate(comparison.sections):
        rows = [(each.label, each.span, each.text)[first:] for each in remarks if each.section == index]
        if rows:
            title = f"What stands out: {title_of(section)}" if section.key else "What stands out"
            tables.append(Table(title=title, header=("Column", "Range", "Observation")[first:], rows=rows))
    return tables


FORMAT = 1  # Changes when a name or a unit in the output changes

MEASURED = ("size", "column", "metric", "unit", "value", "n", "min", "max", "ratio", "outcome")
TESTED = ("ratio_low", "ratio_high", "verdict", "repeats_to_decide")
HEADER = (*MEASURED, *FIELDS, "placement", "transport", "versions", "source", *TESTED)
"""Columns of the CSV, and keys of one element of `rows` in the JSON."""

_COUNTS = frozenset({"ranks", "hosts", "gpus_per_host"})


def comparison_document(comparison: Comparison, verdict: "Verdict | None" = None) -> Mapping[str, object]:
    """Return the document of `fabbench compare --format json`."""
    # Several metrics have nothing in common: each element of `rows` and `stands_out` has its own metric.
    metric = comparison.metrics[0] if len(comparison.metrics) == 1 else None
    return {
        "format": FORMAT,
        "metric": metric and metric.name,
        "unit": metric and metric.unit,
        "lower_is_better": metric and metric.lower_is_better,
        "placement": comparison.placement or None,
        "base": comparison.base.label,
        "columns": [_column(column) for column in comparison.columns],
        "rows": comparison_rows(comparison),
        "stands_out": [
            {
                "column": remark.label,
                "base": remark.base,
                **comparison.sections[remark.section].key,
                "metric": comparison.sections[remark.section].metric.name,
                "from": remark.low,
                "to": remark.high,
                "trend": remark.trend.value,
                "ratio_min": remark.worst,
                "ratio_max": remark.best,
                "text": remark.text,
            }
            for remark in highlights(comparison)
        ],
        "verdicts": [
            {
                "column": column.label,
                "base": comparison.base.label,
                **section.key,
                "metric": section.metric.name,
                "level": section.level,
                "verdict": section.verdict(index),
            }
            for section in comparison.sections
            for index, column in enumerate(comparison.columns[:-1])
        ],
        "expectations": [{"column": each.column, **expectation_record(each)} for each in expectations_of(comparison)],
        "notes": [*footnotes(comparison), *(verdict.notes if verdict else ())],
        "breaches": verdict and list(verdict.breaches),
        "gates": verdict
        and [
            {"gate": each.gate, "state": each.state.value, "breaches": list(each.breaches), "notes": list(each.notes)}
            for each in verdict.results
        ],
        "status": int(worst(comparison.status, verdict.status if verdict else Exit.FINE)),
    }


def comparison_rows(comparison: Comparison) -> list[dict[str, object]]:
    """Return one record per size and column, with the conditions of its figure. Keys are `HEADER`."""
    return [
        _record(comparison, section, row, index)
        for section in comparison.sections
        for row in section.rows
        for index in range(len(comparison.columns))
    ]


def _record(comparison: Comparison, section: ComparisonSection, row: ComparisonRow, index: int) -> dict[str, object]:
    column, figure, test = comparison.columns[index], row.figures[index], row.tests[index]
    texts = {name: section.key.get(name) or "/".join(column.fields[name]) for name in FIELDS}
    return {
        "size": row.size,
        "column": column.label,
        "metric": section.metric.name,
        "unit": section.metric.unit,
        "value": figure.value if figure else None,
        "n": figure.n if figure else 0,
        "min": figure.low if figure else None,
        "max": figure.high if figure else None,
        "ratio": row.ratios[index],
        "outcome": section.outcomes[index].value,
        **{name: int(text) if name in _COUNTS and text.isdigit() else text or None for name, text in texts.items()},
        "placement": comparison.placement or None,
        "transport": _joined(column.facts.get("transport", ())) or None,
        "versions": ", ".join(f"{name} {_joined(column.facts[name])}" for name in versions_of(column)) or None,
        "source": column.source,
        "ratio_low": test.low if test else None,
        "ratio_high": test.high if test else None,
        "verdict": test.verdict.value if test else None,
        "repeats_to_decide": test.repeats if test else None,
    }


def _joined(values: Iterable[str | int]) -> str:
    return "/".join(map(str, values))


def _column(column: ColumnSummary) -> Mapping[str, object]:
    return {
        **picked(column, "label", "label_given"),
        "variant": str(column.variant) if column.variant is not None else None,
        **picked(column, "source", "outcome", "reasons", "executions"),
        "findings": [finding(found) for found in column.findings],
        "facts": {name: values[0] if len(values) == 1 else list(values) for name, values in column.facts.items()},
    }
