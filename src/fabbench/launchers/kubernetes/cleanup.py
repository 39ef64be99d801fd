"""Deleting what a run made, at its end or by `fabbench clean`, and waiting until its pods are gone."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from fabbench.launchers import Leftover, ObjectRef
from fabbench.launchers.kubernetes.api import AbsentError, ForbiddenError, KubernetesApi, UnansweredError
from fabbench.launchers.kubernetes.manifests import NAME, REQUEST, RUN, SELECTOR
from fabbench.launchers.kubernetes.watch import is_ready
from fabbench.model.errors import MachineError

GONE_S = 30.0
"""For how long pods may take to go."""
_LOOK_S = 0.5
_LATE_S = 2.0
"""For how long an object may come to be after its order was broken off."""
_STUCK_S = 2.0
"""For how long pods of lost nodes are looked at: the last one may just be going."""
_POLICY = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
_KINDS = ("Job", "Pod", "Service", "Secret", "MPIJob")
_LEFTOVER_STUCK_S = 3.0
"""After how long pods of lost nodes are waited for no more: the last one may just be going."""
_ORDER = ("MPIJob", "Job", "Pod", "Service", "Secret", "ConfigMap")
"""What makes other things goes before them; what others need goes last."""
_JOBS = ("MPIJob", "Job")
"""Not every cluster has MPIJobs, and not everybody may see both. Services and Secrets go with their Job: only
those that were applied by hand stay, and are found by who may list them."""
_ENDS = ("Complete", "Succeeded", "Failed")
"""Conditions of a Job that has ended; an MPIJob says Succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """What is left after a removal."""

    pods: tuple[str, ...] = ()
    lost: Mapping[str, str] = field(default_factory=dict)
    """Those of `pods` whose node is lost, and the node."""
    answered: bool = True
    """Whether the API said so: else nothing is known."""

    def error(self, thing: str, *, unanswered: str) -> MachineError | None:
        """Return the error that names what is left; None where nothing is.

        `thing` was to be removed; `unanswered` is the advice where the API does not answer.
        """
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
            f"These pods still exist after {GONE_S:g} s: {', '.join(self.pods)}.",
            hint="They exit on their own unless their node is lost; fabbench clean finds them.",
        )


def delete_and_wait(
    api: KubernetesApi, kind: str, name: str, pods: Callable[[], Sequence[Mapping[str, Any]]], *, made: bool
) -> Remaining:
    """Remove an object, which takes all it owns along, and wait until `pods` gives none.

    `made` is whether it is known to have been there. Return early where the nodes of all that is left are
    lost. Raise MachineError for what the API refuses.
    """
    began = time.monotonic()
    stuck_since: float | None = None
    left = Remaining(answered=False)
    while True:
        now = time.monotonic()
        try:
            if _delete(api, kind, name):
                there = pods()
                lost = pods_on_lost_nodes(api, there)
                left = Remaining(pods=tuple(str(pod["metadata"]["name"]) for pod in there), lost=lost)
                if not there and (made or now - began > _LATE_S):
                    return left
        except UnansweredError:
            left = Remaining(answered=False)  # it may be back soon
        stuck = bool(left.pods) and len(left.pods) == len(left.lost)
        stuck_since = (stuck_since or now) if stuck else None
        if now - began > GONE_S or (stuck_since is not None and now - stuck_since > _STUCK_S):
            return left
        time.sleep(_LOOK_S)


