"""Why a pod does not run, or ended: in the cluster's words, with advice of messages.toml. Pure."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from fabbench.launchers.kubernetes.nodes import (
    Nodes,
    meta_of,
    name_of,
    node_of,
    requests,
    status_of,
    true_condition,
)
from fabbench.launchers.pod_options import Object, Objects
from fabbench.model import known_messages
from fabbench.model.known_messages import Explanation
from fabbench.model.messages import shorten, single_spaced

OOM_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""Files in a pod that count OOM-killed programs, in cgroups v2 and v1.

If the kernel kills a program that was started in a running pod, the pod goes on and its status does
not show it.
"""

# What stands before a registry's answer in a message on an image.
_BEFORE_ANSWER = re.compile(
    r"(?:Failed to pull image|failed to pull and unpack image|failed to resolve "
    r"(?:reference|image)) "
    r'"[^"]*": |rpc error: code = \w+ desc = '
)
_PREEMPTION = re.compile(r"\.? preemption: .*", re.DOTALL)
_OOM_KILL = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def explain(on: str, subject: str, message: str, **values: str) -> Explanation:
    """Explain a message of the cluster about a subject; `on` is what shows it."""
    return known_messages.explain(
        "fabbench.launchers.kubernetes", "messages.toml", on, message, subject=subject, **values
    )


def explain_pod(
    pod: Object, events: Iterable[Object] = (), nodes: Nodes = ()
) -> Explanation | None:
    """Explain why a pod does not run; None: nothing is wrong or known yet."""
    of_pod = _events_of(events, pod)
    # An end says more than a lost node, and that more than what containers wait for.
    explanations = (
        _explain_end(pod, of_pod),
        _explain_lost_node(pod, nodes),
        _explain_waiting(pod, of_pod),
        _explain_unscheduled(pod, of_pod),
        _explain_setup(pod, of_pod),
    )
    return next(chain.from_iterable(explanations), None)


def explain_owner(owner: Object, kind: str, events: Iterable[Object] = ()) -> Explanation | None:
    """Explain why a Job or MPIJob has failed, or has no pods yet."""
    name = name_of(owner)
    subject = f"The {kind} {name}"
    failed = true_condition(owner, "Failed")
    # The last event that says why. Once it has failed, its condition says more than any but those
    # on pods that could not be created.
    for event in _events_of(events, owner, reverse=True):
        warns = event.get("type") == "Warning" and not failed
        if warns or event.get("reason") == "FailedCreate":
            return explain("create", subject, _reason_and_message(event))
    if failed:
        return explain("failed", f"{subject} has failed", _reason_and_message(failed))
    status = status_of(owner)
    if kind == "MPIJob" and not status.get("conditions"):
        return explain("operator", name, "")
    return None


def explain_killed(pod: Object, before: str, after: str) -> Explanation | None:
    """Explain a program killed in a pod, from the contents of `OOM_COUNTERS` before and after."""
    if _oom_kills(after) <= _oom_kills(before):
        return None
    limit = requests(pod).get("memory", 0) / (1 << 30)  # pods request as much as their limit
    return explain("program", name_of(pod), "OOMKilled", gibibytes=format(limit, ".3g"))


def _oom_kills(counters: str) -> int:
    return sum(map(int, _OOM_KILL.findall(counters)))


def _subject(pod: Object) -> str:
    name = name_of(pod)
    node = node_of(pod)
    return f"The pod {name} on {node}" if node else f"The pod {name}"


def _reason_and_message(thing: Object) -> str:
    """Return the reason and message of an event, condition or status."""
    parts = filter(None, (thing.get("reason"), thing.get("message")))
    return ": ".join(map(_in_one_line, parts))


def _in_one_line(text: object) -> str:
    return single_spaced(str(text))


def _explain_end(pod: Object, events: Objects) -> Iterator[Explanation]:
    """Explain a pod that was ended, or whose containers have ended badly."""
    for announcement in _announcements(pod, events):
        yield explain("ended", _subject(pod), announcement)
    for state in _container_states(pod, "terminated"):
        status = int(state.get("exitCode") or 0)
        reason = state.get("reason")
        if not status and reason != "OOMKilled":
            continue  # it ended well
        if reason in {None, "Error", "Completed"}:  # these say no more than the status
            yield _explain_exit(pod, status, state.get("message") or "")
        else:  # such as StartError
            yield explain("terminated", _subject(pod), _reason_and_message(state))


