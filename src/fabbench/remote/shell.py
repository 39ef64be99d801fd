"""A shell on a host that is told what to do piece by piece: many questions for the price of one program."""

import time
from collections.abc import Sequence
from typing import Protocol

from fabbench.remote.connection import Connection

_POLL_S = 0.2


class Conversation(Protocol):
    """A shell on another machine: by ssh, or in a pod."""

    def send(self, text: str) -> None:
        """Give it something to read. Raises LostError."""

    def until(self, prefix: str, limit_s: float, count: int = 1) -> list[str]:
        """Give its lines up to the `count`-th that begins with `prefix`, or fewer. Raises LostError."""


class Shell:
    """A POSIX shell. What it reads is its standard input: when that ends, it ends too."""

    def __init__(self, connection: Connection, arguments: Sequence[str] = ()) -> None:
        """Start it; `arguments` are those of its scripts. Raises MachineError."""
        self._pipe = connection.open(("sh", "-s", "--", *arguments))

    def send(self, text: str) -> None:
        """Give it something to read. Raises LostError."""
        self._pipe.send(text.encode())

    def until(self, prefix: str, limit_s: float, count: int = 1) -> list[str]:
        """Give its lines up to the `count`-th that begins with `prefix`.

        They are fewer where the shell ends, or takes longer than `limit_s`. Raises LostError.
        """
        deadline = time.monotonic() + limit_s
        found: list[str] = []
        while True:
            lines = self._pipe.read()
            found += lines
            count -= sum(line.startswith(prefix) for line in lines)
            if count <= 0 or self._pipe.closed or time.monotonic() >= deadline:
                return found
            self._pipe.wait(_POLL_S)

    def close(self) -> None:
        """Let it end, and whatever has taken its place."""
        self._pipe.close()
