"""Machines with the agent on each, and the programs of one step on them.

Programs keep running if the connection breaks: the agent is opened again, and goes on from there.
"""

import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from itertools import chain
from types import TracebackType
from typing import Self

from fabbench.execution.awake import awake_s
from fabbench.execution.mpirun import MpiHosts, env_words
from fabbench.execution.runner import run_steps
from fabbench.execution.session import (
    DEBUG,
    LONGEST_OUTPUT,
    SOURCED,
    FloodedError,
    Output,
    Program,
    Session,
    exports,
    raise_when_late,
)
from fabbench.execution.worker_pool import (
    Item,
    OutputQueue,
    QueueClosedError,
    map_hosts,
    require_all,
    succeeded,
)
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.model.hosts import Inventory
from fabbench.model.log import ExecutionLines
from fabbench.model.mappings import Documents, HostLines, distinct, only
from fabbench.model.plan import Command, Execution, Step, Words
from fabbench.model.values import frozen
from fabbench.remote.host import AGENT_PREFIX, FLOODED, RemoteHost, after_login, neighbors
from fabbench.remote.transport import LostError, ProcessStream

KEPT_KIB = (LONGEST_OUTPUT >> 10) + 1024
"""How much of a program's output a host keeps: more than is read, so that excess is noticed."""


class AgentStream:
    """A mode of the agent that keeps running, opened again each time that the connection broke."""

    def __init__(self, host: RemoteHost, *words: str, answers: bool = True) -> None:
        """`words`: mode and arguments. It `answers` "ready" before it prints anything else."""
        self.host = host
        self._mode_words = words
        self._answers = answers
        self._opened = False
        self._closed = False  # By fabbench: a connection that breaks from then on is no loss

    def open(self) -> None:
        """Start it. Raise MachineError."""
        self.pipe, self._batches = self.host.with_reconnect(self._open)
        self._opened = True

    def resume(self) -> None:
        """Prepare the next `open` to go on where the connection broke."""

    def batches(self) -> Iterator[Sequence[str]]:
        """Yield its lines in batches, to its end. Raise MachineError when the host is given up."""
        while True:
            try:
                yield from self._batches
            except LostError:
                if self._closed:
                    return
                self.host.wait_until_reconnected()
                self.resume()
                self.open()  # It replaces `_batches`.
            else:
                return

    def send(self, data: bytes) -> None:
        """Write to its standard input. If it broke, the thread that reads its lines notices."""
        with suppress(LostError):
            self.pipe.send(data)

    def close(self) -> None:
        """End it, if it was opened: an interrupt may come before that."""
        self._closed = True
        if self._opened:
            self.pipe.close()

    def _open(self) -> tuple[ProcessStream, Iterator[Sequence[str]]]:
        """Start the mode; return its streams, and its lines in batches, without its "ready"."""
        pipe = self.host.open(*self._mode_words)
        batches = _after_login(pipe)
        if self._answers:
            first, *more = next(batches, [""])
            if first != "ready":
                raise self.host.failure(pipe.err, "early")
            batches = chain([more], batches)
        return pipe, batches


def _after_login(pipe: ProcessStream) -> Iterator[Sequence[str]]:
    """Yield what the agent prints, without what the login printed before it."""
    batches = pipe.batches()
    for batch in batches:
        rest = after_login(batch)
        if rest:
            yield rest
        if rest is not None:
            break
    yield from batches


class RemoteProcess(AgentStream):
    """One program on one host; see `fabbench.execution.session.Program`."""

    def __init__(self, name: str, host: RemoteHost, number: str, words: Sequence[str]) -> None:
        """`name` is for the user; `number` is what the agent calls it: STEP.PLACE, or a relay's."""
        super().__init__(host, "run", str(KEPT_KIB), number, *words, answers=False)
        self.name = name
        self.number = number
        self.status: int | None = None
        self.hung_after_exit = False
        """Whether it finished its work, and is ended only because it does not exit."""
        self._read = 0  # Lines read so far

    @override
    def resume(self) -> None:
        # The program is still running there: only its output is opened again, at the next line.
        self._mode_words = ("follow", self.number, str(self._read + 1))

    def start(self, output: OutputQueue) -> None:
        """Start it, and follow its output in a thread. Raise MachineError."""
        self.open()
        output.follow(lambda: self._forward_output(output))

    def _forward_output(self, output: OutputQueue) -> None:
        """Put the program's lines into the queue, and its status at the end."""
        try:
            for texts in self.batches():
                self._read += len(texts)
                output.put(Item(self, texts))
        except QueueClosedError:  # Nobody reads it any more: the session has ended
            self.close()
            raise
        # Then it is the agent that failed: the status says nothing of the program.
        if any(line.startswith(AGENT_PREFIX) for line in self.pipe.err):
            raise self.host.failure(self.pipe.err, "early")
        status = -1 if self.pipe.status is None else self.pipe.status  # -1: it is not known
        output.put(Item(self, status=0 if self.hung_after_exit else status))


