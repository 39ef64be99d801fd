"""Collects what NCCL's debug lines state: networks, providers, channels, versions, complaints.

The wordings and the versions they belong to: docs/formats.md. transport.py draws the conclusions.
Ranks that wait for each other: PyTorch's ProcessGroupNCCL.cpp (1.12 to 2.11), torchfrtrace, NCCL's
RAS (2.24 to 2.30).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fabbench.evidence.known_errors import (
    HARMLESS,
    NOT_THE_NETWORK,
    PLUGIN_FAILED,
    exit_status,
    finding,
    matching_errors,
)
from fabbench.model.log import Finding
from fabbench.model.messages import listed
from fabbench.model.patterns import lazy

_WAITS = lazy(
    r"Watchdog caught collective operation timeout: WorkNCCL\((?:SeqNum=(?P<number>\d+), "
    r")?OpType=(?P<call>\w+)"
    r"(?:, NumelIn=(?P<elements>\d+))?(?:.*?Timeout\(ms\)=(?P<limit>\d+))?"
)
_RANK = lazy(r"\[(?:rank|Rank |PG [^]]*Rank )(\d+)\]")
_WORK = lazy(
    r"\[PG ([^]]*?) ?Rank \d+\].*[Ll]ast enqueued (?:NCCL )?work: (-?\d+), last completed "
    r"(?:NCCL )?work: -?\d+"
)
_NOT_JOINING = lazy(
    r"Not all ranks joining|Collective sequence number: \d+ has errors|best knowledge, .*lagging"
)
_RAS_HEAD = lazy(
    r"^\s*(?:#\d+-\d+ \([\da-f]+\) |(?!ERROR))(INCOMPLETE|DEAD|ERROR|TIMEOUT|MISMATCH)\s*$"
)
_DETAIL = lazy(
    r"^\s+(?:Communicator ranks have|Missing communicator|The missing rank|Process \d+ on "
    r"node|Encountered \d+ comm"
    r"|\d+ (?:ranks? (?:ha\w+ (?:not )?(?:launched|status)|reported)|job "
    r"process)|(?:Initializat|Asynchr)\w+ error"
    r"|Rank \d+ (?:--|has (?:not )?(?:launched|status)|reported )|(?:- )?\[[\d, ]+\] "
    r"(?:joined|finished) .*ctive #)"
    r"|(?:^|[\s:])(?:collective: \S+|[Mm]issing ranks(?::| are) \{[\d, ]*\}|error msg: Culprit "
    r"rank.*)$"
)
_RAS_ROW = lazy(
    r"^\s+\d+\s+\d+(?:\s+\d+(?:-\d+)?){4}\s+(?:NOCOMM|INIT|RUNNING|FINALIZE|ABORT|MISMATCH)\b"
)
_PATTERNS = (_WAITS, _WORK, _NOT_JOINING, _RAS_HEAD, _DETAIL, _RAS_ROW)
_WORDS = (  # noqa: SIM905 - a list would take one line per word
    "Watchdog caught|ast enqueued|ranks joining|issing ranks|collective: |ommunicator|missing "
    "rank|INCOMPLETE| on node"
    "|launched|job process|RUNNING|INIT|FINALIZE|ABORT|DEAD|TIMEOUT|MISMATCH|ERROR|NOCOMM|lagging|collective #|reported"
    "|ion error|ous error|has errors|Culprit|information not found"
).split("|")


def is_sign(text: str) -> bool:
    """Return whether a line is one of those that are collected."""
    return any(map(text.__contains__, _WORDS)) and any(
        pattern.search(text) for pattern in _PATTERNS
    )


@dataclass(slots=True)
class Hangs:
    """What one execution's lines say of ranks that wait."""

    report: bool = False
    waits: dict[tuple[str, ...], dict[int, None]] = field(default_factory=dict)
    """Collective, sequence number, elements, limit in ms → ranks whose watchdog gave up."""
    works: dict[str, dict[int, int]] = field(default_factory=dict)
    """Process group → rank → number of the last collective that it started."""
    told: dict[str, dict[str, None]] = field(default_factory=dict)
    """First line of what a report says → the lines below it."""
    line: str = ""

    def feed(self, text: str) -> None:
        """Read one line."""
        rank = int(found[1]) if (found := _RANK.search(text)) is not None else -1
        if (match := _WAITS.search(text)) is not None:
            self.line = self.line or text.strip()
            self.waits.setdefault(match.groups(""), {})[rank] = None
        elif (match := _WORK.search(text)) is not None:
            self.works.setdefault(match[1], {})[rank] = int(match[2])
        elif _RAS_HEAD.search(text) or _NOT_JOINING.search(text):
            self.told.setdefault(text.strip(" \t-:"), {})
        elif self.told and _DETAIL.search(text):
            self.told[next(reversed(self.told))][text.strip()] = (
                None  # several ranks may report the same
            )
        self.report = self.report or _RAS_ROW.search(text) is not None

    def findings(self) -> Iterator[Finding]:
        """Yield which collective did not end and which ranks had not started it, and what reports say."""
        if self.waits:
            yield self._timeout()
        for head, details in self.told.items():
            more = [f"{len(details) - 6} more"] if len(details) > 6 else []
            said = f"{head}: {'; '.join((*list(details)[:6], *more))}"
            if (ras := _RAS_HEAD.search(head)) is None:
                yield finding("ranks-missing", head, said=said)
            elif details:  # the word alone may be another program's
                yield finding(
                    f"ras-{ras[1].lower()}".replace("dead", "incomplete"), head, said=said
                )

    def _timeout(self) -> Finding:
        each = [
            f"{_ranks(ranks)} waited {f'{int(limit) / 1000:g}' if limit else '?'} s in {call}, "
            f"sequence number {number or '?'}, of {elements or '?'} elements"
            for (number, call, elements, limit), ranks in self.waits.items()
        ]
        number, *others = dict.fromkeys(wait[0] for wait in self.waits)
        # Numbers of different process groups are not comparable.
        group = (
            next(iter(self.works.values()), {})
            if number and not others and len(self.works) < 2
            else {}
        )
        late = {rank: None for rank, last in group.items() if last < int(number)}
        lasts = listed(sorted({str(group[rank]) for rank in late}))
        behind = f" {_ranks(late)} had not started it (the last: {lasts})." if late else ""
        behind = (
            " Ranks called different collectives at one number."
            if group and len(self.waits) > 1
            else behind
        )
        whom = _ranks(late).lower() if late else "the ranks that are not named"
        return finding(
            "collective-timeout", self.line, waits="; ".join(each[:3]), late=behind, whom=whom
        )


