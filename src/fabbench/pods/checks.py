"""What is wrong with a cluster's nodes, from what the API says of them, and what to do about it. Pure.

Sources of the thresholds: the catalogue (fabbench.instances); AWS's page on HyperPod's node labels.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from fabbench.check import Check, Status
from fabbench.instances import efa_reaches
from fabbench.pods.nodes import Node, fabric_name
from fabbench.pods.profiles import PROFILES

TOLERATED = ("nvidia.com/gpu", "vpc.amazonaws.com/efa", "aws.amazon.com/efa")
"""Taints that fabbench's pods tolerate without being told: they are there to keep other pods away."""

KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})
_PLUGIN = PROFILES[0].plugin


def check_nodes(nodes: Sequence[Node]) -> tuple[Check, ...]:
    """Check nodes, each by itself and then against each other."""
    return (*(check for node in nodes for check in _own(node)), *_types(nodes), *_zones(nodes))


def _own(node: Node) -> Iterator[Check]:
    yield _ready(node)
    yield _health(node)
    yield _taints(node)
    yield _fabric(node)
    yield _gpus(node)
    yield _huge_pages(node)
    yield _free(node)


def _check(node: Node, name: str, status: Status, seen: str, advice: str = "") -> Check:
    return Check(host=node.name, name=name, status=status, seen=seen, advice=advice)


def _ready(node: Node) -> Check:
    name = "ready"
    if not node.ready:
        advice = "See the node's events (kubectl describe node), or leave it out."
        return _check(node, name, Status.FAIL, f"Not ready: {node.why_not.rstrip('.')}.", advice)
    if node.unschedulable:
        advice = "It takes no new pods: kubectl uncordon it when its maintenance is over."
        return _check(node, name, Status.FAIL, "Ready, and cordoned.", advice)
    return _check(node, name, Status.PASS, f"Ready: kubelet {node.kubelet}, {node.runtime}.")


def _health(node: Node) -> Check:
    name = "health labels"
    if not node.health and not node.deep_health:
        advice = "Nothing to do: HyperPod labels its nodes, others do not."
        return _check(node, name, Status.SKIP, "There are no health labels.", advice)
    told = {"node-health-status": node.health, "deep-health-check-status": node.deep_health}
    seen = ", ".join(f"{key} {value}" for key, value in told.items() if value) + "."
    if node.health not in {"", "Schedulable"}:
        advice = "HyperPod found it unhealthy, and will reboot or replace it: leave it out until then."
        return _check(node, name, Status.FAIL, seen, advice)
    if node.deep_health not in {"", "Passed"}:
        advice = "Its deep health check has not passed: see it through, or measure other nodes."
        return _check(node, name, Status.WARN, seen, advice)
    return _check(node, name, Status.PASS, seen)


def _taints(node: Node) -> Check:
    name = "taints"
    away = [taint for taint in node.taints if taint.effect in KEEPS_AWAY and not _known(taint.key)]
    others = ", ".join(str(taint) for taint in node.taints if taint not in away)
    if away:
        advice = "Tolerate them with --toleration KEY, if the nodes are meant for this; or name other nodes."
        return _check(node, name, Status.WARN, f"Pods are kept away: {', '.join(map(str, away))}.", advice)
    return _check(node, name, Status.PASS, f"Tolerated: {others}." if others else "None.")


def _known(key: str) -> bool:
    """Whether fabbench's pods tolerate a taint, or another check speaks of it."""
    return key in TOLERATED or key.startswith("node.kubernetes.io/")


def _fabric(node: Node) -> Check:
    name, entry = "fabric devices", node.entry
    usual = f"; a {entry.instance_type} has {' or '.join(map(str, entry.efa_counts))} EFA" if entry else ""
    if not node.resource:
        if entry is None:
            advice = "Nothing to do, unless a fabric was meant: then see that its device plugin runs."
            return _check(node, name, Status.SKIP, "No fabric is advertised.", advice)
        advice = (
            f"Install {_PLUGIN}; where it is, see that its DaemonSet takes nodes of this type: older "
            "manifests have a list of types. EFA must also be switched on in the node group."
        )
        return _check(node, name, Status.WARN, f"No fabric is advertised{usual}.", advice)
    there, profile = node.fabric.allocatable, node.profile
    seen = f"{there} {node.resource}{usual}."
    if not there:
        plugin = profile.plugin if profile else "its device plugin"
        advice = f"No healthy device was found there: see the log of {plugin}, and that the nodes have some."
        return _check(node, name, Status.FAIL, seen, advice)
    if entry is None or fabric_name(node) != "EFA" or there in entry.efa_counts:
        return _check(node, name, Status.PASS, seen)
    if there > max(entry.efa_counts):
        advice = "See whether the node is what its label says; the catalogue may be too old."
    else:
        advice = "Give the node group all EFA interfaces, or the numbers are those of fewer."
    return _check(node, name, Status.WARN, seen, advice)


