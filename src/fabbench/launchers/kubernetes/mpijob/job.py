"""An MPIJob in a cluster: submitting it, waiting for it, following its launcher's log, removing it."""

import queue
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self

from fabbench.counters.snapshot import SNAPSHOT
from fabbench.launchers import Explanation, shorten
from fabbench.launchers.kubernetes.api import MPIJOB, AbsentError, KubernetesApi, UnansweredError
from fabbench.launchers.kubernetes.cleanup import delete_and_wait, remove_run
from fabbench.launchers.kubernetes.exec import PodConnection
from fabbench.launchers.kubernetes.manifests import RUN, owned_by
from fabbench.launchers.kubernetes.mpijob import MpiJobOptions
from fabbench.launchers.kubernetes.mpijob.render import LAUNCHER_ROLE, WORKER_CONTAINER
from fabbench.launchers.kubernetes.nodes import Node, read_nodes
from fabbench.launchers.kubernetes.pending import NODE_NOT_READY, explain_pod
from fabbench.launchers.kubernetes.terminated import explain_end, explain_refusal
from fabbench.launchers.kubernetes.watch import PodLog, PodWatch, ReadinessWait, api_silent, events_of, is_ready
from fabbench.model.errors import MachineError
from fabbench.model.log import MARKER_SIGN
from fabbench.remote.parallel import map_hosts

_ROLE = "training.kubeflow.org/job-role"
STEPS_FAILED = 4  # The exit status of a script with failed steps, which its log reports one by one


def split_pods(pods: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any] | None, tuple[Mapping[str, Any], ...]]:
    """Return the launcher's pod (None if there is none yet) and the workers, sorted by name."""
    launcher, workers = None, []
    for pod in pods:
        if (pod["metadata"].get("labels") or {}).get(_ROLE) == LAUNCHER_ROLE:
            launcher = pod
        else:
            workers.append(pod)
    return launcher, tuple(sorted(workers, key=lambda pod: str(pod["metadata"]["name"])))


def phase(pod: Mapping[str, Any] | None) -> str:
    """Return the phase of a pod: ``Running``, ``Failed``, …; empty if it has none."""
    return str((pod or {}).get("status", {}).get("phase") or "")


