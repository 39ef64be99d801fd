"""The user's ssh configuration where there is no ssh program to ask: read by paramiko, Include by us."""

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fabbench.errors import RequestError
from fabbench.remote.library import paramiko

_FOLDER = "~/.ssh"
_SYSTEM = "/etc/ssh"
_MOST_DEPTH = 16
_PROBE = "fabbenchprobe"
_DEFAULTS: Mapping[str, Sequence[str]] = {
    "identityfile": tuple(f"{_FOLDER}/id_{kind}" for kind in ("rsa", "ecdsa", "ed25519")),
    "userknownhostsfile": (f"{_FOLDER}/known_hosts {_FOLDER}/known_hosts2",),
    "globalknownhostsfile": (f"{_SYSTEM}/ssh_known_hosts {_SYSTEM}/ssh_known_hosts2",),
}
_LINE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*?)\s*")
_WORD = re.compile(r'"([^"]*)"|(\S+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to ask of the configuration: a name, and what stands before it on ssh's command line."""

    name: str
    config: str | None
    user: str | None = None
    port: int | None = None
    identity: str | None = None


def read_config(question: Question) -> dict[str, list[str]]:
    """Give the options of a host, in the form in which ``ssh -G`` prints them. Raises RequestError."""
    name, _, host = question.name.rpartition("@")
    own = question.config or f"{_FOLDER}/config"
    files = [own] if question.config is not None else [own, f"{_SYSTEM}/ssh_config"]
    given = (("User", question.user or name or None), ("Port", question.port))
    first = ["Host *", *(f"{key} {value}" for key, value in given if value is not None)]
    try:
        lines = first[:]
        for file in files:
            lines += _lines(_path(file), _Reader(host, first), needed=question.config is not None)
        found = paramiko().SSHConfig.from_text("\n".join(lines)).lookup(host)
    except (paramiko().SSHException, ImportError) as error:
        raise RequestError(
            f"{own} cannot be read without ssh's help: {error}.",
            hint="Install the ssh program (openssh-client), which reads everything.",
        ) from error
    options = {key: [value] if isinstance(value, str) else list(value) for key, value in found.items()}
    for key, values in _DEFAULTS.items():
        options.setdefault(key, list(values))
    options.setdefault("hostname", [host])
    return options


@dataclass(frozen=True, slots=True)
class _Reader:
    """For whom the files are read."""

    host: str
    first: list[str]
    """What counts before everything else."""

    def concerns(self, block: str) -> bool:
        """Whether a Host or Match line is about the host."""
        text = "\n".join((*self.first, block, f"{_PROBE} yes"))
        return _PROBE in paramiko().SSHConfig.from_text(text).lookup(self.host)


def _lines(path: Path, reader: _Reader, *, needed: bool, depth: int = 0) -> Iterator[str]:
    """Give a file's lines: those that it includes in their place, and then its own Host or Match again."""
    try:
        text = path.read_text("utf-8", "replace")
    except OSError as error:
        if needed:
            raise RequestError(f"{path} cannot be read: {error.strerror}.") from error
        return
    block = "Host *"
    yield block
    for line in text.split("\n"):
        match = _LINE.fullmatch(line)
        keyword = match[1].lower() if match is not None else ""
        if match is None or keyword != "include":
            block = line if keyword in {"host", "match"} else block
            yield line
        elif depth < _MOST_DEPTH and reader.concerns(block):
            for included in _included(match[2]):
                yield from _lines(included, reader, needed=False, depth=depth + 1)
            yield block


def _included(text: str) -> Iterator[Path]:
    for quoted, bare in _WORD.findall(text):
        pattern = str(_path(quoted or bare))
        full = pattern if pattern.startswith("/") else str(_path(f"{_FOLDER}/{pattern}"))
        yield from (Path(found) for found in sorted(glob.glob(full)))  # noqa: PTH207 - an absolute pattern


def _path(text: str) -> Path:
    return Path(os.path.expanduser(text))  # noqa: PTH111 - ~ may be another user's
