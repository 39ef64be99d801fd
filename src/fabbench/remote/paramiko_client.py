"""Connections by paramiko, which reads configurations and keys itself: without an ssh program.

Jump hosts, proxy commands, agents and known_hosts work; certificates, revoked keys, security keys
and ``Match exec`` do not.
"""

import getpass
import logging
import time
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from fabbench.execution.process import SEND_S, Received
from fabbench.execution.script.words import login_command
from fabbench.execution.waiting import moments
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.model.mappings import without_empty
from fabbench.remote.ssh_transport import (
    CHUNK,
    CONNECT_S,
    KEEPALIVE_S,
    DroppedError,
    SshHost,
    SshTransport,
)
from fabbench.remote.transport import ProcessStream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from paramiko import Channel, SSHClient

Settings: TypeAlias = dict[str, Any]
"""Keywords of an ssh configuration, in lower case, with their values."""
_LOGIN_S = 30.0
_STATUS_S = 2.0
_POLL_S = 0.01
_PORT = 22
_ENDED = (OSError, EOFError)  # What a channel raises that has ended, or whose connection has


@cache
def paramiko() -> ModuleType:
    """Load paramiko without warnings that it raises beside some cryptography, and without logs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import paramiko as loaded
    # Logs of its threads (including tracebacks) would reach stderr; the errors are raised anyway.
    logger = logging.getLogger("paramiko")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return loaded


class Paramiko(SshTransport):
    """A connection by paramiko."""

    client = "paramiko"

    def __init__(self, host: SshHost) -> None:
        super().__init__(host)
        self._clients: list[SSHClient] = []
        """Those that run programs: sshd limits how many one connection has (MaxSessions)."""
        self._jumps: list[SSHClient] = []

    @property
    @override
    def alive(self) -> bool:
        transport = self._clients[0].get_transport() if self._clients else None
        return transport is not None and transport.is_active()

    @override
    def _connect(self) -> None:
        self._drop()
        self._clients.append(self._log_in())

    def _log_in(self) -> "SSHClient":
        """Return a new connection. Raise MachineError, or DroppedError."""
        library = paramiko()
        try:
            return self._log_in_through_jumps(self._config(), self.name, self._overrides())
        except library.BadHostKeyException as error:
            raise MachineError(
                f"The host key of {self.name} has changed: {error}",
                hint=f"If {self.name} was installed anew, remove its old key: ssh-keygen -R "
                f"{self.name}.",
            ) from error
        except library.AuthenticationException as error:
            raise MachineError(
                f"{self.name} refused the login: {error}",
                hint=f"fabbench never prompts: check that ssh -o BatchMode=yes {self.name} true "
                "works (ssh-add -l).",
            ) from error
        except (library.SSHException, EOFError, OSError, ValueError) as error:
            if _is_dropped(error):
                raise DroppedError(str(error) or "no reason was given") from error
            why = str(error) or type(error).__name__
            raise MachineError(
                f"{self.name} cannot be reached by paramiko: {why}.",
                hint=f"Check that ssh {self.name} works, or pass --accept-new-host-keys for a "
                "host that is not in known_hosts yet.",
            ) from error

    def _config(self) -> Any:
        """Return the ssh configuration: empty if none is named, and the user has none."""
        given = self.host.options.ssh_config
        path = Path(given or "~/.ssh/config").expanduser()
        if given or path.exists():
            return paramiko().SSHConfig.from_path(path)
        return paramiko().SSHConfig()

    def _overrides(self) -> Settings:
        """Return what overrides the configuration."""
        given = self.host.options
        keys = [str(given.identity)] if given.identity else None
        values: Settings = {"user": given.user, "port": given.port, "identityfile": keys}
        return without_empty(values)

    def _log_in_through_jumps(
        self, config: Any, name: str, given: Settings, via: "SSHClient | None" = None
    ) -> "SSHClient":
        """Connect to a host and, before that, to its jump hosts. Raise paramiko's errors.

        `given` overrides its configuration; `via` is the jump host before it.
        """
        user, _, bare = name.rpartition("@")
        settings = config.lookup(bare) | given
        if user:  # In the name it outweighs all others, as with ssh
            settings["user"] = user
        address = settings["hostname"]
        port = int(settings.get("port", _PORT))
        carrier = self._carrier(config, settings, (address, port), via)
        client = self._client_with_known_hosts(settings)
        files = settings.get("identityfile", ())
        # As ssh does: keys that are named replace the usual ones, and need not all exist.
        keys = [str(Path(file).expanduser()) for file in files]
        usable: Any = [key for key in keys if Path(key).exists()]  # Its types know one file only
        try:
            client.connect(
                address,
                port,
                settings.get("user") or getpass.getuser(),
                key_filename=usable or None,
                allow_agent=settings.get("identitiesonly", "no") != "yes",
                look_for_keys=not keys,
                sock=carrier,
                timeout=CONNECT_S,
                banner_timeout=_LOGIN_S,
                auth_timeout=_LOGIN_S,
            )
        except BaseException:
            client.close()
            if carrier is not None:
                carrier.close()
            raise
        if (transport := client.get_transport()) is not None:
            transport.set_keepalive(KEEPALIVE_S)
        return client

    def _carrier(
        self,
        config: Any,
        settings: Settings,
        place: tuple[str, int],
        via: "SSHClient | None",
    ) -> Any:
        """Return what carries a connection: a jump host, a proxy command; None: a socket.

        The jump hosts of one that is reached `via` a jump host itself are ignored: as with ssh, the
        list replaces its own.
        """
        jumps = settings.get("proxyjump", "none")
        if via is None and jumps != "none":
            for jump in jumps.split(","):
                name, _, port = jump.strip().partition(":")
                via = self._log_in_through_jumps(config, name, {"port": port} if port else {}, via)
                self._jumps.append(via)
        transport = via.get_transport() if via is not None else None
        if transport is not None:
            # The protocol asks for an origin: any will do.
            return transport.open_channel(
                "direct-tcpip", place, ("127.0.0.1", 0), timeout=CONNECT_S
            )
        command = settings.get("proxycommand", "none")
        return None if command == "none" else paramiko().ProxyCommand(command)

    def _client_with_known_hosts(self, settings: Settings) -> "SSHClient":
        """Return a client that knows the keys of known hosts; it adds to the user's first file."""
        library = paramiko()
        client: SSHClient = library.SSHClient()
        files = settings.get("userknownhostsfile", "~/.ssh/known_hosts").split()
        paths = [Path(file).expanduser() for file in (*files, "/etc/ssh/ssh_known_hosts")]
        first, *others = map(str, paths)
        # paramiko asks these first; of several keys of a host, the first that was loaded counts.
        for path in others:
            with suppress(FileNotFoundError):
                client.load_system_host_keys(path)
        with suppress(FileNotFoundError):
            client.load_host_keys(first)  # Its new keys are saved in this one
        accept = self.host.options.accept_new_host_keys
        policy = library.AutoAddPolicy if accept else library.RejectPolicy
        client.set_missing_host_key_policy(policy())
        return client

    @override
    def _start(self, argv: "Sequence[str]") -> ProcessStream:
        line = login_command(argv)
        # A server limits the sessions of a connection: when all are full, there is a new one.
        for client in self._clients_and_a_new_one():
            transport = client.get_transport()
            if transport is None:  # Closed meanwhile
                break
            channel = self._open_channel(transport, line)
            if channel is not None:
                return _Channel(channel, self)
        raise self.lost("it is closed")

    def _clients_and_a_new_one(self) -> "Iterator[SSHClient]":
        """Yield the connections, then a new one."""
        yield from tuple(self._clients)
        client = self._log_in()
        self._clients.append(client)
        yield client

    def _open_channel(self, transport: Any, line: str) -> Any:
        """Run a command in a new session; None if the connection has as many as sshd allows."""
        library = paramiko()
        try:
            channel = transport.open_session(timeout=_LOGIN_S)
            channel.exec_command(line)
        except library.ChannelException:
            return None  # sshd's MaxSessions
        except (library.SSHException, EOFError, OSError) as error:
            raise self.lost(error) from error
        return channel

    @override
    def _drop(self) -> None:
        for client in (*self._clients, *self._jumps):
            client.close()
        self._clients = []
        self._jumps = []


