"""What the agent on a host prints while it runs: of programs, and of files that grow.

Programs keep running if the connection breaks: the agent is opened again, and continues where it was.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from itertools import chain

from fabbench.execution.session import LONGEST_OUTPUT, FloodedError
from fabbench.execution.worker_pool import Item, OutputQueue, QueueClosedError
from fabbench.model.compat import override
from fabbench.remote.host import AGENT_PREFIX, FLOODED, HERE, RemoteHost
from fabbench.remote.transport import LostError, ProcessStream

KEPT_KIB = (LONGEST_OUTPUT >> 10) + 1024
"""How much of a program's output a host keeps: more than is read, so that the reader notices the excess."""


class AgentStream:
    """A mode of the agent that keeps running, opened again each time that the connection broke."""

    def __init__(self, host: RemoteHost, *words: str, answers: bool = True) -> None:
        """`words`: the mode, and its arguments. It `answers` "ready" before it prints anything else."""
        self.host = host
        self._words, self._answers = words, answers
        self._closed = False

    def open(self) -> None:
        """Start it. Raise MachineError."""
        self.pipe, self._batches = self.host.with_reconnect(self._open)

    def again(self) -> None:
        """Prepare for another start, after the connection broke."""

    def batches(self) -> Iterator[Sequence[str]]:
        """Yield its lines in batches, until it ends or is closed. Raise MachineError when the host is given up."""
        while True:
            try:
                yield from self._batches
            except LostError:
                if self._closed:
                    return
                self.host.wait()
                self.again()
                self.open()
            else:
                return

    def send(self, data: bytes) -> None:
        """Write to its standard input. That it broke, the thread that reads its lines notices too."""
        with contextlib.suppress(LostError):
            self.pipe.send(data)

    def close(self) -> None:
        """End it."""
        self._closed = True
        self.pipe.close()

    def _open(self) -> tuple[ProcessStream, Iterator[Sequence[str]]]:
        pipe = self.host.open(*self._words)
        batches = _after_login(pipe)
        if self._answers:
            first, *more = next(batches, [""])
            if first != "ready":
                raise self.host.failure(pipe.err, "early")
            batches = chain([more], batches)
        return pipe, batches


def _after_login(pipe: ProcessStream) -> Iterator[Sequence[str]]:
    """Yield what the agent prints, without what the login printed before it."""
    batches = pipe.batches()
    for batch in batches:
        here = next((number for number, line in enumerate(batch) if line.endswith(HERE)), None)
        if here is not None:
            if rest := batch[here + 1 :]:
                yield rest
            break
    yield from batches


class RemoteProcess(AgentStream):
    """One program on one host; see `fabbench.execution.session.Program`."""

    def __init__(self, name: str, host: RemoteHost, number: str, words: Sequence[str]) -> None:
        super().__init__(host, "run", str(KEPT_KIB), number, *words, answers=False)
        self.name, self.number = name, number
        self.status: int | None = None
        self.hung_after_exit = False  # Whether it finished its work, and is ended only because it does not exit
        self._read = 0  # Lines read so far

    @override
    def again(self) -> None:
        self._words = ("follow", self.number, str(self._read + 1))

    def start(self, output: OutputQueue) -> None:
        """Start it, and follow its output in a thread. Raise MachineError."""
        self.open()
        output.follow(lambda: self._follow(output))

    def _follow(self, output: OutputQueue) -> None:
        try:
            for texts in self.batches():
                self._read += len(texts)
                output.put(Item(self, texts))
        except QueueClosedError:
            self.close()
            raise
        if any(line.startswith(AGENT_PREFIX) for line in self.pipe.err):
            raise self.host.failure(self.pipe.err, "early")
        status = -1 if self.pipe.status is None else self.pipe.status
        output.put(Item(self, status=0 if self.hung_after_exit else status))


class WatchedFiles(AgentStream):
    """The files of a directory on one host whose names begin with a prefix: their lines, while they grow."""

    def __init__(self, host: RemoteHost, folder: str, prefix: str) -> None:
        super().__init__(host, "watch", folder, prefix, str(KEPT_KIB))
        self._ending = False
        self.over = threading.Event()  # Set when all lines have been forwarded

    def start(self, output: OutputQueue) -> None:
        """Make the directory, and follow its files in a thread. Raise MachineError."""
        self.open()
        output.follow(lambda: self._forward(output))

    @override
    def open(self) -> None:
        # Lines are repeated from the start when it is opened again, and state the same facts.
        super().open()
        self.tick()

    def tick(self) -> None:
        """Have the agent look for new files, or read the rest."""
        self.send(b"end\n" if self._ending else b"\n")

    def end(self) -> None:
        """Have the agent read the rest."""
        self._ending = True
        self.tick()

    def _forward(self, output: OutputQueue) -> None:
        try:
            for texts in self.batches():
                if FLOODED in texts:
                    raise FloodedError
                output.put(Item(None, texts))
        finally:
            self.over.set()
            self.close()
