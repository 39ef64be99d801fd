"""Why sbatch rejects a job, why it does not start, and what ended it. Pure.

Messages of sbatch: those in slurm_errno.c. Reasons for waiting: squeue(1), "JOB REASON CODES", and
src/common/job_state_reason.c.
"""

from collections.abc import Sequence

from fabbench.launchers import Explanation, match_message, pattern, shorten
from fabbench.launchers.slurm.scontrol import JobState
from fabbench.model.errors import MachineError
from fabbench.model.messages import counted

_REJECTED = (
    pattern(r"invalid partition", "partition",
        "Partition not found: {message}.", "sinfo lists them; pass one with --partition."),
    pattern(r"account/partition combination|invalid account|AccountNotAllowed", "account",
        "The account cannot be charged for this: {message}.",
        "Pass another with --account or --partition: sacctmgr show assoc user=$USER lists yours."),
    pattern(r"invalid qos|QOS", "qos", "The quality of service does not allow this: {message}.", "Check --qos."),
    pattern(r"reservation", "reservation",
        "The reservation does not allow this: {message}.", "scontrol show reservation lists them."),
    pattern(r"generic resource|gres|gpus", "gres",
        "The nodes do not have the requested GPUs: {message}.", "Pass --no-gres on clusters without GRES."),
    pattern(r"node configuration is not available|node count|More processors|invalid feature|constraint", "nodes",
        "No node has the requested resources: {message}.",
        "Check --nodes, --gpus and --constraint. Pass --no-gres on clusters without GRES."),
    pattern(r"time limit", "time", "The time limit is too long: {message}.", "Pass a shorter one with --time."),
    pattern(r"Unable to contact slurm|Socket timed out|Connection refused", "controller",
        "Slurm's controller does not answer: {message}.", "Try again later."),
    pattern(r"not found|No such file", "sbatch", "sbatch not found: {message}.", "Pass a login node with --login."),
    pattern(r".*", "refused", "{message}.", "See sbatch's message."),
)  # fmt: skip


def refused(lines: Sequence[str]) -> MachineError:
    """Return the error for a job that sbatch rejected; `lines` are its messages."""
    for prefix in ("sbatch: ", "error: ", "Batch job submission failed: "):
        lines = [line.removeprefix(prefix) for line in lines]
    text = "; ".join(dict.fromkeys(line.strip() for line in lines if line.strip()))
    explanation = match_message(_REJECTED, shorten(text) or "no output")
    assert explanation is not None  # noqa: S101 - the last entry matches everything
    return MachineError(f"sbatch rejected the job. {explanation.text}", hint=explanation.advice)


_ANOTHER = "Pass another with --partition, or ask the cluster's administrators."
_LESS = "Request less (--nodes, --time), or another --partition or --qos."
_HELD = "Check the logs of slurmctld and slurmd, and scontrol show node."
_ENDED = "It starts when other jobs under the limit have ended, or never if it requests more than the limit."
_PENDING = (
    pattern(r"^PartitionConfig$", "partition",
        "The partition {partition} cannot provide what it requests",
        "It has fewer nodes, fewer resources or less time than requested: see scontrol show partition."),
    pattern(r"^PartitionNodeLimit$", "nodes", "It requests more nodes than {partition} allows a job", _LESS),
    pattern(r"^PartitionTimeLimit$", "time", "It requests more time than {partition} allows per job", _LESS),
    pattern(r"^Partition(Down|Inactive)$", "partition", "{partition} accepts no jobs", _ANOTHER),
    pattern(r"JobHoldMaxRequeue|launch.?fail|requeued.(in.)?held", "held",
        "Held by Slurm: it failed to start", _HELD),
    pattern(r"^JobHeldUser", "held", "Held", "Run scontrol release {job} to release it.", final=False),
    pattern(r"^JobHeld", "held", "Held by an administrator", "Ask them to run scontrol release.", final=False),
    pattern(r"^DependencyNeverSatisfied$", "dependency",
        "It can never start: its dependency failed", "Change or drop --sbatch-option dependency."),
    pattern(r"^DeadLine$|^BadConstraints$|^InvalidAccount$|^InvalidQOS$|AccountNotAllowed|"
        r"QOSNotAllowed|^FedJobLock$", "refused",
        "It can never start", "Check --constraint, --account and --qos."),
    pattern(r"(QOS|Assoc)\w*(Per(Job|Node)|WallDurationPerJob)\w*|MaxWallDurationPerJobLimit|^MaxMemPerLimit$", "limit",
        "A per-job limit blocks it", _LESS),
    pattern(r"^QOSMin\w+", "limit", "It requests less than its quality of service requires", "Check --qos."),
    pattern(r"^(QOS|Assoc)Grp\w*((?<!Run)Minutes|Wall)|^QOSUsageThreshold", "budget",
        "Its account or quality of service has reached its limit",
        "sacctmgr show assoc and sacctmgr show qos list the limits; pass another with --account or --qos.",
        final=False),
    pattern(r"^ReqNodeNotAvail|Nodes.required.for.job.are.DOWN|NodeDown", "nodes",
        "Nodes that it needs are down, drained or reserved", "sinfo -R shows why; it starts when they are back.",
        final=False),
    pattern(r"^(QOS|Assoc)\w+|^Max\w+PerAccount|^AccountingPolicy", "limit",
        "A limit of the account or the quality of service blocks it for now", _ENDED, final=False),
    pattern(r"^Reservation", "reservation", "Its reservation is not active", "See scontrol show res.", final=False),
    pattern(r"^(Resources|Priority)$", "queue",
        "Waiting for nodes used by other jobs", "Ctrl-C cancels it.", final=False),
    pattern(r"^Dependency$", "dependency", "Waiting for another job", "See squeue.", final=False),
    pattern(r"^Licenses", "licences",
        "Waiting for licenses used by other jobs", "scontrol show licenses lists them.", final=False),
    pattern(r"^BeginTime$", "begin", "Waiting for its begin time", "It starts then.", final=False),
    pattern(r"^CONFIGURING$", "booting", "Its nodes are booting", "It starts when they are up.", final=False),
    pattern(r".", "waiting", "Waiting", "See squeue.", final=False),
)  # fmt: skip


