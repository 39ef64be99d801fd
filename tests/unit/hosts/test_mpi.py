"""mpirun --version: whose it is."""

import pytest

from fabbench.hosts.probe import read_mpi_version
from fabbench.model.hosts import MpiKind


@pytest.mark.parametrize(
    ("printed", "kind", "version"),
    [
        (
            "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/",
            MpiKind.OPEN_MPI_4,
            "4.1.4",
        ),
        ("mpirun (Open MPI) 4.1.7a1", MpiKind.OPEN_MPI_4, "4.1.7a1"),
        ("mpirun (Open MPI) 1.10.7", MpiKind.OPEN_MPI_4, "1.10.7"),
        (
            "mpirun (Open MPI) 5.0.8\n\nReport bugs to https://www.open-mpi.org/community/help/",
            MpiKind.OPEN_MPI_5,
            "5.0.8",
        ),
        ("mpiexec (OpenRTE) 5.0.0rc12", MpiKind.OPEN_MPI_5, "5.0.0rc12"),
        (
            "HYDRA build details:\n    Version:                                 4.0.2\n    Release:",
            MpiKind.HYDRA,
            "4.0.2",
        ),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.11 Build 20231005 (id: 74c4a23)", MpiKind.HYDRA, "2021.11"),
        ("Intel(R) MPI Library for Linux* OS, Version 2019 Update 9 Build 20200923", MpiKind.HYDRA, "2019 Update 9"),
        ("a banner of this cluster\nmpirun (Open MPI) 4.1.4", MpiKind.OPEN_MPI_4, "4.1.4"),
    ],
)
def test_the_kind_and_version_are_read(printed: str, kind: MpiKind, version: str) -> None:
    assert read_mpi_version(printed.split("\n")) == (kind, version)


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "sh: mpirun: not found",
        "slurm 23.02.6",
        "    Version:      4.0.2",
        "HYDRA build details:",
        "mpirun (Open MPI)",
    ],
)
def test_what_is_not_known_is_nothing(printed: str) -> None:
    assert read_mpi_version(printed.split("\n")) is None