class WatchedFiles(AgentStream):
    """The growing files of a directory on one host whose names begin with a prefix."""

    def __init__(self, host: RemoteHost, folder: str, prefix: str) -> None:
        super().__init__(host, "watch", folder, prefix, str(KEPT_KIB))
        self._ending = False
        self.over = threading.Event()  # Set when all lines have been forwarded

    def start(self, output: OutputQueue) -> None:
        """Make the directory, and follow its files in a thread. Raise MachineError."""
        self.open()
        output.follow(lambda: self._forward_lines(output))

    @override
    def open(self) -> None:
        # Lines are repeated from the start when it is opened again, and state the same facts.
        super().open()
        self.tick()

    def tick(self) -> None:
        """Have the agent look for new files, or read the rest."""
        self.send(b"end\n" if self._ending else b"\n")

    def end(self) -> None:
        """Have the agent read the rest."""
        self._ending = True
        self.tick()

    def _forward_lines(self, output: OutputQueue) -> None:
        """Put the lines of the files into the queue, of no program, until all are read."""
        try:
            for texts in self.batches():
                if FLOODED in texts:  # the agent gave up: the file is too large
                    raise FloodedError
                output.put(Item(program=None, texts=texts))
        finally:
            self.over.set()
            self.close()


# The variable that every rank has in its environment, but mpirun and its daemons do not
RANK = "FABBENCH_RANK"
HUNG_AFTER_EXIT = "fabbench: all ranks have exited, but mpirun has not: it is terminated."
# File in the run's private directory with the variables that programs inherit from fabbench
_ENV = "environment"
MARK = "FABBENCH_JOB"  # The variable that every program of a run has in its environment
_WAKE_S = 0.25
_POLL_S = 0.02
_LAST_S = 5.0  # How long the last output is waited for
_MAX_LAST_LINES = 10_000
_STOP_S = 20.0
_FAST_TICK_S = 0.3
_SLOW_TICK_S = 2.0
_FAST_PHASE_S = 15.0
"""How long debug files are looked for often: while ranks start."""
_QUIET_S = 10.0  # Silence before hosts are queried for ranks, and the interval between two queries
_RANK_LINE = re.compile(r"\[[^\]]*,\d+\]<stdout>")


@frozen
class RemoteAllocation:
    """Connected machines, with fabbench's agent on each; see `fabbench.launchers.Allocation`."""

    inventory: Inventory
    remotes: tuple[RemoteHost, ...]  # Of each host; the same one for all virtual hosts of a machine
    agent: Words = ()
    """How mpirun reaches the other hosts; see `fabbench.execution.mpirun.MpiHosts`."""
    documents: Documents = field(default_factory=dict)
    """What was created to allocate these machines, for the record: file name → document."""
    look: Callable[[], None] = lambda: None
    """Notes the other runs on the machines that their agents do not see."""
    interrupted: threading.Event = field(default_factory=threading.Event)
    """Once set, threads that wait for lines get KeyboardInterrupt: Ctrl-C does not reach them."""

    @property
    def machines(self) -> tuple[RemoteHost, ...]:
        """Return each machine once."""
        return distinct(self.remotes)

    def part(self, hosts: Sequence[int], ended: threading.Event) -> "RemoteAllocation":
        """Return some of the machines, by their indexes.

        mpirun starts on the first of them if `Needs.divided` is set.
        """
        remotes = tuple(self.remotes[index] for index in hosts)
        inventory = self.inventory.part(hosts)
        return replace(self, inventory=inventory, remotes=remotes, interrupted=ended)

    def execute(self, execution: Execution) -> ExecutionLines:
        """Run an execution over the hosts."""
        variant = execution.configuration.variant
        begun = time.monotonic()
        self.look()
        ending = yield from run_steps(lambda step: RemoteSession(self, step, variant), execution)
        self.look()
        return replace(ending, neighbors=neighbors(self.machines, begun))

    def counters(self) -> HostLines:
        """Read the NIC counters of every host that answers."""
        by_name = {machine.name: machine for machine in self.machines}
        return succeeded(map_hosts(by_name, lambda machine: machine.run("counters").out))


