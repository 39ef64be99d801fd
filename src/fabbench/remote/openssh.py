"""Connections by the user's OpenSSH: through a master that the user has open, or through one of our own.

Ours supports all that OpenSSH does: host and user certificates, security keys, GSSAPI, PKCS#11. Its socket is
in a private folder. It never prompts, and ends with the connection or with fabbench.
"""

import itertools
import re
import shlex
import shutil
import threading
import time
from collections.abc import Iterator, Sequence

from fabbench.execution.background import BackgroundProcess, PrivateFolder
from fabbench.model.actions import action
from fabbench.model.errors import MachineError
from fabbench.remote import hostkeys
from fabbench.remote.auth import Tried, cut_off, from_file, refused
from fabbench.remote.channel import lost
from fabbench.remote.mux import MuxTransport, serves
from fabbench.remote.sockets import DroppedError
from fabbench.remote.ssh_config import SshSettings

_LOGIN_S = 30.0
_POLL_S = 0.02
_KEEPALIVE_S = 15
_MAX_QUOTED_LINES = 3
HOST_KEYS = (
    "sh",
    "-c",
    (
        "set -- $SSH_CONNECTION; ssh-keyscan -T 5 -p ${4:-22} -- ${3:-localhost} 2>/dev/null; "
        "cat /etc/ssh/ssh_host_*_key.pub 2>/dev/null; true"
    ),
)
"""Command that queries a host for its keys, over a checked connection: first sshd, then the usual files."""
_KINDS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")
_FIXED = (
    "BatchMode=yes",
    "ControlPersist=no",
    "UpdateHostKeys=no",
    "GlobalKnownHostsFile=/dev/null",  # included in UserKnownHostsFile here
    "ConnectionAttempts=1",
    f"ServerAliveInterval={_KEEPALIVE_S}",
    "ServerAliveCountMax=2",
    "TCPKeepAlive=yes",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "Tunnel=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "LogLevel=DEBUG1",  # names the host's key, and the user's keys that were tried
)
"""Options of a master in addition to those from the configuration."""


def reach(
    settings: SshSettings, *, accept_new: bool, jump: MuxTransport | None, closed: threading.Event
) -> MuxTransport:
    """Connect to a host, through the user's master if one answers.

    Raise MachineError, or DroppedError if another attempt may help. `closed` ends the attempt.
    """
    who = f"ssh {settings}"
    if settings.control_path is not None:
        try:
            transport = MuxTransport(settings.control_path, end=lambda: None)
        except (OSError, EOFError):
            action(who, f"no connection of yours at {settings.control_path} (any more)")
        else:
            action(who, f"OpenSSH, through your connection at {settings.control_path}")
            return transport
    action(who, f"OpenSSH ({settings.openssh})")
    return _start_master(settings, accept_new=accept_new, jump=jump, closed=closed)


def has_master(settings: SshSettings) -> bool:
    """Return whether the user has a connection to the host open."""
    return settings.control_path is not None and serves(settings.control_path)


def host_key(settings: SshSettings, lines: Sequence[str]) -> tuple[str, str]:
    """Return the type and the base64 of a host's key, from the output of `HOST_KEYS`. Raise MachineError."""
    keys: dict[str, str] = {}
    for line in lines:
        words = line.split()
        for kind, key in itertools.pairwise(words):
            if kind in _KINDS:
                keys.setdefault(kind, key)
    for kind in _KINDS:
        if kind in keys:
            return kind, keys[kind]
    raise MachineError(
        f"{settings} did not report the key of its sshd, which mpirun's ssh needs.",
        hint="Install ssh-keyscan there (openssh-client), or pass --mpi-ssh existing.",
    )


def master_command(settings: SshSettings, path: str, *, accept_new: bool, proxy: str | None) -> tuple[str, ...]:
    """Return the command of a master with its control socket at `path`, reaching its host by `proxy`."""
    return tuple(_words(settings, path, accept_new=accept_new, proxy=proxy))


def _words(settings: SshSettings, path: str, *, accept_new: bool, proxy: str | None) -> Iterator[str]:
    yield from ("ssh", "-M", "-N", "-T", "-x", "-a", "-S", path.replace("%", "%%"))
    if settings.config is not None:
        yield from ("-F", settings.config)
    yield from ("-l", settings.user, "-p", str(settings.port))
    for identity in settings.identities:
        yield from ("-o", f'IdentityFile="{identity}"'.replace("%", "%%"))
    for setting in (*_FIXED, *_settings(settings, accept_new=accept_new)):
        yield from ("-o", setting)
    if proxy is not None:
        yield from ("-o", f"ProxyCommand={proxy.replace('%', '%%')}")
    elif settings.proxy_command is None:
        yield from ("-o", "ProxyCommand=none")
    yield from ("--", settings.name.rpartition("@")[2])


