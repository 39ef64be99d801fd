"""Collects what NCCL's debug lines state: networks, providers, channels, versions, complaints.

The wordings and the versions they belong to: docs/formats.md. transport.py draws the conclusions.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from fabbench.catalog.paths import Way, beginnings, ways
from fabbench.catalog.warnings import error_follows
from fabbench.counters.pasted import PastedCounters, is_counted
from fabbench.evidence.first_error import FirstErrors
from fabbench.evidence.hangs import Hangs, is_sign
from fabbench.evidence.known_errors import (
    exit_status,
    matching_errors,
    nccl_says,
)
from fabbench.model.log import Finding, MutableFacts
from fabbench.model.patterns import Match, lazy

_VIA = lazy(
    r" via (?:NET/(?P<net>[^/]+)/(?P<dev>\d+)"
    r"|(?P<p2p>P2P/)(?P<mnnvl>MNNVL)?|(?P<shm>SHM/|direct shared "
    r"memory)|COLLNET/(?P<collnet>[^/\s]+))"
)
_PROVIDER = lazy(
    r"NET/OFI Selected [Pp]rovider is ([^\s,]+)(?:, fabric is (\S+))?(?: \(found (\d{1,9}) "
    r"nics?\))?"
)
_COMM = lazy(
    r"(?:rank|Rank) \d+ n[Rr]anks (?P<ranks>\d{1,9})(?: nNodes (?P<nodes>\d{1,9}))?"
    r"(?:.* MNNVL (?P<mnnvl>[01]))?"
)
_NETWORK = lazy(
    r"(?:Using (?:internal N|n)etwork|Assigned NET plugin) +((?:AWS |NCCL RDMA )?[A-Za-z][\w.+-]*)"
)
"""Ray and log systems add text to the line."""
# whole ones: a terminal may cut the line
_IB_DEVICE = lazy(r"\[(\d+)\]([\w.-]+):\d+/(\w*)(?=[ /;])")
_COMM_ID = lazy(r" commId 0x([0-9a-f]+)")
_INTERFACE = lazy(r"(?:\[\d+\]|Using )([\w.-]+):[\da-fA-F.:]+<\d+>")
_NVLS = lazy(r" (\d+) nvls channels")
_CHOICE = lazy(
    r" Bytes -> (?:Algo (?P<algorithm>\w+) proto (\w+)|Kernel [^\W_]+_(?P<kernel>\w+)"
    r"|(?:cuda|hip)(Memcpy)|(RMA) proxy)"
)
_SPREAD = lazy(
    r"(?P<collective>\w+): (?P<size>\d{1,19}) Bytes -> .* "
    r"channel\{Lo\.\.Hi\}=\{(?P<first>\d{1,4})\.\.(?P<last>\d{1,4})\}"
)
_LARGE = 16 << 20
"""Bytes from which on NCCL spreads a collective over all channels."""
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
# builds print a placeholder
_VERSION = lazy(r"([NR]CCL|HIP|ROCm) version *:? *([^\s+]+)(?:\+(cuda|hip)(\d\S*))?")
_CHAIN = lazy(
    r"(?!.*\bgin)\[?[\w./+-]{1,200}:\d{1,6}"
    r"(?:\]\([^)\s]{1,200}\))?"  # a link of Markdown, around the file and line
    r"(?: \([\w~:<> ]{1,100}\))? -> [1-7]"  # the function, and what it returned
    r"(?: \([\w ,'/-]{1,100}\))?(?: \[[\w ]{1,40}\])?\s*$"  # of errno; the thread
)
"""A call that returned an error, up to the one of the application: INFO_LOC of NCCL's debug.h."""
_TAKEN_DOWN = lazy(r"\b(?:Abort|Destroy)\b")
"""A communicator that is taken down."""
_ABORTS = "Abort START"
_MISSING = lazy(r"NET/Plugin ?: (?:dlerror=.*)?(?:No plugin found|Could not find)")
_ASKED = "NCCL_NET set by environment to "
_MOST_WARNINGS = 100
_MAX_ENTRIES = 100_000
"""Limit for each collection: a log may be of any length."""


