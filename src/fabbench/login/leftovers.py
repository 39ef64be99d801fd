"""Jobs of fabbench's that are still in Slurm's queue, and their end."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from fabbench.errors import MachineError
from fabbench.login.job import COMMENT
from fabbench.login.way import Login
from fabbench.pods.cleanup import Leftover
from fabbench.slurm.directives import JOB_NAME
from fabbench.slurm.jobs import job_state

# The clock is that of the machine which prints the times.
_ASK = 'date +"now %Y-%m-%dT%H:%M:%S"; squeue --noheader --user="$(id -un)" --format="%A|%P|%V|%j|%k"'


def find(there: Login) -> tuple[Leftover, ...]:
    """Find this user's jobs that fabbench made, the oldest first. All of them wait or run."""
    done = there.sure(("sh", "-c", _ASK))
    if done.status or not done.out:
        said = " ".join(done.err) or "it said nothing"
        raise MachineError(f"Slurm's queue cannot be read on {there.name}: {said}.", hint="Is squeue there?")
    return tuple(sorted(_read(done.out), key=lambda each: -each.age))


def _read(lines: Sequence[str]) -> Iterator[Leftover]:
    now = datetime.fromisoformat(lines[0].removeprefix("now "))
    for line in lines[1:]:
        number, partition, submitted, name, comment = (*line.split("|", 4), *[""] * 5)[:5]
        if comment.startswith(COMMENT) or name.startswith(JOB_NAME):
            age = now - datetime.fromisoformat(submitted) if submitted[:1].isdigit() else timedelta()
            yield Leftover(run=number, namespace=partition, age=age, running=True, request=name, things=())


def remove(there: Login, chosen: Sequence[Leftover]) -> None:
    """Cancel jobs, and remove the output of those which `fabbench run` followed."""
    for each in chosen:
        shown = there.sure(("scontrol", "show", "job", "--oneliner", each.run)).out
        there.sure(("scancel", each.run))
        job = job_state(next(iter(shown), ""))
        if job.comment.startswith(COMMENT) and job.leaves:
            there.sure(("rm", "-f", "--", *job.leaves))
