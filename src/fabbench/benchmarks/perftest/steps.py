"""How perftest is started: a pair of processes for each device and size, rail by rail or all at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fabbench import rails
from fabbench.errors import FabbenchError, MachineError, RequestError
from fabbench.fabrics import INTRA_HOST
from fabbench.machines import Host, Needs
from fabbench.model import Command, Proof, Shape, Step
from fabbench.units import format_size

TESTS = ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_read_lat", "ib_send_lat")
"""The programs, the default first."""
INSTALL = (
    "sudo apt-get install perftest (Debian, Ubuntu); for EFA, and for GPU memory, build "
    "https://github.com/linux-rdma/perftest with efadv or CUDA, and name its folder by --bin-dir"
)
LINKS: Mapping[str, str] = {"efa": "SRD", "ib": "RC", "roce": "RC"}
"""Fabric → type of connection (``-c``)."""
TIMEOUT_S = 120.0
TOGETHER_S = 10
"""Seconds that rails measure at the same time: programs do not begin in the same moment."""

_WITHOUT_DEVICES = frozenset({*INTRA_HOST, "tcp", "ofi-tcp"})
_PORT, _SERVER = "{port}", "{server}"
_USUAL_SIZE = {"bw": 65536, "lat": 2}
# What -a measures: powers of two up to 8 MiB.
_ALL_SIZES = tuple(1 << power for power in range(1, 24))
_EFA_GID = 0
"""An EFA device has one GID, and packets between two go by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerftestWork:
    """One test over the devices of a fabric. See `fabbench.plan.Work`."""

    test: str = TESTS[0]
    sizes: tuple[int, ...] = ()
    """Empty: perftest's own, 64 KiB for bandwidth and 2 B for latency."""
    all_sizes: bool = False
    """Measure 2 B to 8 MiB instead (``-a``)."""
    devices: tuple[str, ...] = ()
    """Empty: all of the fabric."""
    together: bool = False
    iterations: int | None = None
    duration_s: int | None = None
    """Measure for so long instead. None: as many iterations as perftest does, or `TOGETHER_S`."""
    bidirectional: bool = False
    qps: int = 1
    ib_port: int = 1
    gid_index: int | None = None
    """None: of RoCE the one that each host was found to have."""
    gpu_memory: bool = False
    dmabuf: bool = False
    """Whether GPU memory is registered as dma-buf."""
    extra: tuple[str, ...] = ()
    timeout_s: float = TIMEOUT_S

    def __post_init__(self) -> None:
        """Raise RequestError for what perftest cannot do, or does not mean."""
        if self.test not in TESTS:
            raise RequestError(f"There is no test {self.test}.", hint=f"One of {', '.join(TESTS)}.")
        if self.all_sizes and (self.sizes or self.duration_s):
            raise RequestError(
                "All sizes (-a) go with neither a size nor a duration: perftest refuses that.",
                hint="Name sizes with --size; each of them can take a duration.",
            )
        if self.iterations and self.duration_s:
            raise RequestError("Iterations and a duration exclude each other.", hint="Leave one out.")
        if self.bidirectional and self.test.endswith("_lat"):
            raise RequestError(f"{self.test} has no -b: latency is of both directions.", hint="Leave it out.")
        if self.together and (self.all_sizes or len(self.sizes) > 1):
            raise RequestError(
                "Rails are measured at the same time at one size: their programs would not keep step.",
                hint="Name one --size, or leave --together out.",
            )
        if self.dmabuf and not self.gpu_memory:
            raise RequestError("A dma-buf is of GPU memory.", hint="Add --gpu-memory.")

    @property
    def needs(self) -> Needs:
        """The program."""
        return Needs(programs=(self.test,), install=INSTALL, devices=self.devices)

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Give the sizes, which are the same on any hosts."""
        del hosts
        return _ALL_SIZES if self.all_sizes else self._sizes()

    def lacks(self, fabric: str, host: Host) -> str:
        """Say why `fabric` cannot be measured on `host`: it has no such devices, or no address for them.

        Raises RequestError for a fabric without RDMA devices, or MachineError where the host has none either.
        """
        if fabric in _WITHOUT_DEVICES:
            raise _no_devices(host)
        if fabric not in LINKS:
            return f"perftest measures {', '.join(LINKS)}."
        found = host.linked(fabric)
        if not found and not self.devices:
            return f"it has no RDMA device of {fabric}."
        # Where none can be listed, as in some containers, perftest itself says whether there are any.
        missing = [name for name in self.devices if found and name not in found]
        if missing:
            return f"it has no {' and '.join(missing)} of {fabric}, but {', '.join(found)}."
        nameless = [name for name in self.devices or found if self._gid(fabric, name, host) is None]
        if fabric == "roce" and nameless:
            return f"{' and '.join(nameless)} has no GID of RoCE v2 there; --gid-index can name another."
        if self.gpu_memory and not host.gpus:
            return "it has no GPU, whose memory was asked for."
        return ""

    def steps(self, trial: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Give one step for each rail and size: the server on the first host, the client on the last."""
        first, last = hosts[0], hosts[-1]
        names = [self.devices or host.linked(fabric) for host in (first, last)]
        pairs = rails.pairs(names[0], names[1], (first.name, last.name))
        sizes = (None,) if self.all_sizes else self._sizes()
        return tuple(
            self._step(trial, fabric, hosts, _Rail(index, len(pairs), *pair), size)
            for index, pair in enumerate(pairs)
            for size in sizes
        )

    def proof(self, fabric: str, hosts: Sequence[Host]) -> Proof:
        """Say what the log must show: the type of connection. Its markers say which device each step used."""
        del hosts
        return Proof(fabric=fabric)

    def _sizes(self) -> tuple[int, ...]:
        return self.sizes or (_USUAL_SIZE[self.test.rpartition("_")[2]],)

    def _gid(self, fabric: str, device: str, host: Host) -> int | None:
        if self.gid_index is not None:
            return self.gid_index
        return _EFA_GID if fabric == "efa" else host.gids.get(device) if fabric == "roce" else None

    def _step(self, trial: str, fabric: str, hosts: Sequence[Host], rail: "_Rail", size: int | None) -> Step:
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
            id=f"{trial}/{rail.client}-{name}",
            label=f"{rail.client} {'all sizes' if size is None else format_size(size)}",
            shape=Shape.PAIR,
            commands=(
                Command(argv=server, role="server", host=0),
                Command(argv=(*client, _SERVER), role="client", host=last),
            ),
            timeout_s=self.timeout_s,
            facts=facts,
        )

    def _words(
        self, fabric: str, host: Host, device: str, rail: "_Rail", size: int | None
    ) -> tuple[str, ...]:
        """Give one side's words. `-F`: a CPU that changes its clock is no reason not to measure."""
        gid = self._gid(fabric, device, host)
        if fabric == "roce" and gid is None:
            raise MachineError(f"{device} on {host.name} has no GID of RoCE v2.")
        how_long = (
            ("-n", str(self.iterations))
            if self.iterations
            else ("-D", str(self.duration_s or TOGETHER_S))
            if self.duration_s or self.together
            else ()
        )
        return (
            *(self.test, "-c", LINKS[fabric], "-d", device, "-i", str(self.ib_port)),
            *(("-x", str(gid)) if gid is not None else ()),
            *("-F", "-p", _PORT, "-q", str(self.qps)),
            *(("-a",) if size is None else ("-s", str(size))),
            *how_long,
            *(("-b",) if self.bidirectional else ()),
            *((f"--use_cuda={rails.gpu(rail.index, rail.number, host.gpus)}",) if self.gpu_memory else ()),
            *(("--use_cuda_dmabuf",) if self.dmabuf else ()),
            *self.extra,
        )


def _no_devices(host: Host) -> FabbenchError:
    known = {link: host.linked(link) for link in LINKS if host.linked(link)}
    told = "perftest measures RDMA devices, and no other network."
    if not known:
        return MachineError(
            f"{told} {host.name} has none that can be used. {' '.join(host.looked)}".strip(),
            hint="Nothing was started. run pingpong measures tcp and shm.",
        )
    listed = "; ".join(f"{link}: {', '.join(names)}" for link, names in known.items())
    return RequestError(f"{told} {host.name} has {listed}.", hint=f"Name --fabric {' or '.join(known)}.")


@dataclass(frozen=True, slots=True)
class _Rail:
    """One device of the first host, and one of the last."""

    index: int
    number: int
    """How many there are."""
    server: str
    client: str
