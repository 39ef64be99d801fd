"""Connections by paramiko, for machines without an ssh program.

Its own reading of configurations and keys.

Jump hosts, proxy commands, agents and known_hosts work; certificates, revoked keys, security keys
and ``Match exec`` do not.
"""

import contextlib
import functools
import getpass
import logging
import time
import warnings
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fabbench.execution.process import SEND_S
from fabbench.execution.script.words import login_command
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
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
    from collections.abc import Sequence

    from paramiko import Channel, SSHClient

_LOGIN_S = 30.0
_STATUS_S = 2.0
_POLL_S = 0.01
_PORT = 22


@functools.cache
def paramiko() -> ModuleType:
    """Load paramiko without the warnings of some combinations with cryptography, and silence its logger."""
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
        self._clients.append(self._client())

    def _client(self) -> "SSHClient":
        library, given_by = paramiko(), self.host.options
        path = Path(given_by.ssh_config or "~/.ssh/config").expanduser()
        try:
            config = (
                library.SSHConfig.from_path(path)
                if given_by.ssh_config or path.exists()
                else library.SSHConfig()
            )
            keys = [str(given_by.identity)] if given_by.identity else None
            given = {"user": given_by.user, "port": given_by.port, "identityfile": keys}
            return self._logged_in(
                config, self.name, {name: value for name, value in given.items() if value}
            )
        except library.BadHostKeyException as error:
            raise MachineError(
                f"The host key of {self.name} has changed: {error}",
                hint=(
                    f"If {self.name} was installed anew, remove its old key: ssh-keygen -R "
                    f"{self.name}."
                ),
            ) from error
        except library.AuthenticationException as error:
            hint = (
                f"fabbench never prompts: check that ssh -o BatchMode=yes {self.name} true "
                "works (ssh-add -l)."
            )
            raise MachineError(f"{self.name} refused the login: {error}", hint=hint) from error
        except (library.SSHException, EOFError, OSError, ValueError) as error:
            if isinstance(error, (EOFError, ConnectionResetError)) or "protocol banner" in str(
                error
            ):
                raise DroppedError(str(error) or "no reason was given") from error
            raise MachineError(
                f"{self.name} cannot be reached by paramiko: {error or type(error).__name__}.",
                hint=f"Check that ssh {self.name} works, or pass --accept-new-host-keys for a "
                "host that is not in "
                "known_hosts yet.",
            ) from error

    def _logged_in(
        self, config: Any, name: str, given: dict[str, Any], via: "SSHClient | None" = None
    ) -> "SSHClient":
        """Connect to a host and, before that, to its jump hosts. Raise paramiko's errors."""
        library = paramiko()
        user, _, bare = name.rpartition("@")
        found = {**config.lookup(bare), **given, **({"user": user} if user else {})}
        address, port = found["hostname"], int(found.get("port", _PORT))
        carrier: Any = None
        jumps = (
            [] if via or found.get("proxyjump", "none") == "none" else found["proxyjump"].split(",")
        )
        for jump in jumps:
            place, _, jump_port = jump.strip().partition(":")
            via = self._logged_in(config, place, {"port": jump_port} if jump_port else {}, via)
            self._jumps.append(via)
        if via is not None and (transport := via.get_transport()) is not None:
            carrier = transport.open_channel(
                "direct-tcpip", (address, port), ("127.0.0.1", 0), timeout=CONNECT_S
            )
        elif found.get("proxycommand", "none") != "none":
            carrier = library.ProxyCommand(found["proxycommand"])
        client: SSHClient = library.SSHClient()
        files = found.get("userknownhostsfile", "~/.ssh/known_hosts").split()
        for number, file in enumerate(("/etc/ssh/ssh_known_hosts", *reversed(files))):
            with contextlib.suppress(FileNotFoundError):
                read = (
                    client.load_host_keys if number == len(files) else client.load_system_host_keys
                )
                read(str(Path(file).expanduser()))
        policy = (
            library.AutoAddPolicy
            if self.host.options.accept_new_host_keys
            else library.RejectPolicy
        )
        client.set_missing_host_key_policy(policy())
        keys = [str(Path(file).expanduser()) for file in found.get("identityfile", ())]
        usable: Any = [key for key in keys if Path(key).exists()]  # Its types know one file only
        try:
            client.connect(
                address,
                port,
                found.get("user") or getpass.getuser(),
                key_filename=usable or None,
                allow_agent=found.get("identitiesonly", "no") != "yes",
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

    @override
    def _start(self, argv: "Sequence[str]") -> ProcessStream:
        library, line = paramiko(), login_command(argv)
        for place in range(len(self._clients) + 1):
            if place == len(self._clients):
                self._clients.append(self._client())
            transport = self._clients[place].get_transport()
            try:
                if transport is None:
                    break
                channel = transport.open_session(timeout=_LOGIN_S)
                channel.exec_command(line)
            except library.ChannelException:
                continue  # sshd's MaxSessions
            except (library.SSHException, EOFError, OSError) as error:
                raise self.lost(error) from error
            return _Channel(channel, self)
        raise self.lost("it is closed")

    @override
    def _drop(self) -> None:
        for client in (*self._clients, *self._jumps):
            client.close()
        self._clients, self._jumps = [], []


class _Channel(ProcessStream):
    """A program on another machine: a channel of a connection."""

    def __init__(self, channel: "Channel", owner: Paramiko) -> None:
        super().__init__()
        self._channel, self._owner = channel, owner
        channel.settimeout(SEND_S)

    @override
    def _receive(self, timeout_s: float) -> tuple[bytes, bytes] | None:
        # Its own descriptor to wait on cannot be closed safely, and its timeout is that of `send`
        # too.
        channel, deadline = self._channel, time.monotonic() + timeout_s
        while not (channel.recv_ready() or channel.recv_stderr_ready()):
            if channel.eof_received or channel.closed:
                # What came before the end was in the buffers before that is known.
                return (
                    None
                    if not (channel.recv_ready() or channel.recv_stderr_ready())
                    else (b"", b"")
                )
            if time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
        out = channel.recv(CHUNK) if channel.recv_ready() else b""
        return out, channel.recv_stderr(CHUNK) if channel.recv_stderr_ready() else b""

    @override
    def _exit_status(self) -> int:
        """The status follows the end of the outputs.

        None follows for a program that a signal ended.
        """
        deadline = time.monotonic() + _STATUS_S
        while (
            not self._channel.exit_status_ready()
            and time.monotonic() < deadline
            and self._owner.alive
        ):
            time.sleep(_POLL_S)
        status = self._channel.recv_exit_status() if self._channel.exit_status_ready() else -1
        if status < 0 and not self._owner.alive:
            raise self._owner.lost("the other side closed it")
        return status

    @override
    def send(self, data: bytes) -> None:
        try:
            self._channel.sendall(data)
        except OSError as error:
            raise self._owner.lost("the program there has exited, or accepts no input") from error

    @override
    def end_input(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            self._channel.shutdown_write()

    @override
    def close(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            self._channel.close()
