"""The objects of one run in a cluster: made, waited for, kept alive while fabbench lives, removed."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from fabbench.launchers import Explanation
from fabbench.launchers.kubernetes.api import KubernetesApi, UnansweredError
from fabbench.launchers.kubernetes.cleanup import delete_and_wait
from fabbench.launchers.kubernetes.exec import PodConnection, PodPipe
from fabbench.launchers.kubernetes.manifests import (
    CONTAINER,
    HEARTBEAT_FILE,
    RunSpec,
    deadline,
    owned_by,
    workload,
)
from fabbench.launchers.kubernetes.nodes import Node, read_nodes
from fabbench.launchers.kubernetes.pending import explain_job, explain_pod
from fabbench.launchers.kubernetes.watch import PodWatch, ReadinessWait, api_silent, is_ready
from fabbench.model.errors import MachineError

_BEAT_S = 5.0
_ANSWER_S = 5.0
_BEATS = 'while read -r _; do : >"$1" && echo beat; done'


class Heartbeat:
    """A thread that shows pods that fabbench is alive, and moves the Job's deadline on.

    Pods that run count the seconds since the last beat. For those that do not, there is the deadline. Each
    beat has a thread of its own: a pod that takes long to answer, or is lost, keeps none from the others.
    """

    def __init__(
        self, api: KubernetesApi, spec: RunSpec, pods: Callable[[], Sequence[dict[str, Any]]]
    ) -> None:
        """`pods` gives the Job's pods."""
        self._api, self._spec, self._pods = api, spec, pods
        self._beats: dict[str, PodPipe] = {}
        self._beating: set[str] = set()
        """Pods that have not answered the last beat yet."""
        self._closing = threading.Event()
        self._begun = time.monotonic()
        self._moved = self._begun

    def begin(self) -> None:
        """Count from now on: the Job is about to be made."""
        self._begun = self._moved = time.monotonic()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, daemon=True, name="fabbench beats").start()

    def stop(self) -> None:
        """Stop the thread."""
        self._closing.set()
        for pipe in list(self._beats.values()):
            pipe.close()

    def _run(self) -> None:
        often = min(_BEAT_S, self._spec.lease_s / 5)
        while not self._closing.wait(often if self._beats else _LOOK_S):
            try:
                self._move()
                running = [pod for pod in self._pods() if pod.get("status", {}).get("phase") == "Running"]
            except MachineError:
                continue
            for name in {pod["metadata"]["name"] for pod in running} - self._beating:
                self._beating.add(name)
                threading.Thread(
                    target=self._beat, args=(name,), daemon=True, name=f"fabbench beat {name}"
                ).start()

    def _move(self) -> None:
        """Move the Job's deadline on, now and then."""
        now = time.monotonic()
        if now - self._moved >= self._spec.lease_s / 5:
            patch = deadline(round(now - self._begun) + self._spec.lease_s)
            self._api.patch("Job", self._spec.name, patch)
            self._moved = now

    def _beat(self, name: str) -> None:
        """Beat, and hear the answer: a connection that does not give one is made anew."""
        try:
            if name not in self._beats:
                connection = PodConnection(self._api, name, CONTAINER)
                self._beats[name] = connection.open(("sh", "-c", _BEATS, "sh", HEARTBEAT_FILE))
            pipe = self._beats[name]
            pipe.send(b"\n")
            if next(pipe.batches(time.monotonic() + _ANSWER_S), None) is None:
                self._beats.pop(name).close()
        except (MachineError, TimeoutError):
            broken = self._beats.pop(name, None)  # the pod may be starting still; the next time is soon
            if broken is not None:
                broken.close()
        finally:
            self._beating.discard(name)


Object = Mapping[str, Any]

_LOOK_S = 0.5
_REASON_S = 5.0
"""How much later than its end a pod's reason may be told."""
_ENDED_BY_JOB = "SuccessfulDelete"
_INDEX = "batch.kubernetes.io/job-completion-index"


