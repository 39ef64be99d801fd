"""`fabbench run pingpong` with real programs: what it measures, what it refuses, and every way to end it."""

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
from pathlib import Path

import pytest

from fabbench.benchmarks.pingpong.steps import PingpongWork
from fabbench.drive import drive
from fabbench.launchers.local import LocalSession
from fabbench.machines import Host, Inventory
from fabbench.model import Ending, Outcome
from fabbench.parse import Session, logs
from fabbench.plan import Request, plan
from fabbench.store import runs
from local_runs import (
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

pytestmark = pytest.mark.local

LONG = ("--fabric", "tcp", "--size", "64", "--size", "64M", "--iterations", "2000")
"""One size that is done at once, and one that takes long enough for anything to happen to it."""


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    """Remove the shared memory of programs that died with a fabbench that was killed: nobody else can."""
    folder = Path("/dev/shm")
    before = set(folder.iterdir())
    yield
    for path in set(folder.iterdir()) - before:
        owner = re.fullmatch(r"(\d+):\d+:\d+", path.name)
        if owner and not alive(int(owner[1])):
            path.unlink(missing_ok=True)


# ---------------------------------------------------------------- measuring


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
    first, *_, last = done.stderr.splitlines()
    assert first == f"Target local ({socket.gethostname()}): --on says so."
    run = the_run(tmp_path)
    assert last == f"Run: {run.path}"
    table = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert table[0].split(" | ")[0] == "| Message Size"
    assert [line.split("|")[1].strip() for line in table[2:4]] == ["64 B", "1500 B"]
    assert [trial.id for trial in run.trials] == ["000-shm-r1", "001-tcp-r1", "002-tcp-r2", "003-shm-r2"]
    for trial in run.trials:
        (log,) = trial.logs
        assert (log.outcome, log.reason) == (Outcome.OK, None)
        assert log.facts["transport"] == trial.arm
        assert log.facts["complete"] == "yes"
        assert [point.size for point in log.points] == [64, 64, 1500, 1500]
        assert {point.labels["side"] for point in log.points} == {"server", "client"}
    assert len(rows(tmp_path)) == 16
    assert nothing_left(tmp_path)
    shown = fabbench(tmp_path, "show", "last")
    assert "002-tcp-r2: ok (2 sizes)" in shown.stdout.splitlines()
    assert table[2] in shown.stdout
    listed = json.loads(fabbench(tmp_path, "runs", "--format", "json").stdout)
    assert [(each["id"], each["outcomes"]) for each in listed["runs"]] == [(run.id, {"ok": 4})]


def test_one_arm_gates_and_json(tmp_path: Path) -> None:
    arguments = ("--fabric", "shm", "--size", "64", *QUICK, "--format", "json")
    done = pingpong(tmp_path, *arguments, "--gate", "latency@64<=1ns", "--gate", "latency@64<=10s")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert [column["label"] for column in document["columns"]] == ["shm"]
    assert done.stderr.count("Gate breached: latency@64<=1ns") == 1
    assert "10s" not in done.stderr
    again = pingpong(tmp_path, *arguments, "--gate", "latency:900000%", "--baseline", "last")
    assert again.returncode == 0, again.stderr


def test_another_domain_than_asked_for_is_off_fabric(tmp_path: Path) -> None:
    # libfabric's tcp provider takes another interface where there is none of the name, without a word.
    done = pingpong(tmp_path, "--no-efa", "--domain", "no-such-interface", "--size", "64", *QUICK)
    assert done.returncode == 4, done.stderr
    (log,) = the_run(tmp_path).logs("tcp")
    assert log.outcome is Outcome.OFF_FABRIC
    assert "off-fabric" in done.stdout


def test_the_domain_that_was_asked_for(tmp_path: Path) -> None:
    done = pingpong(tmp_path, "--fabric", "tcp", "--domain", "lo", "--size", "64", *QUICK)
    assert done.returncode == 0, done.stderr
    (log,) = the_run(tmp_path).logs("tcp")
    assert (log.facts["domain"], log.facts["dest_address"]) == ("lo", "127.0.0.1")


# ---------------------------------------------------------------- refusing


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("--efa", "--no-efa"), 3, "libfabric has no provider efa there."),
        (("--fabric", "warp"), 3, "libfabric has no provider warp there."),
        (("--ab",), 3, "--ab compares an RDMA fabric with tcp"),
        (("--fabric", "shm", "--endpoint", "msg"), 3, "its provider shm has no endpoint of type msg"),
        (("--fabric", "p2p"), 2, "pingpong has no fabric p2p"),
        (("--fabric", "tcp", "--gate", "latency:5%"), 2, "there is nothing to compare with"),
        (("--fabric", "tcp", "--gate", "speed:5%"), 2, "a metric is expected"),
        (("--fabric", "tcp", "--metric", "speed"), 2, "There is no metric speed."),
        (("--fabric", "tcp", "--baseline", "nonesuch"), 2, "no run nonesuch"),
        (("--fabric", "tcp", "-b", "4K", "-e", "64"), 2, "no range of sizes"),
        (("--fabric", "tcp", "--size", "lots"), 2, "not a size"),
    ],
)
def test_refused_before_anything_starts(
    tmp_path: Path, arguments: tuple[str, ...], status: int, told: str
) -> None:
    done = pingpong(tmp_path, *arguments)
    assert done.returncode == status
    assert told in done.stderr
    assert list(runs(tmp_path)) == []
    assert done.stdout == ""


