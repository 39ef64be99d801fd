"""What was found on a host, as values. None and empty text mean: not known."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fabbench.model.hosts import Mpi

UNLIMITED = -1
"""A limit that is none, where a number of bytes is kept."""

_DOMAIN_KINDS = ("-rdm", "-dgrm")
"""libfabric's EFA provider makes two domains of one device."""
_CACHED = 2


class Link(StrEnum):
    """What an RDMA device is a device of."""

    EFA = "efa"
    INFINIBAND = "ib"
    ROCE = "roce"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One port of an RDMA device, as ``/sys/class/infiniband`` has it."""

    name: str
    link: Link
    port: int = 1
    driver: str = ""
    bus: str = ""
    """PCI address."""
    state: str = ""
    """`ACTIVE`, `DOWN`, `INIT`, …"""
    rate_gbps: float | None = None
    netdev: str = ""
    """The network interface on the same device."""
    roce_v2_gid: int | None = None
    """Index of the GID for RoCE v2: of an IPv4 address where there is one."""
    p2p: str = ""
    """What the EFA driver says of reaching GPU memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """One way to use libfabric: an entry of ``fi_info``."""

    provider: str
    """With its layers: ``tcp;ofi_rxm``."""
    fabric: str = ""
    name: str = ""
    version: str = ""
    endpoint: str = ""
    """`msg`, `rdm` or `dgram`."""
    protocol: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """One network interface and one IPv4 address of it; without an address both are empty."""

    name: str
    address: str = ""
    prefix: int | None = None
    up: bool | None = None
    speed_gbps: float | None = None
    driver: str = ""
    """Empty for what is no device: a bridge, a veth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, as ``nvidia-smi`` tells of it."""

    index: int
    name: str
    driver: str
    memory_mib: int | None = None
    ecc: str = ""
    bus: str = ""
    fabric: str = ""
    """State of the NVLink fabric: `Completed`, `In Progress`; empty where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledProgram:
    """One program. `size` is that of its file in bytes: two builds seldom share it."""

    path: str
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of a host, in bytes."""

    total: int | None = None
    available: int | None = None
    huge_pages: int | None = None
    huge_pages_free: int | None = None
    huge_page_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a program ended that the probe started: 127 where it is not there, 124 where it took too long."""

    status: int | None = None
    said: tuple[str, ...] = ()
    """Its first lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Everything that a host reported about itself."""

    whole: bool = False
    """Whether the answer's last line arrived."""
    unread: tuple[str, ...] = ()
    """What was printed and could not be read, as sentences."""
    time_s: float | None = None
    """The host's clock when the script began: seconds since 1970."""
    hostname: str = ""
    identity: str = ""
    """The same where two names lead to one machine, or to one container of it."""
    kernel: str = ""
    arch: str = ""
    os: str = ""
    cpus: int | None = None
    memory: Memory = field(default_factory=Memory)
    memlock: int | None = None
    """Bytes that a process may lock, or `UNLIMITED`."""
    instance_type: str = ""
    """EC2 instance type, without HyperPod's ``ml.``."""
    zone: str = ""
    """Availability Zone."""
    load: float | None = None
    """Load average over a minute."""
    temporary: str = ""
    """The directory for temporary files."""
    temporary_free: int | None = None
    """Bytes free in it."""
    ssh_address: str = ""
    """The host's own address in the ssh connection that asked."""
    interfaces: tuple[Interface, ...] = ()
    default_interface: str = ""
    """Where the default route leaves."""
    devices: tuple[Device, ...] = ()
    verbs: int | None = None
    """Files ``/dev/infiniband/uverbs*`` that can be opened; None: no such directory, or it was not told."""
    verbs_there: int | None = None
    """Files ``/dev/infiniband/uverbs*``, whether or not they can be opened."""
    domains: tuple[Domain, ...] = ()
    fi_info: Ran = field(default_factory=Ran)
    fi_info_path: str = ""
    libfabric: str = ""
    """Version, as ``fi_info --version`` prints it."""
    efa_installer: str = ""
    efa_driver: str = ""
    gpus: tuple[Gpu, ...] = ()
    nvidia_smi: Ran = field(default_factory=Ran)
    gpu_processes: int | None = None
    nvidia_driver: str = ""
    cuda: tuple[str, ...] = ()
    """Versions of CUDA under /usr/local."""
    libraries: tuple[str, ...] = ()
    """Files of NCCL, its plugins, NVSHMEM, libfabric and CUDA."""
    programs: Mapping[str, InstalledProgram] = field(default_factory=dict)
    """The programs asked for that are there."""
    missing: tuple[str, ...] = ()
    """Those that are not."""
    absent: tuple[str, ...] = ()
    """Folders that were wanted and are not there."""
    own: tuple[str, ...] = ()
    """Programs asked for in a wanted directory, and libraries there that the linker finds for them."""
    mpi: Mpi | None = None
    mpi_said: Ran = field(default_factory=Ran)
    python: str = ""
    tools: Mapping[str, str] = field(default_factory=dict)
    """`stdbuf`, `setsid`, `timeout`, `python3` → path, where they are there."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Variables of NCCL, libfabric, its plugin, MPI and NVSHMEM that a program on this host inherits."""
    files: tuple[str, ...] = ()
    """Files in which NCCL finds more settings."""

    @property
    def providers(self) -> Mapping[str, frozenset[str]]:
        """Map libfabric's providers, with their layers, to types of endpoint; see `machines.Host`."""
        found: dict[str, set[str]] = {}
        for domain in self.domains:
            if domain.endpoint:
                found.setdefault(domain.provider, set()).add(domain.endpoint)
        return {name: frozenset(types) for name, types in found.items()}

    @property
    def efa_domains(self) -> tuple[str, ...]:
        """Return the names of the EFA devices that libfabric offers, each once."""
        names = (item.name for item in self.domains if item.provider in {"efa", "efa-direct"})
        return tuple(sorted({_device(name) for name in names}))

    @property
    def plugins(self) -> tuple[str, ...]:
        """Return the files of NCCL's plugin for libfabric, as far as their paths tell."""
        return tuple(path for path in self.libraries if _is_plugin(path))

    @property
    def nccl(self) -> tuple[str, ...]:
        """Return the versions of NCCL that files are named after (``libnccl.so.2.21.5``)."""
        names = (path.rpartition("/")[2] for path in self.libraries)
        found = {name.removeprefix("libnccl.so.") for name in names if name.startswith("libnccl.so.")}
        return tuple(sorted(version for version in found if version.count(".") >= _CACHED))

    def devices_of(self, link: Link) -> tuple[str, ...]:
        """Return the names of the devices of one kind, each once."""
        return tuple(dict.fromkeys(device.name for device in self.devices if device.link is link))


