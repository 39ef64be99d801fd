"""`fabbench run nixl`: a stand-in that plays what the true nixlbench printed on such a machine."""

import subprocess
from pathlib import Path

import pytest

from fabbench.model.log import Log, Outcome
from tests.support.local_runs import fabbench, nothing_left, the_run
from tests.support.paths import FAKE_PROGRAMS

pytestmark = pytest.mark.local

SIZES = [16 << 10, 32 << 10, 64 << 10]


def nixl(store: Path, *more: str) -> subprocess.CompletedProcess[str]:
    where = ("--on", "local", "--bin-dir", str(FAKE_PROGRAMS / "nixl"))
    return fabbench(store, "run", "nixl", *where, "-b", "16K", "-e", "64K", "--repeat", "1", *more)


def the_log(store: Path, configuration: str) -> Log:
    (log,) = the_run(store).logs(configuration)
    return log


def test_what_carried_reads_and_writes_is_proven(tmp_path: Path) -> None:
    done = nixl(tmp_path, "--fabric", "tcp", "--fabric", "shm")
    assert done.returncode == 0, done.stderr
    for fabric, transport in (("tcp", "socket"), ("shm", "shm")):
        log = the_log(tmp_path, fabric)
        assert (log.outcome, log.reason, log.case) == (Outcome.OK, None, "nixlbench")
        assert (log.facts["transport"], log.facts["rma"]) == (transport, "zero-copy")
        assert log.facts["checked"] == "yes"
        assert [*dict.fromkeys(point.size for point in log.points)] == SIZES
        assert "nixl-defaults" in {each.code for each in log.findings}
    assert nothing_left(tmp_path)


def test_a_gate_decides_the_status(tmp_path: Path) -> None:
    gate = ("--gate", "bandwidth@64K>=100GB/s")
    done = nixl(tmp_path, "--fabric", "tcp", *gate)
    assert done.returncode == 1, done.stderr


@pytest.mark.parametrize(
    ("recording", "outcome"),
    [
        ("writes-through-shared-memory", Outcome.OFF_FABRIC),
        pytest.param("the-times-of-phases", Outcome.TRUNCATED, marks=pytest.mark.slow),
        ("the-other-process-gone-at-the-end", Outcome.FAILED),
    ],
)
def test_another_recording_is_not_ok(tmp_path: Path, recording: str, outcome: Outcome) -> None:
    done = nixl(tmp_path, "--fabric", "tcp", "--env", f"STANDIN_RECORDING={recording}")
    assert done.returncode == 4, done.stderr
    assert the_log(tmp_path, "tcp").outcome is outcome
