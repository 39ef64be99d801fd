"""The NIC counters of a host: the script, their values, what moved between two snapshots. Pure.

EFA counters: names as in the kernel's drivers/infiniband/hw/efa/efa_verbs.c. InfiniBand and RoCE:
as in the kernel's Documentation/ABI/stable/sysfs-class-infiniband, where port data is counted in
units of 4 octets; soft-RoCE's as in drivers/infiniband/sw/rxe/rxe_hw_counters.c, which counts
packets only.
"""

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from importlib.resources import files

from fabbench.model.patterns import lazy
from fabbench.model.units import RATE_UNITS

TX, RX = "tx_bytes", "rx_bytes"
TX_PACKETS, RX_PACKETS, RETRANSMITTED = "tx_packets", "rx_packets", "retrans_segs"


class NicKind(StrEnum):
    """The kind of network device, which determines where its counters are."""

    EFA = "efa"
    IB = "ib"
    ROCE = "roce"
    NETDEV = "netdev"
    TCP = "tcp"
    """All TCP connections of a host together.

    No NIC, but what their segments count is read with the others.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """The state of one network device, or of one port.

    What could not be read is absent, never 0.
    """

    name: str
    """As the kernel names it; port 2 of `mlx5_0` is `mlx5_0:2`."""
    kind: NicKind
    counters: Mapping[str, int]
    """Since the driver was loaded, in base units: `tx_bytes`, `rx_bytes`, `tx_packets`, `rx_packets`, and
    others by the kernel's own names."""
    link_rate: float | None = None
    """Bytes per second in one direction; None if not reported."""
    device: bool = True
    """Whether hardware is behind it (a virtual machine's counts), unlike a bridge or a veth."""
    up: bool | None = None
    """None if not reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All NICs of one host at one moment, without the loopback."""

    time: float | None
    """Seconds since the host booted; None if not reported."""
    nics: tuple[Nic, ...]
    unread: tuple[str, ...] = ()
    """Sentences: what in the text could not be understood."""


_TABLE = [
    line.split()
    for line in (files("fabbench.counters") / "counters.txt").read_text("utf-8").splitlines()[3:]
]
_PORT_COUNTERS = {file: name for file, name, *_ in _TABLE if "counters/" in file}
"""File below /sys/class/infiniband/DEVICE/ports/PORT → its counter. If a port has two files of one counter, the
first is used: some RoCE drivers have both."""
_COLUMNS = [name for file, name, *_ in _TABLE if file.startswith("net/dev/")]
_OCTETS, SERIOUS, LOST = (
    frozenset(row[column] for row in _TABLE if meaning in row)
    for meaning, column in (("octets", 0), ("serious", 1), ("lost", 1))
)

_PORT_FILES = [f'"$port/{name}"' for name in ("rate", "state", "link_layer", *_PORT_COUNTERS)]
_FILES_OF_PORT = " \\\n            ".join(textwrap.wrap(" ".join(_PORT_FILES), 88))

SNAPSHOT = f"""\
fabbench_counters() (
    cd "${{1:-/}}" || exit
    set -- proc/uptime
    for port in sys/class/infiniband/*/ports/*; do
        set -- "$@" "${{port%/ports/*}}/device/uevent" \\
            {_FILES_OF_PORT}
    done
    LC_ALL=C grep -sH "" "$@" proc/net/dev proc/net/snmp sys/class/net/*/device/uevent \\
        sys/class/net/*/operstate sys/class/net/*/speed proc/uptime 2>/dev/null || :
)
"""
"""A function for any POSIX shell.

``fabbench_counters [ROOT]`` prints ``FILE:TEXT`` for each line of files.

It starts one process. Files that are missing or fail to be read (EOPNOTSUPP, EINVAL) are left out.
Ports are read one after another: EFA's driver queries the device for all counters of a port at once
and caches them for 10 ms. Interfaces are read from /proc/net/dev, which belongs to the reader's own
network namespace, while /sys may belong to another. ROOT is the directory that holds `sys` and
`proc`.
"""


