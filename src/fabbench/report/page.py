"""Runs as one HTML page: readable without colors, in print and by screen readers.

No script, nothing fetched.

A content security policy also forbids scripts and all network access. `templates/` has the pages.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from fabbench.analysis.compare import Comparison, ComparisonRow, ComparisonSection
from fabbench.analysis.curve_findings import with_curve
from fabbench.analysis.footnotes import EVIDENCE, versions_of
from fabbench.analysis.headline import headline_row, headlines
from fabbench.evidence.known_errors import Cause, causes
from fabbench.model.hosts import Host
from fabbench.model.messages import counted
from fabbench.model.units import format_change, format_decimal, format_size
from fabbench.report import comparison_tables, svg, sweep_report
from fabbench.report.expectations import expectations_of
from fabbench.report.sweep_report import SweepReport
from fabbench.report.sweep_report import headline as sweep_headline
from fabbench.report.table import Table
from fabbench.report.templates import rendered, template

if TYPE_CHECKING:
    from fabbench.analysis.gate_results import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """The contents of a page about one run."""

    id: str
    name: str = ""
    about: str  # Benchmark and target
    created: str  # Empty: no stored run
    outcomes: str
    gates: str = ""  # The gravest result of a gate; empty: no gates, or an unfinished run
    breaches: Sequence[str] = ()
    damage: Sequence[str] = ()
    sweep: SweepReport | None = None  # The result of a sweep of nodes, which has no comparisons
    # The comparison by the benchmark's usual metric, then those by others
    comparisons: Sequence[Comparison] = ()
    nics: Sequence[Table] = ()
    nodes: Sequence[Table] = ()
    hosts: Sequence[Host] = ()  # The nodes, as found; empty: not known
    command: str = ""
    # Configuration → the command lines that it ran
    programs: Mapping[str, Sequence[str]] = field(default_factory=dict)


def comparison_page(comparison: Comparison, verdict: "Verdict | None" = None) -> RunPage:
    """Return the page of a comparison alone, of runs or files."""
    counts: Counter[str] = Counter()
    for column, _ in comparison.inputs:
        counts.update(log.outcome for log in column.logs)
    columns = comparison.columns
    benchmarks = dict.fromkeys(name for each in columns for name in each.fields["benchmark"])
    return RunPage(
        id=" vs ".join(column.label for column in columns),
        about=", ".join(benchmarks),
        created="",
        outcomes=", ".join(f"{count} {each}" for each, count in counts.items()),
        gates=verdict.state if verdict else "",
        breaches=verdict.breaches if verdict else (),
        comparisons=[comparison],
    )


class RunSection(NamedTuple):
    """One run as a section of a page."""

    id: str
    title: str
    row: Mapping[str, str]  # Its row in an overview: column → text
    html: str


def page_of(runs: Sequence[RunSection]) -> Iterator[str]:
    """Yield a page of sections, which are numbered from 1."""
    from markupsafe import Markup

    title = runs[0].title if len(runs) == 1 else counted(len(runs), "fabbench run")
    return template("report.html").generate(
        title=title,
        header=list(runs[0].row),
        rows=[list(run.row.values()) for run in runs],
        sections=(Markup(run.html) for run in runs),  # noqa: S704 - made by `run_section`
    )


def run_section(run: RunPage, number: int) -> RunSection:
    """Write one run: the part that takes time."""
    usual = run.comparisons[0] if run.comparisons else None
    lines = headlines(usual) if usual else []
    if run.sweep:
        lines = [sweep_headline(run.sweep)]
    named = f"Run {run.id}" if run.created else run.id
    figures = [each for comparison in run.comparisons for each in _figures(comparison)]
    html = rendered(
        "run.html",
        run=run,
        usual=usual,
        anchor=f"run-{number}",
        named=named,
        headlines=lines or ["No result."],
        figures=figures[:3],
        expected=expectations_of(usual) if usual else (),
        versions_of=versions_of,
        findings=_findings(usual) if usual else [],
        tables=comparison_tables,
        svg=svg,
        sweeps=sweep_report,
        proven=EVIDENCE,
    )
    first = next(iter(lines), "")
    row = {
        "Run": run.id,
        "Result": first or "-",
        "Gates": run.gates or "-",
        "Name": run.name or "-",
        "Benchmark": run.about,
        "Created": run.created or "-",
        "Outcomes": run.outcomes,
    }
    title = first or f"{run.about}: {named}"
    return RunSection(run.id, title, row, str(html))


class _Card(NamedTuple):
    """A large number."""

    what: str
    number: str
    unit: str
    of: str  # What it is of, or compared with


def _figures(comparison: Comparison) -> Iterator[_Card]:
    """Yield the result that a headline quotes, how it compares, and its share of the ceiling."""
    quoted = (each for each in comparison.sections if headline_row(each))
    section = next(quoted, None)
    row = headline_row(section) if section else None
    if section and row and section.shown[0]:
        yield from _cards(comparison, section, row)


def _cards(
    comparison: Comparison, section: ComparisonSection, row: ComparisonRow
) -> Iterator[_Card]:
    figure = row.figures[0]
    base = row.figures[-1]
    if figure is None:
        return
    label = comparison.columns[0].label
    size = format_size(row.size)
    words = [*section.key.values(), section.metric.name, "at", size]
    what = " ".join(filter(None, words))
    scale = section.scale
    yield _Card(what, scale.text(figure.value), scale.unit, label)
    if base and row.ratios[0]:
        other = comparison.base.label
        change, unit = format_change(row.ratios[0]).split(" ")
        value = scale.quantity(base.value)
        yield _Card(f"speed-up over {other}", change, unit, f"{other}: {value}")
    for each in expectations_of(comparison):
        is_quoted = each.column == label and each.key == section.key
        if is_quoted and each.ceiling and each.share:
            percent = format_decimal(100 * each.share, 0)
            ceiling = each.scale.quantity(each.ceiling)
            yield _Card("of the NICs' ceiling", percent, "%", f"{label}: ceiling {ceiling}")


_FindingKey: TypeAlias = tuple[str, str]
"""The code of a finding, and what it means."""


def _findings(comparison: Comparison) -> list[tuple[Cause, str]]:
    """Return the causes of each column, the likeliest first, then other findings, by columns."""
    known: dict[_FindingKey, Cause] = {}
    labels: dict[_FindingKey, dict[str, None]] = {}
    for column, _ in comparison.inputs:
        for log in column.logs:
            likely, others = causes(with_curve(log))
            for cause in (*likely, *(Cause(each, "", "") for each in others)):
                key = (cause.found.code, cause.found.meaning)
                known.setdefault(key, cause)
                labels.setdefault(key, {})[column.label] = None
    where = map(", ".join, labels.values())
    return list(zip(known.values(), where, strict=True))
