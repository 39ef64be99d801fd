"""Fixtures: labs of hosts, and the mpirun flavours to try on them."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab import Lab, Options, missing
from lab.layout import ROOT


def _required() -> bool:
    """Whether a lab that cannot start is a failure: where nobody would notice that tests were left out."""
    return bool(os.environ.get("CI") or os.environ.get("FABBENCH_REQUIRE_LAB"))


@dataclass
class Labs:
    """Brings up labs for the tests of a module; untouched ones serve the next test too."""

    folders: pytest.TempPathFactory
    up: dict[Options, Lab] = field(default_factory=dict)
    down: list[Lab] = field(default_factory=list)

    def __call__(self, hosts: int = 2, *, fresh: bool = False, **options: Any) -> Lab:
        """Give a lab of so many hosts; `options` are those of lab.Options.

        Later calls give the same lab again, unless a test did something to it (Lab.touched). `fresh`
        brings up one of its own.
        """
        wanted = Options(hosts=hosts, **options)
        ready = None if fresh else self.up.pop(wanted, None)
        if ready is not None and ready.touched:
            ready.down()
            ready = None
        if ready is None:
            ready = Lab(self.folders.mktemp("lab"), wanted)
            self.down.append(ready)
        if not fresh:
            self.up[wanted] = ready
        return ready


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Labs]:
    """Give the factory of labs: `lab(4)`, `lab(2, trust=True)`."""
    if reason := missing():
        (pytest.fail if _required() else pytest.skip)(reason)
    labs = Labs(tmp_path_factory)
    yield labs
    for up in labs.down:
        up.down()


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
        return [str(self.mpirun), "--allow-run-as-root", "--bind-to", "none", "-H", places, "-np", total]


FLAVOURS = {
    "openmpi4": Path("/usr/bin/mpirun"),
    "openmpi5": ROOT / ".lab/openmpi5/bin/mpirun",
    "mpich": ROOT / ".lab/mpich/bin/mpirun",
}


@pytest.fixture(params=list(FLAVOURS))
def mpi(request: pytest.FixtureRequest) -> Mpi:
    """Each mpirun in turn: Debian's Open MPI 4, and Open MPI 5 and MPICH of setup/prepare dev."""
    return mpi_flavour(request.param)


def mpi_flavour(name: str) -> Mpi:
    """Give one mpirun: `openmpi4`, `openmpi5` or `mpich`."""
    mpirun = FLAVOURS[name]
    if not mpirun.exists():
        (pytest.fail if _required() else pytest.skip)(f"{mpirun} is missing: setup/prepare dev makes it")
    return Mpi(name=name, mpirun=mpirun)