_FILE = lazy(
    r"sys/class/(infiniband/[^/:]+(?:/ports/[0-9]{1,9})?|net/[^/:]+)/([a-z_]+(?:/[a-z_]\w*)?):(.*)",
    re.ASCII,
)
_STATISTICS = lazy(r"proc/net/dev:\s*([^\s:|]+):((?:\s*\b[0-9]{1,19}\b){16})\s*", re.ASCII)
_SEGMENTS = lazy(
    r"proc/net/snmp:(?:Tcp:(?: -?\d{1,19}){10} (\d{1,19}) (\d{1,19})(?: .*)?|.*)", re.ASCII
)
_HEADING = lazy(r"(?:proc/net/dev:.*\|.*\|.*)?")
_UPTIME = lazy(r"proc/uptime:([0-9]{1,12}(?:\.[0-9]{1,9})?)(?:\s.*)?", re.ASCII)
_NUMBER = lazy(r"[0-9]{1,19}", re.ASCII)
_RATE = lazy(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec\b.*", re.ASCII)
_EFA = lazy(r"(?i)\bDRIVER=efa(?!\S)|\bPCI_ID=1D0F:EFA")
_SATURATED = 2**32 - 1


def read_snapshot(lines: Iterable[str]) -> Snapshot:
    """Read what `SNAPSHOT` printed. Never raises.

    Truncated text yields what came before the break.
    """
    stamps, unread = list[float](), list[str]()
    folders: dict[str, dict[str, str]] = {}
    statistics: dict[str, dict[str, int]] = {}
    segments: dict[str, int] = {}
    for line in lines:
        text = line.rstrip("\r\n")
        if match := _FILE.fullmatch(text):
            known = folders.setdefault(match[1], {})
            known[match[2]] = f"{known.get(match[2], '')} {match[3]}".strip()
        elif match := _STATISTICS.fullmatch(text):
            cells = zip(_COLUMNS, match[2].split(), strict=True)
            statistics[match[1]] = {column: int(cell) for column, cell in cells if column != "-"}
        elif match := _UPTIME.fullmatch(text):
            stamps.append(float(match[1]))
        elif match := _SEGMENTS.fullmatch(text):
            segments.update(
                {TX_PACKETS: int(match[1]), RETRANSMITTED: int(match[2])} if match[1] else {}
            )
        elif not _HEADING.fullmatch(text):
            unread.append(f"Not understood: {text}")
    if len(stamps) < 2:
        unread.append("The snapshot breaks off.")
    tcp = [Nic(name="TCP", kind=NicKind.TCP, counters=segments)] if segments else []
    nics = (*_ports(folders, unread), *_interfaces(folders, statistics), *tcp)
    time = sum(stamps) / len(stamps) if stamps else None
    return Snapshot(time=time, nics=nics, unread=tuple(sentence[:200] for sentence in unread[:20]))


def _ports(folders: Mapping[str, Mapping[str, str]], unread: list[str]) -> Iterator[Nic]:
    for folder, texts in folders.items():
        _, device, *port = folder.split("/")
        if "ports" not in port:
            continue
        name = device if port[1] == "1" else f"{device}:{port[1]}"
        layer = texts.get("link_layer", "not reported")
        efa = _EFA.search(folders.get(f"infiniband/{device}", {}).get("device/uevent", ""))
        kind = (
            NicKind.EFA if efa else {"InfiniBand": NicKind.IB, "Ethernet": NicKind.ROCE}.get(layer)
        )
        if kind is None:
            unread.append(
                f"{name} is neither EFA nor InfiniBand nor Ethernet (link layer: {layer})."
            )
            continue
        rate = _RATE.fullmatch(texts.get("rate", ""))
        yield Nic(
            name=name,
            kind=kind,
            counters=_counters(name, texts, unread),
            link_rate=float(rate[1]) * RATE_UNITS["Gb/s"] if rate else None,
            up=texts["state"].endswith("ACTIVE") if "state" in texts else None,
        )


def _counters(name: str, texts: Mapping[str, str], unread: list[str]) -> dict[str, int]:
    counters: dict[str, int] = {}
    for file, counter in _PORT_COUNTERS.items():
        text = texts.get(file)
        if text is None or counter in counters:
            continue
        if not _NUMBER.fullmatch(text):
            unread.append(f"{name}: {file} is not a counter: {text}")
        elif file in _OCTETS and int(text) == _SATURATED:
            unread.append(f"{name}: {file} is a 32-bit counter at its maximum.")
        else:
            counters[counter] = int(text) * (4 if file in _OCTETS else 1)
    return counters


def _interfaces(
    folders: Mapping[str, Mapping[str, str]], statistics: Mapping[str, Mapping[str, int]]
) -> Iterator[Nic]:
    for name, counters in statistics.items():
        texts = folders.get(f"net/{name}", {})
        if name == "lo":
            continue
        speed = texts.get("speed", "")
        megabits = int(speed) if _NUMBER.fullmatch(speed) else 0
        yield Nic(
            name=name,
            kind=NicKind.NETDEV,
            counters=counters,
            # Drivers that do not know their speed report -1, 0, or -1 as an unsigned number.
            link_rate=megabits * RATE_UNITS["Mb/s"] if 0 < megabits < _SATURATED else None,
            device="device/uevent" in texts,
            up={"up": True, "down": False}.get(texts.get("operstate", "")),
        )


KINDS = {
    "efa": NicKind.EFA,
    "ib": NicKind.IB,
    "roce": NicKind.ROCE,
    "tcp": NicKind.NETDEV,
    "ofi-tcp": NicKind.NETDEV,
}
"""Fabric → the NICs that carry it; none for one whose counters are not read here."""
_FAMILIES: Mapping[str, tuple[str, str]] = {
    "send/recv": ("send_bytes", "recv_bytes"),
    "rdma-write": ("rdma_write_bytes", "rdma_write_recv_bytes"),
    "rdma-read": ("rdma_read_bytes", "rdma_read_resp_bytes"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NicTraffic(Nic):
    """What one NIC moved: `counters` is by how much each grew.

    What is not known is absent, never 0.
    """

    unreadable: str = ""
    """A sentence, if the counters do not show how many bytes it moved."""

    @property
    def tx(self) -> int | None:
        """Bytes sent, including protocol overhead."""
        return self.counters.get(TX)

    @property
    def rx(self) -> int | None:
        """Bytes received, including protocol overhead."""
        return self.counters.get(RX)

    @property
    def total(self) -> int:
        """Bytes in both directions, as far as known."""
        return (self.tx or 0) + (self.rx or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What the NICs of one host moved."""

    seconds: float | None
    """None if not known; then there are no rates."""
    nics: tuple[NicTraffic, ...]

    @property
    def total(self) -> int:
        """Bytes in both directions over all NICs, as far as known."""
        return sum(nic.total for nic in self.nics)

    def rate(self, count: float | None) -> float | None:
        """Convert a number of bytes to bytes per second."""
        return count / self.seconds if count is not None and self.seconds else None

    def families(self) -> dict[str, int]:
        """Bytes of EFA's families of operations, the largest first; empty if no NIC counts them.

        `rdma-write` with NCCL's RDMA protocol (p5 and later), `send/recv` and `rdma-read` on p4d.
        """
        known = {
            family: [
                nic.counters[name] for nic in self.nics for name in files if name in nic.counters
            ]
            for family, files in _FAMILIES.items()
        }
        sums = {family: sum(counts) for family, counts in known.items() if counts}
        return dict(sorted(sums.items(), key=lambda item: -item[1]))


def difference(before: Snapshot, after: Snapshot) -> Traffic:
    """Subtract two snapshots of one host.

    A NIC that is in only one of them, or has a counter that went backwards (its driver was
    reloaded, the counter was cleared or wrapped), is listed as unreadable.
    """
    seconds = (
        after.time - before.time if after.time is not None and before.time is not None else None
    )
    restarted = "The host was restarted." if seconds is not None and seconds < 0 else ""
    earlier = {(nic.kind, nic.name): nic for nic in before.nics}
    later = {(nic.kind, nic.name): nic for nic in after.nics}
    nics = [_nic(earlier.get(key), nic, restarted) for key, nic in later.items()]
    removed = restarted or "It was present before, and missing after."
    nics += [_moved(nic, {}, removed) for key, nic in earlier.items() if key not in later]
    return Traffic(seconds=seconds if seconds and seconds > 0 else None, nics=tuple(nics))


def _nic(before: Nic | None, after: Nic, restarted: str) -> NicTraffic:
    if before is None or restarted:
        return _moved(after, {}, restarted or "It was missing before.")
    was, now = before.counters, after.counters
    moved = {name: count - was[name] for name, count in now.items() if name in was}
    backwards = next((name for name, count in moved.items() if count < 0), None)
    if backwards:
        return _moved(
            after, {}, f"{backwards} went backwards, from {was[backwards]} to {now[backwards]}."
        )
    if before.up and after.up is False:  # some drivers do not count it
        moved["link_downed"] = max(1, moved.get("link_downed", 0))
    return _moved(
        after, moved, "" if {TX, RX, RETRANSMITTED} & moved.keys() else "It has no byte counters."
    )


def _moved(nic: Nic, moved: Mapping[str, int], unreadable: str) -> NicTraffic:
    known = {each.name: getattr(nic, each.name) for each in fields(nic)}
    return NicTraffic(**{**known, "counters": moved}, unreadable=unreadable)


# ---------------------------------------------------------------- which NICs carry a fabric


def of_fabric(
    traffic: Traffic, fabric: str, *, chosen: Collection[str] = (), expected: int | None = None
) -> Traffic:
    """Keep the NICs of a fabric.

    `chosen` names those that were requested, possibly as libfabric domains (`rdmap16s27-rdm`).
    Without it, all ports of the fabric's kind are kept except those that are down, and of plain
    interfaces the busiest and those that moved at least half as much. `expected` is how many of
    them this host was to use, if that is known: only so many are kept, the busiest ones.
    """
    nics = [nic for nic in traffic.nics if nic.kind is KINDS.get(fabric)]
    if chosen:
        requested = {name.removesuffix("-rdm").removesuffix("-dgrm") for name in chosen}
        nics = [nic for nic in nics if nic.name in requested]
    elif KINDS.get(fabric) is NicKind.NETDEV:
        moving = [nic for nic in nics if nic.total]
        # Bridges and veths count the same data a second time.
        moving = [nic for nic in moving if nic.device] or moving
        nics = [nic for nic in moving if 2 * nic.total >= max(each.total for each in moving)]
    else:
        nics = [nic for nic in nics if nic.up is not False or any(nic.counters.values())]
    if expected is not None and len(nics) > expected > 0:
        kept = sorted(nics, key=lambda nic: -nic.total)[:expected]
        nics = [nic for nic in nics if nic in kept]
    return replace(traffic, nics=tuple(nics))
