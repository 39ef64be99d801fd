"""The answer of a sweep as text."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fabbench.model.formats import FORMATS
from fabbench.model.log import METRICS
from fabbench.report.sweep_report import (
    CORDON,
    SweepReport,
    confidence_text,
    cordon_commands,
    render_sweep,
)
from fabbench.sweep.analyze import diagnosis
from fabbench.sweep.fit import fit
from fabbench.sweep.matrix import matrix_of
from fabbench.sweep.planner import all_pairs, matchings
from fabbench.sweep.values import Suspect, SuspectKind
from tests.support.golden import GOLDEN, assert_golden
from tests.support.simulated_sweeps import Cluster, named


def report(cluster: Cluster, *, times: int = 3, tested: Sequence[str] = ()) -> SweepReport:
    cluster = replace(cluster)  # with chance from its beginning, whatever ran before
    nodes = tested or cluster.nodes
    readings = cluster.readings(each for _ in range(times) for each in all_pairs(nodes))
    found = fit(readings)
    said = diagnosis(readings, found)
    return SweepReport(
        diagnosis=said,
        metric=METRICS["busbw"],
        matrix=matrix_of(readings, found, said, max_rows=40),
    )


TEXTS = [form for form in FORMATS["sweep"] if form != "html"]
BAD = Cluster(named(8), {"node-5": 0.65}, {frozenset(("node-1", "node-2")): 1.0}, noise=0.01)


@pytest.mark.parametrize("form", TEXTS)
def test_an_answer_is_written_as_recorded(form: str) -> None:
    text = re.sub(
        r"\d+\.\d{7,}(?:e-?\d+)?",
        lambda found: f"{float(found[0]):.6g}",
        render_sweep(report(BAD), form),
    )
    assert_golden(GOLDEN / f"sweep-{form}.txt", text)


def test_text_has_the_answer_first_and_a_heat_map_last() -> None:
    text = render_sweep(report(BAD), "text")
    assert text.startswith("1 bad node, 1 bad link: node-5, ")
    assert "\nnode-5   3333333\n" in text
    assert "\nnode-1  3 x·····\n" in text
    assert render_sweep(report(Cluster(named(4))), "markdown").startswith(
        "No bad nodes found. 18 tests"
    )
    assert render_sweep(report(Cluster(named(2))), "markdown").startswith(
        "No test failed; two nodes "
    )


def test_what_was_not_tested_is_reported_and_not_called_good() -> None:
    healthy = report(Cluster(named(4)))
    left = "2 tests of round 3 (all pairs, round 3 of 3) and any later ones"
    cut = replace(healthy, unfinished=left, left_out=[("a.log", "No result.")])
    text = render_sweep(cut, "markdown")
    assert text.startswith(
        f"No bad nodes found so far. Not tested: {left}; 1 file left out. 18 tests of 4 nodes"
    )
    assert json.loads(render_sweep(cut, "json"))["unfinished"] == left
    bad = render_sweep(replace(report(BAD), unfinished=left), "text")
    assert bad.startswith(
        f"1 bad node, 1 bad link: node-5, node-1 – node-2. Not tested: {left}. 84 tests of 8 nodes"
    )
    untested = report(Cluster([*named(4), "node-9"]), tested=named(4))
    for form in ("markdown", "text", "csv", "json"):
        assert "node-9 has no usable test." in render_sweep(untested, form)
    for each in (cut, untested, replace(healthy, unfinished=left)):
        assert "No bad nodes found. " not in "".join(render_sweep(each, form) for form in TEXTS)


def test_a_test_that_ran_out_of_time_is_not_among_what_was_found_good() -> None:
    healthy = report(Cluster(named(4)))
    said = replace(healthy.diagnosis, out_of_time="Out of time, which shows nothing: a – b.")
    text = render_sweep(replace(healthy, diagnosis=said), "text")
    assert text.startswith("No bad nodes found in the tests that ended. Out of time")


def test_of_a_thousand_nodes_text_and_svg_stay_small() -> None:
    large = Cluster(named(1000), {"node-123": 0.5})
    readings = large.readings(matchings(large.nodes, 6, seed=1))
    found = fit(readings)
    said = diagnosis(readings, found)
    for form, most, size in (("text", 40, 5_000), ("svg", 96, 900_000)):
        matrix = matrix_of(readings, found, said, max_rows=most)
        text = render_sweep(
            SweepReport(diagnosis=said, metric=METRICS["busbw"], matrix=matrix), form
        )
        assert len(text) < size
        assert "node-123" in text


def test_commands_that_take_nodes_out_are_printed() -> None:
    said = report(BAD).diagnosis
    assert list(cordon_commands(said, "kubectl")) == [
        "kubectl cordon -- node-5",
        "# link node-1 – node-2: no command; its nodes are fine: look at what is between them",
    ]
    assert next(cordon_commands(said, "scontrol")) == (
        "scontrol update NodeName=node-5 State=DRAIN 'Reason=fabbench: node node-5'"
    )


def test_no_node_is_taken_out_for_its_software_or_for_a_whole_rail() -> None:
    said = report(BAD).diagnosis
    missing = replace(said.suspects[0], cannot_run=True)
    healthy = tuple(said.nodes[1:])  # one node is bad: its tests say nothing of a rail
    rail = Suspect(SuspectKind.RAIL, "mlx5_2", healthy, 1.0, "", "mlx5_2", of_all=True)
    some = Suspect(SuspectKind.RAIL, "node-[1-2]:mlx5_2", ("node-1", "node-2"), 1.0, "", "mlx5_2")
    said = replace(said, suspects=[missing, rail, some])
    commands = list(cordon_commands(said, "kubectl"))
    assert commands[:2] == ["kubectl cordon -- node-1", "kubectl cordon -- node-2"]
    assert [line.split(":")[0] for line in commands[2:]] == ["# node node-5", "# rail mlx5_2"]


def test_no_node_is_taken_out_for_the_uplink_of_its_group() -> None:
    said = report(BAD).diagnosis
    nodes = tuple(said.nodes[:4])
    uplink = Suspect(SuspectKind.GROUP, "rack1", nodes, confidence=1.0, evidence="")
    commands = list(cordon_commands(replace(said, suspects=[uplink]), "kubectl"))
    assert [line.split(":")[0] for line in commands] == ["# group rack1"]


@pytest.mark.parametrize("program", CORDON)
@pytest.mark.parametrize(
    "name", ["-l=x", "--all", "ALL", "all", "n[1-9]", "a,b", "a b", "x\nreboot", "$(reboot)", ""]
)
def test_no_command_takes_out_more_than_a_node(program: str, name: str) -> None:
    kinds = (SuspectKind.NODE, SuspectKind.LINK)
    suspects = [
        Suspect(kind=kind, name=name, nodes=(name,), confidence=1.0, evidence="") for kind in kinds
    ]
    said = replace(report(BAD).diagnosis, suspects=suspects)
    commands = "".join(f"{line}\n" for line in cordon_commands(said, program))
    assert [line[:1] for line in commands.splitlines()] == ["#", "#"]


@pytest.mark.parametrize(
    ("chance", "text"),
    [(1.0, "> 99%"), (0.99, "> 99%"), (0.9899, "98%"), (0.457, "46%"), (0.0, "-")],
)
def test_confidence_says_no_more_than_was_calibrated(chance: float, text: str) -> None:
    assert confidence_text(chance) == text
