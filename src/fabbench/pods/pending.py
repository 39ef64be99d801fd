"""Why a pod does not run: from its status, its events and the nodes, as they really are worded. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fabbench.pods.ended import explain_end, names
from fabbench.pods.explanation import Explanation, brief, first, words
from fabbench.pods.nodes import Node
from fabbench.pods.refused import explain_refusal
from fabbench.pods.scheduling import explain_scheduling

__all__ = ["Explanation", "explain", "explain_job", "explain_refusal"]

_IMAGE = "Name another with --image, or see that the nodes can reach its registry."
_PULLS = (
    words(
        r"couldn't parse image|InvalidImageName|invalid reference format",
        "image",
        "{image} is no name of an image.",
        "Write it as REGISTRY/NAME:TAG.",
    ),
    words(
        r"no match for platform|no matching manifest|exec format error",
        "architecture",
        "The image {image} is not there for the architecture of {node}.",
        "Name an image that is built for it, or nodes of another architecture.",
    ),
    words(
        r"toomanyrequests|\b429\b|rate limit",
        "image",
        "The registry of {image} wants fewer pulls: {said}.",
        "Wait, log in with a pull secret, or name a mirror with --image.",
        final=False,
    ),
    words(
        r"unauthorized|authentication required|no basic auth|authorization failed|denied|forbidden|"
        r"\b40[13]\b",
        "image",
        "The registry does not let {node} have {image}: {said}.",
        "Give pods a pull secret, or the nodes the right to pull. Registries say so of wrong names too.",
    ),
    words(
        r"not found|NotFound|manifest unknown|name unknown|does not exist",
        "image",
        "There is no image {image}.",
        "See its name and tag.",
    ),
    words(
        r"no space left on device",
        "disk",
        "{node} has no room for the image {image}.",
        "Make room there, or name another node.",
    ),
    words(
        r"ErrImageNeverPull",
        "image",
        "The image {image} is not on {node}, and must not be pulled.",
        "Load it there, or name another.",
    ),
    words(
        r"i/o timeout|deadline exceeded|TLS handshake|connection reset|\bEOF\b",
        "image",
        "The registry of {image} does not answer {node}: {said}.",
        _IMAGE,
        final=False,
    ),
    words(r".", "image", "The image {image} cannot be pulled: {said}.", _IMAGE),
)
_BEFORE = re.compile(
    r"(?:Failed to pull image|failed to pull and unpack image|failed to resolve (?:reference|image)) "
    r'"[^"]*": |rpc error: code = \w+ desc = '
)
_PULL_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
     "RegistryUnavailable"}
)  # fmt: skip

_WAITS = (
    words(
        r"runAsNonRoot|runAsUser",
        "policy",
        "The image {image} runs as root, which the pod's rules forbid: {said}.",
        "Name an image that does not, with --mpi-agent exec; or another namespace.",
    ),
    words(
        r"exec format error",
        "architecture",
        "The image {image} is for another architecture than {node}.",
        "Name an image that is built for it.",
    ),
    words(
        r'exec: "(?P<what>[^"]+)"|(?P<path>/\S+): no such file',
        "no-program",
        "The image {image} has no {what}{path}.",
        "Name an image that has it, with --image.",
    ),
    words(r".", "start", "The container cannot be made on {node}: {said}.", "See the node's events."),
)
_WAIT_REASONS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError",
     "PostStartHookError", "CrashLoopBackOff"}
)  # fmt: skip

_SETUP = (
    words(
        r'secret "(?P<secret>[^"]+)" not found',
        "secret",
        "The pod {pod} waits for the secret {secret}, which is not there.",
        "It is made right after the Job: if this lasts, end the run, and see fabbench clean.",
        final=False,
    ),
    words(
        r"failed to assign an IP address|no available IP|IPAM|insufficient IPs?|ENI limit",
        "addresses",
        "{node} has no IP address for the pod {pod}: {said}.",
        "The subnet is full, or the node's interfaces are: see the VPC CNI, and use a larger subnet.",
        final=False,
    ),
    words(
        r"RuntimeHandler|runtime handler",
        "start",
        "{node} does not know the pod's runtime class: {said}.",
        "Leave the runtime class out, or name other nodes.",
    ),
    words(r".", "setup", "The pod {pod} cannot be set up on {node}: {said}.", "See the node.", final=False),
)


def explain(
    pod: Mapping[str, Any], events: Iterable[Mapping[str, Any]] = (), nodes: Sequence[Node] = ()
) -> Explanation | None:
    """Explain why a pod does not run; None where nothing is the matter, or nothing is known yet.

    `events` may be of other objects too. `nodes` are the cluster's, with what is free on them.
    """
    own = sorted((event for event in events if _about(event, pod)), key=_time)
    return next(_explanations(pod, own, nodes), None)


def explain_job(job: Mapping[str, Any], events: Iterable[Mapping[str, Any]] = ()) -> Explanation | None:
    """Explain why a Job has no pods, or has failed."""
    name = (job.get("metadata") or {}).get("name", "")
    own = sorted((event for event in events if _about(event, job)), key=_time, reverse=True)
    for event in own:
        if event.get("reason") == "FailedCreate":
            said = event.get("message") or ""
            other = Explanation(
                code="forbidden", text=f"No pod can be made: {brief(said)}.", advice="See the Job."
            )
            return explain_refusal(said) or other
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Failed" and condition.get("status") == "True":
            if condition.get("reason") == "DeadlineExceeded":
                text = f"The Job {name} was ended at its deadline."
                return Explanation(code="deadline", text=text, advice="Give it more time, or measure less.")
            text = f"The Job {name} has failed: {brief(condition.get('message') or '')}."
            return Explanation(code="ended", text=text, advice="See its pods.")
    return None


def _explanations(
    pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]], nodes: Sequence[Node]
) -> Iterator[Explanation]:
    known = names(pod)
    if ended := explain_end(pod):
        yield ended
    yield from _lost(pod, nodes, known)
    yield from _waiting(pod, events, known)
    yield from _unscheduled(pod, events, nodes)
    yield from _setup(pod, events, known)


def _lost(pod: Mapping[str, Any], nodes: Sequence[Node], known: Mapping[str, str]) -> Iterator[Explanation]:
    on = (pod.get("spec") or {}).get("nodeName")
    node = next((each for each in nodes if each.name == on), None)
    if on and nodes and node is None:
        text = f"{on}, where the pod {known['pod']} is, is gone from the cluster."
        yield Explanation(code="node-lost", text=text, advice="Measure without it.")
    elif node and not node.ready:
        text = f"{on}, where the pod {known['pod']} is, is not ready: {brief(node.why_not)}."
        yield Explanation(code="node-lost", text=text, advice="See the node, and measure without it.")
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        text = f"The pod {known['pod']} is being deleted."
        advice = "Somebody or something deleted it: see the events of the Job and of the node."
        yield Explanation(code="deleted", text=text, advice=advice)


def _waiting(
    pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]], known: Mapping[str, str]
) -> Iterator[Explanation]:
    status = pod.get("status") or {}
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        state = (container.get("state") or {}).get("waiting") or {}
        reason, said = state.get("reason", ""), state.get("message") or ""
        about = {**known, "image": container.get("image") or known["image"]}
        if reason in _PULL_REASONS:
            # A back-off forgets what the registry said; the event of the last try does not.
            tries = [_message(event) for event in events if "Failed to pull image" in _message(event)]
            found = first(_PULLS, f"{reason}: {_cause(tries[-1] if tries else said)}", **about)
        elif reason in _WAIT_REASONS:
            found = first(_WAITS, f"{reason}: {said}", **about)
        else:
            found = None
        if found:
            yield found


def _cause(said: str) -> str:
    """Leave out what containerd and the kubelet put in front of a registry's answer, image names and all."""
    return _BEFORE.sub("", " ".join(said.split()))


