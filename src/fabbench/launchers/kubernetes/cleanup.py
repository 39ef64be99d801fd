"""Deleting what a run created, at its end or by `fabbench clean`, and waiting until its pods are gone."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fabbench.launchers import Leftover, ObjectRef, notify
from fabbench.launchers.kubernetes import LEASE_S
from fabbench.launchers.kubernetes.api import AbsentError, ForbiddenError, KubernetesApi, UnansweredError
from fabbench.launchers.kubernetes.manifests import RUN, SELECTOR
from fabbench.launchers.kubernetes.nodes import true_condition
from fabbench.model.errors import MachineError

Object = Mapping[str, Any]

# Where the API fails several times within two minutes, the garbage collector and kubelets wait for up to a minute
# before they watch again, and for another if that fails (client-go, tools/cache/reflector.go: up to 30 s, times 1
# to 2). Pods then have 30 s to end.
REMOVAL_S = 150.0
_SILENT_S = 30.0  # Maximum time to wait for an API that does not answer
_NOTE_S = 10.0  # After how long to say what is waited for
_LOOK_S = 0.5
_LATE_S = 2.0  # For how long an object may still appear after its creation was interrupted
_STUCK_S = 3.0  # For how long pods of lost nodes are waited for: the last one may be about to go
_BY_ITSELF = (
    f"It exits on its own: pods that lose contact with fabbench end {LEASE_S} s later. fabbench clean --all removes it."
)
_KINDS = ("MPIJob", "Job", "Pod")  # Owners first. All else goes with its owner.
_JOBS = ("MPIJob", "Job")  # Not every cluster has MPIJobs, and not every user may list both
_ENDS = ("Complete", "Succeeded", "Failed")  # Conditions of a Job that has ended; Succeeded is an MPIJob's


def remove(
    api: KubernetesApi, things: Sequence[ObjectRef], left: Callable[[], Sequence[Object]], *, force: bool = False
) -> None:
    """Delete things with all that they own, and wait until `left` returns nothing. Raise MachineError that names it.

    Things without a uid may still appear: their creation was interrupted. A pod whose node is lost cannot be
    removed: with `force` the cluster forgets it, even if it still runs; else it is not waited for.
    """
    started = answered = time.monotonic()
    stuck_since: float | None = None
    note_at, late_s = started + _NOTE_S, 0 if all(thing.uid for thing in things) else _LATE_S
    names: list[str] = []
    while True:
        now = time.monotonic()
        if names and now > note_at:
            notify(f"Waiting until the cluster has removed {', '.join(names)}.")
            note_at = math.inf
        try:
            for thing in things:
                _delete(api, thing)
            remaining = left()
            lost = pods_on_lost_nodes(api, remaining)
            for pod in remaining:
                if force and pod["metadata"]["name"] in lost:
                    _delete(api, reference(pod), force=True)
            answered, names = now, [str(each["metadata"]["name"]) for each in remaining]
        except UnansweredError as error:  # it may be back soon
            if now - answered > _SILENT_S:
                raise MachineError(f"{_named(things)} cannot be removed: {error}", hint=_BY_ITSELF) from error
        else:
            if not names and now - started >= late_s:
                return
            stuck = bool(names) and not force and set(names) == set(lost)
            stuck_since = (stuck_since or now) if stuck else None
            if now - started > REMOVAL_S or (stuck_since is not None and now - stuck_since > _STUCK_S):
                raise _remains(names, lost, now - started)
        time.sleep(_LOOK_S)


def _named(things: Sequence[ObjectRef]) -> str:
    return ", ".join(f"{thing.kind} {thing.name}" for thing in things)


def _remains(names: Sequence[str], lost: Mapping[str, str], waited_s: float) -> MachineError:
    if set(names) == set(lost):
        pods = ", ".join(f"{pod} on {node}" for pod, node in lost.items())
        return MachineError(
            f"These pods cannot be removed because their node is lost: {pods}.",
            hint="They disappear when the node is back or its Node object is deleted. "
            "fabbench clean --force deletes them now.",
        )
    return MachineError(
        f"These still exist after {waited_s:.0f} s: {', '.join(names)}.",
        hint="Pods exit on their own unless their node is lost; fabbench clean finds them.",
    )


def pods_on_lost_nodes(api: KubernetesApi, objects: Iterable[Object]) -> dict[str, str]:
    """Return the pods whose node is not ready or no longer exists: pod → node."""
    placed = ((str(each["metadata"]["name"]), (each.get("spec") or {}).get("nodeName")) for each in objects)
    nodes = {pod: str(node) for pod, node in placed if node}
    lost = {node: _lost(api, node) for node in set(nodes.values())}
    return {pod: node for pod, node in nodes.items() if lost[node]}


def _lost(api: KubernetesApi, node: str) -> bool:
    try:
        return true_condition(api.read("Node", node), "Ready") is None
    except AbsentError:
        return True
    except ForbiddenError:
        return False  # unknown


def _delete(api: KubernetesApi, thing: ObjectRef, *, force: bool = False) -> None:
    body: dict[str, Any] = {"propagationPolicy": "Background"}
    if thing.uid:
        body["preconditions"] = {"uid": thing.uid}
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


def remove_run(
    api: KubernetesApi, thing: ObjectRef, pods: Callable[[], Sequence[Object]], error: BaseException | None
) -> None:
    """Remove a run's first object, even if interrupted. What remains is a MachineError, or a note of `error`."""
    if isinstance(error, KeyboardInterrupt):
        notify(f"Interrupted: removing {_named([thing])}.")
    try:
        try:
            remove(api, [thing], pods)
        except KeyboardInterrupt:
            remove(api, [thing], pods)
            raise
    except MachineError as left:
        if error is None:
            raise
        error.add_note(f"{left} {left.hint}")


