"""Runs as one HTML page: no script, nothing fetched, readable without colors, on paper and aloud.

Every text in it is escaped, whoever wrote it. A content security policy also forbids scripts and all network
access.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from importlib.resources import files

from fabbench.analysis.compare import Comparison
from fabbench.analysis.headline import headline
from fabbench.model.log import Finding
from fabbench.model.messages import counted, printable
from fabbench.report import svg
from fabbench.report.comparison_tables import tables_of_comparison
from fabbench.report.plot import Plot
from fabbench.report.plots import left_out, section_plots
from fabbench.report.table import Table

_LONG = 48
"""Characters of a cell of a table that is folded."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofLines:
    """What the logs of one configuration show of its network."""

    label: str
    outcome: str
    reasons: Sequence[str]
    shown: str
    """What the logs state: ``transport efa, nics 4``; empty: nothing."""
    lines: Mapping[str, str]
    """Fact → the line that states it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """What a page says of one run."""

    id: str
    name: str
    about: str
    """Benchmark and target."""
    created: str
    outcomes: str
    gates: str
    """`passed` or `failed`; empty: there were none, or it did not end."""
    breaches: Sequence[str] = ()
    damage: Sequence[str] = ()
    comparisons: Sequence[Comparison] = ()
    """That of the benchmark's usual metric, then those of others."""
    proof: Sequence[ProofLines] = ()
    nics: Sequence[Table] = ()
    nodes: Sequence[Table] = ()
    command: str = ""
    programs: Mapping[str, Sequence[str]]
    """Configuration → the command lines that it started."""
    findings: Sequence[tuple[str, Finding]] = ()
    """Label of a configuration, and what its logs show."""


def to_page(runs: Sequence[RunPage], version: str) -> Iterator[str]:
    """Yield a page in pieces: an overview of several runs, then each of them."""
    title = f"{runs[0].about}: run {runs[0].id}" if len(runs) == 1 else counted(len(runs), "fabbench run")
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_text(title)}</title>\n<style>\n{_style()}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#main">Skip to the results</a>\n'
        f'<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs>{svg.MARKERS}</defs>'
        f'</svg>\n<main id="main">\n<h1>{_text(title)}</h1>\n'
    )
    if len(runs) > 1:
        yield _overview(runs)
    for number, run in enumerate(runs, 1):
        # Not labelled by its heading: browsers do not lay that out before it comes near.
        yield f'<section class="run" id="run-{number}" aria-label="Run {_text(run.id)}">\n'
        yield from _run(run, f"run-{number}")
        yield "</section>\n"
    yield f'<p class="faint">Written by fabbench {_text(version)}.</p>\n</main>\n</body>\n</html>\n'


@cache
def _style() -> str:
    sheet = files("fabbench.report").joinpath("page.css").read_text("utf-8")
    return svg.style() + sheet


def _overview(runs: Sequence[RunPage]) -> str:
    names = any(run.name for run in runs)
    header = ("Run", "Result", "Gates", *(["Name"] if names else []), "Benchmark", "Created", "Outcomes")
    rows = []
    for number, run in enumerate(runs, 1):
        result = next(iter(_headlines(run)), "-")
        name = [run.name] if names else []
        cells = (result, run.gates or "-", *name, run.about, run.created, run.outcomes)
        link = f'<a href="#run-{number}">{_text(run.id)}</a>'
        rows.append([link, *map(_text, cells)])
    return _grid("Overview", header, rows)


def _headlines(run: RunPage) -> list[str]:
    found = run.comparisons[:1]
    return [
        line
        for comparison in found
        for index in range(len(comparison.sections))
        if (line := headline(comparison, index))
    ]


def _run(run: RunPage, anchor: str) -> Iterator[str]:
    named = f" “{run.name}”" if run.name else ""
    yield f"<h2>Run {_text(run.id + named)}</h2>\n"
    yield f'<p class="faint">{_text(f"{run.about}, {run.created}. Executions: {run.outcomes}.")}</p>\n'
    yield from (f'<p class="lead">{_text(line)}</p>\n' for line in _headlines(run) or ["No result."])
    yield from (f'<p class="bad">Damaged: {_text(sentence)}</p>\n' for sentence in run.damage)
    if run.gates:
        yield f"<h3>Gates {_text(run.gates)}</h3>\n{_list(run.breaches)}"
    for number, comparison in enumerate(run.comparisons):
        yield from _comparison(comparison, f"{anchor}-{number}", first=number == 0)
    if run.proof:
        yield f"<h3>Transport proof</h3>\n{''.join(map(_proof, run.proof))}"
    yield from _titled("NIC traffic", map(_table, run.nics))
    yield from _titled("Nodes and versions", map(_table, run.nodes))
    yield from _titled("Commands to reproduce", _commands(run))
    yield from _titled("Findings", _findings(run.findings))