def _announcements(pod: Object, events: Objects) -> Iterator[str]:
    """Yield what a pod's status, a condition and events say of who ended it, and why."""
    status = status_of(pod)
    if status.get("reason"):
        yield _reason_and_message(status)
    if disrupted := true_condition(pod, "DisruptionTarget"):
        yield _reason_and_message(disrupted)
    # A pod's status may show later, or never, what an event announces.
    for event in events:
        if event.get("reason") in {"Evicted", "Preempted", "Preempting"}:
            yield _reason_and_message(event)


def _explain_exit(pod: Object, status: int, message: str) -> Explanation:
    """Explain a container that exited by itself; `message` is its own last word, or empty."""
    why = f": {shorten(message)}" if message else ""
    return explain("exit", _subject(pod), str(status), why=why)


def _explain_lost_node(pod: Object, nodes: Nodes) -> Iterator[Explanation]:
    """Explain a pod whose node is gone or not ready, or that is being deleted.

    Without `nodes`, nothing is known of them.
    """
    name = node_of(pod)
    node = next((node for node in nodes if node.name == name), None)
    if name and nodes and node is None:
        yield explain("node-lost", _subject(pod), "the node is gone")
    elif node and not node.ready:
        yield explain("node-not-ready", _subject(pod), node.why_not)
    if meta_of(pod).get("deletionTimestamp"):
        yield explain("deleted", _subject(pod), "")


def _container_states(pod: Object, name: str) -> Iterator[Object]:
    """Yield the state of each container that is in the state `name`, with the container's image."""
    status = status_of(pod)
    init_containers = status.get("initContainerStatuses") or ()
    for container in (*init_containers, *(status.get("containerStatuses") or ())):
        if state := (container.get("state") or {}).get(name):
            yield {**state, "image": container.get("image", "")}


def _explain_waiting(pod: Object, events: Objects) -> Iterator[Explanation]:
    """Explain a pod whose container cannot start, such as for its image."""
    for state in _container_states(pod, "waiting"):
        reason = state.get("reason", "")
        if reason in {"", "ContainerCreating", "PodInitializing"}:
            continue  # as every container waits at first
        message = _image_failure(state, events) if "Image" in reason else _reason_and_message(state)
        yield explain("waiting", _subject(pod), message)


def _image_failure(state: Object, events: Objects) -> str:
    """Return why an image cannot be pulled, as the registry says.

    A back-off drops the registry's answer; the event of the last attempt keeps it, and reads the
    same.
    """
    messages = [str(event.get("message")) for event in events]
    attempts = [message for message in messages if "Failed to pull image" in message]
    message = attempts[-1] if attempts else state.get("message") or ""
    answer = _BEFORE_ANSWER.sub("", _in_one_line(message))
    reason = "ErrImagePull" if state["reason"] == "ImagePullBackOff" else state["reason"]
    return f"{reason}: {state['image']}: {answer}"


def _explain_unscheduled(pod: Object, events: Objects) -> Iterator[Explanation]:
    """Explain a pod without a node, by its condition or else by events, the last one first."""
    if node_of(pod):
        return
    conditions = status_of(pod).get("conditions") or ()
    failures = (event for event in reversed(events) if event.get("reason") == "FailedScheduling")
    for statement in chain(filter(_is_unscheduled, conditions), failures):
        # That preempting other pods would not help says nothing more.
        message = str(statement.get("message") or "")
        reason = _PREEMPTION.sub("", message)
        if reason:
            yield explain("unscheduled", f"{_subject(pod)} cannot be scheduled", reason)


def _is_unscheduled(condition: Object) -> bool:
    return condition.get("type") == "PodScheduled" and condition.get("status") == "False"


def _explain_setup(pod: Object, events: Objects) -> Iterator[Explanation]:
    """Explain a pod that has a node and no container yet, by its last event; neither is final."""
    status = status_of(pod)
    if status.get("phase") != "Pending" or not events:
        return
    last = events[-1]
    if last.get("reason") in {"FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"}:
        yield explain("setup", _subject(pod), _reason_and_message(last))
    elif last.get("reason") == "Pulling":
        yield explain("pulling", _subject(pod), last.get("message") or "")


def _events_of(events: Iterable[Object], thing: Object, *, reverse: bool = False) -> list[Object]:
    """Return the events of an object by time, the last one at the end; `reverse`: first."""
    uid = meta_of(thing).get("uid")
    subjects = ((event.get("involvedObject") or {}, event) for event in events)
    of_thing = [event for subject, event in subjects if subject.get("uid") == uid]
    return sorted(of_thing, key=_last_seen, reverse=reverse)


def _last_seen(event: Object) -> str:
    """Return when an event last happened; times of the API sort as text."""
    series = event.get("series") or {}
    meta = meta_of(event)
    times = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        meta.get("creationTimestamp"),
    )
    return str(next(filter(None, times), ""))
