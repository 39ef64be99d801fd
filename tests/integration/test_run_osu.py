"""`fabbench run osu` on this machine: real Open MPI, whose own words prove the transport.

The programs stand in for OSU's, whose source is in no package registry: they exchange messages by
MPI, and print as OSU's do.
"""

import re
import subprocess
from pathlib import Path

import pytest

from fabbench.model.log import Outcome
from tests.support.local_runs import fabbench, nothing_left, the_run

pytestmark = pytest.mark.local

PROGRAMS = Path(__file__).parents[1] / "support" / "fake_programs" / "osu"


def osu(store: Path, *more: str) -> subprocess.CompletedProcess[str]:
    common = (
        "run",
        "osu",
        "--on",
        "local",
        "--repeat",
        "1",
        "-e",
        "64",
        "--bin-dir",
        str(PROGRAMS),
    )
    return fabbench(store, *common, *more)


TRANSPORTS = {"tcp": "socket", "shm": "shm", "ofi-tcp": "libfabric-tcp"}


@pytest.mark.parametrize("fabrics", [["tcp"], pytest.param([*TRANSPORTS], marks=pytest.mark.slow)])
def test_transports_between_two_ranks_are_chosen_and_proven(
    tmp_path: Path, fabrics: list[str]
) -> None:
    done = osu(tmp_path, *(word for fabric in fabrics for word in ("--fabric", fabric)))
    assert done.returncode == 0, done.stderr
    run = the_run(tmp_path)
    for configuration in fabrics:
        (log,) = run.logs(configuration)
        transport = TRANSPORTS[configuration]
        assert (log.case, log.outcome, log.facts["transport"]) == (
            "osu_latency",
            Outcome.OK,
            transport,
        )
        assert [point.size for point in log.points] == [1, 2, 4, 8, 16, 32, 64]
    assert nothing_left(tmp_path)


@pytest.mark.slow
def test_collectives_have_as_many_ranks_as_asked_for(tmp_path: Path) -> None:
    tests = ("--program", "osu_allreduce", "--program", "osu_bw")
    done = osu(tmp_path, "--fabric", "tcp", "--ranks-per-host", "3", *tests)
    assert done.returncode == 0, done.stderr
    run = the_run(tmp_path)
    (text,) = (path.read_text() for path in tmp_path.rglob("output.log"))
    assert re.findall(r"begin .* test=(\w+) ranks=(\d)", text) == [
        ("osu_allreduce", "3"),
        ("osu_bw", "2"),
    ]
    assert [(log.case, log.facts["ranks"]) for log in run.logs("tcp")] == [
        ("osu_allreduce", 3),
        ("osu_bw", 2),
    ]


@pytest.mark.slow
def test_a_program_that_cannot_run_is_a_failure(tmp_path: Path) -> None:
    done = osu(tmp_path, "--fabric", "tcp", "--program", "osu_bw", "--", "--unknown")
    assert done.returncode == 4, done.stderr
    (log,) = the_run(tmp_path).logs("tcp")
    assert log.outcome is Outcome.FAILED


def test_more_than_two_hosts_are_too_many_for_a_pair(tmp_path: Path) -> None:
    done = osu(tmp_path, "--fabric", "tcp", "--gpus", "3", "--virtual-nodes", "3")
    assert done.returncode == 2
    assert "there are 3 hosts" in done.stderr
