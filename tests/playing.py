"""A launcher for tests that plays a recorded log, on hosts whose counters are folders like /sys."""

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from counter_trees import Tree
from fabbench import markers
from fabbench.hosts.mpi import Mpi, MpiKind
from fabbench.model import Ending, Trial
from fabbench.plan import Host, Inventory, Needs, Where
from fabbench.rendering import Job
from nvshmem_text import alltoall

GB = 10**9
_RANKS = [
    f"[1,{pe}]<stdout>:mype: {pe} mype_node: {pe // 4} device name: H200 bus id: {pe} " for pe in range(8)
]
NVSHMEM = [
    *_RANKS,
    "node0:11:12 [0] NVSHMEM INFO Successfully initialized the transport: libfabric",
    (
        "[1,0]<stderr>:/src/modules/transport/libfabric/libfabric.cpp 1524 Selected provider efa, "
        "fabric efa-direct, nic rdmap0s1-rdm, hmem yes"
    ),
    *(f"[1,0]<stdout>:{line}" for line in alltoall(8, (64,))),
]


@dataclass(kw_only=True)
class Playing:
    """Two hosts with four EFA devices each; see `fabbench.launchers.Place`."""

    folder: Path
    lines: Sequence[str] = ()
    moves: Sequence[tuple[int, int]] = ()
    """What each NIC sends and receives in each execution."""
    silent: frozenset[str] = frozenset()
    """Hosts that do not answer for their counters any more, once an execution has begun."""
    meanwhile: Callable[[], object] = time.monotonic
    """Is called in the middle of the log."""
    remote: bool = False
    executed: int = 0
    trees: dict[str, Tree] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.trees = {name: Tree(self.folder / name) for name in ("a", "b")}
        self._count()

    @property
    def inventory(self) -> Inventory:
        devices = {f"rdmap{number}s1": "efa" for number in range(4)}
        mpi = Mpi(program="mpirun", kind=MpiKind.OPEN_MPI_4, version="4.1.7")
        hosts = tuple(Host(name=name, gpus=4, mpi=mpi, devices=devices) for name in self.trees)
        return Inventory(target="playing", hosts=hosts)

    def begin(self, job: Job) -> Mapping[str, str]:
        del job
        return {}

    def execute(self, trial: Trial) -> Generator[str, None, Ending]:
        step = trial.steps[0]
        yield markers.begin(step.id, step.facts)
        yield from self.lines
        self.executed += 1
        self._count()
        self.meanwhile()
        yield markers.end(step.id, 0)
        return Ending(status=0, planned_sizes=trial.planned_sizes)

    def counters(self) -> Mapping[str, Sequence[str]]:
        left = self.silent if self.executed else frozenset()
        return {name: tree.text().splitlines() for name, tree in self.trees.items() if name not in left}

    def _count(self) -> None:
        for tree in self.trees.values():
            tree.at(100.0 + 10 * self.executed)
            for number, (tx, rx) in enumerate(self.moves or [(0, 0)] * 4):
                tree.efa(f"rdmap{number}s1", 7 + tx * self.executed, 7 + rx * self.executed)


@dataclass
class PlayingLauncher:
    """The launcher of one `Playing`."""

    place: Playing
    name: str = "playing"

    @contextlib.contextmanager
    def open(self, where: Where, needs: Needs) -> Iterator[Playing]:
        del where, needs
        yield self.place
