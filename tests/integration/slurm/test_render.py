"""Slurm's own sbatch takes every script that `fabbench render --as slurm` prints."""

import pytest

from fabbench.benchmarks import runnable_names
from tests.support.host_fixtures import Labs
from tests.support.hosts import Host
from tests.support.render_matrix import BENCHMARKS, SYSTEMS, rendered

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def taken(host: Host, name: str, script: str) -> tuple[int, str]:
    """Whether nodes could run a script as a job, and what sbatch said."""
    inside = f"/tmp/{name}"
    host.path(inside).write_text(script)
    done = host.sh(["sbatch", "--test-only", inside], check=False)
    host.path(inside).unlink()
    return done.returncode, done.stderr


def test_sbatch_takes_every_script(lab: Labs) -> None:
    first = lab(2, slurm=True, gpus=8)[0]
    for system in SYSTEMS:
        for benchmark in sorted(runnable_names()):
            words = (benchmark, "--instance-type", system, *BENCHMARKS.get(benchmark, ()))
            script = rendered("slurm", *words)
            status, said = taken(first, f"{system}-{benchmark}", script)
            assert status == 0, (system, benchmark, said)
            assert "on nodes node[0-1]" in said.replace("node0,node1", "node[0-1]"), said
    too_many = script.replace("#SBATCH --nodes=2", "#SBATCH --nodes=3")
    assert taken(first, "too-many", too_many)[0] == 1
