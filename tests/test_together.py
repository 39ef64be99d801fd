"""Pairs that run at the same time: real fi_pingpong programs of this machine, and the log they leave."""

import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest

from fabbench.benchmarks.pingpong.steps import PingpongWork
from fabbench.drive import drive
from fabbench.errors import RequestError
from fabbench.launchers.local import LocalSession
from fabbench.machines import Host, Inventory
from fabbench.markers import Marker, read_marker
from fabbench.model import Command, Ending, Log, Outcome, Shape, Step, Trial
from fabbench.parse import Session, logs
from fabbench.plan import Request, plan
from fabbench.process import Process
from local_runs import eventually

pytestmark = pytest.mark.local

HERE = Host(name="here", providers={"tcp": frozenset({"msg"}), "shm": frozenset({"rdm"})})
SIZES = (64, 1500, 4096, 65536)


def trial_of(*sizes: int, fabric: str = "tcp", iterations: int = 200, timeout_s: float = 60) -> Trial:
    """A trial whose sizes are measured all at the same time."""
    work = PingpongWork(sizes=sizes, iterations=iterations, timeout_s=timeout_s)
    request = Request(benchmark="pingpong", target="local", fabrics=(fabric,))
    (trial,) = plan(request, Inventory(target="local", hosts=(HERE,)), work).trials
    return replace(trial, together=True)


def with_command(step: Step, role: str, *argv: str) -> Step:
    """The step with another program on one side."""
    commands = tuple(
        replace(command, argv=argv) if command.role == role else command for command in step.commands
    )
    return replace(step, commands=commands)


class Recording(LocalSession):
    """A session that remembers what it started, and how many ran at most."""

    pids: list[int]
    sessions = 0

    def __enter__(self) -> Self:
        Recording.pids, Recording.sessions = [], Recording.sessions + 1
        super().__enter__()
        return self

    def exec(self, command: Command) -> Process:
        process = super().exec(command)
        Recording.pids.append(process.pid)
        return process


def run(trial: Trial) -> tuple[list[str], Ending]:
    lines: list[str] = []
    Recording.sessions = 0
    driven = drive(lambda step: Recording(step, HERE), trial)
    while True:
        try:
            lines.append(next(driven))
        except StopIteration as end:
            assert nothing_runs()
            return lines, end.value


def nothing_runs() -> bool:
    return eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in Recording.pids), 10)


def judged(trial: Trial, lines: list[str], ending: Ending) -> Log:
    session = Session("x", proof=trial.proof)
    (log,) = logs([*session.feed_lines(lines), *session.close(ending)])
    return log


def steps_of(lines: list[str]) -> Iterator[Marker]:
    return (marker for line in lines if (marker := read_marker(line)) is not None)


@pytest.mark.parametrize("fabric", ["tcp", "shm"])
def test_all_at_once_one_after_another_in_the_log(fabric: str) -> None:
    trial = trial_of(*SIZES, fabric=fabric)
    lines, ending = run(trial)
    assert ending == Ending(status=0, planned_sizes=SIZES)
    assert Recording.sessions == 1
    assert len(Recording.pids) == 2 * len(SIZES)
    told = [(marker.kind, marker.step, marker.status) for marker in steps_of(lines)]
    begun_and_ended = [[("begin", step.id, None), ("end", step.id, 0)] for step in trial.steps]
    assert told == [entry for pair in begun_and_ended for entry in pair]
    log = judged(trial, lines, ending)
    assert (log.outcome, log.reason) == (Outcome.OK, None)
    assert [point.size for point in log.points] == [size for size in SIZES for _ in range(2)]


def test_they_really_run_at_the_same_time() -> None:
    """Every client waits for a file that the last one writes: one after another they would wait for ever."""
    trial = trial_of(64, 128)
    gate = "test -e {folder}/gate || { until test -e {folder}/gate; do sleep 0.02; done; }; exec "
    client = " ".join(trial.steps[0].commands[1].argv)
    first = with_command(trial.steps[0], "client", "sh", "-c", gate + client)
    opener = "touch {folder}/gate; exec " + " ".join(trial.steps[1].commands[1].argv)
    second = with_command(trial.steps[1], "client", "sh", "-c", opener)
    trial = replace(trial, steps=(first, second))
    lines, ending = run(trial)
    assert ending.status == 0
    assert judged(trial, lines, ending).outcome is Outcome.OK


