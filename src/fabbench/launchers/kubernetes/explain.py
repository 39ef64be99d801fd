"""Why a pod does not run, or ended.

The cluster's own words, and advice where messages.csv knows the message. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from fabbench.catalog.instances import rows_of
from fabbench.launchers import Explanation, shorten
from fabbench.launchers.kubernetes.nodes import Node, requests, true_condition

OOM_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""Files in a pod that count OOM-killed programs, in cgroups v2 and v1. If the kernel kills a program that was
started in a running pod, the pod goes on and its status does not show it."""

Object = Mapping[str, Any]
_MEMORY = "Shared memory counts too: use smaller sizes, fewer ranks, or more memory per pod."
_TABLE = tuple(rows_of("messages.csv", "fabbench.launchers.kubernetes"))
_DELETED = ("deleted", "It was deleted from outside: check the events of the Job and of the node.")
_EXITS = {  # Exit statuses that pod_watchdog.sh and shells give a meaning
    75: ("lease", "fabbench or its connection to the cluster stalled for too long: run it again."),
    **dict.fromkeys(
        (126, 127),
        ("no-program", "A program is missing or not executable: pass an image with --image."),
    ),
    137: ("killed", "It was killed from outside: check the events of the node, and its memory."),
    143: _DELETED,
}
_BEFORE = re.compile(
    r"(?:Failed to pull image|failed to pull and unpack image|failed to resolve "
    r"(?:reference|image)) "
    r'"[^"]*": |rpc error: code = \w+ desc = '
)
_OOM_KILL = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def explain(subject: str, said: str, code: str, advice: str, *, final: bool = True) -> Explanation:
    """Return what the cluster `said` of a subject.

    Code, advice and finality are for a message that is not known.
    """
    text = f"{subject}: {shorten(said)}."
    for row in _TABLE:
        if match := re.search(row["pattern"], said, re.IGNORECASE | re.DOTALL):
            filled = (
                row["advice"].format(**match.groupdict()).replace("=.", ".")
            )  # A taint without a value
            return Explanation(
                code=row["code"], text=text, advice=filled, final=row["final"] != "no"
            )
    return Explanation(code=code, text=text, advice=advice, final=final)


def explain_pod(
    pod: Object, events: Iterable[Object] = (), nodes: Sequence[Node] = ()
) -> Explanation | None:
    """Explain why a pod does not run; None: nothing is wrong or known yet.

    `events` may include other objects'.
    """
    own = _own(events, pod)
    found = (
        _ended(pod, own),
        _lost(pod, nodes),
        _waiting(pod, own),
        _unscheduled(pod, own),
        _setup(pod, own),
    )
    return next(chain.from_iterable(found), None)


def explain_owner(owner: Object, kind: str, events: Iterable[Object] = ()) -> Explanation | None:
    """Explain why a Job or MPIJob has failed, or has no pods yet."""
    name, status = (owner.get("metadata") or {}).get("name", ""), owner.get("status") or {}
    failed = true_condition(owner, "Failed")
    for event in _own(events, owner, reverse=True):
        if event.get("reason") == "FailedCreate" or (event.get("type") == "Warning" and not failed):
            return explain(
                f"The {kind} {name}", _said(event), "create", "Check its events.", final=False
            )
    if failed:
        return explain(f"The {kind} {name} has failed", _said(failed), "ended", "Check its pods.")
    if kind == "MPIJob" and not status.get("conditions"):
        advice = "Check that the operator runs: kubectl get pods -A -l app=mpi-operator"
        text = f"The MPI operator has not picked up the MPIJob {name} yet."
        return Explanation(code="operator", text=text, advice=advice, final=False)
    return None


def explain_killed(pod: Object, before: str, after: str) -> Explanation | None:
    """Explain a program killed in a pod, from the contents of `OOM_COUNTERS` before and after."""
    counts = [sum(map(int, _OOM_KILL.findall(text))) for text in (before, after)]
    if counts[1] <= counts[0]:
        return None
    limit = requests(pod).get("memory", 0) / (1 << 30)
    text = (
        f"A program in the pod {pod['metadata']['name']} was OOM-killed at the pod's limit of "
        f"{limit:.3g} GiB."
    )
    return Explanation(code="oom-killed", text=text, advice=_MEMORY)


def _subject(pod: Object) -> str:
    node = (pod.get("spec") or {}).get("nodeName")
    return f"The pod {(pod.get('metadata') or {}).get('name', '')}{f' on {node}' if node else ''}"


def _said(thing: Object) -> str:
    """Return the reason and message of an event, condition or status."""
    words = (thing.get("reason"), thing.get("message"))
    return ": ".join(" ".join(str(word).split()) for word in words if word)


