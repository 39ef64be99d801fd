"""Launchers of batch jobs, each with a system behind it that tests can fill and break.

PBS, LSF, Flux and SkyPilot are played on this machine, Slurm is real.
"""

import os
import re
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from subprocess import run

import pytest

from fabbench.model.log import Log
from fabbench.runs.store import StoredRun, runs
from tests.support import slurm_runs
from tests.support.host_fixtures import STANDIN
from tests.support.hosts import Lab, processes
from tests.support.local_runs import programs, start_program
from tests.support.paths import FAKE_PROGRAMS, ROOT
from tests.support.running import Running
from tests.support.ssh_faults import running
from tests.support.ssh_runs import STORE

ROW = re.compile(r"^.*?\s(\d+)\s+\d+\s+float\s+sum\s", re.MULTILINE)
"""Of nccl-tests, behind any prefix."""
_WAITS = {
    "pbs": "Not Running: Not enough free nodes available",
    "lsf": "Job is held",
    "flux": "waits in the queue",
}
"""What is said of a job while no node is free."""
_REFUSALS = {
    "pbs": "qsub: Unknown queue",
    "lsf": "nope: No such queue. Job not submitted.",
    "flux": "flux-batch: ERROR: 'nope' is not a valid queue.",
}
_PLAYED = ("--nodes", "1", "--fabric", "p2p", "-b", "8", "-e", "1K", "--repeat", "1")


class BatchLauncher(ABC):
    """A launcher, its system, and one small run of eight rows."""

    name: str
    waits: str
    """What is said of a job while no node is free."""
    refused: Sequence[str] = ()
    """Options that the system refuses, once it is to `refuse`."""

    @abstractmethod
    def started(self, *more: str, programs: Path = STANDIN) -> AbstractContextManager[Running]:
        """Start the run, with more options, and programs of this folder."""

    @abstractmethod
    def submitted(self) -> int:
        """Return how many jobs fabbench has submitted so far; `full` may have some of others."""

    @abstractmethod
    def full(self) -> AbstractContextManager[object]:
        """Let others have all nodes."""

    @abstractmethod
    def refuse(self) -> None:
        """Let it refuse the next job, if it has the options `refused`."""

    @abstractmethod
    def end(self, how: str) -> None:
        """End the job that runs: `cancel`, `lose` a node, `expire` at its time limit."""

    @abstractmethod
    def nothing_left(self) -> AbstractContextManager[None]:
        """Hold that what happens inside leaves no job, no file and no process."""

    @property
    @abstractmethod
    def store(self) -> Path:
        """The store of the run."""

    @property
    def run(self) -> StoredRun:
        return StoredRun(next(runs(self.store)))

    @property
    def logs(self) -> Sequence[Log]:
        """The logs of the newest run; none: nothing was run."""
        return [
            log
            for run in runs(self.store)
            for each in StoredRun(run).executions
            for log in each.logs
        ]

    def rows(self) -> list[str]:
        """The sizes of the rows in the store so far, found without fabbench's parser."""
        paths = self.store.glob("*/exec/*/output.log")
        return [size for path in paths for size in ROW.findall(path.read_text(errors="replace"))]


