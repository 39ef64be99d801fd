"""The NIC counters of a host: the script, their values, what moved between two snapshots.

EFA counters: names as in the kernel's drivers/infiniband/hw/efa/efa_verbs.c. InfiniBand and RoCE:
as in the kernel's Documentation/ABI/stable/sysfs-class-infiniband, where port data is counted in
units of 4 octets; soft-RoCE's as in drivers/infiniband/sw/rxe/rxe_hw_counters.c, which counts
packets only; Omni-Path's as in drivers/infiniband/hw/hfi1/chip.c. Slingshot: as in HPE's
shs-cxi-driver.
"""

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from enum import StrEnum
from statistics import fmean
from typing import TypeAlias

from fabbench.counters.vocabulary import (
    RETRANSMITTED,
    RX,
    TX,
    TX_PACKETS,
    named,
    net_columns,
    port_files,
    resolved,
    telemetry_files,
)
from fabbench.model.fabrics import NICS
from fabbench.model.mappings import map_values, without_none
from fabbench.model.patterns import lazy
from fabbench.model.units import RATE_UNITS, parse_whole
from fabbench.model.values import frozen


class NicKind(StrEnum):
    """The kind of network device, which determines where its counters are."""

    EFA = "efa"
    IB = "ib"
    ROCE = "roce"
    CXI = "cxi"
    NETDEV = "netdev"
    LOOPBACK = "loopback"
    """What a host sends to itself, which passes no NIC."""
    TCP = "tcp"
    """All TCP connections of a host together.

    No NIC, but what their segments count is read with the others.
    """


@frozen
class Nic:
    """The state of one network device, or of one port.

    What could not be read is absent, never 0.
    """

    name: str
    """As the kernel names it; port 2 of `mlx5_0` is `mlx5_0:2`."""
    kind: NicKind
    counters: Mapping[str, int]
    """Since the driver was loaded, in base units.

    `tx_bytes`, `rx_bytes`, `tx_packets`, `rx_packets`, and others by the kernel's own names.
    """
    link_rate: float | None = None
    """Bytes per second in one direction; None if not reported."""
    device: bool = True
    """Whether hardware is behind it (a virtual machine's counts), unlike a bridge or a veth."""
    up: bool | None = None
    """None if not reported."""


@frozen
class Snapshot:
    """All NICs of one host at one moment; without the loopback, unless it was asked for."""

    time: float | None
    """Seconds since the host booted; None if not reported."""
    nics: tuple[Nic, ...]
    unread: tuple[str, ...] = ()
    """Sentences: what in the text could not be understood."""


_PORT_FILES = [f'"$port/{name}"' for name in ("rate", "state", "link_layer", *port_files())]
_FILES_OF_PORT = " \\\n            ".join(textwrap.wrap(" ".join(_PORT_FILES), 88))
_TELEMETRY = " \\\n            ".join(textwrap.wrap(" ".join(telemetry_files()), 88))
_COUNTER_FOLDERS = frozenset({"counters", "hw_counters", "ethtool", "telemetry"})

