"""One language of inputs.

What one command takes, the others take too, or name the command that does.
"""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fabbench.cli import cli
from fabbench.runs.document import TestResult
from fabbench.runs.document import write as write_document
from tests.commands.test_compare import CHANNEL, SOCKET, store_run
from tests.support.command_line import runner
from tests.support.corpus import CORPUS
from tests.support.logs_by_hand import GB
from tests.support.nccl_text import nccl_text

TEXT = SOCKET + CHANNEL + nccl_text([(GB, 3.0)])
READERS = ("parse", "explain", "compare", "report", "show")
INPUTS = (
    "a.log",
    "logs",
    "a.log,b.log",
    "-",
    "last",
    "RUN",
    "RUN:tcp",
    "last:tcp",
    "FOLDER",
    "FOLDER:tcp",
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a run, and logs beside its store."""
    monkeypatch.chdir(tmp_path)
    Path("logs").mkdir()
    for name in ("a.log", "b.log", "logs/c.log"):
        Path(name).write_text(TEXT)
    return store_run(Path("fabbench-runs"), {"socket": [4.0], "tcp": [2.0]})


def fabbench(*words: str) -> Result:
    return runner().invoke(cli, words, input=TEXT)


def folder(run: str) -> str:
    (path,) = Path("fabbench-runs").glob(f"*-{run}")
    return str(path)


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("named", INPUTS)
def test_logs_and_runs_are_taken_everywhere(run: str, command: str, named: str) -> None:
    done = fabbench(command, named.replace("FOLDER", folder(run)).replace("RUN", run))
    assert (done.exit_code, "all_reduce" in done.stdout) == (0, True), done.stderr


def test_a_store_is_the_rows_of_all_its_runs(run: str) -> None:
    other = store_run(Path("fabbench-runs"), {"socket": [8.0]})
    assert fabbench("parse", "fabbench-runs", "-o", "all.csv").exit_code == 0
    with Path("all.csv").open(newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["metric"], row["placement"]) == ("busbw", "out-of-place")
        ]
    found = {(*row["source"].split("/")[1::2], float(row["value"])) for row in rows}
    first, second = (Path(folder(each)).name for each in (run, other))
    assert found == {
        *((first, "000-socket-r1", 4e9), (first, "001-tcp-r1", 2e9)),
        (second, "000-socket-r1", 8e9),
    }


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize(
    ("named", "status"), [("nosuch", 2), ("last:efa", 2), ("nosuch.log", 3), ("none/a", 3)]
)
def test_what_is_not_there_is_named(run: str, command: str, named: str, status: int) -> None:
    done = fabbench(command, named)
    assert (done.exit_code, done.stdout) == (status, "")
    assert named.partition(":")[2] in done.stderr or run in done.stderr


@pytest.mark.parametrize(("form", "statuses"), [("json", [4, 3, 4, 4, 4]), ("csv", [3] * 5)])
def test_own_tables_are_results_and_no_evidence(run: str, form: str, statuses: list[int]) -> None:
    Path("own").write_text(fabbench("parse", run, "--format", form).stdout)
    assert [fabbench(command, "own").exit_code for command in READERS] == statuses
    for words in (("explain", "own"), ("sweep", "--from", "own")):
        assert "fabbench compare" in fabbench(*words).stderr


def figures(*words: str) -> list[tuple[str, float]]:
    document: dict[str, Any] = json.loads(fabbench("parse", *words, "--format", "json").stdout)
    return [
        (log["outcome"], sample["value"])
        for log in document["logs"]
        for sample in log["samples"][:1]
    ]


def test_a_run_is_judged_as_it_was_measured(run: str) -> None:
    off = store_run(Path("fabbench-runs"), {"efa": [7.0]})
    assert [outcome for outcome, _ in figures(off)] == ["off-fabric"]
    assert [outcome for outcome, _ in figures(f"{folder(off)}/exec/000-efa-r1/output.log")] == [
        "ok"
    ]
    assert len(figures("fabbench-runs")) == 3
    assert len(figures(run)) == 2
    refused = fabbench("explain", run, "--fabric", "efa")
    assert (refused.exit_code, "--fabric" in refused.stderr) == (2, True)
    assert fabbench("explain", run, "a.log", "--fabric", "efa").exit_code == 4


def test_a_run_that_stopped_is_explained_as_far_as_it_went(run: str) -> None:
    (Path(folder(run)) / "exec/001-tcp-r1/run.json").unlink()
    done = fabbench("explain", "last")
    assert (done.exit_code, "truncated" in done.stdout, "socket" in done.stdout) == (4, True, True)
    (Path(folder(run)) / "exec/000-socket-r1/plan.json").write_text("{")
    damaged = fabbench("parse", "last")
    assert (damaged.exit_code, "plan.json is damaged" in damaged.stderr) == (4, True)


def test_what_one_configuration_printed_is_no_evidence_about_another(tmp_path: Path) -> None:
    step = "#@fabbench begin {0}/all_reduce benchmark=nccl\n{1}#@fabbench end {0}/all_reduce {2}\n"
    died, whole = (
        step.format("000-socket-r1", SOCKET + CHANNEL, 1),
        step.format("001-efa-r1", nccl_text([(GB, 3.0)]), 0),
    )
    (tmp_path / "job.out").write_text(died + whole)
    found = json.loads(fabbench("explain", f"{tmp_path}/job.out", "--format", "json").stdout)[
        "logs"
    ]
    assert {log["outcome"]: log["facts"].get("transport") for log in found} == {
        "failed": "socket",
        "ok": None,
    }


def test_a_page_of_logs_compares_them_and_runs_have_their_own_sections(
    run: str, tmp_path: Path
) -> None:
    page = fabbench("report", "a.log", f"{run}:tcp").stdout
    assert ("a 3 GB/s vs tcp 2 GB/s" in page, page.count('class="run"')) == (True, 1)
    assert (fabbench("report", "last", "a.log", "b.log", "-o", "r.html").stdout, page[:15]) == (
        "",
        "<!DOCTYPE html>",
    )
    page = Path("r.html").read_text("utf-8")
    assert (
        "socket 4 GB/s vs tcp 2 GB/s" in page,
        page.count('class="run"'),
        str(tmp_path) in page,
    ) == (True, 2, False)
    assert "[send] via NET/Socket/0" in page  # the proof, with its line
    Path("b.log").write_text(nccl_text([(GB, 3.0)], ranks=8))
    apart = fabbench("report", "a.log", "b.log")
    assert (apart.exit_code, apart.stdout.count('class="run"'), "ranks" in apart.stderr) == (
        0,
        2,
        True,
    )
    Path(folder(run), "request.json").write_text("{")
    damaged = fabbench("report", "a.log", run)
    assert (damaged.exit_code, "Damaged: " in damaged.stdout, "is damaged: " in damaged.stderr) == (
        3,
        True,
        True,
    )


def test_an_input_without_the_sizes_does_not_take_the_others_with_it(run: str) -> None:
    Path("b.log").write_text(nccl_text([(GB, 3.0)], ranks=8))
    Path("c.log").write_text(nccl_text([(1 << 20, 3.0)]))
    some = fabbench("report", "a.log", "b.log", "c.log", "--size", "1G")
    assert (
        some.exit_code,
        some.stdout.count('class="run"'),
        "c.log: Nothing was" in some.stderr,
    ) == (0, 2, True)
    assert fabbench("report", "last", "b.log", "--size", "1M").exit_code == 2
    stored = Path("fabbench-runs/20260101T000000Z-nccl-0123ab")
    shutil.copytree(folder(run), stored)
    for log in stored.glob("exec/*/output.log"):
        log.write_text(nccl_text([(1 << 20, 3.0)]))
    two = fabbench("report", run, str(stored), "--size", "1M")
    # The logs of the copy prove nothing any more.
    assert (two.exit_code, two.stdout.count("Nothing was measured at the sizes")) == (4, 1)


@pytest.mark.parametrize("named", ["a.log", "last", "last:tcp", "a.log,b.log"])
def test_every_input_is_written_in_every_way(run: str, named: str) -> None:
    for words in (
        f"show {named} --size 1M.. -o x.html",
        f"report {named} --size 1G -o x.html",
        f"compare {named} -o x.csv",
    ):
        done, file = fabbench(*words.split()), Path(words.split()[-1])
        assert (done.exit_code, done.stdout, "all_reduce" in file.read_text("utf-8")) == (
            0,
            "",
            True,
        ), done.stderr
    for command in ("show", "report", "compare"):
        assert fabbench(command, named, "--size", "1M").exit_code == 2, run


@pytest.mark.usefixtures("run")
def test_a_log_is_no_run() -> None:
    for words in ("rerun a.log", "runs rm logs", "run --resume -"):
        done = fabbench(*words.split())
        assert (done.exit_code, "is not a run" in done.stderr, "fabbench parse" in done.stderr) == (
            2,
            True,
            True,
        )


def test_a_sweep_is_judged_again_and_a_run_is_a_test(run: str) -> None:
    one = json.loads(fabbench("sweep", "--from", f"{run}:tcp", "--format", "json").stdout)
    assert (one["nodes"], one["tests"]) == (["node0", "node1"], 1)
    path = Path("fabbench-runs/20990101T000000Z-nccl-abcdef")
    (path / "logs").mkdir(parents=True)
    names = ["a", "b", "c", "d"]
    about = {
        "mode": "pairs",
        "benchmark": "nccl",
        "fabric": "efa",
        "nodes": names,
        "metric": "busbw",
    }
    sweep = {**about, "seed": 0, "confidence": 0.99, "tolerance": 0.1}
    write_document(path / "request.json", {"format": 1, "id": "abcdef", "sweep": sweep})
    for number, pair in enumerate(["ab", "ac", "ad", "bc", "bd", "cd"]):
        figure = 1e9 if "d" in pair else 5e9
        result = TestResult(number=number, round=1, nodes=(*pair,), outcome="ok", value=figure)
        write_document(path / "tests" / f"{number:06}.json", result)
    again = fabbench("sweep", "--from", "last", "--confidence", "90%", "--format", "json")
    document = json.loads(again.stdout)
    assert (document["nodes"], [each["name"] for each in document["suspects"]]) == (names, ["d"])
    assert "round" in document["unfinished"]
    assert fabbench("sweep", "--from", "last", "--metric", "latency").exit_code == 2
    assert "fabbench show" in fabbench("compare", "last").stderr


@pytest.mark.parametrize(
    ("loop", "changed"),
    [
        ("perftest/a-loop-over-devices", "mlx5_2 mlx5_3"),
        ("osu/two-settings-of-mpi", "mtl_ofi_provider_include=sm2 mtl_ofi_provider_include=shm"),
        ("nixl/two-backends", "UCX LIBFABRIC"),
    ],
)
def test_what_a_loop_changes_makes_columns_and_no_repeats(loop: str, changed: str) -> None:
    done = fabbench("compare", str(CORPUS / f"{loop}.txt"), "--format", "json")
    labels = [each["label"].rpartition(" ") for each in json.loads(done.stdout)["columns"]]
    assert labels == [(Path(loop).name, " ", each) for each in changed.split()]


def test_a_tool_that_is_not_read_is_named_by_every_command(tmp_path: Path) -> None:
    (log := tmp_path / "a.log").write_text("# Initializing MSCCL++\n")
    assert all("mscclpp-test" in fabbench(command, str(log)).stderr for command in READERS)


def codes(*words: str) -> list[list[str]]:
    """Return the codes of the findings of each log of `explain`, or column of `compare`."""
    document = json.loads(fabbench(*words, "--format", "json").stdout)
    return [
        [each["code"] for each in found["findings"]]
        for found in document.get("logs") or document["columns"]
    ]


def test_a_slow_nic_of_a_loop_is_named(tmp_path: Path) -> None:
    log = tmp_path / "node-01_node-02.log"
    log.write_text("".join(of_nic(number) for number in (0, 1, 9)))
    assert codes("explain", str(log)) == [[], [], ["slow-nic"]]
    assert "mlx5_9 is at 50%" in fabbench("sweep", "--from", str(log)).stderr


@pytest.mark.parametrize("command", ["explain", "compare"])
@pytest.mark.parametrize("name", ["NIC.log", "bw-NIC.txt", "slurm-NUMBER.out", "NIC/bw.log"])
def test_a_slow_nic_of_several_files_is_named(tmp_path: Path, command: str, name: str) -> None:
    files = [
        tmp_path / name.replace("NIC", f"mlx5_{each}").replace("NUMBER", str(each))
        for each in range(8, 12)
    ]
    for number, file in enumerate(files, 8):
        file.parent.mkdir(exist_ok=True)
        file.write_text(of_nic(number))
    assert codes(command, *map(str, files)) == [[], ["slow-nic"], [], []]
    assert sorted(codes(command, str(tmp_path))) == [[], [], [], ["slow-nic"]]


def test_a_slow_nic_of_a_pair_is_named_among_those_of_its_nodes(tmp_path: Path) -> None:
    for pair, slow in (("node-01_node-02", 9), ("node-03_node-04", 2), ("node-05_node-06", -1)):
        for number in (1, 2, 9):
            (tmp_path / f"{pair}-mlx5_{number}.log").write_text(of_nic(number, slow))
    said = fabbench("sweep", "--from", str(tmp_path)).stderr
    assert [
        line.partition(" is at")[0][-26:] for line in said.splitlines() if "Slow NIC" in line
    ] == [
        "node-02-mlx5_9.log: mlx5_9",
        "node-04-mlx5_2.log: mlx5_2",
    ]


@pytest.mark.parametrize(
    ("same", "other"), [("Write", "Read"), ("Write BW", "Write Bidirectional BW"), (": 1 ", ": 4 ")]
)
def test_nics_of_different_tests_are_not_compared(tmp_path: Path, same: str, other: str) -> None:
    for number in range(7, 10):
        text = of_nic(number)
        (tmp_path / f"mlx5_{number}.log").write_text(
            text.replace(same, other) if number == 9 else text
        )
    assert not any("slow-nic" in each for each in codes("explain", str(tmp_path)))


def of_nic(number: int, slow: int = 9) -> str:
    """Return the output of one NIC; the slow one has half the bandwidth."""
    one, _, _ = (
        (CORPUS / "perftest/a-loop-over-devices.txt")
        .read_text()
        .partition("+ ib_write_bw -d mlx5_3")
    )
    halved = (
        one.replace("392.05", "196.05").replace("391.20", "195.60").replace("0.746155", "0.373077")
    )
    return (halved if number == slow else one).replace("mlx5_2", f"mlx5_{number}")
