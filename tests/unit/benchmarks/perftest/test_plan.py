"""perftest from request to judged log: plans, refusals, and rails of whole stand-in programs."""

from dataclasses import replace
from pathlib import Path

import pytest

from fabbench.benchmarks.perftest.plan import PerftestWork
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.fabrics import AB
from fabbench.model.hosts import Host
from fabbench.model.plan import Execution
from tests.support.local_runs import fabbench, nothing_left
from tests.support.rail_plans import first_execution, option, words

P5 = Host(name="p5", devices={f"rdmap{number}s0": "efa" for number in range(79, 111)}, gpus=8)
IB = Host(name="ib", devices={"mlx5_10": "ib", "mlx5_2": "ib", "mlx5_3": "roce"}, gids={"mlx5_3": 3})
ROCE = Host(name="roce", devices={"mlx5_0": "roce", "mlx5_1": "roce"}, gids={"mlx5_0": 3, "mlx5_1": 5})
OTHER = replace(ROCE, name="other", gids={"mlx5_0": 7, "mlx5_1": 1})
NOTHING = Host(name="nothing", search_notes=("Looked for RDMA devices: found none.",))


def execution_of(work: PerftestWork, fabric: str, *hosts: Host) -> Execution:
    return first_execution("perftest", work, fabric, hosts)


# ---------------------------------------------------------------- plans


def test_each_of_32_efa_devices_is_a_rail() -> None:
    execution = execution_of(PerftestWork(), "efa", P5, replace(P5, name="p5b"))
    devices = [step.facts["device"] for step in execution.steps]
    assert devices == [f"rdmap{number}s0" for number in range(79, 111)]
    assert not execution.together
    assert execution.planned_sizes == (65536,)
    first = execution.steps[0]
    assert words(first, "server") == (
        *("ib_write_bw", "-c", "SRD", "-d", "rdmap79s0", "-i", "1", "-x", "0", "-F", "-p", "{port}"),
        *("-q", "1", "-s", "65536"),
    )
    assert words(first, "client") == (*words(first, "server"), "{server}")
    assert [command.host for command in first.commands] == [0, 1]


def test_the_best_fabric_is_chosen_among_those_with_devices() -> None:
    assert execution_of(PerftestWork(), "", P5, P5).configuration.fabric == "efa"
    assert execution_of(PerftestWork(), "", ROCE, OTHER).configuration.fabric == "roce"


def test_infiniband_takes_its_own_devices_in_the_order_of_their_numbers() -> None:
    execution = execution_of(PerftestWork(), "ib", IB, IB)
    assert [step.facts["device"] for step in execution.steps] == ["mlx5_2", "mlx5_10"]
    argv = words(execution.steps[0], "server")
    assert option(argv, "-c") == "RC"
    assert "-x" not in argv


def test_each_side_of_roce_has_its_own_gid() -> None:
    execution = execution_of(PerftestWork(), "roce", ROCE, OTHER)
    gids = [(option(words(step, "server"), "-x"), option(words(step, "client"), "-x")) for step in execution.steps]
    assert gids == [("3", "7"), ("5", "1")]
    forced = execution_of(PerftestWork(gid_index=2), "roce", replace(ROCE, gids={}), OTHER)
    assert {option(words(step, "server"), "-x") for step in forced.steps} == {"2"}


def test_devices_of_other_names_are_paired_in_order() -> None:
    last = Host(name="b", devices={"mlx5_7": "roce", "mlx5_11": "roce"}, gids={"mlx5_7": 0, "mlx5_11": 1})
    execution = execution_of(PerftestWork(), "roce", ROCE, last)
    found = [(step.facts["server_device"], step.facts["device"]) for step in execution.steps]
    assert found == [("mlx5_0", "mlx5_7"), ("mlx5_1", "mlx5_11")]


