"""What the user's ssh configuration says of hosts: OpenSSH's own answer, by ``ssh -G``.

Include, Match and tokens are right because ssh itself reads them. Where there is no ssh program,
`fabbench.remote.config_file` reads the files. Call this while there are no threads: it starts programs.
"""

import getpass
import os
import re
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fabbench.errors import MachineError, RequestError
from fabbench.process import Processes
from fabbench.remote.config_file import Question, read_config
from fabbench.session import TimedOutError

SSH_PORT = 22

_PROGRAMS = 4
_ASKING_S = 60.0
_BEGIN = "fabbench: begin"
_END = "fabbench: end"
_ASK = f"""
config=$1 user=$2 port=$3 identity=$4
shift 4
for name; do
  echo "{_BEGIN}"
  ssh -G -T ${{config:+-F "$config"}} ${{user:+-l "$user"}} ${{port:+-p "$port"}} \
    ${{identity:+-i "$identity"}} -- "$name" 2>&1
  echo "{_END} $?"
done
"""
_JUMP = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@\s]+)@)?(?:\[(?P<bare>[^]\s]+)\]|(?P<name>[^:\s]+))(?::(?P<port>[0-9]{1,5}))?/?"
)
_WORDS = re.compile(r'"([^"]+)"|([^" ]+)')
_TOKEN = re.compile(r"%(.)|\$\{([^}]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What one host's ssh configuration comes to."""

    name: str
    """As the user named it."""
    address: str
    """HostName: a name for the resolver, or an IP address."""
    port: int
    user: str
    identities: tuple[str, ...]
    """Files of private keys, in the order in which to try them; some may not exist."""
    jumps: tuple["Settings", ...]
    """ProxyJump hosts, the first hop first; each has the hops before it as its own."""
    proxy_command: str | None
    """ProxyCommand, with its tokens filled in."""
    known_hosts: tuple[str, ...]
    """Files of host keys: the user's, then the machine's."""
    host_key_alias: str | None
    identities_only: bool
    identity_agent: str | None
    """A socket, ``SSH_AUTH_SOCK``, ``$VARIABLE`` or ``none``; None: what the environment says."""
    hash_names: bool = False
    """HashKnownHosts: whether names are hashed where a host key is written down."""

    def __str__(self) -> str:
        """Name the host as the user does, and what that comes to: ``node1 (ubuntu@10.0.0.1:22)``."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        via = f" via {self.jumps[-1].name}" if self.jumps else ""
        return f"{self.name} ({self.user}@{address}:{self.port}{via})"


def settings_of(
    name: str,
    *,
    config: str | None,
    user: str | None = None,
    port: int | None = None,
    identity: str | None = None,
) -> Settings:
    """Find one host's settings, as `all_settings` does for many."""
    return all_settings((name,), config=config, user=user, port=port, identity=identity)[0]


def all_settings(
    names: Sequence[str],
    *,
    config: str | None,
    user: str | None = None,
    port: int | None = None,
    identity: str | None = None,
) -> tuple[Settings, ...]:
    """Find the settings of hosts and of their jump hosts, in the order of `names`.

    `config` is another file than ``~/.ssh/config``; `user`, `port` and `identity` count more than any file
    and, as with ssh, not for jump hosts. Raises RequestError for what ssh cannot make sense of, and
    MachineError where it hangs.
    """
    if not all(names):
        raise RequestError("A host has no name.", hint="Name it as you would for ssh.")
    asked = [Question(name=name, config=config, user=user, port=port, identity=identity) for name in names]
    known: dict[Question, Mapping[str, Sequence[str]]] = {}
    wanted = list(dict.fromkeys(asked))
    while wanted:
        known.update(_answers(wanted))
        jumps = [jump for question in wanted for jump in _jumps(question, known[question])]
        wanted = [jump for jump in dict.fromkeys(jumps) if jump not in known]
    return tuple(_settings(question, known, (), (question.name,)) for question in asked)


def _answers(questions: Sequence[Question]) -> dict[Question, Mapping[str, Sequence[str]]]:
    """Ask about hosts: option → values, as ``ssh -G`` prints them."""
    if shutil.which("ssh") is None:
        return {question: read_config(question) for question in questions}
    groups: dict[tuple[str, ...], list[Question]] = {}
    for question in questions:
        given = (question.config, question.user, question.port, question.identity)
        groups.setdefault(tuple("" if one is None else str(one) for one in given), []).append(question)
    found: dict[Question, Mapping[str, Sequence[str]]] = {}
    with Processes() as processes:
        parts = {}
        for options, group in groups.items():
            for start in range(min(_PROGRAMS, len(group))):
                part = group[start::_PROGRAMS]
                argv = ("sh", "-c", _ASK, "sh", *options, *(question.name for question in part))
                parts[processes.start(argv, name="ssh -G")] = (part, list[str]())
        try:
            for process, text in processes.lines(deadline=time.monotonic() + _ASKING_S):
                for mine, (_, lines) in parts.items():
                    if mine is process and text is not None:
                        lines.append(text)
        except TimedOutError as late:
            raise MachineError(
                f"ssh -G did not say within {_ASKING_S:g} s what your ssh configuration comes to.",
                hint="Match exec, or CanonicalizeHostname with a slow name server, may hang there.",
            ) from late
    for part, lines in parts.values():
        found.update(zip(part, _blocks(part, lines), strict=True))
    return found


def _blocks(questions: Sequence[Question], lines: Iterable[str]) -> Iterator[Mapping[str, Sequence[str]]]:
    """Split what the program printed into the answer to each question."""
    left = iter(questions)
    options: dict[str, list[str]] = {}
    said: list[str] = []
    for line in lines:
        if line == _BEGIN:
            options, said = {}, []
        elif line.startswith(_END):
            question = next(left)
            if line != f"{_END} 0":
                raise RequestError(
                    f"ssh cannot make sense of {question.name!r}: {' '.join(said) or 'it does not say why'}",
                    hint=f"Try ssh -G {question.name}; see man ssh_config.",
                )
            yield options
        else:
            key, _, value = line.partition(" ")
            options.setdefault(key, []).append(value)
            said.append(line)


def _jumps(question: Question, options: Mapping[str, Sequence[str]]) -> list[Question]:
    """Give the hosts of ProxyJump, in its order."""
    text = options.get("proxyjump", ("none",))[0]
    if text.lower() == "none":
        return []
    found = []
    for hop in text.split(","):
        match = _JUMP.fullmatch(hop.strip())
        if match is None:
            raise RequestError(
                f"ProxyJump of {question.name} is {text!r}, and {hop.strip()!r} is no host.",
                hint="Write it as [user@]host[:port], with commas between.",
            )
        port = int(match["port"]) if match["port"] else None
        name = match["bare"] or match["name"]
        found.append(Question(name=name, config=question.config, user=match["user"], port=port))
    return found


def _settings(
    question: Question,
    known: Mapping[Question, Mapping[str, Sequence[str]]],
    before: tuple[Settings, ...],
    trail: tuple[str, ...],
) -> Settings:
    """Put together what ssh said of a host.

    `before`: the hops which a ProxyJump puts before it; `trail`: the hosts for whose sake it is looked at.
    """
    options = known[question]
    jumps = before
    if not before:
        for hop in _jumps(question, options):
            if hop.name in trail:
                raise RequestError(
                    f"ProxyJump leads in a circle: {' → '.join((*trail, hop.name))}.",
                    hint=f"Give {hop.name} a ProxyJump none of its own, before the other entry.",
                )
            jump = _settings(hop, known, jumps, (*trail, hop.name))
            jumps = (*jump.jumps, jump)
    bare = Settings(
        name=question.name,
        address=_one(options, "hostname") or question.name,
        port=int(_one(options, "port") or SSH_PORT),
        user=_one(options, "user") or getpass.getuser(),
        identities=(),
        jumps=jumps,
        proxy_command=None,
        known_hosts=(*_paths(options, "userknownhostsfile"), *_paths(options, "globalknownhostsfile")),
        host_key_alias=_one(options, "hostkeyalias"),
        identities_only=_one(options, "identitiesonly") == "yes",
        identity_agent=_one(options, "identityagent"),
        hash_names=_one(options, "hashknownhosts") == "yes",
    )
    command = _one(options, "proxycommand")
    given = () if question.identity is None else (question.identity,)  # ssh forgets one that is not there
    files = (_filled(path, bare, "$") for path in (*given, *options.get("identityfile", ())))
    return replace(
        bare,
        proxy_command=None if command is None or jumps else _filled(command, bare),
        identities=tuple(dict.fromkeys(_expanded(path) for path in files if path != "none")),
    )


def _one(options: Mapping[str, Sequence[str]], key: str) -> str | None:
    """Give an option's value, None where there is none."""
    value = options[key][0] if key in options else None
    return None if value == "none" and key != "identityagent" else value


def _paths(options: Mapping[str, Sequence[str]], key: str) -> tuple[str, ...]:
    """Give an option's files. They are absolute: what does not begin like one belongs to the one before."""
    found: list[str] = []
    for quoted, word in _WORDS.findall(_one(options, key) or ""):
        if quoted or not found or word.startswith(("/", "~")):
            found.append(quoted or word)
        else:
            found[-1] += f" {word}"
    return tuple(_expanded(path) for path in found)


def _expanded(path: str) -> str:
    return str(Path(path).expanduser())


def _filled(text: str, settings: Settings, variables: str = "") -> str:
    """Fill in ssh_config's tokens, and ``${VARIABLE}`` if `variables` says so."""
    here = socket.gethostname()
    values = {
        "%": "%",
        "d": str(Path.home()),
        "h": settings.address,
        "k": settings.host_key_alias or settings.name,
        "L": here.partition(".")[0],
        "l": here,
        "n": settings.name,
        "p": str(settings.port),
        "r": settings.user,
        "u": getpass.getuser(),
        "i": str(os.getuid()),
    }

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return values.get(match[1], match[0])
        return os.environ.get(match[2], match[0]) if variables else match[0]

    return _TOKEN.sub(value, text)
