"""Commands on a login node: on this machine, or over ssh, going on when a connection breaks."""

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from fabbench.execution.worker_pool import require_all
from fabbench.launchers import notify
from fabbench.launchers.shared_options import LoginOptions
from fabbench.model.hosts import Target
from fabbench.model.plan import Words
from fabbench.remote.allocation import clean_up, connected
from fabbench.remote.host import RemoteHost
from fabbench.remote.transport import Done, Here, Transport

# Where batch systems are installed: Slurm by cloud images (AWS ParallelCluster and HyperPod), and
# OpenPBS. Only login shells have them in their PATH, and a command over ssh does not run in one.
_FOLDERS = "/opt/slurm/bin:/usr/local/slurm/bin:/opt/pbs/bin:/usr/local/bin:/usr/bin:/bin"


def with_batch_path(argv: Sequence[str]) -> Words:
    """Return a command that also finds a batch system's programs outside of PATH."""
    return ("sh", "-c", f'PATH="$PATH:{_FOLDERS}"; export PATH; exec "$@"', "sh", *argv)


class LoginNode:
    """A machine that has a batch system's commands, and an agent where something is followed."""

    def __init__(
        self, connection: Transport, agent: RemoteHost | None = None, *, folder: str = ""
    ) -> None:
        """`folder` is the directory that programs start in; empty: the home directory.

        `agent` runs there if something is followed; it also renews a broken connection.
        """
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
        command = with_batch_path(argv)
        return self._connection.run(command, stdin=stdin, timeout_s=timeout_s)

    def run_idempotent(self, argv: Sequence[str]) -> Done:
        """Run a command that may run twice: again if the connection broke, with an agent."""
        run_once = partial(self.run, argv)
        return run_once() if self._agent is None else self._agent.with_reconnect(run_once)


@contextmanager
def login(target: Target, *, follows: bool = False, job: str = "") -> Iterator[LoginNode]:
    """Connect to the login node. Raise MachineError if it cannot be reached.

    With `follows`, run the agent there: what it has started goes on when a connection breaks. It
    sees the other runs in the same `job`.
    """
    options = target.options_as(LoginOptions)
    with ExitStack() as stack:
        connection: Transport
        if options.login:
            named = replace(target, hosts=(options.login,), nodes=None)
            results = stack.enter_context(connected(named, named.hosts))
            connection = require_all(results)[options.login]
        else:
            connection = stack.enter_context(closing(Here("this machine")))
        here = not options.login
        token = secrets.token_hex(6)
        host = RemoteHost(
            connection.name,
            connection,
            # By what follows the dash, the agents of a job's runs see each other; paths have it
            token=f"{token}-{job}" if job.isalnum() else token,
            lost_after_s=options.lost_after,
            parent=os.getpid() if here else None,  # here it ends with fabbench
        )
        if follows:
            stack.callback(_clean_up_agent, host)
            host.start()
        folder = str(Path.cwd()) if here else ""
        yield LoginNode(connection, agent=host if follows else None, folder=folder)


def _clean_up_agent(host: RemoteHost) -> None:
    """End the agent and what it runs; report what could not be removed."""
    for sentence in clean_up([host]):
        notify(sentence)
