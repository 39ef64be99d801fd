"""What Slurm's accounting says of a job that its controller has forgotten (some minutes after its end)."""

from fabbench.login.way import Login
from fabbench.slurm.jobs import JobState, accounted

_ASK = ("sacct", "--noheader", "--parsable2", "--allocations", "--format=State,ExitCode,NodeList,Timelimit")


def remembered(login: Login, job: JobState) -> JobState | None:
    """Give the end of a job; None where there is no accounting, or it does not know."""
    out = login.sure((*_ASK, f"--jobs={job.id}")).out
    return accounted(out[-1], job) if out else None
