"""What a fabbench.yaml has this machine run, load or send, by files that it names.

The user's own is trusted. Only what is known to be harmless goes unnamed: a new directive of ssh is
named until someone has judged it.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fabbench.config import user_file
from fabbench.config.sections import Config
from fabbench.model.hosts import Target

_KindT = TypeVar("_KindT", list[Any], dict[str, Any])
_HARMLESS_LINE = re.compile(
    r"""\s*(?:\#.*
        |(?:AddressFamily|BatchMode|BindAddress|Ciphers|Compression|ConnectionAttempts|ConnectTimeout|Host
          |HostKeyAlgorithms|HostName|IdentitiesOnly|IPQoS|KexAlgorithms|LogLevel|MACs|NumberOfPasswordPrompts
          |PasswordAuthentication|Port|PreferredAuthentications|ProxyJump|PubkeyAcceptedAlgorithms
          |PubkeyAuthentication|RequestTTY|ServerAliveCountMax|ServerAliveInterval|StrictHostKeyChecking
          |TCPKeepAlive|User)(?:[\s=].*)?
        |IdentityFile[\s=][^:]*         # some releases load the library of a pkcs11: URI
        |Match(?!.*exec)[\s=][^"'\\]*   # quotes could hide the word
        )?""",
    re.IGNORECASE | re.VERBOSE,
)
"""Directives of ssh that start and load nothing, and send nothing of the user's.

They choose no socket, agent or list of trusted keys; or fabbench overrides them
(StrictHostKeyChecking).
"""
_INLINE_CREDENTIALS = frozenset({
    *("token", "username", "password", "client-certificate-data", "client-key-data"),
    *("as", "as-uid", "as-groups", "as-user-extra"),
})  # fmt: skip
"""Credentials in a kubeconfig itself. All others are programs, or files that are read or used."""
_MAX_LINES = 3
_MAX_CHARACTERS = 80


def foreign_commands(
    config: Config, target: Target, given: Collection[str], environment: Mapping[str, str]
) -> Iterator[str]:
    """Yield a warning for each file of a target that can run commands, unless `given` replaces it.

    The user's own fabbench.yaml is trusted. A file that cannot be read is reported elsewhere.
    """
    if config.path == user_file(environment):
        return
    for name, suspicious, option in (
        ("ssh_config", _suspicious_ssh_lines, "--ssh-config"),
        ("kubeconfig", _suspicious_credentials, "--kubeconfig"),
    ):
        path = getattr(target.options, name, None)
        if name in given or not isinstance(path, Path):
            continue
        lines = [_shortened(line) for line in suspicious(path)]
        if not lines:
            continue
        first = "; ".join(lines[:_MAX_LINES])
        if more := len(lines[_MAX_LINES:]):
            first += f" and {more} more"
        yield (
            f"Warning: {config.path} names {path}, which can run commands or use files on this "
            f"machine: {first}. {option} names another file."
        )


def _shortened(line: str) -> str:
    return " ".join(line.split())[:_MAX_CHARACTERS]


def _suspicious_ssh_lines(path: Path) -> Iterator[str]:
    """Yield the lines of an ssh configuration that are not known to be harmless."""
    for line in _text_or_nothing(path).splitlines():
        if not _HARMLESS_LINE.fullmatch(line):
            yield line


def _suspicious_credentials(path: Path) -> Iterator[str]:
    """Yield the credentials of kubeconfigs (as in KUBECONFIG, several) that are not in them."""
    import yaml

    for name in str(path).split(os.pathsep):
        try:
            document = yaml.safe_load(_text_or_nothing(Path(name)))
        except yaml.YAMLError:
            continue
        for user in _entry_of_kind(document, "users", list):
            for key, value in _entry_of_kind(user, "user", dict).items():
                if key not in _INLINE_CREDENTIALS:
                    yield f"{key} {value}"


def _entry_of_kind(node: Any, key: str, kind: type[_KindT]) -> _KindT:
    """Return an entry of a mapping; empty if there is none of that kind."""
    entry = node.get(key) if isinstance(node, dict) else None
    return entry if isinstance(entry, kind) else kind()


def _text_or_nothing(path: Path) -> str:
    try:
        return path.expanduser().read_text("utf-8", "replace")
    except OSError:
        return ""