def _settings(settings: SshSettings, *, accept_new: bool) -> Iterator[str]:
    """Yield the options from the configuration that apply to both clients, as resolved here."""
    files = " ".join(f'"{path}"'.replace("%", "%%") for path in settings.known_hosts) or "/dev/null"
    yield f"HostName={settings.address}"
    yield f"StrictHostKeyChecking={'accept-new' if accept_new else 'yes'}"
    yield f"UserKnownHostsFile={files}"
    yield f"HashKnownHosts={'yes' if settings.hash_names else 'no'}"
    yield f"IdentitiesOnly={'yes' if settings.identities_only else 'no'}"
    yield f"ConnectTimeout={_connect_s(settings)}"
    if settings.host_key_alias is not None:
        yield f"HostKeyAlias={settings.host_key_alias}"
    if settings.identity_agent is not None:
        yield f"IdentityAgent={settings.identity_agent}"
    if settings.forks:
        yield "ForkAfterAuthentication=no"


def _connect_s(settings: SshSettings) -> int:
    """Return how many seconds ssh waits for a connection, and for sshd's banner."""
    return max(1, round(settings.limits.connect_s))


def _proxy(settings: SshSettings, jump: MuxTransport | None) -> str | None:
    """Return the command that leads to a host: through the jump host's master, or the user's own."""
    if jump is None:
        return settings.proxy_command
    there = f"[{settings.address}]:{settings.port}"
    # If the master has exited, ssh would connect by itself, possibly as another user: prevent that.
    no_fallback = ("-o", "ControlMaster=no", "-o", "ProxyCommand=false", "-o", "BatchMode=yes")
    return shlex.join(("ssh", "-F", "none", "-S", jump.path, *no_fallback, "-W", there, "jump"))


def _start_master(
    settings: SshSettings, *, accept_new: bool, jump: MuxTransport | None, closed: threading.Event
) -> MuxTransport:
    """Start a master, and wait until it has logged in."""
    if shutil.which("ssh") is None:
        raise MachineError(
            f"{settings} requires OpenSSH, but ssh was not found on this machine.",
            hint="Install it (openssh-client), or use --ssh-client paramiko.",
        )
    folder = PrivateFolder()
    path = str(folder.path / "m")
    words = master_command(settings, path, accept_new=accept_new, proxy=_proxy(settings, jump))
    action("here", words)
    # No prompts, not even graphical ones.
    master = BackgroundProcess(words, folder, {"SSH_ASKPASS_REQUIRE": "never"})
    try:
        return _wait_for_login(settings, master, folder, closed)
    except BaseException:
        master.close()
        raise


def _wait_for_login(
    settings: SshSettings, master: BackgroundProcess, folder: PrivateFolder, closed: threading.Event
) -> MuxTransport:
    """Wait for the control socket, which a master makes once it has logged in."""
    limits, socket = settings.limits, folder.path / "m"
    started = time.monotonic()
    deadline = started + limits.connect_s + limits.handshake_s + _LOGIN_S
    while not socket.exists():
        if closed.wait(_POLL_S):
            raise lost(settings, "it was closed while connecting")
        if master.ended():
            raise failure(settings, master.stderr_lines())
        if time.monotonic() > deadline:
            raise MachineError(
                f"ssh has not logged in to {settings} within {time.monotonic() - started:.0f} s.",
                hint=f"Run ssh -v {settings.name} for details.",
            )
    try:
        return MuxTransport(str(socket), end=master.close)
    except (OSError, EOFError) as error:
        raise failure(settings, master.stderr_lines() or [str(error)]) from error


# ---------------------------------------------------------------- failures that ssh reports

_DROPPED = re.compile(r"(?:kex_exchange_identification|[Cc]onnection (?:closed|reset) by|banner exchange)")
_TOO_MANY = "Too many authentication failures"
_DENIED = re.compile(r"Permission denied \(([^)]*)\)")
_HOST_KEY = re.compile(r"(?<!matching )[Hh]ost key(?! type)|HOST (?:IDENTIFICATION|KEY)")
_SHOWN = re.compile(r"Server host key: (\S+) (SHA256:\S+)")
_OFFERED = re.compile(r"Offering public key: (.+) ([A-Z0-9-]+ SHA256:\S+)(.*)")
_HINT = "Check whether ssh {name} works without a prompt (ssh-add -l, klist)."
_DEBUG = "debug1: "
_GREETING = re.compile(r"banner line \d+: (.+)")
"""Lines that sshd may print before its version, but rarely does."""
_OFFENDING = re.compile(r"Offending .*?key in (.+):\d+")
_BANNER = "during banner exchange"
_SSH_ERRORS = (
    (
        "Stdio forwarding request failed",
        "is unreachable from its jump host {jump}",
        "The machine may be down, or the jump host's sshd forbids it (AllowTcpForwarding).",
    ),
    ("Connection refused", "refused the connection", "Check that sshd runs there, on that port."),
    (
        _BANNER,
        "accepted the connection and then sent nothing for {wait} s",
        "Check that sshd listens there, and that the machine is not hanging or still booting.",
    ),
    (
        "timed out",
        "did not answer within {wait} s",
        "The machine may be down, or a firewall (security group) drops packets to that port.",
    ),
    ("No route to host", "is unreachable: no route to host", "Check that it is up, and on a network you can reach."),
    (
        "Could not resolve hostname",
        "has no address: ssh cannot resolve host {address}",
        "Check the spelling, or add a HostName entry to your ssh configuration.",
    ),
)


