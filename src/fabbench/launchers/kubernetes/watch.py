"""Watching the pods of a run and their logs, over connections that may break; patient with what may pass."""

import contextlib
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fabbench.execution.process import LineDecoder
from fabbench.launchers import Explanation
from fabbench.launchers.kubernetes.api import ForbiddenError, KubernetesApi, UnansweredError
from fabbench.model.errors import MachineError

_AGAIN_S = 1.0


class PodWatch:
    """A thread that keeps the last state of every pod with a label.

    A pod that was evicted says so only until it is gone, which may take less than a second.
    """

    def __init__(self, api: KubernetesApi, selector: str) -> None:
        self.last: dict[str, Mapping[str, Any]] = {}
        """A pod's uid → what was said of it last."""
        self._api = api
        self._selector = selector
        self._closing = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, daemon=True, name="fabbench pod watch").start()

    def stop(self) -> None:
        """Stop the thread."""
        self._closing.set()

    def named(self, name: str) -> Mapping[str, Any] | None:
        """Return the pod of a name; None: it was never seen."""
        return next((pod for pod in reversed([*self.last.values()]) if pod["metadata"]["name"] == name), None)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                with contextlib.closing(self._api.watch("Pod", self._selector)) as pods:
                    for pod in pods:
                        if self._closing.is_set():
                            return
                        self.last[pod["metadata"]["uid"]] = pod
            except MachineError:
                pass  # the next round tries again
            self._closing.wait(_AGAIN_S)


_LASTS_S = 3.0
"""After how long a transient reason is reported."""


class ReadinessWait:
    """One wait, with a limit in seconds."""

    def __init__(self, limit_s: float, tell: Callable[[str], None]) -> None:
        """`tell` gets what keeps pods from starting, once that is known to last."""
        self._limit_s, self._tell = limit_s, tell
        self._deadline = time.monotonic() + limit_s
        self._seen: dict[str, float] = {}
        self._reported = ""

    def observe(self, why: Explanation | None) -> None:
        """Note what keeps pods from starting; None: nothing known.

        Raise MachineError with the explanation at once where the reason is permanent, else after the limit.
        """
        now = time.monotonic()
        if why:
            if why.final:
                raise MachineError(why.text, hint=why.advice)
            first = self._seen.setdefault(why.code, now)
            if now - first >= _LASTS_S and why.text != self._reported:
                self._reported = why.text
                self._tell(str(why))
        if now > self._deadline:
            raise MachineError(
                f"The pods were not ready after {self._limit_s:g} s. {why.text if why else ''}".strip(),
                hint="Raise --start-timeout, or check with kubectl describe.",
            )


def api_silent(error: UnansweredError) -> Explanation:
    """Return the transient explanation that the API does not answer."""
    return Explanation(code="api", text=str(error), advice="fabbench keeps trying.", final=False)


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is ready for programs."""
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


_REST_S = 10.0
"""For how long the rest of a log is requested where the kubelet does not give it: it may be removed."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\S+(?: |$)")
_MOST_WAITING = 200
"""Lines: then the connection waits until they are read."""
_WAKE_S = 0.5
Queue = queue.Queue[str | MachineError | None]
"""Lines; at last None, or the error for which no more can come."""


class PodLog:
    """A thread that follows a log until its container has ended, and puts its lines into a queue.

    Each line comes with the time at which it was written. After a break the log is read again from its
    beginning, and goes on where it was: the client library cannot ask for what is later than a time.
    """

    def __init__(self, api: KubernetesApi, pod: str, container: str, ended: Callable[[], bool]) -> None:
        """Follow nothing yet. `ended` says whether the container has ended, and may raise MachineError."""
        self.queue: Queue = queue.Queue(_MOST_WAITING)
        self.failing: tuple[float, MachineError] | None = None
        """Since when the log cannot be read, and why."""
        self._api, self._ended = api, ended
        self._pod, self._container = pod, container
        self._last, self._times = "", 0
        """The time of the last line, and how many lines had it."""
        self._closing = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, daemon=True, name="fabbench pod log").start()

    def stop(self) -> None:
        """Stop the thread: no more lines are wanted."""
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
                        self._put(line)
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
        self._put(end)

    def _put(self, told: str | MachineError | None) -> None:
        """Pass something on as soon as there is room; nothing where no more is wanted."""
        while not self._closing.is_set():
            with contextlib.suppress(queue.Full):
                self.queue.put(told, timeout=_WAKE_S)
                return

    def _failed(self, error: MachineError) -> float:
        """Note an error. Return since when there are any (monotonic seconds)."""
        since, _ = self.failing or (time.monotonic(), error)
        self.failing = (since, error)
        return since

    def _read(self, *, follow: bool) -> Iterator[str]:
        """Yield the lines that are new, until the connection ends or breaks."""
        with self._api.log(self._pod, self._container, follow=follow) as pieces:
            if not self._last:
                self.failing = None
            yield from self._new(_lines(pieces, whole=follow))

    def _new(self, texts: Iterator[str]) -> Iterator[str]:
        """Leave out what was read before, and take note of how far it goes.

        Raise MachineError for what a kubelet says in place of a log that it cannot read: it has no time.
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
    """Yield lines; of a log that goes on only `whole` ones: the rest of a line comes with the next answer."""
    lines = LineDecoder()
    for piece in pieces:
        yield from lines.feed(piece)
    for rest in lines.rest():
        if not (whole and _TIME.match(rest)):
            yield rest
