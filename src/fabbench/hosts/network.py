"""Network interfaces, as ``ip`` and /proc/net/route tell of them."""

import re
from collections.abc import Iterator, Mapping
from ipaddress import AddressValueError, IPv4Address

from fabbench.hosts.answer import Answer
from fabbench.hosts.found import Interface

_ADDRESS = re.compile(r"[0-9]+:\s+(\S+)\s+inet ([0-9.]+)(?: peer [0-9.]+)?(?:/([0-9]{1,2}))?(?:\s.*)?")
_LINK = re.compile(r"[0-9]+: ([^\s@:]+)(?:@\S+)?: <([^>]*)>.*")
_ROUTE = re.compile(
    r"(\S+)\s+([0-9A-F]{8})\s+[0-9A-F]{8}\s+([0-9A-F]{1,4})(?:\s+\d+){2}\s+(\d{1,9})\s+([0-9A-F]{8})\s.*"
)
_NETDEV = re.compile(r"(\S+) (\S+) (-?[0-9]{1,9}|-) (\S+)")
_UP, _GATEWAY = 1, 2
"""Flags of a route."""
_Route = tuple[str, int, int, int, int]
"""Interface, destination, mask, flags, metric."""


def read_interfaces(answer: Answer) -> tuple[Interface, ...]:
    """Give every interface, once for each of its addresses."""
    links = {match[1]: match[2].split(",") for match in map(_LINK.fullmatch, answer.all("link")) if match}
    netdevs = {match[1]: match for match in map(_NETDEV.fullmatch, answer.all("netdev")) if match}
    found = []
    named = set()
    for name, address, prefix in _addresses(answer):
        named.add(name)
        found.append(_one(name, links, netdevs, address=address, prefix=prefix))
    rest = [name for name in dict.fromkeys((*links, *netdevs)) if name not in named]
    return (*found, *(_one(name, links, netdevs) for name in rest))


def default_interface(answer: Answer) -> str:
    """Name the interface of the default route with the smallest metric; empty: there is none."""
    routes = (route for route in _routes(answer) if route[1] == route[2] == 0 and route[3] & _UP)
    return min(routes, key=lambda route: route[4], default=("",))[0]


def _one(
    name: str,
    links: Mapping[str, list[str]],
    netdevs: Mapping[str, re.Match[str]],
    *,
    address: str = "",
    prefix: int | None = None,
) -> Interface:
    up: bool | None = None
    speed, driver = 0, ""
    if netdev := netdevs.get(name):
        up = {"up": True, "down": False}.get(netdev[2])
        speed = int(netdev[3]) if netdev[3] != "-" else 0
        driver = netdev[4].removeprefix("-")
    if flags := links.get(name):
        up = "UP" in flags and "LOWER_UP" in flags
    speed_gbps = speed / 1000 if speed > 0 else None
    return Interface(name=name, address=address, prefix=prefix, up=up, speed_gbps=speed_gbps, driver=driver)


def _addresses(answer: Answer) -> Iterator[tuple[str, str, int | None]]:
    """Give interface, address, prefix: from ``ip``, else from the addresses alone and the routes."""
    if answer.ran("address").status == 0:
        for line in answer.all("address"):
            match = _ADDRESS.fullmatch(line)
            if match:
                yield match[1].partition("@")[0], match[2], int(match[3]) if match[3] else None
            else:
                answer.cannot_read("address", line)
        return
    for word in answer.first("address.bare").split():
        try:
            address = int(IPv4Address(word))
        except AddressValueError:
            continue
        near = [route for route in _routes(answer) if route[2] and address & route[2] == route[1]]
        best = max((route for route in near if not route[3] & _GATEWAY), key=lambda r: r[2], default=None)
        if best:
            yield best[0], word, best[2].bit_count()
        else:
            answer.cannot_read("the interface of the address", word)


def _routes(answer: Answer) -> Iterator[_Route]:
    for match in map(_ROUTE.fullmatch, answer.all("route")):
        if match:
            target, mask = (int.from_bytes(bytes.fromhex(match[i]), "little") for i in (2, 5))
            yield match[1], target, mask, int(match[3], 16), int(match[4])
