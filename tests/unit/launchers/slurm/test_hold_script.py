"""The script of a job that holds nodes."""

import subprocess

from fabbench.launchers.slurm import SlurmOptions
from fabbench.launchers.slurm.render import directives, hold_script, overruling, tasks_per_node


def requested(script: str) -> list[str]:
    return [
        line.removeprefix("#SBATCH --")
        for line in script.splitlines()
        if line.startswith("#SBATCH")
    ]


def test_what_a_sweep_requests() -> None:
    options = SlurmOptions(partition="gpu", sbatch_options=("exclude=n9",))
    named = ("n1", "n2", "n3", "n4")
    text = directives(
        options, "sweep", nodes=4, tasks=8, gpus=8, named=named, limit_s=1230, more=("no-kill",)
    )
    assert requested(text) == [
        "job-name=fabbench-sweep",
        "nodes=4",
        "ntasks-per-node=8",
        "gpus-per-node=8",
        "exclusive",
        "mem=0",
        "time=00:21:00",
        "output=fabbench-%j.out",
        "no-requeue",
        "no-kill",
        "partition=gpu",
        "exclude=n9",
        "nodelist=n1,n2,n3,n4",
    ]
    assert "SBATCH_TIMELIMIT" in overruling(text)
    assert tasks_per_node(text) == 8


def test_a_job_requests_what_its_document_does_and_runs_nothing_of_it() -> None:
    document = "#!/usr/bin/env bash\n# fabbench run\n#SBATCH --nodes=2\n#SBATCH --time=5\nmeasure\n"
    script = hold_script(document)
    assert requested(script) == ["nodes=2", "time=5"]
    assert "measure" not in script.split()
    assert subprocess.run(["bash", "-n", "-c", script], check=False).returncode == 0


def test_without_a_limit_the_partition_has_one() -> None:
    text = directives(
        SlurmOptions(no_gres=True), "sweep", nodes=2, tasks=1, gpus=8, named=(), limit_s=None
    )
    assert not [line for line in requested(text) if line.startswith(("time=", "gpus", "nodelist="))]
    own = SlurmOptions(time="2:00:00")
    text = directives(own, "sweep", nodes=2, tasks=1, gpus=0, named=(), limit_s=60)
    assert "time=2:00:00" in requested(text)
