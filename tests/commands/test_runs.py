"""Runs of a store: listed, chosen, removed, repeated."""

import json
import os
from pathlib import Path

import pytest
from click.testing import Result

from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.cli import cli
from fabbench.cli.run_command import rerun_words
from fabbench.model.errors import Exit, RequestError
from fabbench.model.hosts import Host, Inventory
from fabbench.model.plan import Configuration, Plan
from fabbench.runs.inputs import open_run
from fabbench.runs.store import RunWriter, StoredRun, in_progress, write_verdict
from tests.support.command_line import runner
from tests.support.requests import request

INVENTORY = Inventory(target="local", hosts=(Host(name="here"),))
COMMAND = ("fabbench", "run", "pingpong", "--on", "local", "--env", "MY_TOKEN=s3cr3t")


def stored(store: Path, name: str = "", day: str = "", command: tuple[str, ...] = COMMAND) -> str:
    """Keep a run that never began; `day` says when it was, such as 20250101. Return its id."""
    run_request = request(
        "pingpong", PingpongWork(sizes=(64,)), "tcp", store=store, name=name, command=command
    )
    tcp = (Configuration(label="tcp", fabric="tcp"),)
    run = RunWriter(
        run_request,
        INVENTORY,
        Plan(benchmark="pingpong", target="local", configurations=tcp, executions=()),
    )
    write_verdict(run.path, Exit.BAD_ANSWER, ("Too slow.",))
    if day:
        file = run.path / "request.json"
        document = json.loads(file.read_text("utf-8"))
        created = f"{day[:4]}-{day[4:6]}-{day[6:]}T00:00:00Z"
        file.write_text(json.dumps({**document, "created": created}))
        run.path.rename(run.path.with_name(f"{day}T000000Z-pingpong-{run.id}"))
    return run.id


def fabbench(store: Path, *words: str) -> Result:
    return runner({"FABBENCH_STORE": str(store)}).invoke(cli, words)


def listed(store: Path, *words: str) -> list[str]:
    found = json.loads(fabbench(store, "runs", *words, "--json").stdout)["runs"]
    return [run["id"] for run in found]


def test_without_a_directory_to_read_the_store_is_named(tmp_path: Path) -> None:
    for store in (Path("/proc/x"), tmp_path / "missing"):
        done = fabbench(store, "runs")
        assert (done.exit_code, done.stderr) == (
            0,
            f"No runs: {store} is no directory that can be read.\n",
        )
    assert fabbench(tmp_path, "runs").stderr == f"No runs in {tmp_path}.\n"


@pytest.mark.parametrize(
    ("state", "shown"),
    [("inconclusive", "inconclusive"), ("not trusted", "not trusted"), ("", "passed")],
)
def test_the_state_of_gates_is_that_of_the_gravest(tmp_path: Path, state: str, shown: str) -> None:
    """Runs of older versions say only whether they held."""
    run = stored(tmp_path)
    (path,) = tmp_path.iterdir()
    write_verdict(path, Exit.FINE, state=state)
    (found,) = json.loads(fabbench(tmp_path, "runs", "--json").stdout)["runs"]
    assert (found["id"], found["gate"]) == (run, shown)


def test_the_list_shows_where_a_run_was_and_whether_its_gates_held(tmp_path: Path) -> None:
    run = stored(tmp_path, "efa 1.48")
    head, row = fabbench(tmp_path, "runs").stdout.splitlines()
    assert head.split()[:7] == [
        "ID",
        "NAME",
        "BENCHMARK",
        "TARGET",
        "NODES",
        "CONFIGURATIONS",
        "SIZES",
    ]
    assert row.startswith(
        f"{run}  efa 1.48  pingpong   local   1      tcp             -      -     failed"
    )


def test_runs_are_chosen(tmp_path: Path) -> None:
    old, named, new = stored(tmp_path, day="20250101"), stored(tmp_path, "base"), stored(tmp_path)
    assert listed(tmp_path) == [new, named, old]
    assert listed(tmp_path, "--since", "1d") == [new, named]
    assert listed(tmp_path, "--name", "base") == [named]
    assert listed(tmp_path, "--benchmark", "nccl") == listed(tmp_path, "--on", "prod") == []
    assert "No run in" in fabbench(tmp_path, "runs", "--on", "prod").stderr
    assert open_run("base", tmp_path).id == named


