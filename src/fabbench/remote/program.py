"""A program on a remote host: started by the agent, it runs on whatever becomes of the connection."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from fabbench.remote.connection import LostError
from fabbench.remote.host import RemoteHost
from fabbench.remote.way import Told
from fabbench.session import Output

if TYPE_CHECKING:
    from queue import SimpleQueue

Queue: TypeAlias = "SimpleQueue[Output | Ended | Exception]"
"""What the threads that follow programs and files tell the one that asks for lines."""


class Ended:
    """That a program has ended, and how."""

    def __init__(self, program: "RemoteProgram", status: int) -> None:
        self.program = program
        self.status = status


class RemoteProgram:
    """One program on one host; see `fabbench.session.Program`."""

    def __init__(self, name: str, host: RemoteHost, number: str, queue: Queue) -> None:
        self.name = name
        self.status: int | None = None
        self.host = host
        self.number = number
        self.lingers = False
        """Whether it has done its work, and is to be ended only because it does not end by itself."""
        self._queue = queue
        self._read = 0
        """Lines read so far."""

    def start(self, words: Sequence[str]) -> None:
        """Start it, and follow it in a thread."""
        pipe = self.host.open("run", self.number, *words)
        follow(lambda: self._follow(pipe), self._queue)

    def _follow(self, first: Told) -> None:
        """Pass on its lines; where the connection broke, from the next line on."""
        pipe: Told | None = first
        while True:
            try:
                if pipe is None:
                    pipe = self.host.open("follow", self.number, str(self._read + 1))
                for line in self.host.lines(pipe):
                    self._read += 1
                    self._queue.put(Output(self, line))
                break
            except LostError:
                pipe = None
                self.host.wait()
        if self.host.said(pipe.err):
            raise self.host.failure(pipe.err, "early")
        status = -1 if pipe.status is None else pipe.status
        self._queue.put(Ended(self, 0 if self.lingers else status))


class Watched:
    """The files of a folder on one host whose names begin with a prefix: their lines, while they grow."""

    def __init__(self, host: RemoteHost, folder: str, prefix: str, queue: Queue) -> None:
        self._host = host
        self._words = (folder, prefix)
        self._queue = queue
        self._pipe: Told | None = None
        self._ending = False
        self.over = threading.Event()
        """Set when all lines have been passed on."""

    def start(self) -> None:
        """Make the folder, and follow its files in a thread. Raises MachineError."""
        lines = self._open()

        def pass_on() -> None:
            try:
                self._pass_on(lines)
            finally:
                self.over.set()

        follow(pass_on, self._queue)

    def tick(self) -> None:
        """Let new files be looked for."""
        self._send(b"\n")

    def end(self) -> None:
        """Let the rest be read."""
        self._ending = True
        self._send(b"end\n")

    def _open(self) -> Iterator[str]:
        self._pipe = self._host.open("watch", *self._words)
        lines = self._host.lines(self._pipe)
        if next(lines, "") != "ready":
            raise self._host.failure(self._pipe.err, "early")
        return lines

    def _send(self, word: bytes) -> None:
        if self._pipe is not None:
            with contextlib.suppress(LostError):  # who reads its lines notices that too
                self._pipe.send(word)

    def _pass_on(self, lines: Iterator[str]) -> None:
        while True:
            try:
                for line in lines:
                    self._queue.put(Output(None, line))
            except LostError:
                self._host.wait()
                # Its lines come again from the start: what they state is the same.
                lines = self._host.again(self._open)
                self._send(b"end\n" if self._ending else b"\n")
            else:
                return


def follow(work: Callable[[], None], queue: Queue) -> None:
    """Do something in a thread of its own; what it fails with goes to whoever asks for lines."""

    def guarded() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised in the thread that asks for lines
            queue.put(error)

    threading.Thread(target=guarded, daemon=True, name="fabbench follows").start()
