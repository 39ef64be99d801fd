"""Output of ``scontrol show`` on jobs, nodes and partitions: checks, and the nodes of a job. Pure.

What Slurm says of a job is explained by job_errors.toml.

A record is one line of ``Name=value`` words. Values may contain blanks (``Reason=Not responding
[root@…]``): they end at the next name, which begins with a capital letter. Based on Slurm 22.05;
later versions add fields.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from fabbench.catalog.systems import System, instance, rows_of
from fabbench.hosts.check import Check, outcome_in, refusal
from fabbench.model.errors import MachineError
from fabbench.model.hostlist import expand_hostlist
from fabbench.model.known_messages import Explanation, explain
from fabbench.model.mappings import Names, distinct, gathered, most_common, only
from fabbench.model.messages import counted, listed, shorten
from fabbench.model.units import parse_whole
from fabbench.model.values import frozen
from fabbench.report.table import Overview, Table

Fields: TypeAlias = Mapping[str, str]  # Name → value. ``(null)``, ``N/A`` and ``None`` are empty.

_NAME = re.compile(r"(?:^| )([A-Z][A-Za-z0-9_:/]*)=")
_NOTHING = frozenset({"(null)", "N/A", "None", "Unknown"})


def record(line: str) -> dict[str, str]:
    """Parse one record. A field that it lacks is empty; so is all of a line that is no record."""
    _, *parts = _NAME.split(line)  # Names and values by turns
    fields = defaultdict[str, str](str)
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        value = text.strip()
        fields[name] = "" if value in _NOTHING else value
    return fields


def records(lines: Iterable[str], first: str) -> list[dict[str, str]]:
    """Parse all records whose first field is `first`; ignore other lines."""
    return [record(line) for line in lines if line.startswith(f"{first}=")]


_STATES_THAT = gathered(
    (row["means"], row["state"]) for row in rows_of("states.csv", "fabbench.launchers.slurm")
)
"""What states mean: `ended` and `runs` of jobs, `unfit` and `asleep` of nodes → the states."""
_EXIT = re.compile(r"(\d{1,9}):(\d{1,9})")


@frozen
class JobState:
    """The state of a job at some moment."""

    id: str
    state: str = ""  # As Slurm writes it: `PENDING`, `RUNNING`, …; empty if not known
    reason: str = ""
    partition: str = ""
    status: int | None = None
    """Exit status of the script; None if it has not ended, or was ended by a signal."""
    signal: int = 0
    start: str = ""  # When it started, or when Slurm expects a pending job to start
    limit: str = ""
    nodes: str = ""  # A list such as ``node[0-1]``

    @property
    def over(self) -> bool:
        """Return whether it has ended and will not start again."""
        return self.state in _STATES_THAT["ended"]

    @property
    def runs(self) -> bool:
        """Return whether it occupies its nodes."""
        return self.state in _STATES_THAT["runs"]

    @property
    def pending(self) -> bool:
        """Return whether it waits for its nodes."""
        return not self.over and not self.runs and bool(self.state)


def state_in(lines: Sequence[str]) -> JobState | None:
    """Return the state that scontrol shows of a job; None: it shows none."""
    shown = next((line for line in lines if line.startswith("JobId=")), "")
    return job_state(shown) if shown else None


def is_unknown_job(lines: Sequence[str]) -> bool:
    """Return whether Slurm reports that it does not, or no longer, know the job."""
    return any("Invalid job id" in line for line in lines)


def job_state(line: str) -> JobState:
    """Parse the record of a job."""
    fields = record(line)
    job = JobState(
        id=fields["JobId"],
        state=fields["JobState"],
        reason=fields["Reason"],
        partition=fields["Partition"],
        start=fields["StartTime"],
        limit=fields["TimeLimit"],
        nodes=fields["NodeList"],
    )
    match = _EXIT.match(fields["ExitCode"])
    if match is None:
        return job
    status, signal = map(int, match.groups())
    # While a job has not ended, Slurm prints 0:0. What a signal ended has no status of its own.
    exit_status = status if job.over and not signal else None
    return replace(job, signal=signal, status=exit_status)


_GPU = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d{1,9})(?!\d)")
# Accompanies other states for a while: Slurm waits for the node, or will soon mark it down
SILENT = "NOT_RESPONDING"
_SHOWN = 4  # Maximum nodes named in a message


@frozen
class SlurmNode:
    """One node."""

    name: str
    states: frozenset[str] = (
        frozenset()
    )  # Parts between plus signs, without flag characters: `IDLE`, `DRAIN`, …
    reason: str = ""
    partitions: frozenset[str] = frozenset()
    gpus: int = 0  # GPUs that Slurm counts there
    features: Names = ()
    cpus: int = 0

    @property
    def entry(self) -> System | None:
        """The catalog's entry for its type, if ParallelCluster or HyperPod list it as a feature."""
        return next((entry for feature in self.features if (entry := instance(feature))), None)

    @property
    def state(self) -> str:
        """Its states, as sinfo shows them: ``idle+drain``."""
        return "+".join(sorted(self.states)).lower() or "unknown"

    @property
    def fit(self) -> bool:
        """Return whether it can run jobs, now or once its current jobs have ended."""
        return self.states.isdisjoint(_STATES_THAT["unfit"])

    @property
    def idle(self) -> bool:
        """Return whether a job could get the whole node immediately."""
        awake = self.states.isdisjoint(_STATES_THAT["asleep"])
        return self.fit and awake and "IDLE" in self.states

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        return f"{self.name} ({self.state}{why})"


