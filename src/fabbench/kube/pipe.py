"""Programs in pods, by the API's exec: what `fabbench.remote` needs of a connection, over WebSockets."""

import contextlib
import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fabbench.errors import MachineError
from fabbench.kube.client import AbsentError, Cluster, kubernetes, translated
from fabbench.pipes import Lines
from fabbench.remote.connection import Done, LostError
from fabbench.remote.way import GoneError

_STDIN, _STDOUT, _STDERR, _ERROR = 0, 1, 2, 3
_WAKE_S = 0.5
_LINGER_S = 1.0
_MOST_ERR = 1000
_REQUEST = re.compile(r'error sending request: \w+ "[^"]*": ')
"""What the API puts before a kubelet's words: the whole command."""
_NOT_NOW = re.compile(
    r"\bdial\b|\bEOF\b|connection (?:refused|reset)|broken pipe|time(?:d )?-?out|no route|"
    r"pod does not exist|container not found"
)
"""What is said where the kubelet cannot be reached, or has just started and knows no pods yet."""
# exec has no way to close a program's input: the program reads as many bytes as it is told.
_FED = 'head -c "$1" | { shift; exec "$@"; }'
# A kubelet that stops has the API say "Success" of programs that run on: each says itself how it ended.
_SAYING = '"$@"; set -- "$?"; echo "fabbench-exec: ended $1" >&2; exit "$1"'
_ENDED = re.compile(r"fabbench-exec: ended (\d+)$")


class PodPipe:
    """A program in a pod; see `fabbench.remote.pipe.Pipe`."""

    def __init__(self, stream: Any, name: str) -> None:
        self.status: int | None = None
        self.err: list[str] = []
        """The last lines of its standard error."""
        self._stream = stream
        self._name = name
        self._out, self._err = Lines(), Lines()
        self._sending = threading.Lock()

    def send(self, data: bytes) -> None:
        """Write to its standard input. Raises LostError."""
        try:
            with self._sending:
                self._stream.write_channel(_STDIN, data)
        except Exception as error:  # what the WebSocket library raises is not all of one kind
            raise lost(self._name, error) from error

    def lines(self, deadline: float = math.inf) -> Iterator[str]:
        """Give the lines of standard output as they come, until it ends. Raises LostError."""
        while True:
            try:
                open_still = self._stream.is_open()
                if open_still:
                    self._stream.update(timeout=_WAKE_S)
                out, err = self._read(_STDOUT), self._read(_STDERR)
            except Exception as error:  # the same
                raise lost(self._name, error) from error
            self.err += self._err.feed(err)
            del self.err[:-_MOST_ERR]
            yield from self._out.feed(out)
            if not open_still and not out and not err:
                break
            if time.monotonic() > deadline:
                raise TimeoutError
        yield from self._out.rest()
        self.err += self._err.rest()
        self._conclude()

    def close(self) -> None:
        """Let go of the program. It runs on, should it still be running."""
        with contextlib.suppress(Exception):
            self._stream.close()

    def _read(self, channel: int) -> bytes:
        data = self._stream.read_channel(channel) if self._stream.peek_channel(channel) else b""
        return data if isinstance(data, bytes) else data.encode()

    def _own_word(self) -> str:
        """Take what the program itself said of its end, if it did, from its standard error."""
        for index in reversed(range(len(self.err))):
            if said := _ENDED.search(self.err[index]):
                before = self.err[index][: said.start()]
                self.err[index : index + 1] = [before] if before else []
                return said[1]
        return ""

    def _conclude(self) -> None:
        """Read how it ended, which the API says last. Raises LostError where it does not."""
        told, own = self._read(_ERROR), self._own_word()
        try:
            status = json.loads(told)
        except ValueError as error:
            raise lost(self._name, "it ended without a word") from error
        causes = status.get("details", {}).get("causes", ())
        codes = [cause.get("message") for cause in causes if cause.get("reason") == "ExitCode"]
        if own or codes:
            self.status = int(own or codes[0])
            return
        if status.get("status") == "Success":
            raise lost(self._name, "the program there did not say that it ended")
        said = _REQUEST.sub("", str(status.get("message", told))).rstrip(".")
        if _NOT_NOW.search(said):
            raise lost(self._name, said)
        raise MachineError(f"No program could be run in the pod {self._name}: {said}.")


class PodConnection:
    """One container of a pod; see `fabbench.remote.connection.Connection`."""

    def __init__(self, cluster: Cluster, pod: str, container: str, why: Callable[[str], str] = str) -> None:
        """`why` says in sentences what became of a pod that does not run any more, from its name."""
        self.name = pod
        self._why = why
        self._cluster = cluster
        self._container = container
        self._pipes: list[PodPipe] = []
        self.host_key = ("", "")
        """The type and the base64 of the key of the pod's sshd, where it has one."""

    def connect(self) -> None:
        """See that the pod is there and runs. Raises GoneError where not, MachineError for no answer."""
        path = f"/api/v1/namespaces/{self._cluster.namespace}/pods/{self.name}"
        try:
            pod = self._cluster.get(path)
        except AbsentError:
            raise GoneError(self._why(self.name)) from None
        phase = pod.get("status", {}).get("phase")
        if phase != "Running" or pod.get("metadata", {}).get("deletionTimestamp"):
            raise GoneError(self._why(self.name))

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30) -> Done:
        """Run a program to its end. Raises LostError, and MachineError when it takes longer."""
        words = ("sh", "-c", _FED, "sh", str(len(stdin)), *argv) if stdin else tuple(argv)
        pipe = self.open(words)
        try:
            if stdin:
                pipe.send(stdin)
            out = list(pipe.lines(time.monotonic() + timeout_s))
        except TimeoutError:
            raise MachineError(
                f"{argv[0]} in {self.name} took longer than {timeout_s:g} s: it was given up."
            ) from None
        finally:
            pipe.close()
        return Done(-1 if pipe.status is None else pipe.status, out, list(pipe.err))

    def open(self, argv: Sequence[str]) -> PodPipe:
        """Start a program that runs on. Raises LostError, and MachineError where it cannot be started."""
        library = kubernetes()
        core = self._cluster.core()
        try:
            self.connect()
            with translated(f"exec in {self.name}"):
                stream = library.stream.stream(
                    core.connect_get_namespaced_pod_exec,
                    self.name,
                    self._cluster.namespace,
                    container=self._container,
                    command=["sh", "-c", _SAYING, "sh", *argv],
                    stdin=True,
                    stdout=True,
                    stderr=True,
                    tty=False,
                    binary=True,
                    _preload_content=False,
                )
        except GoneError as error:
            raise LostError(str(error), hint=error.hint) from error
        except MachineError as error:
            raise LostError(str(error), hint=error.hint) from error
        pipe = PodPipe(stream, self.name)
        self._pipes.append(pipe)
        return pipe

    def close(self) -> None:
        """Let go of all programs; they run on."""
        for pipe in self._pipes:
            pipe.close()
        self._pipes.clear()


def lost(name: str, why: object) -> LostError:
    """Say that a connection broke."""
    return LostError(
        f"The connection to the pod {name} broke: {str(why) or type(why).__name__}.",
        hint="Is the pod there, its node, the cluster's API?",
    )
