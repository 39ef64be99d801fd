"""A cluster's nodes as a table, and what is wrong with them, from the API's data. Pure.

Sources of the thresholds: the catalog (fabbench.catalog.instances); AWS's page on HyperPod's node labels.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fabbench.catalog.cluster_profiles import EFA, PROFILES
from fabbench.catalog.instances import efa_reaches
from fabbench.hosts.check import Check, Status
from fabbench.launchers.kubernetes.nodes import Amount, Node, Taint, fabric_name
from fabbench.launchers.pod_options import Toleration, default_tolerations
from fabbench.report.table import Overview, Table

KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})
_PLUGIN = PROFILES[0].plugin
_DEFAULT_TOLERATIONS = default_tolerations()


def check_nodes(nodes: Sequence[Node], tolerations: Sequence[Toleration] = _DEFAULT_TOLERATIONS) -> tuple[Check, ...]:
    """Check nodes, each by itself and then against each other. `tolerations` are those of the pods."""
    checks: list[Check] = []
    for node in nodes:
        checks += (_ready(node), _health(node), _taints(node, tolerations), _fabric(node))
        checks += (_gpus(node), _huge_pages(node), _free(node))
    return (*checks, *_types(nodes), *_zones(nodes))


def _check(node: Node, name: str, status: Status, seen: str, advice: str = "") -> Check:
    return Check(host=node.name, name=name, status=status, seen=seen, advice=advice)


def _ready(node: Node) -> Check:
    name = "ready"
    if not node.ready:
        advice = "Check the node's events (kubectl describe node), or leave it out."
        return _check(node, name, Status.FAIL, f"Not ready: {node.why_not.rstrip('.')}.", advice)
    if node.unschedulable:
        advice = "It accepts no new pods: run kubectl uncordon when its maintenance is over."
        return _check(node, name, Status.FAIL, "Ready, and cordoned.", advice)
    return _check(node, name, Status.PASS, f"Ready: kubelet {node.kubelet}, {node.runtime}.")


def _health(node: Node) -> Check:
    name = "health labels"
    if not node.health and not node.deep_health:
        advice = "Nothing to do: only HyperPod sets health labels."
        return _check(node, name, Status.SKIP, "No health labels.", advice)
    labels = {"node-health-status": node.health, "deep-health-check-status": node.deep_health}
    seen = ", ".join(f"{key} {value}" for key, value in labels.items() if value) + "."
    if node.health not in {"", "Schedulable"}:
        advice = "HyperPod marked it unhealthy and will reboot or replace it: leave it out until then."
        return _check(node, name, Status.FAIL, seen, advice)
    if node.deep_health not in {"", "Passed"}:
        advice = "Its deep health check has not passed: wait for it, or measure other nodes."
        return _check(node, name, Status.WARN, seen, advice)
    return _check(node, name, Status.PASS, seen)


def _taints(node: Node, tolerations: Sequence[Toleration]) -> Check:
    name = "taints"

    def known(taint: Taint) -> bool:  # pods tolerate it, or another check covers it
        return taint.key.startswith("node.kubernetes.io/") or any(each.covers(*taint) for each in tolerations)

    repelling = [taint for taint in node.taints if taint.effect in KEEPS_AWAY and not known(taint)]
    others = ", ".join(str(taint) for taint in node.taints if taint not in repelling)
    if repelling:
        advice = "If the nodes are meant for this, pass --toleration KEY; otherwise choose other nodes."
        seen = f"Taints keep pods away: {', '.join(map(str, repelling))}."
        return _check(node, name, Status.WARN, seen, advice)
    return _check(node, name, Status.PASS, f"Tolerated: {others}." if others else "None.")


def _fabric(node: Node) -> Check:
    name, entry = "fabric devices", node.entry
    expected = f"; a {entry.instance_type} has {' or '.join(map(str, entry.efa_counts))} EFA" if entry else ""
    if not node.resource:
        if entry is None:
            advice = "Nothing to do unless you expect a fabric; then check that its device plugin runs."
            return _check(node, name, Status.SKIP, "The node advertises no fabric.", advice)
        advice = (
            f"Install {_PLUGIN}. If it is installed, check that its DaemonSet covers this instance "
            "type: older manifests list the types. EFA must also be enabled in the node group."
        )
        return _check(node, name, Status.WARN, f"The node advertises no fabric{expected}.", advice)
    count, profile = node.fabric.allocatable, node.profile
    seen = f"{count} {node.resource}{expected}."
    if not count:
        plugin = profile.plugin if profile else "its device plugin"
        advice = f"No healthy device was found there: check the log of {plugin}, and that the nodes have devices."
        return _check(node, name, Status.FAIL, seen, advice)
    if entry is None or fabric_name(node) != "EFA" or count in entry.efa_counts:
        return _check(node, name, Status.PASS, seen)
    if count > max(entry.efa_counts):
        advice = "Check the node's instance type label; the catalog may be out of date."
    else:
        advice = "Give the node group all EFA interfaces; otherwise you measure fewer."
    return _check(node, name, Status.WARN, seen, advice)


def _gpus(node: Node) -> Check:
    name, entry, count = "GPUs", node.entry, node.gpus.allocatable
    expected = entry.gpus if entry else 0
    if not count and not expected:
        return _check(node, name, Status.SKIP, "None.", "Nothing to do: not a GPU node.")
    seen = f"{count} nvidia.com/gpu" + (f"; a {entry.instance_type} has {expected}." if entry else ".")
    if count < expected:
        advice = (
            "Check the log of NVIDIA's device plugin and nvidia-smi on the node. With MIG, GPUs have "
            "other resource names and cannot be measured."
        )
        return _check(node, name, Status.FAIL if not count else Status.WARN, seen, advice)
    return _check(node, name, Status.PASS, seen)


def _huge_pages(node: Node) -> Check:
    name, profile = "huge pages", node.profile
    if profile is None or not profile.huge_pages or not node.fabric.allocatable:
        return _check(node, name, Status.SKIP, "Not used here.", "Nothing to do.")
    seen = f"{node.huge_pages.allocatable // (2 << 20)} pages of 2 MiB."
    if not node.huge_pages.allocatable:
        advice = "Pods run without huge pages: memory registration is slower. On Bottlerocket set vm.nr_hugepages."
        return _check(node, name, Status.WARN, seen, advice)
    return _check(node, name, Status.PASS, seen)


def _free(node: Node) -> Check:
    name = "free"
    amounts = {"GPUs": node.gpus, node.resource or "devices": node.fabric}
    seen = "; ".join(
        f"{amount.free} of {amount.allocatable} {what} free" for what, amount in amounts.items() if amount.allocatable
    )
    if not seen:
        return _check(node, name, Status.SKIP, "No devices.", "Nothing to do.")
    if node.gpus.all_free and node.fabric.all_free:
        if node.gpus.known and node.fabric.known:
            return _check(node, name, Status.PASS, f"{seen}.")
        totals = (f"{amount.allocatable} {what}" for what, amount in amounts.items() if amount.allocatable)
        advice = "Runs choose nodes by their capacity, and wait if others use them (rbac-optional.yaml)."
        return _check(node, name, Status.SKIP, f"{'; '.join(totals)}; usage by others is unknown.", advice)
    advice = "Only fully free nodes are measured: wait for the pods there, or delete them."
    return _check(node, name, Status.WARN, f"{seen}.", advice)


def _types(nodes: Sequence[Node]) -> Iterator[Check]:
    """Check that all nodes are of one type, and note HyperPod's name for it if it differs."""
    counted = Counter(node.instance_type for node in nodes if node.instance_type)
    common = counted.most_common(1)[0][0] if counted else ""
    for node in nodes:
        name, seen = "instance type", f"{node.label_type}."
        if node.hyperpod:
            seen = f"{node.label_type} (HyperPod's name of {node.instance_type})."
        if not node.label_type:
            advice = "Choose nodes with --host: their instance types are unknown."
            yield _check(node, name, Status.SKIP, "The node has no instance type label.", advice)
        elif node.instance_type == common:
            yield _check(node, name, Status.PASS, seen)
        else:
            reachable = efa_reaches(common, node.instance_type) or not node.fabric.allocatable
            advice = "Measure nodes of the same type: choose with --instance-type."
            more = "" if reachable else " EFA on p4d, p4de and dl1 connects only to the same type."
            yield _check(node, name, Status.WARN, f"{seen[:-1]}, while most others are {common}.", advice + more)


