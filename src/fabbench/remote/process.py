"""A program on a remote host: started by the agent, it runs on whatever becomes of the connection."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from fabbench.execution.session import LONGEST_OUTPUT, FloodedError
from fabbench.remote.connection import LostError
from fabbench.remote.host import FLOODED, RemoteHost
from fabbench.remote.transport import ProcessStream

KEPT_KIB = (LONGEST_OUTPUT >> 10) + 1024
"""How much of a program's output a host keeps: more than is read of it, so that whoever reads notices."""
_MOST_WAITING = 8
"""Batches. Then the next one waits, and with it the connection, and what prints over there."""
_WAKE_S = 0.25


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines of a program; of a debug file, where there is none."""

    program: "RemoteProcess | None"
    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """That a program has ended, and how."""

    program: "RemoteProcess"
    status: int


Told: TypeAlias = Batch | ProcessEnded | Exception


class LeftError(Exception):
    """Nobody asks for lines any more."""


class OutputQueue:
    """What the threads that follow programs and files tell the one that asks for lines."""

    def __init__(self) -> None:
        self._items: queue.Queue[Told] = queue.Queue(_MOST_WAITING)
        self._left = threading.Event()

    def put(self, told: Told) -> None:
        """Tell something, as soon as there is room. Raise LeftError when nobody listens any more."""
        while not self._left.is_set():
            with contextlib.suppress(queue.Full):
                self._items.put(told, timeout=_WAKE_S)
                return
        raise LeftError

    def get(self, timeout_s: float) -> Told | None:
        """Wait for what comes next; None: nothing came."""
        try:
            return self._items.get(timeout=timeout_s) if timeout_s else self._items.get_nowait()
        except queue.Empty:
            return None

    def leave(self) -> None:
        """Ask for no more: whoever waits to tell something ends."""
        self._left.set()


class RemoteProcess:
    """One program on one host; see `fabbench.execution.session.Program`."""

    def __init__(self, name: str, host: RemoteHost, number: str, told: OutputQueue) -> None:
        self.name = name
        self.status: int | None = None
        self.host = host
        self.number = number
        self.hung_after_exit = False
        """Whether it has done its work, and is to be ended only because it does not end by itself."""
        self._told = told
        self._read = 0
        """Lines read so far."""

    def start(self, words: Sequence[str]) -> None:
        """Start it, and follow it in a thread."""
        pipe = self.host.open("run", str(KEPT_KIB), self.number, *words)
        follow(lambda: self._follow(pipe), self._told)

    def _follow(self, first: ProcessStream) -> None:
        """Pass on its lines; where the connection broke, from the next line on."""
        pipe: ProcessStream | None = first
        while True:
            try:
                if pipe is None:
                    pipe = self.host.open("follow", self.number, str(self._read + 1))
                for texts in self.host.batches(pipe):
                    self._read += len(texts)
                    self._told.put(Batch(self, texts))
                break
            except LostError:
                pipe = None
                self.host.wait()
            except LeftError:
                if pipe is not None:
                    pipe.close()
                raise
        if self.host.said(pipe.err):
            raise self.host.failure(pipe.err, "early")
        status = -1 if pipe.status is None else pipe.status
        self._told.put(ProcessEnded(self, 0 if self.hung_after_exit else status))


class Watched:
    """The files of a directory on one host whose names begin with a prefix: their lines, while they grow."""

    def __init__(self, host: RemoteHost, folder: str, prefix: str, told: OutputQueue) -> None:
        self._host = host
        self._words = (folder, prefix, str(KEPT_KIB))
        self._told = told
        self._pipe: ProcessStream | None = None
        self._ending = False
        self.over = threading.Event()
        """Set when all lines have been passed on."""

    def start(self) -> None:
        """Make the directory, and follow its files in a thread. Raise MachineError."""
        batches = self._open()

        def pass_on() -> None:
            try:
                self._pass_on(batches)
            finally:
                self.over.set()
                if self._pipe is not None:
                    self._pipe.close()

        follow(pass_on, self._told)

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
            with contextlib.suppress(LostError):  # who reads its lines notices that too
                self._pipe.send(word)

    def _pass_on(self, batches: Iterator[Sequence[str]]) -> None:
        while True:
            try:
                for texts in batches:
                    if FLOODED in texts:
                        raise FloodedError
                    self._told.put(Batch(None, texts))
            except LostError:
                self._host.wait()
                # Its lines come again from the start: what they state is the same.
                batches = self._host.again(self._open)
                self._send(b"end\n" if self._ending else b"\n")
            else:
                return


def follow(work: Callable[[], None], told: OutputQueue) -> None:
    """Do something in a thread of its own; what it fails with goes to whoever asks for lines."""

    def guarded() -> None:
        with contextlib.suppress(LeftError):
            try:
                work()
            except LeftError:
                raise
            except Exception as error:  # noqa: BLE001 - raised in the thread that asks for lines
                told.put(error)

    threading.Thread(target=guarded, daemon=True, name="fabbench follows").start()
