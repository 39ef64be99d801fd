"""What one pod asks for of its node. Pure.

GPUs and fabric devices are asked for whole: only then do they belong together. Of CPUs and memory a part is
enough for any benchmark here, and leaves the node's own pods alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fabbench.errors import RequestError
from fabbench.instances import Instance, instance, plain
from fabbench.pods.nodes import Node
from fabbench.pods.profiles import EFA, GPU, HUGE_PAGES, Profile, profile_for
from fabbench.pods.quantity import MIB, cpus, mebibytes, thousandths, whole

SHM = "shm"
"""How `requested` calls the memory in /dev/shm, which is part of ``memory``."""
_GIB = 1 << 30
_MEMORY, _MEMORY_FOR_GPU = 8 * _GIB, 4 * _GIB
_SHM, _SHM_FOR_GPU = 2 * _GIB, _GIB
"""NCCL's ranks of one node and Open MPI use well below this in /dev/shm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What each pod of a run requests; limits are the same, but that CPUs have none."""

    gpus: int = 0
    resource: str = ""
    """The extended resource of the fabric; empty: none."""
    devices: int = 0
    """How many of `resource`."""
    huge_pages: int = 0
    """Bytes in pages of 2 MiB."""
    memory: int = 0
    """Bytes, `shm` included: the kernel counts /dev/shm as memory of the pod."""
    shm: int = 0
    """Bytes of /dev/shm."""
    cpus: int = 0
    """Thousandths."""

    @property
    def profile(self) -> Profile | None:
        """How a pod gets at the fabric; None: without one."""
        return profile_for(self.resource) if self.devices else None

    def requests(self) -> dict[str, str]:
        """Give the container's requests."""
        return {"cpu": cpus(self.cpus), **self.limits()}

    def limits(self) -> dict[str, str]:
        """Give the container's limits. A limit of CPUs would slow down what is measured."""
        amounts = {
            "memory": mebibytes(self.memory),
            HUGE_PAGES: mebibytes(self.huge_pages),
            GPU: str(self.gpus),
            self.resource: str(self.devices),
        }
        return {name: text for name, text in amounts.items() if name and text not in {"0", "0Mi"}}

    def texts(self) -> tuple[str, ...]:
        """Give all of it as `requested` reads it."""
        amounts = {GPU: "0", **self.requests(), SHM: mebibytes(self.shm)}
        return tuple(f"{name}={text}" for name, text in amounts.items())


def share_of(nodes: Sequence[Node], *, gpus: bool) -> Share:
    """Say what pods ask for on nodes that were found: everything that all of them have free.

    `gpus` is whether the benchmark uses GPUs.
    """
    first = nodes[0]
    profile = first.profile
    shared = profile is not None and profile.shared
    devices = min(node.fabric.free for node in nodes)
    pages = profile is not None and profile.huge_pages and devices
    found = Share(
        gpus=min(node.gpus.free for node in nodes) if gpus else 0,
        resource=first.resource if devices else "",
        devices=min(devices, 1) if shared else devices,
        huge_pages=min(node.huge_pages.free for node in nodes) if pages else 0,
    )
    return _beside(found, min(node.memory.free for node in nodes), min(node.cpus.free for node in nodes))


def share_of_type(instance_type: str, *, gpus: bool) -> Share:
    """Say what pods ask for on a type of the catalogue, without having seen a node.

    Huge pages are left out: where a node has none of them, the pod would wait for ever. Raises RequestError
    for a type that is not in the catalogue.
    """
    entry = instance(instance_type)
    if entry is None:
        raise RequestError(
            f"{plain(instance_type)} is not in the catalogue of instance types with EFA.",
            hint="Leave --instance-type out to have the cluster's nodes looked at.",
        )
    found = Share(gpus=entry.gpus if gpus else 0, resource=EFA, devices=min(entry.efa_counts))
    return _beside(found, _part(entry.memory_mib) * MIB, _part(entry.vcpus) * 1000)


def requested(share: Share, texts: Iterable[str]) -> Share:
    """Put amounts in place of those of a share: ``NAME=AMOUNT``, as Kubernetes writes them.

    A name is ``cpu``, ``memory``, ``hugepages-2Mi``, ``nvidia.com/gpu``, `SHM` or the resource of a fabric.
    Raises RequestError for another one, and for what is no amount.
    """
    for text in texts:
        name, _, amount = text.partition("=")
        try:
            count = thousandths(amount) if name == "cpu" else whole(amount)
        except ValueError as error:
            raise RequestError(f"{text!r} is no request of a pod: {error}.", hint=_REQUESTS) from None
        if name in _FIELDS:
            changed: dict[str, Any] = {_FIELDS[name]: count}
            share = replace(share, **changed)
        elif profile_for(name) is not None:
            share = replace(share, resource=name if count else "", devices=count)
        else:
            raise RequestError(f"{name!r} is nothing that fabbench's pods request.", hint=_REQUESTS)
    return share


_FIELDS = {"cpu": "cpus", "memory": "memory", HUGE_PAGES: "huge_pages", GPU: "gpus", SHM: "shm"}
_REQUESTS = f"Write NAME=AMOUNT, such as cpu=8, memory=64Gi, {GPU}=8, {EFA}=4."


def arch_of_type(instance_type: str) -> str:
    """Give the architecture of a type, as Kubernetes labels it; empty where it is not known."""
    entry: Instance | None = instance(instance_type)
    return entry.arch if entry else ""


def _part(number: int | None) -> int:
    """Say how much of a machine is left for pods, roughly."""
    return (number or 0) * 8 // 10


def _beside(devices: Share, memory: int, millis: int) -> Share:
    """Add memory and CPUs to devices, of what is free: bytes, and thousandths."""
    gpus = devices.gpus
    shm = min(_SHM + gpus * _SHM_FOR_GPU, memory // 4)
    half = min(millis // 2, 4000 * max(gpus, 1))
    return replace(
        devices,
        memory=min(_MEMORY + gpus * _MEMORY_FOR_GPU + shm, memory * 3 // 4) // MIB * MIB,
        shm=shm // MIB * MIB,
        cpus=half // 1000 * 1000 if half >= 1000 else half,
    )
