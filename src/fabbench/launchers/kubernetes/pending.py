"""Why a pod does not run, from its status, its events and the nodes. Pure.

The scheduler's wordings are in k8s.io/kubernetes/pkg/scheduler/framework (``0/3 nodes are available: 1
Insufficient cpu, …``).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from fabbench.catalog.cluster_profiles import profile_for
from fabbench.catalog.kubernetes_resources import GPU, HUGE_PAGES
from fabbench.launchers import Explanation, match_message, pattern, shorten
from fabbench.launchers.kubernetes.nodes import Amount, Node, requests
from fabbench.launchers.kubernetes.terminated import STARTS, explain_end, explain_refusal, names
from fabbench.model.fabrics import natural_order
from fabbench.model.messages import counted

NODE_NOT_READY = "node-not-ready"  # The code of the explanation that a pod's node is not ready: it may be again
_AVAILABLE = re.compile(r"(?P<none>\d+)/(?P<all>\d+) nodes are available: (?P<reasons>.*)", re.DOTALL)
_REASON = re.compile(r"(?P<count>\d+) (?P<what>.+?)(?=, \d+ |$)", re.DOTALL)
_TAINT = re.compile(r"\{([^{}]*)\}")
_NAMED = 4
_UNSCHEDULABLE = (
    pattern(r"anti-affinity", "too-few-nodes", "",
        "Each pod needs a node of its own: use fewer nodes, or wait until another pod of this run is gone."),
    pattern(r"free ports", "port", "",
        "With --host-network only one pod per node can use the port: wait for the other to finish."),
    pattern(r"node\.kubernetes\.io/unschedulable|were unschedulable", "cordoned", "",
        "Uncordon the nodes, or choose others."),
    pattern(r"node\.kubernetes\.io/|sagemaker\.amazonaws\.com/", "node-lost", "",
        "Check the nodes (kubectl describe node): they are not ready, or short of a resource."),
    pattern(r"taint", "taints", "",
        "fabbench check lists the taints: tolerate them with --toleration, or choose other nodes."),
)  # fmt: skip
_CONDITIONS = ("node.kubernetes.io/", "sagemaker.amazonaws.com/")  # Taints of unhealthy nodes, never to be tolerated


def explain_scheduling(pod: Mapping[str, Any], message: str, nodes: Sequence[Node] = ()) -> Explanation | None:
    """Explain a message of the scheduler. `nodes` are the cluster's, with what is free there."""
    name = (pod.get("metadata") or {}).get("name", "")
    if "no nodes available to schedule pods" in message:
        text = f"The pod {name} cannot be scheduled: the cluster has no nodes."
        return Explanation(code="no-node", text=text, advice="Add nodes, or wait for the autoscaler.", final=False)
    reasons = list(_reasons(message))
    if not reasons:
        return None
    lacking = [what.removeprefix("Insufficient ") for _, what in reasons if what.startswith("Insufficient ")]
    if lacking:
        # The fabric first, then GPUs.
        lacking.sort(key=lambda name: (0 if profile_for(name) else 1 if name == GPU else 2, name))
        return _insufficient(pod, lacking, reasons, nodes)
    return _unschedulable(name, reasons)


def _reasons(message: str) -> Iterator[tuple[int, str]]:
    match = _AVAILABLE.search(message)
    if match is None:
        return
    text = re.split(r"\.? preemption: |\. ", match["reasons"], maxsplit=1)[0].strip().rstrip(".")
    for reason in _REASON.finditer(text):
        yield int(reason["count"]), reason["what"].strip()


