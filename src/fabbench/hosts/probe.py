"""The probe.

A shell script that reports everything about a host in one go, and the parser of its answer.

A launcher sends `script` to a shell on a host, with `probe_arguments`, and passes the lines that
come back to `read_probe`: addresses as in ``ip`` and /proc/net/route, interfaces and devices as in
/sys, libfabric's domains, and everything else. What is not reported is unknown: nothing here
guesses.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from ipaddress import AddressValueError, IPv4Address
from itertools import takewhile
from operator import itemgetter
from typing import Any, NamedTuple

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
from fabbench.model.fabrics import natural_order
from fabbench.model.hosts import Mpi, MpiKind, NodeDevice

_ADDRESS = re.compile(
    r"[0-9]+:\s+(\S+)\s+inet ([0-9.]+)(?: peer [0-9.]+)?(?:/[0-9]{1,2})?(?:\s.*)?"
)
_ROUTE = re.compile(
    r"(\S+)\s+([0-9A-F]{8})\s+[0-9A-F]{8}\s+([0-9A-F]{1,4})(?:\s+\d+){2}\s+(\d{1,9})\s+([0-9A-F]{8})\s.*"
)
_UP, _GATEWAY = 1, 2
"""Flags of a route."""


def read_interfaces(answer: Answer) -> tuple[Interface, ...]:
    """Return every interface, once per address."""
    found, known = list(_addresses(answer)), answer.sysfs.at("class", "net")
    found += [(name, "") for name in known if name not in dict(found)]
    states = {"up": True, "down": False}
    return tuple(
        Interface(name=name, address=address, up=states.get(known.at(name, "operstate").text))
        for name, address in found
    )


def default_interface(answer: Answer) -> str:
    """Return the interface of the default route with the smallest metric.

    Empty if there is none.
    """
    routes = (route for route in _routes(answer) if route[1] == route[2] == 0 and route[3] & _UP)
    return min(routes, key=lambda route: route[4], default=("",))[0]


def _addresses(answer: Answer) -> Iterator[tuple[str, str]]:
    """Yield interface and address: from ``ip``, else derived from bare addresses and the routes."""
    if answer.result("address").status == 0:
        for line in answer.all("address"):
            if match := _ADDRESS.fullmatch(line):
                yield match[1].partition("@")[0], match[2]
            else:
                answer.cannot_read("address", line)
        return
    for word in answer.first("address.bare").split():
        try:
            address = int(IPv4Address(word))
        except AddressValueError:
            continue
        near = [route for route in _routes(answer) if route[2] and address & route[2] == route[1]]
        best = max(
            (route for route in near if not route[3] & _GATEWAY), key=lambda r: r[2], default=None
        )
        if best:
            yield best[0], word
        else:
            answer.cannot_read("the interface of the address", word)


def _routes(answer: Answer) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield interface, destination, mask, flags and metric."""
    for match in map(_ROUTE.fullmatch, answer.all("route")):
        if match:
            target, mask = (int.from_bytes(bytes.fromhex(match[i]), "little") for i in (2, 5))
            yield match[1], target, mask, int(match[3], 16), int(match[4])


_RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/sec")
_STATE = re.compile(r"\d+: (\w+)")


def read_devices(sysfs: Entry) -> Iterator[Device]:
    """Yield a device per port, in order."""
    for name, device in sysfs.at("class", "infiniband").items():
        ports = [
            (int(number), port) for number, port in device.at("ports").items() if number.isdecimal()
        ]
        for number, port in sorted(ports, key=itemgetter(0)) or [(1, Entry())]:
            yield _device(name, device, number, port)


def _device(name: str, device: Entry, number: int, port: Entry) -> Device:
    pci = device.at("device")
    driver = pci.at("uevent", "DRIVER").text
    link = _link(name, driver, port.at("link_layer").text)
    rate = _RATE.match(port.at("rate").text)
    state = _STATE.match(port.at("state").text)
    return Device(
        name=name,
        link=link,
        port=number,
        driver=driver,
        bus=pci.at("uevent", "PCI_SLOT_NAME").text,
        state=state[1] if state else "",
        rate_gbps=float(rate[1]) if rate else None,
        netdev=port.at("gid_attrs", "ndevs", "0").text or next(iter(pci.at("net")), ""),
        roce_v2_gid=_roce_v2(port) if link is Link.ROCE else None,
    )


