"""Which transport an MPI reports: Open MPI's BTL and MTL, UCX's endpoints, Intel MPI's provider.

Open MPI prints it with `btl_base_verbose` 30 and `opal_common_ofi_verbose` 1, UCX with UCX_LOG_LEVEL=info,
Intel MPI with I_MPI_DEBUG. The texts are those of Open MPI 4.1.4 with UCX 1.13.1; those of newer versions
are from published logs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fabbench.model.patterns import lazy

_PROCESS = r".*\[([\w.-]+):\d+\] "
_BTL = lazy(_PROCESS + r"mca: bml: Using (\w+) btl for send to \[\[\d+,\d+\],\d+\] on node \S+\s*")
_OFI = lazy(
    rf"(?:{_PROCESS}\S*mtl_ofi_component\.c:\d+: mtl:ofi:prov(?:ider)?|.*\[\d+\] MPI startup\(\): libfabric provider): "
    r"([a-z][a-z0-9_-]*(?:;ofi_\w+)?)\s*"
)
_STARTUP = lazy(r".*MPI startup\(\): (?:libfabric version: (\S+)|\d+ +\d+ +([\w.-]+) +[{\d].*)\s*")
_UCX = lazy(r".*UCX +INFO +(?:.* )?(?:(inter|intra)-node cfg#\d+|(self) cfg#\d+|ep_cfg\[\d+\]):? .*")
_UCX_LANES = lazy(r"\w+\(([^)]+)\)")

WORDS = ("btl for send", "mtl:ofi:prov", "UCX", "MPI startup")  # each line that is read has one of them
_BTLS: Mapping[str, str] = {"tcp": "socket", "vader": "shm", "sm": "shm", "smcuda": "shm", "openib": "ib", "self": ""}
_UCX_NAMES: Mapping[str, str] = {
    "tcp": "socket",
    "srd": "efa",
    **dict.fromkeys(("sysv", "posix", "cma", "knem", "xpmem"), "shm"),
    **dict.fromkeys(("cuda_ipc", "rocm_ipc"), "p2p"),
    **dict.fromkeys(("self", "cuda_copy", "rocm_copy", "gdr_copy"), ""),
}
_UCX_VERBS = lazy(r"(?:rc|ud|dc)(?:_mlx5|_verbs|_x|_v)?|gga_mlx5")


def is_told(text: str) -> bool:
    """Return whether a line may be about transports."""
    return any(word in text for word in WORDS)


@dataclass(slots=True)
class TransportLines:
    """The lines about transports so far."""

    lines: dict[str, str] = field(default_factory=dict)  # transport → the first line that reported it
    stated: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, None] = field(default_factory=dict)
    """Nodes of the processes that printed. They may know only the addresses of others."""

    def read(self, text: str) -> bool:
        """Read a line; return whether it is about transports."""
        if "btl for send" in text and (match := _BTL.fullmatch(text)):
            self.nodes[match[1]] = None
            self._add(_BTLS.get(match[2], match[2]), text)
        elif ("mtl:ofi:prov: " in text or "MPI startup" in text) and (match := _OFI.fullmatch(text)):
            self.nodes |= {match[1]: None} if match[1] else {}
            self.stated["provider"], name = match[2], match[2].partition(";")[0]
            self._add("efa" if name in {"efa", "efa-direct"} else f"libfabric-{name}", text)
        elif "MPI startup" in text and (match := _STARTUP.fullmatch(text)):
            self.stated |= {"libfabric": match[1]} if match[1] else {}
            self.nodes |= {match[2]: None} if match[2] else {}
        elif "UCX" in text and (match := _UCX.fullmatch(text)):
            # A process's endpoint to itself lists a network, too.
            for lane in (lane for lanes in _UCX_LANES.findall(text) if lanes[:5] != "self/" for lane in lanes.split()):
                name = lane.partition("/")[0]
                self._add("ib" if _UCX_VERBS.fullmatch(name) else _UCX_NAMES.get(name, name.lower()), text)
        else:
            return False
        return True

    def facts(self) -> dict[str, str | int]:
        """Return `transport`: the one between nodes if there is one, else the one within the node."""
        facts: dict[str, str | int] = {**self.stated}
        if chosen := sorted(self.lines.keys() - {"shm", "p2p"} or self.lines):
            facts["transport"] = "+".join(chosen)
        if len(self.nodes) > 1:
            facts["hosts"] = len(self.nodes)
        return facts

    def evidence(self) -> dict[str, str]:
        """Return the line that states the transport."""
        named = str(self.facts().get("transport", "")).split("+")[0]
        return {"transport": self.lines[named]} if named in self.lines else {}

    def _add(self, transport: str, text: str) -> None:
        if transport:
            self.lines.setdefault(transport, text)