SNAPSHOT = f"""\
fabbench_counters() (
    cd "${{1:-/}}" || exit
    set -- proc/uptime
    for port in sys/class/infiniband/*/ports/*; do
        set -- "$@" "${{port%/ports/*}}/device/uevent" \\
            {_FILES_OF_PORT}
        for interface in "${{port%/ports/*}}"/device/net/*; do
            ethtool -S "${{interface##*/}}" 2>/dev/null |
                LC_ALL=C sed -n "s|^ *\\([a-z0-9_]*pause[a-z0-9_]*\\): |$port/ethtool/\\1:|p
                    s|^ *\\([a-z0-9_]*p[fr][ci][a-z0-9_]*\\): |$port/ethtool/\\1:|p
                    s|^ *\\([a-z0-9_]*discards*[a-z0-9_]*\\): |$port/ethtool/\\1:|p" || :
        done
    done
    for device in sys/class/cxi/*/device; do
        [ -d "$device" ] || continue
        port=${{device%/device}}
        port=sys/class/infiniband/${{port##*/}}/ports/1
        echo "$port/link_layer:Slingshot"
        (cd "$device/telemetry" 2>/dev/null && LC_ALL=C grep -sH "" {_TELEMETRY} \\
            ../port/link ../port/speed ../port/0/link/speed) | LC_ALL=C sed -n "
            s|^\\.\\./port/link:up.*|$port/state:4: ACTIVE|p
            s|^\\.\\./port/link:down.*|$port/state:1: DOWN|p
            s|^\\.\\./port/.*speed:[^0-9]*\\([0-9]*\\)G.*|$port/rate:\\1 Gb/sec|p
            s|^\\([a-z0-9_]*:[0-9]*\\)@.*|$port/telemetry/\\1|p" || :
    done
    LC_ALL=C grep -sH "" "$@" proc/net/dev proc/net/snmp proc/net/netstat \\
        sys/class/net/*/device/uevent sys/class/net/*/operstate sys/class/net/*/speed \\
        proc/uptime 2>/dev/null || :
)
"""
"""A function for any POSIX shell.

``fabbench_counters [ROOT]`` prints ``FILE:TEXT`` for each line of files.

It starts one process, and for each interface of an RDMA device another, if there is `ethtool`: what
the network paused (PFC) is nowhere else. A NIC of Slingshot is written as a port of InfiniBand;
its counters have their time behind them: 12@1700000000.123. Files that are missing or fail to be
read (EOPNOTSUPP, EINVAL) are left out. Ports are read one after another: EFA's driver queries the
device for all counters of a port at once and caches them for 10 ms. Interfaces are read from
/proc/net/dev, which belongs to the reader's own network namespace, while /sys may belong to
another. ROOT is the directory that holds `sys` and `proc`.
"""


