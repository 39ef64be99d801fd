"""Runs as one HTML page: see `fabbench.report.html`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import ColumnSummary, Comparison
from fabbench.analysis.footnotes import EVIDENCE
from fabbench.analysis.headline import headline
from fabbench.model.messages import counted
from fabbench.report import svg
from fabbench.report.comparison_tables import tables_of_comparison
from fabbench.report.heat_map import heat_map_svg
from fabbench.report.html import bullet_list, document, figure, grid, table, text
from fabbench.report.plots import left_out, section_plots
from fabbench.report.sweep_report import SweepReport, nodes_table, sweep_tables
from fabbench.report.sweep_report import headline as sweep_headline
from fabbench.report.table import Table

if TYPE_CHECKING:
    from fabbench.analysis.gate_results import Verdict
    from fabbench.model.log import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """The contents of a page about one run."""

    id: str
    name: str = ""
    about: str
    """Benchmark and target."""
    created: str
    """Empty: no stored run."""
    outcomes: str
    gates: str = ""
    """`passed` or `failed`; empty: no gates, or an unfinished run."""
    breaches: Sequence[str] = ()
    damage: Sequence[str] = ()
    sweep: SweepReport | None = None
    """The result of a sweep of nodes, which has no comparisons."""
    comparisons: Sequence[Comparison] = ()
    """The comparison by the benchmark's usual metric, then those by others."""
    nics: Sequence[Table] = ()
    nodes: Sequence[Table] = ()
    command: str = ""
    programs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Configuration → the command lines that it ran."""


def comparison_page(comparison: Comparison, verdict: "Verdict | None" = None) -> RunPage:
    """Return the page of a comparison alone, of runs or files."""
    counts = Counter(log.outcome for column, _ in comparison.inputs for log in column.logs)
    return RunPage(
        id=" vs ".join(column.label for column in comparison.columns),
        about=", ".join({str(name): None for each in comparison.columns for name in each.fields["benchmark"]}),
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
    row: Mapping[str, str]
    """Its row in an overview: column → text."""
    html: str


def page_of(runs: Sequence[RunSection], version: str, *, note: str = "") -> Iterator[str]:
    """Yield a page of sections, which are numbered from 1. `note` stands above an overview."""
    title = runs[0].title if len(runs) == 1 else counted(len(runs), "fabbench run")
    overview = [bullet_list([note] if note else []), _overview(runs)] if len(runs) > 1 else []
    return document(title, chain(overview, (run.html for run in runs)), version)


def run_section(run: RunPage, number: int) -> RunSection:
    """Write one run: the part that takes time."""
    headlines = _headlines(run)
    # Not labeled by its heading: browsers do not lay that out until it is almost visible.
    html = (
        f'<section class="run" id="run-{number}" aria-label="{text(_named(run))}">\n'
        f"{''.join(_run(run, headlines, f'run-{number}'))}</section>\n"
    )
    row = {
        "Result": next(iter(headlines), "-"),
        "Gates": run.gates or "-",
        "Name": run.name,
        "Benchmark": run.about,
        "Created": run.created or "-",
        "Outcomes": run.outcomes,
    }
    return RunSection(run.id, f"{run.about}: {_named(run)}", row, html)


def _named(run: RunPage) -> str:
    return f"Run {run.id}" if run.created else run.id


def _overview(runs: Sequence[RunSection]) -> str:
    header = [name for name in runs[0].row if name != "Name" or any(run.row[name] for run in runs)]
    links = (f'<a href="#run-{number}">{text(run.id)}</a>' for number, run in enumerate(runs, 1))
    rows = [[link, *(text(run.row[name]) for name in header)] for link, run in zip(links, runs, strict=True)]
    return grid("Overview", ("Run", *header), rows)


def _headlines(run: RunPage) -> list[str]:
    if run.sweep:
        return [sweep_headline(run.sweep)]
    usual = ((each, index) for each in run.comparisons[:1] for index in range(len(each.sections)))
    return [line for comparison, index in usual if (line := headline(comparison, index))]


def _run(run: RunPage, headlines: Sequence[str], anchor: str) -> Iterator[str]:
    named = f" “{run.name}”" if run.name else ""
    yield f"<h2>{text(_named(run) + named)}</h2>\n"
    about = f"{run.about}, {run.created}".removesuffix(", ")
    counts = f"{'Tests' if run.sweep else 'Executions'}: {run.outcomes}"
    yield f'<p class="faint">{text(f"{about}. {counts}.")}</p>\n'
    yield from (f'<p class="lead">{text(line)}</p>\n' for line in headlines or ["No result."])
    yield from (f'<p class="bad">Damaged: {text(sentence)}</p>\n' for sentence in run.damage)
    if run.gates:
        yield f"<h3>Gates {text(run.gates)}</h3>\n{bullet_list(run.breaches)}"
    if run.sweep:
        yield from _sweep(run.sweep)
    for number, comparison in enumerate(run.comparisons):
        yield from _comparison(comparison, f"{anchor}-{number}", first=number == 0)
    for comparison in run.comparisons[:1]:
        proofs = map(_proof, comparison.inputs, comparison.columns)
        yield f"<h3>Transport proof</h3>\n{''.join(proofs)}"
    yield from _titled("NIC traffic", map(table, run.nics))
    yield from _titled("Nodes and versions", map(table, run.nodes))
    yield from _titled("Commands to reproduce", _commands(run))
    yield from _titled("Findings", _findings(run.comparisons))


def _sweep(report: SweepReport) -> Iterator[str]:
    for title, each in zip(("Suspects", "Groups"), reversed(sweep_tables(report)), strict=False):
        yield from _titled(title, [table(each)] if each.header else [bullet_list(each.notes)])
    drawn = heat_map_svg(report.matrix, sweep_headline(report), standalone=False)
    region = '<div class="scroll" role="region" tabindex="0" aria-label="Heat map">'
    nodes = f"<details>\n<summary>Nodes as a table</summary>\n{table(nodes_table(report))}</details>\n"
    yield from _titled("Pairs", [f"{region}\n{drawn}</div>\n{nodes}"])


def _titled(title: str, parts: Iterable[str]) -> Iterator[str]:
    if inner := "".join(parts):
        yield f"<h3>{title}</h3>\n{inner}"


def _comparison(comparison: Comparison, anchor: str, *, first: bool) -> Iterator[str]:
    """Write plots, and the table behind them: visible for the usual metric, else folded."""
    metric = " and ".join(each.name for each in comparison.metrics)
    yield f"<h3>{text(metric[:1].upper() + metric[1:])}</h3>\n"
    figures = []
    for index in range(len(comparison.sections)):
        for count, plot in enumerate(section_plots(comparison, index, ratios=first)):
            legend = [(svg.sample(each), each.label) for each in plot.legend]
            figures.append(figure(plot.title, legend, svg.to_svg(plot, name=f"{anchor}-{index}-{count}")))
    yield f'<div class="plots">\n{"".join(figures)}</div>\n'
    yield bullet_list(line for index in range(len(comparison.sections)) for line in left_out(comparison, index))
    tables = [
        each if each.title or not each.header else replace(each, title="Values")
        for each in tables_of_comparison(comparison)
    ]
    inner = "".join(table(replace(each, headline="")) for each in tables)
    yield inner if first else f"<details>\n<summary>Values as a table</summary>\n{inner}</details>\n"


def _proof(measured: tuple[Column, object], summary: ColumnSummary) -> str:
    """Write what the logs of a column show about its network."""
    html = f"<h4>{text(f'{summary.label}: {summary.outcome}')}</h4>\n{bullet_list(summary.reasons)}"
    facts = [f"{name} {'/'.join(map(str, values))}" for name, values in summary.facts.items() if name in EVIDENCE]
    shown = ", ".join(facts) or "no transport"
    html += f"<p>{text(f'The logs show {shown}.')}</p>\n"
    evidence = {fact: line for log in reversed(measured[0].logs) for fact, line in log.evidence.items()}
    lines = "\n".join(dict.fromkeys(evidence.values()))
    return html + (f"<pre>{text(lines)}</pre>\n" if lines else "")


def _commands(run: RunPage) -> Iterator[str]:
    if run.command:
        yield f"<pre>{text(run.command)}</pre>\n"
    for label, lines in run.programs.items():
        started = text("\n".join(lines))
        yield f"<details>\n<summary>Programs of {text(label)}</summary>\n<pre>{started}</pre>\n</details>\n"


def _findings(comparisons: Sequence[Comparison]) -> Iterator[str]:
    labels: dict[Finding, list[str]] = {}
    for column in comparisons[0].columns if comparisons else ():
        for found in column.findings:
            labels.setdefault(found, []).append(column.label)
    for found, names in labels.items():
        yield f"<p><strong>{text(found.severity.capitalize())}</strong>, {text(', '.join(names))}: "
        yield f"{text(found.meaning)}{f' <em>{text(found.advice)}</em>' if found.advice else ''}</p>\n"
        if found.line:
            yield f"<pre>{text(found.line)}</pre>\n"
