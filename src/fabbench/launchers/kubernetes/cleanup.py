"""Deleting what a run created, at its end or by `fabbench clean`, and waiting until its pods are gone."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from fabbench.launchers import Leftover, ObjectRef, notify
from fabbench.launchers.kubernetes.api import AbsentError, ForbiddenError, KubernetesApi, UnansweredError
from fabbench.launchers.kubernetes.manifests import NAME, REQUEST, RUN, SELECTOR
from fabbench.launchers.kubernetes.watch import is_ready
from fabbench.model.errors import MachineError

# Where the API fails several times within two minutes, the garbage collector and kubelets wait for up to a minute
# before they watch again, and for another if that fails (client-go, tools/cache/reflector.go: up to 30 s, times 1
# to 2). Pods then have 30 s to end.
REMOVAL_S = 150.0
_SILENT_S = 30.0  # Maximum time to wait for an API that does not answer
_NOTE_S = 10.0  # After how long to say what is waited for
_LOOK_S = 0.5
_LATE_S = 2.0  # For how long an object may still appear after its creation was interrupted
_STUCK_S = 3.0  # For how long pods of lost nodes are waited for: the last one may be about to go
_KINDS = ("Job", "Pod", "Service", "Secret", "MPIJob")
_ORDER = ("MPIJob", "Job", "Pod", "Service", "Secret", "ConfigMap")  # What creates others first; what others need last
_JOBS = ("MPIJob", "Job")  # Not every cluster has MPIJobs, and not every user may list both
_ENDS = ("Complete", "Succeeded", "Failed")  # Conditions of a Job that has ended; Succeeded is an MPIJob's


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """What is left after a removal."""

    pods: tuple[str, ...] = ()
    lost: Mapping[str, str] = field(default_factory=dict)  # Those of `pods` whose node is lost → the node
    answered: bool = True  # Whether the API answered: else nothing is known

    def error(self, thing: str, *, unanswered: str) -> MachineError | None:
        """Return the error that names what is left of `thing`; None: nothing. `unanswered` advises on a silent API."""
        if not self.answered:
            return MachineError(f"Cannot remove {thing}: the cluster's API does not answer.", hint=unanswered)
        if not self.pods:
            return None
        if set(self.pods) == set(self.lost):
            names = ", ".join(f"{pod} on {node}" for pod, node in self.lost.items())
            return MachineError(
                f"These pods cannot be removed because their node is lost: {names}.",
                hint="They disappear when the node is back or its Node object is deleted. fabbench "
                "clean --force deletes them now.",
            )
        return MachineError(
            f"These pods still exist after {REMOVAL_S:g} s: {', '.join(self.pods)}.",
            hint="They exit on their own unless their node is lost; fabbench clean finds them.",
        )


class _Note:
    """Says once what a removal waits for, if it takes long."""

    def __init__(self) -> None:
        self._at = time.monotonic() + _NOTE_S

    def show(self, names: Sequence[str]) -> None:
        if names and time.monotonic() > self._at:
            notify(f"Waiting until the cluster has removed {', '.join(names)}.")
            self._at = math.inf


def delete_and_wait(
    api: KubernetesApi, kind: str, name: str, pods: Callable[[], Sequence[Mapping[str, Any]]], *, created: bool
) -> Remaining:
    """Remove an object with everything it owns, and wait until `pods` returns none.

    `created` is whether the object is known to have existed. Return early if the nodes of all that is left
    are lost. Raise MachineError for what the API refuses.
    """
    started = answered = time.monotonic()
    stuck_since: float | None = None
    left = Remaining(answered=False)
    note = _Note()
    while True:
        now = time.monotonic()
        note.show(left.pods)
        try:
            gone = _delete(api, kind, name)
            answered = now
            if gone:
                remaining = pods()
                lost = pods_on_lost_nodes(api, remaining)
                left = Remaining(pods=tuple(str(pod["metadata"]["name"]) for pod in remaining), lost=lost)
                if not remaining and (created or now - started > _LATE_S):
                    return left
        except UnansweredError:
            left = Remaining(answered=False)  # the API may be back soon
        stuck = bool(left.pods) and len(left.pods) == len(left.lost)
        stuck_since = (stuck_since or now) if stuck else None
        if now - started > REMOVAL_S or now - answered > _SILENT_S:
            return left
        if stuck_since is not None and now - stuck_since > _STUCK_S:
            return left
        time.sleep(_LOOK_S)


def pods_on_lost_nodes(api: KubernetesApi, pods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the pods whose node is not ready or no longer exists: pod → node."""
    nodes = {str(pod["metadata"]["name"]): str(pod.get("spec", {}).get("nodeName") or "") for pod in pods}
    lost = {node: _lost(api, node) for node in dict.fromkeys(nodes.values()) if node}
    return {pod: node for pod, node in nodes.items() if lost.get(node)}


