"""One ssh connection: made as the user's configuration says, the host's key checked, nobody asked.

A login shell over there gets the command line. The shell may be any: sh, bash and zsh, but csh and fish too,
which read quotes, ``!``, backslashes and newlines in their own ways. Within single quotes they agree on all
other printable characters. So words of those go as they are; any others go in an encoding of harmless
characters, which a POSIX shell undoes there.
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
_NOT_ALIKE = re.compile(r"['!\\]")
_HARMLESS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 _./:,+=-")
# tr makes the backslash, the one between [ and ], so that the line needs none.
_UNDO = """exec sh -c 'eval "$(printf "$(printf %s "{}" | tr "#%@" "[-]")")"'"""


def command_line(argv: Sequence[str]) -> str:
    """Write words for the login shell. The program takes the shell's place.

    Raise RequestError for a word with a NUL character, which no program can get.
    """
    if any("\0" in word for word in argv):
        raise RequestError(
            f"An argument of the command {argv[0]!r} contains a NUL character.", hint="Remove it."
        )
    words = [_word(word) for word in argv]
    if None not in words:
        return " ".join(("exec", *(word for word in words if word is not None)))
    posix = " ".join(("exec", *(_posix(word) for word in argv)))
    return _UNDO.format("".join(_coded(byte) for byte in posix.encode("utf-8", "surrogateescape")))


def _word(word: str) -> str | None:
    """Write a word so that every shell reads it alike, if there is a way."""
    if _BARE.fullmatch(word):
        return word
    return f"'{word}'" if _QUOTABLE.fullmatch(word) and not _NOT_ALIKE.search(word) else None


def _posix(word: str) -> str:
    quoted = word.replace("'", "'\"'\"'")
    return f"'{quoted}'"


def _coded(byte: int) -> str:
    return chr(byte) if byte in _HARMLESS else f"%{byte:03o}"


__all__ = ["Connection", "Done", "LostError", "SshStream"]

_OPEN_S = 20.0
_TRIES = 8
_MOST_BACK_OFF_S = 3.0
_INPUT_POLL_S = 0.01
_FREE_POLL_S = 0.2
LONGEST_ANSWER = 16 << 20
"""Characters that a program may print which is run to its end: fabbench's own print much less."""
_PIECE = 1 << 15
_A_LINE = 60
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
    """The last lines, should there be very many."""


class AnswerLines:
    """The lines of a program that answers a question, and ends."""

    def __init__(self, who: str) -> None:
        """Take nothing yet. `who` is the machine, for the error."""
        self.lines: list[str] = []
        self._who = who
        self._size = 0

    def take(self, lines: Sequence[str]) -> None:
        """Take some lines. Raise MachineError where they are more than any answer has."""
        self.lines += lines
        # What a line takes in memory besides its text, too.
        self._size += sum(map(len, lines)) + _A_LINE * len(lines)
        if self._size > LONGEST_ANSWER:
            raise MachineError(
                f"{self._who} printed more than {LONGEST_ANSWER >> 20} MiB as an answer; giving up.",
                hint="Check what its login shell prints: ssh HOST true should print nothing.",
            )


