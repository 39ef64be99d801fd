"""What NCCL's debug lines prove: the network that was assigned, and what carried the data.

The wordings and the versions they belong to: docs/formats.md. Evidence in order of weight: `via NET/…` on a
channel, `Using network …`, `Selected provider is …`, `NET/IB|NET/Socket : Using …`. That the plugin wrote a
line proves nothing: it does so before it fails.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from fabbench.model import Finding, Severity

_VIA = re.compile(
    r" via (?:NET/(?P<net>[^/]+)/(?P<dev>\d+)(?:\(\d+\))?(?P<flags>(?:/[A-Za-z()]+)*)"
    r"|(?P<p2p>P2P/)|(?P<shm>SHM/|direct shared memory)|COLLNET/(?P<collnet>[^/\s]+))"
)
_PROVIDER = re.compile(
    r"NET/OFI Selected [Pp]rovider is ([^\s,]+)(?:, fabric is (\S+))?(?: \(found (\d+) nics?\))?"
)
_COMM = re.compile(r"(?:rank|Rank) (\d+) n[Rr]anks (\d+)(?: nNodes (\d+))?")
_IB_DEVICE = re.compile(r"\[\d+\][\w.-]+:\d+/")
_FIELDS: Mapping[str, re.Pattern[str]] = {
    "plugin": re.compile(r"NET/OFI (?:Using|Initializing) (aws-ofi-nccl \S+)"),
    "libfabric": re.compile(r"NET/OFI Using Libfabric version (\S+)"),
    "protocol": re.compile(r"NET/OFI Using transport protocol (\w+)"),
}
_TROUBLE = re.compile(
    r"No eligible providers|initialization failed|Initializing plugin failed"
    r"|Failed to initialize (?!NET plugin (?:IB|Socket)\b)"
    r"|Couldn't find any optimal provider|Unable to find a protocol|Only EFA provider is supported"
    r"|requires at least libfabric|network .* not found"
)
_MISSING = re.compile(r"NET/Plugin ?: (?:dlerror=.*)?(?:No plugin found|Could not find)")


class Evidence:
    """Collects the debug messages of one execution; `facts` and `findings` say what they come to."""

    def __init__(self) -> None:
        self._debugging = False
        self._facts: dict[str, str | int] = {}
        self._networks: dict[str, str] = {}  # name as printed → the line
        self._providers: dict[str, int | None] = {}  # provider → the fewest NICs found
        self._carriers: dict[str, set[bool]] = {}  # network name, `p2p` or `shm` → with GPUDirect or not
        self._channels: set[str] = set()
        self._nodes = 0
        self._ranks = 0
        self._ib_devices = 0
        self._socket = False
        self._trouble: list[str] = []
        self._missing = ""
        self._warnings: dict[str, None] = {}

    @property
    def seen(self) -> bool:
        """Whether anything of NCCL's own was read."""
        return self._debugging or bool(self._facts)

    # -- reading

    def feed(self, message: str, *, warning: bool = False) -> None:
        """Read one debug message (the text after `NCCL INFO`)."""
        self._debugging = True
        handler = HANDLERS.get(message[:HEAD])
        if handler is not None:
            handler(self, message)
        elif warning:
            self._trouble_in(message)
        if warning and len(self._warnings) < 100:
            self._warnings[message] = None

    def _trouble_in(self, message: str) -> None:
        if len(self._trouble) < 100 and _TROUBLE.search(message):
            self._trouble.append(message)

    def _channel(self, message: str) -> None:
        # 512 ranks write hundreds of thousands of these, with few different endings.
        ending = message[message.rfind(" via ") :]
        if ending in self._channels:
            return
        if len(self._channels) < 100_000:
            self._channels.add(ending)
        match = _VIA.match(ending)
        if match is None:
            return
        name = match["net"] or match["collnet"] or ("p2p" if match["p2p"] else "shm")
        key = f"net:{name}" if match["net"] or match["collnet"] else name
        self._carriers.setdefault(key, set()).add("/GDRDMA" in (match["flags"] or ""))

    def _using(self, message: str) -> None:
        if message.startswith("Using network "):
            self._networks.setdefault(message.removeprefix("Using network ").strip(), message)

    def _assigned(self, message: str) -> None:
        name = message.removeprefix("Assigned NET plugin ").removesuffix(" to comm").strip()
        self._networks.setdefault(name, message)

    def _ofi(self, message: str) -> None:
        if match := _PROVIDER.match(message):
            provider, fabric, nics = match.groups()
            found = int(nics) if nics else None
            known = self._providers.get(provider)
            self._providers[provider] = min(found, known) if found and known else found or known
            if fabric:
                self._facts.setdefault("fabric", fabric)
        else:
            self._trouble_in(message)
        for key, pattern in _FIELDS.items():
            if match := pattern.match(message):
                self._facts.setdefault(key, match[1])

    def _builtin(self, message: str) -> None:
        if message.startswith("NET/IB : Using"):
            # From NCCL 2.27 on this line is there with no device at all: count the devices.
            self._ib_devices = max(self._ib_devices, len(_IB_DEVICE.findall(message)))
        elif message.startswith("NET/Socket : Using"):
            self._socket = True
        elif _MISSING.match(message):
            self._missing = self._missing or message

    def _comm(self, message: str) -> None:
        if match := _COMM.search(message):
            self._ranks = max(self._ranks, int(match[2]))
            self._nodes = max(self._nodes, int(match[3] or 0))

    def _version(self, message: str) -> None:
        self.version(message)

    def version(self, text: str) -> None:
        """Read `NCCL version 2.28.9+cuda13.0`, which older versions print on a line of its own."""
        words = text.split()
        if len(words) >= 3 and words[:2] == ["NCCL", "version"]:
            nccl, _, cuda = words[2].partition("+cuda")
            self._facts.setdefault("nccl", nccl)
            if cuda:
                self._facts.setdefault("cuda", cuda)

    # -- what it comes to

    def facts(self, hosts: int = 0) -> dict[str, str | int]:
        """Say what the lines state. `hosts` is the number of hosts that the benchmark's own text lists."""
        facts = dict(self._facts)
        network = self._network()
        if network:
            facts["network"] = network
        carrier = self._transport(network, max(hosts, self._nodes))
        if self._debugging:
            facts["transport"] = carrier
        if self._providers:
            facts["provider"] = "+".join(sorted(self._providers))
        nics = [count for count in self._providers.values() if count]
        if nics and network.startswith(("efa", "libfabric")):
            facts["nics"] = min(nics)
        elif network == "ib" and self._ib_devices:
            facts["nics"] = self._ib_devices
        directs = {
            direct for name, flags in self._carriers.items() if name.startswith("net:") for direct in flags
        }
        if directs:
            facts["gdr"] = "partly" if len(directs) > 1 else "yes" if directs == {True} else "no"
        if self._ranks:
            facts["ranks"] = self._ranks
        if self._nodes:
            facts["nodes"] = self._nodes
        return facts

    def _network(self) -> str:
        """Name the network that the library assigned; empty: the log does not say."""
        names = {self._classify(name) for name in self._networks}
        if not names:
            names = {self._classify(name[4:]) for name in self._carriers if name.startswith("net:")}
        if names:
            return "+".join(sorted(names))
        if self._providers and not self._trouble:
            return self._classify("Libfabric")
        if self._ib_devices:
            return "ib"
        return "socket" if self._socket else ""

    def _classify(self, name: str) -> str:
        """Turn a printed network name into one of ours; the plugin's name says nothing of its provider."""
        lower = name.lower()
        if lower in {"aws libfabric", "libfabric", "ofi"}:
            provider = "+".join(sorted({provider.partition(";")[0] for provider in self._providers}))
            if not provider:
                return "libfabric"
            return "efa" if provider in {"efa", "efa-direct"} else f"libfabric-{provider}"
        return "ib" if lower.startswith("ibext") else lower

    def _transport(self, network: str, hosts: int) -> str:
        nets = {self._classify(name[4:]) for name in self._carriers if name.startswith("net:")}
        if nets:
            return "+".join(sorted(nets))
        if hosts > 1 and network:
            return network
        inside = set(self._carriers)
        return inside.pop() if len(inside) == 1 else "unknown"

    def findings(self) -> Iterator[Finding]:
        """Say what should be known: failed plugins, fall-backs, ranks that disagree, warnings."""
        networks = sorted({self._classify(name) for name in self._networks})
        if len(networks) > 1:
            yield Finding(
                code="networks-disagree",
                severity=Severity.ERROR,
                meaning=f"The ranks do not use the same network: {', '.join(networks)}.",
                line=next(iter(self._networks.values())),
                advice="Install the same plugin on every node; ranks that disagree hang or fall back.",
            )
        if self._trouble and not any(name.startswith(("efa", "libfabric")) for name in networks):
            fallback = f", and NCCL used {networks[0]} instead" if networks else ""
            yield Finding(
                code="plugin-failed",
                severity=Severity.WARNING,
                meaning=f"The network plugin failed{fallback}.",
                line=self._trouble[0][:300],
                advice="Check with `fi_info -p efa` on the node, and name the network "
                '(NCCL_NET="AWS Libfabric") so that the run fails instead of falling back.',
            )
        elif self._missing and networks == ["socket"]:
            yield Finding(
                code="plugin-missing",
                severity=Severity.NOTE,
                meaning="No network plugin was found, and NCCL used its own sockets.",
                line=self._missing[:300],
                advice="For EFA, put the aws-ofi-nccl library on LD_LIBRARY_PATH of every rank.",
            )
        others = [text for text in self._warnings if not _TROUBLE.search(text)]
        for text in others[:5]:
            yield Finding(
                code="nccl-warning", severity=Severity.WARNING, meaning="NCCL warned.", line=text[:300]
            )


HEAD = 8
"""As many characters of a message tell whether it is of interest at all."""

HANDLERS: Mapping[str, Callable[[Evidence, str], None]] = {
    "Channel ": Evidence._channel,  # noqa: SLF001 - a table of this class's own methods
    "Using ne": Evidence._using,  # noqa: SLF001
    "Assigned": Evidence._assigned,  # noqa: SLF001
    "NET/OFI ": Evidence._ofi,  # noqa: SLF001
    "NET/IB :": Evidence._builtin,  # noqa: SLF001
    "NET/Sock": Evidence._builtin,  # noqa: SLF001
    "NET/Plug": Evidence._builtin,  # noqa: SLF001
    "ncclComm": Evidence._comm,  # noqa: SLF001
    "NCCL ver": Evidence._version,  # noqa: SLF001
    "Failed t": Evidence._trouble_in,  # noqa: SLF001
    **{f"comm 0x{digit}": Evidence._comm for digit in "0123456789abcdef"},  # noqa: SLF001
    **{f"Ring {number:02d} ": Evidence._channel for number in range(100)},  # noqa: SLF001
}
"""By the first `HEAD` characters, because a log of hundreds of ranks is almost all debug lines."""
