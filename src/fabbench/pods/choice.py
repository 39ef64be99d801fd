"""Which nodes a run takes: alike, all free, close together. Pure, and the same every time."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from fabbench.check import Check, Status
from fabbench.errors import MachineError, RequestError
from fabbench.instances import plain
from fabbench.pods.checks import KEEPS_AWAY, TOLERATED
from fabbench.pods.nodes import Node, fabric_name, natural
from fabbench.pods.selector import Requirement, read_selector, selects

_NAMED = 4
"""Nodes named in a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What nodes a run needs."""

    count: int | None = None
    """How many; None: as many as `names`, or 2."""
    instance_type: str = ""
    """With or without HyperPod's ``ml.``; empty: any one."""
    names: tuple[str, ...] = ()
    """Only these; empty: any."""
    selector: str = ""
    """Labels, as kubectl writes them."""
    needs_gpu: bool = False
    needs_fabric: bool = False
    tolerations: tuple[str, ...] = ()
    """Keys of taints that do not matter, besides `checks.TOLERATED`."""


def choose(nodes: Sequence[Node], wish: Wish) -> tuple[Node, ...]:
    """Choose nodes that are alike and whose devices are all free, in one zone, as close as the labels tell.

    Raises MachineError, with what there is and why each was left out, if there are too few; RequestError for
    a selector or numbers that make no sense.
    """
    requirements = read_selector(wish.selector)
    wanted = _wanted(wish, nodes)
    left_out: dict[str, list[Node]] = defaultdict(list)
    fitting = []
    for node in sorted(nodes, key=lambda each: natural(each.name)):
        why = next(chain(_not_wished(node, wish, requirements), _not_usable(node, wish)), "")
        if why:
            left_out[why].append(node)
        else:
            fitting.append(node)
    groups = _groups(fitting, named=bool(wish.names))
    large = [group for group in groups if len(group) >= wanted]
    if not large:
        raise _too_few(wanted, groups, left_out)
    return min((_closest(group, wanted) for group in large), key=_rank)


def wished(nodes: Sequence[Node], wish: Wish) -> tuple[Node, ...]:
    """Give those nodes that are asked for by name, type or label, whether they can be taken or not.

    Raises as `choose` does for a name that there is not, and for a selector that cannot be read.
    """
    _wanted(wish, nodes)
    requirements = read_selector(wish.selector)
    return tuple(node for node in nodes if not any(_not_wished(node, wish, requirements)))


def fitting(nodes: Sequence[Node], wish: Wish) -> tuple[tuple[Node, ...], ...]:
    """Give all nodes that can be taken now, however many: groups of those that are alike."""
    usable = (node for node in wished(nodes, wish) if not any(_not_usable(node, wish)))
    groups = _groups(sorted(usable, key=lambda each: natural(each.name)), named=bool(wish.names))
    return tuple(map(tuple, groups))


def check_choice(nodes: Sequence[Node], wish: Wish, cluster: str) -> Check:
    """Say which nodes a run would take now. That there are too few fails where so many were asked for."""
    name = "nodes for a run"
    try:
        chosen = choose(nodes, wish)
    except MachineError as error:
        first, *rest = (line.strip() for line in str(error).splitlines())
        seen = f"{first} {'; '.join(rest)}".strip().rstrip(".")
        status = Status.FAIL if wish.count or wish.names else Status.WARN
        return Check(host=cluster, name=name, status=status, seen=f"{seen}.", advice=error.hint or "")
    layer = shared_layer(chosen)
    close = f"; they share {layer}" if layer and len(chosen) > 1 else ""
    return Check(host=cluster, name=name, status=Status.PASS, seen=f"{_names(chosen)}{close}.")


def shared_layer(nodes: Sequence[Node]) -> str:
    """Name the lowest part of the network that all nodes share; empty where the labels do not tell."""
    shared = ""
    for values in zip(*(node.layers for node in nodes), strict=False):
        if len(set(values)) > 1:
            break
        shared = values[0]
    return shared


def _wanted(wish: Wish, nodes: Sequence[Node]) -> int:
    names, count = wish.names, wish.count
    if count is not None and count < 1:
        raise RequestError(f"{count} nodes cannot be measured.", hint="Name 2 or more, or 1 for one alone.")
    wanted = count or len(names) or 2
    if names and wanted > len(names):
        raise RequestError(
            f"{wanted} nodes are asked for, and {len(names)} named.", hint="Name as many, or no number."
        )
    there = {node.name for node in nodes}
    unknown = [name for name in names if name not in there]
    if unknown:
        shown = ", ".join(sorted(there, key=natural)[:_NAMED]) or "none at all"
        more = " and others" if len(there) > _NAMED else ""
        raise MachineError(f"The cluster has no node {unknown[0]}.", hint=f"It has {shown}{more}.")
    return wanted