def join(hangs: Sequence[Hangs]) -> None:
    """Let hangs of one job know what all its processes said: each pod's output has some of them."""
    works: dict[str, dict[int, int]] = {}
    for each in hangs:
        for group, ranks in each.works.items():
            works.setdefault(group, {}).update(ranks)
        each.works = works


def _ranks(ranks: dict[int, None]) -> str:
    names = [str(rank) if rank >= 0 else "?" for rank in sorted(ranks)]
    return f"Rank{'' if len(names) == 1 else 's'} {listed(names, 8)}"


_VIA = lazy(
    r" via (?:NET/(?P<net>[^/]+)/(?P<dev>\d+)"
    r"|(?P<p2p>P2P/)(?P<mnnvl>MNNVL)?|(?P<shm>SHM/|direct shared "
    r"memory)|COLLNET/(?P<collnet>[^/\s]+))"
)
_PROVIDER = lazy(
    r"NET/OFI Selected [Pp]rovider is ([^\s,]+)(?:, fabric is (\S+))?(?: \(found (\d{1,9}) "
    r"nics?\))?"
)
_COMM = lazy(r"(?:rank|Rank) (\d+) n[Rr]anks (\d{1,9})(?: nNodes (\d{1,9}))?(?:.* MNNVL ([01]))?")
_NETWORK = lazy(
    r"(?:Using (?:internal N|n)etwork|Assigned NET plugin) +((?:AWS |NCCL RDMA )?[A-Za-z][\w.+-]*)"
)
"""Ray and log systems add text to the line."""
_IB_DEVICE = lazy(
    r"\[(\d+)\]([\w.-]+):\d+/(\w*)(?=[ /;])"
)  # whole ones: a terminal may cut the line
_COMM_ID = lazy(r" commId 0x([0-9a-f]+)")
_INTERFACE = lazy(r"(?:\[\d+\]|Using )([\w.-]+):[\da-fA-F.:]+<\d+>")
_NVLS = lazy(r" (\d+) nvls channels")
_CHOICE = lazy(
    r" Bytes -> (?:Algo (\w+) proto (\w+)|Kernel [^\W_]+_(\w+)|(?:cuda|hip)(Memcpy)|(RMA) proxy)"
)
_ALGORITHMS = {
    "0": "TREE",
    "1": "RING",
    "2": "COLLNET_DIRECT",
    "3": "COLLNET_CHAIN",
    "4": "NVLS",
    "5": "NVLS_TREE",
}
_PROTOCOLS = {"0": "LL", "1": "LL128", "2": "SIMPLE"}  # NCCL before 2.24 prints numbers
_PXN = lazy(r"use ring PXN (\d)")
_FIELDS: Mapping[str, re.Pattern[str]] = {
    "plugin": lazy(r"NET/OFI (?:Using|Initializing) (aws-ofi-nccl \S+)"),
    "libfabric": lazy(r"NET/OFI Using Libfabric version (\S+)"),
    "protocol": lazy(r"NET/OFI Using transport protocol (\w+)"),
    "instance_type": lazy(r"NET/OFI Running on ([a-z][\w-]*\.[\w-]+) platform"),
}
_REQUESTED = lazy(r"\bFI_PROVIDER(?:=| set by environment to )[\"']?efa\b")
_VERSION = lazy(
    r"([NR]CCL|HIP|ROCm) version *:? *([^\s+]+)(?:\+(cuda|hip)(\d\S*))?"
)  # builds print a placeholder
_CHAIN = lazy(r"(?=\S+:\d+ -> )(?!.*\bgin)\S+:\d+ -> [1-7](?: \[[\w ]+\])?$")
"""A call that returned an error, up to the one of the application."""
_MISSING = lazy(r"NET/Plugin ?: (?:dlerror=.*)?(?:No plugin found|Could not find)")
_ASKED = "NCCL_NET set by environment to "
_MAX_ENTRIES = 100_000
"""Limit for each collection: a log may be of any length."""


