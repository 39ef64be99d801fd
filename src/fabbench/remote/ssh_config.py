"""The user's ssh configuration of hosts, as resolved by OpenSSH itself with ``ssh -G``.

Include, Match and tokens are correct because ssh evaluates them. Without an ssh program, the files are read
here. Call this while there are no threads: it starts programs.
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

_MAX_PROCESSES = 4
_QUERY_S = 60.0
_BEGIN = "fabbench: begin"
_END = "fabbench: end"
_QUERY_SCRIPT = f"""
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
    """How long a connection waits for each event, in seconds."""

    connect_s: float = 10.0
    """For a machine to accept a connection, over all of its addresses."""
    address_s: float = 3.0
    """Minimum for each of a machine's addresses."""
    handshake_s: float = 20.0
    """For the negotiation with sshd."""
    silence_s: float = 15.0
    """For a running program's output, before fabbench checks whether the machine still answers."""
    answer_s: float = 10.0
    """For the answer to that check."""
    back_off_s: float = 0.15
    """Before the second attempt; doubled before each further one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SshSettings:
    """The resolved ssh configuration of one host."""

    name: str
    """As the user named it."""
    address: str
    """HostName: a name for the resolver, or an IP address."""
    port: int
    user: str
    identities: tuple[str, ...]
    """Private key files, in the order to try them; some may not exist."""
    jumps: tuple["SshSettings", ...]
    """ProxyJump hosts, first hop first; each has the hops before it as its own jumps."""
    proxy_command: str | None
    """ProxyCommand, with its tokens filled in."""
    known_hosts: tuple[str, ...]
    """Files of host keys: the user's, then the machine's."""
    host_key_alias: str | None
    identities_only: bool
    identity_agent: str | None
    """A socket, ``SSH_AUTH_SOCK``, ``$VARIABLE`` or ``none``; None: from the environment."""
    hash_names: bool = False
    """HashKnownHosts: whether host names are hashed when a host key is recorded."""
    limits: TimeLimits = field(default_factory=TimeLimits, repr=False)
    config: str | None = None
    """Configuration file instead of ``~/.ssh/config``."""
    control_path: str | None = None
    """ControlPath, with its tokens filled in."""
    forks: bool = False
    """ForkAfterAuthentication."""
    unsupported: tuple[str, ...] = ()
    """Options in the configuration that paramiko cannot honor, such as ``CertificateFile``."""
    openssh: str = ""
    """Why OpenSSH connects; empty if paramiko does."""

    def __str__(self) -> str:
        """Return the user's name of the host, and its resolved address: ``node1 (ubuntu@10.0.0.1:22)``."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        via = f" via {self.jumps[-1].name}" if self.jumps else ""
        return f"{self.name} ({self.user}@{address}:{self.port}{via})"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Query:
    """A query of the configuration: a host name, and the options before it on ssh's command line."""

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
    """Resolve the settings of hosts and of their jump hosts, in the order of `names`.

    A user in a name (``ubuntu@node1``) takes precedence. `config` replaces ``~/.ssh/config``; `user`, `port`
    and `identity` override any file and, as with ssh, do not apply to jump hosts. Raise RequestError for
    input that ssh rejects, and MachineError if it hangs.
    """
    if not all(names):
        raise RequestError("A host name is empty.", hint="Use the name you would pass to ssh.")
    queries = [
        _Query(name=name, config=config, user=None if "@" in name else user, port=port, identity=identity)
        for name in names
    ]
    known: dict[_Query, Mapping[str, Sequence[str]]] = {}
    pending = list(dict.fromkeys(queries))
    while pending:
        known.update(_answers(pending))
        jumps = [jump for query in pending for jump in _jumps(query, known[query])]
        pending = [jump for jump in dict.fromkeys(jumps) if jump not in known]
    return tuple(_settings(query, known, (), (query.name,)) for query in queries)


