"""known_hosts files: which key a host presented before, and the errors when it presents another.

The format: man sshd, SSH_KNOWN_HOSTS FILE FORMAT: names with wildcards and negation,
``[name]:port``, hashed names, ``@revoked``. Host certificates (``@cert-authority``) are not supported.
"""

import base64
import binascii
import fcntl
import functools
import hashlib
import hmac
import os
import re
import secrets
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path

from fabbench.model.errors import MachineError
from fabbench.remote.ssh_config import SSH_PORT, SshSettings

_HASHED = "|1|"
_RSA = ("rsa-sha2-512", "rsa-sha2-256")
_WRITING = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One line of a known_hosts file."""

    file: str
    line: int
    marker: str
    """``@revoked``, ``@cert-authority`` or empty."""
    names: tuple[str, ...]
    kind: str
    """``ssh-ed25519`` and the like."""
    key: str
    """In base64."""

    def matches(self, name: str) -> bool:
        """Return whether the line is about a host."""
        if any(pattern.startswith("!") and _matches(pattern[1:], name) for pattern in self.names):
            return False
        return any(_matches(pattern, name) for pattern in self.names)


def names_of(settings: SshSettings) -> tuple[str, ...]:
    """Return the names under which a host is looked up, first the one to record."""
    if settings.host_key_alias is not None:
        return (settings.host_key_alias.lower(),)
    name = settings.address.lower()
    return (name,) if settings.port == SSH_PORT else (f"[{name}]:{settings.port}", name)


def known_kinds(settings: SshSettings) -> tuple[str, ...]:
    """Return the algorithms of a host's known keys, so that one of those is negotiated."""
    kinds = dict.fromkeys(known.kind for known in _entries(settings) if not known.marker)
    return tuple(name for kind in kinds for name in (_RSA if kind == "ssh-rsa" else (kind,)))


def authority(settings: SshSettings) -> Known | None:
    """Return the certificate authority of a host that is known by nothing else; None otherwise."""
    entries = list(_entries(settings))
    if any(not known.marker for known in entries):
        return None
    return next((known for known in entries if known.marker == "@cert-authority"), None)


def fingerprint(key: str) -> str:
    """Format a key's fingerprint as OpenSSH does: ``SHA256:...``."""
    digest = hashlib.sha256(base64.b64decode(key)).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def check(settings: SshSettings, kind: str, key: str, *, accept_new: bool) -> None:
    """Check the key that a host presented. Raise MachineError if it is revoked, unknown or changed.

    With `accept_new`, the key of a host without known keys is written to the user's first file.
    """
    refused = distrusted(settings, kind, fingerprint(key), accept_new=accept_new)
    if refused is not None:
        raise refused
    if not any(known.key == key and not known.marker for known in _entries(settings)):
        _remember(settings, kind, key)


def distrusted(settings: SshSettings, kind: str, presented: str, *, accept_new: bool) -> MachineError | None:
    """Return why a host's key with the fingerprint `presented` is not trusted; None if it is.

    It is if the user's files have it and, with `accept_new`, if they have no key of the host.
    """
    entries = list(_entries(settings))
    shown = f"{kind} {presented}"
    for known in entries:
        if known.marker == "@revoked" and fingerprint(known.key) == presented:
            return MachineError(
                f"{settings} presented the host key {shown}, which is revoked in {known.file}, line {known.line}.",
                hint="Do not connect to this host; ask whoever revoked the key.",
            )
    plain = [known for known in entries if not known.marker]
    if any((known.kind, fingerprint(known.key)) == (kind, presented) for known in plain):
        return None
    exact = [known for known in plain if known.matches(names_of(settings)[0])]
    if exact:
        return _changed(settings, shown, exact)
    if accept_new:
        return None
    return _unknown(settings, shown, [known for known in entries if known.marker == "@cert-authority"])


def _changed(settings: SshSettings, shown: str, exact: Sequence[Known]) -> MachineError:
    kind = shown.partition(" ")[0]
    old = next((known for known in exact if known.kind == kind), exact[0])
    details = f": it presented {shown}; {old.file}, line {old.line}, has {old.kind} {fingerprint(old.key)}."
    return changed(settings, details, old.file)


def changed(settings: SshSettings, details: str, file: str) -> MachineError:
    """Return the error of a host whose key is not the one in a file; `details` ends its first sentence."""
    return MachineError(
        f"The host key of {settings} has changed{details}",
        hint="Possible man-in-the-middle attack, or the host was reinstalled. If you know that it was: "
        f"ssh-keygen -R '{names_of(settings)[0]}' -f '{file}'",
    )