def find_leftovers(api: KubernetesApi, *, everywhere: bool) -> tuple[Leftover, ...]:
    """Find fabbench's objects, of any run. Raise MachineError without the right to list pods, or Jobs and MPIJobs."""
    return group_leftovers(_objects(api, everywhere=everywhere), datetime.now(UTC))


def _objects(api: KubernetesApi, *, everywhere: bool) -> list[dict[str, Any]]:
    objects: list[dict[str, Any]] = []
    unseen: dict[str, MachineError] = {}
    for kind in _KINDS:
        try:
            objects += ({**found, "kind": kind} for found in api.objects(kind, labels=SELECTOR, everywhere=everywhere))
        except (AbsentError, ForbiddenError) as error:
            unseen[kind] = error
    refused = unseen.get("Pod") or (unseen["Job"] if unseen.keys() >= {*_JOBS} else None)
    if refused is not None:
        raise refused
    return objects


def remove_leftovers(api: KubernetesApi, chosen: Sequence[Leftover], *, everywhere: bool, force: bool = False) -> None:
    """Remove runs with `remove`."""
    runs = {(leftover.run, leftover.namespace) for leftover in chosen}

    def left() -> list[dict[str, Any]]:
        found = _objects(api, everywhere=everywhere)
        return [each for each in found if (each["metadata"]["labels"][RUN], each["metadata"]["namespace"]) in runs]

    remove(api, [thing for leftover in chosen for thing in leftover.things], left, force=force)


def group_leftovers(objects: Iterable[Object], now: datetime) -> tuple[Leftover, ...]:
    """Group what fabbench created by runs: the oldest first. Each object needs its `kind`, which lists omit."""
    runs = defaultdict[tuple[str, str], list[Object]](list)
    for each in objects:
        runs[each["metadata"]["labels"][RUN], each["metadata"]["namespace"]].append(each)
    left = (_leftover(run, namespace, things, now) for (run, namespace), things in runs.items())
    return tuple(sorted(left, key=lambda each: (-each.age, each.run, each.namespace)))


def _leftover(run: str, namespace: str, things: Sequence[Object], now: datetime) -> Leftover:
    metas = [thing["metadata"] for thing in things]
    created = min(datetime.fromisoformat(meta["creationTimestamp"]) for meta in metas)
    own = {meta["uid"] for meta in metas}
    owned = {meta["uid"] for meta in metas if any(each["uid"] in own for each in meta.get("ownerReferences") or ())}
    first = (reference(thing) for thing in things if thing["metadata"]["uid"] not in owned)
    return Leftover(
        run=run,
        namespace=namespace,
        age=max(now - created, timedelta(0)),
        running=any(map(_runs, things)),
        request="",
        things=tuple(sorted(first, key=lambda each: (_KINDS.index(each.kind), each.name))),
    )


def _runs(thing: Object) -> bool:
    if thing["kind"] in _JOBS:
        return true_condition(thing, *_ENDS) is None
    # A pod being deleted no longer belongs to a run; if its node is lost it stays "Running" forever.
    return thing["status"].get("phase") == "Running" and not thing["metadata"].get("deletionTimestamp")


def reference(thing: Object) -> ObjectRef:
    """Return the reference of an object as the API returns it."""
    meta = thing["metadata"]
    return ObjectRef(thing.get("kind") or "Pod", meta.get("namespace") or "", meta["name"], meta.get("uid") or "")