def test_chosen_devices_sizes_and_options() -> None:
    work = PerftestWork(
        test="ib_read_bw",
        devices=("mlx5_1",),
        sizes=(64, 4096),
        iterations=100,
        bidirectional=True,
        qps=4,
        extra=("--report_gbits",),
    )
    execution = execution_of(work, "roce", ROCE, OTHER)
    assert [step.id for step in execution.steps] == ["000-roce-r1/mlx5_1-64", "000-roce-r1/mlx5_1-4096"]
    argv = words(execution.steps[1], "client")
    assert argv[0] == "ib_read_bw"
    assert [option(argv, name) for name in ("-s", "-n", "-q")] == ["4096", "100", "4"]
    assert argv[-3:] == ("-b", "--report_gbits", "{server}")
    assert execution.planned_sizes == (64, 4096)


def test_rails_that_run_together_measure_for_a_while() -> None:
    execution = execution_of(PerftestWork(together=True), "efa", P5, P5)
    assert execution.together
    assert {option(words(step, "client"), "-D") for step in execution.steps} == {"10"}
    assert {step.facts["together"] for step in execution.steps} == {"yes"}


def test_all_sizes_are_one_step_for_each_device() -> None:
    execution = execution_of(PerftestWork(all_sizes=True), "roce", ROCE, OTHER)
    assert len(execution.steps) == 2
    assert "-a" in words(execution.steps[0], "server")
    assert (execution.planned_sizes[0], execution.planned_sizes[-1], len(execution.planned_sizes)) == (2, 8 << 20, 23)


def test_gpus_are_shared_out_evenly() -> None:
    execution = execution_of(PerftestWork(memory="cuda", dmabuf=True), "efa", P5, P5)
    used = [word for step in execution.steps for word in words(step, "client") if word.startswith("--use_cuda=")]
    assert used == [f"--use_cuda={index // 4}" for index in range(32)]
    assert "--use_cuda_dmabuf" in words(execution.steps[0], "server")


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("fabric", "hosts", "kind", "expected"),
    [
        ("ib", (P5,), MachineError, "no ib device"),
        ("roce", (replace(ROCE, gids={"mlx5_0": 3}),), MachineError, "mlx5_1.*GID"),
        ("tcp", (ROCE,), RequestError, "roce: mlx5_0, mlx5_1"),
        ("tcp", (NOTHING,), MachineError, "found none"),
        ("", (NOTHING,), MachineError, "none"),
        (AB, (P5,), RequestError, "RDMA devices only"),
        ("efa", (P5, replace(P5, devices={"rdmap79s0": "efa"})), RequestError, "has 32 and p5 has 1"),
    ],
)
def test_refused(fabric: str, hosts: tuple[Host, ...], kind: type[Exception], expected: str) -> None:
    with pytest.raises(kind, match=expected):
        execution_of(PerftestWork(), fabric, *hosts)


def test_a_device_that_is_not_there_is_refused_where_others_are() -> None:
    with pytest.raises(MachineError, match=r"mlx5_9.*mlx5_0, mlx5_1"):
        execution_of(PerftestWork(devices=("mlx5_9",)), "roce", ROCE)


@pytest.mark.parametrize(
    "options",
    [
        {"test": "ib_atomic_bw"},
        {"all_sizes": True, "sizes": (64,)},
        {"all_sizes": True, "duration_s": 5},
        {"iterations": 5, "duration_s": 5},
        {"test": "ib_write_lat", "bidirectional": True},
        {"together": True, "sizes": (64, 128)},
        {"together": True, "all_sizes": True},
        {"dmabuf": True},
    ],
)
def test_options_that_exclude_each_other(options: dict[str, object]) -> None:
    with pytest.raises(RequestError):
        PerftestWork(**options)  # type: ignore[arg-type]


def test_gpu_memory_needs_gpus() -> None:
    with pytest.raises(MachineError, match="has no GPU"):
        execution_of(PerftestWork(memory="cuda"), "roce", ROCE)


# ---------------------------------------------------------------- runs


@pytest.mark.local
def test_a_machine_without_devices_says_so(tmp_path: Path) -> None:
    done = fabbench(tmp_path, "run", "perftest", "--on", "local", "--fabric", "ib", "--device", "mlx5_0", "--", "--odp")
    assert done.returncode == 4, done.stderr
    assert "Did not detect devices" in done.stdout
    assert "failed" in done.stdout
    assert "--odp" in next(tmp_path.glob("*/exec/*/plan.json")).read_text()
    assert nothing_left(tmp_path)