def _answers(queries: Sequence[_Query]) -> dict[_Query, Mapping[str, Sequence[str]]]:
    """Run queries: option → values, as ``ssh -G`` prints them."""
    if shutil.which("ssh") is None:
        return {query: _read_files(query) for query in queries}
    groups: dict[tuple[str, ...], list[_Query]] = {}
    for query in queries:
        given = (query.config, query.user, query.port, query.identity)
        groups.setdefault(tuple("" if one is None else str(one) for one in given), []).append(query)
    answers: dict[_Query, Mapping[str, Sequence[str]]] = {}
    with Processes() as processes:
        parts = {}
        for options, group in groups.items():
            for start in range(min(_MAX_PROCESSES, len(group))):
                part = group[start::_MAX_PROCESSES]
                argv = ("sh", "-c", _QUERY_SCRIPT, "sh", *options, *(query.name for query in part))
                parts[processes.start(argv, name="ssh -G")] = (part, list[str]())
        try:
            for process, text in processes.lines(deadline=time.monotonic() + _QUERY_S):
                for source, (_, lines) in parts.items():
                    if source is process and text is not None:
                        lines.append(text)
        except TimedOutError as late:
            raise MachineError(
                f"ssh -G did not resolve your ssh configuration within {_QUERY_S:g} s.",
                hint="A Match exec, or CanonicalizeHostname with a slow name server, may be hanging.",
            ) from late
    for part, lines in parts.values():
        answers.update(zip(part, _blocks(part, lines), strict=True))
    return answers


def _blocks(queries: Sequence[_Query], lines: Iterable[str]) -> Iterator[Mapping[str, Sequence[str]]]:
    """Split the program's output into the answer to each query."""
    remaining = iter(queries)
    options: dict[str, list[str]] = {}
    output: list[str] = []
    for line in lines:
        if line == _BEGIN:
            options, output = {}, []
        elif line.startswith(_END):
            query = next(remaining)
            if line != f"{_END} 0":
                raise RequestError(
                    f"ssh rejects {query.name!r}: {' '.join(output) or 'no reason given'}",
                    hint=f"Run ssh -G {query.name}, and see man ssh_config.",
                )
            yield options
        else:
            key, _, value = line.partition(" ")
            options.setdefault(key, []).append(value)
            output.append(line)


def _jumps(query: _Query, options: Mapping[str, Sequence[str]]) -> list[_Query]:
    """Return the hosts of ProxyJump, in its order."""
    text = options.get("proxyjump", ("none",))[0]
    if text.lower() == "none":
        return []
    hops = []
    for hop in text.split(","):
        match = _JUMP.fullmatch(hop.strip())
        if match is None:
            raise RequestError(
                f"ProxyJump of {query.name} is {text!r}, but {hop.strip()!r} is not a valid host.",
                hint="Use [user@]host[:port], separated by commas.",
            )
        port = int(match["port"]) if match["port"] else None
        name = match["bare"] or match["name"]
        hops.append(_Query(name=name, config=query.config, user=match["user"], port=port))
    return hops


def _settings(
    query: _Query,
    known: Mapping[_Query, Mapping[str, Sequence[str]]],
    before: tuple[SshSettings, ...],
    trail: tuple[str, ...],
) -> SshSettings:
    """Build a host's settings from ssh's answers.

    `before`: the hops that a ProxyJump puts before it; `trail`: the hosts that led to it.
    """
    options = known[query]
    jumps = before
    if not before:
        for hop in _jumps(query, options):
            if hop.name in trail:
                raise RequestError(
                    f"ProxyJump is circular: {' → '.join((*trail, hop.name))}.",
                    hint=f"Add an entry for {hop.name} with ProxyJump none before the other entry.",
                )
            jump = _settings(hop, known, jumps, (*trail, hop.name))
            jumps = (*jump.jumps, jump)
    bare = SshSettings(
        name=query.name,
        address=_one(options, "hostname") or query.name.rpartition("@")[2],
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
        config=query.config,
        control_path=_one(options, "controlpath"),
        forks=_one(options, "forkafterauthentication") == "yes",
        unsupported=tuple(_unsupported(options)),
    )
    command = _one(options, "proxycommand")
    given = () if query.identity is None else (query.identity,)  # ssh -G omits a file that is missing
    files = (_expand_tokens(path, bare, "$") for path in (*given, *options.get("identityfile", ())))
    return replace(
        bare,
        proxy_command=None if command is None or jumps else _expand_tokens(command, bare),
        identities=tuple(dict.fromkeys(_expand_user(path) for path in files if path != "none")),
    )


