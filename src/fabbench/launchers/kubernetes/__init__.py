"""Options of the launcher and format ``kubernetes``: pods in a cluster of the kubeconfig."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fabbench.catalog.images import DEFAULT
from fabbench.launchers.pod_options import PodOptions
from fabbench.launchers.shared_options import InstanceOptions, start_timeout
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.model.mappings import Variables
from fabbench.model.messages import single_spaced
from fabbench.model.options import IMAGE, RARE, Choice, File, Flag, Seconds, Text, Whole, option
from fabbench.model.values import frozen

if TYPE_CHECKING:
    from fabbench.catalog.kubernetes_resources import Profile

LEASE_S = 90  # Seconds without a heartbeat from fabbench after which a pod exits
PORT = 2222  # Port of sshd in pods that run without fabbench

CLUSTER_PROFILES = (
    *("efa-dra", "gke-gib", "gke-tcpxo", "oke-rdma-vf", "oke-host-network"),
    *("nebius", "imex"),
)
"""Names of `fabbench.catalog.kubernetes_resources.DECLARED`, which --help need not import."""


@frozen
class ClusterPodOptions(PodOptions, InstanceOptions):
    """Options of pods that fabbench or its MPIJob creates in a cluster of the kubeconfig."""

    divides = True

    kubeconfig: Path | None = option(
        File(), "The kubeconfig. Default: KUBECONFIG or ~/.kube/config.", only="run", reaches=True
    )
    context: str | None = option(
        Text("the name of a context", "NAME"),
        "Context of the kubeconfig. Default: the current one.",
        only="run",
        reaches=True,
    )
    namespace: str | None = option(
        Text("a namespace", "NAME", r"^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$"),
        "Namespace of the pods. Default: that of the context.",
        only="run",
        reaches=True,
    )
    image: str = option(
        IMAGE,
        "Container image of the pods. Default: a pinned public one with the benchmark.",
        unset=DEFAULT,
    )
    selector: str = option(
        Text("labels, as kubectl writes them", "LABELS"),
        "Only nodes with these labels, as kubectl writes them.",
        unset="",
        only="run",
    )
    pod: str | None = option(
        Text("labels, as kubectl writes them", "LABELS"),
        "Running pods with these labels are watched.",
        only="watch",
    )
    host_network: bool = option(Flag(), "Use the nodes' network namespace (hostNetwork).")
    cluster_profile: str = option(
        Choice(CLUSTER_PROFILES),
        "How pods access the cluster's fabric, if its device plugin alone does not define that: "
        f"{', '.join(CLUSTER_PROFILES)}.",
        unset="",
    )
    resource_claim: str = option(
        Text("a ResourceClaimTemplate", "NAME", r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"),
        "ResourceClaimTemplate in the namespace, of which each pod gets a claim: --fabric nvlink "
        "needs that of a ComputeDomain.",
        unset="",
    )
    start_timeout: float = start_timeout("pods that are not ready", "300")
    lost_after: float = option(
        Seconds(1), "Abort if a pod has not answered for SECONDS.", RARE, default="60", only="run"
    )
    run_as_user: int | None = option(
        Whole(1, 2**31 - 1, "UID"),
        "Run pods as this user instead of root (required in namespaces of level restricted).",
        RARE,
        only="run",
    )
    lease: int = option(
        Whole(10),
        "Seconds without contact with fabbench after which pods exit.",
        RARE,
        default=str(LEASE_S),
        only="run",
    )
    run_id: str | None = option(
        Text("a run id", "ID", r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$"),
        "Name the objects fabbench-ID. Default: rendered.",
        only="render",
    )

    @property
    @override
    def node_image(self) -> str:
        """The image of the pods."""
        return self.image

    @property
    def profile(self) -> "Profile | None":
        """The declared profile."""
        from fabbench.catalog.kubernetes_resources import declared_profile

        return declared_profile(self.cluster_profile)

    @property
    def claims_devices(self) -> bool:
        """Return whether pods claim devices, instead of requesting a number of them."""
        return self.profile is not None and bool(self.profile.device_class)

    @property
    def on_host_network(self) -> bool:
        """Return whether pods use their nodes' network, unless their variant overrides it."""
        return self.host_network or (self.profile is not None and self.profile.host_network)


@frozen
class KubernetesOptions(ClusterPodOptions):
    """Options of the launcher ``kubernetes``."""

    order = 2

    pod_ssh_port: int = option(
        Whole(1024, 65535),
        "Port of sshd in the pods of the Job.",
        RARE,
        default=str(PORT),
        only="render",
    )

    @override
    def surroundings(self, environment: Variables) -> tuple[bool, str]:
        # Whether the launcher is implied, and by what, or why not.
        context = current_context(environment, file=self.kubeconfig, context=self.context or "")
        if context:
            sentence = f"{context} is the current kubeconfig context"
            return True, sentence
        return False, "no kubeconfig with a current context"


OPTIONS = KubernetesOptions


def current_context(
    environment: Variables, *, file: Path | None = None, context: str = ""
) -> str | None:
    """Return the name of the context that commands use, or None.

    `file` overrides KUBECONFIG and ~/.kube/config, `context` the current context. Raise
    MachineError for a file that cannot be read.
    """
    if context:
        return context
    names = (_current_context(path) for path in _kubeconfigs(environment, file))
    return next((name for name in names if name), None)


def _kubeconfigs(environment: Variables, file: Path | None) -> list[Path]:
    """Return the files of the kubeconfig, which kubectl merges: `file`, or else its usual ones."""
    if file:
        return [file]
    if named := environment.get("KUBECONFIG"):
        return [Path(name) for name in named.split(os.pathsep) if name]
    home = environment.get("HOME")
    return [Path(home, ".kube", "config")] if home else []


def _current_context(path: Path) -> str:
    """Return the current context that one file names; empty: it names none, or does not exist."""
    import yaml

    try:
        config = yaml.safe_load(path.read_text("utf-8"))
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, yaml.YAMLError) as error:
        why = single_spaced(str(error))
        raise MachineError(
            f"The kubeconfig {path} cannot be read: {why}.",
            hint="It was read because no target is set: specify one with --on.",
        ) from error
    name = config.get("current-context") if isinstance(config, dict) else None
    return name if isinstance(name, str) else ""
