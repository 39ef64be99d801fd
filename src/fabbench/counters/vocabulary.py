"""What the counters of NICs are called, by each driver and tool, and what it means that they grow.

counters.csv is the table: one row per counter, one column per source.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from itertools import chain
from typing import NamedTuple

from fabbench.catalog.systems import rows_of
from fabbench.model.mappings import Names

TX = "tx_bytes"
RX = "rx_bytes"
TX_PACKETS = "tx_packets"
RX_PACKETS = "rx_packets"
RETRANSMITTED = "retrans_segs"


class Meaning(StrEnum):
    """What it means that a counter grows."""

    BYTES = "bytes"
    PACKETS = "packets"
    LOST = "lost"
    """Packets that were lost: a few of many are usual."""
    RESENT = "resent"
    SERIOUS = "serious"
    """A link or a command failed."""
    PAUSED = "paused"
    """Priority flow control: one side told the other to stop."""
    MARKED = "marked"
    """A switch was congested and marked packets (ECN)."""
    SLOWED = "slowed"
    """The sender was told so (CNP), and sent more slowly."""
    WAITED = "waited"
    """Data waited for the other side's buffers."""
    KNOWN = "known"
    """Nothing."""


class Cell(NamedTuple):
    """What one source calls a counter: the parts of a sum, or a pattern."""

    names: Names
    unit: float
    """What 1 stands for: bytes; microseconds of what is a time; else 1."""


class Counter(NamedTuple):
    """A row of counters.csv."""

    name: str
    meaning: Meaning
    cells: Mapping[str, Sequence[Cell]]
    """Source → alternatives, of which the first that is there counts."""


ERRORS = frozenset({Meaning.LOST, Meaning.RESENT, Meaning.SERIOUS})
DRIVERS = ("mlx5", "bnxt_re", "ionic", "efa", "irdma", "rxe", "hfi1")
"""Sources whose counters are files in `hw_counters`."""
_NOT_SOURCES = {"name", "kind", "netdev"}
"""Columns without names of counters: `netdev` has the place in /proc/net/dev."""
_FILE = ("counters.csv", "fabbench.counters")
_UNITS = {"*4": 4, "*8": 8, "/1000": 0.001}
_PATTERN = re.compile(r"[*#\[]")  # `*`: any text, `#`: a priority, brackets as in expressions


@cache
def vocabulary() -> Sequence[Counter]:
    """Return the rows of counters.csv."""
    return [_counter(row) for row in rows_of(*_FILE)]


def _counter(row: Mapping[str, str]) -> Counter:
    cells = {
        column: list(map(_cell, text.split()))
        for column, text in row.items()  # in order of preference
        if column not in _NOT_SOURCES
    }
    return Counter(row["name"], Meaning(row["kind"]), cells)


def _cell(text: str) -> Cell:
    # `a+b*4` is the sum of two counters, in units of 4 octets.
    unit = next(filter(text.endswith, _UNITS), "")
    names = text.removesuffix(unit)
    return Cell(tuple(names.split("+")), _UNITS.get(unit, 1))


def net_columns() -> Sequence[str]:
    """Return our names of the 16 columns of /proc/net/dev; empty for those that are not read."""
    names = {row["netdev"]: row["name"] for row in rows_of(*_FILE)}
    return [names.get(str(number), "") for number in range(1, 17)]


def port_files() -> Sequence[str]:
    """Return the files of a port that runs read, below its folder."""
    files: dict[str, None] = {}
    for counter in vocabulary():
        if counter.meaning is not Meaning.KNOWN:  # that it grows means nothing
            files |= {f"counters/{name}": None for name in _plain_names(counter, "sysfs")}
            for driver in DRIVERS:
                files |= {f"hw_counters/{name}": None for name in _plain_names(counter, driver)}
    return [*files]


