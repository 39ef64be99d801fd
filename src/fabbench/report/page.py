"""Runs as one HTML page: readable without colors, in print and by screen readers.

Nothing is fetched, and all of it can be read without its one script.

A content security policy forbids other scripts and all network access. `templates/` has the pages.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from fabbench.analysis.compare import Column, ColumnSummary, Comparison
from fabbench.analysis.curve_findings import with_curve
from fabbench.analysis.footnotes import EVIDENCE, versions_of
from fabbench.analysis.headline import headline_row, headlines
from fabbench.evidence.known_errors import Cause, causes
from fabbench.model.hosts import Host
from fabbench.model.log import Log
from fabbench.model.mappings import Sentences, distinct, first_of, gathered
from fabbench.model.messages import counted, listed, tally
from fabbench.model.units import format_change, format_percent, format_size
from fabbench.model.values import frozen
from fabbench.report import comparison_tables, svg, sweep_report
from fabbench.report.expectations import expectations_of
from fabbench.report.sweep_report import SweepReport
from fabbench.report.sweep_report import headline as sweep_headline
from fabbench.report.table import Table, split_to_width, tone_of
from fabbench.report.templates import rendered, template

if TYPE_CHECKING:
    from fabbench.analysis.expectations import Expectation
    from fabbench.analysis.gate_results import Verdict


@frozen
class RunPage:
    """The contents of a page about one run."""

    id: str
    name: str = ""
    about: str  # Benchmark and target
    created: str  # Empty: no stored run
    outcomes: str
    gates: str = ""  # The gravest result of a gate; empty: no gates, or an unfinished run
    breaches: Sequence[str] = ()
    verdict: "Verdict | None" = None  # Of a comparison that is not stored
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
    logs = (log for column, _ in comparison.inputs for log in column.logs)
    counts = Counter(log.outcome for log in logs)
    *others, base = (column.label for column in comparison.columns)
    return RunPage(
        id=f"{listed(others, limit=3)} vs {base}" if others else base,
        about=comparison.common("benchmark") or "several benchmarks",
        created="",  # It is no stored run
        outcomes=tally(counts),
        gates=verdict.state if verdict else "",
        breaches=verdict.breaches if verdict else (),
        verdict=verdict,
        comparisons=[comparison],
    )


def sweep_page(report: SweepReport) -> RunPage:
    """Return the page of a sweep alone, whose tests are from logs."""
    metric = report.metric.name
    tests = str(report.diagnosis.tests)
    return RunPage(id="Sweep", about=metric, created="", outcomes=tests, sweep=report)


class RunSection(NamedTuple):
    """One run as a section of a page."""

    title: str
    row: Mapping[str, str]  # Its row in an overview: column → text
    html: str


def page_of(runs: Sequence[RunSection]) -> Iterator[str]:
    """Yield a page of sections, which are numbered from 1."""
    from markupsafe import Markup

    title = runs[0].title
    if len(runs) > 1:
        title = counted(len(runs), "fabbench run")
    return template("report.html").generate(
        title=title,
        header=list(runs[0].row),
        rows=[list(run.row.values()) for run in runs],
        sections=(Markup(run.html) for run in runs),  # noqa: S704 - made by `run_section`
    )


def run_section(run: RunPage, number: int) -> RunSection:
    """Write one run, which takes time: its HTML, its title and its row of the overview.

    `number` counts sections from 1, for their anchors.
    """
    # The comparison by the benchmark's usual metric; None: a sweep, or nothing was measured
    usual = first_of(run.comparisons, None)
    lines = headlines(usual) if usual else []
    if run.sweep:
        lines = [sweep_headline(run.sweep)]
    # Without a date it is no stored run, and is called by what it compares
    named = f"Run {run.id}" if run.created else run.id
    expected = expectations_of(usual) if usual else ()
    html = rendered(
        "run.html",
        run=run,
        usual=usual,
        anchor=f"run-{number}",
        named=named,
        headlines=lines or ["No result."],
        cards=list(_cards(usual, expected)) if usual else [],
        expected=expected,
        chips=_outcomes_by_columns(usual, expected) if usual else [],
        proofs=_proofs_by_columns(usual) if usual else [],
        versions_of=versions_of,
        findings=_findings_by_columns(usual) if usual else [],
        # Modules, whose functions the template calls
        tables=comparison_tables,
        svg=svg,
        sweeps=sweep_report,
        split_to_width=split_to_width,
    )
    first = first_of(lines, "")
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
    return RunSection(title, row, str(html))


class _Card(NamedTuple):
    """A large figure."""

    what: str
    figure: str
    of: str  # What it is of, or compared with


def _cards(comparison: Comparison, expected: Sequence["Expectation"]) -> Iterator[_Card]:
    """Yield the result that a headline quotes, how it compares, and its share of the ceiling.

    Nothing if no section has a row, or the outcome of the first column hides its figures. Without
    a baseline's figure, or a ceiling, that card is missing.
    """
    section = next(filter(headline_row, comparison.sections), None)
    row = headline_row(section) if section else None
    # Of the first column, the one in question; the last is the baseline
    figure = row.figures[0] if row else None
    if not section or not row or not figure or not section.shown[0]:
        return
    label = comparison.columns[0].label
    quantity = section.scale.quantity
    size = format_size(row.size)
    words = [*section.key.values(), section.metric.name, "at", size]
    what = " ".join(filter(None, words))
    yield _Card(what, quantity(figure.value), label)
    base = row.figures[-1]
    if base and row.ratios[0]:
        other = comparison.base.label
        change = format_change(row.ratios[0])
        was = quantity(base.value)
        yield _Card(f"change against {other}", change, f"{other}: {was}")
    for each in expected:
        is_quoted = each.column == label and each.key == section.key
        if is_quoted and each.ceiling and each.share:
            percent = format_percent(each.share, 0)
            ceiling = each.scale.quantity(each.ceiling)
            yield _Card("of the NICs' ceiling", percent, f"{label}: ceiling {ceiling}")


def _outcomes_by_columns(
    comparison: Comparison, expected: Sequence["Expectation"]
) -> list[tuple[str, str]]:
    """Return the outcome and the judgements of columns, and their tone; those alike share one."""
    labels = gathered(
        ((column.outcome.value, *_assessments(column.label, expected)), column.label)
        for column in comparison.columns
    )
    chips: list[tuple[str, str]] = []
    for words, columns in labels.items():
        text = ", ".join(words)
        tone = tone_of(words[-1])  # Of the judgement, if there is one
        chips.append((f"{listed(columns)}: {text}", tone))
    return chips


def _assessments(label: str, expected: Iterable["Expectation"]) -> Iterator[str]:
    """Yield whether the figures of a column are normal, unless that differs by table."""
    for each in expected:
        if each.column == label and each.range and not each.key:
            yield each.assessment.value


class _Proof(NamedTuple):
    """What the logs of a column show of the network that carried its data."""

    outcome: str
    reasons: Sentences
    shown: str
    lines: tuple[str, ...]


def _proofs_by_columns(comparison: Comparison) -> list[tuple[_Proof, str]]:
    """Return each proof, and the columns that have it."""
    labels = gathered(
        (_proof_of(summary, column), summary.label)
        for summary, (column, _) in zip(comparison.columns, comparison.inputs, strict=True)
    )
    return [(proof, listed(columns)) for proof, columns in labels.items()]


def _proof_of(summary: ColumnSummary, column: Column) -> _Proof:
    evidence: dict[str, str] = {}
    for log in reversed(column.logs):  # The first log's lines win
        evidence.update(log.evidence)
    shown = comparison_tables.stated(summary, filter(EVIDENCE.__contains__, summary.facts))
    lines = distinct(evidence.values())
    return _Proof(summary.outcome.value, summary.reasons, shown or "no transport", lines)


def _findings_by_columns(comparison: Comparison) -> list[tuple[Cause, str]]:
    """Return the causes of each column, the likeliest first, then other findings, by columns.

    Each once, with the columns that have it, in words.
    """
    causes_and_labels = gathered(
        ((cause.finding.code, cause.finding.meaning), (cause, column.label))
        for column, _ in comparison.inputs
        for log in column.logs
        for cause in _causes_and_others(log)
    )
    found: list[tuple[Cause, str]] = []
    for alike in causes_and_labels.values():
        every_cause, labels = zip(*alike, strict=True)
        found.append((every_cause[0], listed(distinct(labels))))
    return found


def _causes_and_others(log: Log) -> list[Cause]:
    likely, others = causes(with_curve(log))
    # The others are not weighed: no fact against them, no command that would decide
    return likely + [Cause(each, "", "") for each in others]