def _is_dropped(error: Exception) -> bool:
    """Return whether sshd closed the connection before login."""
    if isinstance(error, (EOFError, ConnectionResetError)):
        return True
    return "protocol banner" in str(error)


class _Channel(ProcessStream):
    """A program on another machine: a channel of a connection."""

    def __init__(self, channel: "Channel", owner: Paramiko) -> None:
        super().__init__()
        self._channel = channel
        self._owner = owner
        channel.settimeout(SEND_S)

    @override
    def _receive(self, timeout_s: float) -> Received:
        # Looked for again and again: the descriptor that a channel has to wait on cannot be closed
        # safely, and its timeout is that of `send` too.
        channel = self._channel
        deadline = time.monotonic() + timeout_s
        while not self._has_received():
            if channel.eof_received or channel.closed:
                # Asked once more: text may have come since, but none comes after the end.
                return (b"", b"") if self._has_received() else None
            if time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
        out = channel.recv(CHUNK) if channel.recv_ready() else b""
        err = channel.recv_stderr(CHUNK) if channel.recv_stderr_ready() else b""
        return out, err

    def _has_received(self) -> bool:
        return self._channel.recv_ready() or self._channel.recv_stderr_ready()

    @override
    def _exit_status(self) -> int:
        """The status follows the end of the outputs; none does if a signal ended the program."""
        for _ in moments(_STATUS_S, _POLL_S):
            if self._channel.exit_status_ready() or not self._owner.alive:
                break
        status = self._channel.recv_exit_status() if self._channel.exit_status_ready() else -1
        if status < 0 and not self._owner.alive:
            raise self._owner.lost("the other side closed it")
        return status

    @override
    def send(self, data: bytes) -> None:
        try:
            self._channel.sendall(data)
        except _ENDED as error:
            raise self._owner.lost("the program there has exited, or accepts no input") from error

    @override
    def end_input(self) -> None:
        with suppress(*_ENDED):
            self._channel.shutdown_write()

    @override
    def close(self) -> None:
        with suppress(*_ENDED):
            self._channel.close()
