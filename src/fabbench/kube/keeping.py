"""Keeping the objects of a run: while fabbench lives, and not much longer."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from fabbench.errors import MachineError
from fabbench.kube.client import Cluster
from fabbench.kube.pipe import PodConnection, PodPipe
from fabbench.pods.asked import BEAT, Asked
from fabbench.pods.workload import CONTAINER, deadline
from fabbench.remote.pool import each

_LOOK_S = 0.5
_BEAT_S = 5.0
_ANSWER_S = 5.0
_BEATS = 'while read -r _; do : >"$1" && echo beat; done'


class Keeper:
    """A thread that shows pods that fabbench is there, and moves the Job's deadline on.

    Pods that run count the seconds since the last beat. For those that do not, there is the deadline.
    """

    def __init__(
        self, cluster: Cluster, asked: Asked, job: str, pods: Callable[[], Sequence[dict[str, Any]]]
    ) -> None:
        """`job` is the Job's path, and `pods` gives its pods."""
        self._cluster, self._asked, self._job, self._pods = cluster, asked, job, pods
        self._beats: dict[str, PodPipe] = {}
        self._closing = threading.Event()
        self._begun = time.monotonic()
        self._moved = self._begun

    def begin(self) -> None:
        """Count from now on: the Job is about to be made."""
        self._begun = self._moved = time.monotonic()

    def start(self) -> None:
        """Begin to keep it."""
        threading.Thread(target=self._keep, daemon=True, name="fabbench beats").start()

    def stop(self) -> None:
        """Let it end."""
        self._closing.set()
        for pipe in list(self._beats.values()):
            pipe.close()

    def _keep(self) -> None:
        often = min(_BEAT_S, self._asked.lease_s / 5)
        while not self._closing.wait(often if self._beats else _LOOK_S):
            try:
                self._move()
                running = [pod for pod in self._pods() if pod.get("status", {}).get("phase") == "Running"]
            except MachineError:
                continue
            each({pod["metadata"]["name"]: pod["metadata"]["name"] for pod in running}, self._beat)

    def _move(self) -> None:
        """Move the Job's deadline on, now and then."""
        now = time.monotonic()
        if now - self._moved >= self._asked.lease_s / 5:
            patch = deadline(round(now - self._begun) + self._asked.lease_s)
            self._cluster.call("PATCH", self._job, body=patch)
            self._moved = now

    def _beat(self, name: str) -> None:
        """Beat, and hear the answer: a connection that does not give one is made anew."""
        try:
            if name not in self._beats:
                connection = PodConnection(self._cluster, name, CONTAINER)
                self._beats[name] = connection.open(("sh", "-c", _BEATS, "sh", BEAT))
            pipe = self._beats[name]
            pipe.send(b"\n")
            if next(pipe.lines(time.monotonic() + _ANSWER_S), None) is None:
                self._beats.pop(name).close()
        except (MachineError, TimeoutError):
            broken = self._beats.pop(name, None)  # the pod may be starting still; the next time is soon
            if broken is not None:
                broken.close()
