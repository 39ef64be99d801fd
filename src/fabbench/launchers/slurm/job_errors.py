"""Why sbatch rejects a job, why it does not start, and what ended it. Pure.

The tables and their sources: job_errors.csv.
"""

from collections.abc import Sequence

from fabbench.catalog.instances import rows_of
from fabbench.launchers import Explanation, MessagePattern, match_message, pattern, shorten
from fabbench.launchers.slurm.scontrol import JobState
from fabbench.model.errors import MachineError
from fabbench.model.messages import counted


def _table(name: str) -> tuple[MessagePattern, ...]:
    rows = (row for row in rows_of("job_errors.csv", "fabbench.launchers.slurm") if row["table"] == name)
    keys = ("pattern", "code", "text", "advice")
    return tuple(pattern(*(row[key] for key in keys), final=row["final"] != "no") for row in rows)


_REJECTED, _PENDING = _table("rejected"), _table("pending")


def refused(lines: Sequence[str]) -> MachineError:
    """Return the error for a job that sbatch rejected; `lines` are its messages."""
    for prefix in ("sbatch: ", "error: ", "Batch job submission failed: "):
        lines = [line.removeprefix(prefix) for line in lines]
    text = "; ".join(dict.fromkeys(line.strip() for line in lines if line.strip()))
    explanation = match_message(_REJECTED, shorten(text) or "no output")
    assert explanation is not None  # noqa: S101 - the last entry matches everything
    return MachineError(f"sbatch rejected the job. {explanation.text}", hint=explanation.advice)


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
