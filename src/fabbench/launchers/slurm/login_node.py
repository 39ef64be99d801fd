"""Commands on a login node: on this machine, or over ssh, going on when a connection breaks."""

import contextlib
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fabbench.execution.worker_pool import require_all
from fabbench.launchers import notify
from fabbench.launchers.slurm import SlurmOptions
from fabbench.model.hosts import Target
from fabbench.remote.allocation import clean_up, connected
from fabbench.remote.host import RemoteHost
from fabbench.remote.transport import Done, Here, Transport

# Where cloud images install Slurm (AWS ParallelCluster and HyperPod: /opt/slurm). Only login shells
# have it in their PATH, and a command over ssh does not run in one.
_SLURM_FOLDERS = "/opt/slurm/bin:/usr/local/slurm/bin:/usr/local/bin:/usr/bin:/bin"


def with_slurm_path(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a command that also finds Slurm's programs outside of PATH."""
    return ("sh", "-c", f'PATH="$PATH:{_SLURM_FOLDERS}"; export PATH; exec "$@"', "sh", *argv)


class LoginNode:
    """A machine that has Slurm's commands, and fabbench's agent where something is followed."""

    def __init__(
        self, connection: Transport, agent: RemoteHost | None = None, *, folder: str = ""
    ) -> None:
        """`folder` is the directory that programs start in; empty: the home directory."""
        self.name = connection.name
        self.folder = folder
        self._connection = connection
        self._agent = agent

    @property
    def agent(self) -> RemoteHost:
        """Return the agent, which `login` starts where it is asked to."""
        if self._agent is None:
            raise AssertionError(f"no agent on {self.name}")
        return self._agent

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> Done:
        """Run a command to its end.

        Raise LostError if the connection broke: it may or may not have run.

        Raise MachineError if it takes longer than `timeout_s`.
        """
        command = with_slurm_path(argv)
        return self._connection.run(command, stdin=stdin, timeout_s=timeout_s)

    def run_idempotent(self, argv: Sequence[str], *, timeout_s: float = 60) -> Done:
        """Run a command that may run twice: again if the connection broke, with an agent."""

        def work() -> Done:
            return self.run(argv, timeout_s=timeout_s)

        return work() if self._agent is None else self._agent.with_reconnect(work)

    def scontrol_show(self, job: str) -> list[str]:
        """Return what scontrol says of a job. A controller that is silent is not waited for."""
        argv = ("timeout", "8", "scontrol", "show", "job", "--oneliner", job)
        done = self.run_idempotent(argv)
        return [*done.out, *done.err]


@contextlib.contextmanager
def login(target: Target, *, follows: bool = False) -> Iterator[LoginNode]:
    """Connect to the login node. Raise MachineError if it cannot be reached.

    With `follows`, run the agent there: what it has started goes on when a connection breaks.
    """
    options = target.options_as(SlurmOptions)
    with contextlib.ExitStack() as stack:
        connection: Transport
        if options.login:
            named = replace(target, hosts=(options.login,), nodes=None)
            results = stack.enter_context(connected(named, named.hosts))
            connection = require_all(results)[options.login]
        else:
            connection = stack.enter_context(contextlib.closing(Here("this machine")))
        here = not options.login
        host = RemoteHost(
            connection.name,
            connection,
            token=secrets.token_hex(6),
            lost_after_s=options.lost_after,
            parent=os.getpid() if here else None,
        )
        if follows:
            stack.callback(_remove, host)
            host.start()
        folder = str(Path.cwd()) if here else ""
        yield LoginNode(connection, host if follows else None, folder=folder)


def _remove(host: RemoteHost) -> None:
    for sentence in clean_up([host]):
        notify(sentence)


def inside(target: Target) -> bool:
    """Return whether this program runs inside a Slurm allocation that is to be used."""
    return "SLURM_JOB_ID" in os.environ and not target.options_as(SlurmOptions).login
