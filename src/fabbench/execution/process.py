"""Starting programs on this machine, and directories for their files.

Each program gets its own session, no standard input, and two pipes that are both read all the time. Leaving
the `Processes` block ends the programs and what they started, no matter what happened: a failure, Ctrl-C, a
program that ignores SIGTERM, floods its output or goes into the background. If fabbench itself is killed, the
kernel kills the programs that it started.

Everything happens in the calling thread. Use it from the main thread: when the thread that started a program
ends, the kernel takes that for the end of its parent. Programs that must outlive a thread are started by
`fabbench.execution.background`; no other module starts a program.
"""

import codecs
import contextlib
import ctypes
import fcntl
import os
import secrets
import select
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Self

from fabbench.execution.session import FloodedError, Output, Program, is_too_large, raise_when_late
from fabbench.model.actions import action
from fabbench.model.errors import MachineError

LONGEST_LINE = 1 << 20  # Characters after which a line without an end is passed on in pieces

_CHUNK = 1 << 16
_MAX_CHUNKS_AT_ONCE = 4


class LineDecoder:
    """Bytes in, lines out. Invalid UTF-8 becomes U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = ""

    def feed(self, chunk: bytes) -> list[str]:
        """Decode some bytes and return the lines that are complete now."""
        *lines, self._kept = (self._kept + self._decoder.decode(chunk)).split("\n")
        while len(self._kept) > LONGEST_LINE:
            lines.append(self._kept[:LONGEST_LINE])
            self._kept = self._kept[LONGEST_LINE:]
        return [line.removesuffix("\r") for line in lines]

    def rest(self) -> list[str]:
        """Return the last line if it has no end."""
        rest, self._kept = self._kept + self._decoder.decode(b"", final=True), ""
        return [rest] if rest else []


class Pipe:
    """One output of a program."""

    def __init__(self, program: Program, file: IO[bytes]) -> None:
        self.program = program
        self.file = file
        self.closed = False
        self.more = False  # Whether the last read returned data
        self._lines = LineDecoder()
        os.set_blocking(file.fileno(), False)

    def read(self) -> list[str]:
        """Read what is there, up to a chunk, and return the lines that are complete now."""
        try:
            chunk = os.read(self.file.fileno(), _CHUNK)
        except BlockingIOError:
            self.more = False
            return []
        self.more, self.closed = bool(chunk), not chunk
        return self._lines.feed(chunk) if chunk else self.rest()

    def rest(self) -> list[str]:
        """Return the last line if it has no end."""
        return self._lines.rest()


class Tail:
    """The lines, as they come, of the files in a directory whose names start with `prefix`, also new ones."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self._folder = folder
        self._prefix = prefix
        self._files: dict[str, tuple[int, LineDecoder]] = {}
        self.more = False  # Whether the last read left data unread

    def limited(self) -> list[str]:
        """Read as `read` does. Raise FloodedError once a file exceeds the size that is kept."""
        if any(is_too_large(os.fstat(opened).st_size) for opened, _ in self._files.values()):
            raise FloodedError
        return self.read()

    def read(self) -> list[str]:
        """Read some of the new data and return the lines that are complete now."""
        self.more = False
        with contextlib.suppress(FileNotFoundError):
            for name in sorted(os.listdir(self._folder)):  # noqa: PTH208 - names, many times a minute
                if name.startswith(self._prefix) and name not in self._files:
                    opened = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                    self._files[name] = (opened, LineDecoder())
        return [line for opened, lines in self._files.values() for line in self._grown(opened, lines)]

    def rest(self) -> Iterator[str]:
        """Yield the complete lines that have come until now."""
        yield from self.read()
        while self.more:
            yield from self.read()

    def close(self) -> None:
        """Close the files."""
        for opened, _ in self._files.values():
            os.close(opened)
        self._files.clear()

    def _grown(self, opened: int, decoder: LineDecoder) -> list[str]:
        lines: list[str] = []
        for _ in range(_MAX_CHUNKS_AT_ONCE):
            chunk = os.read(opened, _CHUNK)
            if not chunk:
                return lines
            lines += decoder.feed(chunk)
        self.more = True
        return lines


GRACE_S = 2.0  # How long a program has to exit after SIGTERM, before SIGKILL

