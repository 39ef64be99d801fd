"""A cluster's nodes as a table: what the guides print with kubectl's custom-columns, and more. Pure."""

from collections.abc import Sequence

from fabbench.pods.nodes import Node
from fabbench.report.table import Table

_EFA = "vpc.amazonaws.com/efa"


def table(nodes: Sequence[Node]) -> Table:
    """Lay out the nodes, in their order. Devices are free/allocatable."""
    resources = sorted({node.resource for node in nodes if node.resource})
    fabric = "EFA" if set(resources) <= {_EFA} else "FABRIC"
    notes = ["GPU and " + fabric + ": free/allocatable."] if nodes else ["The cluster shows no nodes."]
    if fabric != "EFA":
        notes.append(f"FABRIC: {', '.join(resources)}.")
    return Table(
        header=("NAME", "INSTANCE-TYPE", "GPU", fabric, "ZONE", "LAYER", "HEALTH"),
        rows=[_row(node) for node in nodes],
        align="llrrlll",
        notes=notes,
    )


def health(node: Node) -> str:
    """Say in a few words whether a node takes pods: ``ok``, or everything that is the matter."""
    words = [] if node.ready else ["not ready"]
    words += ["cordoned"] if node.unschedulable else []
    words += [node.health] if node.health not in {"", "Schedulable"} else []
    words += [f"deep check {node.deep_health}"] if node.deep_health not in {"", "Passed"} else []
    return ", ".join(words) or "ok"


def records(nodes: Sequence[Node]) -> list[dict[str, object]]:
    """Give the same as plain data."""
    return [
        {
            "name": node.name,
            "instance_type": node.label_type,
            "arch": node.arch,
            "gpus": {"allocatable": node.gpus.allocatable, "free": node.gpus.free},
            "fabric": {
                "resource": node.resource,
                "allocatable": node.fabric.allocatable,
                "free": node.fabric.free,
            },
            "zone": node.zone,
            "layers": list(node.layers),
            "ultraserver": node.ultraserver,
            "health": health(node),
            "taints": [str(taint) for taint in node.taints],
        }
        for node in nodes
    ]


def _row(node: Node) -> Sequence[str]:
    return (
        node.name,
        node.label_type or "-",
        str(node.gpus) if node.gpus.allocatable else "-",
        str(node.fabric) if node.resource else "-",
        node.zone or "-",
        (node.layers[-1] if node.layers else node.ultraserver) or "-",
        health(node),
    )
