"""The objects of one run in a cluster.

Creating, waiting for, keeping alive and removing them, also by `clean`.
"""

import contextlib
import math
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from fabbench.launchers import Explanation, Leftover, ObjectRef, notify
from fabbench.launchers.kubernetes import LEASE_S
from fabbench.launchers.kubernetes.api import (
    AbsentError,
    ForbiddenError,
    KubernetesApi,
    PodConnection,
    UnansweredError,
)
from fabbench.launchers.kubernetes.explain import explain_owner, explain_pod
from fabbench.launchers.kubernetes.manifests import (
    CONTAINER,
    HEARTBEAT_FILE,
    INDEX,
    ROLE,
    RUN,
    SELECTOR,
    WORKER,
    RunSpec,
    owned_by,
)
from fabbench.launchers.kubernetes.nodes import Node, read_nodes, true_condition
from fabbench.model.errors import MachineError

if TYPE_CHECKING:
    from fabbench.remote.transport import ProcessStream


Object = Mapping[str, Any]

# Where the API fails several times within two minutes, the garbage collector and kubelets wait for
# up to a minute before they watch again, and for another if that fails (client-go,
# tools/cache/reflector.go: up to 30 s, times 1 to 2). Pods then have 30 s to end.
REMOVAL_S = 150.0
_SILENT_S = 30.0  # Maximum time to wait for an API that does not answer
_NOTE_S = 10.0  # After how long to say what is waited for
_LOOK_S = 0.5
_LATE_S = 2.0  # For how long an object may still appear after its creation was interrupted
_STUCK_S = 3.0  # For how long pods of lost nodes are waited for: the last one may be about to go
_BY_ITSELF = (
    f"It exits on its own: pods that lose contact with fabbench end {LEASE_S} s later. "
    "fabbench clean --all removes it."
)
_KINDS = ("MPIJob", "Job", "Pod")  # Owners first. All else goes with its owner.
_JOBS = ("MPIJob", "Job")  # Not every cluster has MPIJobs, and not every user may list both
_ENDS = (
    "Complete",
    "Succeeded",
    "Failed",
)  # Conditions of a Job that has ended; Succeeded is an MPIJob's


