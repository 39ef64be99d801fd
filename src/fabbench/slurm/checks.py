"""What is wrong with Slurm's nodes, from what its controller says of them. Pure."""

from collections.abc import Iterator, Sequence

from fabbench.check import Check, Status
from fabbench.instances import instance
from fabbench.slurm.nodes import SILENT, Partition, SlurmNode


def check_nodes(
    seen: Sequence[SlurmNode], partition: Partition, wanted: int | None, named_type: str = ""
) -> tuple[Check, ...]:
    """Check the nodes of a partition, and whether a run of so many would get them."""
    own = (check for node in seen for check in _own(node, named_type))
    return (*own, _partition(seen, partition, wanted))


def _own(node: SlurmNode, named_type: str) -> Iterator[Check]:
    states = "+".join(sorted(node.states)).lower() or "unknown"
    if node.fit and SILENT in node.states:
        advice = "Look again soon: Slurm calls it down if it stays so."
        yield Check(
            host=node.name, name="state", status=Status.WARN, seen=f"{states.capitalize()}.", advice=advice
        )
    elif node.fit:
        yield Check(host=node.name, name="state", status=Status.PASS, seen=f"{states.capitalize()}.")
    else:
        why = f": {node.reason.rstrip('.')}" if node.reason else ""
        advice = "Jobs do not get it. scontrol update nodename=… state=resume gives it back."
        yield Check(
            host=node.name,
            name="state",
            status=Status.FAIL,
            seen=f"{states.capitalize()}{why}.",
            advice=advice,
        )
    yield _type(node, named_type)
    yield _gpus(node, named_type)


def _type(node: SlurmNode, named_type: str) -> Check:
    name = "instance type"
    entry = instance(named_type) if named_type else node.entry
    if entry is None:
        advice = "--instance-type says it: EFA interfaces are counted by it."
        features = ", ".join(node.features) or "none"
        seen = f"No feature of the node names one (features: {features})."
        return Check(host=node.name, name=name, status=Status.SKIP, seen=seen, advice=advice)
    seen = f"{entry.instance_type}: {entry.efa_counts[-1]} EFA interfaces, {entry.gpus} GPUs."
    return Check(host=node.name, name=name, status=Status.PASS, seen=seen)


def _gpus(node: SlurmNode, named_type: str) -> Check:
    name = "GPUs"
    entry = instance(named_type) if named_type else node.entry
    counted = f"Slurm counts {node.gpus} GPU{'' if node.gpus == 1 else 's'} (GRES)."
    if entry is not None and entry.gpus != node.gpus:
        advice = (
            "--no-gres asks for none, where Slurm does not count them."
            if not node.gpus
            else ("See gres.conf, and whether all GPUs of the node work.")
        )
        seen = f"{counted} {entry.instance_type} has {entry.gpus}."
        return Check(host=node.name, name=name, status=Status.WARN, seen=seen, advice=advice)
    return Check(host=node.name, name=name, status=Status.PASS, seen=counted)


def _partition(seen: Sequence[SlurmNode], partition: Partition, wanted: int | None) -> Check:
    fit = sum(node.fit for node in seen)
    told = f"{fit} of {len(seen)} nodes can run jobs"
    name, host = "partition", partition.name
    if partition.state not in {"UP", ""}:
        advice = "Name another with --partition."
        told = f"It is {partition.state}: it starts no jobs."
        return Check(host=host, name=name, status=Status.FAIL, seen=told, advice=advice)
    if fit < (wanted or 1):
        advice = "sinfo -R says why the others do not."
        return Check(
            host=host,
            name=name,
            status=Status.FAIL,
            seen=f"{told}, and {wanted or 1} are wanted.",
            advice=advice,
        )
    return Check(host=host, name=name, status=Status.PASS, seen=f"{told}.")
