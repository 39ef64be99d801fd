"""One ssh connection, made as the user configured it: checks the host's key, and never prompts.

The remote login shell gets the command line. It may be any shell: sh, bash and zsh, but also csh and fish,
which treat quotes, ``!``, backslashes and newlines differently. Within single quotes all agree on the other
printable characters. Words of only those are sent as they are; any others are encoded as harmless characters,
which a POSIX shell decodes there.
"""

import math
import random
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from fabbench.model.actions import action
from fabbench.model.errors import MachineError, RequestError
from fabbench.remote import openssh, sockets
from fabbench.remote.auth import log_in
from fabbench.remote.channel import LostError, SshStream, lost
from fabbench.remote.mux import MuxChannel, MuxTransport
from fabbench.remote.paramiko_library import apart, paramiko
from fabbench.remote.sockets import DroppedError
from fabbench.remote.ssh_config import SshSettings

if TYPE_CHECKING:
    from paramiko import Channel, Transport

_BARE = re.compile(r"[A-Za-z0-9_./:,+-][A-Za-z0-9_./:,+=@%-]*")
_QUOTABLE = re.compile(r"[ -~]*")
_AMBIGUOUS = re.compile(r"['!\\]")
_HARMLESS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 _./:,+=-")
# tr produces the backslash, the character between [ and ], so that the line needs none.
_DECODE = """exec sh -c 'eval "$(printf "$(printf %s "{}" | tr "#%@" "[-]")")"'"""


def command_line(argv: Sequence[str]) -> str:
    """Quote words for the login shell, which the program replaces.

    Raise RequestError for a word with a NUL character, which cannot be passed to a program.
    """
    if any("\0" in word for word in argv):
        raise RequestError(f"An argument of the command {argv[0]!r} contains a NUL character.", hint="Remove it.")
    words = [_word(word) for word in argv]
    if None not in words:
        return " ".join(("exec", *(word for word in words if word is not None)))
    posix = " ".join(("exec", *(_posix(word) for word in argv)))
    return _DECODE.format("".join(_encoded(byte) for byte in posix.encode("utf-8", "surrogateescape")))


def _word(word: str) -> str | None:
    """Quote a word so that every shell reads it alike; None if that is impossible."""
    if _BARE.fullmatch(word):
        return word
    return f"'{word}'" if _QUOTABLE.fullmatch(word) and not _AMBIGUOUS.search(word) else None


def _posix(word: str) -> str:
    quoted = word.replace("'", "'\"'\"'")
    return f"'{quoted}'"


def _encoded(byte: int) -> str:
    return chr(byte) if byte in _HARMLESS else f"%{byte:03o}"


__all__ = ["Connection", "Done", "LostError", "SshStream"]

_OPEN_S = 20.0
_TRIES = 8
_MAX_BACK_OFF_S = 3.0
_INPUT_POLL_S = 0.01
_FREE_POLL_S = 0.2
LONGEST_ANSWER = 16 << 20
"""Limit in characters for the output of a program that is run to its end: fabbench's own print much less."""
_CHUNK = 1 << 15
_LINE_OVERHEAD = 60
"""Bytes of memory that a line takes besides its text."""
_POLL_S = 0.2
_LINGER_S = 1.0
_NO_CHANNEL = "sshd's MaxSessions may be too low (default: 10 programs per connection)."
_NO_SECOND = (
    "sshd takes no more programs over your connection (MaxSessions; default: 10), and no second connection "
    "can be made without you. Raise MaxSessions there."
)


@dataclass(frozen=True, slots=True)
class Done:
    """A program that ran to its end."""

    status: int
    """Exit status; -1: ended by a signal."""
    out: list[str]
    err: list[str]
    """The last lines, if there are very many."""


class AnswerLines:
    """The lines of a program that answers a question, and ends."""

    def __init__(self, source: str) -> None:
        """Start without lines. `source` is the machine or command, for the error."""
        self.lines: list[str] = []
        self._source = source
        self._size = 0

    def take(self, lines: Sequence[str]) -> None:
        """Add lines. Raise MachineError if they exceed the size of any valid answer."""
        self.lines += lines
        self._size += sum(map(len, lines)) + _LINE_OVERHEAD * len(lines)
        if self._size > LONGEST_ANSWER:
            raise MachineError(
                f"{self._source} printed more than {LONGEST_ANSWER >> 20} MiB as an answer; giving up.",
                hint="Check what its login shell prints: ssh HOST true should print nothing.",
            )


