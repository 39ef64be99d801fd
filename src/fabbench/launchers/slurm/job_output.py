"""The output of a job that nobody follows any more: its ``fabbench run`` was killed, or its laptop is gone."""

from pathlib import Path

from fabbench.launchers.slurm.job_errors import explain_end, explain_pending
from fabbench.launchers.slurm.login_node import login
from fabbench.launchers.slurm.render import OUTPUT
from fabbench.launchers.slurm.scontrol import accounted, job_state
from fabbench.launchers.slurm.submit import SACCT
from fabbench.model.errors import MachineError
from fabbench.model.hosts import Target

_PRINT = 'for file; do if [ -f "$file" ]; then echo "$file"; exec cat -- "$file"; fi; done'


def fetch_output(target: Target, job: str, file: Path) -> str:
    """Write the output of a job to `file`, and return a sentence about its state. Raise MachineError without output."""
    with login(target) as login_node:
        shown = login_node.run_idempotent(("scontrol", "show", "job", "--oneliner", job)).out
        state = job_state(next((line for line in shown if line.startswith("JobId=")), f"JobId={job}"))
        if not state.state:  # Slurm's controller forgets a job some minutes after its end
            out = login_node.run_idempotent((*SACCT, f"--jobs={job}")).out
            state = (accounted(out[-1], state) if out else None) or state
        name = OUTPUT.replace("%j", job)
        stream = login_node.start(("sh", "-c", _PRINT, "sh", state.output, name))
        lines = stream.lines()
        found = next(lines, "")
        with file.open("w", encoding="utf-8", errors="surrogateescape") as copy:
            copy.writelines(f"{line}\n" for line in lines)
        stream.close()
        where = login_node.name
    if not found:
        waits = (
            explain_pending(state).text if state.pending else f"Slurm reports its state as {state.state or 'unknown'}."
        )
        raise MachineError(
            f"Job {job} has no output on {where} ({state.output or name}). {waits}",
            hint="A run that followed its job to the end is in the store: fabbench runs.",
        )
    if state.runs:
        return f"Job {job} still runs on {state.nodes}: this is what it has printed so far to {found}."
    why = explain_end(state) if state.over else None
    return why.text if why is not None else f"Job {job} has ended. Its output is {found}."
