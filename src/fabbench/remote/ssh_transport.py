"""What both ssh clients share: how a host is reached, and connecting with several attempts.

OpenSSH connects wherever there is an ``ssh`` program; paramiko where there is none, or if the user
asks for it.
"""

import random
import threading
import time
from abc import ABC, abstractmethod

from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.model.messages import action
from fabbench.model.values import frozen
from fabbench.remote import SshOptions
from fabbench.remote.transport import Transport

CONNECT_S = 10  # For a machine to accept a connection, and for sshd's first line
KEEPALIVE_S = 15
CHUNK = 1 << 16
_TRIES = 8
_BACK_OFF_S = 0.15
_MAX_BACK_OFF_S = 3.0


@frozen
class SshHost:
    """A host as the user named it, and what overrides the user's ssh configuration of it."""

    name: str
    options: SshOptions


class DroppedError(Exception):
    """The host closed the connection before login: another attempt may help."""


class SshTransport(Transport, ABC):
    """A connection to one host as the user configured it: checks its key, and never prompts."""

    client: str

    def __init__(self, host: SshHost) -> None:
        """Do not connect yet."""
        super().__init__(host.name, f"ssh {host.name}")
        self.host = host
        self._lock = threading.Lock()  # Held while connecting: one thread does it for all
        self._closed = threading.Event()  # By `close`: ends the attempts to connect, too

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
            for attempt in range(_TRIES):  # only a dropped connection is tried again
                action(self.where, f"connect ({self.client})")
                try:
                    self._connect()
                except DroppedError as error:
                    why = error
                else:
                    return
                # Jitter, so that connections that were dropped together do not return together.
                jitter = random.uniform(0.5, 1.5)  # noqa: S311
                wait_s = min(_BACK_OFF_S * 2**attempt, _MAX_BACK_OFF_S) * jitter
                if self._closed.wait(wait_s):
                    break
            times = attempt + 1
            took_s = time.monotonic() - started
            raise MachineError(
                f"{self.name} closed the connection before login, {times} times in {took_s:.0f} s: "
                f"{why}",
                hint="Check that sshd listens there. It drops some of many concurrent connections "
                "(MaxStartups).",
            )

    @override
    def close(self) -> None:
        self._closed.set()
        self._drop()
        super().close()