def _link(name: str, driver: str, layer: str) -> Link:
    """Return the kind of a device. EFA's link layer reads `Unspecified`, as may that of others."""
    if driver == "efa" or (not driver and layer == "Unspecified" and name.startswith("rdmap")):
        return Link.EFA
    return {"InfiniBand": Link.INFINIBAND, "Ethernet": Link.ROCE}.get(layer, Link.UNKNOWN)


def _roce_v2(port: Entry) -> int | None:
    """Choose the GID for RoCE v2: the first of an IPv4 address, else the first that is routable."""
    kinds = port.at("gid_attrs", "types")
    v2 = [
        (int(index), gid.text)
        for index, gid in port.at("gids").items()
        if kinds.at(index).text == "RoCE v2"
    ]
    ipv4 = "0000:0000:0000:0000:0000:ffff:"
    ranks = (
        (not gid.startswith(ipv4), gid.startswith("fe80:"), index)
        for index, gid in v2
        if gid.strip("0:")
    )
    return min(ranks, default=(True, True, None))[2]


# ---------------------------------------------------------------- how GPUs and RDMA devices are
# attached

_DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")
_NEAR = 2
"""At the first ones a NIC reaches a GPU's memory without the CPU (GPUDirect RDMA), if no bridge redirects it."""
_REDIRECTS = 0x0C
"""Of a bridge's ACS control register.

Requests and completions between devices below it go up to the CPU.
"""
_HEX = re.compile(r"[0-9a-f]{1,4}")
_MTUS = (4096, 2048, 1024, 512, 256)
_ROCE_HEADERS = 96
"""What Linux subtracts from the MTU of an interface to choose that of RoCE on it (iboe_get_mtu)."""


class _Place(NamedTuple):
    """Where a device is in the PCI tree, from its host bridge on (pci0000:15, 0000:15:01.0, …), and its files."""

    path: tuple[str, ...]
    files: Entry

    def number(self, name: str, most: int) -> float | None:
        """Read the number with which a file begins; None if it is above `most`, or not there.

        Not known.
        """
        match = re.match(r"[0-9]{1,3}(?:\.[0-9])?", self.files.at(name).text)
        return value if match and (value := float(match[0])) <= most else None

    def attached(self, kind: str, bus: str) -> NodeDevice:
        """Return what is known of the device here."""
        width, max_width = (self.number(f"{which}_link_width", 32) for which in ("current", "max"))
        speed, max_speed = (self.number(f"{which}_link_speed", 128) for which in ("current", "max"))
        numa = self.number("numa_node", 999)
        return NodeDevice(
            kind=kind,
            bus=bus,
            numa=None if numa is None else int(numa),
            width=int(width or 0) or None,
            max_width=int(max_width or 0) or None,
            speed=speed or None,
            max_speed=max_speed or None,
        )


_NOWHERE = _Place((), Entry())


def read_topology(
    answer: Answer, devices: Sequence[Device], gpus: Sequence[Gpu]
) -> dict[str, NodeDevice]:
    """Return how GPUs (``GPU 0``) and RDMA devices are attached."""
    places = _places(answer)
    mtus = _verbs_mtus(answer.all("ibv"))
    ports = {each.name: each for each in reversed(devices)}
    nics = {
        name: _nic(answer.sysfs, ports[name], places, mtus.get(name, {}))
        for name in sorted(ports, key=natural_order)
    }
    buses = {f"GPU {gpu.index}": gpu.bus.lower().removeprefix("0000") for gpu in gpus}
    if not gpus:  # 3D controllers and accelerators, but no VGA
        others = (
            bus
            for bus in sorted(places)
            if places[bus].files.at("class").text.startswith(("0x0302", "0x12"))
        )
        buses = {f"GPU {index}": bus for index, bus in enumerate(others)}
    return {**{name: _gpu(bus, nics, places) for name, bus in buses.items()}, **nics}