@dataclass(slots=True)
class Evidence:
    """The statements of one execution. `lines` has, for some facts, the line that stated it."""

    debugging: bool = False
    facts: dict[str, str | int] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)
    networks: dict[str, dict[str, None]] = field(default_factory=dict)
    """Network name as printed → processes (`host:pid`) that use it."""
    providers: dict[str, None] = field(default_factory=dict)
    nics: dict[str, int] = field(default_factory=dict)
    """Process → NICs that its plugin found."""
    hcas: dict[str, int] = field(default_factory=dict)
    """Process → NICs that NCCL's own verbs network found."""
    transports: dict[str, set[bool]] = field(default_factory=dict)
    """`net:NETWORK`, `p2p` or `shm` → whether its channels had GPUDirect RDMA.

    One or both values.
    """
    channels: dict[str, str] = field(default_factory=dict)
    """Each key of `transports`, `gdr`, `no-gdr` and `mnnvl` (NVLink may connect hosts; `nodes` are NVLink
    domains) → the first line that showed it."""
    nodes: int = 0
    ranks: int = 0
    channel_count: int = 0  # Channels of a collective; 0: not printed
    ib_links: dict[str, str] = field(default_factory=dict)
    """Index of a NIC of NCCL's own verbs network → its link as printed, `IB` or `RoCE`."""
    ib_names: dict[str, None] = field(default_factory=dict)
    """Names of these NICs on all ranks."""
    used: dict[str, set[str]] = field(default_factory=dict)
    """Network name as printed → indices of the devices that channels use."""
    jobs: dict[str, None] = field(default_factory=dict)
    """Ids of the communicators: all processes of one print the same id."""
    interfaces: dict[str, None] = field(default_factory=dict)  # Interfaces that NCCL's sockets use
    named_hosts: dict[str, None] = field(default_factory=dict)
    """Processes (`host:pid`) whose host is set by NCCL_HOSTID."""
    trouble: list[str] = field(default_factory=list)
    """Lines of a plugin that failed, or of a protocol that it tried."""
    missing: str = ""  # The line that reports that there is no plugin
    requested: str = ""  # The line that requests libfabric's efa provider
    asked: str = ""  # The network that NCCL_NET names
    warnings: dict[str, int] = field(default_factory=dict)  # Text → how often it was printed
    algorithms: dict[str, None] = field(default_factory=dict)
    """`RING/SIMPLE` and so on, as NCCL chose them."""
    nvls: set[bool] = field(default_factory=set)
    """Whether ranks had channels for NVLS: one or both values."""
    known_errors: dict[str, Finding] = field(default_factory=dict)
    hangs: Hangs = field(default_factory=Hangs)
    failed: str = ""
    """What ended NCCL: the warning above the first call that returned an error, or that call."""
    _warned: str = ""
    endings: set[str] = field(default_factory=set)
    """Endings (`via NET/…`) of channel lines already read: another line with one adds nothing."""

    def seen(self, *, alone: bool) -> bool:
        """Return whether any line of NCCL's, or a known error, was read.

        Counters of NICs are enough if `alone`.
        """
        errors = self.known_errors.keys() - (set() if alone else {"counters"})
        return self.debugging or bool(self.facts or errors or self.hangs.waits or self.hangs.told)

    def feed(
        self, message: str, origin: str = "", *, warning: bool = False, place: str = ""
    ) -> None:
        """Read one debug message (the text after `NCCL INFO`).

        `origin` and `place` are the text before it.
        """
        self.debugging = True
        # 512 ranks print hundreds of thousands of these, with few distinct endings.
        if message[:HEAD] == CHANNEL and message[message.rfind(" via ") :] in self.endings:
            return
        handler = HANDLERS.get(message[:HEAD])
        if handler is not None:
            handler(self, message, origin)
        elif match := _CHOICE.search(message):
            self._choice(
                message,
                match[1] or ("SYMMETRIC" if match[3] else "CE"),
                match[match.lastindex or 0],
            )
        if CHAIN in message and not self.failed and _CHAIN.match(message):
            self.failed = self._warned or message
        if warning:
            self._warned = message
            self._complaint(message, place=place)
            if (len(self.warnings) < 100 or message in self.warnings) and not HARMLESS.search(
                message
            ):
                self.warnings[message] = self.warnings.get(message, 0) + 1

    def other(self, text: str) -> None:
        """Read a line that no other reader knows: it may show a known error, or a variable."""
        if not self.requested and "FI_PROVIDER" in text and _REQUESTED.search(text):
            self.requested = text
        self.hangs.feed(text)
        self.debugging = self.debugging or self.hangs.report
        for error in matching_errors(text):
            self.known_errors.setdefault(error.code, error.finding(text))

    def version(self, text: str, _origin: str = "") -> None:
        """Read `NCCL version 2.28.9+cuda13.0`, `RCCL version .

        2.22.3-HEAD:7d8d67c`, `HIP version  : 6.4` and similar.

        They come as debug messages or as separate lines.
        """
        if (match := _VERSION.match(text)) is not None:
            self._state(match[1].lower(), match[2], text)
            if match[3]:
                self._state(match[3], match[4], text)

    def _state(self, name: str, value: str, line: str) -> None:
        if name not in self.facts:
            self.facts[name] = value
            self.lines[name] = line

    def _complaint(self, message: str, _origin: str = "", *, place: str = "") -> None:
        self.other(place + message)
        if (
            PLUGIN_FAILED.search(message)
            and len(self.trouble) < 100
            and not NOT_THE_NETWORK.search(message)
        ):
            self.trouble.append(message)

    # -- by the first words of a message

    def _channel(self, message: str, _origin: str) -> None:
        ending = message[message.rfind(" via ") :]
        if ending in self.endings:
            return
        if len(self.endings) < _MAX_ENTRIES:
            self.endings.add(ending)
        if (match := _VIA.match(ending)) is None:
            ring = message.partition(" : ")[2].split()
            self.ranks = max(self.ranks, len(ring) if all(map(str.isdecimal, ring)) else 0)
            return
        net = match["net"] or match["collnet"]
        key = f"net:{net}" if net else "p2p" if match["p2p"] else "shm"
        direct = "/GDRDMA" in ending
        self.transports.setdefault(key, set()).add(direct)
        self.channels.setdefault(key, message)
        if match["mnnvl"]:
            self.channels.setdefault("mnnvl", message)
        if net:
            self.channels.setdefault("gdr" if direct else "no-gdr", message)
            if match["dev"]:
                self.used.setdefault(net, set()).add(match["dev"])

    def _network(self, message: str, origin: str) -> None:
        if match := _NETWORK.match(message):
            processes = self.networks.setdefault(match[1], {})
            if len(processes) < _MAX_ENTRIES:
                processes[_process(origin)] = None
            self.lines.setdefault("network", message)

    def _ofi(self, message: str, origin: str) -> None:
        if match := _PROVIDER.match(message):
            provider, fabric, nics = match.groups()
            self.providers[provider] = None
            self.lines.setdefault("provider", message)
            if nics and len(self.nics) < _MAX_ENTRIES:
                if int(nics) < min(self.nics.values(), default=int(nics) + 1):
                    self.lines["nics"] = message
                self.nics[_process(origin)] = int(nics)
            if fabric:
                self._state("fabric", fabric, message)
            return
        self._complaint(message)
        for name, pattern in _FIELDS.items():
            if match := pattern.match(message):
                self._state(name, match[1], message)

    def _builtin(self, message: str, origin: str) -> None:
        if message.startswith(("NET/IB : Using", "NET/gIB : Using")):
            # NCCL 2.27+ prints this line even without any device: count the devices.
            devices = _IB_DEVICE.findall(message)
            if devices and len(self.hcas) < _MAX_ENTRIES:
                if len(devices) < min(self.hcas.values(), default=len(devices) + 1):
                    self.lines["ib"] = message
                self.hcas[_process(origin)] = len(devices)
            if len(self.ib_links) < _MAX_ENTRIES:
                self.ib_links = {**{index: link for index, _, link in devices}, **self.ib_links}
                self.ib_names |= dict.fromkeys(name for _, name, _ in devices)
        elif message.startswith("NET/Socket : Using"):
            self.interfaces |= dict.fromkeys(_INTERFACE.findall(message))
            self.lines.setdefault("interface", message)
        elif _MISSING.match(message):
            self.missing = self.missing or message
        else:
            self._complaint(message)

    def _comm(self, message: str, _origin: str) -> None:
        if match := _COMM.search(message):
            if match[4] == "1":
                self.channels.setdefault("mnnvl", message)
            self.ranks = max(self.ranks, int(match[2]))
            self.nodes = max(self.nodes, int(match[3] or 0))
        if (match := _COMM_ID.search(message)) and len(self.jobs) < _MAX_ENTRIES:
            self.jobs[match[1]] = None

    def _coll(self, message: str, _origin: str) -> None:
        self.channel_count = max(self.channel_count, int(message.split(maxsplit=1)[0]))
        if match := _NVLS.search(message):
            self.nvls.add(match[1] != "0")

    def _choice(self, message: str, algorithm: str, protocol: str) -> None:
        if len(self.algorithms) < _MAX_ENTRIES:
            name = f"{_ALGORITHMS.get(algorithm, algorithm)}/{_PROTOCOLS.get(protocol, protocol)}"
            self.algorithms[name.upper()] = None
            self.lines.setdefault("algorithms", message)

    def _variable(self, message: str, origin: str) -> None:
        if message.startswith(_ASKED):
            self.asked = message.removeprefix(_ASKED).strip(" .")
        elif (
            message.startswith("NCCL_HOSTID set by environment")
            and len(self.named_hosts) < _MAX_ENTRIES
        ):
            self.named_hosts[_process(origin)] = None
        else:
            self.other(message)

    def _connected(self, message: str, _origin: str) -> None:
        if match := _PXN.search(message):
            self._state("pxn", "yes" if match[1] == "1" else "no", message)
        if message[:17].lower() == "connected collnet":
            self._state("sharp", "connected", message)


