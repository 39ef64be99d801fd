"""The stand-in for nccl-tests behaves as the real programs do, by what its ranks really receive."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.host_fixtures import STANDIN
from tests.support.paths import LOGS

# Tests that run it notice most of what breaks it: make test need not ask it anything else.
pytestmark = [pytest.mark.local, pytest.mark.slow]

ALL_REDUCE = str(STANDIN / "all_reduce_perf")
SWEEP = ("-b", "8", "-e", "64M", "-f", "4")
EFA = {"NCCL_NET": "AWS Libfabric", "FI_PROVIDER": "efa"}
SOCKET = {"NCCL_NET": "Socket"}


def parse(text: str, *options: str, folder: Path) -> dict[str, Any]:
    """What fabbench reads in an output."""
    log = folder / "output.log"
    log.write_text(text)
    argv = [
        sys.executable,
        "-m",
        "fabbench",
        "parse",
        "--format",
        "json",
        "--exit-zero",
        *options,
        str(log),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stderr, text)
    (read,) = json.loads(done.stdout)["logs"]
    assert isinstance(read, dict)
    return read


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """This process's environment, with no variable of NCCL's or of a launcher but those given."""
    foreign = ("NCCL_", "FI_", "OMPI_", "PMI", "SLURM_", "STANDIN_")
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith(foreign)},
        **env,
    }


def alone(
    *arguments: str, program: str = ALL_REDUCE, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the stand-in without a launcher."""
    argv = [program, *arguments]
    return subprocess.run(
        argv, env=environment(env), capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("env", "network", "trouble"),
    [
        ({}, "socket", False),
        (SOCKET, "socket", False),
        (EFA, "efa", False),
        ({"NCCL_NET": "libfabric"}, "efa", False),
        ({"FI_PROVIDER": "efa"}, "efa", False),
        ({"FI_PROVIDER": "tcp"}, "libfabric-tcp", False),
        ({"NCCL_NET": "IB"}, "ib", False),
        ({"FI_PROVIDER": ""}, "socket", True),
        ({"FI_PROVIDER": "efa", "STANDIN_NO_EFA": "1"}, "socket", True),
    ],
)
def test_the_network_follows_from_the_environment(
    env: dict[str, str], network: str, *, trouble: bool, tmp_path: Path
) -> None:
    done = alone(*SWEEP, **{"NCCL_DEBUG": "INFO", **env})
    assert done.returncode == 0, done.stderr
    read = parse(done.stdout, folder=tmp_path)
    assert (read["outcome"], read["facts"]["network"]) == ("ok", network)
    assert ("plugin-failed" in [finding["code"] for finding in read["findings"]]) == trouble
    assert ("NCCL WARN NET/OFI Unable" in done.stdout) == trouble


@pytest.mark.parametrize(
    "env", [{**EFA, "STANDIN_NO_EFA": "1"}, {"NCCL_NET": "AWS"}, {"NCCL_NET": "gIB"}]
)
def test_a_named_network_that_is_not_there_fails(env: dict[str, str], tmp_path: Path) -> None:
    done = alone(*SWEEP, NCCL_DEBUG="INFO", **env)
    assert done.returncode == 3
    assert "NCCL WARN Failed to initialize any NET plugin" in done.stdout
    assert parse(done.stdout, folder=tmp_path)["outcome"] == "failed"


@pytest.mark.parametrize("program", sorted(path.name for path in STANDIN.glob("*_perf")))
def test_every_collective_is_read(program: str, tmp_path: Path) -> None:
    done = alone(
        "-b", "1K", "-e", "1M", "-f", "8", "-g", "4", "-c", "0", program=str(STANDIN / program)
    )
    read = parse(done.stdout, folder=tmp_path)
    assert (read["outcome"], read["case"]) == ("ok", program.removesuffix("_perf"))
    assert read["damaged"] == []
    assert read["facts"]["checked"] == "no"
    assert len({sample["size"] for sample in read["samples"]}) == 4


def test_the_recorded_figures_are_given_back(tmp_path: Path) -> None:
    recorded = (LOGS / "nccl/x-net-socket.txt").read_text()
    env = {"NCCL_DEBUG": "INFO", **SOCKET}
    first, second = (f"env NCCL_HOSTID={name} {ALL_REDUCE} -b 64M -e 64M" for name in "ab")
    argv = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "1", *first.split()]
    argv += [":", "-np", "1", *second.split()]
    done = subprocess.run(argv, env=environment(env), capture_output=True, text=True, check=True)
    (row,) = re.findall(r"^ +67108864 .*", done.stdout, re.MULTILINE)
    assert row.split()[5:9] == ["14118.4", "4.75", "4.75", "0"]
    assert row in recorded
    facts = parse(done.stdout, "--fabric", "tcp", folder=tmp_path)["facts"]
    assert (facts["transport"], facts["nodes"]) == ("socket", 2)
