"""The launcher ``slurm``: steps of one job, which holds nodes, or of the allocation around it.

The job is submitted here, or on a login node over ssh.
"""

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache, partial

from fabbench.catalog.offline_inventory import inventory_of
from fabbench.execution.mpirun import MpiHosts, srun
from fabbench.execution.waiting import moments
from fabbench.hosts.check import HostRelations, Progress
from fabbench.hosts.discover import arguments_for
from fabbench.hosts.probe import read_probe, script
from fabbench.hosts.probe_result import Probes
from fabbench.launchers import (
    NODES,
    SWITCH,
    Connections,
    Examined,
    Launcher,
    Leftover,
    Leftovers,
    notify,
    rendering_named,
)
from fabbench.launchers.batch_job import Follow, JobAllocation
from fabbench.launchers.jobs import follow, held
from fabbench.launchers.login_node import LoginNode, login
from fabbench.launchers.slurm import SlurmOptions
from fabbench.launchers.slurm.job import COMMENT, SlurmJob
from fabbench.launchers.slurm.render import JOB_NAME, directives, hold_script, requests
from fabbench.launchers.slurm.scontrol import (
    Partition,
    SlurmNodes,
    check_nodes,
    explain_pending,
    gpus_of,
    idle_alike,
    nodes,
    nodes_table,
    partitions,
    select_nodes,
    select_partition,
    state_in,
    switches,
    type_of,
)
from fabbench.launchers.slurm.steps import FILE, HeldNodes, JobSteps, show_job
from fabbench.model.compat import override
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hostlist import expand_hostlist
from fabbench.model.hosts import Host, Inventory, Needs, Target
from fabbench.model.mappings import GroupOfNode, Names, gathered, map_values
from fabbench.model.messages import listed, output_text, shorten
from fabbench.model.options import declared
from fabbench.model.plan import Step, Words
from fabbench.remote.allocation import connected

_WAIT_S = 30  # How long srun waits for nodes that are to be probed
_ALL_S = 180.0  # How long probing all of them may take
_CHECK_S = 300  # The time limit of the job in which they are probed
_LOOK_S = 5.0  # Between two looks at a job that is waited for
# Prints the first line of programs under srun, for `by_node`
_PRINT_NODE = 'echo "fabbench node $SLURMD_NODENAME"'
_NODE = "fabbench node "
_LABEL = re.compile(r" *(\d+): ?(.*)")


def by_node(lines: Sequence[str]) -> dict[str, list[str]]:
    """Return what each node printed.

    With --label, srun prefixes each line with the number of the task, whose first line names its
    node. A task without such a line is left out.
    """
    labeled = filter(None, map(_LABEL.fullmatch, lines))
    output_of_task = gathered((match[1], match[2]) for match in labeled)
    return {
        output[0].removeprefix(_NODE): output[1:]
        for output in output_of_task.values()
        if output[0].startswith(_NODE)
    }


def probe_nodes(
    login_node: LoginNode, requested: SlurmNodes, target: Target, needs: Needs
) -> tuple[Probes, HostRelations]:
    """Probe nodes in a job, or in the one around.

    Nodes that did not answer are unreachable, with Slurm's message as the reason.
    """
    token = secrets.token_hex(3)
    name = f"check-{token}"
    probe_script = f"{_PRINT_NODE}\n{script()}".encode()
    arguments = arguments_for(target, needs)
    try:
        done = login_node.run(
            (*_srun(name, requested, target), *arguments), stdin=probe_script, timeout_s=_ALL_S
        )
    except BaseException:  # the job may still be there, and srun has not told its id
        login_node.run_idempotent(("scancel", f"--name={JOB_NAME}{name}"))
        raise
    probes = map_values(read_probe, by_node(done.out))
    message = output_text(done.err)
    unreachable = {node.name: message for node in requested if node.name not in probes}
    return probes, HostRelations(unreachable=unreachable)


def _srun(name: str, requested: SlurmNodes, target: Target) -> Words:
    """Return the command that runs its input, a script, on each of some nodes at once.

    The user's time limit and sbatch options are for jobs that measure.
    """
    # Steps of the job around have its GPUs, if it has some.
    gpus = 0 if _job_around(target) else min(node.gpus for node in requested)
    job_requests = requests(
        replace(target.options_as(SlurmOptions), time=None, sbatch_options=()),
        name,
        nodes=len(requested),
        tasks=1,
        gpus=gpus,
        named=[node.name for node in requested],
        limit_s=_CHECK_S,
    )
    options = (*job_requests, f"immediate={_WAIT_S}", "cpu-bind=none", "quiet", "label")
    return ("srun", *(f"--{option}" for option in options), "sh", "-s", "--")


