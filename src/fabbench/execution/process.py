"""Programs on this machine, started from any thread. No other module starts one.

They end with fabbench, however that ends: their pipes break. One that does not notice that, as
ssh's master, is `kept` by a shell, which waits for end of file on its standard input, then ends it
and removes its folder. Before that it has a second for what the file `WILL` there says, if there is
one: fabbench removes it if it ends by itself.
"""

import codecs
import ctypes
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from fabbench.model.errors import MachineError
from fabbench.model.mappings import Variables
from fabbench.model.plan import Words

LONGEST_LINE = 1 << 20  # Characters after which a line without an end is passed on in pieces


class LineDecoder:
    """Bytes in, lines out. Invalid UTF-8 becomes U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unfinished = ""  # The beginning of a line whose end has not come

    def feed(self, chunk: bytes) -> list[str]:
        """Decode some bytes and return the lines that are complete now."""
        text = self._unfinished + self._decoder.decode(chunk)
        *lines, self._unfinished = text.split("\n")
        while len(self._unfinished) > LONGEST_LINE:
            lines.append(self._unfinished[:LONGEST_LINE])
            self._unfinished = self._unfinished[LONGEST_LINE:]
        return [line.removesuffix("\r") for line in lines]

    def rest(self) -> list[str]:
        """Return the last line if it has no end."""
        rest = self._unfinished + self._decoder.decode(b"", final=True)
        self._unfinished = ""
        return [rest] if rest else []


_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def end_with_parent(parent: int) -> None:
    """On Linux, have the kernel kill this process when its parent ends; exit now if it has."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # zeros: not used
        if os.getppid() != parent:  # it ended before that: no signal will come
            os._exit(1)


_MAX_FOLDER_PATH = 40
"""Leaves room for the path of a socket in it: some systems allow 104 characters."""
_CHUNK = 1 << 16
SEND_S = 30.0
_GRACE_S = 2.0
WILL = "will"
# Signals go to the group, so that a ProxyCommand ends too. Ctrl-C does not reach the group. ssh may
# note a SIGTERM just before it waits for something: for up to 15 s then.
_KEEPER = """\
trap '' INT
exec 3<&0
(
    trap '' HUP TERM
    read -r _ <&3
    if [ -e "$0/will" ]; then
        sh "$0/will" 3<&- &
        will=$!
        (sleep 1; kill -KILL "$will") 3<&- &
        wait "$will"
    fi
    kill -TERM 0
    rm -rf "$0"
    sleep 0.3
    kill -KILL 0
) >/dev/null 2>&1 &
exec "$@" </dev/null 3<&- >/dev/null
"""


def private_folder() -> Path:
    """Make a directory that no other user can enter, with a path short enough for sockets in it.

    Raise MachineError.
    """
    usual = tempfile.gettempdir()
    try:
        short = usual if len(usual) <= _MAX_FOLDER_PATH else "/tmp"  # noqa: S108 - mkdtemp makes it safe
        return Path(tempfile.mkdtemp(prefix="fabbench-ssh-", dir=short))
    except OSError as error:
        raise MachineError(
            f"Cannot write to {usual}: {error.strerror}.",
            hint="Free some space, or set TMPDIR to another directory.",
        ) from error


def kept(folder: Path, argv: Sequence[str]) -> Words:
    """Return the command of a program that ends, with its folder, when its standard input does."""
    return ("/bin/sh", "-c", _KEEPER, str(folder), *argv)


Received: TypeAlias = tuple[bytes, bytes] | None
"""What came on standard output and on standard error; None: both have ended."""


class PipedProcess:
    """A program on pipes, which any thread may use. Ctrl-C does not reach it."""

    def __init__(self, argv: Sequence[str], env: Variables) -> None:
        """Start it with `env` added. Raise MachineError if it cannot be started."""
        try:
            self._popen = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,  # its own group: Ctrl-C does not reach it
                env={**os.environ, **env},
            )
        except OSError as error:
            raise MachineError(f"{argv[0]} could not be started: {error.strerror}.") from error
        out = self._popen.stdout
        err = self._popen.stderr
        assert self._popen.stdin and out and err  # noqa: PT018, S101 - pipes were requested
        self._input = self._popen.stdin
        os.set_blocking(self._input.fileno(), False)  # `send` itself waits for room, not for ever
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._out = out.fileno()
        self._err = err.fileno()
        self._outputs = {self._out: out, self._err: err}  # Those that have not ended
        self._poll = select.poll()
        for number in self._outputs:
            self._poll.register(number, select.POLLIN)

    def receive(self, timeout_s: float) -> Received:
        """Return what came on both outputs, after a wait if necessary; None at the end.

        Both are empty if nothing came in time, or if one of them has just ended.
        """
        with self._reading:
            if not self._outputs:
                return None
            received = {self._out: b"", self._err: b""}
            for number, _ in self._poll.poll(timeout_s * 1000):
                received[number] = os.read(number, _CHUNK)
                if not received[number]:
                    self._poll.unregister(number)
                    self._outputs.pop(number).close()
        return received[self._out], received[self._err]

    def send(self, data: bytes) -> None:
        """Write to its standard input. Raise TimeoutError, and OSError once it has ended."""
        with self._writing:
            writable = select.poll()
            writable.register(self._input, select.POLLOUT)
            while data:
                if not writable.poll(SEND_S * 1000):
                    raise TimeoutError(f"it accepted no input for {SEND_S:g} s")
                with suppress(BlockingIOError):
                    written = os.write(self._input.fileno(), data[:_CHUNK])
                    data = data[written:]

    def ended(self) -> bool:
        """Return whether it has ended."""
        return self._popen.poll() is not None

    def end_input(self) -> None:
        """Close its standard input."""
        with self._writing:
            self._input.close()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Return its status once it has ended: negative for a signal. None: not in time."""
        with suppress(subprocess.TimeoutExpired):
            return self._popen.wait(timeout_s)
        return None

    def close(self) -> None:
        """End its group and close its pipes: a thread that waits for its outputs gets their end."""
        if self._popen.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGTERM)
                if self.wait(_GRACE_S) is None:
                    os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()
        self.end_input()
        with self._reading:
            for number, output in self._outputs.items():
                self._poll.unregister(number)
                output.close()
            self._outputs = {}