class JobRun:
    """A context: leaving it removes everything, and waits until the pods are gone."""

    def __init__(self, api: KubernetesApi, spec: RunSpec) -> None:
        self._api = api
        self._spec = spec
        self._job: Object = {}
        self._places: Mapping[str, str] = {}
        """Pod → node."""
        self._watch = PodWatch(api, self._selector)
        self._heartbeat = Heartbeat(api, spec, self.pods)

    def __enter__(self) -> Self:
        first, *others = workload(self._spec)
        self._heartbeat.begin()
        try:
            self._job = self._make(first)
            for each in owned_by(others, self._job):
                self._make(each)
        except BaseException as error:
            self._remove(error)
            raise
        self._heartbeat.start()
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove(error)

    def wait(self, limit_s: float, nodes: Sequence[Node], tell: Callable[[str], None]) -> Sequence[Object]:
        """Wait until all pods are ready, and return them in the order of their indices.

        `tell` gets what is waited for, once it is known. Raise MachineError with the explanation at
        once where the reason is permanent, else after `limit_s`.
        """
        waiting = ReadinessWait(limit_s, tell)
        while True:
            try:
                pods = sorted(self.pods(), key=_index)
                if len(pods) == self._spec.count and all(map(is_ready, pods)):
                    self._places = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}
                    return pods
                why = self._explained(pods, nodes)
            except UnansweredError as error:
                why = api_silent(error)
            waiting.observe(why)
            time.sleep(_LOOK_S)

    def explain_gone(self, name: str) -> str:
        """Explain what became of a pod that runs no more, or of the one for which the Job ended it.

        Of a pod that was killed the reason may come a little later than its end: it is waited for.
        """
        deadline = time.monotonic() + _REASON_S
        try:
            while True:
                first, found, there = self._end_of(name)
                if found is None or found.code != "killed" or time.monotonic() > deadline:
                    break
                time.sleep(_LOOK_S)
        except MachineError:
            return f"The pod {name} is no longer running."
        node = self._places.get(first, "")
        if found is None or (found.code == "deleted" and not there):
            return f"The pod {first} on {node} was removed. Check its events to see who removed it."
        return str(found) if node in str(found) else f"{found} It was on {node}."

    def _end_of(self, name: str) -> tuple[str, Explanation | None, bool]:
        """Return the pod that ended first, why as far as is known, and whether it is still there."""
        pods = {pod["metadata"]["name"]: pod for pod in self.pods()}
        events = self.events()
        first = self._first_gone(name, pods, events)
        pod = pods.get(first) or self._watch.named(first)
        return first, explain_pod(pod, events, self._node(pod)) if pod else None, first in pods

    def _first_gone(self, name: str, pods: Mapping[str, Object], events: Sequence[Object]) -> str:
        """Return the name of the pod with whose end the Job has failed, and ended the others."""
        ended = [event["message"] for event in events if event.get("reason") == _ENDED_BY_JOB]
        if not any(name in message for message in ended):
            return name
        own = (each for each in self._places if not any(each in message for message in ended))
        phases = {each: pod.get("status", {}).get("phase") for each, pod in pods.items()}
        return next((each for each in own if phases.get(each) != "Running"), name)

    def _node(self, pod: Object) -> tuple[Node, ...]:
        """Return the node of a pod; none where it has none."""
        name = pod.get("spec", {}).get("nodeName")
        return read_nodes([self._api.read("Node", name)], ()) if name else ()

    def _explained(self, pods: Sequence[Object], nodes: Sequence[Node]) -> Explanation | None:
        waiting = [pod for pod in pods if not is_ready(pod)]
        events = self.events()
        found = (explain_pod(pod, events, nodes) for pod in waiting)
        return next((each for each in found if each is not None), None) or explain_job(self.job(), events)

    def pods(self) -> list[dict[str, Any]]:
        """Return the run's pods as they are now."""
        return list(self._api.objects("Pod", labels=self._selector))

    @property
    def _selector(self) -> str:
        return f"job-name={self._spec.name}"

    def job(self) -> dict[str, Any]:
        """Return the Job as it is now."""
        return self._api.read("Job", self._spec.name)

    def events(self) -> list[dict[str, Any]]:
        """Return the namespace's events of this run's objects."""
        # No selector of the API's chooses by the beginning of a name.
        return [
            event
            for event in self._api.objects("Event")
            if str(event.get("involvedObject", {}).get("name", "")).startswith(self._spec.name)
        ]

    def _make(self, thing: Object) -> Object:
        return self._api.create(thing["kind"], thing)

    def _remove(self, error: BaseException | None) -> None:
        """Remove everything, interrupted or not. Raise MachineError where something stays, or notes it."""
        self._heartbeat.stop()
        self._watch.stop()
        try:
            try:
                self._removed()
            except KeyboardInterrupt:
                self._removed()
                raise
        except MachineError as left:
            if error is None:
                raise
            error.add_note(f"{left} {left.hint}")

    def _removed(self) -> None:
        """Remove the Job, which takes all it owns along."""
        name, seconds = self._spec.name, self._spec.lease_s + self._spec.ttl_s
        left = delete_and_wait(self._api, "Job", name, self.pods, made=bool(self._job))
        late = f"It exits on its own, and is removed {seconds} s after losing contact with fabbench."
        if error := left.error(f"Job {name}", unanswered=late):
            raise error


def _index(pod: Object) -> int:
    return int(pod["metadata"].get("labels", {}).get(_INDEX, 0))
