"""What a host must be reached by: ssh, or exec into a pod. Protocols that both fulfil."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from fabbench.errors import MachineError
from fabbench.remote.connection import Done


class GoneError(MachineError):
    """The host is no more, and will not come back: its pod has ended, or was removed."""


class Told(Protocol):
    """A program on another machine that runs on whatever becomes of this."""

    @property
    def status(self) -> int | None:
        """Exit status; -1: ended by a signal. None: not known (yet)."""

    @property
    def err(self) -> Sequence[str]:
        """The last lines of its standard error."""

    def send(self, data: bytes) -> None:
        """Write to its standard input. Raises LostError."""

    def lines(self) -> Iterator[str]:
        """Give the lines of standard output as they come, until it ends. Raises LostError."""

    def close(self) -> None:
        """Let go of it. It runs on, should it still be running."""


class Way(Protocol):
    """A connection to one host. Its methods may be called from any thread."""

    @property
    def host_key(self) -> tuple[str, str]:
        """The type and the base64 of the key of the host's sshd."""

    def connect(self) -> None:
        """Connect, unless that is done; anew where it broke. Raises MachineError."""

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30) -> Done:
        """Run a program to its end. Raises LostError, and MachineError when it takes longer."""

    def open(self, argv: Sequence[str]) -> Told:
        """Start a program that runs on. Raises LostError, and MachineError where it cannot be started."""

    def close(self) -> None:
        """Close the connection. Programs over there run on."""
