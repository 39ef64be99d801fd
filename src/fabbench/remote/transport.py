"""How programs on a host are reached: over ssh by either client, by Kubernetes exec, or here."""

import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain

from fabbench.execution.background import in_background
from fabbench.execution.process import LineDecoder, PipedProcess, Received
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.model.mappings import Variables
from fabbench.model.messages import action
from fabbench.model.values import frozen

POLL_S = 0.5
_MAX_ERR_LINES = 1000
LONGEST_ANSWER = 16 << 20
"""Bytes of output of a program that is run to its end: fabbench's own print much less."""
_LINE_OVERHEAD = 60  # Bytes of memory that a line takes besides its text


class LostError(MachineError):
    """The connection to a machine broke, or the machine does not answer."""


class HostGoneError(MachineError):
    """The host no longer exists and will not come back: its pod has ended, or was removed."""


class SilentHostError(MachineError):
    """A host does not answer any more, and was given up."""

    def __init__(self, host: str, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.host = host


@frozen
class Done:
    """A program that ran to its end."""

    status: int
    out: list[str]
    err: list[str]  # The last lines, if there are very many


class ProcessStream(ABC):
    """The streams of a program on another machine, which keeps running without them."""

    def __init__(self) -> None:
        self.status: int | None = None  # Exit status; -1: ended by a signal. None: unknown (yet)
        self.err: deque[str] = deque(maxlen=_MAX_ERR_LINES)  # The last lines of its standard error
        self.closed = False  # Whether both outputs have ended, and all their lines were returned
        self._decoders = LineDecoder(), LineDecoder()

    @abstractmethod
    def _receive(self, timeout_s: float) -> Received:
        """Return what came on both outputs, after a wait if necessary; None at the end."""

    @abstractmethod
    def _exit_status(self) -> int:
        """Return the status of the program, whose outputs have ended. Raise LostError."""

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Write to its standard input. Raise LostError, also if it accepts nothing for long."""

    @abstractmethod
    def close(self) -> None:
        """Close the streams. The program keeps running if it has not ended."""

    def end_input(self) -> None:  # noqa: B027 - not everywhere possible
        """Close its standard input."""

    def read(self, timeout_s: float) -> list[str]:
        """Return lines of standard output, after a wait of at most `timeout_s`. Raise LostError."""
        if self.closed:
            return []
        out, err = self._decoders
        # What is received: of standard output, and of standard error.
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

    def answer(
        self, source: str, limit_s: float, *, last: str | None = None, count: int = 1
    ) -> list[str]:
        """Return the lines up to the `count`-th that begins with `last`; None: all.

        Fewer at its end, or after `limit_s`.

        Raise LostError, and MachineError that names `source` if they exceed the size of any valid
        answer.
        """
        deadline = time.monotonic() + limit_s
        answer: list[str] = []
        size = 0
        while count > 0 and not self.closed:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            lines = self.read(min(POLL_S, left_s))
            answer += lines
            size += sum(map(len, lines)) + _LINE_OVERHEAD * len(lines)
            if size > LONGEST_ANSWER:
                most_mib = LONGEST_ANSWER >> 20
                raise MachineError(
                    f"{source} printed more than {most_mib} MiB as an answer; giving up.",
                    hint="Check what its login shell prints: ssh HOST true should print nothing.",
                )
            if last is not None:
                count -= sum(line.startswith(last) for line in lines)
        return answer

    def lines(self) -> Iterator[str]:
        """Yield the lines of standard output as they come, until it ends. Raise LostError."""
        return chain.from_iterable(self.batches())

    def batches(self) -> Iterator[list[str]]:
        """Yield the same lines in batches as they come: about 100 KB at most, and never empty."""
        while not self.closed:
            if batch := self.read(POLL_S):
                yield batch


class Transport(ABC):
    """A connection to one machine. Its methods may be called from any thread."""

    def __init__(self, name: str, where: str) -> None:
        """Do not connect yet. `where` names it in what -v prints."""
        self.name = name
        self.where = where
        self._opening = threading.Lock()  # Held while `_streams` is changed
        self._streams: list[ProcessStream] = []  # Those that `close` has to close

    @property
    def alive(self) -> bool:
        """Return whether the connection is up, as far as is known."""
        return True

    def connect(self) -> None:  # noqa: B027 - this machine is always there
        """Connect unless connected, also after the connection broke. Raise MachineError."""

    @abstractmethod
    def _start(self, argv: Sequence[str]) -> ProcessStream:
        """Start a program. Raise LostError, or MachineError if it cannot be started."""

    def open(self, argv: Sequence[str]) -> ProcessStream:
        """Start a program that keeps running. Raise LostError, or MachineError if it cannot."""
        action(self.where, argv)
        if not self.alive:
            raise self.lost("it is closed")
        stream = self._start(argv)
        with self._opening:
            self._streams = [*(each for each in self._streams if not each.closed), stream]
        return stream

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30) -> Done:
        """Run a program to its end. Raise LostError, or MachineError if it takes longer."""
        stream = self.open(argv)
        # In a thread: a program may print before it reads.
        in_background(_feed, stream, stdin, name="input")
        try:
            out = stream.answer(self.name, timeout_s)
            if not stream.closed:
                raise MachineError(
                    f"{argv[0]} on {self.name} timed out.",
                    hint="~/.bashrc there may wait for something, or a file system may hang.",
                )
        finally:
            stream.close()
        status = -1 if stream.status is None else stream.status  # As if ended by a signal
        return Done(status=status, out=out, err=list(stream.err))

    def leave_will(self, argv: Sequence[str]) -> None:  # noqa: B027 - not everywhere possible
        """Have a program run there if fabbench is killed."""

    def close(self) -> None:
        """Close the connection. Programs there keep running."""
        with self._opening:
            streams = self._streams
            self._streams = []
        for stream in streams:
            stream.close()

    def lost(self, why: object) -> LostError:
        """Return the error of a connection that broke."""
        cause = str(why).rstrip(".") or "the other side closed it"
        return LostError(
            f"The connection to {self.name} broke: {cause}.",
            hint="The machine or the network may be down; check whether you can still reach it.",
        )


def _feed(stream: ProcessStream, data: bytes) -> None:
    with suppress(LostError):  # the thread that reads its lines notices that too
        if data:
            stream.send(data)
        stream.end_input()


_MAYBE_OF_SSH = frozenset({255, -signal.SIGKILL})
"""ssh's own status, which a program's may be too; or it was killed."""


class PipedProgram(PipedProcess, ProcessStream):
    """A program on this machine; or on another, by an ssh process here."""

    def __init__(
        self,
        words: Sequence[str],
        owner: Transport,
        env: Variables,
        failed: Callable[[Sequence[str]], MachineError | None] = lambda _: None,
    ) -> None:
        """Start it with `env` added.

        `failed` is called for statuses that may be ssh's own. It gets the standard error, and
        returns why ssh failed; None: the status is the program's.
        """
        ProcessStream.__init__(self)
        PipedProcess.__init__(self, words, env)
        self._owner = owner
        self._why_ssh_failed = failed

    @override
    def _receive(self, timeout_s: float) -> Received:
        return self.receive(timeout_s)

    @override
    def _exit_status(self) -> int:
        status = self.wait() or 0  # without a limit it waits for the end: never None
        # Of these it is not certain whether ssh failed, or the program: stderr says it.
        if status in _MAYBE_OF_SSH and (why := self._why_ssh_failed(self.err)):
            raise why
        return status

    @override
    def send(self, data: bytes) -> None:
        try:
            super().send(data)
        except TimeoutError as error:
            raise self._owner.lost(error) from error
        except (OSError, ValueError) as error:
            raise self._owner.lost("the program there has exited") from error


class Here(Transport):
    """This machine, which is always there."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "here")

    @override
    def _start(self, argv: Sequence[str]) -> ProcessStream:
        return PipedProgram(argv, self, env={})