def telemetry_files() -> Sequence[str]:
    """Return the counters of a NIC of Slingshot that runs read, as patterns of a shell."""
    read = (each for each in vocabulary() if each.meaning is not Meaning.KNOWN)
    cells = chain.from_iterable(each.cells["cxi"] for each in read)
    return [name.replace("#", "[0-7]") for cell in cells for name in cell.names]


def _plain_names(counter: Counter, source: str) -> Iterator[str]:
    # What a source calls a counter, without patterns: these name no file.
    for cell in counter.cells[source]:
        yield from (name for name in cell.names if not _PATTERN.search(name))


class Named(NamedTuple):
    """A counter as a source names it."""

    counter: Counter
    unit: float
    priority: str = ""  # Of priority flow control, 0 to 7; empty: it counts all

    @property
    def key(self) -> str:
        """Our name, with the priority; what is lost is added up."""
        name = self.counter.name
        is_apart = self.priority and self.counter.meaning not in ERRORS
        return f"{name}.{self.priority}" if is_apart else name


def named(name: str) -> Named | None:
    """Return what a name of any source counts; None: no source is known to have it.

    One that is not listed may match a pattern, which may have the number of a priority.
    """
    plain = _by_name().get(name)
    if plain is not None:
        return plain
    for pattern, counter, unit in _patterns():
        match = pattern.fullmatch(name)
        if match is not None:
            priority = match.groupdict().get("priority", "")
            return Named(counter, unit, priority)
    return None


@cache
def _by_name() -> Mapping[str, Named]:
    # The first row of the table that has a name counts.
    names: dict[str, Named] = {}
    for counter, cell in _all_cells():
        for name in cell.names:
            names.setdefault(name, Named(counter, cell.unit))
    return names


@cache
def _patterns() -> Sequence[tuple[re.Pattern[str], Counter, float]]:
    patterns: list[tuple[re.Pattern[str], Counter, float]] = []
    for counter, cell in _all_cells():
        (*_, name) = cell.names  # a pattern is never a sum
        if _PATTERN.search(name):
            expression = name.replace("*", r"\w{0,60}").replace("#", "(?P<priority>[0-7])")
            patterns.append((re.compile(expression, re.ASCII), counter, cell.unit))
    return patterns


def _all_cells() -> Iterator[tuple[Counter, Cell]]:
    for counter in vocabulary():
        for cells in counter.cells.values():
            yield from ((counter, cell) for cell in cells)


def resolved(counted: Mapping[str, int]) -> dict[str, int]:
    """Return counters by our names, in base units, from what sources call them.

    Each priority counts apart, as `paused_us.3`. What means nothing is left out.
    """
    counters: dict[str, int] = {}
    for counter in vocabulary():
        if counter.meaning is not Meaning.KNOWN:
            count = next(_counts_of_sources(counter, counted), None)
            if count is not None:
                counters[counter.name] = count
    for name in counted.keys() - _by_name().keys():  # only a pattern may know it
        known = named(name)
        # Several names of a source may be one counter of ours: their sum.
        if known is not None and known.counter.meaning is not Meaning.KNOWN:
            before = counters.get(known.key, 0)
            count = int(counted[name] * known.unit)
            counters[known.key] = before + count
    return counters


def _counts_of_sources(counter: Counter, counted: Mapping[str, int]) -> Iterator[int]:
    """Yield what each source that is there counts, the preferred one first.

    `counted`: the source's names → their counts.
    """
    for cells in counter.cells.values():
        for cell in cells:
            parts = [counted[name] for name in cell.names if name in counted]
            if parts:
                yield int(sum(parts) * cell.unit)


def names_of(*meanings: Meaning) -> frozenset[str]:
    """Return our names of the counters with one of these meanings."""
    return frozenset(each.name for each in vocabulary() if each.meaning in meanings)


def largest_of_priorities(counters: Mapping[str, int], name: str) -> int:
    """Return a counter, or that of the priority for which it is the largest; 0 without any."""
    counts = (counters[key] for key in counters if _without_priority(key) == name)
    return max(counts, default=0)


def _without_priority(key: str) -> str:
    return key.partition(".")[0]
