"""Removing what owns pods, and waiting until they are gone, or cannot go."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fabbench.errors import MachineError
from fabbench.kube.client import AbsentError, Cluster, ForbiddenError, UnansweredError
from fabbench.kube.waiting import ready

GONE_S = 30.0
"""For how long pods may take to go."""
_LOOK_S = 0.5
_LATE_S = 2.0
"""For how long an object may come to be after its order was broken off."""
_STUCK_S = 2.0
"""For how long pods of lost nodes are looked at: the last one may just be going."""
_POLICY = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What is left after a removal."""

    pods: tuple[str, ...] = ()
    lost: Mapping[str, str] = field(default_factory=dict)
    """Those of `pods` whose node is lost, and the node."""
    answered: bool = True
    """Whether the API said so: else nothing is known."""

    def error(self, thing: str, *, unanswered: str) -> MachineError | None:
        """Say it; None where nothing is left.

        `thing` was to be removed; `unanswered` is the advice where the API does not answer.
        """
        if not self.answered:
            return MachineError(
                f"{thing} could not be removed: the cluster's API does not answer.", hint=unanswered
            )
        if not self.pods:
            return None
        if set(self.pods) == set(self.lost):
            names = ", ".join(f"{pod} on {node}" for pod, node in self.lost.items())
            return MachineError(
                f"These pods cannot go, as their node is lost: {names}.",
                hint="They go when it is back, or when its Node object is deleted. "
                "fabbench clean --force has the cluster forget them now.",
            )
        return MachineError(
            f"These pods are not gone after {GONE_S:g} s: {', '.join(self.pods)}.",
            hint="They end by themselves, unless their node is lost: fabbench clean finds them.",
        )


def remove(
    cluster: Cluster, path: str, pods: Callable[[], Sequence[Mapping[str, Any]]], *, made: bool
) -> Left:
    """Remove the object at `path`, which takes all it owns along, and wait until `pods` gives none.

    `made` is whether it is known to have been there. Gives up early where the nodes of all that is left are
    lost. Raises MachineError for what the API refuses.
    """
    began = time.monotonic()
    stuck_since: float | None = None
    left = Left(answered=False)
    while True:
        now = time.monotonic()
        try:
            if _deleted(cluster, path):
                there = pods()
                lost = lost_nodes(cluster, there)
                left = Left(pods=_names(there), lost=lost)
                if not there and (made or now - began > _LATE_S):
                    return left
        except UnansweredError:
            left = Left(answered=False)  # it may be back soon
        stuck = bool(left.pods) and len(left.pods) == len(left.lost)
        stuck_since = (stuck_since or now) if stuck else None
        if now - began > GONE_S or (stuck_since is not None and now - stuck_since > _STUCK_S):
            return left
        time.sleep(_LOOK_S)


def lost_nodes(cluster: Cluster, pods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Give the pods whose node is not heard of any more, or is no more: pod → node."""
    found = {}
    seen: dict[str, bool] = {}
    for pod in pods:
        node = str(pod.get("spec", {}).get("nodeName") or "")
        if node:
            if node not in seen:
                seen[node] = _lost(cluster, node)
            if seen[node]:
                found[str(pod["metadata"]["name"])] = node
    return found


def _lost(cluster: Cluster, node: str) -> bool:
    try:
        return not ready(cluster.get(f"/api/v1/nodes/{node}"))
    except AbsentError:
        return True
    except ForbiddenError:
        return False  # it cannot be told


def _deleted(cluster: Cluster, path: str) -> bool:
    """Order the removal of an object. Gives whether there is none any more."""
    try:
        cluster.call("DELETE", path, body=_POLICY)
    except AbsentError:
        return True
    return False


def _names(pods: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(str(pod["metadata"]["name"]) for pod in pods)