def _titled(title: str, parts: Iterable[str]) -> Iterator[str]:
    inner = "".join(parts)
    if inner:
        yield f"<h3>{title}</h3>\n{inner}"


def _comparison(comparison: Comparison, anchor: str, *, first: bool) -> Iterator[str]:
    """Write plots, and the table behind them: in sight for the usual metric, else folded."""
    metric = " and ".join(each.name for each in comparison.metrics)
    yield f"<h3>{_text(metric[:1].upper() + metric[1:])}</h3>\n"
    figures = []
    for index in range(len(comparison.sections)):
        drawn = section_plots(comparison, index, ratios=first)
        figures += [_figure(plot, f"{anchor}-{index}-{count}") for count, plot in enumerate(drawn)]
    yield f'<div class="plots">\n{"".join(figures)}</div>\n'
    yield _list(line for index in range(len(comparison.sections)) for line in left_out(comparison, index))
    tables = [
        table if table.title or not table.header else replace(table, title="Values")
        for table in tables_of_comparison(comparison)
    ]
    inner = "".join(_table(replace(table, headline="")) for table in tables)
    yield inner if first else f"<details>\n<summary>Values as a table</summary>\n{inner}</details>\n"


def _figure(plot: Plot, name: str) -> str:
    legend = "".join(f"<li>{svg.sample(each)}{_text(each.label)}</li>" for each in plot.legend)
    return (
        f"<figure>\n<figcaption>{_text(plot.title)}</figcaption>\n"
        f'<ul class="legend">{legend}</ul>\n{svg.to_svg(plot, name=name)}\n</figure>\n'
    )


def _proof(proof: ProofLines) -> str:
    told = f"<h4>{_text(f'{proof.label}: {proof.outcome}')}</h4>\n{_list(proof.reasons)}"
    told += (
        f"<p>{_text(f'The logs show {proof.shown}.' if proof.shown else 'The logs show no transport.')}</p>\n"
    )
    lines = "\n".join(dict.fromkeys(proof.lines.values()))
    return told + (f"<pre>{_text(lines)}</pre>\n" if lines else "")


def _commands(run: RunPage) -> Iterator[str]:
    if run.command:
        yield f"<pre>{_text(run.command)}</pre>\n"
    for label, lines in run.programs.items():
        started = _text("\n".join(lines))
        yield f"<details>\n<summary>Programs of {_text(label)}</summary>\n<pre>{started}</pre>\n</details>\n"


def _findings(findings: Sequence[tuple[str, Finding]]) -> Iterator[str]:
    labels: dict[Finding, list[str]] = {}
    for label, found in findings:
        labels.setdefault(found, []).append(label)
    for found, of in labels.items():
        yield f"<p><strong>{_text(found.severity.capitalize())}</strong>, {_text(', '.join(of))}: "
        yield f"{_text(found.meaning)}{f' <em>{_text(found.advice)}</em>' if found.advice else ''}</p>\n"
        if found.line:
            yield f"<pre>{_text(found.line)}</pre>\n"


def _table(table: Table) -> str:
    if not table.header:
        name = f"<h4>{_text(table.title)}</h4>\n" if table.title and table.notes else ""
        return name + _list(table.notes)
    rows = [list(map(_text, row)) for row in table.rows]
    return _grid(table.title, table.header, rows, table.aligns()) + _list(table.notes)


def _grid(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], aligns: str = "") -> str:
    """Write a table of cells that are HTML; the first one names its row."""
    sides = [_side(align, [row[at] for row in rows]) for at, align in enumerate(aligns or "l" * len(header))]
    head = "".join(
        f'<th scope="col"{side}>{_text(name)}</th>' for name, side in zip(header, sides, strict=True)
    )
    body = []
    for first, *cells in rows:
        more = (f"<td{side}>{cell}</td>" for cell, side in zip(cells, sides[1:], strict=True))
        body.append(f'<tr><th scope="row"{sides[0]}>{first}</th>{"".join(more)}</tr>\n')
    name = _text(title or "Table")
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{name}">\n<table>\n'
        f"<caption>{name}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{''.join(body)}</tbody>\n"
        "</table>\n</div>\n"
    )


def _side(align: str, cells: Iterable[str]) -> str:
    """Return the class of a column: numbers on the right; long texts are folded."""
    name = "r" if align != "l" else "long" if any(len(cell) > _LONG for cell in cells) else ""
    return f' class="{name}"' if name else ""


def _list(sentences: Iterable[str]) -> str:
    items = "".join(f"<li>{_text(sentence)}</li>\n" for sentence in sentences)
    return f"<ul>\n{items}</ul>\n" if items else ""


def _text(text: str) -> str:
    return escape(printable(text))
