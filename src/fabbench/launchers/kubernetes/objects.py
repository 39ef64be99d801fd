"""The objects of one run in a cluster: creating, awaiting, keeping alive and removing them."""

import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from typing import Self, TypeAlias

from fabbench.execution.background import in_background
from fabbench.execution.waiting import moments
from fabbench.launchers import Leftover, ObjectRef, notify
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
from fabbench.launchers.kubernetes.nodes import (
    Nodes,
    first_value,
    labels_of,
    meta_of,
    name_of,
    node_of,
    read_nodes,
    status_of,
    true_condition,
)
from fabbench.launchers.pod_options import Object, Objects
from fabbench.model.errors import MachineError
from fabbench.model.known_messages import Explanation
from fabbench.model.mappings import grouped_by, without_empty
from fabbench.model.values import frozen
from fabbench.remote.transport import ProcessStream

# Where the API fails several times within two minutes, the garbage collector and kubelets wait for
# up to a minute before they watch again, and for another if that fails (client-go,
# tools/cache/reflector.go: up to 30 s, times 1 to 2). Pods then have 30 s to end.
REMOVAL_S = 150.0
ListObjects: TypeAlias = Callable[[], Objects]
"""Lists what there is now of a run."""
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
# Conditions of a Job that has ended; Succeeded is an MPIJob's.
_ENDS = ("Complete", "Succeeded", "Failed")


def remove(
    api: KubernetesApi,
    things: Sequence[ObjectRef],
    list_remaining: ListObjects,
    *,
    force: bool = False,
) -> None:
    """Delete things with all that they own, and wait until `list_remaining` returns nothing.

    Things without a uid may still appear: their creation was interrupted. A pod whose node is lost
    cannot be removed: with `force` the cluster forgets it, even if it still runs; else it is not
    waited for. Raise MachineError that names what remains.
    """
    removal = _Removal(api, things, list_remaining, force=force)
    while not removal.is_done():
        time.sleep(_LOOK_S)


class _Removal:
    """Deletes things again and again, and looks what is left, until nothing is."""

    def __init__(
        self,
        api: KubernetesApi,
        things: Sequence[ObjectRef],
        list_remaining: ListObjects,
        *,
        force: bool,
    ) -> None:
        self._api = api
        self._things = things
        self._list_remaining = list_remaining
        self._force = force
        self._started = self._answered = time.monotonic()  # When the API answered last
        self._note_at = self._started + _NOTE_S  # When to report what is waited for
        # For how long finding nothing does not mean that nothing is left.
        self._late_s = 0 if all(thing.uid for thing in things) else _LATE_S
        self._stuck_since: float | None = None  # Since when only pods on lost nodes are left
        self._remaining_names: list[str] = []  # What was left when it looked last

    def is_done(self) -> bool:
        """Return whether nothing is left. Raise MachineError once that is given up."""
        now = time.monotonic()
        if self._remaining_names and now > self._note_at:
            listed = ", ".join(self._remaining_names)
            notify(f"Waiting until the cluster has removed {listed}.")
            self._note_at = math.inf  # once is enough
        try:
            lost_pods = self._delete_and_look()
        except UnansweredError as error:  # it may be back soon
            if now - self._answered > _SILENT_S:
                raise MachineError(
                    f"{_named(self._things)} cannot be removed: {error}", hint=_BY_ITSELF
                ) from error
            return False
        self._answered = now
        waited_s = now - self._started
        # Before `_late_s`, an object whose creation was interrupted may still appear.
        if not self._remaining_names and waited_s >= self._late_s:
            return True
        if self._is_stuck(lost_pods, now) or waited_s > REMOVAL_S:
            raise _not_removed(self._remaining_names, lost_pods, waited_s)
        return False

    def _delete_and_look(self) -> Mapping[str, str]:
        """Ask once more to delete everything, keep the names of what is left.

        Return those pods of it whose node is lost: pod → node.
        """
        for thing in self._things:
            _delete(self._api, thing)
        remaining = self._list_remaining()
        lost_pods = pods_on_lost_nodes(self._api, remaining)
        for pod in remaining:
            if self._force and name_of(pod) in lost_pods:
                _delete(self._api, reference(pod), force=True)
        self._remaining_names = [name_of(thing) for thing in remaining]
        return lost_pods

    def _is_stuck(self, lost_pods: Mapping[str, str], now: float) -> bool:
        """Return whether for a while only pods on lost nodes have been left, which nobody ends.

        With `force` the cluster is told to forget these, too: that is waited for.
        """
        only_lost = set(self._remaining_names) == set(lost_pods)
        if self._force or not self._remaining_names or not only_lost:
            self._stuck_since = None
            return False
        if self._stuck_since is None:
            self._stuck_since = now
        return now - self._stuck_since > _STUCK_S


