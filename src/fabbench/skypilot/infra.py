"""Where SkyPilot is to run a task: its notation, and what fabbench knows of each place. Pure."""

from collections.abc import Collection
from enum import StrEnum

from fabbench.errors import RequestError
from fabbench.instances import Instance

DEFAULT = "k8s"
_GIB = 1024
_MEMORY = {"A100": 40, "V100": 16}
"""GPUs that SkyPilot knows in several sizes: the one, in GiB, whose name has no size in it."""


class Flavour(StrEnum):
    """What a task's nodes are."""

    PODS = "pods"
    MACHINES = "machines"
    """Virtual machines of EC2."""
    SLURM = "slurm"


_FLAVOURS = {
    "k8s": Flavour.PODS,
    "kubernetes": Flavour.PODS,
    "aws": Flavour.MACHINES,
    "slurm": Flavour.SLURM,
}


def flavour(infra: str) -> Flavour:
    """Read SkyPilot's notation of a place: ``k8s/CONTEXT``, ``aws/REGION/ZONE``, ``slurm/CLUSTER/PARTITION``.

    Raises RequestError for a place that fabbench does not know.
    """
    found = _FLAVOURS.get(infra.partition("/")[0].lower())
    if found is None:
        raise RequestError(
            f"fabbench writes no tasks for SkyPilot on {infra}.",
            hint="--infra is one of k8s, aws, slurm, with what SkyPilot puts behind it: k8s/my-context.",
        )
    return found


def accelerator(instance: Instance) -> str:
    """Give SkyPilot's name of an instance type's GPUs, such as ``A100-80GB``."""
    name = instance.gpu_model.upper().replace("RTX-PRO-SERVER-", "RTXPRO").replace("RTX-PRO-", "RTXPRO")
    memory = (instance.gpu_memory_mib or 0) // _GIB
    larger = memory > _MEMORY.get(name, memory)
    return f"{name}-{memory}GB" if larger else name


def network_tier(asked: str, where: Flavour, fabrics: Collection[str]) -> str:
    """Give the ``network_tier`` to ask for; empty: none.

    Virtual machines have EFA only with the best one. Pods ask for their devices themselves.
    """
    return asked or ("best" if where is Flavour.MACHINES and "efa" in fabrics else "")