def failure(settings: SshSettings, stderr: Sequence[str]) -> Exception:
    """Return the error of a master that could not log in, from its standard error."""
    details = [line.removeprefix(_DEBUG) for line in stderr if line.startswith(_DEBUG)]
    messages = [line for line in stderr if not line.startswith(_DEBUG)]
    aside = f" ssh says: {' '.join(messages[-_MAX_QUOTED_LINES:])}" if messages else ""
    text = " ".join(messages)
    if (denied := _DENIED.search(text)) is not None:
        return _refused(settings, denied[1].split(","), details)
    if _TOO_MANY in text:
        return cut_off(settings, _tried(settings, details))
    if _HOST_KEY.search(text):
        return _key_refusal(settings, details) or _not_trusted(settings, messages, aside)
    for words, reason, hint in _SSH_ERRORS:
        # For a host behind others, it is unknown which one accepted the connection.
        if words in text and not (words == _BANNER and (settings.jumps or settings.proxy_command)):
            jump = settings.jumps[-1] if settings.jumps else "(none)"
            sentence = reason.format(address=settings.address, jump=jump, wait=_connect_s(settings))
            return MachineError(f"{settings} {sentence}.{aside}", hint=hint)
    if messages and all(map(_DROPPED.search, messages if settings.proxy_command else messages[-1:])):
        if (greeting := next(filter(None, map(_GREETING.search, details)), None)) is None:
            return DroppedError(messages[-1])
        aside = f" It is not sshd: it printed {greeting[1]}"
    return MachineError(
        f"ssh negotiation with {settings} failed.{aside or ' It gave no reason.'}",
        hint=f"Run ssh -v {settings.name} for details.",
    )


def _key_refusal(settings: SshSettings, details: Sequence[str]) -> MachineError | None:
    """Return why the host's key is refused, as for paramiko, if the user's files show it."""
    # Lines of a ProxyCommand about its own connection come before.
    shown = [match for match in map(_SHOWN.search, details) if match]
    if not shown or hostkeys.authority(settings) is not None:
        return None
    kind, presented = shown[-1].groups()
    return hostkeys.distrusted(settings, kind, presented, accept_new=False)


def _not_trusted(settings: SshSettings, messages: Sequence[str], aside: str) -> MachineError:
    """Return the error of a host whose key is changed, revoked or unknown."""
    text = " ".join(messages)
    file = next(iter(settings.known_hosts), "known_hosts")
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in text:
        offending = next(filter(None, map(_OFFENDING.fullmatch, messages)), None)
        details = f". {offending[0]}." if offending else "."
        return hostkeys.changed(settings, details, offending[1] if offending else file)
    if "revoked" in text.lower():
        return MachineError(
            f"{settings} presented a host key that is revoked.{aside}",
            hint="Do not connect to this host; ask whoever revoked the key.",
        )
    return MachineError(
        f"{settings} is not in {file}, and no certificate authority there vouches for it.{aside}",
        hint=f"Connect once with ssh {settings.name}, or pass --accept-new-host-keys.",
    )


def _refused(settings: SshSettings, methods: Sequence[str], details: Sequence[str]) -> MachineError:
    """Return the error of a login that the host refused; it would accept `methods`."""
    tried = _tried(settings, details)
    if "publickey" in methods:
        tried.unusable.append(f"it accepts {', '.join(methods)}")
    return refused(settings, tried, methods, _HINT)


def _tried(settings: SshSettings, details: Sequence[str]) -> Tried:
    """Return the keys that ssh offered, and what was wrong with the others that it should have offered."""
    tried = Tried()
    for path in settings.identities:
        from_file(path, tried)
    for match in filter(None, map(_OFFERED.search, details)):
        name, key, source = match.groups()
        if source.endswith(" agent"):
            tried.refused.append(f"the agent's {name} ({key})")
        elif name not in tried.encrypted:  # else only its public half was offered
            tried.refused.append(f"{name} ({key})")
    return tried
