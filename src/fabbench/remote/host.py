"""A host with fabbench's agent on it (agent.sh) during a run.

The agent's directory holds all files of the run. A thread exchanges heartbeats with it: a host that
does not answer is reconnected, and given up after a while. Its programs keep running meanwhile; if
fabbench does not come back, the agent ends them.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fabbench.counters.snapshot import SNAPSHOT
from fabbench.execution.background import in_background
from fabbench.execution.session import FORWARDED, end_programs_script
from fabbench.model.errors import MachineError
from fabbench.model.known_messages import explain
from fabbench.model.plan import Words
from fabbench.model.templates import text_of
from fabbench.model.values import T
from fabbench.remote.transport import (
    Done,
    HostGoneError,
    LostError,
    ProcessStream,
    SilentHostError,
    Transport,
)

if TYPE_CHECKING:
    from fabbench.model.mappings import Names

_LEASES = 2
"""How long a host waits for fabbench, as a multiple of how long fabbench waits for the host."""
_MIN_LEASE_S = 6
_BEAT_S = 2.0
# Seconds without an answer after which a connection counts as broken, even if TCP reports none
_UNANSWERED_S = 15.0
_AGAIN_S = 0.5
AGENT_PREFIX = "fabbench-agent: "
FLOODED = f"{AGENT_PREFIX}flooded"  # What `watch` prints for a file that is too large
_HERE = f"{AGENT_PREFIX}here"  # The agent's first line; anything before it is from the login shell
# An agent that arrived incomplete, or cannot start, leaves no directory: nothing would ever remove
# it. A program there may be what a benchmark compiles as it runs.
_PUT = (
    'size=$1; shift; umask 077; mkdir "$1" && { timeout 60 cat >"$1/agent" && '
    '[ "$(wc -c <"$1/agent")" -eq "$size" ] && printf "#!/bin/sh\\n" >"$1/program" && '
    f'chmod 700 "$1/program" && {{ "$1/program" || {{ echo {AGENT_PREFIX}runs-nothing >&2; '
    'false; }; } && sh "$1/agent" start "$@" || '
    '{ status=$?; rm -rf "$1"; exit "$status"; }; }'
)
_STARTING_S = 30.0
_CLEANING_S = 30.0
_GONE_S = 10.0  # How long it may take until it is known that a host no longer exists


class UnwritableError(MachineError):
    """Nothing can be written on a host."""


def agent_script() -> str:
    """Return the text of the agent."""
    agent = text_of("fabbench.remote", "agent.sh")
    return f"{SNAPSHOT}{end_programs_script()}\n{agent}"


def after_login(lines: list[str]) -> list[str] | None:
    """Return what the agent printed after its first line; None: that is not among the lines."""
    for number, line in enumerate(lines, 1):
        if line.endswith(_HERE):  # what the login printed last may lack its newline
            return lines[number:]
    return None


class RemoteHost:
    """One host of a run."""

    def __init__(
        self,
        name: str,
        connection: Transport,
        *,
        token: str,
        lost_after_s: float,
        parent: int | None = None,
    ) -> None:
        """`parent` is the process with which everything ends at once: fabbench, on its machine."""
        self.name = name
        self.connection = connection
        self.token = token
        self.folder = f"/tmp/fabbench-{token}"  # noqa: S108 - made by mkdir with a random name and mode 0700
        self.forwarded: Names = ()  # The variables of `FORWARDED` that are set there
        self._seen_users: dict[str, float] = {}
        """User of another run of fabbench that is there → when it was last seen."""
        self.lost: MachineError | None = None  # Why the host was given up; None if it was not
        self.lease_s = max(math.ceil(_LEASES * lost_after_s), _MIN_LEASE_S)
        """Seconds without contact with fabbench after which the agent ends and removes all."""
        self._lost_after_s = lost_after_s
        self._parent = parent
        # Several before a host is given up: a late one is no reason.
        self._beat_s = min(_BEAT_S, lost_after_s / 4)
        self._last_answer = time.monotonic()
        self._why_down: MachineError | None = None  # Why it could not be reconnected
        self._up = threading.Event()  # Set while it answers
        self._closing = threading.Event()  # Set once it is to be cleaned up: nothing reconnects
        self._started = False  # Whether the agent may be there
        self._leftovers: Sequence[str] | None = None  # What clean-up left; None: it was not done
        self._working = threading.Lock()
        """Held while the agent is installed or removed: a partial install could not be removed."""

    def start(self) -> None:
        """Install the agent, and start the heartbeat. Raise MachineError."""
        with self._working:
            if self._closing.is_set():
                return  # An interrupt came first
            self._started = True
            # What runs there if fabbench is killed.
            self.connection.leave_will(self._agent_command("clean"))
            script = agent_script().encode()
            words = (
                self.folder,
                self.token,
                str(self.lease_s),
                str(self._parent or ""),
                *FORWARDED,
            )
            size = str(len(script))
            argv = self._marked("sh", "-c", _PUT, "sh", size, *words)
            put = self.connection.run(argv, stdin=script, timeout_s=_STARTING_S)
            self._started = not put.status  # The script removes an install that failed
        # Lines are `has VARIABLE`, or `other USER` of another run
        replies = [line.partition(" ")[::2] for line in self._checked(put).out]
        self.forwarded = tuple(name for word, name in replies if word == "has")
        for word, user in replies:
            if word == "other":
                self.note_other(user)
        self._last_answer = time.monotonic()
        self._up.set()
        for work in (self._keep_beating, self._watch_for_silence):
            in_background(work, name=self.name)

    def note_other(self, user: str) -> None:
        """Record that another run is seen there, and as whom."""
        if os.environ.get("FABBENCH_NEIGHBORS") != "ignore":
            self._seen_users[user] = time.monotonic()

    def others_there(self, since: float = 0.0) -> str:
        """Return as whom other runs of fabbench were there at `since` or later, with its name.

        Empty: none was. `since` is as of time.monotonic(). Between two heartbeats nobody looks: one
        seen shortly before counts too.
        """
        first = since - 2 * self._beat_s
        users = [*self._seen_users.items()]  # A copy: the heartbeat's thread adds to them
        seen = [user for user, when in users if when >= first]
        who = ", ".join(sorted(seen))
        return f"{self.name} (as {who})" if who else ""

    def run(self, mode: str, *words: str, stdin: bytes = b"", timeout_s: float = 30) -> Done:
        """Run one mode of the agent to its end. Raise MachineError if it fails."""
        argv = self._agent_command(mode, *words)
        return self._checked(self.connection.run(argv, stdin=stdin, timeout_s=timeout_s))

    def put(self, contents: Mapping[str, bytes]) -> None:
        """Write files: path → content. Raise MachineError if that fails."""
        # As the agent reads them: a line SIZE PATH, and so many bytes.
        texts = (
            b"%d %s\n%s" % (len(content), path.encode(), content)
            for path, content in contents.items()
        )
        self.run("put", stdin=b"".join(texts))

    def open(self, mode: str, *words: str) -> ProcessStream:
        """Start a mode of the agent that keeps running. Raise MachineError if it cannot start."""
        return self.connection.open(self._agent_command(mode, *words))

    def with_reconnect(self, work: Callable[[], T]) -> T:
        """Call `work`, and repeat it each time that the connection broke and is restored.

        Raise MachineError when the host is given up.
        """
        while True:
            try:
                return work()
            except LostError:
                self.wait_until_reconnected()

    def wait_until_reconnected(self) -> None:
        """Wait until the host answers again. Raise MachineError when it is given up."""
        # The heartbeat notices a broken connection no sooner than other threads.
        time.sleep(_AGAIN_S)
        while not self._up.wait(_AGAIN_S):
            if self._closing.is_set():
                raise LostError(f"{self.name} was released.")
            if self.lost is not None:
                raise self.lost

    def clean(self) -> Sequence[str]:
        """End the heartbeat and remove everything, once. Return sentences about what is left."""
        self._closing.set()
        with self._working:
            if self._leftovers is None:
                self._leftovers = self._remove_and_report() if self._started else ()
            return self._leftovers

    def _remove_and_report(self) -> Sequence[str]:
        """Remove everything. Return sentences about what is left; a failure is one of them."""
        try:
            left = self._remove_all()
        except HostGoneError as error:
            self.lost = error
            return ()  # Nothing is left of a pod that no longer exists: `lost` says it
        except MachineError as error:
            later = (
                f"Anything left there stops and is removed {self.lease_s} s after losing "
                "contact with fabbench."
            )
            return (f"{self.name} could not be cleaned up. {error} {later}",)
        # Lines are `left folder PATH` or `left processes PID …`
        return [
            f"On {self.name} {line.removeprefix('left ')} could not be removed." for line in left
        ]

    def _remove_all(self) -> Sequence[str]:
        """Have the agent remove everything, reconnecting for a while if necessary.

        Raise HostGoneError once it is known that the host no longer exists: of an evicted pod, the
        container is lost first.
        """
        if self.lost is not None:
            raise self.lost
        deadline = time.monotonic() + _GONE_S
        while True:
            try:
                if not self._up.is_set():
                    self.connection.connect()
                return self.run("clean", timeout_s=_CLEANING_S).out
            except LostError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_AGAIN_S)
                self._up.clear()  # So that it is connected anew: nothing else does it any more

    # -- the heartbeat

    def _keep_beating(self) -> None:
        """Send heartbeats and reconnect, until the end or until the host is given up."""
        while not self._closing.is_set() and self.lost is None:
            try:
                self._beat()
            except MachineError as error:
                self._why_down = error
            self._up.clear()
            self._reconnect()

    def _reconnect(self) -> None:
        """Try until it succeeds, until the end or until the host is given up."""
        while not self._closing.wait(_AGAIN_S) and self.lost is None:
            try:
                self.connection.close()
                self.connection.connect()
            except HostGoneError as error:
                self.lost = error
                return
            except MachineError as error:
                self._why_down = error
            else:
                return

    def _beat(self) -> None:
        """Send heartbeats, and read the answers."""
        pipe = self.open("beat")
        pipe.send(b"\n")
        for line in pipe.lines():
            word, _, user = line.partition(" ")
            if word == "other":  # the agent also says which other runs it sees
                self.note_other(user)
            if word != "beat":
                continue
            self._last_answer = time.monotonic()
            self._why_down = None
            self._up.set()
            if self._closing.wait(self._beat_s):
                return
            pipe.send(b"\n")

    def _watch_for_silence(self) -> None:
        """Close a connection that does not answer, which wakes its users; in the end give it up."""
        # So long a silence ends a connection, which is then made again; `_lost_after_s` the host.
        silent_too_long_s = min(_UNANSWERED_S, self._lost_after_s / 2)
        looked = time.monotonic()
        while self.lost is None and not self._closing.wait(self._beat_s / 2):
            looked_before = looked
            looked = time.monotonic()
            if looked - looked_before > 2 * self._beat_s:
                # fabbench itself was stopped: the answers of that time are yet to be read.
                self._last_answer = looked
            silent_s = looked - self._last_answer
            if silent_s > self._lost_after_s:
                cause = f" {self._why_down}" if self._why_down else ""
                self.lost = SilentHostError(
                    self.name,
                    f"No answer from {self.name} for {silent_s:.0f} s; giving up.{cause}",
                    hint="Check that the host and its network are up. Anything left there stops "
                    f"on its own {self.lease_s} s after losing contact with fabbench.",
                )
            if self.lost or (self._up.is_set() and silent_s > silent_too_long_s):
                self._up.clear()
                self.connection.close()

    def _agent_command(self, mode: str, *words: str) -> Words:
        return self._marked("sh", f"{self.folder}/agent", mode, self.folder, self.token, *words)

    def _marked(self, *words: str) -> Words:
        """Return the command that marks a program as the agent's: it ends with the agent."""
        return ("env", f"FABBENCH_AGENT={self.token}", *words)

    def _checked(self, done: Done) -> Done:
        """Return what a mode printed, without what the login printed. Raise its failure."""
        if done.status:
            raise self.failure(done.err, f"with status {done.status}")
        rest = after_login(done.out)
        return done if rest is None else replace(done, out=rest)

    def failure(self, stderr: Iterable[str], how: str) -> MachineError:
        """Return the error of the agent, from its standard error; `how` it exited, in words."""
        last = [line.removeprefix(AGENT_PREFIX) for line in stderr][-3:]  # Earlier: of the login
        why = explain(
            "fabbench.remote",
            "failures.toml",
            "agent",
            " ".join(last) or "no output",
            name=self.name,
            folder=self.folder,
            how=how,
            last="".join(last[-1:]),
        )
        kind = UnwritableError if why.code == "unwritable" else MachineError
        return kind(why.text, hint=why.advice or None)


def neighbors(machines: Iterable[RemoteHost], since: float = 0.0) -> tuple[str, ...]:
    """Return the machines on which fabbench ran at `since` or later, and as whom."""
    return tuple(filter(None, (each.others_there(since) for each in machines)))
