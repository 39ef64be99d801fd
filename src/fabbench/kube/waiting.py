"""Waiting for pods, with patience for what may pass, and none for what will not."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from fabbench.errors import MachineError
from fabbench.kube.client import UnansweredError
from fabbench.pods.explanation import Explanation

_LASTS_S = 3.0
"""After how long a reason that may pass is told."""


class Waiting:
    """One wait, with a limit in seconds."""

    def __init__(self, limit_s: float, tell: Callable[[str], None]) -> None:
        """`tell` is told what is waited for, as soon as it is known to last."""
        self._limit_s, self._tell = limit_s, tell
        self._deadline = time.monotonic() + limit_s
        self._seen: dict[str, float] = {}
        self._told = ""

    def heed(self, why: Explanation | None) -> None:
        """Take note of what keeps pods from starting; None: nothing that is known.

        Raises MachineError with the explanation at once where waiting is in vain, else after the limit.
        """
        now = time.monotonic()
        if why:
            if why.final:
                raise MachineError(why.text, hint=why.advice)
            first = self._seen.setdefault(why.code, now)
            if now - first >= _LASTS_S and why.text != self._told:
                self._told = why.text
                self._tell(str(why))
        if now > self._deadline:
            raise MachineError(
                f"The pods were not ready after {self._limit_s:g} s. {why.text if why else ''}".strip(),
                hint="Wait longer with --start-timeout, or look with kubectl describe.",
            )


def unanswered(error: UnansweredError) -> Explanation:
    """Say that the API does not answer, which may pass."""
    return Explanation(code="api", text=str(error), advice="fabbench goes on asking.", final=False)


def ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is ready for programs."""
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
