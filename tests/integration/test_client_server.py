"""Pairs that run concurrently: real fi_pingpong programs of this machine, and the log they leave.

What holds for both executors is in test_conformance.py.
"""

import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Self

import pytest

from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.execution import runner
from fabbench.execution.runner import run_steps
from fabbench.logs.parser import LogParser, logs
from fabbench.model.hosts import Host, Inventory
from fabbench.model.log import Ending, Log, Marker, Outcome, read_marker
from fabbench.model.plan import Command, Execution
from fabbench.plan.build import plan
from fabbench.remote.session import RemoteProcess, RemoteSession
from tests.support.here import held, lines_of, running
from tests.support.local_runs import eventually
from tests.support.requests import request

pytestmark = pytest.mark.local

HERE = Host(name="here", providers={"tcp": frozenset({"msg"}), "shm": frozenset({"rdm"})})
SIZES = (64, 1500, 4096, 65536)


def execution_of(
    *sizes: int, fabric: str = "tcp", iterations: int = 10, timeout_s: float = 60
) -> Execution:
    """An execution whose sizes are measured all concurrently."""
    work = PingpongWork(sizes=sizes, iterations=iterations, timeout_s=timeout_s)
    wanted = request("pingpong", work, fabric)
    (execution,) = plan(wanted, Inventory(target="local", hosts=(HERE,))).executions
    return replace(execution, together=True)


class Recording(RemoteSession):
    """A session that counts what it started."""

    started = 0
    sessions = 0

    def __enter__(self) -> Self:
        Recording.started, Recording.sessions = 0, Recording.sessions + 1
        super().__enter__()
        return self

    def exec(self, command: Command) -> RemoteProcess:
        Recording.started += 1
        return super().exec(command)


def run(execution: Execution) -> tuple[list[str], Ending]:
    lines: list[str] = []
    Recording.sessions = 0
    with held(HERE) as machines:
        driven = run_steps(lambda step: Recording(machines, step), execution)
        while True:
            try:
                lines.append(next(driven))
            except StopIteration as end:
                assert eventually(lambda: not running(machines))
                return lines, end.value


def judged(execution: Execution, lines: list[str], ending: Ending) -> Log:
    session = LogParser("x", proof=execution.proof)
    (log,) = logs([*session.feed_lines(lines), *session.close(ending)])
    return log


def steps_of(lines: list[str]) -> Iterator[Marker]:
    return (marker for line in lines if (marker := read_marker(line)) is not None)


@pytest.mark.slow
@pytest.mark.parametrize("fabric", ["tcp", pytest.param("shm", marks=pytest.mark.slow)])
def test_all_at_once_one_after_another_in_the_log(fabric: str) -> None:
    execution = execution_of(*SIZES, fabric=fabric)
    lines, ending = run(execution)
    assert ending == Ending(status=0, planned_sizes=SIZES)
    assert Recording.sessions == 1
    assert Recording.started == 2 * len(SIZES)
    found = [(marker.kind, marker.step, marker.status) for marker in steps_of(lines)]
    begun_and_ended = [[("begin", step.id, None), ("end", step.id, 0)] for step in execution.steps]
    assert found == [entry for pair in begun_and_ended for entry in pair]
    log = judged(execution, lines, ending)
    assert (log.outcome, log.reason) == (Outcome.OK, None)
    assert [point.size for point in log.points] == [size for size in SIZES for _ in range(2)]


@pytest.mark.slow
def test_the_first_lines_come_before_the_others_have_ended() -> None:
    execution = execution_of(64, 1 << 26, iterations=100_000)
    first = replace(execution_of(64, iterations=10).steps[0], id=execution.steps[0].id)
    execution = replace(execution, steps=(first, execution.steps[1]))
    with held(HERE) as machines:
        driven = run_steps(lambda step: Recording(machines, step), execution)
        for line in driven:
            if line.startswith(f"#@fabbench begin {execution.steps[1].id}"):
                break
        assert running(machines)
        driven.close()
        assert eventually(lambda: not running(machines))


@pytest.mark.slow
def test_a_taken_port_is_replaced_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    execution = execution_of(64, 128)
    with socket.create_server(("", 0)) as holder:
        offers = [[*runner.random_ports(1), holder.getsockname()[1]], runner.random_ports(2)]
        monkeypatch.setattr(runner, "random_ports", lambda _: offers.pop(0))
        Recording.sessions = 0
        lines = lines_of(execution, HERE, Recording)
    assert Recording.sessions == 2
    assert len(list(steps_of(lines))) == 4
    assert judged(execution, lines, Ending(status=0, planned_sizes=(64, 128))).outcome is Outcome.OK