def pods_on_lost_nodes(api: KubernetesApi, pods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the pods whose node is not heard of any more, or is no more: pod → node."""
    found = {}
    seen: dict[str, bool] = {}
    for pod in pods:
        node = str(pod.get("spec", {}).get("nodeName") or "")
        if node:
            if node not in seen:
                seen[node] = _lost(api, node)
            if seen[node]:
                found[str(pod["metadata"]["name"])] = node
    return found


def _lost(api: KubernetesApi, node: str) -> bool:
    try:
        return not is_ready(api.read("Node", node))
    except AbsentError:
        return True
    except ForbiddenError:
        return False  # unknown


def _delete(api: KubernetesApi, kind: str, name: str) -> bool:
    """Order the removal of an object. Return whether there is none any more."""
    try:
        api.delete(kind, name, _POLICY)
    except AbsentError:
        return True
    return False


def find_leftovers(api: KubernetesApi, *, everywhere: bool) -> tuple[Leftover, ...]:
    """Find everything of fabbench's, of any run: in the namespace, or in all.

    Raise MachineError where the user may see no pods, or neither Jobs nor MPIJobs.
    """
    objects: list[dict[str, Any]] = []
    unseen: dict[str, MachineError] = {}
    for kind in _KINDS:
        try:
            objects += _all(api, kind, everywhere=everywhere)
        except (AbsentError, ForbiddenError) as error:
            unseen[kind] = error
    refused = unseen.get("Pod") or (unseen["Job"] if unseen.keys() >= {*_JOBS} else None)
    if refused is not None:
        raise refused
    return group_leftovers(objects, datetime.now(UTC))


def remove_leftovers(
    api: KubernetesApi, chosen: Sequence[Leftover], *, everywhere: bool, force: bool = False
) -> None:
    """Remove runs, and wait until they are gone. Raise MachineError that names what stays.

    A pod whose node is lost cannot go: with `force` the cluster forgets it, whatever runs on there.
    """
    for leftover in chosen:
        for thing in leftover.things:
            _delete_object(api, thing)
    names = {(leftover.run, leftover.namespace) for leftover in chosen}
    began = time.monotonic()
    while True:
        found = find_leftovers(api, everywhere=everywhere)
        left = [each for each in found if (each.run, each.namespace) in names]
        if not left:
            return
        things = [thing for each in left for thing in each.things]
        lost = _on_lost_nodes(api, [thing for thing in things if thing.kind == "Pod"])
        for thing in lost if force else ():
            _delete_object(api, thing, force=True)
        waited = time.monotonic() - began
        stuck = not force and waited > _LEFTOVER_STUCK_S and len(lost) == len(things)
        if stuck or waited > GONE_S:
            raise _not_gone(things, lost, waited)
        time.sleep(_LOOK_S)


def _not_gone(things: Sequence[ObjectRef], lost: Sequence[ObjectRef], waited: float) -> MachineError:
    what = ", ".join(f"{thing.kind} {thing.name}" for thing in things)
    on_lost = f" The nodes of {', '.join(thing.name for thing in lost)} are lost." if lost else ""
    return MachineError(
        f"These still exist after {waited:.0f} s: {what}.{on_lost}",
        hint="Pods of a lost node disappear when it is back or its Node object is deleted. --force "
        "deletes them now.",
    )


def _on_lost_nodes(api: KubernetesApi, pods: Sequence[ObjectRef]) -> list[ObjectRef]:
    """Return those of pods that are being deleted, and whose node is lost."""
    found = {}
    for pod in pods:
        with suppress(AbsentError):
            found[pod.name] = api.read("Pod", pod.name, namespace=pod.namespace)
    ending = [each for each in found.values() if each["metadata"].get("deletionTimestamp")]
    lost = pods_on_lost_nodes(api, ending)
    return [pod for pod in pods if pod.name in lost]


def _all(api: KubernetesApi, kind: str, *, everywhere: bool) -> Iterator[dict[str, Any]]:
    for found in api.objects(kind, labels=SELECTOR, everywhere=everywhere):
        yield {**found, "kind": kind}


def _delete_object(api: KubernetesApi, thing: ObjectRef, *, force: bool = False) -> None:
    body: dict[str, Any] = {"propagationPolicy": "Background", "preconditions": {"uid": thing.uid}}
    if thing.kind != "Pod" or force:
        body["gracePeriodSeconds"] = 0  # of a pod it would mean to forget it, whatever runs there
    try:
        api.delete(thing.kind, thing.name, body, namespace=thing.namespace)
    except AbsentError:
        return  # it went by itself meanwhile
    except ForbiddenError:
        if thing.kind != "Pod" or force:
            raise
        # The Job is gone, and the cluster removes its pods: they are waited for.


def group_leftovers(objects: Iterable[Mapping[str, Any]], now: datetime) -> tuple[Leftover, ...]:
    """Find what fabbench made, of any run, by its labels: the oldest first.

    Objects need their `kind`, which lists of the API leave out.
    """
    runs: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for each in objects:
        meta = each.get("metadata") or {}
        found = meta.get("labels") or {}
        if found.get(NAME) == "fabbench" and found.get(RUN):
            runs[found[RUN], meta.get("namespace") or "default"].append(each)
    left = (_leftover(run, namespace, own, now) for (run, namespace), own in runs.items())
    return tuple(sorted(left, key=lambda each: (-each.age, each.run, each.namespace)))


def _leftover(run: str, namespace: str, own: list[Mapping[str, Any]], now: datetime) -> Leftover:
    made = [datetime.fromisoformat(text) for text in _values(own, "creationTimestamp")]
    requests = [
        text for each in own if (text := ((each["metadata"].get("annotations") or {}).get(REQUEST) or ""))
    ]
    return Leftover(
        run=run,
        namespace=namespace,
        age=max(now - min(made), timedelta(0)) if made else timedelta(0),
        running=any(map(_runs, own)),
        request=requests[0] if requests else "",
        things=tuple(sorted(_references(own, namespace), key=_order)),
    )


def _runs(thing: Mapping[str, Any]) -> bool:
    """Return whether a pod runs, or a Job has not ended."""
    status = thing.get("status") or {}
    if thing.get("kind") in _JOBS:
        conditions = status.get("conditions") or ()
        return not any(each.get("type") in _ENDS and each.get("status") == "True" for each in conditions)
    # A pod that is being deleted has no run any more; where its node is lost it stays "Running" for good.
    deleted = (thing.get("metadata") or {}).get("deletionTimestamp")
    return thing.get("kind") == "Pod" and status.get("phase") == "Running" and not deleted


def _references(own: list[Mapping[str, Any]], namespace: str) -> Iterator[ObjectRef]:
    there = set(_values(own, "uid"))
    for each in own:
        meta = each["metadata"]
        owners = {owner.get("uid") for owner in meta.get("ownerReferences") or ()}
        if not owners & there:
            yield ObjectRef(each.get("kind") or "", namespace, meta.get("name") or "", meta.get("uid") or "")


def _values(own: list[Mapping[str, Any]], key: str) -> list[str]:
    return [str(each["metadata"][key]) for each in own if each["metadata"].get(key)]


def _order(thing: ObjectRef) -> tuple[int, str, str]:
    place = _ORDER.index(thing.kind) if thing.kind in _ORDER else len(_ORDER)
    return place, thing.kind, thing.name
