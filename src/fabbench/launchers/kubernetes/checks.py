"""A cluster's nodes as a table, and what is wrong with them.

See the catalog, and AWS on HyperPod's labels. Pure.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from fabbench.catalog.instances import efa_reaches
from fabbench.catalog.kubernetes_resources import EFA, PROFILES
from fabbench.hosts.check import Check, Status
from fabbench.launchers.kubernetes.nodes import Amount, Node, Taint, fabric_name
from fabbench.launchers.pod_options import Toleration, default_tolerations
from fabbench.report.table import Overview, Table

KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})
_PLUGIN = PROFILES[0].plugin
_DEFAULT_TOLERATIONS = default_tolerations()
_PASS, _WARN, _FAIL, _SKIP = Status.PASS, Status.WARN, Status.FAIL, Status.SKIP
_Found: TypeAlias = tuple[Status, str, str]  # The status of a check, what was seen, and advice


def check_nodes(
    nodes: Sequence[Node], tolerations: Sequence[Toleration] = _DEFAULT_TOLERATIONS
) -> tuple[Check, ...]:
    """Check nodes, each by itself and against the others. `tolerations` are those of the pods."""
    types = Counter(node.instance_type for node in nodes if node.instance_type).most_common(1)
    zones = Counter(node.zone for node in nodes if node.zone).most_common()
    checks = []
    for node in nodes:
        found: dict[str, _Found] = {
            "ready": _ready(node),
            "health labels": _health(node),
            "taints": _taints(node, tolerations),
            "fabric devices": _fabric(node),
            "GPUs": _gpus(node),
            "huge pages": _huge_pages(node),
            "free": _free(node),
            "instance type": _type(node, types[0][0] if types else ""),
            **({"zone": _zone(node, zones[0][0])} if len(zones) > 1 else {}),
        }
        for name, (status, seen, advice) in found.items():
            checks.append(Check(host=node.name, name=name, status=status, seen=seen, advice=advice))
    return tuple(checks)


def _ready(node: Node) -> _Found:
    if not node.ready:
        advice = "Check the node's events (kubectl describe node), or leave it out."
        return _FAIL, f"Not ready: {node.why_not.rstrip('.')}.", advice
    if node.unschedulable:
        advice = "It accepts no new pods: run kubectl uncordon when its maintenance is over."
        return _FAIL, "Ready, and cordoned.", advice
    return _PASS, f"Ready: kubelet {node.kubelet}, {node.runtime}.", ""


def _health(node: Node) -> _Found:
    labels = {"node-health-status": node.health, "deep-health-check-status": node.deep_health}
    seen = ", ".join(f"{key} {value}" for key, value in labels.items() if value) + "."
    if not node.health and not node.deep_health:
        return _SKIP, "No health labels.", "Nothing to do: only HyperPod sets health labels."
    if node.health not in {"", "Schedulable"}:
        return (
            _FAIL,
            seen,
            "HyperPod marked it unhealthy and will reboot or replace it: leave it out until then.",
        )
    if node.deep_health not in {"", "Passed"}:
        return (
            _WARN,
            seen,
            "Its deep health check has not passed: wait for it, or measure other nodes.",
        )
    return _PASS, seen, ""


def _taints(node: Node, tolerations: Sequence[Toleration]) -> _Found:
    def known(taint: Taint) -> bool:  # pods tolerate it, or another check covers it
        return taint.key.startswith("node.kubernetes.io/") or any(
            each.covers(*taint) for each in tolerations
        )

    repelling = [taint for taint in node.taints if taint.effect in KEEPS_AWAY and not known(taint)]
    others = ", ".join(str(taint) for taint in node.taints if taint not in repelling)
    if repelling:
        advice = (
            "If the nodes are meant for this, pass --toleration KEY; otherwise choose other nodes."
        )
        return _WARN, f"Taints keep pods away: {', '.join(map(str, repelling))}.", advice
    return _PASS, f"Tolerated: {others}." if others else "None.", ""


def _fabric(node: Node) -> _Found:
    entry, count = node.entry, node.fabric.allocatable
    expected = (
        f"; a {entry.instance_type} has {' or '.join(map(str, entry.efa_counts))} EFA"
        if entry
        else ""
    )
    if not node.resource and entry is None:
        advice = "Nothing to do unless you expect a fabric; then check that its device plugin runs."
        return _SKIP, "The node advertises no fabric.", advice
    if not node.resource:
        advice = (
            f"Install {_PLUGIN}. If it is installed, check that its DaemonSet covers this instance "
            "type: older manifests list the types. EFA must also be enabled in the node group."
        )
        return _WARN, f"The node advertises no fabric{expected}.", advice
    seen = f"{count} {node.resource}{expected}."
    if not count:
        plugin = node.profile.plugin if node.profile else "its device plugin"
        advice = (
            f"No healthy device was found there: check the log of {plugin}, and that the "
            "nodes have devices."
        )
        return _FAIL, seen, advice
    if entry is None or fabric_name(node) != "EFA" or count in entry.efa_counts:
        return _PASS, seen, ""
    if count > max(entry.efa_counts):
        return _WARN, seen, "Check the node's instance type label; the catalog may be out of date."
    return _WARN, seen, "Give the node group all EFA interfaces; otherwise you measure fewer."


def _gpus(node: Node) -> _Found:
    entry, count = node.entry, node.gpus.allocatable
    expected = entry.gpus if entry else 0
    if not count and not expected:
        return _SKIP, "None.", "Nothing to do: not a GPU node."
    seen = f"{count} nvidia.com/gpu" + (
        f"; a {entry.instance_type} has {expected}." if entry else "."
    )
    if count >= expected:
        return _PASS, seen, ""
    advice = (
        "Check the log of NVIDIA's device plugin and nvidia-smi on the node. GPUs split by "
        "MIG cannot be measured."
    )
    return _WARN if count else _FAIL, seen, advice


def _huge_pages(node: Node) -> _Found:
    if node.profile is None or not node.profile.huge_pages or not node.fabric.allocatable:
        return _SKIP, "Not used here.", "Nothing to do."
    seen = f"{node.huge_pages.allocatable // (2 << 20)} pages of 2 MiB."
    if node.huge_pages.allocatable:
        return _PASS, seen, ""
    advice = (
        "Pods run without huge pages: memory registration is slower. On Bottlerocket set "
        "vm.nr_hugepages."
    )
    return _WARN, seen, advice


def _free(node: Node) -> _Found:
    amounts = {"GPUs": node.gpus, node.resource or "devices": node.fabric}
    amounts = {what: amount for what, amount in amounts.items() if amount.allocatable}
    seen = "; ".join(
        f"{amount.free} of {amount.allocatable} {what} free" for what, amount in amounts.items()
    )
    if not amounts:
        return _SKIP, "No devices.", "Nothing to do."
    if not all(amount.all_free for amount in amounts.values()):
        return (
            _WARN,
            f"{seen}.",
            "Only fully free nodes are measured: wait for the pods there, or delete them.",
        )
    if all(amount.known for amount in amounts.values()):
        return _PASS, f"{seen}.", ""
    totals = "; ".join(f"{amount.allocatable} {what}" for what, amount in amounts.items())
    advice = (
        "Runs choose nodes by their capacity, and wait if others use them (rbac-optional.yaml)."
    )
    return _SKIP, f"{totals}; usage by others is unknown.", advice


def _type(node: Node, common: str) -> _Found:
    if not node.label_type:
        advice = "Choose nodes with --host: their instance types are unknown."
        return _SKIP, "The node has no instance type label.", advice
    seen = (
        f"{node.label_type} (HyperPod's name of {node.instance_type})"
        if node.hyperpod
        else node.label_type
    )
    if node.instance_type == common:
        return _PASS, f"{seen}.", ""
    advice = "Measure nodes of the same type: choose with --instance-type."
    if node.fabric.allocatable and not efa_reaches(common, node.instance_type):
        advice += " EFA on p4d, p4de and dl1 connects only to the same type."
    return _WARN, f"{seen}, while most others are {common}.", advice


def _zone(node: Node, common: str) -> _Found:
    if node.zone == common:
        return _PASS, f"{node.zone}.", ""
    if not node.zone:
        return _SKIP, "Unknown.", "Check its labels."
    advice = "Runs use nodes of one zone: EFA does not cross zones, and TCP is slower across them."
    return _WARN, f"{node.zone}, while most others are in {common}.", advice


def nodes_table(nodes: Sequence[Node]) -> Overview:
    """Return the nodes as a table: a row per node, in the given order."""
    resources = sorted({node.resource for node in nodes if node.resource})
    fabric = "EFA" if set(resources) <= {EFA} else "FABRIC"
    notes = ["GPU and " + fabric + ": free/allocatable."]
    if fabric != "EFA":
        notes.append(f"FABRIC: {', '.join(resources)}.")
    header = ("NAME", "INSTANCE-TYPE", "GPU", fabric, "ZONE", "LAYER", "HEALTH")
    rows = [
        (
            *(node.name, node.label_type or "-", str(node.gpus) if node.gpus.allocatable else "-"),
            *(str(node.fabric) if node.resource else "-", node.zone or "-"),
            *((node.layers[-1] if node.layers else node.ultraserver) or "-", _health_summary(node)),
        )
        for node in nodes
    ]
    table = Table(header=header, rows=rows, align="llrrlll", notes=notes)
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


class Right(NamedTuple):
    """One verb on one kind of object."""

    verb: str
    resource: str  # In the plural, as RBAC writes it
    group: str = ""  # API group; empty for the core
    subresource: str = ""
    namespaced: bool = (
        True  # Whether it is needed only in the run's namespace; else in the whole cluster
    )

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

CLAIM_RIGHT = Right(
    "create", "resourceclaimtemplates", "resource.k8s.io"
)  # For --cluster-profile efa-dra
OPTIONAL_RIGHTS = (Right("list", "pods", namespaced=False), *_each("delete", "pods"), CLAIM_RIGHT)
"""What no run needs: each allows seeing or doing more than a run does."""
