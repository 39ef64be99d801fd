"""What launchers say when a program could not be started, or was ended. Pure.

The wordings of Open MPI 4 and 5, Slurm, ssh, Cray PALS and the shell, each of which was seen in a real log;
and those of fabbench's own scripts.
"""

import re

_FAILURES = re.compile(
    r"There are not enough slots available"
    r"|(?:mpirun|prterun|orterun|mpiexec) (?:was unable to|noticed that"
    r"|has detected an attempt to run as root|detected that one or more processes exited with non-zero)"
    r"|ORTE (?:was unable to reliably start|has lost communication)|A daemon (?:.* )?failed to report back"
    r"|^(?:srun|sbatch|salloc|slurmstepd[^:]*): error: "
    r"(?!.*(?:Unable to create step(?!.*(?:More processors|not available|Invalid gen))|DUE TO TIME LIMIT))"
    r"|^srun: unrecognized option "
    r"|^launch failed on |^start failed on "
    r"|^ssh: (?:connect to host|Could not resolve hostname)"
    r"|^\S*:? ?(?:Permission denied \(|Host key verification failed)"
    r"|^(?:bash|sh|/bin/sh|-bash): .*(?:command not found|No such file or directory|not found)$"
    r"|^(?:env|stdbuf): .+: (?:No such file or directory|Permission denied)$"
    r"|=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"
    r"|^fabbench: (?:The script was stopped by |SkyPilot ended job )"
)
_TIMEOUT = re.compile(
    r"The user-provided time limit for job execution has been reached"
    r"|CANCELLED AT \S+ DUE TO TIME LIMIT"
    r"|^fabbench: .+ was ended(?: after \d+ s)?: "
)
_STATUS = re.compile(r"(?:\[exit status: (\d{1,9})\]|# exit status: (\d{1,9}))")
_SIGNS = re.compile(
    r"slots|mpirun|prterun|orterun|mpiexec|ORTE|daemon|error|failed on|denied|verification|ssh|not found"
    r"|No such file|Permission denied|BAD TERM|time limit|TIME LIMIT|exit status|unrecognized|^fabbench: "
)


def failure(text: str) -> str | None:
    """Give a sentence for a line that tells of a failed launch; None for any other line."""
    if not _SIGNS.search(text):
        return None
    if _FAILURES.search(text):
        return f"The launcher reported: {text.strip()[:300]}"
    return None


def time_limit(text: str) -> str | None:
    """Give a sentence for a line that tells of a launcher's time limit."""
    return f"The launcher reported: {text.strip()[:300]}" if _TIMEOUT.search(text) else None


def exit_status(text: str) -> int | None:
    """Read a line that states the exit status of what was recorded above it."""
    match = _STATUS.fullmatch(text.strip())
    return int(match[1] or match[2]) if match else None
