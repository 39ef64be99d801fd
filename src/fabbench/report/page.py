"""Runs as one HTML page: readable without colors, in print and by screen readers.

No script, nothing fetched.

A content security policy also forbids scripts and all network access. `templates/` has the pages.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from fabbench.analysis.compare import Comparison
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
    gates: str = ""  # `passed` or `failed`; empty: no gates, or an unfinished run
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
    counts = Counter(log.outcome for column, _ in comparison.inputs for log in column.logs)
    return RunPage(
        id=" vs ".join(column.label for column in comparison.columns),
        about=", ".join(
            {str(name): None for each in comparison.columns for name in each.fields["benchmark"]}
        ),
        created="",
        outcomes=", ".join(f"{count} {each}" for each, count in counts.items()),
        gates="" if verdict is None else "failed" if verdict.breaches else "passed",
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

    header = [name for name in runs[0].row if name != "Name" or any(run.row[name] for run in runs)]
    return template("report.html").generate(
        title=runs[0].title if len(runs) == 1 else counted(len(runs), "fabbench run"),
        header=("Run", *header),
        rows=[[run.id, *(run.row[name] for name in header)] for run in runs]
        if len(runs) > 1
        else [],
        sections=(Markup(run.html) for run in runs),  # noqa: S704 - made by `run_section`
    )


def run_section(run: RunPage, number: int) -> RunSection:
    """Write one run: the part that takes time."""
    usual = run.comparisons[0] if run.comparisons else None
    lines = headlines(usual) if usual else []
    if run.sweep:
        lines = [sweep_headline(run.sweep)]
    named = f"Run {run.id}" if run.created else run.id
    html = rendered(
        "run.html",
        run=run,
        usual=usual,
        anchor=f"run-{number}",
        named=named,
        headlines=lines or ["No result."],
        figures=[each for comparison in run.comparisons for each in _figures(comparison)][:3],
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
        "Result": first or "-",
        "Gates": run.gates or "-",
        "Name": run.name,
        "Benchmark": run.about,
        "Created": run.created or "-",
        "Outcomes": run.outcomes,
    }
    return RunSection(run.id, first or f"{run.about}: {named}", row, str(html))


def _figures(comparison: Comparison) -> Iterator[tuple[str, str, str, str]]:
    """Yield large numbers.

    The result that a headline quotes, how it compares, and its share of the NICs' ceiling.

    Each is what it is, the number, its unit, and what it is compared with.
    """
    section = next(
        (each for each in comparison.sections if headline_row(each)), comparison.sections[0]
    )
    row = headline_row(section)
    label = comparison.columns[0].label
    figure, base = (row.figures[0], row.figures[-1]) if row and section.shown[0] else (None, None)
    if row and figure:
        what = " ".join(
            (*filter(None, section.key.values()), section.metric.name, "at", format_size(row.size))
        )
        yield what, section.scale.text(figure.value), section.scale.unit, label
        if base and (ratio := next(iter(row.ratios), None)) and row.figures[1:]:
            of = f"{comparison.base.label}: {section.scale.quantity(base.value)}"
            change, unit = format_change(ratio).split(" ")
            yield f"speed-up over {comparison.base.label}", change, unit, of
        for each in expectations_of(comparison):
            if (each.column, each.key) == (label, section.key) and each.ceiling and each.share:
                of = f"{label}: ceiling {each.scale.quantity(each.ceiling)}"
                yield "of the NICs' ceiling", format_decimal(100 * each.share, 0), "%", of


def _findings(comparison: Comparison) -> list[tuple[Cause, str]]:
    """Return the causes of each column, the likeliest first, then other findings, by columns."""
    known: dict[tuple[str, str], tuple[Cause, dict[str, None]]] = {}
    for label, log in [
        (column.label, log) for column, _ in comparison.inputs for log in column.logs
    ]:
        likely, others = causes(with_curve(log))
        for cause in (*likely, *(Cause(each, "", "") for each in others)):
            known.setdefault((cause.found.code, cause.found.meaning), (cause, {}))[1][label] = None
    return [(cause, ", ".join(labels)) for cause, labels in known.values()]
