"""`fabbench run pingpong` with real programs.

What it measures, what it refuses, and every way to end it.
"""

import contextlib
import json
import os
import pty
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from fabbench.model.log import Outcome
from fabbench.runs.store import runs
from tests.support.local_runs import (
    QUICK,
    alive,
    argv,
    client,
    environment,
    fabbench,
    nothing_left,
    pingpong,
    rows,
    start,
    the_run,
)
from tests.support.paths import ROOT
from tests.support.printed_run import shown

pytestmark = pytest.mark.local

LONG = ("--fabric", "tcp", "--size", "64", "--size", "64M", "--iterations", "400")
"""One size that is done at once, and one that takes long enough for anything to happen to it."""


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    """Remove the shared memory of programs that died with a fabbench that was killed.

    Nobody else can.
    """
    folder = Path("/dev/shm")
    before = set(folder.iterdir())
    yield
    for path in set(folder.iterdir()) - before:
        owner = re.fullmatch(r"(\d+):\d+:\d+", path.name)
        if owner and not alive(int(owner[1])):
            path.unlink(missing_ok=True)


# ---------------------------------------------------------------- measuring


@pytest.mark.slow
def test_two_fabrics_interleaved(tmp_path: Path) -> None:
    done = pingpong(
        tmp_path,
        "--fabric",
        "shm",
        "--fabric",
        "tcp",
        "--repeat",
        "2",
        "--size",
        "64",
        "--size",
        "1500",
        *QUICK,
    )
    assert done.returncode == 0, done.stderr
    *others, last = done.stderr.splitlines()
    assert f"Target local ({socket.gethostname()}): set with --on." in others
    run = the_run(tmp_path)
    assert last == f"Run: {run.path}"
    table = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert table[0].split(" | ")[0] == "| Message Size"
    assert [line.split("|")[1].strip() for line in table[2:4]] == ["64 B", "1500 B"]
    assert [execution.id for execution in run.executions] == [
        "000-shm-r1",
        "001-tcp-r1",
        "002-tcp-r2",
        "003-shm-r2",
    ]
    for execution in run.executions:
        (log,) = execution.logs
        assert (log.outcome, log.reason) == (Outcome.OK, None)
        assert log.facts["transport"] == execution.configuration
        assert log.facts["complete"] == "yes"
        assert [point.size for point in log.points] == [64, 64, 1500, 1500]
        assert {point.labels["side"] for point in log.points} == {"server", "client"}
    assert len(rows(tmp_path)) == 16
    assert nothing_left(tmp_path)
    shown = fabbench(tmp_path, "show", "last")
    assert {"002-tcp-r2: ok (2 sizes)", table[2], "### Nodes"} <= {*shown.stdout.splitlines()}
    listed = json.loads(fabbench(tmp_path, "runs", "--format", "json").stdout)
    assert [(each["id"], each["outcomes"]) for each in listed["runs"]] == [(run.id, {"ok": 4})]