_POLL_S = 0.02
_WAKE_S = 0.25  # rarely: fabbench must not take CPU time from what it measures
_MAX_LAST_LINES = 10_000
_MAX_LAST_CHUNKS = 1_000
_MARK = "FABBENCH_PROCESS"
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Process:
    """One program that was started."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], mark: str) -> None:
        self.name = name
        self.status: int | None = None  # As in `fabbench.execution.session.Program`
        self.handle = os.pidfd_open(popen.pid)  # A file descriptor that becomes readable when the program ends
        self._popen = popen
        self._mark = mark

    @property
    def pid(self) -> int:
        """The program's process id, which is also that of its session and group."""
        return self._popen.pid

    def ended(self) -> bool:
        """Return whether the program has ended. Until `reap` it stays a zombie, and its id is not reused."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return self.status is not None or os.waitid(os.P_PID, self.pid, flags) is not None

    def signal(self, number: int) -> None:
        """Send a signal to the program's group, unless it was reaped."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def reap(self) -> None:
        """Kill the program if it still runs, and any process that it left behind."""
        self.signal(signal.SIGKILL)
        _kill_marked(f"{_MARK}={self._mark}".encode())
        if self.status is None:
            status = self._popen.wait()
            self.status = status if status >= 0 else 128 - status


class Processes:
    """Programs that run together. A context manager: after it, none of them is running."""

    def __init__(self, also: Callable[[], Sequence[str]] = tuple) -> None:
        """Create it without programs; `also` is another source of lines, read a few times a second."""
        self._also = also
        self._processes: list[Process] = []
        self._selector = selectors.DefaultSelector()
        self._heard = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with _undisturbed():
            self.stop(self._processes)
            self._selector.close()

    def start(
        self, argv: Sequence[str], *, name: str = "", env: Mapping[str, str] | None = None, unset: Collection[str] = ()
    ) -> Process:
        """Start a program; `env` is added, `unset` removed. Raise MachineError if it cannot be started."""
        program = shutil.which(argv[0])
        if program is None:
            raise MachineError(
                f"{argv[0]} not found on this machine.", hint="Install it, or add its directory to PATH."
            )
        action("here", (*(f"{key}={value}" for key, value in (env or {}).items()), *argv))
        token = secrets.token_hex(8)
        kept = {key: value for key, value in os.environ.items() if key not in unset}
        with _undisturbed() as mask:
            try:
                # Python code in the child is safe as long as there are no threads here, and only it leaves
                # no window in which fabbench can die and the program live on.
                popen = subprocess.Popen(
                    [program, *argv[1:]],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    start_new_session=True,
                    env={**kept, **(env or {}), _MARK: token},
                    preexec_fn=_in_child(os.getpid(), mask),  # noqa: PLW1509
                )
            except OSError as failure:
                raise MachineError(f"{program} could not be started: {failure.strerror}.") from failure
            process = Process(name or argv[0], popen, token)
            self._processes.append(process)
            self._selector.register(process.handle, selectors.EVENT_READ, process)
            for file in (popen.stdout, popen.stderr):
                if file is not None:
                    self._selector.register(file, selectors.EVENT_READ, Pipe(process, file))
        self._heard = time.monotonic()
        return process

    def lines(
        self, *, until: Callable[[], bool] | None = None, silence_s: float | None = None, deadline: float | None = None
    ) -> Iterator[Output]:
        """Yield the lines of all programs as they come, and the end of each, until all have ended.

        `until` is called many times a second; once it is true, this returns. Raise TimedOutError if nothing
        was printed for `silence_s`, or at `deadline` (of time.monotonic()).
        """
        wait_s = _WAKE_S if until is None else _POLL_S
        while not (until is not None and until()):
            if all(process.status is not None for process in self._processes):
                return
            # Not checked within a batch, which is small: output that has come and programs that ended count.
            yield from self._next(wait_s)
            raise_when_late(self._heard, silence_s, deadline)

    def _next(self, wait_s: float) -> Iterator[Output]:
        """Wait for output, and yield what is there, up to a chunk of each pipe."""
        if also := self._also():
            self._heard = time.monotonic()
            yield from (Output(None, text) for text in also)
        for key, _ in self._selector.select(0 if also else wait_s):
            if isinstance(key.data, Process):
                yield from self._end(key.data)
            elif not key.data.closed:
                yield from (Output(key.data.program, text) for text in self._read(key.data))

    def stop(self, processes: Sequence[Process], *, grace_s: float = GRACE_S) -> list[Output]:
        """End programs with SIGTERM, after `grace_s` with SIGKILL. Return up to `_MAX_LAST_LINES` last lines."""
        running = [process for process in processes if process.status is None]
        for process in running:
            process.signal(signal.SIGTERM)
            process.signal(signal.SIGCONT)
        last: list[Output] = []
        deadline = time.monotonic() + grace_s
        while not all(process.ended() for process in running) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            for key, _ in self._selector.select(0):
                if isinstance(key.data, Pipe):
                    last += [Output(key.data.program, text) for text in self._read(key.data)]
                    del last[_MAX_LAST_LINES:]
        for process in running:
            last += self._end(process)
        return last

    def _end(self, process: Process) -> Iterator[Output]:
        """End what a program left behind, and yield its last lines and its end."""
        process.reap()
        # Nothing writes into the pipes any more: what they hold, and then their end, comes at once.
        self._selector.unregister(process.handle)
        os.close(process.handle)
        registered = [key.data for key in self._selector.get_map().values()]
        pipes = [pipe for pipe in registered if isinstance(pipe, Pipe) and pipe.program is process]
        texts = [text for pipe in pipes for text in self._read_all(pipe)]
        self._heard = time.monotonic()
        yield from (Output(process, text) for text in texts)
        yield Output(process, None)

    def _read(self, pipe: Pipe) -> list[str]:
        texts = pipe.read()
        if texts:
            self._heard = time.monotonic()
        if pipe.closed:
            self._close(pipe)
        return texts

    def _close(self, pipe: Pipe) -> None:
        pipe.closed = True
        self._selector.unregister(pipe.file)
        pipe.file.close()

    def _read_all(self, pipe: Pipe) -> Iterator[str]:
        for _ in range(_MAX_LAST_CHUNKS):
            yield from self._read(pipe)
            if pipe.closed or not pipe.more:
                break
        if not pipe.closed:
            yield from pipe.rest()
            self._close(pipe)


