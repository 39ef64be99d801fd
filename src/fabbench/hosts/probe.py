"""The probe: a shell script that reports all about a host in one go, and how its answer is read.

A launcher sends `script` to a shell on a host, with `probe_arguments`, and passes the lines that
come back to `read_probe`: addresses as in ``ip`` and /proc/net/route, interfaces and devices as in
/sys, libfabric's domains, and everything else. What is not reported is unknown: nothing here
guesses.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import AddressValueError, IPv4Address
from itertools import dropwhile
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from fabbench.catalog.images import LIBRARY_FOLDERS, PROGRAM_FOLDERS
from fabbench.hosts.probe_result import (
    UNLIMITED,
    Answer,
    Device,
    Domain,
    Entry,
    Gpu,
    InstalledProgram,
    Interface,
    Link,
    Probe,
)
from fabbench.model import records
from fabbench.model.fabrics import natural_order
from fabbench.model.hosts import Mpi, MpiKind, NodeDevice
from fabbench.model.mappings import Names, distinct, first_of, map_values, without_empty
from fabbench.model.plan import Words
from fabbench.model.templates import text_of
from fabbench.model.units import parse_whole

_ADDRESS = re.compile(
    r"[0-9]+:\s+(\S+)\s+inet ([0-9.]+)(?: peer [0-9.]+)?(?:/[0-9]{1,2})?(?:\s.*)?"
)
_ROUTE = re.compile(
    r"(?P<interface>\S+)\s+(?P<target>[0-9A-F]{8})\s+[0-9A-F]{8}\s+(?P<flags>[0-9A-F]{1,4})"
    r"(?:\s+\d+){2}\s+(?P<metric>\d{1,9})\s+(?P<mask>[0-9A-F]{8})\s.*"
)
_GATEWAY = 2
"""Flag of a route through another host."""


class _Route(NamedTuple):
    """A line of /proc/net/route."""

    interface: str
    target: int
    mask: int
    flags: int
    metric: int

    def reaches(self, address: int) -> bool:
        """Return whether an address is on the network of the interface itself."""
        if not self.mask or self.flags & _GATEWAY:
            return False
        return address & self.mask == self.target


def read_interfaces(answer: Answer) -> tuple[Interface, ...]:
    """Return every interface, once per address; one without any has an empty one."""
    sys_class_net = answer.sysfs.at("class", "net")
    pairs = list(_addresses(answer))
    with_address = {name for name, _ in pairs}
    pairs += [(name, "") for name in sys_class_net if name not in with_address]
    return tuple(_interface(sys_class_net, name, address) for name, address in pairs)


_STATES = {"up": True, "down": False}


def _interface(sys_class_net: Entry, name: str, address: str) -> Interface:
    state = sys_class_net.at(name, "operstate").text
    return Interface(name=name, address=address, up=_STATES.get(state))


def default_interface(answer: Answer) -> str:
    """Return the interface of the default route with the smallest metric; empty: none."""
    routes = list(_routes(answer))
    defaults = [route for route in routes if not route.target and not route.mask]
    by_metric = sorted(defaults, key=lambda route: route.metric)
    return next((route.interface for route in by_metric), "")


def _addresses(answer: Answer) -> Iterator[tuple[str, str]]:
    """Yield interface and address: from ``ip``, else derived from bare addresses and the routes."""
    if answer.result("address").status != 0:
        yield from _addresses_by_route(answer)
        return
    for line in answer.all("address"):
        if match := _ADDRESS.fullmatch(line):
            interface, _, _ = match[1].partition("@")
            yield interface, match[2]
        else:
            answer.cannot_read("address", line)


def _addresses_by_route(answer: Answer) -> Iterator[tuple[str, str]]:
    """Yield addresses, each with the interface of the narrowest network that has it."""
    routes = list(_routes(answer))
    for word in answer.first("address.bare").split():
        try:
            address = int(IPv4Address(word))
        except AddressValueError:
            continue  # An IPv6 address
        direct = [route for route in routes if route.reaches(address)]
        if direct:
            yield max(direct, key=lambda route: route.mask).interface, word
        else:
            answer.cannot_read("the interface of the address", word)


def _routes(answer: Answer) -> Iterator[_Route]:
    # Lines of /proc/net/route, whose addresses and flags are hexadecimal.
    for match in map(_ROUTE.fullmatch, answer.all("route")):
        if match:  # The header does not
            yield _Route(
                interface=match["interface"],
                target=_ipv4(match["target"]),
                mask=_ipv4(match["mask"]),
                flags=int(match["flags"], 16),
                metric=int(match["metric"]),
            )


def _ipv4(text: str) -> int:
    """Read an address as in /proc/net/route: hexadecimal, in the byte order of x86."""
    return int.from_bytes(bytes.fromhex(text), "little")


_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) Gb/sec")
_STATE = re.compile(r"\d+: (\w+)")


def read_devices(sysfs: Entry) -> Iterator[Device]:
    """Yield a device per port, in order."""
    for name, device in sysfs.at("class", "infiniband").items():
        ports = device.at("ports")
        numbers = sorted(filter(None, map(parse_whole, ports)))
        for number in numbers or [1]:  # A device that reports no port counts as having one
            yield _device(name, device, number, ports.at(str(number)))


def _device(name: str, device: Entry, number: int, port: Entry) -> Device:
    """Return the port `number` of an RDMA device, from their folders in /sys."""
    pci = device.at("device")
    driver = pci.at("uevent", "DRIVER").text
    link = _link(name, driver, port.at("link_layer").text)
    rate = _RATE.match(port.at("rate").text)
    state = _STATE.match(port.at("state").text)
    first_interface = first_of(pci.at("net"), "")
    return Device(
        name=name,
        link=link,
        port=number,
        driver=driver,
        bus=pci.at("uevent", "PCI_SLOT_NAME").text,
        state=state[1] if state else "",
        rate_gbps=float(rate[1]) if rate else None,
        # Of the port's first GID, else of the device.
        netdev=port.at("gid_attrs", "ndevs", "0").text or first_interface,
        roce_v2_gid=_roce_v2_gid(port) if link is Link.ROCE else None,
    )


def _link(name: str, driver: str, layer: str) -> Link:
    """Return the kind of a device. EFA's link layer reads `Unspecified`, as may that of others."""
    if driver == "efa" or (not driver and layer == "Unspecified" and name.startswith("rdmap")):
        return Link.EFA
    return {"InfiniBand": Link.INFINIBAND, "Ethernet": Link.ROCE}.get(layer, Link.UNKNOWN)


