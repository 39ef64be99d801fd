"""Starting programs on this machine. No other module starts one.

Each program gets a session of its own, no standard input, and two pipes that are both read all the time.
Leaving the `Processes` block ends them and what they started, whatever happened: a failure, Ctrl-C, a
program that ignores SIGTERM, floods its output or goes into the background. Should fabbench itself be killed,
the kernel kills the programs that it started.

Everything happens in the calling thread. Use it from the main thread: the kernel takes the end of the thread
that started a program for the end of its parent.
"""

import contextlib
import ctypes
import os
import secrets
import select
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from fabbench.errors import MachineError
from fabbench.pipes import Pipe
from fabbench.session import Output, TimedOutError

GRACE_S = 2.0
"""How long a program may take to end after SIGTERM, before SIGKILL."""

_POLL_S = 0.02
_WAKE_S = 0.25  # seldom: fabbench must not take time from what it measures
_MOST_LAST_LINES = 10_000
_MOST_LAST_CHUNKS = 1_000
_MARK = "FABBENCH_PROCESS"
_STOPPING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Process:
    """One program that was started."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], mark: str) -> None:
        self.name = name
        self.status: int | None = None
        """Exit status; negative: the signal that ended it. None: it has not ended."""
        self.handle = os.pidfd_open(popen.pid)
        """A file descriptor that becomes readable when the program ends."""
        self._popen = popen
        self._mark = mark

    @property
    def pid(self) -> int:
        """The program's process id, which is also that of its session and group."""
        return self._popen.pid

    def ended(self) -> bool:
        """Whether the program has ended. Until `reap` it stays a zombie, and its id its own."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return self.status is not None or os.waitid(os.P_PID, self.pid, flags) is not None

    def signal(self, number: int) -> None:
        """Send a signal to the program's group, unless it was reaped."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def reap(self) -> None:
        """Kill the program if it still runs, and what it left behind."""
        self.signal(signal.SIGKILL)
        _kill_marked(f"{_MARK}={self._mark}".encode())
        if self.status is None:
            self.status = self._popen.wait()


class Processes:
    """Programs that run together. A context manager: after it, none of them is running."""

    def __init__(self, also: Callable[[], Sequence[str]] = tuple) -> None:
        """Take another source of lines, to be asked a few times a second."""
        self._also = also
        self._processes: list[Process] = []
        self._selector = selectors.DefaultSelector()
        self._heard = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _undisturbed():
            self.stop(self._processes)
            self._selector.close()

    def start(
        self,
        argv: Sequence[str],
        *,
        name: str = "",
        env: Mapping[str, str] | None = None,
        unset: Collection[str] = (),
    ) -> Process:
        """Start a program. `env` is added to this process's environment, `unset` taken away from it.

        Raises MachineError when there is no such program, or it cannot be started.
        """
        program = shutil.which(argv[0])
        if program is None:
            raise MachineError(
                f"There is no program {argv[0]} on this machine.",
                hint="Install it, or add its folder to PATH.",
            )
        token = secrets.token_hex(8)
        kept = {key: value for key, value in os.environ.items() if key not in unset}
        with _undisturbed() as mask:
            try:
                # Python code in the child is safe as long as there are no threads here, and it alone leaves
                # no gap in which fabbench can die and the program live on.
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
        self,
        *,
        until: Callable[[], bool] | None = None,
        silence_s: float | None = None,
        deadline: float | None = None,
    ) -> Iterator[Output]:
        """Give the lines of all programs as they come, and the end of each, until all have ended.

        `until` is asked many times a second: once it is true, this returns. Raises TimedOutError when nothing
        was printed for `silence_s`, or at `deadline` (of time.monotonic()).
        """
        wait_s = _WAKE_S if until is None else _POLL_S
        while not (until is not None and until()):
            if all(process.status is not None for process in self._processes):
                return
            if also := self._also():
                self._heard = time.monotonic()
                yield from (Output(None, text) for text in also)
            for key, _ in self._selector.select(wait_s):
                if isinstance(key.data, Process):
                    yield from self._end(key.data)
                elif not key.data.closed:
                    for text in self._read(key.data):
                        yield Output(key.data.program, text)
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                raise TimedOutError("it had not ended when its time was up")
            if silence_s is not None and now - self._heard >= silence_s:
                raise TimedOutError(f"nothing was printed for {silence_s:g} s")

    def stop(self, processes: Sequence[Process], *, grace_s: float = GRACE_S) -> list[Output]:
        """End programs and all that they started: SIGTERM, and SIGKILL after `grace_s`.

        Gives their last words, as far as they are not a flood.
        """
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
                    del last[_MOST_LAST_LINES:]
        for process in running:
            last += self._end(process)
        return last

    def _end(self, process: Process) -> Iterator[Output]:
        """End what a program left behind, and give its last words."""
        process.reap()
        # Nobody writes into the pipes any more: what they hold, and then their end, comes at once.
        self._selector.unregister(process.handle)
        os.close(process.handle)
        found = [key.data for key in self._selector.get_map().values()]
        pipes = [pipe for pipe in found if isinstance(pipe, Pipe) and pipe.program is process]
        texts = [text for pipe in pipes for text in self._read_all(pipe)]
        self._heard = time.monotonic()
        yield from (Output(process, text) for text in texts)
        yield Output(process, None)

    def _read(self, pipe: "Pipe") -> list[str]:
        texts = pipe.read()
        if texts:
            self._heard = time.monotonic()
        if pipe.closed:
            self._selector.unregister(pipe.file)
            pipe.file.close()
        return texts

    def _read_all(self, pipe: "Pipe") -> Iterator[str]:
        for _ in range(_MOST_LAST_CHUNKS):
            yield from self._read(pipe)
            if pipe.closed or not pipe.more:
                break
        if not pipe.closed:
            yield from pipe.rest()
            pipe.closed = True
            self._selector.unregister(pipe.file)
            pipe.file.close()


@contextlib.contextmanager
def _undisturbed() -> Iterator[Collection[signal.Signals]]:
    """Put off Ctrl-C and its like: between a start and taking note of it, and while ending programs."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        yield [signal.Signals(number) for number in mask]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _in_child(parent: int, mask: Iterable[signal.Signals]) -> Callable[[], None]:
    """Give what the child does before it becomes the program: agree with the kernel to die with fabbench."""

    def prepare() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return prepare


def _kill_marked(mark: bytes) -> None:
    """Kill the descendants that left their program's group: they still have its mark in their environment."""
    for _ in range(10):
        pids = [int(path.name) for path in Path("/proc").glob("[0-9]*") if _has_mark(int(path.name), mark)]
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(OSError):
                handle = os.pidfd_open(pid)
                try:
                    # Looked at again now that the handle keeps the id from becoming another program's.
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
