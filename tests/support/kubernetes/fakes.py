"""Nodes that kwok plays: hundreds of them, whose pods are said to run, and do nothing."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.support.hosts import processes
from tests.support.kubernetes.settings import CACHE, address

if TYPE_CHECKING:
    from tests.support.kubernetes.cluster import Cluster

TYPE = "node.kubernetes.io/instance-type"
_LAYER = "topology.k8s.aws/network-node-layer-3"


def add(  # noqa: PLR0913 - a node has that many sides
    cluster: "Cluster",
    count: int,
    prefix: str,
    *,
    instance_type: str = "p5.48xlarge",
    resources: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    taints: tuple[str, ...] = ("kwok=true:NoSchedule",),
    ready: bool = True,
) -> list[str]:
    """Add nodes `PREFIX-0` …; sixteen have one network node layer.

    `resources` are added to 192 CPUs, 2 TiB and 110 pods; without, there are 32 EFA devices and 8
    GPUs. They are tainted unless told otherwise, so that no pod comes by chance. Without `ready`
    kwok leaves them alone: they never come up.
    """
    _start(cluster)
    own = (
        resources
        if resources is not None
        else {"vpc.amazonaws.com/efa": "32", "nvidia.com/gpu": "8"}
    )
    room = {"cpu": "192", "memory": "2Ti", "pods": "110", **own}
    items: list[dict[str, Any]] = []
    for number in range(count):
        name = f"{prefix}-{number}"
        own_labels = {
            "kubernetes.io/hostname": name,
            TYPE: instance_type,
            _LAYER: f"nn-{prefix}-{number // 16}",
        }
        about: dict[str, Any] = {
            "name": name,
            "labels": {**own_labels, "kwok": "yes", **(labels or {})},
        }
        if ready:
            about["annotations"] = {"kwok.x-k8s.io/node": "fake"}
        status = {"capacity": room, "allocatable": room}
        spec = {
            "taints": [_taint(text) for text in taints],
            "providerID": f"aws:///us-east-1a/i-{number:017x}",
        }
        items.append(
            {"apiVersion": "v1", "kind": "Node", "metadata": about, "spec": spec, "status": status}
        )
    cluster.kubectl("create", "-f", "-", given={"apiVersion": "v1", "kind": "List", "items": items})
    names = [item["metadata"]["name"] for item in items]
    if ready:
        assert processes.eventually(lambda: set(names) <= _ready(cluster), 180)
    return names


def remove(cluster: "Cluster") -> None:
    """Remove all nodes of kwok."""
    cluster.kubectl("delete", "node", "-l", "kwok=yes", "--ignore-not-found", "--wait=false")
    left = ("get", "node", "-l", "kwok=yes", "-o", "name")
    assert processes.eventually(lambda: not cluster.kubectl(*left), 60)


def _taint(text: str) -> dict[str, str]:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}


def _ready(cluster: "Cluster") -> set[str]:
    output = cluster.kubectl("get", "node", "-l", "kwok=yes", "--no-headers")
    return {line.split()[0] for line in output.splitlines() if line.split()[1].startswith("Ready")}


def _start(cluster: "Cluster") -> None:
    if cluster.kwok is not None:
        return
    made = cluster.folder
    stages = [
        word for path in sorted((CACHE / "kwok/stages").iterdir()) for word in ("-c", str(path))
    ]
    cluster.kwok = cluster.control.daemon(
        CACHE / "kwok/kwok",
        f"--kubeconfig={cluster.control.local}",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        *("--node-ip", address(-10), "--node-port", "10247", "--node-name", "kwok"),
        *("--server-address", f"{address(-10)}:10247", "--cidr", "10.99.0.0/16"),
        *(
            "--tls-cert-file",
            str(made / "api.crt"),
            "--tls-private-key-file",
            str(made / "api.key"),
        ),
        "--node-lease-duration-seconds=40",
        *stages,
    )
    cluster.kwok.start()
