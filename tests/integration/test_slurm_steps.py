"""Inside an allocation that is this machine: what decides after each execution, one step for each.

srun, scontrol and scancel are stand-ins; the scripts, mpirun and what they start are real.
"""

import os
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from fabbench.model.log import Outcome
from fabbench.runs.store import StoredRun, runs
from tests.support.host_fixtures import STANDIN
from tests.support.local_runs import (
    eventually,
    fabbench,
    nothing_left,
    start_program,
    the_run,
)
from tests.support.paths import FAKE_PROGRAMS

pytestmark = pytest.mark.local

FAST = "fast=STANDIN_SPEED=1.5"
EQUAL = "a=STANDIN_SPEED=1.0"
ARM = '[[arms]]\nname = "faster"\nenv = {STANDIN_SPEED = "1.5", NCCL_ALGO = "RING"}\n'


class Allocation:
    """The allocation's folder, and a store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.be("RUNNING")

    def be(self, state: str) -> None:
        (self.folder / "state").write_text(state)

    def steps(self) -> list[int]:
        """The processes of all steps so far, in their order."""
        paths = sorted(self.folder.glob("step*"), key=lambda path: int(path.name[4:]))
        return [int(path.read_text()) for path in paths]

    def kill_step(self) -> None:
        """Kill the newest step, as Slurm does at the end of a job."""
        with suppress(ProcessLookupError):
            os.kill(self.steps()[-1], signal.SIGKILL)


@pytest.fixture
def allocation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Allocation:
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{FAKE_PROGRAMS / 'slurm'}:{path}")
    monkeypatch.setenv("ALLOCATION", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", socket.gethostname())
    monkeypatch.chdir(tmp_path)
    return Allocation(tmp_path)


def words(command: str, *more: str) -> Sequence[str]:
    where = ("--on", "slurm", "--mpi", "mpirun", "--gpus", "2", "--bin-dir", str(STANDIN))
    what = ("--fabric", "p2p", "-b", "1M", "-e", "2M", "--env", "STANDIN_JITTER=0.005")
    return (command, "nccl", *where, *what, "--max-repeats", "4", *more)


def auto(*variants: str) -> Sequence[str]:
    named = (word for each in variants for word in ("--variant", each))
    return words("run", "--repeat", "auto", *named, "--variant", "b=")


def test_repeats_end_when_all_is_decided(allocation: Allocation) -> None:
    done = fabbench(allocation.store, *auto(FAST))
    assert done.returncode == 0, done.stderr
    assert "Decided after 3 repeats" in done.stderr
    run = the_run(allocation.store)
    ended = [execution for execution in run.executions if execution.logs]
    assert [log.outcome for each in ended for log in each.logs] == [Outcome.OK] * 6
    assert len(allocation.steps()) == 6
    script = (run.path / "rendered/step.sh").read_text()
    assert ended[0].id in script
    assert ended[1].id not in script
    assert nothing_left(allocation.store)


@pytest.mark.slow
def test_a_tune_and_its_confirmation(allocation: Allocation) -> None:
    (allocation.folder / "arms.toml").write_text(ARM)
    settings = allocation.folder / "tuned.yaml"
    how = ("--arms", "arms.toml", "-o", str(settings))
    plan = fabbench(allocation.store, *words("tune", *how, "--dry-run"))
    assert plan.returncode == 0, plan.stderr
    assert "Held by:        job 7" in plan.stderr
    assert allocation.steps() == []
    done = fabbench(allocation.store, *words("tune", *how))
    assert done.returncode == 0, done.stderr
    found = sorted(map(StoredRun, runs(allocation.store)), key=lambda run: run.path.name)
    first, second = found
    assert second.name == f"confirms-{first.id}"
    assert second.id in settings.read_text()
    executions = [each for run in found for each in run.executions if each.logs]
    assert len(allocation.steps()) == len(executions)


def test_an_interrupt_ends_the_step_and_the_run_goes_on(allocation: Allocation) -> None:
    with start_program(allocation.store, auto(EQUAL)) as running:
        assert eventually(lambda: len(allocation.steps()) > 2 or running.poll())
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 130, errors
    assert nothing_left(allocation.store)
    run = the_run(allocation.store)
    kept = [each.id for each in run.executions if each.is_ok]
    assert len(kept) >= 2
    before = len(allocation.steps())
    again = fabbench(allocation.store, "run", "--resume", "last")
    assert "of them kept" in again.stderr
    executions = [each for each in the_run(allocation.store).executions if each.logs]
    assert len(allocation.steps()) - before == len(executions) - len(kept)


@pytest.mark.slow
def test_a_job_that_is_out_of_time_is_no_answer(allocation: Allocation) -> None:
    """What was measured is kept; the job and no node is to blame."""
    with start_program(allocation.store, auto(EQUAL)) as running:
        assert eventually(lambda: len(allocation.steps()) > 2 or running.poll())
        allocation.be("TIMEOUT")

        def over() -> bool:
            allocation.kill_step()
            return running.poll() is not None

        assert eventually(over)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 3, errors
    assert "time limit of 00:01:00" in errors
    assert any(each.is_ok for each in the_run(allocation.store).executions)
    assert nothing_left(allocation.store)
