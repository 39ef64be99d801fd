"""What NCCL's debug lines state, collected: networks, providers, channels, versions, complaints.

The wordings and the versions they belong to: docs/formats.md. What they come to is in carrier.py.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fabbench.model import Finding
from fabbench.symptoms import HARMLESS, PLUGIN_FAILED, symptoms

_VIA = re.compile(
    r" via (?:NET/(?P<net>[^/]+)/(?P<dev>\d+)(?:\(\d+\))?(?P<flags>(?:/[A-Za-z()]+)*)"
    r"|(?P<p2p>P2P/)(?P<mnnvl>MNNVL)?|(?P<shm>SHM/|direct shared memory)|COLLNET/(?P<collnet>[^/\s]+))"
)
_PROVIDER = re.compile(
    r"NET/OFI Selected [Pp]rovider is ([^\s,]+)(?:, fabric is (\S+))?(?: \(found (\d{1,9}) nics?\))?"
)
_COMM = re.compile(r"(?:rank|Rank) (\d+) n[Rr]anks (\d{1,9})(?: nNodes (\d{1,9}))?")
_IB_DEVICE = re.compile(r"\[\d+\][\w.-]+:\d+/")
_INTERFACE = re.compile(r"(?:\[\d+\]|Using )([\w.-]+):[\da-fA-F.:]+<\d+>")
_PXN = re.compile(r"use ring PXN (\d)")
_FIELDS: Mapping[str, re.Pattern[str]] = {
    "plugin": re.compile(r"NET/OFI (?:Using|Initializing) (aws-ofi-nccl \S+)"),
    "libfabric": re.compile(r"NET/OFI Using Libfabric version (\S+)"),
    "protocol": re.compile(r"NET/OFI Using transport protocol (\w+)"),
}
_MISSING = re.compile(r"NET/Plugin ?: (?:dlerror=.*)?(?:No plugin found|Could not find)")
_MOST = 100_000
"""Entries of a collection, at most: a log may be of any length."""


@dataclass(slots=True)
class Evidence:
    """The statements of one execution. `lines` has for each fact the line that stated it."""

    debugging: bool = False
    """Whether any debug line was read."""
    facts: dict[str, str | int] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)
    networks: dict[str, dict[str, None]] = field(default_factory=dict)
    """Network name as printed → processes (`host:pid`) that use it."""
    providers: dict[str, None] = field(default_factory=dict)
    nics: dict[str, int] = field(default_factory=dict)
    """Process → NICs that its plugin found."""
    carriers: dict[str, set[bool]] = field(default_factory=dict)
    """`net:` and a network's name, `p2p` or `shm` → whether channels over it had GPUDirect RDMA."""
    mnnvl: bool = False
    """Whether a channel went over NVLink between nodes."""
    nodes: int = 0
    ranks: int = 0
    ib_devices: int = 0
    interfaces: dict[str, None] = field(default_factory=dict)
    """Interfaces of NCCL's sockets."""
    named_hosts: dict[str, None] = field(default_factory=dict)
    """Processes (`host:pid`) that were told by NCCL_HOSTID which host they are on."""
    trouble: list[str] = field(default_factory=list)
    """Lines of a plugin that failed, or of one protocol that it tried."""
    missing: str = ""
    """The line that says that there is no plugin."""
    warnings: dict[str, int] = field(default_factory=dict)
    """Text → how often it was said."""
    symptoms: dict[str, Finding] = field(default_factory=dict)
    _channels: set[str] = field(default_factory=set)

    @property
    def seen(self) -> bool:
        """Whether anything of NCCL's own was read, or a symptom."""
        return self.debugging or bool(self.facts) or bool(self.symptoms)

    def feed(self, message: str, origin: str = "", *, warning: bool = False) -> None:
        """Read one debug message (the text after `NCCL INFO`); `origin` is what stands before it."""
        self.debugging = True
        handler = HANDLERS.get(message[:HEAD])
        if handler is not None:
            handler(self, message, origin)
        if warning:
            self._complaint(message)
            if (len(self.warnings) < 100 or message in self.warnings) and not HARMLESS.search(message):
                self.warnings[message] = self.warnings.get(message, 0) + 1

    def other(self, text: str) -> None:
        """Read a line that nobody else knows: it may show a symptom."""
        for symptom in symptoms(text):
            self.symptoms.setdefault(symptom.code, symptom.finding(text))

    def version(self, text: str) -> None:
        """Read `NCCL version 2.28.9+cuda13.0`, which older versions print on a line of its own."""
        words = text.split()
        if len(words) >= 3 and words[:2] == ["NCCL", "version"]:
            nccl, _, cuda = words[2].partition("+cuda")
            self._state("nccl", nccl, text)
            if cuda:
                self._state("cuda", cuda, text)

    def _state(self, name: str, value: str, line: str) -> None:
        if name not in self.facts:
            self.facts[name] = value
            self.lines[name] = line

    def _complaint(self, message: str) -> None:
        if PLUGIN_FAILED.search(message) and len(self.trouble) < 100:
            self.trouble.append(message)
        self.other(message)

    # -- by the first words of a message

    def _channel(self, message: str, origin: str) -> None:
        del origin
        # 512 ranks write hundreds of thousands of these, with few different endings.
        ending = message[message.rfind(" via ") :]
        if ending in self._channels:
            return
        if len(self._channels) < _MOST:
            self._channels.add(ending)
        match = _VIA.match(ending)
        if match is None:
            return
        net = match["net"] or match["collnet"]
        key = f"net:{net}" if net else "p2p" if match["p2p"] else "shm"
        self.carriers.setdefault(key, set()).add("/GDRDMA" in (match["flags"] or ""))
        self.mnnvl = self.mnnvl or bool(match["mnnvl"])
        self.lines.setdefault("transport", message)

    def _using(self, message: str, origin: str) -> None:
        if message.startswith("Using network "):
            self._network(message.removeprefix("Using network ").strip(), message, origin)

    def _assigned(self, message: str, origin: str) -> None:
        name = message.removeprefix("Assigned NET plugin ").removesuffix(" to comm").strip()
        self._network(name, message, origin)

    def _network(self, name: str, message: str, origin: str) -> None:
        processes = self.networks.setdefault(name, {})
        if len(processes) < _MOST:
            processes[_process(origin)] = None
        self.lines.setdefault("network", message)

    def _ofi(self, message: str, origin: str) -> None:
        if match := _PROVIDER.match(message):
            provider, fabric, nics = match.groups()
            self.providers[provider] = None
            self.lines.setdefault("provider", message)
            if nics and len(self.nics) < _MOST:
                self.nics[_process(origin)] = int(nics)
                self.lines.setdefault("nics", message)
            if fabric:
                self._state("fabric", fabric, message)
            return
        self._complaint(message)
        for name, pattern in _FIELDS.items():
            if match := pattern.match(message):
                self._state(name, match[1], message)

    def _builtin(self, message: str, origin: str) -> None:
        del origin
        if message.startswith("NET/IB : Using"):
            # From NCCL 2.27 on this line is there with no device at all: count the devices.
            self.ib_devices = max(self.ib_devices, len(_IB_DEVICE.findall(message)))
        elif message.startswith("NET/Socket : Using"):
            self.interfaces |= dict.fromkeys(_INTERFACE.findall(message))
            self.lines.setdefault("interface", message)
        elif _MISSING.match(message):
            self.missing = self.missing or message
        else:
            self._complaint(message)

    def _comm(self, message: str, origin: str) -> None:
        del origin
        if match := _COMM.search(message):
            self.ranks = max(self.ranks, int(match[2]))
            self.nodes = max(self.nodes, int(match[3] or 0))

    def _host_id(self, message: str, origin: str) -> None:
        if message.startswith("NCCL_HOSTID set by environment") and len(self.named_hosts) < _MOST:
            self.named_hosts[_process(origin)] = None

    def _connected(self, message: str, origin: str) -> None:
        del origin
        if match := _PXN.search(message):
            self._state("pxn", "yes" if match[1] == "1" else "no", message)

    def _version(self, message: str, origin: str) -> None:
        del origin
        self.version(message)

    def _failed(self, message: str, origin: str) -> None:
        del origin
        self._complaint(message)


