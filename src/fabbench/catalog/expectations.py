"""What others measured, and the most that a system's NICs can carry.

The files (expectations.csv, systems.csv, noise.csv) document their columns and the sources of their
figures. Conflicting figures are kept.
"""

import math
import re
from bisect import bisect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from fabbench.catalog.instances import (
    connects_hosts,
    instance_catalog,
    plain,
    records,
    rows_of,
    similar_types,
)
from fabbench.model.errors import RequestError
from fabbench.model.fabrics import INTRA_HOST, networks, providers
from fabbench.model.patterns import lazy
from fabbench.model.units import RATE_UNITS, TIME_UNITS, parse_size

NVLINK: Mapping[str, float] = {"H100": 480e9, "H200": 480e9, "B200": 840e9}
"""Approximate maximum busbw observed with the NVLink of a node of 8 such GPUs.

With in-switch reduction.
"""

_GBPS = 1e9 / 8  # One Gb/s, in bytes per second
SAME_CASE: Mapping[str, str] = {
    **dict.fromkeys(("allreduce", "reduction", "allr"), "all_reduce"),
    **dict.fromkeys(("allgather", "fcollect", "allg"), "all_gather"),
    **dict.fromkeys(("reducescatter", "redsct"), "reduce_scatter"),
}
"""What other benchmarks call a collective → its name in nccl-tests."""


def _hierarchical(rate: float, nodes: int, gpus: int) -> float:
    """Return the maximum busbw where NICs carry only what must cross between nodes.

    busbw counts (ranks - 1) / ranks of the data, of which (nodes - 1) / nodes cross. `rate`: of a
    node's NICs, in bytes per second; `gpus`: of a node.
    """
    ranks = nodes * gpus
    return rate * (ranks - 1) / ranks * nodes / (nodes - 1)


CEILINGS: Mapping[str, Callable[[float, int, int], float]] = {
    **dict.fromkeys(
        ("all_reduce", "all_gather", "reduce_scatter", "gather", "scatter"), _hierarchical
    ),
    "alltoall": lambda rate, nodes, gpus: _hierarchical(rate, nodes, gpus) / gpus,
    **dict.fromkeys(("broadcast", "reduce", "sendrecv"), lambda rate, _nodes, _gpus: rate),
}
"""Collective → the maximum busbw, from the rate of a node's NICs, nodes, and GPUs per node."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A kind of node: an EC2 instance type, or a system of systems.csv."""

    name: str
    gpus: int
    gpu_model: str
    nics: tuple[int, ...]
    """The valid counts of NICs, the largest first; empty: not known."""
    rate: float | None
    """What the NICs of a node carry together, one way, in bytes per second; None: not known."""
    nvlink_domain: bool
    """Whether NVLink connects nodes."""
    fabric: str = ""
    """The link of its NICs, if files can be rendered for it: efa, ib, roce."""
    is_ec2: bool = False

    @property
    def inside(self) -> tuple[object, ...]:
        """What it shares with systems whose GPUs are connected alike inside a node."""
        return (self.gpus, NVLINK.get(self.gpu_model, self.gpu_model))

    @property
    def kind(self) -> str | tuple[object, ...]:
        """What it shares with systems of the same GPUs and NICs, whose published figures count."""
        if not (self.gpus and self.rate and self.fabric):
            return self.name
        # Models with an equal NVLink, such as H100 and H200, count as one.
        gpu: object = NVLINK.get(self.gpu_model, self.gpu_model)
        return (self.gpus, gpu, self.rate, self.fabric)


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


@cache
def systems() -> Mapping[str, System]:
    """Return every known system, by name."""
    others = map(_system, rows_of("systems.csv"))
    return {plain(entry.name): entry for entry in (*_instances(), *others)}


def system(name: str) -> System | None:
    """Return a system by name, or one of `8xH100` that has no other; None: not known."""
    return systems().get(plain(name)) or _system_of_only_gpus(name)


def _system_of_only_gpus(name: str) -> System | None:
    """Return a system without NICs, of GPUs of a known model; None: no such name as `8xH100`."""
    match = _GPUS.fullmatch(name.strip())
    links = gpu_links()
    model = match[2].upper() if match else ""
    if match is None or model not in links:
        return None
    domain = connects_hosts(model)
    return System(
        name=f"{match[1]}x{model}",
        gpus=int(match[1]),
        gpu_model=model,
        nics=(),
        rate=None,
        nvlink_domain=domain,
    )


