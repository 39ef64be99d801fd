"""Why pods ended that should not have, from their status. Pure.

Reasons and wordings: the kubelet (pkg/kubelet: eviction, lifecycle, container runtimes), the scheduler's
preemption, and the taint manager of the controller manager.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fabbench.pods.explanation import Explanation, brief, first, words
from fabbench.pods.nodes import requests

LEASE_ENDED, NOT_RUNNABLE, NO_PROGRAM, TERMINATED, KILLED = 75, 126, 127, 143, 137
"""Exit statuses that keep.sh and shells give a meaning."""
OOM_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""Files in a pod that count programs killed for its memory: of cgroups v2 and v1. Where the kernel ends a
program that was started in a running pod, the pod goes on and its status says nothing."""

_OOM_KILL = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_REASONS = (
    words(
        r"^(?:Evicted|TerminationByKubelet(?!.*shutdown)): (?P<why>.*)",
        "evicted",
        "The pod {pod} was evicted from {node}: {why}",
        "Its node ran out of something: see what else runs there, and measure when it is idle.",
    ),
    words(
        r"^DeadlineExceeded",
        "deadline",
        "The pod {pod} was ended at its deadline.",
        "Give the run more time, or measure less.",
    ),
    words(
        r"^UnexpectedAdmissionError.*?unavailable for (?P<what>\S+)\. ?Requested: ?(?P<asked>\d+), "
        r"Available: ?(?P<free>\d+)",
        "insufficient",
        "{node} has {free} working {what}, and {asked} were promised to the pod {pod}.",
        "A device failed, or its device plugin lost count: see the plugin's log. Restarting it and the "
        "kubelet helps.",
    ),
    words(
        r"^OutOf(?P<what>[^:]+): (?P<why>.*)",
        "insufficient",
        "{node} turned the pod {pod} away, as it has not enough {what}: {why}",
        "Another pod was faster: try again, or name other nodes.",
    ),
    words(
        r"^(?:NodeLost|NodeNotReady)",
        "node-lost",
        "{node}, where the pod {pod} ran, is not heard of any more.",
        "See the node (kubectl describe node), and measure without it.",
    ),
    words(
        r"^(?:Preempt\w*|PreemptionByScheduler)",
        "preempted",
        "The pod {pod} was ended to make room for a more important one.",
        "Measure when the cluster is less busy, or in a queue of higher priority.",
    ),
    words(
        r"^DeletionByTaintManager",
        "node-lost",
        "The pod {pod} had to leave {node}, which got a taint: it is lost, or being drained.",
        "See the node (kubectl describe node), and measure without it.",
    ),
    words(
        r"^(?:EvictionByEvictionAPI)",
        "evicted",
        "The pod {pod} was told to leave {node}, which is being drained.",
        "Measure when the maintenance is over, or on other nodes.",
    ),
    words(
        r"^(?:Terminated|NodeShutdown|TerminationByKubelet)",
        "node-lost",
        "{node} is being shut down, and the pod {pod} was ended.",
        "Measure without it.",
    ),
    words(
        r"^UnexpectedAdmissionError: (?P<why>.*)",
        "insufficient",
        "{node} could not give the pod {pod} its devices: {why}",
        "See the log of the device plugin there.",
    ),
)

_STARTS = (
    words(
        r"exec format error",
        "architecture",
        "The image {image} is for another architecture than {node}.",
        "Name an image that is built for both, or nodes of its architecture.",
    ),
    words(
        r'(?:exec: "|exec )(?P<what>[^":]+)"?: .*?(?:no such file|not found)',
        "no-program",
        "The image {image} has no {what}.",
        "Name an image that has it, with --image.",
    ),
    words(
        r"OCI runtime|containerd task|runc",
        "start",
        "The container could not be started on {node}: {said}.",
        "See the node's events; an image or a runtime class of another kind of node is the usual reason.",
    ),
)


def explain_end(pod: Mapping[str, Any]) -> Explanation | None:
    """Explain why a pod failed; None where it did not, or where it is not told."""
    known = names(pod)
    for said in _said(pod):
        if found := first(_REASONS, said, **known):
            return found
    for state in _terminated(pod):
        if found := _container(pod, state, known):
            return found
    return None


def explain_killed(pod: Mapping[str, Any], before: str, after: str) -> Explanation | None:
    """Explain a program that was killed in a pod, from what `OOM_COUNTERS` said before and after."""
    counts = [sum(map(int, _OOM_KILL.findall(text))) for text in (before, after)]
    return _oom("A program in the pod", pod) if counts[1] > counts[0] else None


def names(pod: Mapping[str, Any]) -> dict[str, str]:
    """Name a pod, its node and its image, for sentences."""
    spec = pod.get("spec") or {}
    containers = spec.get("containers") or [{}]
    return {
        "pod": (pod.get("metadata") or {}).get("name", ""),
        "node": spec.get("nodeName") or "its node",
        "image": containers[0].get("image", ""),
    }


def _said(pod: Mapping[str, Any]) -> Iterator[str]:
    status = pod.get("status") or {}
    if status.get("reason"):
        yield f"{status['reason']}: {brief(status.get('message') or '')}."
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            yield f"{condition.get('reason', '')}: {brief(condition.get('message') or '')}."


def _terminated(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    status = pod.get("status") or {}
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(key) or ():
            state = (container.get("state") or {}).get("terminated")
            if state and (state.get("exitCode") or state.get("reason") == "OOMKilled"):
                yield state


def _container(
    pod: Mapping[str, Any], state: Mapping[str, Any], known: Mapping[str, str]
) -> Explanation | None:
    code, reason, said = state.get("exitCode", 0), state.get("reason", ""), brief(state.get("message") or "")
    if reason == "OOMKilled":
        return _oom("The pod", pod)
    if reason in {"StartError", "ContainerCannotRun"}:
        return first(_STARTS, said, **known) or _exit(code, said, known)
    return _exit(code, said, known)


def _oom(who: str, pod: Mapping[str, Any]) -> Explanation:
    name, limit = names(pod)["pod"], requests(pod).get("memory", 0) / (1 << 30)
    text = f"{who} {name} was killed at the pod's limit of {limit:.3g} GiB of memory."
    advice = "Shared memory counts too: measure smaller sizes or fewer ranks, or give pods more memory."
    return Explanation(code="oom-killed", text=text, advice=advice)


def _exit(code: int, said: str, known: Mapping[str, str]) -> Explanation:
    pod, image = known["pod"], known["image"]
    ended = f"The pod {pod} ended with status {code}"
    text = f"{ended}: {said}." if said else f"{ended}."
    if code == LEASE_ENDED:
        advice = "fabbench or its connection to the cluster stood still for too long: run it again."
        return Explanation(code="lease", text=text, advice=advice)
    if code in {NOT_RUNNABLE, NO_PROGRAM}:
        if not said:
            text = f"{ended}: a program is not in the image {image}, or cannot be run."
        advice = "Name an image with sshd and mpirun; --on kubernetes --mpi-agent exec needs no sshd."
        return Explanation(code="no-program", text=text, advice=advice)
    if code == TERMINATED:
        advice = "Somebody or something deleted it: see the events of the Job and of the node."
        return Explanation(code="deleted", text=text, advice=advice)
    if code == KILLED:
        advice = f"It was killed from outside: see the events of {known['node']}, and its memory."
        return Explanation(code="killed", text=text, advice=advice)
    return Explanation(code="ended", text=text, advice="See the pod's log.")
