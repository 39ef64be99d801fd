"""ProxyCommand: a program of the user's that carries the connection."""

import contextlib
import os
import select
import shlex
import signal
import time

from fabbench.remote.library import paramiko

_GRACE_S = 1.0
_MOST_SAID = 2000


class ProxySocket:
    """What paramiko needs of a socket, over the program's pipes.

    paramiko's own class starts the program; but it never notices its end, lets what it says on standard error
    pile up, and leaves a zombie.
    """

    def __init__(self, command: str) -> None:
        """Start the program as ssh does, by the user's shell.

        Ctrl-C does not reach it, so that there still is a connection to clean up with.
        """
        shell = os.environ.get("SHELL") or "/bin/sh"
        inner = shlex.join((shell, "-c", f"exec {command}"))
        outer = shlex.join(("/bin/sh", "-c", f"trap '' INT HUP; exec {inner}"))
        self._program = paramiko().ProxyCommand(outer).process
        self._out = self._program.stdout.fileno()
        self._err = self._program.stderr.fileno()
        self._timeout: float | None = None
        self._said = b""
        self._closed = False
        for opened in (self._out, self._err):
            os.set_blocking(opened, False)

    def said(self) -> str:
        """Give what the program wrote to standard error, on one line."""
        self._drain()
        return " ".join(self._said.decode("utf-8", "replace").split())

    def settimeout(self, timeout: float | None) -> None:
        """Set how long `recv` waits, in seconds."""
        self._timeout = timeout

    def send(self, data: bytes) -> int:
        """Write to the program."""
        try:
            return int(self._program.stdin.write(data))
        except ValueError as error:
            raise EOFError from error

    def recv(self, size: int) -> bytes:
        """Read from the program; nothing is its end. Raises TimeoutError."""
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        poll.register(self._err, select.POLLIN)
        while not self._closed:
            left = None if deadline is None else max(deadline - time.monotonic(), 0) * 1000
            ready = [opened for opened, _ in poll.poll(left)]
            if self._out in ready:
                with contextlib.suppress(BlockingIOError):
                    return os.read(self._out, size)
            if not ready:
                raise TimeoutError
            if not self._drain():
                poll.unregister(self._err)
        return b""

    def close(self) -> None:
        """End the program: its input's end, SIGTERM, SIGKILL; and wait until it is gone."""
        if self._closed:
            return
        self._closed = True
        self._drain()
        with contextlib.suppress(OSError):
            self._program.stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            self._program.send_signal(number)
            deadline = time.monotonic() + _GRACE_S
            while self._program.poll() is None and time.monotonic() < deadline:
                time.sleep(0.005)
        for stream in (self._program.stdout, self._program.stderr):
            stream.close()

    def _drain(self) -> bool:
        """Take in what the program says; False at the end of that."""
        try:
            chunk = os.read(self._err, 1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._said = (self._said + chunk)[-_MOST_SAID:]
        return bool(chunk)
