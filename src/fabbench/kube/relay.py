"""mpirun without sshd: what it asks of its agent in the first pod, fabbench runs in the others by exec.

mpirun calls the agent (relay.sh) as it would call ssh. The agent asks fabbench, through a program that
fabbench has running in the same pod, and gets the output and the exit status of the command. Nothing in the
pods needs the cluster's API.
"""

import base64
import contextlib
import threading
from collections.abc import Iterator, Mapping
from importlib.resources import files
from queue import SimpleQueue
from typing import TYPE_CHECKING

from fabbench.errors import MachineError
from fabbench.remote.connection import LostError
from fabbench.remote.host import RemoteHost
from fabbench.remote.program import Ended, RemoteProgram
from fabbench.remote.session import MARK

if TYPE_CHECKING:
    from fabbench.remote.program import Queue
    from fabbench.remote.way import Told

_FAILED = 255
"""What ssh ends with when it was no command that failed."""


@contextlib.contextmanager
def relayed(first: RemoteHost, by_address: Mapping[str, RemoteHost]) -> Iterator[tuple[str, ...]]:
    """Give the agent for an mpirun on `first` that reaches the hosts by these addresses.

    What it has started carries the run's mark, and ends with it. Raises MachineError.
    """
    relay = _Relay(first, by_address)
    relay.start()
    try:
        yield relay.agent
    finally:
        relay.close()


class _Relay:
    """The requests of one agent, each run by a thread of its own."""

    def __init__(self, first: RemoteHost, by_address: Mapping[str, RemoteHost]) -> None:
        self._first = first
        self._by_address = by_address
        self._script = f"{first.folder}/relay/relay.sh"
        self._folder = f"{first.folder}/relay"
        self._pipe: Told | None = None
        self._sending = threading.Lock()
        self._closing = threading.Event()
        self._asked: set[str] = set()
        self._ended: dict[str, int] = {}

    @property
    def agent(self) -> tuple[str, ...]:
        """The command in place of ssh."""
        return ("sh", self._script, self._folder)

    def start(self) -> None:
        """Put the agent there, and wait for its requests in a thread."""
        script = (files("fabbench.kube") / "relay.sh").read_bytes()
        self._first.run("put", self._script, stdin=script)
        lines = self._first.again(self._open)
        threading.Thread(target=lambda: self._serve(lines), daemon=True, name="fabbench relay").start()

    def close(self) -> None:
        """Take no more requests. What runs is ended with everything else of the run."""
        self._closing.set()
        if self._pipe is not None:
            self._pipe.close()

    def _open(self) -> Iterator[str]:
        self._pipe = self._first.connection.open(
            self._first.marked(("sh", self._script, "serve", self._folder))
        )
        lines = self._pipe.lines()
        if next(lines, "") != "ready":
            raise self._first.failure(self._pipe.err, "early")
        return lines

    def _serve(self, lines: Iterator[str]) -> None:
        """Take requests; where the connection broke, those again that are without an answer."""
        while not self._closing.is_set():
            try:
                with contextlib.suppress(LostError):
                    for line in lines:
                        self._take(line)
                if self._closing.is_set():
                    return
                self._first.wait()
                lines = self._first.again(self._open)
            except MachineError:
                return  # the host is given up, or let go: whoever waits for mpirun is told that too

    def _take(self, line: str) -> None:
        _, name, text = line.split(" ", 2)
        if name in self._ended:
            self._tell(name, f"ended {self._ended[name]}")
        elif name not in self._asked:
            self._asked.add(name)
            address, _, command = base64.b64decode(text).decode().partition("\n")
            work = (name, address, command.rstrip("\n"))
            threading.Thread(target=self._answer, args=work, daemon=True, name="fabbench relay").start()

    def _answer(self, name: str, address: str, command: str) -> None:
        """Run a command, and tell what it prints and how it ends."""
        try:
            self._ended[name] = self._run(name, address, command)
        except MachineError as error:
            self._tell(name, f"out fabbench: {error}")
            self._ended[name] = _FAILED
        self._tell(name, f"ended {self._ended[name]}")

    def _run(self, name: str, address: str, command: str) -> int:
        remote = self._by_address.get(address)
        if remote is None:
            raise MachineError(f"mpirun asks for {address}, which is no host of this run.")
        queue: Queue = SimpleQueue()
        program = RemoteProgram("mpirun's daemon", remote, f"relay-{name}", queue)
        env = (f"{MARK}={remote.token}", f"TMPDIR={remote.folder}")
        remote.again(lambda: program.start(("env", *env, "sh", "-c", command)))
        while True:
            told = queue.get()
            if isinstance(told, MachineError):
                raise told
            if isinstance(told, Exception):
                raise MachineError(f"{address} could not be followed: {told}.") from told
            if isinstance(told, Ended):
                return told.status
            self._tell(name, f"out {told.text}")

    def _tell(self, name: str, text: str) -> None:
        """Answer the agent. What does not get through is asked for again, but for output."""
        with self._sending, contextlib.suppress(LostError):
            if self._pipe is not None:
                self._pipe.send(f"{name} {text}\n".encode())
