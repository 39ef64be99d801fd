"""Lines of torch.distributed all_reduce reports. Pure.

Two families, both from stas00/ml-engineering's `all_reduce_bench.py` and its many copies.

Sentences, until 2025-01: ``The average bandwidth of all_reduce with a 4.0GB payload (50 trials, 16 ranks):``
and two result lines. GB and GBps are 1e9, Gbps is 1e9 bits per second.

A Markdown table since then: ``| payload | busbw | algbw |``, payloads 1024-based. Until 2025-01-22 they
are written KB, MB, GB, and GBps is 2^30 bytes per second; after that KiB, MiB, GiB, and GBps is 1e9.
``--profile_stability`` has no payload column, and a row for each trial. Since 2026 there may be columns of
one call's latency.
"""

import re
from decimal import Decimal
from typing import NamedTuple

from fabbench.units import RATE_UNITS

_RATE = r"(?P<{0}>\d+\.\d+) ?(?P<{0}_unit>[KMGT]?[bB]ps)"
_SENTENCE = re.compile(
    r"(?:.*\s)?The average bandwidth of (?P<case>\w+) with a (?P<payload>\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
    r"(?P<unit>[KMGT]?i?B) payload \((?P<trials>\d+) trials, (?P<ranks>\d+) ranks\):\s*"
)
_SENTENCE_CUT = re.compile(r"(?:.*\s)?The average bandwidth of \w+ (?:with a|over) .*")
_OVER = re.compile(
    r"(?:.*\s)?The (?:average bandwidth(?: and the per-call latency)?"
    r"|(?P<payload>\d+(?:\.\d+)?)GiB payload bandwidth) of (?P<case>\w+) over (?P<ranks>\d+) ranks"
    r" \((?:at least )?(?P<warmup>\d+) warmups / (?P<trials>\d+) trials(?:, (?P<method>.*))?\):\s*"
)
_RESULT = re.compile(
    rf"(?:.*\s)?(?P<metric>algbw|busbw): {_RATE.format('value')}(?: \(std: (?P<std>\d+\.\d+)\))?"
    rf" \({_RATE.format('again')}\)\s*"
)
_RESULT_CUT = re.compile(r"\s*(?:algbw|busbw):.*")
_ENVIRONMENT = re.compile(
    r"- software: `?torch=(?P<torch>[\w.+-]+)`?, `?(?:cuda=(?P<cuda>[\w.]+))`?, "
    r"`?nccl=(?P<nccl>\d+(?:\.\d+)+|\(\d+(?:, \d+)+\))`?.*"
)
_COLUMNS = {
    "payload": re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[KMGTPE]?i?B)"),
    "busbw": re.compile(_RATE.format("value")),
    "algbw": re.compile(_RATE.format("value")),
    "latency median": re.compile(r"(?P<us>\d+\.\d)us"),
    "p99": re.compile(r"(?P<us>\d+\.\d)us"),
    "mean": re.compile(r"(?P<us>\d+\.\d)us"),
    "calls": re.compile(r"\d+"),
}
_POWERS = " KMGTPE"
_STATS = {"latency median": "median", "p99": "p99", "mean": "mean"}


class Announced(NamedTuple):
    """The sentence above the figures."""

    case: str | None
    facts: dict[str, str | int]
    size: int | None = None
    """Of all figures; None: a table says it in each row."""
    table: bool = False
    """Whether a table follows."""
    rounded: bool = False
    """Whether the payload has three decimals, so that the size is not known exactly."""


class Rate(NamedTuple):
    """A rate as printed."""

    digits: str
    unit: str
    """In which it is printed: ``GBps``, ``Gbps``."""
    binary: bool = False
    """Whether G is 2^30, as in the tables of 2025-01."""

    @property
    def value(self) -> float:
        """In bytes per second."""
        return float(Decimal(self.digits) * self._factor)

    @property
    def half_step(self) -> float:
        """Half of the last printed digit, in bytes per second."""
        return float(self._factor * Decimal(10) ** -len(self.digits.partition(".")[2]) / 2)

    @property
    def _factor(self) -> Decimal:
        power = _POWERS.index(self.unit[:-3] or " ")
        if self.binary and "B" in self.unit:
            return Decimal(1024**power)
        return Decimal(RATE_UNITS[f"{self.unit[:-2]}/s"])


class Result(NamedTuple):
    """A result line of the sentence form."""

    metric: str
    rate: Rate
    again: Rate
    """The same in bits."""
    stdev: Rate | None


