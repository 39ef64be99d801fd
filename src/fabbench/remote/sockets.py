"""The carrier of an ssh connection: a socket, a channel of a jump host, or the user's ProxyCommand."""

import contextlib
import errno
import os
import select
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, Union

from fabbench.model.errors import MachineError
from fabbench.remote.paramiko_library import paramiko
from fabbench.remote.ssh_config import SshSettings

if TYPE_CHECKING:
    from paramiko import Channel, Transport


_GRACE_S = 1.0
_MAX_STDERR = 2000


class ProxySocket:
    """The subset of a socket that paramiko needs, over the pipes of a ProxyCommand.

    paramiko's own class starts the program, but never notices its end, lets its standard error pile up, and
    leaves a zombie.
    """

    def __init__(self, command: str) -> None:
        """Start the program as ssh does, with the user's shell.

        Ctrl-C does not reach it, so that the connection is still there for cleanup.
        """
        shell = os.environ.get("SHELL") or "/bin/sh"
        inner = shlex.join((shell, "-c", f"exec {command}"))
        outer = shlex.join(("/bin/sh", "-c", f"trap '' INT HUP; exec {inner}"))
        self._program = paramiko().ProxyCommand(outer).process
        self._out = self._program.stdout.fileno()
        self._err = self._program.stderr.fileno()
        self._timeout: float | None = None
        self._stderr = b""
        self._closed = False
        for opened in (self._out, self._err):
            os.set_blocking(opened, False)

    def stderr(self) -> str:
        """Return what the program wrote to standard error, on one line."""
        self._drain()
        return " ".join(self._stderr.decode("utf-8", "replace").split())

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
        """Read from the program; empty at its end. Raise TimeoutError."""
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
        """End the program by closing its input, SIGTERM, SIGKILL, and wait until it has exited."""
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
        """Read the program's standard error; False at its end."""
        try:
            chunk = os.read(self._err, 1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._stderr = (self._stderr + chunk)[-_MAX_STDERR:]
        return bool(chunk)


# ---------------------------------------------------------------- sockets and channels

_KEEPALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPALIVE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))
_USER_TIMEOUT = ("TCP_USER_TIMEOUT", 30_000)
_DOWN = "The machine may be down, or a firewall (security group) drops packets to that port."
_WORDS = {
    errno.ECONNREFUSED: ("refused the connection", "Check that sshd runs there, on that port."),
    errno.EHOSTUNREACH: ("is unreachable: no route to host", "Check that it is up, and on a network you can reach."),
    errno.ENETUNREACH: ("is unreachable: no route to host", "Check that it is up, and on a network you can reach."),
    errno.ETIMEDOUT: ("did not answer", _DOWN),
}

Carrier: TypeAlias = Union["socket.socket", "Channel", ProxySocket]
"""The carrier of a connection."""


class DroppedError(Exception):
    """The connection was closed early. Another attempt may help: a busy sshd drops some (MaxStartups)."""


def over_tcp(settings: SshSettings, opened: Callable[[socket.socket], None]) -> socket.socket:
    """Connect to a machine at the first address that answers. Each socket is passed to `opened` first."""
    try:
        addresses = socket.getaddrinfo(settings.address, settings.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise MachineError(
            f"{settings}: cannot resolve host {settings.address} ({_reason(error)}).",
            hint="Check the spelling, or add a HostName entry to your ssh configuration.",
        ) from error
    each_s = max(settings.limits.connect_s / len(addresses), settings.limits.address_s)
    failed: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        connection = socket.socket(family, kind, protocol)
        try:
            opened(connection)
            connection.settimeout(each_s)
            connection.connect(address)
            _keep_alive(connection)
        except OSError as error:
            connection.close()
            failed = error
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise unreachable(settings, failed) from failed


def unreachable(settings: SshSettings, error: OSError | None) -> MachineError:
    """Return why a machine could not be reached."""
    if isinstance(error, TimeoutError) and error.errno is None:
        return MachineError(f"{settings} did not answer within {settings.limits.connect_s:g} s.", hint=_DOWN)
    number = error.errno if error is not None else None
    reason, hint = _WORDS.get(number or 0, (f"is unreachable: {_reason(error)}", _DOWN))
    return MachineError(f"{settings} {reason}.", hint=hint)


def through(jump: "Transport", settings: SshSettings, jump_settings: SshSettings) -> "Channel":
    """Connect to a machine through a jump host. Raise MachineError if the jump host cannot reach it."""
    library = paramiko()
    started, limit_s = time.monotonic(), settings.limits.connect_s
    try:
        there = (settings.address, settings.port)
        return jump.open_channel("direct-tcpip", there, ("127.0.0.1", 0), timeout=limit_s)
    except (library.SSHException, EOFError, OSError) as error:
        if not jump.is_active():
            raise DroppedError(f"the connection to its jump host {jump_settings} broke") from error
        late = time.monotonic() - started >= limit_s
        why = f"no answer within {limit_s:g} s" if late else str(getattr(error, "text", error)).rstrip(".")
        forbidden = getattr(error, "code", None) == 1
        hint = "The jump host's sshd forbids it (AllowTcpForwarding)." if forbidden else _DOWN
        raise MachineError(
            f"{settings} is unreachable from its jump host {jump_settings}: {why}.", hint=hint
        ) from error


def by_command(settings: SshSettings, command: str) -> ProxySocket:
    """Start the user's ProxyCommand."""
    try:
        return ProxySocket(command)
    except OSError as error:
        raise MachineError(
            f"ProxyCommand of {settings} cannot be started: {error.strerror}: {command}",
            hint="It comes from your ssh configuration.",
        ) from error


def shut(carrier: Carrier) -> None:
    """End a connection at once, from any thread. Threads that read from it or connect it wake up."""
    try:
        if isinstance(carrier, socket.socket):
            carrier.shutdown(socket.SHUT_RDWR)
        else:
            carrier.close()
    except (OSError, EOFError):
        return


def _keep_alive(connection: socket.socket) -> None:
    """Detect within about half a minute that the other side is lost, idle or not."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (*_KEEPALIVE, _USER_TIMEOUT):
        number = getattr(socket, name, None)
        if number is not None and (name != "TCP_KEEPALIVE" or sys.platform == "darwin"):
            connection.setsockopt(socket.IPPROTO_TCP, number, value)


def _reason(error: BaseException | None) -> str:
    """Return the system's text for an error."""
    if isinstance(error, OSError):
        return error.strerror or (os.strerror(error.errno) if error.errno else str(error))
    return str(error)
