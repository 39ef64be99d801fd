"""What both ssh clients share.

How a host is reached, connecting with several attempts, and programs there.

OpenSSH connects wherever there is an ``ssh`` program; paramiko where there is none, or if the user
asks for it.
"""

import random
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.model.messages import action
from fabbench.remote import SshOptions
from fabbench.remote.transport import Transport

CONNECT_S = 10  # For a machine to accept a connection, and for sshd's first line
KEEPALIVE_S = 15
CHUNK = 1 << 16
_TRIES = 8
_BACK_OFF_S, _MAX_BACK_OFF_S = 0.15, 3.0


@dataclass(frozen=True, slots=True)
class SshHost:
    """A host as the user named it, and what overrides the user's ssh configuration of it."""

    name: str
    options: SshOptions


class DroppedError(Exception):
    """The host closed the connection before login: another attempt may help."""


class SshTransport(Transport, ABC):
    """A connection to one host, made as the user configured it.

    Checks the host's key, and never prompts.
    """

    client: str

    def __init__(self, host: SshHost) -> None:
        """Do not connect yet."""
        super().__init__(host.name, f"ssh {host.name}")
        self.host = host
        self._lock, self._closed = threading.Lock(), threading.Event()

    @abstractmethod
    def _connect(self) -> None:
        """Connect. Raise MachineError, or DroppedError."""

    @abstractmethod
    def _drop(self) -> None:
        """End the connection."""

    @override
    def connect(self) -> None:
        with self._lock:
            if self.alive:
                return
            self._closed.clear()
            started = time.monotonic()
            for attempt in range(_TRIES):
                action(self.where, f"connect ({self.client})")
                try:
                    self._connect()
                except DroppedError as error:
                    why = error
                else:
                    return
                # Jitter, so that connections that were dropped together do not return together.
                wait_s = min(_BACK_OFF_S * 2**attempt, _MAX_BACK_OFF_S) * random.uniform(0.5, 1.5)  # noqa: S311
                if self._closed.wait(wait_s):
                    break
            took = f"{attempt + 1} times in {time.monotonic() - started:.0f} s"
            hint = (
                "Check that sshd listens there. It drops some of many concurrent connections "
                "(MaxStartups)."
            )
            raise MachineError(
                f"{self.name} closed the connection before login, {took}: {why}", hint=hint
            )

    @override
    def close(self) -> None:
        self._closed.set()
        self._drop()
        super().close()
