"""How nixlbench is started: one pair of processes, which measures all sizes.

The server is the initiator, which prints the table: it listens on all of its addresses, so that the
client alone has to know one. Neither needs etcd (`--runtime_type=ASIO`).
"""

from collections.abc import Sequence
from dataclasses import asdict

from fabbench.benchmarks.pairs import ADDRESS, PORT, PairWork, Side
from fabbench.benchmarks.standard import (
    MEMORY,
    extra,
    iterations,
    max_bytes,
    min_bytes,
    read_variables,
    timeout,
    variables_of,
)
from fabbench.model.compat import override
from fabbench.model.fabrics import INTRA_HOST, RDMA, Rail
from fabbench.model.hosts import Host, Needs
from fabbench.model.log import Facts
from fabbench.model.options import Choice, Flag, Whole, option
from fabbench.model.plan import Command
from fabbench.model.units import Sweep
from fabbench.model.values import frozen

PROGRAM = "nixlbench"
INSTALL = (
    "build benchmark/nixlbench of https://github.com/ai-dynamo/nixl, which no package has, and pass"
    " its directory with --bin-dir"
)
_NETWORKS = variables_of("nixl")
"""Back end and fabric → variables."""
_CHOSEN = ("UCX_TLS", "UCX_NET_DEVICES", "FI_PROVIDER")
"""Variables that choose a network: what an image sets must not."""
_WORDS = (
    "--runtime_type=ASIO --asio_address={address} --asio_port={port} --backend={library} "
    "--op_type={way} --initiator_seg_type={kind} --target_seg_type={kind} "
    "--start_block_size={min_bytes} --max_block_size={max_bytes} "
    "--start_batch_size={batch} --max_batch_size={batch} --num_threads={threads} "
    "--enable_pt={progress_thread} --check_consistency "
    "--num_iter={iterations} --total_buffer_size={buffer}"
)
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - the interface that clients reach may not be known
_MEMORY = {"host": "DRAM", "cuda": "VRAM"}


@frozen
class NixlWork(PairWork):
    """Blocks of a range of sizes."""

    backend: str = option(
        Choice(("ucx", "libfabric")),
        "What NIXL moves data with. Default: libfabric on efa, ofi-tcp and cxi, else ucx.",
        unset="",
    )
    operation: str = option(
        Choice(("write", "read")), "Which way the first node moves blocks.", default="write"
    )
    min_bytes: int = min_bytes("64K")
    max_bytes: int = max_bytes("64M", "The sizes double from the smallest to it.")
    batch: int = option(Whole(1, 65_536), "Blocks per request.", default="1")
    threads: int = option(Whole(1, 1024), "Threads that post requests.", default="1")
    progress_thread: bool = option(Flag(), "Let NIXL's own thread make progress.")
    memory: str = option(MEMORY, "Buffer location on both nodes.", default="host")
    iterations: int = iterations("1000")
    timeout_s: float = timeout("600", "Abort a run that takes longer.")
    extra: tuple[str, ...] = extra()

    @property
    def needs(self) -> Needs:
        """The program."""
        folders = {PROGRAM: "/usr/local/nixlbench/bin"}
        on_host = self.memory == "host"
        return Needs(programs=(PROGRAM,), install=INSTALL, folders=folders, host_memory=on_host)

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Return the sizes, which are the same on any hosts."""
        del hosts
        sweep = Sweep(first=self.min_bytes, last=self.max_bytes, program=PROGRAM)
        return tuple(sweep.sizes())

    @property
    @override
    def step_sizes(self) -> Sequence[int | None]:
        return (None,)

    def _network(self, fabric: str) -> str:
        """Return the key of `_NETWORKS`; empty: there is none. No back end: the first that fits."""
        backend = self.backend.upper()
        ending = f"{backend} {fabric}"
        return next((name for name in _NETWORKS if name.endswith(ending)), "")

    def why_unsupported(self, fabric: str, host: Host) -> str:
        """Return why `fabric` cannot be measured on `host`; empty: it can."""
        if not self._network(fabric):
            return "NIXL has " + ", ".join(_NETWORKS) + "."
        if fabric in RDMA and not host.linked(fabric) and fabric not in host.providers:
            return f"it has no {fabric} device."
        if fabric in INTRA_HOST and (fabric == "p2p") != (self.memory == "cuda"):
            return "p2p takes --memory cuda, and shm --memory host."
        return self.why_no_memory(host)

    @override
    def rails(self, fabric: str, hosts: Sequence[Host]) -> Sequence[Rail]:
        """Return one rail: NIXL itself spreads blocks over the NICs."""
        del fabric
        return (Rail(hosts[0].interface, hosts[-1].interface),)

    @override
    def facts(self, fabric: str, rail: Rail, size: int | None) -> Facts:
        del fabric, rail, size
        return {"benchmark": "nixl"}

    @override
    def command(self, fabric: str, side: Side, size: int | None) -> Command:
        del size
        words = _WORDS.format(
            **asdict(self),
            address=_ANY_ADDRESS if side.role == "server" else ADDRESS,
            port=PORT,
            library=self._network(fabric).partition(" ")[0],  # the back end: UCX of `UCX tcp`
            way=self.operation.upper(),
            kind=_MEMORY[self.memory],
            buffer=self.max_bytes * self.batch * self.threads,  # all of it is registered
        )
        env = self._env(fabric, side)
        return Command(
            argv=(PROGRAM, *words.split(), *self.extra),
            role=side.role,
            host=side.at,
            env=env,
            # An image may choose another network with these.
            unset=tuple(name for name in _CHOSEN if name not in env),
        )

    def _env(self, fabric: str, side: Side) -> dict[str, str]:
        """Return the variables of a side, without those whose value is not known (an interface)."""
        text = _NETWORKS[self._network(fabric)].format(
            cuda=",cuda_copy" if self.memory == "cuda" else "",
            interface=side.device,
            ports=",".join(f"{name}:1" for name in side.host.linked(fabric)),
            gpu=int(side.role == "client"),  # p2p: the server sees GPU 0 alone, the client GPU 1
        )
        return read_variables(text)