def _insufficient(
    pod: Mapping[str, Any], lacking: Sequence[str], reasons: Sequence[tuple[int, str]], nodes: Sequence[Node]
) -> Explanation:
    meta, requested = pod.get("metadata") or {}, requests(pod)
    candidates = _candidates(pod, nodes)
    texts, final = [], False
    for resource in lacking:
        needed = requested.get(resource, 0)
        amounts = {node.name: _amount(node, resource) for node in candidates}
        highest = max((amount.allocatable for amount in amounts.values()), default=0)
        final = final or bool(candidates and needed > highest)
        texts.append(_sentence(resource, needed, amounts, reasons))
    advice = "Other pods use them: wait until they finish, or choose other nodes."
    if final:
        advice = "No node has that many: choose other nodes or another type, or check that the device plugin runs."
    text = f"The pod {meta.get('name', '')} waits. {' '.join(texts)}"
    return Explanation(code="insufficient", text=text, advice=advice, final=final)


def _sentence(resource: str, needed: int, amounts: Mapping[str, Amount], reasons: Sequence[tuple[int, str]]) -> str:
    start = f"{resource}: {_quantity(resource, needed)} requested"
    if not amounts:
        count = next(count for count, what in reasons if what == f"Insufficient {resource}")
        return f"{start}, and {count} {'node has' if count == 1 else 'nodes have'} less free."
    short = {name: amount for name, amount in amounts.items() if amount.free < needed} or amounts
    names = sorted(short, key=natural_order)
    shown = [f"{_free(resource, short[name])} on {name}" for name in names[:_NAMED]]
    more = [f"and {len(names) - _NAMED} more nodes"] if len(names) > _NAMED else []
    return f"{start}, {', '.join([*shown, *more])}."


def _free(resource: str, amount: Amount) -> str:
    total = _quantity(resource, amount.allocatable)
    free = _quantity(resource, amount.free)
    return f"{free} of {total} free" if amount.known else f"some of {total} in use"


def _candidates(pod: Mapping[str, Any], nodes: Sequence[Node]) -> Sequence[Node]:
    affinity = ((pod.get("spec") or {}).get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or ()
    for expression in chain.from_iterable(term.get("matchExpressions") or () for term in terms):
        if expression.get("operator") == "In":
            nodes = [node for node in nodes if node.labels.get(expression["key"]) in expression.get("values", ())]
    return nodes


def _amount(node: Node, resource: str) -> Amount:
    known = {GPU: node.gpus, HUGE_PAGES: node.huge_pages, "memory": node.memory, "cpu": node.cpus}
    return node.fabric if resource == node.resource else known.get(resource, Amount())


def _quantity(resource: str, number: int) -> str:
    if resource == "cpu":
        return f"{number / 1000:g}"
    if resource == "memory" or resource.startswith(("hugepages-", "ephemeral-storage")):
        return f"{number / (1 << 30):.3g} GiB"
    return str(number)


def _unschedulable(name: str, reasons: Sequence[tuple[int, str]]) -> Explanation:
    """Explain a pod that fits, but that the nodes do not admit."""
    summary = "; ".join(f"{counted(count, 'node')}: {what.removeprefix('node(s) ')}" for count, what in reasons)
    text = f"The pod {name} cannot be scheduled. {shorten(summary)}."
    taints = [key.partition(":")[0].strip() for key in _TAINT.findall(summary)]
    tolerable = dict.fromkeys(key for key in taints if not key.startswith(_CONDITIONS))
    if tolerable:
        flags = " ".join(f"--toleration {key}" for key in tolerable)
        advice = f"If the nodes are meant for this, tolerate their taints: {flags}."
        return Explanation(code="taints", text=text, advice=advice)
    found = match_message(_UNSCHEDULABLE, summary)
    advice = "The chosen nodes are gone or have other labels: run fabbench check, and choose others."
    return Explanation(
        code=found.code if found else "no-node", text=text, advice=found.advice if found else advice, final=False
    )


_IMAGE = "Pass another image with --image, or check that the nodes can reach its registry."
_PULLS = (
    pattern(r"couldn't parse image|InvalidImageName|invalid reference format", "image",
        "Invalid image reference: {image}.", "Use REGISTRY/NAME:TAG."),
    pattern(r"no match for platform|no matching manifest|exec format error", "architecture",
        "The image {image} is not available for the architecture of {node}.",
        "Use an image built for it, or nodes of another architecture."),
    pattern(r"toomanyrequests|\b429\b|rate limit", "image",
        "Registry rate limit for {image}: {message}.",
        "Wait, or pass a pull secret with --pull-secret or a mirror with --image.", final=False),
    pattern(r"unauthorized|authentication required|no basic auth|authorization failed|denied|forbidden|"
        r"\b40[13]\b", "image",
        "Image pull denied on {node} for {image}: {message}.",
        "Pass a pull secret (--pull-secret), or let the nodes pull. Registries report misspelled names this way too."),
    pattern(r"not found|NotFound|manifest unknown|name unknown|does not exist", "image",
        "Image not found: {image}.", "Check its name and tag."),
    pattern(r"no space left on device", "disk",
        "{node} has no space left for the image {image}.", "Free some space there, or choose another node."),
    pattern(r"ErrImageNeverPull", "image",
        "The image {image} is not on {node}, and its pull policy is Never.", "Load it there, or use another."),
    pattern(r"i/o timeout|deadline exceeded|TLS handshake|connection reset|\bEOF\b", "image",
        "The registry of {image} does not answer {node}: {message}.", _IMAGE, final=False),
    pattern(r".", "image", "The image {image} cannot be pulled: {message}.", _IMAGE),
)  # fmt: skip
_BEFORE = re.compile(
    r"(?:Failed to pull image|failed to pull and unpack image|failed to resolve (?:reference|image)) "
    r'"[^"]*": |rpc error: code = \w+ desc = '
)
_PULL_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
     "RegistryUnavailable"}
)  # fmt: skip

