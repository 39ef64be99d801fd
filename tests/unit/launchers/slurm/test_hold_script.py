"""The script of a job that holds nodes for a sweep."""

import subprocess

from fabbench.launchers.slurm import SlurmOptions
from fabbench.launchers.slurm.render import hold_script, overruling


def directives(script: str) -> list[str]:
    return [
        line.removeprefix("#SBATCH --")
        for line in script.splitlines()
        if line.startswith("#SBATCH")
    ]


def test_what_it_requests() -> None:
    options = SlurmOptions(partition="gpu", sbatch_options=("exclude=n9",))
    script = hold_script(
        options, nodes=4, tasks=8, gpus=8, named=("n1", "n2", "n3", "n4"), limit_s=1230
    )
    assert directives(script) == [
        *(
            "job-name=fabbench-sweep",
            "nodes=4",
            "ntasks-per-node=8",
            "gpus-per-node=8",
            "exclusive",
            "mem=0",
        ),
        *(
            "time=00:21:00",
            "output=fabbench-%j.out",
            "no-requeue",
            "no-kill",
            "partition=gpu",
            "exclude=n9",
        ),
        "nodelist=n1,n2,n3,n4",
    ]
    assert "SBATCH_TIMELIMIT" in overruling(script)


def test_without_a_limit_the_partition_has_one() -> None:
    script = hold_script(
        SlurmOptions(no_gres=True), nodes=2, tasks=1, gpus=8, named=(), limit_s=None
    )
    assert not [
        line for line in directives(script) if line.startswith(("time=", "gpus", "nodelist="))
    ]
    own = hold_script(SlurmOptions(time="2:00:00"), nodes=2, tasks=1, gpus=0, named=(), limit_s=60)
    assert "time=2:00:00" in directives(own)
    assert subprocess.run(["bash", "-n", "-c", own], check=False).returncode == 0