def test_a_fabric_that_is_not_there_says_what_is(tmp_path: Path) -> None:
    told = pingpong(tmp_path, "--fabric", "efa").stderr
    assert "Looked for libfabric providers on" in told
    assert "shm" in told
    assert "/sys/class/infiniband" in told


def test_where_to_run(tmp_path: Path) -> None:
    nowhere = fabbench(tmp_path, "run", "pingpong", "--fabric", "shm")
    assert nowhere.returncode == 2
    assert "FABBENCH_TARGET" in nowhere.stderr
    unknown = fabbench(tmp_path, "run", "pingpong", "--on", "moon", "--fabric", "shm")
    assert unknown.returncode == 2
    assert "Known to --on: kubernetes, local, " in unknown.stderr
    told = fabbench(tmp_path, "run", "pingpong", "--fabric", "efa", FABBENCH_TARGET="local").stderr
    assert told.splitlines()[0].endswith("FABBENCH_TARGET says so.")


def test_without_the_program(tmp_path: Path) -> None:
    done = fabbench(tmp_path, "run", "nccl", "--on", "local", "--gpus", "2", "--fabric", "p2p")
    assert done.returncode == 3
    assert "all_reduce_perf cannot be found" in done.stderr
    assert "nccl-tests" in done.stderr


@pytest.mark.parametrize("store", ["file/store", "file"])
def test_a_store_that_cannot_be_written(tmp_path: Path, store: str) -> None:
    (tmp_path / "file").write_text("no directory")
    done = pingpong(tmp_path / store, "--fabric", "shm", "--size", "64", *QUICK)
    assert done.returncode in {2, 3}  # 2: click itself sees that it is a file
    assert "file" in done.stderr
    assert "Traceback" not in done.stderr


# ---------------------------------------------------------------- ends of all kinds


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
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
    assert [trial.finished for trial in stored.trials[:2]] == [True, False]


def test_killed_peer(tmp_path: Path) -> None:
    with start(tmp_path, LONG) as run:
        pid = client(run, tmp_path, 64 << 20)
        os.kill(pid, signal.SIGKILL)
        out, err = run.communicate(timeout=60)
    assert run.returncode == 4, err
    assert nothing_left(tmp_path)
    (log,) = the_run(tmp_path).logs("tcp")
    assert log.outcome is Outcome.FAILED
    assert [point.size for point in log.points] == [64, 64]
    assert "failed" in out


def test_hung_peer(tmp_path: Path) -> None:
    with start(tmp_path, [*LONG, "--timeout", "8"]) as run:
        pid = client(run, tmp_path, 64 << 20)
        os.kill(pid, signal.SIGSTOP)
        out, err = run.communicate(timeout=60)
    assert run.returncode == 4, err
    assert nothing_left(tmp_path)
    (log,) = the_run(tmp_path).logs("tcp")
    assert log.outcome is Outcome.TIMEOUT
    assert log.reason is not None
    assert log.reason.startswith("Step 64 MB was ended after 8 s")
    assert [point.size for point in log.points] == [64, 64]
    assert "timeout" in out


def test_a_full_disk(tmp_path: Path) -> None:
    # Files may have 30 KB: the log of the first size fits, that of the second does not.
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    arguments = ["--fabric", "tcp", "--size", "64", "--size", "128", "--size", "256", *QUICK]
    with start(tmp_path, arguments, before=limit) as run:
        out, err = run.communicate(timeout=60)
    assert run.returncode == 4, err
    assert nothing_left(tmp_path)
    assert "output.log cannot be written: File too large." in err
    assert "Traceback" not in err
    assert "truncated" in out
    (log,) = the_run(tmp_path).logs("tcp")
    assert log.outcome is Outcome.TRUNCATED
    assert len(log.points) >= 2
    assert len(log.points) == len(rows(tmp_path))


