"""Programs in pods, by the API's exec: what `fabbench.remote` needs of a connection, over WebSockets.

mpirun needs no sshd: it calls an agent (exec_launch_agent.sh) as it would call ssh. The agent asks fabbench,
through a program that fabbench has running in the same pod, and gets the output and the exit status of the
command. Nothing in the pods needs the cluster's API.
"""

import base64
import contextlib
import json
import math
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import chain
from typing import TYPE_CHECKING, Any

from fabbench.execution.process import LineDecoder
from fabbench.launchers import shorten
from fabbench.launchers.kubernetes.api import AbsentError, KubernetesApi
from fabbench.model.actions import action
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.remote.allocation import all_well
from fabbench.remote.connection import AnswerLines, Done, LostError
from fabbench.remote.host import RemoteHost
from fabbench.remote.parallel import map_hosts
from fabbench.remote.process import OutputQueue, ProcessEnded, RemoteProcess
from fabbench.remote.session import MARK
from fabbench.remote.transport import GoneError, HostShell

if TYPE_CHECKING:
    from fabbench.remote.transport import ProcessStream

_STDIN, _STDOUT, _STDERR, _ERROR = 0, 1, 2, 3
_WAKE_S = 0.5
_LINGER_S = 1.0
_MOST_ERR = 1000
_MOST_WAITING = 200
"""Lines of a shell that nobody has asked for: then it waits."""
_REQUEST = re.compile(r'error sending request: \w+ "[^"]*": ')
"""What the API puts before a kubelet's words: the whole command."""
_NOT_NOW = re.compile(
    r"\bdial\b|\bEOF\b|connection (?:refused|reset)|broken pipe|time(?:d )?-?out|no route|"
    r"pod does not exist|container not found"
)
"""What is said where the kubelet cannot be reached, or has just started and knows no pods yet."""
# exec has no way to close a program's input: the program gets the number of bytes to read.
_FED = 'head -c "$1" | { shift; exec "$@"; }'
# A kubelet that stops has the API say "Success" of programs that run on: each says itself how it ended.
_SAYING = '"$@"; set -- "$?"; echo "fabbench-exec: ended $1" >&2; exit "$1"'
_ENDED = re.compile(r"fabbench-exec: ended (\d+)$")


class PodPipe:
    """A program in a pod; see `fabbench.remote.channel.SshStream`."""

    def __init__(self, stream: Any, name: str) -> None:
        self.status: int | None = None
        self.err: list[str] = []
        """The last lines of its standard error."""
        self._stream = stream
        self.name = name
        self._out, self._err = LineDecoder(), LineDecoder()
        self._sending = threading.Lock()

    def send(self, data: bytes) -> None:
        """Write to its standard input. Raise LostError."""
        try:
            with self._sending:
                self._stream.write_channel(_STDIN, data)
        except Exception as error:  # what the WebSocket library raises is not all of one kind
            raise lost(self.name, error) from error

    def lines(self) -> Iterator[str]:
        """Yield the lines of standard output as they come, until it ends. Raise LostError."""
        return chain.from_iterable(self.batches())

    def batches(self, deadline: float = math.inf) -> Iterator[list[str]]:
        """Yield the same lines, as many as come in one message. Raise TimeoutError at the deadline.

        As long as nobody asks for more, nothing is read from the connection: the program waits.
        """
        while True:
            try:
                open_still = self._stream.is_open()
                if open_still:
                    self._stream.update(timeout=_WAKE_S)
                out, err = self._read(_STDOUT), self._read(_STDERR)
            except Exception as error:  # the same
                raise lost(self.name, error) from error
            self.err += self._err.feed(err)
            del self.err[:-_MOST_ERR]
            if batch := self._out.feed(out):
                yield batch
            if not open_still and not out and not err:
                break
            if time.monotonic() > deadline:
                raise TimeoutError
        if rest := self._out.rest():
            yield rest
        self.err += self._err.rest()
        self._conclude()

    def close(self) -> None:
        """Close the stream. The program runs on."""
        with contextlib.suppress(Exception):
            self._stream.close()

    def _read(self, channel: int) -> bytes:
        data = self._stream.read_channel(channel) if self._stream.peek_channel(channel) else b""
        return data if isinstance(data, bytes) else data.encode()

    def _own_status(self) -> str:
        """Take the program's own exit status off its standard error; empty where it has none there."""
        for index in reversed(range(len(self.err))):
            if said := _ENDED.search(self.err[index]):
                before = self.err[index][: said.start()]
                self.err[index : index + 1] = [before] if before else []
                return said[1]
        return ""

    def _conclude(self) -> None:
        """Read how it ended, which the API says last. Raise LostError where it does not."""
        self.status = exit_status(self._read(_ERROR), self._own_status(), self.name)


