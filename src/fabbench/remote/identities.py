"""Proving to a host who one is: by keys of the agent and of files, in OpenSSH's order. Nobody is asked."""

import base64
import functools
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabbench.errors import MachineError
from fabbench.remote.settings import Settings

if TYPE_CHECKING:
    from paramiko import PKey, Transport
    from paramiko.agent import AgentKey

_AGENT_TIMEOUT_S = 10.0
_DEFAULTS = "id_"
_HINT = (
    "Look whether ssh {name} works. The user, IdentityFile and the agent's keys (ssh-add -l) are those of "
    "your ssh configuration; the public key belongs into ~{user}/.ssh/authorized_keys there."
)


@dataclass(slots=True)
class _Tried:
    """What there was to try, for the message."""

    refused: list[str] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)
    encrypted: list[str] = field(default_factory=list)


def authenticate(transport: "Transport", settings: Settings) -> None:
    """Log in. Raises MachineError that says which keys were tried; paramiko's errors for a broken line."""
    from paramiko import AuthenticationException, BadAuthenticationType

    tried = _Tried()
    agent = _agent(settings, tried)
    try:
        for label, key in _keys(settings, agent, tried):
            tried.refused.append(label)
            try:
                more = transport.auth_publickey(settings.user, key)
            except BadAuthenticationType as error:
                raise _refused(settings, tried, error.allowed_types) from error
            except AuthenticationException as error:
                if not transport.is_active():
                    raise _cut_off(settings, tried) from error
            else:
                if not more:
                    return
                tried.unusable.append("the last of them was accepted, but is not enough")
                raise _refused(settings, tried, more)
        _without_key(transport, settings, tried)
    finally:
        if agent is not None:
            agent._close()  # noqa: SLF001 - the only way to close one


def _without_key(transport: "Transport", settings: Settings, tried: _Tried) -> None:
    """Try to get in without any key, as ssh does, and fail with the ways that the host would take."""
    from paramiko import AuthenticationException, BadAuthenticationType

    try:
        transport.auth_none(settings.user)
    except BadAuthenticationType as error:
        raise _refused(settings, tried, error.allowed_types) from error
    except AuthenticationException as error:
        raise _refused(settings, tried, ()) from error


def _refused(settings: Settings, tried: _Tried, ways: Sequence[str]) -> MachineError:
    first = (
        f"{settings} refused the login with"
        if tried.refused
        else f"There is no key to log in to {settings} with"
    )
    parts = [f"{first} {', '.join(tried.refused)}".rstrip(), *tried.unusable]
    if ways and "publickey" not in ways:
        parts.append(f"it wants {' and '.join(ways)}, and fabbench never asks for passwords")
    if tried.encrypted:
        names = " ".join(tried.encrypted)
        hint = f"fabbench asks for no passphrase. Give the key to your agent, and try again: ssh-add {names}"
    else:
        hint = _HINT.format(name=settings.name, user=settings.user)
    return MachineError(f"{'; '.join(parts)}.", hint=hint)


def _cut_off(settings: Settings, tried: _Tried) -> MachineError:
    return MachineError(
        f"{settings} closed the connection after {len(tried.refused)} keys that it does not know: "
        f"{', '.join(tried.refused)}.",
        hint="sshd takes few attempts (MaxAuthTries). Name the right key: IdentityFile and IdentitiesOnly "
        "in your ssh configuration.",
    )


def _keys(settings: Settings, agent: Any, tried: _Tried) -> Iterator[tuple[str, "PKey"]]:
    """Give keys and what to call them: the agent's that are named, its others, and those of files."""
    keys: Sequence[AgentKey] = () if agent is None else agent.get_keys()
    held = {bytes(key.blob): key for key in keys}
    public = {path: _public(path) for path in settings.identities}
    named = [blob for blob in public.values() if blob is not None and blob in held]
    others = [] if settings.identities_only else [blob for blob in held if blob not in named]
    for first in dict.fromkeys((*named, *others)):
        yield _label(held[first]), held[first]
    for path, blob in public.items():
        if blob not in held:
            key = _from_file(path, tried)
            if key is not None:
                yield f"{path} ({_fingerprint(key)})", key


def _label(key: "AgentKey") -> str:
    return f"the agent's {key.comment or 'key'} ({_fingerprint(key)})"


def _fingerprint(key: "PKey") -> str:
    return f"{key.get_name()} {key.fingerprint}"


def _public(path: str) -> bytes | None:
    """Give the public key that lies beside a private one."""
    try:
        return base64.b64decode(
            Path(path if path.endswith(".pub") else f"{path}.pub").read_text("utf-8").split()[1]
        )
    except (OSError, ValueError, IndexError):
        return None


def _from_file(path: str, tried: _Tried) -> "PKey | None":
    """Read a private key; note why where that does not work. Of ssh's own defaults, few exist."""
    from paramiko import PasswordRequiredException, SSHException

    try:
        status = Path(path).stat()
        return _load(path, status.st_mtime_ns, status.st_ino)
    except FileNotFoundError:
        if not Path(path).name.startswith(_DEFAULTS):
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
            tried.unusable.append(f"{path} is no private key that can be read ({error})")
    return None


@functools.lru_cache(maxsize=64)
def _load(path: str, *_version: int) -> "PKey":
    from paramiko import PKey

    return PKey.from_path(path)


def _agent(settings: Settings, tried: _Tried) -> Any:
    """Reach the agent; None where there is none. Its types do not tell how to name its socket."""
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
        agent._connect(connection)  # noqa: SLF001 - paramiko.Agent knows the environment's socket alone
    except (OSError, SSHException) as error:
        connection.close()
        tried.unusable.append(f"the agent at {path} does not answer ({error})")
        return None
    connection.settimeout(None)  # to touch a security key, or to confirm, takes its time
    return agent


def _agent_socket(setting: str | None) -> str | None:
    """Say where the agent listens: man ssh_config, IdentityAgent."""
    if setting is None or setting == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK")
    if setting == "none":
        return None
    return os.environ.get(setting[1:].strip("{}")) if setting.startswith("$") else setting
