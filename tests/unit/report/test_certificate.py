"""The verdict of a ladder, and how its certificate is written."""

import json
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from fabbench.report.certificate import (
    FORMATS,
    Answer,
    Certificate,
    FigureResult,
    NodeRecord,
    RungResult,
    State,
    render_certificate,
    render_changes,
)

FIGURE = FigureResult("busbw", 1 << 30, 4e11, 3, "busbw@1GB>=360GB/s")
CHECK = RungResult(name="check", what="checks", state=State.PASSED)
ALL = RungResult(name="all:all_reduce", what="all", state=State.PASSED, figures=(FIGURE,), together=True, fabric="efa")
FINE = Certificate(
    id="20261126T080000Z-a1b2c3",
    level="quick",
    profile="training",
    target="prod",
    started=1.0,
    ended=61.0,
    nodes=(NodeRecord(name="node1", gpus=8, versions={"kernel": "6.1"}), NodeRecord(name="node2", gpus=8)),
    rungs=(CHECK, ALL),
)
BAD = replace(CHECK, name="pairs", state=State.FAILED, bad={"node2": "slow"}, nodes={"node2": "slow"}, why="Bad.")
OPEN = replace(CHECK, name="nics", state=State.INCOMPLETE, why="Not found.")
ABSENT = replace(CHECK, name="rails", state=State.NOT_APPLICABLE, why="No NICs.")
UNJUDGED = replace(ALL, figures=(replace(FIGURE, limit=""),))


@pytest.mark.parametrize(
    ("rungs", "answer", "untested"),
    [
        ((CHECK, ALL), Answer.ACCEPTED, set()),
        ((CHECK, ABSENT, ALL), Answer.ACCEPTED, set()),
        ((CHECK, OPEN, ALL), Answer.INCOMPLETE, {"nics"}),
        ((CHECK, UNJUDGED), Answer.INCOMPLETE, {"limits"}),
        ((CHECK, OPEN, BAD, ALL), Answer.REJECTED, {"nics"}),
        ((), Answer.INCOMPLETE, {"measurements"}),
        ((CHECK, ABSENT), Answer.INCOMPLETE, {"measurements"}),
    ],
)
def test_nothing_that_was_not_tested_is_accepted(
    rungs: tuple[RungResult, ...], answer: Answer, untested: set[str]
) -> None:
    certificate = replace(FINE, rungs=rungs)
    assert (certificate.verdict, set(certificate.untested)) == (answer, untested)


def test_what_is_in_progress_is_incomplete() -> None:
    assert replace(FINE, ended=None).verdict is Answer.INCOMPLETE
    assert replace(FINE, ended=None, rungs=(BAD,)).verdict is Answer.REJECTED


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_names_what_is_bad_and_what_was_not_tested(form: str) -> None:
    text = render_certificate(replace(FINE, rungs=(CHECK, OPEN, BAD, ABSENT, ALL)), form)
    assert text.endswith("\n")
    assert all(word in text for word in ("nics", "pairs", "Not found."))


def test_reports_of_tests_fail_where_the_verdict_is_open() -> None:
    certificate = replace(FINE, rungs=(CHECK, UNJUDGED))
    root = ET.fromstring(render_certificate(certificate, "junit"))
    assert (root.get("tests"), root.get("errors")) == ("3", "1")
    summary = json.loads(render_certificate(certificate, "ctrf"))["results"]["summary"]
    assert (summary["passed"], summary["other"], summary["tests"]) == (2, 1, 3)


def test_changes_name_figures_nodes_and_versions() -> None:
    slower = replace(ALL, figures=(replace(FIGURE, value=2e11),))
    nodes = (replace(FINE.nodes[0], versions={"kernel": "6.8"}), NodeRecord(name="node3"))
    text = render_changes(FINE, replace(FINE, id="later", rungs=(CHECK, slower, BAD), nodes=nodes), "markdown")
    for words in ("0.5 x", "kernel 6.1 → 6.8", "Gone: node2.", "New: node3.", "accepted → rejected"):
        assert words in text