def _named(things: Sequence[ObjectRef]) -> str:
    return ", ".join(f"{thing.kind} {thing.name}" for thing in things)


def _not_removed(
    names: Sequence[str], lost_pods: Mapping[str, str], waited_s: float
) -> MachineError:
    """Return the error for objects that remain; `lost_pods` of them, pod → node, on lost nodes."""
    if set(names) == set(lost_pods):
        pods_on_nodes = [f"{pod} on {node}" for pod, node in lost_pods.items()]
        pods = ", ".join(pods_on_nodes)
        return MachineError(
            f"These pods cannot be removed because their node is lost: {pods}.",
            hint="They disappear when the node is back or its Node object is deleted. "
            "fabbench clean --force deletes them now.",
        )
    remaining = ", ".join(names)
    return MachineError(
        f"These still exist after {waited_s:.0f} s: {remaining}.",
        hint="Pods exit on their own unless their node is lost; fabbench clean finds them.",
    )


def pods_on_lost_nodes(api: KubernetesApi, objects: Iterable[Object]) -> dict[str, str]:
    """Return the pods whose node is not ready or no longer exists: pod → node."""
    node_of_pod = without_empty({name_of(thing): node_of(thing) for thing in objects})
    is_lost = {node: _is_node_lost(api, node) for node in set(node_of_pod.values())}
    return {pod: node for pod, node in node_of_pod.items() if is_lost[node]}


def _is_node_lost(api: KubernetesApi, node: str) -> bool:
    try:
        return true_condition(api.read("Node", node), "Ready") is None
    except AbsentError:
        return True
    except ForbiddenError:
        return False  # unknown


def _delete(api: KubernetesApi, thing: ObjectRef, *, force: bool = False) -> None:
    """Ask the cluster to delete an object; a pod ends in its own time unless `force` is set."""
    body: Object = {"propagationPolicy": "Background"}
    if thing.uid:
        body["preconditions"] = {"uid": thing.uid}
    if thing.kind != "Pod" or force:
        # For a pod it means to forget it, even if it still runs.
        body["gracePeriodSeconds"] = 0
    try:
        api.delete(thing.kind, thing.name, body, namespace=thing.namespace)
    except AbsentError:
        return  # already removed
    except ForbiddenError:
        # Users need no right to delete pods: these go with their Job, or end by themselves.
        if thing.kind != "Pod" or force:
            raise
        # Not every user may delete pods. Their Job is deleted, and the cluster removes them with
        # it: the caller waits for that.


def remove_run(
    api: KubernetesApi,
    thing: ObjectRef,
    pods: ListObjects,
    error: BaseException | None,
) -> None:
    """Remove a run's first object with what it owns, even if interrupted meanwhile.

    `error` is what ended the run, if anything did: it gets a note on what remains. Without it, that
    is raised.
    """
    if isinstance(error, KeyboardInterrupt):
        notify(f"Interrupted: removing {_named([thing])}.")
    try:
        try:
            remove(api, [thing], pods)
        except KeyboardInterrupt:
            remove(api, [thing], pods)
            raise
    except MachineError as remains:
        if error is None:
            raise
        error.add_note(f"{remains} {remains.hint}")


def find_leftovers(api: KubernetesApi, *, everywhere: bool) -> tuple[Leftover, ...]:
    """Find fabbench's objects of any run. Raise MachineError if the user may not list them."""
    return group_leftovers(_labeled_objects(api, everywhere=everywhere), datetime.now(UTC))


