"""What decides after each execution, on a real Slurm: `tune` and `run --repeat auto`.

One job holds the nodes, and each execution is a step of it.
"""

import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fabbench.model.log import Outcome
from fabbench.runs.store import StoredExecution, StoredRun, runs
from tests.support.host_fixtures import OSU, STANDIN, Labs, standin
from tests.support.hosts import HOME, Lab, processes
from tests.support.slurm_runs import (
    files,
    jobs,
    nothing_left,
    on,
    site,
    state,
    the_job,
)
from tests.support.ssh_faults import RunningCommand, running
from tests.support.ssh_runs import STORE, argv, the_run

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PLACE = ("--no-efa", "--nodes", "2", "--partition", "rest")
"""Nodes which are not the login node."""
FAST = "fast=STANDIN_SPEED=1.5"
EQUAL = "fast=STANDIN_SPEED=1.0"
PARAMETER = "coll_tuned_allreduce_algorithm"
ALGORITHMS = {"linear": "1", "ring": "4"}
ARMS = "".join(
    f'[[arms]]\nname = "{name}"\nenv = {{OMPI_MCA_coll_tuned_use_dynamic_rules = "1", '
    f'OMPI_MCA_{PARAMETER} = "{number}"}}\n'
    for name, number in ALGORITHMS.items()
)


def auto(variant: str, *more: str) -> list[str]:
    """Repeats of a variant and the default, whose figures vary a little."""
    where = ("--on", "slurm", "--login", "node0", *PLACE, "--set", "no-gres=true")
    what = ("--bin-dir", str(STANDIN), "--gpus", "1", "-b", "1M", "-e", "2M")
    variants = ("--variant", variant, "--variant", "usual=", "--env", "STANDIN_JITTER=0.005")
    return argv("run", "nccl", *where, *what, "--repeat", "auto", *variants, *more)


def tune(*more: str) -> list[str]:
    """A tune of allreduce with four ranks, in which rank 0 prints what Open MPI will use."""
    where = ("--on", "slurm", "--login", "node0", *PLACE, "--set", "no-gres=true")
    what = ("--program", "osu_allreduce", "--ranks-per-host", "2", "-b", "512K", "-e", "1M")
    how = ("--max-repeats", "4", "--env", f"STANDIN_PARAMETER={PARAMETER}")
    return argv("tune", "osu", *where, "--bin-dir", str(OSU), *what, *how, *more)


def stored(lab: Lab) -> list[StoredRun]:
    return sorted(map(StoredRun, runs(lab.path(STORE))), key=lambda run: run.path.name)


def carried_out(run: StoredRun) -> Sequence[StoredExecution]:
    return [execution for execution in run.executions if execution.logs]


def began(run: RunningCommand) -> int:
    """How many tables have ended so far."""
    return run.text().count("Avg bus bandwidth")


def new_jobs(lab: Lab, before: set[str]) -> list[str]:
    return sorted(set(jobs(lab[0])) - before)


def test_repeats_are_steps_of_one_job(lab: Labs) -> None:
    hosts = site(lab)
    before = set(jobs(hosts[0]))
    with nothing_left(hosts), running(hosts, auto(FAST)) as run:
        assert run.ends(300) == 0, run.err
    assert "Decided after " in run.err
    made = the_run(hosts)
    ended = carried_out(made)
    assert {log.outcome for each in ended for log in each.logs} == {Outcome.OK}
    assert {each.configuration for each in ended} == {"fast", "usual"}
    assert len(made.schedule) == len(ended) < 40
    (job,) = new_jobs(hosts, before)
    held = hosts[0].sh(["scontrol", "write", "batch_script", job, "-"]).stdout
    assert "all_reduce_perf" not in held
    assert held.strip() == (made.path / "rendered/job.sbatch").read_text().strip()
    assert "all_reduce_perf" in (made.path / "rendered/step.sh").read_text()
    assert {name for log in ended[0].logs for name in log.hosts} == {"node1", "node2"}


def test_in_an_allocation(lab: Labs) -> None:
    """Nothing is submitted, and the steps run in the job that is there."""
    hosts = site(lab)
    hosts[0].sh(["rm", "-rf", str(STORE)])
    ours = [
        word
        for word in auto(FAST)
        if word not in {"--login", "node0", "--partition", "rest", str(STORE), "--store"}
    ]
    salloc = ("salloc", "-N2", "-p", "rest", "--exclusive", *ours, "--store", str(STORE))
    with nothing_left(hosts):
        done = on(hosts[0], *salloc)
    assert done.returncode == 0, done.stderr
    assert "submitted" not in done.stderr
    made = StoredRun(next(runs(hosts[0].path(STORE))))
    assert {log.outcome for each in carried_out(made) for log in each.logs} == {Outcome.OK}
    hosts[0].sh(["rm", "-rf", str(STORE)])


