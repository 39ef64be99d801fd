"""Programs of one step on remote hosts; see `fabbench.execution.session.Session`."""

import contextlib
import itertools
import random
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from fabbench.execution.mpirun import MpiHosts
from fabbench.execution.session import (
    DEBUG,
    SOURCED,
    TIME_UP,
    FloodedError,
    Output,
    Program,
    Session,
    TimedOutError,
    exports,
    raise_when_late,
)
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.model.hosts import Host
from fabbench.model.plan import Command, Shape, Step
from fabbench.remote.host import RemoteHost
from fabbench.remote.parallel import map_hosts
from fabbench.remote.process import Batch, OutputQueue, ProcessEnded, RemoteProcess, WatchedFiles, follow

_ENV = "environment"  # File in the run's private directory with the variables that programs inherit from fabbench
MARK = "FABBENCH_JOB"  # The variable that every program of a run has in its environment
_WAKE_S = 0.25
_POLL_S = 0.02
_LAST_S = 5.0  # How long the last output is waited for
_MAX_LAST_LINES = 10_000
_STOP_S = 20.0
_PORTS = (32768, 60999)  # Linux's range for outgoing connections, which firewalls between hosts must allow
_FAST_TICK_S, _SLOW_TICK_S, _FAST_PHASE_S = 0.3, 2.0, 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldHosts:
    """The hosts of a run."""

    hosts: tuple[Host, ...]
    remotes: tuple[RemoteHost, ...]  # The same one for all virtual hosts of a machine
    agent: tuple[str, ...] = ()  # How mpirun reaches the other hosts; see `fabbench.execution.mpirun.MpiHosts`
    ended: threading.Event = field(default_factory=threading.Event)
    """Once set, threads that wait for lines are interrupted, as Ctrl-C does not reach them."""

    @property
    def machines(self) -> tuple[RemoteHost, ...]:
        """Return each machine once."""
        return tuple(dict.fromkeys(self.remotes))


