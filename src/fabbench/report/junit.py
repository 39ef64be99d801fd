"""A comparison as JUnit XML: one test case per configuration's outcome, and one per gate.

A gate that fails is a `failure`. A result that cannot be trusted is an `error`: it is not bad, it is missing. Only
elements that Jenkins and GitLab read are used.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fabbench.analysis.compare import Comparison
from fabbench.analysis.gate_results import GateResult, GateState, Verdict
from fabbench.model.log import Outcome
from fabbench.report.templates import rendered


class Case(NamedTuple):
    """A test case. Unless it passed, `tag` is the element that says why; `output` is what else is known."""

    name: str
    tag: str = ""
    type: str = ""
    reasons: Sequence[str] = ()
    output: Sequence[str] = ()


def to_junit(comparison: Comparison, verdict: Verdict | None = None) -> str:
    """Write a document. Ends with a newline."""
    configurations = [_configuration(comparison, index) for index in range(len(comparison.columns))]
    gates = {"gates": list(map(_gate, verdict.results))} if verdict is not None else {}
    return document_of({"configurations": configurations, **gates}, name="fabbench")


def document_of(suites: Mapping[str, Sequence[Case]], *, name: str) -> str:
    """Write a document of suites. Ends with a newline."""
    cases = [case for some in suites.values() for case in some]
    return str(rendered("junit.xml", name=name, suites=suites, cases=cases))


def untrusted(comparison: Comparison, index: int) -> bool:
    """Return whether a column makes the comparison untrusted (exit status 4)."""
    return comparison.columns[index].hidden > 0 or any(section.partial[index] for section in comparison.sections)


def _configuration(comparison: Comparison, index: int) -> Case:
    column = comparison.columns[index]
    tag = "skipped" if column.outcome is Outcome.SKIPPED else "error" if untrusted(comparison, index) else ""
    facts = [f"{name}: {', '.join(map(str, values))}" for name, values in column.facts.items()]
    found = [f"{each.severity}: {each.meaning}{f' {each.advice}' if each.advice else ''}" for each in column.findings]
    reasons = column.reasons or [f"{column.outcome}: no reason given"]
    return Case(column.label, tag, column.outcome.value, reasons, [f"Outcome: {column.outcome}", *facts, *found])


def _gate(result: GateResult) -> Case:
    tag, kind, reasons = {
        GateState.PASSED: ("", "", ()),
        GateState.FAILED: ("failure", "gate", result.breaches),
        GateState.UNTRUSTED: ("error", "untrusted", ["What it compares cannot be trusted.", *result.notes]),
    }[result.state]
    return Case(result.gate, tag, kind, reasons, result.notes)