def _labeled_objects(api: KubernetesApi, *, everywhere: bool) -> list[Object]:
    """List fabbench's objects, each with its `kind`. Raise if pods or both kinds of jobs cannot be.

    A cluster without MPIJobs, or a user who may not list one kind of jobs, is nothing unusual.
    """
    objects: list[Object] = []
    unlisted: dict[str, MachineError] = {}
    for kind in _KINDS:
        try:
            objects += (
                {**thing, "kind": kind}
                for thing in api.objects(kind, labels=SELECTOR, everywhere=everywhere)
            )
        except (AbsentError, ForbiddenError) as error:
            unlisted[kind] = error
    if "Pod" in unlisted:
        raise unlisted["Pod"]
    if unlisted.keys() >= set(_JOBS):
        raise unlisted["Job"]
    return objects


def remove_leftovers(
    api: KubernetesApi, chosen: Sequence[Leftover], *, everywhere: bool, force: bool
) -> None:
    """Remove all that some runs left behind, and wait until nothing of it is there."""
    runs = {(leftover.run, leftover.namespace) for leftover in chosen}

    def list_remaining() -> list[Object]:
        return [
            thing
            for thing in _labeled_objects(api, everywhere=everywhere)
            if _run_of(thing) in runs
        ]

    things = [thing for leftover in chosen for thing in leftover.things]
    remove(api, things, list_remaining, force=force)


def _run_of(thing: Object) -> tuple[str, str]:
    """Return the run and the namespace of an object."""
    meta = meta_of(thing)
    return meta["labels"][RUN], meta["namespace"]


def group_leftovers(objects: Iterable[Object], now: datetime) -> tuple[Leftover, ...]:
    """Group objects by runs, the oldest first. Each needs its `kind`, which lists omit."""
    runs = grouped_by(_run_of, objects)
    leftovers = [_leftover(things, now) for things in runs.values()]
    return tuple(sorted(leftovers, key=_oldest_first))


def _oldest_first(leftover: Leftover) -> tuple[timedelta, str, str]:
    return -leftover.age, leftover.run, leftover.namespace


def _leftover(things: Objects, now: datetime) -> Leftover:
    """Return what to delete of one run's objects: those that no other of them owns."""
    run, namespace = _run_of(things[0])
    metas = [meta_of(thing) for thing in things]
    created = min(datetime.fromisoformat(meta["creationTimestamp"]) for meta in metas)
    uids = {meta["uid"] for meta in metas}
    not_owned: list[ObjectRef] = []
    for thing in things:
        owners = meta_of(thing).get("ownerReferences") or ()
        if uids.isdisjoint(owner["uid"] for owner in owners):
            not_owned.append(reference(thing))
    not_owned.sort(key=_owners_first)  # an owner of some may not have been listed
    return Leftover(
        run=run,
        namespace=namespace,
        age=max(now - created, timedelta(0)),  # the cluster's clock may be ahead
        running=any(map(_still_runs, things)),
        request="",  # objects do not record it
        things=tuple(not_owned),
    )


def _owners_first(thing: ObjectRef) -> tuple[int, str]:
    return _KINDS.index(thing.kind), thing.name


def _still_runs(thing: Object) -> bool:
    if thing["kind"] in _JOBS:
        return true_condition(thing, *_ENDS) is None
    # A pod being deleted no longer belongs to a run; if its node is lost it stays "Running"
    # forever.
    deleted = meta_of(thing).get("deletionTimestamp")
    return _is_running(thing) and not deleted


def _is_running(pod: Object) -> bool:
    status = status_of(pod)
    return bool(status.get("phase") == "Running")


def reference(thing: Object) -> ObjectRef:
    """Return the reference of an object as the API returns it."""
    meta = meta_of(thing)
    return ObjectRef(
        kind=thing.get("kind") or "Pod",  # lists omit it, and only pods come from one as they are
        namespace=meta.get("namespace") or "",
        name=meta["name"],
        uid=meta.get("uid") or "",
    )


