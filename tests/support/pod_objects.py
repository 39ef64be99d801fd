"""Nodes and pods as a cluster's API gives them, to be varied in tests."""

import copy
import json
from collections.abc import Mapping
from typing import Any

from tests.support.paths import DATA

FOLDER = DATA / "manifests"
NODES: Mapping[str, dict[str, Any]] = json.loads((FOLDER / "nodes.json").read_text("utf-8"))
POD: dict[str, Any] = json.loads((FOLDER / "pod.json").read_text("utf-8"))

EFA, GPU = "vpc.amazonaws.com/efa", "nvidia.com/gpu"


def node_object(  # noqa: PLR0913 - what tests vary
    kind: str,
    name: str = "",
    *,
    labels: Mapping[str, str | None] | None = None,
    allocatable: Mapping[str, str] | None = None,
    taints: tuple[tuple[str, str, str], ...] = (),
    not_ready: str = "",
    cordoned: bool = False,
) -> dict[str, Any]:
    """Return a node of nodes.json under another name, with other labels (None.

    Without) and amounts.
    """
    found = copy.deepcopy(NODES[kind])
    meta, spec, status = found["metadata"], found["spec"], found["status"]
    if name:
        meta["name"] = meta["labels"]["kubernetes.io/hostname"] = name
    for key, value in (labels or {}).items():
        meta["labels"].pop(key, None)
        if value is not None:
            meta["labels"][key] = value
    status["allocatable"].update(allocatable or {})
    spec.setdefault("taints", []).extend({"key": k, "value": v, "effect": e} for k, v, e in taints)
    if cordoned:
        spec["unschedulable"] = True
        spec["taints"].append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    if not_ready:
        ready = next(item for item in status["conditions"] if item["type"] == "Ready")
        ready.update(status="Unknown", reason="NodeStatusUnknown", message=not_ready)
        spec["taints"].append({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"})
    return found


def pod_object(node: str, requests: Mapping[str, str], *, phase: str = "Running") -> dict[str, Any]:
    """Return a pod on a node that requests something."""
    container = {"name": "main", "image": "busy:1", "resources": {"requests": dict(requests)}}
    return {
        "metadata": {"name": f"busy-{node}"},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": phase},
    }