def _not_wished(node: Node, wish: Wish, requirements: Sequence[Requirement]) -> Iterator[str]:
    """Say why a node is not one of those that are asked for."""
    if wish.names and node.name not in wish.names:
        yield "not named"
    if wish.instance_type and node.instance_type != plain(wish.instance_type):
        yield f"{node.label_type or 'of unknown type'}, not {plain(wish.instance_type)}"
    if not selects(requirements, node.labels):
        yield "not selected by its labels"
    if wish.needs_gpu and not node.gpus.allocatable:
        yield "no GPU"
    if wish.needs_fabric and not node.fabric.allocatable:
        yield "no fabric device advertised"


def _not_usable(node: Node, wish: Wish) -> Iterator[str]:
    """Say why a node cannot be taken now."""
    if not node.ready:
        yield "not ready"
    if node.unschedulable:
        yield "cordoned"
    if node.health not in {"", "Schedulable"}:
        yield f"HyperPod's health status is {node.health}"
    for taint in node.taints:
        if taint.effect in KEEPS_AWAY and taint.key not in {*TOLERATED, *wish.tolerations}:
            yield f"taint {taint}"
    for what, amount in (("GPUs", node.gpus), (fabric_name(node), node.fabric)):
        if not amount.all_free:
            yield f"{amount.in_use} of {amount.allocatable} {what} in use"


def _groups(nodes: Sequence[Node], *, named: bool) -> list[list[Node]]:
    """Put together what one set of pods can run on: one template has one request for all of them."""
    groups: dict[tuple[object, ...], list[Node]] = defaultdict(list)
    for node in nodes:
        alike: tuple[object, ...] = (node.arch, node.gpus.allocatable, node.resource, node.fabric.allocatable)
        if not named or node.entry:
            alike = (*alike, node.instance_type)
        if not named or node.fabric.allocatable:
            alike = (*alike, node.zone)
        groups[alike].append(node)
    return list(groups.values())


def _closest(nodes: Sequence[Node], count: int) -> tuple[Node, ...]:
    """Choose nodes that share the lowest layer; of several places that with the fewest to spare."""
    for depth in range(max(len(node.layers) for node in nodes), 0, -1):
        places: dict[tuple[str, ...], list[Node]] = defaultdict(list)
        for node in nodes:
            if len(node.layers) >= depth:
                places[node.layers[:depth]].append(node)
        large = [place for place in places.values() if len(place) >= count]
        if large:
            return tuple(min(large, key=lambda place: (len(place), natural(place[0].name)))[:count])
    return tuple(nodes[:count])


def _rank(nodes: Sequence[Node]) -> tuple[object, ...]:
    """Order groups: a fabric first, then the fastest network, the most GPUs, and the closest nodes."""
    node = nodes[0]
    depth = next(
        (
            depth
            for depth in range(len(node.layers), 0, -1)
            if len({each.layers[:depth] for each in nodes}) == 1
        ),
        0,
    )
    passed = sum(each.deep_health == "Passed" for each in nodes)
    return (
        not node.fabric.allocatable,
        -(node.entry.network_gbps if node.entry else 0),
        -node.gpus.allocatable,
        -node.fabric.allocatable,
        -depth,
        -passed,
        natural(node.name),
    )


def _too_few(wanted: int, groups: Sequence[Sequence[Node]], left_out: dict[str, list[Node]]) -> MachineError:
    fit = sum(map(len, groups))
    lines = [
        f"{_count(wanted)} needed, {fit or 'none'} can be taken"
        + (", and not together:" if fit >= wanted else ":")
    ]
    lines += [f"  {_names(group)}: {_described(group[0])}, free" for group in groups]
    lines += [f"  {_names(nodes)}: {why}" for why, nodes in left_out.items()]
    if not groups and not left_out:
        lines = ["The cluster shows no nodes."]
    hint = "Wait until nodes are free (fabbench check shows them all), or ask for fewer with --nodes."
    if fit >= wanted:
        hint = "Nodes of one run are of one type and in one zone: ask for fewer with --nodes, or add nodes."
    return MachineError("\n".join(lines), hint=hint)


def _described(node: Node) -> str:
    parts = [node.label_type or "of unknown type"]
    parts += [f"{node.gpus.allocatable} GPUs"] if node.gpus.allocatable else []
    parts += [f"{node.fabric.allocatable} {fabric_name(node)}"] if node.fabric.allocatable else []
    parts += [node.zone] if node.zone else []
    return ", ".join(parts)


def _count(number: int) -> str:
    return "1 node is" if number == 1 else f"{number} nodes are"


def _names(nodes: Sequence[Node]) -> str:
    shown, more = ", ".join(node.name for node in nodes[:_NAMED]), len(nodes) - _NAMED
    return f"{shown} and {more} more" if more > 0 else shown
