"""Programs in pods, through the API's exec: a connection for `fabbench.remote`, over WebSockets."""

import contextlib
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fabbench.launchers import shorten
from fabbench.launchers.kubernetes.api import AbsentError, KubernetesApi
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.remote.transport import Done, HostGoneError, LostError, ProcessStream, Transport

_STDIN, _STDOUT, _STDERR, _ERROR = 0, 1, 2, 3
_REQUEST = re.compile(r'error sending request: \w+ "[^"]*": ')  # What the API puts before a kubelet's message
_TRANSIENT = re.compile(
    r"\bdial\b|\bEOF\b|connection (?:refused|reset)|broken pipe|time(?:d )?-?out|no route|"
    r"pod does not exist|container not found"
)
"""Messages when the kubelet cannot be reached, or has just started and knows no pods yet."""
# exec cannot close a program's input: the program gets the number of bytes to read.
_WITH_STDIN = 'head -c "$1" | { shift; exec "$@"; }'
# When a kubelet stops, the API reports "Success" for running programs: so each prints its exit status.
_PRINT_STATUS = '"$@"; set -- "$?"; echo "fabbench-exec: ended $1" >&2; exit "$1"'
_ENDED = re.compile(r"fabbench-exec: ended (\d+)$")


class PodPipe(ProcessStream):
    """A program in a pod. Until its lines are requested, it waits."""

    def __init__(self, stream: Any, name: str) -> None:
        super().__init__()
        self._stream, self.name = stream, name
        self._sending = threading.Lock()

    @override
    def send(self, data: bytes) -> None:
        try:
            with self._sending:
                self._stream.write_channel(_STDIN, data)
        except Exception as error:  # the WebSocket library's errors have no common base
            raise lost(self.name, error) from error

    @override
    def _receive(self, timeout_s: float) -> tuple[bytes, bytes] | None:
        try:
            is_open = self._stream.is_open()
            if is_open:
                self._stream.update(timeout=timeout_s)
            out, err = self._read(_STDOUT), self._read(_STDERR)
        except Exception as error:  # see `send`
            raise lost(self.name, error) from error
        return (out, err) if is_open or out or err else None

    @override
    def _exit_status(self) -> int:
        # The API reports last how it ended.
        return exit_status(self._read(_ERROR), self._take_printed_status(), self.name)

    @override
    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._stream.close()

    def _read(self, channel: int) -> bytes:
        data = self._stream.read_channel(channel) if self._stream.peek_channel(channel) else b""
        return data if isinstance(data, bytes) else data.encode()

    def _take_printed_status(self) -> str:
        """Remove the exit status from its standard error, and return it; empty if there is none."""
        for index in reversed(range(len(self.err))):
            if match := _ENDED.search(self.err[index]):
                before = self.err[index][: match.start()]
                del self.err[index]
                if before:
                    self.err.insert(index, before)
                return match[1]
        return ""


def exit_status(text: bytes, printed: str, name: str) -> int:
    """Return the exit status of a program in the pod `name`, from the API's last Status and what was `printed`.

    Raise LostError if neither has one, MachineError if the program could not be started.
    """
    try:
        status = json.loads(text)
    except ValueError as error:
        raise lost(name, "it exited without a message") from error
    # When containerd stops, the API reports neither: programs may keep running, or have more to print.
    if not isinstance(status, dict) or status.get("status") not in {"Success", "Failure"}:
        raise lost(name, f"it exited with {shorten(text.decode('utf-8', 'replace'))}")
    causes = (status.get("details") or {}).get("causes") or ()
    codes = [cause.get("message") for cause in causes if cause.get("reason") == "ExitCode"]
    if printed or codes:
        return int(printed or codes[0])
    if status["status"] == "Success":
        raise lost(name, "the program there did not report its exit")
    message = _REQUEST.sub("", str(status.get("message") or status.get("reason") or "no reason given"))
    if _TRANSIENT.search(message):
        raise lost(name, message.rstrip("."))
    raise MachineError(f"Cannot run a program in the pod {name}: {message.rstrip('.')}.")


class PodConnection(Transport):
    """One container of a pod."""

    def __init__(
        self, api: KubernetesApi, pod: str, container: str, explain_exit: Callable[[str], str] = str, *, uid: str = ""
    ) -> None:
        """`explain_exit` returns sentences on what happened to a pod, by name, that no longer runs.

        Another pod of the same name may replace it: `uid` tells them apart.
        """
        super().__init__(pod, f"exec {pod}")
        self._api, self._container, self._explain_exit, self._uid = api, container, explain_exit, uid

    @override
    def connect(self) -> None:
        """Check that the pod exists and runs. Raise HostGoneError if not, MachineError for no answer."""
        pod: Mapping[str, Any] = {}
        with contextlib.suppress(AbsentError):
            pod = self._api.read("Pod", self.name)
        phase, meta = pod.get("status", {}).get("phase"), pod.get("metadata", {})
        if phase != "Running" or meta.get("deletionTimestamp") or self._uid not in {"", meta.get("uid")}:
            raise HostGoneError(self._explain_exit(self.name))

    @override
    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30) -> Done:
        words = ("sh", "-c", _WITH_STDIN, "sh", str(len(stdin)), *argv) if stdin else argv
        return super().run(words, stdin=stdin, timeout_s=timeout_s)

    @override
    def _start(self, argv: Sequence[str]) -> PodPipe:
        try:
            self.connect()
            stream = self._api.exec(self.name, self._container, ("sh", "-c", _PRINT_STATUS, "sh", *argv))
        except MachineError as error:
            raise LostError(str(error), hint=error.hint) from error
        return PodPipe(stream, self.name)


def lost(name: str, cause: object) -> LostError:
    """Return the error for a broken connection."""
    why = str(cause).rstrip(".") or type(cause).__name__
    if isinstance(cause, TypeError | AttributeError):
        why = "it was closed"  # the client's socket is None then
    return LostError(
        f"The connection to the pod {name} broke: {why}.", hint="Check the pod, its node and the cluster's API."
    )