SlurmNodes: TypeAlias = Sequence[SlurmNode]


@frozen
class Partition:
    """One partition, or several among which Slurm chooses: ``gpu,big``."""

    name: str
    default: bool = False
    state: str = ""  # `UP`, `DOWN`, `DRAIN` or `INACTIVE`

    @property
    def starts_jobs(self) -> bool:
        """Return whether jobs start there; so if Slurm does not show its state."""
        return self.state in {"UP", ""}

    def has(self, node: SlurmNode) -> bool:
        """Return whether a node is in it."""
        return not node.partitions.isdisjoint(self.name.split(","))


def nodes(lines: Iterable[str]) -> SlurmNodes:
    """Parse ``scontrol show node --oneliner``."""
    return tuple(map(_node, records(lines, "NodeName")))


def _node(fields: Fields) -> SlurmNode:
    state = re.sub(r"[^A-Z_+]", "", fields["State"])  # Marks such as the * of IDLE* too
    return SlurmNode(
        name=fields["NodeName"],
        states=frozenset(filter(None, state.split("+"))),
        reason=fields["Reason"],
        partitions=frozenset(_words(fields["Partitions"])),
        gpus=sum(map(int, _GPU.findall(fields["Gres"]))),
        features=tuple(_words(fields["AvailableFeatures"])),
        cpus=parse_whole(fields["CPUTot"]) or 0,
    )


def _words(field: str) -> Iterator[str]:
    """Return the words of a field, which stand with commas between them."""
    return filter(None, field.split(","))


def partitions(lines: Iterable[str]) -> tuple[Partition, ...]:
    """Parse ``scontrol show partition --oneliner``."""
    return tuple(
        Partition(
            name=fields["PartitionName"],
            default=fields["Default"] == "YES",
            state=fields["State"],
        )
        for fields in records(lines, "PartitionName")
    )


def switches(lines: Iterable[str]) -> Mapping[str, str]:
    """Parse ``scontrol show topology``: node → the switch that it is plugged into, or its block.

    A tree (``SwitchName=s1 Level=0 … Nodes=node[0-3]``) gives its lowest level; topology/block has
    ``BlockName=b1 …``.
    """
    shown = tuple(lines)
    switch_of: dict[str, str] = {}
    for name_field in ("SwitchName", "BlockName"):
        for fields in records(shown, name_field):
            if fields["Level"] in {"0", ""}:
                plugged_in = expand_hostlist(fields["Nodes"])
                switch_of |= dict.fromkeys(plugged_in, fields[name_field])
    return switch_of


def select_partition(all_partitions: Sequence[Partition], name: str | None) -> Partition:
    """Return the named partition, or the default one.

    Several (``gpu,big``) are one under that name, in the state of the first that starts jobs.

    Raise MachineError, which lists all, if not found.
    """
    if name and "," in name:
        several = [select_partition(all_partitions, one) for one in name.split(",")]
        usable = [partition for partition in several if partition.starts_jobs]
        best = (*usable, *several)[0]
        return replace(best, name=name)
    for partition in all_partitions:
        if partition.name == name or (name is None and partition.default):
            return partition
    problem = f"Unknown partition {name}" if name else "This cluster has no default partition"
    names = ", ".join(partition.name for partition in all_partitions) or "none"
    raise MachineError(f"{problem}. Available: {names}.", hint="Pass one with --partition.")


