"""How pods get at a fabric, platform by platform. Another platform is another entry of `PROFILES`.

Sources: the EKS user guide (node-efa) and the EFA device plugin; CoreWeave's nccl-tests; Azure's
ai-infrastructure-on-azure; the examples of NVIDIA's network operator. All of them give pods IPC_LOCK, for
registering memory, and none needs privileged pods or the host's network.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

GPU = "nvidia.com/gpu"
HUGE_PAGES = "hugepages-2Mi"
EFA = "vpc.amazonaws.com/efa"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One volume of a pod, and where it is mounted. `source` is the volume without its name."""

    name: str
    path: str
    source: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a pod asks for, to use a fabric."""

    name: str
    platform: str
    """In words, for people."""
    resource: str
    """The extended resource; ``*`` stands for any text."""
    fabrics: tuple[str, ...]
    """The fabrics that it may be, by fabbench's names."""
    shared: bool = False
    """Whether one piece gives a pod all devices of a pool (the RDMA shared device plugin). Else a pod asks
    for all pieces of its node, each of which is one device."""
    huge_pages: bool = False
    """Whether the fabric's library uses huge pages, where the node has some."""
    capabilities: tuple[str, ...] = ("IPC_LOCK",)
    annotations: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    plugin: str = ""
    """What advertises the resource on nodes, and so is missing where there is none."""


PROFILES = (
    Profile(
        name="efa",
        platform="EKS, SageMaker HyperPod",
        resource=EFA,
        fabrics=("efa",),
        huge_pages=True,
        plugin="the EFA device plugin (Helm chart aws-efa-k8s-device-plugin)",
    ),
    Profile(
        name="coreweave",
        platform="CoreWeave",
        resource="rdma/ib",
        fabrics=("ib",),
        shared=True,
        plugin="CoreWeave's RDMA device plugin",
    ),
    Profile(
        name="aks",
        platform="AKS",
        resource="rdma/hca_shared_devices_*",
        fabrics=("ib",),
        shared=True,
        plugin="the RDMA shared device plugin of NVIDIA's network operator",
    ),
    Profile(
        name="rdma-shared",
        platform="NVIDIA network operator, shared devices",
        resource="rdma/*",
        fabrics=("ib", "roce"),
        shared=True,
        plugin="the RDMA shared device plugin of NVIDIA's network operator",
    ),
    Profile(
        name="hostdev",
        platform="NVIDIA network operator, host devices",
        resource="nvidia.com/hostdev",
        fabrics=("ib", "roce"),
        plugin="the SR-IOV device plugin of NVIDIA's network operator",
    ),
)
"""In the order in which they are tried."""


def profile_for(resource: str) -> Profile | None:
    """Give the profile of an extended resource; None: it is not known as a fabric."""
    return next((each for each in PROFILES if fnmatchcase(resource, each.resource)), None)


def fabric_resource(resources: Collection[str]) -> str:
    """Choose the resource by which a node's fabric is asked for; empty where it has none."""
    found = (name for each in PROFILES for name in sorted(resources) if fnmatchcase(name, each.resource))
    return next(found, "")
