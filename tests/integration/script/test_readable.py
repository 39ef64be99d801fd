"""Scripts as a person would write them, on the hosts of a lab.

They run by themselves, and are read.
"""

import json
import sys
from typing import Any

import pytest

from tests.support.host_fixtures import OSU, STANDIN, Labs
from tests.support.hosts import HOME, Lab

pytestmark = pytest.mark.lab
ARMS = ("--fabric", "ofi-tcp", "--fabric", "tcp", "--repeat", "2")
NCCL = ("nccl", *ARMS, "--gpus", "1", "--bin-dir", str(STANDIN), "-e", "1K")
OF_OSU = ("osu", *ARMS, "--bin-dir", str(OSU), "-e", "64")
PINGPONG = ("pingpong", *ARMS, "--bin-dir", "/usr/bin", "--iterations", "10")


def fabbench(site: Lab, *words: str, given: str = "") -> str:
    return site.run([sys.executable, "-m", "fabbench", *words], check=True, given=given).stdout


def logs(site: Lab, text: str) -> list[Any]:
    found: list[Any] = json.loads(fabbench(site, "parse", "--format", "json", "-", given=text))[
        "logs"
    ]
    return found


def transports(found: list[Any]) -> list[str]:
    assert {log["outcome"] for log in found} == {"ok"}
    return [log["facts"].get("transport") or log["facts"]["provider"] for log in found]


@pytest.mark.parametrize("words", [NCCL, pytest.param(OF_OSU, marks=pytest.mark.slow)])
def test_a_script_for_hosts(lab: Labs, words: tuple[str, ...]) -> None:
    site = lab(2, trust=True)
    text = fabbench(site, "render", *words, "--as", "script", "--mpirun", "/usr/bin/mpirun")
    site[0].path(HOME / "script").write_text(text)
    done = site[0].sh(["bash", HOME / "script", "node0", "node1"], timeout=120)
    assert transports(logs(site, done.stdout)) == [
        "libfabric-tcp",
        "socket",
        "socket",
        "libfabric-tcp",
    ]
    compared = fabbench(site, "compare", "-", given=done.stdout)
    assert "ofi-tcp" in compared


@pytest.mark.slow
def test_pairs_between_hosts(lab: Labs) -> None:
    site = lab(2, trust=True)
    text = fabbench(site, "render", *PINGPONG, "--as", "script")
    site[0].path(HOME / "script").write_text(text)
    done = site[0].sh(["bash", HOME / "script", "node0", "node1"], timeout=240)
    found = logs(site, done.stdout)
    assert len(transports(found)) == 4
    assert {sample["size"] for sample in found[0]["samples"]} == {64, 1024, 16384, 262144, 4194304}


BY_MPIRUN = ("--mpi", "mpirun", "--mpirun", "/usr/bin/mpirun")


@pytest.mark.parametrize(
    ("words", "mpi"),
    [
        (NCCL, ()),
        pytest.param(NCCL, BY_MPIRUN, marks=pytest.mark.slow),
        pytest.param(PINGPONG, (), marks=pytest.mark.slow),
    ],
)
def test_a_batch_script(lab: Labs, words: tuple[str, ...], mpi: tuple[str, ...]) -> None:
    site = lab(2, slurm=True)
    text = fabbench(site, "render", *words, "--as", "slurm", "--set", "no-gres=true", *mpi)
    site[0].path(HOME / "job.sbatch").write_text(text)
    site[0].sh(["env", "-C", HOME, "sbatch", "--wait", HOME / "job.sbatch"], timeout=300)
    (output,) = site[0].home.glob("fabbench-*.out")
    printed = output.read_text()
    output.unlink()
    found = transports(logs(site, printed))
    assert len(found) == 4
    assert words != NCCL or found == ["libfabric-tcp", "socket", "socket", "libfabric-tcp"]