class Connection:
    """A connection to one host. Its methods may be called from any thread."""

    def __init__(
        self, settings: SshSettings, *, accept_new: bool = False, via: "Connection | None" = None
    ) -> None:
        """`via` is the connection to the last of the host's jumps; left out, each gets one of its own.

        `accept_new` writes down the key of a host that is not known, instead of refusing it.
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
        """Takes the programs for which sshd allows no further channel on this connection."""
        self._no_second: MachineError | None = None
        """Why there can be no such connection."""

    @property
    def alive(self) -> bool:
        """Return whether the connection is there, as far as is known."""
        return self._transport is not None and self._transport.is_authenticated()

    @property
    def host_key(self) -> tuple[str, str]:
        """The type and the base64 of the key that the host showed, and that was checked.

        OpenSSH checks it, and tells nobody: the host is asked. Raise MachineError where it does not know.
        """
        if isinstance(self._transport, MuxTransport) and not self._host_key[0]:
            self._host_key = openssh.host_key(self.settings, self.run(openssh.HOST_KEYS).out)
        return self._host_key

    def connect(self) -> None:
        """Connect, unless that is done; anew, where the connection broke or was closed.

        Raise MachineError that says what was seen. Threads that wait for one attempt all get its failure.
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
        """Close the connection, and those to jump hosts that nobody else uses. Programs over there run on."""
        self._closed.set()
        self._drop()
        if self._next is not None:
            self._next.close()
        if self._via is not None:
            self._via.release(self)

    def release(self, user: "Connection") -> None:
        """Close a jump host's connection once nobody goes through it."""
        self._users.discard(user)
        if not self._users:
            self.close()

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30) -> Done:
        """Run a program to its end. Raise LostError, and MachineError when it takes longer than `timeout_s`.

        And where it prints more than fabbench's own programs do. The program may still be running then.
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
                # What a program left behind may hold its outputs open for ever.
                if pipe.closed or time.monotonic() > ended + _LINGER_S:
                    break
                pipe.wait(_POLL_S)
                self._in_time(deadline, argv)
        finally:
            pipe.close()
        return Done(-1 if pipe.status is None else pipe.status, out.lines, list(pipe.err))

    def open(self, argv: Sequence[str]) -> SshStream:
        """Start a program that runs on. Raise LostError, and MachineError where it cannot be started."""
        return apart(lambda: self._open(argv, _OPEN_S))

    def _open(self, argv: Sequence[str], timeout_s: float) -> SshStream:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return self._start(argv, timeout_s)
            except MachineError:
                # Programs of ours that end make room on a connection of the user's that has no second.
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
            # MaxSessions, 10 as sshd comes, counts for each connection, and others may use the user's own.
            if self._has_started or self._shared:
                return self._another().open(argv)
            raise MachineError(
                f"{self.settings} does not start programs: {error.text}.", hint=_NO_CHANNEL
            ) from error
        except (library.SSHException, EOFError, OSError) as error:
            # What paramiko says instead to the one of two threads whose refusal the other one was told.
            if "Unable to open channel" in str(error) and transport.is_active() and self._has_started:
                return self._another().open(argv)
            if transport.is_active() and "imeout" not in str(error):
                raise MachineError(
                    f"{self.settings} did not start {argv[0]}: {error}.", hint=_NO_CHANNEL
                ) from error
            raise lost(self.settings, error) from error
        self._has_started = True
        return SshStream(channel, self.settings, self.answers)

    def _another(self) -> "Connection":
        """Return the connection that is used when this one takes no more programs."""
        if self._no_second is not None:
            raise self._no_second
        with self._lock:
            if self._next is None:
                own = replace(self.settings, control_path=None)
                self._next = Connection(own, accept_new=self._accept_new, via=self._via)
        try:
            self._next.connect()
        except LostError:
            raise
        except MachineError as error:
            if self._shared:
                self._no_second = MachineError(
                    f"{self.settings} does not start programs. {error}", hint=_NO_SECOND
                )
                raise self._no_second from error
            raise
        return self._next

    @property
    def _shared(self) -> bool:
        """Whether this is a connection that the user made, and that others may use too."""
        return (
            isinstance(self._transport, MuxTransport) and self._transport.path == self.settings.control_path
        )

    def answers(self) -> bool:
        """Ask the host's sshd for a sign of life. Where none comes the connection is closed: it is broken."""
        transport = self._transport
        if transport is None or not transport.is_active():
            return False
        answered = threading.Event()

        def ask() -> None:
            try:
                transport.global_request("keepalive@openssh.com", wait=True)
            except Exception:  # noqa: BLE001 - whatever it is, it is no answer
                return
            if transport.is_active():
                answered.set()

        threading.Thread(target=ask, name="fabbench ssh keepalive", daemon=True).start()
        if not answered.wait(self.settings.limits.answer_s):
            self._drop()
        return answered.is_set()

    def _connect(self) -> None:
        """Connect, several times if sshd is busy."""
        action(f"ssh {self.settings}", "connect")
        begun = time.monotonic()
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
            # A random time, so that those who were turned away together do not come back together.
            back_off_s = min(self.settings.limits.back_off_s * 2**attempt, _MOST_BACK_OFF_S)
            self._closed.wait(back_off_s * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
        took = time.monotonic() - begun
        raise MachineError(
            f"{self.settings} closed the connection before login, {_TRIES} times in {took:.0f} s: {why}.",
            hint="Check that sshd listens there. It drops some of many concurrent connections (MaxStartups).",
        )

    def _by_paramiko(self) -> None:
        with self._carried() as carrier:
            self._host_key = log_in(
                carrier, self.settings, accept_new=self._accept_new, started=self._started
            )

    def _by_openssh(self) -> None:
        jump = None
        if self._via is not None and not openssh.has_master(self.settings):
            # All hops have the same client: see fabbench.remote.ssh_client.
            jump = cast("MuxTransport", self._jumped(self._via))
        self._no_second = None
        if self._transport is not None:
            self._transport.close()  # what is left of one that broke
        self._transport = openssh.reach(
            self.settings, accept_new=self._accept_new, jump=jump, closed=self._closed
        )
        if self._closed.is_set():
            self._drop()
            self._unless_closed()

    @contextmanager
    def _carried(self) -> Iterator[sockets.Carrier]:
        """Get to the host's sshd. What goes wrong from here on closes everything again."""
        try:
            self._carrier = carrier = self._reach()
            self._unless_closed()
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
        """Note that somebody goes through this jump host."""
        self._users.add(user)

    def transport(self) -> "Transport | MuxTransport":
        """Return paramiko's connection, or OpenSSH's. Raise LostError where there is none."""
        if self._transport is None:
            raise lost(self.settings, "it is closed")
        return self._transport

    def _opened(self, carrier: sockets.Carrier) -> None:
        self._carrier = carrier
        self._unless_closed()

    def _unless_closed(self) -> None:
        if self._closed.is_set():
            raise lost(self.settings, "it was closed while connecting")

    def _started(self, transport: "Transport") -> None:
        self._transport = transport

    def _drop(self) -> None:
        """End the connection from any thread. Who is in the middle of making it closes the socket."""
        if self._carrier is not None:
            sockets.shut(self._carrier)
        if self._transport is not None:
            self._transport.close()

    def _feed(
        self, pipe: SshStream, stdin: bytes, out: "AnswerLines", deadline: float, argv: Sequence[str]
    ) -> None:
        """Write a program's input while reading what it prints."""
        left = memoryview(stdin)
        while left:
            sent = pipe.send_some(bytes(left[:_PIECE]))
            left = left[sent:]
            out.take(pipe.read())
            if pipe.closed:
                return
            if not sent:
                pipe.wait(_INPUT_POLL_S)
            self._in_time(deadline, argv)
        pipe.end_input()

    def _in_time(self, deadline: float, argv: Sequence[str]) -> None:
        if time.monotonic() >= deadline:
            raise MachineError(
                f"{argv[0]} on {self.settings} timed out.",
                hint="The machine may be overloaded, or a file system there may hang.",
            )
