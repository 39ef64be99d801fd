"""`fabbench sweep` as one job of a real Slurm.

Its nodes are held, and each pair is a step on two of them.
"""

import signal
import sys

import pytest

from tests.support.host_fixtures import STANDIN, Labs, standin
from tests.support.hosts import Lab
from tests.support.slurm_runs import jobs, nothing_left, on, state, the_job
from tests.support.ssh_faults import running
from tests.support.ssh_runs import STORE, argv
from tests.support.sweeps import going_on, kept_tests, stored

pytestmark = [pytest.mark.lab, pytest.mark.slow]

RANKS = (
    "--fabric",
    "tcp",
    "--bin-dir",
    str(STANDIN),
    "--gpus",
    "1",
    "--set",
    "no-gres=true",
    "-b",
    "1M",
    "-e",
    "1M",
)
PATIENT = ("--timeout", "180")
"""A machine that is busy starts steps slowly."""
QUICK = ("--iterations", "10", "--store", str(STORE), *PATIENT)
ANSWERED = {0, 1, 4}
"""Figures vary with the load of this machine."""


def site(lab: Labs) -> Lab:
    hosts = lab(4, slurm=True)
    hosts.run(["rm", "-rf", STORE])
    hosts[0].sh(["rm", "-rf", str(STORE)])
    return hosts


def sweep(benchmark: str, *more: str) -> list[str]:
    return argv("sweep", benchmark, "--on", "slurm", "--login", "node0", *PATIENT, *more)


@pytest.mark.parametrize(
    "mpi", [("--mpi", "srun"), ("--mpi", "mpirun", "--mpirun", "/usr/bin/mpirun")]
)
def test_pairs_are_steps_of_one_job(lab: Labs, mpi: tuple[str, ...]) -> None:
    """All idle nodes are tested, here in all pairs. Those that share no node run at once."""
    hosts = site(lab)
    before = set(jobs(hosts[0]))
    with nothing_left(hosts):
        done = hosts.run(sweep("nccl", *RANKS, "--mode", "pairs", *mpi), timeout=240)
    assert done.returncode in ANSWERED, done.stderr
    found = kept_tests(hosts)
    assert {each["outcome"] for each in found} == {"ok"}, found
    assert len({frozenset(each["nodes"]) for each in found}) == 6
    assert len(set(jobs(hosts[0])) - before) == 1


def test_in_an_allocation(lab: Labs) -> None:
    """Nothing is submitted, and the steps run in the job that is there."""
    hosts = site(lab)
    words = (
        "--on",
        "slurm",
        "--fabric",
        "tcp",
        "--bin-dir",
        "/usr/bin",
        "--size",
        "64K",
        "--mode",
        "pairs",
    )
    own = [sys.executable, "-m", "fabbench", "sweep", "pingpong", *words, *QUICK]
    with nothing_left(hosts):
        done = on(hosts[0], "salloc", "-N3", "-p", "rest", "--exclusive", *own)
    assert done.returncode in ANSWERED, done.stderr
    assert "submitted" not in done.stderr
    found = stored(hosts[0].path(STORE))
    assert {each["outcome"] for each in found} == {"ok"}, found
    assert {name for each in found for name in each["nodes"]} == {"node1", "node2", "node3"}


def test_groups_are_the_switches_of_the_topology(lab: Labs) -> None:
    """Pairs below one switch, and pairs across the spine."""
    hosts = lab(4, slurm=True, switches=True)
    words = sweep("pingpong", "--fabric", "tcp", "--bin-dir", "/usr/bin", "--size", "64K")
    with nothing_left(hosts):
        done = hosts.run([*words, "--groups", "switch", "--iterations", "10"], timeout=240)
    assert done.returncode in ANSWERED, done.stderr
    halves = [frozenset({"node0", "node1"}), frozenset({"node2", "node3"})]
    pairs = [frozenset(each["nodes"]) for each in kept_tests(hosts)]
    assert set(halves) < set(pairs)
    assert "node[0-1]" in done.stdout
    assert "node[2-3]" in done.stdout


def test_devices_have_to_be_named_before_a_job_is_submitted(lab: Labs) -> None:
    """Slurm does not say which NICs its nodes have.

    It could take long until they are there to be asked.
    """
    hosts = site(lab)
    before = set(jobs(hosts[0]))
    words = sweep(
        "perftest", "--fabric", "efa", "--bin-dir", "/usr/bin", "--instance-type", "p5.48xlarge"
    )
    done = hosts.run(words, timeout=120)
    assert (done.returncode, set(jobs(hosts[0])) - before) == (2, set()), done.stderr
    assert "the name of each device" in done.stderr
    assert "--device" in done.stderr


def test_interrupted_and_resumed(lab: Labs) -> None:
    """Ctrl-C ends what runs, and the job.

    What had not ended runs in a new one, on the same nodes.
    """
    hosts = site(lab)
    words = sweep("nccl", *RANKS, "--partners", "1", "--nodes", "2", "--partition", "rest")
    with nothing_left(hosts):
        with standin(*hosts.hosts, HANG_AT="1M"), running(hosts, words) as run:
            run.until(lambda: going_on(hosts) == 1 and measures(hosts), 120)
            run.process.send_signal(signal.SIGINT)
            assert run.ends() == 130, run.err
        assert "fabbench run --resume" in run.err
        assert kept_tests(hosts) == []
        first = the_job(hosts[0])
        assert state(hosts[0], first) in {"CANCELLED", "FAILED"}
        nodes = jobs(hosts[0])[first]["NodeList"]
        done = hosts.run(argv("run", "--resume", "last"), timeout=240)
    assert done.returncode in ANSWERED, done.stderr
    found = kept_tests(hosts)
    assert [each["outcome"] for each in found] == ["ok"], found
    assert the_job(hosts[0]) != first
    assert jobs(hosts[0])[the_job(hosts[0])]["NodeList"] == nodes


def test_a_job_that_is_cancelled_says_nothing_of_its_nodes(lab: Labs) -> None:
    hosts = site(lab)
    words = sweep("nccl", *RANKS, "--mode", "pairs")
    with nothing_left(hosts), standin(*hosts.hosts, HANG_AT="1M"), running(hosts, words) as run:
        run.until(lambda: going_on(hosts) == 2 and measures(hosts), 120)
        job = the_job(hosts[0])
        hosts[0].sh(["scancel", job])
        assert run.ends() == 3, run.err
    assert f"Job {job}" in run.err
    assert kept_tests(hosts) == []


def measures(lab: Lab) -> bool:
    """Whether a rank runs on some host."""
    lines = (" ".join(line) for host in lab.hosts for line in host.processes().values())
    return any("all_reduce_perf" in line and "srun" not in line for line in lines)
