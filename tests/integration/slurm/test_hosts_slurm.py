"""The Slurm of a lab's hosts is a real one, and is gone with them."""

import re
from pathlib import Path

import pytest

from tests.support.host_fixtures import Labs
from tests.support.hosts import Lab, Options, processes

pytestmark = pytest.mark.lab


def test_srun_runs_on_every_host(lab: Labs) -> None:
    hosts = lab(4, slurm=True)
    shown = hosts[0].sh(["srun", "-N", "4", "-l", "hostname"]).stdout
    assert sorted(shown.splitlines()) == ["0: node0", "1: node1", "2: node2", "3: node3"]
    # Any host may ask, and is reached from the client.
    assert hosts.ssh(hosts[2], "srun -p one hostname", check=True).stdout == "node0\n"


def test_srun_starts_ranks_by_pmix(lab: Labs) -> None:
    ranks = "echo $PMIX_RANK of $SLURM_NTASKS on $(hostname)"
    done = lab(4, slurm=True)[1].sh(
        ["srun", "--mpi=pmix", "-N2", "--ntasks-per-node=2", "-w", "node2,node3", "sh", "-c", ranks]
    )
    assert sorted(done.stdout.splitlines()) == [
        *("0 of 4 on node2", "1 of 4 on node2", "2 of 4 on node3", "3 of 4 on node3")
    ]


def test_gpus_are_counted(lab: Labs) -> None:
    (host,) = lab(1, slurm=True, gpus=8).hosts
    held = host.sh(["srun", "--gpus-per-node=2", "sh", "-c", "echo $SLURM_GPUS_ON_NODE"]).stdout
    assert held == "2\n"
    refused = host.sh(["sbatch", "--gpus-per-node=9", "--wrap", "true"], check=False)
    assert (refused.returncode, "not available" in refused.stderr) == (1, True)


@pytest.mark.slow
def test_a_job_is_requeued_and_goes_on(lab: Labs) -> None:
    hosts = lab(2, slurm=True)
    restarts = hosts[0].home / "restarts"
    script = 'echo $SLURM_RESTART_COUNT >>restarts; [ "$SLURM_RESTART_COUNT" ] || sleep 600'
    wrapped = ["sbatch", "--parsable", "--requeue", "-p", "rest", "-o", "/dev/null", "-D", "~", "--wrap"]
    job = hosts.ssh(hosts[0], f"{' '.join(wrapped)} '{script}'", check=True).stdout.strip()
    assert processes.eventually(restarts.exists, 120)
    hosts[0].sh(["scontrol", "requeue", job])
    assert processes.eventually(lambda: restarts.read_text().split() == ["1"], 180)
    shown = hosts[0].sh(["scontrol", "show", "job", job]).stdout
    assert re.search(r"Restarts=1\b", shown)
    restarts.unlink()


@pytest.mark.slow
def test_it_ends_with_the_lab(tmp_path: Path) -> None:
    with Lab(tmp_path / "lab", Options(hosts=2, slurm=True)) as hosts:
        daemons = [pid for host in hosts.hosts for pid in host.processes()]
        names = {command[0] for pid in daemons if (command := processes.command(pid))}
        assert {"munged", "slurmctld", "slurmd"} <= names
        hosts[0].sh(["sbatch", "-N2", "-o", "/dev/null", "--wrap", "srun /bin/sleep 600"])
        assert processes.eventually(lambda: ["/bin/sleep", "600"] in hosts[1].processes().values())
        daemons += [pid for host in hosts.hosts for pid in host.processes()]
    assert processes.eventually(lambda: not any(map(processes.alive, daemons)))
