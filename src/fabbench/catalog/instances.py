"""The catalog of EC2 instance types that have EFA: how many interfaces, how fast, which GPUs.

The table is instances.csv, which names its sources. To refresh it, query ``aws ec2 describe-instance-types
--filters Name=network-info.efa-supported,Values=true`` for MaximumEfaInterfaces; results are per region.
"""

import csv
import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_ISLAND = frozenset({"p4d", "p4de", "dl1"})
"""Families whose EFA reaches only each other (EC2 user guide, limitations of EFA)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance type. None and empty text mean: no source states it."""

    instance_type: str
    arch: str
    """As Kubernetes labels it: `amd64`, `arm64`."""
    vcpus: int | None
    memory_mib: int | None
    gpus: int
    gpu_model: str
    gpu_memory_mib: int | None
    """Memory of one GPU."""
    other_accelerators: int
    other_accelerator_name: str
    efa_interfaces: int
    """Maximum number of EFA interfaces."""
    network_gbps: float
    """Total network bandwidth, one way."""
    efa_generation: str
    """AWS's label, `v1` to `v4`."""
    rdma_read: bool
    rdma_write: bool
    efa_gbps_if_lower: float | None
    """What EFA can carry, where that is less than `network_gbps`."""
    k8s_efa_request_if_lower: int | None
    """The EFA interfaces that a node has when built to AWS's recipe, where those are fewer."""

    @property
    def efa_counts(self) -> tuple[int, ...]:
        """Return the valid counts of EFA interfaces, the largest first."""
        lower = self.k8s_efa_request_if_lower
        return (self.efa_interfaces,) if lower is None else (self.efa_interfaces, lower)


def plain(instance_type: str) -> str:
    """Write an instance type as EC2 does: without the ``ml.`` prefix of HyperPod."""
    return instance_type.strip().lower().removeprefix("ml.")


def instance(instance_type: str) -> Instance | None:
    """Return an instance type; None: it is not in the catalog, so it has no EFA or is newer."""
    return instance_catalog().get(plain(instance_type))


@cache
def instance_catalog() -> Mapping[str, Instance]:
    """Return the whole catalog."""
    return {row["instance_type"]: _instance(row) for row in rows_of("instances.csv")}


def rows_of(name: str) -> Iterator[Mapping[str, str]]:
    """Return the rows of a file of the catalog, without its comments."""
    text = (files("fabbench.catalog") / name).read_text("utf-8")
    return csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))


def similar_types(name: str, known: Iterable[str]) -> str:
    """Return a hint for a name that is not in the catalog."""
    near = difflib.get_close_matches(name, known, n=4, cutoff=0.5)
    return f"Did you mean {' or '.join(near)}?" if near else "Write it as EC2 does, such as p5.48xlarge."


def efa_reaches(one: str, other: str) -> bool:
    """Return whether EFA can carry anything between two instance types, in one zone and network."""
    families = {plain(one).partition(".")[0], plain(other).partition(".")[0]}
    return families <= _ISLAND or not families & _ISLAND


def _instance(row: Mapping[str, str]) -> Instance:
    return Instance(
        instance_type=row["instance_type"],
        arch=row["arch"],
        vcpus=whole(row["vcpus"]),
        memory_mib=whole(row["memory_mib"]),
        gpus=int(row["gpus"]),
        gpu_model=row["gpu_model"],
        gpu_memory_mib=whole(row["gpu_memory_mib"]),
        other_accelerators=int(row["other_accelerators"] or 0),
        other_accelerator_name=row["other_accelerator_name"],
        efa_interfaces=int(row["efa_interfaces"]),
        network_gbps=float(row["network_gbps"]),
        efa_generation=row["efa_generation"],
        rdma_read=row["rdma_read"] == "yes",
        rdma_write=row["rdma_write"] == "yes",
        efa_gbps_if_lower=float(row["efa_gbps_if_lower"]) if row["efa_gbps_if_lower"] else None,
        k8s_efa_request_if_lower=whole(row["k8s_efa_request_if_lower"]),
    )


def whole(text: str) -> int | None:
    """Return the whole number in a cell; None: it is empty."""
    return int(text) if text else None