@dataclass(slots=True)
class Evidence:
    """The statements of one execution. `lines` has, for some facts, the line that stated it."""

    debugging: bool = False  # Whether NCCL printed debug lines, or a table of its RAS
    facts: MutableFacts = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)
    networks: dict[str, dict[str, None]] = field(default_factory=dict)
    """Network name as printed → processes (`host:pid`) that use it."""
    providers: dict[str, None] = field(default_factory=dict)  # Libfabric's, as printed
    nics: dict[str, int] = field(default_factory=dict)
    """Process → NICs that its plugin found."""
    hcas: dict[str, int] = field(default_factory=dict)
    """Process → NICs that NCCL's own verbs network found."""
    channels: dict[str, str] = field(default_factory=dict)
    """What channels show → the first line that showed it.

    What carries their data: `net:NETWORK`, `p2p` or `shm`; of networks, whether with GPUDirect
    RDMA: `gdr` or `no-gdr`, or both. With `mnnvl`, NVLink may connect hosts, and `nodes` are NVLink
    domains.
    """
    nodes: int = 0  # The most of any communicator, as of ranks; 0: not printed
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
    spread: dict[str, set[int]] = field(default_factory=dict)
    """Collective → the first and last channels of its large messages.

    Those of one group share the channels.
    """
    ways: dict[Way, str] = field(default_factory=dict)
    """Which of several ways inside the fabric lines show → the first such line."""
    nvls: set[bool] = field(default_factory=set)
    """Whether ranks had channels for NVLS: one or both values."""
    mnnvl: str = ""
    """Whether ranks may use NVLink between hosts: `yes`, `no`, or empty if none says so."""
    known_errors: dict[str, Finding] = field(default_factory=dict)  # Code → the first of it
    hangs: Hangs = field(default_factory=Hangs)
    counted: PastedCounters = field(default_factory=PastedCounters)
    failed: str = ""
    """What ended NCCL: the warning above the first call that returned an error, or that call."""
    error_follows_below: dict[str, str] = field(default_factory=dict)
    """Process → its first warning before NCCL returned an error, if no progress came since."""
    errors: FirstErrors = field(default_factory=FirstErrors)
    _last_warning: str = ""
    aborted: set[str] = field(default_factory=set)
    """Processes whose program aborted a communicator: what waits there then returns an error."""
    endings: set[str] = field(default_factory=set)
    """Endings (`via NET/…`) of channel lines already read: another line with one adds nothing."""

    def is_shown(self, *, alone: bool) -> bool:
        """Return whether any line of NCCL's, or a known error, was read.

        `alone`: pasted counters of NICs are enough, too, even if they count no error.
        """
        errors = set(self.known_errors)
        if not alone:
            errors.discard("counters")  # it only says that counters were pasted
        shown = bool(self.facts or errors or self.counted.is_shown())
        return self.debugging or shown or self.hangs.is_shown()

    @property
    def is_debug_text(self) -> bool:
        """Whether NCCL itself printed something: debug lines, or its version."""
        return self.debugging or "nccl" in self.facts

    def feed(
        self, message: str, origin: str = "", *, warning: bool = False, place: str = ""
    ) -> None:
        """Read one debug message (the text after `NCCL INFO`).

        First, whether the process goes on after a warning; then, by the first words, what the
        message states; at last, whether it is a warning or shows that NCCL gives up.

        `origin` (`host:pid:tid`) and `place` (source file and line) are the text before it.
        """
        self.debugging = True
        head = message[:HEAD]
        if self.errors.kept and not warning:
            self._forget_if_it_goes_on(message, head, origin)
        # 512 ranks print hundreds of thousands of these, with few distinct endings.
        if head == CHANNEL and _carrier_of_channel(message) in self.endings:
            return
        # Any other message may be a choice of an algorithm, which begins with its collective.
        handler = HANDLERS.get(head, Evidence._algorithm)
        handler(self, message, origin)
        if _ABORTS in message:
            self.aborted.add(_process(origin))
        # A call that returned an error, as its caller prints it.
        if CHAIN in message and _CHAIN.match(message):
            self._keep_failed_call(message, origin)
        if warning:
            self._complaint(message, place=place)
            if not nccl_says("harmless", place + message):
                self._last_warning = message
                self._count_warning(message)
                self._keep_if_error_follows(message, origin, place)
                self.errors.keep_warning(_process(origin), message)

    def _keep_failed_call(self, message: str, origin: str) -> None:
        """Keep the first call that returned an error, or the last warning before it.

        One that its own process aborts returns an error, too, which explains nothing.
        """
        if self.failed or _process(origin) in self.aborted:
            return
        self.failed = self._last_warning or message
        if not self._last_warning:  # warnings are among the errors already
            self.errors.gave_up(message)

    def _count_warning(self, message: str) -> None:
        # A message that is kept already is counted on, however many there are.
        if message not in self.warnings and len(self.warnings) >= _MOST_WARNINGS:
            return
        self.warnings[message] = self.warnings.get(message, 0) + 1

    def _keep_if_error_follows(self, message: str, origin: str, place: str) -> None:
        """Keep the first warning of a process below which NCCL's sources return an error."""
        # In healthy runs, too, a plugin may give up, and GIN (GPU-initiated networking) complain.
        if nccl_says("gave up", message) or nccl_says("of GIN", message):
            return
        if len(self.error_follows_below) >= _MOST_WARNINGS:
            return
        if error_follows(message, _file(place)):
            self.error_follows_below.setdefault(_process(origin), message)

    def _forget_if_it_goes_on(self, message: str, head: str, origin: str) -> None:
        """Forget what a process warned of if it prints what it only prints while it goes on."""
        if HANDLERS.get(head) in _PROGRESS and not _TAKEN_DOWN.search(message):
            self.error_follows_below.pop(_process(origin), None)
            self.errors.forget_warnings(_process(origin))

    def read_unclaimed(self, text: str) -> None:
        """Read a line that no other reader knows: it may show a known error, or a variable."""
        if not self.requested and "FI_PROVIDER" in text and _REQUESTED.search(text):
            self.requested = text
        self.hangs.feed(text)
        if is_counted(text):
            self.counted.feed(text)
        self.debugging = self.debugging or self.hangs.has_ras_table
        for error in matching_errors(text):
            self.known_errors.setdefault(error.code, error.finding(text))

    def version(self, text: str, _origin: str = "") -> None:
        """Read the version of NCCL, RCCL, HIP or ROCm, a debug message or a separate line.

        `NCCL version 2.28.9+cuda13.0`, `RCCL version : 2.22.3-HEAD:7d8d67c`, `HIP version  : 6.4`.
        """
        if (match := _VERSION.match(text)) is not None:
            self._keep_first_statement(match[1].lower(), match[2], text)
            if match[3]:  # `+cuda13.0`: what it was built for
                self._keep_first_statement(match[3], match[4], text)

    def _keep_first_statement(self, name: str, value: str, line: str) -> None:
        # The first process that states it counts.
        if name not in self.facts:
            self.facts[name] = value
            self.lines[name] = line

    def _complaint(self, message: str, _origin: str = "", *, place: str = "") -> None:
        """Read a warning, or an INFO line of a component that failed; `place` printed it.

        It may show a known error. A network plugin that gives up is kept as trouble.
        """
        self.read_unclaimed(place + message)
        if len(self.trouble) >= _MOST_WARNINGS:
            return
        if nccl_says("gave up", message) and not nccl_says("of GIN", message):
            self.trouble.append(message)

    # -- by the first words of a message, as `HANDLERS` has them

    def _channel(self, message: str, _origin: str) -> None:
        # "Channel 00/0 : 1[1] -> 0[0] [send] via NET/Socket/0/GDRDMA", or
        # "Channel 00/02 : 0 1 2 3": what carries the data of a channel, or the ranks of its ring.
        ending = _carrier_of_channel(message)
        if (match := _VIA.match(ending)) is None:
            _, _, ring = message.partition(" : ")
            ranks = ring.split()
            if all(map(str.isdecimal, ranks)):
                self.ranks = max(self.ranks, len(ranks))
            return
        if len(self.endings) < _MAX_ENTRIES:
            self.endings.add(ending)
        net = match["net"] or match["collnet"]
        key = "p2p" if match["p2p"] else "shm"  # unless it is a network
        if net:
            key = f"net:{net}"
        direct = "/GDRDMA" in ending  # between NIC and GPU memory (GPUDirect RDMA)
        self.channels.setdefault(key, message)
        if match["mnnvl"]:
            self.channels.setdefault("mnnvl", message)
        if net:
            self.channels.setdefault("gdr" if direct else "no-gdr", message)
            if match["dev"]:
                self.used.setdefault(net, set()).add(match["dev"])

    def _way(self, message: str, _origin: str = "") -> None:
        # What shows which of several ways inside the fabric is used: see catalog/paths.toml.
        for way in ways(message):
            if len(self.ways) < _MOST_WARNINGS:
                self.ways.setdefault(way, message)

    def _network(self, message: str, origin: str) -> None:
        # "Using network AWS Libfabric", of each process; or a way, "Assigned GIN plugin …".
        self._way(message)
        if match := _NETWORK.match(message):
            processes = self.networks.setdefault(match[1], {})
            if len(processes) < _MAX_ENTRIES:
                processes[_process(origin)] = None
            self.lines.setdefault("network", message)

    def _ofi(self, message: str, origin: str) -> None:
        # "NET/OFI Selected provider is efa, fabric is efa (found 4 nics)", versions, complaints.
        if match := _PROVIDER.match(message):
            provider, fabric, nics = match.groups()
            self.providers[provider] = None
            self.lines.setdefault("provider", message)
            if nics and len(self.nics) < _MAX_ENTRIES:
                if _is_fewest(int(nics), self.nics):  # the number that counts: its line is quoted
                    self.lines["nics"] = message
                self.nics[_process(origin)] = int(nics)
            if fabric:
                self._keep_first_statement("fabric", fabric, message)
            return
        self._complaint(message)
        for name, pattern in _FIELDS.items():
            if match := pattern.match(message):
                self._keep_first_statement(name, match[1], message)

    def _builtin(self, message: str, origin: str) -> None:
        # "NET/IB : Using …", "NET/Socket : Using …": the NICs or interfaces that NCCL itself found.
        if message.startswith(("NET/IB : Using", "NET/gIB : Using")):
            self._verbs(message, origin)
        elif message.startswith("NET/Socket : Using"):
            self.interfaces |= dict.fromkeys(_INTERFACE.findall(message))
            self.lines.setdefault("interface", message)
        elif _MISSING.match(message):
            self.missing = self.missing or message
        else:
            self._complaint(message)

    def _verbs(self, message: str, origin: str) -> None:
        # "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE", and its interface: NICs, and links.
        # NCCL 2.27+ prints this line even without any device: count the devices.
        devices = _IB_DEVICE.findall(message)
        if devices and len(self.hcas) < _MAX_ENTRIES:
            if _is_fewest(len(devices), self.hcas):  # as of EFA's NICs
                self.lines["ib"] = message
            self.hcas[_process(origin)] = len(devices)
        if len(self.ib_links) < _MAX_ENTRIES:
            links = {index: link for index, _, link in devices}
            self.ib_links = links | self.ib_links  # those of the first process count
            self.ib_names |= dict.fromkeys(name for _, name, _ in devices)

    def _comm(self, message: str, _origin: str) -> None:
        # "ncclCommInitRank comm 0x… rank 0 nranks 16 …", "comm 0x… rank 0 nRanks 16 nNodes 2 …"
        # A program may have several communicators: the largest counts.
        if match := _COMM.search(message):
            if match["mnnvl"] == "1":
                self.channels.setdefault("mnnvl", message)
                self.mnnvl = "yes"
            elif match["mnnvl"]:
                self.mnnvl = self.mnnvl or "no"  # one rank that may use it is enough
            self.ranks = max(self.ranks, int(match["ranks"]))
            self.nodes = max(self.nodes, int(match["nodes"] or 0))
        if (match := _COMM_ID.search(message)) and len(self.jobs) < _MAX_ENTRIES:
            self.jobs[match[1]] = None

    def _coll(self, message: str, _origin: str) -> None:
        # "24 coll channels, 24 collnet channels, 16 nvls channels, …"
        count, *_ = message.split(maxsplit=1)
        self.channel_count = max(self.channel_count, int(count))
        if match := _NVLS.search(message):
            self.nvls.add(match[1] != "0")  # whether this rank has any

    def _algorithm(self, message: str, _origin: str) -> None:
        """Read which algorithm NCCL chose for a size, and over which channels it spreads it."""
        match = _CHOICE.search(message)
        if match is not None and len(self.algorithms) < _MAX_ENTRIES:
            self.algorithms[_algorithm_and_protocol(match)] = None
            self.lines.setdefault("algorithms", message)
        spread = _SPREAD.match(message)
        if spread is not None and int(spread["size"]) >= _LARGE:
            channels = map(int, spread.group("first", "last"))
            self.spread.setdefault(spread["collective"], set()).update(channels)
            self.lines.setdefault("channels_used", message)

    def _variable(self, message: str, origin: str) -> None:
        # "NCCL_NET set by environment to AWS Libfabric". With NCCL_HOSTID, parts of a machine may
        # be hosts of their own.
        if message.startswith(_ASKED):
            self.asked = message.removeprefix(_ASKED).strip(" .")
        elif (
            message.startswith("NCCL_HOSTID set by environment")
            and len(self.named_hosts) < _MAX_ENTRIES
        ):
            self.named_hosts[_process(origin)] = None
        else:
            self._way(message)
            self.read_unclaimed(message)

    def _connected(self, message: str, _origin: str) -> None:
        # "Connected all rings, use ring PXN 0 GDR 1", "Connected CollNet", which is SHARP.
        if match := _PXN.search(message):
            self._keep_first_statement("pxn", "yes" if match[1] == "1" else "no", message)
        if message.lower().startswith("connected collnet"):
            self._keep_first_statement("sharp", "connected", message)


