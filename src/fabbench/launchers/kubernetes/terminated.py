"""Why pods ended unexpectedly, and why the API or a controller rejects an object. Pure.

Reasons and wordings are those of the kubelet (pkg/kubelet: eviction, lifecycle, container runtimes), the
scheduler's preemption, the taint manager of the controller manager, and the admission plugins and the
authorizer of kube-apiserver.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fabbench.launchers import Explanation, match_message, pattern, shorten
from fabbench.launchers.kubernetes.nodes import requests

LEASE_ENDED, NOT_RUNNABLE, NO_PROGRAM, TERMINATED, KILLED = 75, 126, 127, 143, 137
"""Exit statuses that pod_watchdog.sh and shells give a meaning."""
OOM_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""Files in a pod that count OOM-killed programs, in cgroups v2 and v1. If the kernel kills a program that was
started in a running pod, the pod goes on and its status does not show it."""

_OOM_KILL = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_REASONS = (
    pattern(r"^(?:Evicted|TerminationByKubelet(?!.*shutdown)): (?P<why>.*)", "evicted",
        "The pod {pod} was evicted from {node}: {why}",
        "Its node ran out of a resource: check what else runs there, and measure when it is idle."),
    pattern(r"^DeadlineExceeded", "deadline",
        "The pod {pod} hit its deadline.", "Give the run more time, or measure less."),
    pattern(r"^OutOf(?P<what>[^:]+): (?P<why>.*)", "insufficient",
        "{node} rejected the pod {pod}: not enough {what}: {why}",
        "Another pod took it first: try again, or choose other nodes."),
    pattern(r"^(?:NodeLost|NodeNotReady)", "node-lost",
        "{node}, where the pod {pod} ran, is lost.", "Check the node (kubectl describe node), and measure without it."),
    pattern(r"^(?:Preempt\w*|PreemptionByScheduler)", "preempted",
        "The pod {pod} was preempted.", "Measure when the cluster is less busy, or in a queue of higher priority."),
    pattern(r"^DeletionByTaintManager", "node-lost",
        "The pod {pod} was evicted from {node}, which was tainted: it is lost, or being drained.",
        "Check the node (kubectl describe node), and measure without it."),
    pattern(r"^(?:EvictionByEvictionAPI)", "evicted",
        "The pod {pod} was evicted from {node}, which is being drained.",
        "Measure when the maintenance is over, or on other nodes."),
    pattern(r"^(?:Terminated|NodeShutdown|TerminationByKubelet)", "node-lost",
        "{node} is shutting down, and terminated the pod {pod}.", "Measure without it."),
    pattern(r"^UnexpectedAdmissionError: (?P<why>.*)", "insufficient",
        "{node} could not allocate devices for the pod {pod}: {why}",
        "A device failed, or its plugin lost count: check the plugin's log. Restarting it and the kubelet helps."),
)  # fmt: skip

STARTS = (
    pattern(r"exec format error", "architecture",
        "The image {image} is for another architecture than {node}.",
        "Use an image built for both, or nodes of its architecture."),
    pattern(r'(?:exec: "|exec )(?P<what>[^":]+)"?: .*?(?:no such file|not found)', "no-program",
        "The image {image} has no {what}.", "Pass an image that has it with --image."),
    pattern(r"OCI runtime|containerd task|runc", "start",
        "The container could not be started on {node}: {message}.",
        "Check the node's events; usual causes are an image or runtime class for another kind of node."),
)  # fmt: skip


def explain_end(pod: Mapping[str, Any], events: Iterable[Mapping[str, Any]] = ()) -> Explanation | None:
    """Explain why a pod failed, from its status and its own events. None: it did not fail, or that is unknown."""
    known = names(pod)
    # A pod's status may show later, or never, what an event announces.
    announced = (
        f"{event['reason']}: {shorten(str(event.get('message') or event.get('note') or ''))}."
        for event in events
        if event.get("reason") in {"Evicted", "Preempted", "Preempting"}
    )
    for text in (*_status_messages(pod), *announced):
        if found := match_message(_REASONS, text, **known):
            return found
    state = next(_terminated(pod), None)
    if state is None:
        return None
    if state.get("reason") == "OOMKilled":
        return _oom("The pod", pod)
    message = shorten(state.get("message") or "")
    unstarted = state.get("reason") in {"StartError", "ContainerCannotRun"}
    found = match_message(STARTS, message, **known) if unstarted else None
    return found or _exit(state.get("exitCode", 0), message, known)


def explain_killed(pod: Mapping[str, Any], before: str, after: str) -> Explanation | None:
    """Explain a program killed in a pod, from the contents of `OOM_COUNTERS` before and after."""
    counts = [sum(map(int, _OOM_KILL.findall(text))) for text in (before, after)]
    return _oom("A program in the pod", pod) if counts[1] > counts[0] else None


