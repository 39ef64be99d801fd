"""Which client connects to a host: paramiko, or the user's OpenSSH where paramiko cannot.

OpenSSH does it where the user has a connection open, and where the configuration asks for what paramiko
lacks: a host certificate, a security key, Kerberos. Call this while there are no threads: programs may start.
"""

import base64
import binascii
import os
import shutil
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from fabbench.execution.process import Processes
from fabbench.execution.session import TimedOutError
from fabbench.model.errors import RequestError
from fabbench.remote import hostkeys, openssh
from fabbench.remote.ssh_config import SshSettings

PARAMIKO, OPENSSH = "paramiko", "openssh"
_GSSAPI = "GSSAPIAuthentication"
_KLIST_S = 5.0
_MAGIC = b"openssh-key-v1\0"
_MOST_KEY = 1 << 16


def with_clients(settings: Sequence[SshSettings], client: str) -> tuple[SshSettings, ...]:
    """Return the settings, each with why OpenSSH connects to the host, if it does.

    `client` is ``paramiko`` or ``openssh``, or ``auto``. Raise RequestError for an OpenSSH that is not there.
    """
    there = shutil.which("ssh") is not None
    if client == OPENSSH and not there:
        raise RequestError(
            "--ssh-client is openssh, but ssh was not found on this machine.",
            hint="Install it (openssh-client), or use --ssh-client paramiko.",
        )
    if client == PARAMIKO or not there:
        return tuple(settings)
    return tuple(
        _with_client(one, f"--ssh-client {OPENSSH}" if client == OPENSSH else "") for one in settings
    )


def _with_client(settings: SshSettings, forced: str) -> SshSettings:
    why = forced or next(_reasons(settings), "")
    if not why:
        for jump in settings.jumps:
            if reason := next(_reasons(jump), ""):
                why = f"its jump host {jump.name}: {reason}"
                break
    return _by_openssh(settings, why) if why else settings


def _by_openssh(settings: SshSettings, why: str) -> SshSettings:
    """Return settings with a reason, and those of the jump hosts with it: all hops have one client."""
    return replace(settings, openssh=why, jumps=tuple(_by_openssh(jump, why) for jump in settings.jumps))


def _reasons(settings: SshSettings) -> Iterator[str]:
    """Yield why OpenSSH is to connect to a host."""
    if openssh.has_master(settings):
        yield f"your connection at {settings.control_path} is open"
    for name in settings.beyond:
        # Distributions switch it on for everybody: a ticket says that it is used.
        if name != _GSSAPI:
            yield f"{name} is set in your ssh configuration"
        elif _has_ticket():
            yield f"{name} is set in your ssh configuration, and you have a Kerberos ticket"
    if (authority := hostkeys.authority(settings)) is not None:
        yield f"{authority.file}, line {authority.line}, has the host's certificate authority"
    for path in settings.identities:
        if key_type(path).startswith("sk-"):
            yield f"{path} is a security key (FIDO)"


@cache
def _has_ticket() -> bool:
    """Return whether the user has a Kerberos ticket, as klist says; where there is no klist, as files do."""
    if shutil.which("klist") is None:
        name = os.environ.get("KRB5CCNAME", f"FILE:/tmp/krb5cc_{os.getuid()}").removeprefix("FILE:")
        return Path(name).is_file()
    with Processes() as processes:
        process = processes.start(("klist", "-s"))
        try:
            for _ in processes.lines(deadline=time.monotonic() + _KLIST_S):
                pass
        except TimedOutError:
            return False
    return process.status == 0


def key_type(path: str) -> str:
    """Return the type of a key file, ``ssh-ed25519`` and the like; empty: there is none, or it does not say.

    An encrypted key says it too.
    """
    try:
        with Path(path).open("rb") as file:
            text = file.read(_MOST_KEY).decode("ascii")
        lines = [line for line in text.splitlines() if line and not line.startswith("-----")]
        words = text.split()
        if not text.startswith("-----"):
            return words[0] if words else ""
        body = base64.b64decode("".join(lines), validate=True)
        return _public_type(body) if body.startswith(_MAGIC) else ""
    except (OSError, ValueError, binascii.Error, struct.error):
        return ""


def _public_type(body: bytes) -> str:
    """Return the type of the public key in OpenSSH's format of private keys."""
    offset = len(_MAGIC)
    for _ in range(3):  # the cipher, what derives its key, and how
        offset += 4 + struct.unpack_from(">I", body, offset)[0]
    offset += 8  # how many keys there are, and how long the first public one is
    (length,) = struct.unpack_from(">I", body, offset)
    return body[offset + 4 : offset + 4 + length].decode("ascii")