def remove(
    api: KubernetesApi,
    things: Sequence[ObjectRef],
    left: Callable[[], Sequence[Object]],
    *,
    force: bool = False,
) -> None:
    """Delete things with all that they own, and wait until `left` returns nothing.

    Raise MachineError that names it.

    Things without a uid may still appear: their creation was interrupted. A pod whose node is lost
    cannot be removed: with `force` the cluster forgets it, even if it still runs; else it is not
    waited for.
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
                raise MachineError(
                    f"{_named(things)} cannot be removed: {error}", hint=_BY_ITSELF
                ) from error
        else:
            if not names and now - started >= late_s:
                return
            stuck = bool(names) and not force and set(names) == set(lost)
            stuck_since = (stuck_since or now) if stuck else None
            if now - started > REMOVAL_S or (
                stuck_since is not None and now - stuck_since > _STUCK_S
            ):
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
    placed = (
        (str(each["metadata"]["name"]), (each.get("spec") or {}).get("nodeName"))
        for each in objects
    )
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
        body["gracePeriodSeconds"] = (
            0  # for a pod it would mean to forget it, even if it still runs
        )
    try:
        api.delete(thing.kind, thing.name, body, namespace=thing.namespace)
    except AbsentError:
        return  # already removed
    except ForbiddenError:
        if thing.kind != "Pod" or force:
            raise
        # The Job is gone, and the cluster removes its pods: the caller waits for them.


def remove_run(
    api: KubernetesApi,
    thing: ObjectRef,
    pods: Callable[[], Sequence[Object]],
    error: BaseException | None,
) -> None:
    """Remove a run's first object, even if interrupted.

    What remains is a MachineError, or a note of `error`.
    """
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
    """Find fabbench's objects, of any run.

    Raise MachineError without the right to list pods, or Jobs and MPIJobs.
    """
    return group_leftovers(_objects(api, everywhere=everywhere), datetime.now(UTC))


def _objects(api: KubernetesApi, *, everywhere: bool) -> list[dict[str, Any]]:
    objects: list[dict[str, Any]] = []
    unseen: dict[str, MachineError] = {}
    for kind in _KINDS:
        try:
            objects += (
                {**found, "kind": kind}
                for found in api.objects(kind, labels=SELECTOR, everywhere=everywhere)
            )
        except (AbsentError, ForbiddenError) as error:
            unseen[kind] = error
    refused = unseen.get("Pod") or (unseen["Job"] if unseen.keys() >= {*_JOBS} else None)
    if refused is not None:
        raise refused
    return objects


def remove_leftovers(
    api: KubernetesApi, chosen: Sequence[Leftover], *, everywhere: bool, force: bool = False
) -> None:
    """Remove runs with `remove`."""
    runs = {(leftover.run, leftover.namespace) for leftover in chosen}

    def left() -> list[dict[str, Any]]:
        found = _objects(api, everywhere=everywhere)
        return [
            each
            for each in found
            if (each["metadata"]["labels"][RUN], each["metadata"]["namespace"]) in runs
        ]

    remove(api, [thing for leftover in chosen for thing in leftover.things], left, force=force)


def group_leftovers(objects: Iterable[Object], now: datetime) -> tuple[Leftover, ...]:
    """Group what fabbench created by runs: the oldest first.

    Each object needs its `kind`, which lists omit.
    """
    runs = defaultdict[tuple[str, str], list[Object]](list)
    for each in objects:
        runs[each["metadata"]["labels"][RUN], each["metadata"]["namespace"]].append(each)
    left = (_leftover(run, namespace, things, now) for (run, namespace), things in runs.items())
    return tuple(sorted(left, key=lambda each: (-each.age, each.run, each.namespace)))


def _leftover(run: str, namespace: str, things: Sequence[Object], now: datetime) -> Leftover:
    metas = [thing["metadata"] for thing in things]
    created = min(datetime.fromisoformat(meta["creationTimestamp"]) for meta in metas)
    own = {meta["uid"] for meta in metas}
    owned = {
        meta["uid"]
        for meta in metas
        if any(each["uid"] in own for each in meta.get("ownerReferences") or ())
    }
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
    # A pod being deleted no longer belongs to a run; if its node is lost it stays "Running"
    # forever.
    return thing["status"].get("phase") == "Running" and not thing["metadata"].get(
        "deletionTimestamp"
    )


def reference(thing: Object) -> ObjectRef:
    """Return the reference of an object as the API returns it."""
    meta = thing["metadata"]
    return ObjectRef(
        thing.get("kind") or "Pod", meta.get("namespace") or "", meta["name"], meta.get("uid") or ""
    )


_POLL_S, _RETRY_S = 0.5, 1.0
_BEAT_S = 5.0
_ANSWER_S = 5.0
_BEATS = 'while read -r _; do : >"$1" && echo beat; done'


class Heartbeat:
    """A thread that shows pods that fabbench is alive, and extends the Job's deadline.

    Running pods count the seconds since the last heartbeat; for pods that do not run, there is the
    deadline. Each beat has its own thread: a pod that is slow to answer or lost does not delay the
    others.
    """

    def __init__(
        self,
        api: KubernetesApi,
        job: str,
        lease_s: int,
        pods: Callable[[], Sequence[dict[str, Any]]],
    ) -> None:
        """`pods` returns the pods. `job` is the name of a Job, with whose deadline they end."""
        self._api, self._job, self._lease_s, self._pods = api, job, lease_s, pods
        self._beats: dict[str, ProcessStream] = {}
        self._beating: set[str] = set()  # Pods that have not answered the last beat yet
        self._closing = threading.Event()
        self._started = self._extended = time.monotonic()  # The Job is about to be created

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, daemon=True, name="fabbench beats").start()

    def stop(self) -> None:
        """Stop the thread."""
        self._closing.set()
        for pipe in list(self._beats.values()):
            pipe.close()

    def _run(self) -> None:
        interval = min(_BEAT_S, self._lease_s / 5)
        while not self._closing.wait(interval if self._beats else _POLL_S):
            try:
                now = time.monotonic()
                if now - self._extended >= self._lease_s / 5:
                    # If pods cannot start, nothing else ends the Job soon after fabbench.
                    until = round(now - self._started) + self._lease_s
                    self._api.patch("Job", self._job, {"spec": {"activeDeadlineSeconds": until}})
                    self._extended = now
                running = [
                    pod for pod in self._pods() if pod.get("status", {}).get("phase") == "Running"
                ]
            except MachineError:
                continue
            for name in {pod["metadata"]["name"] for pod in running} - self._beating:
                self._beating.add(name)
                threading.Thread(
                    target=self._beat, args=(name,), daemon=True, name=f"fabbench beat {name}"
                ).start()

    def _beat(self, name: str) -> None:
        """Send a beat and wait for the answer. Without one, reconnect at the next beat."""
        try:
            if name not in self._beats:
                connection = PodConnection(self._api, name, CONTAINER)
                self._beats[name] = connection.open(("sh", "-c", _BEATS, "sh", HEARTBEAT_FILE))
            pipe = self._beats[name]
            pipe.send(b"\n")
            answered, until = False, time.monotonic() + _ANSWER_S
            while not answered and not pipe.closed and time.monotonic() < until:
                answered = bool(pipe.read(_POLL_S))
            if not answered:
                self._beats.pop(name).close()
        except MachineError:
            broken = self._beats.pop(
                name, None
            )  # the pod may still be starting; the next beat is soon
            if broken is not None:
                broken.close()
        finally:
            self._beating.discard(name)


class PodWatch:
    """A thread that keeps the last state of pods.

    An evicted one may show that for less than a second.
    """

    def __init__(self, api: KubernetesApi, selector: str) -> None:
        self.last: dict[str, Mapping[str, Any]] = {}  # A pod's uid → its last reported state
        self._api = api
        self._selector = selector
        self._closing = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, daemon=True, name="fabbench pod watch").start()

    def stop(self) -> None:
        """Stop the thread."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                with contextlib.closing(self._api.watch("Pod", self._selector)) as pods:
                    for pod in pods:
                        if self._closing.is_set():
                            return
                        self.last[pod["metadata"]["uid"]] = pod
            except MachineError:
                pass  # the next round tries again
            self._closing.wait(_RETRY_S)


