"""Which transport an MPI reports.

Open MPI's BTL and MTL, UCX's endpoints, Intel MPI's and MPICH's provider.

Open MPI prints it with `btl_base_verbose` 30 and `opal_common_ofi_verbose` 1, UCX with
UCX_LOG_LEVEL=info or UCX_PROTO_INFO=y, Intel MPI with I_MPI_DEBUG, MPICH with
MPIR_CVAR_DEBUG_SUMMARY=1, libfabric with FI_LOG_LEVEL=info.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from fabbench.catalog.systems import pairs_of
from fabbench.model.log import Facts, MutableFacts
from fabbench.model.mappings import without_empty
from fabbench.model.patterns import Match, lazy

if TYPE_CHECKING:
    from fabbench.catalog.paths import Way

_PROCESS = r".*\[([\w.-]+):\d+\] "
_BTL = lazy(_PROCESS + r"mca: bml: Using (\w+) btl for send to \[\[\d+,\d+\],\d+\] on node \S+\s*")
_OFI = lazy(
    rf"(?:{_PROCESS}\S*mtl_ofi_component\.c:\d+: mtl:ofi:prov(?:ider)?: "
    r"|(?:.*[]:|] +|\s*)(?:MPID_nem_ofi_init\(\): used OFI|(?:MPI startup\(\): )?libfabric) "
    r"provider: "
    r"|libfabric:\d+:.*:core:core:fi_fabric_\(\):\d+<info> Opened fabric: (?=efa|shm))"
    # Open MPI 4.1 of AWS prints the domain in place of the provider, and MPICH the fabric behind
    # it.
    r"(?:(?P<domain>(?:efa_|rdmap)\w+-(?:rdm|dgrm))|shm|(?P<provider>(?:efa(?:-direct)?|cxi|gni|lnx|mlx|net|opx|psm[23]?"
    r"|sockets|tcp|ucx|udp|usnic|verbs)(?:;ofi_\w+)?))(?: - .*)?\s*"
    r"|.*MPI startup\(\): libfabric version: (?P<libfabric>\d\S*)\s*"
)
_NODE = lazy(r".*MPI startup\(\): \d+ +\d+ +([\w.-]+) +[{\d].*")
_UCX = lazy(
    r".*(?:UCX\s+INFO\s+|\|\s+)(?:\S+\s+)?(?:(inter|intra)-node cfg#\d+|(self) "
    r"cfg#\d+|ep_cfg\[\d+\]).*"
)
_UCX_LANES = lazy(r"(?<=\w)\(([^()]+)\)")
_UCX_LANE = lazy(r"(?:^|\s)(\w+)/")
_SIZES = r"\|\s+\d\w*(?:\.\.\w+)?\s+\|"
_UCX_ROW = lazy(rf"(?:(?!{_SIZES}).)*{_SIZES}.*\|([^|][^|/]*/[^|]+)\|\s*")
"""Of UCX_PROTO_INFO, below its endpoint."""
_RMA = "remote memory "
_PLACE = lazy(r"\b(?:from|to|into) (\w+)")
"""Where the data of an operation is: `host`, `cuda` …"""
_EMULATED = "software emulation"

WORDS = (
    "btl for send",
    "mtl:ofi:prov",
    "UCX",
    "MPI startup",
    "libfabric provider",
    "OFI provider",
    "Opened fabric",
    "-node cfg#",
    "_mlx5/",
    "_verbs/",
    "tcp/",
    "srd/",
    "/memory",
)
"""Each line that is read has one of them."""
_WITHIN_NODE = frozenset({"shm", "p2p"})


@lru_cache(maxsize=256)  # a log has few names, on many lines
def _transport(name: str) -> str:
    """Return what is called here what carries a lane or BTL; empty: nothing that counts."""
    for pattern, transport in pairs_of("transports.csv", "fabbench.benchmarks").items():
        if re.fullmatch(pattern, name):
            return transport
    return name.lower()


def _is_in(memories: Collection[object], operation: str) -> bool:
    """Return whether all data of an operation is in the program's memory: a host's, or a GPU's.

    `memories`: those that the program states for its two ends; if they differ, any may be meant.
    """
    if memories not in ({"DRAM"}, {"VRAM"}):
        return True
    are_on_host = {place == "host" for place in _PLACE.findall(operation)}
    return are_on_host == {"DRAM" in memories}


@dataclass(slots=True)
class TransportLines:
    """The lines about transports so far."""

    lines: dict[str, str] = field(default_factory=dict)
    """Transport → the first line that reported it."""
    named: dict[str, str] = field(default_factory=dict)
    """The facts `provider`, `domain` and `libfabric`."""
    endpoint: str = ""
    """UCX's endpoint whose lanes are printed: `inter`, `intra`, `self` or `any`; empty: none."""
    operation: str = ""
    """The line that names UCX's operation of the rows below."""
    ways: "dict[Way, str]" = field(default_factory=dict)
    """Which of several ways inside the fabric rows show → the first such row."""
    nodes: dict[str, None] = field(default_factory=dict)
    """Those of the processes that printed."""
    rma: list[tuple[str, str]] = field(default_factory=list)
    """Reads and writes of remote memory between processes: the operation, and a row of it."""

    def read(self, text: str) -> bool:
        """Read a line; return whether it is about transports.

        A row of a table counts only below the line about its endpoint.
        """
        for word, pattern, add in _KINDS:
            if word in text:
                match = pattern.fullmatch(text)
                if match is not None:
                    add(self, match)
                    return True
        return "|" in text and bool(self.endpoint) and self._read_row(text)

    def add_btl(self, match: Match) -> None:
        """Add Open MPI's line about what carries data to a node."""
        node, btl = match.groups()
        self.nodes[node] = None
        self._add_lanes(f"{btl}/", match.string)  # as UCX writes a lane

    def add_provider(self, match: Match) -> None:
        """Add a line about libfabric: a provider, a domain, shared memory or the version."""
        if match[1]:  # the node that printed it
            self.nodes[match[1]] = None
        named = without_empty(match.groupdict())
        implied = {"provider": "efa"} if "domain" in named else {}  # only EFA's are read
        self.named = {**implied, **self.named, **named}
        if "libfabric" in named:  # the version alone
            return
        # A domain alone is EFA's; what names nothing is the line about shared memory.
        provider = named.get("provider", "efa" if named else "shm")
        name = provider.partition(";")[0].removesuffix("-direct")
        transport = name if name in {"efa", "shm"} else f"libfabric-{name}"
        self.lines.setdefault(transport, match.string)

    def add_node(self, match: Match) -> None:
        """Add Intel MPI's line about the node of a rank."""
        self.nodes[match[1]] = None

    def add_endpoint(self, match: Match) -> None:
        """Add UCX's line about the lanes of an endpoint, whose rows follow."""
        text = match.string
        is_self = "(self/" in text
        # `inter` or `intra` (node), `self` (a process and itself), or not stated
        self.endpoint = "self" if is_self else match[1] or match[2] or "any"
        self._add_lanes(" ".join(_UCX_LANES.findall(text)), text)

    def _read_row(self, text: str) -> bool:
        """Read a row of UCX_PROTO_INFO; it may name the operation that the rows below are of."""
        if " by ucp_" in text:
            self.operation = text
        row = _UCX_ROW.fullmatch(text)
        if row is None:
            return False
        self._add_lanes(row[1], text)  # the last column
        if self.endpoint != "self":
            from fabbench.catalog.paths import ways  # imported here: --help needs no table

            for way in ways(self.operation + text):
                self.ways.setdefault(way, text)
            if _RMA in self.operation:
                self.rma.append((self.operation, text))
        return True

    def keep_stated_operation(self, facts: Facts) -> None:
        """Keep only what rows of the operation say, where a program states that: `op_type`.

        That is nixlbench, which states the memories of both ends, too (`seg_type`).
        UCX also prints what would carry operations that a program does not use, and those on host
        memory beside those on a GPU's. Each row says what carries a range of sizes, also inside a
        node. A row of software emulation says that the other processor copies the data: no NIC and
        no shared memory does, except over TCP, which has nothing else.
        """
        from fabbench.catalog.paths import ways  # imported here: --help needs no table

        operation = f"{_RMA}{facts.get('op_type')} by ".lower()
        memories = {facts.get("initiator_seg_type"), facts.get("target_seg_type")}
        of_operation = [(name, row) for name, row in self.rma if operation in name]
        rows = [row for name, row in of_operation if _is_in(memories, name)]
        if rows:  # replace what lines about endpoints said
            lanes = [(lane, row) for row in rows for lane in _UCX_LANE.findall(row)]
            self.lines = {_transport(lane): row for lane, row in lanes}
            self.lines.pop("", None)
            self.ways = {way: row for row in rows for way in ways(operation + row)}
        for row in rows:
            if _EMULATED in row and "tcp/" not in row:
                self.lines = {_EMULATED: row}

    def _add_lanes(self, lanes: str, text: str) -> None:
        """Add the transports of an endpoint's lanes (`rc_mlx5/mlx5_0 …`). `text`: their line."""
        if self.endpoint == "self":  # a process and itself
            return
        transports = {*map(_transport, _UCX_LANE.findall(lanes))} - {""}
        within_node = transports & _WITHIN_NODE
        # An endpoint within the node lists the network, too: it does not count there, if another
        # lane, of this line or one above, can carry the data.
        is_within_node = self.endpoint == "intra" or "shm" in transports
        if is_within_node and (within_node or not _WITHIN_NODE.isdisjoint(self.lines)):
            transports = within_node
        for transport in transports:
            self.lines.setdefault(transport, text)

    def facts(self) -> MutableFacts:
        """Return facts: those of libfabric (provider, domain, version), or how UCX moves data.

        `hosts` if they are several; `transport`: the one between nodes if there is one, else the
        one within the node.
        """
        facts: MutableFacts = {**self.named}
        if self.ways:
            from fabbench.catalog.paths import path_values  # imported here: few logs need it

            facts |= path_values(self.ways)
        if self.lines:
            between_nodes = self.lines.keys() - _WITHIN_NODE
            facts["transport"] = "+".join(sorted(between_nodes or self.lines))
        if len(self.nodes) > 1:
            facts["hosts"] = len(self.nodes)
        return facts

    def evidence(self) -> dict[str, str]:
        """Return the lines that state the transport, and the way inside it."""
        transport = str(self.facts().get("transport", ""))
        quotes = {way.fact: line for way, line in self.ways.items()}
        first, _, _ = transport.partition("+")  # of several
        if first in self.lines:
            quotes["transport"] = self.lines[first]
        return quotes


_KINDS = (
    ("btl for send", _BTL, TransportLines.add_btl),
    ("fabric", _OFI, TransportLines.add_provider),
    ("prov", _OFI, TransportLines.add_provider),
    ("MPI startup", _NODE, TransportLines.add_node),
    ("cfg", _UCX, TransportLines.add_endpoint),
)
"""A word of a line, its pattern, and what adds it."""
