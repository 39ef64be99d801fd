"""Variants in a batch script, under a real Slurm."""

import pytest

from fabbench.model.log import Outcome
from tests.integration.ssh.test_variants import NEW, OLD, nccl_of, words
from tests.support.host_fixtures import Labs
from tests.support.hosts import Lab
from tests.support.paths import DATA
from tests.support.read_logs import LOGS
from tests.support.slurm_runs import nccl, nothing_left, run
from tests.support.ssh_runs import argv, the_run

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.fixture
def site(lab: Labs) -> Lab:
    """Hosts of a Slurm with two versions of NCCL."""
    three = lab(3, slurm=True)
    for version in ("2.21.5", "2.30.4"):
        nccl_of(three, (0, 1, 2), version)
    return three


@pytest.mark.parametrize(
    "mpi", [("--mpi", "srun"), ("--mpi", "mpirun", "--mpirun", "/usr/bin/mpirun")]
)
def test_every_rank_finds_its_variants_library(site: Lab, mpi: tuple[str, ...]) -> None:
    with nothing_left(site):
        configurations = ("--no-efa", "--repeat", "2", *words(NEW, OLD, "plain=STANDIN_SPEED=2"))
        done = run(site, nccl("--gpus", "2", *mpi, *configurations))
    assert done.returncode == 0, done.stderr + done.stdout
    stored = the_run(site)
    found = {
        configuration.label: {log.facts["nccl"] for log in stored.logs(configuration.label)}
        for configuration in stored.configurations
    }
    assert found == {"new": {"2.30.4"}, "old": {"2.21.5"}, "plain": {"2.28.9"}}


def test_a_directory_that_a_node_lacks(site: Lab) -> None:
    site[0].path("/tmp/half").mkdir(exist_ok=True)
    with nothing_left(site):
        done = run(site, nccl("--no-efa", *words("half=/tmp/half", "plain=")))
    assert done.returncode == 4
    printed = "".join(path.read_text("utf-8") for path in the_run(site).path.rglob("output.log"))
    assert "fabbench: /tmp/half is not on node1" in printed


# Plays a published table, as all PEs print it.
PERFTEST = (DATA / "programs/alltoall_latency").read_text("utf-8")


def nvshmem_of(site: Lab, name: str, version: str) -> str:
    """Put a perftest on all hosts; gives the variant."""
    folder = f"/tmp/nvshmem-{name}/bin/perftest/device/coll"
    table = (LOGS / "published" / f"alltoall-{name}.txt").read_text("utf-8")
    for host in site.hosts:
        host.path(folder).mkdir(parents=True, exist_ok=True)
        for file, text in (("alltoall_latency", PERFTEST), ("version", version), ("table", table)):
            host.path(f"{folder}/{file}").write_text(text, "utf-8")
        host.path(f"{folder}/alltoall_latency").chmod(0o755)
    return f"{name}=/tmp/nvshmem-{name}"


def test_the_published_comparison_of_nvshmem_is_one_job(lab: Labs) -> None:
    """Three versions, four nodes, eight tasks on each: whoever reads the figures sees 32 PEs."""
    site = lab(4, slurm=True)
    variants = [
        nvshmem_of(site, name, version)
        for name, version in (("3.5.21", "3.5.21"), ("3.6.5", "3.6.5"), ("patched", "3.6.5"))
    ]
    machines = ("--nodes", "4", "--instance-type", "p5.48xlarge", "--set", "no-gres=true")
    measured = ("--efa", "--program", "alltoall_latency", "-b", "16", "-e", "16M", "-n", "2048")
    words_ = argv("run", "nvshmem", "--on", "slurm", "--login", "node0", *machines, *measured)
    with nothing_left(site):
        done = run(site, [*words_, *words(*variants), "--repeat", "2"])
    assert done.returncode == 0, done.stderr + done.stdout
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in done.stdout.splitlines()]
    assert ["64 MB", "12.93", "10.60", "42.41", "0.30 x", "0.25 x"] in [row[:6] for row in rows]
    stored = the_run(site)
    logs = [
        log for configuration in stored.configurations for log in stored.logs(configuration.label)
    ]
    assert [log.outcome for log in logs] == [Outcome.OK] * 6
    assert {
        (log.facts["ranks"], log.facts["transport"], log.facts["provider"]) for log in logs
    } == {(32, "efa", "efa")}