class RemoteSession(Session):
    """A context manager: leaving it ends its programs."""

    _numbers = itertools.count(1)

    def __init__(self, held: HeldHosts, step: Step) -> None:
        self._held = held
        self._step = step
        self._number = next(RemoteSession._numbers)
        self._queue = OutputQueue()
        self._pending: deque[Output] = deque()  # Outputs to yield next
        self._programs: list[RemoteProcess] = []
        self._watched: list[WatchedFiles] = []
        self._listening: dict[tuple[RemoteProcess, int], threading.Event] = {}
        self._left = threading.Event()
        self._last_output = time.monotonic()
        self._watchdog = MpirunWatchdog(held.machines)
        self.folder = f"{held.remotes[0].folder}/s{self._number}"

    def __enter__(self) -> Self:
        if self._step.shape is Shape.MPI or self._step.files:
            machines = self._held.machines
            self._watched = [WatchedFiles(remote, self.folder, DEBUG, self._queue) for remote in machines]
            self._on_hosts(self._prepare)
            follow(self._tick, self._queue)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        if any(program.status is None for program in self._programs):
            self._end_programs()
        for watched in self._watched:
            watched.end()
        self._queue.leave()

    @override
    def mpi_hosts(self) -> MpiHosts:
        hosts, remotes = self._held.hosts, self._held.remotes
        if hosts[0].mpi is None:
            raise MachineError(f"mpirun not found on {hosts[0].name}.")
        interfaces = {host.interface for host in hosts}
        alone = len(self._held.machines) == 1
        return MpiHosts(
            mpi=hosts[0].mpi,
            addresses=("localhost",) if alone else tuple(host.address for host in hosts),
            agent=() if alone else self._held.agent,
            interface=interfaces.pop() if len(interfaces) == 1 and not alone else "",
            forward=tuple(sorted(remotes[0].has, reverse=True)),
            programs=hosts[0].programs,
            env={MARK: remotes[0].token, RANK: remotes[0].token},
        )

    @override
    def address(self, host: int) -> str:
        hosts = self._held.hosts
        if len(self._held.machines) == 1:
            return "127.0.0.1"
        if not hosts[host].address:
            raise MachineError(
                f"{hosts[host].name} did not report the address at which other hosts reach it.",
                hint="Pass its network interface with --interface.",
            )
        return hosts[host].address

    @override
    def free_port(self, host: int) -> int:
        """Choose a random port: if it is taken, the server reports it."""
        del host
        return random.SystemRandom().randint(*_PORTS)

    @override
    def exec(self, command: Command) -> RemoteProcess:
        host, remote = self._held.hosts[command.host], self._held.remotes[command.host]
        words = ["env"]
        for name in command.unset:
            words += ["-u", name]
        # mpirun's files are removed with the directory, even if it is killed.
        env = {MARK: remote.token, "TMPDIR": remote.folder, **command.env}
        words += [f"{name}={value}" for name, value in env.items()]
        words += [host.programs.get(command.argv[0], command.argv[0]), *command.argv[1:]]
        if command.inherited:
            path = f"{remote.folder}/{_ENV}"
            text = exports(command.inherited).encode("utf-8", "surrogateescape")
            remote.with_reconnect(lambda: remote.put({path: text}))
            words = [*SOURCED, path, *words]
        number = f"{self._number}.{len(self._programs)}"
        program = RemoteProcess(command.role or command.argv[0], remote, number, self._queue)
        self._programs.append(program)
        remote.with_reconnect(lambda: program.start(words))
        self._last_output = time.monotonic()
        return program

    @override
    def listens(self, program: Program, port: int) -> bool:
        """Return whether the agent has seen the program listen for connections."""
        remote = next(started for started in self._programs if started is program)
        if (remote, port) not in self._listening:
            listening = self._listening[remote, port] = threading.Event()

            def watch() -> None:
                pipe = remote.host.with_reconnect(lambda: remote.host.open("listens", remote.number, f"{port:04X}"))
                list(pipe.lines())
                if pipe.status == 0:
                    listening.set()

            follow(watch, self._queue)
        return self._listening[remote, port].is_set()

    @override
    def lines(
        self, *, until: Callable[[], bool] | None = None, silence_s: float | None = None, deadline: float | None = None
    ) -> Iterator[Output]:
        while not (until is not None and until()):
            if all(program.status is not None for program in self._programs):
                yield from self._last_lines(deadline)
                return
            # Conditions are checked per batch, which is small: what arrived and what ended counts.
            yield from self._next(_WAKE_S if until is None else _POLL_S)
            raise_when_late(self._last_output, silence_s, deadline)

    @override
    def stop(self, programs: Sequence[Program]) -> list[Output]:
        """End all programs of the session, and return their last output. Earlier output was consumed."""
        self._end_programs()
        last: list[Output] = []
        deadline = time.monotonic() + _LAST_S
        # The output is kept, and why it ends is known.
        with contextlib.suppress(MachineError, FloodedError):
            while any(program.status is None for program in programs) and time.monotonic() < deadline:
                last += self._next(_WAKE_S)
                if len(last) > _MAX_LAST_LINES:
                    break
        return last[:_MAX_LAST_LINES]

    # -- inside

    def _next(self, wait_s: float) -> Iterator[Output]:
        """Wait for a batch of output, and yield it. Raise the error of a thread that failed."""
        if not self._pending:
            self._take(wait_s)
        while self._pending:
            yield self._pending.popleft()

    def _take(self, wait_s: float) -> None:
        """Wait for a batch of output. Raise the error of a thread that failed."""
        if self._held.ended.is_set():
            raise KeyboardInterrupt
        for remote in self._held.machines:
            if remote.lost is not None:
                raise remote.lost
        item = self._queue.get(wait_s)
        if item is None:
            return
        self._last_output = time.monotonic()
        if isinstance(item, Exception):
            raise item
        if isinstance(item, ProcessEnded):
            item.program.status = item.status
            self._pending.append(Output(item.program, None))
        else:
            self._watchdog.observe(item.texts)
            self._pending.extend(Output(item.program, text) for text in item.texts)

    def _last_lines(self, deadline: float | None) -> Iterator[Output]:
        """Read the debug files to their ends. Raise TimedOutError at `deadline`."""
        if self._left.is_set() or not self._watched:
            return
        self._left.set()
        for watched in self._watched:
            watched.end()
        self._last_output = time.monotonic()
        while time.monotonic() - self._last_output < _LAST_S:
            over = all(watched.over.is_set() for watched in self._watched)
            last_output = self._last_output
            for output in self._next(0 if over else _POLL_S):
                yield output
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimedOutError(TIME_UP)
            if over and self._last_output == last_output:
                return

    def _prepare(self, index: int) -> None:
        """Create the directory of the step on one host, with its files."""
        remote = self._held.machines[index]
        remote.with_reconnect(self._watched[index].start)
        contents = {f"{self.folder}/{name}": text.encode() for name, text in self._step.files.items()}
        if contents:
            remote.with_reconnect(lambda: remote.put(contents))

    def _tick(self) -> None:
        """Check for new debug files, more often while ranks start, and end an mpirun that hangs."""
        started = time.monotonic()
        while not self._left.wait(_FAST_TICK_S if time.monotonic() - started < _FAST_PHASE_S else _SLOW_TICK_S):
            for watched in self._watched:
                watched.tick()
            if self._watchdog.has_hung():
                for program in self._programs:
                    program.hung_after_exit = True
                    self._queue.put(Batch(program, [HUNG_AFTER_EXIT]))
                self._end_programs()

    def _end_programs(self) -> None:
        """End all programs: first those fabbench started, so that mpirun ends its ranks; then the rest."""
        remotes = self._held.machines
        started = [index for index, remote in enumerate(remotes) if any(p.host is remote for p in self._programs)]
        others = [index for index in range(len(remotes)) if index not in started]
        for indices in (started, others if self._step.shape is Shape.MPI else []):
            self._on_hosts(self._stop_on, indices, raise_errors=False)

    def _stop_on(self, index: int) -> None:
        remote = self._held.machines[index]
        if remote.lost is None:
            remote.run("stop", timeout_s=_STOP_S)

    def _on_hosts(
        self, work: Callable[[int], None], indices: Sequence[int] | None = None, *, raise_errors: bool = True
    ) -> None:
        """Call `work` for several hosts at once. Raise the first failure if `raise_errors`."""
        chosen = range(len(self._held.machines)) if indices is None else indices
        done = map_hosts({str(index): index for index in chosen}, work)
        failure = next((result for result in done.values() if isinstance(result, MachineError)), None)
        if failure is not None and raise_errors:
            raise failure


