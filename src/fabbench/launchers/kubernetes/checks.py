"""A cluster's nodes as a table, and what is wrong with them. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fabbench.catalog.instances import efa_reaches, records, rows_of
from fabbench.catalog.kubernetes_resources import EFA, PROFILES
from fabbench.hosts.check import Check, Status
from fabbench.launchers.kubernetes.nodes import Amount, Node, Taint, fabric_name
from fabbench.launchers.pod_options import Toleration, default_tolerations
from fabbench.report.table import Overview, Table

KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})
_PLUGIN = PROFILES[0].plugin
_DEFAULT_TOLERATIONS = default_tolerations()
_PASS = Status.PASS
_WARN = Status.WARN
_FAIL = Status.FAIL
_SKIP = Status.SKIP
_Result: TypeAlias = tuple[Status, str, str]  # The status of a check, what was seen, and advice


def check_nodes(
    nodes: Sequence[Node], tolerations: Sequence[Toleration] = _DEFAULT_TOLERATIONS
) -> tuple[Check, ...]:
    """Check nodes, each by itself and against the others. `tolerations` are those of the pods."""
    types = Counter(node.instance_type for node in nodes if node.instance_type)
    usual_type = max(types, key=types.__getitem__, default="")
    zones = Counter(node.zone for node in nodes if node.zone)
    usual_zone = max(zones, key=zones.__getitem__, default="")
    checks: list[Check] = []
    for node in nodes:
        results: dict[str, _Result] = {
            "ready": _ready(node),
            "health labels": _health(node),
            "taints": _taints(node, tolerations),
            "fabric devices": _fabric(node),
            "GPUs": _gpus(node),
            "huge pages": _huge_pages(node),
            "free": _free(node),
            "instance type": _type(node, usual_type),
        }
        if len(zones) > 1:
            results["zone"] = _zone(node, usual_zone)
        for name, result in results.items():
            checks.append(_check(node, name, *result))
    return tuple(checks)


def _check(node: Node, name: str, status: Status, seen: str, advice: str) -> Check:
    return Check(host=node.name, name=name, status=status, seen=seen, advice=advice)


def _ready(node: Node) -> _Result:
    if not node.ready:
        why = node.why_not.rstrip(".")
        advice = "Check the node's events (kubectl describe node), or leave it out."
        return _FAIL, f"Not ready: {why}.", advice
    if node.unschedulable:
        advice = "It accepts no new pods: run kubectl uncordon when its maintenance is over."
        return _FAIL, "Ready, and cordoned.", advice
    return _PASS, f"Ready: kubelet {node.kubelet}, {node.runtime}.", ""


def _health(node: Node) -> _Result:
    # Only a node that HyperPod will replace fails; one whose deep check is not over is a warning.
    labels = {"node-health-status": node.health, "deep-health-check-status": node.deep_health}
    stated = [f"{key} {value}" for key, value in labels.items() if value]
    if not stated:
        return _SKIP, "No health labels.", "Nothing to do: only HyperPod sets health labels."
    seen = ", ".join(stated) + "."
    if node.health not in {"", "Schedulable"}:
        advice = (
            "HyperPod marked it unhealthy and will reboot or replace it: leave it out until then."
        )
        return _FAIL, seen, advice
    if node.deep_health not in {"", "Passed"}:
        advice = "Its deep health check has not passed: wait for it, or measure other nodes."
        return _WARN, seen, advice
    return _PASS, seen, ""


def _taints(node: Node, tolerations: Sequence[Toleration]) -> _Result:
    def repels(taint: Taint) -> bool:
        if taint.effect not in KEEPS_AWAY or taint.key.startswith("node.kubernetes.io/"):
            return False  # Another check covers the latter
        return not any(each.covers(*taint) for each in tolerations)

    repelling = list(filter(repels, node.taints))
    if repelling:
        shown = ", ".join(map(str, repelling))
        advice = (
            "If the nodes are meant for this, pass --toleration KEY; otherwise choose other nodes."
        )
        return _WARN, f"Taints keep pods away: {shown}.", advice
    tolerated = ", ".join(map(str, node.taints))
    return _PASS, f"Tolerated: {tolerated}." if tolerated else "None.", ""


def _fabric(node: Node) -> _Result:
    """Check that a node advertises its fabric's devices, and as many as its instance type has."""
    entry = node.entry  # of the catalog; None: not a known instance type
    count = node.fabric.allocatable
    expected = ""
    if entry is not None:
        counts = " or ".join(map(str, entry.efa_counts))
        expected = f"; a {entry.instance_type} has {counts} EFA"
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
    # Only of EFA does the catalog say how many there should be.
    if entry is None or fabric_name(node) != "EFA" or count in entry.efa_counts:
        return _PASS, seen, ""
    if count > max(entry.efa_counts):
        return _WARN, seen, "Check the node's instance type label; the catalog may be out of date."
    return _WARN, seen, "Give the node group all EFA interfaces; otherwise you measure fewer."


