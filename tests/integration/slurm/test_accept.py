"""The example of a prolog, on a real Slurm: it drains a node that is not fine, and keeps the job from starting."""

import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.support.host_fixtures import OSU, Labs
from tests.support.hosts import Lab, processes
from tests.support.paths import ROOT
from tests.support.slurm_runs import site

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PROLOG = ROOT / "examples/before-a-job/prolog.sh"


def prolog(lab: Lab) -> int:
    """Run the prolog of a job on node1 and node2, as Slurm's controller on node0 does."""
    options = ("--bin-dir", str(OSU), "--fabric", "tcp", "--interface", "fab1", "--tolerance", "80%")
    env = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "ACCEPT_OPTIONS": shlex.join(options),
        "FABBENCH_STORE": str(lab[0].home / "prolog"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    words = ["env", *(f"{name}={value}" for name, value in env.items()), str(PROLOG)]
    return lab[0].sh(words, check=False).returncode


def drained(lab: Lab) -> set[str]:
    lines = lab[0].sh(["sinfo", "-N", "-h", "-o", "%N %T"]).stdout.splitlines()
    return {line.split()[0] for line in lines if "drain" in line.split()[1]}


def test_a_prolog_drains_what_is_rejected(lab: Labs) -> None:
    made = site(lab)
    assert prolog(made) == 0
    assert drained(made) == set()
    for host in (made[0], made[1]):
        host.wall(made[2])
    assert prolog(made) == 1
    assert processes.eventually(lambda: drained(made) == {"node2"})
