"""What fabbench has left in a cluster, and in which order to delete it. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from fabbench.pods.asked import NAME, REQUEST, RUN

_ORDER = ("MPIJob", "Job", "Pod", "Service", "Secret", "ConfigMap")
"""What makes other things goes before them; what others need goes last."""


_JOBS = ("MPIJob", "Job")
_ENDS = ("Complete", "Succeeded", "Failed")
"""Conditions of a Job that has ended; an MPIJob says Succeeded."""


class Thing(NamedTuple):
    """One object to delete. The uid makes sure that it is not another one by now."""

    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Everything of one run in one namespace."""

    run: str
    namespace: str
    age: timedelta
    """Of the oldest object."""
    running: bool
    """Whether a pod of it runs, or its Job has not ended: it may be a run in progress.

    The Job of a fabbench that is gone ends by itself soon, as nobody moves its deadline.
    """
    request: str
    """The command that it was made for; empty where it is not told."""
    things: tuple[Thing, ...]
    """In the order to delete them. What an owner of these takes along is not listed."""


def leftovers(objects: Iterable[Mapping[str, Any]], now: datetime) -> tuple[Leftover, ...]:
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
        things=tuple(sorted(_things(own, namespace), key=_order)),
    )


def _runs(thing: Mapping[str, Any]) -> bool:
    """Whether a pod runs, or a Job has not ended."""
    status = thing.get("status") or {}
    if thing.get("kind") in _JOBS:
        conditions = status.get("conditions") or ()
        return not any(each.get("type") in _ENDS and each.get("status") == "True" for each in conditions)
    # A pod that is told to go has no run any more; where its node is lost it stays "Running" for good.
    told_to_go = (thing.get("metadata") or {}).get("deletionTimestamp")
    return thing.get("kind") == "Pod" and status.get("phase") == "Running" and not told_to_go


def _things(own: list[Mapping[str, Any]], namespace: str) -> Iterator[Thing]:
    there = set(_values(own, "uid"))
    for each in own:
        meta = each["metadata"]
        owners = {owner.get("uid") for owner in meta.get("ownerReferences") or ()}
        if not owners & there:
            yield Thing(each.get("kind") or "", namespace, meta.get("name") or "", meta.get("uid") or "")


def _values(own: list[Mapping[str, Any]], key: str) -> list[str]:
    return [str(each["metadata"][key]) for each in own if each["metadata"].get(key)]


def _order(thing: Thing) -> tuple[int, str, str]:
    place = _ORDER.index(thing.kind) if thing.kind in _ORDER else len(_ORDER)
    return place, thing.kind, thing.name