def _process(origin: str) -> str:
    """Of `host:pid:tid`, the first two."""
    return ":".join(origin.split(":", 2)[:2])


HEAD = 8
"""As many characters of a message tell whether it is of interest at all."""

HANDLERS: Mapping[str, Callable[[Evidence, str, str], None]] = {
    "Channel ": Evidence._channel,  # noqa: SLF001 - a table of this class's own methods
    "Using ne": Evidence._using,  # noqa: SLF001
    "Assigned": Evidence._assigned,  # noqa: SLF001
    "NET/OFI ": Evidence._ofi,  # noqa: SLF001
    "NET/IB :": Evidence._builtin,  # noqa: SLF001
    "NET/Sock": Evidence._builtin,  # noqa: SLF001
    "NET/Plug": Evidence._builtin,  # noqa: SLF001
    "ncclComm": Evidence._comm,  # noqa: SLF001
    "NCCL_HOS": Evidence._host_id,  # noqa: SLF001
    "NCCL ver": Evidence._version,  # noqa: SLF001
    "Connecte": Evidence._connected,  # noqa: SLF001
    "Failed t": Evidence._failed,  # noqa: SLF001
    "External": Evidence._failed,  # noqa: SLF001
    "Bootstra": Evidence._failed,  # noqa: SLF001
    **{f"comm 0x{digit}": Evidence._comm for digit in "0123456789abcdef"},  # noqa: SLF001
    **{f"Ring {number:02d} ": Evidence._channel for number in range(100)},  # noqa: SLF001
}
"""By the first `HEAD` characters, because a log of hundreds of ranks is almost all debug lines."""
