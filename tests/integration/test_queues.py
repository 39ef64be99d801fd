"""What PBS, LSF and Flux have beside their jobs: refusals, the document, the check.

Their jobs are in test_batch_launchers.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.local_runs import fabbench
from tests.support.paths import FAKE_PROGRAMS

pytestmark = pytest.mark.local

SYSTEMS = ("pbs", *(pytest.param(name, marks=pytest.mark.slow) for name in ("lsf", "flux")))
RUN = ("--nodes", "1", "--gpus", "2", "--fabric", "p2p", "-b", "8", "-e", "1K", "--repeat", "1")


@pytest.fixture(params=SYSTEMS)
def queue(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have the programs of a batch system on the PATH; return its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BATCH", str(tmp_path))
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{FAKE_PROGRAMS / 'batch'}:{path}")
    name: str = request.param
    return name


@pytest.mark.parametrize("words", [("run", "nccl", "--repeat", "auto"), ("tune", "nccl")])
def test_what_decides_after_each_execution_is_refused(
    queue: str, tmp_path: Path, words: Sequence[str]
) -> None:
    more = (*RUN[:-2], "--on", queue)
    for each in (words, (*words, "--dry-run")):
        done = fabbench(tmp_path, *each, *more)
        assert done.returncode == 2, done.stderr
        assert f"have no effect with {queue}: it runs all as one job" in done.stderr
    assert not Path("calls").exists()


def test_directives_name_the_job(queue: str, tmp_path: Path) -> None:
    done = fabbench(tmp_path, "render", "nccl", "--as", queue, *RUN[:6])
    assert done.returncode == 0, done.stderr
    directives = [line for line in done.stdout.splitlines() if line.startswith("#")]
    assert any("fabbench-nccl" in line for line in directives)


def test_without_the_system_the_check_says_so(
    queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = fabbench(tmp_path, "check", "--on", queue)
    assert done.returncode == 0, done.stdout
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    done = fabbench(tmp_path, "check", "--on", queue)
    assert done.returncode == 3, done.stdout
