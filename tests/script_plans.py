"""Plans for scripts, and what comes of them on the hosts of a lab."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fabbench.benchmarks.nccl_steps import NcclWork
from fabbench.benchmarks.pingpong.steps import PingpongWork
from fabbench.counters.around import Around
from fabbench.counters.printed import Printed
from fabbench.hosts.mpi import Mpi, MpiKind
from fabbench.machines import Host, Inventory
from fabbench.markers import read_marker
from fabbench.model import Arm, Command, Log, Plan, Proof, Shape, Step, Trial
from fabbench.plan import Request, plan
from fabbench.script import Way, script
from fabbench.script.way import NAMED_HOSTS
from fabbench.sizes import Sweep
from fabbench.split import read
from lab import HOME, Lab
from lab_hosts import STANDIN

if TYPE_CHECKING:
    from subprocess import CompletedProcess

PROGRAMS = {"all_reduce_perf": str(STANDIN / "all_reduce_perf")}
WAY = Way(hosts=NAMED_HOSTS, programs=PROGRAMS)


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


def nccl(*fabrics: str, repeats: int = 2, env: Mapping[str, str] | None = None, **work: float) -> Plan:
    request = Request(benchmark="nccl", target="lab", fabrics=fabrics, repeats=repeats, env=env or {})
    return plan(request, inventory(), NcclWork(sweep=Sweep(last=1024), **work))  # type: ignore[arg-type]


def pingpong(*fabrics: str, repeats: int = 2) -> Plan:
    request = Request(benchmark="pingpong", target="lab", fabrics=fabrics, repeats=repeats)
    return plan(request, inventory(), PingpongWork(sizes=(64, 1024), iterations=100))


def of_steps(*steps: Step, hosts: int = 2, together: bool = False) -> Plan:
    """A plan of one trial."""
    arm = Arm(label="tcp", fabric="tcp")
    proof = Proof(fabric="tcp")
    trial = Trial(
        id="000-tcp-r1", arm=arm, repeat=1, steps=steps, proof=proof, planned_sizes=(), together=together
    )
    return Plan(benchmark="pingpong", target="lab", arms=(arm,), trials=(trial,), hosts=hosts)


def pair(server: tuple[str, ...], client: tuple[str, ...], name: str = "a", timeout_s: float = 20) -> Step:
    commands = (Command(argv=server, role="server"), Command(argv=client, role="client", host=1))
    return Step(id=f"000-tcp-r1/{name}", label=name, shape=Shape.PAIR, commands=commands, timeout_s=timeout_s)


def put(site: Lab, of: Plan, way: Way = WAY) -> list[str]:
    """Bring a script to the first host; gives the words that run it there."""
    site[0].path(HOME / "script").write_text(script(of, way))
    return ["bash", str(HOME / "script"), *(host.name for host in site.hosts[: of.hosts])]


def run(site: Lab, of: Plan, way: Way = WAY, **env: str) -> "CompletedProcess[str]":
    return site[0].sh(put(site, of, way), check=False, timeout=120, **env)


def judged(done: "CompletedProcess[str]", of: Plan) -> dict[str, Log]:
    """Trial → its one log."""
    found = {}
    for trial, logs in read(done.stdout.splitlines(), of, "script"):
        (found[trial.id],) = logs
    return found


def printed(text: str, trial: str = "000-tcp-r1") -> Around:
    """What a script printed of the NICs around a trial."""
    read = Printed(trial)
    for marker in map(read_marker, text.splitlines()):
        if marker is not None and (marker.kind, marker.trial) == ("nics", trial):
            read.take(marker)
    assert read.around is not None, text
    return read.around
