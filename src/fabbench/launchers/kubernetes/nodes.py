"""Nodes and pods as listed by the API → what nodes have, and how much of it is free. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple, TypeAlias

from fabbench.catalog.kubernetes_resources import (
    EFA,
    GPU,
    HUGE_PAGES,
    Profile,
    fabric_resource,
    profile_for,
    thousandths,
    whole_number,
)
from fabbench.catalog.systems import System, instance, plain
from fabbench.launchers.pod_options import Labels, Object, Objects
from fabbench.model.errors import MachineError
from fabbench.model.mappings import Names, grouped_by
from fabbench.model.messages import listed
from fabbench.model.values import frozen

LAYERS = tuple(f"topology.k8s.aws/network-node-layer-{number}" for number in range(1, 5))
"""Labels of network layers, widest first. Nodes that share the last one share the lowest switch."""
_HYPERPOD = "sagemaker.amazonaws.com/"
_ENDED = frozenset({"Succeeded", "Failed"})


class Amount(NamedTuple):
    """How much of a resource is allocatable on a node, and how much of that no pod requests."""

    allocatable: int = 0
    free: int = 0
    known: bool = True  # Whether all pods are visible: else less may be free

    def __str__(self) -> str:
        free = self.free if self.known else "?"
        return f"{free}/{self.allocatable}"

    @property
    def all_free(self) -> bool:
        """Return whether no pod uses any of it."""
        return self.free == self.allocatable

    @property
    def in_use(self) -> int:
        """Return how much pods use."""
        return self.allocatable - self.free


_NONE = Amount()


class Taint(NamedTuple):
    """A taint, which repels pods that do not tolerate it."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        taint = f"{self.key}={self.value}" if self.value else self.key
        return f"{taint}:{self.effect}"


@frozen
class Node:
    """One node. An empty string means that the node does not report it."""

    name: str
    label_type: str = ""  # The instance type as labeled: HyperPod writes ``ml.p4d.24xlarge``
    arch: str = ""
    ready: bool = False
    why_not: str = ""  # Why it is not ready, as the kubelet or controller reports it
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    labels: Labels = field(default_factory=dict)
    gpus: Amount = _NONE
    resource: str = ""  # The extended resource of its fabric; empty: none is advertised, not even 0
    fabric: Amount = _NONE  # The devices of `resource`
    huge_pages: Amount = _NONE  # Bytes in pages of 2 MiB
    memory: Amount = _NONE  # Bytes
    cpus: Amount = _NONE  # Millicores
    zone: str = ""
    layers: Names = ()  # The values of `LAYERS`: where it is in the network, widest first
    ultraserver: str = ""
    health: str = ""  # HyperPod's node-health-status
    deep_health: str = ""  # HyperPod's deep-health-check-status
    kubelet: str = ""
    runtime: str = ""
    runs: Names = ()  # The fabbench runs whose pods are there

    @property
    def instance_type(self) -> str:
        """The instance type as EC2 writes it, without HyperPod's ``ml.``."""
        return plain(self.label_type)

    @property
    def hyperpod(self) -> bool:
        """Return whether it is one of SageMaker HyperPod's."""
        return self.label_type.lower().startswith("ml.")

    @property
    def entry(self) -> System | None:
        """The catalog's entry of its type."""
        return instance(self.label_type)

    @property
    def profile(self) -> Profile | None:
        """How pods get access to its fabric."""
        return profile_for(self.resource)

    @property
    def hostname(self) -> str:
        """The value of its ``kubernetes.io/hostname`` label, which pods select it by."""
        return self.labels.get("kubernetes.io/hostname", self.name)


Nodes: TypeAlias = Sequence[Node]


def read_nodes(
    nodes: Iterable[Object],
    pods: Iterable[Object] = (),
    *,
    all_pods: bool = True,
) -> Nodes:
    """Read nodes, and what pods leave free on them. `all_pods`: whether `pods` are all pods."""
    running = (pod for pod in pods if status_of(pod).get("phase") not in _ENDED)
    pods_on = grouped_by(node_of, running)

    def read(node: Object) -> Node:
        return read_node(node, pods_on.get(name_of(node), ()), all_pods=all_pods)

    return tuple(map(read, nodes))


def read_node(node: Object, pods: Objects = (), *, all_pods: bool = True) -> Node:
    """Read one node, with the pods there. Raise ValueError for an amount that is not a quantity."""
    labels = labels_of(node)
    amounts = _amounts(node, pods, all_pods=all_pods)
    ready, why_not = _readiness(status_of(node).get("conditions") or ())
    # The fabric of which it has devices, or else one that its plugin advertises as 0.
    available = fabric_resource([name for name, amount in amounts.items() if amount.allocatable])
    resource = available or fabric_resource(amounts)
    info = status_of(node).get("nodeInfo") or {}
    return Node(
        name=name_of(node),
        label_type=first_value(labels, _TYPE_LABELS),
        arch=labels.get("kubernetes.io/arch") or info.get("architecture", ""),
        ready=ready,
        why_not=why_not,
        unschedulable=bool(spec_of(node).get("unschedulable")),
        taints=tuple(map(_taint, spec_of(node).get("taints") or ())),
        labels=labels,
        gpus=amounts.get(GPU, _NONE),
        resource=resource,
        fabric=amounts.get(resource, _NONE),
        huge_pages=amounts.get(HUGE_PAGES, _NONE),
        memory=amounts.get("memory", _NONE),
        cpus=amounts.get("cpu", _NONE),
        zone=first_value(labels, _ZONE_LABELS),
        layers=tuple(labels[layer] for layer in LAYERS if labels.get(layer)),
        ultraserver=labels.get("topology.k8s.aws/ultraserver-id", ""),
        health=labels.get(f"{_HYPERPOD}node-health-status", ""),
        deep_health=labels.get(f"{_HYPERPOD}deep-health-check-status", ""),
        kubelet=info.get("kubeletVersion", ""),
        runtime=info.get("containerRuntimeVersion", ""),
        runs=tuple(sorted(set(filter(None, map(_run_of, pods))))),
    )