# ---------------------------------------------------------------- mpirun that hangs after its ranks
#
# Open MPI 5.0's prterun does so about once in fifty launches. fabbench would wait for it until the silence
# counts as a fault, and a complete table would be worthless.

RANK = "FABBENCH_RANK"  # The variable that every rank has in its environment, but mpirun and its daemons do not
HUNG_AFTER_EXIT = "fabbench: all ranks have exited, but mpirun has not: it is terminated."
_QUIET_S = 10.0  # Silence before hosts are queried, and the interval between two queries, which have a small cost
_RANK_LINE = re.compile(r"\[[^\]]*,\d+\]<stdout>")


class MpirunWatchdog:
    """Detects that one mpirun hangs after all its ranks have exited."""

    def __init__(self, remotes: Sequence[RemoteHost]) -> None:
        self._remotes = remotes
        self._has_started = False
        self._quiet_since = time.monotonic()

    def observe(self, texts: Sequence[str]) -> None:
        """Read lines that were printed."""
        self._quiet_since = time.monotonic()
        self._has_started = self._has_started or any(map(_RANK_LINE.match, texts))

    def has_hung(self) -> bool:
        """Return whether ranks had started, none are left, and there was no output for a while."""
        if not self._has_started or time.monotonic() - self._quiet_since < _QUIET_S:
            return False
        self._quiet_since = time.monotonic()
        counts = map_hosts({remote.name: remote for remote in self._remotes}, _count)
        return all(count == 0 for count in counts.values())


def _count(remote: RemoteHost) -> int:
    try:
        return int(remote.run("ranks").out[0])
    except (IndexError, ValueError) as error:
        raise MachineError(f"{remote.name} did not report its ranks.") from error
