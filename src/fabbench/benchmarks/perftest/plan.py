"""How perftest is started: a pair of processes per device and size, rail by rail or all at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fabbench.benchmarks.pairs import PORT, SERVER, pair_step
from fabbench.benchmarks.standard import MEMORY, Work, devices, extra, sizes, timeout
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.fabrics import INTRA_HOST, Rail, paired_devices
from fabbench.model.hosts import Host, Needs
from fabbench.model.options import Choice, Flag, Whole, option
from fabbench.model.plan import Command, Step

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

_ALL_SIZES = tuple(1 << power for power in range(1, 24))  # of -a: powers of two up to 8 MiB
_EFA_GID = 0  # the only GID of an EFA device, by which packets are addressed


@dataclass(frozen=True, slots=True, kw_only=True)
class PerftestWork(Work):
    """One test over the devices of a fabric."""

    test: str = option(Choice(TESTS), "The program to run.", default=TESTS[0])
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
        several, both_ways = self.all_sizes or len(self.sizes) > 1, self.test.endswith("_lat")
        for refused, why, hint in (
            (self.test not in TESTS, f"Unknown test {self.test}.", f"One of {', '.join(TESTS)}."),
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
        return Needs(programs=(self.test,), install=INSTALL, folders=folders, devices=self.devices)

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Return the sizes, which are the same on any hosts."""
        del hosts
        return (
            _ALL_SIZES
            if self.all_sizes
            else self.sizes or (65536 if self.test.endswith("_bw") else 2,)
        )

    def why_unsupported(self, fabric: str, host: Host) -> str:
        """Return why `fabric` cannot be measured on `host`.

        Raise RequestError for a fabric without RDMA devices, or MachineError if the host has none
        either.
        """
        if fabric in {*INTRA_HOST, "tcp", "ofi-tcp"}:
            found = "; ".join(
                f"{link}: {', '.join(names)}" for link in LINKS if (names := host.linked(link))
            )
            notes = "" if found else " ".join(("", *host.search_notes))
            why = f"perftest measures RDMA devices only. {host.name} has {found or 'none'}.{notes}"
            raise (RequestError if found else MachineError)(
                why, hint="run pingpong measures tcp and shm."
            )
        if fabric not in LINKS:
            return f"perftest measures {', '.join(LINKS)}."
        linked = host.linked(fabric)
        if not linked and not self.devices:
            return f"it has no {fabric} device."
        # Where none can be listed, as in some containers, perftest itself reports whether there are
        # any.
        missing = [name for name in self.devices if host.devices and name not in linked]
        if missing:
            return (
                f"it has no {' and '.join(missing)} of {fabric}, but "
                f"{', '.join(linked) or 'none of it'}."
            )
        without_gid = [
            name for name in self.devices or linked if self._gid(fabric, name, host) is None
        ]
        if fabric == "roce" and without_gid:
            return (
                f"{' and '.join(without_gid)}: no RoCE v2 GID was found there; pass another "
                "with --gid-index."
            )
        return (
            "it has no GPU, but GPU memory was requested."
            if self.memory == "cuda" and not host.gpus
            else ""
        )

    def steps(self, execution: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Return one step per rail and size.

        The server on the first host, the client on the last.
        """
        first, last = hosts[0], hosts[-1]
        names = [self.devices or host.linked(fabric) for host in (first, last)]
        sizes = (None,) if self.all_sizes else self.planned_sizes(hosts)
        return tuple(
            self._step(execution, fabric, hosts, rail, size)
            for rail in paired_devices(names[0], names[1], (first.name, last.name))
            for size in sizes
        )

    def _gid(self, fabric: str, device: str, host: Host) -> int | None:
        found = _EFA_GID if fabric == "efa" else host.gids.get(device) if fabric == "roce" else None
        return found if self.gid_index is None else self.gid_index

    def _step(
        self, execution: str, fabric: str, hosts: Sequence[Host], rail: Rail, size: int | None
    ) -> Step:
        facts: dict[str, str | int] = {
            "benchmark": "perftest",
            "test": self.test,
            "device": rail.client,
        }
        facts |= {} if rail.server == rail.client else {"server_device": rail.server}
        facts |= {} if size is None else {"size": size}
        facts |= {"together": "yes"} if self.together else {}
        last = len(hosts) - 1
        server = Command(argv=self._words(fabric, hosts[0], rail.server, rail, size), role="server")
        client = (*self._words(fabric, hosts[last], rail.client, rail, size), SERVER)
        sides = server, Command(argv=client, role="client", host=last)
        return pair_step(execution, sides, facts, timeout_s=self.timeout_s)

    def _words(
        self, fabric: str, host: Host, device: str, rail: Rail, size: int | None
    ) -> tuple[str, ...]:
        """Return the words of one side. `-F`: measure even if the CPU frequency varies."""
        gid = self._gid(fabric, device, host)
        duration = self.duration_s or (TOGETHER_S if self.together and not self.iterations else 0)
        return (
            *(self.test, "-c", LINKS[fabric], "-d", device, "-i", str(self.ib_port)),
            *(("-x", str(gid)) if gid is not None else ()),
            *(
                "-F",
                "-p",
                PORT,
                *(("-q", str(self.qps)) if self.qps > 1 else ()),
            ),  # tests of latency refuse -q
            *(("-a",) if size is None else ("-s", str(size))),
            *(("-n", str(self.iterations)) if self.iterations else ()),
            *(("-D", str(duration)) if duration else ()),
            *(("-b",) if self.bidirectional else ()),
            *((f"--use_cuda={rail.nearest_gpu(host.gpus)}",) if self.memory == "cuda" else ()),
            *(("--use_cuda_dmabuf",) if self.dmabuf else ()),
            *self.extra,
        )
