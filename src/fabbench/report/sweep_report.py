"""The answer of a sweep as text: suspects with evidence, the matrix as a heat map, JSON, commands. Pure."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabbench.model.errors import RequestError
from fabbench.model.messages import counted
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
"""Typical figures that the headline has."""
_HEADER = ("verdict", "kind", "name", "confidence", "evidence")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """What is written of a sweep."""

    diagnosis: "Diagnosis"
    metric: "Metric"
    matrix: "Matrix"
    left_out: Sequence[tuple[str, str]] = ()
    """What gave nothing, and why."""


def render_sweep(
    report: SweepReport, form: str = "markdown", *, colour: bool = False, width: int | None = None
) -> str:
    """Write the answer in one of `FORMATS`, or as `RAW_CSV`. Ends with a newline."""
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
        table = to_terminal([suspects_table(report)], colour=colour, width=width)
        return f"{table}\n{_heat_map(report)}"
    raise RequestError(f"Unknown format {form}.", hint=f"One of {', '.join(FORMATS)}.")


def headline(report: SweepReport) -> str:
    """Return the answer in a sentence or two."""
    said = report.diagnosis
    measured = f"{counted(said.tests, 'test')} of {counted(len(said.nodes), 'node')}"
    if said.typical is not None:
        figure = scale(report.metric.unit, said.typical).quantity(float(f"{said.typical:.3g}"))
        measured += f", typically {figure} ± {format_decimal(100 * said.spread, 0)}%"
    elif 0 < len(said.typicals) <= _FEW:
        best = max(each.figure for each in said.typicals)
        unit = scale(report.metric.unit, best)
        figures = [
            f"{unit.quantity(float(f'{each.figure:.3g}'))}{f' {each.of}' if each.of else ''}"
            for each in said.typicals
        ]
        measured += f", typically {', '.join(figures)} (± {format_decimal(100 * said.spread, 0)}%)"
    return f"{_verdict(said)} {measured}."


def _verdict(said: "Diagnosis") -> str:
    if said.suspects:
        return f"Bad: {_counts(said.suspects)}."
    if said.bad:
        return "Something is bad, and these tests do not show which node or link."
    if said.unconfirmed:
        return f"Suspect: {_counts(said.unconfirmed)}."
    if said.undecided:
        return "Nothing is shown to be bad, but not all is decided."
    if len(said.nodes) == 2:
        return "No test failed, but two nodes alone have nothing to be compared with."
    return "Nothing is bad."


def _counts(suspects: Sequence[Suspect]) -> str:
    kinds = {kind: sum(each.kind is kind for each in suspects) for kind in SuspectKind}
    return ", ".join(counted(number, _NOUNS[kind]) for kind, number in kinds.items() if number)


_NOUNS = {
    SuspectKind.NODE: "node",
    SuspectKind.NIC: "NIC",
    SuspectKind.LINK: "link",
    SuspectKind.GROUP: "group",
}


def suspects_table(report: SweepReport) -> Table:
    """Return suspects, the surest first, and then what is not decided."""
    said = report.diagnosis
    rows = [_row("bad", each) for each in said.suspects]
    rows += [_row("suspect", each) for each in said.unconfirmed]
    rows += [_row("undecided", each) for each in said.undecided]
    notes = ["Suspect: slow or failed too seldom to exclude chance. Test these pairs again."]
    notes = notes if said.unconfirmed else []
    notes += ["Undecided: test these nodes again, with other partners."] if said.undecided else []
    return Table(
        header=_HEADER if rows else (),
        rows=rows,
        align="lllrl" if rows else "",
        headline=headline(report),
        notes=notes,
    )


def _row(verdict: str, suspect: Suspect) -> tuple[str, ...]:
    return verdict, suspect.kind.value, suspect.name, confidence_text(suspect.confidence), suspect.evidence


def confidence_text(chance: float) -> str:
    """Write a confidence; never 100 %."""
    return f"{format_decimal(min(100 * chance, 99.99), 2 if chance >= 0.99 else 0)}%"


def sweep_document(report: SweepReport) -> dict[str, object]:
    """Return the answer as plain data; documented in docs/sweep.md."""
    said = report.diagnosis
    return {
        "format": 1,
        "metric": report.metric.name,
        "unit": report.metric.unit,
        "nodes": list(said.nodes),
        "tests": said.tests,
        "typical": said.typical,
        "typicals": [{"of": each.of, "figure": each.figure, "tests": each.tests} for each in said.typicals],
        "spread": said.spread,
        "required_confidence": said.required,
        "bad": said.bad,
        "suspects": [
            *(_record("bad", each) for each in said.suspects),
            *(_record("suspect", each) for each in said.unconfirmed),
        ],
        "undecided": [_record("undecided", each) for each in said.undecided],
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


def cordon_commands(said: "Diagnosis", program: str) -> Iterator[str]:
    """Yield shell commands that take bad nodes out of service; a comment stands for a bad link."""
    seen: set[str] = set()
    for suspect in said.suspects:
        if suspect.kind is SuspectKind.LINK:
            yield f"# link {suspect.name}: no command; its nodes are fine with others"
            continue
        for node in suspect.nodes:
            if node not in seen:
                seen.add(node)
                yield _cordon(program, node, suspect)


def _cordon(program: str, node: str, suspect: Suspect) -> str:
    if program == "kubectl":
        return shlex.join(["kubectl", "cordon", node])
    reason = f"fabbench: {suspect.kind} {suspect.name}"
    return shlex.join(["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}"])