def _unscheduled(
    pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]], nodes: Sequence[Node]
) -> Iterator[Explanation]:
    if (pod.get("spec") or {}).get("nodeName"):
        return
    said = [_message(event) for event in reversed(events) if event.get("reason") == "FailedScheduling"]
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            said.insert(0, condition.get("message") or "")
    for message in said:
        if found := explain_scheduling(pod, message, nodes):
            yield found


def _setup(
    pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]], known: Mapping[str, str]
) -> Iterator[Explanation]:
    """Explain a pod that has a node and no container yet."""
    if (pod.get("status") or {}).get("phase") != "Pending" or not events:
        return
    last = events[-1]
    if last.get("reason") in {"FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"}:
        found = first(_SETUP, _message(last), **known)
        if found:
            yield found
    elif last.get("reason") == "Pulling":
        text = f"The image {known['image']} is being pulled on {known['node']}."
        yield Explanation(code="pulling", text=text, advice="A large image takes minutes.", final=False)


def _about(event: Mapping[str, Any], thing: Mapping[str, Any]) -> bool:
    """Whether an event is of an object: by its uid, else by its name."""
    of = event.get("involvedObject") or event.get("regarding") or {}
    meta = thing.get("metadata") or {}
    if of.get("uid") and meta.get("uid"):
        return bool(of["uid"] == meta["uid"])
    return bool(of.get("name", meta.get("name")) == meta.get("name"))


def _time(event: Mapping[str, Any]) -> str:
    """Give when an event last happened; times of the API sort as text."""
    series = event.get("series") or {}
    told = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(told or (event.get("metadata") or {}).get("creationTimestamp") or "")


def _message(event: Mapping[str, Any]) -> str:
    return str(event.get("message") or event.get("note") or "")