def explain_pending(job: JobState, position: int | None = None) -> Explanation:
    """Explain why a job is pending. `position` is the number of pending jobs ahead of it, if known."""
    reason = job.reason or job.state
    entry = next((entry for entry in _PENDING if entry.pattern.search(reason)), _PENDING[-1])
    text = entry.text.format(partition=job.partition or "?")
    parts = [f"{counted(position, 'waiting job')} ahead of it"] if position is not None else []
    parts += [f"Slurm expects it to start at {job.start}"] if job.start else []
    queue = f" {', and '.join(parts)}." if parts and entry.code == "queue" else ""
    return Explanation(
        code=entry.code,
        text=f"Job {job.id}: {text} ({shorten(reason)}).{queue}",
        advice=entry.advice.format(job=job.id),
        final=entry.final,
    )


_FINISHED_STATUSES = frozenset({0, 4})  # Of a script that ran to its end; markers show what its steps did
_UNWRITTEN = 74  # Exit status of a script whose output could not be written
_NO_OUTPUT = 53  # The signal that Slurm reports if the output file cannot be written (slurmd's req.c)


def explain_end(job: JobState, last: str = "") -> Explanation | None:
    """Explain what ended a job early; None if its script ran to the end. `last` is its last line."""
    if job.status in _FINISHED_STATUSES and job.state in {"COMPLETED", "FAILED"}:
        return None
    name = f"Job {job.id}"
    if job.state == "TIMEOUT":
        text = f"{name} hit its time limit of {job.limit}."
        return Explanation(code="timeout", text=text, advice="Raise --time, or measure less.")
    if job.signal == _NO_OUTPUT:
        text = f"{name} could not write its output {job.output} on {job.nodes or 'its nodes'}."
        return Explanation(code="output", text=text, advice=SHARE)
    if job.status == _UNWRITTEN:
        text = f"{name} could not write its output {job.output} to the end."
        advice = f"The disk may be full. {SHARE}"
        return Explanation(code="output", text=text, advice=advice)
    last_line = f" Its last line: {shorten(last)}." if last else ""
    ended, code, advice = _ENDS.get(job.state, _ENDS[""])
    if job.state == "FAILED" and job.status == 3:
        advice = "Check that line: hosts, a program or a directory is missing there."
    signal = f"by signal {job.signal}" if job.signal else "before its script did"
    how = signal if job.status is None else f"with status {job.status}"
    reason = f" Slurm reports: {job.reason}." if job.reason and job.reason != "NonZeroExitCode" else ""
    text = ended.format(how=how, nodes=job.nodes or "its nodes", state=job.state or "an unknown state")
    return Explanation(code=code, text=f"{name} {text}.{reason}{last_line}", advice=advice)


SHARE = "Pass a directory shared by the login node and all nodes: --chdir DIRECTORY."
_NODE = "Check scontrol show node, and leave the node out: --constraint, or another partition."
_ENDS = {
    "FAILED": ("ended {how}", "failed", "Its output may show why."),
    "CANCELLED": ("was cancelled, and not by fabbench", "cancelled",
                  "It was cancelled by a user (scancel) or an administrator's rule."),
    "NODE_FAIL": ("lost a node of {nodes}", "node", _NODE),
    "OUT_OF_MEMORY": ("ran out of memory (OOM-killed)", "memory", "It requests all memory of its nodes (--mem=0)."),
    "PREEMPTED": ("was preempted by another job", "preempted",
                  "Use a partition or quality of service (--qos) that is not preempted."),
    "BOOT_FAIL": ("got nodes that did not boot", "node", _NODE),
    "LAUNCH_FAILED": ("could not be launched on {nodes}", "node", _NODE),
    "DEADLINE": ("hit its deadline", "deadline", "See scontrol show job."),
    "COMPLETED": ("ended {how}", "failed", "Its output may show why."),
    "": ("ended in {state}", "ended", "Check sacct, if accounting is enabled."),
}  # fmt: skip
