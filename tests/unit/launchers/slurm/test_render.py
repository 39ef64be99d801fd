"""`fabbench render --as slurm`: batch scripts as text. test_slurm_batch.py runs them."""

import itertools
import subprocess
from pathlib import Path

import pytest
from click.testing import Result

from fabbench.cli import cli
from fabbench.launchers.slurm import SlurmOptions, format_time_limit
from fabbench.launchers.slurm.render import container_image
from fabbench.model.errors import RequestError
from tests.support.command_line import runner
from tests.support.needed import need
from tests.support.requests import read_options

P5 = ("--instance-type", "p5.48xlarge")
EVERY = [
    ("nccl", "--ab", *P5),
    ("nvshmem", "--efa", "--program", "alltoall_latency", "--program", "shmem_put_bw", *P5),
    ("pingpong", "--ab", "--instance-type", "c7g.16xlarge"),
    ("torch", "--ab", *P5),
    ("perftest", "--efa", "--device", "rdmap79s0", *P5),
    ("fabtests", "--efa", "--device", "rdmap79s0", *P5),
]
WAYS = [
    (),
    ("--mpi", "mpirun"),
    ("--image", "public.ecr.aws/hpc-cloud/nccl-tests:latest", "--container-mounts", "/fsx:/fsx"),
]


def render(*words: str) -> Result:
    return runner().invoke(cli, ["render", *words, "--as", "slurm"])


def text(*words: str) -> str:
    """What is printed, each command in one line."""
    done = render(*words)
    assert (done.exit_code, done.stderr) == (0, "")
    return " ".join(done.stdout.replace("\\\n", " ").split())


def options(*words: str) -> dict[str, str]:
    """The lines for sbatch, which must stand before all commands."""
    head = render(*words).stdout.partition("\nset -um\n")[0].splitlines()
    found = [
        line.removeprefix("#SBATCH --").partition("=")
        for line in head
        if line.startswith("#SBATCH")
    ]
    assert head[1].startswith("# fabbench render ")
    assert head[2].startswith("#SBATCH ")
    return {name: value for name, _, value in found}


@pytest.mark.slow
def test_shellcheck_has_nothing_to_say(tmp_path: Path) -> None:
    need("shellcheck")
    for number, (words, way) in enumerate(itertools.product(EVERY, WAYS)):
        done = render(*words, *way)
        assert (done.exit_code, done.stderr) == (0, "")
        (tmp_path / f"{number}.sbatch").write_text(done.stdout)
    checked = subprocess.run(
        ["shellcheck", *tmp_path.iterdir()], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout) == (0, "")


def test_options_of_slurms_are_passed_on() -> None:
    names = {
        "partition": "gpu",
        "account": "a1",
        "qos": "high",
        "reservation": "r",
        "constraint": "[x|y]&z",
    }
    given = [
        word for name, value in {**names, "time": "20"}.items() for word in (f"--{name}", value)
    ]
    found = options("nccl", "--efa", *P5, *given, "--set", "chdir=/fsx/me", "--set", "no-gres=true")
    assert {name: found[name] for name in names} == names
    assert (found["time"], found["chdir"]) == ("20", "/fsx/me")
    assert "gpus-per-node" not in found
    more = options(
        "nccl", "--efa", *P5, "--sbatch-option", "exclude=n[7-8]", "--sbatch-option", "contiguous"
    )
    assert (more["exclude"], more["contiguous"]) == ("n[7-8]", "")


def test_nodes_can_be_named() -> None:
    found = options("nccl", "--efa", *P5, "--node", "n[1-3]", "--node", "x7")
    assert (found["nodes"], found["nodelist"]) == ("4", "n1,n2,n3,x7")
    wrong = render("nccl", "--efa", *P5, "--node", "n[1-")
    assert (wrong.exit_code, "'n[1-'" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("test", ["alltoall_latency", "shmem_put_bw"])
def test_nvshmems_perftests_run_on_nodes_with_tasks(test: str) -> None:
    words = ("nvshmem", "--efa", *P5, "--program", test, "--nodes", "2", "--nics-per-pe", "4")
    ranks = 16 if test == "alltoall_latency" else 2
    assert options(*words)["ntasks-per-node"] == str(ranks // 2)
    found = text(*words)
    assert f"--mpi=pmix --nodes=2 --ntasks={ranks} --ntasks-per-node={ranks // 2}" in found
    assert "NVSHMEM_LIBFABRIC_MAX_NIC_PER_PE=4" in found
    fewer = options(*words, "--pes-per-host", "4") if ranks == 16 else {"ntasks-per-node": "4"}
    assert fewer["ntasks-per-node"] == "4"


def test_pairs_run_in_a_container() -> None:
    found = text("pingpong", "--ab", *P5, *WAYS[2])
    container = "--container-image=docker://public.ecr.aws#hpc-cloud/nccl-tests:latest"
    assert f"container=('{container}' --container-mounts=/fsx:/fsx)" in found
    assert '"${container[@]}" -w "${hosts[$1]}" -- "${@:2}"' in found


@pytest.mark.parametrize(
    ("name", "written_as"),
    [
        ("public.ecr.aws/hpc-cloud/nccl-tests:1", "docker://public.ecr.aws#hpc-cloud/nccl-tests:1"),
        ("docker://nvcr.io/nvidia/pytorch:25.01-py3", "docker://nvcr.io#nvidia/pytorch:25.01-py3"),
        ("docker://nvcr.io#nvidia/pytorch:25.01-py3", "docker://nvcr.io#nvidia/pytorch:25.01-py3"),
        ("localhost:5000/x", "docker://localhost:5000#x"),
        ("nvidia/cuda:12.4.1-base", "docker://nvidia/cuda:12.4.1-base"),
        ("ubuntu:24.04", "docker://ubuntu:24.04"),
        ("/fsx/nccl-tests.sqsh", "/fsx/nccl-tests.sqsh"),
        ("./nccl.sqsh", "./nccl.sqsh"),
    ],
)
def test_images_are_written_as_pyxis_takes_them(name: str, written_as: str) -> None:
    assert container_image(name) == written_as


@pytest.mark.parametrize(
    "limit", ["30", "30:05", "2:00:00", "1-0", "1-02:03", "2-0:0:1", format_time_limit(172801)]
)
def test_time_limits_are_what_slurm_takes(limit: str) -> None:
    assert read_options(SlurmOptions, {"time": limit}).time == limit


@pytest.mark.parametrize("limit", ["", "1h", "1:2:3:4", "-1", "1-", "infinite"])
def test_what_is_no_time_limit_is_refused(limit: str) -> None:
    with pytest.raises(RequestError, match="time limit"):
        read_options(SlurmOptions, {"time": limit})