class _Played(BatchLauncher):
    """A system that is played on this machine, in a folder."""

    nodes: Sequence[str] = ("--gpus", "2")
    """What is said of its nodes, beforehand."""

    def __init__(self, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name = name
        self.folder = folder
        monkeypatch.chdir(folder)

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @contextmanager
    def started(self, *more: str, programs: Path = STANDIN) -> Iterator[Running]:
        where = ("run", "nccl", "--on", self.name, *self.nodes, "--bin-dir", str(programs))
        with start_program(self.store, (*where, *_PLAYED, *more)) as process:
            try:
                yield Running(process)
            finally:
                process.kill()

    @contextmanager
    def nothing_left(self) -> Iterator[None]:
        yield
        assert processes.eventually(lambda: not self._left()), self._left()

    def _left(self) -> list[str]:
        """What is left: jobs, files, and programs that fabbench or its jobs have started."""
        return [*self._remains(), *(words for _, words in programs(self.store))]

    @abstractmethod
    def _remains(self) -> list[str]:
        """What the system still has."""


class Queue(_Played):
    """PBS, LSF or Flux: `fake_programs/batch`."""

    def __init__(self, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(name, folder, monkeypatch)
        self.waits = _WAITS[name]
        programs_of_batch = FAKE_PROGRAMS / "batch"
        path = os.environ["PATH"]
        monkeypatch.setenv("BATCH", str(folder))
        monkeypatch.setenv("PATH", f"{programs_of_batch}:{path}")

    def submitted(self) -> int:
        return len([*self.folder.glob("[0-9]*.sh")])

    @contextmanager
    def full(self) -> Iterator[None]:
        (self.folder / "hold").touch()
        yield

    def refuse(self) -> None:
        (self.folder / "reject").write_text(_REFUSALS[self.name])

    def end(self, how: str) -> None:
        run(["batch", how, "1"], check=True)

    def _remains(self) -> list[str]:
        jobs = {path.stem for path in self.folder.glob("[0-9]*.sh")}
        ended = {path.stem for path in self.folder.glob("*.end")}
        names = [path.name for path in self.folder.iterdir()]
        outputs = [name for name in names if name.startswith(("fabbench", "flux-"))]
        return [*(f"job {number}" for number in jobs - ended), *outputs]


class Sky(_Played):
    """SkyPilot: `fake_programs/sky`, whose cluster is this machine."""

    waits = "it was not up after"
    nodes = (
        *("--infra", "k8s", "--instance-type", "g6e.12xlarge", "--gpus", "2"),
        *("--mpirun", "/usr/bin/mpirun"),
    )

    def __init__(self, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(name, folder, monkeypatch)
        library = FAKE_PROGRAMS / "sky"
        source = ROOT / "src"
        self.state = folder / "sky"
        self.state.mkdir()
        monkeypatch.setenv("PYTHONPATH", f"{library}:{source}")
        monkeypatch.setenv("SKY_STANDIN", str(self.state))

    def submitted(self) -> int:
        calls = self.state / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        return len([line for line in lines if line.startswith("launch ")])

    @contextmanager
    def full(self) -> Iterator[None]:
        (self.state / "hang").touch()
        yield

    def refuse(self) -> None:
        (self.state / "launch").write_text("No resource satisfying 8x H100 on Kubernetes.")

    def end(self, how: str) -> None:
        ends = {
            "cancel": ("CANCELLED", signal.SIGTERM),
            "lose": ("FAILED_DRIVER", signal.SIGKILL),
        }
        status, number = ends[how]
        (self.state / "ended").write_text(status)
        os.killpg(int((self.state / "pid").read_text()), number)

    def _remains(self) -> list[str]:
        left = ["a cluster"] if (self.state / "cluster").exists() else []
        pid = self.state / "pid"
        with suppress(ProcessLookupError):
            if pid.exists():
                os.killpg(int(pid.read_text()), 0)
                left.append("processes of the job")
        return left


class Slurm(BatchLauncher):
    """A real Slurm of three hosts, used from another one over ssh."""

    name = "slurm"
    waits = "(Resources)"
    refused = ("--reservation", "nope")

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._before = set(slurm_runs.our_jobs(lab[0]))

    @property
    def store(self) -> Path:
        return self.lab.path(STORE)

    def started(self, *more: str, programs: Path = STANDIN) -> AbstractContextManager[Running]:
        words = slurm_runs.nccl(*slurm_runs.SLOW, *more)
        return running(self.lab, [word.replace(str(STANDIN), str(programs)) for word in words])

    def submitted(self) -> int:
        return len(set(slurm_runs.our_jobs(self.lab[0])) - self._before)

    def full(self) -> AbstractContextManager[str]:
        return slurm_runs.taken(self.lab[0], "-N3")

    def refuse(self) -> None:
        """Slurm knows no such reservation."""

    def end(self, how: str) -> None:
        match how:
            case "cancel":
                self.lab[0].sh(["scancel", slurm_runs.the_job(self.lab[0])])
            case "lose":
                self.lab[2].kill()
            case "expire":
                pass  # Slurm looks at the limit itself

    def nothing_left(self) -> AbstractContextManager[None]:
        return slurm_runs.nothing_left(self.lab)
