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
from fabbench.remote.process import Batch, OutputQueue, ProcessEnded, RemoteProcess, Watched, follow

_ENV = "environment"
"""The file in the directory of a run, which is nobody else's, with what programs inherit from fabbench."""
MARK = "FABBENCH_JOB"
"""The variable that every program of a run has in its environment."""
_WAKE_S = 0.25
_POLL_S = 0.02
_LAST_S = 5.0
"""How long last words are waited for."""
_MOST_LAST_LINES = 10_000
_STOP_S = 20.0
_PORTS = (32768, 60999)
"""Where Linux takes ports for outgoing connections from: firewalls between hosts must let them through."""
_OFTEN_S, _SELDOM_S, _YOUNG_S = 0.3, 2.0, 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldHosts:
    """The hosts of a run."""

    hosts: tuple[Host, ...]
    remotes: tuple[RemoteHost, ...]
    agent: tuple[str, ...] = ()
    """How mpirun reaches the other hosts; see `fabbench.execution.mpirun.MpiHosts`."""
    ended: threading.Event = field(default_factory=threading.Event)
    """Once it is set, whoever waits for lines is interrupted: for threads, which Ctrl-C does not reach."""


class RemoteSession(Session):
    """A context: leaving it ends its programs."""

    _numbers = itertools.count(1)

    def __init__(self, held: HeldHosts, step: Step) -> None:
        self._held = held
        self._step = step
        self._number = next(RemoteSession._numbers)
        self._told = OutputQueue()
        self._read: deque[Output] = deque()
        """What is to be yielded next."""
        self._programs: list[RemoteProcess] = []
        self._watched: list[Watched] = []
        self._listening: dict[tuple[RemoteProcess, int], threading.Event] = {}
        self._left = threading.Event()
        self._heard = time.monotonic()
        self._ranks = MpirunWatchdog(held.remotes)
        self.folder = f"{held.remotes[0].folder}/s{self._number}"

    def __enter__(self) -> Self:
        if self._step.shape is Shape.MPI or self._step.files:
            self._watched = [Watched(remote, self.folder, DEBUG, self._told) for remote in self._held.remotes]
            self._everywhere(self._prepare)
            follow(self._tick, self._told)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        if any(program.status is None for program in self._programs):
            self._end_programs()
        for watched in self._watched:
            watched.end()
        self._told.leave()

    @override
    def mpi_hosts(self) -> MpiHosts:
        hosts, remotes = self._held.hosts, self._held.remotes
        if hosts[0].mpi is None:
            raise MachineError(f"mpirun not found on {hosts[0].name}.")
        interfaces = {host.interface for host in hosts}
        alone = len(hosts) == 1
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
        if len(hosts) == 1:
            return "127.0.0.1"
        if not hosts[host].address:
            raise MachineError(
                f"{hosts[host].name} did not report the address at which other hosts reach it.",
                hint="Pass its network interface with --interface.",
            )
        return hosts[host].address

    @override
    def free_port(self, host: int) -> int:
        """Choose a port by chance: should it be taken, the server says so."""
        del host
        return random.SystemRandom().randint(*_PORTS)

    @override
    def exec(self, command: Command) -> RemoteProcess:
        host, remote = self._held.hosts[command.host], self._held.remotes[command.host]
        words = ["env"]
        for name in command.unset:
            words += ["-u", name]
        # What mpirun keeps in files goes away with the directory, also when it is killed.
        env = {MARK: remote.token, "TMPDIR": remote.folder, **command.env}
        words += [f"{name}={value}" for name, value in env.items()]
        words += [host.programs.get(command.argv[0], command.argv[0]), *command.argv[1:]]
        if command.inherited:
            path = f"{remote.folder}/{_ENV}"
            text = exports(command.inherited).encode("utf-8", "surrogateescape")
            remote.again(lambda: remote.run("put", path, stdin=text))
            words = [*SOURCED, path, *words]
        number = f"{self._number}.{len(self._programs)}"
        program = RemoteProcess(command.role or command.argv[0], remote, number, self._told)
        self._programs.append(program)
        remote.again(lambda: program.start(words))
        self._heard = time.monotonic()
        return program

    @override
    def listens(self, program: Program, port: int) -> bool:
        """Return whether the agent has seen that the program waits for connections."""
        own = next(started for started in self._programs if started is program)
        if (own, port) not in self._listening:
            seen = self._listening[own, port] = threading.Event()

            def look() -> None:
                pipe = own.host.again(lambda: own.host.open("listens", own.number, f"{port:04X}"))
                list(pipe.lines())
                if pipe.status == 0:
                    seen.set()

            follow(look, self._told)
        return self._listening[own, port].is_set()

    @override
    def lines(
        self,
        *,
        until: Callable[[], bool] | None = None,
        silence_s: float | None = None,
        deadline: float | None = None,
    ) -> Iterator[Output]:
        while not (until is not None and until()):
            if all(program.status is not None for program in self._programs):
                yield from self._last_lines(deadline)
                return
            # Not looked at within a batch, which is small: what has come and who has ended counts.
            yield from self._next(_WAKE_S if until is None else _POLL_S)
            raise_when_late(self._heard, silence_s, deadline)

    @override
    def stop(self, programs: Sequence[Program]) -> list[Output]:
        """End all programs of the session, and give their last words: what came before is long gone."""
        self._end_programs()
        last: list[Output] = []
        deadline = time.monotonic() + _LAST_S
        # What is said is kept, and why it ends is known.
        with contextlib.suppress(MachineError, FloodedError):
            while any(program.status is None for program in programs) and time.monotonic() < deadline:
                last += self._next(_WAKE_S)
                if len(last) > _MOST_LAST_LINES:
                    break
        return last[:_MOST_LAST_LINES]

    # -- inside

    def _next(self, wait_s: float) -> Iterator[Output]:
        """Wait for a batch of output, and yield it. Raise what a thread failed with."""
        if not self._read:
            self._take(wait_s)
        while self._read:
            yield self._read.popleft()

    def _take(self, wait_s: float) -> None:
        """Wait for a batch of output. Raise what a thread failed with."""
        if self._held.ended.is_set():
            raise KeyboardInterrupt
        for remote in self._held.remotes:
            if remote.lost is not None:
                raise remote.lost
        told = self._told.get(wait_s)
        if told is None:
            return
        self._heard = time.monotonic()
        if isinstance(told, Exception):
            raise told
        if isinstance(told, ProcessEnded):
            told.program.status = told.status
            self._read.append(Output(told.program, None))
        else:
            self._ranks.heard(told.texts)
            self._read.extend(Output(told.program, text) for text in told.texts)

    def _last_lines(self, deadline: float | None) -> Iterator[Output]:
        """Read the debug files to their ends. Raise TimedOutError at `deadline`."""
        if self._left.is_set() or not self._watched:
            return
        self._left.set()
        for watched in self._watched:
            watched.end()
        self._heard = time.monotonic()
        while time.monotonic() - self._heard < _LAST_S:
            over = all(watched.over.is_set() for watched in self._watched)
            heard = self._heard
            for output in self._next(0 if over else _POLL_S):
                yield output
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimedOutError(TIME_UP)
            if over and self._heard == heard:
                return

    def _prepare(self, index: int) -> None:
        """Make the directory of the step on one host, with its files."""
        remote = self._held.remotes[index]
        remote.again(self._watched[index].start)
        for name, text in self._step.files.items():
            path = f"{self.folder}/{name}"
            remote.again(lambda path=path, text=text: remote.run("put", path, stdin=text.encode()))  # type: ignore[misc]

    def _tick(self) -> None:
        """Look for new debug files, often while ranks start; and end an mpirun that hangs."""
        begun = time.monotonic()
        while not self._left.wait(_OFTEN_S if time.monotonic() - begun < _YOUNG_S else _SELDOM_S):
            for watched in self._watched:
                watched.tick()
            if self._ranks.gone():
                for program in self._programs:
                    program.hung_after_exit = True
                    self._told.put(Batch(program, [HUNG_AFTER_EXIT]))
                self._end_programs()

    def _end_programs(self) -> None:
        """End what runs: first where fabbench started it, so that mpirun ends its ranks; then everywhere."""
        remotes = self._held.remotes
        started = [
            index for index, remote in enumerate(remotes) if any(p.host is remote for p in self._programs)
        ]
        others = [index for index in range(len(remotes)) if index not in started]
        for indices in (started, others if self._step.shape is Shape.MPI else []):
            self._everywhere(self._stop_on, indices, patient=False)

    def _stop_on(self, index: int) -> None:
        remote = self._held.remotes[index]
        if remote.lost is None:
            remote.run("stop", timeout_s=_STOP_S)

    def _everywhere(
        self, work: Callable[[int], None], indices: Sequence[int] | None = None, *, patient: bool = True
    ) -> None:
        """Do something for several hosts at once. Raises the first failure, unless told otherwise."""
        chosen = range(len(self._held.remotes)) if indices is None else indices
        done = map_hosts({str(index): index for index in chosen}, work)
        failure = next((result for result in done.values() if isinstance(result, MachineError)), None)
        if failure is not None and patient:
            raise failure