def _unknown(settings: SshSettings, shown: str, authorities: Sequence[Known]) -> MachineError:
    file = _first_file(settings)
    aside = ""
    if authorities:
        where = f"{authorities[0].file}, line {authorities[0].line}"
        aside = (
            f" The certificate authority of {where}, cannot be used: paramiko does not support "
            "host certificates. Pass --ssh-client openssh."
        )
    port = "" if settings.port == SSH_PORT else f"-p {settings.port} "
    return MachineError(
        f"{settings} is not in {file}; it presented the host key {shown}.{aside}",
        hint=f"Connect once by hand and compare the fingerprint (ssh {settings.name}), or accept the "
        f"key unverified: ssh-keyscan {port}{settings.address} >>{file}, or --accept-new-host-keys.",
    )


def _first_file(settings: SshSettings) -> str:
    return next(iter(settings.known_hosts), str(Path.home() / ".ssh/known_hosts"))


def _entries(settings: SshSettings) -> Iterator[Known]:
    """Yield the lines about a host; a key known under its bare name counts for each of its ports."""
    for file in settings.known_hosts:
        try:
            status = Path(file).stat()
        except OSError:
            continue
        yield from _lines(names_of(settings), file, status.st_mtime_ns, status.st_size, status.st_ino)


@functools.lru_cache(maxsize=1024)
def _lines(names: Sequence[str], file: str, *version: int) -> tuple[Known, ...]:
    """Return the lines of one version of a file that are about a host. Hashed names are slow to compare."""
    return tuple(known for known in _read(file, *version) if any(known.matches(name) for name in names))


@functools.lru_cache(maxsize=16)
def _read(file: str, *_version: int) -> tuple[Known, ...]:
    """Read a file. Like ssh, ignore invalid lines and files that cannot be read."""
    try:
        lines = Path(file).read_text("utf-8", "replace").split("\n")
    except OSError:
        return ()
    return tuple(known for number, line in enumerate(lines, 1) for known in _entry(file, number, line))


def _entry(file: str, number: int, line: str) -> Iterator[Known]:
    words = line.split()
    if not words or words[0].startswith("#"):
        return
    marker = words.pop(0) if words[0].startswith("@") else ""
    if len(words) < 3 or marker not in {"", "@revoked", "@cert-authority"}:
        return
    try:
        base64.b64decode(words[2], validate=True)
    except binascii.Error:
        return
    names = tuple(words[0].split(","))
    yield Known(file=file, line=number, marker=marker, names=names, kind=words[1], key=words[2])


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith(_HASHED):
        return _matches_hash(pattern, name)
    return bool(_pattern(pattern.lower()).fullmatch(name))


@functools.lru_cache(maxsize=4096)
def _pattern(pattern: str) -> re.Pattern[str]:
    # Brackets are part of names with ports here; only * and ? are wildcards.
    return re.compile(translate(pattern.replace("[", "[[]")))


def _matches_hash(pattern: str, name: str) -> bool:
    salt, _, digest = pattern.removeprefix(_HASHED).partition("|")
    try:
        actual = hmac.digest(base64.b64decode(salt), name.encode(), "sha1")
        return hmac.compare_digest(actual, base64.b64decode(digest))
    except binascii.Error:
        return False


def _remember(settings: SshSettings, kind: str, key: str) -> None:
    """Add a key to the user's first file, unless another process did so meanwhile."""
    path = Path(_first_file(settings))
    name = names_of(settings)[0]
    if settings.hash_names:
        salt = secrets.token_bytes(20)
        digest = hmac.digest(salt, name.encode(), "sha1")
        name = f"{_HASHED}{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        with _WRITING:  # between threads; the file's lock is for other processes
            opened = os.open(path, flags, 0o600)
            try:
                fcntl.flock(opened, fcntl.LOCK_EX)
                plain = [known for known in _entries(settings) if not known.marker]
                if not any((known.kind, known.key) == (kind, key) for known in plain):
                    ended = not path.is_file() or path.read_bytes()[-1:] in {b"", b"\n"}
                    line = f"{name} {kind} {key}\n".encode()
                    os.write(opened, line if ended else b"\n" + line)
            finally:
                os.close(opened)
    except OSError as error:
        raise MachineError(
            f"The host key of {settings} cannot be added to {path}: {error.strerror}.",
            hint="Connect once by hand, or make the file writable.",
        ) from error