# The clock of the machine that prints the times.
_LIST_JOBS = (
    'date +"now %Y-%m-%dT%H:%M:%S"; squeue --noheader --user="$(id -un)" --format="%A|%P|%V|%j|%k"'
)


def find_jobs(login_node: LoginNode) -> tuple[Leftover, ...]:
    """Find this user's jobs of fabbench, pending or running, oldest first. Raise MachineError."""
    done = login_node.run_idempotent(("sh", "-c", _LIST_JOBS))
    if done.status or not done.out:
        message = output_text(done.err)
        raise MachineError(
            f"Slurm's queue cannot be read on {login_node.name}: {message}.",
            hint="Check that squeue is installed there.",
        )
    now_line, *job_lines = done.out
    now = datetime.fromisoformat(now_line.removeprefix("now "))
    jobs = []
    for line in job_lines:
        columns = [*line.split("|", 4), "", "", "", ""]  # the last ones may be left out
        # The comment is last, as it may have any character.
        number, partition, submitted, name, comment = columns[:5]
        if comment.startswith(COMMENT) or name.startswith(JOB_NAME):
            age = timedelta()
            with suppress(ValueError):  # N/A is no time
                age = now - datetime.fromisoformat(submitted)
            jobs.append(
                Leftover(
                    run=number, namespace=partition, age=age, running=True, request=name, things=()
                )
            )
    return tuple(sorted(jobs, key=lambda job: -job.age))


def cancel_jobs(login_node: LoginNode, chosen: Sequence[Leftover]) -> None:
    """Cancel jobs."""
    login_node.run_idempotent(("scancel", *(leftover.run for leftover in chosen)))


_AROUND_S = 600  # For starting and ending a job that holds nodes, in addition to the measurements


class SlurmLauncher(Launcher):
    """The launcher ``slurm``."""

    name = "slurm"
    options = SlurmOptions
    groups_by = (SWITCH,)
    inherits = True
    has_deep_check = True

    @contextmanager
    def open(self, target: Target, needs: Needs) -> Iterator[JobAllocation]:
        """Look at Slurm's nodes, and hold them if executions are divided, or one decides the next.

        Else what is measured is one script: a step of the allocation around, or of a job that gets
        its nodes when the script is submitted. Leaving it leaves no job and no file.
        """
        # A job that is submitted has its nodes alone: no other run is in it
        job = _job_around(target) or secrets.token_hex(6)
        with login(target, follows=True, job=job) as login_node:
            if needs.divided or needs.one_by_one:
                with _hold_nodes(target, needs, login_node) as nodes_held:
                    yield nodes_held
                return
            if _job_around(target):
                inventory = _allocated_nodes(target, needs, login_node)
                steps = _steps_inside(login_node, target)
                follow_script: Follow = partial(steps.follow, nodes=inventory.names)
            else:
                inventory, _ = _select_nodes(target, needs, login_node)
                follow_script = partial(follow, _new_job(target, login_node))
            allocation = JobAllocation(inventory, rendering_named("slurm"), FILE, follow_script)
            allocation.machines = (login_node.agent,)
            with closing(allocation):
                yield allocation

    @override
    def preview(self, target: Target, needs: Needs) -> Inventory:
        with login(target) as login_node:
            if _job_around(target):
                return _allocated_nodes(target, needs, login_node)
            return _select_nodes(target, needs, login_node)[0]  # without the names to request

    @override
    def command_line(self, step: Step, hosts: Sequence[Host], target: Target) -> Words:
        # srun starts the ranks, unless the user chose mpirun or the hosts have no MPI.
        if target.options_as(SlurmOptions).mpi == "mpirun" or hosts[0].mpi is None:
            return super().command_line(step, hosts, target)
        names = tuple(host.name for host in hosts)
        return srun(step, MpiHosts(mpi=hosts[0].mpi, addresses=names, programs=hosts[0].programs))

    @override
    def held_by(self, target: Target) -> str:
        job = _job_around(target)
        return f"job {job}" if job else "one job"

    @override
    def node_groups(self, target: Target, nodes: Sequence[str], by: str) -> GroupOfNode:
        del by  # There are only switches
        with login(target) as login_node:
            switch_of = switches(_scontrol_show(login_node, "topology"))
        if missing := [node for node in nodes if node not in switch_of]:
            raise MachineError(
                f"Slurm's topology has no switch for {listed(missing)} (scontrol show topology).",
                hint="Pass --groups FILE, with lines such as node[01-08] rack-1.",
            )
        return {node: switch_of[node] for node in nodes}

    def examine(self, target: Target, needs: Needs, *, deep: bool, progress: Progress) -> Examined:
        """Examine the nodes of a partition, or of the allocation around, as Slurm shows them.

        With `deep`, probe the idle ones in a short job. An allocation's are probed in any case.
        """
        progress("reading the nodes", 0, 1)  # none done, of one step
        job = _job_around(target)
        names = target.hosts
        if job and not names:
            names = _allocated_names(target)
        with login(target) as login_node:
            partition = None if job else _partition(login_node, target)
            shown = _nodes(login_node)
            if partition is not None:
                shown = [node for node in shown if partition.has(node)]
            if names:
                shown = [node for node in shown if node.name in names]
            free = [node for node in shown if job or node.idle][: target.nodes]  # None: all
            probes: Probes = {}
            relations = HostRelations()
            if free and (deep or job):
                progress("probing the nodes", 0, len(free))
                probes, relations = probe_nodes(login_node, free, target, needs)
        checks = check_nodes(
            shown, partition, target.nodes, target.options_as(SlurmOptions).instance_type
        )
        return Examined(
            probes=probes, relations=relations, checks=checks, overviews=(nodes_table(shown),)
        )

    @override
    def connections(self, target: Target, wait_s: float) -> Connections:
        job = target.options_as(SlurmOptions).job
        if not job or target.hosts:
            raise RequestError("Pass --job, the Slurm job to watch, and no nodes.")
        tell_once = cache(notify)
        with login(target) as login_node:
            for _ in moments(wait_s, _LOOK_S):
                answer = show_job(login_node, job)
                state = state_in(answer)
                if state is None or not state.pending:
                    break
                tell_once(str(explain_pending(state)))
        if state is None or not state.runs:
            shown = shorten(" ".join(answer))
            raise MachineError(
                f"Job {job} does not run: {shown}.",
                hint="See squeue. For one that is pending, pass --wait, such as --wait 10m.",
            )
        return connected(target, expand_hostlist(state.nodes))

    @override
    @contextmanager
    def leftovers(self, target: Target, *, everywhere: bool, force: bool) -> Iterator[Leftovers]:
        del everywhere, force
        with login(target) as login_node:
            yield Leftovers(
                where=f"Slurm's queue on {login_node.name}",
                column="PARTITION",
                found=find_jobs(login_node),
                remove=partial(cancel_jobs, login_node),
            )


