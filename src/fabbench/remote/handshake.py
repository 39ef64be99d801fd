"""The first part of a connection: agree with sshd, check the host's key, log in."""

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from fabbench.errors import MachineError
from fabbench.remote import hostkeys
from fabbench.remote.carriers import Carrier, DroppedError
from fabbench.remote.identities import authenticate
from fabbench.remote.library import paramiko
from fabbench.remote.pipe import lost
from fabbench.remote.proxy import ProxySocket
from fabbench.remote.settings import Settings

if TYPE_CHECKING:
    from paramiko import Transport

_HANDSHAKE_S = 20.0
_AUTH_S = 30.0
_KEEPALIVE_S = 15
_CLOSED = re.compile(r"[Cc]onnection (?:closed|reset) by")


def log_in(
    carrier: Carrier, settings: Settings, *, accept_new: bool, started: Callable[["Transport"], None]
) -> tuple[str, str]:
    """Make an ssh connection of what carries it, and give the type and the base64 of the host's key.

    `started` gets paramiko's connection at once, so that it can be closed from elsewhere.
    Raises MachineError, and DroppedError where another attempt may help.
    """
    library = paramiko()
    transport: Transport = library.Transport(carrier)
    started(transport)
    transport.banner_timeout = transport.handshake_timeout = _HANDSHAKE_S
    transport.auth_timeout = _AUTH_S
    options = transport.get_security_options()
    known = [kind for kind in hostkeys.known_kinds(settings) if kind in options.key_types]
    # The kind of key that is known comes first: else a known host would show one that nobody knows.
    options.key_types = tuple(dict.fromkeys((*known, *options.key_types)))
    begun = time.monotonic()
    try:
        transport.start_client(timeout=_HANDSHAKE_S)
        shown = transport.get_remote_server_key()
    except (library.SSHException, EOFError, OSError) as error:
        raise _no_handshake(carrier, settings, error, time.monotonic() - begun) from error
    kind, key = shown.get_name(), shown.get_base64()
    hostkeys.check(settings, kind, key, accept_new=accept_new)
    try:
        authenticate(transport, settings)
    except (library.SSHException, EOFError, OSError) as error:
        raise lost(settings, f"while logging in: {error or 'the other side closed it'}") from error
    transport.set_keepalive(_KEEPALIVE_S)
    return kind, key


def _no_handshake(carrier: Carrier, settings: Settings, error: Exception, took_s: float) -> Exception:
    """Say what became of a connection on which there was no key of the host."""
    ended = isinstance(error, (EOFError, ConnectionError))
    seen = error if ended else error.__context__ or error
    said = carrier.said() if isinstance(carrier, ProxySocket) else ""
    aside = f" Its ProxyCommand says: {said}" if said else ""
    if took_s >= _HANDSHAKE_S or isinstance(seen, TimeoutError):
        return MachineError(
            f"{settings} took the connection and then said nothing for {took_s:.0f} s.{aside}",
            hint="Is it sshd that listens there? A machine that hangs, or is starting, does the same.",
        )
    if isinstance(seen, (EOFError, ConnectionError)) and (not said or _CLOSED.search(said)):
        return DroppedError(said or str(seen) or "no reason was given")
    return MachineError(
        f"No ssh connection could be agreed on with {settings}: {str(error).rstrip('.')}.{aside}",
        hint=f"See what ssh -v {settings.name} says.",
    )
