"""`fabbench render`: plans for machines that nobody asks, and hosts as the catalog has them."""

import socket
import subprocess
from typing import NoReturn

import pytest
from click.testing import Result

from fabbench.benchmarks.fabtests.plan import FabtestsWork
from fabbench.benchmarks.nccl.plan import NcclWork
from fabbench.benchmarks.nvshmem.plan import NvshmemWork
from fabbench.benchmarks.perftest.plan import PerftestWork
from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.catalog.offline_inventory import inventory_of
from fabbench.cli import cli
from fabbench.model.hosts import Host, Needs, Target
from tests.support.command_line import runner

WHERE = Target(name="script", launcher="script")
NEEDS = Needs(programs=("all_reduce_perf", "python3"), install="", mpi=True)


def render(*words: str, form: str = "script") -> Result:
    return runner().invoke(cli, ["render", *words, "--as", form])


def host(instance_type: str, target: Target = WHERE) -> Host:
    return inventory_of(instance_type, 2, target=target, needs=NEEDS).hosts[0]


@pytest.mark.parametrize(
    ("needs", "path"),
    [
        (NcclWork().needs, "/opt/nccl-tests/build/all_reduce_perf"),
        (PingpongWork(sizes=(64,)).needs, "/opt/amazon/efa/bin/fi_pingpong"),
        (FabtestsWork().needs, "/opt/amazon/efa/bin/fi_rma_bw"),
        (PerftestWork().needs, "/opt/perftest/bin/ib_write_bw"),
        (NvshmemWork().needs, "/opt/nvshmem/bin/perftest/device/pt-to-pt/shmem_put_bw"),
        (NvshmemWork(tests=("bw",)).needs, "/opt/nvshmem/bin/perftest/host/pt-to-pt/bw"),
        (
            NvshmemWork(tests=("sync_on_stream",)).needs,
            "/opt/nvshmem/bin/perftest/host/coll/sync_on_stream",
        ),
        (NEEDS, "python3"),
    ],
)
def test_programs_are_where_the_images_have_them(needs: Needs, path: str) -> None:
    found = inventory_of("p5.48xlarge", 2, target=WHERE, needs=needs).hosts[0]
    assert path in found.programs.values()


def test_what_is_otherwise_can_be_said() -> None:
    where = Target(
        name="script",
        launcher="script",
        gpus=2,
        interface="eth9",
        bin_dirs=("/a/", "/b"),
        mpirun="/c/mpirun",
    )
    found = host("p5.48xlarge", where)
    assert (found.gpus, found.interface, found.searched["python3"]) == (2, "eth9", ("/a", "/b"))
    assert found.mpi is not None
    assert found.mpi.program == "/c/mpirun"


@pytest.mark.parametrize(
    "words",
    [
        ("nccl", "--ab", "--collective", "alltoall", "--instance-type", "p5.48xlarge"),
        ("nccl", "--fabric", "nvlink", "--efa", "--instance-type", "p6e-gb200.36xlarge"),
        ("nvshmem", "--efa", "--instance-type", "p5.48xlarge", "--program", "alltoall_latency"),
        ("torch", "--ab", "--instance-type", "p4d.24xlarge", "--nodes", "4"),
        ("pingpong", "--ab", "--instance-type", "c7g.16xlarge"),
        ("perftest", "--efa", "--instance-type", "p5.48xlarge", "--device", "rdmap79s0"),
        (
            "fabtests",
            "--efa",
            "--instance-type",
            "g6e.48xlarge",
            "--device",
            "rdmap79s0",
            "--direct",
        ),
    ],
)
def test_every_benchmark_has_a_script(words: tuple[str, ...]) -> None:
    done = render(*words)
    assert (done.exit_code, done.stderr) == (0, "")
    read = subprocess.run(
        ["bash", "-n"], input=done.stdout, capture_output=True, text=True, check=False
    )
    assert (read.returncode, read.stderr) == (0, "")
    for open_word in ("{device}", "{server}", "{port}", "{folder}", "host 1"):
        assert open_word not in done.stdout.replace("${", "$(")


def test_a_program_is_searched_for_in_each_directory() -> None:
    done = render("pingpong", "--fabric", "tcp", "--bin-dir", "/opt/a", "--bin-dir", "/opt/b")
    assert (done.exit_code, "/opt/a:/opt/b" in done.stdout) == (0, True), done.stderr


def test_nothing_is_contacted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> NoReturn:
        raise AssertionError

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(subprocess, "Popen", refused)
    done = render("nccl", "--ab", "--instance-type", "p5.48xlarge")
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(
    ("typed", "ends"),
    [
        ("1M..1G", "-b 1M -e 1G"),
        ("64K", "-b 64K -e 64K"),
        ("1G..", "-b 1G -e 2G"),
    ],
)
def test_sizes_of_a_program_that_steps_by_itself_are_one_option(typed: str, ends: str) -> None:
    done = render("nccl", "--efa", "--size", typed, "--instance-type", "p5.48xlarge")
    assert done.exit_code == 0, done.stderr
    assert ends in " ".join(done.stdout.replace("\\\n", " ").split())


@pytest.mark.parametrize("words", [("64K,4M",), ("1M..", "-b", "8"), ("4G..",)])
def test_several_ranges_and_ends_beside_a_range_are_refused(words: tuple[str, ...]) -> None:
    done = render("nccl", "--efa", "--instance-type", "p5.48xlarge", "--size", *words)
    assert done.exit_code == 2
