"""The run text of a rendered task on real hosts, with SkyPilot's variables and without SkyPilot."""

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.support.host_fixtures import STANDIN, Labs, standin
from tests.support.hosts import HOME, Lab, processes
from tests.support.hosts.layout import address
from tests.support.script_plans import printed

if TYPE_CHECKING:
    from subprocess import CompletedProcess

pytestmark = [pytest.mark.lab, pytest.mark.slow]
NCCL = ("nccl", "--gpus", "1", "--bin-dir", str(STANDIN), "--mpirun", "/usr/bin/mpirun", "-e", "1K")
ARMS = ("--fabric", "ofi-tcp", "--fabric", "tcp", "--repeat", "2", "--instance-type", "g6e.8xlarge")


def text_of(site: Lab, *words: str) -> str:
    """Render a task on the client; gives what its nodes run."""
    argv = [sys.executable, "-m", "fabbench", "render", *words, "--as", "skypilot"]
    text: str = yaml.safe_load(site.run(argv, check=True).stdout)["run"]
    return text


def run(site: Lab, text: str, rank: int = 0, **env: str) -> "CompletedProcess[str]":
    """Run it on a node as SkyPilot does.

    A file, in an interactive bash without a terminal, exports first.
    """
    ips = "\n".join(address(number) for number in range(len(site.hosts)))
    variables = {
        "SKYPILOT_NODE_IPS": ips,
        "SKYPILOT_NODE_RANK": str(rank),
        "SKYPILOT_NUM_NODES": "2",
        **env,
    }
    file = site[rank].path(HOME / f"sky_app_{rank}")
    file.write_text(f"#!/bin/bash\n[ -f ~/.bashrc ] && source ~/.bashrc\nset -a\nset +a\n{text}\n")
    words = ["setsid", "--wait", "bash", "-i", str(HOME / file.name)]
    return site[rank].sh(words, check=False, timeout=180, **variables)


def parsed(site: Lab, text: str) -> list[Any]:
    argv = [sys.executable, "-m", "fabbench", "parse", "--format", "json", "-"]
    done = site.run(argv, given=text)
    assert done.returncode == 0, done.stdout
    found: list[Any] = json.loads(done.stdout)["logs"]
    return found


def test_rank_0_runs_both_configurations_and_the_others_nothing(lab: Labs) -> None:
    site = lab(2, trust=True)
    text = text_of(site, *NCCL, *ARMS)
    before = site.traces()
    worker = run(site, text, rank=1)
    assert (worker.returncode, worker.stdout) == (0, "")
    assert run(site, text, FABRIC="ib").returncode == 2
    done = run(site, text, FABRIC="all")
    assert done.returncode == 0, done.stdout + done.stderr
    logs = parsed(site, done.stdout)
    transports = [log["facts"]["transport"] for log in logs]
    assert transports == ["libfabric-tcp", "socket", "socket", "libfabric-tcp"]
    assert {(log["outcome"], log["facts"]["hosts"]) for log in logs} == {("ok", 2)}
    assert [*printed(done.stdout, "001-tcp-r1").traffic()] == [address(0), address(1)]
    assert [line for line in site.left_since(before) if "sky_app" not in line] == []


def test_sigterm_ends_it_on_both_nodes(lab: Labs) -> None:
    """What SkyPilot sends when a job is cancelled, to the whole group."""
    site = lab(2, trust=True)
    text = text_of(site, *NCCL, "--fabric", "tcp", "--instance-type", "g6e.8xlarge")
    before = site.traces()
    site[0].path(HOME / "sky_app_0").write_text(f"#!/bin/bash\n{text}\n")
    output = site[0].path(HOME / "sky.out")
    start = f"setsid bash -i {HOME}/sky_app_0 >{HOME}/sky.out 2>&1 & echo $! >{HOME}/sky.pid"
    ips = f"{address(0)}\n{address(1)}"
    with standin(*site.hosts, HANG_AT="256"):
        site[0].sh(["bash", "-c", start], SKYPILOT_NODE_IPS=ips, SKYPILOT_NODE_RANK="0")
        assert processes.eventually(lambda: "   128 " in output.read_text()), output.read_text()
        site[0].sh(["kill", "-TERM", site[0].path(HOME / "sky.pid").read_text().strip()])
        left = site.left_since(before, 15)
    assert [line for line in left if "/sky" not in line] == []
    assert "stopped by a signal" in output.read_text()


# What SkyPilot takes away before it runs a task on Slurm: variables of its own step, which would
# bind others.
_STEPLESS = (
    'export SKYPILOT_NODE_RANK=$SLURM_PROCID; unset "${!SLURM_STEP_@}" "${!SLURM_CPU_BIND@}" '
    "SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK SLURM_CPUS_ON_NODE SLURM_NTASKS SLURM_NPROCS "
    "SLURM_NTASKS_PER_NODE SLURM_TASKS_PER_NODE SLURM_DISTRIBUTION SLURM_TASK_PID SLURM_PROCID "
    "SLURM_LOCALID SLURM_NODEID SLURM_GTIDS SLURM_STEPID SLURM_LAUNCH_NODE_IPADDR"
)


def test_on_slurm_srun_starts_the_ranks_within_skypilots_own_step(lab: Labs) -> None:
    site = lab(2, slurm=True, gpus=1)
    text = text_of(site, *NCCL, *ARMS, "--infra", "slurm")
    site[0].path(HOME / "sky_app_0").write_text(f"#!/bin/bash\n{_STEPLESS}\n{text}\n")
    step = ["srun", "-N2", "--ntasks-per-node=1", "--exclusive", "--gpus-per-node=1"]
    done = site[0].sh([*step, "bash", HOME / "sky_app_0"], check=False, timeout=300, FABRIC="all")
    assert done.returncode == 0, done.stdout + done.stderr
    logs = parsed(site, done.stdout)
    transports = [log["facts"]["transport"] for log in logs]
    assert transports == ["libfabric-tcp", "socket", "socket", "libfabric-tcp"]
    assert {(log["outcome"], log["facts"]["hosts"]) for log in logs} == {("ok", 2)}