def exit_status(text: bytes, own: str, name: str) -> int:
    """Return the exit status of a program in the pod `name`.

    `text` is the Status object that the API ends with, `own` what the program said of itself. Raise LostError
    where neither tells, MachineError where the program could not be started.
    """
    try:
        status = json.loads(text)
    except ValueError as error:
        raise lost(name, "it exited without a message") from error
    # Of programs in a containerd that stops the API says neither: they may run on, or have more to print.
    if not isinstance(status, dict) or status.get("status") not in {"Success", "Failure"}:
        raise lost(name, f"it exited with {shorten(text.decode('utf-8', 'replace'))}")
    causes = (status.get("details") or {}).get("causes") or ()
    codes = [cause.get("message") for cause in causes if cause.get("reason") == "ExitCode"]
    if own or codes:
        return int(own or codes[0])
    if status["status"] == "Success":
        raise lost(name, "the program there did not report its exit")
    said = _REQUEST.sub("", str(status.get("message") or status.get("reason") or "no reason given"))
    if _NOT_NOW.search(said):
        raise lost(name, said.rstrip("."))
    raise MachineError(f"Cannot run a program in the pod {name}: {said.rstrip('.')}.")


class PodConnection:
    """One container of a pod; see `fabbench.remote.connection.Connection`."""

    def __init__(
        self, api: KubernetesApi, pod: str, container: str, explain_gone: Callable[[str], str] = str
    ) -> None:
        """`why` says in sentences what became of a pod that does not run any more, from its name."""
        self.name = pod
        self._explain_gone = explain_gone
        self._api = api
        self._container = container
        self._pipes: list[PodPipe] = []
        self.host_key = ("", "")
        """The type and the base64 of the key of the pod's sshd, where it has one."""

    def connect(self) -> None:
        """See that the pod is there and runs. Raise GoneError where not, MachineError for no answer."""
        try:
            pod = self._api.read("Pod", self.name)
        except AbsentError:
            raise GoneError(self._explain_gone(self.name)) from None
        phase = pod.get("status", {}).get("phase")
        if phase != "Running" or pod.get("metadata", {}).get("deletionTimestamp"):
            raise GoneError(self._explain_gone(self.name))

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30) -> Done:
        """Run a program to its end. Raise LostError, and MachineError when it takes longer."""
        words = ("sh", "-c", _FED, "sh", str(len(stdin)), *argv) if stdin else tuple(argv)
        pipe = self.open(words)
        try:
            if stdin:
                pipe.send(stdin)
            out = AnswerLines(f"The pod {self.name}")
            for batch in pipe.batches(time.monotonic() + timeout_s):
                out.take(batch)
        except TimeoutError:
            raise MachineError(f"{argv[0]} in {self.name} timed out after {timeout_s:g} s.") from None
        finally:
            pipe.close()
        return Done(-1 if pipe.status is None else pipe.status, out.lines, list(pipe.err))

    def open(self, argv: Sequence[str]) -> PodPipe:
        """Start a program that runs on. Raise LostError, and MachineError where it cannot be started."""
        action(f"exec {self.name}", argv)
        try:
            self.connect()
            stream = self._api.exec(self.name, self._container, ("sh", "-c", _SAYING, "sh", *argv))
        except MachineError as error:
            raise LostError(str(error), hint=error.hint) from error
        pipe = PodPipe(stream, self.name)
        self._pipes.append(pipe)
        return pipe

    def close(self) -> None:
        """Close all streams; programs run on."""
        for pipe in self._pipes:
            pipe.close()
        self._pipes.clear()


def lost(name: str, explain_gone: object) -> LostError:
    """Return the error of a broken connection."""
    why = str(explain_gone).rstrip(".") or type(explain_gone).__name__
    return LostError(
        f"The connection to the pod {name} broke: {why}.",
        hint="Check the pod, its node and the cluster's API.",
    )