def is_significant(text: str) -> bool:
    """Return whether a line that no benchmark knows shows an error, a status or a request."""
    if "FI_PROVIDER" in text or is_counted(text) or is_sign(text):
        return True
    return exit_status(text) is not None or any(matching_errors(text))


def _process(origin: str) -> str:
    """Return `host:pid` of the origin `host:pid:tid`."""
    return ":".join(origin.split(":", 2)[:2])


def _file(place: str) -> str:
    """Return the source file that printed a line, `net_ib.cc` of `transport/net_ib.cc:7`."""
    path = place.partition(":")[0]
    return path.rpartition("/")[2].strip()


def _carrier_of_channel(message: str) -> str:
    """Return the end of a channel's line, from ` via ` on, which names what carries its data."""
    return message[message.rfind(" via ") :]


def _is_fewest(count: int, counts: Mapping[str, int]) -> bool:
    """Return whether a process has fewer than each one before it."""
    return all(count < other for other in counts.values())


def _algorithm_and_protocol(match: Match) -> str:
    """Return `ALGORITHM/PROTOCOL`: of a collective, a symmetric kernel, or a copy engine."""
    algorithm = match["algorithm"] or "CE"  # a copy engine, where no algorithm is printed
    if match["kernel"]:
        algorithm = "SYMMETRIC"
    protocol = match[match.lastindex or 0]  # the protocol, kernel or copy, whichever is printed
    algorithm = _ALGORITHMS.get(algorithm, algorithm)
    protocol = _PROTOCOLS.get(protocol, protocol)
    name = f"{algorithm}/{protocol}"
    return name.upper()