def select_nodes(
    all_nodes: SlurmNodes, partition: Partition, count: int, named: Sequence[str] = ()
) -> SlurmNodes:
    """Return the nodes, only `named` ones if any, that a job could get, now or later.

    Raise MachineError.
    """
    inside = [node for node in all_nodes if partition.has(node)]
    unknown = sorted(set(named) - {node.name for node in inside})
    if unknown:
        raise MachineError(f"The partition {partition.name} has no node {', '.join(unknown)}.")
    inside = [node for node in inside if not named or node.name in named]
    if not partition.starts_jobs:
        raise MachineError(
            f"The partition {partition.name} is {partition.state} and starts no jobs.",
            hint="Pass another with --partition.",
        )
    fit = tuple(node for node in inside if node.fit)
    if len(fit) < count:
        unfit = [str(node) for node in inside if not node.fit]
        unavailable = f" Unavailable: {listed(unfit, _SHOWN)}." if unfit else ""
        raise MachineError(
            f"{count} nodes requested, but the partition {partition.name} has {len(fit)} that can "
            f"run jobs.{unavailable}",
            hint="sinfo -R shows why. Request fewer with --nodes, or use another partition.",
        )
    return fit


def idle_alike(all_nodes: SlurmNodes, partition: Partition) -> Names:
    """Return the names of a partition's largest set of idle nodes of one type and GPU count."""

    def kind(node: SlurmNode) -> tuple[int, str]:
        return node.gpus, _type_name(node)

    idle = [node for node in all_nodes if partition.has(node) and node.idle]
    alike = gathered((kind(node), node.name) for node in idle)
    largest = max(alike.values(), key=len, default=[])
    return tuple(largest)


def _type_name(node: SlurmNode) -> str:
    """Return a node's instance type; empty: not known."""
    return node.entry.name if node.entry else ""


def gpus_of(fit: SlurmNodes) -> int:
    """Return the number of GPUs that Slurm counts on most of the nodes."""
    return most_common((node.gpus for node in fit), default=0)


def type_of(fit: SlurmNodes) -> str:
    """Return the instance type of the nodes; empty if it is not known, or if they differ."""
    types = set(map(_type_name, fit))
    return only(types, "")


_outcome = partial(outcome_in, "fabbench.launchers.slurm", "node_checks.toml")


def check_nodes(
    all_nodes: SlurmNodes, partition: Partition | None, required: int | None, named_type: str = ""
) -> tuple[Check, ...]:
    """Check the nodes of a partition, and whether a run could get the required number of them.

    `partition`: None where an allocation has the nodes. `named_type` is the instance type that the
    user gives for all; empty: each node's own.
    """
    checks: list[Check] = []
    for node in all_nodes:
        entry = instance(named_type) if named_type else node.entry
        results = {
            "state": _state_of(node),
            "instance type": _type_of(node, entry),
            "GPUs": _gpus_of(node, entry),
        }
        for name, result in results.items():
            checks.append(result.of(node.name, name))
    if partition is not None:
        usable = _check_partition(all_nodes, partition, required)
        checks.append(usable.of(partition.name, "partition"))
    return tuple(checks)


def _state_of(node: SlurmNode) -> Check:
    found = "silent" if SILENT in node.states else "fit"
    return _outcome(f"state.{found}" if node.fit else "state.unfit", node=node)


def _type_of(node: SlurmNode, entry: System | None) -> Check:
    if entry is None:
        return _outcome("type.unknown", features=", ".join(node.features) or "none")
    return _outcome("type.known", entry=entry)


def _gpus_of(node: SlurmNode, entry: System | None) -> Check:
    found = "others" if node.gpus else "uncounted"
    if entry is None or entry.gpus == node.gpus:
        found = "counted"
    return _outcome(f"gpus.{found}", gpus=counted(node.gpus, "GPU"), entry=entry)


