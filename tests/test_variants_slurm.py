"""Variants in a batch script, under a real Slurm."""

import pytest

from lab import Lab
from lab_hosts import Labs
from slurm_runs import nccl, nothing_left, run
from ssh_runs import the_run
from test_variants_ssh import NEW, OLD, nccl_of, words

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.fixture
def site(lab: Labs) -> Lab:
    """Hosts of a Slurm with two versions of NCCL."""
    three = lab(3, slurm=True)
    for version in ("2.21.5", "2.30.4"):
        nccl_of(three, (0, 1, 2), version)
    return three


@pytest.mark.parametrize("mpi", [("--mpi", "srun"), ("--mpi", "mpirun", "--mpirun", "/usr/bin/mpirun")])
def test_every_rank_finds_its_variants_library(site: Lab, mpi: tuple[str, ...]) -> None:
    with nothing_left(site):
        arms = ("--no-efa", "--repeat", "2", *words(NEW, OLD, "plain=STANDIN_SPEED=2"))
        done = run(site, nccl("--gpus", "2", *mpi, *arms))
    assert done.returncode == 0, done.stderr + done.stdout
    stored = the_run(site)
    found = {arm.label: {log.facts["nccl"] for log in stored.logs(arm.label)} for arm in stored.arms}
    assert found == {"new": {"2.30.4"}, "old": {"2.21.5"}, "plain": {"2.28.9"}}


def test_a_folder_that_a_node_lacks(site: Lab) -> None:
    site[0].path("/tmp/half").mkdir(exist_ok=True)
    with nothing_left(site):
        done = run(site, nccl("--no-efa", *words("half=/tmp/half", "plain=")))
    assert (done.returncode, done.stdout) == (3, "")
    assert "There is no folder /tmp/half on node1. Nothing was started." in done.stderr
