"""What Kubeflow's operator says of an MPIJob, and of the pods that it made for it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fabbench.pods.ended import explain_end
from fabbench.pods.explanation import Explanation, brief
from fabbench.pods.mpijob import LAUNCHER
from fabbench.pods.nodes import Node
from fabbench.pods.pending import explain
from fabbench.pods.refused import explain_refusal

_ROLE = "training.kubeflow.org/job-role"
STEPS_FAILED = 4
"""The status of a script of which a step failed: its log says so, step by step."""


def split_pods(
    pods: Iterable[Mapping[str, Any]],
) -> tuple[Mapping[str, Any] | None, tuple[Mapping[str, Any], ...]]:
    """Tell the launcher's pod (None: there is none yet) from the workers."""
    launcher, workers = None, []
    for pod in pods:
        if (pod["metadata"].get("labels") or {}).get(_ROLE) == LAUNCHER:
            launcher = pod
        else:
            workers.append(pod)
    return launcher, tuple(sorted(workers, key=lambda pod: str(pod["metadata"]["name"])))


def phase(pod: Mapping[str, Any] | None) -> str:
    """Give the phase of a pod: ``Running``, ``Failed``, …; empty where there is none."""
    return str((pod or {}).get("status", {}).get("phase") or "")


def ended(pod: Mapping[str, Any]) -> bool:
    """Whether a pod has ended. The kubelet tells of containers some time before it tells of the pod."""
    if phase(pod) in {"Succeeded", "Failed"}:
        return True
    states = [one.get("state") or {} for one in pod.get("status", {}).get("containerStatuses") or ()]
    return bool(states) and all("terminated" in state for state in states)


def explain_mpijob(
    mpijob: Mapping[str, Any], events: Sequence[Mapping[str, Any]], *, waited_s: float
) -> Explanation | None:
    """Explain an MPIJob that has no pods, or has failed; `waited_s` is for how long it is there."""
    name = mpijob.get("metadata", {}).get("name", "")
    conditions = (mpijob.get("status") or {}).get("conditions") or ()
    for event in reversed(events):
        said = str(event.get("message") or "")
        if event.get("involvedObject", {}).get("kind") == "MPIJob" and event.get("type") == "Warning":
            found = explain_refusal(said)
            if found:
                return found
            if event.get("reason") == "ValidationError":
                advice = "Is the operator older than 0.5?"
                return Explanation(
                    code="invalid", text=f"The operator refuses it: {brief(said)}.", advice=advice
                )
    for condition in conditions:
        if condition.get("type") == "Failed" and condition.get("status") == "True":
            why = ": ".join(filter(None, (condition.get("reason"), brief(condition.get("message") or ""))))
            return Explanation(code="ended", text=f"The MPIJob {name} has failed: {why}.", advice=_SEE)
    if not conditions and waited_s > _TAKEN_UP_S:
        text = f"Nobody has taken up the MPIJob {name} for {waited_s:.0f} s."
        advice = "Does the operator run? kubectl get pods -A -l app=mpi-operator"
        return Explanation(code="operator", text=text, advice=advice, final=False)
    return None


_TAKEN_UP_S = 5.0
_SEE = "See its pods and events: kubectl describe mpijob."


def explain_launcher(pod: Mapping[str, Any], last: str) -> Explanation | None:
    """Explain how the launcher ended; None where its log says it all. `last` is its last line."""
    states = [
        one.get("state", {}).get("terminated") or {} for one in pod["status"].get("containerStatuses") or ()
    ]
    status = next((state.get("exitCode") for state in states), None)
    if phase(pod) == "Succeeded" or status == STEPS_FAILED:
        return None
    found = explain_end(pod)
    if found is not None and found.code not in _BY_STATUS:
        return found
    if last.startswith(_OWN) and status is not None:
        text = f"The launcher ended with status {status}: {brief(last.removeprefix(_OWN))}."
        return Explanation(code="ended", text=text, advice="See its log above, and the image.")
    return found


_OWN = "fabbench: "
_BY_STATUS = frozenset({"lease", "no-program", "deleted", "killed", "ended"})
"""What is known from the exit status alone: the script's own words say more."""


def explain_lost(
    last: Mapping[str, Any],
    now: Mapping[str, Any] | None,
    events: Sequence[Mapping[str, Any]],
    nodes: Sequence[Node],
) -> Explanation | None:
    """Explain a pod that was there when the launcher started, and does not run any more; None: it does.

    `last` is what was said of it last, and `now` the pod of that name: where one was deleted the operator
    makes a new one.
    """
    name, node = last["metadata"]["name"], last.get("spec", {}).get("nodeName", "its node")
    if now is not None and now["metadata"]["uid"] == last["metadata"]["uid"]:
        found = explain(now, events, nodes)
        return found if found is not None and found.final else None
    found = explain(last, events, nodes)
    if found is not None and found.final and found.code != "deleted":
        return found
    text = f"The pod {name} on {node} was removed."
    return Explanation(code="deleted", text=text, advice="See its events: who did?")
