"""One look at a job: what poll.sh prints of it."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from fabbench.slurm.jobs import JobState, gone, job_state


@dataclass(frozen=True, slots=True)
class Poll:
    """What one look at a job gave."""

    job: JobState | None
    """None: it was not looked at, or Slurm's controller did not answer."""
    there: bool
    """Whether its output is there."""
    data: bytes
    """What is new in it."""
    gone: bool = False
    """Whether Slurm does not know the job any more."""


def asked(job: JobState, offset: int, *, look: bool) -> tuple[str, ...]:
    """Give the command: what is new in the output from a byte on, and with `look` the job itself."""
    script = (files("fabbench.slurm") / "poll.sh").read_text("utf-8")
    return ("sh", "-c", script, "poll", job.id, job.output, str(offset), "look" if look else "")


def read(out: Sequence[str]) -> Poll:
    """Read what it printed."""
    told = [line.removeprefix("job ") for line in out if line.startswith("job ")]
    data = b"".join(base64.b64decode(line[5:]) for line in out if line.startswith("data "))
    shown = next((line for line in told if line.startswith("JobId=")), "")
    return Poll(job_state(shown) if shown else None, "there" in out, data, gone(told))
