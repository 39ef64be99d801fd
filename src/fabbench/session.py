"""What the drive of a trial needs from a place: programs on hosts, their lines, and an end of them all."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

from fabbench.model import Command
from fabbench.mpi import Spread

DEBUG = "debug."
"""How the names of files begin that are read while they grow."""
FORWARDED = ("PATH", "LD_LIBRARY_PATH")
"""Variables of the host where mpirun runs that all ranks get."""


class TimedOutError(Exception):
    """A program was silent, or took, longer than it may; the message says which."""


class Program(Protocol):
    """One program that was started."""

    @property
    def name(self) -> str:
        """What to call it: its role, or its first word."""

    @property
    def status(self) -> int | None:
        """Exit status; negative: the signal that ended it. None: it has not ended."""


class Output(NamedTuple):
    """A line that a program printed; None instead of text: it has ended, see its `status`.

    None instead of a program: a line of a debug file.
    """

    program: Program | None
    text: str | None


class Session(Protocol):
    """Programs of one step on the hosts of an allocation. Leaving its context ends them all.

    Files in `folder` whose names begin with `DEBUG`, on any host, are read while they grow, and their lines
    given with the others.
    """

    @property
    def folder(self) -> str:
        """The path of a folder on every host, there for this session alone."""

    def spread(self) -> Spread:
        """Say how mpirun gets to all hosts. Raises MachineError where there is none."""

    def address(self, host: int) -> str:
        """Give the address at which the other hosts reach a host."""

    def free_port(self, host: int) -> int:
        """Give a TCP port that nothing uses, as it seems."""

    def exec(self, command: Command) -> Program:
        """Start a command on its host; its words are those of the program, with everything filled in.

        Raises MachineError when there is no such program, or it cannot be started.
        """

    def listens(self, program: Program, port: int) -> bool:
        """Whether this very program is waiting for connections to a TCP port. Connects to nothing."""

    def lines(
        self,
        *,
        until: Callable[[], bool] | None = None,
        silence_s: float | None = None,
        deadline: float | None = None,
    ) -> Iterator[Output]:
        """Give the lines of all programs as they come, and the end of each, until all have ended.

        `until` is asked many times a second: once it is true, this returns. Raises TimedOutError when nothing
        was printed for `silence_s`, or at `deadline` (of time.monotonic()). Raises MachineError when a host
        is lost.
        """

    def stop(self, programs: Sequence[Program]) -> Collection[Output]:
        """End programs and all that they started; gives their last words."""
