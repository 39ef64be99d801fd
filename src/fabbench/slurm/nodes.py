"""Nodes and partitions as ``scontrol show`` shows them, and which of them a job could get. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fabbench.errors import MachineError
from fabbench.instances import Instance, instance
from fabbench.slurm.records import records

_GPU = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)")
_UNFIT = frozenset(
    {"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "FUTURE", "INVAL", "INVALID_REG", "MAINT"}
    | {"UNKNOWN", "ERROR", "PERFCTRS", "REBOOT"}
)  # fmt: skip
SILENT = "NOT_RESPONDING"
"""Stands beside other states for a while: Slurm waits for the node, or will soon call it down."""
_ASLEEP = frozenset(
    {SILENT, "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_UP", "PLANNED"}
)
_SHOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """One node."""

    name: str
    states: frozenset[str] = frozenset()
    """What stands between the plus signs of its state, without Slurm's marks: `IDLE`, `DRAIN`, …"""
    reason: str = ""
    partitions: frozenset[str] = frozenset()
    gpus: int = 0
    """GPUs that Slurm counts there."""
    features: tuple[str, ...] = ()
    cpus: int = 0

    @property
    def entry(self) -> Instance | None:
        """The catalogue's entry of its type, which ParallelCluster and HyperPod have among the features."""
        return next((found for feature in self.features if (found := instance(feature))), None)

    @property
    def fit(self) -> bool:
        """Whether it can run jobs, now or once those that it runs have ended."""
        return not self.states & _UNFIT

    @property
    def idle(self) -> bool:
        """Whether a job could have the whole node at once."""
        return self.fit and "IDLE" in self.states and not self.states & _ASLEEP

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        return f"{self.name} ({'+'.join(sorted(self.states)).lower() or 'unknown'}{why})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition, or several among which Slurm chooses: ``gpu,big``."""

    name: str
    default: bool = False
    state: str = ""
    """`UP`, `DOWN`, `DRAIN` or `INACTIVE`."""

    def has(self, node: SlurmNode) -> bool:
        """Whether a node is in it."""
        return not node.partitions.isdisjoint(self.name.split(","))


def nodes(lines: Iterable[str]) -> tuple[SlurmNode, ...]:
    """Read ``scontrol show node --oneliner``."""
    return tuple(
        SlurmNode(
            name=fields["NodeName"],
            states=frozenset(re.sub(r"[^A-Z_+]", "", fields.get("State", "")).split("+")) - {""},
            reason=fields.get("Reason", ""),
            partitions=frozenset(filter(None, fields.get("Partitions", "").split(","))),
            gpus=sum(int(count) for count in _GPU.findall(fields.get("Gres", ""))),
            features=tuple(filter(None, fields.get("AvailableFeatures", "").split(","))),
            cpus=int(fields.get("CPUTot") or 0),
        )
        for fields in records(lines, "NodeName")
    )


def partitions(lines: Iterable[str]) -> tuple[Partition, ...]:
    """Read ``scontrol show partition --oneliner``."""
    return tuple(
        Partition(
            name=fields["PartitionName"],
            default=fields.get("Default") == "YES",
            state=fields.get("State", ""),
        )
        for fields in records(lines, "PartitionName")
    )


def chosen(known: Sequence[Partition], name: str | None) -> Partition:
    """Find the partition that is named, or the default one. Raises MachineError that lists all."""
    there = ", ".join(each.name for each in known) or "none"
    if name and "," in name:
        several = [chosen(known, one) for one in name.split(",")]
        best = next((each for each in several if each.state in {"UP", ""}), several[0])
        return replace(best, name=name)
    found = next((each for each in known if each.name == name or (name is None and each.default)), None)
    if found is None and name is None:
        raise MachineError(
            f"This Slurm has no default partition. There are {there}.", hint="Name one with --partition."
        )
    if found is None:
        raise MachineError(
            f"This Slurm has no partition {name}. There are {there}.",
            hint="Name one of them with --partition.",
        )
    return found


def require(
    seen: Sequence[SlurmNode], partition: Partition, count: int, named: Sequence[str] = ()
) -> tuple[SlurmNode, ...]:
    """Give the nodes that a job of so many could get. Raises MachineError where they are too few.

    Nodes that run other jobs count. `named` are the only ones to take, if any are named.
    """
    inside = [node for node in seen if partition.has(node)]
    unknown = sorted(set(named) - {node.name for node in inside})
    if unknown:
        raise MachineError(f"The partition {partition.name} has no node {', '.join(unknown)}.")
    inside = [node for node in inside if not named or node.name in named]
    if partition.state not in {"UP", ""}:
        raise MachineError(
            f"The partition {partition.name} is {partition.state}: it starts no jobs.",
            hint="Name another with --partition.",
        )
    if len(inside) < count:
        raise MachineError(
            f"{count} nodes are wanted, and the partition {partition.name} has {len(inside)}.",
            hint="Ask for fewer with --nodes, or name another partition.",
        )
    fit = tuple(node for node in inside if node.fit)
    if len(fit) < count:
        unfit = [str(node) for node in inside if not node.fit]
        more = f" and {len(unfit) - _SHOWN} more" if len(unfit) > _SHOWN else ""
        raise MachineError(
            f"{count} nodes are wanted, and {len(fit)} of the partition {partition.name} can run jobs. "
            f"Not: {', '.join(unfit[:_SHOWN])}{more}.",
            hint="sinfo -R says why. Ask for fewer with --nodes, or name another partition.",
        )
    return fit


def gpus_of(fit: Sequence[SlurmNode]) -> int:
    """Give the GPUs that Slurm counts on most of the nodes."""
    counts = Counter(node.gpus for node in fit)
    return counts.most_common(1)[0][0] if counts else 0


def type_of(fit: Sequence[SlurmNode]) -> str:
    """Give the instance type of the nodes; empty where they do not say it, or differ."""
    types = {node.entry.instance_type if node.entry else "" for node in fit}
    return types.pop() if len(types) == 1 else ""