def _zones(nodes: Sequence[Node]) -> Iterator[Check]:
    counted = Counter(node.zone for node in nodes if node.zone)
    if len(counted) < 2:
        return
    common = counted.most_common(1)[0][0]
    for node in nodes:
        if node.zone == common:
            yield _check(node, "zone", Status.PASS, f"{node.zone}.")
        elif not node.zone:
            yield _check(node, "zone", Status.SKIP, "Unknown.", "Check its labels.")
        else:
            advice = "Runs use nodes of one zone: EFA does not cross zones, and TCP is slower across them."
            seen = f"{node.zone}, while most others are in {common}."
            yield _check(node, "zone", Status.WARN, seen, advice)


def nodes_overview(nodes: Sequence[Node]) -> tuple[Overview, ...]:
    """Return the nodes as a table, like the guides' custom-columns and more; nothing for no nodes."""
    return (nodes_table(nodes),) if nodes else ()


def nodes_table(nodes: Sequence[Node]) -> Overview:
    """Return the nodes as a table: a row per node, in the given order."""
    resources = sorted({node.resource for node in nodes if node.resource})
    fabric = "EFA" if set(resources) <= {EFA} else "FABRIC"
    notes = ["GPU and " + fabric + ": free/allocatable."]
    if fabric != "EFA":
        notes.append(f"FABRIC: {', '.join(resources)}.")
    header = ("NAME", "INSTANCE-TYPE", "GPU", fabric, "ZONE", "LAYER", "HEALTH")
    table = Table(header=header, rows=[_row(node) for node in nodes], align="llrrlll", notes=notes)
    return Overview(name="nodes", table=table, records=[_record(node) for node in nodes])