def _lost(api: KubernetesApi, node: str) -> bool:
    try:
        return not is_ready(api.read("Node", node))
    except AbsentError:
        return True
    except ForbiddenError:
        return False  # unknown


def _delete(api: KubernetesApi, kind: str, name: str) -> bool:
    """Request the deletion of an object. Return whether it no longer exists."""
    try:
        api.delete(kind, name, {"propagationPolicy": "Background", "gracePeriodSeconds": 0})
    except AbsentError:
        return True
    return False


def remove_run(removal: Callable[[], Remaining], thing: str, *, unanswered: str, error: BaseException | None) -> None:
    """Remove `thing` with `delete_and_wait`, even if interrupted.

    If something remains, raise MachineError, or add it as a note to `error`. `unanswered`: see `Remaining.error`.
    """

    def remove() -> None:
        if left := removal().error(thing, unanswered=unanswered):
            raise left

    try:
        try:
            remove()
        except KeyboardInterrupt:
            remove()
            raise
    except MachineError as left:
        if error is None:
            raise
        error.add_note(f"{left} {left.hint}")


def find_leftovers(api: KubernetesApi, *, everywhere: bool) -> tuple[Leftover, ...]:
    """Find fabbench's objects, of any run. Raise MachineError without the right to list pods, or Jobs and MPIJobs."""
    objects: list[dict[str, Any]] = []
    unseen: dict[str, MachineError] = {}
    for kind in _KINDS:
        try:
            objects += ({**found, "kind": kind} for found in api.objects(kind, labels=SELECTOR, everywhere=everywhere))
        except (AbsentError, ForbiddenError) as error:
            unseen[kind] = error
    # Services and Secrets go with their Job: only those applied by hand remain.
    refused = unseen.get("Pod") or (unseen["Job"] if unseen.keys() >= {*_JOBS} else None)
    if refused is not None:
        raise refused
    return group_leftovers(objects, datetime.now(UTC))


def remove_leftovers(api: KubernetesApi, chosen: Sequence[Leftover], *, everywhere: bool, force: bool = False) -> None:
    """Remove runs, and wait until they are gone. Raise MachineError that names what remains.

    A pod whose node is lost cannot be removed: with `force` the cluster forgets it, even if it still runs.
    """
    for leftover in chosen:
        for thing in leftover.things:
            _delete_object(api, thing)
    names = {(leftover.run, leftover.namespace) for leftover in chosen}
    started = time.monotonic()
    note = _Note()
    while True:
        found = find_leftovers(api, everywhere=everywhere)
        left = [each for each in found if (each.run, each.namespace) in names]
        if not left:
            return
        things = [thing for each in left for thing in each.things]
        note.show([thing.name for thing in things])
        lost = _on_lost_nodes(api, [thing for thing in things if thing.kind == "Pod"])
        for thing in lost if force else ():
            _delete_object(api, thing, force=True)
        waited = time.monotonic() - started
        stuck = not force and waited > _STUCK_S and len(lost) == len(things)
        if stuck or waited > REMOVAL_S:
            what = ", ".join(f"{thing.kind} {thing.name}" for thing in things)
            on_lost = f" The nodes of {', '.join(thing.name for thing in lost)} are lost." if lost else ""
            raise MachineError(
                f"These still exist after {waited:.0f} s: {what}.{on_lost}",
                hint="Pods of a lost node disappear when it is back or its Node object is deleted. "
                "--force deletes them now.",
            )
        time.sleep(_LOOK_S)


