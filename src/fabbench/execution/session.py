"""What an execution needs in order to run: programs on hosts, their lines, a way to end them."""

import os
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from fabbench.execution.awake import awake_s
from fabbench.execution.mpirun import MpiHosts
from fabbench.model.errors import RequestError
from fabbench.model.plan import Command
from fabbench.model.templates import text_of

DEBUG = "debug."  # The prefix of the names of files that are read while they grow
FORWARDED = ("PATH", "LD_LIBRARY_PATH")
"""Variables of the host where mpirun runs that are forwarded to all ranks."""

PARTNER_S = 5
"""How long one side of a pair may keep running after the other has failed."""
CLOSING_S = 30
"""How long it may after the other has ended well: a busy host may need it."""
PORTS_TRIED = 5
PORT_TAKEN = "Address already in use"
"""The message of a server that is to be started again, on another port."""
TIME_UP = "it timed out"
RAN_ON = "it kept running after the other side had ended"
SILENT = "no output for"
NOT_READY = "the server was not ready"

LONGEST_OUTPUT = 256 << 20
"""The maximum of bytes that an execution may print, and of bytes in each of its files."""
MAX_LINES = 1_000_000
"""The maximum of lines that an execution may print."""
TOO_MUCH = "it printed more than 256 MiB or 1,000,000 lines"

SOURCED = ("sh", "-c", '. "$0" && exec "$@"')
"""What precedes the path of a file with `exports`, and a program's words."""


def exports(names: Iterable[str]) -> str:
    """Return shell text that exports variables as this process has them.

    Raise RequestError if one is not set.
    """
    lines: list[str] = []
    for name in names:
        if name not in os.environ:
            raise RequestError(
                f"The environment variable {name} is not set.", hint="Export it, or drop --env."
            )
        value = shlex.quote(os.environ[name])
        lines.append(f"export {name}={value}\n")
    return "".join(lines)


def end_programs_script() -> str:
    """Return shell functions that end a run's programs on a host: `marked` and `end_programs`."""
    return text_of("fabbench.execution", "end_programs.sh")


class TimedOutError(Exception):
    """A program was silent too long or ran too long; the message tells which."""


def raise_when_late(heard: float, silence_s: float | None, deadline: float | None) -> None:
    """Raise TimedOutError at `deadline` or `silence_s` after `heard` (both `awake_s()`)."""
    now = awake_s()
    if deadline is not None and now >= deadline:
        raise TimedOutError(TIME_UP)
    if silence_s is not None and now - heard >= silence_s:
        raise TimedOutError(f"{SILENT} {silence_s:g} s")


class FloodedError(TimedOutError):
    """A program printed more than is kept."""

    def __init__(self) -> None:
        super().__init__(TOO_MUCH)


class OutputLimit:
    """What may still be printed. It bounds files, and what is kept of them in memory."""

    def __init__(self, *, above: int = 0) -> None:
        """Allow `above` more bytes and lines than usual, to count after others have counted."""
        self._bytes = LONGEST_OUTPUT + above
        self._lines = MAX_LINES + above

    def count_or_flood(self, text: str) -> None:
        """Count a line. Raise FloodedError if the limit is exceeded."""
        self._bytes -= len(text) + 1  # with the end of the line
        self._lines -= 1
        if self._bytes < 0 or self._lines < 0:
            raise FloodedError


class Program(Protocol):
    """One program that was started."""

    name: str
    """Its display name: its role, or its first word."""
    status: int | None
    """As in a shell: 128 plus the number of the signal that ended it. None: it has not ended."""


class Output(NamedTuple):
    """A line of a program, or its end."""

    program: Program | None  # None: a line of a debug file
    text: str | None  # None: the program has ended; see its `status`


class Session(Protocol):
    """Programs of one step on the hosts of an allocation. Leaving its context ends them all.

    Files in `folder` on any host whose names start with `DEBUG` are read while they grow, and their
    lines are yielded with the others.
    """

    folder: str  # The path of a directory on every host that belongs to this session alone

    def mpi_hosts(self) -> MpiHosts:
        """Return the hosts and how mpirun reaches them. Raise MachineError: there is no mpirun."""

    def address(self, host: int) -> str:
        """Return the address at which the other hosts reach a host."""

    def exec(self, command: Command) -> Program:
        """Start a command, without placeholders, on its host. Raise MachineError if it cannot."""

    def listens(self, program: Program, port: int) -> bool:
        """Return whether this very program listens on a TCP port. Makes no connection."""

    def lines(
        self,
        *,
        until: Callable[[], bool] | None = None,
        silence_s: float | None = None,
        deadline: float | None = None,
    ) -> Iterator[Output]:
        """Yield the lines of all programs as they come, and the end of each, until all have ended.

        `until` is called many times a second; once it is true, this returns. Raise TimedOutError if
        nothing was printed for `silence_s`, or at `deadline` (of `awake_s()`). Raise
        MachineError if a host is lost.
        """

    def stop(self, programs: Sequence[Program]) -> Collection[Output]:
        """End programs and all that they started. Return their last lines."""
