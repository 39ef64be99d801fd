"""Which MPI starts the ranks: its command line depends on it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class MpiKind(StrEnum):
    """The launchers that take different command lines."""

    OPEN_MPI_4 = "Open MPI 4"
    """Open MPI's own run-time (ORTE): release 4 and older."""
    OPEN_MPI_5 = "Open MPI 5"
    """Open MPI on PRRTE: release 5 and later."""
    HYDRA = "hydra"
    """MPICH, Intel MPI and MVAPICH."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mpi:
    """One ``mpirun``, as it was found on a host."""

    program: str
    """Its path."""
    kind: MpiKind
    version: str
    """As printed: ``4.1.7a1``, ``2021.11``."""


_FIRST_MAJOR_ON_PRRTE = 5
_OPEN_MPI = re.compile(r"mpi(?:run|exec)\S* \(Open(?: MPI|RTE)\) ((\d+)\.\S+)")
_INTEL = re.compile(r"Intel\(R\) MPI Library for Linux\* OS,? Version (\d\S*(?: Update \d+)?)")
_HYDRA = re.compile(r"\s*Version:\s+(\d\S*)")


def read_version(lines: Iterable[str]) -> tuple[MpiKind, str] | None:
    """Read what ``mpirun --version`` prints: the kind and the version; None: it is none that is known.

    Open MPI says ``mpirun (Open MPI) 4.1.4``, MPICH ``HYDRA build details:`` and a line with its version.
    """
    hydra = False
    for line in lines:
        if match := _OPEN_MPI.match(line):
            later = int(match[2]) >= _FIRST_MAJOR_ON_PRRTE
            return MpiKind.OPEN_MPI_5 if later else MpiKind.OPEN_MPI_4, match[1]
        if match := _INTEL.match(line):
            return MpiKind.HYDRA, match[1]
        hydra = hydra or line.startswith("HYDRA build details")
        if hydra and (match := _HYDRA.match(line)):
            return MpiKind.HYDRA, match[1]
    return None
