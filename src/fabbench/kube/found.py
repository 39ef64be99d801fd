"""What a cluster has, and whether the user may use it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from fabbench.errors import MachineError
from fabbench.kube.client import Cluster, ForbiddenError, cluster
from fabbench.machines import Needs, Where
from fabbench.pods.choice import Wish
from fabbench.pods.nodes import Node, read_nodes
from fabbench.pods.rights import RIGHTS, Right
from fabbench.remote.pool import each

T = TypeVar("T")

_AT_ONCE = 8
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def site_of(where: Where) -> Cluster:
    """Give the cluster that is meant, before anything is asked. Raises MachineError."""
    settings = where.settings
    return cluster(settings.get("kubeconfig"), settings.get("context"), settings.get("namespace"))


def wish_of(where: Where, needs: Needs) -> Wish:
    """Say which nodes are wanted."""
    settings = where.settings
    return Wish(
        count=where.nodes,
        instance_type=str(settings.get("instance_type") or ""),
        names=where.hosts,
        selector=str(settings.get("selector") or ""),
        needs_gpu=needs.mpi and where.gpus is None,
    )


def nodes(cluster: Cluster) -> tuple[Node, ...]:
    """Look at all nodes, and at what their pods have taken of them. Raises MachineError.

    Who may not see other namespaces' pods only learns what nodes have, and not what is free.
    """
    lists = {"nodes": "/api/v1/nodes", "pods": "/api/v1/pods"}
    found = each(lists, lambda path: list(cluster.items(path)))
    if isinstance(found["pods"], ForbiddenError):
        found["pods"] = []
    read = _answered(found)
    return tuple(read_nodes(read["nodes"], read["pods"]))


def missing_rights(cluster: Cluster, asked: Sequence[Right] = RIGHTS) -> tuple[Right, ...]:
    """Ask the cluster which of these rights the user lacks."""

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

    rights = {str(number): right for number, right in enumerate(asked)}
    answers = _answered(each(rights, lacks, _AT_ONCE))
    return tuple(rights[number] for number, lacking in answers.items() if lacking)


def _answered(found: Mapping[str, T | MachineError]) -> dict[str, T]:
    """Raise the first error: the cluster is the same for all of them."""
    for answer in found.values():
        if isinstance(answer, MachineError):
            raise answer
    return {name: answer for name, answer in found.items() if not isinstance(answer, MachineError)}


def require_rights(
    cluster: Cluster, asked: Sequence[Right] = RIGHTS, example: str = "examples/rbac.yaml"
) -> None:
    """Raise MachineError that names the verbs that are missing; `example` is the file that grants them."""
    missing = [right for right in missing_rights(cluster, asked) if not right.optional]
    if missing:
        raise MachineError(
            f"This user may not {_listed(missing)} in namespace {cluster.namespace} of {cluster.context}.",
            hint=f"{example} grants what is needed. Nothing was started.",
        )


def _listed(rights: Iterable[Right]) -> str:
    return ", ".join(map(str, rights))
