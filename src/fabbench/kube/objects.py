"""The objects of one run in a cluster: made, waited for, kept alive, removed."""

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from fabbench.errors import MachineError
from fabbench.kube.client import Cluster, UnansweredError
from fabbench.kube.keeping import Keeper
from fabbench.kube.removal import remove
from fabbench.kube.waiting import Waiting, ready, unanswered
from fabbench.kube.watching import PodWatch
from fabbench.pods.asked import Asked
from fabbench.pods.explanation import Explanation
from fabbench.pods.nodes import Node, read_nodes
from fabbench.pods.pending import explain, explain_job
from fabbench.pods.workload import owned_by, workload

Object = Mapping[str, Any]

_LOOK_S = 0.5
_ENDED_BY_JOB = "SuccessfulDelete"
_INDEX = "batch.kubernetes.io/job-completion-index"


class RunObjects:
    """A context: leaving it removes everything, and waits until the pods are gone."""

    def __init__(self, cluster: Cluster, asked: Asked) -> None:
        self._cluster = cluster
        self._asked = asked
        self._job: Object = {}
        self._places: Mapping[str, str] = {}
        """Pod → node."""
        self._watch = PodWatch(cluster, self._selector)
        self._keeper = Keeper(cluster, asked, f"{self._jobs}/{asked.name}", self.pods)

    def __enter__(self) -> Self:
        first, *others = workload(self._asked)
        self._keeper.begin()
        try:
            self._job = self._make(first)
            for each in owned_by(others, self._job):
                self._make(each)
        except BaseException as error:
            self._remove(error)
            raise
        self._keeper.start()
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove(error)

    def wait(self, limit_s: float, nodes: Sequence[Node], tell: Callable[[str], None]) -> Sequence[Object]:
        """Wait until all pods are ready, and give them in the order of their indices.

        `tell` is told what is waited for, as soon as it is known. Raises MachineError with the explanation at
        once where waiting is in vain, else after `limit_s`.
        """
        waiting = Waiting(limit_s, tell)
        while True:
            try:
                pods = sorted(self.pods(), key=_index)
                if len(pods) == self._asked.count and all(map(ready, pods)):
                    self._places = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}
                    return pods
                why = self._explained(pods, nodes)
            except UnansweredError as error:
                why = unanswered(error)
            waiting.heed(why)
            time.sleep(_LOOK_S)

    def why(self, name: str) -> str:
        """Say what became of a pod that does not run any more, or of the one for which the Job ended it."""
        try:
            pods = {pod["metadata"]["name"]: pod for pod in self.pods()}
            events = self.events()
            first = self._first_gone(name, pods, events)
            pod = pods.get(first) or self._watch.named(first)
            told = explain(pod, events, self._node(pod)) if pod else None
        except MachineError:
            return f"The pod {name} does not run any more."
        node = self._places.get(first, "")
        if told is None or (told.code == "deleted" and first not in pods):
            return f"The pod {first} on {node} was removed. See its events: who did?"
        return str(told) if node in str(told) else f"{told} It was on {node}."

    def _first_gone(self, name: str, pods: Mapping[str, Object], events: Sequence[Object]) -> str:
        """Name the pod with whose end the Job has failed, and ended the others."""
        ended = [event["message"] for event in events if event.get("reason") == _ENDED_BY_JOB]
        if not any(name in message for message in ended):
            return name
        own = (each for each in self._places if not any(each in message for message in ended))
        phases = {each: pod.get("status", {}).get("phase") for each, pod in pods.items()}
        return next((each for each in own if phases.get(each) != "Running"), name)

    def _node(self, pod: Object) -> tuple[Node, ...]:
        """Look at the node of a pod."""
        name = pod.get("spec", {}).get("nodeName")
        return read_nodes([self._cluster.get(f"/api/v1/nodes/{name}")], ()) if name else ()

    def _explained(self, pods: Sequence[Object], nodes: Sequence[Node]) -> Explanation | None:
        waiting = [pod for pod in pods if not ready(pod)]
        events = self.events()
        found = (explain(pod, events, nodes) for pod in waiting)
        return next((each for each in found if each is not None), None) or explain_job(self.job(), events)

    def pods(self) -> list[dict[str, Any]]:
        """Give the run's pods as they are now."""
        path = f"/api/v1/namespaces/{self._cluster.namespace}/pods"
        return list(self._cluster.items(path, labelSelector=self._selector))

    @property
    def _selector(self) -> str:
        return f"job-name={self._asked.name}"

    def job(self) -> dict[str, Any]:
        """Give the Job as it is now."""
        return self._cluster.get(f"{self._jobs}/{self._asked.name}")

    def events(self) -> list[dict[str, Any]]:
        """Give the namespace's events of this run's objects."""
        path = f"/api/v1/namespaces/{self._cluster.namespace}/events"
        return [
            event
            for event in self._cluster.items(path)
            if str(event.get("involvedObject", {}).get("name", "")).startswith(self._asked.name)
        ]

    @property
    def _jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{self._cluster.namespace}/jobs"

    def _make(self, thing: Object) -> Object:
        plural = {"Job": self._jobs}.get(
            thing["kind"], f"/api/v1/namespaces/{self._cluster.namespace}/{thing['kind'].lower()}s"
        )
        return self._cluster.call("POST", plural, body=thing)

    def _remove(self, error: BaseException | None) -> None:
        """Remove everything, interrupted or not. Raises MachineError where something stays, or notes it."""
        self._keeper.stop()
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
        name, seconds = self._asked.name, self._asked.lease_s + self._asked.ttl_s
        left = remove(self._cluster, f"{self._jobs}/{name}", self.pods, made=bool(self._job))
        late = f"It ends by itself, and is removed {seconds} s after it last heard of fabbench."
        if error := left.error(f"The Job {name}", unanswered=late):
            raise error


def _index(pod: Object) -> int:
    return int(pod["metadata"].get("labels", {}).get(_INDEX, 0))