def _gpus(node: Node) -> Check:
    name, entry, there = "GPUs", node.entry, node.gpus.allocatable
    expected = entry.gpus if entry else 0
    if not there and not expected:
        return _check(node, name, Status.SKIP, "There are none.", "Nothing to do: it is no GPU node.")
    seen = f"{there} nvidia.com/gpu" + (f"; a {entry.instance_type} has {expected}." if entry else ".")
    if there < expected:
        advice = (
            "See the log of NVIDIA's device plugin there, and nvidia-smi on the node. With MIG, GPUs go by "
            "other names, and cannot be measured."
        )
        return _check(node, name, Status.FAIL if not there else Status.WARN, seen, advice)
    return _check(node, name, Status.PASS, seen)


def _huge_pages(node: Node) -> Check:
    name, profile = "huge pages", node.profile
    if profile is None or not profile.huge_pages or not node.fabric.allocatable:
        return _check(node, name, Status.SKIP, "Nothing here uses them.", "Nothing to do.")
    seen = f"{node.huge_pages.allocatable // (2 << 20)} pages of 2 MiB."
    if not node.huge_pages.allocatable:
        advice = "Pods go without: memory is registered slower. On Bottlerocket set vm.nr_hugepages."
        return _check(node, name, Status.WARN, seen, advice)
    return _check(node, name, Status.PASS, seen)


def _free(node: Node) -> Check:
    name = "free"
    amounts = {"GPUs": node.gpus, node.resource or "devices": node.fabric}
    seen = "; ".join(
        f"{amount.free} of {amount.allocatable} {what} free"
        for what, amount in amounts.items()
        if amount.allocatable
    )
    if not seen:
        return _check(node, name, Status.SKIP, "There are no devices to be free.", "Nothing to do.")
    if node.gpus.all_free and node.fabric.all_free:
        return _check(node, name, Status.PASS, f"{seen}.")
    advice = "Only nodes that are all free are measured: wait for the pods there, or end them."
    return _check(node, name, Status.WARN, f"{seen}.", advice)


def _types(nodes: Sequence[Node]) -> Iterator[Check]:
    """Check that all nodes are of one type, and note where HyperPod has another name for it."""
    counted = Counter(node.instance_type for node in nodes if node.instance_type)
    usual = counted.most_common(1)[0][0] if counted else ""
    for node in nodes:
        name, seen = "instance type", f"{node.label_type}."
        if node.hyperpod:
            seen = f"{node.label_type} (HyperPod's name of {node.instance_type})."
        if not node.label_type:
            advice = "Name nodes with --node, as nothing says which ones are alike."
            yield _check(node, name, Status.SKIP, "The node has no label of its type.", advice)
        elif node.instance_type == usual:
            yield _check(node, name, Status.PASS, seen)
        else:
            reach = efa_reaches(usual, node.instance_type) or not node.fabric.allocatable
            advice = "Measure nodes of one type: choose with --instance-type."
            more = "" if reach else " EFA of p4d, p4de and dl1 reaches only each other."
            yield _check(
                node, name, Status.WARN, f"{seen[:-1]}, while most others are {usual}.", advice + more
            )


def _zones(nodes: Sequence[Node]) -> Iterator[Check]:
    counted = Counter(node.zone for node in nodes if node.zone)
    if len(counted) < 2:
        return
    usual = counted.most_common(1)[0][0]
    for node in nodes:
        if node.zone == usual:
            yield _check(node, "zone", Status.PASS, f"{node.zone}.")
        elif not node.zone:
            yield _check(node, "zone", Status.SKIP, "The node does not say.", "See its labels.")
        else:
            advice = "Nodes of one zone are chosen: EFA does not cross zones, and TCP is slower there."
            seen = f"{node.zone}, while most others are in {usual}."
            yield _check(node, "zone", Status.WARN, seen, advice)