@pytest.mark.parametrize(
    "mpi", [("--mpi", "srun"), ("--mpi", "mpirun", "--mpirun", "/usr/bin/mpirun")]
)
def test_algorithms_of_open_mpi(lab: Labs, mpi: tuple[str, ...]) -> None:
    """Each ran as its arm says. The confirmation has the nodes of the first run, in its job."""
    hosts = site(lab)
    hosts.run(["rm", "-rf", STORE])
    hosts.path(HOME / "arms.toml").write_text(ARMS)
    settings = HOME / "tuned.yaml"
    hosts.path(settings).unlink(missing_ok=True)
    before = set(jobs(hosts[0]))
    words = tune(*mpi, "--arms", str(HOME / "arms.toml"))
    with nothing_left(hosts):
        plan = hosts.run([*words, "--dry-run"])
        assert plan.returncode == 0, plan.stderr
        assert "one job" in plan.stdout
        assert new_jobs(hosts, before) == []
        done = hosts.run([*words, "-o", str(settings)], timeout=400)
    first, *others = stored(hosts)
    assert {each.label for each in first.configurations} == {*ALGORITHMS, "default"}
    for run in (first, *others):
        for execution in carried_out(run):
            arm = execution.configuration
            (log,) = execution.logs
            assert (log.outcome, log.facts["ranks"]) == (Outcome.OK, 4), done.stderr
            assert ran(execution.path) == {ALGORITHMS.get(arm, "0")}
    assert [run.name for run in others] == [f"confirms-{first.id}"] * len(others)
    assert len(new_jobs(hosts, before)) == 1
    assert {run.hosts for run in others} <= {first.hosts} == {("node1", "node2")}
    answers = {4} if "Not decided." in done.stderr else {0, 1}
    assert done.returncode in answers, done.stderr
    assert hosts.path(settings).exists() == (done.returncode == 0)


def ran(path: Path) -> set[str]:
    """The algorithms that Open MPI had in an execution."""
    return {*re.findall(rf"{PARAMETER} is (\d+)", (path / "output.log").read_text())}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_and_resumed(lab: Labs, number: signal.Signals) -> None:
    """What had ended is kept, and the rest runs in a new job, on the same nodes."""
    hosts = site(lab)
    with nothing_left(hosts):
        with standin(*hosts.hosts, ROW_S=1), running(hosts, auto(FAST)) as run:
            run.until(lambda: began(run) >= 3, 120)
            run.process.send_signal(number)
            assert run.ends() == 130, run.err
        job = the_job(hosts[0])
        assert state(hosts[0], job) in {"CANCELLED", "FAILED"}
        kept = [each.id for each in the_run(hosts).executions if each.is_ok]
        assert len(kept) >= 2
        nodes = jobs(hosts[0])[job]["NodeList"]
        done = hosts.run(argv("run", "--resume", "last"), timeout=300)
    assert done.returncode == 0, done.stderr
    assert f"{len(kept)} of them kept" in done.stderr
    assert the_job(hosts[0]) != job
    assert jobs(hosts[0])[the_job(hosts[0])]["NodeList"] == nodes


def test_killed_leaves_no_process(lab: Labs) -> None:
    """The job ends by itself, three minutes later: `clean` finds it before."""
    hosts = site(lab)
    clean = [sys.executable, "-m", "fabbench", "clean", "--on", "slurm", "--login", "node0"]
    with nothing_left(hosts), standin(*hosts.hosts, ROW_S=1):
        # The agent on the login node waits for twice as long.
        with running(hosts, auto(FAST, "--set", "lost-after=5")) as run:
            run.until(lambda: began(run) >= 1, 120)
            left = processes.descendants(run.process.pid)
            run.process.kill()
            run.process.wait()
            assert processes.ended_soon(left)
        job = the_job(hosts[0])
        assert hosts.run([*clean, "--all", "--yes"]).returncode == 0
        assert processes.eventually(lambda: state(hosts[0], job) == "CANCELLED")


def test_a_job_that_is_out_of_time(lab: Labs) -> None:
    """What was measured until then is kept, and what goes on has it."""
    hosts = site(lab)
    words = auto(EQUAL, "--time", "1")
    with nothing_left(hosts), standin(*hosts.hosts, ROW_S=8), running(hosts, words) as run:
        assert run.ends(300) == 3, run.err
    assert "time limit of 00:01:00" in run.err, run.err[-1500:]
    made = the_run(hosts)
    assert any(each.is_ok for each in made.executions)
    assert files(hosts[0]) == []


def test_somebody_else_cancels_the_job(lab: Labs) -> None:
    hosts = site(lab)
    with (
        nothing_left(hosts),
        standin(*hosts.hosts, ROW_S=1),
        running(hosts, auto(EQUAL)) as run,
    ):
        run.until(lambda: began(run) >= 2, 120)
        job = the_job(hosts[0])
        hosts[0].sh(["scancel", job])
        assert run.ends() == 3, run.err
    assert f"Job {job} was cancelled" in run.err
    assert any(each.is_ok for each in the_run(hosts).executions)
