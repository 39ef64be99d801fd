"""Hosts for tests whose programs print a recorded log, with counters in directories."""

import gzip
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fabbench.counters import execution_counters
from fabbench.model.hosts import Inventory
from fabbench.model.log import Ending
from fabbench.model.plan import Execution
from fabbench.testing import Replay, two_hosts
from tests.support.counter_trees import Tree
from tests.support.nvshmem_text import alltoall

GB = 10**9
_RANKS = [
    f"[1,{pe}]<stdout>:mype: {pe} mype_node: {pe // 4} device name: H200 bus id: {pe} "
    for pe in range(8)
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
class ReplayHosts:
    """Two hosts with four EFA devices each; see `fabbench.launchers.Allocation`."""

    folder: Path
    lines: Sequence[str] = ()
    moves: Sequence[tuple[int, int]] = ()
    """What each NIC sends and receives in each execution."""
    silent: frozenset[str] = frozenset()
    """Hosts that do not answer for their counters any more, once an execution has begun."""
    meanwhile: Callable[[], object] = time.monotonic
    """Is called in the middle of the log."""
    executed: int = 0
    trees: dict[str, Tree] = field(default_factory=dict)
    changing: threading.Lock = field(default_factory=threading.Lock)
    """Held while the trees change: a thread may read them."""
    inventory: Inventory = field(default_factory=two_hosts)

    def __post_init__(self) -> None:
        self.trees = {host.name: Tree(self.folder / host.name) for host in self.inventory.hosts}
        self._count()

    @property
    def documents(self) -> Mapping[str, str]:
        return {}

    def execute(self, execution: Execution) -> Generator[str, None, Ending]:
        return Replay(log=self._log).execute(execution)

    def counters(self) -> Mapping[str, Sequence[str]]:
        left = self.silent if self.executed else frozenset()
        with self.changing:
            return {
                name: tree.text().splitlines()
                for name, tree in self.trees.items()
                if name not in left
            }

    def nics(self, execution: Execution, when: str) -> list[str]:
        """Return the lines that a script prints of the counters."""
        packed = {host: packed_text(tree.text()) for host, tree in self.trees.items()}
        for host in self.silent if self.executed else ():
            packed[host] = ""
        expected = execution_counters.expected_facts(execution, self.inventory.hosts)
        return [
            (
                f"#@fabbench nics {execution.id} when={when} number={number} host={host} "
                f"{expected} "
                f"packed={text}"
            )
            for number, (host, text) in enumerate(packed.items())
        ]

    def _log(self, execution: Execution) -> Iterator[str]:
        del execution
        yield from self.lines
        with self.changing:
            self.executed += 1
            self._count()
        self.meanwhile()

    def _count(self) -> None:
        for tree in self.trees.values():
            tree.at(100.0 + 10 * self.executed)
            for number, (tx, rx) in enumerate(self.moves or [(0, 0)] * 4):
                tree.efa(f"rdmap{number}s1", 7 + tx * self.executed, 7 + rx * self.executed)


class PrintingHosts(ReplayHosts):
    """Such hosts in a job, whose script prints the counters with its lines."""

    def execute(self, execution: Execution) -> Generator[str, None, Ending]:
        yield from self.nics(execution, "before")
        ending = yield from super().execute(execution)
        yield from self.nics(execution, "after")
        return ending

    def counters(self) -> Mapping[str, Sequence[str]]:
        return {}


def packed_text(text: str) -> str:
    return b64encode(gzip.compress(text.encode())).decode()
