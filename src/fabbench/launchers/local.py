"""The launcher ``local``: this machine, and nothing else. Linux only."""

import contextlib
import shutil
import socket
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fabbench.drive import drive
from fabbench.errors import MachineError
from fabbench.model import Command, Ending, Trial
from fabbench.plan import Host, Inventory
from fabbench.process import GRACE_S, Output, Process, Processes, TimedOutError

_ADDRESS = "127.0.0.1"
_EFA_FOLDER = "/opt/amazon/efa/bin"
"""Where the EFA installer puts libfabric's programs, without adding it to everybody's PATH."""
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where the kernel has it, no place for temporary files
_RDMA_FOLDER = Path("/sys/class/infiniband")
_LISTEN = "0A"
_LOOK_S = 20.0


class LocalSession(Processes):
    """Programs on this machine; see `fabbench.drive.Session`."""

    def stop(self, processes: Sequence[Process], *, grace_s: float = GRACE_S) -> list[Output]:
        """End programs, and remove the shared memory that libfabric leaves behind where one was killed."""
        last = super().stop(processes, grace_s=grace_s)
        for process in processes:
            for path in _SHARED_MEMORY.glob(f"{process.pid}:*"):
                with contextlib.suppress(OSError):
                    path.unlink()
        return last

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

    def exec(self, command: Command, words: Sequence[str]) -> Process:
        """Start a command."""
        program = find(words[0]) or words[0]
        return self.start(
            (program, *words[1:]), name=command.role or words[0], env=command.env, unset=command.unset
        )

    def listens(self, process: Process, port: int) -> bool:
        """Whether the program has a socket that listens at `port`, as the kernel's tables say."""
        own = _sockets(process.pid)
        return any(inode in own for inode in _listening(process.pid, port))


class Local:
    """The launcher ``local``."""

    name = "local"

    def discover(self, programs: Sequence[str], *, install: str) -> Inventory:
        """Look for the programs, for libfabric's providers (``fi_info``), and for RDMA devices."""
        if sys.platform != "linux":
            raise MachineError("The target local needs Linux: libfabric's programs are not made for others.")
        missing = [program for program in (*programs, "fi_info") if find(program) is None]
        if missing:
            raise MachineError(
                f"{' and '.join(missing)} cannot be found, neither in PATH nor in {_EFA_FOLDER}.",
                hint=f"Install it: {install}",
            )
        providers, version = _fi_info()
        devices, looked = _rdma_devices()
        listed = ", ".join(sorted(providers)) or "none"
        host = Host(
            name=socket.gethostname(),
            providers=providers,
            devices=devices,
            versions={"libfabric": version} if version else {},
            looked=(f"Looked for libfabric providers with {find('fi_info')}: found {listed}.", looked),
        )
        return Inventory(target=self.name, hosts=(host,))

    def execute(self, trial: Trial) -> Generator[str, None, Ending]:
        """Run a trial with programs of this machine."""
        return drive(LocalSession, trial)


LAUNCHER = Local()


def find(program: str) -> str | None:
    """Give the path of a program: from PATH, else from where the EFA installer puts it."""
    return shutil.which(program) or shutil.which(program, path=_EFA_FOLDER)


def read_fi_info(lines: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Read what ``fi_info`` prints: provider → types of endpoint."""
    found: dict[str, set[str]] = {}
    provider = ""
    for line in lines:
        name, _, value = line.strip().partition(": ")
        if name == "provider":
            provider = value.strip()
        elif name == "type" and provider:
            found.setdefault(provider, set()).add(value.strip().removeprefix("FI_EP_").lower())
    return {name: frozenset(types) for name, types in found.items()}


def _fi_info() -> tuple[Mapping[str, frozenset[str]], str]:
    program = find("fi_info") or "fi_info"
    providers = read_fi_info(_printed((program,)))
    versions = (line.partition(": ")[2].strip() for line in _printed((program, "--version")))
    return providers, next(versions, "")


def _printed(argv: Sequence[str]) -> list[str]:
    """Run a program that only tells something, and give its lines; nothing of it if it takes too long."""
    with Processes() as processes:
        processes.start(argv)
        with contextlib.suppress(TimedOutError):
            return [output.text for output in processes.lines(silence_s=_LOOK_S) if output.text is not None]
    return []


def _rdma_devices() -> tuple[tuple[str, ...], str]:
    """Name the RDMA devices, and say in a sentence where was looked for them."""
    if not _RDMA_FOLDER.is_dir():
        return (), f"Looked for RDMA devices in {_RDMA_FOLDER}: there is no such folder."
    names = tuple(sorted(path.name for path in _RDMA_FOLDER.iterdir()))
    return names, f"Looked for RDMA devices in {_RDMA_FOLDER}: found {', '.join(names) or 'none'}."


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