def _ended(pod: Object, events: Sequence[Object]) -> Iterator[Explanation]:
    status = pod.get("status") or {}
    disrupted = true_condition(pod, "DisruptionTarget")
    # A pod's status may show later, or never, what an event announces.
    announced = (
        each for each in events if each.get("reason") in {"Evicted", "Preempted", "Preempting"}
    )
    for each in (
        *([status] if status.get("reason") else ()),
        *([disrupted] if disrupted else ()),
        *announced,
    ):
        yield explain(
            _subject(pod), _said(each), "ended", "Check the events of the pod and its node."
        )
    for state in _states(pod, "terminated"):
        code, reason = state.get("exitCode"), state.get("reason")
        if not code and reason != "OOMKilled":
            continue
        if reason in {None, "Error", "Completed"}:
            kind, advice = _EXITS.get(code or 0, ("ended", "Check the pod's log."))
            message = shorten(state.get("message") or "")
            text = f"{_subject(pod)} exited with status {code}{f': {message}' if message else ''}."
            yield Explanation(code=kind, text=text, advice=advice)
        else:
            yield explain(_subject(pod), _said(state), "start", "Check the events of its node.")


def _lost(pod: Object, nodes: Sequence[Node]) -> Iterator[Explanation]:
    name = (pod.get("spec") or {}).get("nodeName")
    node = next((each for each in nodes if each.name == name), None)
    advice = "Check the node, and measure without it."
    if name and nodes and node is None:
        yield Explanation(
            code="node-lost", text=f"{_subject(pod)}: the node is gone.", advice=advice
        )
    elif node and not node.ready:
        text = f"{_subject(pod)}: the node is not ready: {shorten(node.why_not)}."
        yield Explanation(code="node-not-ready", text=text, advice=advice)
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        code, advice = _DELETED
        yield Explanation(code=code, text=f"{_subject(pod)} is being deleted.", advice=advice)


def _states(pod: Object, name: str) -> Iterator[Object]:
    status = pod.get("status") or {}
    for container in (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ):
        if state := (container.get("state") or {}).get(name):
            yield {**state, "image": container.get("image", "")}


def _waiting(pod: Object, events: Sequence[Object]) -> Iterator[Explanation]:
    for state in _states(pod, "waiting"):
        reason, said = state.get("reason", ""), _said(state)
        if reason in {"", "ContainerCreating", "PodInitializing"}:
            continue
        if "Image" in reason:
            # A back-off drops the registry's answer; the event of the last attempt keeps it, and
            # reads the same.
            attempts = [
                each["message"]
                for each in events
                if "Failed to pull image" in str(each.get("message"))
            ]
            message = attempts[-1] if attempts else state.get("message") or ""
            reason = "ErrImagePull" if reason == "ImagePullBackOff" else reason
            said = f"{reason}: {state['image']}: {_BEFORE.sub('', ' '.join(message.split()))}"
        yield explain(_subject(pod), said, "start", "Check the pod's events: kubectl describe pod.")


def _unscheduled(pod: Object, events: Sequence[Object]) -> Iterator[Explanation]:
    if (pod.get("spec") or {}).get("nodeName"):
        return
    conditions = (pod.get("status") or {}).get("conditions") or ()
    false = (
        each
        for each in conditions
        if each.get("type") == "PodScheduled" and each.get("status") == "False"
    )
    failed = (each for each in reversed(events) if each.get("reason") == "FailedScheduling")
    for each in chain(false, failed):
        # What preemption would not help with says nothing more.
        said = re.split(r"\.? preemption: ", str(each.get("message") or ""), maxsplit=1)[0]
        if said:
            advice = (
                "Choose other nodes (fabbench check shows them all), or wait until these are free."
            )
            yield explain(
                f"{_subject(pod)} cannot be scheduled", said, "no-node", advice, final=False
            )


def _setup(pod: Object, events: Sequence[Object]) -> Iterator[Explanation]:
    """Explain a pod that has a node and no container yet."""
    if (pod.get("status") or {}).get("phase") != "Pending" or not events:
        return
    last = events[-1]
    if last.get("reason") in {"FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"}:
        yield explain(_subject(pod), _said(last), "setup", "Check the node.", final=False)
    elif last.get("reason") == "Pulling":
        text = f"{_subject(pod)}: {shorten(last.get('message') or '')}."
        yield Explanation(
            code="pulling", text=text, advice="A large image takes minutes.", final=False
        )


def _own(events: Iterable[Object], thing: Object, *, reverse: bool = False) -> list[Object]:
    """Return the events of an object by time."""
    uid = (thing.get("metadata") or {}).get("uid")
    found = (event for event in events if (event.get("involvedObject") or {}).get("uid") == uid)
    return sorted(found, key=_time, reverse=reverse)


def _time(event: Object) -> str:
    """Return when an event last happened; times of the API sort as text."""
    series = event.get("series") or {}
    when = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(when or (event.get("metadata") or {}).get("creationTimestamp") or "")