def _on_lost_nodes(api: KubernetesApi, pods: Sequence[ObjectRef]) -> list[ObjectRef]:
    """Return those pods that are being deleted and whose node is lost."""
    found = {}
    for pod in pods:
        with suppress(AbsentError):
            found[pod.name] = api.read("Pod", pod.name, namespace=pod.namespace)
    deleting = [each for each in found.values() if each["metadata"].get("deletionTimestamp")]
    lost = pods_on_lost_nodes(api, deleting)
    return [pod for pod in pods if pod.name in lost]


def _delete_object(api: KubernetesApi, thing: ObjectRef, *, force: bool = False) -> None:
    body: dict[str, Any] = {"propagationPolicy": "Background", "preconditions": {"uid": thing.uid}}
    if thing.kind != "Pod" or force:
        body["gracePeriodSeconds"] = 0  # for a pod it would mean to forget it, even if it still runs
    try:
        api.delete(thing.kind, thing.name, body, namespace=thing.namespace)
    except AbsentError:
        return  # already removed
    except ForbiddenError:
        if thing.kind != "Pod" or force:
            raise
        # The Job is gone, and the cluster removes its pods: the caller waits for them.


def group_leftovers(objects: Iterable[Mapping[str, Any]], now: datetime) -> tuple[Leftover, ...]:
    """Find what fabbench created by its labels: the oldest first. Each object needs its `kind`, which lists omit."""
    runs: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for each in objects:
        meta = each.get("metadata") or {}
        labels = meta.get("labels") or {}
        if labels.get(NAME) == "fabbench" and labels.get(RUN):
            runs[labels[RUN], meta.get("namespace") or "default"].append(each)
    left = (_leftover(run, namespace, things, now) for (run, namespace), things in runs.items())
    return tuple(sorted(left, key=lambda each: (-each.age, each.run, each.namespace)))


def _leftover(run: str, namespace: str, things: list[Mapping[str, Any]], now: datetime) -> Leftover:
    created = [datetime.fromisoformat(text) for text in _values(things, "creationTimestamp")]
    requests = [text for each in things if (text := ((each["metadata"].get("annotations") or {}).get(REQUEST) or ""))]
    return Leftover(
        run=run,
        namespace=namespace,
        age=max(now - min(created), timedelta(0)) if created else timedelta(0),
        running=any(map(_runs, things)),
        request=requests[0] if requests else "",
        things=tuple(sorted(_references(things, namespace), key=_order)),
    )


def _runs(thing: Mapping[str, Any]) -> bool:
    status = thing.get("status") or {}
    if thing.get("kind") in _JOBS:
        conditions = status.get("conditions") or ()
        return not any(each.get("type") in _ENDS and each.get("status") == "True" for each in conditions)
    # A pod being deleted no longer belongs to a run; if its node is lost it stays "Running" forever.
    deleted = (thing.get("metadata") or {}).get("deletionTimestamp")
    return thing.get("kind") == "Pod" and status.get("phase") == "Running" and not deleted


def _references(things: list[Mapping[str, Any]], namespace: str) -> Iterator[ObjectRef]:
    uids = set(_values(things, "uid"))
    for each in things:
        meta = each["metadata"]
        owners = {owner.get("uid") for owner in meta.get("ownerReferences") or ()}
        if not owners & uids:
            yield ObjectRef(each.get("kind") or "", namespace, meta.get("name") or "", meta.get("uid") or "")


def _values(things: list[Mapping[str, Any]], key: str) -> list[str]:
    return [str(each["metadata"][key]) for each in things if each["metadata"].get(key)]


def _order(thing: ObjectRef) -> tuple[int, str, str]:
    rank = _ORDER.index(thing.kind) if thing.kind in _ORDER else len(_ORDER)
    return rank, thing.kind, thing.name
