"""What a cluster has, and whether the user may use it."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from fabbench.errors import MachineError
from fabbench.kube.client import Cluster, ForbiddenError
from fabbench.pods.nodes import Node, read_nodes
from fabbench.pods.rights import RIGHTS, Right

_AT_ONCE = 8
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def nodes(cluster: Cluster) -> tuple[Node, ...]:
    """Look at all nodes, and at what their pods have taken of them. Raises MachineError.

    Who may not see other namespaces' pods only learns what nodes have, and not what is free.
    """
    with ThreadPoolExecutor(2) as threads:
        found = threads.submit(lambda: list(cluster.items("/api/v1/nodes")))
        pods = threads.submit(lambda: list(cluster.items("/api/v1/pods")))
        try:
            taken = pods.result()
        except ForbiddenError:
            taken = []
        return tuple(read_nodes(found.result(), taken))


def missing_rights(cluster: Cluster) -> tuple[Right, ...]:
    """Ask the cluster which rights the user lacks."""

    def lacks(right: Right) -> bool:
        asked = {
            "verb": right.verb,
            "group": right.group,
            "resource": right.resource,
            "subresource": right.subresource,
            "namespace": cluster.namespace if right.namespaced else "",
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        return not cluster.call("POST", _REVIEWS, body=body).get("status", {}).get("allowed")

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        answers = list(threads.map(lacks, RIGHTS))
    return tuple(right for right, lacking in zip(RIGHTS, answers, strict=True) if lacking)


def require_rights(cluster: Cluster) -> None:
    """Raise MachineError that names the verbs that are missing."""
    missing = [right for right in missing_rights(cluster) if not right.optional]
    if missing:
        raise MachineError(
            f"This user may not {_listed(missing)} in namespace {cluster.namespace} of {cluster.context}.",
            hint="examples/rbac.yaml grants what is needed. Nothing was started.",
        )


def _listed(rights: Iterable[Right]) -> str:
    return ", ".join(map(str, rights))