_REPORT_AFTER_S = 3.0  # After how long a transient reason is reported
_REASON_S = 5.0  # How long after a pod's end its reason may still be reported
_ENDED_BY_JOB = "SuccessfulDelete"


def _index(pod: Object) -> int:
    return next(
        (
            int(pod["metadata"]["labels"][label])
            for label in INDEX
            if label in pod["metadata"]["labels"]
        ),
        0,
    )


class JobRun:
    """A context manager that removes everything on exit, and waits until the pods are gone."""

    def __init__(
        self, api: KubernetesApi, spec: RunSpec, objects: Sequence[dict[str, Any]]
    ) -> None:
        """`objects` are created, in this order.

        The first, a Job or MPIJob, creates pods and owns the others.
        """
        self._api = api
        self._spec = spec
        self._objects = objects
        self._kind = objects[0]["kind"]
        self._created: Object = {}
        self._ready: Mapping[str, Object] = {}  # The workers as they were once ready, by name
        self._selector = f"{RUN}={spec.run}"
        self._watch = PodWatch(api, self._selector)
        job = (
            spec.name if self._kind == "Job" else f"{spec.name}-launcher"
        )  # As the operator names it
        self._heartbeat = Heartbeat(api, job, spec.lease_s, self.pods)

    def __enter__(self) -> Self:
        first, *others = self._objects
        try:
            self._created = self._api.create(self._kind, first)
            for each in owned_by(others, {**first, **self._created}):
                self._api.create(each["kind"], each)
        except BaseException as error:
            self._remove(error)
            raise
        self._heartbeat.start()
        self._watch.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._remove(error)

    def wait(self, limit_s: float, nodes: Sequence[Node]) -> Sequence[Object]:
        """Wait until all pods are ready, and return them by index.

        Report what they wait for after a while.

        Raise MachineError with the explanation: at once if the reason is permanent, else after
        `limit_s`.
        """
        started, since = time.monotonic(), dict[str, float]()
        reported = set[str]()  # Texts without digits: ports and pods of the same reason differ
        while True:
            try:
                pods = sorted(
                    (pod for pod in self.pods() if pod["metadata"]["labels"][ROLE] == WORKER),
                    key=_index,
                )
                if len(pods) == self._spec.count and all(
                    true_condition(pod, "Ready") for pod in pods
                ):
                    self._ready = {pod["metadata"]["name"]: pod for pod in pods}
                    return pods
                why = self._what_is_missing(pods, nodes)
            except UnansweredError as error:
                why = Explanation(
                    code="api", text=str(error), advice="fabbench keeps trying.", final=False
                )
            now = time.monotonic()
            if why is not None and why.final:
                raise MachineError(why.text, hint=why.advice)
            if now - started > limit_s:
                text = (
                    f"The pods were not ready after {limit_s:g} s. {why.text if why else ''}"
                ).strip()
                raise MachineError(
                    text, hint="Raise --start-timeout, or check with kubectl describe."
                )
            if why is not None and now - since.setdefault(why.code, now) >= _REPORT_AFTER_S:
                if (key := re.sub(r"\d+", "", why.text)) not in reported:
                    notify(str(why))
                reported.add(key)
            time.sleep(_POLL_S)

    def _what_is_missing(self, pods: Sequence[Object], nodes: Sequence[Node]) -> Explanation | None:
        events = list(self._api.objects("Event"))
        found = (
            explain_pod(pod, events, nodes) for pod in pods if not true_condition(pod, "Ready")
        )
        owner = self._api.read(self._kind, self._spec.name)
        return next((each for each in found if each is not None), None) or explain_owner(
            owner, self._kind, events
        )

    def connections(self, pods: Sequence[Object]) -> dict[str, PodConnection]:
        """Return a connection to each pod, by the name of its node."""
        return {
            str(pod["spec"]["nodeName"]): PodConnection(
                self._api,
                pod["metadata"]["name"],
                CONTAINER,
                self.explain_exit,
                uid=pod["metadata"]["uid"],
            )
            for pod in pods
        }

    def explain_exit(self, name: str) -> str:
        """Explain what ended a pod, or the pod whose end ended it.

        The reason may come a little later: wait for it.
        """
        deadline = time.monotonic() + _REASON_S
        try:
            while True:
                first, found, exists = self._end_of(name)
                if (
                    found is None
                    or found.code not in {"killed", "deleted"}
                    or time.monotonic() > deadline
                ):
                    break
                time.sleep(_POLL_S)
        except MachineError:
            return f"The pod {name} is no longer running."
        node = self._ready[first]["spec"]["nodeName"] if first in self._ready else ""
        if found is None or (found.code == "deleted" and not exists):
            return f"The pod {first} on {node} was removed. Check its events to see who removed it."
        return str(found) if node in str(found) else f"{found} It was on {node}."

    def _end_of(self, name: str) -> tuple[str, Explanation | None, bool]:
        """Return the pod that ended first, why if known, and whether it still exists."""
        pods = {pod["metadata"]["name"]: pod for pod in self.pods()}
        events = list(self._api.objects("Event"))
        first = self._first_ended(name, pods, events)
        end = self._explained(first, pods, events)
        if end[1] is None or end[1].code != "deleted":
            return end
        # Another may have ended it: the Job or the operator removes all pods when one has failed.
        running = {
            name for name, pod in pods.items() if pod.get("status", {}).get("phase") == "Running"
        }
        others = (
            self._explained(each, pods, events)
            for each in self._ready
            if each not in {first, *running}
        )
        return next((each for each in others if each[1] and each[1].code != "deleted"), end)

    def _explained(
        self, name: str, pods: Mapping[str, Object], events: Sequence[Object]
    ) -> tuple[str, Explanation | None, bool]:
        now, before = pods.get(name), self._ready.get(name)
        exists = now is not None and (
            before is None or now["metadata"]["uid"] == before["metadata"]["uid"]
        )
        pod = (
            now
            if exists
            else self._watch.last.get(before["metadata"]["uid"], before)
            if before
            else None
        )
        node = pod.get("spec", {}).get("nodeName") if pod else None
        nodes = read_nodes([self._api.read("Node", node)], ()) if node else ()
        return name, explain_pod(pod, events, nodes) if pod else None, exists

    def _first_ended(self, name: str, pods: Mapping[str, Object], events: Sequence[Object]) -> str:
        """Return the name of the pod that made the Job fail and end the others."""
        ended = [event["message"] for event in events if event.get("reason") == _ENDED_BY_JOB]
        if not any(name in message for message in ended):
            return name
        others = (each for each in self._ready if not any(each in message for message in ended))
        phases = {each: pod.get("status", {}).get("phase") for each, pod in pods.items()}
        return next((each for each in others if phases.get(each) != "Running"), name)

    def pods(self) -> list[dict[str, Any]]:
        """Return the run's pods as they are now."""
        return list(self._api.objects("Pod", labels=self._selector))

    def _remove(self, error: BaseException | None) -> None:
        self._heartbeat.stop()
        self._watch.stop()
        uid = self._created["metadata"]["uid"] if self._created else ""
        remove_run(self._api, ObjectRef(self._kind, "", self._spec.name, uid), self.pods, error)
