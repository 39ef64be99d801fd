"""Commands on a login node: on this machine, or over ssh, reconnecting when a connection breaks."""

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fabbench.execution.worker_pool import require_all
from fabbench.launchers.slurm import SlurmOptions
from fabbench.model.errors import MachineError
from fabbench.model.hosts import Target
from fabbench.remote.allocation import connected
from fabbench.remote.transport import Done, Here, LostError, ProcessStream, Transport

_RETRY_S = 1.0
# Passes a number of bytes of its input to a command, then end of file
_FED = 'head -c "$0" | "$@" 2>&1'
# Where cloud images install Slurm (AWS ParallelCluster and HyperPod: /opt/slurm). Only login shells
# have it in their PATH, and a command over ssh does not run in one.
_SLURM_FOLDERS = "/opt/slurm/bin:/usr/local/slurm/bin:/usr/local/bin:/usr/bin:/bin"


def with_slurm_path(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a command that also finds Slurm's programs outside of PATH."""
    return ("sh", "-c", f'PATH="$PATH:{_SLURM_FOLDERS}"; export PATH; exec "$@"', "sh", *argv)


class LoginNode:
    """A machine that has Slurm's commands: this one, or one reached over ssh."""

    def __init__(self, connection: Transport, *, lost_after_s: float) -> None:
        self.name = connection.name
        self._connection = connection
        self._lost_after_s = lost_after_s

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> Done:
        """Run a command to its end.

        Raise LostError if the connection broke: it may or may not have run.

        Raise MachineError if it takes longer than `timeout_s`, or the machine cannot be reached.
        """
        if not self._connection.alive:
            self._reconnect()
        return self._connection.run(with_slurm_path(argv), stdin=stdin, timeout_s=timeout_s)

    def run_idempotent(self, argv: Sequence[str], *, timeout_s: float = 60) -> Done:
        """Run a command that may run twice; retry if the connection broke. Raise MachineError."""
        deadline = time.monotonic() + self._lost_after_s
        while True:
            try:
                return self.run(argv, timeout_s=timeout_s)
            except MachineError as error:
                # A connection that silently loses all packets is detected only by a request.
                lost = isinstance(error, LostError) or not self._connection.answers()
                if not lost or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)

    def start(self, argv: Sequence[str], *, stdin: bytes = b"") -> ProcessStream:
        """Start a command from any thread. Its output is both of the command's.

        Raise MachineError.
        """
        command = with_slurm_path(argv)
        stream = self._connection.open(("sh", "-c", _FED, str(len(stdin)), *command))
        stream.send(stdin)
        return stream

    def _reconnect(self) -> None:
        """Reconnect, for as long as a machine may be unreachable. Raise MachineError after that."""
        deadline = time.monotonic() + self._lost_after_s
        while True:
            try:
                self._connection.close()
                self._connection.connect()
            except MachineError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)
            else:
                return


@contextlib.contextmanager
def login(target: Target) -> Iterator[LoginNode]:
    """Connect to the login node. Raise MachineError if it cannot be reached."""
    options = target.options_as(SlurmOptions)
    name = options.login
    if not name:
        with contextlib.closing(Here("this machine")) as here:
            yield LoginNode(here, lost_after_s=options.lost_after)
        return
    named = replace(target, hosts=(name,), nodes=None)
    with connected(named, named.hosts) as results:
        yield LoginNode(require_all(results)[name], lost_after_s=options.lost_after)


def inside(target: Target) -> bool:
    """Return whether this program runs inside a Slurm allocation that is to be used."""
    return "SLURM_JOB_ID" in os.environ and not target.options_as(SlurmOptions).login