@pytest.mark.slow
def test_both_ends_of_a_range_are_measured(tmp_path: Path) -> None:
    done = pingpong(tmp_path, "--fabric", "tcp", "-b", "64K", "-e", "256K", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "2 of 2 sizes, ok" in done.stderr
    (log,) = the_run(tmp_path).logs("tcp")
    assert {point.size for point in log.points} == {64 << 10, 256 << 10}


@pytest.mark.slow
def test_one_configuration_gates_and_json(tmp_path: Path) -> None:
    arguments = ("--fabric", "shm", "--size", "64", *QUICK, "--format", "json")
    done = pingpong(tmp_path, *arguments, "--gate", "latency@64<=1ns", "--gate", "latency@64<=10s")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert [column["label"] for column in document["columns"]] == ["shm"]
    assert done.stderr.count("Gate failed: latency@64<=1ns") == 1
    assert "Gate passed: latency@64<=10s" in done.stderr
    before = document["columns"][0]["source"]
    again = pingpong(tmp_path, *arguments, "--gate", "latency:900000%", "--baseline", "last")
    assert again.returncode == 0, again.stderr
    labels = [column["label"] for column in json.loads(again.stdout)["columns"]]
    assert labels == ["shm", f"shm ({before})"]
    good = json.loads(again.stdout)["columns"][0]["source"]
    third = pingpong(tmp_path, *arguments, "--gate", "latency:900000%", "--baseline", "last-good")
    assert third.returncode == 0, third.stderr
    assert json.loads(third.stdout)["columns"][1]["source"] == good


def test_another_domain_than_asked_for_is_off_fabric(tmp_path: Path) -> None:
    # libfabric's tcp provider takes another interface where there is none of the name, without a
    # word.
    done = pingpong(tmp_path, "--no-efa", "--device", "no-such-interface", "--size", "64", *QUICK)
    assert done.returncode == 4, done.stderr
    (log,) = the_run(tmp_path).logs("tcp")
    assert log.outcome is Outcome.OFF_FABRIC
    assert "off-fabric" in done.stdout


# ---------------------------------------------------------------- refusing


def slow(*values: object) -> ParameterSet:
    return pytest.param(*values, marks=pytest.mark.slow)


def refused(store: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return fabbench(store, "run", "pingpong", "--on", "local", *arguments)


def test_without_the_program(tmp_path: Path) -> None:
    done = fabbench(tmp_path, "run", "nccl", "--on", "local", "--gpus", "2", "--fabric", "p2p")
    assert done.returncode == 3
    assert "all_reduce_perf not found" in done.stderr
    assert "nccl-tests" in done.stderr


@pytest.mark.parametrize(("store", "status"), [slow("file/store", 3), ("file", 2)])
def test_a_store_that_cannot_be_written(tmp_path: Path, store: str, status: int) -> None:
    """What is a file already is a wrong word of the command line."""
    (tmp_path / "file").write_text("no directory")
    done = refused(tmp_path / store, "--fabric", "shm", "--size", "64", *QUICK)
    assert done.returncode == status
    assert "file" in done.stderr
    assert "Traceback" not in done.stderr


# ---------------------------------------------------------------- ends of all kinds


@pytest.mark.parametrize("number", [signal.SIGINT, *map(slow, (signal.SIGTERM, signal.SIGHUP))])
def test_interrupted(tmp_path: Path, number: int) -> None:
    with start(tmp_path, [*LONG, "--fabric", "shm"]) as run:
        client(run, tmp_path, 64 << 20)
        run.send_signal(number)
        out, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert nothing_left(tmp_path)
    assert "Interrupted" in err
    assert "Traceback" not in err
    stored = the_run(tmp_path)
    (log,) = stored.logs("tcp")
    assert log.outcome is Outcome.TRUNCATED
    assert "truncated" in out
    assert [point.size for point in log.points] == [64, 64]
    assert [execution.finished for execution in stored.executions[:2]] == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "limits", "outcome", "reason"),
    [
        (signal.SIGKILL, (), Outcome.FAILED, ""),
        (signal.SIGSTOP, ("--timeout", "8"), Outcome.TIMEOUT, "Step 64 MB was aborted after 8 s"),
    ],
)
def test_a_peer_that_dies_or_hangs(
    sent: signal.Signals, limits: tuple[str, ...], outcome: Outcome, reason: str, tmp_path: Path
) -> None:
    with start(tmp_path, [*LONG, *limits]) as run:
        os.kill(client(run, tmp_path, 64 << 20), sent)
        out, err = run.communicate(timeout=60)
    assert (run.returncode, nothing_left(tmp_path)) == (4, True), err
    (log,) = the_run(tmp_path).logs("tcp")
    assert (log.outcome, (log.reason or "").startswith(reason), str(outcome) in out) == (
        outcome,
        True,
        True,
    )
    assert [point.size for point in log.points] == [64, 64]


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path) -> None:
    # Files may have 30 KB: the log of the first size fits, that of the second does not.
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    arguments = ["--fabric", "tcp", "--size", "64", "--size", "128", "--size", "256", *QUICK]
    with start(tmp_path, arguments, before=limit) as run:
        out, err = run.communicate(timeout=60)
    assert run.returncode == 3, err
    assert nothing_left(tmp_path)
    assert "output.log cannot be written: File too large." in err
    assert "Traceback" not in err
    assert "truncated" in out
    (log,) = the_run(tmp_path).logs("tcp")
    assert log.outcome is Outcome.TRUNCATED
    assert len(log.points) >= 2
    assert len(log.points) == len(rows(tmp_path))