_IPV4_MAPPED = "0000:0000:0000:0000:0000:ffff:"
_LINK_LOCAL = "fe80:"


def _roce_v2_gid(port: Entry) -> int | None:
    """Choose the GID for RoCE v2: the first of an IPv4 address, else the first that is routable."""
    kinds = port.at("gid_attrs", "types")
    gids: dict[int, str] = {}
    for index, gid in port.at("gids").items():
        # An unused entry of the table is all zeros.
        if kinds.at(index).text == "RoCE v2" and gid.text.strip("0:"):
            gids[int(index)] = gid.text

    def rank(index: int) -> tuple[bool, bool, int]:
        # The smallest is chosen, and False is less than True
        of_ipv4 = gids[index].startswith(_IPV4_MAPPED)
        routable = not gids[index].startswith(_LINK_LOCAL)
        return not of_ipv4, not routable, index

    return min(gids, key=rank, default=None)


# ------------------------------------------------------ how GPUs and RDMA devices are attached

_DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")
_NEAR = ("PIX", "PXB")
"""So near, a NIC reaches a GPU's memory without the CPU, if no bridge redirects it."""
_REDIRECTS = 0x0C
"""Of a bridge's ACS control register: what goes between devices below it goes up to the CPU."""
_HEX = re.compile(r"[0-9a-f]{1,4}")
_MTUS = (4096, 2048, 1024, 512, 256)
"""What RDMA ports can have."""
_ROCE_HEADERS = 96
"""What Linux subtracts from the MTU of an interface to choose that of RoCE on it (iboe_get_mtu)."""


