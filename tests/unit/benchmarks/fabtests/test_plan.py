"""The fabtests from request to judged log: plans, refusals, and domains of whole stand-in programs."""

from dataclasses import replace
from pathlib import Path

import pytest

from fabbench.benchmarks.fabtests.plan import PROGRAMS, FabtestsWork
from fabbench.benchmarks.libfabric.reader import LOG_SETTINGS
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hosts import Host
from fabbench.model.log import Outcome
from fabbench.model.plan import Execution
from tests.support import rail_programs
from tests.support.rail_plans import first_execution, measured, option, words

PROVIDERS = {
    "efa": frozenset({"rdm", "dgram"}),
    "tcp": frozenset({"msg"}),
    "tcp;ofi_rxm": frozenset({"rdm"}),
    "verbs": frozenset({"msg"}),
    "verbs;ofi_rxm": frozenset({"rdm"}),
}
RAILS = tuple(f"rdmap{number}s0" for number in range(32))
P5 = Host(
    name="p5",
    providers=PROVIDERS,
    domains={"efa": tuple(f"{rail}{kind}" for rail in RAILS for kind in ("-rdm", "-dgrm"))},
    gpus=8,
    interface="ens32",
)
IB = Host(name="ib", providers=PROVIDERS, domains={"verbs;ofi_rxm": ("mlx5_0", "mlx5_1", "mlx5_0-xrc")})


def execution_of(work: FabtestsWork, fabric: str, *hosts: Host) -> Execution:
    return first_execution("fabtests", work, fabric, hosts)


# ---------------------------------------------------------------- plans


def test_all_domains_at_once_with_gpu_memory() -> None:
    execution = execution_of(FabtestsWork(iterations=100), "efa", P5, replace(P5, name="p5b"))
    assert execution.together
    assert [step.facts["domain"] for step in execution.steps] == [f"{rail}-rdm" for rail in RAILS]
    assert [step.facts["device"] for step in execution.steps] == list(RAILS)
    assert {step.facts["together"] for step in execution.steps} == {"yes"}
    assert [option(words(step), "-i") for step in execution.steps] == [str(index // 4) for index in range(32)]
    server, client = execution.steps[0].commands
    assert server.argv == (
        *("fi_rma_bw", "-p", "efa", "-e", "rdm", "-o", "write", "-S", "1048576", "-I", "100"),
        *("-D", "cuda", "-i", "0", "-E={port}", "-d", "rdmap0s0-rdm"),
    )
    assert client.argv == (*server.argv, "{server}")
    assert client.env == {**LOG_SETTINGS, "FI_EFA_ENABLE_SHM_TRANSFER": "0"}
    assert execution.planned_sizes == (1 << 20,)


def test_as_many_iterations_as_let_the_domains_overlap() -> None:
    at_once = int(execution_of(FabtestsWork(), "efa", P5, P5).steps[0].facts["iterations"])
    alone = int(execution_of(FabtestsWork(one_by_one=True), "efa", P5, P5).steps[0].facts["iterations"])
    assert at_once > 50_000  # 50 GB at 12.5 GB/s are four seconds
    assert 5 * alone < at_once


def test_host_memory_where_a_host_has_no_gpu_or_by_wish() -> None:
    assert "-D" not in words(execution_of(FabtestsWork(), "efa", P5, replace(P5, gpus=0)).steps[0])
    assert "-D" not in words(execution_of(FabtestsWork(memory="host"), "efa", P5, P5).steps[0])


def test_one_by_one_with_several_sizes() -> None:
    work = FabtestsWork(one_by_one=True, sizes=(64, 4096), devices=("rdmap3s0", "rdmap1s0-rdm"))
    execution = execution_of(work, "efa", P5, P5)
    assert not execution.together
    assert [step.id.partition("/")[2] for step in execution.steps] == [
        *("rdmap1s0-64", "rdmap1s0-4096", "rdmap3s0-64", "rdmap3s0-4096")
    ]
    assert all("together" not in step.facts for step in execution.steps)
    everything = execution_of(FabtestsWork(one_by_one=True, all_sizes=True), "efa", P5, P5)
    assert option(words(everything.steps[0]), "-S") == "all"
    assert everything.planned_sizes == ()


def test_tcp_has_one_rail_on_the_interface_between_the_hosts() -> None:
    (step,) = execution_of(FabtestsWork(), "tcp", P5, replace(P5, interface="eth0")).steps
    assert [command.env["FI_TCP_IFACE"] for command in step.commands] == ["ens32", "eth0"]
    assert "device" not in step.facts
    assert "-d" not in words(step)


def test_verbs_domains() -> None:
    execution = execution_of(FabtestsWork(program="fi_rdm_tagged_bw"), "ib", IB, IB)
    assert [option(words(step), "-d") for step in execution.steps] == ["mlx5_0", "mlx5_1"]
    assert "-o" not in words(execution.steps[0])


def test_connected_endpoints_meet_over_the_provider() -> None:
    (step,) = execution_of(FabtestsWork(program="fi_msg_bw"), "tcp", P5, P5).steps
    assert option(words(step, "server"), "-B") == "{port}"
    assert option(words(step), "-P") == "{port}"


def test_direct_and_more_options() -> None:
    work = FabtestsWork(direct=True, window=64, operation="writedata", extra=("-U",))
    argv = words(execution_of(work, "efa", P5, P5).steps[0], "server")
    assert [option(argv, name) for name in ("-f", "-W", "-o")] == ["efa-direct", "64", "writedata"]
    assert "-U" in argv


@pytest.mark.parametrize(
    ("work", "fabric", "host", "expected"),
    [
        (FabtestsWork(), "cxi", P5, "no provider cxi"),
        (FabtestsWork(program="fi_msg_bw"), "efa", P5, "no endpoint of type msg"),
        (FabtestsWork(program="fi_msg_bw"), "ib", IB, "cannot wait for"),
        (FabtestsWork(devices=("rdmap77s0",)), "efa", P5, "lists no such domain"),
        (FabtestsWork(), "efa", replace(P5, domains={}), "but none"),
        (FabtestsWork(memory="cuda"), "efa", replace(P5, gpus=0), "has no GPU"),
    ],
)
def test_refused(work: FabtestsWork, fabric: str, host: Host, expected: str) -> None:
    with pytest.raises(MachineError, match=expected):
        execution_of(work, fabric, host)


@pytest.mark.parametrize("options", [{"program": "fi_info"}, {"sizes": (1, 2)}, {"all_sizes": True}])
def test_invalid_options(options: dict[str, object]) -> None:
    with pytest.raises(RequestError):
        FabtestsWork(**options)  # type: ignore[arg-type]


# ---------------------------------------------------------------- runs


def here(folder: Path) -> Host:
    domains = {"efa": tuple(f"rdmap{number}-rdm" for number in range(6))}
    return replace(P5, domains=domains, gpus=2, programs=rail_programs.made(folder, *PROGRAMS))


def test_without_a_word_of_libfabric_nothing_is_proven(tmp_path: Path) -> None:
    host = here(tmp_path)
    execution = execution_of(FabtestsWork(timeout_s=900), "efa", host)
    steps = [
        replace(
            step,
            commands=tuple(replace(command, env={**command.env, "FI_LOG_LEVEL": "warn"}) for command in step.commands),
        )
        for step in execution.steps
    ]
    assert measured(replace(execution, steps=tuple(steps)), host).outcome is Outcome.UNPROVEN