def test_one_that_fails_ends_all() -> None:
    trial = trial_of(64, 1 << 26, 4096, iterations=100_000)
    steps = list(trial.steps)
    steps[0] = replace(trial_of(64, iterations=10).steps[0], id=steps[0].id)
    steps[2] = with_command(steps[2], "client", "sh", "-c", "sleep 1; echo no such thing; exit 7")
    trial = replace(trial, steps=tuple(steps))
    lines, ending = run(trial)
    assert ending.status == 7
    assert not ending.timed_out
    statuses = [marker.status for marker in steps_of(lines) if marker.kind == "end"]
    assert statuses == [0, None, 7]
    assert "[fabbench:client] no such thing" in lines
    log = judged(trial, lines, ending)
    assert log.outcome is Outcome.FAILED
    assert {point.size for point in log.points} == {64}


def test_a_server_that_fails_before_it_listens_ends_all() -> None:
    trial = trial_of(64, 128)
    broken = with_command(trial.steps[1], "server", "sh", "-c", "echo broken; exit 3")
    trial = replace(trial, steps=(trial.steps[0], broken))
    lines, ending = run(trial)
    assert ending.status == 3
    assert [marker.status for marker in steps_of(lines) if marker.kind == "end"] == [None, 3]
    assert "[fabbench:server] broken" in lines


def test_one_that_hangs_is_ended_at_the_deadline() -> None:
    trial = trial_of(64, 128, timeout_s=3)
    stuck = with_command(trial.steps[1], "client", "sleep", "60")
    trial = replace(trial, steps=(trial.steps[0], stuck))
    lines, ending = run(trial)
    assert ending.status is None
    assert ending.timed_out.startswith("Step 128 B was ended after 3 s: server and client: ")
    assert [marker.status for marker in steps_of(lines) if marker.kind == "end"] == [0, None]
    assert judged(trial, lines, ending).outcome is Outcome.TIMEOUT


def test_the_first_lines_come_before_the_others_have_ended() -> None:
    trial = trial_of(64, 1 << 26, iterations=100_000)
    first = replace(trial_of(64, iterations=10).steps[0], id=trial.steps[0].id)
    trial = replace(trial, steps=(first, trial.steps[1]))
    driven = drive(lambda step: Recording(step, HERE), trial)
    for line in driven:
        if line.startswith(f"#@fabbench begin {trial.steps[1].id}"):
            break
    assert any(Path(f"/proc/{pid}").exists() for pid in Recording.pids)
    driven.close()
    assert nothing_runs()


def test_killed_side() -> None:
    trial = trial_of(64, 1 << 26, iterations=100_000)
    first = replace(trial_of(64, iterations=10).steps[0], id=trial.steps[0].id)
    trial = replace(trial, steps=(first, trial.steps[1]))
    lines: list[str] = []
    driven = drive(lambda step: Recording(step, HERE), trial)
    while True:
        try:
            lines.append(next(driven))
        except StopIteration as end:
            ending: Ending = end.value
            break
        if lines[-1].startswith(f"#@fabbench begin {trial.steps[1].id}"):
            os.kill(Recording.pids[3], signal.SIGKILL)
    assert ending.status
    assert [marker.status for marker in steps_of(lines) if marker.kind == "end"] == [0, ending.status]
    assert nothing_runs()


class SamePort(Recording):
    """A kernel that offers one port again and again, and at first one that is taken."""

    offers: list[int]

    def free_port(self, host: int) -> int:
        return SamePort.offers.pop(0) if SamePort.offers else super().free_port(host)


def test_each_gets_a_port_of_its_own_and_a_taken_one_is_replaced() -> None:
    trial = trial_of(64, 128)
    with socket.create_server(("", 0)) as holder, socket.socket() as other:
        other.bind(("", 0))
        free = other.getsockname()[1]
        other.close()
        SamePort.offers = [free, free, holder.getsockname()[1]]
        Recording.sessions = 0
        lines = list(drive(lambda step: SamePort(step, HERE), trial))
    assert Recording.sessions == 2
    assert len(list(steps_of(lines))) == 4
    assert judged(trial, lines, Ending(status=0, planned_sizes=(64, 128))).outcome is Outcome.OK


def test_ranks_do_not_run_together() -> None:
    trial = trial_of(64, 128)
    ranks = tuple(replace(step, shape=Shape.MPI) for step in trial.steps)
    with pytest.raises(RequestError, match="mpi cannot be run here at the same time"):
        list(drive(lambda step: Recording(step, HERE), replace(trial, steps=ranks)))
