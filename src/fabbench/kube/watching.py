"""Watching the pods of a run: what the cluster said last of each, also of those that it has forgotten."""

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fabbench.errors import MachineError
from fabbench.kube.client import Cluster
from fabbench.pipes import Lines

_AGAIN_S = 1.0


class PodWatch:
    """A thread that keeps the last state of every pod with a label.

    A pod that was evicted says so only until it is gone, which may take less than a second.
    """

    def __init__(self, cluster: Cluster, selector: str) -> None:
        self.last: dict[str, Mapping[str, Any]] = {}
        """A pod's uid → what was said of it last."""
        self._cluster = cluster
        self._selector = selector
        self._path = f"/api/v1/namespaces/{cluster.namespace}/pods"
        self._closing = threading.Event()

    def start(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._run, daemon=True, name="fabbench pod watch").start()

    def stop(self) -> None:
        """Let it end."""
        self._closing.set()

    def named(self, name: str) -> Mapping[str, Any] | None:
        """Give the pod of a name; None: it was never seen."""
        return next((pod for pod in reversed([*self.last.values()]) if pod["metadata"]["name"] == name), None)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                listed = self._cluster.get(self._path, labelSelector=self._selector)
                self._take(listed.get("items") or ())
                self._take(self._changes(listed["metadata"]["resourceVersion"]))
            except MachineError:
                pass  # it is asked again; who needs the pods now asks for himself
            self._closing.wait(_AGAIN_S)

    def _take(self, pods: Iterable[Mapping[str, Any]]) -> None:
        for pod in pods:
            self.last[pod["metadata"]["uid"]] = pod

    def _changes(self, version: str) -> Iterator[Mapping[str, Any]]:
        """Give pods as they change, until the connection ends."""
        query = {"labelSelector": self._selector, "watch": "true", "resourceVersion": version}
        lines = Lines()
        with self._cluster.stream(self._path, query) as pieces:
            for piece in pieces:
                for line in lines.feed(piece):
                    told = json.loads(line)
                    if self._closing.is_set() or told.get("type") == "ERROR":
                        return
                    yield told["object"]
