"""What was found on a host, as values. None and empty text mean: not known."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from functools import reduce
from typing import TypeAlias

from fabbench.model.hosts import Mpi, NodeDevice
from fabbench.model.mappings import (
    Names,
    Paths,
    Variables,
    distinct,
    first_of,
    gathered,
    map_values,
)
from fabbench.model.units import parse_whole
from fabbench.model.values import frozen

UNLIMITED = -1
"""Stands for no limit where a number of bytes is expected."""


class Link(StrEnum):
    """The kind of network that an RDMA device belongs to."""

    EFA = "efa"
    INFINIBAND = "ib"
    ROCE = "roce"
    UNKNOWN = "unknown"


@frozen
class Device:
    """One port of an RDMA device, as in ``/sys/class/infiniband``."""

    name: str
    link: Link
    port: int = 1
    driver: str = ""
    bus: str = ""  # PCI address
    state: str = ""  # `ACTIVE`, `DOWN`, `INIT`, …
    rate_gbps: float | None = None
    netdev: str = ""  # The network interface on the same device
    roce_v2_gid: int | None = None
    """Index of the GID for RoCE v2: that of an IPv4 address if there is one."""


@frozen
class Domain:
    """One domain that libfabric offers: an entry of ``fi_info``."""

    provider: str  # With its layers: ``tcp;ofi_rxm``
    name: str = ""
    endpoint: str = ""  # `msg`, `rdm` or `dgram`


@frozen
class Interface:
    """One network interface with one of its IPv4 addresses; `address` is empty without one."""

    name: str
    address: str = ""
    up: bool | None = None


@frozen
class Gpu:
    """One GPU, as ``nvidia-smi`` reports it."""

    index: int
    name: str
    driver: str
    bus: str = ""
    fabric: str = ""
    """State of the NVLink fabric: `Completed`, `In Progress`; empty if there is none."""
    uuid: str = ""


@frozen
class InstalledProgram:
    """One program. `size` is its file size in bytes, which two builds rarely share."""

    path: str
    size: int | None = None


@frozen
class ProgramResult:
    """The result of a program that the probe ran. Status 127: not found; 124: timed out."""

    status: int | None = None
    lines: tuple[str, ...] = ()  # The first ones that it printed

    @property
    def first_line(self) -> str:
        """Return what it printed first; empty: nothing."""
        return first_of(self.lines, "")


_NOT_RUN = ProgramResult()


@frozen
class Probe:
    """Everything that a host reported about itself."""

    whole: bool = False  # Whether the answer's last line arrived
    unread: tuple[str, ...] = ()  # Sentences: what was printed but could not be read
    hostname: str = ""
    identity: str = ""
    """Equal if two names lead to the same machine, or to the same container on it."""
    kernel: str = ""
    cpus: int | None = None
    huge_pages: int | None = None
    huge_pages_free: int | None = None
    huge_page_size: int | None = None  # In bytes
    memlock: int | None = None  # Bytes that a process may lock, or `UNLIMITED`
    instance_type: str = ""  # EC2 instance type, without HyperPod's ``ml.``
    serials: Mapping[str, str] = field(default_factory=dict)  # Of parts, as far as they can be read
    zone: str = ""
    load: float | None = None  # Average over one minute
    temporary: str = ""  # The directory for temporary files
    temporary_free: int | None = None  # In bytes
    ssh_address: str = ""  # The host's own address in the ssh connection of the probe
    interfaces: tuple[Interface, ...] = ()
    default_interface: str = ""
    devices: tuple[Device, ...] = ()
    topology: Mapping[str, NodeDevice] = field(default_factory=dict)
    """How ``GPU 0`` and RDMA devices are attached."""
    verbs: int | None = None
    """``/dev/infiniband/uverbs*`` files that can be opened; None also without the directory."""
    verbs_there: int | None = None  # Those files, whether or not they can be opened
    domains: tuple[Domain, ...] = ()
    fi_info: ProgramResult = _NOT_RUN
    fi_info_path: str = ""
    libfabric: str = ""  # Version, as ``fi_info --version`` prints it
    efa_installer: str = ""
    efa_driver: str = ""
    gpus: tuple[Gpu, ...] = ()
    nvidia_smi: ProgramResult = _NOT_RUN
    gpu_processes: int | None = None
    nvidia_driver: str = ""
    libraries: Paths = ()  # Files of NCCL, its plugins, NVSHMEM, libfabric and CUDA
    programs: Mapping[str, InstalledProgram] = field(default_factory=dict)
    """The requested ones that were found."""
    missing: Names = ()  # The others
    absent: Paths = ()  # Required directories that do not exist
    variant_files: Paths = ()
    """Requested programs in a required directory, and libraries there that they are linked to."""
    mpi: Mpi | None = None
    mpirun_version: ProgramResult = _NOT_RUN
    tools: Mapping[str, str] = field(default_factory=dict)
    """`stdbuf`, `setsid`, `timeout`, `python3` → path."""
    settings: Variables = field(default_factory=dict)
    """Inherited variables of NCCL, libfabric, its plugin, MPI and NVSHMEM."""
    nccl_conf: Paths = ()  # Files from which NCCL reads more settings

    @property
    def providers(self) -> Mapping[str, frozenset[str]]:
        """Return libfabric's providers, with their layers, and the endpoint types of each."""
        endpoints = gathered(
            (each.provider, each.endpoint) for each in self.domains if each.endpoint
        )
        return map_values(frozenset, endpoints)

    @property
    def efa_domains(self) -> Names:
        """Return the names of the EFA devices that libfabric offers, each once."""
        domains = (each.name for each in self.domains if each.provider in {"efa", "efa-direct"})
        # The provider creates two domains per device.
        devices = {name.removesuffix("-rdm").removesuffix("-dgrm") for name in domains}
        return tuple(sorted(devices))

    @property
    def plugins(self) -> Paths:
        """Return the files of aws-ofi-nccl: until 1.14 only their directory has `ofi` in it."""
        plugins = (path for path in self.libraries if re.search(r"/libnccl-net[^/]*$", path))
        return tuple(path for path in plugins if "ofi" in path)

    @property
    def nccl(self) -> str:
        """Return the versions of NCCL in file names (``libnccl.so.2.21.5``)."""
        matches = (re.search(r"/libnccl\.so\.(.*\..*\..*)$", path) for path in self.libraries)
        versions = {match[1] for match in matches if match}
        return ", ".join(sorted(versions))

    @property
    def gpu_driver(self) -> str:
        """Return the version of the NVIDIA driver."""
        return self.nvidia_driver or next((gpu.driver for gpu in self.gpus), "")

    @property
    def nic_driver(self) -> str:
        """Return the drivers of the RDMA devices, each once."""
        drivers = {device.driver for device in self.topology.values()}
        return ", ".join(sorted(drivers - {""}))

    @property
    def nic_firmware(self) -> str:
        """Return the firmware of the RDMA devices, each once."""
        versions = {device.firmware for device in self.topology.values()}
        return ", ".join(sorted(versions - {""}))

    def devices_of(self, link: Link) -> Names:
        """Return the names of the devices on one kind of link, each once."""
        ports = (port.name for port in self.devices if port.link is link)
        return distinct(ports)


