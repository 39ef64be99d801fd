"""Why sbatch rejects a job, why it does not start, and what ended it: the tables of job_errors.csv. Pure."""

import re
from collections.abc import Sequence
from dataclasses import replace

from fabbench.catalog.instances import rows_of
from fabbench.launchers import Explanation, shorten
from fabbench.launchers.slurm.scontrol import JobState
from fabbench.model.errors import MachineError
from fabbench.model.messages import counted

_ROWS = tuple(rows_of("job_errors.csv", "fabbench.launchers.slurm"))


def _known(table: str, said: str, **names: str) -> Explanation:
    """Explain a message by the first row whose pattern it contains; the last row's matches everything."""
    rows = [row for row in _ROWS if row["table"] == table]
    row = next((row for row in rows if re.search(row["pattern"], said, re.IGNORECASE)), rows[-1])
    text, advice = (row[key].format(message=shorten(said), **names) for key in ("text", "advice"))
    return Explanation(code=row["code"], text=text, advice=advice, final=row["final"] != "no")


def refused(lines: Sequence[str]) -> MachineError:
    """Return the error for a job that sbatch rejected; `lines` are its messages."""
    for prefix in ("sbatch: ", "error: ", "Batch job submission failed: "):
        lines = [line.removeprefix(prefix) for line in lines]
    text = "; ".join(dict.fromkeys(line.strip() for line in lines if line.strip()))
    explanation = _known("rejected", shorten(text) or "no output")
    return MachineError(f"sbatch rejected the job. {explanation.text}", hint=explanation.advice)


def explain_pending(job: JobState, position: int | None = None) -> Explanation:
    """Explain why a job is pending. `position` is the number of pending jobs ahead of it, if known."""
    reason = job.reason or job.state
    why = _known("pending", reason, partition=job.partition or "?", job=job.id)
    parts = [f"{counted(position, 'waiting job')} ahead of it"] if position is not None else []
    parts += [f"Slurm expects it to start at {job.start}"] if job.start else []
    queue = f" {', and '.join(parts)}." if parts and why.code == "queue" else ""
    return replace(why, text=f"Job {job.id}: {why.text} ({shorten(reason)}).{queue}")


SHARE = "Pass a directory shared by the login node and all nodes: --set chdir=DIRECTORY."
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
        return Explanation(code="output", text=text, advice=f"The disk may be full. {SHARE}")
    last_line = f" Its last line: {shorten(last)}." if last else ""
    signal = f"by signal {job.signal}" if job.signal else "before its script did"
    how = signal if job.status is None else f"with status {job.status}"
    reason = f" Slurm reports: {job.reason}." if job.reason and job.reason != "NonZeroExitCode" else ""
    nodes, state = job.nodes or "its nodes", job.state or "an unknown state"
    why = _known("ended", job.state, how=how, nodes=nodes, state=state)
    if job.state == "FAILED" and job.status == 3:
        why = replace(why, advice="Check that line: hosts, a program or a directory is missing there.")
    return replace(why, text=f"{name} {why.text}.{reason}{last_line}")