class _Place(NamedTuple):
    """Where a device is in the PCI tree, and its files."""

    path: Names
    """From its host bridge on: pci0000:15, 0000:15:01.0, …"""
    files: Entry

    def number(self, name: str, most: int) -> float | None:
        """Read the number that a file begins with; None: not there, or above `most` (unknown)."""
        # As in `8.0 GT/s PCIe`
        match = re.match(r"[0-9]{1,3}(?:\.[0-9])?", self.files.at(name).text)
        if match is None or float(match[0]) > most:
            return None
        return float(match[0])

    def lanes(self, name: str) -> int | None:
        """Read a number of PCIe lanes; None: not known, as is 0."""
        return int(self.number(name, most=32) or 0) or None

    def attached(self, kind: str, bus: str) -> NodeDevice:
        """Return what is known of the device here: of its PCIe link, lanes and GT/s.

        A number above `most` is no valid one, and not known.
        """
        numa = self.number("numa_node", most=999)
        return NodeDevice(
            kind=kind,
            bus=bus,
            numa=None if numa is None else int(numa),
            width=self.lanes("current_link_width"),
            max_width=self.lanes("max_link_width"),
            speed=self.number("current_link_speed", most=128) or None,
            max_speed=self.number("max_link_speed", most=128) or None,
        )


_Places: TypeAlias = dict[str, _Place]
"""By PCI address."""
_NOWHERE = _Place(path=(), files=Entry())


def read_topology(
    answer: Answer, devices: Sequence[Device], gpus: Sequence[Gpu]
) -> dict[str, NodeDevice]:
    """Return how GPUs (``GPU 0``, …) and RDMA devices, by their first ports, are attached."""
    places = _places(answer)
    mtus = _verbs_mtus(answer.all("ibv"))
    first_ports = {port.name: port for port in reversed(devices)}  # A name's last entry stays
    nics: dict[str, NodeDevice] = {}
    for name in sorted(first_ports, key=natural_order):
        port = first_ports[name]
        place = places.get(port.bus, _NOWHERE)
        mtus_of_port = mtus.get(name, {})
        nics[name] = _nic(answer.sysfs, port, place, mtus_of_port)
    # Without nvidia-smi, the GPUs that /sys shows.
    shown = {f"GPU {gpu.index}": _bus_in_sysfs(gpu) for gpu in gpus}
    buses = shown or _accelerators(places)
    attached = {name: _gpu(bus, nics, places) for name, bus in buses.items()}
    return attached | nics


def _bus_in_sysfs(gpu: Gpu) -> str:
    """Return the PCI address as in /sys; nvidia-smi's domain has eight digits."""
    return gpu.bus.lower().removeprefix("0000")


_3D_CONTROLLER = "0x0302"
_ACCELERATOR = "0x12"


def _accelerators(places: _Places) -> dict[str, str]:
    """Return the PCI addresses of what are GPUs by their class; VGA controllers are not."""
    buses: list[str] = []
    for bus, place in sorted(places.items()):
        kind = place.files.at("class").text
        if kind.startswith((_3D_CONTROLLER, _ACCELERATOR)):
            buses.append(bus)
    return {f"GPU {index}": bus for index, bus in enumerate(buses)}


def _places(answer: Answer) -> _Places:
    """Return every PCI function that was reported, by its address."""
    places: dict[str, _Place] = {}
    for folder in answer.folders:  # devices/pci0000:15/0000:15:01.0/…
        root, *names = folder.split("/")
        path = tuple(dropwhile(lambda name: not name.startswith("pci"), names))
        if root == "devices" and path:
            bus = path[-1]
            places[bus] = _Place(path, answer.sysfs.at(root, *names))
    return places


_IBV_DEVINFO = re.compile(r"hca_id:\s*(?P<device>\S+)|(?P<name>\b\w+_mtu):\s*(?P<mtu>[0-9]{3,5}) ")


def _verbs_mtus(lines: Iterable[str]) -> dict[str, dict[str, int]]:
    """Read ``ibv_devinfo``: device → `max_mtu` and `active_mtu` of its first port."""
    mtus: dict[str, dict[str, int]] = {}
    device = ""
    for match in _IBV_DEVINFO.finditer("\n".join(lines)):
        if match["device"]:
            device = match["device"]
        else:
            of_device = mtus.setdefault(device, {})
            # Of further ports, which follow, none is kept.
            of_device.setdefault(match["name"], int(match["mtu"]))
    return mtus


