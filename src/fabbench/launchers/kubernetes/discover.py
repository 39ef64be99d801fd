"""What a cluster has, whether the user may use it, and whether the device profile fits it."""

from collections.abc import Callable, Sequence

from fabbench.catalog.images import REPOSITORY
from fabbench.catalog.kubernetes_resources import Profile
from fabbench.catalog.offline_inventory import inventory_of
from fabbench.catalog.systems import System, system
from fabbench.execution.worker_pool import Results, failed, map_hosts, succeeded
from fabbench.hosts.check import Check, refusal
from fabbench.launchers import notify
from fabbench.launchers.kubernetes import CLUSTER_PROFILES, ClusterPodOptions
from fabbench.launchers.kubernetes.api import ForbiddenError, InvalidError, KubernetesApi, open_api
from fabbench.launchers.kubernetes.checks import Right, outcome
from fabbench.launchers.kubernetes.nodes import Nodes, read_nodes
from fabbench.launchers.kubernetes.select_nodes import NodeCriteria
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hosts import Inventory, Needs, Target
from fabbench.model.values import T
from fabbench.remote.check_hosts import ProbedHost

_PARALLEL_REQUESTS = 8
_PODS_UNSEEN = (
    "This user may not list pods of other namespaces: nodes are chosen by capacity, "
    "whether in use or not."
)
# Selects the pods that use a node.
USING_NODES = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
_SYNTAX = (
    "Use kubectl's syntax: 'a=b', 'a!=b', 'a in (b,c)', 'a notin (b)', 'a', '!a', with commas."
)


def api_of(target: Target) -> KubernetesApi:
    """Return the API of a target's cluster, without making a request. Raise MachineError."""
    options = target.options_as(ClusterPodOptions)
    return open_api(options.kubeconfig, options.context, options.namespace)


def criteria_of(target: Target, needs: Needs) -> NodeCriteria:
    """Return a target's criteria for nodes."""
    options = target.options_as(ClusterPodOptions)
    selectors = (
        options.selector.strip(),
        *(f"{key}={value}" for key, value in options.node_selector.items()),
    )
    return NodeCriteria(
        count=target.nodes,
        instance_type=options.instance_type,
        every=needs.divided,  # a sweep takes all that are free
        names=target.hosts,
        labels=",".join(filter(None, selectors)),
        # What runs under MPI is taken to use GPUs, unless the user says how many: maybe none
        needs_gpu=needs.mpi and target.gpus is None,
        tolerations=options.all_tolerations,
    )


def pod_inventory(
    target: Target, needs: Needs, instance_type: str, nodes: int, amounts: Sequence[str]
) -> Inventory:
    """Return what the catalog says of nodes of a type (empty: unknown) by what pods request.

    `amounts` are these requests: ``NAME=AMOUNT``.
    """
    options = target.options_as(ClusterPodOptions)
    return inventory_of(
        instance_type,
        nodes,
        target=target,
        needs=needs,
        amounts=amounts,
        image=options.image,
        profile=options.profile,
    )


def list_nodes(
    api: KubernetesApi,
    report: Callable[[str], None] | None = None,
    *,
    labels: str = "",
) -> Nodes:
    """Return the nodes that `labels` select, with what pods use of them.

    For users who may not list other namespaces' pods, usage is that of their own: `report` receives
    a sentence on it. Raise RequestError, MachineError.
    """
    lists = {
        "nodes": lambda: api.objects("Node", labels=labels),
        "pods": lambda: api.objects("Pod", fields=USING_NODES, everywhere=True),
    }
    # Both at once; an error is an answer, too.
    answers = map_hosts(lists, lambda objects: list(objects()))
    if labels and isinstance(refused := answers["nodes"], InvalidError):
        raise RequestError(f"{labels!r} is not a valid label selector. {refused}", hint=_SYNTAX)
    all_pods = not isinstance(answers["pods"], ForbiddenError)
    if not all_pods:
        answers["pods"] = list(api.objects("Pod", fields=USING_NODES))
        if report is not None:
            report(_PODS_UNSEEN)
    objects_of = _require_answers(answers)
    return read_nodes(objects_of["nodes"], objects_of["pods"], all_pods=all_pods)


