"""The transport of the agent to a host, implemented over ssh and over Kubernetes exec."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from fabbench.model.errors import MachineError
from fabbench.remote.connection import Done


class GoneError(MachineError):
    """The host is no more, and will not come back: its pod has ended, or was removed."""


class ProcessStream(Protocol):
    """The streams of a program on another machine. The program runs on whatever becomes of them."""

    @property
    def status(self) -> int | None:
        """Exit status; -1: ended by a signal. None: not known (yet)."""

    @property
    def err(self) -> Sequence[str]:
        """The last lines of its standard error."""

    def send(self, data: bytes) -> None:
        """Write to its standard input. Raise LostError."""

    def lines(self) -> Iterator[str]:
        """Yield the lines of standard output as they come, until it ends. Raise LostError."""

    def batches(self) -> Iterator[Sequence[str]]:
        """Yield the same lines, as many as are there at a time: some 100 KB at most, and never none."""

    def close(self) -> None:
        """Close the streams. The program runs on, should it still be running."""


class Transport(Protocol):
    """A connection to one host. Its methods may be called from any thread."""

    @property
    def host_key(self) -> tuple[str, str]:
        """The type and the base64 of the key of the host's sshd."""

    def connect(self) -> None:
        """Connect, unless that is done; again where it broke. Raise MachineError."""

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30) -> Done:
        """Run a program to its end. Raise LostError, and MachineError when it takes longer."""

    def open(self, argv: Sequence[str]) -> ProcessStream:
        """Start a program that runs on. Raise LostError, and MachineError where it cannot be started."""

    def close(self) -> None:
        """Close the connection. Programs over there run on."""


class HostShell(Protocol):
    """A shell on another machine, by ssh or in a pod: many questions for the price of one program."""

    def send(self, text: str) -> None:
        """Send text to its standard input. Raise LostError."""

    def until(self, prefix: str, limit_s: float, count: int = 1) -> list[str]:
        """Return its lines up to the `count`-th that begins with `prefix`.

        They are fewer where the shell ends, or takes longer than `limit_s`. Raise LostError.
        """