def _nic(sysfs: Entry, port: Device, place: _Place, mtus: Mapping[str, int]) -> NodeDevice:
    """Return how a NIC is attached, with what its port and its driver report."""
    mtu = mtus.get("active_mtu")
    max_mtu = mtus.get("max_mtu")
    of_interface = parse_whole(sysfs.at("class", "net", port.netdev, "mtu").text)
    # Without ibv_devinfo, what Linux chooses for RoCE.
    if mtu is None and port.link is Link.ROCE and of_interface is not None:
        mtu = _roce_mtu(of_interface)
        max_mtu = _MTUS[0]  # The largest
    files = sysfs.at("class", "infiniband", port.name)
    version = files.at("device", "driver", "module", "version").text
    return replace(
        place.attached(port.link.value, port.bus),
        rate_gbps=port.rate_gbps,
        driver=f"{port.driver} {version}".strip(),
        firmware=files.at("fw_ver").text,
        gid=port.roce_v2_gid,
        mtu=mtu,
        max_mtu=max_mtu,
    )


def _roce_mtu(of_interface: int) -> int | None:
    """Return the largest MTU of RDMA that fits into an interface's; None: none does."""
    return next((mtu for mtu in _MTUS if mtu + _ROCE_HEADERS <= of_interface), None)


def _gpu(bus: str, nics: Mapping[str, NodeDevice], places: _Places) -> NodeDevice:
    """Return how a GPU is attached: distance, the nearest first → NICs; and what ACS redirects.

    Only what stands between the GPU and its nearest NICs counts for ACS.
    """
    place = places.get(bus, _NOWHERE)
    gpu = place.attached("gpu", bus)
    by_distance: dict[str, list[str]] = {each: [] for each in _DISTANCES}
    between: set[str] = set()
    for name, nic in nics.items():
        path = places.get(nic.bus, _NOWHERE).path
        if not place.path or not path:  # Where one of them is, is not known
            continue
        how_far = distance(place.path, path, same_numa=gpu.numa == nic.numa)
        by_distance[how_far].append(name)
        if how_far in _NEAR:
            # The bridges from where both paths part, and the two devices.
            between |= {*place.path} ^ {*path}
    nearest = map_values(tuple, by_distance)
    return replace(gpu, nics=without_empty(nearest), acs=_redirecting_bridges(between, places))


def _redirecting_bridges(buses: set[str], places: _Places) -> Names | None:
    """Return the bridges that send peers' requests up to the CPU; None: not reported of any."""
    bridges = sorted(buses & places.keys())
    controls = {bus: places[bus].files.at("acs").text for bus in bridges}
    if not any(controls.values()):
        return None
    return tuple(bus for bus, control in controls.items() if _redirects(control))


def _redirects(control: str) -> bool:
    if not _HEX.fullmatch(control):
        return False
    return bool(int(control, 16) & _REDIRECTS)


def distance(one: Sequence[str], other: Sequence[str], *, same_numa: bool) -> str:
    """Return how far apart two devices are, by their paths, as ``nvidia-smi topo -m`` says it."""
    shared = len({*one} & {*other})  # In a tree, these are where both paths begin
    if shared == 0:  # Different host bridges
        return "NODE" if same_numa else "SYS"
    if shared == 1:  # The host bridge alone, and no switch
        return "PHB"
    # Below a switch there are its port to each device, and the device.
    below_switch = max(len(one), len(other)) - shared
    return "PIX" if below_switch <= 2 else "PXB"


# ---------------------------------------------------------------- what fi_info prints

_FI_INFO = re.compile(
    r"^provider: *(?P<provider>\S.*)"
    r"(?:\n[ \t]+(?:domain: *(?P<name>.*)|type: *FI_EP_(?P<endpoint>.*)|.*))*",
    re.MULTILINE,
)


def _stripped_groups(match: re.Match[str]) -> dict[str, str]:
    """Return a match's groups without the blanks around them, empty if they are not there."""
    groups = match.groupdict("")
    return {name: text.strip() for name, text in groups.items()}


def read_fi_info(lines: Iterable[str]) -> Iterator[Domain]:
    """Read the blocks of ``fi_info``, each starting with ``provider: NAME``; skip other lines."""
    for match in _FI_INFO.finditer("\n".join(lines)):
        fields = _stripped_groups(match)
        endpoint = fields["endpoint"].lower()
        yield Domain(provider=fields["provider"], name=fields["name"], endpoint=endpoint)


