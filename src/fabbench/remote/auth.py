"""Logging in to a host: negotiate with sshd, check its key, authenticate. Never prompts.

Keys come from the agent and from files, in OpenSSH's order.
"""

import base64
import functools
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabbench.model.errors import MachineError
from fabbench.remote import hostkeys
from fabbench.remote.channel import lost
from fabbench.remote.paramiko_library import paramiko
from fabbench.remote.sockets import Carrier, DroppedError, ProxySocket
from fabbench.remote.ssh_config import SshSettings

if TYPE_CHECKING:
    from paramiko import PKey, Transport
    from paramiko.agent import AgentKey


_AUTH_S = 30.0
_KEEPALIVE_S = 15
_CLOSED = re.compile(r"[Cc]onnection (?:closed|reset) by")


def log_in(
    carrier: Carrier, settings: SshSettings, *, accept_new: bool, started: Callable[["Transport"], None]
) -> tuple[str, str]:
    """Make an ssh connection over its carrier, and return the type and the base64 of the host's key.

    `started` gets paramiko's connection at once, so that other threads can close it.
    Raise MachineError, or DroppedError if another attempt may help.
    """
    library = paramiko()
    transport: Transport = library.Transport(carrier)
    started(transport)
    transport.banner_timeout = transport.handshake_timeout = settings.limits.handshake_s
    transport.auth_timeout = _AUTH_S
    options = transport.get_security_options()
    known = [kind for kind in hostkeys.known_kinds(settings) if kind in options.key_types]
    # Known kinds of keys come first: otherwise a known host might present a key of an unknown kind.
    options.key_types = tuple(dict.fromkeys((*known, *options.key_types)))
    started_at = time.monotonic()
    try:
        transport.start_client(timeout=settings.limits.handshake_s)
        shown = transport.get_remote_server_key()
    except (library.SSHException, EOFError, OSError) as error:
        raise _no_handshake(carrier, settings, error, time.monotonic() - started_at) from error
    kind, key = shown.get_name(), shown.get_base64()
    hostkeys.check(settings, kind, key, accept_new=accept_new)
    try:
        authenticate(transport, settings)
    except (library.SSHException, EOFError, OSError) as error:
        raise lost(settings, f"while logging in: {error or 'the other side closed the connection'}") from error
    transport.set_keepalive(_KEEPALIVE_S)
    return kind, key


def _no_handshake(carrier: Carrier, settings: SshSettings, error: Exception, took_s: float) -> Exception:
    """Return the error of a connection on which the host presented no key."""
    closed = isinstance(error, (EOFError, ConnectionError))
    cause = error if closed else error.__context__ or error
    stderr = carrier.stderr() if isinstance(carrier, ProxySocket) else ""
    aside = f" Its ProxyCommand says: {stderr}" if stderr else ""
    if took_s >= settings.limits.handshake_s or isinstance(cause, TimeoutError):
        return MachineError(
            f"{settings} accepted the connection and then sent nothing for {took_s:.0f} s.{aside}",
            hint="Check that sshd listens there, and that the machine is not hanging or still booting.",
        )
    if isinstance(cause, (EOFError, ConnectionError)) and (not stderr or _CLOSED.search(stderr)):
        return DroppedError(stderr or str(cause) or "no reason was given")
    return MachineError(
        f"ssh negotiation with {settings} failed: {str(error).rstrip('.')}.{aside}",
        hint=f"Run ssh -v {settings.name} for details.",
    )


# ---------------------------------------------------------------- authentication

_AGENT_TIMEOUT_S = 10.0
_DEFAULT_PREFIX = "id_"
_HINT = (
    "Check whether ssh {name} works. The user, IdentityFile and agent keys (ssh-add -l) come from your "
    "ssh configuration; the public key must be in ~{user}/.ssh/authorized_keys there."
)


_INTERACTIVE = frozenset({"keyboard-interactive", "password"})


def is_interactive(methods: Iterable[str]) -> bool:
    """Return whether any of these authentication methods prompts the user."""
    return not _INTERACTIVE.isdisjoint(methods)


def log_in_first(settings: SshSettings) -> str:
    """Return what to do about a host that prompts for a code or a password at login."""
    return (
        "fabbench never prompts. Log in once yourself, and fabbench uses your connection: set "
        "ControlMaster auto, ControlPath and ControlPersist in your ssh configuration, and run "
        f"ssh {settings.name}."
    )


@dataclass(slots=True)
class Tried:
    """The keys that were tried or could not be, for the message."""

    refused: list[str] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)
    encrypted: list[str] = field(default_factory=list)


def authenticate(transport: "Transport", settings: SshSettings) -> None:
    """Log in. Raise MachineError with the keys tried, or paramiko's errors if the connection broke."""
    from paramiko import AuthenticationException, BadAuthenticationType

    tried = Tried()
    agent = _agent(settings, tried)
    try:
        for label, key in _keys(settings, agent, tried):
            tried.refused.append(label)
            try:
                more = transport.auth_publickey(settings.user, key)
            except BadAuthenticationType as error:
                raise refused(settings, tried, error.allowed_types) from error
            except AuthenticationException as error:
                if not transport.is_active():
                    raise cut_off(settings, tried) from error
            else:
                if not more:
                    return
                tried.unusable.append("the last one was accepted, but is not sufficient")
                raise refused(settings, tried, more)
        _without_key(transport, settings, tried)
    finally:
        if agent is not None:
            agent._close()  # noqa: SLF001 - there is no public way to close it