_POLL_S = 0.5
_RETRY_S = 1.0  # Pause between two watches
_BEAT_S = 5.0  # Between two beats
_ANSWER_S = 5.0  # How long a pod may take to answer a beat
# Runs in a pod: for each line that it reads, it touches the file of the heartbeat, and answers.
_TAKE_BEATS = 'while read -r _; do : >"$1" && echo beat; done'


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
        pods: ListObjects,
    ) -> None:
        """`pods` returns the pods. `job` is the name of a Job, with whose deadline they end.

        `lease_s`: how long they go on without a beat.
        """
        self._api = api
        self._job = job
        self._lease_s = lease_s
        self._pods = pods
        self._pipes: dict[str, ProcessStream] = {}  # Pod → the program there that takes beats
        self._unanswered: set[str] = set()  # Pods that have not answered the last beat yet
        self._closing = threading.Event()
        self._started = self._extended = time.monotonic()  # The Job is about to be created

    def start(self) -> None:
        """Start the thread."""
        in_background(self._beat_until_closed, name="beats")

    def stop(self) -> None:
        """Stop the thread."""
        self._closing.set()
        for pipe in list(self._pipes.values()):
            pipe.close()

    def _beat_until_closed(self) -> None:
        while not self._closing.wait(self._interval_s()):
            with suppress(MachineError):  # the next round tries again
                self._extend_deadline(time.monotonic())
                running = filter(_is_running, self._pods())
                self._beat_each({name_of(pod) for pod in running})

    def _interval_s(self) -> float:
        """Return how long to wait until the next beats; until there is a pod, not for long."""
        return min(_BEAT_S, self._lease_s / 5) if self._pipes else _POLL_S

    def _extend_deadline(self, now: float) -> None:
        """Extend the Job's deadline from time to time.

        If pods cannot start, nothing else ends the Job soon after fabbench.
        """
        if now - self._extended >= self._lease_s / 5:  # so that some attempts may fail
            deadline_s = round(now - self._started) + self._lease_s  # as it counts: from its start
            self._api.patch("Job", self._job, {"spec": {"activeDeadlineSeconds": deadline_s}})
            self._extended = now

    def _beat_each(self, running: set[str]) -> None:
        """Send a beat to each running pod, but not while it owes the answer to the last one."""
        for name in running - self._unanswered:
            self._unanswered.add(name)
            in_background(self._beat, name, name=f"beat {name}")

    def _beat(self, name: str) -> None:
        """Send a beat and wait for the answer. Without one, reconnect at the next beat."""
        try:
            if name not in self._pipes:
                connection = PodConnection(self._api, name, CONTAINER)
                self._pipes[name] = connection.open(("sh", "-c", _TAKE_BEATS, "sh", HEARTBEAT_FILE))
            pipe = self._pipes[name]
            pipe.send(b"\n")
            if not _answers(pipe):
                self._disconnect(name)
        except MachineError:
            # The pod may still be starting; the next beat is soon.
            self._disconnect(name)
        finally:
            self._unanswered.discard(name)

    def _disconnect(self, name: str) -> None:
        pipe = self._pipes.pop(name, None)
        if pipe is not None:
            pipe.close()


def _answers(pipe: ProcessStream) -> bool:
    """Return whether a pod answers a beat in time."""
    until = time.monotonic() + _ANSWER_S
    while not pipe.closed and time.monotonic() < until:
        if pipe.read(_POLL_S):
            return True
    return False


class PodWatch:
    """A thread that keeps the last state of pods: an evicted one shows it for a moment only."""

    def __init__(self, api: KubernetesApi, selector: str) -> None:
        self.last: dict[str, Object] = {}  # A pod's uid → its last reported state
        self._api = api
        self._selector = selector
        self._closing = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        in_background(self._watch_until_closed, name="pod watch")

    def stop(self) -> None:
        """Stop the thread."""
        self._closing.set()

    def _watch_until_closed(self) -> None:
        """Keep each pod's last state; the API ends a watch within a minute, and may break it."""
        while not self._closing.is_set():
            try:
                with closing(self._api.watch("Pod", self._selector)) as pods:
                    for pod in pods:
                        if self._closing.is_set():
                            return
                        self.last[meta_of(pod)["uid"]] = pod
            except MachineError:
                pass  # the next round tries again
            self._closing.wait(_RETRY_S)


_REPORT_AFTER_S = 3.0  # After how long a transient reason is reported
_REASON_S = 5.0  # How long after a pod's end its reason may still be reported
_DELETED_BY_JOB = "SuccessfulDelete"  # The reason of events in which a Job reports that


def _pod_number(pod: Object) -> int:
    """Return which of a run's pods it is; 0 if no label says so."""
    # The MPI operator and Kubernetes have a label each.
    return int(first_value(labels_of(pod), INDEX) or 0)