class _Fact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a field of `Probe` stands in the answer: a record of facts.toml."""

    field: str
    section: str
    pattern: str
    value: Literal["text", "number", "decimal", "KiB"] = "text"

    def read(self, text: str) -> str | float:
        """Return the value that a text is, in bytes where it is of memory."""
        if self.value == "text":
            return text
        if text in _WORDS:
            return _WORDS[text]
        if self.value == "decimal":
            return float(text)
        return int(text) * _UNITS[self.value]


_UNITS = {"number": 1, "KiB": 1024}
_WORDS = {"unlimited": UNLIMITED, "absent": 0}
_FACTS = records.load("fabbench.hosts", "facts.toml", _Fact)
_SECTIONS = frozenset(
    {
        "probe",
        "end",
        "placement.type",
        "address",
        "address.bare",
        "route",
        "sys",
        "ibv",
        "fi_info",
        "gpu",
        "gpu.work",
        "library",
        "program",
        "tool",
        "mpi",
        "setting",
        "file",
        "absent",
        "own",
        *(fact.section for fact in _FACTS),
    }
)
_TYPE = re.compile(r"(?:ml\.)?([a-z0-9-]+\.[a-z0-9-]+)")


def script() -> str:
    """Return the text of the probe, for hosts to which it is sent as ``sh -s -- ARGUMENTS``."""
    return text_of("fabbench.hosts", "probe.sh")


def probe_arguments(
    programs: Sequence[str] = (), bin_dirs: Sequence[str] = (), required: Sequence[str] = ()
) -> Words:
    """Return the probe's arguments: programs to look for, in `bin_dirs` before anywhere else.

    `required` are directories that must exist; what the programs load from them is reported.
    """
    options = {
        "-p": programs,
        "-d": bin_dirs,
        "-u": PROGRAM_FOLDERS,
        "-l": LIBRARY_FOLDERS,
        "-e": required,
    }
    words: list[str] = []
    for option, values in options.items():
        for value in values:
            words += (option, value)
    return tuple(words)


def read_probe(lines: Iterable[str]) -> Probe:
    """Read what the probe printed. Never raises: `Probe.unread` lists what could not be read."""
    answer = Answer(lines, _SECTIONS)
    devices = tuple(read_devices(answer.sysfs))
    gpus = tuple(_gpus(answer))
    programs = dict(_programs(answer))
    installed = {name: program for name, program in programs.items() if program}  # else missing
    tools = (line.partition("\t") for line in answer.all("tool"))
    settings = (line.partition("=") for line in answer.all("setting"))
    # A pattern that matched no file is reported as it is.
    libraries = (line for line in answer.all("library") if "*" not in line)
    probe = Probe(
        # The first and the last line.
        whole=answer.first("probe") == "1" and answer.first("end") == "ok",
        instance_type=_instance_type(answer),
        serials=without_empty(dict(_serials(answer, gpus))),
        interfaces=read_interfaces(answer),
        default_interface=default_interface(answer),
        devices=devices,
        topology=read_topology(answer, devices, gpus),
        domains=distinct(read_fi_info(answer.all("fi_info"))),
        fi_info=answer.result("fi_info"),
        efa_driver=answer.sysfs.at("module", "efa", "version").text,
        gpus=gpus,
        nvidia_smi=answer.result("gpu"),
        gpu_processes=_gpu_processes(answer),
        programs=installed,
        missing=tuple(name for name, program in programs.items() if not program),
        absent=distinct(answer.all("absent")),
        variant_files=distinct(answer.all("own")),
        tools={name: path for name, _, path in tools if path},
        libraries=distinct(libraries),
        mpi=_mpi(answer, installed.get("mpirun")),
        mpirun_version=answer.result("mpi"),
        settings={name: value for name, _, value in settings},
        nccl_conf=tuple(answer.all("file")),
        **dict(_facts(answer)),
    )
    return replace(probe, unread=distinct(answer.unread))


def _facts(answer: Answer) -> Iterator[tuple[str, Any]]:
    """Yield each field of `Probe` in facts.toml that has a value, and the value.

    A section of which no line fits the pattern could not be read.
    """
    for fact in _FACTS:
        lines = answer.all(fact.section)
        matches = [match for line in lines if (match := re.match(fact.pattern, line))]
        text = next((match[1] for match in matches if match[1]), "")
        if text:
            yield fact.field, fact.read(text)
        elif answer.first(fact.section) and not matches:
            answer.cannot_read(fact.section, answer.first(fact.section))


def _gpu_processes(answer: Answer) -> int | None:
    """Count the processes that use a GPU: nvidia-smi prints the PID of each. None: not known."""
    if answer.result("gpu.work").status != 0:
        return None
    return sum(line.strip().isdecimal() for line in answer.all("gpu.work"))


def _mpi(answer: Answer, mpirun: InstalledProgram | None) -> Mpi | None:
    # None: there is no mpirun, or what it prints as its version is of no known kind.
    version = read_mpi_version(answer.all("mpi"))
    if version is None or mpirun is None:
        return None
    kind, number = version
    return Mpi(program=mpirun.path, kind=kind, version=number)


def _instance_type(answer: Answer) -> str:
    """Return the EC2 instance type: from the firmware, else from cloud-init's file."""
    dmi = answer.sysfs.at("class", "dmi", "id")
    vendors = (dmi.at("board_vendor").text, dmi.at("sys_vendor").text)
    if "Amazon EC2" in vendors:
        text = dmi.at("product_name").text
    else:
        text = answer.first("placement.type")
    match = _TYPE.fullmatch(text)
    return match[1] if match else ""