_FILE = lazy(
    r"sys/class/(infiniband/[^/:]+(?:/ports/[0-9]{1,9})?|net/[^/:]+)/([a-z_]+(?:/[A-Za-z_]\w*)?):(.*)",
    re.ASCII,
)
_STATISTICS = lazy(r"proc/net/dev:\s*([^\s:|]+):((?:\s*\b[0-9]{1,19}\b){16})\s*", re.ASCII)
_SEGMENTS = lazy(
    r"proc/net/snmp:(?:Tcp:(?: -?\d{1,19}){10} (\d{1,19}) (\d{1,19})(?: .*)?|.*)", re.ASCII
)
_IP_EXT = lazy(r"proc/net/netstat:IpExt:((?: -?\w{1,40}){1,100})", re.ASCII)
"""Names, and below them numbers."""
_SAID = lazy(r"fabbench: (.*)")  # A sentence of remote/job.sh
_HEADING = lazy(r"(?:proc/net/(?:dev:.*\|.*\||netstat:).*)?")
_UPTIME = lazy(r"proc/uptime:([0-9]{1,12}(?:\.[0-9]{1,9})?)(?:\s.*)?", re.ASCII)
_RATE = lazy(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec\b.*", re.ASCII)
_EFA = lazy(r"(?i)\bDRIVER=efa(?!\S)|\bPCI_ID=1D0F:EFA")
_PORT = lazy(r"infiniband/([^/]+)/ports/(.+)")
_SATURATED = 2**32 - 1
"""The most that 32 bits hold: a counter that stopped there, or a speed of -1."""
_NO_LAYER = "not reported"
_KIND_OF_LAYER = {
    "InfiniBand": NicKind.IB,
    "Ethernet": NicKind.ROCE,
    "Slingshot": NicKind.CXI,
}


def read_snapshot(lines: Iterable[str], *, loopback: bool = False) -> Snapshot:
    """Read what `SNAPSHOT` printed, with the loopback if it is wanted.

    Never raises; truncated text yields what came before the break.
    """
    read = _SnapshotLines(loopback=loopback)
    for line in lines:
        read.take(line.rstrip("\r\n"))
    return read.snapshot()


class _SnapshotLines:
    """The lines of a snapshot, sorted by what they are about."""

    def __init__(self, *, loopback: bool) -> None:
        self._loopback = loopback
        self.uptimes: list[float] = []
        """Seconds since the host booted, first and last in the text."""
        self.unread: list[str] = []
        """Sentences: what could not be read."""
        self.folders: dict[str, dict[str, str]] = {}
        """Folder below sys/class → file in it → its text."""
        self.statistics: dict[str, dict[str, int]] = {}
        """Interface → its counters."""
        self.segments: dict[str, int] = {}
        """What TCP counts, by our names."""
        self.ip_rows: list[list[str]] = []
        """IP's counters as cells: a row of names, and one of numbers."""

    def take(self, text: str) -> None:
        """Read one line, without its newline."""
        adds: Mapping[re.Pattern[str], Callable[..., None]] = {
            _FILE: self._add_file,
            _STATISTICS: self._add_interface,
            _UPTIME: self._add_uptime,
            _SEGMENTS: self._add_segments,
            _IP_EXT: self._add_ip_row,
            _HEADING: self._skip,
            _SAID: self.unread.append,
        }
        for pattern, add in adds.items():
            match = pattern.fullmatch(text)
            if match is not None:
                add(*match.groups())
                return
        self.unread.append(f"Not understood: {text}")

    def _skip(self) -> None:
        """Leave out a line of headings."""

    def _add_uptime(self, seconds: str) -> None:
        self.uptimes.append(float(seconds))

    def _add_ip_row(self, cells: str) -> None:
        self.ip_rows.append(cells.split())

    def _add_file(self, folder: str, name: str, text: str) -> None:
        # A file of several lines is joined by blanks.
        texts = self.folders.setdefault(folder, {})
        before = texts.get(name, "")
        texts[name] = f"{before} {text}".strip()

    def _add_interface(self, name: str, cells: str) -> None:
        # Columns that are not read have no name.
        counts = map(int, cells.split())
        columns = zip(net_columns(), counts, strict=True)
        self.statistics[name] = {column: count for column, count in columns if column}

    def _add_segments(self, sent: str | None, retransmitted: str | None) -> None:
        # None: the line is of another protocol, or has the names of the columns.
        if sent is not None and retransmitted is not None:
            self.segments[TX_PACKETS] = int(sent)
            self.segments[RETRANSMITTED] = int(retransmitted)

    def snapshot(self) -> Snapshot:
        """Return what the lines say together."""
        if len(self.uptimes) < 2:  # the script prints the time first and last
            self.unread.append("The snapshot breaks off.")
        nics = [*self._ports(), *self._interfaces()]
        if self.segments:
            counters = {**self._ip_packets(), **self.segments}
            nics.append(Nic(name="TCP", kind=NicKind.TCP, counters=counters))
        # As much as a reader takes in, whatever the host has printed.
        first = self.unread[:20]
        unread = tuple(sentence[:200] for sentence in first)
        time = fmean(self.uptimes) if self.uptimes else None
        return Snapshot(time=time, nics=tuple(nics), unread=unread)

    def _ip_packets(self) -> dict[str, int]:
        """Return what IP counted of packets, and of those that a switch marked."""
        if len(self.ip_rows) != 2:  # a row of names, and one of numbers
            return {}
        names, numbers = self.ip_rows
        counts = dict(zip(names, map(parse_whole, numbers), strict=False))
        return resolved(without_none(counts))

    def _ports(self) -> Iterator[Nic]:
        # Each port of an RDMA device; those that carry none of our fabrics are reported as unread.
        for folder, texts in self.folders.items():
            port = _PORT.fullmatch(folder)
            if port is None:
                continue
            device, number = port.groups()
            name = device if number == "1" else f"{device}:{number}"
            kind = self._kind_of_port(device, texts)
            if kind is None:
                layer = texts.get("link_layer", _NO_LAYER)
                problem = f"neither EFA nor InfiniBand nor Ethernet (link layer: {layer})"
                self.unread.append(f"{name} is {problem}.")
                continue
            yield Nic(
                name=name,
                kind=kind,
                counters=self._port_counters(name, texts),
                link_rate=_link_rate(texts.get("rate", "")),
                # As in "4: ACTIVE"; None: not reported.
                up=texts["state"].endswith("ACTIVE") if "state" in texts else None,
            )

    def _kind_of_port(self, device: str, texts: Mapping[str, str]) -> NicKind | None:
        # EFA is known by its driver or PCI id, the others by the link layer of the port.
        described = self.folders.get(f"infiniband/{device}", {})
        if _EFA.search(described.get("device/uevent", "")):
            return NicKind.EFA
        return _KIND_OF_LAYER.get(texts.get("link_layer", _NO_LAYER))

    def _port_counters(self, name: str, texts: Mapping[str, str]) -> dict[str, int]:
        counted: dict[str, int] = {}
        for file, text in texts.items():
            folder, _, counter = file.rpartition("/")
            if folder not in _COUNTER_FOLDERS:
                continue
            count = parse_whole(text)
            if count is None:
                self.unread.append(f"{name}: {file} is not a counter: {text}")
            # Counters of 4-octet words may have 32 bits: at their maximum they count no further.
            elif count == _SATURATED and _is_in_words(counter):
                self.unread.append(f"{name}: {file} is a 32-bit counter at its maximum.")
            else:
                counted[counter] = count
        grown = (counter for counter, count in counted.items() if count)
        unknown = (counter for counter in grown if named(counter) is None)
        why = "is not judged: no driver is known to have it"
        self.unread += [f"{name}: {counter} {why}." for counter in unknown]
        return resolved(counted)

    def _interfaces(self) -> Iterator[Nic]:
        # Each network interface.
        for name, counters in self.statistics.items():
            kind = NicKind.LOOPBACK if name == "lo" else NicKind.NETDEV
            if kind is NicKind.LOOPBACK and not self._loopback:
                continue
            texts = self.folders.get(f"net/{name}", {})
            yield Nic(
                name=name,
                kind=kind,
                counters=counters,
                link_rate=_interface_rate(texts.get("speed", "")),
                device="device/uevent" in texts,
                up={"up": True, "down": False}.get(texts.get("operstate", "")),
            )


def _is_in_words(counter: str) -> bool:
    """Return whether a counter is in units of 4 octets: old devices count with 32 bits."""
    known = named(counter)
    return known is not None and known.unit > 1


def _link_rate(text: str) -> float | None:
    """Return bytes per second; None if the port's `rate` is not one."""
    rate = _RATE.fullmatch(text)
    return float(rate[1]) * RATE_UNITS["Gb/s"] if rate else None


def _interface_rate(speed: str) -> float | None:
    """Return bytes per second; None if the interface's `speed` is not one.

    Drivers that do not know it report -1, 0, or -1 as an unsigned number.
    """
    megabits = parse_whole(speed) or 0
    return megabits * RATE_UNITS["Mb/s"] if 0 < megabits < _SATURATED else None


KINDS = map_values(NicKind, NICS)
"""Fabric → the NICs that carry it; none for one whose counters are not read here."""
_FAMILY_OF = {
    "send_bytes": "send/recv",
    "recv_bytes": "send/recv",
    "rdma_write_bytes": "rdma-write",
    "rdma_write_recv_bytes": "rdma-write",
    "rdma_read_bytes": "rdma-read",
    "rdma_read_resp_bytes": "rdma-read",
}
"""EFA's counters → the family of operations that moved the bytes."""


@frozen
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

    def plus(self, later: "NicTraffic") -> "NicTraffic":
        """Add what it moved at another time: the counters that both have."""
        moved = {
            name: count + later.counters[name]
            for name, count in self.counters.items()
            if name in later.counters  # else the sum is not known
        }
        return replace(self, counters=moved, unreadable=self.unreadable or later.unreadable)


@frozen
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
        moved: Counter[str] = Counter()
        for nic in self.nics:
            for name, family in _FAMILY_OF.items():
                if name in nic.counters:
                    moved[family] += nic.counters[name]
        return dict(moved.most_common())


Moved: TypeAlias = Mapping[str, Traffic]
"""Host → what its NICs moved."""
GONE = "It was present before, and missing after."


def difference(before: Snapshot, after: Snapshot) -> Traffic:
    """Subtract two snapshots of one host.

    A NIC that is in only one of them, or has a counter that went backwards (its driver was
    reloaded, the counter was cleared or wrapped), is listed as unreadable.
    """
    seconds = None
    if after.time is not None and before.time is not None:
        seconds = after.time - before.time
    # The time is that of the host since it started: it goes backwards only at a restart.
    restarted = "The host was restarted." if seconds is not None and seconds < 0 else ""
    why_not_before = restarted or "It was missing before."
    why_not_after = restarted or GONE
    earlier = _nics_by_name(before)
    later = _nics_by_name(after)
    nics: list[NicTraffic] = []
    for key, nic in later.items():
        was = earlier.pop(key, None)
        if was is None or restarted:
            nics.append(_unreadable(nic, why_not_before))
        else:
            nics.append(_traffic_between(was, nic))
    # What is left has no later one.
    nics += [_unreadable(nic, why_not_after) for nic in earlier.values()]
    known = seconds is not None and seconds > 0
    return Traffic(seconds=seconds if known else None, nics=tuple(nics))


def _nics_by_name(snapshot: Snapshot) -> dict[tuple[NicKind, str], Nic]:
    return {(nic.kind, nic.name): nic for nic in snapshot.nics}


def _traffic_between(before: Nic, after: Nic) -> NicTraffic:
    """Return by how much each counter of a NIC grew."""
    moved: dict[str, int] = {}
    for name, count in after.counters.items():
        was = before.counters.get(name)
        if was is None:  # by how much it grew is not known
            continue
        if count < was:
            return _unreadable(after, f"{name} went backwards, from {was} to {count}.")
        moved[name] = count - was
    if before.up and after.up is False:  # some drivers do not count that a link went down
        moved["link_downed"] = max(1, moved.get("link_downed", 0))
    # TCP's own counters are of segments, not of bytes: it is readable if these are there.
    counts_bytes = moved.keys() & {TX, RX, RETRANSMITTED}
    return _as_traffic(after, moved, unreadable="" if counts_bytes else "It has no byte counters.")


def _unreadable(nic: Nic, why: str) -> NicTraffic:
    return _as_traffic(nic, moved={}, unreadable=why)


def _as_traffic(nic: Nic, moved: Mapping[str, int], unreadable: str) -> NicTraffic:
    # The NIC as it is, with what its counters grew by in place of the counters.
    known = {each.name: getattr(nic, each.name) for each in fields(nic)}
    known["counters"] = moved
    return NicTraffic(**known, unreadable=unreadable)


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
    kind = KINDS.get(fabric)  # None, of which there is no NIC: its counters are not read here
    nics = [nic for nic in traffic.nics if nic.kind is kind]
    if chosen:
        nics = _chosen_by_name(nics, chosen)
    elif kind is NicKind.NETDEV:
        nics = _busiest_interfaces(nics)
    else:
        nics = [nic for nic in nics if _is_in_use(nic)]
    if expected is not None and len(nics) > expected > 0:
        busiest = sorted(nics, key=lambda nic: -nic.total)[:expected]
        nics = [nic for nic in nics if nic in busiest]
    return replace(traffic, nics=tuple(nics))


def _is_in_use(nic: NicTraffic) -> bool:
    # Of one that is down now, what it counted shows that it was up.
    return nic.up is not False or any(nic.counters.values())


def _chosen_by_name(nics: Iterable[NicTraffic], chosen: Collection[str]) -> list[NicTraffic]:
    # A libfabric domain has the name of its device, and the kind of endpoint.
    names = {name.removesuffix("-rdm").removesuffix("-dgrm") for name in chosen}
    return [nic for nic in nics if nic.name in names]


def _busiest_interfaces(nics: Iterable[NicTraffic]) -> list[NicTraffic]:
    """Return those that moved at least half as much as the busiest one."""
    moving = [nic for nic in nics if nic.total]
    # Bridges and veths count the same data a second time.
    moving = [nic for nic in moving if nic.device] or moving
    busiest = max((nic.total for nic in moving), default=0)
    return [nic for nic in moving if 2 * nic.total >= busiest]
