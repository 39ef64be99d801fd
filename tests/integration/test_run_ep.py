"""`fabbench run ep` under mpirun: stand-ins that print what the sources of the programs do."""

import subprocess
import sys
from pathlib import Path

import pytest

from fabbench.model.log import Log, Outcome
from tests.support import ep_program
from tests.support.host_fixtures import STANDIN
from tests.support.local_runs import fabbench, nothing_left, the_run

pytestmark = pytest.mark.local


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    return ep_program.made(folder)


def ep(store: Path, *more: str) -> subprocess.CompletedProcess[str]:
    where = ("--on", "local", "--gpus", "2", "--fabric", "p2p", "--repeat", "1")
    return fabbench(store, "run", "ep", *where, *more)


def ep_bench(store: Path, programs: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return ep(store, "--bin-dir", str(programs), *more)


def scripts_of(programs: Path) -> tuple[str, ...]:
    return ("--tests", str(programs), "--python", sys.executable)


def the_log(store: Path) -> Log:
    (log,) = the_run(store).logs("p2p")
    return log


@pytest.mark.parametrize("mode", ["low-latency", "high-throughput"])
def test_ep_bench_inside_a_host_is_proven_and_checked(
    tmp_path: Path, programs: Path, mode: str
) -> None:
    done = ep_bench(tmp_path, programs, "--kernels", mode)
    assert done.returncode == 0, done.stderr
    log = the_log(tmp_path)
    assert (log.outcome, log.reason, log.case) == (Outcome.OK, None, "ep_bench")
    assert (log.facts["transport"], log.facts["checked"], log.facts["ranks"]) == ("p2p", "yes", 2)
    assert {"dispatch", "combine", "dispatch + combine"} <= {
        point.labels["operation"] for point in log.points
    }
    assert "gin-none" not in {finding.code for finding in log.findings}
    assert nothing_left(tmp_path)


def test_nccl_s_all_to_all_of_the_same_bytes_stands_beside(tmp_path: Path, programs: Path) -> None:
    (programs / "alltoall_perf").symlink_to(STANDIN / "alltoall_perf")
    words = ("--kernels", "low-latency", "--tokens", "64", "--top-k", "4", "--hidden", "2048")
    done = ep_bench(tmp_path, programs, *words, "--alltoall")
    assert done.returncode == 0, done.stderr
    logs = the_run(tmp_path).logs("p2p")
    assert [(log.benchmark, log.case, log.outcome) for log in logs] == [
        ("ep", "ep_bench", Outcome.OK),
        ("nccl", "alltoall", Outcome.OK),
    ]
    assert {point.size for point in logs[1].points} == {64 * 4 * 2048 * 2}
    assert "alltoall" in done.stdout


@pytest.mark.slow
def test_data_that_failed_its_check_is_corrupt(tmp_path: Path, programs: Path) -> None:
    done = ep_bench(tmp_path, programs, "--env", "STANDIN_RECORDING=ep-bench-with-wrong-data")
    assert done.returncode == 4, done.stderr
    assert the_log(tmp_path).outcome is Outcome.CORRUPT


def test_a_failed_assertion_about_data_is_corrupt(tmp_path: Path, programs: Path) -> None:
    wrong = ("--env", "STANDIN_RECORDING=a-failed-assertion-about-data")
    done = ep(tmp_path, "--program", "deepep-v1", *scripts_of(programs), *wrong)
    assert done.returncode == 4, done.stderr
    assert the_log(tmp_path).outcome is Outcome.CORRUPT


def test_deepep_inside_a_host_starts_its_own_ranks(tmp_path: Path, programs: Path) -> None:
    recording = ("--env", "STANDIN_RECORDING=inside-a-node")
    done = ep(tmp_path, "--program", "deepep-v1", *scripts_of(programs), *recording)
    assert done.returncode == 0, done.stderr
    log = the_log(tmp_path)
    assert (log.outcome, log.case, log.facts["transport"]) == (Outcome.OK, "test_intranode", "p2p")
    assert log.facts["ranks"] == 2
    assert [point.values[0] for point in log.points] == [352.43e9, 344.45e9, 332.57e9]


def test_the_slowest_rank_is_named(tmp_path: Path, programs: Path) -> None:
    done = ep(tmp_path, "--program", "deepep-v2", *scripts_of(programs))
    assert done.returncode == 0, done.stderr
    log = the_log(tmp_path)
    (slowest,) = [each.meaning for each in log.findings if each.code == "slowest-rank"]
    assert slowest.startswith("Slowest: rank 0 in dispatch SO")
    assert {point.labels["rank"] for point in log.points} == {"0", "1"}
