"""Chooses the client that connects to a host: paramiko, or the user's OpenSSH where paramiko cannot.

OpenSSH is used if the user has a connection open, or if the configuration requires what paramiko lacks: a
host certificate, a security key, Kerberos. Call this while there are no threads: it may start programs.
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
_MAX_KEY_SIZE = 1 << 16


def with_clients(settings: Sequence[SshSettings], client: str) -> tuple[SshSettings, ...]:
    """Return the settings, each with the reason why OpenSSH connects to the host, if it does.

    `client` is ``paramiko``, ``openssh`` or ``auto``. Raise RequestError if OpenSSH is missing.
    """
    has_ssh = shutil.which("ssh") is not None
    if client == OPENSSH and not has_ssh:
        raise RequestError(
            "--ssh-client is openssh, but ssh was not found on this machine.",
            hint="Install it (openssh-client), or use --ssh-client paramiko.",
        )
    if client == PARAMIKO or not has_ssh:
        return tuple(settings)
    return tuple(_with_client(one, f"--ssh-client {OPENSSH}" if client == OPENSSH else "") for one in settings)


def _with_client(settings: SshSettings, forced: str) -> SshSettings:
    why = forced or next(_reasons(settings), "")
    if not why:
        for jump in settings.jumps:
            if reason := next(_reasons(jump), ""):
                why = f"its jump host {jump.name}: {reason}"
                break
    return _by_openssh(settings, why) if why else settings


def _by_openssh(settings: SshSettings, why: str) -> SshSettings:
    """Add the reason to the settings and those of the jump hosts: all hops use the same client."""
    return replace(settings, openssh=why, jumps=tuple(_by_openssh(jump, why) for jump in settings.jumps))


def _reasons(settings: SshSettings) -> Iterator[str]:
    """Yield the reasons why OpenSSH should connect to a host."""
    if openssh.has_master(settings):
        yield f"your connection at {settings.control_path} is open"
    for name in settings.unsupported:
        # Distributions enable it by default: only a ticket shows that it is used.
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
    """Return whether the user has a Kerberos ticket, according to klist, or to files without klist."""
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
    """Return the type of a key file, such as ``ssh-ed25519``; empty if it is missing or does not show it.

    An encrypted key shows it too.
    """
    try:
        with Path(path).open("rb") as file:
            text = file.read(_MAX_KEY_SIZE).decode("ascii")
        lines = [line for line in text.splitlines() if line and not line.startswith("-----")]
        words = text.split()
        if not text.startswith("-----"):
            return words[0] if words else ""
        body = base64.b64decode("".join(lines), validate=True)
        return _public_type(body) if body.startswith(_MAGIC) else ""
    except (OSError, ValueError, binascii.Error, struct.error):
        return ""


def _public_type(body: bytes) -> str:
    """Return the type of the public key in OpenSSH's private key format."""
    offset = len(_MAGIC)
    for _ in range(3):  # the cipher, the KDF, and its options
        offset += 4 + struct.unpack_from(">I", body, offset)[0]
    offset += 8  # the number of keys, and the length of the first public key
    (length,) = struct.unpack_from(">I", body, offset)
    return body[offset + 4 : offset + 4 + length].decode("ascii")
