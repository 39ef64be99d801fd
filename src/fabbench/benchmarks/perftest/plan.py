"""How perftest is started: a pair of processes per device and size, rail by rail or all at once."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from fabbench.benchmarks.pairs import PORT, SERVER, PairWork, Side
from fabbench.benchmarks.standard import MEMORY, devices, extra, sizes, timeout, words_of
from fabbench.model.compat import override
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.fabrics import INTRA_HOST, Rail, paired_devices
from fabbench.model.hosts import Host, Needs
from fabbench.model.log import Facts, MutableFacts
from fabbench.model.options import Choice, Flag, Whole, option
from fabbench.model.plan import Command
from fabbench.model.values import frozen

TESTS = ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_read_lat", "ib_send_lat")
"""The programs, the default first."""
INSTALL = (
    "sudo apt-get install perftest (Debian, Ubuntu); for EFA, and for GPU memory, build "
    "https://github.com/linux-rdma/perftest with efadv or CUDA, and pass its directory with "
    "--bin-dir"
)
LINKS: Mapping[str, str] = {
    "efa": "SRD",
    "ib": "RC",
    "roce": "RC",
}  # fabric → connection type (``-c``)
TOGETHER_S = 10  # seconds that rails measure concurrently: programs do not start at the same moment

# -F: measure even if the CPU frequency varies. Tests of latency refuse -q.
_WORDS = (
    "{test} -c {link} -d {device} -i {ib_port} [gid? -x {gid}] -F -p {port} [has_qps? -q {qps}] "
    "[all_sizes? -a] [size? -s {size}] [iterations? -n {iterations}] [seconds? -D {seconds}] "
    "[bidirectional? -b] [gpu? --use_cuda={gpu}] [dmabuf? --use_cuda_dmabuf]"
)
_ALL_SIZES = tuple(1 << power for power in range(1, 24))  # of -a: powers of two up to 8 MiB
_WITHOUT_RDMA = frozenset({*INTRA_HOST, "tcp", "ofi-tcp"})
_EFA_GID = 0  # the only GID of an EFA device, by which packets are addressed


@frozen
class PerftestWork(PairWork):
    """One test over the devices of a fabric."""

    test: str = option(Choice(TESTS), "The program to run.", "--program", default=TESTS[0])
    sizes: tuple[int, ...] = sizes(
        "Measure this size (1024-based: 64, 4K). Default: 64K for bandwidth, 2 for latency."
    )
    all_sizes: bool = option(Flag(), "Measure 2 B to 8 MiB instead.", "-a", "--all-sizes")
    devices: tuple[str, ...] = devices(
        "Use only this NIC, such as mlx5_0. Default: all of the fabric."
    )
    together: bool = option(Flag(), "Run all NICs concurrently.")
    iterations: int | None = option(Whole(5, 10**9), "Messages. Default: perftest's own number.")
    duration_s: int | None = option(
        Whole(1, 86_400, "SECONDS"),
        f"Run for SECONDS instead of --iterations. Default: {TOGETHER_S} with --together.",
        "--duration",
    )
    bidirectional: bool = option(Flag(), "Measure both directions at once; bandwidth is their sum.")
    qps: int = option(Whole(1, 16_384), "Queue pairs per device.", default="1")
    ib_port: int = option(Whole(1, 255), "Port of each device.", default="1")
    gid_index: int | None = option(
        Whole(0, 65_535), "GID index on every device. Default: on RoCE, that of RoCE v2 is found."
    )
    memory: str = option(
        MEMORY, "Buffer location; cuda: GPUDirect RDMA, one GPU per NIC.", default="host"
    )
    dmabuf: bool = option(Flag(), "Register GPU memory as dma-buf.")
    timeout_s: float = timeout(
        "120", "Abort a device that takes longer; all of them with --together."
    )
    extra: tuple[str, ...] = extra()

    def __post_init__(self) -> None:
        several = self.all_sizes or len(self.sizes) > 1
        both_ways = self.test.endswith("_lat")  # its messages go to the server and back
        for refused, why, hint in (
            (
                self.all_sizes and self.sizes,
                "perftest takes no size with all sizes (-a).",
                "Leave one out.",
            ),
            (
                self.all_sizes and self.duration_s,
                "perftest takes no duration with all sizes (-a).",
                "Use --size.",
            ),
            (
                self.iterations and self.duration_s,
                "Iterations and a duration exclude each other.",
                "Leave one out.",
            ),
            (
                self.bidirectional and both_ways,
                f"{self.test} always measures both directions.",
                "Leave it out.",
            ),
            (
                self.together and several,
                "--together: devices stay in step at one size only.",
                "Specify one --size.",
            ),
            (self.qps > 1 and both_ways, f"{self.test} has one queue pair.", "Leave --qps out."),
            (
                self.dmabuf and self.memory != "cuda",
                "dma-buf is for GPU memory only.",
                "Add --memory cuda.",
            ),
        ):
            if refused:
                raise RequestError(why, hint=hint)

    @property
    def needs(self) -> Needs:
        """The program."""
        folders = {self.test: "/opt/perftest/bin"}
        return Needs(
            programs=(self.test,),
            install=INSTALL,
            folders=folders,
            devices=self.devices,
            host_memory=self.memory == "host",
        )

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Return the sizes, which are the same on any hosts."""
        del hosts
        if self.all_sizes:
            return _ALL_SIZES
        usual = 65536 if self.test.endswith("_bw") else 2  # perftest's own
        return self.sizes or (usual,)

    @property
    @override
    def step_sizes(self) -> Sequence[int | None]:
        return (None,) if self.all_sizes else self.planned_sizes(hosts=())

    def why_unsupported(self, fabric: str, host: Host) -> str:
        """Return why `fabric` cannot be measured on `host`; empty: it can.

        Raise RequestError for a fabric without RDMA devices, or MachineError if the host has none
        either.
        """
        if fabric in _WITHOUT_RDMA:
            raise _without_rdma(host)
        if fabric not in LINKS:
            known = ", ".join(LINKS)
            return f"perftest measures {known}."
        linked = host.linked(fabric)
        if not linked and not self.devices:
            return f"it has no {fabric} device."
        # Where none can be listed, as in some containers, perftest itself reports whether there are
        # any.
        missing = [name for name in self.devices if host.devices and name not in linked]
        if missing:
            names = " and ".join(missing)
            others = ", ".join(linked) or "none of it"
            return f"it has no {names} of {fabric}, but {others}."
        measured = self.devices or linked
        without_gid = [name for name in measured if self._gid(fabric, name, host) is None]
        if fabric == "roce" and without_gid:
            names = " and ".join(without_gid)
            return f"{names}: no RoCE v2 GID was found there; pass another with --gid-index."
        return self.why_no_memory(host)

    @override
    def rails(self, fabric: str, hosts: Sequence[Host]) -> Sequence[Rail]:
        # The server is the first host, the client the last; each of their NICs has a partner.
        first = hosts[0]
        last = hosts[-1]
        servers = self.devices or first.linked(fabric)
        clients = self.devices or last.linked(fabric)
        return paired_devices(servers, clients, (first.name, last.name))

    @override
    def facts(self, fabric: str, rail: Rail, size: int | None) -> Facts:
        # What the begin marker of a step states; `size` None: all sizes in one run.
        del fabric
        facts: MutableFacts = {"benchmark": "perftest", "test": self.test}
        facts["device"] = rail.client
        if rail.server != rail.client:
            facts["server_device"] = rail.server
        if size is not None:
            facts["size"] = size
        if self.together:
            facts["together"] = "yes"
        return facts

    def _gid(self, fabric: str, device: str, host: Host) -> int | None:
        """Return the index of the GID of a device; None: perftest chooses, or none was found."""
        if self.gid_index is not None:
            return self.gid_index
        gids = {"efa": _EFA_GID, "roce": host.gids.get(device)}
        return gids.get(fabric)

    @override
    def command(self, fabric: str, side: Side, size: int | None) -> Command:
        # `size` None: all sizes in one run (-a). Only the client has an operand: the server.
        values = {
            **asdict(self),
            "link": LINKS[fabric],
            "device": side.device,
            "gid": self._gid(fabric, side.device, side.host),
            "port": PORT,
            "has_qps": self.qps > 1,
            "size": size,
            "seconds": self._seconds(),
            "gpu": side.gpu,
        }
        server = (SERVER,) if side.role == "client" else ()
        argv = (*words_of(_WORDS, values), *self.extra, *server)
        return Command(argv=argv, role=side.role, host=side.at)

    def _seconds(self) -> int | None:
        """Return how long to measure; None: a number of messages, as given or perftest's own.

        Together, devices run for a time: as many messages would end at different moments.
        """
        if self.together and not self.iterations:
            return self.duration_s or TOGETHER_S
        return self.duration_s


def _without_rdma(host: Host) -> RequestError | MachineError:
    """Return the error of a fabric without RDMA devices: which ones a host has instead."""
    named: list[str] = []
    for link in LINKS:
        names = ", ".join(host.linked(link))
        if names:
            named.append(f"{link}: {names}")
    devices = "; ".join(named)
    notes = "" if devices else " ".join(("", *host.search_notes))
    shown = devices or "none"
    why = f"perftest measures RDMA devices only. {host.name} has {shown}.{notes}"
    # Where the host has devices, another fabric can be requested.
    kind = RequestError if devices else MachineError
    return kind(why, hint="run pingpong measures tcp and shm.")
