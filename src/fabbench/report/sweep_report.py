"""The result of a sweep as text: suspects with evidence, the matrix as a heat map, JSON, commands. Pure."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabbench.model.errors import RequestError
from fabbench.model.messages import counted, one_line
from fabbench.model.units import format_decimal, scale
from fabbench.report.json_contract import to_json
from fabbench.report.table import CSV_FORMATS, RAW_CSV, Table, to_csv, to_markdown, to_terminal
from fabbench.sweep.values import Suspect, SuspectKind

if TYPE_CHECKING:
    from fabbench.model.log import Metric
    from fabbench.sweep.matrix import Matrix
    from fabbench.sweep.values import Diagnosis

FORMATS = ("markdown", "json", "csv", "svg", "terminal")
_FEW = 4
"""Maximum number of typical figures in the headline."""
_HEADER = ("verdict", "kind", "name", "confidence", "evidence")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """The result of a sweep, and what else is written about it."""

    diagnosis: "Diagnosis"
    metric: "Metric"
    matrix: "Matrix"
    left_out: Sequence[tuple[str, str]] = ()
    """Sources without a result, and why."""
    unfinished: str = ""
    """Tests that were planned and did not take place, as the end of a sentence; empty: none."""


def render_sweep(report: SweepReport, form: str = "markdown", *, color: bool = False, width: int | None = None) -> str:
    """Write the result in one of `FORMATS`, or as `RAW_CSV`. Ends with a newline."""
    if form == "json":
        return to_json(sweep_document(report))
    if form in CSV_FORMATS:
        return to_csv(suspects_table(report), raw=form == RAW_CSV)
    if form == "svg":
        from fabbench.report.heat_map import heat_map_svg

        return heat_map_svg(report.matrix, headline(report))
    if form == "markdown":
        return f"{to_markdown(suspects_table(report))}\n```text\n{_heat_map(report)}```\n"
    if form == "terminal":
        table = to_terminal([suspects_table(report)], color=color, width=width)
        return f"{table}\n{_heat_map(report)}"
    raise RequestError(f"Unknown format {form}.", hint=f"One of {', '.join(FORMATS)}.")


def headline(report: SweepReport) -> str:
    """Return the result in a sentence or two."""
    diagnosis = report.diagnosis
    measured = f"{counted(diagnosis.tests, 'test')} of {counted(len(diagnosis.nodes), 'node')}"
    if diagnosis.typical is not None:
        figure = scale(report.metric.unit, diagnosis.typical).quantity(float(f"{diagnosis.typical:.3g}"))
        measured += f", typically {figure} ± {format_decimal(100 * diagnosis.spread, 0)}%"
    elif 0 < len(diagnosis.typicals) <= _FEW:
        best = max(each.figure for each in diagnosis.typicals)
        unit = scale(report.metric.unit, best)
        figures = [
            f"{unit.quantity(float(f'{each.figure:.3g}'))}{f' {each.of}' if each.of else ''}"
            for each in diagnosis.typicals
        ]
        measured += f", typically {', '.join(figures)} (± {format_decimal(100 * diagnosis.spread, 0)}%)"
    left_out = f"{counted(len(report.left_out), 'file')} left out" if report.left_out else ""
    gaps = "; ".join(filter(None, (report.unfinished, left_out)))
    return f"{_verdict(diagnosis, gaps)} {f'Not tested: {gaps}. ' if gaps else ''}{measured}."


def _verdict(diagnosis: "Diagnosis", gaps: str) -> str:
    if diagnosis.suspects:
        return f"Bad: {_counts(diagnosis.suspects)}."
    if diagnosis.bad:
        return "Something is bad, but these tests do not show which node or link."
    if diagnosis.unconfirmed:
        return f"Suspect: {_counts(diagnosis.unconfirmed)}."
    if diagnosis.undecided:
        return "Nothing is shown to be bad, but not all nodes are decided."
    if len(diagnosis.nodes) == 2:
        return "No test failed, but two nodes alone cannot be compared with others."
    return "Nothing bad found so far." if gaps else "Nothing is bad."


def _counts(suspects: Sequence[Suspect]) -> str:
    kinds = {kind: sum(each.kind is kind for each in suspects) for kind in SuspectKind}
    return ", ".join(counted(number, _NOUNS[kind]) for kind, number in kinds.items() if number)


_NOUNS = {SuspectKind.NODE: "node", SuspectKind.NIC: "NIC", SuspectKind.LINK: "link", SuspectKind.GROUP: "group"}


def suspects_table(report: SweepReport) -> Table:
    """Return suspects, the most certain first, and then what is undecided."""
    diagnosis = report.diagnosis
    rows = [_row("bad", each) for each in diagnosis.suspects]
    rows += [_row("suspect", each) for each in diagnosis.unconfirmed]
    rows += [_row("undecided", each) for each in diagnosis.undecided]
    notes = ["Suspect: not slow or failed often enough to rule out chance. Test these pairs again."]
    notes = notes if diagnosis.unconfirmed else []
    notes += ["Undecided: test these nodes again, with other partners."] if diagnosis.undecided else []
    return Table(
        header=_HEADER if rows else (), rows=rows, align="lllrl" if rows else "", headline=headline(report), notes=notes
    )


def _row(verdict: str, suspect: Suspect) -> tuple[str, ...]:
    return verdict, suspect.kind.value, suspect.name, confidence_text(suspect.confidence), suspect.evidence


def confidence_text(chance: float) -> str:
    """Format a confidence; never 100 %."""
    return f"{format_decimal(min(100 * chance, 99.99), 2 if chance >= 0.99 else 0)}%"


def sweep_document(report: SweepReport) -> dict[str, object]:
    """Return the result as plain data; documented in docs/sweep.md."""
    diagnosis = report.diagnosis
    return {
        "format": 1,
        "metric": report.metric.name,
        "unit": report.metric.unit,
        "nodes": list(diagnosis.nodes),
        "tests": diagnosis.tests,
        "typical": diagnosis.typical,
        "typicals": [{"of": each.of, "figure": each.figure, "tests": each.tests} for each in diagnosis.typicals],
        "spread": diagnosis.spread,
        "required_confidence": diagnosis.required,
        "bad": diagnosis.bad,
        "suspects": [
            *(_record("bad", each) for each in diagnosis.suspects),
            *(_record("suspect", each) for each in diagnosis.unconfirmed),
        ],
        "undecided": [_record("undecided", each) for each in diagnosis.undecided],
        "unfinished": report.unfinished,
        "left_out": [{"source": source, "reason": reason} for source, reason in report.left_out],
    }


def _record(verdict: str, suspect: Suspect) -> dict[str, object]:
    return {
        "verdict": verdict,
        "kind": suspect.kind.value,
        "name": suspect.name,
        "nodes": list(suspect.nodes),
        "confidence": round(suspect.confidence, 6),
        "evidence": suspect.evidence,
    }


def _heat_map(report: SweepReport) -> str:
    from fabbench.report.heat_map import heat_map_text

    return heat_map_text(report.matrix)


CORDON = ("kubectl", "scontrol")
"""Programs that take nodes out of service."""
_NODE = re.compile(r"(?!(?i:all)$)[A-Za-z0-9][\w.-]*", re.ASCII)
"""One node's name: no option, no list or range of nodes, and not Slurm's word for every node."""


def cordon_commands(diagnosis: "Diagnosis", program: str) -> Iterator[str]:
    """Yield shell commands that take bad nodes out of service; a bad link gets a comment."""
    seen: set[str] = set()
    for suspect in diagnosis.suspects:
        if suspect.kind is SuspectKind.LINK:
            yield f"# link {one_line(suspect.name)}: no command; its nodes are fine with others"
            continue
        for node in suspect.nodes:
            if node not in seen:
                seen.add(node)
                yield _cordon(program, node, suspect)


def _cordon(program: str, node: str, suspect: Suspect) -> str:
    if not _NODE.fullmatch(node):
        return f"# node {one_line(node)}: no command; this is not the name of one node"
    if program == "kubectl":
        return shlex.join(["kubectl", "cordon", "--", node])
    reason = one_line(f"fabbench: {suspect.kind} {suspect.name}")
    return shlex.join(["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}"])