Probes: TypeAlias = Mapping[str, Probe]
"""Host → what it reported."""

# ---------------------------------------------------------------- lines SECTION<TAB>TEXT

_MAX_LINES = 5
"""How many lines of a program's output are kept."""
_MAX_CHARACTERS = 200
"""How much of a line that cannot be read is kept."""


class Entry(dict[str, "Entry"]):
    """A directory or a file of sysfs: what it holds, and its text. Empty: it is not there."""

    text = ""

    def at(self, *path: str) -> "Entry":
        """Return what is at a path below it."""
        return reduce(lambda entry, name: entry.get(name, _NOT_THERE), path, self)

    def add(self, path: str, text: str) -> None:
        """Add a file, of which the first line counts."""
        entry = self
        for name in path.split("/"):
            entry = entry.setdefault(name, Entry())
        entry.text = entry.text or text


_NOT_THERE = Entry()
_FILE = re.compile(r"(.+?)/((?!pci[0-9a-f]{4})[a-z]\w*|[0-9]{1,2}):(.*)")
"""A line of a file. A directory's name may have a colon, too: ``0000:18:00.0``."""


class Answer:
    """What a host printed. `unread` grows while it is read: sentences on what could not be read."""

    def __init__(self, lines: Iterable[str], sections: frozenset[str]) -> None:
        self.unread: list[str] = []
        self._sections: dict[str, list[str]] = {}
        for line in lines:
            section, tab, text = line.rstrip("\r\n").partition("\t")
            # SECTION.status: the exit status of the program that printed a section.
            if tab and section.removesuffix(".status") in sections:
                self._sections.setdefault(section, []).append(text)
            elif line.strip():
                self.cannot_read("not from the probe", line.strip())
        self.sysfs = Entry()
        self.folders: dict[str, None] = {}
        for line in self.all("sys"):
            self._add_file(line)

    def _add_file(self, line: str) -> None:
        """Add a line of a file of sysfs (FOLDER/NAME:TEXT); one of uevent's is a file below it."""
        match = _FILE.fullmatch(line)
        if match is None:
            self.cannot_read("sysfs", line)
            return
        folder, name, text = match.groups()
        self.folders[folder] = None
        key, _, value = text.partition("=")
        if name == "uevent" and key:  # KEY=VALUE: `uevent` counts as a directory of keys
            self.sysfs.add(f"{folder}/{name}/{key}", value.strip())
        else:
            self.sysfs.add(f"{folder}/{name}", text.strip())

    def cannot_read(self, what: str, text: str) -> None:
        """Record something that could not be read."""
        kept = text[:_MAX_CHARACTERS]
        self.unread.append(f"{what}: {kept}")

    def all(self, section: str) -> list[str]:
        """Return a section's lines."""
        return self._sections.get(section, [])

    def first(self, section: str) -> str:
        """Return a section's first line, or an empty string."""
        return first_of(self.all(section), "").strip()

    def result(self, section: str) -> ProgramResult:
        """Return the exit status and the first lines of the program that printed a section."""
        lines = [line for line in self.all(section) if line.strip()]
        status = self.number(f"{section}.status", self.first(f"{section}.status"))
        return ProgramResult(status=status, lines=tuple(lines[:_MAX_LINES]))

    def number(self, what: str, text: str) -> int | None:
        """Parse a whole number. Record text that is not one, unless it is empty."""
        number = parse_whole(text)
        if number is None and text:
            self.cannot_read(what, text)
        return number
