"""The log of a container, line by line as it comes, over connections that may break."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue

from fabbench.errors import MachineError
from fabbench.kube.client import Cluster, ForbiddenError, UnansweredError
from fabbench.pipes import Lines

_AGAIN_S = 1.0
_REST_S = 10.0
"""For how long the rest of a log is asked for where the kubelet does not give it: it may be removed."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\S+(?: |$)")
Queue = SimpleQueue[str | MachineError | None]
"""Lines; at last None, or the error for which no more can come."""


class PodLog:
    """A thread that follows a log until its container has ended, and puts its lines into a queue.

    Each line comes with the time at which it was written: after a break it goes on where it was.
    """

    def __init__(self, cluster: Cluster, pod: str, container: str, ended: Callable[[], bool]) -> None:
        """Follow nothing yet. `ended` says whether the container has ended, and may raise MachineError."""
        self.queue: Queue = SimpleQueue()
        self.failing: tuple[float, MachineError] | None = None
        """Since when the log cannot be read, and why."""
        self._cluster, self._ended = cluster, ended
        self._path = f"/api/v1/namespaces/{cluster.namespace}/pods/{pod}/log"
        self._container = container
        self._last, self._times = "", 0
        """The time of the last line, and how many lines had it."""
        self._closing = threading.Event()

    def start(self) -> None:
        """Begin to follow."""
        threading.Thread(target=self._run, daemon=True, name="fabbench pod log").start()

    def stop(self) -> None:
        """Let it end: no more lines are wanted."""
        self._closing.set()

    def _run(self) -> None:
        end: MachineError | None = None
        while not self._closing.is_set():
            try:
                ended = self._ended()
            except UnansweredError as error:
                self._failed(error)
            except MachineError as error:
                end = error
                break
            else:
                try:
                    for line in self._read(follow=not ended):
                        self.queue.put(line)
                    if ended:
                        break
                except ForbiddenError as error:
                    end = error
                    break
                except MachineError as error:
                    # Also "no such pod", and it is there: so says a kubelet that has just started.
                    since = self._failed(error)
                    if (
                        ended
                        and not isinstance(error, UnansweredError)
                        and time.monotonic() - since > _REST_S
                    ):
                        end = error
                        break
            self._closing.wait(_AGAIN_S)
        self.queue.put(end)

    def _failed(self, error: MachineError) -> float:
        """Take note of an error; gives since when there are any."""
        since, _ = self.failing or (time.monotonic(), error)
        self.failing = (since, error)
        return since

    def _read(self, *, follow: bool) -> Iterator[str]:
        """Give the lines that are new, until the connection ends or breaks."""
        query = {"container": self._container, "timestamps": "true", "follow": str(follow).lower()}
        if self._last:
            query["sinceTime"] = self._last
        with self._cluster.stream(self._path, query) as pieces:
            if not self._last:
                self.failing = None
            yield from self._new(_lines(pieces, whole=follow))

    def _new(self, texts: Iterator[str]) -> Iterator[str]:
        """Leave out what was read before, and take note of how far it goes.

        Raises MachineError for what a kubelet says in place of a log that it cannot read: it has no time.
        """
        last, skip = self._last, self._times
        for text in texts:
            if self._closing.is_set():
                return
            written, _, line = text.partition(" ")
            if not _TIME.match(written):
                raise MachineError(f"The kubelet says: {text}.")
            self.failing = None
            if written < last:
                continue
            if written == last and skip:
                skip -= 1
                continue
            self._times = self._times + 1 if written == self._last else 1
            self._last = written
            yield line


def _lines(pieces: Iterator[bytes], *, whole: bool) -> Iterator[str]:
    """Give lines; of a log that goes on only `whole` ones: the rest of a line comes with the next answer."""
    lines = Lines()
    for piece in pieces:
        yield from lines.feed(piece)
    for rest in lines.rest():
        if not (whole and _TIME.match(rest)):
            yield rest