def _places(answer: Answer) -> dict[str, _Place]:
    """Return every PCI function that was reported, by its address."""
    found = {}
    for folder in answer.folders:
        names = folder.split("/")
        bridge = next((index for index, name in enumerate(names) if name.startswith("pci")), None)
        if names[0] == "devices" and bridge is not None:
            found[names[-1]] = _Place(tuple(names[bridge:]), answer.sysfs.at(*names))
    return found


def _verbs_mtus(lines: Iterable[str]) -> dict[str, dict[str, int]]:
    """Read ``ibv_devinfo``: device → `max_mtu` and `active_mtu` of its first port."""
    found: dict[str, dict[str, int]] = {}
    device = ""
    for match in re.finditer(r"hca_id:\s*(\S+)|(\w+_mtu):\s*([0-9]{3,5}) ", "\n".join(lines)):
        device = match[1] or device
        if match[2]:
            found.setdefault(device, {}).setdefault(match[2], int(match[3]))
    return found


def _nic(
    sysfs: Entry, device: Device, places: Mapping[str, _Place], mtus: Mapping[str, int]
) -> NodeDevice:
    files, mtu, most = (
        sysfs.at("class", "infiniband", device.name),
        mtus.get("active_mtu"),
        mtus.get("max_mtu"),
    )
    of_interface = sysfs.at("class", "net", device.netdev, "mtu").text
    if mtu is None and device.link is Link.ROCE and of_interface.isdecimal():
        mtu, most = (
            next((each for each in _MTUS if each + _ROCE_HEADERS <= int(of_interface)), None),
            _MTUS[0],
        )
    version = files.at("device", "driver", "module", "version").text
    return replace(
        places.get(device.bus, _NOWHERE).attached(device.link.value, device.bus),
        rate_gbps=device.rate_gbps,
        driver=f"{device.driver} {version}".strip(),
        firmware=files.at("fw_ver").text,
        gid=device.roce_v2_gid,
        mtu=mtu,
        max_mtu=most,
    )


def _gpu(bus: str, nics: Mapping[str, NodeDevice], places: Mapping[str, _Place]) -> NodeDevice:
    place = places.get(bus, _NOWHERE)
    gpu = place.attached("gpu", bus)
    found: dict[str, list[str]] = {each: [] for each in _DISTANCES}
    near = list[_Place]()
    for name, nic in nics.items():
        other = places.get(nic.bus, _NOWHERE)
        if place.path and other.path:
            how_far = distance(place.path, other.path, same_numa=gpu.numa == nic.numa)
            found[how_far].append(name)
            near += [other] if how_far in _DISTANCES[:_NEAR] else []
    between = {bus for other in near for bus in {*place.path} ^ {*other.path} if bus in places}
    controls = {bus: text for bus in sorted(between) if (text := places[bus].files.at("acs").text)}
    redirecting = tuple(
        bus for bus, text in controls.items() if _HEX.fullmatch(text) and int(text, 16) & _REDIRECTS
    )
    nearest = {how_far: tuple(names) for how_far, names in found.items() if names}
    return replace(gpu, nics=nearest, acs=redirecting if controls else None)


def distance(one: Sequence[str], other: Sequence[str], *, same_numa: bool) -> str:
    """Return how far two devices are from each other, by their paths, in the words of ``nvidia-smi topo -m``."""
    shared = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    )
    if shared < 2:
        return "PHB" if shared else "NODE" if same_numa else "SYS"
    # Below a switch there are its port to each device, and the device.
    return "PIX" if max(len(one), len(other)) - shared <= 2 else "PXB"


# ---------------------------------------------------------------- what fi_info prints

_FI_INFO = re.compile(
    (
        r"^provider: *(?P<provider>\S.*)(?:\n[ \t]+(?:domain: *(?P<name>.*)|type: "
        r"*FI_EP_(?P<endpoint>.*)|.*))*"
    ),
    re.MULTILINE,
)


def read_fi_info(lines: Iterable[str]) -> Iterator[Domain]:
    """Read the blocks of ``fi_info``, each starting with ``provider: NAME``; skip other lines."""
    for match in _FI_INFO.finditer("\n".join(lines)):
        provider, name, endpoint = ((text or "").strip() for text in match.groups())
        yield Domain(provider=provider, name=name, endpoint=endpoint.lower())


