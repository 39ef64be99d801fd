"""A comparison → tables of text, in the layout of the published EFA table."""

from collections.abc import Collection, Sequence

from fabbench.compare import Comparison, Row, Section
from fabbench.gate import Verdict
from fabbench.notes import notes
from fabbench.pool import RAIL
from fabbench.report.table import Table
from fabbench.standout import Remark, stands_out
from fabbench.units import format_ratio, format_size


def tables(comparison: Comparison, verdict: Verdict | None = None) -> list[Table]:
    """Lay out one table for each section, what is to be said under them, and what stands out.

    Sections that only the device tells apart are one table.
    """
    groups: dict[tuple[str, str], list[Section]] = {}
    for section in comparison.sections:
        groups.setdefault((_title(section, (RAIL,)), section.metric.name), []).append(section)
    found = [_group(comparison, title, sections) for (title, _), sections in groups.items()]
    under = [*notes(comparison), *(verdict.notes if verdict else ())]
    found.append(Table(header=(), rows=(), notes=under))
    found += _stands_out(comparison)
    if verdict and verdict.breaches:
        found.append(Table(title="Gates", header=(), rows=(), notes=verdict.breaches))
    return found


def _group(comparison: Comparison, title: str, sections: Sequence[Section]) -> Table:
    metric, unit, columns = sections[0].metric, sections[0].scale.unit, comparison.columns
    figures = [f"{metric.name} {column.label} ({unit})" for column in columns]
    others = columns[:-1]
    ratios = ["Speed-up"] if len(others) == 1 else [f"Speed-up {column.label}" for column in others]
    rails = ["Device"] if any(RAIL in section.key for section in sections) else []
    return Table(
        title=title,
        header=[*rails, "Message Size", *figures, *ratios],
        rows=[
            [*(section.key.get(RAIL) or "-" for _ in rails), *row]
            for section in sections
            for row in _rows(comparison, section)
        ],
    )


def _title(section: Section, without: Collection[str] = ()) -> str:
    told = ((name, value) for name, value in section.key.items() if name not in without)
    return ", ".join(f"{name} {value or 'unknown'}" for name, value in told)


def _rows(comparison: Comparison, section: Section) -> list[list[str]]:
    return [_row(section, row) for row in section.rows] or [_outcomes(comparison, section)]


def _row(section: Section, row: Row) -> list[str]:
    cells = [
        (section.scale.text(figure.value) if figure else "-") if shown else outcome.value
        for figure, shown, outcome in zip(row.figures, section.shown, section.outcomes, strict=True)
    ]
    return [format_size(row.size), *cells, *(format_ratio(ratio) for ratio in row.ratios[:-1])]


def _outcomes(comparison: Comparison, section: Section) -> list[str]:
    """Make the only row of a section in which no column has a figure to show."""
    cells = [
        "-" if shown else outcome.value
        for shown, outcome in zip(section.shown, section.outcomes, strict=True)
    ]
    return ["-", *cells, *("-" for _ in comparison.columns[:-1])]


def _stands_out(comparison: Comparison) -> list[Table]:
    remarks = stands_out(comparison)
    if not remarks:
        return []
    several = len(comparison.columns) > 2
    found: list[Table] = []
    for index, section in enumerate(comparison.sections):
        own = [remark for remark in remarks if remark.section == index]
        if own:
            title = f"What stands out: {_title(section)}" if section.key else "What stands out"
            header = ["Column", "Range", "Observation"] if several else ["Range", "Observation"]
            found.append(Table(title=title, header=header, rows=_remarks(own, several=several)))
    return found


def _remarks(remarks: Sequence[Remark], *, several: bool) -> list[list[str]]:
    return [[*([remark.label] if several else []), remark.span, remark.text] for remark in remarks]
