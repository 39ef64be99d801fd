"""The transport of the agent to a host, implemented over ssh and over Kubernetes exec."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from fabbench.model.errors import MachineError
from fabbench.remote.connection import Done


class HostGoneError(MachineError):
    """The host no longer exists and will not come back: its pod has ended, or was removed."""


class ProcessStream(Protocol):
    """The streams of a program on another machine. The program keeps running without them."""

    @property
    def status(self) -> int | None:
        """Exit status; -1: ended by a signal. None: unknown (yet)."""

    @property
    def err(self) -> Sequence[str]:
        """The last lines of its standard error."""

    def send(self, data: bytes) -> None:
        """Write to its standard input. Raise LostError."""

    def lines(self) -> Iterator[str]:
        """Yield the lines of standard output as they come, until it ends. Raise LostError."""

    def batches(self) -> Iterator[Sequence[str]]:
        """Yield the same lines in batches as they come: about 100 KB at most, and never empty."""

    def close(self) -> None:
        """Close the streams. The program keeps running if it has not ended."""


class Transport(Protocol):
    """A connection to one host. Its methods may be called from any thread."""

    @property
    def host_key(self) -> tuple[str, str]:
        """The type and the base64 of the key of the host's sshd."""

    def connect(self) -> None:
        """Connect unless connected, also after the connection broke. Raise MachineError."""

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30) -> Done:
        """Run a program to its end. Raise LostError, or MachineError if it takes longer."""

    def open(self, argv: Sequence[str]) -> ProcessStream:
        """Start a program that keeps running. Raise LostError, or MachineError if it cannot be started."""

    def close(self) -> None:
        """Close the connection. Remote programs keep running."""


class HostShell(Protocol):
    """A shell on another machine, by ssh or in a pod: many queries for the cost of one program."""

    def send(self, text: str) -> None:
        """Send text to its standard input. Raise LostError."""

    def until(self, prefix: str, limit_s: float, count: int = 1) -> list[str]:
        """Return its lines up to the `count`-th that begins with `prefix`.

        There are fewer if the shell ends, or takes longer than `limit_s`. Raise LostError.
        """