@frozen
class _End:
    """How a pod ended."""

    pod: str
    why: Explanation | None
    exists: bool
    """Whether it still is there, as failed."""

    @property
    def is_vague(self) -> bool:
        """Return whether a better reason may come a little later."""
        return self.why is not None and self.why.code in {"killed", "deleted"}

    @property
    def was_removed(self) -> bool:
        """Return whether somebody deleted it, and it is gone."""
        return self.why is not None and self.why.code == "deleted" and not self.exists


class _Reasons:
    """Why pods are not ready yet: what lasts is reported once, what is final is raised."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._started = time.monotonic()
        self._since: dict[str, float] = {}  # A reason's code → when it was first given
        # Texts without digits: ports and pods of one reason differ.
        self._reported: set[str] = set()

    def report_or_raise(self, why: Explanation | None) -> None:
        """Report a reason that lasts. Raise MachineError if waiting is pointless, or took too long.

        None: no reason is known now.
        """
        now = time.monotonic()
        if why is not None and why.final:
            raise MachineError(why.text, hint=why.advice)
        if now - self._started > self._limit_s:
            limit = format(self._limit_s, "g")
            text = why.text if why is not None else ""
            raise MachineError(
                f"The pods were not ready after {limit} s. {text}".strip(),
                hint="Raise --start-timeout, or check with kubectl describe.",
            )
        if why is None:
            return
        since = self._since.setdefault(why.code, now)
        if now - since >= _REPORT_AFTER_S:
            self._report(why)

    def _report(self, why: Explanation) -> None:
        """Report a reason, unless one with the same text but for its numbers has been."""
        key = re.sub(r"\d+", "", why.text)
        if key not in self._reported:
            notify(str(why))
        self._reported.add(key)


def _uid(thing: Object) -> str:
    return str(meta_of(thing)["uid"])


def _is_same_pod(pod: Object | None, other: Object) -> bool:
    """Return whether both are states of one pod: another one may get its name."""
    return pod is not None and _uid(pod) == _uid(other)


def _is_worker(pod: Object) -> bool:
    return bool(labels_of(pod)[ROLE] == WORKER)


class JobRun:
    """A context manager that removes everything on exit, and waits until the pods are gone."""

    def __init__(self, api: KubernetesApi, spec: RunSpec, objects: Objects) -> None:
        """`objects` are created in this order: the first, a Job or MPIJob, owns the others."""
        self._api = api
        self._spec = spec
        self._objects = objects
        self._kind = objects[0]["kind"]
        self._created: Object = {}  # The first object as it was created; empty: not yet
        self._ready: Mapping[str, Object] = {}  # The workers as they were once ready, by name
        self._selector = f"{RUN}={spec.run}"
        self._watch = PodWatch(api, self._selector)
        # The operator runs an MPIJob's launcher as a Job of this name, which has the deadline.
        job = spec.name if self._kind == "Job" else f"{spec.name}-launcher"
        self._heartbeat = Heartbeat(api, job, spec.lease_s, self.pods)

    def __enter__(self) -> Self:
        first, *others = self._objects
        try:
            self._created = self._api.create(self._kind, first)
            # Only the answer has the uid by which the others name their owner.
            for thing in owned_by(others, {**first, **self._created}):
                self._api.create(thing["kind"], thing)
            self._heartbeat.start()
            self._watch.start()
        except BaseException as error:
            self._remove_objects(error)
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._remove_objects(error)

    def wait(self, limit_s: float, nodes: Nodes) -> Objects:
        """Wait until all pods are ready, and return them by index.

        Report what they wait for after a while.

        Raise MachineError with the explanation: at once if the reason is permanent, else after
        `limit_s`.
        """
        reasons = _Reasons(limit_s)
        while True:
            try:
                pods = self._workers()
                ready = all(true_condition(pod, "Ready") for pod in pods)
                if ready and len(pods) == self._spec.count:
                    self._ready = {name_of(pod): pod for pod in pods}
                    return pods
                why = self._why_not_ready(pods, nodes)
            except UnansweredError as error:
                why = Explanation(
                    code="api", text=str(error), advice="fabbench keeps trying.", final=False
                )
            reasons.report_or_raise(why)
            time.sleep(_POLL_S)

    def _workers(self) -> list[Object]:
        """Return the pods that measure, by index."""
        workers = filter(_is_worker, self.pods())
        return sorted(workers, key=_pod_number)

    def _why_not_ready(self, pods: Objects, nodes: Nodes) -> Explanation | None:
        """Explain a pod that is not ready, or else why their Job has failed or makes none."""
        events = list(self._api.objects("Event"))
        unready = [pod for pod in pods if not true_condition(pod, "Ready")]
        owner = self._api.read(self._kind, self._spec.name)
        for pod in unready:
            if why := explain_pod(pod, events, nodes):
                return why
        return explain_owner(owner, self._kind, events)

    def connections(self, pods: Objects) -> dict[str, PodConnection]:
        """Return a connection to each pod, by the name of its node."""
        return {
            node_of(pod): PodConnection(
                self._api,
                name_of(pod),
                CONTAINER,
                self.explain_exit,
                uid=meta_of(pod)["uid"],
            )
            for pod in pods
        }

    def explain_exit(self, name: str) -> str:
        """Explain what ended a pod, or the pod whose end ended it.

        The reason may come a little later: wait for it.
        """
        try:
            for _ in moments(_REASON_S, _POLL_S):
                end = self._end_of(name)
                if not end.is_vague:  # else it was killed or deleted, and not yet said why
                    break
        except MachineError:
            return f"The pod {name} is no longer running."
        node = ""  # known of pods that were ready once
        if end.pod in self._ready:
            node = node_of(self._ready[end.pod])
        if end.was_removed or end.why is None:
            return (
                f"The pod {end.pod} on {node} was removed. Check its events to see who removed it."
            )
        why = str(end.why)
        return why if node in why else f"{why} It was on {node}."

    def _end_of(self, name: str) -> _End:
        """Return the end of the pod that ended first, as far as is known.

        If that one was deleted, another's end may be why: then return that one's.
        """
        pods = {name_of(pod): pod for pod in self.pods()}
        events = list(self._api.objects("Event"))
        first = self._first_ended(name, pods, events)
        end = self._explained_end(first, pods, events)
        if end.why is None or end.why.code != "deleted":
            return end
        # Another may have ended it: the Job or the operator removes all pods when one has failed.
        for other in self._others_not_running(first, pods):
            other_end = self._explained_end(other, pods, events)
            if other_end.why and other_end.why.code != "deleted":
                return other_end
        return end

    def _others_not_running(self, name: str, pods: Mapping[str, Object]) -> list[str]:
        """Return the pods that were ready once and do not run now, but for one."""
        running = {pod_name for pod_name, pod in pods.items() if _is_running(pod)}
        return [each for each in self._ready if each not in {name, *running}]

    def _explained_end(self, name: str, pods: Mapping[str, Object], events: Objects) -> _End:
        """Return the end of a pod, as it is now, or else as it was last seen."""
        pod = pods.get(name)
        when_ready = self._ready.get(name)
        exists = pod is not None
        if when_ready is not None and not _is_same_pod(pod, when_ready):
            exists = False  # another pod may have its name now
            pod = self._watch.last.get(_uid(when_ready), when_ready)
        if not pod:
            return _End(pod=name, why=None, exists=exists)
        node = node_of(pod)
        objects = [self._api.read("Node", node)] if node else []
        why = explain_pod(pod, events, read_nodes(objects))
        return _End(pod=name, why=why, exists=exists)

    def _first_ended(self, name: str, pods: Mapping[str, Object], events: Objects) -> str:
        """Return the name of the pod that made the Job fail and end the others.

        `name`: the first pod of which it was noticed. If the Job deleted that one, another had
        failed before: one that does not run, and that the Job did not delete.
        """
        # Each names the pod that was deleted.
        deletions = [event["message"] for event in events if event.get("reason") == _DELETED_BY_JOB]
        if not any(name in message for message in deletions):
            return name
        for other in self._others_not_running(name, pods):
            if not any(other in message for message in deletions):
                return other
        return name

    def pods(self) -> list[Object]:
        """Return the run's pods as they are now."""
        return list(self._api.objects("Pod", labels=self._selector))

    def _remove_objects(self, error: BaseException | None) -> None:
        self._heartbeat.stop()
        self._watch.stop()
        uid = _uid(self._created) if self._created else ""  # it may still appear
        # Without a namespace: in that of `_api`
        owner = ObjectRef(self._kind, namespace="", name=self._spec.name, uid=uid)
        remove_run(self._api, owner, self.pods, error)
