"""Submit a job to the Slurm of this host over a connection that breaks once, and print the job's id.

`python tests/support/breaking_login.py before|after`: it breaks before sbatch was run, or after it.
"""

import sys
from collections.abc import Sequence

from fabbench.launchers.slurm.login_node import LocalLogin
from fabbench.launchers.slurm.submit import SubmittedJob
from fabbench.model.compat import override
from fabbench.remote.connection import Done, LostError

JOB = "#!/bin/sh\n#SBATCH --job-name=fabbench-x --output=/dev/null\nsleep 600\n"


class BreakingLogin(LocalLogin):
    """A login node whose connection breaks at the first sbatch."""

    def __init__(self, when: str) -> None:
        self._when = when
        self._broken = False

    @override
    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> Done:
        if self._broken or "sbatch" not in argv:
            return super().run(argv, stdin=stdin, timeout_s=timeout_s)
        self._broken = True
        if self._when == "after":
            super().run(argv, stdin=stdin, timeout_s=timeout_s)
        raise LostError("broke")


if __name__ == "__main__":
    job = SubmittedJob(BreakingLogin(sys.argv[1]), None)
    job.submit(JOB)
    print(job.job.id)
