"""`--env NAME`: programs on all hosts have the value, and nobody else sees it."""

from dataclasses import replace
from pathlib import Path

import pytest

from fabbench.model.log import Outcome
from fabbench.model.plan import Plan, Step
from tests.support import script_plans, slurm_runs
from tests.support.host_fixtures import Labs, mpi_flavour, standin
from tests.support.hosts import Lab
from tests.support.secrets_watch import VALUE, Seen, kept, watched
from tests.support.ssh_runs import STORE, nccl, nothing_left, pingpong, run, the_run

pytestmark = [pytest.mark.lab, pytest.mark.slow]
NAME = "MY_TOKEN"
FAST = ("--no-efa", "--repeat", "1", "--env", NAME)
ROW_S, ITERATIONS = 0.1, 5000
"""With these, programs live long enough to be seen.

On a busy machine an iteration takes milliseconds.
"""


def inheriting(plan: Plan) -> Plan:
    """Return a plan whose programs inherit the variable."""

    def step(each: Step) -> Step:
        return replace(
            each, commands=tuple(replace(command, inherited=(NAME,)) for command in each.commands)
        )

    executions = (replace(each, steps=tuple(map(step, each.steps))) for each in plan.executions)
    return replace(plan, executions=tuple(executions))


def folders(site: Lab) -> list[Path]:
    return [host.path("/tmp") for host in site.hosts]


def assert_hidden(seen: Seen, *programs: str) -> None:
    assert seen.on_command_lines == set()
    for program in programs:
        assert seen.in_environments.get(program) == {VALUE.encode()}, program
    assert set(seen.in_files.values()) <= {0o600}


@pytest.mark.parametrize(
    ("words", "program"), [(nccl, "python3"), (pingpong, "fi_pingpong")], ids=["ranks", "pairs"]
)
def test_over_ssh(lab: Labs, words: object, program: str) -> None:
    assert callable(words)
    site = lab(2)
    more = ("-e", "1K") if words is nccl else ("--size", "64", "--iterations", str(ITERATIONS))
    with (
        watched(NAME, *folders(site)) as seen,
        nothing_left(site),
        standin(*site.hosts, ROW_S=ROW_S),
    ):
        done = run(site, words(site, *FAST, *more), env={NAME: VALUE})
    assert done.returncode == 0, done.stderr
    assert_hidden(seen, program)
    assert len(seen.in_files) >= (1 if words is nccl else 2)
    assert [log.outcome for log in the_run(site).logs("tcp")] == [Outcome.OK]
    assert kept(site.path(STORE)) == []
    assert the_run(site).request.where["inherited"] == [NAME]


@pytest.mark.parametrize("name", ["mpich", "openmpi5"])
def test_by_other_mpiruns(lab: Labs, name: str) -> None:
    """MPICH's hydra and PRRTE bring the environment to their daemons each in a way of its own."""
    site, mpirun = lab(2), str(mpi_flavour(name).mpirun)
    with (
        watched(NAME, *folders(site)) as seen,
        nothing_left(site),
        standin(*site.hosts, ROW_S=ROW_S),
    ):
        done = run(site, nccl(site, *FAST, "-e", "1K", "--mpirun", mpirun), env={NAME: VALUE})
    assert done.returncode == 0, done.stderr
    assert_hidden(seen, "python3")
    assert kept(site.path(STORE)) == []


def test_by_a_script(lab: Labs) -> None:
    site, of = lab(2, trust=True), inheriting(script_plans.nccl("tcp", repeats=1))
    with (
        watched(NAME, *folders(site)) as seen,
        nothing_left(site),
        standin(*site.hosts, ROW_S=ROW_S),
    ):
        done = script_plans.run(site, of, MY_TOKEN=VALUE)
    assert (done.returncode, done.stderr) == (0, "")
    assert [log.outcome for log in script_plans.judged(done, of).values()] == [Outcome.OK]
    assert_hidden(seen, "python3")
    refused = script_plans.run(site, of)
    assert (refused.returncode != 0, f"{NAME}: is not set" in refused.stdout) == (True, True)


def test_a_job_of_slurm(lab: Labs) -> None:
    site = lab(3, slurm=True)
    with watched(NAME) as seen, standin(*site.hosts, ROW_S=ROW_S):
        done = run(site, slurm_runs.nccl(*FAST), env={NAME: VALUE})
    assert done.returncode == 0, done.stderr
    assert_hidden(seen, "python3")
    assert kept(the_run(site).path) == []
    assert (
        f'export {NAME}="${{{NAME}:?is not set}}"\n'
        in (the_run(site).path / "rendered/job.sbatch").read_text()
    )
