"""What both ssh clients share: how a host is reached, connecting with several attempts, and programs there.

OpenSSH connects wherever there is an ``ssh`` program; paramiko where there is none, or if the user asks for it.
"""

import random
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from fabbench.execution.process import LineDecoder
from fabbench.model.actions import action
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.remote.transport import AnswerLines, Done, LostError, Transport, command_line

CONNECT_S = 10  # For a machine to accept a connection, and for sshd's first line
KEEPALIVE_S = 15
SEND_S = 30.0
CHUNK = 1 << 16
_MAX_ERR_LINES = 1000
_POLL_S = 0.5
_ANSWER_S = 10.0
_TRIES = 8
_BACK_OFF_S, _MAX_BACK_OFF_S = 0.15, 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SshHost:
    """A host as the user named it, and what overrides the user's ssh configuration of it."""

    name: str
    user: str | None = None
    port: int | None = None
    identity: str | None = None
    config: str | None = None  # Configuration file instead of ``~/.ssh/config``
    accept_new: bool = False  # Record the key of an unknown host instead of refusing it


class DroppedError(Exception):
    """The host closed the connection before login: another attempt may help."""


class ProgramStream(ABC):
    """A program on another machine, without a terminal; see `fabbench.remote.transport.ProcessStream`."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.err: deque[str] = deque(maxlen=_MAX_ERR_LINES)
        self.closed = False  # Whether both outputs have ended, and all their lines were returned
        self._decoders = LineDecoder(), LineDecoder()

    @abstractmethod
    def _receive(self, timeout_s: float) -> tuple[bytes, bytes] | None:
        """Return what came on standard output and standard error, after a wait if necessary; None at the end."""

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Write to its standard input. Raise LostError, also if it accepts nothing for 30 s."""

    @abstractmethod
    def close(self) -> None:
        """Close the streams. The program keeps running if it has not ended."""

    @abstractmethod
    def end_input(self) -> None:
        """Close its standard input."""

    @abstractmethod
    def _exit_status(self) -> int:
        """Return the status of the program, whose outputs have ended. Raise LostError."""

    def read(self, timeout_s: float) -> list[str]:
        """Return further lines of standard output, waiting at most `timeout_s` for them. Raise LostError."""
        if self.closed:
            return []
        out, err = self._decoders
        if (received := self._receive(timeout_s)) is not None:
            self.err += err.feed(received[1])
            return out.feed(received[0])
        self.closed = True
        self.err += err.rest()
        try:
            self.status = self._exit_status()
        finally:
            self.close()
        return out.rest()

    def lines(self) -> Iterator[str]:
        """Yield the lines of standard output as they come, until it ends. Raise LostError."""
        return chain.from_iterable(self.batches())

    def batches(self) -> Iterator[list[str]]:
        """Yield the same lines in batches."""
        while not self.closed:
            if batch := self.read(_POLL_S):
                yield batch


class SshTransport(Transport, ABC):
    """A connection to one host, made as the user configured it: checks the host's key, and never prompts."""

    client: str

    def __init__(self, host: SshHost) -> None:
        """Do not connect yet."""
        self.name, self.where = host.name, f"ssh {host.name}"
        self.host = host
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._closed = threading.Event()
        self._streams: list[ProgramStream] = []

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Return whether the connection is up, as far as is known."""

    @abstractmethod
    def _connect(self) -> None:
        """Connect. Raise MachineError, or DroppedError."""

    @abstractmethod
    def _start(self, line: str, program: str) -> ProgramStream:
        """Start a program by its command line. Raise LostError, or MachineError."""

    @abstractmethod
    def _drop(self) -> None:
        """End the connection."""

    @override
    def connect(self) -> None:
        with self._lock:
            if self.alive:
                return
            self._closed.clear()
            started = time.monotonic()
            for attempt in range(_TRIES):
                action(self.where, f"connect ({self.client})")
                try:
                    self._connect()
                except DroppedError as error:
                    why = error
                else:
                    return
                # Jitter, so that connections that were dropped together do not return together.
                wait_s = min(_BACK_OFF_S * 2**attempt, _MAX_BACK_OFF_S) * random.uniform(0.5, 1.5)  # noqa: S311
                if self._closed.wait(wait_s):
                    break
            raise MachineError(
                f"{self.name} closed the connection before login, {attempt + 1} times in "
                f"{time.monotonic() - started:.0f} s: {why}",
                hint="Check that sshd listens there. It drops some of many concurrent connections (MaxStartups).",
            )

    @override
    def open(self, argv: Sequence[str]) -> ProgramStream:
        line = command_line(argv)
        action(self.where, argv)
        if not self.alive:
            raise self.lost("it is closed")
        stream = self._start(line, argv[0])
        with self._opening:
            self._streams = [*(each for each in self._streams if not each.closed), stream]
        return stream

    @override
    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30) -> Done:
        deadline = time.monotonic() + timeout_s
        stream, out = self.open(argv), AnswerLines(self.name)
        # In a thread: a program may print before it reads.
        threading.Thread(target=_feed, args=(stream, stdin), name="fabbench ssh input", daemon=True).start()
        try:
            while not stream.closed:
                if time.monotonic() >= deadline:
                    raise MachineError(
                        f"{argv[0]} on {self.name} timed out.",
                        hint="The machine may be overloaded, or a file system there may hang.",
                    )
                out.take(stream.read(min(_POLL_S, max(deadline - time.monotonic(), 0.0))))
        finally:
            stream.close()
        return Done(-1 if stream.status is None else stream.status, out.lines, list(stream.err))

    def answers(self) -> bool:
        """Check whether the host runs programs. If not, the connection is broken, and closed."""
        try:
            self.run(("true",), timeout_s=_ANSWER_S)
        except MachineError:
            self.close()
            return False
        return True

    @override
    def close(self) -> None:
        self._closed.set()
        self._drop()
        with self._opening:
            streams, self._streams = self._streams, []
        for stream in streams:
            stream.close()

    def failed(self, program: str, said: Sequence[str]) -> MachineError | None:
        """Return why the client ended with its status of failure; None if the status is the program's."""
        del program, said
        return None

    def lost(self, why: object) -> LostError:
        """Return the error of a connection that broke."""
        return LostError(
            f"The connection to {self.name} broke: {str(why).rstrip('.') or 'the other side closed it'}.",
            hint="The machine or the network may be down; check whether you can still reach it.",
        )


def _feed(stream: ProgramStream, data: bytes) -> None:
    with suppress(LostError):  # the thread that reads its lines notices that too
        if data:
            stream.send(data)
        stream.end_input()
