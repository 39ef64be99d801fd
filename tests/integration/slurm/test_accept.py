"""`fabbench accept` on a real Slurm.

As one job, and before each job, where it drains a node that is not fine.
"""

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.support.host_fixtures import OSU, Labs
from tests.support.hosts import HOME, Lab, processes
from tests.support.paths import ROOT
from tests.support.slurm_runs import jobs, nothing_left, site
from tests.support.ssh_runs import argv

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PROLOG = ROOT / "examples/before-a-job/prolog.sh"


def prolog(lab: Lab) -> int:
    """Run the prolog of a job on node1 and node2, as Slurm's controller on node0 does."""
    options = (
        "--bin-dir",
        str(OSU),
        "--fabric",
        "tcp",
        "--interface",
        "fab1",
        "--tolerance",
        "80%",
    )
    env = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "ACCEPT_OPTIONS": shlex.join(options),
        "FABBENCH_STORE": str(HOME / "prolog"),
        "PYTHONPATH": str(ROOT / "src"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    words = ["env", *(f"{name}={value}" for name, value in env.items()), str(PROLOG)]
    done = lab[0].sh(words, check=False, timeout=240)
    print(done.stdout, done.stderr)  # for a test that fails
    return done.returncode


def answers(lab: Lab) -> list[dict[str, str]]:
    """The results of the rungs of each ladder so far, the oldest first."""
    paths = sorted((lab[0].home / "prolog/certificates").glob("*.json"))
    return [
        {each["name"]: each["state"] for each in json.loads(path.read_text())["rungs"]}
        for path in paths
    ]


def drained(lab: Lab) -> set[str]:
    lines = lab[0].sh(["sinfo", "-N", "-h", "-o", "%N %T"]).stdout.splitlines()
    return {line.split()[0] for line in lines if "drain" in line.split()[1]}


def test_a_prolog_drains_what_is_rejected(lab: Labs) -> None:
    made = lab(3, slurm=True, trust=True)
    assert prolog(made) == 0
    (first,) = answers(made)
    assert (first["check"], first["pairs"]) == ("passed", "passed"), first
    assert drained(made) == set()
    for host in (made[0], made[1]):
        host.wall(made[2])
    assert prolog(made) == 1
    assert processes.eventually(lambda: drained(made) == {"node2"})


def test_a_ladder_is_one_job(lab: Labs) -> None:
    """Its nodes are not probed: programs are searched for in each directory."""
    made = site(lab)
    before = set(jobs(made[0]))
    words = (
        "--nodes",
        "2",
        "--bin-dir",
        str(OSU),
        "--fabric",
        "tcp",
        "--tolerance",
        "80%",
        "--json",
    )
    ladder = argv("accept", "--on", "slurm", "--login", "node0", *words)
    with nothing_left(made):
        done = made.run([*ladder, "--bin-dir", "/usr/bin"], timeout=300)
    found = json.loads(done.stdout)
    assert (done.returncode, set(found["untested"]) - {"check"}) == (4, {"limits"}), (
        found,
        done.stderr,
    )
    assert {each["fabric"] for each in found["rungs"] if each["figures"]} == {"tcp"}
    assert len(set(jobs(made[0])) - before) == 1
    # A program that nodes do not have says nothing about them.
    found = json.loads(made.run(ladder, timeout=300).stdout)
    assert (found["verdict"], found["bad"], "pairs" in found["untested"]) == (
        "incomplete",
        {},
        True,
    ), found
