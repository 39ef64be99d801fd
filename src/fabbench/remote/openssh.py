"""Connections by the user's OpenSSH: through a master that the user has open, or our own.

The user's configuration, agent, certificates, security keys and jump hosts are ssh's business. Our
master's socket is in a private folder. It never prompts, and ends with the connection or with
fabbench.
"""

import re
import shlex
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from fabbench.execution.process import WILL, PipedProcess, kept, private_folder
from fabbench.execution.script.words import login_command
from fabbench.execution.waiting import moments
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.model.known_messages import explain
from fabbench.model.messages import action
from fabbench.model.plan import Words
from fabbench.remote.ssh_transport import (
    CONNECT_S,
    KEEPALIVE_S,
    DroppedError,
    SshHost,
    SshTransport,
)
from fabbench.remote.transport import PipedProgram, ProcessStream

_LOGIN_S = 60.0
_POLL_S = 0.02
_CHECK_S = 10.0
_GRACE_S = 2.0
_DIES_S = 0.5  # How long a master may outlive a connection that its programs know to be broken
_NO_PROMPT = {"SSH_ASKPASS_REQUIRE": "never"}  # BatchMode, for the graphical ones of jump hosts too
_OPTIONS = (
    "BatchMode=yes",
    "ControlPersist=no",
    "UpdateHostKeys=no",
    f"ConnectTimeout={CONNECT_S}",
    "ConnectionAttempts=1",
    f"ServerAliveInterval={KEEPALIVE_S}",
    "ServerAliveCountMax=2",
    "TCPKeepAlive=yes",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "Tunnel=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "LogLevel=ERROR",
)


