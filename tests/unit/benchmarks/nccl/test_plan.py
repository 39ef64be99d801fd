"""How nccl-tests are planned: their words, ranks and sizes, and what they print under a real mpirun."""

import re
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from fabbench.benchmarks.nccl import BENCHMARK
from fabbench.benchmarks.nccl.plan import NcclWork
from fabbench.logs.parser import LogParser, logs
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Host, Inventory
from fabbench.model.options import read_options
from fabbench.model.plan import Proof
from fabbench.model.units import parse_size
from fabbench.plan.build import plan
from tests.support.local_runs import fabbench, the_run
from tests.support.paths import FAKE_PROGRAMS, LOGS
from tests.support.requests import request

LOGS = LOGS / "nccl"
STANDIN = FAKE_PROGRAMS / "nccl_tests"
A = Host(name="a", interface="eth0", gpus=2)
B = Host(name="b", interface="eth0", gpus=2)


def test_the_usual_step_is_one_rank_for_each_gpu_with_the_usual_sizes() -> None:
    (step,) = NcclWork().steps("000-tcp-r1", "tcp", (A, B))
    (command,) = step.commands
    assert (step.id, step.label, step.pair) == ("000-tcp-r1/all_reduce", "all_reduce", False)
    words = "all_reduce_perf -b 8 -e 2147483648 -f 2 -g 1 -n 20 -w 5 -c 1 -d float -o sum -r 0"
    assert command.argv == tuple(words.split())
    assert (command.ranks, step.timeout_s, step.silence_s) == (4, 1800, 300)
    assert step.facts == {"benchmark": "nccl", "collective": "all_reduce", "ranks": 4}


def test_options_are_the_programs_own_and_the_path_is_the_one_found() -> None:
    there = Host(name="a", gpus=2, programs={"alltoall_perf": "/opt/nccl-tests/build/alltoall_perf"})
    work = NcclWork(
        collectives=("alltoall",),
        min_bytes=1024,
        max_bytes=4096,
        step_bytes=1024,
        iterations=3,
        warmup=0,
        check=0,
        dtype="half",
        op="max",
        root=-1,
        extra=("-z", "1"),
    )
    ((command,),) = (step.commands for step in work.steps("t", "p2p", (there,)))
    words = "-b 1024 -e 4096 -i 1024 -g 1 -n 3 -w 0 -c 0 -d half -o max -r -1 -z 1"
    assert command.argv == ("/opt/nccl-tests/build/alltoall_perf", *words.split())


def test_several_collectives_are_steps_of_one_execution() -> None:
    work = NcclWork(collectives=("all_reduce", "alltoall"), min_bytes=8, max_bytes=128)
    run_request = request("nccl", work, "tcp", env={"NCCL_ALGO": "ring"})
    (execution,) = plan(run_request, Inventory(target="t", hosts=(A, B))).executions
    assert [step.id for step in execution.steps] == ["000-tcp-r1/all_reduce", "000-tcp-r1/alltoall"]
    assert execution.planned_sizes == (64, 128)
    assert execution.proof == Proof(fabric="tcp")
    (command,) = execution.steps[0].commands
    assert command.env["NCCL_NET"] == "Socket"
    assert command.env["NCCL_ALGO"] == "ring"
    assert "NCCL_ALGO" not in command.unset
    assert work.needs.programs == ("all_reduce_perf", "alltoall_perf")


def test_the_nics_to_be_proven_are_those_found_unless_somebody_knows_better() -> None:
    host = Host(name="a", gpus=8, devices={f"rdmap{n}": "efa" for n in range(4)})
    assert NcclWork().proof("efa", (host, host)) == Proof(fabric="efa", nics=4)
    assert NcclWork(nics=32).proof("efa", (host,)).nics == 32
    assert NcclWork(nics=0).proof("efa", (host,)).nics == 0


