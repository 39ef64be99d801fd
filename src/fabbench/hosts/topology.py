"""How GPUs and RDMA devices are attached: NUMA nodes, PCIe links, and how far GPUs are from NICs. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple

from fabbench.hosts.probe_result import Answer, Device, Entry, Gpu, Link
from fabbench.model.hosts import NodeDevice

_DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")
_NEAR = 2
"""At the first ones a NIC reaches a GPU's memory without the CPU (GPUDirect RDMA), if no bridge redirects it."""
_REDIRECTS = 0x0C
"""Of a bridge's ACS control register: requests and completions between devices below it go up to the CPU."""
_HEX = re.compile(r"[0-9a-f]{1,4}")
_MTUS = (4096, 2048, 1024, 512, 256)
_ROCE_HEADERS = 96
"""What Linux subtracts from the MTU of an interface to choose that of RoCE on it (iboe_get_mtu)."""


class _Place(NamedTuple):
    """Where a device is in the PCI tree, from its host bridge on (pci0000:15, 0000:15:01.0, …), and its files."""

    path: tuple[str, ...]
    files: Entry

    def number(self, name: str, most: int) -> float | None:
        """Read the number with which a file begins; None if it is above `most`, or not there: not known."""
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


def read_topology(answer: Answer, devices: Sequence[Device], gpus: Sequence[Gpu]) -> dict[str, NodeDevice]:
    """Return how GPUs (``GPU 0``) and RDMA devices are attached."""
    places = _places(answer)
    mtus = _verbs_mtus(answer.all("ibv"))
    nics = {each.name: _nic(answer.sysfs, each, places, mtus.get(each.name, {})) for each in reversed(devices)}
    buses = {f"GPU {gpu.index}": gpu.bus.lower().removeprefix("0000") for gpu in gpus}
    if not gpus:  # 3D controllers and accelerators, but no VGA
        others = (bus for bus in sorted(places) if places[bus].files.at("class").text.startswith(("0x0302", "0x12")))
        buses = {f"GPU {index}": bus for index, bus in enumerate(others)}
    return {**{name: _gpu(bus, nics, places) for name, bus in buses.items()}, **dict(reversed(nics.items()))}


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
    for line in lines:
        key, _, value = line.strip().partition(":")
        if key == "hca_id":
            device = value.strip()
        elif match := re.match(r"\s*([0-9]{3,5}) ", value):
            found.setdefault(device, {}).setdefault(key, int(match[1]))
    return found


def _nic(sysfs: Entry, device: Device, places: Mapping[str, _Place], mtus: Mapping[str, int]) -> NodeDevice:
    files, mtu, most = sysfs.at("class", "infiniband", device.name), mtus.get("active_mtu"), mtus.get("max_mtu")
    of_interface = sysfs.at("class", "net", device.netdev, "mtu").text
    if mtu is None and device.link is Link.ROCE and of_interface.isdecimal():
        mtu, most = next((each for each in _MTUS if each + _ROCE_HEADERS <= int(of_interface)), None), _MTUS[0]
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
    redirecting = tuple(bus for bus, text in controls.items() if _HEX.fullmatch(text) and int(text, 16) & _REDIRECTS)
    nearest = {how_far: tuple(names) for how_far, names in found.items() if names}
    return replace(gpu, nics=nearest, acs=redirecting if controls else None)


def distance(one: Sequence[str], other: Sequence[str], *, same_numa: bool) -> str:
    """Return how far two devices are from each other, by their paths, in the words of ``nvidia-smi topo -m``."""
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    if shared < 2:
        return "PHB" if shared else "NODE" if same_numa else "SYS"
    # Below a switch there are its port to each device, and the device.
    return "PIX" if max(len(one), len(other)) - shared <= 2 else "PXB"