_WAITS = (
    pattern(r"runAsNonRoot|runAsUser", "policy",
        "The image {image} runs as root, which the pod's rules forbid: {message}.",
        "Use an image that does not, with --mpi-agent exec, or another namespace."),
    *STARTS,
    pattern(r".", "start", "The container cannot be created on {node}: {message}.", "Check the node's events."),
)  # fmt: skip
_WAIT_REASONS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError",
     "PostStartHookError", "CrashLoopBackOff"}
)  # fmt: skip

_SETUP = (
    pattern(r'secret "(?P<secret>[^"]+)" not found', "secret",
        "The pod {pod} waits for the secret {secret}, which does not exist.",
        "It is created right after the Job: if this persists, stop the run and run fabbench clean.", final=False),
    pattern(r"failed to assign an IP address|no available IP|IPAM|insufficient IPs?|ENI limit", "addresses",
        "{node} has no IP address for the pod {pod}: {message}.",
        "The subnet or the node's interfaces are full: check the VPC CNI, and use a larger subnet.", final=False),
    pattern(r"RuntimeHandler|runtime handler", "start",
        "{node} does not know the pod's runtime class: {message}.",
        "Pass another with --runtime-class, drop it, or choose other nodes."),
    pattern(r".", "setup", "The pod {pod} cannot be set up on {node}: {message}.", "Check the node.", final=False),
)  # fmt: skip


def explain_pod(
    pod: Mapping[str, Any], events: Iterable[Mapping[str, Any]] = (), nodes: Sequence[Node] = ()
) -> Explanation | None:
    """Explain why a pod does not run; None: nothing is wrong or known yet. `events` may include other objects'."""
    pod_events = sorted((event for event in events if _concerns(event, pod)), key=_time)
    return next(_explanations(pod, pod_events, nodes), None)


def explain_job(job: Mapping[str, Any], events: Iterable[Mapping[str, Any]] = ()) -> Explanation | None:
    """Explain why a Job has no pods, or has failed."""
    name = (job.get("metadata") or {}).get("name", "")
    job_events = sorted((event for event in events if _concerns(event, job)), key=_time, reverse=True)
    for event in job_events:
        if event.get("reason") == "FailedCreate":
            message = event.get("message") or ""
            found = explain_refusal(message)
            if found is not None and found.code != "rights":
                return found
            # The Job controller tries again: an API server that has just restarted does not know its rights yet.
            text = f"No pod was created yet: {shorten(message)}."
            return Explanation(code="create", text=text, advice="Check the Job.", final=False)
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Failed" and condition.get("status") == "True":
            if condition.get("reason") == "DeadlineExceeded":
                text = f"The Job {name} hit its deadline."
                return Explanation(code="deadline", text=text, advice="Give it more time, or measure less.")
            text = f"The Job {name} has failed: {shorten(condition.get('message') or '')}."
            return Explanation(code="ended", text=text, advice="Check its pods.")
    return None


