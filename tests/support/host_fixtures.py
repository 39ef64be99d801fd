"""Fixtures: labs of hosts, and the mpirun flavours to try on them."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.hosts import TOOLS, Host, Lab, Options, missing, slurm
from tests.support.needed import need, refuse, strict
from tests.support.paths import DATA, ROOT


@dataclass
class Labs:
    """Brings up labs for all tests of a process; untouched ones serve the next test too."""

    folders: pytest.TempPathFactory
    up: dict[Options, Lab] = field(default_factory=dict)
    down: list[Lab] = field(default_factory=list)
    ssh_client: str = ""
    """What fabbench is told to connect with (ssh-client); empty: nothing."""

    def __call__(self, hosts: int = 2, *, fresh: bool = False, **options: Any) -> Lab:
        """Return a lab of so many hosts; `options` are those of lab.Options.

        Later calls give the same lab again, unless a test did something to it (Lab.touched).
        `fresh` brings up one of its own.
        """
        wanted = Options(hosts=hosts, **options)
        if wanted.slurm:
            need(*slurm.TOOLS)
        ready = None if fresh else self.up.pop(wanted, None)
        if ready is not None and ready.touched:
            ready.down()
            ready = None
        if ready is None:
            ready = Lab(self.folders.mktemp("lab"), wanted)
            self.down.append(ready)
        if not fresh:
            self.up[wanted] = ready
        ready.ssh_client = self.ssh_client
        return ready

    def tidy(self, most: int = 2) -> None:
        """Bring down what no later test gets, and of the rest all but the `most` used last.

        Every host has its daemons, and tests that look at all processes look at theirs too.
        """
        for wanted in list(self.up)[: max(0, len(self.up) - most)]:
            del self.up[wanted]
        kept = list(self.up.values())
        for ready in self.down:
            if ready not in kept:
                ready.down()
        self.down = kept


@pytest.fixture(scope="session")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Labs]:
    """Yield what brings up labs, once per process."""
    need(*TOOLS)
    if reason := missing():
        refuse(reason, fail=strict("FABBENCH_REQUIRE_LAB"))
    labs = Labs(tmp_path_factory)
    yield labs
    labs.tidy(0)


@pytest.fixture(scope="module")
def lab(labs: Labs, request: pytest.FixtureRequest) -> Iterator[Labs]:
    """Yield the factory of labs: `lab(4)`, `lab(2, trust=True)`."""
    labs.ssh_client = getattr(request, "param", "")
    yield labs
    labs.tidy()


BOTH_SSH_CLIENTS = pytest.mark.parametrize(
    "lab",
    ["openssh", pytest.param("paramiko", marks=pytest.mark.slow)],
    indirect=True,
    scope="module",
)
"""A whole module's tests over ssh are done with fabbench's own client and the user's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mpi:
    """An MPI's mpirun."""

    name: str
    mpirun: Path

    def argv(self, hosts: list[str], *, slots: int = 1) -> list[str]:
        """A plain command line that starts `slots` ranks on each host; the program follows."""
        total = str(len(hosts) * slots)
        if self.name == "mpich":
            return [str(self.mpirun), "-hosts", ",".join(hosts), "-ppn", str(slots), "-np", total]
        places = ",".join(f"{host}:{slots}" for host in hosts)
        return [
            str(self.mpirun),
            "--allow-run-as-root",
            "--bind-to",
            "none",
            "-H",
            places,
            "-np",
            total,
        ]

    def run(self, lab: Lab, command: str) -> "subprocess.CompletedProcess[str]":
        """Run a shell command with this mpirun in it on a lab's first host.

        Seen about once in fifty launches: Open MPI 5.0.11's prterun, and its daemons, do not notice
        that all ranks have ended, and stay for ever. They get a second chance.
        """
        for tries in range(3 if self.name == "openmpi5" else 1, 0, -1):
            try:
                return lab.ssh(lab[0], command, timeout=30)
            except subprocess.TimeoutExpired:
                if tries == 1:
                    raise
                for host in lab.hosts:
                    host.sh(["pkill", "-9", "^prte"], check=False)
        raise AssertionError


FLAVOURS = {
    "openmpi4": Path("/usr/bin/mpirun"),
    "openmpi5": ROOT / ".lab/openmpi5/bin/mpirun",
    "mpich": ROOT / ".lab/mpich/bin/mpirun",
}


@pytest.fixture(
    params=[
        "openmpi4",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("openmpi5", "mpich")),
    ]
)
def mpi(request: pytest.FixtureRequest) -> Mpi:
    """Each mpirun in turn: Debian's Open MPI 4, and Open MPI 5 and MPICH of setup/prepare dev."""
    return mpi_flavour(request.param)


def mpi_flavour(name: str) -> Mpi:
    """Return one mpirun: `openmpi4`, `openmpi5` or `mpich`."""
    mpirun = FLAVOURS[name]
    need(str(mpirun))
    return Mpi(name=name, mpirun=mpirun)


STANDIN = ROOT / "tests/support/fake_programs/nccl_tests"
"""Folder of the stand-ins for nccl-tests: `all_reduce_perf` and the others."""

OSU = ROOT / "tests/support/fake_programs/osu"
"""Folder of the stand-ins for the OSU micro-benchmarks, over the distribution's Open MPI."""


# The lab's kernel has no RDMA: a /sys/class with EFA devices in it is laid over the real one.
_SHOW_EFA = (DATA / "lab/show-efa").read_text("utf-8")


def with_efa(lab: Labs, devices: int = 4, hosts: int = 2, **options: Any) -> Lab:
    """Return a lab of its own whose hosts show so many EFA devices each."""
    site = lab(hosts, fresh=True, **options)
    for host in site.hosts:
        host.sh(["sh", "-c", _SHOW_EFA, "show", str(devices)])
    return site


@contextmanager
def standin(*hosts: Host, **settings: object) -> Iterator[None]:
    """Let the stand-ins on these hosts behave as STANDIN_… says.

    `standin(*lab.hosts, HANG_AT="1M")`.
    """
    files = [host.path(f"/run/standin/{name}") for host in hosts for name in settings]
    for file, value in zip(files, [*settings.values()] * len(hosts), strict=True):
        file.parent.mkdir(exist_ok=True)
        file.write_text(str(value))
    try:
        yield
    finally:
        for file in files:
            file.unlink(missing_ok=True)
