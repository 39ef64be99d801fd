"""Which nodes a run takes (alike, free and close together), and what pods request of them. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import chain, takewhile
from typing import TypeAlias

from fabbench.catalog.kubernetes_resources import (
    PROFILES,
    PodResources,
    Profile,
    with_memory_and_cpus,
)
from fabbench.catalog.systems import plain
from fabbench.hosts.check import Check, Status
from fabbench.launchers.kubernetes.checks import KEEPS_AWAY
from fabbench.launchers.kubernetes.nodes import Node, Nodes, fabric_name
from fabbench.launchers.pod_options import Toleration, default_tolerations
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.fabrics import natural_order
from fabbench.model.mappings import Names, gathered, grouped_by
from fabbench.model.messages import listed
from fabbench.model.values import frozen

Groups: TypeAlias = Sequence[Nodes]
"""Nodes that are alike and free, together."""
LeftOut: TypeAlias = Mapping[str, Nodes]
"""What is against nodes → the nodes."""
_NAMED = 4  # Maximum nodes named in a line
_UNKNOWN_TYPE = "of unknown type"


@frozen
class NodeCriteria:
    """Which nodes a run needs."""

    count: int | None = None  # How many; None: as many as `names`, or 2
    every: bool = False
    """Whether to take all nodes that are free and alike, at least 2, if neither gives a number."""
    instance_type: str = ""  # With or without HyperPod's ``ml.``; empty: any one
    names: Names = ()  # Only these; empty: any
    labels: str = ""  # The selector that the cluster filtered the nodes by, for messages
    needs_gpu: bool = False
    tolerations: tuple[Toleration, ...] = field(default_factory=default_tolerations)
    """Taints that do not matter."""

    @property
    def takes_all(self) -> bool:
        """Return whether to take all free nodes that are alike."""
        return self.every and self.count is None and not self.names


def choose(nodes: Nodes, criteria: NodeCriteria) -> Nodes:
    """Choose nodes in one zone that are alike and fully free, as close together as the labels tell.

    Raise MachineError that says why others were left out, if there are too few; RequestError for
    invalid numbers.
    """
    needed = _count_needed(criteria, nodes)
    groups, left_out = _sort_out(nodes, criteria)
    large = [group for group in groups if len(group) >= needed]
    if not large:
        raise _too_few(needed, groups, left_out, criteria.labels)
    if criteria.takes_all:
        size = max(map(len, large))
        largest = [group for group in large if len(group) == size]
        best = min(largest, key=_rank)
        return tuple(best)
    closest = [_closest(group, needed) for group in large]
    return min(closest, key=_rank)


def matching_nodes(nodes: Nodes, criteria: NodeCriteria) -> Nodes:
    """Return the nodes that match by name and type, free or not. Raise errors as `choose` does."""
    _count_needed(criteria, nodes)
    return tuple(node for node in nodes if not any(_mismatches(node, criteria)))


def usable_groups(nodes: Nodes, criteria: NodeCriteria) -> Groups:
    """Return all nodes that can be taken now, in groups of nodes that are alike."""
    groups, _ = _sort_out(nodes, criteria)
    return groups


def check_choice(nodes: Nodes, criteria: NodeCriteria) -> Check:
    """Check which nodes a run would take now.

    Too few nodes fail only if a number or names were given.
    """
    try:
        chosen = choose(nodes, criteria)
    except MachineError as error:
        # A sentence, and a line for each group of nodes.
        first, *rest = map(str.strip, str(error).splitlines())
        groups = "; ".join(rest)
        seen = f"{first} {groups}".strip().rstrip(".")
        status = Status.FAIL if criteria.count or criteria.names else Status.WARN
        return Check(status=status, seen=f"{seen}.", advice=error.hint or "")
    names = _names(chosen)
    layer = shared_layer(chosen) if len(chosen) > 1 else ""
    together = f"; they share {layer}" if layer else ""
    return Check(status=Status.PASS, seen=f"{names}{together}.")


def resources_on(nodes: Nodes, *, gpus: bool, declared: Profile | None = None) -> PodResources:
    """Return what pods request on these nodes: all that is free on each, and GPUs if used.

    All pods request the same: what the node with the least of it has free. `declared` is the user's
    profile. Raise MachineError if nodes lack what it needs.
    """
    first = nodes[0]  # the nodes are alike in what they have, not in what is free
    profile = declared or first.profile
    one_unit_is_enough = profile is not None and profile.shared
    # Pods use the nodes' fabric if it is the declared one, or one that need not be declared.
    usable = profile == first.profile and (declared is not None or profile in PROFILES)
    devices = min(node.fabric.free for node in nodes) if usable else 0
    if declared is not None and declared.resource and not devices:
        raise MachineError(
            f"{first.name} has no {declared.resource}, which --cluster-profile {declared.name} "
            "needs.",
            hint=f"Check {declared.plugin}, or declare another profile.",
        )
    # Huge pages are for the fabric: its devices are requested by number, or claimed by class.
    pages = profile is not None and profile.huge_pages and (devices or profile.device_class)
    resources = PodResources(
        gpus=min(node.gpus.free for node in nodes) if gpus else 0,
        resource=first.resource if devices else "",
        devices=min(devices, 1) if one_unit_is_enough else devices,
        huge_pages=min(node.huge_pages.free for node in nodes) if pages else 0,
        declared=declared,
    )
    return with_memory_and_cpus(
        resources,
        memory=min(node.memory.free for node in nodes),
        millis=min(node.cpus.free for node in nodes),
    )


def shared_layer(nodes: Nodes) -> str:
    """Return the lowest network layer that all nodes share; empty if the labels do not tell."""
    return next(reversed(_shared_layers(nodes)), "")


def _shared_layers(nodes: Nodes) -> list[str]:
    """Return the network layers that all nodes share, widest first."""
    by_depth = zip(*(node.layers for node in nodes), strict=False)
    same = takewhile(lambda values: len(set(values)) == 1, by_depth)
    return [values[0] for values in same]


def _sort_out(nodes: Nodes, criteria: NodeCriteria) -> tuple[Groups, LeftOut]:
    """Return groups of nodes that are alike and free, and the others by what is against them."""
    in_order = sorted(nodes, key=lambda each: natural_order(each.name))
    left_out = gathered((_why_left_out(node, criteria), node) for node in in_order)
    usable = left_out.pop("", [])  # against these is nothing
    return _groups(usable, named=bool(criteria.names)), left_out


def _why_left_out(node: Node, criteria: NodeCriteria) -> str:
    """Return the first of what is against a node; empty: it can be taken now."""
    reasons = chain(_mismatches(node, criteria), _obstacles(node, criteria))
    return next(reasons, "")


def _count_needed(criteria: NodeCriteria, nodes: Nodes) -> int:
    """Return how many nodes to take at least: as many as asked for or named, else 2.

    Raise RequestError for numbers that do not fit, MachineError for names that no node has.
    """
    names = criteria.names
    count = criteria.count
    if count is not None and count < 1:
        raise RequestError(
            f"Cannot measure {count} nodes.", hint="Pass 2 or more, or 1 for a single node."
        )
    needed = count or len(names) or 2
    if names and needed > len(names):
        raise RequestError(
            f"--nodes is {needed}, but {len(names)} nodes were given.",
            hint="List as many nodes, or drop --nodes.",
        )
    known = {node.name for node in nodes}
    unknown = [name for name in names if name not in known]
    if unknown:
        shown = listed(sorted(known, key=natural_order), _NAMED) or "none"
        raise MachineError(
            f"The cluster has no node {unknown[0]}{_with_labels(criteria.labels)}.",
            hint=f"It has {shown}.",
        )
    return needed


def _mismatches(node: Node, criteria: NodeCriteria) -> Iterator[str]:
    """Yield why a node is not one of those asked for, free or not."""
    if criteria.names and node.name not in criteria.names:
        yield "not chosen"
    if criteria.instance_type and node.instance_type != plain(criteria.instance_type):
        label = node.label_type or _UNKNOWN_TYPE
        yield f"{label}, not {plain(criteria.instance_type)}"
    if criteria.needs_gpu and not node.gpus.allocatable:
        yield "no GPU"


def _obstacles(node: Node, criteria: NodeCriteria) -> Iterator[str]:
    """Yield why a node cannot be taken now; nothing: it can.

    Of GPUs and of the fabric's devices all have to be free: other programs would share the NICs.
    """
    if not node.ready:
        yield "not ready"
    if node.unschedulable:
        yield "cordoned"
    if node.health not in {"", "Schedulable"}:
        yield f"HyperPod's health status is {node.health}"
    for taint in node.taints:
        tolerated = any(each.covers(*taint) for each in criteria.tolerations)
        if taint.effect in KEEPS_AWAY and not tolerated:
            yield f"taint {taint}"
    devices = {"GPUs": node.gpus, fabric_name(node): node.fabric}
    for what, amount in devices.items():
        if not amount.all_free:
            runs = f", by the fabbench runs {listed(node.runs)}" if node.runs else ""
            yield f"{amount.in_use} of {amount.allocatable} {what} in use{runs}"


def _groups(nodes: Nodes, *, named: bool) -> list[list[Node]]:
    """Group nodes that one set of pods can run on: all have the same requests.

    Each group has one type and zone. Nodes that the user named may differ in a type that the
    catalog does not know, and in the zone if they have no fabric.
    """

    def in_common(node: Node) -> tuple[object, ...]:
        amounts = (node.gpus.allocatable, node.fabric.allocatable)
        instance_type = node.instance_type if node.entry or not named else ""
        zone = node.zone if node.fabric.allocatable or not named else ""
        return node.arch, node.resource, amounts, instance_type, zone

    alike = grouped_by(in_common, nodes)
    return [*alike.values()]


def _closest(nodes: Nodes, count: int) -> Nodes:
    """Choose `count` of these nodes that share as low a network layer as possible.

    Of several such sets the one with the fewest to spare. Without labels of layers: the first ones.
    """
    deepest = max(len(node.layers) for node in nodes)
    for depth in range(deepest, 0, -1):
        known = [node for node in nodes if len(node.layers) >= depth]
        groups = gathered((node.layers[:depth], node) for node in known)
        large = [group for group in groups.values() if len(group) >= count]
        if large:
            return tuple(min(large, key=_to_spare)[:count])
    return tuple(nodes[:count])


def _to_spare(group: Nodes) -> tuple[object, ...]:
    """Rank groups that are large enough: the smallest first, then by name."""
    return len(group), natural_order(group[0].name)


def _rank(nodes: Nodes) -> tuple[object, ...]:
    """Return a key by which the best group is the smallest.

    With a fabric first, then by network speed, GPUs, fabric devices, closeness, health, and name.
    The nodes are alike, but for their health.
    """
    node = nodes[0]
    network_gbps = (node.entry and node.entry.network_gbps) or 0
    passed = sum(each.deep_health == "Passed" for each in nodes)
    return (
        not node.fabric.allocatable,
        -network_gbps,
        -node.gpus.allocatable,
        -node.fabric.allocatable,
        -len(_shared_layers(nodes)),
        -passed,
        natural_order(node.name),
    )


def _too_few(needed: int, groups: Groups, left_out: LeftOut, labels: str) -> MachineError:
    """Return the error that lists which nodes are available, and what is against the others.

    If as many as needed are, no group of them that are alike is large enough.
    """
    if not groups and not left_out:
        hint = "Check their labels: kubectl describe nodes." if labels else "Add nodes."
        return MachineError(f"The cluster has no nodes{_with_labels(labels)}.", hint=hint)
    available = sum(map(len, groups))
    nodes_are = "1 node is" if needed == 1 else f"{needed} nodes are"
    together = ", and not together" if available >= needed else ""
    some = available or "none"
    lines = [f"{nodes_are} needed, {some} available{together}:"]
    for group in groups:
        described = _describe(group[0])
        lines.append(f"  {_names(group)}: {described}, free")
    for why, nodes in left_out.items():
        lines.append(f"  {_names(nodes)}: {why}")
    hint = _how_to_get_nodes(left_out)
    if available >= needed:
        hint = "Nodes of a run have one type and one zone: use fewer with --nodes, or add nodes."
    return MachineError(*lines, hint=hint)


def _how_to_get_nodes(left_out: LeftOut) -> str:
    hint = "Wait until nodes are free (fabbench check lists them), or use fewer with --nodes."
    for why, nodes in left_out.items():
        if why.startswith("taint "):
            taint = why.removeprefix("taint ")
            hint += f" If nodes with this taint are meant for it, pass --toleration {taint}."
        elif why == "cordoned":
            hint += f" To use cordoned nodes again: kubectl uncordon {nodes[0].name}."
    return hint


def _with_labels(labels: str) -> str:
    return f" with the labels {labels}" if labels else ""


def _describe(node: Node) -> str:
    amounts = {"GPUs": node.gpus.allocatable, fabric_name(node): node.fabric.allocatable}
    devices = [f"{count} {what}" for what, count in amounts.items() if count]
    parts = (node.label_type or _UNKNOWN_TYPE, *devices, node.zone)
    return ", ".join(filter(None, parts))


def _names(nodes: Nodes) -> str:
    return listed([node.name for node in nodes], _NAMED)
