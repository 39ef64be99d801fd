"""The text of a snapshot → its values. Reads any text: what it does not understand it reports. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from fabbench.counters.snapshot import (
    PORT_COUNTERS,
    RX,
    RX_PACKETS,
    TX,
    TX_PACKETS,
    Kind,
    Nic,
    Snapshot,
)
from fabbench.units import RATE_UNITS

_PORT = re.compile(r"sys/class/infiniband/([^/:]+)/ports/([0-9]{1,9})/([a-z_]+(?:/\w+)?):(.*)", re.ASCII)
_DEVICE = re.compile(r"sys/class/infiniband/([^/:]+)/device/uevent:(.*)")
_INTERFACE = re.compile(r"sys/class/net/([^/:]+)/(operstate|speed|device/uevent):(.*)")
_STATISTICS = re.compile(r"proc/net/dev:\s*([^\s:|]+):(.*)")
_HEADING = re.compile(r"proc/net/dev:.*\|.*\|.*")
_UPTIME = re.compile(r"proc/uptime:([0-9]{1,12}(?:\.[0-9]{1,9})?)(?:\s.*)?", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,20}", re.ASCII)
_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec\b.*", re.ASCII)
_MOST_UNREAD = 20
_SATURATED = 2**32 - 1


@dataclass(slots=True)
class _Read:
    """What has been read so far."""

    stamps: list[float] = field(default_factory=list)
    devices: dict[str, dict[str, str]] = field(default_factory=dict)
    ports: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    interfaces: dict[str, dict[str, str]] = field(default_factory=dict)
    statistics: dict[str, dict[str, int]] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)

    def refuse(self, sentence: str) -> None:
        """Keep what could not be understood, of much of it the beginning."""
        if len(self.unread) < _MOST_UNREAD:
            self.unread.append(sentence[:200])


def read_snapshot(lines: Iterable[str]) -> Snapshot:
    """Read what `SNAPSHOT` printed. Never raises; text that breaks off gives what came before."""
    read = _Read()
    for line in lines:
        text = line.rstrip("\r\n")
        if text and not _take(read, text):
            read.refuse(f"Not understood: {text}")
    if len(read.stamps) < 2:
        read.refuse("The snapshot breaks off.")
    nics = (*_ports(read), *_interfaces(read))
    time = sum(read.stamps) / len(read.stamps) if read.stamps else None
    return Snapshot(time=time, nics=nics, unread=tuple(read.unread))


def _take(read: _Read, text: str) -> bool:
    if match := _PORT.fullmatch(text):
        device, port, file, value = match.groups()
        read.ports.setdefault((device, port), {})[file] = value.strip()
    elif match := _DEVICE.fullmatch(text):
        _keep_event(read.devices.setdefault(match[1], {}), match[2])
    elif match := _STATISTICS.fullmatch(text):
        return _keep_statistics(read, match[1], match[2].split())
    elif match := _INTERFACE.fullmatch(text):
        kept = read.interfaces.setdefault(match[1], {})
        kept[match[2]] = match[3].strip()
    elif match := _UPTIME.fullmatch(text):
        read.stamps.append(float(match[1]))
    else:
        return _HEADING.fullmatch(text) is not None
    return True


def _keep_event(kept: dict[str, str], text: str) -> None:
    name, _, value = text.partition("=")
    kept[name] = value


def _keep_statistics(read: _Read, name: str, texts: list[str]) -> bool:
    """Keep one row of /proc/net/dev: eight numbers received, eight sent, from bytes to drops and on."""
    numbers = [int(text) for text in texts if _NUMBER.fullmatch(text)]
    if not len(numbers) == len(texts) == 16 or max(numbers) >= 2**64:
        return False
    names = (RX, RX_PACKETS, "rx_errors", "rx_dropped"), (TX, TX_PACKETS, "tx_errors", "tx_dropped")
    received, sent = (
        zip(part, numbers[start:], strict=False) for part, start in zip(names, (0, 8), strict=True)
    )
    read.statistics[name] = dict([*received, *sent])
    return True


def _ports(read: _Read) -> Iterator[Nic]:
    for (device, port), files in read.ports.items():
        name = device if port == "1" else f"{device}:{port}"
        kind = _kind(read.devices.get(device, {}), files)
        if kind is None:
            layer = files.get("link_layer", "not told")
            read.refuse(f"{name} is neither EFA nor InfiniBand nor Ethernet (link layer: {layer}).")
            continue
        rate = _RATE.fullmatch(files.get("rate", ""))
        yield Nic(
            name=name,
            kind=kind,
            counters=_counters(read, name, files),
            link_rate=float(rate[1]) * RATE_UNITS["Gb/s"] if rate else None,
            up=files["state"].endswith("ACTIVE") if "state" in files else None,
        )


def _kind(event: Mapping[str, str], files: Mapping[str, str]) -> Kind | None:
    """Tell EFA by its driver or its PCI id, the others by their link layer."""
    if event.get("DRIVER") == "efa" or event.get("PCI_ID", "").upper().startswith("1D0F:EFA"):
        return Kind.EFA
    return {"InfiniBand": Kind.IB, "Ethernet": Kind.ROCE}.get(files.get("link_layer", ""))


def _counters(read: _Read, name: str, files: Mapping[str, str]) -> dict[str, int]:
    counters: dict[str, int] = {}
    for source in PORT_COUNTERS:
        text = files.get(source.file)
        if text is None or source.name in counters:
            continue
        value = int(text) if _NUMBER.fullmatch(text) else 2**64
        if value >= 2**64:
            read.refuse(f"{name}: {source.file} is no counter: {text}")
        elif source.unit == 4 and value == _SATURATED:
            read.refuse(f"{name}: {source.file} is a counter of 32 bits that stands at its end.")
        else:
            counters[source.name] = value * source.unit
    return counters


def _interfaces(read: _Read) -> Iterator[Nic]:
    for name, counters in read.statistics.items():
        files = read.interfaces.get(name, {})
        if name == "lo":
            continue
        speed = files.get("speed", "")
        megabits = int(speed) if _NUMBER.fullmatch(speed) else 0
        yield Nic(
            name=name,
            kind=Kind.NETDEV,
            counters=counters,
            # Drivers that do not know their speed say -1, 0, or that number without its sign.
            link_rate=megabits * RATE_UNITS["Mb/s"] if 0 < megabits < _SATURATED else None,
            device="device/uevent" in files,
            up={"up": True, "down": False}.get(files.get("operstate", "")),
        )
