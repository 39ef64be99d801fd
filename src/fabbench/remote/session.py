"""Programs of one step on remote hosts; see `fabbench.session.Session`."""

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

from fabbench.errors import MachineError
from fabbench.machines import Host
from fabbench.model import Command, Shape, Step
from fabbench.mpi import Spread
from fabbench.remote.host import RemoteHost
from fabbench.remote.pool import each
from fabbench.remote.program import Ended, Queue, RemoteProgram, Watched, follow
from fabbench.remote.ranks import LINGERS, RANK, Ranks
from fabbench.session import DEBUG, Output, Program, TimedOutError

MARK = "FABBENCH_JOB"
"""The variable that every program of a run has in its environment."""
_WAKE_S = 0.25
_POLL_S = 0.02
_LAST_S = 5.0
"""How long last words are waited for."""
_STOP_S = 20.0
_PORTS = (32768, 60999)
"""Where Linux takes ports for outgoing connections from: firewalls between hosts must let them through."""
_OFTEN_S, _SELDOM_S, _YOUNG_S = 0.3, 2.0, 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The hosts of a run."""

    hosts: tuple[Host, ...]
    remotes: tuple[RemoteHost, ...]
    agent: tuple[str, ...] = ()
    """How mpirun reaches the other hosts; see `fabbench.mpi.Spread`."""


class RemoteSession:
    """A context: leaving it ends its programs."""

    _numbers = itertools.count(1)

    def __init__(self, allocation: Allocation, step: Step) -> None:
        self._allocation = allocation
        self._step = step
        self._number = next(RemoteSession._numbers)
        self._queue: Queue = SimpleQueue()
        self._programs: list[RemoteProgram] = []
        self._watched: list[Watched] = []
        self._listening: dict[tuple[RemoteProgram, int], threading.Event] = {}
        self._left = threading.Event()
        self._heard = time.monotonic()
        self._ranks = Ranks(allocation.remotes)
        self.folder = f"{allocation.remotes[0].folder}/s{self._number}"

    def __enter__(self) -> Self:
        if self._step.shape is Shape.MPI or self._step.files:
            self._watched = [
                Watched(remote, self.folder, DEBUG, self._queue) for remote in self._allocation.remotes
            ]
            self._everywhere(self._prepare)
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

    def spread(self) -> Spread:
        """Say how mpirun gets to the hosts."""
        hosts, remotes = self._allocation.hosts, self._allocation.remotes
        if hosts[0].mpi is None:
            raise MachineError(f"mpirun cannot be found on {hosts[0].name}.")
        interfaces = {host.interface for host in hosts}
        alone = len(hosts) == 1
        return Spread(
            mpi=hosts[0].mpi,
            hosts=("localhost",) if alone else tuple(host.address for host in hosts),
            agent=() if alone else self._allocation.agent,
            interface=interfaces.pop() if len(interfaces) == 1 and not alone else "",
            forward=tuple(sorted(remotes[0].has, reverse=True)),
            programs=hosts[0].programs,
            env={MARK: remotes[0].token, RANK: remotes[0].token},
        )

    def address(self, host: int) -> str:
        """Give the address at which the other hosts reach a host."""
        hosts = self._allocation.hosts
        if len(hosts) == 1:
            return "127.0.0.1"
        if not hosts[host].address:
            raise MachineError(
                f"{hosts[host].name} did not tell the address at which others reach it.",
                hint="Name its network interface: --interface.",
            )
        return hosts[host].address

    def free_port(self, host: int) -> int:
        """Choose a port by chance: should it be taken, the server says so."""
        del host
        return random.SystemRandom().randint(*_PORTS)

    def exec(self, command: Command) -> RemoteProgram:
        """Start a command on its host."""
        host, remote = self._allocation.hosts[command.host], self._allocation.remotes[command.host]
        words = ["env"]
        for name in command.unset:
            words += ["-u", name]
        # What mpirun keeps in files goes away with the folder, also when it is killed.
        env = {MARK: remote.token, "TMPDIR": remote.folder, **command.env}
        words += [f"{name}={value}" for name, value in env.items()]
        words += [host.programs.get(command.argv[0], command.argv[0]), *command.argv[1:]]
        number = f"{self._number}.{len(self._programs)}"
        program = RemoteProgram(command.role or command.argv[0], remote, number, self._queue)
        self._programs.append(program)
        remote.again(lambda: program.start(words))
        self._heard = time.monotonic()
        return program

    def listens(self, program: Program, port: int) -> bool:
        """Whether the agent has seen that the program waits for connections."""
        own = next(each for each in self._programs if each is program)
        if (own, port) not in self._listening:
            seen = self._listening[own, port] = threading.Event()

            def look() -> None:
                pipe = own.host.again(lambda: own.host.open("listens", own.number, f"{port:04X}"))
                list(pipe.lines())
                if pipe.status == 0:
                    seen.set()

            follow(look, self._queue)
        return self._listening[own, port].is_set()

    def lines(
        self,
        *,
        until: Callable[[], bool] | None = None,
        silence_s: float | None = None,
        deadline: float | None = None,
    ) -> Iterator[Output]:
        """Give the lines of all programs, and of debug files."""
        while not (until is not None and until()):
            if all(program.status is not None for program in self._programs):
                yield from self._last_lines()
                return
            yield from self._next(_WAKE_S if until is None else _POLL_S)
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                raise TimedOutError("it had not ended when its time was up")
            if silence_s is not None and now - self._heard >= silence_s:
                raise TimedOutError(f"nothing was printed for {silence_s:g} s")

    def stop(self, programs: Sequence[Program]) -> list[Output]:
        """End all programs of the session, and give their last words."""
        self._end_programs()
        last: list[Output] = []
        deadline = time.monotonic() + _LAST_S
        with contextlib.suppress(MachineError):  # what is said is kept; why it ends is known
            while any(program.status is None for program in programs) and time.monotonic() < deadline:
                last += self._next(_WAKE_S)
        return last

    # -- inside

    def _next(self, wait_s: float) -> Iterator[Output]:
        """Wait for something to be told, and give all that is there. Raises what a thread failed with."""
        for remote in self._allocation.remotes:
            if remote.lost is not None:
                raise remote.lost
        with contextlib.suppress(Empty):
            told = self._queue.get(timeout=wait_s)
            while True:
                self._heard = time.monotonic()
                if isinstance(told, Exception):
                    raise told
                if isinstance(told, Ended):
                    told.program.status = told.status
                    yield Output(told.program, None)
                else:
                    self._ranks.heard(told.text)
                    yield told
                told = self._queue.get_nowait()

    def _last_lines(self) -> Iterator[Output]:
        """Let the debug files be read to their ends."""
        if self._left.is_set() or not self._watched:
            return
        self._left.set()
        for watched in self._watched:
            watched.end()
        deadline = time.monotonic() + _LAST_S
        while not all(watched.over.is_set() for watched in self._watched) and time.monotonic() < deadline:
            yield from self._next(_POLL_S)
        yield from self._next(0)

    def _prepare(self, index: int) -> None:
        """Make the folder of the step on one host, with its files."""
        remote = self._allocation.remotes[index]
        remote.again(self._watched[index].start)
        for name, text in self._step.files.items():
            path = f"{self.folder}/{name}"
            remote.again(lambda path=path, text=text: remote.run("put", path, stdin=text.encode()))  # type: ignore[misc]

    def _tick(self) -> None:
        """Let new debug files be looked for, often while ranks start; and see whether mpirun lingers."""
        begun = time.monotonic()
        while not self._left.wait(_OFTEN_S if time.monotonic() - begun < _YOUNG_S else _SELDOM_S):
            for watched in self._watched:
                watched.tick()
            if self._ranks.gone():
                for program in self._programs:
                    program.lingers = True
                    self._queue.put(Output(program, LINGERS))
                self._end_programs()

    def _end_programs(self) -> None:
        """End what runs: first where fabbench started it, so that mpirun ends its ranks; then everywhere."""
        remotes = self._allocation.remotes
        started = [
            index for index, remote in enumerate(remotes) if any(p.host is remote for p in self._programs)
        ]
        others = [index for index in range(len(remotes)) if index not in started]
        for indices in (started, others if self._step.shape is Shape.MPI else []):
            self._everywhere(self._stop_on, indices, patient=False)

    def _stop_on(self, index: int) -> None:
        remote = self._allocation.remotes[index]
        if remote.lost is None:
            remote.run("stop", timeout_s=_STOP_S)

    def _everywhere(
        self, work: Callable[[int], None], indices: Sequence[int] | None = None, *, patient: bool = True
    ) -> None:
        """Do something for several hosts at once. Raises the first failure, unless it is all the same."""
        chosen = range(len(self._allocation.remotes)) if indices is None else indices
        done = each({str(index): index for index in chosen}, work)
        failure = next((result for result in done.values() if isinstance(result, MachineError)), None)
        if failure is not None and patient:
            raise failure
