"""Runs as one HTML page: readable without colors, in print and by screen readers. No script, nothing fetched.

A content security policy also forbids scripts and all network access. `templates/` has the pages.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import ColumnSummary, Comparison
from fabbench.analysis.curve import with_curve
from fabbench.analysis.footnotes import EVIDENCE, versions_of
from fabbench.analysis.headline import headline, headline_row
from fabbench.evidence.known_errors import Cause, causes
from fabbench.model.hosts import Host
from fabbench.model.messages import counted, listed
from fabbench.model.units import format_decimal, format_ratio, format_size, scale
from fabbench.report import comparison_tables, svg, sweep_report
from fabbench.report.expectations import expectations_of
from fabbench.report.sweep_report import SweepReport
from fabbench.report.sweep_report import headline as sweep_headline
from fabbench.report.table import Table
from fabbench.report.templates import rendered, template

if TYPE_CHECKING:
    from fabbench.analysis.gate_results import Verdict

_MAX_FIGURES = 3


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
    comparisons: Sequence[Comparison] = ()  # The comparison by the benchmark's usual metric, then those by others
    nics: Sequence[Table] = ()
    nodes: Sequence[Table] = ()
    hardware: str = ""  # What the nodes have, as found: GPUs, NICs; empty: not known
    command: str = ""
    programs: Mapping[str, Sequence[str]] = field(default_factory=dict)  # Configuration → the command lines that it ran


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
    row: Mapping[str, str]  # Its row in an overview: column → text
    html: str


def page_of(runs: Sequence[RunSection], version: str) -> Iterator[str]:
    """Yield a page of sections, which are numbered from 1."""
    from markupsafe import Markup

    header = [name for name in runs[0].row if name != "Name" or any(run.row[name] for run in runs)]
    return template("report.html").generate(
        title=runs[0].title if len(runs) == 1 else counted(len(runs), "fabbench run"),
        header=("Run", *header),
        rows=[[run.id, *(run.row[name] for name in header)] for run in runs] if len(runs) > 1 else [],
        sections=(Markup(run.html) for run in runs),  # noqa: S704 - made by `run_section`
        version=version,
    )


def run_section(run: RunPage, number: int) -> RunSection:
    """Write one run: the part that takes time."""
    usual = run.comparisons[0] if run.comparisons else None
    lines = [headline(usual, index) for index in range(len(usual.sections))] if usual else []
    headlines = [sweep_headline(run.sweep)] if run.sweep else list(filter(None, lines))
    named = f"Run {run.id}" if run.created else run.id
    figures = _sweep_figures(run.sweep) if run.sweep else _figures(run.comparisons)
    html = rendered(
        "run.html",
        run=run,
        usual=usual,
        anchor=f"run-{number}",
        named=named,
        headlines=headlines or ["No result."],
        figures=list(figures)[:_MAX_FIGURES],
        expected=expectations_of(usual) if usual else (),
        facts=list(_facts(run, usual)) if usual else [],
        findings=_findings(usual) if usual else [],
        tables=comparison_tables,
        svg=svg,
        sweeps=sweep_report,
        proven=EVIDENCE,
        proofs=[_proof(column) for column, _ in usual.inputs] if usual else [],
    )
    first = next(iter(headlines), "")
    row = {
        "Result": first or "-",
        "Gates": run.gates or "-",
        "Name": run.name,
        "Benchmark": run.about,
        "Created": run.created or "-",
        "Outcomes": run.outcomes,
    }
    return RunSection(run.id, first or f"{run.about}: {named}", row, str(html))


_Card: TypeAlias = tuple[str, str, str, str]
"""A large number: what it is, the number, its unit, and what it is compared with."""


def _figures(comparisons: Sequence[Comparison]) -> Iterator[_Card]:
    """Yield the result at the largest size, how it compares, and the time of the smallest size."""
    found = [
        (comparison, section, row, at)
        for comparison in comparisons
        for section in [each for each in comparison.sections if headline_row(each)][:1]
        for row in filter(None, [headline_row(section)])
        for at in [at for at, figure in enumerate(row.figures) if figure and section.shown[at]][:1]
    ]
    for comparison, section, row, at in sorted(found, key=lambda each: each[1].metric.lower_is_better):
        figure, base, label = row.figures[at], row.figures[-1], comparison.columns[at].label
        what = " ".join((*filter(None, section.key.values()), section.metric.name, "at", format_size(row.size)))
        if figure:
            yield what, section.scale.text(figure.value), section.scale.unit, label
        if base and (ratio := row.ratios[at]) and at < len(row.figures) - 1:
            of = f"{comparison.base.label}: {section.scale.quantity(base.value)}"
            yield f"speed-up over {comparison.base.label}", format_ratio(ratio).removesuffix(" x"), "x", of
        # The share of the ceiling of a column's rate, or of the best rate that others published.
        for each in expectations_of(comparison) if section.metric.unit == "B/s" else ():
            best = each.ceiling or (each.range or (0.0, 0.0))[1]
            if (each.column, each.key) == (label, section.key) and best:
                known = [f"ceiling {each.scale.quantity(each.ceiling)}"] if each.ceiling else []
                known += (
                    ["published " + "–".join(dict.fromkeys(map(each.scale.text, each.range)))] if each.range else []
                )
                of = "of the NICs' ceiling" if each.ceiling else "of the best published"
                yield of, format_decimal(100 * each.value / best, 0), "%", f"{label}: {', '.join(known)}"


def _sweep_figures(report: SweepReport) -> Iterator[_Card]:
    """Yield the typical figure of a test, how much is bad, and how much was tested."""
    found, (tested, links) = report.diagnosis, report.diagnosis.links
    for kind, figure in list(found.typicals.items())[:1]:
        unit = scale(report.metric.unit, figure)
        spread = f"± {format_decimal(100 * found.spread, 0)}%{f', {kind}' if kind else ''}"
        yield f"typical {report.metric.name}", unit.text(float(f"{figure:.3g}")), unit.unit, spread
    more = f"{len(found.undecided)} undecided" if found.undecided else listed([each.name for each in found.suspects])
    yield "bad", str(len(found.suspects)), "", more
    yield "links tested", str(tested), f"of {links}", counted(found.tests, "test")


def _facts(run: RunPage, usual: Comparison) -> Iterator[tuple[str, str]]:
    """Yield what the run ran on, in few words: hardware, ranks, network, versions."""
    settings = {each.column: each.setting for each in expectations_of(usual)}
    kinds = {
        f"{each.nodes or '?'} × {each.system.name}, {each.system.gpus} × {each.system.gpu_model or 'GPU'}"
        + (f", {max(each.system.nics)} NICs" if each.system.nics else "")
        + (f" ({each.system.rate * 8 / 1e9:g} Gb/s)" if each.system.rate else "")
        for each in settings.values()
    }
    if hardware := run.hardware or "; ".join(sorted(kinds)):
        yield "Hardware", hardware
    for name, of in (
        ("Ranks", _size),
        ("Network", lambda column: comparison_tables.stated(column, ("transport", "provider", "nics", "gdr"))),
        ("Versions", lambda column: comparison_tables.stated(column, versions_of(column))),
    ):
        named = [(text, column.label) for column in usual.columns if (text := of(column))]
        groups = [(text, [label for _, label in same]) for text, same in groupby(named, key=itemgetter(0))]
        alone = len(groups) == 1 and len(named) == len(usual.columns)
        if groups:
            yield name, "; ".join(text if alone else f"{', '.join(labels)}: {text}" for text, labels in groups)


def hardware_of(hosts: Iterable[Host]) -> str:
    """Return what hosts have: types, GPUs, RDMA devices; empty: nothing is known."""
    kinds = Counter[str]()
    for host in hosts:
        gpus = [f"{host.gpus} × {host.gpu_model or 'GPU'}"] if host.gpus else []
        links = Counter(host.devices.values())
        nics = [counted(count, f"{link.upper()} NIC") for link, count in links.items()]
        kinds[", ".join([*filter(None, [host.instance_type]), *gpus, *nics])] += 1
    return "; ".join(f"{count} × {kind}" for kind, count in kinds.items() if kind)


def _size(column: ColumnSummary) -> str:
    nouns = {"ranks": "rank", "hosts": "host", "gpus_per_host": "GPU"}
    known = [(noun, "/".join(column.fields[name])) for name, noun in nouns.items() if column.fields[name]]
    return ", ".join(f"{count} {noun}{'s' * (count != '1')}{' per host' * (noun == 'GPU')}" for noun, count in known)


def _proof(column: Column) -> str:
    """Return the lines of a column's logs that show what they say about its network."""
    evidence = {fact: line for log in reversed(column.logs) for fact, line in log.evidence.items()}
    return "\n".join(dict.fromkeys(evidence.values()))


def _findings(comparison: Comparison) -> list[tuple[Cause, str]]:
    """Return causes, the most likely first, then other findings, with the columns whose logs show them."""
    found: list[tuple[int, Cause, str]] = []
    for column, _ in comparison.inputs:
        for likely, others in (causes(with_curve(log)) for log in column.logs):
            ranked = (*likely, *(Cause(each, "", "") for each in others))
            found += ((place, cause, column.label) for place, cause in enumerate(ranked))
    known: dict[tuple[str, str], tuple[Cause, dict[str, None]]] = {}
    for _, cause, label in sorted(found, key=itemgetter(0)):
        known.setdefault((cause.found.code, cause.found.meaning), (cause, {}))[1][label] = None
    return [(cause, ", ".join(labels)) for cause, labels in known.values()]
