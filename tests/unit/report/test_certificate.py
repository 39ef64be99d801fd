"""The verdict of a ladder, and how its certificate is written."""

import json
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from fabbench.model.formats import FORMATS
from fabbench.model.hosts import Host
from fabbench.report.certificate import (
    Certificate,
    RungFigure,
    RungResult,
    State,
    render_certificate,
)

FIGURE = RungFigure(metric="busbw", size=1 << 30, value=4e11, repeats=3)
LIMITS = ("busbw@1GB>=360GB/s",)
CHECK = RungResult(name="check", what="checks", state=State.PASSED)
ALL = RungResult(
    name="all:all_reduce",
    what="",
    state=State.PASSED,
    figures=(FIGURE,),
    limits=LIMITS,
    fabric="efa",
)
FINE = Certificate(
    id="20261126T080000Z-a1b2c3",
    level="quick",
    profile="training",
    target="prod",
    started=1.0,
    ended=61.0,
    nodes=(Host(name="node1", gpus=8, versions={"kernel": "6.1"}), Host(name="node2", gpus=8)),
    rungs=(CHECK, ALL),
)
BAD = replace(
    CHECK,
    name="pairs",
    state=State.FAILED,
    bad={"node2": "slow"},
    nodes={"node2": "slow"},
    why="Bad.",
)
OPEN = replace(CHECK, name="nics", state=State.INCOMPLETE, why="Not found.")
ABSENT = replace(CHECK, name="rails", state=State.NOT_APPLICABLE, why="No NICs.")
UNJUDGED = replace(ALL, limits=())


@pytest.mark.parametrize(
    ("rungs", "answer", "untested"),
    [
        ((CHECK, ALL), State.PASSED, set()),
        ((CHECK, ABSENT, ALL), State.PASSED, set()),
        ((CHECK, OPEN, ALL), State.INCOMPLETE, {"nics"}),
        ((CHECK, UNJUDGED), State.INCOMPLETE, {"limits"}),
        ((CHECK, OPEN, BAD, ALL), State.FAILED, {"nics"}),
        (
            (CHECK, replace(ALL, figures=(), limits=())),
            State.INCOMPLETE,
            {"measurements", "limits"},
        ),
        ((), State.INCOMPLETE, {"measurements"}),
        ((CHECK, ABSENT), State.INCOMPLETE, {"measurements"}),
    ],
)
def test_nothing_that_was_not_tested_is_accepted(
    rungs: tuple[RungResult, ...], answer: State, untested: set[str]
) -> None:
    certificate = replace(FINE, rungs=rungs)
    assert (certificate.state, set(certificate.untested)) == (answer, untested)


def test_one_node_without_limits_is_compared_with_nothing() -> None:
    alone = replace(UNJUDGED, name="gpus")
    assert replace(FINE, rungs=(CHECK, alone)).state is State.PASSED
    assert replace(FINE, rungs=(CHECK, alone), nodes=FINE.nodes[:1]).state is State.INCOMPLETE


def test_the_headline_says_what_is_bad_and_who_passed() -> None:
    nodes = tuple(Host(name=f"node{number}") for number in range(1, 5))
    found = replace(FINE, nodes=nodes, rungs=(CHECK, BAD))
    assert found.headline == ("Rejected: node2 is bad; node[1,3-4] passed what was tested.")
    everything = replace(BAD, bad={"all nodes": "slow"}, nodes={node.name: "" for node in nodes})
    assert replace(found, rungs=(everything,)).headline == "Rejected: all nodes are bad."


def test_what_is_in_progress_is_incomplete() -> None:
    assert replace(FINE, ended=None).state is State.INCOMPLETE
    assert replace(FINE, ended=None, rungs=(BAD,)).state is State.FAILED


def test_every_node_and_nic_has_an_answer() -> None:
    """The rails of nodes 2 and 3 are tested; node1 is left out before."""
    nics = {"mlx5_0": "ib", "mlx5_1": "ib"}
    nodes = tuple(Host(name=f"node{number}", devices=nics) for number in range(1, 5))
    reasons = {"node1": "no GPU"}
    check = replace(CHECK, state=State.FAILED, bad=reasons, nodes=reasons)
    slow = {"node[2-3]:mlx5_1": "slow"}
    bad = dict.fromkeys(("node2", "node3"), "slow")
    rails = replace(BAD, name="rails", bad=slow, nodes=bad)
    found = replace(FINE, nodes=nodes, rungs=(check, rails, ALL)).verdicts
    assert {node: each["answer"] for node, each in found.items()} == {
        "node1": "bad",
        "node2": "bad",
        "node3": "bad",
        "node4": "passed",
    }
    assert [[*each["nics"].values()] for each in found.values()] == [
        ["not tested", "not tested"],
        ["passed", "bad"],
        ["passed", "bad"],
        ["passed", "passed"],
    ]
    together = replace(BAD, bad={"all nodes": "slow"}, nodes={})
    answers = replace(FINE, nodes=nodes, rungs=(together, ALL)).verdicts.values()
    assert {(each["answer"], each["why"]) for each in answers} == {("not settled", "slow")}
    headline = replace(FINE, nodes=nodes, rungs=(together, ALL)).headline
    assert headline == "Rejected: all nodes are bad."
    nothing = replace(FINE, nodes=nodes, rungs=(CHECK,)).verdicts.values()
    assert {each["answer"] for each in nothing} == {"not tested"}


def test_limits_have_their_sources() -> None:
    judged = replace(ALL, sources=("limits.json",))
    text = render_certificate(replace(FINE, rungs=(CHECK, judged)), "markdown")
    assert "busbw@1GB>=360GB/s (limits.json)" in text


@pytest.mark.parametrize("form", FORMATS["certificate"])
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
