"""What PBS, LSF and Flux have beside their jobs: refusals, the document, the check.

Their jobs are in test_batch_launchers.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.host_fixtures import STANDIN
from tests.support.local_runs import eventually, fabbench, output, start_program
from tests.support.paths import FAKE_PROGRAMS

pytestmark = pytest.mark.local

SYSTEMS = ("pbs", *(pytest.param(name, marks=pytest.mark.slow) for name in ("lsf", "flux")))
RUN = ("--nodes", "1", "--gpus", "2", "--fabric", "p2p", "-b", "8", "-e", "1K", "--repeat", "1")
PBS = ("run", "nccl", "--on", "pbs", "--bin-dir", str(STANDIN), *RUN)


@pytest.fixture(autouse=True)
def _programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the programs of the batch systems on the PATH."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BATCH", str(tmp_path))
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{FAKE_PROGRAMS / 'batch'}:{path}")


@pytest.fixture(params=SYSTEMS)
def queue(request: pytest.FixtureRequest) -> str:
    """Return the name of a batch system."""
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


def test_all_nodes_of_a_job_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = ["localhost", *(f"gpu-{number:04}" for number in range(12))]
    monkeypatch.setenv("BATCH_HOSTS", " ".join(hosts))
    done = fabbench(tmp_path, *PBS)
    assert f"runs on {'+'.join(f'{host}/0*2' for host in hosts)}." in done.stderr


def test_a_job_that_ends_at_once_is_explained_by_its_own_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCH_WORKDIR", "/nowhere")
    done = fabbench(tmp_path, *PBS)
    assert done.returncode == 3, done.stderr
    assert "/nowhere: No such file or directory" in done.stderr
    assert not [*tmp_path.glob("fabbench*")]


def test_of_a_run_that_was_killed_show_says_that_its_job_may_go_on(tmp_path: Path) -> None:
    with start_program(tmp_path, (*PBS, "--env", "STANDIN_HANG_AT=512")) as process:
        assert eventually(lambda: " float " in output(tmp_path))  # a row
        process.kill()
    try:
        done = fabbench(tmp_path, "show")
        assert done.returncode == 0, done.stderr
        assert "truncated" in done.stdout
        assert "its job (fabbench-…) may still wait or run in pbs" in done.stderr
    finally:
        subprocess.run(["qdel", "1.server"], check=True)
    whole = fabbench(tmp_path, *PBS)
    assert whole.returncode == 0, whole.stderr
    assert "may still" not in fabbench(tmp_path, "show").stderr


def test_a_server_may_keep_no_history_of_jobs(tmp_path: Path) -> None:
    """As PBS's do by default: it then knows no job that is over."""
    Path("no-history").touch()
    done = fabbench(tmp_path, *PBS)
    assert done.returncode == 0, done.stderr
    assert not [*tmp_path.glob("fabbench*")]