class TakenPort(LocalSession):
    """A session to which the kernel offers a port that somebody takes in the same moment."""

    taken = 0
    offers = 0

    def free_port(self, host: int) -> int:
        TakenPort.offers += 1
        return TakenPort.taken if TakenPort.offers == 1 else super().free_port(host)


def test_a_port_in_use_is_replaced() -> None:
    work = PingpongWork(sizes=(64,), iterations=100)
    host = Host(name="here", providers={"tcp": frozenset({"msg"})})
    request = Request(benchmark="pingpong", target="local", fabrics=("tcp",))
    (trial,) = plan(request, Inventory(target="local", hosts=(host,)), work).trials
    session = Session("x", proof=trial.proof)
    with socket.create_server(("", 0)) as holder:
        TakenPort.taken, TakenPort.offers = holder.getsockname()[1], 0
        lines = list(drive(lambda step: TakenPort(step, host), trial))
    assert TakenPort.offers == 2
    ending = Ending(status=0, planned_sizes=(64,))
    (log,) = logs([*session.feed_lines(lines), *session.close(ending)])
    assert (log.outcome, log.reason) == (Outcome.OK, None)


# ---------------------------------------------------------------- killed at any moment

SCREEN = """
import sys
from pathlib import Path
from fabbench.benchmarks.pingpong.steps import PingpongWork
from fabbench.launchers import launcher_named
from fabbench.machines import Where
from fabbench.plan import Request, plan
from fabbench.run import carry_out
from fabbench.store import RunWriter

class Screen:
    nics = None
    def begin(self, trial, number): pass
    def end(self, trial, logs): pass
    def point(self, trial, point):
        print(trial.id, point.size, sorted(point.labels.items()), point.values, flush=True)

request = Request(benchmark="pingpong", target="local", fabrics=("shm", "tcp"), repeats=2)
work = PingpongWork(sizes=(64, 1500, 4096), iterations=200)
with launcher_named("local").open(Where(target="local", launcher="local"), work.needs) as place:
    planned = plan(request, place.inventory, work)
    writer = RunWriter(Path(sys.argv[1]), request, place.inventory, planned)
    carry_out(planned, place, writer, Screen())
"""


@pytest.mark.slow
def test_killed_at_twenty_random_moments(tmp_path: Path) -> None:
    """Five runs at a time: every row that was on the screen is read again, and no program is left."""
    chance = random.Random(20)
    unfinished = 0
    for batch in range(4):
        stores = [tmp_path / f"{batch}{number}" for number in range(5)]
        runs_now = [
            subprocess.Popen(
                [sys.executable, "-c", SCREEN, str(store)],
                stdout=subprocess.PIPE,
                text=True,
                env=environment(store),
            )
            for store in stores
        ]
        moments = sorted((chance.uniform(0, 5), number) for number in range(5))
        begun = time.monotonic()
        for moment, number in moments:
            time.sleep(max(0.0, begun + moment - time.monotonic()))
            runs_now[number].kill()
        for run, store in zip(runs_now, stores, strict=True):
            screen = run.communicate(timeout=60)[0].splitlines()
            assert nothing_left(store)
            unfinished += check_what_is_left(store, screen)
    assert unfinished


def check_what_is_left(store: Path, screen: list[str]) -> int:
    """Read a killed run again; gives the number of its executions that were not finished."""
    found = list(runs(store))
    if not found:
        assert not screen
        return 0
    trials = the_run(store).trials
    read = [
        f"{trial.id} {point.size} {sorted(point.labels.items())} {point.values}"
        for trial in trials
        for log in trial.logs
        for point in log.points
    ]
    # A row may be in the log that the screen had no time to show.
    assert read[: len(screen)] == screen
    assert len(read) == len(rows(store))
    stopped = [trial for trial in trials if trial.begun and not trial.finished]
    for trial in stopped:
        assert [log.outcome for log in trial.logs] == [Outcome.TRUNCATED]
        assert trial.logs[0].reason == "fabbench was stopped before this execution ended."
    return len(stopped)


def test_a_terminal_sees_a_table(tmp_path: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        arguments = ("run", "pingpong", "--on", "local", "--fabric", "shm", "--size", "64", *QUICK)
        os.execve(
            sys.executable, argv(*arguments), {**environment(tmp_path), "TERM": "xterm", "NO_COLOR": "1"}
        )
    shown = b""
    with contextlib.suppress(OSError):  # Linux's way to say that the terminal was closed
        while chunk := os.read(terminal, 1 << 16):
            shown += chunk
    os.close(terminal)
    text = shown.decode()
    assert os.waitpid(pid, 0)[1] == 0, text
    assert "1 of 1: shm, repeat 1" in text
    assert "│ 64 B │" in text
    assert not re.search(r"\x1b\[[\d;]*3[0-7]m", text)  # NO_COLOR