def _check_partition(all_nodes: SlurmNodes, partition: Partition, required: int | None) -> Check:
    """Check whether a run would get its nodes."""
    try:
        fit = select_nodes(all_nodes, partition, required or 1)
    except MachineError as error:
        return refusal(error)
    return _outcome("partition.usable", fit=len(fit), all=len(all_nodes))


def nodes_table(nodes: SlurmNodes) -> Overview:
    """Return nodes as a table, for `fabbench check`."""
    header = ("NAME", "INSTANCE-TYPE", "GPU", "EFA", "CPUS", "PARTITIONS", "STATE")
    records: list[dict[str, object]] = [
        {
            "name": node.name,
            "instance_type": node.entry.name if node.entry else None,
            "gpus": node.gpus,
            "efa_interfaces": node.entry.most_nics if node.entry else None,
            "cpus": node.cpus,
            "partitions": sorted(node.partitions),
            "state": node.state,
            "reason": node.reason,
        }
        for node in nodes
    ]
    rows: list[tuple[str, ...]] = []
    for fields in records:  # their first ones are the columns
        shown = list(fields.values())[: len(header)]
        rows.append(tuple(map(_cell, shown)))
    notes = ["EFA: from the catalog, by instance type."]
    table = Table(header=header, rows=rows, align="llrrrll", notes=notes)
    return Overview(name="nodes", table=table, records=records)


def _cell(value: object) -> str:
    if isinstance(value, list):
        value = ",".join(value)
    text = "" if value is None else str(value)
    return text or "-"


_explain = partial(explain, "fabbench.launchers.slurm", "job_errors.toml")
"""Explains what Slurm says of a job that it has "rejected", that is "pending" or has "ended"."""


def rejection(lines: Sequence[str]) -> MachineError:
    """Return the error for a job that sbatch rejected; `lines` are its messages."""
    for prefix in ("sbatch: ", "error: ", "Batch job submission failed: "):
        lines = [line.removeprefix(prefix) for line in lines]
    sentences = filter(None, map(str.strip, lines))
    text = "; ".join(distinct(sentences))
    explanation = _explain("rejected", shorten(text) or "no output")
    return MachineError(f"sbatch rejected the job. {explanation.text}", hint=explanation.advice)


def explain_pending(job: JobState, position: int | None = None) -> Explanation:
    """Explain why a job is pending.

    `position` is the number of pending jobs ahead of it, if known.
    """
    reason = job.reason or job.state
    why = _explain("pending", reason, partition=job.partition or "?", job=job.id)
    text = f"Job {job.id}: {why.text} ({shorten(reason)})."
    outlook: list[str] = []
    if position is not None:
        outlook.append(f"{counted(position, 'waiting job')} ahead of it")
    if job.start:
        outlook.append(f"Slurm expects it to start at {job.start}")
    if outlook and why.code == "queue":  # else something other than its turn keeps it waiting
        queue = ", and ".join(outlook)
        text += f" {queue}."
    return replace(why, text=text)


# Exit statuses of a script that ran to its end; markers show what its steps did.
_FINISHED_STATUSES = frozenset({0, 4})
# The exit status of a script that found something missing.
_MISSING_STATUS = 3


def explain_end(job: JobState, last: str = "") -> Explanation | None:
    """Explain what ended a job early; None if its script ran to the end.

    `last` is the last line of its output.
    """
    # The script ran to its end: what its steps did, its output says.
    if job.status in _FINISHED_STATUSES and job.state in {"COMPLETED", "FAILED"}:
        return None
    why = _explain(
        "ended",
        job.state,
        how=_how_it_ended(job),
        nodes=job.nodes or "its nodes",
        state=job.state or "an unknown state",
        limit=job.limit,
    )
    text = f"Job {job.id} {why.text}."
    if job.reason and job.reason != "NonZeroExitCode":
        text += f" Slurm reports: {job.reason}."
    if last:
        text += f" Its last line: {shorten(last)}."
    if job.state == "FAILED" and job.status == _MISSING_STATUS:
        why = replace(
            why, advice="Check that line: hosts, a program or a directory is missing there."
        )
    return replace(why, text=text)


def _how_it_ended(job: JobState) -> str:
    # Without a status and a signal, Slurm ended it: at its time limit, or with its node.
    if job.status is not None:
        return f"with status {job.status}"
    return f"by signal {job.signal}" if job.signal else "before its script did"