# ---------------------------------------------------------------- mpirun that hangs after its ranks
#
# Open MPI 5.0's prterun does so about once in fifty launches. It would be waited for until the silence counts
# as a fault, and a whole table would be worth nothing.

RANK = "FABBENCH_RANK"
"""The variable that every rank has in its environment, and mpirun and its daemons have not."""
HUNG_AFTER_EXIT = "fabbench: all ranks have exited, but mpirun has not: it is terminated."
_QUIET_S = 10.0
"""How long nothing is printed before hosts are asked, and between two times: asking costs them a little."""
_OF_A_RANK = re.compile(r"\[[^\]]*,\d+\]<stdout>")


class MpirunWatchdog:
    """The ranks of one mpirun."""

    def __init__(self, remotes: Sequence[RemoteHost]) -> None:
        self._remotes = remotes
        self._began = False
        self._quiet_since = time.monotonic()

    def heard(self, texts: Sequence[str]) -> None:
        """Take note of what was printed."""
        self._quiet_since = time.monotonic()
        self._began = self._began or any(map(_OF_A_RANK.match, texts))

    def gone(self) -> bool:
        """Return whether there were ranks, there are none now, and no output for a while."""
        if not self._began or time.monotonic() - self._quiet_since < _QUIET_S:
            return False
        self._quiet_since = time.monotonic()
        counts = map_hosts({remote.name: remote for remote in self._remotes}, _count)
        return all(count == 0 for count in counts.values())


def _count(remote: RemoteHost) -> int:
    try:
        return int(remote.run("ranks").out[0])
    except (IndexError, ValueError) as error:
        raise MachineError(f"{remote.name} did not report its ranks.") from error