def is_significant(text: str) -> bool:
    """Return whether a line unknown to all benchmarks shows an error, an exit status, or a request."""
    return (
        "FI_PROVIDER" in text
        or is_sign(text)
        or exit_status(text) is not None
        or any(matching_errors(text))
    )


def _process(origin: str) -> str:
    """Return `host:pid` of the origin `host:pid:tid`."""
    return ":".join(origin.split(":", 2)[:2])


HEAD = 8
"""Length of the prefix of a message that determines whether it is of interest."""

CHANNEL = "Channel "
"""Prefix of a channel's line."""

CHAIN = " -> "
"""Part of a call that returned an error; of few other lines, among them channels."""

_VARIABLES = ("HOSTID", "NET", "IB_DISABLE", "P2P", "SHM", "ALGO", "PROTO", "MAX")
"""Variables of interest, which NCCL reports as ``NAME set by environment to VALUE``."""

_OF: Mapping[Callable[[Evidence, str, str], None], tuple[str, ...]] = {
    Evidence._channel: (CHANNEL, "CollNet ", *(f"Ring {number:02d} " for number in range(100))),  # noqa: SLF001 - its own table
    Evidence._network: ("Using ne", "Using in", "Assigned"),  # noqa: SLF001
    Evidence._ofi: ("NET/OFI ",),  # noqa: SLF001
    Evidence._builtin: ("NET/IB :", "NET/gIB ", "NET/Sock", "NET/Plug"),  # noqa: SLF001
    Evidence._comm: ("ncclComm", *(f"comm 0x{digit}" for digit in "0123456789abcdef")),  # noqa: SLF001
    Evidence._variable: tuple(f"NCCL_{name}"[:HEAD] for name in _VARIABLES),  # noqa: SLF001
    Evidence.version: ("NCCL ver", "RCCL ver"),
    Evidence._connected: ("Connecte",),  # noqa: SLF001
    Evidence._complaint: ("Failed t", "External", "Bootstra"),  # noqa: SLF001
    Evidence._coll: tuple(f"{number} coll channels"[:HEAD] for number in range(1, 129)),  # noqa: SLF001
}
HANDLERS = {head: handler for handler, heads in _OF.items() for head in heads}
"""Keyed by the first `HEAD` characters, as a log of hundreds of ranks is almost all debug lines."""
