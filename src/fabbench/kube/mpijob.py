"""An MPIJob in a cluster: submitted, waited for, followed by its launcher's log, removed."""

import queue
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from fabbench.errors import MachineError
from fabbench.kube.client import AbsentError, Cluster, UnansweredError
from fabbench.kube.podlog import PodLog
from fabbench.kube.removal import remove
from fabbench.kube.waiting import Waiting, ready, unanswered
from fabbench.kube.watching import PodWatch
from fabbench.markers import SIGN
from fabbench.pods.asked import RUN
from fabbench.pods.explanation import Explanation
from fabbench.pods.mpijob import LAUNCHER
from fabbench.pods.nodes import Node, read_nodes
from fabbench.pods.operator import (
    ended,
    explain_launcher,
    explain_lost,
    explain_mpijob,
    phase,
    split_pods,
)
from fabbench.pods.pending import explain

Object = Mapping[str, Any]

GROUP = "/apis/kubeflow.org/v2beta1"
_INSTALL = "https://raw.githubusercontent.com/kubeflow/mpi-operator/v0.6.0/deploy/v2beta1/mpi-operator.yaml"
_LOOK_S = 0.5
_OFTEN_S = 2.0
_LAST_WORDS_S = 10.0
"""For how long the launcher may go on after a worker is gone: mpirun says what it saw, and ends."""


