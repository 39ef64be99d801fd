"""Plans for scripts, and what comes of them on the hosts of a lab."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fabbench.benchmarks.ep.plan import EpWork
from fabbench.benchmarks.nccl.plan import NcclWork
from fabbench.benchmarks.nixl.plan import NixlWork
from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.counters.execution_counters import ExecutionCounters, PrintedCounters
from fabbench.execution.script import script
from fabbench.execution.script.target import READ_NAMED, ScriptTarget
from fabbench.model.hosts import Host, Inventory, Mpi, MpiKind
from fabbench.model.log import Log, read_marker
from fabbench.model.plan import Command, Configuration, Plan, Step
from fabbench.plan.build import plan
from tests.support.host_fixtures import STANDIN
from tests.support.hosts import HOME, Lab
from tests.support.paths import FAKE_PROGRAMS
from tests.support.read_logs import read_plan_output
from tests.support.requests import execution_by_hand, request

if TYPE_CHECKING:
    from subprocess import CompletedProcess

PROGRAMS = {
    "all_reduce_perf": str(STANDIN / "all_reduce_perf"),
    "nixlbench": str(FAKE_PROGRAMS / "nixl/nixlbench"),
}
WAY = ScriptTarget(hosts=READ_NAMED, programs=PROGRAMS)


def inventory(count: int = 2) -> Inventory:
    endpoints = frozenset({"msg", "rdm"})
    hosts = (
        Host(
            name=f"node{number}",
            address="{server}",
            interface="fab0",
            gpus=1,
            providers={"tcp": endpoints},
            programs=PROGRAMS,
            mpi=Mpi(program="mpirun", kind=MpiKind.OPEN_MPI_4, version=""),
        )
        for number in range(count)
    )
    return Inventory(target="lab", hosts=tuple(hosts))


def nccl(
    *fabrics: str, repeats: int = 2, env: Mapping[str, str] | None = None, **work: float
) -> Plan:
    measured = NcclWork(max_bytes=1024, **work)  # type: ignore[arg-type]
    return plan(
        request("nccl", measured, *fabrics, target="lab", repeats=repeats, env=env or {}),
        inventory(),
    )


def pingpong(*fabrics: str, repeats: int = 2, iterations: int = 10) -> Plan:
    work = PingpongWork(sizes=(64, 1024), iterations=iterations)
    return plan(request("pingpong", work, *fabrics, target="lab", repeats=repeats), inventory())


def nixl(fabric: str) -> Plan:
    work = NixlWork(min_bytes=16 << 10, max_bytes=64 << 10)
    return plan(request("nixl", work, fabric, target="lab", repeats=1), inventory())


def ep(fabric: str, program: str, tests: Path) -> Plan:
    """Two nodes of two GPUs each, with a device of InfiniBand."""
    mode = "low-latency" if program == "uccl-ep" else "high-throughput"
    work = EpWork(program=program, mode=mode, tests=str(tests), python=sys.executable)
    hosts = [replace(host, gpus=2, devices={"mlx5_0": "ib"}) for host in inventory().hosts]
    return plan(
        request("ep", work, fabric, target="lab", repeats=1),
        replace(inventory(), hosts=tuple(hosts)),
    )


def of_steps(*steps: Step, hosts: int = 2, together: bool = False) -> Plan:
    """A plan of one execution."""
    configuration = Configuration(label="tcp", fabric="tcp")
    executions = (execution_by_hand(configuration, steps=steps, together=together),)
    return Plan(
        benchmark="pingpong",
        target="lab",
        configurations=(configuration,),
        executions=executions,
        hosts=hosts,
    )


def pair(
    server: tuple[str, ...], client: tuple[str, ...], name: str = "a", timeout_s: float = 20
) -> Step:
    commands = (Command(argv=server, role="server"), Command(argv=client, role="client", host=1))
    return Step(id=f"000-tcp-r1/{name}", label=name, commands=commands, timeout_s=timeout_s)


def put(site: Lab, of: Plan, way: ScriptTarget = WAY) -> list[str]:
    """Bring a script to the first host; gives the words that run it there."""
    site[0].path(HOME / "script").write_text(script(of, way))
    return ["bash", str(HOME / "script"), *(host.name for host in site.hosts[: of.hosts])]


def run(site: Lab, of: Plan, way: ScriptTarget = WAY, **env: str) -> "CompletedProcess[str]":
    return site[0].sh(put(site, of, way), check=False, timeout=120, **env)


def judged(done: "CompletedProcess[str]", of: Plan) -> dict[str, Log]:
    """Trial → its one log."""
    found = {}
    for execution, logs in read_plan_output(done.stdout.splitlines(), of, "script"):
        (found[execution.id],) = logs
    return found


def printed(text: str, execution: str = "000-tcp-r1") -> ExecutionCounters:
    """What a script printed of the NICs around an execution."""
    counters = PrintedCounters(execution)
    for marker in map(read_marker, text.splitlines()):
        if marker is not None and (marker.kind, marker.execution) == ("nics", execution):
            counters.take(marker)
    assert counters.counters is not None, text
    return counters.counters
