"""How perftest is started: a pair of processes per device and size, rail by rail or all at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fabbench.benchmarks.shared_options import devices, extra, sizes, timeout
from fabbench.model.errors import FabbenchError, MachineError, RequestError
from fabbench.model.fabrics import INTRA_HOST, Rail, paired_devices
from fabbench.model.hosts import Host, Needs
from fabbench.model.option_types import Choice, Flag, Whole
from fabbench.model.options import option
from fabbench.model.plan import Command, Proof, Shape, Step
from fabbench.model.units import format_size

TESTS = ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_read_lat", "ib_send_lat")
"""The programs, the default first."""
INSTALL = (
    "sudo apt-get install perftest (Debian, Ubuntu); for EFA, and for GPU memory, build "
    "https://github.com/linux-rdma/perftest with efadv or CUDA, and pass its directory with --bin-dir"
)
LINKS: Mapping[str, str] = {"efa": "SRD", "ib": "RC", "roce": "RC"}  # fabric → connection type (``-c``)
TOGETHER_S = 10  # seconds that rails measure concurrently: programs do not start at the same moment

_ALL_SIZES = tuple(1 << power for power in range(1, 24))  # of -a: powers of two up to 8 MiB
_EFA_GID = 0  # the only GID of an EFA device, by which packets are addressed


@dataclass(frozen=True, slots=True, kw_only=True)
class PerftestWork:
    """One test over the devices of a fabric. See `fabbench.plan.request.Work`."""

    test: str = option(Choice(TESTS), "The program to run.", default=TESTS[0])
    sizes: tuple[int, ...] = sizes("Measure this size (1024-based: 64, 4K). Default: 64K for bandwidth, 2 for latency.")
    all_sizes: bool = option(Flag(), "Measure 2 B to 8 MiB instead.", "-a", "--all-sizes")
    devices: tuple[str, ...] = devices("Measure this device, such as mlx5_0. Default: all of the fabric.")
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
    gpu_memory: bool = option(Flag(), "Use GPU buffers (GPUDirect RDMA), one GPU per NIC.")
    dmabuf: bool = option(Flag(), "Register GPU memory as dma-buf.")
    timeout_s: float = timeout("120", "Abort a device that takes longer; all of them with --together.")
    extra: tuple[str, ...] = extra()

    def __post_init__(self) -> None:
        """Raise RequestError for requests that perftest cannot run, or that make no sense."""
        if self.test not in TESTS:
            raise RequestError(f"Unknown test {self.test}.", hint=f"One of {', '.join(TESTS)}.")
        if self.all_sizes and (self.sizes or self.duration_s):
            raise RequestError(
                "All sizes (-a) cannot be combined with a size or a duration: perftest rejects that.",
                hint="Specify sizes with --size; each of them can take a duration.",
            )
        if self.iterations and self.duration_s:
            raise RequestError("Iterations and a duration are mutually exclusive.", hint="Leave one out.")
        if self.bidirectional and self.test.endswith("_lat"):
            raise RequestError(f"{self.test} has no -b: latency covers both directions.", hint="Leave it out.")
        if self.together and (self.all_sizes or len(self.sizes) > 1):
            raise RequestError(
                "With --together, devices are measured at one size: their programs would not stay in step.",
                hint="Specify one --size, or leave --together out.",
            )
        if self.dmabuf and not self.gpu_memory:
            raise RequestError("dma-buf is for GPU memory only.", hint="Add --gpu-memory.")

    @property
    def needs(self) -> Needs:
        """The program."""
        folders = {self.test: "/opt/perftest/bin"}
        return Needs(programs=(self.test,), install=INSTALL, folders=folders, devices=self.devices)

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Return the sizes, which are the same on any hosts."""
        del hosts
        return _ALL_SIZES if self.all_sizes else self._sizes()

    def why_unsupported(self, fabric: str, host: Host) -> str:
        """Return why `fabric` cannot be measured on `host`: it has no such device, or no address for one.

        Raise RequestError for a fabric without RDMA devices, or MachineError if the host has none either.
        """
        if fabric in {*INTRA_HOST, "tcp", "ofi-tcp"}:
            raise _no_devices(host)
        if fabric not in LINKS:
            return f"perftest measures {', '.join(LINKS)}."
        linked = host.linked(fabric)
        if not linked and not self.devices:
            return f"it has no {fabric} device."
        # Where none can be listed, as in some containers, perftest itself reports whether there are any.
        missing = [name for name in self.devices if host.devices and name not in linked]
        if missing:
            return f"it has no {' and '.join(missing)} of {fabric}, but {', '.join(linked) or 'none of it'}."
        without_gid = [name for name in self.devices or linked if self._gid(fabric, name, host) is None]
        if fabric == "roce" and without_gid:
            lack = f"{' and '.join(without_gid)} {'have' if without_gid[1:] else 'has'}"
            return f"{lack} no RoCE v2 GID there; pass another with --gid-index."
        if self.gpu_memory and not host.gpus:
            return "it has no GPU, but GPU memory was requested."
        return ""

    def steps(self, execution: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Return one step per rail and size: the server on the first host, the client on the last."""
        first, last = hosts[0], hosts[-1]
        names = [self.devices or host.linked(fabric) for host in (first, last)]
        sizes = (None,) if self.all_sizes else self._sizes()
        return tuple(
            self._step(execution, fabric, hosts, rail, size)
            for rail in paired_devices(names[0], names[1], (first.name, last.name))
            for size in sizes
        )

    def proof(self, fabric: str, hosts: Sequence[Host]) -> Proof:
        """Return what the log must show: the connection type. Its markers name the device of each step."""
        del hosts
        return Proof(fabric=fabric)

    def _sizes(self) -> tuple[int, ...]:
        return self.sizes or (65536 if self.test.endswith("_bw") else 2,)

    def _gid(self, fabric: str, device: str, host: Host) -> int | None:
        if self.gid_index is not None:
            return self.gid_index
        return _EFA_GID if fabric == "efa" else host.gids.get(device) if fabric == "roce" else None

    def _step(self, execution: str, fabric: str, hosts: Sequence[Host], rail: Rail, size: int | None) -> Step:
        facts: dict[str, str | int] = {"benchmark": "perftest", "test": self.test, "device": rail.client}
        if rail.server != rail.client:
            facts["server_device"] = rail.server
        if size is not None:
            facts["size"] = size
        if self.together:
            facts["together"] = "yes"
        last = len(hosts) - 1
        server = self._words(fabric, hosts[0], rail.server, rail, size)
        client = self._words(fabric, hosts[last], rail.client, rail, size)
        name = "all" if size is None else str(size)
        return Step(
            id=f"{execution}/{rail.client}-{name}",
            label=f"{rail.client} {'all sizes' if size is None else format_size(size)}",
            shape=Shape.PAIR,
            commands=(
                Command(argv=server, role="server", host=0),
                Command(argv=(*client, "{server}"), role="client", host=last),
            ),
            timeout_s=self.timeout_s,
            facts=facts,
        )

    def _words(self, fabric: str, host: Host, device: str, rail: Rail, size: int | None) -> tuple[str, ...]:
        """Return the words of one side. `-F`: measure even if the CPU frequency varies."""
        gid = self._gid(fabric, device, host)
        if fabric == "roce" and gid is None:
            raise MachineError(f"{device} on {host.name} has no RoCE v2 GID.")
        length: tuple[str, ...] = ("-n", str(self.iterations)) if self.iterations else ()
        if not length and (self.duration_s or self.together):
            length = ("-D", str(self.duration_s or TOGETHER_S))
        return (
            *(self.test, "-c", LINKS[fabric], "-d", device, "-i", str(self.ib_port)),
            *(("-x", str(gid)) if gid is not None else ()),
            *("-F", "-p", "{port}", "-q", str(self.qps)),
            *(("-a",) if size is None else ("-s", str(size))),
            *length,
            *(("-b",) if self.bidirectional else ()),
            *((f"--use_cuda={rail.nearest_gpu(host.gpus)}",) if self.gpu_memory else ()),
            *(("--use_cuda_dmabuf",) if self.dmabuf else ()),
            *self.extra,
        )


def _no_devices(host: Host) -> FabbenchError:
    known = {link: host.linked(link) for link in LINKS if host.linked(link)}
    scope = "perftest measures RDMA devices only."
    if not known:
        return MachineError(
            f"{scope} {host.name} has none that can be used. {' '.join(host.search_notes)}".strip(),
            hint="Nothing was started. run pingpong measures tcp and shm.",
        )
    listed = "; ".join(f"{link}: {', '.join(names)}" for link, names in known.items())
    return RequestError(f"{scope} {host.name} has {listed}.", hint=f"Specify --fabric {' or '.join(known)}.")
