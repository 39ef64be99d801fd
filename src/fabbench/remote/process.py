"""A program on a remote host: started by the agent, it keeps running even if the connection breaks."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from fabbench.execution.session import LONGEST_OUTPUT, FloodedError
from fabbench.remote.host import FLOODED, RemoteHost
from fabbench.remote.transport import LostError, ProcessStream

KEPT_KIB = (LONGEST_OUTPUT >> 10) + 1024
"""How much of a program's output a host keeps: more than is read, so that the reader notices the excess."""
_MAX_QUEUED = 8  # Batches. The next one blocks, and with it the connection and the remote programs that print.
_WAKE_S = 0.25


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines of a program, or of a debug file (program None)."""

    program: "RemoteProcess | None"
    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """The end of a program, with its exit status."""

    program: "RemoteProcess"
    status: int


QueueItem: TypeAlias = Batch | ProcessEnded | Exception


class QueueClosedError(Exception):
    """No thread reads lines any more."""


class OutputQueue:
    """Passes items from the threads that follow programs and files to the one that reads lines."""

    def __init__(self) -> None:
        self._items: queue.Queue[QueueItem] = queue.Queue(_MAX_QUEUED)
        self._closed = threading.Event()

    def put(self, item: QueueItem) -> None:
        """Add an item as soon as there is room. Raise QueueClosedError if no thread reads any more."""
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._items.put(item, timeout=_WAKE_S)
                return
        raise QueueClosedError

    def get(self, timeout_s: float) -> QueueItem | None:
        """Wait for the next item; None if none came in time."""
        try:
            return self._items.get(timeout=timeout_s) if timeout_s else self._items.get_nowait()
        except queue.Empty:
            return None

    def leave(self) -> None:
        """Stop reading: threads that wait in `put` end."""
        self._closed.set()


class RemoteProcess:
    """One program on one host; see `fabbench.execution.session.Program`."""

    def __init__(self, name: str, host: RemoteHost, number: str, output: OutputQueue) -> None:
        self.name = name
        self.status: int | None = None
        self.host = host
        self.number = number
        self.hung_after_exit = False  # Whether it finished its work, and is ended only because it does not exit
        self._output = output
        self._read = 0  # Lines read so far

    def start(self, words: Sequence[str]) -> None:
        """Start it, and follow its output in a thread."""
        pipe = self.host.open("run", str(KEPT_KIB), self.number, *words)
        follow(lambda: self._follow(pipe), self._output)

    def _follow(self, first: ProcessStream) -> None:
        """Forward its lines; after the connection broke, continue with the next line."""
        pipe: ProcessStream | None = first
        while True:
            try:
                if pipe is None:
                    pipe = self.host.open("follow", self.number, str(self._read + 1))
                for texts in self.host.batches(pipe):
                    self._read += len(texts)
                    self._output.put(Batch(self, texts))
                break
            except LostError:
                pipe = None
                self.host.wait()
            except QueueClosedError:
                if pipe is not None:
                    pipe.close()
                raise
        if self.host.agent_failed(pipe.err):
            raise self.host.failure(pipe.err, "early")
        status = -1 if pipe.status is None else pipe.status
        self._output.put(ProcessEnded(self, 0 if self.hung_after_exit else status))


class WatchedFiles:
    """The files of a directory on one host whose names begin with a prefix: their lines, while they grow."""

    def __init__(self, host: RemoteHost, folder: str, prefix: str, output: OutputQueue) -> None:
        self._host = host
        self._words = (folder, prefix, str(KEPT_KIB))
        self._output = output
        self._pipe: ProcessStream | None = None
        self._ending = False
        self.over = threading.Event()  # Set when all lines have been forwarded

    def start(self) -> None:
        """Make the directory, and follow its files in a thread. Raise MachineError."""
        batches = self._open()

        def forward() -> None:
            try:
                self._forward(batches)
            finally:
                self.over.set()
                if self._pipe is not None:
                    self._pipe.close()

        follow(forward, self._output)

    def tick(self) -> None:
        """Have the agent look for new files."""
        self._send(b"\n")

    def end(self) -> None:
        """Have the agent read the rest."""
        self._ending = True
        self._send(b"end\n")

    def _open(self) -> Iterator[Sequence[str]]:
        self._pipe = self._host.open("watch", *self._words)
        batches = self._host.batches(self._pipe)
        first, *more = next(batches, [""])
        if first != "ready":
            raise self._host.failure(self._pipe.err, "early")
        return chain([more], batches)

    def _send(self, word: bytes) -> None:
        if self._pipe is not None:
            with contextlib.suppress(LostError):  # the thread that reads its lines notices that too
                self._pipe.send(word)

    def _forward(self, batches: Iterator[Sequence[str]]) -> None:
        while True:
            try:
                for texts in batches:
                    if FLOODED in texts:
                        raise FloodedError
                    self._output.put(Batch(None, texts))
            except LostError:
                self._host.wait()
                # Its lines are repeated from the start, and state the same facts.
                batches = self._host.with_reconnect(self._open)
                self._send(b"end\n" if self._ending else b"\n")
            else:
                return


def follow(work: Callable[[], None], output: OutputQueue) -> None:
    """Call `work` in a separate thread; its error goes to the thread that reads lines."""

    def guarded() -> None:
        with contextlib.suppress(QueueClosedError):
            try:
                work()
            except QueueClosedError:
                raise
            except Exception as error:  # noqa: BLE001 - raised in the thread that reads lines
                output.put(error)

    threading.Thread(target=guarded, daemon=True, name="fabbench follows").start()
