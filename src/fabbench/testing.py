"""For tests of your own benchmarks and launchers: machines that replay recorded logs, and runs.

No process is started and no machine is contacted. Everything else is done as by `fabbench parse`
and `fabbench run`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from fabbench.hosts.check import HostRelations, Progress
from fabbench.launchers import Allocation, Examined, Launcher
from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.logs.parser import LogParser, logs
from fabbench.model.hosts import Host, Inventory, Mpi, MpiKind, Needs, Target
from fabbench.model.log import Ending, ExecutionLines, Log, begin_marker, end_marker
from fabbench.model.mappings import HostLines
from fabbench.model.patterns import with_usual_numbers
from fabbench.model.plan import Execution, Proof
from fabbench.plan.build import plan
from fabbench.plan.request import RunRequest
from fabbench.runs.execute import PlanResult, Watcher, carry_out
from fabbench.runs.store import RunWriter, StoredRun


def read(text: str, proof: Proof | None = None) -> list[Log]:
    """Parse text as `fabbench parse` parses a file; judge it by the `proof` that it must show."""
    lines = with_usual_numbers(text).split("\n")
    # "x" stands for a file's name; not `live`: whole logs come at their ends, and no single points
    parser = LogParser("x", proof=proof, prefixes=Prefixes(lines), live=False)
    read_logs = logs([*parser.feed_lines(lines), *parser.close()])
    return list(read_logs)


def two_hosts() -> Inventory:
    """Return two fully equipped hosts: four GPUs and four EFA devices each, and Open MPI 4."""
    devices = {f"rdmap{number}s1": "efa" for number in range(4)}
    endpoints = frozenset({"msg", "rdm"})
    hosts = (
        Host(
            name=name,
            gpus=4,
            devices=devices,
            providers=dict.fromkeys(("efa", "tcp", "shm"), endpoints),
            mpi=Mpi(program="mpirun", kind=MpiKind.OPEN_MPI_4, version="4.1.7"),
        )
        for name in ("a", "b")
    )
    return Inventory(target="replay", hosts=tuple(hosts))


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Machines whose programs print what was recorded; see `fabbench.launchers.Allocation`."""

    log: Callable[[Execution], Iterable[str]]
    """What the programs of an execution print, without fabbench's markers."""
    inventory: Inventory = field(default_factory=two_hosts)
    status: int = 0
    """The exit status of every step."""

    @property
    def documents(self) -> Mapping[str, str]:
        """Return an empty mapping: nothing is submitted."""
        return {}

    def execute(self, execution: Execution) -> ExecutionLines:
        """Yield the lines, as output of the execution's first step."""
        step = execution.steps[0]
        yield begin_marker(step.id, step.facts)
        yield from self.log(execution)
        yield end_marker(step.id, self.status)
        return Ending(status=self.status, planned_sizes=execution.planned_sizes)

    def counters(self) -> HostLines:
        """Return an empty mapping: there are no NICs."""
        return {}


@dataclass(frozen=True)
class ReplayLauncher(Launcher):
    """A launcher that provides a replaying allocation."""

    allocation: Allocation
    name: str = "replay"

    @contextmanager
    def open(self, target: Target, needs: Needs) -> Iterator[Allocation]:
        """Yield the allocation, whatever is requested."""
        del target, needs
        yield self.allocation

    def examine(self, target: Target, needs: Needs, *, deep: bool, progress: Progress) -> Examined:
        """Return empty results: there is nothing to examine."""
        del target, needs, deep, progress
        return Examined(probes={}, relations=HostRelations())


def sample_run(
    request: RunRequest, allocation: Allocation, *, watcher: Watcher | None = None
) -> tuple[StoredRun, PlanResult]:
    """Run a plan on machines that replay logs, and store it as `fabbench run` does.

    Raises whatever `fabbench.plan.build.plan` raises if the request cannot be measured.
    """
    planned = plan(request, allocation.inventory)
    writer = RunWriter(request, allocation.inventory, planned)
    results = carry_out(planned, allocation, writer, watcher or Watcher())
    return StoredRun(writer.path), results