def _require_answers(results: Results[T]) -> dict[str, T]:
    """Return all answers, or raise the first error: all requests go to the same cluster."""
    for error in failed(results).values():
        raise error
    return succeeded(results)


def require_rights(api: KubernetesApi, rights: Sequence[Right], example: str) -> None:
    """Raise MachineError that names what the user may not; `example` is the file that grants it."""

    def allowed(right: Right) -> bool:
        attributes = {
            "verb": right.verb,
            "group": right.group,
            "resource": right.resource,
            "subresource": right.subresource,
            "namespace": api.namespace if right.namespaced else "",  # empty: in the whole cluster
        }
        return api.allowed(attributes)

    by_name = {str(right): right for right in rights}
    answers = _require_answers(map_hosts(by_name, allowed, _PARALLEL_REQUESTS))
    refused = [name for name, is_allowed in answers.items() if not is_allowed]
    if refused:
        missing = ", ".join(refused)
        raise MachineError(
            f"This user may not {missing} in namespace {api.namespace} of {api.context}.",
            hint=f"{example} grants the permissions needed. Nothing was started.",
        )


def check_pod(node: str, result: ProbedHost | MachineError) -> Check:
    """Return the check of a node's pod: one that does not start or answer fails."""
    check = outcome("pod.started")
    if isinstance(result, MachineError):
        check = refusal(result, "Check the events of the namespace and of the node.")
    return check.of(node, "pod")


def reject_profile_conflicts(options: ClusterPodOptions, *, nodes_seen: bool) -> None:
    """Raise RequestError for options that conflict with the profile of the cluster.

    `nodes_seen`: whether the cluster tells what its nodes have; `render` contacts none.
    """
    profile = options.profile
    if profile is None:
        return
    if profile.image and options.image.startswith(REPOSITORY):
        raise RequestError(
            f"AWS's image {options.image} has nothing of {profile.platform}.",
            hint=f"Pass --image: the platform publishes {profile.image}. --bin-dir and --mpirun "
            "say where it has the programs.",
        )
    of_type = system(options.instance_type)
    if of_type is not None and not _may_be_of(profile, of_type):
        raise RequestError(
            f"The --instance-type is none of --cluster-profile {profile.name}, which is "
            f"{profile.platform}.",
            hint="Drop one of them. --node-selector node.kubernetes.io/instance-type=TYPE chooses "
            "nodes of a type that the catalog does not have.",
        )
    if profile.device_class and not nodes_seen and not options.instance_type:
        raise RequestError(
            "The nodes' devices are unknown: a claim takes all that a node has.",
            hint="Pass their type, such as --instance-type p5.48xlarge.",
        )


def _may_be_of(profile: Profile, of_type: System) -> bool:
    """Return whether nodes of a type may have a declared profile, as far as the catalog tells."""
    if of_type.pods in CLUSTER_PROFILES:
        return of_type.pods == profile.name
    if "nvlink" in profile.fabrics:  # which is no fabric of NICs
        return of_type.nvlink_domain
    return of_type.fabric in {"", *profile.fabrics}


def require_claims(api: KubernetesApi, options: ClusterPodOptions) -> None:
    """Raise MachineError if pods must claim devices but the cluster does not support that."""
    if options.claims_devices and not api.serves("ResourceClaimTemplate"):
        raise MachineError(
            f"The cluster of {api.context} has no resourceclaimtemplates (resource.k8s.io/v1).",
            hint="Kubernetes has them from 1.34 on. Drop --cluster-profile "
            f"{options.cluster_profile} where nodes have the EFA device plugin.",
        )


def notify_undeclared(options: ClusterPodOptions, chosen: Nodes) -> None:
    """Report that nodes have a fabric that pods do not use, because no profile is declared."""
    profile = chosen[0].profile  # the nodes are alike
    # With mounts it has to be declared: it makes pods privileged.
    if options.profile is None and profile is not None and profile.mounts:
        notify(
            f"The nodes have {chosen[0].resource}. Pods use it with --cluster-profile "
            f"{profile.name}, which makes them privileged."
        )