LAUNCHER = SlurmLauncher()


def _job_around(target: Target) -> str:
    """Return the Slurm job in whose allocation this program runs, if it is to be used; or ""."""
    return "" if target.options_as(SlurmOptions).login else os.environ.get("SLURM_JOB_ID", "")


def _nodes(login_node: LoginNode) -> SlurmNodes:
    return nodes(_scontrol_show(login_node, "node"))


def _partition(login_node: LoginNode, target: Target) -> Partition:
    return select_partition(
        partitions(_scontrol_show(login_node, "partition")),
        target.options_as(SlurmOptions).partition,
    )


def _scontrol_show(login_node: LoginNode, what: str) -> list[str]:
    done = login_node.run_idempotent(("scontrol", "show", what, "--oneliner", "--all"))
    if done.status:
        message = output_text((*done.err, *done.out))
        raise MachineError(
            f"Cannot query Slurm on {login_node.name}: {message}.",
            hint=(
                "Check that scontrol is installed and slurmctld is up, or pass another login "
                "node with --login HOST."
            ),
        )
    return done.out


# Options of a job that is submitted; in an allocation they are already fixed. A target of
# `fabbench.yaml` may have them, since it also serves for submitted jobs.
_JOB_OPTIONS = (
    *("partition", "account", "qos", "time", "reservation", "constraint", "sbatch_options"),
    *("start_timeout", "chdir"),
)


def _refuse_options_of_jobs(target: Target) -> None:
    """Raise RequestError if the command line has one of `_JOB_OPTIONS`."""
    if typed := next((name for name in _JOB_OPTIONS if name in target.typed), None):
        raise RequestError(
            (
                f"{declared(SlurmOptions)[typed].long} has no effect inside a Slurm allocation "
                "(SLURM_JOB_ID is set)."
            ),
            hint="Leave it out, or submit a job from outside: env -u SLURM_JOB_ID fabbench run …",
        )


def _allocated_names(target: Target) -> Names:
    """Return the nodes of the allocation around this program. Raise RequestError."""
    _refuse_options_of_jobs(target)
    try:
        return tuple(expand_hostlist(os.environ.get("SLURM_JOB_NODELIST", "")))
    except ValueError as error:
        raise RequestError(f"SLURM_JOB_NODELIST cannot be read: {error}.") from None