def _without_key(transport: "Transport", settings: SshSettings, tried: Tried) -> None:
    """Try to log in without any key, as ssh does, and fail with the methods that the host would accept."""
    from paramiko import AuthenticationException, BadAuthenticationType

    try:
        transport.auth_none(settings.user)
    except BadAuthenticationType as error:
        raise refused(settings, tried, error.allowed_types) from error
    except AuthenticationException as error:
        raise refused(settings, tried, ()) from error


def refused(settings: SshSettings, tried: Tried, methods: Sequence[str], hint: str = _HINT) -> MachineError:
    """Return the error of a login that the host refused; it would accept `methods`."""
    first = f"Login to {settings} refused with" if tried.refused else f"No key to log in to {settings}"
    parts = [f"{first} {', '.join(tried.refused)}".rstrip(), *tried.unusable]
    if methods and "publickey" not in methods:
        parts.append(f"it requires {' and '.join(methods)}, but fabbench is non-interactive")
    if tried.encrypted:
        names = " ".join(tried.encrypted)
        hint = f"fabbench never prompts for a passphrase. Add the key to your agent and try again: ssh-add {names}"
    elif is_interactive(methods) and "publickey" not in methods:
        hint = log_in_first(settings)
    else:
        hint = hint.format(name=settings.name, user=settings.user)
    return MachineError(f"{'; '.join(parts)}.", hint=hint)


def cut_off(settings: SshSettings, tried: Tried) -> MachineError:
    """Return the error of a host that accepts no more attempts."""
    return MachineError(
        f"{settings} closed the connection after {len(tried.refused)} unknown keys: {', '.join(tried.refused)}.",
        hint="sshd limits the attempts (MaxAuthTries). Set the right key with IdentityFile and "
        "IdentitiesOnly in your ssh configuration.",
    )


def _keys(settings: SshSettings, agent: Any, tried: Tried) -> Iterator[tuple[str, "PKey"]]:
    """Yield labels and keys: the agent's keys named in the configuration, its other keys, keys in files."""
    keys: Sequence[AgentKey] = () if agent is None else agent.get_keys()
    held = {bytes(key.blob): key for key in keys}
    public = {path: _public(path) for path in settings.identities}
    named = [blob for blob in public.values() if blob is not None and blob in held]
    others = [] if settings.identities_only else [blob for blob in held if blob not in named]
    for first in dict.fromkeys((*named, *others)):
        yield _label(held[first]), held[first]
    for path, blob in public.items():
        if blob not in held:
            key = from_file(path, tried)
            if key is not None:
                yield f"{path} ({_fingerprint(key)})", key


def _label(key: "AgentKey") -> str:
    return f"the agent's {key.comment or 'key'} ({_fingerprint(key)})"


def _fingerprint(key: "PKey") -> str:
    return f"{key.get_name()} {key.fingerprint}"


def _public(path: str) -> bytes | None:
    """Return the public key from the file beside a private key."""
    try:
        return base64.b64decode(Path(path if path.endswith(".pub") else f"{path}.pub").read_text("utf-8").split()[1])
    except (OSError, ValueError, IndexError):
        return None


def from_file(path: str, tried: Tried) -> "PKey | None":
    """Read a private key, or record why that failed. A missing file of ssh's defaults is not recorded."""
    from paramiko import PasswordRequiredException, SSHException

    try:
        status = Path(path).stat()
        return _load(path, status.st_mtime_ns, status.st_ino)
    except FileNotFoundError:
        if not Path(path).name.startswith(_DEFAULT_PREFIX):
            tried.unusable.append(f"{path} does not exist")
    except OSError as error:
        tried.unusable.append(f"{path} cannot be read ({error.strerror})")
    except PasswordRequiredException:
        tried.unusable.append(f"{path} is encrypted")
        tried.encrypted.append(path)
    except (SSHException, ValueError, TypeError) as error:
        if "password" in str(error).lower():
            tried.unusable.append(f"{path} is encrypted")
            tried.encrypted.append(path)
        else:
            tried.unusable.append(f"{path} is not a readable private key ({error})")
    return None


@functools.lru_cache(maxsize=64)
def _load(path: str, *_version: int) -> "PKey":
    from paramiko import PKey

    return PKey.from_path(path)


def _agent(settings: SshSettings, tried: Tried) -> Any:
    """Connect to the agent; None if there is none. Untyped, as paramiko's types do not cover its socket."""
    from paramiko import SSHException
    from paramiko.agent import AgentSSH

    path = _agent_socket(settings.identity_agent)
    if not path:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    agent: Any = AgentSSH()
    try:
        connection.settimeout(_AGENT_TIMEOUT_S)
        connection.connect(path)
        agent._connect(connection)  # noqa: SLF001 - paramiko.Agent uses only the environment's socket
    except (OSError, SSHException) as error:
        connection.close()
        tried.unusable.append(f"the agent at {path} does not answer ({error})")
        return None
    connection.settimeout(None)  # touching a security key, or confirming, may take a while
    return agent


def _agent_socket(setting: str | None) -> str | None:
    """Return the path of the agent's socket; None if there is none. See ssh_config(5), IdentityAgent."""
    if setting is None or setting == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK")
    if setting == "none":
        return None
    return os.environ.get(setting[1:].strip("{}")) if setting.startswith("$") else setting
