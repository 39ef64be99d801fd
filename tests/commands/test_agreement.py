"""`parse`, `explain`, `compare` and `report` say the same of every log of the repository."""

import json
from pathlib import Path

import pytest
from click.testing import Result

from fabbench.cli import cli
from tests.support.command_line import runner
from tests.support.corpus import CORPUS, FOLDERS, name_of, paths


def fabbench(*words: str) -> Result:
    return runner().invoke(cli, words)


def outcomes(done: Result) -> list[str]:
    return [log["outcome"] for log in json.loads(done.stdout)["logs"]]


def kinds(done: Result) -> set[tuple[str, str, bool]]:
    logs = json.loads(done.stdout)["logs"]
    sizes = [[each["size"] for each in log["samples"]] for log in logs]
    return {
        (log["case"], log["outcome"], any(of_log)) for log, of_log in zip(logs, sizes, strict=True)
    }


@pytest.mark.parametrize("every", [32, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_commands_agree_on_outcome_and_status_of_each_log(folder: Path, every: int) -> None:
    seen: set[tuple[str, str, bool]] = set()  # Pages take long: one of each kind
    of_folder = [path for path in paths() if folder in path.parents]
    for path in of_folder[::every]:
        file = str(path)
        parsed = fabbench("parse", file, "--json")
        explained = fabbench("explain", file, "--json")
        if parsed.exit_code == 3:
            assert explained.exit_code == 3, name_of(path)
            continue
        found = outcomes(parsed)
        assert outcomes(explained) == found, name_of(path)
        status = 0 if {*found} == {"ok"} else 4
        # Without a benchmark, `explain` answers which network a job uses.
        of_diagnosis = 0 if {*found} <= {"ok", "observed"} else 4
        assert (parsed.exit_code, explained.exit_code) == (status, of_diagnosis), name_of(path)
        assert fabbench("compare", file, "--json").exit_code == status, name_of(path)
        if not kinds(parsed) <= seen:
            seen |= kinds(parsed)
            page = fabbench("report", file, "--format", "html")
            assert page.exit_code == status, name_of(path)


COMMANDS = ("parse", "explain", "compare", "report")


@pytest.mark.parametrize("fabric", ["efa", "tcp", "ib"])
def test_commands_agree_on_what_does_not_prove_a_fabric(fabric: str) -> None:
    for path in sorted((CORPUS / "nccl").iterdir())[::24]:
        found = set()
        for command in COMMANDS:
            page = ["--format", "html"] if command == "report" else []
            done = fabbench(command, str(path), "--fabric", fabric, *page)
            found.add(done.exit_code)
        assert len(found) == 1, name_of(path)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_take_the_same_about_what_was_measured(command: str) -> None:
    done = fabbench(
        command,
        str(FOLDERS[4] / "published-p4d-efa.txt"),
        *("--efa", "--instance-type", "p4d.24xlarge", "--nodes", "2", "--nics", "4"),
        *(("--format", "html") if command == "report" else ()),
    )
    assert "unproven, normal" in done.stdout


def judged(command: str, *words: str) -> Result:
    page = ("--format", "html") if command == "report" else ()
    file = str(FOLDERS[4] / "published-p4d-efa.txt")
    return fabbench(command, file, *words, *page)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_agree_on_gates_and_names(command: str) -> None:
    """The peak of the log is 77.35 GB/s, at 2 GB."""
    done = judged(command, "--label", "my log", "--gate", "busbw@2G>=77GB/s")
    assert (done.exit_code, "my log" in done.stdout) == (0, True)
    assert done.stderr == "Gate passed: busbw@2G>=77GB/s\n"
    done = judged(command, "--label", "my log", "--gate", "busbw@2G>=78GB/s")
    assert (done.exit_code, "my log" in done.stderr) == (1, True)
    done = judged(command, "--gate", "busbw@2G>=77.352GB/s")
    assert (done.exit_code, done.stderr.startswith("Gate inconclusive: busbw@2G")) == (0, True)
    assert judged(command, "--gate", "busbw@2G>=77.352GB/s", "--strict").exit_code == 1
    assert judged(command, "--gate", "busbw@64G>=1GB/s").exit_code == 1
    refused = {
        judged(command, *words).exit_code
        for words in (
            ("--gate", "busbw:5%"),
            ("--gate", "busbw@2G>=80%ceiling"),
            ("--strict",),
            ("--label", "a", "--label", "b"),
        )
    }
    assert refused == {2}


@pytest.mark.parametrize("command", ["parse", "explain"])
def test_a_gate_holds_only_if_it_does_for_all_logs(command: str) -> None:
    files = [str(FOLDERS[4] / f"published-p4d-{each}.txt") for each in ("efa", "tcp")]
    done = fabbench(command, *files, "--gate", "busbw@2G>=70GB/s", "--json")
    logs = json.loads(done.stdout)["logs"]
    assert [each["gates"][0]["state"] for each in logs] == ["passed", "failed"]
    assert (done.exit_code, done.stderr.count("Gate passed")) == (1, 0)
    done = fabbench(command, *files, "--gate", "busbw@2G>=4GB/s")
    assert (done.exit_code, done.stderr) == (0, "Gate passed: busbw@2G>=4GB/s\n")


def test_commands_agree_on_the_peak_of_a_log() -> None:
    """Two sizes of this log have its highest rate."""
    log = "examples/logs/x-ofi-tcp.txt"
    (alone,) = json.loads(runner().invoke(cli, ["parse", log, "--format", "json"]).stdout)["logs"]
    compared = runner().invoke(cli, ["compare", log, log, "--format", "json"])
    (first, _) = json.loads(compared.stdout)["columns"]
    assert {name: first["peak"][name] for name in alone["peak"]} == alone["peak"]
