"""RDMA devices, as the probe lists them from ``/sys/class/infiniband``."""

import re
from collections.abc import Iterable, Iterator

from fabbench.hosts.found import Device, Link

_LINE = re.compile(r"(\S+) (\d+) (\w+) ?(.*)")
_RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/sec")
_STATE = re.compile(r"\d+: (\w+)")
_IPV4 = "0000:0000:0000:0000:0000:ffff:"
"""How the GID of an IPv4 address begins."""
_LAYERS = {"InfiniBand": Link.INFINIBAND, "Ethernet": Link.ROCE}


class _Port:
    """What the lines say of one port, or of the device itself (port 0)."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.gids: list[tuple[int, str, str]] = []


def read_devices(lines: Iterable[str], unread: list[str]) -> Iterator[Device]:
    """Read the probe's lines ``NAME PORT KEY VALUE``: one device for each port. Adds to `unread`."""
    devices: dict[str, dict[int, _Port]] = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None or not _take(devices.setdefault(match[1], {}), match):
            unread.append(f"RDMA device: {line}")
    for name, ports in devices.items():
        own = ports.pop(0, _Port())
        for number, port in sorted(ports.items()) or [(1, _Port())]:
            yield _one(name, number, own.values | port.values, port.gids)


def _take(ports: dict[int, _Port], match: re.Match[str]) -> bool:
    port = ports.setdefault(int(match[2]), _Port())
    if match[3] != "gid":
        port.values.setdefault(match[3], match[4].strip())
        return True
    index, _, rest = match[4].partition(" ")
    if not index.isdecimal():
        return False
    gid, _, kind = rest.partition(" ")
    port.gids.append((int(index), gid, kind.strip()))
    return True


def _one(name: str, port: int, values: dict[str, str], gids: list[tuple[int, str, str]]) -> Device:
    link = _link(name, values.get("driver", ""), values.get("link_layer", ""))
    rate = _RATE.match(values.get("rate", ""))
    state = _STATE.match(values.get("state", ""))
    return Device(
        name=name,
        link=link,
        port=port,
        driver=values.get("driver", ""),
        bus=values.get("bus", ""),
        state=state[1] if state else "",
        rate_gbps=float(rate[1]) if rate else None,
        netdev=values.get("netdev", ""),
        roce_v2_gid=_roce_v2(gids) if link is Link.ROCE else None,
        p2p=values.get("p2p", ""),
    )


def _link(name: str, driver: str, layer: str) -> Link:
    """Say what a device is. EFA's link layer reads `Unspecified`, and so may that of others."""
    if driver == "efa" or (not driver and layer == "Unspecified" and name.startswith("rdmap")):
        return Link.EFA
    return _LAYERS.get(layer, Link.UNKNOWN)


def _roce_v2(gids: list[tuple[int, str, str]]) -> int | None:
    """Choose the GID for RoCE v2: the first of an IPv4 address, else the first that is routable."""
    second = [(index, gid) for index, gid, kind in gids if kind == "RoCE v2" and gid.strip("0:")]
    ranks = ((not gid.startswith(_IPV4), gid.startswith("fe80:"), index) for index, gid in second)
    return min(ranks, default=(True, True, None))[2]