def names(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of a pod, its node and its image, to fill in messages."""
    spec = pod.get("spec") or {}
    containers = spec.get("containers") or [{}]
    return {
        "pod": (pod.get("metadata") or {}).get("name", ""),
        "node": spec.get("nodeName") or "its node",
        "image": containers[0].get("image", ""),
    }


def _status_messages(pod: Mapping[str, Any]) -> Iterator[str]:
    status = pod.get("status") or {}
    if status.get("reason"):
        yield f"{status['reason']}: {shorten(status.get('message') or '')}."
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            yield f"{condition.get('reason', '')}: {shorten(condition.get('message') or '')}."


def _terminated(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    status = pod.get("status") or {}
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(key) or ():
            state = (container.get("state") or {}).get("terminated")
            if state and (state.get("exitCode") or state.get("reason") == "OOMKilled"):
                yield state


def _oom(subject: str, pod: Mapping[str, Any]) -> Explanation:
    name, limit = names(pod)["pod"], requests(pod).get("memory", 0) / (1 << 30)
    text = f"{subject} {name} was OOM-killed at the pod's memory limit of {limit:.3g} GiB."
    advice = "Shared memory counts too: use smaller sizes, fewer ranks, or more memory per pod."
    return Explanation(code="oom-killed", text=text, advice=advice)


def _exit(code: int, message: str, known: Mapping[str, str]) -> Explanation:
    no_program = "no-program", "Use an image with sshd and mpirun; --on kubernetes --mpi-agent exec needs no sshd."
    causes = {
        LEASE_ENDED: ("lease", "fabbench or its connection to the cluster stalled for too long: run it again."),
        NOT_RUNNABLE: no_program,
        NO_PROGRAM: no_program,
        TERMINATED: ("deleted", "It was deleted from outside: check the events of the Job and of the node."),
        KILLED: ("killed", f"It was killed from outside: check the events of {known['node']}, and its memory."),
    }
    cause, advice = causes.get(code, ("ended", "Check the pod's log."))
    if cause == "no-program" and not message:
        message = f"a program is missing from the image {known['image']}, or cannot be executed"
    exited = f"The pod {known['pod']} exited with status {code}"
    return Explanation(code=cause, text=f"{exited}: {message}." if message else f"{exited}.", advice=advice)


_LEVEL = "The namespace admits only pods of the level {level}: {why}."
_TABLE = (
    pattern(r"exceeded quota: (?P<quota>[^,]+), requested: (?P<requested>.*?), used: (?P<used>.*?), "
        r"limited: (?P<limit>[^\"\n]+)", "quota",
        "The quota {quota} of the namespace is exceeded: requested {requested}, in use {used}, limit {limit}.",
        "Use fewer nodes or another namespace, or have the quota raised."),
    pattern(r'failed quota: (?P<quota>[^:]+): must specify (?P<what>[^"\n]+)', "quota",
        "The quota {quota} of the namespace requires every pod to set {what}.",
        "Use another namespace: fabbench sets no CPU limit, because it would slow down the benchmark."),
    pattern(r'violates PodSecurity "(?P<level>[^"]+)": (?P<why>.*(?:hostNetwork|host namespaces).*)', "pod-security",
        _LEVEL, "Drop --host-network, or use a namespace of the level privileged."),
    pattern(r'violates PodSecurity "(?P<level>[^"]+)": (?P<why>.*"IPC_LOCK".*)', "pod-security",
        _LEVEL,
        "RDMA needs IPC_LOCK, which only the level privileged allows: use a namespace with the label "
        "pod-security.kubernetes.io/enforce=privileged, or measure --fabric tcp alone."),
    pattern(r'violates PodSecurity "(?P<level>[^"]+)": (?P<why>.*runAsNonRoot.*)', "pod-security",
        _LEVEL, "Run pods without root and sshd: --on kubernetes --run-as-user 1000 --mpi-agent exec."),
    pattern(r'violates PodSecurity "(?P<level>[^"]+)": (?P<why>.+)', "pod-security",
        _LEVEL, "Use a namespace of the level privileged; docs/kubernetes.md lists what each level allows."),
    pattern(r"(?P<why>(?:maximum|minimum) \S+ usage per (?:Pod|Container) is [^\]\n]+)", "limit-range",
        "A LimitRange of the namespace forbids the pod: {why}.",
        "Use another namespace, or have the LimitRange changed."),
    pattern(r'User "(?P<user>[^"]+)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)" in API group '
        r'"(?P<group>[^"]*)"(?: in the namespace "(?P<namespace>[^"]+)"| at the cluster scope)?', "rights",
        "{user} may not {verb} {resource}{where}.",
        "Bind a Role with this verb to it; examples/rbac.yaml in fabbench's repository has all that is needed."),
    pattern(r"(?:admission webhook|validatingadmissionpolicy) [\"'](?P<hook>[^\"']+)[\"'] .*?"
        r"denied (?:the )?request:? (?P<why>.+)", "policy",
        "The cluster's policy {hook} forbids it: {why}.",
        "Ask the cluster's administrators for a namespace where it is allowed."),
    pattern(r'namespaces? "(?P<namespace>[^"]+)" not found', "namespace",
        "Namespace not found: {namespace}.",
        "Pass another with --namespace, or create it: kubectl create namespace {namespace}."),
)  # fmt: skip


def explain_refusal(message: str) -> Explanation | None:
    """Explain why a request was forbidden, from the message of a Status, an event or a condition."""
    _, _, rest = message.partition('in the namespace "')
    where = f" in the namespace {rest.partition(chr(34))[0]}" if rest else " in the whole cluster"
    found = match_message(_TABLE, message, where=where)
    if found is None and "forbidden" in message.lower():
        text = f"The cluster forbids it: {shorten(message)}."
        return Explanation(code="forbidden", text=text, advice="Ask the cluster's administrators.")
    return found
