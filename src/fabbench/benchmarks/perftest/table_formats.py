"""Headers and rows of perftest's tables, parsed to exact numbers. Pure.

The source prints each column with a fixed number of decimals (perftest_parameters.h, RESULT_FMT and
REPORT_FMT since 2013): a number with fewer is cut off, and two numbers that lost the tab between them can be
separated. Blanks are not significant: editors move columns.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from fabbench.benchmarks.consistency import is_remains
from fabbench.model.log import Labels, Point
from fabbench.model.patterns import lazy

UNITS: Mapping[str, Decimal] = {"MB/sec": Decimal(1 << 20), "MiB/sec": Decimal(1 << 20), "Gb/sec": Decimal(125_000_000)}
"""Unit → bytes per second: MB (until 24.04) and MiB are both 2^20 (`format_factor`)."""

_NAMES: Mapping[str, tuple[str, str, str]] = {
    "BW peak": ("bandwidth", "peak", ""),
    "BW average": ("bandwidth", "", ""),
    "BW Port1": ("bandwidth", "", "port 1"),
    "BW Port2": ("bandwidth", "", "port 2"),
    "MsgRate": ("message_rate", "", ""),
    "MsgRate Port1": ("message_rate", "", "port 1"),
    "MsgRate Port2": ("message_rate", "", "port 2"),
    "CPU_Util": ("cpu_util", "", ""),
    "t_min": ("latency", "min", ""),
    "t_max": ("latency", "max", ""),
    "t_typical": ("latency", "median", ""),
    "t_avg": ("latency", "", ""),
    "t_stdev": ("latency", "stdev", ""),
    "99% percentile": ("latency", "p99", ""),
    "99.9% percentile": ("latency", "p99.9", ""),
    "tps average": ("tps", "", ""),
}
"""Column name → metric, stat, part."""

_COLUMN = lazy(
    r"\s*(BW (?:peak|average|Port[12])|MsgRate(?: Port[12])?|CPU_Util|t_(?:min|max|typical|avg|stdev)"
    r"|99(?:\.9)?% percentile|tps average)\s*(?:\[(MB/sec|MiB/sec|Gb/sec|Mpps|usec|cycles|%%?)\])?",
    re.ASCII,
)
_KEYS = lazy(r"\s*#bytes\s+(#sl\s+)?#iterations(?=\s|$)", re.ASCII)
_MARKS = lazy(r"^#(?=\s)|\*\*|`")
_NOT_A_NUMBER = r"-?nan|-?inf"
_NUMERIC = lazy(r"(?=\.*[0-9])[0-9.]+|-?(?:nan?|inf?)", re.ASCII)


class Damage(IntEnum):
    """Whether a line is the remains of a row."""

    NONE = 0
    POSSIBLE = 1  # one to three integers: a row that stops early, or another program's numbers
    CERTAIN = 2


class PerftestColumn(NamedTuple):
    """One column of numbers."""

    metric: str  # a metric of the contract, or `tps` (round trips per second) or `cpu_util` (%)
    stat: str  # the label; empty: the main figure
    part: str  # `port 1`, `port 2`; empty: all
    factor: Decimal | None  # base units per printed unit; None: fabbench does not know the unit (CPU cycles)


@dataclass(frozen=True, slots=True, kw_only=True)
class PerftestLayout:
    """The columns of a table, as its header names them."""

    columns: tuple[PerftestColumn, ...]  # empty: the header is cut off, and no row below it can be read
    unit: str = ""  # the unit of bandwidth, as printed
    has_sl: bool = False  # whether the second column is a service level (raw Ethernet with QoS)

    def has(self, metric: str) -> bool:
        """Return whether there is a column of this metric."""
        return any(column.metric == metric for column in self.columns)


class PerftestRow(NamedTuple):
    """One complete row. `cells` are the printed numbers; None for `nan` and `inf`."""

    layout: PerftestLayout
    size: int
    iterations: int
    sl: str
    cells: tuple[Decimal | None, ...]

    def cell(self, metric: str, stat: str = "") -> Decimal | None:
        """Return the number in a column as printed; None if there is none."""
        for column, cell in zip(self.layout.columns, self.cells, strict=True):
            if (column.metric, column.stat, column.part) == (metric, stat, ""):
                return cell
        return None


def plain(text: str) -> str:
    """Return a line without the markup of documents: a comment sign, bold, and code marks."""
    if "\xa0" in text:
        text = text.replace("\xa0", " ")
    return _MARKS.sub("", text) if "#" in text[:1] or "*" in text or "`" in text else text


def read_header(text: str) -> PerftestLayout | None:
    """Read the header line; None for any other line."""
    keys = _KEYS.match(text)
    if keys is None:
        return None
    columns: list[PerftestColumn] = []
    unit, at = "", keys.end()
    while (match := _COLUMN.match(text, at)) is not None:
        name, printed = match.groups()
        metric, stat, part = _NAMES[name]
        unit = printed if metric == "bandwidth" and printed in UNITS else unit
        columns.append(PerftestColumn(metric, stat, part, _factor(metric, printed)))
        at = match.end()
    whole = not text[at:].strip() and all(column.factor is not None or column.metric == "latency" for column in columns)
    if not any(column.metric == "latency" and not column.stat for column in columns):
        # Before 2016 there was no average: `--output=latency` printed t_typical, so that is the main figure.
        columns = [column._replace(stat="") if column.stat == "median" else column for column in columns]
    return PerftestLayout(columns=tuple(columns) if whole else (), unit=unit, has_sl=keys[1] is not None)


def _factor(metric: str, unit: str | None) -> Decimal | None:
    """Return the base units per unit of a column; None if the header states no known unit."""
    if metric == "bandwidth":
        return UNITS.get(unit or "")
    expected = {"message_rate": ("Mpps", Decimal(1_000_000)), "latency": ("usec", Decimal("1e-6"))}
    known, factor = expected.get(metric, (unit, Decimal(1)))
    return factor if unit == known else None


def read_row(text: str, layout: PerftestLayout) -> PerftestRow | None:
    """Read a complete row; None for any other text."""
    if not layout.columns:
        return None
    for pattern in _patterns(layout):
        if (match := pattern.fullmatch(text)) is not None:
            size, *rest = match.groups()
            sl = rest.pop(0) if layout.has_sl else ""
            cells = tuple(Decimal(token) if token[-1].isdigit() else None for token in rest[1:])
            return PerftestRow(layout, int(size), int(rest[0]), sl, cells)
    return None


def damage(text: str, layout: PerftestLayout) -> Damage:
    """Return whether a line that is not a complete row may be the remains of one.

    It may contain only numbers, unless most of its cells are intact. Below a header that is cut off itself,
    every line that looks like a row is damaged.
    """
    tokens, keys = text.split(), 3 if layout.has_sl else 2
    if tokens and len(tokens) <= keys + 1 and all(map(str.isdigit, tokens)):
        return Damage.POSSIBLE
    if not layout.columns:
        return Damage.CERTAIN if len(tokens) > keys and all(map(_NUMERIC.fullmatch, tokens)) else Damage.NONE
    return Damage.CERTAIN if is_remains(tokens, _cells(layout)) else Damage.NONE


@lru_cache(maxsize=256)
def _patterns(layout: PerftestLayout) -> tuple[re.Pattern[str], ...]:
    """Return the patterns of complete rows: with two decimals, and with six (Gb/sec below 0.1)."""
    service_level = r"([0-9]{1,3})\s+" if layout.has_sl else ""
    keys = rf"\s*([0-9]{{1,18}})\s+{service_level}([0-9]{{1,18}})\s+"
    return tuple(re.compile(keys + end.pattern + r"\s*", re.ASCII) for end in _ends(layout))


@lru_cache(maxsize=256)
def _cells(layout: PerftestLayout) -> tuple[re.Pattern[str], ...]:
    rate = r"(?:[0-9]{1,18}\.(?:[0-9]{2}|[0-9]{6}))|" + _NOT_A_NUMBER
    keys = [re.compile(r"[0-9]{1,18}", re.ASCII)] * (3 if layout.has_sl else 2)
    return (*keys, *[re.compile(rate, re.ASCII)] * len(layout.columns))


@lru_cache(maxsize=256)
def _ends(layout: PerftestLayout) -> tuple[re.Pattern[str], ...]:
    ends = []
    for rates in (2, 6) if layout.unit == "Gb/sec" else (2,):
        decimals = {"bandwidth": rates, "message_rate": 6}
        # No leading zero and a fixed end, so that joined numbers can be split in only one way.
        cells = (
            rf"((?:0|[1-9][0-9]{{0,17}})\.[0-9]{{{decimals.get(column.metric, 2)}}}|{_NOT_A_NUMBER})"
            for column in layout.columns
        )
        ends.append(re.compile(r"\s*".join(cells), re.ASCII))
    return tuple(ends)


class Number(NamedTuple):
    """One number in its base unit; None: not measured, or rounded to zero in print."""

    metric: str
    stat: str
    part: str
    value: float | None


class RowContext(NamedTuple):
    """What the text around a table states about all its rows. Empty: not stated."""

    way: str = ""
    direction: str = ""
    side: str = ""
    rank: str = ""
    device: str = ""  # the device of a step that fabbench started


def way_of_program(case: str | None) -> str:
    """Return `one-way` or `round-trip`: what a program prints as latency; empty: unknown.

    It prints half of the round trip, or all of it (`rtt_factor` in the source).
    """
    verb = (case or "").split("_")[1:2]
    return {"read": "round-trip", "atomic": "round-trip"}.get(verb[0], "one-way") if verb else ""


def numbers(row: PerftestRow) -> list[Number]:
    """Return the numbers of a row in base units, except those without a metric.

    perftest prints zero for what it did not measure (`BW peak`), or for what is below the last decimal.
    """
    measured = []
    for column, cell in zip(row.layout.columns, row.cells, strict=True):
        if column.metric != "cpu_util":
            value = float(cell * column.factor) if cell and column.factor is not None else None
            measured.append(Number(column.metric, column.stat, column.part, value))
    return measured


def points(size: int, measured: Iterable[Number], context: RowContext, *, service_level: str = "") -> list[Point]:
    """Return the points of a row in print order: one for all numbers with the same labels."""
    groups: dict[tuple[str, str, str], list[tuple[str, float]]] = {}
    for metric, stat, part, value in measured:
        # `tps` counts round trips, even if the latency beside it is one-way.
        named = "message_rate" if metric == "tps" else metric
        family = "tps" if metric == "tps" else "latency" if metric == "latency" else "bandwidth"
        group = groups.setdefault((family, stat, part), [])
        if value is not None:
            group.append((named, value))
    out = []
    for (family, stat, part), group in groups.items():
        if not group and (stat or part or family == "tps"):
            continue
        name = part or (f"sl {service_level}" if service_level else "")
        labels = _labels(context, family, stat, name)
        out.append(Point(size, labels, tuple(m for m, _ in group), tuple(value for _, value in group)))
    return out


@lru_cache(maxsize=4096)
def _labels(context: RowContext, family: str, stat: str, name: str) -> Labels:
    """Return the labels for one kind of number: one mapping, shared by all its points."""
    labels = {
        "way": {"latency": context.way, "tps": "round-trip"}.get(family, ""),
        "direction": context.direction if family == "bandwidth" else "",
        "side": context.side,
        "rank": context.rank,
        "device": context.device,
        "name": name,
        "stat": stat,
    }
    return {label: value for label, value in labels.items() if value}


def exact(token: str, factor: Decimal) -> float | None:
    """Return a printed number in base units; None for zero and for anything that is not a number."""
    try:
        number = Decimal(token)
    except ArithmeticError:
        return None
    return float(number * factor) if number.is_finite() and number else None
