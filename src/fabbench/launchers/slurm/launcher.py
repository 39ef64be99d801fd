"""The launcher ``slurm``: a whole run as one job of Slurm, submitted here or on a login node over ssh.

Inside an allocation (``SLURM_JOB_NODELIST``) the script is run there, by srun on its first node, and nothing
is submitted. Jobs of fabbench that are still queued are its leftovers.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from fabbench.catalog.offline_inventory import inventory_of
from fabbench.execution.mpirun import MpiHosts, srun
from fabbench.hosts.check import HostRelations, Progress
from fabbench.hosts.discover import folders, programs
from fabbench.hosts.probe import probe_arguments, read_probe, script
from fabbench.hosts.probe_result import Probe
from fabbench.launchers import (
    SWITCH,
    Examined,
    Launcher,
    Leftover,
    Leftovers,
    notify,
    rendering_named,
    shorten,
)
from fabbench.launchers.batch_job import Follow, JobAllocation
from fabbench.launchers.slurm import SlurmOptions
from fabbench.launchers.slurm.held_job import FILE, HeldJob, held_nodes
from fabbench.launchers.slurm.login_node import LoginNode, inside, login
from fabbench.launchers.slurm.render import JOB_NAME, given, hold_script
from fabbench.launchers.slurm.scontrol import (
    Partition,
    SlurmNode,
    check_nodes,
    chosen,
    gpus_of,
    idle_alike,
    job_state,
    nodes,
    nodes_table,
    partitions,
    require,
    switches,
    type_of,
)
from fabbench.launchers.slurm.steps import JobSteps, run_inside
from fabbench.launchers.slurm.submit import COMMENT, SAY_NODE, SubmittedJob, by_node, follow
from fabbench.model.compat import override
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hostlist import expand_hostlist
from fabbench.model.hosts import Host, Inventory, Needs, Target
from fabbench.model.messages import listed
from fabbench.model.options import declared
from fabbench.model.plan import Step
from fabbench.report.table import Overview


def allocated() -> tuple[str, ...]:
    """Return the names of the nodes of the allocation."""
    try:
        return expand_hostlist(os.environ.get("SLURM_JOB_NODELIST", ""))
    except ValueError as error:
        raise RequestError(f"SLURM_JOB_NODELIST cannot be read: {error}.") from None


_WAIT_S = 30
_ALL_S = 180.0


def ask_nodes(
    there: LoginNode, asked: Sequence[SlurmNode], target: Target, needs: Needs
) -> tuple[Mapping[str, Probe], HostRelations]:
    """Return what each node told. Those of a job that did not start are unreachable, with Slurm's words."""
    name = f"fabbench-check-{secrets.token_hex(3)}"
    text = f"{SAY_NODE}\n{script()}".encode()
    arguments = probe_arguments(programs(needs), folders(target))
    try:
        done = there.run((*_srun(name, asked, target), *arguments), stdin=text, timeout_s=_ALL_S)
    except BaseException:
        there.run_idempotent(("scancel", f"--name={name}"))
        raise
    probes = {name: read_probe(lines) for name, lines in by_node(done.out).items()}
    said = shorten(" ".join(done.err)) or "no output"
    silent = {node.name: said for node in asked if node.name not in probes}
    return probes, HostRelations(unreachable=silent)


