"""The way to a machine's sshd: a TCP connection, a channel through a jump host, or the user's own program."""

import errno
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, Union

from fabbench.errors import MachineError
from fabbench.remote.library import paramiko
from fabbench.remote.proxy import ProxySocket
from fabbench.remote.settings import Settings

if TYPE_CHECKING:
    from paramiko import Channel, Transport

CONNECT_S = 10.0
"""How long a machine may take to take a connection."""
_LEAST_S = 3.0
_KEEPALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPALIVE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))
_USER_TIMEOUT = ("TCP_USER_TIMEOUT", 30_000)
_DOWN = "The machine may be down, or a firewall (a security group) in between drops what comes for that port."
_WORDS = {
    errno.ECONNREFUSED: ("refused the connection", "Is sshd running there, and on that port?"),
    errno.EHOSTUNREACH: (
        "cannot be reached: there is no route to it",
        "Is it up, and in a network that you can reach?",
    ),
    errno.ENETUNREACH: (
        "cannot be reached: there is no route to it",
        "Is it up, and in a network that you can reach?",
    ),
    errno.ETIMEDOUT: ("did not answer", _DOWN),
}

Carrier: TypeAlias = Union["socket.socket", "Channel", ProxySocket]
"""What carries a connection."""


class DroppedError(Exception):
    """The connection was closed early. Another attempt may help: a busy sshd drops some (MaxStartups)."""


def over_tcp(settings: Settings, opened: Callable[[socket.socket], None]) -> socket.socket:
    """Connect to a machine, whichever of its addresses answers. Each socket is shown to `opened` first."""
    try:
        found = socket.getaddrinfo(settings.address, settings.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise MachineError(
            f"{settings} is not found: no address is known for {settings.address} ({_reason(error)}).",
            hint="Is the name right? HostName in your ssh configuration can say what its address is.",
        ) from error
    each_s = max(CONNECT_S / len(found), _LEAST_S)
    failed: OSError | None = None
    for family, kind, protocol, _, address in found:
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


def unreachable(settings: Settings, error: OSError | None) -> MachineError:
    """Say why a machine could not be reached."""
    if isinstance(error, TimeoutError) and error.errno is None:
        return MachineError(f"{settings} did not answer within {CONNECT_S:g} s.", hint=_DOWN)
    number = error.errno if error is not None else None
    seen, hint = _WORDS.get(number or 0, (f"cannot be reached: {_reason(error)}", _DOWN))
    return MachineError(f"{settings} {seen}.", hint=hint)


def through(jump: "Transport", settings: Settings, jump_settings: Settings) -> "Channel":
    """Connect to a machine through a jump host. Raises MachineError where that one gets nowhere."""
    library = paramiko()
    begun = time.monotonic()
    try:
        there = (settings.address, settings.port)
        return jump.open_channel("direct-tcpip", there, ("127.0.0.1", 0), timeout=CONNECT_S)
    except (library.SSHException, EOFError, OSError) as error:
        if not jump.is_active():
            raise DroppedError(f"the connection to its jump host {jump_settings} broke") from error
        late = time.monotonic() - begun >= CONNECT_S
        why = f"no answer within {CONNECT_S:g} s" if late else str(getattr(error, "text", error)).rstrip(".")
        forbidden = getattr(error, "code", None) == 1
        hint = "AllowTcpForwarding of the jump host's sshd forbids it." if forbidden else _DOWN
        raise MachineError(
            f"{settings} is not reached from its jump host {jump_settings}: {why}.", hint=hint
        ) from error


def by_command(settings: Settings, command: str) -> ProxySocket:
    """Start the user's ProxyCommand."""
    try:
        return ProxySocket(command)
    except OSError as error:
        raise MachineError(
            f"ProxyCommand of {settings} cannot be started: {error.strerror}: {command}",
            hint="It is taken from your ssh configuration.",
        ) from error


def shut(carrier: Carrier) -> None:
    """End a connection at once, from any thread: whoever reads from it or connects it wakes up."""
    try:
        if isinstance(carrier, socket.socket):
            carrier.shutdown(socket.SHUT_RDWR)
        else:
            carrier.close()
    except (OSError, EOFError):
        return


def _keep_alive(connection: socket.socket) -> None:
    """Notice within about half a minute that the other side is gone, idle or not."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (*_KEEPALIVE, _USER_TIMEOUT):
        number = getattr(socket, name, None)
        if number is not None and (name != "TCP_KEEPALIVE" or sys.platform == "darwin"):
            connection.setsockopt(socket.IPPROTO_TCP, number, value)


def _reason(error: BaseException | None) -> str:
    """Write an error of the system in its words."""
    if isinstance(error, OSError):
        return error.strerror or (os.strerror(error.errno) if error.errno else str(error))
    return str(error)
