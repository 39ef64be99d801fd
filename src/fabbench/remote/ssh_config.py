"""What the user's ssh configuration says of hosts: OpenSSH's own answer, by ``ssh -G``.

Include, Match and tokens are right because ssh itself reads them. Where there is no ssh program,
the files are read here. Call this while there are no threads: it starts programs.
"""

import getpass
import glob
import os
import re
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fabbench.execution.process import Processes
from fabbench.execution.session import TimedOutError
from fabbench.model.errors import MachineError, RequestError
from fabbench.remote.paramiko_library import paramiko

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
class TimeLimits:
    """How long a connection waits, in seconds."""

    connect_s: float = 10.0
    """For a machine to take a connection, on all of its addresses together."""
    address_s: float = 3.0
    """For each of a machine's addresses at least."""
    handshake_s: float = 20.0
    """For sshd to agree on a connection."""
    silence_s: float = 15.0
    """For a running program's output, before the machine is asked whether it is there."""
    answer_s: float = 10.0
    """For the answer to that."""
    back_off_s: float = 0.15
    """Before the second attempt; twice as long before each further one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SshSettings:
    """What one host's ssh configuration comes to."""

    name: str
    """As the user named it."""
    address: str
    """HostName: a name for the resolver, or an IP address."""
    port: int
    user: str
    identities: tuple[str, ...]
    """Files of private keys, in the order in which to try them; some may not exist."""
    jumps: tuple["SshSettings", ...]
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
    limits: TimeLimits = field(default_factory=TimeLimits, repr=False)
    config: str | None = None
    """Another file than ``~/.ssh/config``."""
    control_path: str | None = None
    """ControlPath, with its tokens filled in."""
    forks: bool = False
    """ForkAfterAuthentication."""
    beyond: tuple[str, ...] = ()
    """What the configuration asks for and paramiko cannot do: ``CertificateFile`` and the like."""
    openssh: str = ""
    """Why OpenSSH connects; empty: paramiko does."""

    def __str__(self) -> str:
        """Name the host as the user does, and what that comes to: ``node1 (ubuntu@10.0.0.1:22)``."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        via = f" via {self.jumps[-1].name}" if self.jumps else ""
        return f"{self.name} ({self.user}@{address}:{self.port}{via})"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What to ask of the configuration: a name, and what stands before it on ssh's command line."""

    name: str
    config: str | None
    user: str | None = None
    port: int | None = None
    identity: str | None = None


def all_settings(
    names: Sequence[str],
    *,
    config: str | None,
    user: str | None = None,
    port: int | None = None,
    identity: str | None = None,
) -> tuple[SshSettings, ...]:
    """Find the settings of hosts and of their jump hosts, in the order of `names`.

    A name may have a user before it (``ubuntu@node1``), which counts most.
    `config` is another file than ``~/.ssh/config``; `user`, `port` and `identity` count more than any file
    and, as with ssh, not for jump hosts. Raise RequestError for what ssh cannot make sense of, and
    MachineError where it hangs.
    """
    if not all(names):
        raise RequestError("A host name is empty.", hint="Use the name you would pass to ssh.")
    asked = [
        _Question(name=name, config=config, user=None if "@" in name else user, port=port, identity=identity)
        for name in names
    ]
    known: dict[_Question, Mapping[str, Sequence[str]]] = {}
    wanted = list(dict.fromkeys(asked))
    while wanted:
        known.update(_answers(wanted))
        jumps = [jump for question in wanted for jump in _jumps(question, known[question])]
        wanted = [jump for jump in dict.fromkeys(jumps) if jump not in known]
    return tuple(_settings(question, known, (), (question.name,)) for question in asked)


def _answers(questions: Sequence[_Question]) -> dict[_Question, Mapping[str, Sequence[str]]]:
    """Ask about hosts: option → values, as ``ssh -G`` prints them."""
    if shutil.which("ssh") is None:
        return {question: _read_files(question) for question in questions}
    groups: dict[tuple[str, ...], list[_Question]] = {}
    for question in questions:
        given = (question.config, question.user, question.port, question.identity)
        groups.setdefault(tuple("" if one is None else str(one) for one in given), []).append(question)
    found: dict[_Question, Mapping[str, Sequence[str]]] = {}
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
                f"ssh -G did not resolve your ssh configuration within {_ASKING_S:g} s.",
                hint="A Match exec, or CanonicalizeHostname with a slow name server, may be hanging.",
            ) from late
    for part, lines in parts.values():
        found.update(zip(part, _blocks(part, lines), strict=True))
    return found


def _blocks(questions: Sequence[_Question], lines: Iterable[str]) -> Iterator[Mapping[str, Sequence[str]]]:
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
                    f"ssh rejects {question.name!r}: {' '.join(said) or 'no reason given'}",
                    hint=f"Run ssh -G {question.name}, and see man ssh_config.",
                )
            yield options
        else:
            key, _, value = line.partition(" ")
            options.setdefault(key, []).append(value)
            said.append(line)


