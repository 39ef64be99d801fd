"""The objects of one run in a cluster: made, waited for, kept alive, removed."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from fabbench.errors import MachineError
from fabbench.kube.client import AbsentError, Cluster
from fabbench.kube.pipe import PodConnection, PodPipe
from fabbench.pods.asked import BEAT, Asked
from fabbench.pods.explanation import Explanation
from fabbench.pods.nodes import Node
from fabbench.pods.pending import explain, explain_job
from fabbench.pods.workload import CONTAINER, owned_by, workload

Object = Mapping[str, Any]

_LOOK_S = 0.5
_BEAT_S = 5.0
_GONE_S = 30.0
_INDEX = "batch.kubernetes.io/job-completion-index"
_BEATS = 'while read -r _; do : >"$1"; done'


class RunObjects:
    """A context: leaving it removes everything, and waits until the pods are gone."""

    def __init__(self, cluster: Cluster, asked: Asked) -> None:
        self._cluster = cluster
        self._asked = asked
        self._job: Object = {}
        self._beats: dict[str, PodPipe] = {}
        self._closing = threading.Event()

    def __enter__(self) -> Self:
        first, *others = workload(self._asked)
        try:
            self._job = self._make(first)
            for each in owned_by(others, self._job):
                self._make(each)
        except BaseException:
            self._remove()
            raise
        threading.Thread(target=self._keep, daemon=True, name="fabbench beats").start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def wait(self, limit_s: float, nodes: Sequence[Node], tell: Callable[[str], None]) -> Sequence[Object]:
        """Wait until all pods are ready, and give them in the order of their indices.

        `tell` is told what is waited for, as soon as it is known. Raises MachineError with the explanation at
        once where waiting is in vain, else after `limit_s`.
        """
        deadline = time.monotonic() + limit_s
        told = code = ""
        while True:
            pods = sorted(self.pods(), key=_index)
            if len(pods) == self._asked.count and all(map(ready, pods)):
                return pods
            if why := self._explained(pods, nodes):
                if why.final:
                    raise MachineError(why.text, hint=why.advice)
                if why.code != code:
                    code = why.code
                    tell(str(why))
                told = why.text
            if time.monotonic() > deadline:
                waited = f"The pods were not ready after {limit_s:g} s."
                raise MachineError(
                    f"{waited} {told}".strip(),
                    hint="Wait longer with --start-timeout, or look with kubectl describe.",
                )
            time.sleep(_LOOK_S)

    def why(self, name: str) -> str:
        """Say in a sentence what became of a pod."""
        found = next((pod for pod in self.pods() if pod["metadata"]["name"] == name), None)
        told = explain(found, self.events()) if found else None
        return str(told) if told else ""

    def _explained(self, pods: Sequence[Object], nodes: Sequence[Node]) -> Explanation | None:
        waiting = [pod for pod in pods if not ready(pod)]
        events = self.events()
        found = (explain(pod, events, nodes) for pod in waiting)
        return next((each for each in found if each is not None), None) or explain_job(self.job(), events)

    def pods(self) -> list[dict[str, Any]]:
        """Give the run's pods as they are now."""
        path = f"/api/v1/namespaces/{self._cluster.namespace}/pods"
        return list(self._cluster.items(path, labelSelector=f"job-name={self._asked.name}"))

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

    def _remove(self) -> None:
        """Remove the Job, which takes all it owns along. Raises MachineError where something stays."""
        self._closing.set()
        for pipe in self._beats.values():
            pipe.close()
        policy = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
        try:
            self._cluster.call("DELETE", f"{self._jobs}/{self._asked.name}", body=policy)
        except AbsentError:
            return
        deadline = time.monotonic() + _GONE_S
        while left := [pod["metadata"]["name"] for pod in self.pods()]:
            if time.monotonic() > deadline:
                raise MachineError(
                    f"These pods are not gone after {_GONE_S:g} s: {', '.join(left)}.",
                    hint="They end by themselves, unless their node is lost: fabbench clean finds them.",
                )
            time.sleep(_LOOK_S)

    def _keep(self) -> None:
        """Show every pod that runs that fabbench is there, until the end."""
        while not self._closing.wait(_BEAT_S if self._beats else _LOOK_S):
            try:
                running = [pod for pod in self.pods() if pod.get("status", {}).get("phase") == "Running"]
            except MachineError:
                continue
            for pod in running:
                self._beat(pod["metadata"]["name"])

    def _beat(self, name: str) -> None:
        try:
            if name not in self._beats:
                connection = PodConnection(self._cluster, name, CONTAINER)
                self._beats[name] = connection.open(("sh", "-c", _BEATS, "sh", BEAT))
            self._beats[name].send(b"\n")
        except MachineError:
            self._beats.pop(name, None)  # the pod may be starting still; the next time is soon


def ready(pod: Object) -> bool:
    """Whether a pod is ready for programs."""
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _index(pod: Object) -> int:
    return int(pod["metadata"].get("labels", {}).get(_INDEX, 0))