def require_operator(site: Cluster) -> None:
    """Raise MachineError where the cluster knows no MPIJob of Kubeflow's."""
    try:
        known = {each["name"] for each in site.get(GROUP).get("resources", ())}
    except AbsentError:
        known = set()
    if "mpijobs" not in known:
        raise MachineError(
            f"The cluster of {site.context} has no MPIJobs (mpijobs.kubeflow.org, v2beta1).",
            hint=f"Install Kubeflow's MPI operator, 0.5 or later: kubectl apply --server-side -f {_INSTALL}. "
            "Or run with --on kubernetes, which needs nothing installed.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """For how long things may take, in seconds."""

    start_s: float
    """Until the launcher runs."""
    lost_s: float
    """Until what does not answer is given up."""


class MpiJobRun:
    """A context: leaving it removes the MPIJob, and waits until its pods are gone."""

    def __init__(
        self, site: Cluster, run: str, name: str, patience: Patience, tell: Callable[[str], None]
    ) -> None:
        """`run` is the run's id, and `name` that of the MPIJob; `tell` is told what is waited for."""
        self._site, self._run, self._name = site, run, name
        self._patience, self._tell = patience, tell
        self._jobs = f"{GROUP}/namespaces/{site.namespace}/mpijobs"
        self._ordered = self._made = False
        self._launcher: Object = {}
        self._workers: Sequence[Object] = ()
        self._last = ""
        self._gone: Explanation | None = None
        """What became of the first worker that does not run any more."""
        self._gone_since = 0.0
        self._watch = PodWatch(site, self._selector)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.stop()
        if not self._ordered:
            return
        try:
            try:
                self._remove()
            except KeyboardInterrupt:
                self._remove()
                raise
        except MachineError as left:
            if error is None:
                raise
            error.add_note(f"{left} {left.hint}")

    def follow(self, document: str) -> Generator[str, None, None]:
        """Submit the MPIJob, and give the lines of its launcher as they come.

        Raises MachineError where its pods do not start, where one of them is lost, and where the launcher
        fails for a reason that is not in its log.
        """
        self._ordered = True
        self._site.apply(self._jobs, document)
        self._made = True
        self._watch.start()
        self._start()
        log = PodLog(self._site, self._launcher["metadata"]["name"], LAUNCHER, self._ended)
        log.start()
        try:
            yield from self._lines(log)
        finally:
            log.stop()
        if self._gone is not None:
            raise MachineError(self._gone.text, hint=self._gone.advice)
        if why := explain_launcher(self._pod(), self._last):
            raise MachineError(why.text, hint=why.advice)

    def _start(self) -> None:
        """Wait until the launcher runs, or has run."""
        began = time.monotonic()
        waiting = Waiting(self._patience.start_s, self._tell)
        while True:
            try:
                launcher, workers = split_pods(self._pods())
                if launcher is not None and (phase(launcher) == "Running" or ended(launcher)):
                    self._launcher, self._workers = launcher, workers
                    places = ", ".join(str(pod["spec"].get("nodeName")) for pod in workers)
                    self._tell(f"The workers of {self._name} run on {places}.")
                    return
                pods = [*workers, *([launcher] if launcher else [])]
                why = self._explained(pods, time.monotonic() - began)
            except UnansweredError as error:
                why = unanswered(error)
            waiting.heed(why)
            time.sleep(_LOOK_S)

    def _explained(self, pods: Sequence[Object], waited_s: float) -> Explanation | None:
        events = self._events()
        nodes = self._nodes(pods)
        found = (explain(pod, events, nodes) for pod in pods if not ready(pod))
        return next((each for each in found if each is not None), None) or explain_mpijob(
            self._site.get(f"{self._jobs}/{self._name}"), events, waited_s=waited_s
        )

    def _lines(self, log: PodLog) -> Generator[str, None, None]:
        """Give lines until there are no more; now and then see that the pods are there."""
        looked = time.monotonic()
        while True:
            try:
                line = log.queue.get(timeout=_LOOK_S)
            except queue.Empty:
                line = ""
            else:
                if line is None:
                    return
                if isinstance(line, MachineError):
                    gone = self._gone or self._first_gone() or self._why_ended()
                    raise MachineError(gone.text, hint=gone.advice) if gone else line
                self._last = line if line and SIGN not in line else self._last
                yield line
            now = time.monotonic()
            if now - looked > _OFTEN_S:
                self._look(log)
                looked = time.monotonic()

    def _look(self, log: PodLog) -> None:
        """Raise MachineError where going on is in vain."""
        now = time.monotonic()
        if log.failing and now - log.failing[0] > self._patience.lost_s:
            since, error = log.failing
            if why := self._why_ended():
                raise MachineError(why.text, hint=why.advice)
            raise MachineError(
                f"The launcher's log has not been heard for {now - since:.0f} s: {error}", hint=error.hint
            )
        try:
            if self._gone is None and (why := self._first_gone()):
                self._gone, self._gone_since = why, now
        except UnansweredError:
            return  # the log's connection says for how long
        if self._gone is not None and now - self._gone_since > _LAST_WORDS_S:
            raise MachineError(self._gone.text, hint=self._gone.advice)

    def _first_gone(self) -> Explanation | None:
        """Explain a pod that was there when the launcher began, and does not run any more."""
        pods = {pod["metadata"]["name"]: pod for pod in self._pods()}
        launcher = pods.get(self._launcher["metadata"]["name"])
        if launcher is not None and ended(launcher):
            return None  # the operator ends the workers now
        # The launcher first: without it the operator ends the workers.
        for before in (self._launcher, *self._workers):
            uid = before["metadata"]["uid"]
            now = pods.get(before["metadata"]["name"])
            if now is None or now["metadata"]["uid"] != uid or not ready(now):
                last = self._watch.last.get(uid, before)
                if why := explain_lost(last, now, self._events(), self._nodes([last])):
                    return why
        return None

    def _why_ended(self) -> Explanation | None:
        """Explain how the launcher ended; None: it did not, or nobody can tell."""
        with suppress(UnansweredError, AbsentError):
            pod = self._pod()
            return explain_launcher(pod, self._last) if ended(pod) else None
        return None

    def _ended(self) -> bool:
        return ended(self._pod())

    def _pod(self) -> Object:
        """Give the launcher's pod as it is now."""
        name = self._launcher["metadata"]["name"]
        return self._site.get(f"/api/v1/namespaces/{self._site.namespace}/pods/{name}")

    def _pods(self) -> list[dict[str, Any]]:
        path = f"/api/v1/namespaces/{self._site.namespace}/pods"
        return list(self._site.items(path, labelSelector=self._selector))

    @property
    def _selector(self) -> str:
        return f"{RUN}={self._run}"

    def _events(self) -> list[dict[str, Any]]:
        path = f"/api/v1/namespaces/{self._site.namespace}/events"
        return [
            event
            for event in self._site.items(path)
            if str(event.get("involvedObject", {}).get("name", "")).startswith(self._name)
        ]

    def _nodes(self, pods: Sequence[Object]) -> tuple[Node, ...]:
        """Look at the nodes of these pods."""
        found = []
        for name in sorted({str(pod["spec"].get("nodeName") or "") for pod in pods} - {""}):
            with suppress(AbsentError):
                found.append(self._site.get(f"/api/v1/nodes/{name}"))
        return tuple(read_nodes(found, ()))

    def _remove(self) -> None:
        left = remove(self._site, f"{self._jobs}/{self._name}", self._pods, made=self._made)
        late = "It runs to its end, and its workers are removed then. fabbench clean --all removes it."
        if error := left.error(f"The MPIJob {self._name}", unanswered=late):
            raise error