def _serials(answer: Answer, gpus: Sequence[Gpu]) -> Iterator[tuple[str, str]]:
    # What identifies the hardware: serial numbers of the node, GUIDs of NICs, UUIDs of GPUs.
    for name, entry in answer.sysfs.at("class", "dmi", "id").items():
        if name.endswith("_serial"):
            yield name, entry.text
    for name, nic in answer.sysfs.at("class", "infiniband").items():
        yield name, nic.at("node_guid").text
    for gpu in gpus:
        yield f"GPU {gpu.index}", gpu.uuid


_GPU = re.compile(
    r"\s*(?P<index>[0-9]{1,9})\s*,(?P<name>[^,]*),(?P<driver>[^,]*),(?P<bus>[^,]*)"
    r"(?:,\s*(?P<uuid>GPU-[^,]*))?(?:,(?P<fabric>[^,]*))?"
)
_NO_FABRIC = ("N/A", "Not Supported")


def _gpus(answer: Answer) -> Iterator[Gpu]:
    """Read nvidia-smi's lines: index, name, driver, bus, and if known the UUID and the fabric."""
    if answer.result("gpu").status != 0:
        return
    for line in answer.all("gpu"):
        match = _GPU.fullmatch(line)
        if match is None:
            answer.cannot_read("GPU", line)
            continue
        fields = _stripped_groups(match)
        index = int(fields.pop("index"))
        if fields["fabric"].strip("[]") in _NO_FABRIC:  # `[N/A]` or `[Not Supported]`
            fields["fabric"] = ""
        yield Gpu(index=index, **fields)


def _programs(answer: Answer) -> Iterator[tuple[str, InstalledProgram | None]]:
    """Yield the requested programs (NAME<TAB>PATH<TAB>SIZE); None for one that was not found."""
    for line in answer.all("program"):
        name, _, location = line.partition("\t")
        path, _, size = location.partition("\t")
        if path:
            number = answer.number(f"size of {name}", size)
            yield name, InstalledProgram(path=path, size=number)
        else:
            yield name, None


# ---------------------------------------------------------------- which MPI an mpirun is

_OPEN_MPI = r"mpi(?:run|exec)\S* \(Open(?: MPI|RTE)\) "
_MPI = (
    (re.compile(rf"(?m)^{_OPEN_MPI}([0-4]\.\S+)"), MpiKind.OPEN_MPI_4),
    (re.compile(rf"(?m)^{_OPEN_MPI}(\d+\.\S+)"), MpiKind.OPEN_MPI_5),
    (
        re.compile(r"(?m)^Intel\(R\) MPI Library for Linux\* OS,? Version (\d\S*(?: Update \d+)?)"),
        MpiKind.HYDRA,
    ),
    (re.compile(r"(?ms)^HYDRA build details.*?^\s*Version:\s+(\d\S*)"), MpiKind.HYDRA),
)
"""Releases of Open MPI from 5 on are on PRRTE."""


def read_mpi_version(lines: Iterable[str]) -> tuple[MpiKind, str] | None:
    """Read what ``mpirun --version`` prints: the kind and the version. None: not a known one."""
    text = "\n".join(lines)
    for pattern, kind in _MPI:
        if match := pattern.search(text):
            return kind, match[1]
    return None
