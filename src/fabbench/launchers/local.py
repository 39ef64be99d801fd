"""The launcher ``local``: this machine, and nothing else. Linux only."""

import contextlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from fabbench.check import Around, Clock
from fabbench.counters.snapshot import SNAPSHOT
from fabbench.drive import drive
from fabbench.errors import MachineError, RequestError
from fabbench.hosts.found import Probe
from fabbench.hosts.probe import probe_argv, read_probe
from fabbench.inventory import folders, inventories, inventory, parted, programs
from fabbench.launchers import Examined, Progress
from fabbench.machines import Host, Inventory, Needs, Where
from fabbench.model import Command, Ending, Step, Trial
from fabbench.mpi import Spread
from fabbench.pipes import Tail
from fabbench.process import Process, Processes
from fabbench.rendering import Job
from fabbench.session import DEBUG, FORWARDED, Output, Program, TimedOutError
from fabbench.variants import AS_IT_IS, Variant, refuse_images

_ADDRESS = "127.0.0.1"
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where the kernel has it, no place for temporary files
_LISTEN = "0A"
_LOOK_S = 20.0


class LocalSession:
    """Programs on this machine; see `fabbench.session.Session`."""

    def __init__(self, step: Step, host: Host) -> None:
        """Begin a session of a step on `host`; nothing is started or written before it is entered."""
        self._step = step
        self._host = host

    def __enter__(self) -> Self:
        try:
            self.folder = tempfile.mkdtemp(prefix="fabbench-")
            for name, text in self._step.files.items():
                Path(self.folder, name).write_text(text, "utf-8")
        except OSError as error:
            raise MachineError(
                f"The folder {tempfile.gettempdir()} cannot be written: {error.strerror}.",
                hint="Make room, or name another one by the variable TMPDIR.",
            ) from error
        self._debug = Tail(Path(self.folder), DEBUG)
        self._processes = Processes(also=self._debug.read)
        self._started: list[Process] = []
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processes.__exit__(kind, error, trace)
        _remove_shared_memory(self._started)
        self._debug.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def spread(self) -> Spread:
        """Say which mpirun there is, and that all ranks are here."""
        if self._host.mpi is None:
            raise MachineError("There is no mpirun on this machine.")
        forward = tuple(name for name in FORWARDED if name in os.environ)
        return Spread(mpi=self._host.mpi, forward=forward, programs=self._host.programs)

    def address(self, host: int) -> str:
        """Give the loopback address: both sides are here."""
        del host
        return _ADDRESS

    def free_port(self, host: int) -> int:
        """Let the kernel choose a port."""
        del host
        with socket.socket() as probe:
            probe.bind(("", 0))
            port: int = probe.getsockname()[1]
        return port

    def exec(self, command: Command) -> Process:
        """Start a command."""
        word = command.argv[0]
        argv = (self._host.programs.get(word, word), *command.argv[1:])
        name = command.role or word
        # What mpirun keeps in files goes away with the folder, also when it is killed.
        env = {"TMPDIR": self.folder, **command.env}
        process = self._processes.start(argv, name=name, env=env, unset=command.unset)
        self._started.append(process)
        return process

    def listens(self, program: Program, port: int) -> bool:
        """Whether the program has a socket that listens at `port`, as the kernel's tables say."""
        pid = self._own([program])[0].pid
        own = _sockets(pid)
        return any(inode in own for inode in _listening(pid, port))

    def lines(
        self,
        *,
        until: Callable[[], bool] | None = None,
        silence_s: float | None = None,
        deadline: float | None = None,
    ) -> Iterator[Output]:
        """Give the lines of all programs, and of debug files."""
        yield from self._processes.lines(until=until, silence_s=silence_s, deadline=deadline)
        yield from (Output(None, text) for text in self._debug.read())

    def stop(self, programs: Sequence[Program]) -> list[Output]:
        """End programs."""
        last = self._processes.stop(self._own(programs))
        return last + [Output(None, text) for text in self._debug.read()]

    def _own(self, programs: Sequence[Program]) -> list[Process]:
        return [program for program in programs if isinstance(program, Process)]


@dataclass(frozen=True, slots=True)
class LocalPlace:
    """This machine; see `fabbench.launchers.Place`."""

    inventory: Inventory

    @property
    def remote(self) -> bool:
        """False: it is this machine."""
        return False

    def begin(self, job: Job) -> Mapping[str, str]:
        """Make no document: each trial is carried out by itself."""
        del job
        return {}

    def execute(self, trial: Trial) -> Generator[str, None, Ending]:
        """Run a trial with programs of this machine."""
        host = self.inventory.seen_by(trial.arm.variant)[0]
        return drive(lambda step: LocalSession(step, host), trial)

    def counters(self) -> Mapping[str, Sequence[str]]:
        """Read the counters of this machine's NICs."""
        return {self.inventory.hosts[0].name: _printed(("/bin/sh", "-c", f"{SNAPSHOT}\nfabbench_counters"))}


class Local:
    """The launcher ``local``."""

    name = "local"

    @contextlib.contextmanager
    def open(self, where: Where, needs: Needs) -> Iterator[LocalPlace]:
        """Look what this machine has."""
        refuse_images(where.variants, "the target local")
        name = socket.gethostname()
        found = inventories(where, needs, lambda here, variant: {name: self._probe(here, needs, variant)})
        parts = int(where.settings.get("virtual_nodes") or 1)
        yield LocalPlace(parted(found, parts) if parts > 1 else found)

    def examine(self, where: Where, needs: Needs, *, full: bool, progress: Progress) -> Examined:
        """Ask this machine. There are no connections to try, and its clock is the one to compare with."""
        del full, progress
        name, probe = socket.gethostname(), self._probe(where, needs)
        (host,) = inventory(where, {name: probe}, Needs(programs=(), install="")).hosts
        clock = Clock(offset_s=0, uncertainty_s=0)
        return Examined(
            probes={name: probe}, around=Around(addresses={name: host.address}, clocks={name: clock})
        )

    def _probe(self, where: Where, needs: Needs, variant: Variant = AS_IT_IS) -> Probe:
        if sys.platform != "linux":
            raise MachineError("The target local needs Linux: libfabric's programs are not made for others.")
        if where.hosts:
            raise RequestError(
                f"{', '.join(where.hosts)} cannot be reached by the target local, which is this machine.",
                hint="--on ssh reaches hosts.",
            )
        argv = variant.words(probe_argv(programs(needs), folders(where), variant.paths))
        return read_probe(_printed(argv, variant.env))


LAUNCHER = Local()


def _printed(argv: Sequence[str], env: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Run a program that only tells something, and give its lines; nothing of it if it takes too long."""
    with Processes() as processes:
        processes.start(argv, env=env)
        with contextlib.suppress(TimedOutError):
            return [output.text for output in processes.lines(silence_s=_LOOK_S) if output.text is not None]
    return []


def _remove_shared_memory(processes: Iterable[Process]) -> None:
    """Remove what libfabric leaves behind where one of its programs was killed."""
    for process in processes:
        for path in _SHARED_MEMORY.glob(f"{process.pid}:*"):
            with contextlib.suppress(OSError):
                path.unlink()


def _sockets(pid: int) -> set[str]:
    """Give the inodes of a program's open sockets."""
    found = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    found.add(target[8:-1])
    return found


def _listening(pid: int, port: int) -> Iterator[str]:
    """Give the inodes of the sockets that listen at a port, in the program's own network."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text("ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]
