"""What fabbench's program for torch's all_reduce takes and prints, and a run of it under mpirun."""

import sys
from importlib.resources import files
from pathlib import Path

import pytest

from fabbench.benchmarks.torch import plan, program
from fabbench.benchmarks.torch.plan import TorchWork
from fabbench.logs.parser import LogParser, logs
from fabbench.model.hosts import Host
from fabbench.model.log import Log
from tests.support.local_runs import fabbench, the_run
from tests.support.paths import FAKE_PROGRAMS
from tests.support.read_logs import figures

STANDIN = FAKE_PROGRAMS / "torch"


def test_the_program_and_its_steps_know_the_same_types() -> None:
    assert program.WIDTHS == plan.WIDTHS
    options = program.options((), {})
    ours = TorchWork(program="")
    usual = (ours.rows, ours.columns, ours.trials, ours.warmup, ours.port)
    assert (options.rows, options.columns, options.trials, options.warmup, options.port) == usual
    assert options.sizes is None
    host = Host(name="a", address="10.0.0.1", gpus=8)
    words = (
        TorchWork(program="", sizes=(4, 8)).steps("t", "tcp", (host, host))[0].commands[0].argv[2:]
    )
    options = program.options(words, {"MASTER_ADDR": "x"})
    assert (options.sizes, options.master) == ([4, 8], "10.0.0.1")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0, 1, 0)),
        (
            {
                "OMPI_COMM_WORLD_RANK": "3",
                "OMPI_COMM_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            },
            (3, 4, 1),
        ),
        (
            {
                "PMI_RANK": "3",
                "PMI_SIZE": "4",
                "MPI_LOCALRANKID": "1",
                "RANK": "0",
                "WORLD_SIZE": "2",
            },
            (3, 4, 1),
        ),
        (
            {
                "RANK": "1",
                "WORLD_SIZE": "2",
                "LOCAL_RANK": "1",
                "SLURM_PROCID": "0",
                "SLURM_NTASKS": "1",
            },
            (1, 2, 1),
        ),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "2"}, (5, 8, 2)),
        ({"RANK": "1"}, (0, 1, 0)),
    ],
)
def test_whoever_starts_the_program_tells_it_its_rank(
    environment: dict[str, str], expected: tuple[int, int, int]
) -> None:
    assert program.read_process(environment) == expected


def read(text: str) -> Log:
    session = LogParser("x")
    (log,) = logs(session.feed_lines(text.splitlines()) + session.close())
    return log


def test_a_report_reads_as_it_was_measured() -> None:
    measured = {4 * 10**9: 239.742e9, 1 << 30: 91.25e9, 3 << 20: 8.5e9, 4096: 12.5e6, 10: 1.5e6}
    text = program.header(50, 5, 4) + "".join(
        program.row(size, 4, algbw) for size, algbw in measured.items()
    )
    log = read(text)
    assert {point.size: figures(point) for point in log.points} == {
        size: pytest.approx({"busbw": algbw * 1.5, "algbw": algbw})
        for size, algbw in measured.items()
    }
    assert (log.facts["ranks"], log.facts["warmup"], log.findings) == (4, 5, ())


def test_the_program_is_part_of_the_package_and_needs_nothing_of_it() -> None:
    text = (files("fabbench.benchmarks.torch") / "program.py").read_text("utf-8")
    assert "import fabbench" not in text
    assert "from fabbench" not in text


@pytest.mark.local
@pytest.mark.parametrize(
    "sizes",
    [pytest.param((), marks=pytest.mark.slow), ("--size", "1M", "--size", "64M")],
    ids=["rows and columns", "sizes"],
)
def test_ranks_under_mpirun_measure_and_prove_their_network(
    tmp_path: Path, sizes: tuple[str, ...]
) -> None:
    where = ("--on", "local", "--virtual-nodes", "2", "--gpus", "4", "--python", sys.executable)
    configurations = ("--fabric", "tcp", "--fabric", "p2p", "--repeat", "1")
    python = {"PYTHONPATH": str(STANDIN)}
    done = fabbench(tmp_path, "run", "torch", *where, *configurations, *sizes, **python)
    assert done.returncode == 0, done.stderr
    for configuration, carrier in (("tcp", "socket"), ("p2p", "p2p")):
        (log,) = the_run(tmp_path).logs(configuration)
        assert (log.outcome, log.facts["transport"], log.facts["torch"]) == (
            "ok",
            carrier,
            "2.6.0+standin",
        )
        assert (log.facts["ranks"], log.facts["nccl"]) == (4, "2.21.5")
        for point in log.points:
            algbw = point.size / 0.002
            assert figures(point) == pytest.approx({"algbw": algbw, "busbw": algbw * 1.5}, rel=1e-3)
        assert [point.size for point in log.points] == (
            [1 << 20, 64 << 20] if sizes else [4 * 10**9]
        )


@pytest.mark.local
@pytest.mark.slow
def test_without_torch_the_run_fails_with_the_reason(tmp_path: Path) -> None:
    where = ("--on", "local", "--gpus", "2", "--python", sys.executable, "--fabric", "p2p")
    done = fabbench(tmp_path, "run", "torch", *where)
    assert done.returncode == 4
    assert "ModuleNotFoundError" in done.stderr