def _jumps(question: _Question, options: Mapping[str, Sequence[str]]) -> list[_Question]:
    """Return the hosts of ProxyJump, in its order."""
    text = options.get("proxyjump", ("none",))[0]
    if text.lower() == "none":
        return []
    found = []
    for hop in text.split(","):
        match = _JUMP.fullmatch(hop.strip())
        if match is None:
            raise RequestError(
                f"ProxyJump of {question.name} is {text!r}, but {hop.strip()!r} is not a valid host.",
                hint="Use [user@]host[:port], separated by commas.",
            )
        port = int(match["port"]) if match["port"] else None
        name = match["bare"] or match["name"]
        found.append(_Question(name=name, config=question.config, user=match["user"], port=port))
    return found


def _settings(
    question: _Question,
    known: Mapping[_Question, Mapping[str, Sequence[str]]],
    before: tuple[SshSettings, ...],
    trail: tuple[str, ...],
) -> SshSettings:
    """Put together what ssh said of a host.

    `before`: the hops which a ProxyJump puts before it; `trail`: the hosts for whose sake it is looked at.
    """
    options = known[question]
    jumps = before
    if not before:
        for hop in _jumps(question, options):
            if hop.name in trail:
                raise RequestError(
                    f"ProxyJump is circular: {' → '.join((*trail, hop.name))}.",
                    hint=f"Add an entry for {hop.name} with ProxyJump none before the other entry.",
                )
            jump = _settings(hop, known, jumps, (*trail, hop.name))
            jumps = (*jump.jumps, jump)
    bare = SshSettings(
        name=question.name,
        address=_one(options, "hostname") or question.name.rpartition("@")[2],
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
        config=question.config,
        control_path=_one(options, "controlpath"),
        forks=_one(options, "forkafterauthentication") == "yes",
        beyond=tuple(_beyond(options)),
    )
    command = _one(options, "proxycommand")
    given = () if question.identity is None else (question.identity,)  # ssh forgets one that is not there
    files = (_filled(path, bare, "$") for path in (*given, *options.get("identityfile", ())))
    return replace(
        bare,
        proxy_command=None if command is None or jumps else _filled(command, bare),
        identities=tuple(dict.fromkeys(_expanded(path) for path in files if path != "none")),
    )


_BEYOND = (
    ("CertificateFile", {""}),
    ("GSSAPIAuthentication", {"no"}),
    ("HostbasedAuthentication", {"no", "false"}),
    ("KnownHostsCommand", {""}),
    ("PKCS11Provider", {""}),
    ("ProxyUseFdpass", {"no"}),
    ("PubkeyAuthentication", {"yes", "true", "unbound", "host-bound"}),
    ("RevokedHostKeys", {""}),
    ("VerifyHostKeyDNS", {"no", "false"}),
)
"""Options that paramiko cannot honor, and the values with which it need not."""


def _beyond(options: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for name, harmless in _BEYOND:
        value = _one(options, name.lower())
        if value is not None and value not in harmless:
            yield name


def _one(options: Mapping[str, Sequence[str]], key: str) -> str | None:
    """Return an option's value, None where there is none."""
    value = options[key][0] if key in options else None
    return None if value == "none" and key != "identityagent" else value


def _paths(options: Mapping[str, Sequence[str]], key: str) -> tuple[str, ...]:
    """Return an option's files. They are absolute: what does not begin like one belongs to the one before."""
    found: list[str] = []
    for quoted, word in _WORDS.findall(_one(options, key) or ""):
        if quoted or not found or word.startswith(("/", "~")):
            found.append(quoted or word)
        else:
            found[-1] += f" {word}"
    return tuple(_expanded(path) for path in found)


def _expanded(path: str) -> str:
    return str(Path(path).expanduser())


def _filled(text: str, settings: SshSettings, variables: str = "") -> str:
    """Fill in ssh_config's tokens, and ``${VARIABLE}`` if `variables` says so."""
    here, host = socket.gethostname(), settings.name.rpartition("@")[2]
    values = {
        "%": "%",
        "d": str(Path.home()),
        "h": settings.address,
        "k": settings.host_key_alias or host,
        "L": here.partition(".")[0],
        "l": here,
        "n": host,
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


# ---------------------------------------------------------------- without an ssh program

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


def _read_files(question: _Question) -> dict[str, list[str]]:
    """Return the options of a host, in the form in which ``ssh -G`` prints them. Raise RequestError."""
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
            f"{own} cannot be read without ssh: {error}.",
            hint="Install ssh (openssh-client), which reads all of it.",
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
        """Return whether a Host or Match line is about the host."""
        text = "\n".join((*self.first, block, f"{_PROBE} yes"))
        return _PROBE in paramiko().SSHConfig.from_text(text).lookup(self.host)


def _lines(path: Path, reader: _Reader, *, needed: bool, depth: int = 0) -> Iterator[str]:
    """Yield a file's lines: those that it includes in their place, and then its own Host or Match again."""
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