def _device(domain: str) -> str:
    for kind in _DOMAIN_KINDS:
        domain = domain.removesuffix(kind)
    return domain


def _is_plugin(path: str) -> bool:
    """Return whether a file is aws-ofi-nccl: libnccl-net-ofi.so since 1.15, by its directory before."""
    folder, _, name = path.rpartition("/")
    return name.startswith("libnccl-net") and ("ofi" in name or "ofi" in folder)


# ---------------------------------------------------------------- lines SECTION<TAB>TEXT

_NUMBER = re.compile(r"[0-9]{1,18}")
_SAID = 5
"""Lines kept of what a program said."""
_SHOWN = 200


class Answer:
    """What a host printed. `unread` grows while it is read: it says what could not be."""

    def __init__(self, lines: Iterable[str], known: frozenset[str]) -> None:
        self.unread: list[str] = []
        self._sections: dict[str, list[str]] = {}
        for line in lines:
            section, tab, text = line.rstrip("\r\n").partition("\t")
            if tab and section.removesuffix(".status") in known:
                self._sections.setdefault(section, []).append(text)
            elif line.strip():
                self.cannot_read("not from the probe", line.strip())

    def cannot_read(self, what: str, text: str) -> None:
        """Note something that could not be read."""
        self.unread.append(f"{what}: {text[:_SHOWN]}")

    def all(self, section: str) -> list[str]:
        """Return a section's lines."""
        return self._sections.get(section, [])

    def first(self, section: str) -> str:
        """Return a section's first line; empty where it has none."""
        return next(iter(self.all(section)), "").strip()

    def ran(self, section: str) -> Ran:
        """Return the end of the program that printed a section, and what it said first."""
        said = tuple(line for line in self.all(section) if line.strip())[:_SAID]
        return Ran(status=self.number(f"{section}.status", self.first(f"{section}.status")), said=said)

    def number(self, what: str, text: str) -> int | None:
        """Read a whole number; noted where it is none, unless it is empty."""
        if _NUMBER.fullmatch(text):
            return int(text)
        if text:
            self.cannot_read(what, text)
        return None
