"""Runs submitted to PBS, LSF and Flux: whole programs of theirs, which really run the script."""

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from fabbench.runs.store import StoredRun, runs
from tests.support.local_runs import eventually, fabbench, start_program
from tests.support.paths import ROOT

pytestmark = pytest.mark.local

PROGRAMS = ROOT / "tests/support/fake_programs"
CANCELS = {"pbs": "qdel 1.server", "lsf": "bkill 1", "flux": "flux cancel f1"}
SYSTEMS = ("pbs", *(pytest.param(name, marks=pytest.mark.slow) for name in ("lsf", "flux")))
RUN = ("--nodes", "1", "--gpus", "2", "--fabric", "p2p", "-b", "8", "-e", "1K", "--repeat", "1")


class Queue:
    """A batch system, its folder, and the directory that jobs are submitted from."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.store = folder / "runs"

    def arguments(self, *more: str) -> Sequence[str]:
        programs = str(PROGRAMS / "nccl_tests")
        return ("run", "nccl", "--on", self.name, "--bin-dir", programs, *RUN, *more)

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    def pid(self) -> int:
        return int((self.folder / "1.pid").read_text())

    def has_printed(self) -> bool:
        """Whether the script has begun and printed something."""
        return any(path.stat().st_size for path in self.folder.glob("fabbench-*.out"))

    def is_over(self) -> bool:
        """Whether no program of the first job runs, and nothing of it is left."""
        left = [*self.folder.glob("fabbench-*.out")]
        return not left and (self.folder / "1.end").exists() and not group_runs(self.pid())


def group_runs(leader: int) -> bool:
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(params=SYSTEMS)
def queue(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BATCH", str(tmp_path))
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{PROGRAMS / 'batch'}:{path}")
    return Queue(request.param, tmp_path)


def test_a_run_is_one_job(queue: Queue) -> None:
    done = fabbench(queue.store, *queue.arguments("--format", "json"))
    assert done.returncode == 0, done.stderr
    (column,) = json.loads(done.stdout)["columns"]
    assert column["outcome"] == "ok"
    (run,) = runs(queue.store)
    submitted = next(run.rglob("job.sh")).read_text()
    assert "exec >fabbench.out" in submitted
    assert eventually(queue.is_over)


@pytest.mark.parametrize("words", [("run", "nccl", "--repeat", "auto"), ("tune", "nccl")])
def test_what_decides_after_each_execution_is_refused(queue: Queue, words: Sequence[str]) -> None:
    more = (*RUN[:-2], "--on", queue.name)
    for each in (words, (*words, "--dry-run")):
        done = fabbench(queue.store, *each, *more)
        assert done.returncode == 2, done.stderr
        assert f"have no effect with {queue.name}: it runs all as one job" in done.stderr
    assert not (queue.folder / "calls").exists()


def test_what_is_rendered_is_what_runs(queue: Queue) -> None:
    done = fabbench(queue.store, "render", "nccl", "--as", queue.name, *RUN[:6])
    assert done.returncode == 0, done.stderr
    directives = [line for line in done.stdout.splitlines() if line.startswith("#")]
    assert any("fabbench-nccl" in line for line in directives)


def test_a_rejected_job_has_the_words_of_the_system(queue: Queue) -> None:
    (queue.folder / "reject").write_text("no such queue: gpu")
    done = fabbench(queue.store, *queue.arguments("--queue", "gpu"))
    assert done.returncode == 3
    assert "no such queue: gpu" in done.stderr


@pytest.mark.slow
def test_one_that_waits_too_long_is_cancelled(queue: Queue) -> None:
    (queue.folder / "hold").touch()
    done = fabbench(queue.store, *queue.arguments("--start-timeout", "1"))
    assert done.returncode == 3
    assert "held" in done.stderr
    assert CANCELS[queue.name] in queue.calls()
    assert eventually(queue.is_over)


def test_an_interrupted_run_leaves_no_job(queue: Queue) -> None:
    (queue.folder / "hold").touch()
    with start_program(queue.store, queue.arguments()) as process:
        assert eventually((queue.folder / "1.pid").exists)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert CANCELS[queue.name] in queue.calls()
    assert eventually(queue.is_over)


@pytest.mark.parametrize(
    "ending",
    [
        signal.SIGKILL,  # as where its node is lost
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),  # at its time limit
    ],
)
def test_a_job_that_is_killed_is_no_result(queue: Queue, ending: signal.Signals) -> None:
    slow = queue.arguments("-e", "1G", "--iterations", "100000")
    with start_program(queue.store, slow) as process:
        assert eventually(queue.has_printed)
        os.killpg(queue.pid(), ending)
        (queue.folder / "1.end").write_text(str(128 + ending))
        assert process.wait(60) in {3, 4}
    assert eventually(queue.is_over)
    (run,) = runs(queue.store)
    assert {log.outcome for log in StoredRun(run).logs("p2p")}.isdisjoint({"ok"})


def test_without_the_system_the_check_says_so(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = fabbench(queue.store, "check", "--on", queue.name)
    assert done.returncode == 0, done.stdout
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    done = fabbench(queue.store, "check", "--on", queue.name)
    assert done.returncode == 3, done.stdout