_KIB = 1024
_NUMBER = "([0-9]{1,18})$"
_FACTS: Mapping[str, tuple[str, str, Callable[[str], object]]] = {
    "hostname": ("uname", r"\S+ (\S+) \S+ \S+$", str),
    "kernel": ("uname", r"\S+ \S+ (\S+) \S+$", str),
    "identity": ("identity", "(.*)", str),
    "cpus": ("cpus", _NUMBER, int),
    "huge_pages": ("memory", f"HugePages_Total: +{_NUMBER}", int),
    "huge_pages_free": ("memory", f"HugePages_Free: +{_NUMBER}", int),
    "huge_page_size": ("memory", "Hugepagesize: +([0-9]{1,15}) kB", lambda text: int(text) * _KIB),
    "memlock": (
        "memlock",
        "(unlimited|[0-9]{1,15})$",
        lambda text: int(text) * _KIB if text[0] != "u" else UNLIMITED,
    ),
    "zone": ("placement.zone", "(.*)", str),
    "load": ("load", r"([0-9]{1,9}\.[0-9]+)?", float),
    "temporary": ("disk.path", "(.*)", str),
    "temporary_free": ("disk", ".* ([0-9]{1,15}) +[0-9]+% ", lambda text: int(text) * _KIB),
    "ssh_address": ("ssh", r"\S+ \S+ (\S+) \S+$|$", str),
    "verbs_there": (
        "uverbs",
        "(absent|[0-9]{1,9}) ?",
        lambda text: int(text.replace("absent", "0")),
    ),
    "verbs": ("uverbs", "absent|[0-9]+ ([0-9]{1,9})$", int),
    "fi_info_path": ("fi_info.path", "(.*)", str),
    "efa_installer": ("efa.installer", r"# EFA installer version: *(\S+)|", str),
    "nvidia_driver": ("nvidia.driver", r".*?Module(?: +for \S+)? +([0-9][0-9.]*)|", str),
}
"""Field of `Probe` → section of the answer, what one of its lines begins with, and how to read that."""
_SECTIONS = frozenset(
    {
        *(section for section, _, _ in _FACTS.values()),
        *(
            "probe",
            "end",
            "placement.type",
            "address",
            "address.bare",
            "route",
            "sys",
            "ibv",
            "fi_info",
            "fi_version",
        ),
        *(
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
        ),
    }
)
_TYPE = re.compile(r"(?:ml\.)?([a-z0-9-]+\.[a-z0-9-]+)")


def script() -> str:
    """Return the text of the probe, for hosts to which it is sent as ``sh -s -- ARGUMENTS``."""
    return (files("fabbench.hosts") / "probe.sh").read_text("utf-8")