def _allocated_nodes(target: Target, needs: Needs, login_node: LoginNode) -> Inventory:
    """Return the part of the allocation around this program to use. Raise MachineError."""
    names = _allocated_names(target)
    count = target.nodes or len(names)
    if count > len(names):
        raise MachineError(
            f"{count} nodes requested, but this allocation has {len(names)}: {', '.join(names)}."
        )
    fit = tuple(node for node in _nodes(login_node) if node.name in names)
    return _inventory(target, needs, fit, names[:count])


def _select_nodes(target: Target, needs: Needs, login_node: LoginNode) -> tuple[Inventory, Names]:
    """Return the nodes for a job, and the names of those to request; the others Slurm chooses.

    A sweep without names or a number takes all idle nodes. Only where nodes are divided, and none
    is Slurm's choice, the inventory has their names. Raise MachineError.
    """
    all_nodes = _nodes(login_node)
    partition = _partition(login_node, target)
    # Divided: subsets of the nodes run executions, as in a sweep.
    takes_idle = needs.divided and not (target.hosts or target.nodes)
    named = _all_idle(all_nodes, partition) if takes_idle else target.hosts
    count = target.nodes or len(named) or NODES
    if len(named) > count:
        raise RequestError(
            f"{len(named)} nodes were given, but {count} are used.", hint="Drop --nodes."
        )
    fit = select_nodes(all_nodes, partition, count, named)
    chosen_by_slurm = [f"node {number} of {partition.name}" for number in range(1, count + 1)]
    # A script lists its nodes itself; only who divides held nodes needs to name them.
    has_names = needs.divided and len(named) == count
    return _inventory(target, needs, fit, named if has_names else chosen_by_slurm), named


@contextmanager
def _hold_nodes(target: Target, needs: Needs, login_node: LoginNode) -> Iterator[HeldNodes]:
    """Hold nodes that run executions as steps, in a job or in this allocation."""
    if _job_around(target):
        inventory = _allocated_nodes(target, needs, login_node)
        steps = _steps_inside(login_node, target)
        yield HeldNodes(inventory, steps, documents={})
        return
    inventory, named = _select_nodes(target, needs, login_node)
    held_s = needs.held_s(inventory)  # which refuses some before any node is held
    document = directives(
        target.options_as(SlurmOptions),
        "sweep" if needs.divided else "run",
        nodes=len(inventory.hosts),
        tasks=_max_ranks(inventory, needs),
        gpus=inventory.gpus_for(needs, target),
        named=named,
        limit_s=None if held_s is None else held_s + _AROUND_S,
        # The job outlives a node that is lost, where others can go on without it
        more=("no-kill",) if needs.divided else (),
    )
    job = _new_job(target, login_node)
    with held(job, document):
        inventory = inventory.named(expand_hostlist(job.nodes()))
        yield HeldNodes(inventory, job.steps, {FILE: hold_script(document)})


def _new_job(target: Target, login_node: LoginNode) -> SlurmJob:
    """Return a job that is to be submitted."""
    start_timeout_s = target.options_as(SlurmOptions).start_timeout
    return SlurmJob(login_node, start_timeout_s, target.inherited)


def _all_idle(all_nodes: SlurmNodes, partition: Partition) -> Names:
    """Return the nodes of a sweep that names none, and report the choice. Raise MachineError."""
    idle = idle_alike(all_nodes, partition)
    total = sum(map(partition.has, all_nodes))
    if len(idle) < NODES:
        raise MachineError(
            f"{len(idle)} of {total} nodes of the partition {partition.name} are idle and alike; "
            f"a sweep needs {NODES}.",
            hint="fabbench check shows them. To wait for busy ones, pass --nodes N.",
        )
    if len(idle) < total:
        notify(
            f"{len(idle)} of {total} nodes are idle and alike, and are tested. fabbench check "
            "shows the others."
        )
    return idle


def _max_ranks(inventory: Inventory, needs: Needs) -> int:
    """Return the maximum number of ranks per node: one per GPU."""
    return max(inventory.hosts[0].gpus if needs.mpi else 0, 1)


def _steps_inside(login_node: LoginNode, target: Target) -> JobSteps:
    """Return the steps of the allocation in which this program runs."""
    job = os.environ["SLURM_JOB_ID"]
    return JobSteps(login_node=login_node, job=job, inherited=target.inherited)


def _inventory(target: Target, needs: Needs, fit: SlurmNodes, names: Sequence[str]) -> Inventory:
    """Return hosts of these names, with what the catalog and Slurm tell of the nodes in question.

    Slurm's count of GPUs is used unless the user gives one.
    """
    options = target.options_as(SlurmOptions)
    if target.gpus is None and needs.gpus:
        target = replace(target, gpus=gpus_of(fit) or None)  # None: as the catalog says
    instance_type = options.instance_type or type_of(fit)
    return inventory_of(
        instance_type, len(names), target=target, needs=needs, image=options.image
    ).named(names)