@pytest.mark.parametrize(
    ("fabric", "setting"),
    [
        ("ib", ("NCCL_IB_HCA", "=mlx5_1,mlx5_2")),
        ("roce", ("NCCL_IB_HCA", "=mlx5_1,mlx5_2")),
        ("efa", ("FI_EFA_IFACE", "mlx5_1,mlx5_2")),
    ],
)
def test_nics_are_chosen_by_name(fabric: str, setting: tuple[str, str]) -> None:
    """As whole names, and no others may have been used."""
    host = Host(name="a", gpus=8, devices={f"mlx5_{n}": fabric for n in range(12)})
    work = NcclWork(devices=("mlx5_1", "mlx5_2"))
    assert work.why_unsupported(fabric, host) == ""
    ((command,),) = (step.commands for step in work.steps("t", fabric, (host, host)))
    assert setting in command.env.items()
    assert setting[0] not in command.unset
    assert work.proof(fabric, (host, host)) == Proof(fabric=fabric, nics=2, devices=("mlx5_1", "mlx5_2"))
    assert work.needs.devices == ("mlx5_1", "mlx5_2")


def test_nics_that_are_tested_one_by_one() -> None:
    host = Host(name="a", gpus=8, devices={"mlx5_0": "ib", "mlx5_1": "ib"})
    assert BENCHMARK.nics(NcclWork(), "ib", host) == ("mlx5_0", "mlx5_1")
    assert BENCHMARK.nics(NcclWork(), "tcp", host) == ()
    assert BENCHMARK.on_nic(NcclWork(), "mlx5_1") == NcclWork(devices=("mlx5_1",))
    with pytest.raises(RequestError, match="--nics"):
        BENCHMARK.nics(NcclWork(nics=2), "ib", host)


@pytest.mark.parametrize(
    ("fabric", "devices", "complaint"),
    [
        ("tcp", {}, "--device chooses NICs of efa, ib, roce alone."),
        ("ib", {"mlx5_10": "ib"}, "it has no mlx5_1 of ib, but mlx5_10."),
        ("ib", {"mlx5_1": "roce"}, "there is no InfiniBand device."),
        ("ib", {}, ""),
    ],
)
def test_nics_that_cannot_be_chosen(fabric: str, devices: dict[str, str], complaint: str) -> None:
    host = Host(name="a", gpus=8, devices=devices)
    assert NcclWork(devices=("mlx5_1",)).why_unsupported(fabric, host) == complaint


@pytest.mark.parametrize(
    "text", ["allreduce-1proc-g4", "allreduce-2node-socket", "alltoall-mpi", "opt-c0", "opt-dall", "x-net-socket"]
)
def test_the_planned_sizes_are_those_that_real_programs_print(text: str) -> None:
    source = (LOGS / f"{text}.txt").read_text()
    options = dict(re.findall(r" (-[befid]) (\w+)", source.splitlines()[0]))
    session = LogParser(text)
    found = session.feed_lines(source.splitlines()) + session.close()
    (log,) = logs(found)
    ranks = log.facts["ranks"]
    assert isinstance(ranks, int)
    work = NcclWork(
        collectives=(str(log.case),),
        min_bytes=parse_size(options.get("-b", "32M")),
        max_bytes=parse_size(options["-e"]),
        factor=int(options.get("-f", "1")),
        step_bytes=0 if "-f" in options else parse_size(options.get("-i", "1M")),
        dtype=options.get("-d", "float"),
    )
    hosts, printed = (Host(name="a", gpus=ranks),), {point.size for point in log.points}
    assert set(work.planned_sizes(hosts)) == printed <= {*work.possible_sizes(hosts)}


@pytest.mark.parametrize(
    ("collective", "ranks", "expected"),
    [
        ("all_reduce", 16, (8, 16, 32, 64, 128, 256, 512)),
        # 64 B: 0 since 2.13.12, before that one element for each rank. 128 B: the same with two.
        ("alltoall", 16, (0, 256, 512)),
        # 64 B: 48, and before that 60.
        ("all_gather", 3, (0,)),
        ("alltoallv", 16, ()),
    ],
)
def test_sizes_are_shared_out_between_ranks_as_every_release_does(
    collective: str, ranks: int, expected: tuple[int, ...]
) -> None:
    work = NcclWork(collectives=(collective,), min_bytes=8, max_bytes=512)
    assert work.planned_sizes((Host(name="a", gpus=ranks),)) == expected