_GPUS = lazy(r"([1-9]\d?)x(\w{2,10})", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLink:
    """What connects GPUs of one model inside a node: a row of gpus.csv."""

    gpu_model: str
    link: str = ""
    link_gbytes: float = 0.0
    """Of one GPU, one way, in 10⁹ bytes per second; 0: none is known."""
    reduces: bool = False
    system: str = ""
    """The node that alone has this GPU, such as dgx-spark for GB10; empty: many systems have it."""
    source: str = ""

    @property
    def rate(self) -> float:
        """The same as `link_gbytes`, in bytes per second."""
        return self.link_gbytes * 1e9


@cache
def gpu_links() -> Mapping[str, GpuLink]:
    """Return what connects GPUs inside a node, by model."""
    return {link.gpu_model: link for link in records(GpuLink, rows_of("gpus.csv"))}


def system_of_gpus(gpu_model: str, gpus: int) -> str:
    """Return the name of a system by its GPUs, as nvidia-smi names them; empty: not known.

    Cards for PCIe have no link, or one to a neighbor only.
    """
    words = {*re.split(r"[\s-]+", gpu_model)}
    if not gpus or words & {"PCIe", "NVL"}:
        return ""
    for model, link in gpu_links().items():
        if model in words:
            # A model that only one system has names it, whatever the number of GPUs.
            return link.system or f"{gpus}x{model}"
    return ""


def require_system(name: str) -> System:
    """Return a system by name. Raise RequestError that suggests similar names."""
    known = system(name)
    if known is None:
        raise RequestError(
            f"The catalog has no instance type {name}.",
            hint=similar_types(name, [entry.name for entry in systems().values()]),
        )
    return known


def _in_base_units(row: Mapping[str, str]) -> Mapping[str, str]:
    # A row of published figures, with rates in bytes per second, times in seconds, sizes in bytes.
    cells = dict(row)
    unit = cells.pop("unit")
    factor = RATE_UNITS[unit] if unit in RATE_UNITS else TIME_UNITS[unit]
    value = float(cells["value"]) * factor
    cells["value"] = str(value)
    if cells["size"]:
        size = parse_size(cells["size"])
        cells["size"] = str(size)
    return cells


def _instances() -> Iterator[System]:
    # EC2's instance types. Of some, EFA carries less than the network does.
    for name, entry in instance_catalog().items():
        yield System(
            name=name,
            gpus=entry.gpus,
            gpu_model=entry.gpu_model,
            nics=entry.efa_counts,
            rate=(entry.efa_gbps_if_lower or entry.network_gbps) * _GBPS,
            nvlink_domain=connects_hosts(entry.gpu_model),
            fabric="efa",
            is_ec2=True,
        )


def _system(row: Mapping[str, str]) -> System:
    # A row of systems.csv; an empty cell is not known. Its Gb/s are those of all NICs of a node.
    gbps = row["network_gbps"]
    return System(
        name=row["name"],
        gpus=int(row["gpus"]),
        gpu_model=row["gpu_model"],
        nics=(int(row["nics"]),) if row["nics"] else (),
        rate=float(gbps) * _GBPS if gbps else None,
        nvlink_domain=connects_hosts(row["gpu_model"]),
        fabric=row["fabric"],
    )


PAIRS = "pairs"
"""The kind of tools that measure one pair of processes, whatever carries their data."""
_FABRICS: Mapping[str, Collection[str]] = {"inside": INTRA_HOST, "sockets": ("tcp", "ofi-tcp")}
_KINDS: Mapping[str, str] = {
    transport: kind
    for kind, fabrics in _FABRICS.items()
    for fabric in fabrics
    for transport in networks(fabric) | providers(fabric)
}


def noise_kinds(transports: Collection[str]) -> frozenset[str]:
    """Return the kinds of noise, as noise.csv names them, of collectives over these transports.

    Those are as logs state them, several joined by `+`. All kinds where one is unknown.
    """
    parts = {part for transport in transports for part in transport.split("+")}
    if not parts or not parts <= _KINDS.keys():
        return frozenset(_FABRICS)
    return frozenset(_KINDS[part] for part in parts)


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
