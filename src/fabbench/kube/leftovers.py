"""Finding and removing what fabbench has left in a cluster."""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from fabbench.errors import MachineError
from fabbench.kube.client import AbsentError, Cluster, ForbiddenError
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
_LOOK_S = 0.5


def find(site: Cluster, *, everywhere: bool) -> tuple[Leftover, ...]:
    """Find everything of fabbench's, of any run: in the namespace, or in all. Raises MachineError."""
    namespace = "" if everywhere else site.namespace
    return leftovers((thing for kind in _APIS for thing in _all(site, kind, namespace)), datetime.now(UTC))


def remove(site: Cluster, chosen: Sequence[Leftover], *, everywhere: bool) -> None:
    """Remove runs, and wait until they are gone. Raises MachineError that names what stays."""
    for leftover in chosen:
        for thing in leftover.things:
            _delete(site, thing)
    names = {(leftover.run, leftover.namespace) for leftover in chosen}
    deadline = time.monotonic() + _GONE_S
    while left := [each for each in find(site, everywhere=everywhere) if (each.run, each.namespace) in names]:
        if time.monotonic() > deadline:
            what = ", ".join(f"{thing.kind} {thing.name}" for each in left for thing in each.things)
            raise MachineError(
                f"These are not gone after {_GONE_S:g} s: {what}.",
                hint="Pods of a node that is lost go when it is back, or when its Node object is deleted.",
            )
        time.sleep(_LOOK_S)


def _all(site: Cluster, kind: str, namespace: str) -> Iterator[dict[str, Any]]:
    try:
        for found in site.items(_path(kind, namespace), labelSelector=SELECTOR):
            yield {**found, "kind": kind}
    except (AbsentError, ForbiddenError):
        if kind != _MAYBE:
            raise


def _delete(site: Cluster, thing: Thing) -> None:
    body = {
        "propagationPolicy": "Background",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": thing.uid},
    }
    try:
        site.call("DELETE", f"{_path(thing.kind, thing.namespace)}/{thing.name}", body=body)
    except AbsentError:
        return  # it went by itself meanwhile


def _path(kind: str, namespace: str) -> str:
    return f"{_APIS[kind]}{f'/namespaces/{namespace}' if namespace else ''}/{kind.lower()}s"