# ---------------------------------------------------------------- killed at any moment

PROGRAM = ROOT / "tests/support/printed_run.py"


@pytest.mark.slow
def test_killed_at_twenty_random_moments(tmp_path: Path) -> None:
    """Five runs at a time.

    Every row that was on the screen is read again, and no program is left.
    """
    chance = random.Random(20)
    stores = [tmp_path / str(number) for number in range(20)]
    moments = [(chance.randrange(24), chance.uniform(0, 0.2)) for _ in stores]
    with ThreadPoolExecutor(5) as threads:
        screens = list(threads.map(killed, stores, moments))
    assert all(nothing_left(store) for store in stores)
    assert sum(
        check_what_is_left(store, screen) for store, screen in zip(stores, screens, strict=True)
    )


def killed(store: Path, moment: tuple[int, float]) -> list[str]:
    """Kill a run so many seconds after so many of its 24 rows; return those that it had shown."""
    rows_before, seconds = moment
    argv = [sys.executable, "-P", str(PROGRAM), str(store)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment(store)) as run:
        assert run.stdout
        screen = list(islice(run.stdout, rows_before))
        time.sleep(seconds)
        run.kill()
        return [line.rstrip("\n") for line in (*screen, *run.stdout)]


def check_what_is_left(store: Path, screen: list[str]) -> int:
    """Read a killed run again; gives the number of its executions that were not finished."""
    found = list(runs(store))
    if not found:
        assert not screen
        return 0
    executions = the_run(store).executions
    read = [
        shown(execution.id, point)
        for execution in executions
        for log in execution.logs
        for point in log.points
    ]
    # A row may be in the log that the screen had no time to show.
    assert read[: len(screen)] == screen
    assert len(read) == len(rows(store))
    stopped = [execution for execution in executions if execution.begun and not execution.finished]
    for execution in stopped:
        assert [log.outcome for log in execution.logs] == [Outcome.TRUNCATED]
        assert "fabbench was stopped" in (execution.logs[0].reason or "")
    return len(stopped)


def test_a_terminal_sees_a_table(tmp_path: Path) -> None:
    """And what to do next: of a gate that failed, also why."""
    pid, terminal = pty.fork()
    if pid == 0:
        gate = ("--gate", "latency<=1ns")
        arguments = (
            "--no-color",
            "run",
            "pingpong",
            "--on",
            "local",
            "--fabric",
            "shm",
            "--size",
            "64",
            *QUICK,
            *gate,
        )
        os.execve(sys.executable, argv(*arguments), {**environment(tmp_path), "TERM": "xterm"})
    shown = b""
    with contextlib.suppress(OSError):  # Linux's way to say that the terminal was closed
        while chunk := os.read(terminal, 1 << 16):
            shown += chunk
    os.close(terminal)
    text = shown.decode()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1, text
    for words in ("explain", "report", "compare last", "rerun"):
        assert f"fabbench {words}" in text
    assert "[1/1] shm, repeat 1" in text
    assert re.search(r"\n64 B +\d+\.\d\d", text.replace("\r", ""))
    assert not re.search(r"\x1b\[[\d;]*3[0-7]m", text)