class OpenSsh(SshTransport):
    """A connection by OpenSSH."""

    client = "openssh"

    def __init__(self, host: SshHost) -> None:
        super().__init__(host)
        self._master: PipedProcess | None = None
        self._folder = Path()  # Where its socket is
        self._control: Words = ()
        """The option that names our master's socket; empty: the user's configuration names it."""
        self._shared = False
        """Whether the connection is the user's own, which other programs may use too."""
        self._will: Sequence[str] = ()

    @property
    @override
    def alive(self) -> bool:
        if self._shared:
            return True  # That it ended shows when a program fails: see `failed`
        return self._master is not None and not self._master.ended()

    def words(self, *before: str) -> Words:
        """Return an ssh command up to the host's name. `before` are its first options."""
        given = self.host.options
        values = {
            "-F": given.ssh_config,
            "-l": None if "@" in self.name else given.user,  # user@host says it already
            "-p": given.port,
            "-i": given.identity,
        }
        words = ["ssh", *before]
        for flag, value in values.items():
            if value is not None:
                words += (flag, str(value))
        checking = "accept-new" if given.accept_new_host_keys else "yes"
        for option in (*_OPTIONS, f"StrictHostKeyChecking={checking}"):
            words += ("-o", option)
        return (*words, "-T", "--", self.name)

    @override
    def _connect(self) -> None:
        self._drop()
        self._control = ()  # So that the user's own master is asked, if there is one
        self._shared = self._master_answers()
        if self._shared:  # no login is needed
            action(self.where, "through your own connection (ControlMaster)")
            return
        self._folder = private_folder()
        socket = self._folder / "m"
        self._control = ("-S", str(socket).replace("%", "%%"))  # ssh replaces %h and the like
        words = self.words("-M", "-N", *self._control)  # A master, which runs nothing itself
        action("here", words)
        self._master = PipedProcess(kept(self._folder, words), _NO_PROMPT)
        deadline = time.monotonic() + _LOGIN_S
        while not socket.exists():
            why: Exception | None = None
            if self._closed.wait(_POLL_S):
                why = self.lost("it was closed while connecting")
            elif self._master.ended():
                why = failure(self.name, self._stderr_of(self._master))
            elif time.monotonic() > deadline:
                why = MachineError(
                    f"ssh has not logged in to {self.name} within {_LOGIN_S:g} s.",
                    hint=f"Run ssh -v {self.name} for details.",
                )
            if why is not None:
                self._drop()
                raise why
        self.leave_will(self._will)  # Again, after a reconnect: it was in the folder of the last

    @staticmethod
    def _stderr_of(master: PipedProcess) -> list[str]:
        """Return the standard error of a master that has ended; its children may hold it open."""
        text = b""
        # Not to its end, which children may delay: until nothing comes for a moment.
        while (received := master.receive(_POLL_S)) is not None and received[1]:
            text += received[1]
        lines = map(str.strip, text.decode("utf-8", "replace").splitlines())
        return list(filter(None, lines))

    def _master_answers(self) -> bool:
        """Return whether a master answers: the user's, or ours."""
        check = PipedProcess(self.words("-O", "check", *self._control), _NO_PROMPT)
        answers = check.wait(_CHECK_S) == 0
        check.close()
        return answers

    def _ssh_command(self, argv: Sequence[str]) -> Words:
        """Return the ssh command that runs a program there through the master."""
        words = self.words("-o", "ControlMaster=no", *self._control)
        return (*words, login_command(argv))

    @override
    def _start(self, argv: Sequence[str]) -> ProcessStream:
        failed = partial(self.failed, argv[0])
        return PipedProgram(self._ssh_command(argv), self, _NO_PROMPT, failed)

    @override
    def leave_will(self, argv: Sequence[str]) -> None:
        # In a file: what keeps the master runs it if the file is still there at fabbench's end.
        self._will = argv
        if argv and self._master is not None:  # Else no process here would run it
            command = shlex.join(self._ssh_command(argv))
            with suppress(OSError):  # then it is as if the machine had died
                (self._folder / WILL).write_text(f"exec {command}\n")

    def failed(self, program: str, stderr: Sequence[str]) -> MachineError | None:
        """Return why ssh ended with its status of failure; None if the status is the program's."""
        if self._closed.is_set():
            return self.lost("it is closed")
        if self._master is not None:
            # A master that dies with its connection ends shortly after its programs.
            for _ in moments(_DIES_S, _POLL_S):
                if self._master.ended():
                    break
        if self.alive and self._master_answers():
            if not any(_REFUSED in line for line in stderr):
                return None  # The connection is up: the status is the program's
            last = " ".join([*stderr][-2:])
            return MachineError(
                f"{self.name} did not start {program}: {last}",
                hint="sshd's MaxSessions may be too low (default: 10 programs per connection).",
            )
        self._shared = False  # The user's connection has ended, so this one is not alive
        return self.lost(" ".join([*stderr][-1:]))

    @override
    def _drop(self) -> None:
        self._shared = False
        if self._master is not None:
            (self._folder / WILL).unlink(missing_ok=True)
            self._master.end_input()  # the shell around it ends it then: see `kept`
            self._master.wait(_GRACE_S)
            self._master.close()
            shutil.rmtree(self._folder, ignore_errors=True)


# ---------------------------------------------------------------- failures that ssh reports

_REFUSED = "Session open refused by peer"
_DROPPED = re.compile(
    r"kex_exchange_identification|[Cc]onnection (?:closed|reset) by|banner exchange.*reset"
)
_NOISE = re.compile(
    r"@+|Warning: |\** *WARNING|IT IS POSSIBLE|Someone could|It is also|Please contact|"
    r"remove with:|ssh-keygen"
)
_REMOVE = re.compile(r"ssh-keygen .+")


def failure(name: str, stderr: Sequence[str]) -> Exception:
    """Return the error of a master that could not log in, from its standard error."""
    lines = [line.strip() for line in stderr]
    reasons = [line for line in lines if not _NOISE.match(line)]
    sentences = reasons or lines or ["it gave no reason"]
    if all(map(_DROPPED.search, sentences)):  # Otherwise, one gives a reason that will remain
        return DroppedError(sentences[-1])
    last = " ".join(sentences[-3:])
    last = last.removeprefix("ssh: ").rstrip(".")
    return MachineError(f"{name} cannot be reached by ssh: {last}.", hint=_hint(name, lines))


def _hint(name: str, lines: Sequence[str]) -> str:
    """Return what to do about a failure, in which ssh names the command that removes a host key."""
    commands = filter(None, map(_REMOVE.search, lines))
    remove = next((match[0] for match in commands), f"ssh-keygen -R {name}")
    text = " ".join(lines)
    why = explain("fabbench.remote", "failures.toml", "ssh", text, subject=name, remove=remove)
    return why.advice
