"""A job as ``scontrol show job`` shows it, and what became of it. Pure.

States: squeue(1), "JOB STATE CODES".
"""

import re
from dataclasses import dataclass, replace

from fabbench.pods.explanation import Explanation, brief
from fabbench.slurm.directives import OUTPUT
from fabbench.slurm.records import record

_ENDED = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL"}
    | {"OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"}
)  # fmt: skip
_RUNS = frozenset({"RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED", "SUSPENDED"})
_OWN_STATUSES = frozenset({0, 4})
"""Of a script that came to its end: what its steps did, their markers say."""
_NO_OUTPUT = 53
"""The signal that Slurm names where the output file cannot be written (slurmd's req.c)."""
_WARNED = 138
"""128 and SIGUSR1, which Slurm sends some time before the limit."""
_UNWRITTEN = 74
"""Of a script that could not print (any more)."""
_GONE = re.compile(r"Invalid job id")
_EXIT = re.compile(r"(\d+):(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """A job at some moment."""

    id: str
    state: str = ""
    """As Slurm writes it: `PENDING`, `RUNNING`, …; empty: not known."""
    reason: str = ""
    partition: str = ""
    status: int | None = None
    """Exit status of the script; None: it has not ended, or was ended by a signal."""
    signal: int = 0
    restarts: int = 0
    start: str = ""
    """When it started; of a job that waits, when Slurm expects it to."""
    limit: str = ""
    run_time: str = ""
    nodes: str = ""
    """A list such as ``node[0-1]``."""
    output: str = ""
    """The path of its output."""
    comment: str = ""
    folder: str = ""
    """Where the script runs."""

    @property
    def done_file(self) -> str:
        """The file in which the script notes the trials that it need not run (again)."""
        return f"{self.folder}/fabbench-{self.id}.done"

    @property
    def leaves(self) -> tuple[str, ...]:
        """The files that it leaves; an output that somebody else has chosen (/dev/null) is none of them."""
        own = self.output.rpartition("/")[2] == OUTPUT.replace("%j", self.id)
        return (self.output, self.done_file) if own else (self.done_file,) if self.folder else ()

    @property
    def ran_s(self) -> int:
        """For how many seconds it has run, days apart."""
        parts = self.run_time.rpartition("-")[2].split(":")
        numbers = [int(part) for part in parts if part.isdecimal()]
        return sum(number * 60**place for place, number in enumerate(reversed(numbers)))

    @property
    def over(self) -> bool:
        """Whether it has ended and will not start again."""
        return self.state in _ENDED

    @property
    def runs(self) -> bool:
        """Whether it is on its nodes."""
        return self.state in _RUNS

    @property
    def pending(self) -> bool:
        """Whether it waits for its nodes."""
        return not self.over and not self.runs and bool(self.state)


def gone(lines: list[str]) -> bool:
    """Whether Slurm says that it does not know the job (any more)."""
    return any(_GONE.search(line) for line in lines)


def job_state(line: str) -> JobState:
    """Read the record of a job."""
    fields = record(line)
    match = _EXIT.match(fields.get("ExitCode", ""))
    state = fields.get("JobState", "")
    return JobState(
        id=fields.get("JobId", ""),
        state=state,
        reason=fields.get("Reason", ""),
        partition=fields.get("Partition", ""),
        status=int(match[1]) if match and state in _ENDED and match[2] == "0" else None,
        signal=int(match[2]) if match else 0,
        restarts=int(fields.get("Restarts") or 0),
        start=fields.get("StartTime", ""),
        limit=fields.get("TimeLimit", ""),
        run_time=fields.get("RunTime", ""),
        nodes=fields.get("NodeList", ""),
        output=fields.get("StdOut", "").replace("%j", fields.get("JobId", "")),
        comment=fields.get("Comment", ""),
        folder=fields.get("WorkDir", ""),
    )


def accounted(line: str, job: JobState) -> JobState | None:
    """Read what sacct says of a job: ``CANCELLED by 1000|0:0|node[0-1]|01:00:00``. None: it is no end."""
    words, _, rest = line.partition("|")
    code, nodes, limit = (*rest.split("|"), "", "", "")[:3]
    state, match = words.partition(" ")[0], _EXIT.match(code)
    if state not in _ENDED or match is None:
        return None
    status = int(match[1]) if match[2] == "0" else None
    ended = replace(job, state=state, reason="", status=status, signal=int(match[2]))
    return replace(ended, nodes=nodes or job.nodes, limit=limit or job.limit)


def explain_end(job: JobState, last: str = "") -> Explanation | None:
    """Say what ended a job before it came to its own end; None: it came to it. `last` is its last line."""
    if job.status in _OWN_STATUSES and job.state in {"COMPLETED", "FAILED"}:
        return None
    name = f"Job {job.id}"
    if job.state == "TIMEOUT" or job.status == _WARNED:
        text = f"{name} came to its time limit of {job.limit}."
        return Explanation(code="timeout", text=text, advice=_LIMIT)
    if job.signal == _NO_OUTPUT:
        text = f"{name} could not write its output {job.output} on {job.nodes or 'its nodes'}."
        return Explanation(code="output", text=text, advice=SHARE)
    if job.status == _UNWRITTEN:
        text = f"{name} could not write its output {job.output} to the end."
        return Explanation(code="output", text=text, advice=_FULL)
    told = f" Its last line: {brief(last)}." if last else ""
    ended, code, advice = _ENDS.get(job.state, _ENDS[""])
    if job.state == "FAILED" and job.status == 3:
        advice = "See the line: hosts, a program or a folder is missing there."
    signal = f"by signal {job.signal}" if job.signal else "before its script did"
    how = signal if job.status is None else f"with status {job.status}"
    said = f" Slurm says: {job.reason}." if job.reason and job.reason != "NonZeroExitCode" else ""
    text = ended.format(how=how, nodes=job.nodes or "its nodes", state=job.state or "an unknown state")
    return Explanation(code=code, text=f"{name} {text}.{said}{told}", advice=advice)


SHARE = "Name a folder that the login node and all nodes share: --chdir FOLDER."
_FULL = "Is the disk full? Name a folder elsewhere that the login node and all nodes share: --chdir FOLDER."
_LIMIT = "Give it more with --time, or measure less."
_NODE = "See scontrol show node, and leave the node out: --constraint, or another partition."
_ENDS = {
    "FAILED": ("ended {how}", "failed", "Its output may say why."),
    "CANCELLED": (
        "was cancelled, and not by fabbench",
        "cancelled",
        "Somebody did that (scancel), or an administrator's rule.",
    ),
    "NODE_FAIL": ("lost a node of {nodes}", "node", _NODE),
    "OUT_OF_MEMORY": (
        "took more memory than it may",
        "memory",
        "It asks for all memory of its nodes (--mem=0).",
    ),
    "PREEMPTED": (
        "was preempted by another job, and not requeued",
        "preempted",
        "Use a partition or a quality of service (--qos) that is not preempted, or that requeues.",
    ),
    "BOOT_FAIL": ("got nodes that did not boot", "node", _NODE),
    "LAUNCH_FAILED": ("could not be launched on {nodes}", "node", _NODE),
    "DEADLINE": ("came to its deadline", "deadline", "See scontrol show job."),
    "COMPLETED": ("ended {how}", "failed", "Its output may say why."),
    "": ("ended in {state}", "ended", "See sacct, where there is accounting."),
}
