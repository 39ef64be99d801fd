"""Runs that die under a real mpirun after three rows of a table, each in another way."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.read_logs import read


@pytest.mark.local
@pytest.mark.parametrize(
    ("how", "outcome", "said"),
    [
        ("not at all", "ok", ""),
        ("abort", "failed", "MPI_ABORT"),
        ("kill", "failed", "exited on signal 9"),
        pytest.param("truncate", "failed", "MPI_ERR_TRUNCATE", marks=pytest.mark.slow),
        pytest.param("no such rank", "failed", "MPI_ERR_RANK", marks=pytest.mark.slow),
        pytest.param("exit", "failed", "process rank 1", marks=pytest.mark.slow),
        pytest.param("segmentation fault", "failed", "exited on signal 11", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_dies_under_mpirun_is_never_ok(
    tmp_path: Path, how: str, outcome: str, said: str
) -> None:
    ranks = ["--allow-run-as-root", "--oversubscribe", "-np", "2"]
    program = [sys.executable, str(ROOT / "tests/support/mpi_abort.py"), how]
    for _ in range(5):  # the words of a rank that aborts are at times lost by mpirun itself
        done = subprocess.run(
            ["mpirun", *ranks, *program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode == 0) == (outcome == "ok")
        if said in done.stdout + done.stderr:
            break
    for text in (
        done.stdout + done.stderr,
        done.stderr + done.stdout,
    ):  # mpirun may print either first
        (log,) = read(text)
        assert (log.outcome, len(log.points)) == (outcome, 3)
        assert said in (log.reason or "")
