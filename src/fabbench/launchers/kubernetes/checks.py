"""A cluster's nodes as a table, and what is wrong with them. Pure."""

from collections.abc import Sequence
from functools import partial

from fabbench.catalog.kubernetes_resources import EFA, PROFILES
from fabbench.catalog.systems import efa_reaches, records, rows_of
from fabbench.hosts.check import Check, Status, outcome_in
from fabbench.launchers.kubernetes.nodes import Amount, Node, Nodes, Taint, fabric_name
from fabbench.launchers.pod_options import Toleration, default_tolerations
from fabbench.model.mappings import most_common
from fabbench.model.values import frozen
from fabbench.report.table import Overview, Table

KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})
_PLUGIN = PROFILES[0].plugin
_DEFAULT_TOLERATIONS = default_tolerations()
outcome = partial(outcome_in, "fabbench.launchers.kubernetes", "node_checks.toml")


def check_nodes(
    nodes: Nodes, tolerations: Sequence[Toleration] = _DEFAULT_TOLERATIONS
) -> tuple[Check, ...]:
    """Check nodes, each by itself and against the others. `tolerations` are those of the pods."""
    usual_type = most_common(filter(None, (node.instance_type for node in nodes)), default="")
    zones = [node.zone for node in nodes if node.zone]
    usual_zone = most_common(zones, default="")
    checks: list[Check] = []
    for node in nodes:
        results = {
            "ready": _ready(node),
            "health labels": _health(node),
            "taints": _taints(node, tolerations),
            "fabric devices": _fabric(node),
            "GPUs": _gpus(node),
            "huge pages": _huge_pages(node),
            "free": _free(node),
            "instance type": _type(node, usual_type),
        }
        if len(set(zones)) > 1:
            results["zone"] = _zone(node, usual_zone)
        for name, result in results.items():
            checks.append(result.of(node.name, name))
    return tuple(checks)


def _ready(node: Node) -> Check:
    if not node.ready:
        return outcome("ready.not", why=node.why_not.rstrip("."))
    return outcome("ready.cordoned" if node.unschedulable else "ready.yes", node=node)


def _health(node: Node) -> Check:
    # Only a node that HyperPod will replace fails; one whose deep check is not over is a warning.
    labels = {"node-health-status": node.health, "deep-health-check-status": node.deep_health}
    stated = [f"{key} {value}" for key, value in labels.items() if value]
    found = "good"
    if not stated:
        found = "none"
    elif node.health not in {"", "Schedulable"}:
        found = "unhealthy"
    elif node.deep_health not in {"", "Passed"}:
        found = "unchecked"
    return outcome(f"health.{found}", labels=", ".join(stated))


def _taints(node: Node, tolerations: Sequence[Toleration]) -> Check:
    def repels(taint: Taint) -> bool:
        if taint.effect not in KEEPS_AWAY or taint.key.startswith("node.kubernetes.io/"):
            return False  # Another check covers the latter
        return not any(each.covers(*taint) for each in tolerations)

    repelling = list(filter(repels, node.taints))
    taints = ", ".join(map(str, repelling or node.taints))
    if repelling:
        return outcome("taints.repel", taints=taints)
    return outcome("taints.tolerated" if taints else "taints.none", taints=taints)


def _fabric(node: Node) -> Check:
    """Check that a node advertises its fabric's devices, and as many as its instance type has."""
    entry = node.entry  # of the catalog; None: not a known instance type
    expected = ""
    if entry is not None:
        counts = " or ".join(map(str, entry.nics))
        expected = f"; a {entry.name} has {counts} EFA"
    if not node.resource:
        # A known type has EFA, by the plugin `_PLUGIN`; of another one nothing is expected.
        found = "missing" if entry else "unexpected"
        return outcome(f"fabric.{found}", expected=expected, plugin=_PLUGIN)
    count = node.fabric.allocatable
    plugin = node.profile.plugin if node.profile else "its device plugin"
    found = "all"
    if not count:
        found = "unhealthy"
    # Only of EFA does the catalog say how many there should be.
    elif entry and fabric_name(node) == "EFA" and count not in entry.nics:
        found = "more" if count > max(entry.nics) else "fewer"
    return outcome(f"fabric.{found}", node=node, expected=expected, plugin=plugin)


def _gpus(node: Node) -> Check:
    # Whether the node advertises as many GPUs as its instance type, if that is known, has.
    entry = node.entry
    count = node.gpus.allocatable
    expected = entry.gpus if entry else 0
    if not count and not expected:
        return outcome("gpus.none")
    usual = f"; a {entry.name} has {expected}" if entry else ""
    if count >= expected:
        return outcome("gpus.all", node=node, usual=usual)
    status = None if count else Status.FAIL  # None: that of the outcome
    return outcome("gpus.fewer", status, node=node, usual=usual)


def _huge_pages(node: Node) -> Check:
    if node.profile is None or not node.profile.huge_pages or not node.fabric.allocatable:
        return outcome("huge-pages.unused")
    pages = node.huge_pages.allocatable // (2 << 20)  # Bytes of a page
    found = "there" if node.huge_pages.allocatable else "none"
    return outcome(f"huge-pages.{found}", pages=pages)


def _free(node: Node) -> Check:
    """Check that all GPUs and devices of a node's fabric are free.

    Skipped where there are none, or where the user may not list the pods that use them.
    """
    amounts = {"GPUs": node.gpus, node.resource or "devices": node.fabric}
    amounts = {what: amount for what, amount in amounts.items() if amount.allocatable}
    if not amounts:
        return outcome("free.no-devices")
    free: list[str] = []
    capacity: list[str] = []
    for what, amount in amounts.items():
        free.append(f"{amount.free} of {amount.allocatable} {what} free")
        capacity.append(f"{amount.allocatable} {what}")
    found = "used"
    if all(amount.all_free for amount in amounts.values()):
        is_known = all(amount.known for amount in amounts.values())
        found = "all" if is_known else "unknown"
    code = f"free.{found}"
    return outcome(code, free="; ".join(free), capacity="; ".join(capacity))


def _type(node: Node, common: str) -> Check:
    """Check that a node has the type that is most `common` among the nodes."""
    if not node.label_type:
        return outcome("type.unknown")
    name = node.label_type
    if node.hyperpod:
        name = f"{name} (HyperPod's name of {node.instance_type})"
    found = "usual"
    if node.instance_type != common:
        # Without devices of a fabric it uses TCP, which reaches any type.
        reaches = not node.fabric.allocatable or efa_reaches(common, node.instance_type)
        found = "other" if reaches else "unreachable"
    return outcome(f"type.{found}", type=name, common=common)


def _zone(node: Node, common: str) -> Check:
    """Check that a node is in the zone that is most `common` among the nodes."""
    found = "other" if node.zone else "unknown"
    if node.zone == common:
        found = "usual"
    return outcome(f"zone.{found}", node=node, common=common)


def nodes_table(nodes: Nodes) -> Overview:
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
    # A row of the table of nodes. LAYER: the narrowest one, the last; else the UltraServer.
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


@frozen
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


_RIGHTS = tuple(records(Right, rows_of("rights.csv", "fabbench.launchers.kubernetes")))


def rights_for(*what: str) -> tuple[Right, ...]:
    """Return the rights that everybody needs, and those for `what`: a launcher, or ``claims``."""
    return tuple(each for each in _RIGHTS if each.only in {"", *what})