def test_every_type_at_once_prints_the_sizes_of_the_widest() -> None:
    work = NcclWork(dtype="all", min_bytes=4, max_bytes=32)
    assert work.planned_sizes((A,)) == (8, 16, 32)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"extra": ("-b", "8")}, "-b is after --"),
        ({"extra": ("--minbytes=8",)}, "--minbytes=8 is after --"),
        ({"extra": ("-g2",)}, "-g2 is after --"),
        ({"devices": ("mlx5_0",), "nics": 1}, "--nics has no effect with --device"),
    ],
)
def test_what_cannot_be_measured_is_refused(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(RequestError, match=complaint):
        NcclWork(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "last", "factor", "step"),
    [("0", "8", 2, None), ("8", "4", 2, None), ("8", "64", 1, None), ("8", "2G", 2, "8"), ("8", "x", 2, None)],
)
def test_sizes_without_end_are_refused(first: str, last: str, factor: int, step: str | None) -> None:
    given = {"min_bytes": first, "max_bytes": last, "factor": str(factor), "step_bytes": step or "0"}
    with pytest.raises(RequestError):
        read_options(NcclWork, given)


HALVES = ("--on", "local", "--virtual-nodes", "2", "--gpus", "4", "--bin-dir", str(STANDIN), "-e", "64K")
"""The stand-in programs under the real mpirun, on two halves of this machine."""


def measured(store: Path, *arguments: str, **faults: str) -> CompletedProcess[str]:
    return fabbench(store, "run", "nccl", *HALVES, *arguments, **faults)


@pytest.mark.local
def test_ranks_get_what_the_fabric_needs_and_each_configuration_proves_its_network(tmp_path: Path) -> None:
    inherited = {"NCCL_NET": "Socket", "FI_PROVIDER": "tcp", "NCCL_P2P_DISABLE": "1"}
    fabrics = ("--fabric", "ofi-tcp", "--fabric", "tcp", "--fabric", "p2p", "--repeat", "1")
    done = measured(tmp_path, *fabrics, "--format", "json", **inherited)
    assert done.returncode == 0, done.stderr
    configurations = ("ofi-tcp", "tcp", "p2p")
    carried = [
        log.facts["transport"] for configuration in configurations for log in the_run(tmp_path).logs(configuration)
    ]
    assert carried == ["libfabric-tcp", "socket", "p2p"]


@pytest.mark.local
@pytest.mark.slow
def test_a_program_that_hangs_is_a_timeout_and_its_rows_are_kept(tmp_path: Path) -> None:
    done = measured(tmp_path, "--fabric", "tcp", "--silence", "3", STANDIN_HANG_AT="1K")
    assert done.returncode == 4
    assert "7 of 14 sizes, timeout" in done.stderr


@pytest.mark.local
@pytest.mark.slow
def test_sizes_that_sockets_may_never_finish_are_pointed_out(tmp_path: Path) -> None:
    where = ("run", "nccl", "--on", "local", "--gpus", "0", "-e", "8G")
    assert "-e 4G leaves them out" in fabbench(tmp_path, *where, "--fabric", "tcp").stderr
    assert "-e 4G" not in fabbench(tmp_path, *where, "--fabric", "p2p").stderr


@pytest.mark.local
def test_wrong_words_end_it_before_anything_starts(tmp_path: Path) -> None:
    for words, complaint in (
        (("--fabric", "tcp", "stray"), "Unexpected argument 'stray'."),
        (("--fabric", "tcp", "--", "-e", "8"), "-e is after --"),
        (("--fabric", "tcp", "--collective", "x"), "nccl-tests has no collective x."),
        (("--fabric", "tcp", "--interface", "eth0"), "--interface has no effect with --virtual-nodes"),
    ):
        done = fabbench(tmp_path, "run", "nccl", *HALVES, *words)
        assert (done.returncode, complaint in done.stderr) == (2, True), done.stderr
    assert not list(tmp_path.iterdir())