class RemoteSession(Session):
    """A context manager: leaving it ends its programs."""

    _numbers = itertools.count(1)

    def __init__(self, allocation: RemoteAllocation, step: Step, variant: str = "") -> None:
        """`variant` is the one whose view of the hosts counts."""
        self._allocation = allocation
        self._step = step
        self._hosts = allocation.inventory.hosts_for_variant(variant)
        self._number = next(RemoteSession._numbers)
        self._queue = OutputQueue()
        self._programs: list[RemoteProcess] = []
        self._watched: list[WatchedFiles] = []
        self._listening: dict[tuple[str, int], threading.Event] = {}
        """Number of a program, and port → set once it listens there."""
        self._files_over = threading.Event()
        """Set when debug files are read to their ends: nothing looks for new ones any more."""
        self._last_output = self._last_query = awake_s()
        """When something was printed last, and when hosts were last queried for ranks."""
        self._has_ranks = False  # Whether a rank has printed something: before, none may run yet
        self.folder = f"{allocation.remotes[0].folder}/s{self._number}"

    def __enter__(self) -> Self:
        # A pair has no debug files: its directory is made only for the files that it needs.
        if not self._step.pair or self._step.files:
            self._watched = [
                WatchedFiles(remote, self.folder, DEBUG) for remote in self._allocation.machines
            ]
            by_host = {watched.host.name: watched for watched in self._watched}
            require_all(map_hosts(by_host, self._prepare_folder))
            self._queue.follow(self._watch_files_and_mpirun)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Whoever leaves early loses what is left in debug files, and ends what still runs.
        self._files_over.set()
        if any(program.status is None for program in self._programs):
            self._end_programs()
        for watched in self._watched:
            watched.end()
        self._queue.leave()

    @override
    def mpi_hosts(self) -> MpiHosts:
        # mpirun runs on the first host. On one machine it needs no addresses, ssh or interface.
        hosts = self._hosts
        first = self._allocation.remotes[0]
        if hosts[0].mpi is None:
            raise MachineError(f"mpirun not found on {hosts[0].name}.")
        interfaces = {host.interface for host in hosts}
        alone = len(self._allocation.machines) == 1
        return MpiHosts(
            mpi=hosts[0].mpi,
            addresses=("localhost",) if alone else tuple(host.address for host in hosts),
            agent=() if alone else self._allocation.agent,
            # Hosts that name it differently are left to mpirun's own choice.
            interface="" if alone else only(interfaces, ""),
            forward=first.forwarded,
            programs=hosts[0].programs,
            # By MARK the agent ends ranks, by RANK it counts those that still run.
            env={MARK: first.token, RANK: first.token},
        )

    @override
    def address(self, host: int) -> str:
        if len(self._allocation.machines) == 1:
            return "127.0.0.1"
        peer = self._hosts[host]
        if not peer.address:
            raise MachineError(
                f"{peer.name} did not report the address at which other hosts reach it.",
                hint="Pass its network interface with --interface.",
            )
        return peer.address

    @override
    def exec(self, command: Command) -> RemoteProcess:
        remote = self._allocation.remotes[command.host]
        programs = self._hosts[command.host].programs
        # mpirun's files are removed with the directory, even if it is killed.
        env = {MARK: remote.token, "TMPDIR": remote.folder, **command.env}
        first, *arguments = command.argv
        program = programs.get(first, first)
        words = [*env_words(command, env), program, *arguments]
        if command.inherited:
            # From a file: arguments show in the list of processes, and values may be secret.
            path = f"{remote.folder}/{_ENV}"
            text = exports(command.inherited).encode("utf-8", "surrogateescape")
            remote.with_reconnect(lambda: remote.put({path: text}))
            words = [*SOURCED, path, *words]
        place = len(self._programs)
        number = f"{self._number}.{place}"  # What the agent calls it, unique in the run
        process = RemoteProcess(command.role or first, remote, number, words)
        self._programs.append(process)
        process.start(self._queue)
        self._last_output = awake_s()  # Silence counts from here on
        return process

    @override
    def listens(self, program: Program, port: int) -> bool:
        """Return whether the agent has seen the program listen for connections."""
        # A Program is an interface: its number is known of the session's own processes
        (process,) = (started for started in self._programs if started is program)
        key = (process.number, port)
        if key not in self._listening:
            self._listening[key] = threading.Event()
            self._queue.follow(partial(self._await_listening, process, port))
        return self._listening[key].is_set()

    def _await_listening(self, process: RemoteProcess, port: int) -> None:
        """Have the agent look for the program's port until it listens."""
        port_in_hex = format(port, "04X")  # As in /proc/net/tcp
        words = ("listens", process.number, port_in_hex)
        stream = AgentStream(process.host, *words, answers=False)
        stream.open()
        for _ in stream.batches():  # It prints nothing, and ends when the program listens or ends.
            pass
        if stream.pipe.status == 0:
            self._listening[process.number, port].set()

    @override
    def lines(
        self,
        *,
        until: Callable[[], bool] | None = None,
        silence_s: float | None = None,
        deadline: float | None = None,
    ) -> Iterator[Output]:
        while not (until is not None and until()):
            # All programs have ended: what is left are the ends of debug files.
            if all(program.status is not None for program in self._programs):
                yield from self._rest_of_files(deadline)
                return
            # `until` is checked per batch, which is small, and often: it may come true in silence.
            yield from self._next_outputs(_WAKE_S if until is None else _POLL_S)
            raise_when_late(self._last_output, silence_s, deadline)

    @override
    def stop(self, programs: Sequence[Program]) -> list[Output]:
        """End all programs of the session, and return their last output: the rest was consumed."""
        self._end_programs()  # All: the agent ends no single ones. `programs` are those waited for
        last: list[Output] = []
        deadline = awake_s() + _LAST_S
        # The output is kept, and why it ends is known.
        with suppress(MachineError, FloodedError):
            while any(program.status is None for program in programs):
                if awake_s() >= deadline:
                    break
                last += self._next_outputs(_WAKE_S)
                if len(last) > _MAX_LAST_LINES:
                    break
        return last[:_MAX_LAST_LINES]

    # -- inside

    def _next_outputs(self, wait_s: float) -> list[Output]:
        """Wait for a batch: lines of one program or of a debug file, or the end of a program.

        Empty if nothing came in time. Raise KeyboardInterrupt if the allocation is interrupted, the
        error of a host that was given up, and that of a thread that failed.
        """
        if self._allocation.interrupted.is_set():
            raise KeyboardInterrupt
        for remote in self._allocation.machines:
            if remote.lost is not None:
                raise remote.lost
        item = self._queue.get(wait_s)  # Raises the error of a thread that failed
        if item is None:
            return []
        self._last_output = awake_s()
        # Without a program it is of a debug file; with a status, the end of a program.
        if item.program is not None and item.status is not None:
            item.program.status = item.status
            return [Output(item.program, text=None)]
        self._has_ranks = self._has_ranks or any(map(_RANK_LINE.match, item.texts))
        return [Output(item.program, text) for text in item.texts]

    def _rest_of_files(self, deadline: float | None) -> Iterator[Output]:
        """Yield what is left in debug files, once. Raise TimedOutError at `deadline`."""
        if self._files_over.is_set() or not self._watched:
            return
        self._files_over.set()
        for watched in self._watched:
            watched.end()
        self._last_output = awake_s()
        while awake_s() - self._last_output < _LAST_S:
            over = all(watched.over.is_set() for watched in self._watched)
            outputs = self._next_outputs(wait_s=0 if over else _POLL_S)
            yield from outputs
            if over and not outputs:
                return
            raise_when_late(self._last_output, silence_s=None, deadline=deadline)

    def _prepare_folder(self, watched: WatchedFiles) -> None:
        """Create the directory of the step on one host, with its files."""
        watched.start(self._queue)
        files = self._step.files
        contents = {f"{self.folder}/{name}": text.encode() for name, text in files.items()}
        if contents:
            watched.host.with_reconnect(lambda: watched.host.put(contents))

    def _watch_files_and_mpirun(self) -> None:
        """Check for new debug files, more often while ranks start, and end an mpirun that hangs."""
        started = awake_s()
        tick_s = _FAST_TICK_S
        while not self._files_over.wait(tick_s):
            for watched in self._watched:
                watched.tick()
            if self._has_hung():
                for program in self._programs:
                    program.hung_after_exit = True
                    self._queue.put(Item(program, [HUNG_AFTER_EXIT]))
                self._end_programs()
            starting = awake_s() - started < _FAST_PHASE_S
            tick_s = _FAST_TICK_S if starting else _SLOW_TICK_S

    def _has_hung(self) -> bool:
        """Return whether mpirun hangs although all its ranks have exited, after some silence.

        Open MPI 5.0's prterun does so about once in fifty launches. Waited for until the silence
        counts as a fault, a complete table would be worthless.
        """
        now = awake_s()
        if not self._has_ranks or now - max(self._last_output, self._last_query) < _QUIET_S:
            return False
        self._last_query = now
        machines = {remote.name: remote for remote in self._allocation.machines}
        counts = map_hosts(machines, lambda remote: remote.run("ranks").out)
        return all(count == ["0"] for count in counts.values())

    def _end_programs(self) -> None:
        """End all programs: first what fabbench started, so that mpirun ends its ranks."""
        started = {program.host for program in self._programs}
        # On the others, mpirun's daemons have started ranks; a pair starts nothing elsewhere.
        others = set() if self._step.pair else set(self._allocation.machines) - started
        for remotes in (started, others):
            reachable = {remote.name: remote for remote in remotes if remote.lost is None}
            map_hosts(reachable, lambda remote: remote.run("stop", timeout_s=_STOP_S))
