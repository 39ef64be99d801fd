"""The launcher ``local``: this machine only. Linux only."""

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import ClassVar, Self

from fabbench.counters.snapshot import SNAPSHOT
from fabbench.execution.mpirun import MpiHosts
from fabbench.execution.process import Process, Processes, Tail, TemporaryFolder, unwritable_folder
from fabbench.execution.runner import run_steps
from fabbench.execution.session import DEBUG, FORWARDED, Output, Program, Session, TimedOutError
from fabbench.hosts.check import Clock, HostRelations, Progress
from fabbench.hosts.discover import folders, inventories, inventory, parted, programs
from fabbench.hosts.probe import probe_argv, read_probe
from fabbench.hosts.probe_result import Probe
from fabbench.launchers import Examined, Launcher
from fabbench.launchers.local import LocalOptions
from fabbench.model.compat import override
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hosts import Host, Inventory, Needs, Target
from fabbench.model.log import Ending
from fabbench.model.plan import DEFAULT_VARIANT, Command, Execution, Step, Variant
from fabbench.plan.request import refuse_images, with_libraries

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory, not temporary files
_LOOK_S = 20.0


class LocalSession(Session):
    """Programs on this machine; see `fabbench.execution.session.Session`."""

    def __init__(self, step: Step, host: Host) -> None:
        """Create a session of a step on `host`; nothing is started or written before it is entered."""
        self._step, self._host = step, host

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.folder = str(stack.enter_context(TemporaryFolder()).path)
            try:
                for name, text in self._step.files.items():
                    Path(self.folder, name).write_text(text, "utf-8")
            except OSError as error:
                raise unwritable_folder(error) from error
            self._resources = stack.pop_all()
        self._debug = Tail(Path(self.folder), DEBUG)
        self._processes = Processes(also=self._debug.limited)
        self._started: list[Process] = []
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.__exit__()
        # What libfabric leaves behind if one of its programs is killed.
        for path in chain.from_iterable(_SHARED_MEMORY.glob(f"{process.pid}:*") for process in self._started):
            with contextlib.suppress(OSError):
                path.unlink()
        self._debug.close()
        self._resources.close()

    @override
    def mpi_hosts(self) -> MpiHosts:
        if self._host.mpi is None:
            raise MachineError("mpirun not found on this machine.")
        forward = tuple(name for name in FORWARDED if name in os.environ)
        return MpiHosts(mpi=self._host.mpi, forward=forward, programs=self._host.programs)

    @override
    def address(self, host: int) -> str:
        del host
        return "127.0.0.1"

    @override
    def free_port(self, host: int) -> int:
        """Return a port that the kernel chose."""
        del host
        with socket.socket() as probe:
            probe.bind(("", 0))
            port: int = probe.getsockname()[1]
        return port

    @override
    def exec(self, command: Command) -> Process:
        word = command.argv[0]
        argv = (self._host.programs.get(word, word), *command.argv[1:])
        name = command.role or word
        # Files that mpirun leaves are removed with the directory, even if it is killed.
        env = {"TMPDIR": self.folder, **command.env}
        process = self._processes.start(argv, name=name, env=env, unset=command.unset)
        self._started.append(process)
        return process

    @override
    def listens(self, program: Program, port: int) -> bool:
        """Return whether the program has a socket that listens on `port`, by the kernel's tables."""
        pid = self._processes_of([program])[0].pid
        return not _sockets(pid).isdisjoint(_listening(pid, port))

    @override
    def lines(
        self, *, until: Callable[[], bool] | None = None, silence_s: float | None = None, deadline: float | None = None
    ) -> Iterator[Output]:
        yield from self._processes.lines(until=until, silence_s=silence_s, deadline=deadline)
        yield from (Output(None, text) for text in self._debug.rest())

    @override
    def stop(self, programs: Sequence[Program]) -> list[Output]:
        last = self._processes.stop(self._processes_of(programs))
        return last + [Output(None, text) for text in self._debug.read()]

    def _processes_of(self, programs: Sequence[Program]) -> list[Process]:
        return [program for program in programs if isinstance(program, Process)]


@dataclass(frozen=True, slots=True)
class LocalAllocation:
    """This machine; see `fabbench.launchers.Allocation`."""

    inventory: Inventory
    remote: ClassVar = False

    @property
    def documents(self) -> Mapping[str, str]:
        """Return no documents: nothing is submitted."""
        return {}

    def part(self, hosts: Sequence[int], ended: Event) -> "LocalAllocation":
        """Return some of the virtual nodes."""
        del ended  # only the main thread waits for lines, and it is interrupted itself
        return LocalAllocation(self.inventory.part(hosts))

    def execute(self, execution: Execution) -> Generator[str, None, Ending]:
        """Run an execution with programs of this machine."""
        host = self.inventory.hosts_for_variant(execution.configuration.variant)[0]
        return run_steps(lambda step: LocalSession(step, host), execution)

    def counters(self) -> Mapping[str, Sequence[str]]:
        """Read the counters of this machine's NICs."""
        return {self.inventory.hosts[0].name: _printed(("/bin/sh", "-c", f"{SNAPSHOT}\nfabbench_counters"))}


class LocalLauncher(Launcher):
    """The launcher ``local``."""

    name = "local"
    options = LocalOptions
    open_starts_nothing = True
    inherits = True

    @contextlib.contextmanager
    def open(self, target: Target, needs: Needs) -> Iterator[LocalAllocation]:
        """Find out what this machine has."""
        refuse_images(target.variants, "the target local")
        parts = target.options_as(LocalOptions).virtual_nodes
        if parts > 1 and target.interface:
            raise RequestError(
                "--interface has no effect with --virtual-nodes: NCCL connects them over lo.", hint="Leave it out."
            )
        name = socket.gethostname()
        hosts = inventories(target, needs, lambda view, variant: {name: self._probe(view, needs, variant)})
        yield LocalAllocation(parted(hosts, parts) if parts > 1 else hosts)

    def examine(self, target: Target, needs: Needs, *, deep: bool, progress: Progress) -> Examined:
        """Probe this machine. There are no connections to try, and its clock is the reference."""
        del deep, progress
        name, probe = socket.gethostname(), self._probe(target, needs)
        (host,) = inventory(target, {name: probe}, Needs(programs=(), install="")).hosts
        clock = Clock(offset_s=0, uncertainty_s=0)
        return Examined(
            probes={name: probe}, relations=HostRelations(addresses={name: host.address}, clocks={name: clock})
        )

    def _probe(self, target: Target, needs: Needs, variant: Variant = DEFAULT_VARIANT) -> Probe:
        if sys.platform != "linux":
            raise MachineError("The target local needs Linux, as libfabric's programs do.")
        if target.hosts:
            raise RequestError(
                f"--host has no effect with --on local, which is this machine: {', '.join(target.hosts)}.",
                hint="Use --on ssh for hosts.",
            )
        argv = with_libraries(probe_argv(programs(needs), folders(target), variant.paths), variant.paths)
        return read_probe(_printed(argv, variant.env))


LAUNCHER = LocalLauncher()


def _printed(argv: Sequence[str], env: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Run a program that only prints something, and return its lines; none on a timeout."""
    with Processes() as processes:
        processes.start(argv, env=env)
        with contextlib.suppress(TimedOutError):
            return [output.text for output in processes.lines(silence_s=_LOOK_S) if output.text is not None]
    return []


def _sockets(pid: int) -> set[str]:
    inodes = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    return inodes


def _listening(pid: int, port: int) -> Iterator[str]:
    """Yield the inodes of the sockets that listen (0A) on a port, in the process's network namespace."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text("ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]