def _gpus(node: Node) -> _Result:
    # Whether the node advertises as many GPUs as its instance type, if that is known, has.
    entry = node.entry
    count = node.gpus.allocatable
    expected = entry.gpus if entry else 0
    if not count and not expected:
        return _SKIP, "None.", "Nothing to do: not a GPU node."
    usual = f"; a {entry.instance_type} has {expected}" if entry else ""
    seen = f"{count} nvidia.com/gpu{usual}."
    if count >= expected:
        return _PASS, seen, ""
    advice = (
        "Check the log of NVIDIA's device plugin and nvidia-smi on the node. GPUs split by "
        "MIG cannot be measured."
    )
    return _WARN if count else _FAIL, seen, advice


def _huge_pages(node: Node) -> _Result:
    if node.profile is None or not node.profile.huge_pages or not node.fabric.allocatable:
        return _SKIP, "Not used here.", "Nothing to do."
    pages = node.huge_pages.allocatable // (2 << 20)  # bytes
    seen = f"{pages} pages of 2 MiB."
    if node.huge_pages.allocatable:
        return _PASS, seen, ""
    advice = (
        "Pods run without huge pages: memory registration is slower. On Bottlerocket set "
        "vm.nr_hugepages."
    )
    return _WARN, seen, advice


def _free(node: Node) -> _Result:
    """Check that all GPUs and devices of a node's fabric are free.

    Skipped where there are none, or where the user may not list the pods that use them.
    """
    amounts = {"GPUs": node.gpus, node.resource or "devices": node.fabric}
    amounts = {what: amount for what, amount in amounts.items() if amount.allocatable}
    if not amounts:
        return _SKIP, "No devices.", "Nothing to do."
    seen = "; ".join(
        f"{amount.free} of {amount.allocatable} {what} free" for what, amount in amounts.items()
    )
    if not all(amount.all_free for amount in amounts.values()):
        advice = "Only fully free nodes are measured: wait for the pods there, or delete them."
        return _WARN, f"{seen}.", advice
    if all(amount.known for amount in amounts.values()):
        return _PASS, f"{seen}.", ""
    totals = [f"{amount.allocatable} {what}" for what, amount in amounts.items()]
    capacity = "; ".join(totals)
    advice = (
        "Runs choose nodes by their capacity, and wait if others use them (rbac-optional.yaml)."
    )
    return _SKIP, f"{capacity}; usage by others is unknown.", advice


def _type(node: Node, common: str) -> _Result:
    """Check that a node has the type that is most `common` among the nodes."""
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


def _zone(node: Node, common: str) -> _Result:
    """Check that a node is in the zone that is most `common` among the nodes."""
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
        names = ", ".join(resources)
        notes.append(f"FABRIC: {names}.")
    header = ("NAME", "INSTANCE-TYPE", "GPU", fabric, "ZONE", "LAYER", "HEALTH")
    rows = [_cells(node) for node in nodes]
    table = Table(header=header, rows=rows, align="llrrlll", notes=notes)
    return Overview(name="nodes", table=table, records=[_record(node) for node in nodes])


def _cells(node: Node) -> tuple[str, ...]:
    # A row of the table of nodes; the last of the layers is the narrowest.
    cells = (
        node.name,
        node.label_type,
        str(node.gpus) if node.gpus.allocatable else "",
        str(node.fabric) if node.resource else "",
        node.zone,
        node.layers[-1] if node.layers else node.ultraserver,
        _health_summary(node),
    )
    return tuple(cell or "-" for cell in cells)


def _health_summary(node: Node) -> str:
    """Return ``ok`` if a node accepts pods, else everything that is wrong."""
    words: list[str] = []
    if not node.ready:
        words.append("not ready")
    if node.unschedulable:
        words.append("cordoned")
    if node.health not in {"", "Schedulable"}:
        words.append(node.health)
    if node.deep_health not in {"", "Passed"}:
        words.append(f"deep check {node.deep_health}")
    return ", ".join(words) or "ok"


def _record(node: Node) -> dict[str, object]:
    """Return a node as in JSON output."""
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
    """Return an amount as in JSON output; free is null if not all pods are visible."""
    return {"allocatable": amount.allocatable, "free": amount.free if amount.known else None}


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one kind of object: a row of rights.csv."""

    verb: str
    resource: str  # In the plural, as RBAC writes it
    group: str = ""  # API group; empty for the core
    subresource: str = ""
    namespaced: bool = True
    """Whether it is needed only in the run's namespace; else in the whole cluster."""
    only: str = ""  # What needs it: a launcher, or `claims` of devices; empty: both launchers

    @property
    def full_resource(self) -> str:
        """The resource and subresource as in RBAC: pods/exec."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def __str__(self) -> str:
        """Format it as kubectl auth can-i does: create jobs.batch."""
        group = f".{self.group}" if self.group else ""
        return f"{self.verb} {self.full_resource}{group}"


_RIGHTS = list(records(Right, rows_of("rights.csv", "fabbench.launchers.kubernetes")))
KUBERNETES_RIGHTS = tuple(each for each in _RIGHTS if each.only in {"", "kubernetes"})
"""For ``--on kubernetes``, in the order in which they are checked."""
MPIJOB_RIGHTS = tuple(each for each in _RIGHTS if each.only in {"", "mpijob"})
"""For ``--on mpijob``: the operator creates pods and everything else."""
CLAIM_RIGHT = _RIGHTS[-1]  # The last row there
"""For --cluster-profile efa-dra."""
