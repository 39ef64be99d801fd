"""JUnit XML and comments on pull requests: outcomes, gates, and text that is not markup."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from fabbench.analysis.compare import Column, compare
from fabbench.analysis.gate import check
from fabbench.model.log import Outcome
from fabbench.plan.gates import parse_gate
from fabbench.report.ci_formats import LONGEST, to_comment, to_junit
from tests.support.logs_by_hand import GB, column, log, rates

EFA, TCP = rates("EFA", [(GB, 80)]), rates("TCP", [(GB, 4)])
HOSTILE = 'x"><script>alert(1)</script>&\x1b[31m\x00\ufffe|`'


def cases(text: str) -> dict[str, list[str]]:
    """Return the name of each test case → the elements in it, without its output."""
    root = ET.fromstring(text)
    return {
        case.attrib["name"]: [f"{child.tag} {child.get('type', '')}".strip() for child in case[:1]]
        if len(case) and case[0].tag != "system-out"
        else []
        for case in root.iter("testcase")
    }


def test_gates_and_configurations_are_test_cases() -> None:
    comparison = compare([EFA, TCP])
    verdict = check([parse_gate("busbw@1G>=90GB/s"), parse_gate("ratio@1G>=10")], comparison)
    text = to_junit(comparison, verdict)
    found = {"EFA": [], "TCP": [], "busbw@1G>=90GB/s": ["failure gate"], "ratio@1G>=10": []}
    assert cases(text) == found
    root = ET.fromstring(text)
    assert {**root.attrib} == {
        "name": "fabbench",
        "tests": "4",
        "failures": "1",
        "errors": "0",
        "skipped": "0",
    }
    failure = root.find(".//failure")
    assert failure is not None
    assert "80 GB/s in EFA; expected at least 90 GB/s" in failure.attrib["message"]


@pytest.mark.parametrize(
    ("outcome", "tag"), [(Outcome.OFF_FABRIC, "error off-fabric"), (Outcome.SKIPPED, "skipped")]
)
def test_what_cannot_be_trusted_is_no_failure_of_a_gate(outcome: Outcome, tag: str) -> None:
    base = column("TCP", log([(GB, 4e9)], outcome=outcome, reason="Not there."))
    comparison = compare([EFA, base], only_ok=True)
    verdict = check([parse_gate("busbw@1G>=70GB/s")], comparison)
    assert cases(to_junit(comparison, verdict)) == {
        "EFA": [],
        "TCP": [tag],
        "busbw@1G>=70GB/s": ["error untrusted"],
    }
    assert "| busbw@1G>=70GB/s | ⚠️ not trusted |" in to_comment(comparison, verdict)


def test_a_truncated_column_is_an_error_where_it_decides_the_status() -> None:
    cut = column("TCP", log([(GB, 4e9)], outcome=Outcome.TRUNCATED, reason="Cut."))
    assert cases(to_junit(compare([EFA, cut])))["TCP"] == []
    assert cases(to_junit(compare([EFA, cut], only_ok=True)))["TCP"] == ["error truncated"]


def test_hostile_text_stays_text() -> None:
    labels = [replace(EFA, label=HOSTILE, source=HOSTILE), TCP]
    comparison = compare(labels)
    (name, *_) = cases(to_junit(comparison))
    assert name == 'x"><script>alert(1)</script>&\\u0000\ufffd|`'
    comment = to_comment(comparison)
    assert "<script" not in comment.replace("\\<script", "")
    assert comment.count("<details>") == comment.count("</details>") == 1


def test_a_comment_names_no_local_directory() -> None:
    sources = ["/home/me/new/a.log", "/home/me/old/a.log"]
    columns = [
        Column(label=f"a ({source})", logs=each.logs, source=source)
        for source, each in zip(sources, (EFA, TCP), strict=True)
    ]
    comparison = compare(columns)
    comment = to_comment(comparison, check([parse_gate("busbw@1G>=90GB/s")], comparison))
    assert "/home" not in comment
    assert "a (new/a.log) from new/a.log; a (old/a.log) from old/a.log" in comment


def test_a_comment_keeps_to_its_length_and_says_so() -> None:
    labelled = [
        column(f"{label}{'x' * 200}", *(log([(size, 1e9)]) for size in range(8, 800)))
        for label in "ab"
    ]
    comment = to_comment(compare(labelled))
    assert len(comment) < LONGEST + 500
    assert "Left out for length: " in comment