class Connection:
    """A connection to one host. Its methods may be called from any thread."""

    def __init__(self, settings: SshSettings, *, accept_new: bool = False, via: "Connection | None" = None) -> None:
        """`via` is the connection to the host's last jump host; if omitted, a separate one is made.

        `accept_new` records the key of an unknown host instead of refusing it.
        """
        paramiko()
        self.settings = settings
        self._accept_new = accept_new
        if via is None and settings.jumps:
            via = Connection(settings.jumps[-1], accept_new=accept_new)
        self._via = via
        self._lock = threading.Lock()
        self._carrier: sockets.Carrier | None = None
        self._transport: Transport | MuxTransport | None = None
        self._host_key = ("", "")
        self._closed = threading.Event()
        self._users: set[Connection] = set()
        self._attempts = 0
        self._failure: MachineError | None = None
        self._has_started = False
        self._next: Connection | None = None
        """Runs the programs for which sshd allows no further channel on this connection."""
        self._no_second: MachineError | None = None
        """Why such a connection cannot be made."""

    @property
    def alive(self) -> bool:
        """Return whether the connection is up, as far as is known."""
        return self._transport is not None and self._transport.is_authenticated()

    @property
    def host_key(self) -> tuple[str, str]:
        """The type and the base64 of the key that the host presented, and that was checked.

        OpenSSH checks it but does not report it, so the host is queried. Raise MachineError if that fails.
        """
        if isinstance(self._transport, MuxTransport) and not self._host_key[0]:
            self._host_key = openssh.host_key(self.settings, self.run(openssh.HOST_KEYS).out)
        return self._host_key

    def connect(self) -> None:
        """Connect unless connected, also after the connection broke or was closed.

        Raise MachineError with the cause. All threads that wait for one attempt get its failure.
        """
        before = self._attempts
        with self._lock:
            if self.alive:
                return
            if self._attempts != before and self._failure is not None:
                raise self._failure
            self._attempts += 1
            self._closed.clear()
            self._failure = None
            try:
                self._connect()
            except MachineError as error:
                self._failure = error
                raise

    def close(self) -> None:
        """Close the connection, and those to jump hosts without other users. Remote programs keep running."""
        self._closed.set()
        self._drop()
        if self._next is not None:
            self._next.close()
        if self._via is not None:
            self._via.release(self)

    def release(self, user: "Connection") -> None:
        """Close a jump host's connection once no other connection uses it."""
        self._users.discard(user)
        if not self._users:
            self.close()

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30) -> Done:
        """Run a program to its end. Raise LostError, or MachineError if it takes longer than `timeout_s`.

        MachineError also if it prints more than `LONGEST_ANSWER`. The program may still be running then.
        """
        deadline = time.monotonic() + timeout_s
        pipe = apart(lambda: self._open(argv, min(timeout_s, _OPEN_S)))
        out = AnswerLines(str(self.settings))
        try:
            self._feed(pipe, stdin, out, deadline, argv)
            ended = math.inf
            while True:
                out.take(pipe.read())
                if pipe.has_status():
                    ended = min(ended, time.monotonic())
                # Processes that the program left behind may hold its outputs open forever.
                if pipe.closed or time.monotonic() > ended + _LINGER_S:
                    break
                pipe.wait(_POLL_S)
                self._check_deadline(deadline, argv)
        finally:
            pipe.close()
        return Done(-1 if pipe.status is None else pipe.status, out.lines, list(pipe.err))

    def open(self, argv: Sequence[str]) -> SshStream:
        """Start a program that keeps running. Raise LostError, or MachineError if it cannot be started."""
        return apart(lambda: self._open(argv, _OPEN_S))

    def _open(self, argv: Sequence[str], timeout_s: float) -> SshStream:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return self._start(argv, timeout_s)
            except MachineError:
                # On the user's connection, which has no second, programs of ours that end free channels.
                if self._no_second is None or not self.alive or time.monotonic() >= deadline:
                    raise
            self._closed.wait(_FREE_POLL_S)

    def _start(self, argv: Sequence[str], timeout_s: float) -> SshStream:
        library = paramiko()
        line = command_line(argv)
        action(f"ssh {self.settings}", argv)
        transport = self._transport
        if transport is None or not transport.is_active():
            raise lost(self.settings, "it is closed")
        try:
            channel: Channel | MuxChannel = transport.open_session(timeout=timeout_s)
            channel.exec_command(line)
        except library.ChannelException as error:
            # MaxSessions (default: 10) counts per connection, and other programs may use the user's own.
            if self._has_started or self._shared:
                return self._another().open(argv)
            raise MachineError(f"{self.settings} does not start programs: {error.text}.", hint=_NO_CHANNEL) from error
        except (library.SSHException, EOFError, OSError) as error:
            # With two threads, paramiko may report one's refusal to the other, and this to the first.
            if "Unable to open channel" in str(error) and transport.is_active() and self._has_started:
                return self._another().open(argv)
            if transport.is_active() and "imeout" not in str(error):
                raise MachineError(f"{self.settings} did not start {argv[0]}: {error}.", hint=_NO_CHANNEL) from error
            raise lost(self.settings, error) from error
        self._has_started = True
        return SshStream(channel, self.settings, self.answers)

    def _another(self) -> "Connection":
        """Return the connection for further programs once this one accepts no more."""
        if self._no_second is not None:
            raise self._no_second
        with self._lock:
            if self._next is None:
                settings = replace(self.settings, control_path=None)
                self._next = Connection(settings, accept_new=self._accept_new, via=self._via)
        try:
            self._next.connect()
        except LostError:
            raise
        except MachineError as error:
            if self._shared:
                self._no_second = MachineError(f"{self.settings} does not start programs. {error}", hint=_NO_SECOND)
                raise self._no_second from error
            raise
        return self._next

    @property
    def _shared(self) -> bool:
        """Whether this is the user's own connection, which other programs may use too."""
        return isinstance(self._transport, MuxTransport) and self._transport.path == self.settings.control_path

    def answers(self) -> bool:
        """Check whether the host's sshd answers. If not, the connection is broken, and closed."""
        transport = self._transport
        if transport is None or not transport.is_active():
            return False
        answered = threading.Event()

        def ask() -> None:
            try:
                transport.global_request("keepalive@openssh.com", wait=True)
            except Exception:  # noqa: BLE001 - any error means no answer
                return
            if transport.is_active():
                answered.set()

        threading.Thread(target=ask, name="fabbench ssh keepalive", daemon=True).start()
        if not answered.wait(self.settings.limits.answer_s):
            self._drop()
        return answered.is_set()

    def _connect(self) -> None:
        """Connect, with several attempts if sshd is busy."""
        action(f"ssh {self.settings}", "connect")
        started = time.monotonic()
        for attempt in range(_TRIES):
            try:
                if self.settings.openssh:
                    self._by_openssh()
                else:
                    self._by_paramiko()
            except DroppedError as error:
                why = error
            else:
                return
            # Jitter, so that connections that were dropped together do not return together.
            back_off_s = min(self.settings.limits.back_off_s * 2**attempt, _MAX_BACK_OFF_S)
            self._closed.wait(back_off_s * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
        took = time.monotonic() - started
        raise MachineError(
            f"{self.settings} closed the connection before login, {_TRIES} times in {took:.0f} s: {why}.",
            hint="Check that sshd listens there. It drops some of many concurrent connections (MaxStartups).",
        )

    def _by_paramiko(self) -> None:
        with self._carried() as carrier:
            self._host_key = log_in(carrier, self.settings, accept_new=self._accept_new, started=self._started)

    def _by_openssh(self) -> None:
        jump = None
        if self._via is not None and not openssh.has_master(self.settings):
            # All hops use the same client: see fabbench.remote.ssh_client.
            jump = cast("MuxTransport", self._jumped(self._via))
        self._no_second = None
        if self._transport is not None:
            self._transport.close()  # the remains of one that broke
        self._transport = openssh.reach(self.settings, accept_new=self._accept_new, jump=jump, closed=self._closed)
        if self._closed.is_set():
            self._drop()
            self._require_open()

    @contextmanager
    def _carried(self) -> Iterator[sockets.Carrier]:
        """Reach the host's sshd. Any error from here on closes everything."""
        try:
            self._carrier = carrier = self._reach()
            self._require_open()
            yield carrier
        except BaseException:
            self._drop()
            if self._carrier is not None:
                self._carrier.close()
            raise

    def _reach(self) -> sockets.Carrier:
        if self._via is not None:
            jump = cast("Transport", self._jumped(self._via))
            return sockets.through(jump, self.settings, self._via.settings)
        if self.settings.proxy_command is not None:
            return sockets.by_command(self.settings, self.settings.proxy_command)
        return sockets.over_tcp(self.settings, self._opened)

    def _jumped(self, via: "Connection") -> "Transport | MuxTransport":
        """Connect to the jump host."""
        via.hold(self)
        try:
            via.connect()
        except MachineError as error:
            raise MachineError(f"{self.settings} is behind a jump host. {error}", hint=error.hint) from error
        return via.transport()

    def hold(self, user: "Connection") -> None:
        """Note that a connection uses this jump host."""
        self._users.add(user)

    def transport(self) -> "Transport | MuxTransport":
        """Return paramiko's connection, or OpenSSH's. Raise LostError if there is none."""
        if self._transport is None:
            raise lost(self.settings, "it is closed")
        return self._transport

    def _opened(self, carrier: sockets.Carrier) -> None:
        self._carrier = carrier
        self._require_open()

    def _require_open(self) -> None:
        if self._closed.is_set():
            raise lost(self.settings, "it was closed while connecting")

    def _started(self, transport: "Transport") -> None:
        self._transport = transport

    def _drop(self) -> None:
        """End the connection, from any thread. A thread that is still making it closes the socket."""
        if self._carrier is not None:
            sockets.shut(self._carrier)
        if self._transport is not None:
            self._transport.close()

    def _feed(self, pipe: SshStream, stdin: bytes, out: "AnswerLines", deadline: float, argv: Sequence[str]) -> None:
        """Write a program's input while reading its output."""
        left = memoryview(stdin)
        while left:
            sent = pipe.send_some(bytes(left[:_CHUNK]))
            left = left[sent:]
            out.take(pipe.read())
            if pipe.closed:
                return
            if not sent:
                pipe.wait(_INPUT_POLL_S)
            self._check_deadline(deadline, argv)
        pipe.end_input()

    def _check_deadline(self, deadline: float, argv: Sequence[str]) -> None:
        if time.monotonic() >= deadline:
            raise MachineError(
                f"{argv[0]} on {self.settings} timed out.",
                hint="The machine may be overloaded, or a file system there may hang.",
            )
