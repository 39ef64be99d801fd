"""mpirun --version: whose it is."""

import pytest

from fabbench.hosts.probe import read_mpi_version
from tests.support.paths import DATA

PRINTED = [
    line.split(" | ") for line in (DATA / "mpirun-versions.txt").read_text("utf-8").splitlines()[1:]
]


@pytest.mark.parametrize(("printed", "kind", "version"), PRINTED)
def test_the_kind_and_version_are_read(printed: str, kind: str, version: str) -> None:
    assert read_mpi_version(printed.split("\\n")) == ((kind, version) if kind else None)