def probe_arguments(
    programs: Sequence[str] = (), bin_dirs: Sequence[str] = (), required: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the probe's arguments: programs to look for, in `bin_dirs` before anywhere else.

    `required` are directories that must exist; what the programs load from them is reported.
    """
    options = (
        ("-p", programs), ("-d", bin_dirs), ("-u", PROGRAM_FOLDERS), ("-l", LIBRARY_FOLDERS), ("-e", required)
    )  # fmt: skip
    return tuple(word for option, values in options for value in values for word in (option, value))


def read_probe(lines: Iterable[str]) -> Probe:
    """Read what the probe printed. Never raises: `Probe.unread` lists what could not be read."""
    answer = Answer(lines, _SECTIONS)
    devices, gpus = tuple(read_devices(answer.sysfs)), tuple(_gpus(answer))
    busy = [line for line in answer.all("gpu.work") if line.strip().isdecimal()]
    versions = [line.partition(": ")[::2] for line in answer.all("fi_version")]
    settings = (line.partition("=") for line in answer.all("setting"))
    tools = (line.partition("\t") for line in answer.all("tool"))
    programs = dict(_programs(answer))
    found = {name: each for name, each in programs.items() if each}
    version, mpirun = read_mpi_version(answer.all("mpi")), found.get("mpirun")
    probe = Probe(
        whole=answer.first("probe") == "1" and answer.first("end") == "ok",
        instance_type=_instance_type(answer),
        serials={name: text for name, text in _serials(answer, gpus) if text},
        interfaces=read_interfaces(answer),
        default_interface=default_interface(answer),
        devices=devices,
        topology=read_topology(answer, devices, gpus),
        domains=tuple(dict.fromkeys(read_fi_info(answer.all("fi_info")))),
        fi_info=answer.result("fi_info"),
        libfabric=dict(reversed(versions))
        .get("libfabric", next((text for _, text in versions), ""))
        .strip(),
        efa_driver=answer.sysfs.at("module", "efa", "version").text,
        gpus=gpus,
        nvidia_smi=answer.result("gpu"),
        gpu_processes=len(busy) if answer.result("gpu.work").status == 0 else None,
        programs=found,
        missing=tuple(name for name, each in programs.items() if not each),
        absent=tuple(dict.fromkeys(answer.all("absent"))),
        variant_files=tuple(dict.fromkeys(answer.all("own"))),
        tools={name: path for name, _, path in tools if path},
        libraries=tuple(dict.fromkeys(line for line in answer.all("library") if "*" not in line)),
        mpi=Mpi(program=mpirun.path, kind=version[0], version=version[1])
        if version and mpirun
        else None,
        mpirun_version=answer.result("mpi"),
        settings={name: value for name, _, value in settings},
        files=tuple(answer.all("file")),
        **dict(_facts(answer)),
    )
    return replace(probe, unread=tuple(dict.fromkeys(answer.unread)))


def _facts(answer: Answer) -> Iterator[tuple[str, Any]]:
    for field, (section, pattern, read) in _FACTS.items():
        matches = [
            match for match in (re.match(pattern, line) for line in answer.all(section)) if match
        ]
        if text := next((match[1] for match in matches if match[1]), ""):
            yield field, read(text)
        elif answer.first(section) and not matches:
            answer.cannot_read(section, answer.first(section))


def _instance_type(answer: Answer) -> str:
    dmi = answer.sysfs.at("class", "dmi", "id")
    amazon = "Amazon EC2" in {dmi.at("board_vendor").text, dmi.at("sys_vendor").text}
    kind = _TYPE.fullmatch(
        dmi.at("product_name").text if amazon else answer.first("placement.type")
    )
    return kind[1] if kind else ""


def _serials(answer: Answer, gpus: Sequence[Gpu]) -> Iterator[tuple[str, str]]:
    machine, nics = (answer.sysfs.at("class", *path) for path in (("dmi", "id"), ("infiniband",)))
    yield from ((name, entry.text) for name, entry in machine.items() if name.endswith("_serial"))
    yield from ((name, entry.at("node_guid").text) for name, entry in nics.items())
    yield from ((f"GPU {gpu.index}", gpu.uuid) for gpu in gpus)


def _gpus(answer: Answer) -> Iterator[Gpu]:
    """Read nvidia-smi's lines: index, name, driver, bus, and the fabric if known."""
    for line in answer.all("gpu") if answer.result("gpu").status == 0 else ():
        index, *cells = (cell.strip() for cell in line.split(","))
        uuid = cells.pop(3) if any(cell.startswith("GPU-") for cell in cells[3:4]) else ""
        if not re.fullmatch("[0-9]{1,9}", index) or len(cells) not in {3, 4}:
            answer.cannot_read("GPU", line)
            continue
        fabric = next(
            (cell for cell in cells[3:] if cell.strip("[]") not in {"N/A", "Not Supported"}), ""
        )
        yield Gpu(
            index=int(index), name=cells[0], driver=cells[1], bus=cells[2], fabric=fabric, uuid=uuid
        )


def _programs(answer: Answer) -> Iterator[tuple[str, InstalledProgram | None]]:
    for line in answer.all("program"):
        name, path, size = (*line.split("\t"), "", "")[:3]
        yield (
            name,
            InstalledProgram(path=path, size=answer.number(f"size of {name}", size))
            if path
            else None,
        )


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
    """Read what ``mpirun --version`` prints: the kind and the version.

    None if it is not a known one.
    """
    text = "\n".join(lines)
    return next(
        ((kind, match[1]) for pattern, kind in _MPI if (match := pattern.search(text))), None
    )