def _explanations(
    pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]], nodes: Sequence[Node]
) -> Iterator[Explanation]:
    known = names(pod)
    if ended := explain_end(pod, events):
        yield ended
    yield from _lost(pod, nodes, known)
    yield from _waiting(pod, events, known)
    yield from _unscheduled(pod, events, nodes)
    yield from _setup(pod, events, known)


def _lost(pod: Mapping[str, Any], nodes: Sequence[Node], known: Mapping[str, str]) -> Iterator[Explanation]:
    name = (pod.get("spec") or {}).get("nodeName")
    node = next((each for each in nodes if each.name == name), None)
    if name and nodes and node is None:
        text = f"{name}, the node of the pod {known['pod']}, is gone from the cluster."
        yield Explanation(code="node-lost", text=text, advice="Measure without it.")
    elif node and not node.ready:
        text = f"{name}, the node of the pod {known['pod']}, is not ready: {shorten(node.why_not)}."
        yield Explanation(code=NODE_NOT_READY, text=text, advice="Check the node, and measure without it.")
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        text = f"The pod {known['pod']} is being deleted."
        advice = "It was deleted from outside: check the events of the Job and of the node."
        yield Explanation(code="deleted", text=text, advice=advice)


def _waiting(
    pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]], known: Mapping[str, str]
) -> Iterator[Explanation]:
    status = pod.get("status") or {}
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        state = (container.get("state") or {}).get("waiting") or {}
        reason, message = state.get("reason", ""), state.get("message") or ""
        details = {**known, "image": container.get("image") or known["image"]}
        if reason in _PULL_REASONS:
            # A back-off drops the registry's answer; the event of the last attempt keeps it.
            attempts = [_message(event) for event in events if "Failed to pull image" in _message(event)]
            # Without what containerd and the kubelet prepend, including image names.
            cause = _BEFORE.sub("", " ".join((attempts[-1] if attempts else message).split()))
            found = match_message(_PULLS, f"{reason}: {cause}", **details)
        elif reason in _WAIT_REASONS:
            found = match_message(_WAITS, f"{reason}: {message}", **details)
        else:
            found = None
        if found:
            yield found


def _unscheduled(
    pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]], nodes: Sequence[Node]
) -> Iterator[Explanation]:
    if (pod.get("spec") or {}).get("nodeName"):
        return
    messages = [_message(event) for event in reversed(events) if event.get("reason") == "FailedScheduling"]
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            messages.insert(0, condition.get("message") or "")
    for message in messages:
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
        found = match_message(_SETUP, _message(last), **known)
        if found:
            yield found
    elif last.get("reason") == "Pulling":
        text = f"The image {known['image']} is being pulled on {known['node']}."
        yield Explanation(code="pulling", text=text, advice="A large image takes minutes.", final=False)


def _concerns(event: Mapping[str, Any], thing: Mapping[str, Any]) -> bool:
    """Return whether an event is about an object, by uid or else by name."""
    involved = event.get("involvedObject") or event.get("regarding") or {}
    meta = thing.get("metadata") or {}
    if involved.get("uid") and meta.get("uid"):
        return bool(involved["uid"] == meta["uid"])
    return bool(involved.get("name", meta.get("name")) == meta.get("name"))


def _time(event: Mapping[str, Any]) -> str:
    """Return when an event last happened; times of the API sort as text."""
    series = event.get("series") or {}
    when = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(when or (event.get("metadata") or {}).get("creationTimestamp") or "")


def _message(event: Mapping[str, Any]) -> str:
    return str(event.get("message") or event.get("note") or "")
