"""Watching the pods of a run over unreliable connections, tolerating transient errors."""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from fabbench.launchers import Explanation
from fabbench.launchers.kubernetes.api import KubernetesApi, UnansweredError
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
        self._reported: set[str] = set()  # Texts without digits: ports and pods of the same reason differ

    def observe(self, why: Explanation | None) -> None:
        """Note what keeps pods from starting. Raise MachineError: at once if it is final, or at the limit."""
        now = time.monotonic()
        if why:
            if why.final:
                raise MachineError(why.text, hint=why.advice)
            first = self._seen.setdefault(why.code, now)
            key = re.sub(r"\d+", "", why.text)
            if now - first >= _REPORT_AFTER_S and key not in self._reported:
                self._reported.add(key)
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
