"""Hosts: the target that names them, what a benchmark needs, what was found on them. Frozen."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from typing import TypeAlias, TypeVar

from fabbench.model.mappings import Names, Paths, Reasons, Variables, map_values
from fabbench.model.options import (
    FOLDER,
    HOSTS,
    INTERFACE,
    MPIRUN,
    Environment,
    LauncherOptions,
    Whole,
    flat,
    option,
)
from fabbench.model.plan import Variant
from fabbench.model.values import frozen

OptionsT = TypeVar("OptionsT", bound=LauncherOptions)


class MpiKind(StrEnum):
    """MPI launchers that take different command lines."""

    OPEN_MPI_4 = "Open MPI 4"  # Open MPI's own runtime (ORTE): release 4 and older
    OPEN_MPI_5 = "Open MPI 5"  # Open MPI on PRRTE: release 5 and later
    HYDRA = "hydra"  # MPICH, Intel MPI and MVAPICH


@frozen
class Mpi:
    """One ``mpirun``, as found on a host."""

    program: str
    kind: MpiKind
    version: str


@frozen
class Needs:
    """What hosts must have for a benchmark."""

    programs: Names = ()
    install: str = ""  # The command that installs them
    # Whether hosts may lack some of them: what was found is known afterwards
    optional: bool = False
    mpi: bool = False
    gpus: bool = False  # Whether it measures GPUs, and nothing else
    host_memory: bool = False  # Whether its buffers are there, so that it uses no GPU
    # Program → the directory in which AWS's images have it
    folders: Mapping[str, str] = field(default_factory=dict)
    # Where programs are below the directory that they were installed into
    subfolders: Paths = ("bin", "")
    devices: Names = ()  # RDMA devices that the user names, for hosts that are not probed
    nics: int = 0  # How many there are, if the user says so
    # Whether subsets of hosts run executions, each with mpirun; default: all free nodes
    divided: bool = False
    one_by_one: bool = False  # Whether which execution is next depends on those before
    # Returns for how many seconds hosts are needed; None: not known. Raises FabbenchError for
    # unsuitable ones
    held_s: "Callable[[Inventory], float | None]" = lambda _: None
    # The requested fabrics, as in `RunRequest`; empty: any that hosts have
    fabrics: Names = ()


@frozen
class NodeDevice:
    """How a GPU, or an RDMA device with its first port, is attached.

    None and empty text: not known.
    """

    kind: str  # `gpu`, or the link of an RDMA device
    bus: str = ""
    numa: int | None = None
    width: int | None = None  # PCIe lanes
    max_width: int | None = None
    speed: float | None = None  # GT/s of a lane, which drops while a GPU idles
    max_speed: float | None = None
    rate_gbps: float | None = None
    driver: str = ""  # With its version
    firmware: str = ""
    gid: int | None = None  # Index of the GID for RoCE v2
    mtu: int | None = None
    max_mtu: int | None = None
    # Of a GPU: PIX, PXB, PHB, NODE, SYS → names
    nics: Mapping[str, Names] = field(default_factory=dict)
    # Bridges from a GPU to NICs at PIX or PXB that send requests through the CPU
    acs: Names | None = None


@frozen
class Host:
    """One machine, as found."""

    name: str
    address: str = ""  # Where the other hosts reach it
    # The network interface that has the address, or the requested one; empty: not known
    interface: str = ""
    # libfabric provider, with its layers (`tcp;ofi_rxm`) → types of endpoint: `msg`, `rdm`, `dgram`
    providers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # libfabric provider → its distinct domains
    domains: Mapping[str, Names] = field(default_factory=dict)
    # RDMA device → its link: `efa`, `ib`, `roce` or `unknown`
    devices: Mapping[str, str] = field(default_factory=dict)
    # Fabric → NCCL's variables of its platform
    settings: Mapping[str, Variables] = field(default_factory=dict)
    gids: Mapping[str, int] = field(default_factory=dict)  # RoCE device → index of its RoCE v2 GID
    topology: Mapping[str, NodeDevice] = field(default_factory=dict)
    gpus: int = 0
    gpu_model: str = ""  # As nvidia-smi names it; empty: not known
    # Whether it is a part of a machine that stands for a host, with a part of its GPUs
    virtual: bool = False
    instance_type: str = ""
    programs: Mapping[str, str] = field(default_factory=dict)  # Program → path
    # Program without path → where to search
    searched: Mapping[str, Paths] = field(default_factory=dict)
    # What is loaded from a variant's directories: programs, and libraries that the linker finds for
    # them. None: not looked up
    variant_files: Paths | None = None
    mpi: Mpi | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    # Serial numbers of parts, GUIDs of NICs, UUIDs of GPUs
    serials: Mapping[str, str] = field(default_factory=dict)
    # Where fabrics were looked for, and what was found: one sentence each
    search_notes: tuple[str, ...] = ()

    def linked(self, link: str) -> Names:
        """Return the names of the RDMA devices of one kind of link, in order."""
        return tuple(sorted(name for name, kind in self.devices.items() if kind == link))


Hosts: TypeAlias = tuple[Host, ...]
_Change: TypeAlias = Callable[[Sequence[Host]], Hosts]


@frozen
class Inventory:
    """What a target has."""

    target: str
    hosts: Hosts
    # Of the containers or machines, unless a variant has its own; empty: none is known
    image: str = ""
    # Variant → the hosts as it sees them
    variants: Mapping[str, Hosts] = field(default_factory=dict)
    # Requested, did not answer, and left out → why
    unreachable: Reasons = field(default_factory=dict)

    @property
    def first(self) -> Host:
        """The first host, which runs mpirun. Those from the catalog are all alike."""
        return self.hosts[0]

    @property
    def names(self) -> Names:
        """The names of the hosts."""
        return tuple(host.name for host in self.hosts)

    def hosts_for_variant(self, variant: str) -> Hosts:
        """Return the hosts as a variant sees them."""
        return self.variants.get(variant, self.hosts)

    def gpus_for(self, needs: Needs, target: "Target") -> int:
        """Return how many GPUs of each host a benchmark uses; what the user says is used."""
        if needs.host_memory and target.gpus is None:
            return 0
        return self.hosts[0].gpus  # all are alike

    def changed(self, change: _Change) -> "Inventory":
        """Return the inventory with its hosts, and those that each variant sees, changed alike."""
        views = map_values(change, self.variants)
        return replace(self, hosts=change(self.hosts), variants=views)

    def named(self, names: Sequence[str]) -> "Inventory":
        """Return the inventory with other names for its hosts."""

        def with_names(hosts: Sequence[Host]) -> Hosts:
            pairs = zip(hosts, names, strict=True)
            return tuple(replace(host, name=name) for host, name in pairs)

        return self.changed(with_names)

    def part(self, hosts: Sequence[int]) -> "Inventory":
        """Return the inventory of some of the hosts, in this order."""
        return self.changed(lambda every: tuple(every[index] for index in hosts))

    def views(self) -> Iterator[tuple[str, Host]]:
        """Yield every host as every variant sees it, with a label; without variants, as it is."""
        for variant, hosts in self.variants.items():
            for host in hosts:
                yield f"{host.name} (variant {variant})", host
        if not self.variants:
            for host in self.hosts:
                yield host.name, host


@frozen
class Target:
    """Which hosts to use, and how to reach them.

    Launchers have all its options but those they are `without`.
    """

    name: str  # As the user calls it: a target of the configuration, or a launcher's name
    launcher: str
    hosts: Names = option(
        HOSTS,
        "ssh host or alias (node1, ubuntu@node1, node[01-16]), or a node of the cluster. Can be "
        "given several times; mpirun runs on the first one. Without --on, --host means --on ssh.",
        "--host",
        "--node",
        many=flat,
    )
    nodes: int | None = option(
        Whole(1, 65536),
        "Number of nodes. The first N hosts; on a cluster, any N free nodes. Default: all hosts; "
        "2 on a cluster; for a sweep, all free nodes that are alike.",
    )
    gpus: int | None = option(Whole(0, 1024), "GPUs per host. Default: all.")
    interface: str | None = option(
        INTERFACE,
        "Network interface for sockets (NCCL_SOCKET_IFNAME). Default: the one with the hosts' "
        "addresses.",
    )
    bin_dirs: Paths = option(
        FOLDER,
        "Directory to search first for programs, as every host has it. Can be given several times.",
        "--bin-dir",
        many=tuple,
    )
    mpirun: str | None = option(MPIRUN, "Absolute path of mpirun or mpiexec on the first host.")
    env: Variables = option(
        Environment(), "Environment variables of all benchmarks on this target.", many=dict
    )
    # Variables that every benchmark inherits from fabbench; see `plan.Command`
    inherited: Names = ()
    options: LauncherOptions = field(default_factory=LauncherOptions)
    typed: Names = ()  # Names of the options that were given on the command line
    variants: tuple[Variant, ...] = ()  # How configurations differ, besides their fabric

    def options_as(self, kind: type[OptionsT]) -> OptionsT:
        """Return the options of a launcher; its defaults where the target has none at all."""
        return self.options if isinstance(self.options, kind) else kind()
