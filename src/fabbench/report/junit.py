"""A comparison as JUnit XML: one test case per configuration's outcome, and one per gate.

A gate that fails is a `failure`. A result that cannot be trusted, or a problem that ended the command early,
is an `error`: the result is not bad, it is missing. Only elements that Jenkins and GitLab read are used.
"""

import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as ET

from fabbench.analysis.compare import Comparison
from fabbench.analysis.gate_results import GateResult, GateState, Verdict
from fabbench.model.log import Outcome
from fabbench.model.messages import printable

_NO_XML = re.compile(r"[\ufffe\uffff]")  # Characters that XML 1.0 excludes and `printable` does not escape
_REASONS = ("failure", "error", "skipped")


def to_junit(
    comparison: Comparison | None, verdict: Verdict | None = None, *, name: str = "fabbench", problem: str = ""
) -> str:
    """Write a document; `problem` is what ended the command early. Ends with a newline."""
    suites = {}
    if comparison is not None:
        suites["configurations"] = [_configuration(comparison, index) for index in range(len(comparison.columns))]
    if verdict is not None:
        suites["gates"] = list(map(_gate, verdict.results))
    if problem:
        suites["command"] = [test_case("fabbench.command", name, "error", [problem])]
    return document_of(suites, name=name)


def document_of(suites: Mapping[str, Sequence[ET.Element]], *, name: str) -> str:
    """Write a document of suites of `test_case`. Ends with a newline."""
    root = ET.Element("testsuites", name=_text(name))
    for suite, cases in suites.items():
        ET.SubElement(root, "testsuite", {"name": f"fabbench.{suite}", **_counts(cases)}).extend(cases)
    for attribute, number in _counts(list(root.iter("testcase"))).items():
        root.set(attribute, number)
    ET.indent(root, " ")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def test_case(classname: str, name: str, tag: str, sentences: Sequence[str]) -> ET.Element:
    """Return a test case; `tag` is `failure`, `error` or `skipped`, with sentences on why; empty: it passed."""
    case = ET.Element("testcase", classname=classname, name=_text(name))
    if tag:
        _because(case, tag, tag, sentences)
    return case


def untrusted(comparison: Comparison, index: int) -> bool:
    """Return whether a column makes the comparison untrusted (exit status 4)."""
    return comparison.columns[index].hidden > 0 or any(section.partial[index] for section in comparison.sections)


def _configuration(comparison: Comparison, index: int) -> ET.Element:
    column = comparison.columns[index]
    case = ET.Element("testcase", classname="fabbench.configuration", name=_text(column.label))
    reasons = column.reasons or (f"{column.outcome}: no reason given",)
    if column.outcome is Outcome.SKIPPED:
        _because(case, "skipped", column.outcome.value, reasons)
    elif untrusted(comparison, index):
        _because(case, "error", column.outcome.value, reasons)
    facts = [f"{name}: {', '.join(map(str, values))}" for name, values in column.facts.items()]
    found = [f"{each.severity}: {each.meaning}{f' {each.advice}' if each.advice else ''}" for each in column.findings]
    _out(case, [f"Outcome: {column.outcome}", *facts, *found])
    return case


def _gate(result: GateResult) -> ET.Element:
    case = ET.Element("testcase", classname="fabbench.gate", name=_text(result.gate))
    if result.state is GateState.FAILED:
        _because(case, "failure", "gate", result.breaches)
    elif result.state is GateState.UNTRUSTED:
        _because(case, "error", "untrusted", ["What it compares cannot be trusted.", *result.notes])
    _out(case, result.notes)
    return case


def _because(case: ET.Element, tag: str, kind: str, sentences: Sequence[str]) -> None:
    reason = ET.SubElement(case, tag, message=_text(sentences[0]))
    if tag != "skipped":
        reason.set("type", kind)
    reason.text = _text("\n".join(sentences))


def _out(case: ET.Element, sentences: Sequence[str]) -> None:
    if sentences:
        ET.SubElement(case, "system-out").text = _text("\n".join(sentences))


def _counts(cases: Sequence[ET.Element]) -> dict[str, str]:
    failed, wrong, skipped = (sum(case.find(tag) is not None for case in cases) for tag in _REASONS)
    return {"tests": str(len(cases)), "failures": str(failed), "errors": str(wrong), "skipped": str(skipped)}


def _text(text: str) -> str:
    return _NO_XML.sub("\ufffd", printable(text))
