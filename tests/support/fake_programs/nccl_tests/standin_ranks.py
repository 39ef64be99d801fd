"""Which rank this process is, whom it runs with, and the settings that tests give it."""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import time
from pathlib import Path

SETTINGS = Path("/run/standin")
"""A host's own settings: STANDIN_NICS=2 in the environment, or `2` in the file NICS here."""
_MEETING = Path("/var/tmp")


def setting(name: str, otherwise: str = "") -> str:
    """Return a setting: the environment's, or this host's, or `otherwise`."""
    if (given := os.environ.get(f"STANDIN_{name}")) is not None:
        return given
    try:
        return (SETTINGS / name).read_text().strip() or "1"
    except OSError:
        return otherwise


def _number(*names: str) -> int | None:
    return next((int(os.environ[name]) for name in names if name in os.environ), None)


class Place:
    """Rank, size and job as the launcher told them: Open MPI, MPICH's hydra, or Slurm."""

    def __init__(self) -> None:
        rank = _number("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
        size = _number("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
        alone = rank is None or bool(setting("NO_MPI"))
        self.rank, self.size = (0, 1) if alone else (rank or 0, size or 1)
        local = _number("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
        self.local = 0 if alone else local or 0
        self.host = socket.gethostname().partition(".")[0]
        self.pid = os.getpid()

    def job(self) -> str:
        """Name the job: the same for all its ranks, and for no other job."""
        if "PMIX_NAMESPACE" in os.environ:
            return os.environ["PMIX_NAMESPACE"]
        if "PMI_FD" in os.environ:
            return _kvs_name(int(os.environ["PMI_FD"]))
        job = os.environ.get("SLURM_JOB_ID") or os.getppid()
        step = os.environ.get("SLURM_STEP_ID", "")
        return f"{job}.{step}"


def _kvs_name(wire: int) -> str:
    """Ask hydra, by PMI's first protocol, for the name that all ranks share."""
    answer = b""
    for line in (
        b"cmd=init pmi_version=1 pmi_subversion=1\n",
        b"cmd=get_my_kvsname\n",
        b"cmd=finalize\n",
    ):
        os.write(wire, line)
        reply = os.read(wire, 1000)
        answer = reply if b"kvsname=" in reply else answer
    return answer.partition(b"kvsname=")[2].split()[0].decode()


class Meeting:
    """The ranks of a job, met in a folder: real ones do it by MPI.

    Rank 0 holds a lock until it ends.
    """

    def __init__(self, place: Place, details: str) -> None:
        self.place = place
        name = "".join(letter if letter.isalnum() else "-" for letter in place.job())
        self.folder = _MEETING / f"standin-{name}-{place.size}"
        self.folder.mkdir(exist_ok=True)
        self._lock = (self.folder / "lock").open("a+b")
        if place.rank == 0:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.say(str(place.rank), details)
        self.details = [self._hear(str(rank)) for rank in range(place.size)]
        # Rank 0 takes the folder away when it ends: not before all have read it.
        self.say(f"ready-{place.rank}", "yes")
        for rank in range(place.size if place.rank == 0 else 0):
            self._hear(f"ready-{rank}")

    def say(self, name: str, text: str) -> None:
        """Write something for the other ranks."""
        new = self.folder / f"{name}.{self.place.rank}.new"
        with contextlib.suppress(
            FileNotFoundError
        ):  # another rank was ended, and took the folder away
            new.write_text(text)
            new.rename(self.folder / name)

    def read(self, name: str) -> str:
        """Read what another rank wrote; empty if it has not."""
        try:
            return (self.folder / name).read_text()
        except OSError:
            return ""

    def _hear(self, name: str) -> str:
        while not (text := self.read(name)):
            time.sleep(0.005)
        return text

    def over(self) -> bool:
        """Whether rank 0 has ended."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def wait(self) -> None:
        """Wait until rank 0 has ended."""
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        self.leave()

    def leave_on(self, number: int) -> None:
        """Leave no folder behind when a signal ends this rank."""

        def end(number: int, _frame: object) -> None:
            self.leave()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

        signal.signal(number, end)

    def leave(self) -> None:
        """End the meeting: the folder goes, whoever comes first."""
        shutil.rmtree(self.folder, ignore_errors=True)
