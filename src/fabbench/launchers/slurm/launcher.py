"""The launcher ``slurm``: a whole run as one job of Slurm, submitted here or on a login node over ssh.

Inside an allocation (``SLURM_JOB_NODELIST``) the script is run there, by srun on its first node, and nothing
is submitted. Jobs of fabbench that are still queued are its leftovers.
"""

import contextlib
import os
import secrets
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from fabbench.catalog.offline_inventory import inventory_of
from fabbench.execution.mpirun import MpiHosts, srun
from fabbench.execution.process import Processes, TemporaryFolder
from fabbench.execution.session import TimedOutError
from fabbench.hosts.check import HostRelations, Progress
from fabbench.hosts.discover import folders, programs
from fabbench.hosts.probe import probe_arguments, read_probe, script
from fabbench.hosts.probe_result import Probe
from fabbench.launchers import Examined, Launcher, Leftover, Leftovers, rendering_named, shorten
from fabbench.launchers.batch_job import Follow, JobAllocation
from fabbench.launchers.slurm import SlurmOptions
from fabbench.launchers.slurm.job_errors import explain_end
from fabbench.launchers.slurm.login_node import LoginNode, inside, login
from fabbench.launchers.slurm.render import JOB_NAME, given
from fabbench.launchers.slurm.scontrol import (
    JobState,
    Partition,
    SlurmNode,
    check_nodes,
    chosen,
    gpus_of,
    job_state,
    nodes,
    nodes_table,
    partitions,
    require,
    type_of,
)
from fabbench.launchers.slurm.submit import COMMENT, SAY_NODE, SubmittedJob, by_node, follow
from fabbench.model.compat import override
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hostlist import expand_hostlist
from fabbench.model.hosts import Host, Inventory, Needs, Target
from fabbench.model.options import declared
from fabbench.model.plan import Step
from fabbench.report.table import Overview

_GRACE_S = 20.0
"""How long the script may take to end what it started."""
_STEP, _EXIT = "#@step ", "#@exit "
# The script comes on standard input; what it starts must not read from there. srun itself would report a
# status in a line that reads like one of the ranks'.
_RUN = (
    f'echo "{_STEP}$SLURM_JOB_ID.$SLURM_STEP_ID"; '
    'file=$(mktemp) && cat >"$file" && { bash "$file" </dev/null & child=$!; '
    "trap 'kill -TERM $child 2>/dev/null' TERM INT HUP; "
    'wait "$child"; status=$?; while kill -0 "$child" 2>/dev/null; do wait "$child"; status=$?; done; '
    f'rm -f "$file"; echo "{_EXIT}$status"; }}'
)


def allocated() -> tuple[str, ...]:
    """Return the names of the nodes of the allocation."""
    try:
        return expand_hostlist(os.environ.get("SLURM_JOB_NODELIST", ""))
    except ValueError as error:
        raise RequestError(f"SLURM_JOB_NODELIST cannot be read: {error}.") from None


def run_inside(document: str, nodes: Sequence[str]) -> Generator[str, None, None]:
    """Run a script on the first node, and yield its lines as they come. Closing it ends the script.

    Raise MachineError for a script that did not come to its end.
    """
    srun = (
        *("env", "-u", "FABRIC", "-u", "EXECUTION", "DONE_FILE=/dev/null", "srun", "--overlap", "--quiet"),
        *("--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--cpu-bind=none", f"--nodelist={nodes[0]}"),
        *("--", "sh", "-c", _RUN),
    )
    last = ""
    status: int | None = None
    step = ""
    with TemporaryFolder() as folder, Processes() as processes:
        (folder.path / "script").write_text(document, "utf-8")
        processes.start(("sh", "-c", 'exec "$@" <"$0"', f"{folder.path}/script", *srun), name="srun")
        try:
            for output in processes.lines():
                if output.text is None:
                    continue
                if output.text.startswith(_STEP):
                    step = output.text.removeprefix(_STEP)
                    continue
                if output.text.startswith(_EXIT):
                    status = int(output.text.removeprefix(_EXIT))
                    continue
                last = output.text or last
                yield output.text
        except BaseException:
            _end(processes, step)
            raise
    _judge(status, started=bool(step), last=last)


def _judge(status: int | None, *, started: bool, last: str) -> None:
    """Raise MachineError for a script that did not come to its end, or did not start."""
    number = os.environ["SLURM_JOB_ID"]
    said = shorten(last) or "no output"
    if not started:
        raise MachineError(
            f"srun started nothing in this allocation (job {number}): {said}.",
            hint=f"Check squeue --job {number}. If it is over, unset SLURM_JOB_ID to submit a job.",
        )
    if status is None:
        raise MachineError(
            f"The script in job {number} was killed. Its last line: {said}.",
            hint=f"Check squeue --job {number}: it was cancelled, hit its time limit, or lost a node.",
        )
    why = explain_end(JobState(id=number, state="FAILED", status=status), last)
    if why is not None:
        raise MachineError(why.text.replace("Job ", "The script in job ", 1), hint=why.advice)


def _end(processes: Processes, step: str) -> None:
    """Have the script end what it started, and wait for that: srun would have the step killed too soon."""
    if not step:
        return
    processes.start(("scancel", "--signal=TERM", step))
    with contextlib.suppress(TimedOutError):
        for _ in processes.lines(deadline=time.monotonic() + _GRACE_S):
            pass


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
_FILE = "job.sbatch"


class SlurmLauncher(Launcher):
    """The launcher ``slurm``."""

    name = "slurm"
    options = SlurmOptions
    open_starts_nothing = True
    inherits = True
    has_deep_check = True
    cleans = True

    @contextlib.contextmanager
    def open(self, target: Target, needs: Needs) -> Iterator[JobAllocation]:
        """Look at Slurm's nodes. Leaving it leaves no job and no file there."""
        with login(target) as there:
            place = _allocated(target, needs, there) if inside(target) else _wanted(target, needs, there)
            with contextlib.closing(place):
                yield place

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
    _refuse_options_of_jobs(target)
    names = allocated()
    count = target.nodes or len(names)
    if count > len(names):
        raise MachineError(
            f"{count} nodes requested, but this allocation has {len(names)}: {', '.join(names)}."
        )
    fit = tuple(node for node in _nodes(there) if node.name in names)
    found = _inventory(target, needs, fit, names[:count])
    return _place(found, lambda document: run_inside(document, names))


def _place(found: Inventory, how: Follow) -> JobAllocation:
    return JobAllocation(found, rendering_named("slurm"), _FILE, how, begins=True)


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
