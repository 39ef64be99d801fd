"""A shell in a pod that is told what to do piece by piece."""

import queue
import threading
import time
from collections.abc import Sequence

from fabbench.errors import MachineError
from fabbench.kube.pipe import PodConnection


class PodShell:
    """A POSIX shell in a pod; see `fabbench.remote.shell.Conversation`."""

    def __init__(self, connection: PodConnection, arguments: Sequence[str] = ()) -> None:
        """Start it; `arguments` are those of its scripts. Raises MachineError."""
        self._pipe = connection.open(("sh", "-s", "--", *arguments))
        self._told: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        """Its lines; None: there are no more."""
        threading.Thread(target=self._listen, daemon=True, name="fabbench pod shell").start()

    def send(self, text: str) -> None:
        """Give it something to read. Raises LostError."""
        self._pipe.send(text.encode())

    def until(self, prefix: str, limit_s: float, count: int = 1) -> list[str]:
        """Give its lines up to the `count`-th that begins with `prefix`.

        They are fewer where the shell ends, or takes longer than `limit_s`.
        """
        deadline = time.monotonic() + limit_s
        found: list[str] = []
        while count > 0:
            try:
                line = self._told.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                break
            if line is None:
                self._told.put(None)
                break
            found.append(line)
            count -= line.startswith(prefix)
        return found

    def _listen(self) -> None:
        try:
            for line in self._pipe.lines():
                self._told.put(line)
        except MachineError:
            pass  # no more lines come: whoever waits for them has a limit
        finally:
            self._told.put(None)