def test_runs_are_removed(tmp_path: Path) -> None:
    old, older, new = (stored(tmp_path, day=day) for day in ("20250102", "20250101", ""))
    refused = fabbench(tmp_path, "runs", "rm", "--keep", "2")
    assert (refused.exit_code, listed(tmp_path)) == (1, [new, old, older])
    assert (
        fabbench(tmp_path, "runs", "rm", "--keep", "2", "--older-than", "9d", "--yes").exit_code
        == 0
    )
    assert listed(tmp_path) == [new, old]
    assert fabbench(tmp_path, "runs", "rm", new, "--yes").exit_code == 0
    assert listed(tmp_path) == [old]
    for wrong in ((), ("last", "--keep", "1"), ("--benchmark", "pingpong")):
        assert fabbench(tmp_path, "runs", "rm", *wrong, "--yes").exit_code == 2
    assert listed(tmp_path) == [old]


def test_a_run_in_progress_is_kept(tmp_path: Path) -> None:
    run = open_run(stored(tmp_path), tmp_path)
    document = json.loads((run.path / "request.json").read_text("utf-8"))
    (run.path / "request.json").write_text(json.dumps({**document, "schedule": ["000-tcp-r1"]}))
    assert in_progress(StoredRun(run.path))
    done = fabbench(tmp_path, "runs", "rm", run.id, "--yes")
    assert (done.exit_code, listed(tmp_path)) == (0, [run.id])
    assert "may be in progress" in done.stderr
    os.utime(run.path, (0, 0))
    assert not in_progress(StoredRun(run.path))


def test_show_begins_with_a_command_line_to_copy(tmp_path: Path) -> None:
    stored(tmp_path)
    first, *_ = fabbench(tmp_path, "show", "last").stdout.splitlines()
    assert first == "$ fabbench run pingpong --on local --env 'MY_TOKEN=(redacted)'"


def test_a_run_is_repeated(tmp_path: Path) -> None:
    words = ["pingpong", "--host", "a", "--", "-v"]
    assert rerun_words(words, ("--repeat", "5"), target="prod", store=tmp_path) == [
        *(
            "pingpong",
            "--host",
            "a",
            "--on",
            "prod",
            "--repeat",
            "5",
            "--store",
            str(tmp_path),
            "--",
            "-v",
        )
    ]
    secret = ["pingpong", "--on", "local", "--env", "MY_TOKEN=(redacted)"]
    with pytest.raises(RequestError, match="MY_TOKEN is a secret"):
        rerun_words(secret, (), target="local", store=tmp_path)
    assert rerun_words(secret, ("--env", "MY_TOKEN=x"), target="local", store=tmp_path)
    assert rerun_words(secret, ("--env=MY_TOKEN=x",), target="local", store=tmp_path)
    stored(tmp_path)
    done = fabbench(tmp_path, "rerun", "--on", "nowhere", "--env", "MY_TOKEN=x")
    assert "Unknown target nowhere (set with --on)" in done.stderr
    assert "fabbench run pingpong" in done.stderr


def test_the_file_of_a_past_run_is_kept(tmp_path: Path) -> None:
    page = tmp_path / "live.html"
    page.write_text("first")
    stored(tmp_path, command=("fabbench", "run", "pingpong", "--dry-run", "-o", str(page)))
    done = fabbench(tmp_path, "rerun", "--fabric", "tcp")
    assert (page.read_text(), "Wrote" in done.stderr) == ("first", False)
    other = tmp_path / "other.txt"
    done = fabbench(tmp_path, "rerun", "--fabric", "tcp", "-o", str(other))
    assert (page.read_text(), other.exists()) == ("first", done.exit_code == 0)
    assert (f"Wrote {other}" in done.stderr) == other.exists()


@pytest.mark.parametrize("words", [("rerun", "last"), ("run", "--resume", "last")])
def test_a_rung_is_not_run_alone(tmp_path: Path, words: tuple[str, ...]) -> None:
    stored(tmp_path, command=("fabbench", "accept", "--on", "local"))
    done = fabbench(tmp_path, *words)
    assert (done.exit_code, "fabbench accept --on local" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "words", [("runs",), ("history", "busbw"), ("rerun", "last"), ("run", "pingpong")]
)
def test_a_store_is_no_url(
    tmp_path: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = runner().invoke(cli, [*words, "--store", "s3://a/b"])
    assert done.exit_code == 2
    assert "is a URL" in done.stderr
    assert not list(tmp_path.iterdir())
