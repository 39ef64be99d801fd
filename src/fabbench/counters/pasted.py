"""Counters of NICs in text, of /sys and of the tools that print them.

`rdma statistic`, `ethtool -S`, perfquery, opapmaquery, node_exporter, and rccl-tests' own table.

They count since a driver was loaded: nothing tells of when they are.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from fabbench.counters.vocabulary import ERRORS, Meaning, named, resolved
from fabbench.model.messages import single_spaced
from fabbench.model.patterns import lazy

if TYPE_CHECKING:
    from fabbench.counters.congestion import Strain

_MOST_COUNTERS = 4096
"""Counters that are kept."""
_CONGESTION = {Meaning.PAUSED, Meaning.MARKED, Meaning.SLOWED, Meaning.WAITED}
_VALUE = r"(\d{1,19})"
_PATH = lazy(
    rf"(?:.*(?:infiniband|cxi)/)?([\w.-]+)/(?:ports/(\d+)/(?:hw_)?counters|device/telemetry)/"
    rf"(\w+)[:=\s]+{_VALUE}(?:@[\d.]{{1,30}})?\s*",
    re.ASCII,
)
_RDMA = lazy(r"(?:.* )?link ([\w.-]+/\d+) (\w+ \d+.*)", re.ASCII)
_RDMA_PAIR = lazy(rf"\b(\w{{1,60}}) {_VALUE}(?!\S)", re.ASCII)
_EXPORTED = lazy(
    r'.*\bnode_(?:infiniband|amazonefa|ethtool)_(\w+)\{(?:[^}]*\bdevice="([\w.-]+)")?[^}]*\} '
    r"(\d{1,19}(?:\.\d{1,19})?(?:e\+\d{1,2})?)\s*",
    re.ASCII,
)
_PAIR = lazy(rf"\s*\"?([A-Za-z]\w{{1,60}})\"?([\s:=.]{{1,80}}){_VALUE},?\s*", re.ASCII)
_HEADING = lazy(
    r".*(?:\bethtool -S ([\w.-]+)|# Port (?:extended )?counters: (Lid \d+ port \d+)"
    r'|"ifname": "([\w.-]+)"|(Port Number +\d+)\s*|VL Number +\d+\s*|NIC statistics:).*',
    re.ASCII,
)
_OPA = lazy(
    r"\s+((?:Xmit|Rcv|MC|Link|Local|Mark|Cong|Exc\.|FM|Uncorr|Num)[\w .]{0,20}\w) {2,}"
    rf"(?:\d{{1,19}} MB \({_VALUE} Flits\)|{_VALUE}(?: \(\w+\))?)\s*",
    re.ASCII,
)
_OF_RCCL_TESTS = lazy(
    r"Device((?:\s+[a-z]\w{2,60})+)\s*|([\w.:-]+)\([\w.-]+\)((?:\s+\d{1,19}\s+\d{1,15}\.\d\d)+)\s*",
    re.ASCII,
)
"""The head of its table, or a row: a device, and of each counter its growth and its rate."""
_WORDS = (
    "ethtool -S ", "NIC statistics:", "# Port ", '"ifname"', "node_", "counters/",
    "telemetry/", "Port Number ", "VL Number ", " Flits)",
)  # fmt: skip
"""One of these is in each line with counters of which not all begins with a name."""


class _Count(NamedTuple):
    nic: str
    name: str
    value: int
    is_certain: bool = True
    """Whether it is a counter, known or not."""


def is_counted(text: str) -> bool:
    """Return whether a line may have counters, or names the NIC of those below."""
    # Lines of logs are many: only those that a quick look cannot exclude are matched.
    if any(word in text for word in _WORDS):
        return True
    if ("link " in text and _RDMA.fullmatch(text)) or _OF_RCCL_TESTS.fullmatch(text):
        return True
    ends_in_number = text.rstrip(" ,")[-1:].isdigit()
    return ends_in_number and bool(_PAIR.fullmatch(text) or _OPA.fullmatch(text))


def _of_path(text: str) -> Iterator[_Count]:
    # /sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data: 12
    match = _PATH.fullmatch(text)
    if match is not None:
        device, port, name, value = match.groups("1")  # a NIC of Slingshot has no number of a port
        nic = device if port == "1" else f"{device}:{port}"
        yield _Count(nic, name, int(value))


def _of_rdma(text: str) -> Iterator[_Count]:
    # link mlx5_0/1 rx_write_requests 12 rx_read_requests 0 …, of `rdma statistic`
    match = _RDMA.fullmatch(text)
    if match is not None:
        nic, pairs = match.groups()
        for name, value in _RDMA_PAIR.findall(pairs):
            yield _Count(nic.removesuffix("/1"), name, int(value))


def _of_node_exporter(text: str) -> Iterator[_Count]:
    # A line of Prometheus's node_exporter, whose counters end in `_total`.
    match = _EXPORTED.fullmatch(text)
    if match is not None:
        name, device, value = match.groups()
        count = int(float(value))
        yield _Count(device or "", name.removesuffix("_total"), count)


class PastedCounters:
    """The counters that lines state, by NIC."""

    def __init__(self) -> None:
        self._nics: dict[str, dict[str, int]] = {}  # NIC → its counters
        self._nic = ""  # The NIC that the last heading names
        self._is_below_heading = False
        self._columns: list[str] = []  # Counters, by the last head of a table
        self.unjudged: dict[str, None] = {}
        """Names above 0 that no source is known to have."""
        self.error = ""
        """The first line that counts an error."""
        self._is_congested = False  # Whether a counter of congestion is above 0

    def is_shown(self) -> bool:
        """Return whether some line counts an error or congestion."""
        return bool(self.error) or self._is_congested

    def feed(self, text: str) -> None:
        """Read a line that no benchmark knows: a heading, or counters in one of six forms.

        Below a heading they are of its NIC.
        """
        heading = _HEADING.fullmatch(text)
        if heading is not None:
            # One without a name, such as "NIC statistics:", is of the NIC named before.
            nic = next(filter(None, heading.groups()), self._nic)
            self._nic = single_spaced(nic)
            # Below a lane ("VL Number 0") of opapmaquery are parts of the port's counters.
            self._is_below_heading = "VL Number" not in text
            return
        forms = (_of_path, _of_rdma, _of_node_exporter, self._of_table, self._of_opa, self._of_pair)
        for form in forms:
            counts = [*form(text)]
            if counts:
                for count in counts:
                    self._add(count, text)
                return

    def _of_pair(self, text: str) -> Iterator[_Count]:
        """Yield the counter of a line of ethtool, perfquery or JSON."""
        match = _PAIR.fullmatch(text)
        if match is not None:
            name, gap, value = match.groups()
            # Any text may have a word and a number: only below a heading it is surely a counter.
            is_certain = self._is_below_heading and ("_" in name or ".." in gap)
            yield _Count(self._nic, name, int(value), is_certain)

    def _of_table(self, text: str) -> Iterator[_Count]:
        # Yield the counters of a row of rccl-tests' NET_COUNTER_TABLE.
        match = _OF_RCCL_TESTS.fullmatch(text)
        if match is None:
            return
        names, device, cells = match.groups(default="")
        if names:
            self._columns = names.split()
        growths = cells.split()[::2]
        if len(growths) == len(self._columns):
            for name, growth in zip(self._columns, growths, strict=True):
                yield _Count(device, name, int(growth))

    def _of_opa(self, text: str) -> Iterator[_Count]:
        # Yield the counter of a line of opapmaquery: "    Xmit Data    12 MB (1572864 Flits)".
        match = _OPA.fullmatch(text)
        if match is not None and self._is_below_heading:
            name, flits, value = match.groups()
            compact = re.sub("[ .]", "", name)
            yield _Count(self._nic, compact, int(flits or value))

    def _add(self, count: _Count, text: str) -> None:
        # Keep a counter, and what it means that it is above 0; `text`: its line.
        known = named(count.name)
        if known is None:
            if count.is_certain and count.value and len(self.unjudged) < _MOST_COUNTERS:
                self.unjudged[count.name] = None
            return
        meaning = known.counter.meaning
        if count.value and meaning in ERRORS:
            self.error = self.error or text
        if count.value and meaning in _CONGESTION:
            self._is_congested = True
        nic = self._nics.setdefault(count.nic, {})
        # Text may name any number of NICs and counters.
        is_full = max(len(nic), len(self._nics)) >= _MOST_COUNTERS
        if not is_full:
            nic[count.name] = count.value

    def strains(self) -> list["Strain"]:
        """Return what the counters show of congestion."""
        if not self._nics:  # as in most logs
            return []
        from fabbench.counters.congestion import Port, strains

        ports = [
            Port(host="", nic=nic or "the NIC", counters=resolved(counted))
            for nic, counted in self._nics.items()
        ]
        return [*strains(ports)]