class PodShell(HostShell):
    """A POSIX shell in a pod."""

    def __init__(self, connection: PodConnection, arguments: Sequence[str] = ()) -> None:
        """Start it; `arguments` are those of its scripts. Raise MachineError."""
        self._pipe = connection.open(("sh", "-s", "--", *arguments))
        self._lines: queue.Queue[str | None] = queue.Queue(_MOST_WAITING)
        """Its lines; None: there are no more."""
        self._ended = False
        threading.Thread(target=self._listen, daemon=True, name="fabbench pod shell").start()

    @override
    def send(self, text: str) -> None:
        self._pipe.send(text.encode())

    @override
    def until(self, prefix: str, limit_s: float, count: int = 1) -> list[str]:
        deadline = time.monotonic() + limit_s
        found = AnswerLines(f"The pod {self._pipe.name}")
        while count > 0 and not self._ended:
            try:
                line = self._lines.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                break
            if line is None:
                self._ended = True
                break
            found.take((line,))
            count -= line.startswith(prefix)
        return found.lines

    def _listen(self) -> None:
        try:
            for line in self._pipe.lines():
                self._lines.put(line)
        except MachineError:
            pass  # no more lines come: whoever waits for them has a limit
        finally:
            self._lines.put(None)


_FAILED = 255
"""What ssh ends with when it was no command that failed."""


@contextlib.contextmanager
def exec_launch_agent(
    heads: Sequence[RemoteHost], by_address: Mapping[str, RemoteHost]
) -> Iterator[tuple[str, ...]]:
    """Yield the agent for an mpirun on any of the `heads` that reaches the hosts by these addresses.

    What it has started carries the run's mark, and ends with it. Raise MachineError.
    """
    relays = {head.name: _Relay(head, by_address) for head in heads}
    try:
        all_well(map_hosts(relays, _Relay.start))
        # All hosts have the same folder.
        yield relays[heads[0].name].agent
    finally:
        for relay in relays.values():
            relay.close()


class _Relay:
    """The requests of one agent, each run by a thread of its own."""

    def __init__(self, first: RemoteHost, by_address: Mapping[str, RemoteHost]) -> None:
        self._first = first
        self._by_address = by_address
        self._script = f"{first.folder}/relay/relay.sh"
        self._folder = f"{first.folder}/relay"
        self._pipe: ProcessStream | None = None
        self._sending = threading.Lock()
        self._closing = threading.Event()
        self._requested: set[str] = set()
        self._ended: dict[str, int] = {}

    @property
    def agent(self) -> tuple[str, ...]:
        """The command in place of ssh."""
        return ("sh", self._script, self._folder)

    def start(self) -> None:
        """Put the agent there, and wait for its requests in a thread."""
        script = (files("fabbench.launchers.kubernetes") / "exec_launch_agent.sh").read_bytes()
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
                return  # the host is given up, or let go: mpirun's stream raises it too

    def _take(self, line: str) -> None:
        _, name, text = line.split(" ", 2)
        if name in self._ended:
            self._send(name, f"ended {self._ended[name]}")
        elif name not in self._requested:
            self._requested.add(name)
            address, _, command = base64.b64decode(text).decode().partition("\n")
            work = (name, address, command.rstrip("\n"))
            threading.Thread(target=self._answer, args=work, daemon=True, name="fabbench relay").start()

    def _answer(self, name: str, address: str, command: str) -> None:
        """Run a command, and send what it prints and how it ends."""
        try:
            self._ended[name] = self._run(name, address, command)
        except MachineError as error:
            self._send(name, f"out fabbench: {error}")
            self._ended[name] = _FAILED
        self._send(name, f"ended {self._ended[name]}")

    def _run(self, name: str, address: str, command: str) -> int:
        remote = self._by_address.get(address)
        if remote is None:
            raise MachineError(f"mpirun requested {address}, which is not a host of this run.")
        told = OutputQueue()
        program = RemoteProcess("mpirun's daemon", remote, f"relay-{name}", told)
        env = (f"{MARK}={remote.token}", f"TMPDIR={remote.folder}")
        remote.again(lambda: program.start(("env", *env, "sh", "-c", command)))
        try:
            return self._followed(name, address, told)
        finally:
            told.leave()

    def _followed(self, name: str, address: str, told: OutputQueue) -> int:
        while not self._closing.is_set():
            item = told.get(_WAKE_S)
            if isinstance(item, MachineError):
                raise item
            if isinstance(item, Exception):
                raise MachineError(f"{address} could not be followed: {item}.") from item
            if isinstance(item, ProcessEnded):
                return item.status
            for text in item.texts if item is not None else ():
                self._send(name, f"out {text}")
        return _FAILED

    def _send(self, name: str, text: str) -> None:
        """Send one line to the agent. It asks again for what is lost, but for output."""
        with self._sending, contextlib.suppress(LostError):
            if self._pipe is not None:
                self._pipe.send(f"{name} {text}\n".encode())
