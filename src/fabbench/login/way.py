"""Commands on a login node: on this machine, or over ssh, where connections break and are made anew."""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from fabbench.errors import MachineError
from fabbench.machines import Where
from fabbench.process import Processes
from fabbench.remote.connection import Connection, Done, LostError
from fabbench.remote.reach import all_well, connected
from fabbench.session import TimedOutError

_LOST_AFTER_S = 300.0
_AGAIN_S = 1.0
# Where images of clouds have Slurm (AWS ParallelCluster and HyperPod: /opt/slurm). Only login shells have it
# in their PATH, and a command over ssh gets none of those.
_PLACES = "/opt/slurm/bin:/usr/local/slurm/bin:/usr/local/bin:/usr/bin:/bin"


def placed(argv: Sequence[str]) -> tuple[str, ...]:
    """Give the command that finds Slurm's programs where PATH does not have them."""
    return ("sh", "-c", f'PATH="$PATH:{_PLACES}"; export PATH; exec "$@"', "sh", *argv)


class Login(Protocol):
    """A machine where Slurm's commands are."""

    @property
    def name(self) -> str:
        """What to call it in a sentence: ``this machine``, ``login1``."""

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> Done:
        """Run a command to its end. Raises LostError where it may have run, or not."""

    def sure(self, argv: Sequence[str], *, timeout_s: float = 60) -> Done:
        """Run a command that may run twice, and again where the connection broke. Raises MachineError."""


class Here:
    """This machine."""

    name = "this machine"

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> Done:
        """Run a command to its end."""
        with tempfile.TemporaryDirectory(prefix="fabbench-") as folder, Processes() as processes:
            Path(folder, "in").write_bytes(stdin)
            words = ("sh", "-c", 'exec "$@" <"$0/in" 2>"$0/err"', folder, *placed(argv))
            process = processes.start(words, name=argv[0])
            try:
                told = list(processes.lines(deadline=time.monotonic() + timeout_s))
            except TimedOutError as error:
                raise MachineError(f"{argv[0]} did not end within {timeout_s:g} s.") from error
            err = Path(folder, "err").read_text("utf-8", "replace").splitlines()
            out = [output.text for output in told if output.text is not None]
            return Done(-1 if process.status is None else process.status, out, err)

    def sure(self, argv: Sequence[str], *, timeout_s: float = 60) -> Done:
        """Run a command to its end."""
        return self.run(argv, timeout_s=timeout_s)


class There:
    """A machine that one can ssh to."""

    def __init__(self, name: str, connection: Connection, *, lost_after_s: float) -> None:
        self.name = name
        self._connection = connection
        self._lost_after_s = lost_after_s

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> Done:
        """Run a command to its end, over a connection that is made anew if it has to be."""
        if not self._connection.alive:
            self._again()
        return self._connection.run(placed(argv), stdin=stdin, timeout_s=timeout_s)

    def sure(self, argv: Sequence[str], *, timeout_s: float = 60) -> Done:
        """Run a command, and again where the connection broke meanwhile."""
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

    def _again(self) -> None:
        """Connect anew, for as long as a machine may be away."""
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
def login(where: Where) -> Iterator[Login]:
    """Reach the login node. Raises MachineError where it cannot be reached."""
    name = where.settings.get("login")
    if not name:
        yield Here()
        return
    named = replace(where, hosts=(str(name),), nodes=None)
    with connected(named, named.hosts) as found:
        connection = all_well(found)[str(name)]
        lost_after_s = float(where.settings.get("lost_after") or _LOST_AFTER_S)
        yield There(str(name), connection, lost_after_s=lost_after_s)


def inside(where: Where) -> bool:
    """Whether this program runs in an allocation of Slurm's that is to be used."""
    return "SLURM_JOB_ID" in os.environ and not where.settings.get("login")
