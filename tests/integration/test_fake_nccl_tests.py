"""The stand-in for nccl-tests behaves as the real programs do, by what its ranks really receive."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.host_fixtures import STANDIN, Labs, Mpi, mpi_flavour
from tests.support.hosts import Lab, processes
from tests.support.paths import LOGS

# Tests that run it notice most of what breaks it: make test need not ask it anything else.
pytestmark = pytest.mark.slow

ALL_REDUCE = str(STANDIN / "all_reduce_perf")
SWEEP = ("-b", "8", "-e", "64M", "-f", "4")
EFA = {"NCCL_NET": "AWS Libfabric", "FI_PROVIDER": "efa"}
SOCKET = {"NCCL_NET": "Socket"}


def parse(text: str, *options: str, folder: Path) -> dict[str, Any]:
    """What fabbench reads in an output."""
    log = folder / "output.log"
    log.write_text(text)
    argv = [sys.executable, "-m", "fabbench", "parse", "--format", "json", "--exit-zero", *options, str(log)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stderr, text)
    (read,) = json.loads(done.stdout)["logs"]
    assert isinstance(read, dict)
    return read


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """This process's environment, with no variable of NCCL's or of a launcher but those given."""
    foreign = ("NCCL_", "FI_", "OMPI_", "PMI", "SLURM_", "STANDIN_")
    return {**{key: value for key, value in os.environ.items() if not key.startswith(foreign)}, **env}


def alone(*arguments: str, program: str = ALL_REDUCE, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the stand-in without a launcher."""
    argv = [program, *arguments]
    return subprocess.run(argv, env=environment(env), capture_output=True, text=True, check=False, timeout=60)


def started(mpi: Mpi, hosts: list[str], env: Mapping[str, str], *arguments: str, slots: int = 1) -> str:
    """The shell command by which a user on the head node starts the stand-in."""
    passed: list[str] = []
    for key, value in {"NCCL_DEBUG": "INFO", **env}.items():
        passed += ["-genv", key, value] if mpi.name == "mpich" else ["-x", f"{key}={value}"]
    return shlex.join([*mpi.argv(hosts, slots=slots), *passed, ALL_REDUCE, *arguments])


def on(lab: Lab, env: Mapping[str, str], *arguments: str, node_kind: str = "openmpi4") -> str:
    """The output of a run on all hosts of a lab."""
    mpi = mpi_flavour(node_kind)
    done = mpi.run(lab, started(mpi, [host.name for host in lab.hosts], env, *arguments))
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


@pytest.mark.local
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


@pytest.mark.local
@pytest.mark.parametrize("env", [{**EFA, "STANDIN_NO_EFA": "1"}, {"NCCL_NET": "AWS"}, {"NCCL_NET": "gIB"}])
def test_a_named_network_that_is_not_there_fails(env: dict[str, str], tmp_path: Path) -> None:
    done = alone(*SWEEP, NCCL_DEBUG="INFO", **env)
    assert done.returncode == 3
    assert "NCCL WARN Failed to initialize any NET plugin" in done.stdout
    assert parse(done.stdout, folder=tmp_path)["outcome"] == "failed"


@pytest.mark.local
def test_without_debugging_nothing_is_proven(tmp_path: Path) -> None:
    done = alone(*SWEEP, **EFA)
    assert "NCCL INFO" not in done.stdout
    assert parse(done.stdout, "--fabric", "efa", folder=tmp_path)["outcome"] == "unproven"


@pytest.mark.local
@pytest.mark.parametrize("program", sorted(path.name for path in STANDIN.glob("*_perf")))
def test_every_collective_is_read(program: str, tmp_path: Path) -> None:
    done = alone("-b", "1K", "-e", "1M", "-f", "8", "-g", "4", "-c", "0", program=str(STANDIN / program))
    read = parse(done.stdout, folder=tmp_path)
    assert (read["outcome"], read["case"]) == ("ok", program.removesuffix("_perf"))
    assert read["damaged"] == []
    assert read["facts"]["checked"] == "no"
    assert len({sample["size"] for sample in read["samples"]}) == 4


@pytest.mark.local
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


@pytest.mark.local
@pytest.mark.parametrize(("prefix", "streams"), [((), False), (("stdbuf", "-oL"), True)])
def test_rows_are_held_back_without_stdbuf(prefix: tuple[str, ...], *, streams: bool) -> None:
    argv = [*prefix, ALL_REDUCE, "-b", "8", "-e", "64", "-f", "2"]
    env = environment({"STANDIN_HANG_AT": "32"})
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE) as run:
        assert run.stdout
        os.set_blocking(run.stdout.fileno(), False)
        seen = b""

        def rows() -> int:
            nonlocal seen
            seen += (run.stdout.read() if run.stdout else None) or b""
            return len(re.findall(rb"^ +\d+ .*\n", seen, re.MULTILINE))

        if streams:
            assert processes.eventually(lambda: rows() == 2)
        else:
            time.sleep(1)
            assert (rows(), seen) == (0, b"")
        run.kill()


Runs = Callable[..., str]


@pytest.fixture
def runs(lab: Labs, mpi: Mpi) -> Runs:
    """Runs the stand-in on two hosts, by each mpirun in turn."""
    return partial(on, lab(2, trust=True), node_kind=mpi.name)


@pytest.mark.lab
@pytest.mark.parametrize(("env", "fabric", "transport"), [(EFA, "efa", "efa"), (SOCKET, "tcp", "socket")])
def test_fabbench_reads_what_carried_the_data(
    env: dict[str, str], fabric: str, transport: str, runs: Runs, tmp_path: Path
) -> None:
    text = runs(env, *SWEEP)
    read = parse(text, "--fabric", fabric, folder=tmp_path)
    assert (read["outcome"], read["facts"]["transport"]) == ("ok", transport)
    assert (read["facts"]["hosts"], read["facts"]["nodes"], read["facts"]["ranks"]) == (2, 2, 2)
    assert read["facts"].get("nics") == (4 if fabric == "efa" else None)
    other = "tcp" if fabric == "efa" else "efa"
    assert parse(text, "--fabric", other, folder=tmp_path)["outcome"] == "off-fabric"