def has_ended(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod has ended. The kubelet reports its containers' end before its own."""
    if phase(pod) in {"Succeeded", "Failed"}:
        return True
    states = [status.get("state") or {} for status in pod.get("status", {}).get("containerStatuses") or ()]
    return bool(states) and all("terminated" in state for state in states)


def explain_mpijob(
    mpijob: Mapping[str, Any], events: Sequence[Mapping[str, Any]], *, waited_s: float
) -> Explanation | None:
    """Explain an MPIJob that has no pods, or has failed. `waited_s` is the time since it was submitted."""
    name = mpijob.get("metadata", {}).get("name", "")
    conditions = (mpijob.get("status") or {}).get("conditions") or ()
    for event in reversed(events):
        message = str(event.get("message") or "")
        if event.get("involvedObject", {}).get("kind") == "MPIJob" and event.get("type") == "Warning":
            found = explain_refusal(message)
            if found:
                return found
            if event.get("reason") == "ValidationError":
                advice = "The operator may be older than 0.5."
                return Explanation(code="invalid", text=f"The operator rejected it: {shorten(message)}.", advice=advice)
    for condition in conditions:
        if condition.get("type") == "Failed" and condition.get("status") == "True":
            reason = ": ".join(filter(None, (condition.get("reason"), shorten(condition.get("message") or ""))))
            advice = "Check its pods and events: kubectl describe mpijob."
            return Explanation(code="ended", text=f"The MPIJob {name} has failed: {reason}.", advice=advice)
    if not conditions and waited_s > _PICKUP_S:
        text = f"The MPI operator has not picked up the MPIJob {name} for {waited_s:.0f} s."
        advice = "Check that the operator runs: kubectl get pods -A -l app=mpi-operator"
        return Explanation(code="operator", text=text, advice=advice, final=False)
    return None


_PICKUP_S = 5.0


def explain_launcher(pod: Mapping[str, Any], last: str) -> Explanation | None:
    """Explain how the launcher ended; None if its log explains it. `last` is its last line."""
    states = [one.get("state", {}).get("terminated") or {} for one in pod["status"].get("containerStatuses") or ()]
    status = next((state.get("exitCode") for state in states), None)
    if phase(pod) == "Succeeded" or status == STEPS_FAILED:
        return None
    found = explain_end(pod)
    if found is not None and found.code not in _BY_STATUS:
        return found
    if last.startswith(_PREFIX) and status is not None:
        text = f"The launcher exited with status {status}: {shorten(last.removeprefix(_PREFIX))}."
        return Explanation(code="ended", text=text, advice="Check its log above, and the image.")
    return found


_PREFIX = "fabbench: "
# Codes of explanations from the exit status alone: the script's message says more.
_BY_STATUS = frozenset({"lease", "no-program", "deleted", "killed", "ended"})


def explain_lost(
    last: Mapping[str, Any], now: Mapping[str, Any] | None, events: Sequence[Mapping[str, Any]], nodes: Sequence[Node]
) -> Explanation | None:
    """Explain a pod that existed when the launcher started but no longer runs; None if it does.

    `last` is its last known state, and `now` the current pod of that name: the operator replaces deleted pods.
    """
    name, node = last["metadata"]["name"], last.get("spec", {}).get("nodeName", "its node")
    if now is not None and now["metadata"]["uid"] == last["metadata"]["uid"]:
        found = explain_pod(now, events, nodes)
        return found if found is not None and found.final else None
    found = explain_pod(last, events, nodes)
    if found is not None and found.final and found.code != "deleted":
        # A removed pod does not come back with its node.
        return replace(found, code="node-lost") if found.code == NODE_NOT_READY else found
    text = f"The pod {name} on {node} was removed."
    return Explanation(code="deleted", text=text, advice="Check its events to see who removed it.")


Object = Mapping[str, Any]

_INSTALL = "https://raw.githubusercontent.com/kubeflow/mpi-operator/v0.6.0/deploy/v2beta1/mpi-operator.yaml"
_POLL_S = 0.5
_ANSWER_S = 10.0
_CHECK_S = 2.0
_GRACE_S = 10.0  # For how long the launcher may go on after a worker is lost: mpirun reports what it saw, and exits


def require_operator(api: KubernetesApi) -> None:
    """Raise MachineError if the cluster does not have Kubeflow's MPIJobs."""
    if MPIJOB.plural not in api.plurals(MPIJOB.group, MPIJOB.version):
        raise MachineError(
            f"The cluster of {api.context} has no MPIJobs (mpijobs.kubeflow.org, v2beta1).",
            hint="Install the Kubeflow MPI Operator, 0.5 or later: kubectl apply --server-side -f "
            f"{_INSTALL}. Or use --on kubernetes, which needs nothing installed.",
        )


class MpiJobRun:
    """A context manager that removes the MPIJob on exit, and waits until its pods are gone."""

    def __init__(self, api: KubernetesApi, run: str, options: MpiJobOptions, notify: Callable[[str], None]) -> None:
        """`run` is the run's id; `notify` receives what the run is waiting for."""
        self._api, self._run, self._name = api, run, f"fabbench-{run}"
        self._options, self._notify = options, notify
        self._submitted = self._created = False
        self._launcher: Object = {}
        self._workers: Sequence[Object] = ()
        self._last = ""
        self._lost: Explanation | None = None  # What happened to the first pod that was lost
        self._lost_since = 0.0
        self._watch = PodWatch(api, self._selector)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._watch.stop()
        if not self._submitted:
            return
        remove_run(
            lambda: delete_and_wait(self._api, "MPIJob", self._name, self._pods, created=self._created),
            f"MPIJob {self._name}",
            unanswered="It runs to completion, and then its workers are removed. fabbench clean --all removes it now.",
            error=error,
        )

    def follow(self, document: str) -> Generator[str, None, None]:
        """Submit the MPIJob, and yield its launcher's lines. Raise MachineError for what its log does not tell."""
        import yaml

        self._submitted = True
        *others, job = yaml.safe_load_all(document)
        created = self._api.create("MPIJob", job)
        self._created = True
        for each in owned_by(others, created):
            self._api.create(each["kind"], each)
        self._watch.start()
        self._start()
        log = PodLog(self._api, self._launcher["metadata"]["name"], LAUNCHER_ROLE, lambda: has_ended(self._pod()))
        log.start()
        try:
            yield from self._lines(log)
        finally:
            log.stop()
        if self._lost is not None:
            raise MachineError(self._lost.text, hint=self._lost.advice)
        if why := explain_launcher(self._pod(), self._last):
            raise MachineError(why.text, hint=why.advice)

    def counters(self) -> Mapping[str, Sequence[str]]:
        """Read the NIC counters of the workers, by node name."""
        workers = {str(pod["spec"].get("nodeName")): pod for pod in self._workers}
        words = ("sh", "-c", f"{SNAPSHOT}\nfabbench_counters")
        found = map_hosts(
            workers, lambda pod: self._connection(pod, WORKER_CONTAINER).run(words, timeout_s=_ANSWER_S).out
        )
        return {name: lines for name, lines in found.items() if not isinstance(lines, MachineError)}

    def _connection(self, pod: Object, container: str) -> PodConnection:
        if not pod:
            raise MachineError("The job has no pods yet.")
        return PodConnection(self._api, pod["metadata"]["name"], container)

    def _start(self) -> None:
        """Wait until the launcher runs, or has run."""
        started = time.monotonic()
        waiting = ReadinessWait(self._options.start_timeout, self._notify)
        while True:
            try:
                launcher, workers = split_pods(self._pods())
                if launcher is not None and (phase(launcher) == "Running" or has_ended(launcher)):
                    self._launcher, self._workers = launcher, workers
                    nodes = ", ".join(str(pod["spec"].get("nodeName")) for pod in workers)
                    self._notify(f"The workers of {self._name} run on {nodes}.")
                    return
                pods = [*workers, *([launcher] if launcher else [])]
                why = self._explain_wait(pods, time.monotonic() - started)
            except UnansweredError as error:
                why = api_silent(error)
            waiting.observe(why)
            time.sleep(_POLL_S)

    def _explain_wait(self, pods: Sequence[Object], waited_s: float) -> Explanation | None:
        events = events_of(self._api, self._name)
        nodes = self._nodes(pods)
        found = (explain_pod(pod, events, nodes) for pod in pods if not is_ready(pod))
        return next((each for each in found if each is not None), None) or explain_mpijob(
            self._api.read("MPIJob", self._name), events, waited_s=waited_s
        )

    def _lines(self, log: PodLog) -> Generator[str, None, None]:
        """Yield lines until there are no more; check the pods from time to time."""
        checked = time.monotonic()
        while True:
            try:
                line = log.queue.get(timeout=_POLL_S)
            except queue.Empty:
                line = ""
            else:
                if line is None:
                    return
                if isinstance(line, MachineError):
                    lost = self._lost or self._first_lost() or self._why_ended()
                    raise MachineError(lost.text, hint=lost.advice) if lost else line
                self._last = line if line and MARKER_SIGN not in line else self._last
                yield line
            now = time.monotonic()
            if now - checked > _CHECK_S:
                self._check_pods(log)
                checked = time.monotonic()

    def _check_pods(self, log: PodLog) -> None:
        now = time.monotonic()
        if log.failing and now - log.failing[0] > self._options.lost_after:
            since, error = log.failing
            if why := self._why_ended():
                raise MachineError(why.text, hint=why.advice)
            raise MachineError(f"No launcher log for {now - since:.0f} s: {error}", hint=error.hint)
        try:
            self._look_for_losses(now)
        except UnansweredError:
            return  # a silent API is reported through `log.failing`
        if self._lost is not None:
            # Programs go on where a node is not ready for a while, and so may the run.
            patience = self._options.lost_after if self._lost.code == NODE_NOT_READY else _GRACE_S
            if now - self._lost_since > patience:
                raise MachineError(self._lost.text, hint=self._lost.advice)

    def _look_for_losses(self, now: float) -> None:
        """Note the first pod that is lost. A node that is not ready may come back, or lose its pod."""
        if self._lost is not None and self._lost.code != NODE_NOT_READY:
            return
        lost = self._first_lost()
        if self._lost is None or (lost is not None and lost.code != NODE_NOT_READY):
            self._lost, self._lost_since = lost, now
        elif lost is None:
            with suppress(AbsentError):
                if not has_ended(self._pod()):
                    self._lost = None

    def _first_lost(self) -> Explanation | None:
        """Explain the first pod that existed when the launcher started but no longer runs."""
        pods = {pod["metadata"]["name"]: pod for pod in self._pods()}
        launcher = pods.get(self._launcher["metadata"]["name"])
        if launcher is not None and has_ended(launcher):
            return None  # the operator is ending the workers
        # The launcher first: without it the operator ends the workers.
        for before in (self._launcher, *self._workers):
            uid = before["metadata"]["uid"]
            now = pods.get(before["metadata"]["name"])
            if now is None or now["metadata"]["uid"] != uid or not is_ready(now):
                last = self._watch.last.get(uid, before)
                if why := explain_lost(last, now, events_of(self._api, self._name), self._nodes([last])):
                    return why
        return None

    def _why_ended(self) -> Explanation | None:
        """Explain how the launcher ended; None if it did not, or that is unknown."""
        with suppress(UnansweredError, AbsentError):
            pod = self._pod()
            return explain_launcher(pod, self._last) if has_ended(pod) else None
        return None

    def _pod(self) -> Object:
        return self._api.read("Pod", self._launcher["metadata"]["name"])

    def _pods(self) -> list[dict[str, Any]]:
        return list(self._api.objects("Pod", labels=self._selector))

    @property
    def _selector(self) -> str:
        return f"{RUN}={self._run}"

    def _nodes(self, pods: Sequence[Object]) -> tuple[Node, ...]:
        found = []
        for name in sorted({str(pod["spec"].get("nodeName") or "") for pod in pods} - {""}):
            with suppress(AbsentError):
                found.append(self._api.read("Node", name))
        return tuple(read_nodes(found, ()))
