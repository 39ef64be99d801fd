"""Submitting over a connection that breaks: no second job."""

from collections.abc import Sequence

import pytest

from fabbench.launchers.login_node import LoginNode
from fabbench.launchers.slurm.job import SlurmJob
from fabbench.launchers.slurm.launcher import by_node
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.remote.transport import Done, Here, LostError


class BreakingLogin(LoginNode):
    """A login node whose connection breaks at the first sbatch, before it was run or after it."""

    def __init__(self, *, after: bool, breaks: int = 1) -> None:
        super().__init__(Here("this machine"))
        self.after, self.breaks = after, breaks
        self.queue: list[str] = []

    @override
    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> Done:
        if "sbatch" not in argv:
            return Done(status=0, out=self.queue, err=[])
        self.breaks -= 1
        if self.breaks < 0 or self.after:
            (token,) = (word.partition("=")[2] for word in argv if word.startswith("--comment="))
            self.queue.append(f"{len(self.queue) + 7} {token}")
        if self.breaks >= 0:
            raise LostError("broke")
        return Done(status=0, out=[self.queue[-1].split()[0]], err=[])


@pytest.mark.parametrize("after", [True, False])
def test_a_connection_that_breaks_makes_no_second_job(after: bool) -> None:
    login = BreakingLogin(after=after)
    job = SlurmJob(login, None)
    job.submit("#!/bin/sh\n")
    assert (job.job.id, len(login.queue)) == ("7", 1)


def test_a_connection_that_keeps_breaking_is_reported() -> None:
    login = BreakingLogin(after=False, breaks=9)
    with pytest.raises(MachineError, match="keeps breaking"):
        SlurmJob(login, None).submit("#!/bin/sh\n")
    assert login.queue == []


def test_what_srun_labels_is_reported_by_node() -> None:
    lines = [
        "1: fabbench node n2",
        "0: fabbench node n1",
        "0: proc/uptime:1",
        " 1: a: b",
        "srun: error: x",
        "2: y",
    ]
    assert by_node(lines) == {"n2": ["a: b"], "n1": ["proc/uptime:1"]}