_UNSUPPORTED = (
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
"""Options that paramiko cannot honor, and the values that need no support."""


def _unsupported(options: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for name, harmless in _UNSUPPORTED:
        value = _one(options, name.lower())
        if value is not None and value not in harmless:
            yield name


def _one(options: Mapping[str, Sequence[str]], key: str) -> str | None:
    """Return an option's value; None if it has none."""
    value = options[key][0] if key in options else None
    return None if value == "none" and key != "identityagent" else value


def _paths(options: Mapping[str, Sequence[str]], key: str) -> tuple[str, ...]:
    """Return an option's files. They are absolute: a word that is not absolute belongs to the one before."""
    paths: list[str] = []
    for quoted, word in _WORDS.findall(_one(options, key) or ""):
        if quoted or not paths or word.startswith(("/", "~")):
            paths.append(quoted or word)
        else:
            paths[-1] += f" {word}"
    return tuple(_expand_user(path) for path in paths)


def _expand_user(path: str) -> str:
    return str(Path(path).expanduser())


def _expand_tokens(text: str, settings: SshSettings, variables: str = "") -> str:
    """Expand ssh_config's tokens, and ``${VARIABLE}`` if `variables` is set."""
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
_MAX_DEPTH = 16
_PROBE = "fabbenchprobe"
_DEFAULTS: Mapping[str, Sequence[str]] = {
    "identityfile": tuple(f"{_FOLDER}/id_{kind}" for kind in ("rsa", "ecdsa", "ed25519")),
    "userknownhostsfile": (f"{_FOLDER}/known_hosts {_FOLDER}/known_hosts2",),
    "globalknownhostsfile": (f"{_SYSTEM}/ssh_known_hosts {_SYSTEM}/ssh_known_hosts2",),
}
_LINE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*?)\s*")
_WORD = re.compile(r'"([^"]*)"|(\S+)')


def _read_files(query: _Query) -> dict[str, list[str]]:
    """Return the options of a host, in the form that ``ssh -G`` prints. Raise RequestError."""
    name, _, host = query.name.rpartition("@")
    main = query.config or f"{_FOLDER}/config"
    files = [main] if query.config is not None else [main, f"{_SYSTEM}/ssh_config"]
    given = (("User", query.user or name or None), ("Port", query.port))
    first = ["Host *", *(f"{key} {value}" for key, value in given if value is not None)]
    try:
        lines = first[:]
        for file in files:
            lines += _lines(_path(file), _Reader(host, first), required=query.config is not None)
        values = paramiko().SSHConfig.from_text("\n".join(lines)).lookup(host)
    except (paramiko().SSHException, ImportError) as error:
        raise RequestError(
            f"{main} cannot be read without ssh: {error}.", hint="Install ssh (openssh-client), which reads all of it."
        ) from error
    options = {key: [value] if isinstance(value, str) else list(value) for key, value in values.items()}
    for key, defaults in _DEFAULTS.items():
        options.setdefault(key, list(defaults))
    options.setdefault("hostname", [host])
    return options


@dataclass(frozen=True, slots=True)
class _Reader:
    """The host that the files are read for."""

    host: str
    first: list[str]
    """Lines that take precedence over all others."""

    def matches(self, block: str) -> bool:
        """Return whether a Host or Match line matches the host."""
        text = "\n".join((*self.first, block, f"{_PROBE} yes"))
        return _PROBE in paramiko().SSHConfig.from_text(text).lookup(self.host)


def _lines(path: Path, reader: _Reader, *, required: bool, depth: int = 0) -> Iterator[str]:
    """Yield a file's lines, with included lines in place, and then the current Host or Match line again."""
    try:
        text = path.read_text("utf-8", "replace")
    except OSError as error:
        if required:
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
        elif depth < _MAX_DEPTH and reader.matches(block):
            for included in _included(match[2]):
                yield from _lines(included, reader, required=False, depth=depth + 1)
            yield block


def _included(text: str) -> Iterator[Path]:
    for quoted, bare in _WORD.findall(text):
        pattern = str(_path(quoted or bare))
        full = pattern if pattern.startswith("/") else str(_path(f"{_FOLDER}/{pattern}"))
        yield from (Path(found) for found in sorted(glob.glob(full)))  # noqa: PTH207 - an absolute pattern


def _path(text: str) -> Path:
    return Path(os.path.expanduser(text))  # noqa: PTH111 - ~ may be another user's
