"""Pods that are only asked what they have, one on each node, and removed."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fabbench.check import Around, Check, Status
from fabbench.errors import MachineError
from fabbench.hosts.found import Probe
from fabbench.kube.client import Cluster
from fabbench.kube.objects import RunObjects
from fabbench.kube.pipe import PodConnection
from fabbench.pods.asked import Asked
from fabbench.pods.nodes import Node
from fabbench.pods.workload import CONTAINER
from fabbench.remote.examine import Told
from fabbench.remote.pool import each

Ask = Callable[[PodConnection], Told]
Meet = Callable[[Mapping[str, Told]], Around]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Nodes that one set of pods runs on."""

    nodes: tuple[Node, ...]
    asked: Asked


def ask_pods(  # noqa: PLR0913 - what is asked, and how
    site: Cluster,
    groups: Sequence[Group],
    ask: Ask,
    meet: Meet,
    *,
    limit_s: float,
    tell: Callable[[str], None],
) -> tuple[Mapping[str, Probe], Around, tuple[Check, ...]]:
    """Ask a pod on each node, and let those of a group connect to each other.

    Gives what each told, by the node's name, and a check of each node's pod. A pod that does not start, or
    does not answer, is a check that fails. Nothing is left.
    """
    found: dict[str, Told | MachineError] = {}
    seen = Around()
    for group in groups:
        try:
            with RunObjects(site, group.asked) as objects:
                pods = objects.wait(limit_s, group.nodes, tell)
                ways = {
                    str(pod["spec"]["nodeName"]): PodConnection(
                        site, pod["metadata"]["name"], CONTAINER, objects.why
                    )
                    for pod in pods
                }
                with contextlib.ExitStack() as stack:
                    for way in ways.values():
                        stack.callback(way.close)
                    own = each(ways, ask)
                    found |= own
                    told = {name: one for name, one in own.items() if not isinstance(one, MachineError)}
                    if told:
                        seen = _both(seen, meet(told))
        except MachineError as error:
            found = {**{node.name: error for node in group.nodes}, **found}
    probes = {name: one.probe for name, one in found.items() if not isinstance(one, MachineError)}
    return probes, seen, tuple(_check(name, one) for name, one in found.items())


def _both(one: Around, other: Around) -> Around:
    return Around(
        addresses={**one.addresses, **other.addresses},
        clocks={**one.clocks, **other.clocks},
        connections={**one.connections, **other.connections},
    )


def _check(node: str, found: Told | MachineError) -> Check:
    if isinstance(found, MachineError):
        advice = found.hint or "See the events of the namespace, and of the node."
        return Check(host=node, name="pod", status=Status.FAIL, seen=str(found), advice=advice)
    return Check(host=node, name="pod", status=Status.PASS, seen="A pod started there, and answered.")
