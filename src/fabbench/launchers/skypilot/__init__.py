"""The launcher and format ``skypilot``: a cluster that SkyPilot launches.

Its options and infrastructures.
"""

from enum import StrEnum

from fabbench.catalog.images import DEFAULT
from fabbench.launchers.pod_options import PodOptions
from fabbench.launchers.shared_options import InstanceOptions, start_timeout
from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.options import IMAGE, RARE, Choice, Flag, Text, Whole, declared, option
from fabbench.model.values import frozen

IDLE_MINUTES = 10  # After how many idle minutes a cluster tears itself down by default


class NodeKind(StrEnum):
    """The kind of a task's nodes."""

    PODS = "pods"
    MACHINES = "machines"  # Of a cloud, such as EC2 instances
    SLURM = "slurm"


_FLAVOURS = {
    "k8s": NodeKind.PODS,
    "kubernetes": NodeKind.PODS,
    "ssh": NodeKind.PODS,
    "slurm": NodeKind.SLURM,
    **dict.fromkeys(("aws", "azure", "gcp", "lambda", "nebius"), NodeKind.MACHINES),
}


def cloud_of(infra: str) -> str:
    """Return what SkyPilot calls the cloud of ``aws/REGION/ZONE``."""
    return infra.partition("/")[0].lower()


def node_kind(infra: str) -> NodeKind:
    """Parse ``k8s/CONTEXT``, ``ssh/POOL``, ``aws/REGION/ZONE``, ``slurm/CLUSTER/PARTITION``.

    Raise RequestError for others.
    """
    kind = _FLAVOURS.get(cloud_of(infra))
    if kind is None:
        known = ", ".join(_FLAVOURS)
        raise RequestError(
            f"fabbench does not support SkyPilot on {infra}.",
            hint=(
                f"Use one of {known} with --infra, optionally with SkyPilot's suffix: "
                "k8s/my-context."
            ),
        )
    return kind


@frozen
class SkyPilotOptions(PodOptions, InstanceOptions):
    """Options of the launcher and format ``skypilot``: SkyPilot chooses the hosts."""

    without = ("hosts", "silence_s")  # Its script has no silence limit

    infra: str = option(
        Text("a SkyPilot infrastructure", "PLACE", r"^[A-Za-z0-9][A-Za-z0-9@:._*/-]*$"),
        "SkyPilot infrastructure: k8s, k8s/CONTEXT, ssh/POOL, slurm/CLUSTER; machines of aws, "
        "azure, gcp, lambda or nebius, such as aws/REGION.",
        default="k8s",
    )
    image: str = option(
        IMAGE,
        (
            "Image of the nodes. Default: the pinned AWS nccl-tests image on k8s; SkyPilot's own "
            "elsewhere."
        ),
        unset="",
    )
    network_tier: str | None = option(
        Choice(("best", "standard")),
        "SkyPilot's network_tier. Default: best where it gives the fabric.",
        RARE,
    )
    cluster_name: str | None = option(
        Text("the name of a cluster", "NAME", r"^[A-Za-z][A-Za-z0-9._-]*$"),
        "Name of the SkyPilot cluster. Default: a new one.",
        only="run",
    )
    keep: bool = option(Flag(), "Leave the SkyPilot cluster up at the end.", RARE, only="run")
    idle_minutes: int | None = option(
        Whole(1, 10080),
        f"Tear the cluster down after N idle minutes. Default: {IDLE_MINUTES}, not on slurm.",
        RARE,
        only="run",
    )
    start_timeout: float | None = start_timeout("a cluster that is not up")

    @property
    def node_kind(self) -> NodeKind:
        """The kind of the nodes."""
        return node_kind(self.infra)

    @property
    @override
    def node_image(self) -> str:
        """The image of the nodes; empty for the infrastructure's default."""
        default = DEFAULT if self.node_kind is NodeKind.PODS else ""
        return self.image or default

    def __post_init__(self) -> None:
        # Refuse options that have no effect where these nodes are.
        known = declared(SkyPilotOptions)
        if self.node_kind is not NodeKind.PODS:
            for name in declared(PodOptions):
                if getattr(self, name):
                    raise RequestError(
                        (
                            f"{known[name].long} has no effect with --infra {self.infra}: it is "
                            "for "
                            "pods."
                        ),
                        hint="It works with --infra k8s.",
                    )
        if self.node_kind is NodeKind.SLURM and self.idle_minutes is not None:
            raise RequestError(
                "SkyPilot does not tear down idle clusters on Slurm.",
                hint="Leave idle-minutes out.",
            )


OPTIONS = SkyPilotOptions
