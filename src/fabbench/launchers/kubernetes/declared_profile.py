"""What must hold where the user declares how pods get at the fabric (``--cluster-profile``)."""

from collections.abc import Sequence

from fabbench.catalog.images import REPOSITORY
from fabbench.launchers import notify
from fabbench.launchers.kubernetes import ClusterPodOptions
from fabbench.launchers.kubernetes.api import CLAIM_TEMPLATE, KubernetesApi
from fabbench.launchers.kubernetes.checks import CLAIM_RIGHT, Right
from fabbench.launchers.kubernetes.nodes import Node
from fabbench.model.errors import MachineError, RequestError


def require_profile(options: ClusterPodOptions, *, seen: bool) -> None:
    """Raise RequestError for options that the declared profile does not go with.

    `seen` is whether nodes are looked at: else the catalog says what they have.
    """
    profile = options.profile
    if profile is None:
        return
    if profile.image and options.image.startswith(REPOSITORY):
        raise RequestError(
            f"AWS's image {options.image} has nothing of {profile.platform}.",
            hint=f"Pass --image: the platform publishes {profile.image}. --bin-dir and --mpirun say where "
            "it has the programs.",
        )
    if profile.device_class:
        if not seen and not options.instance_type:
            raise RequestError(
                "The nodes' devices are unknown: a claim takes all that a node has.",
                hint="Pass their type, such as --instance-type p5.48xlarge.",
            )
    elif options.instance_type:
        raise RequestError(
            f"--instance-type is a type of EC2, and --cluster-profile {profile.name} is {profile.platform}.",
            hint="Choose nodes by a label: --node-selector node.kubernetes.io/instance-type=TYPE.",
        )


def rights_of_profile(options: ClusterPodOptions) -> tuple[Right, ...]:
    """Return the rights that a run needs beyond the usual ones."""
    return (CLAIM_RIGHT,) if options.profile is not None and options.profile.device_class else ()


def require_claims(api: KubernetesApi, options: ClusterPodOptions) -> None:
    """Raise MachineError where pods are to claim devices and the cluster knows no such claims."""
    group, version, plural = CLAIM_TEMPLATE
    if rights_of_profile(options) and plural not in api.plurals(group, version):
        raise MachineError(
            f"The cluster of {api.context} has no {plural} ({group}/{version}).",
            hint=f"Kubernetes has them from 1.34 on. Drop --cluster-profile {options.cluster_profile} where "
            "nodes have the EFA device plugin.",
        )


def mention_undeclared(options: ClusterPodOptions, chosen: Sequence[Node]) -> None:
    """Tell that nodes have a fabric that pods do not use, as nobody declared it."""
    found = chosen[0].profile
    if options.profile is None and found is not None and found.mounts:
        notify(
            f"The nodes have {chosen[0].resource}. Pods use it with --cluster-profile {found.name}, which "
            "makes them privileged."
        )