HEAD = 8
"""Length of the prefix of a message that determines whether it is of interest."""

CHANNEL = "Channel "
"""Prefix of a channel's line."""

CHAIN = " -> "
"""Part of a call that returned an error; of few other lines, among them channels."""

_VARIABLES = (
    "NCCL_HOSTID",
    "NCCL_NET",
    "NCCL_IB_DISABLE",
    "NCCL_P2P",
    "NCCL_SHM",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_MAX",
    "NCCL_TUNER",
)
"""Variables of interest, which NCCL reports as ``NAME set by environment to VALUE``."""
_WAYS = {begins[:HEAD] for begins in beginnings()} - {"Assigned", "NCCL_TUN"}
_RINGS = tuple(f"Ring {number:02d} " for number in range(100))
_COLLECTIVES = tuple(f"{number} coll channels" for number in range(1, 129))

_Handler: TypeAlias = Callable[[Evidence, str, str], None]
_HEADS_OF: Mapping[_Handler, tuple[str, ...]] = {
    Evidence._channel: (CHANNEL, "CollNet ", *_RINGS),  # noqa: SLF001 - its own table
    Evidence._network: ("Using ne", "Using in", "Assigned"),  # noqa: SLF001
    Evidence._ofi: ("NET/OFI ",),  # noqa: SLF001
    Evidence._builtin: ("NET/IB :", "NET/gIB ", "NET/Sock", "NET/Plug"),  # noqa: SLF001
    Evidence._comm: ("ncclComm", *(f"comm 0x{digit}" for digit in "0123456789abcdef")),  # noqa: SLF001
    Evidence._variable: tuple(name[:HEAD] for name in _VARIABLES),  # noqa: SLF001
    Evidence._way: tuple(_WAYS),  # noqa: SLF001
    Evidence.version: ("NCCL ver", "RCCL ver"),
    Evidence._connected: ("Connecte",),  # noqa: SLF001
    Evidence._complaint: ("Failed t", "External", "Bootstra"),  # noqa: SLF001
    Evidence._coll: tuple(text[:HEAD] for text in _COLLECTIVES),  # noqa: SLF001
}
_PROGRESS = frozenset({Evidence._channel, Evidence._comm, Evidence._coll, Evidence._connected})  # noqa: SLF001
"""What reads lines that NCCL prints while it goes on, but for those of `_TAKEN_DOWN`."""
HANDLERS = {head: handler for handler, heads in _HEADS_OF.items() for head in heads}
"""Keyed by the first `HEAD` characters, as a log of hundreds of ranks is almost all debug lines."""
