"""Commands on a login node: on this machine, or over ssh, with connections made again where they break."""

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from fabbench.execution.background import BackgroundStream
from fabbench.execution.process import Processes, TemporaryFolder
from fabbench.execution.session import TimedOutError
from fabbench.launchers.slurm import SlurmOptions
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.model.hosts import Target
from fabbench.remote.allocation import all_well, connected
from fabbench.remote.connection import LONGEST_ANSWER, AnswerLines, Connection, Done, LostError

_AGAIN_S = 1.0
_FED = 'head -c "$0" | "$@" 2>&1'
"""Gives a command so many bytes of the input, and then its end."""
# Where images of clouds have Slurm (AWS ParallelCluster and HyperPod: /opt/slurm). Only login shells have it
# in their PATH, and a command over ssh gets none of those.
_PLACES = "/opt/slurm/bin:/usr/local/slurm/bin:/usr/local/bin:/usr/bin:/bin"


def placed(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command that finds Slurm's programs where PATH does not have them."""
    return ("sh", "-c", f'PATH="$PATH:{_PLACES}"; export PATH; exec "$@"', "sh", *argv)


class OutputStream(Protocol):
    """What a command prints, its two outputs together."""

    def lines(self) -> Iterator[str]:
        """Yield its lines as they come, until it ends. Raise LostError where the connection breaks."""

    def close(self) -> None:
        """End it where it runs on this machine; elsewhere it may run on."""


class LoginNode(Protocol):
    """A machine where Slurm's commands are."""

    @property
    def name(self) -> str:
        """Return what to call it in a sentence: ``this machine``, ``login1``."""

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> Done:
        """Run a command to its end; `timeout_s` is in seconds.

        Raise LostError where the connection broke, so that it may have run or not, and MachineError where it
        takes longer or there is no connection.
        """

    def run_idempotent(self, argv: Sequence[str], *, timeout_s: float = 60) -> Done:
        """Run a command that may run twice; again where the connection broke. Raise MachineError."""

    def start(self, argv: Sequence[str], *, stdin: bytes = b"") -> OutputStream:
        """Start a command, from whichever thread, whose output is followed. Raise MachineError."""


class LocalLogin(LoginNode):
    """This machine."""

    @property
    @override
    def name(self) -> str:
        return "this machine"

    @override
    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> Done:
        with TemporaryFolder() as folder, Processes() as processes:
            (folder.path / "in").write_bytes(stdin)
            words = ("sh", "-c", 'exec "$@" <"$0/in" 2>"$0/err"', str(folder.path), *placed(argv))
            process = processes.start(words, name=argv[0])
            out = AnswerLines(f"{argv[0]} on this machine")
            try:
                for _, text in processes.lines(deadline=time.monotonic() + timeout_s):
                    out.take([text] if text is not None else ())
            except TimedOutError as error:
                raise MachineError(f"{argv[0]} timed out after {timeout_s:g} s.") from error
            with (folder.path / "err").open(encoding="utf-8", errors="replace") as file:
                err = file.read(LONGEST_ANSWER).splitlines()
            return Done(-1 if process.status is None else process.status, out.lines, err)

    @override
    def run_idempotent(self, argv: Sequence[str], *, timeout_s: float = 60) -> Done:
        return self.run(argv, timeout_s=timeout_s)

    @override
    def start(self, argv: Sequence[str], *, stdin: bytes = b"") -> OutputStream:
        return BackgroundStream(placed(argv), stdin)


class SshLogin(LoginNode):
    """A machine that one can ssh to."""

    def __init__(self, name: str, connection: Connection, *, lost_after_s: float) -> None:
        self._name = name
        self._connection = connection
        self._lost_after_s = lost_after_s

    @property
    @override
    def name(self) -> str:
        return self._name

    @override
    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> Done:
        if not self._connection.alive:
            self._again()
        return self._connection.run(placed(argv), stdin=stdin, timeout_s=timeout_s)

    @override
    def run_idempotent(self, argv: Sequence[str], *, timeout_s: float = 60) -> Done:
        deadline = time.monotonic() + self._lost_after_s
        while True:
            try:
                return self.run(argv, timeout_s=timeout_s)
            except MachineError as error:
                # One that loses all packets without a word is seen by asking.
                lost = isinstance(error, LostError) or not self._connection.answers()
                if not lost or time.monotonic() > deadline:
                    raise
                time.sleep(_AGAIN_S)

    @override
    def start(self, argv: Sequence[str], *, stdin: bytes = b"") -> OutputStream:
        stream = self._connection.open(("sh", "-c", _FED, str(len(stdin)), *placed(argv)))
        stream.send(stdin)
        return stream

    def _again(self) -> None:
        """Connect again, for as long as a machine may be away. Raise MachineError after that."""
        deadline = time.monotonic() + self._lost_after_s
        while True:
            try:
                self._connection.close()
                self._connection.connect()
            except MachineError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_AGAIN_S)
            else:
                return


@contextlib.contextmanager
def login(target: Target) -> Iterator[LoginNode]:
    """Reach the login node. Raise MachineError where it cannot be reached."""
    options = target.options_as(SlurmOptions)
    name = options.login
    if not name:
        yield LocalLogin()
        return
    named = replace(target, hosts=(name,), nodes=None)
    with connected(named, named.hosts) as found:
        yield SshLogin(name, all_well(found)[name], lost_after_s=options.lost_after)


def inside(target: Target) -> bool:
    """Return whether this program runs in an allocation of Slurm that is to be used."""
    return "SLURM_JOB_ID" in os.environ and not target.options_as(SlurmOptions).login
