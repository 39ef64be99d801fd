"""What others measured, and the most that NICs can carry.

The files (expectations.csv, noise.csv) document their columns and the sources of their figures.
Conflicting figures are kept.
"""

import math
from bisect import bisect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from fabbench.catalog.systems import records, rows_of
from fabbench.model.fabrics import networks, of_kind, providers
from fabbench.model.units import RATE_UNITS, TIME_UNITS, parse_size
from fabbench.model.values import frozen

_COLLECTIVES = rows_of("collectives.csv")
SAME_CASE: Mapping[str, str] = {
    other: row["collective"]
    for row in _COLLECTIVES  # which may have several names there
    for other in row["elsewhere"].split()
}
"""What other benchmarks call a collective → its name in nccl-tests."""


def _hierarchical(rate: float, nodes: int, gpus: int) -> float:
    """Return the maximum busbw where NICs carry only what must cross between nodes.

    busbw counts (ranks - 1) / ranks of the data, of which (nodes - 1) / nodes cross. `rate`: of a
    node's NICs, in bytes per second; `gpus`: of a node.
    """
    ranks = nodes * gpus
    return rate * (ranks - 1) / ranks * nodes / (nodes - 1)


_Bound: TypeAlias = Callable[[float, int, int], float]
"""The maximum busbw, from the rate of a node's NICs, nodes, and GPUs per node."""
_BOUNDS: Mapping[str, _Bound] = {
    "crossing": _hierarchical,
    "crossing-per-gpu": lambda rate, nodes, gpus: _hierarchical(rate, nodes, gpus) / gpus,
    "nics": lambda rate, _nodes, _gpus: rate,
}
CEILINGS = {row["collective"]: _BOUNDS[row["ceiling"]] for row in _COLLECTIVES}
"""Collective → its bound."""


class Role(StrEnum):
    """How a published figure may be used."""

    REFERENCE = "reference"
    CONFLICT = "conflict"
    """Sources disagree on it: no result is judged low by it."""
    SUPERSEDED = "superseded"
    MISTUNED = "mistuned"
    THRESHOLD = "threshold"
    """What a check requires, not a measurement."""
    ARTIFACT = "artifact"
    """A number that a tool prints but that is not a rate."""


@frozen
class Published:
    """One published figure, in its metric's base unit. None and empty text: not stated, or any."""

    system: str = ""
    nodes: int | None = None
    nics: int | None = None
    """NICs that were used on each node; None: all."""
    fabric: str = ""
    benchmark: str
    case: str = ""
    size: int | None = None
    """None: large, and not stated."""
    metric: str
    value: float
    role: Role
    conditions: str = ""
    source: str
    date: str


@cache
def published() -> Sequence[Published]:
    """Return every published figure."""
    return tuple(records(Published, map(_in_base_units, rows_of("expectations.csv"))))


def deciding(figures: Iterable[Published], nodes: int | None) -> list[Published]:
    """Return the measured figures of a number of nodes.

    Without any, of the nearest below and above, if both.
    """
    measured = [figure for figure in figures if figure.role in {Role.REFERENCE, Role.CONFLICT}]
    exact = [figure for figure in measured if figure.nodes in {None, nodes}]
    counts = sorted({figure.nodes for figure in measured if figure.nodes})
    if exact:
        return exact
    # Not among the counts itself, `nodes` lies between those at the positions above - 1 and above.
    above = bisect(counts, nodes or 0)
    if not 0 < above < len(counts):  # nothing is below, or above
        return []
    nearest = counts[above - 1 : above + 1]
    return [figure for figure in measured if figure.nodes in nearest]


def _in_base_units(row: Mapping[str, str]) -> Mapping[str, Any]:
    # A row of published figures, with rates in bytes per second, times in seconds, sizes in bytes.
    factor = {**RATE_UNITS, **TIME_UNITS}[row["unit"]]
    size = parse_size(row["size"]) if row["size"] else None
    return {**row, "value": float(row["value"]) * factor, "size": size}


PAIRS = "pairs"
"""The kind of tools that measure one pair of processes, whatever carries their data."""
_KINDS = ("inside", "sockets")
"""Those of collectives: kinds of fabrics, too."""
_KIND_OF: Mapping[str, str] = {
    transport: kind
    for kind in _KINDS
    for fabric in of_kind(kind)
    for transport in networks(fabric) | providers(fabric)
}


def noise_kinds(transports: Collection[str]) -> frozenset[str]:
    """Return the kinds of noise, as noise.csv names them, of collectives over these transports.

    Those are as logs state them, several joined by `+`. All kinds where one is unknown.
    """
    parts = {part for transport in transports for part in transport.split("+")}
    if not parts or not parts <= _KIND_OF.keys():
        return frozenset(_KINDS)
    return frozenset(_KIND_OF[part] for part in parts)


def assumed_noise(kinds: Collection[str], size: int) -> float:
    """Return the standard deviation of the natural logarithm of a figure at a size in bytes.

    That of the noisiest of some kinds.
    """
    return max(_noise(kind, size) for kind in kinds)


def _noise(kind: str, size: int) -> float:
    # The standard deviation of a kind at a size; the last row of a kind is of any larger size.
    for row in _deviations():  # the first that fits: their sizes increase
        if row.kind == kind and size <= row.up_to:
            return row.deviation
    raise LookupError(kind)


class _Deviation(NamedTuple):
    kind: str
    up_to: float
    """The largest size, in bytes."""
    deviation: float


@cache
def _deviations() -> Sequence[_Deviation]:
    """Return the rows of noise.csv: those of one kind have increasing sizes."""
    rows: list[_Deviation] = []
    for row in rows_of("noise.csv"):  # without a size it is of all that are larger
        up_to = parse_size(row["up_to"]) if row["up_to"] else math.inf
        deviation = float(row["deviation"])
        rows.append(_Deviation(row["kind"], up_to, deviation))
    return rows
