"""Finding and removing what fabbench has left in a cluster."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from fabbench.errors import MachineError
from fabbench.kube.client import AbsentError, Cluster, ForbiddenError
from fabbench.kube.removal import lost_nodes
from fabbench.pods.asked import SELECTOR
from fabbench.pods.cleanup import Leftover, Thing, leftovers

_APIS = {
    "Job": "/apis/batch/v1",
    "Pod": "/api/v1",
    "Service": "/api/v1",
    "Secret": "/api/v1",
    "MPIJob": "/apis/kubeflow.org/v2beta1",
}
_MAYBE = "MPIJob"
"""Not every cluster has it, and not everybody may see it."""
_GONE_S = 30.0
_STUCK_S = 3.0
"""After how long pods of lost nodes are waited for no more: the last one may just be going."""
_LOOK_S = 0.5


def find(site: Cluster, *, everywhere: bool) -> tuple[Leftover, ...]:
    """Find everything of fabbench's, of any run: in the namespace, or in all. Raises MachineError."""
    namespace = "" if everywhere else site.namespace
    return leftovers((thing for kind in _APIS for thing in _all(site, kind, namespace)), datetime.now(UTC))


def remove(site: Cluster, chosen: Sequence[Leftover], *, everywhere: bool, force: bool = False) -> None:
    """Remove runs, and wait until they are gone. Raises MachineError that names what stays.

    A pod whose node is lost cannot go: with `force` the cluster forgets it, whatever runs on there.
    """
    for leftover in chosen:
        for thing in leftover.things:
            _delete(site, thing)
    names = {(leftover.run, leftover.namespace) for leftover in chosen}
    began = time.monotonic()
    while left := [each for each in find(site, everywhere=everywhere) if (each.run, each.namespace) in names]:
        pods = [thing for each in left for thing in each.things if thing.kind == "Pod"]
        lost = _of_lost_nodes(site, pods)
        for thing in lost if force else ():
            _delete(site, thing, force=True)
        waited = time.monotonic() - began
        stuck = not force and waited > _STUCK_S and len(lost) == sum(len(each.things) for each in left)
        if stuck or waited > _GONE_S:
            what = ", ".join(f"{thing.kind} {thing.name}" for each in left for thing in each.things)
            on_lost = f" The nodes of {', '.join(thing.name for thing in lost)} are lost." if lost else ""
            raise MachineError(
                f"These are not gone after {waited:.0f} s: {what}.{on_lost}",
                hint="Pods of a node that is lost go when it is back, or when its Node object is deleted. "
                "--force has the cluster forget them now.",
            )
        time.sleep(_LOOK_S)


def _of_lost_nodes(site: Cluster, pods: Sequence[Thing]) -> list[Thing]:
    """Give those of pods that are being deleted, and whose node is lost."""
    found = {}
    for pod in pods:
        with suppress(AbsentError):
            found[pod.name] = site.get(f"{_path('Pod', pod.namespace)}/{pod.name}")
    ending = [each for each in found.values() if each["metadata"].get("deletionTimestamp")]
    lost = lost_nodes(site, ending)
    return [pod for pod in pods if pod.name in lost]


def _all(site: Cluster, kind: str, namespace: str) -> Iterator[dict[str, Any]]:
    try:
        for found in site.items(_path(kind, namespace), labelSelector=SELECTOR):
            yield {**found, "kind": kind}
    except (AbsentError, ForbiddenError):
        if kind != _MAYBE:
            raise


def _delete(site: Cluster, thing: Thing, *, force: bool = False) -> None:
    body: dict[str, Any] = {"propagationPolicy": "Background", "preconditions": {"uid": thing.uid}}
    if thing.kind != "Pod" or force:
        body["gracePeriodSeconds"] = 0  # of a pod it would mean to forget it, whatever runs there
    try:
        site.call("DELETE", f"{_path(thing.kind, thing.namespace)}/{thing.name}", body=body)
    except AbsentError:
        return  # it went by itself meanwhile


def _path(kind: str, namespace: str) -> str:
    return f"{_APIS[kind]}{f'/namespaces/{namespace}' if namespace else ''}/{kind.lower()}s"