class Row(NamedTuple):
    """A row of the table form."""

    size: int | None
    """None: the table has no payload column."""
    rates: dict[str, Rate]
    times: dict[str, float]
    """Statistic → seconds of one call."""


def read_sentence(text: str) -> Announced | None:
    """Read the sentence above figures, whole or cut after its first words."""
    facts: dict[str, str | int]
    match = _SENTENCE.fullmatch(text)
    if match is not None:
        facts = {"ranks": int(match["ranks"]), "trials": int(match["trials"])}
        size = _size(match["payload"], match["unit"], thousand=1024 if "i" in match["unit"] else 1000)
        rounded = len(match["payload"].partition(".")[2]) == 3
        return Announced(match["case"], facts, size, rounded=rounded)
    match = _OVER.fullmatch(text)
    if match is not None:
        facts = {name: int(match[name]) for name in ("ranks", "trials", "warmup")}
        if match["method"]:
            facts["method"] = match["method"]
        whole = _size(match["payload"], "GiB", thousand=1024) if match["payload"] else None
        return Announced(match["case"], facts, whole, table=True)
    return Announced(None, {}) if _SENTENCE_CUT.fullmatch(text) else None


def read_result(text: str) -> Result | None:
    """Read a whole result line."""
    match = _RESULT.fullmatch(text)
    if match is None:
        return None
    rate = Rate(match["value"], match["value_unit"])
    stdev = rate._replace(digits=match["std"]) if match["std"] else None
    return Result(match["metric"], rate, Rate(match["again"], match["again_unit"]), stdev)


def is_result_cut(text: str) -> bool:
    """Whether this is a result line that cannot be read whole."""
    return _RESULT_CUT.fullmatch(text) is not None


def read_environment(text: str) -> dict[str, str | int] | None:
    """Read the versions above a report: torch, cuda, nccl."""
    match = _ENVIRONMENT.fullmatch(text)
    if match is None:
        return None
    return {**match.groupdict(), "nccl": ".".join(re.findall(r"\d+", match["nccl"]))}


def read_header(text: str) -> tuple[str, ...] | None:
    """Read a table's header: its columns, in the order in which they are printed."""
    cells = tuple(_cells(text))
    known = {"busbw", "algbw"} <= set(cells) <= set(_COLUMNS) and text.rstrip().endswith("|")
    return cells if known else None


def read_row(text: str, columns: tuple[str, ...]) -> Row | None:
    """Read a whole row. Bandwidths may be blank where there are latencies."""
    cells = _cells(text)
    if len(cells) != len(columns) or not text.rstrip().endswith("|"):
        return None
    found: dict[str, re.Match[str]] = {}
    for name, cell in zip(columns, cells, strict=True):
        match = _COLUMNS[name].fullmatch(cell)
        if match is not None:
            found[name] = match
        elif cell or name not in {"busbw", "algbw"} or not set(columns) & set(_STATS):
            return None
    size, binary = None, False
    if payload := found.get("payload"):
        unit = payload["unit"]
        size = _size(payload["number"], unit, thousand=1024)
        binary = len(unit) == 2 and unit != "iB"
    rates = {
        name: Rate(match["value"], match["value_unit"], binary)
        for name in ("algbw", "busbw")
        if (match := found.get(name))
    }
    times = {stat: float(f"{found[name]['us']}e-6") for name, stat in _STATS.items() if name in found}
    return Row(size, rates, times)


def is_row_cut(text: str, columns: tuple[str, ...]) -> bool:
    """Whether this is a row that cannot be read whole, told by its first cell, whole or cut."""
    cells = _cells(text)
    if not cells:
        return False
    if _COLUMNS[columns[0]].fullmatch(cells[0]):
        return True
    return len(cells) == 1 and re.fullmatch(r"\d+(?:\.\d*)?\s*[KMGTPE]?[iBbp]*", cells[0]) is not None


def _cells(text: str) -> list[str]:
    """Split a row of a Markdown table, whole or cut; empty for any other line."""
    stripped = text.strip()
    if not stripped.startswith("|"):
        return []
    return [cell.strip() for cell in stripped[1:].removesuffix("|").split("|")]


def _size(number: str, unit: str, *, thousand: int) -> int:
    power = _POWERS.index(unit[0]) if unit[0] in _POWERS else 0
    return int((Decimal(number) * thousand**power).to_integral_value())