def _amounts(
    node: Object,
    pods: Iterable[Object],
    *,
    all_pods: bool,
) -> dict[str, Amount]:
    """Return how much a node has of each resource, and what its pods leave free: name → amount.

    CPUs are in thousandths (`_number`). `all_pods`: whether `pods` are all of its pods.
    """
    used = Counter[str]()
    for pod in pods:
        used.update(requests(pod))
    amounts: dict[str, Amount] = {}
    allocatable = status_of(node).get("allocatable") or {}
    for name, text in allocatable.items():
        number = _number(name, text)
        free = max(number - used[name], 0)
        amounts[name] = Amount(number, free, known=all_pods)
    return amounts


def _taint(taint: Object) -> Taint:
    return Taint(
        key=taint.get("key", ""),
        value=taint.get("value") or "",
        effect=taint.get("effect", ""),
    )


def _run_of(pod: Object) -> str:
    """Return fabbench's run that a pod belongs to; empty: none."""
    return str(labels_of(pod).get("fabbench/run") or "")


def requests(pod: Object) -> Mapping[str, int]:
    """Add up what one pod requests, as the scheduler does.

    Containers and sidecars run together; other init containers one after another, each with the
    sidecars above it (k8s.io/component-helpers/resource, PodRequests).
    """
    spec = spec_of(pod)
    total = Counter[str]()
    for container in spec.get("containers") or ():
        total.update(_requested(container))
    sidecars = Counter[str]()
    peak = Counter[str]()  # The most that is used while init containers run
    for container in spec.get("initContainers") or ():
        requested = Counter(_requested(container))
        if container.get("restartPolicy") == "Always":  # a sidecar: it stays
            sidecars += requested
            requested.clear()
        peak |= sidecars + requested
    total = (total + sidecars) | peak
    total.update(_numbers(spec.get("overhead") or {}))
    return total


def values_of_label(nodes: Iterable[Object], names: Sequence[str], key: str) -> Mapping[str, str]:
    """Return node → value of its label `key`.

    Raise MachineError that names the nodes that lack it.
    """
    labels = {name_of(node): labels_of(node) for node in nodes}
    of_named = {name: labels.get(name, {}) for name in names}
    missing = [name for name, node_labels in of_named.items() if not node_labels.get(key)]
    if missing:
        shared = set[str].intersection(*map(set, of_named.values()))
        topology = sorted(label for label in shared if "topology" in label)
        raise MachineError(
            f"Nodes without the label {key}: {listed(missing)}.",
            hint=f"All of them have {listed(topology)}." if topology else "Pass --groups FILE.",
        )
    return {name: node_labels[key] for name, node_labels in of_named.items()}


def fabric_name(node: Node) -> str:
    """Return the display name of a node's fabric: ``EFA``, or the resource."""
    return "EFA" if node.resource in {EFA, ""} else node.resource


def true_condition(thing: Object, *types: str) -> Object | None:
    """Return the first condition of an object's status that has one of these types and is true."""
    conditions: Iterable[Object] = status_of(thing).get("conditions") or ()
    for condition in conditions:
        if condition.get("type") in types and condition.get("status") == "True":
            return condition
    return None


def meta_of(thing: Object) -> Object:
    """Return an object's metadata; the API leaves out fields that are empty."""
    return thing.get("metadata") or {}


def name_of(thing: Object) -> str:
    """Return an object's name; empty: it has none yet."""
    return str(meta_of(thing).get("name", ""))


def node_of(pod: Object) -> str:
    """Return the node that a pod was put on; empty: none yet."""
    return str(spec_of(pod).get("nodeName", ""))


def labels_of(thing: Object) -> Labels:
    """Return an object's labels."""
    return meta_of(thing).get("labels") or {}


def spec_of(thing: Object) -> Object:
    """Return what was asked for."""
    return thing.get("spec") or {}


def status_of(thing: Object) -> Object:
    """Return what is reported."""
    return thing.get("status") or {}


_TYPE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")


def first_value(labels: Labels, names: Sequence[str]) -> str:
    """Return the value of the first of these labels that is there; empty: none is."""
    return next(filter(None, map(labels.get, names)), "")


def _readiness(conditions: Iterable[Object]) -> tuple[bool, str]:
    """Return whether a node is ready, and if not, why."""
    for condition in conditions:
        if condition.get("type") == "Ready":
            why = condition.get("message") or condition.get("reason") or ""
            ready = condition.get("status") == "True"
            return ready, "" if ready else str(why)
    return False, "The node has no Ready condition"


def _requested(container: Object) -> Mapping[str, int]:
    """Read a container's requests; a missing one defaults to its limit."""
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    return _numbers({**limits, **(resources.get("requests") or {})})


def _numbers(amounts: Object) -> dict[str, int]:
    """Read amounts by the names of their resources."""
    return {name: _number(name, text) for name, text in amounts.items()}


def _number(name: str, text: str | int) -> int:
    """Read an amount: CPUs in thousandths, else bytes or devices. Raise ValueError."""
    return thousandths(text) if name == "cpu" else whole_number(text)
