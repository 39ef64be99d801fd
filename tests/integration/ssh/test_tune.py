"""`fabbench tune` over ssh: Open MPI's allreduce algorithms, between namespaced hosts.

Their wires are slow, so that what an algorithm sends decides how long it takes.
"""

import json
import re
from pathlib import Path

import pytest

from fabbench.model.log import Outcome
from fabbench.runs.store import StoredRun, runs
from tests.support.host_fixtures import OSU, STANDIN, Labs, standin
from tests.support.hosts import HOME, Lab
from tests.support.ssh_faults import running
from tests.support.ssh_runs import STORE, argv, hosts, nothing_left

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PARAMETER = "coll_tuned_allreduce_algorithm"
ALGORITHMS = {"linear": "1", "doubling": "3", "ring": "4"}
ARMS = "".join(
    f'[[arms]]\nname = "{name}"\nenv = {{OMPI_MCA_coll_tuned_use_dynamic_rules = "1", '
    f'OMPI_MCA_{PARAMETER} = "{number}"}}\n'
    for name, number in ALGORITHMS.items()
)
FASTER = '[[arms]]\nname = "faster"\nenv = {STANDIN_SPEED = "1.5"}\n'
SETTINGS = HOME / "tuned.yaml"
"""On the client."""


@pytest.fixture
def site(lab: Labs) -> Lab:
    """Two hosts of their own with slow links, and an empty store."""
    two = lab(2, fresh=True)
    for host in two.hosts:
        for link in ("fab0", "fab1"):
            host.rate("100mbit", link)
    return two


def tune(site: Lab, benchmark: str, arms: str, *more: str) -> list[str]:
    """The command line of a tune that writes SETTINGS."""
    site.path(HOME / "arms.toml").write_text(arms)
    written = ("--arms", str(HOME / "arms.toml"), "--max-repeats", "4", "-o", str(SETTINGS))
    return argv("tune", benchmark, "--on", "ssh", *hosts(site), "--no-efa", *written, *more)


def osu(site: Lab, *more: str) -> list[str]:
    """A tune of allreduce with four ranks, in which rank 0 prints what Open MPI will use."""
    what = ("--program", "osu_allreduce", "--ranks-per-host", "2", "-b", "512K", "-e", "1M")
    shown = ("--env", f"STANDIN_PARAMETER={PARAMETER}")
    return tune(site, "osu", ARMS, "--bin-dir", str(OSU), *what, *shown, *more)


def stored(site: Lab) -> list[StoredRun]:
    return sorted(map(StoredRun, runs(site.path(STORE))), key=lambda run: run.path.name)


def ran(path: Path) -> set[str]:
    """The algorithms that Open MPI had in an execution."""
    return {*re.findall(rf"{PARAMETER} is (\d+)", (path / "output.log").read_text())}


def test_the_plan_has_every_algorithm_and_the_default(site: Lab) -> None:
    with nothing_left(site):
        done = site.run(osu(site, "--dry-run"))
    assert done.returncode == 0, done.stderr
    for name, number in ALGORITHMS.items():
        assert name in done.stderr
        assert f"OMPI_MCA_{PARAMETER}={number}" in done.stderr
    assert "default" in done.stderr
    assert not site.path(SETTINGS).exists()
    assert stored(site) == []
    assert not site.path(SETTINGS).exists()


def test_algorithms_of_open_mpi(site: Lab) -> None:
    """Each ran as its arm says, or the arm is out; a file is written for a confirmed gain only."""
    with nothing_left(site):
        done = site.run(osu(site), timeout=400)
    first, *others = stored(site)
    assert {each.label for each in first.configurations} == {*ALGORITHMS, "default"}
    for run in (first, *others):
        for execution in run.executions:
            arm = execution.configuration
            (log,) = execution.logs
            if f"{arm} is out: " in done.stderr and log.outcome is not Outcome.OK:
                continue
            assert (log.outcome, log.facts["transport"], log.facts["ranks"]) == (
                Outcome.OK,
                "socket",
                4,
            )
            assert ran(execution.path) == {ALGORITHMS.get(arm, "0")}
            planned = json.loads((execution.path / "plan.json").read_text())
            env = planned["steps"][0]["commands"][0]["env"]
            assert env.get(f"OMPI_MCA_{PARAMETER}") == ALGORITHMS.get(arm)
    winners = [run for run in others if run.name == f"confirms-{first.id}"]
    assert winners == others
    written = site.path(SETTINGS)
    if done.returncode == 0:
        assert "Better than the default, and nowhere likely slower: " in done.stderr
        (confirmed,) = winners
        assert confirmed.id in written.read_text()
        assert "measured: " in written.read_text()
    else:
        undecided = "Not decided." in done.stderr
        assert done.returncode == (4 if undecided else 1), done.stderr
        assert undecided or "Nothing beats the default" in done.stderr
        assert not written.exists()


def test_a_host_that_dies_ends_a_tune(site: Lab) -> None:
    """It is named, what was measured is kept, and nothing is written."""
    words = tune(site, "nccl", FASTER, "--bin-dir", str(STANDIN), "--gpus", "1", "-e", "1K")
    with (
        nothing_left(site),
        standin(*site.hosts, ROW_S=0.3),
        running(site, [*words, "--set", "lost-after=5"]) as run,
    ):
        run.until(lambda: run.text().count("Avg bus bandwidth") > 2)
        site[1].kill()
        assert run.ends() == 3, run.err
    assert "node1" in run.err
    assert "Not decided." in run.err
    (only,) = stored(site)
    assert [each.is_ok for each in only.executions][:2] == [True, True]
    assert not site.path(SETTINGS).exists()