def _health_summary(node: Node) -> str:
    """Return ``ok`` if a node accepts pods, else everything that is wrong."""
    words = [] if node.ready else ["not ready"]
    words += ["cordoned"] if node.unschedulable else []
    words += [node.health] if node.health not in {"", "Schedulable"} else []
    words += [f"deep check {node.deep_health}"] if node.deep_health not in {"", "Passed"} else []
    return ", ".join(words) or "ok"


def _record(node: Node) -> dict[str, object]:
    return {
        "name": node.name,
        "instance_type": node.label_type,
        "arch": node.arch,
        "gpus": _amount(node.gpus),
        "fabric": {"resource": node.resource, **_amount(node.fabric)},
        "zone": node.zone,
        "layers": list(node.layers),
        "ultraserver": node.ultraserver,
        "health": _health_summary(node),
        "taints": [str(taint) for taint in node.taints],
    }


def _amount(amount: Amount) -> dict[str, int | None]:
    return {"allocatable": amount.allocatable, "free": amount.free if amount.known else None}


def _row(node: Node) -> Sequence[str]:
    return (
        node.name,
        node.label_type or "-",
        str(node.gpus) if node.gpus.allocatable else "-",
        str(node.fabric) if node.resource else "-",
        node.zone or "-",
        (node.layers[-1] if node.layers else node.ultraserver) or "-",
        _health_summary(node),
    )


class Right(NamedTuple):
    """One verb on one kind of object."""

    verb: str
    resource: str  # In the plural, as RBAC writes it
    group: str = ""  # API group; empty for the core
    subresource: str = ""
    namespaced: bool = True  # Whether it is needed only in the run's namespace; else in the whole cluster

    @property
    def full_resource(self) -> str:
        """The resource and subresource as in RBAC: pods/exec."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def __str__(self) -> str:
        """Format it as kubectl auth can-i does: create jobs.batch."""
        return f"{self.verb} {self.full_resource}{'.' + self.group if self.group else ''}"


def _each(verbs: str, resource: str, *, group: str = "", sub: str = "") -> tuple[Right, ...]:
    return tuple(Right(verb, resource, group, sub) for verb in verbs.split())


_PODS = (
    *_each("get list watch", "pods"),
    *_each("create get", "pods", sub="exec"),  # Over SPDY and over WebSocket
    *_each("list", "events"),
    Right("get", "nodes", namespaced=False),
    Right("list", "nodes", namespaced=False),
)
KUBERNETES_RIGHTS = (*_each("create get list patch delete", "jobs", group="batch"), *_PODS)
"""For ``--on kubernetes``, in the order in which they are checked."""

MPIJOB_RIGHTS = (
    *_each("create get list delete", "mpijobs", group="kubeflow.org"),
    *_each("patch", "jobs", group="batch"),
    *_PODS,
)
"""For ``--on mpijob``: the operator creates pods and everything else."""

CLAIM_RIGHT = Right("create", "resourceclaimtemplates", "resource.k8s.io")  # For --cluster-profile efa-dra
OPTIONAL_RIGHTS = (Right("list", "pods", namespaced=False), *_each("delete", "pods"), CLAIM_RIGHT)
"""What no run needs: each allows seeing or doing more than a run does."""
