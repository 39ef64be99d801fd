"""`fabbench run nccl` on this machine: real mpirun, and a stand-in for NCCL that plays recordings.

The stand-in chooses what it plays from the environment that each rank really got.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest

from fabbench.model.log import Outcome
from tests.support.host_fixtures import STANDIN
from tests.support.local_runs import fabbench, nothing_left, the_run

pytestmark = pytest.mark.local

FAST = ("-e", "1K", "--repeat", "1")


def arguments(*more: str) -> tuple[str, ...]:
    return ("run", "nccl", "--on", "local", "--gpus", "4", "--bin-dir", str(STANDIN), *more)


def nccl(store: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return fabbench(store, *arguments(*more))


def test_ranks_get_what_the_fabric_needs_and_each_configuration_proves_its_network(
    tmp_path: Path,
) -> None:
    """What the caller's shell has set must not decide: the baseline is chosen."""
    foreign = {
        "FI_PROVIDER": "efa",
        "NCCL_NET": "AWS Libfabric",
        "NCCL_ALGO": "Ring",
        "NCCL_P2P_DISABLE": "1",
    }
    words = ("--virtual-nodes", "2", "--fabric", "p2p", "--fabric", "ofi-tcp", "--no-efa", *FAST)
    done = fabbench(tmp_path, *arguments(*words), **foreign)
    assert done.returncode == 0, done.stderr
    assert "p2p = p2p; ofi-tcp = libfabric-tcp (1 NIC per rank); tcp = socket" in done.stdout
    run = the_run(tmp_path)
    for configuration, transport in (
        ("p2p", "p2p"),
        ("ofi-tcp", "libfabric-tcp"),
        ("tcp", "socket"),
    ):
        (log,) = run.logs(configuration)
        assert log.facts["transport"] == transport
        assert sorted({point.size for point in log.points}) == [8, 16, 32, 64, 128, 256, 512, 1024]
    assert nothing_left(tmp_path)


def test_one_machine_has_no_network_to_measure(tmp_path: Path) -> None:
    done = nccl(tmp_path, "--no-efa", *FAST)
    assert done.returncode == 2, done.stderr
    assert "ranks do not use the network" in done.stderr
    assert "--virtual-nodes 2" in done.stderr


@pytest.mark.slow
def test_a_run_off_its_fabric_is_ended_in_its_first_seconds(tmp_path: Path) -> None:
    """Fewer NICs than were asked for.

    NCCL says so long before the first row, which takes 30 s here.
    """
    more = (
        "--virtual-nodes",
        "2",
        "--fabric",
        "ofi-tcp",
        "--nics",
        "8",
        "--env",
        "STANDIN_ROW_S=30",
    )
    done = nccl(tmp_path, *more, *FAST)
    assert done.returncode == 4, done.stderr
    (log,) = the_run(tmp_path).logs("ofi-tcp")
    assert log.outcome is Outcome.OFF_FABRIC
    assert "fabbench then aborted it" in (log.reason or "")
    assert nothing_left(tmp_path)


@pytest.mark.slow
def test_a_silent_run_is_a_timeout(tmp_path: Path) -> None:
    hang = ("--env", "STANDIN_HANG_AT=256", "--silence", "2")
    done = nccl(tmp_path, "--virtual-nodes", "2", "--fabric", "tcp", *hang, *FAST)
    assert done.returncode == 4, done.stderr
    (log,) = the_run(tmp_path).logs("tcp")
    assert log.outcome is Outcome.TIMEOUT
    assert "no output for 2 s" in (log.reason or "")
    assert {point.size for point in log.points} == {8, 16, 32, 64, 128}
    assert nothing_left(tmp_path)


@pytest.mark.slow
def test_a_rank_that_dies_ends_the_run(tmp_path: Path) -> None:
    done = nccl(
        tmp_path,
        "--virtual-nodes",
        "2",
        "--fabric",
        "tcp",
        "--env",
        "STANDIN_EXIT_AT=128:3:9",
        *FAST,
    )
    assert done.returncode == 4, done.stderr
    (log,) = the_run(tmp_path).logs("tcp")
    assert log.outcome is Outcome.FAILED
    assert nothing_left(tmp_path)


@pytest.mark.slow
def test_a_dry_run_shows_the_plan_and_starts_nothing(tmp_path: Path) -> None:
    words = ("--virtual-nodes", "2", "--fabric", "p2p", "--no-efa", *FAST)
    plan = (*words, "--env", "MY_TOKEN=s3cr3t", "--dry-run")
    done = nccl(tmp_path, *plan)
    assert done.returncode == 0, done.stderr
    assert "Executions:     2: 000-p2p-r1, 001-tcp-r1\n" in done.stdout
    assert "Time:           at most " in done.stdout
    assert re.search(
        r"(?m)^  Command: +\S*mpirun .* NCCL_NET=Socket .* stdbuf -oL \S*all_reduce_perf ",
        done.stdout,
    )
    assert "s3cr3t" not in done.stdout + done.stderr
    assert not [*tmp_path.iterdir()]
    document = json.loads(nccl(tmp_path, *words, "--dry-run", "--format", "json").stdout)
    assert len(document["plan"]["executions"]) == 2
    assert document["longest_s"] > 0
    assert nothing_left(tmp_path)
