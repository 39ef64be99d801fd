"""Watching the pods of a run and their logs over unreliable connections, tolerating transient errors."""

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

_RETRY_S = 1.0


class PodWatch:
    """A thread that keeps the last state of pods: an evicted one may show that for less than a second."""

    def __init__(self, api: KubernetesApi, selector: str) -> None:
        self.last: dict[str, Mapping[str, Any]] = {}  # A pod's uid → its last reported state
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
        """Return the last state of the pod of a name; None if it was never seen."""
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
            self._closing.wait(_RETRY_S)


_REPORT_AFTER_S = 3.0  # After how long a transient reason is reported


class ReadinessWait:
    """A wait with a limit in seconds."""

    def __init__(self, limit_s: float, notify: Callable[[str], None]) -> None:
        """`notify` receives what keeps pods from starting, once that has lasted a while."""
        self._limit_s, self._notify = limit_s, notify
        self._deadline = time.monotonic() + limit_s
        self._seen: dict[str, float] = {}
        self._reported = ""

    def observe(self, why: Explanation | None) -> None:
        """Note what keeps pods from starting. Raise MachineError: at once if it is final, or at the limit."""
        now = time.monotonic()
        if why:
            if why.final:
                raise MachineError(why.text, hint=why.advice)
            first = self._seen.setdefault(why.code, now)
            if now - first >= _REPORT_AFTER_S and why.text != self._reported:
                self._reported = why.text
                self._notify(str(why))
        if now > self._deadline:
            raise MachineError(
                f"The pods were not ready after {self._limit_s:g} s. {why.text if why else ''}".strip(),
                hint="Raise --start-timeout, or check with kubectl describe.",
            )


def api_silent(error: UnansweredError) -> Explanation:
    """Return the transient explanation that the API does not answer."""
    return Explanation(code="api", text=str(error), advice="fabbench keeps trying.", final=False)


def events_of(api: KubernetesApi, name: str) -> list[dict[str, Any]]:
    """Return the namespace's events of a run: of objects whose names begin with `name`, which no selector matches."""
    return [
        event for event in api.objects("Event") if str(event.get("involvedObject", {}).get("name", "")).startswith(name)
    ]


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is ready for programs."""
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


_LOG_END_S = 10.0  # For how long to request the rest of a log that the kubelet does not return: it may be removed
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\S+(?: |$)")
_QUEUE_LINES = 200  # Maximum queued lines: then the connection waits until they are read
_WAKE_S = 0.5
Queue = queue.Queue[str | MachineError | None]  # Lines; finally None, or the error that ended them


class PodLog:
    """A thread that follows a log until its container has ended, and puts its lines into a queue.

    Each line comes with its timestamp. After a disconnect the log is read again from its beginning, and known
    lines are skipped: the client library cannot request lines after a given time.
    """

    def __init__(self, api: KubernetesApi, pod: str, container: str, ended: Callable[[], bool]) -> None:
        """Do not follow yet. `ended` returns whether the container has ended, or raises MachineError."""
        self.queue: Queue = queue.Queue(_QUEUE_LINES)
        self.failing: tuple[float, MachineError] | None = None  # Since when the log cannot be read (monotonic), and why
        self._api, self._ended = api, ended
        self._pod, self._container = pod, container
        self._last, self._times = "", 0  # The timestamp of the last line, and the number of lines with it
        self._closing = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, daemon=True, name="fabbench pod log").start()

    def stop(self) -> None:
        """Stop the thread: no more lines are needed."""
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
                    # A kubelet that has just started may report "no such pod" for an existing pod.
                    since = self._failed(error)
                    if ended and not isinstance(error, UnansweredError) and time.monotonic() - since > _LOG_END_S:
                        end = error
                        break
            self._closing.wait(_RETRY_S)
        self._put(end)

    def _put(self, item: str | MachineError | None) -> None:
        """Queue an item as soon as there is room, unless the thread is stopped."""
        while not self._closing.is_set():
            with contextlib.suppress(queue.Full):
                self.queue.put(item, timeout=_WAKE_S)
                return

    def _failed(self, error: MachineError) -> float:
        """Note an error. Return the time of the first one in a row (monotonic seconds)."""
        since, _ = self.failing or (time.monotonic(), error)
        self.failing = (since, error)
        return since

    def _read(self, *, follow: bool) -> Iterator[str]:
        with self._api.log(self._pod, self._container, follow=follow) as pieces:
            if not self._last:
                self.failing = None
            yield from self._new(_lines(pieces, whole=follow))

    def _new(self, texts: Iterator[str]) -> Iterator[str]:
        """Skip lines read before. Raise MachineError for the kubelet's error in place of a log: it has no timestamp."""
        last, skip = self._last, self._times
        for text in texts:
            if self._closing.is_set():
                return
            timestamp, _, line = text.partition(" ")
            if not _TIME.match(timestamp):
                raise MachineError(f"The kubelet reports: {text}.")
            self.failing = None
            if timestamp < last:
                continue
            if timestamp == last and skip:
                skip -= 1
                continue
            self._times = self._times + 1 if timestamp == self._last else 1
            self._last = timestamp
            yield line


def _lines(pieces: Iterator[bytes], *, whole: bool) -> Iterator[str]:
    """Yield lines. `whole`: leave out an incomplete last line, which comes again with the next response."""
    lines = LineDecoder()
    for piece in pieces:
        yield from lines.feed(piece)
    for rest in lines.rest():
        if not (whole and _TIME.match(rest)):
            yield rest
