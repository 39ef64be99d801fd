"""The catalog of EC2 instance types that have EFA: how many interfaces, how fast, which GPUs.

The table is instances.csv, which names its sources. To refresh it, query ``aws ec2
describe-instance-types --filters Name=network-info.efa-supported,Values=true`` for
MaximumEfaInterfaces; results are per region.
"""

import csv
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar, get_args

T = TypeVar("T")

RACKS = ("GB200", "GB300")
"""GPUs whose NVLink connects the hosts of a rack."""
_ISLAND = frozenset({"p4d", "p4de", "dl1"})
"""Families whose EFA reaches only each other (EC2 user guide, limitations of EFA)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance type. None and empty text mean: no source states it."""

    instance_type: str
    arch: str
    """As Kubernetes labels it: `amd64`, `arm64`."""
    vcpus: int | None = None
    memory_mib: int | None = None
    gpus: int
    gpu_model: str = ""
    gpu_memory_mib: int | None = None
    """Memory of one GPU."""
    efa_interfaces: int
    """Maximum number of EFA interfaces."""
    network_gbps: float
    """Total network bandwidth, one way."""
    rdma_read: bool
    efa_gbps_if_lower: float | None = None
    """What EFA can carry, where that is less than `network_gbps`."""
    k8s_efa_request_if_lower: int | None = None
    """The EFA interfaces that a node has when built to AWS's recipe, where those are fewer."""

    @property
    def efa_counts(self) -> tuple[int, ...]:
        """Return the valid counts of EFA interfaces, the largest first."""
        lower = self.k8s_efa_request_if_lower
        return (self.efa_interfaces,) if lower is None else (self.efa_interfaces, lower)

    def has_gpu(self, name: str) -> bool:
        """Return whether its GPUs have this name, such as ``NVIDIA A100-SXM4-40GB``."""
        words = {*name.replace("-", " ").split()}
        named_memory = [word for word in words if re.fullmatch(r"\d+GB", word)]
        gigabytes = (self.gpu_memory_mib or 0) // 1024
        # A name without its memory is of any.
        has_memory = not named_memory or f"{gigabytes}GB" in named_memory
        return has_memory and words.issuperset(self.gpu_model.split())


def plain(instance_type: str) -> str:
    """Write an instance type as EC2 does: without the ``ml.`` prefix of HyperPod."""
    return instance_type.strip().lower().removeprefix("ml.")


def instance(instance_type: str) -> Instance | None:
    """Return an instance type; None: it is not in the catalog, so it has no EFA or is newer."""
    return instance_catalog().get(plain(instance_type))


@cache
def instance_catalog() -> Mapping[str, Instance]:
    """Return the whole catalog."""
    return {entry.instance_type: entry for entry in records(Instance, rows_of("instances.csv"))}


def types_with(gpus: Collection[str], gpus_per_host: object, nics: object) -> list[str]:
    """Return the types that have such GPUs, by the names that nvidia-smi prints, and EFA NICs."""
    fitting: list[str] = []
    for entry in instance_catalog().values():
        counts_match = entry.gpus == gpus_per_host and nics in entry.efa_counts
        if counts_match and all(map(entry.has_gpu, gpus)):
            fitting.append(entry.instance_type)
    return fitting


def records(kind: type[T], rows: Iterable[Mapping[str, str]]) -> Iterator[T]:
    """Return rows as values of a dataclass, by the types of its fields.

    Empty cells are its defaults.
    """
    readers = {field.name: _cell_reader(field.type) for field in fields(kind)}  # type: ignore[arg-type]
    for row in rows:
        values = {name: readers[name](cell) for name, cell in row.items() if cell}
        yield kind(**values)


def _cell_reader(declared: Any) -> Callable[[str], Any]:
    """Return what reads a cell of a declared type: a class, or the first of `int | None`."""
    if declared is bool:
        return "yes".__eq__
    kind: type[Any] = next(iter(get_args(declared)), declared)
    return kind


def rows_of(name: str, package: str = "fabbench.catalog") -> Iterator[Mapping[str, str]]:
    """Return the rows of a file of the catalog, or of another package, without its comments."""
    lines = (files(package) / name).read_text("utf-8").splitlines()
    return csv.DictReader(line for line in lines if not line.startswith("#"))


def similar_types(name: str, known: Iterable[str]) -> str:
    """Return a hint for a name that is not in the catalog."""
    names = {plain(known_name): known_name for known_name in known}
    near = difflib.get_close_matches(plain(name), names, n=4, cutoff=0.5)
    if near:
        meant = " or ".join(names[key] for key in near)
        return f"Did you mean {meant}?"
    catalog = instance_catalog()  # too many to list
    others = [type_name for key, type_name in names.items() if key not in catalog]
    return f"Known are EC2's types with EFA, and {', '.join(others)}."


def connects_hosts(gpu_model: str) -> bool:
    """Return whether the NVLink of such GPUs connects hosts.

    `gpu_model` is the name by nvidia-smi or the catalog.
    """
    return any(name in gpu_model for name in RACKS)


def efa_reaches(one: str, other: str) -> bool:
    """Return whether EFA can carry anything between two instance types, in one zone and network.

    The EFA of some older families, an island, reaches only these: both are of them, or neither is.
    """
    families = {_family(one), _family(other)}
    return families <= _ISLAND or families.isdisjoint(_ISLAND)


def _family(instance_type: str) -> str:
    return plain(instance_type).partition(".")[0]
