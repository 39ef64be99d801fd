"""The numbers of one row → points of the contract. Pure."""

from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from fabbench.benchmarks.perftest.tables import Row
from fabbench.model import Labels, Point


class Number(NamedTuple):
    """One number in its base unit; None: not measured, or the print left nothing of it."""

    metric: str
    stat: str
    part: str
    value: float | None


class Kind(NamedTuple):
    """What the text around a table says of all its rows. Empty: it does not say."""

    way: str = ""
    direction: str = ""
    side: str = ""
    rank: str = ""
    device: str = ""
    """Of a step that fabbench started."""


def way_of_case(case: str | None) -> str:
    """Say what a program's latency is: half of the round trip, or all of it (`rtt_factor` in the source)."""
    verb = (case or "").split("_")[1:2]
    return {"read": "round-trip", "atomic": "round-trip"}.get(verb[0], "one-way") if verb else ""


def numbers(row: Row) -> list[Number]:
    """Give the numbers of a row in base units, but for those that have no metric.

    Zero is what perftest prints for what it did not measure (`BW peak`), or what is below its last decimal.
    """
    found = []
    for column, cell in zip(row.layout.columns, row.cells, strict=True):
        if column.metric != "cpu_util":
            value = float(cell * column.factor) if cell and column.factor is not None else None
            found.append(Number(column.metric, column.stat, column.part, value))
    return found


def points(size: int, found: Iterable[Number], kind: Kind, *, service_level: str = "") -> list[Point]:
    """Put the numbers of one row that share their labels into one point each, in the order of the print."""
    groups: dict[tuple[str, str, str], list[tuple[str, float]]] = {}
    for metric, stat, part, value in found:
        # `tps` counts round trips, whatever the latency beside it is of.
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
        labels = _labels(kind, family, stat, name)
        out.append(Point(size, labels, tuple(m for m, _ in group), tuple(value for _, value in group)))
    return out


@lru_cache(maxsize=4096)
def _labels(kind: Kind, family: str, stat: str, name: str) -> Labels:
    """Give the labels of one sort of number: one mapping, shared by all its points."""
    told = {
        "way": {"latency": kind.way, "tps": "round-trip"}.get(family, ""),
        "direction": kind.direction if family == "bandwidth" else "",
        "side": kind.side,
        "rank": kind.rank,
        "device": kind.device,
        "name": name,
        "stat": stat,
    }
    return {label: value for label, value in told.items() if value}


def exact(token: str, factor: Decimal) -> float | None:
    """Read a number as printed, in base units; None for zero and for what is no number."""
    try:
        number = Decimal(token)
    except ArithmeticError:
        return None
    return float(number * factor) if number.is_finite() and number else None