@contextlib.contextmanager
def _undisturbed() -> Iterator[Collection[signal.Signals]]:
    """Defer Ctrl-C and similar signals: from a start until it is recorded, and while ending programs."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield [signal.Signals(number) for number in mask]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; exit now if it has ended. Linux only."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def _in_child(parent: int, mask: Iterable[signal.Signals]) -> Callable[[], None]:
    """Return what the child does before exec: ask the kernel to end it with fabbench."""

    def prepare() -> None:
        end_with_parent(parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return prepare


def _kill_marked(mark: bytes) -> None:
    """Kill descendants that left their program's group: they still have its mark in their environment."""
    for _ in range(10):
        pids = [int(path.name) for path in Path("/proc").glob("[0-9]*") if _has_mark(int(path.name), mark)]
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(OSError):
                handle = os.pidfd_open(pid)
                try:
                    # Checked again now that the handle keeps the id from being reused.
                    if _has_mark(pid, mark):
                        signal.pidfd_send_signal(handle, signal.SIGKILL)
                        select.select([handle], [], [], GRACE_S)
                finally:
                    os.close(handle)


def _has_mark(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


_PREFIX = "fabbench-tmp-"  # Of these only: those of `fabbench.remote.host` and of scripts are named by a token


class TemporaryFolder:
    """A context manager: leaving it removes the directory, which is locked as long as it exists.

    The lock disappears with the process, however that ends. The next fabbench of the same user removes
    directories that are not locked.
    """

    def __init__(self) -> None:
        self.path = Path()
        self._lock = -1

    def __enter__(self) -> Self:
        """Create the directory. Raise MachineError if that fails."""
        try:
            remove_abandoned_folders()
            while not self._make():
                pass
        except OSError as error:
            raise unwritable_folder(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def _make(self) -> bool:
        """Create and lock a directory. Return False if another fabbench removed it as abandoned."""
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with contextlib.suppress(FileNotFoundError):
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with contextlib.suppress(OSError):  # file systems without locks
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            if self.path.exists():
                return True
            os.close(self._lock)
        return False


def unwritable_folder(error: OSError) -> MachineError:
    """Return the error for a temporary directory that is not writable."""
    return MachineError(
        f"Cannot write to {tempfile.gettempdir()}: {error.strerror}.",
        hint="Free some space, or set TMPDIR to another directory.",
    )


def remove_abandoned_folders() -> None:
    """Remove the user's directories that a killed process left behind, once per process."""
    with contextlib.suppress(OSError):
        _remove_abandoned(tempfile.gettempdir())


@cache
def _remove_abandoned(parent: str) -> None:
    for path in Path(parent).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.fstat(lock).st_uid == os.geteuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
