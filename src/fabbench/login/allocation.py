"""The allocation of Slurm's that this program runs in: a script is run on its first node."""

import contextlib
import os
import tempfile
import time
from collections.abc import Generator, Sequence
from pathlib import Path

from fabbench.errors import MachineError, RequestError
from fabbench.hostlist import expand
from fabbench.pods.explanation import brief
from fabbench.process import Processes
from fabbench.session import TimedOutError
from fabbench.slurm.jobs import JobState, explain_end

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
    """Name the nodes of the allocation."""
    try:
        return expand(os.environ.get("SLURM_JOB_NODELIST", ""))
    except ValueError as error:
        raise RequestError(f"SLURM_JOB_NODELIST cannot be read: {error}.") from None


def run_inside(document: str, nodes: Sequence[str]) -> Generator[str, None, None]:
    """Run a script on the first node, and give its lines as they come. Closing it ends the script.

    Raises MachineError for a script that did not come to its end.
    """
    srun = (
        *("env", "-u", "FABRIC", "-u", "TRIAL", "DONE_FILE=/dev/null", "srun", "--overlap", "--quiet"),
        *("--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--cpu-bind=none", f"--nodelist={nodes[0]}"),
        *("--", "sh", "-c", _RUN),
    )
    last = ""
    status: int | None = None
    step = ""
    with tempfile.TemporaryDirectory(prefix="fabbench-") as folder, Processes() as processes:
        Path(folder, "script").write_text(document, "utf-8")
        processes.start(("sh", "-c", 'exec "$@" <"$0"', f"{folder}/script", *srun), name="srun")
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
    said = brief(last) or "it said nothing"
    if not started:
        raise MachineError(
            f"srun started nothing in job {number}, whose allocation this is: {said}.",
            hint=f"See squeue --job {number}. Should it be over: without SLURM_JOB_ID a job is submitted.",
        )
    if status is None:
        raise MachineError(
            f"The script in job {number} was ended before its end. Its last line: {said}.",
            hint=f"See squeue --job {number}: somebody cancelled it, its time was up, or a node was lost.",
        )
    why = explain_end(JobState(id=number, state="FAILED", status=status), last)
    if why is not None:
        raise MachineError(why.text.replace("Job ", "The script in job ", 1), hint=why.advice)


def _end(processes: Processes, step: str) -> None:
    """Let the script end what it started, for some time. srun itself would have the step killed too soon."""
    if not step:
        return
    processes.start(("scancel", "--signal=TERM", step))
    with contextlib.suppress(TimedOutError):
        for _ in processes.lines(deadline=time.monotonic() + _GRACE_S):
            pass