def _srun(name: str, asked: Sequence[SlurmNode], target: Target) -> tuple[str, ...]:
    options, count = target.options_as(SlurmOptions), len(asked)
    gpus = min(node.gpus for node in asked)
    return (
        *("srun", f"--job-name={name}", f"--immediate={_WAIT_S}", "--time=5", "--exclusive", "--mem=0"),
        *(f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--cpu-bind=none"),
        f"--nodelist={','.join(node.name for node in asked)}",
        *((f"--gpus-per-node={gpus}",) if gpus and not options.no_gres else ()),
        *(f"--{name}={value}" for name, value in given(options)),
        *("--quiet", "--label", "sh", "-s", "--"),
    )


# The clock is that of the machine which prints the times.
_ASK = 'date +"now %Y-%m-%dT%H:%M:%S"; squeue --noheader --user="$(id -un)" --format="%A|%P|%V|%j|%k"'


def find_jobs(there: LoginNode) -> tuple[Leftover, ...]:
    """Find this user's jobs that fabbench made, the oldest first. All of them wait or run.

    Raise MachineError where the queue cannot be read.
    """
    done = there.run_idempotent(("sh", "-c", _ASK))
    if done.status or not done.out:
        said = " ".join(done.err) or "no output"
        raise MachineError(
            f"Slurm's queue cannot be read on {there.name}: {said}.",
            hint="Check that squeue is installed there.",
        )
    return tuple(sorted(_read(done.out), key=lambda each: -each.age))


def _read(lines: Sequence[str]) -> Iterator[Leftover]:
    now = datetime.fromisoformat(lines[0].removeprefix("now "))
    for line in lines[1:]:
        number, partition, submitted, name, comment = (*line.split("|", 4), *[""] * 5)[:5]
        if comment.startswith(COMMENT) or name.startswith(JOB_NAME):
            age = now - datetime.fromisoformat(submitted) if submitted[:1].isdigit() else timedelta()
            yield Leftover(run=number, namespace=partition, age=age, running=True, request=name, things=())


def cancel_jobs(there: LoginNode, chosen: Sequence[Leftover]) -> None:
    """Cancel jobs, and remove the output of those which `fabbench run` followed."""
    for each in chosen:
        shown = there.run_idempotent(("scontrol", "show", "job", "--oneliner", each.run)).out
        there.run_idempotent(("scancel", each.run))
        job = job_state(next(iter(shown), ""))
        if job.comment.startswith(COMMENT) and job.leaves:
            there.run_idempotent(("rm", "-f", "--", *job.leaves))


_NODES = 2
_AROUND_S = 600
"""For starting and ending a job that holds nodes, besides what is measured."""


class SlurmLauncher(Launcher):
    """The launcher ``slurm``."""

    name = "slurm"
    options = SlurmOptions
    groups_by = (SWITCH,)
    open_starts_nothing = True
    inherits = True
    has_deep_check = True
    cleans = True

    @contextlib.contextmanager
    def open(self, target: Target, needs: Needs) -> Iterator[JobAllocation]:
        """Look at Slurm's nodes; take them where they are used in parts.

        Leaving it leaves no job and no file there.
        """
        with login(target) as there:
            if needs.divided:
                with _held(target, needs, there) as held:
                    yield held
                return
            place = _allocated(target, needs, there) if inside(target) else _wanted(target, needs, there)
            with contextlib.closing(place):
                yield place

    @override
    def preview(self, target: Target, needs: Needs) -> Inventory:
        if not needs.divided:
            return super().preview(target, needs)
        with login(target) as there:
            if inside(target):
                return _allocated_nodes(target, needs, there)[0]
            return _sought(target, needs, there).inventory

    @override
    def command_line(self, step: Step, hosts: Sequence[Host], target: Target) -> tuple[str, ...]:
        if target.options_as(SlurmOptions).mpi == "mpirun" or hosts[0].mpi is None:
            return super().command_line(step, hosts, target)
        names = tuple(host.name for host in hosts)
        return srun(step, MpiHosts(mpi=hosts[0].mpi, addresses=names, programs=hosts[0].programs))

    @override
    def nodes(self, target: Target) -> Overview:
        with login(target) as there:
            seen = _nodes(there)
            if target.options_as(SlurmOptions).partition is not None:
                partition = _partition(there, target)
                seen = tuple(node for node in seen if partition.has(node))
        return nodes_table(node for node in seen if not target.hosts or node.name in target.hosts)

    @override
    def node_groups(self, target: Target, nodes: Sequence[str], by: str) -> Mapping[str, str]:
        del by
        with login(target) as there:
            switch_of = switches(_shown(there, "topology"))
        if missing := [node for node in nodes if node not in switch_of]:
            raise MachineError(
                f"Slurm's topology has no switch for {listed(missing)} (scontrol show topology).",
                hint="Pass --groups FILE, with lines such as node[01-08] rack-1.",
            )
        return {node: switch_of[node] for node in nodes}

    def examine(
        self, target: Target, needs: Needs, *, full: bool, deep: bool, progress: Progress
    ) -> Examined:
        """Look at the nodes of a partition, as Slurm's controller shows them.

        With `deep` the nodes that are idle are asked themselves, in a short job.
        """
        del full
        progress("reading the nodes", 0, 1)
        with login(target) as there:
            seen, partition = _nodes(there), _partition(there, target)
            inside_it = [node for node in seen if partition.has(node)]
            shown = [node for node in inside_it if not target.hosts or node.name in target.hosts]
            idle = [node for node in shown if node.idle][: target.nodes]
            probes: Mapping[str, Probe] = {}
            relations = HostRelations()
            if deep and idle:
                progress("probing the nodes", 0, len(idle))
                probes, relations = ask_nodes(there, idle, target, needs)
        checks = check_nodes(shown, partition, target.nodes, _type(target))
        return Examined(probes=probes, relations=relations, checks=checks)

    @override
    @contextlib.contextmanager
    def leftovers(self, target: Target, *, everywhere: bool, force: bool) -> Iterator[Leftovers]:
        del everywhere, force
        with login(target) as there:
            yield Leftovers(
                where=f"Slurm's queue on {there.name}",
                column="PARTITION",
                found=find_jobs(there),
                remove=partial(cancel_jobs, there),
            )


LAUNCHER = SlurmLauncher()


def _nodes(there: LoginNode) -> tuple[SlurmNode, ...]:
    return nodes(_shown(there, "node"))


def _partition(there: LoginNode, target: Target) -> Partition:
    return chosen(partitions(_shown(there, "partition")), target.options_as(SlurmOptions).partition)


def _shown(there: LoginNode, what: str) -> list[str]:
    """Return the lines of `scontrol show`."""
    done = there.run_idempotent(("scontrol", "show", what, "--oneliner", "--all"))
    if done.status:
        said = " ".join((*done.err, *done.out)) or "no output"
        raise MachineError(
            f"Cannot query Slurm on {there.name}: {said}.",
            hint="Check that scontrol is installed and slurmctld is up, or pass another login "
            "node with --login HOST.",
        )
    return done.out


def _type(target: Target) -> str:
    return target.options_as(SlurmOptions).instance_type


def _wanted(target: Target, needs: Needs, there: LoginNode) -> JobAllocation:
    """Return the allocation of a job that is to be submitted."""
    seen, partition = _nodes(there), _partition(there, target)
    count = target.nodes or len(target.hosts) or _NODES
    fit = require(seen, partition, count, target.hosts)
    found = _inventory(
        target, needs, fit, [f"node {number} of {partition.name}" for number in range(1, count + 1)]
    )
    job = SubmittedJob(there, target.options_as(SlurmOptions).start_timeout, target.inherited)
    place = _place(found, partial(follow, job))
    place.cancel_execution = job.cancel_execution
    place.read_counters = job.counters
    return place


_OF_JOBS = (
    *("partition", "account", "qos", "time", "reservation", "constraint", "sbatch_options"),
    *("start_timeout", "chdir"),
)
"""Options of a job that is submitted: an allocation has them already."""


def _refuse_options_of_jobs(target: Target) -> None:
    """Raise RequestError for an option on the command line that has no effect inside an allocation.

    A target of `fabbench.yaml` may have them: it is for jobs that are submitted, too.
    """
    known = declared(SlurmOptions)
    for name in _OF_JOBS:
        if name in target.typed:
            raise RequestError(
                f"{known[name].long} has no effect inside a Slurm allocation (SLURM_JOB_ID is set).",
                hint="Leave it out, or submit a job from outside: env -u SLURM_JOB_ID fabbench run …",
            )


def _allocated(target: Target, needs: Needs, there: LoginNode) -> JobAllocation:
    """Return the allocation that this program runs in. Raise MachineError where it has too few nodes."""
    found, names = _allocated_nodes(target, needs, there)
    return _place(found, lambda document: run_inside(document, names))


def _allocated_nodes(target: Target, needs: Needs, there: LoginNode) -> tuple[Inventory, tuple[str, ...]]:
    """Return what is to be used of the allocation, and the names of all its nodes. Raise MachineError."""
    _refuse_options_of_jobs(target)
    names = allocated()
    count = target.nodes or len(names)
    if count > len(names):
        raise MachineError(
            f"{count} nodes requested, but this allocation has {len(names)}: {', '.join(names)}."
        )
    fit = tuple(node for node in _nodes(there) if node.name in names)
    return _inventory(target, needs, fit, names[:count]), names


class _Sought(NamedTuple):
    """Nodes that are to be held."""

    inventory: Inventory
    named: tuple[str, ...]
    """Empty: any; Slurm chooses."""


def _sought(target: Target, needs: Needs, there: LoginNode) -> _Sought:
    """Return the nodes of a job that holds them. Raise MachineError where there are too few."""
    seen, partition = _nodes(there), _partition(there, target)
    named = target.hosts if target.hosts or target.nodes else _all_idle(seen, partition)
    count = target.nodes or len(named)
    if len(named) > count:
        raise RequestError(f"{len(named)} nodes were given, but {count} are used.", hint="Drop --nodes.")
    fit = require(seen, partition, count, named)
    chosen_by_slurm = [f"node {number} of {partition.name}" for number in range(1, count + 1)]
    return _Sought(_inventory(target, needs, fit, named if len(named) == count else chosen_by_slurm), named)


@contextlib.contextmanager
def _held(target: Target, needs: Needs, there: LoginNode) -> Iterator[HeldJob]:
    """Hold nodes whose parts run executions by themselves, in a job or in this allocation."""
    if inside(target):
        found, _ = _allocated_nodes(target, needs, there)
        job_id, tasks = os.environ["SLURM_JOB_ID"], _most_ranks(found, needs)
        yield HeldJob(found, JobSteps(there=there, job=job_id, tasks=tasks), {})
        return
    options = target.options_as(SlurmOptions)
    found, named = _sought(target, needs, there)
    needs.check(found)
    tasks = _most_ranks(found, needs)
    document = hold_script(
        options,
        nodes=len(found.hosts),
        tasks=tasks,
        gpus=found.hosts[0].gpus,
        named=named,
        limit_s=None if needs.held_s is None else needs.held_s + _AROUND_S,
    )
    job = SubmittedJob(there, options.start_timeout)
    with held_nodes(job, document) as names:
        steps = JobSteps(there=there, job=job.job.id, tasks=tasks, inherited=target.inherited)
        yield HeldJob(found.named(names), steps, {FILE: document})


def _all_idle(seen: Sequence[SlurmNode], partition: Partition) -> tuple[str, ...]:
    """Return the nodes that a sweep takes where nobody names any, and say so. Raise MachineError."""
    found, most = idle_alike(seen, partition), sum(map(partition.has, seen))
    if len(found) < _NODES:
        raise MachineError(
            f"{len(found)} of {most} nodes of the partition {partition.name} are idle and alike; a sweep "
            f"needs {_NODES}.",
            hint="fabbench nodes shows them. To wait for busy ones, pass --nodes N.",
        )
    if len(found) < most:
        notify(
            f"{len(found)} of {most} nodes are idle and alike, and are tested. "
            "fabbench nodes shows the others."
        )
    return found


def _most_ranks(found: Inventory, needs: Needs) -> int:
    """Count the ranks that a node may have: one per GPU."""
    return max(found.hosts[0].gpus if needs.mpi else 0, 1)


def _place(found: Inventory, how: Follow) -> JobAllocation:
    return JobAllocation(found, rendering_named("slurm"), FILE, how, begins=True)


def _inventory(
    target: Target, needs: Needs, fit: tuple[SlurmNode, ...], names: list[str] | tuple[str, ...]
) -> Inventory:
    """Return the hosts, as the catalog and Slurm's own counts have them."""
    instance_type = _type(target) or type_of(fit)
    counted = gpus_of(fit) or None if needs.gpus else None
    gpus = target.gpus if target.gpus is not None else counted
    found = inventory_of(
        instance_type,
        len(names),
        target=replace(target, gpus=gpus),
        needs=needs,
        image=target.options_as(SlurmOptions).image,
    )
    return found.named(names)
