"""Plans: configurations, their order and commands, and what is refused. Nothing is started."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.benchmarks.nccl.plan import NcclWork
from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.benchmarks.pingpong.reader import SETUP_SHARE, setup_s
from fabbench.model.errors import FabbenchError, MachineError, RequestError
from fabbench.model.fabrics import AB
from fabbench.model.hosts import Host, Inventory
from fabbench.model.plan import Plan
from fabbench.plan.build import plan
from fabbench.testing import two_hosts
from tests.support.requests import request

HERE = Host(
    name="here",
    providers={
        "shm": frozenset({"rdm"}),
        "tcp": frozenset({"msg"}),
        "tcp;ofi_rxm": frozenset({"rdm"}),
    },
    search_notes=("Looked here: found shm, tcp.",),
)
AWS = Host(name="aws", providers={**HERE.providers, "efa": frozenset({"rdm", "dgram"})})
ROCE = Host(
    name="roce",
    providers={**HERE.providers, "verbs": frozenset({"msg", "rdm"})},
    devices={"rxe0": "roce"},
)
WORK = PingpongWork(sizes=(64, 4096))


def planned(
    *fabrics: str, hosts: tuple[Host, ...] = (HERE,), work: PingpongWork = WORK, **wanted: int
) -> Plan:
    run_request = request("pingpong", work, *fabrics, repeats=wanted.get("repeats"))
    return plan(run_request, Inventory(target="local", hosts=hosts))


def commands(made: Plan) -> list[tuple[str, ...]]:
    return [command.argv for command in made.executions[0].steps[0].commands]


def test_configurations_interleave() -> None:
    made = planned("shm", "tcp")
    assert [execution.id for execution in made.executions] == [
        "000-shm-r1",
        "001-tcp-r1",
        "002-tcp-r2",
        "003-shm-r2",
        "004-shm-r3",
        "005-tcp-r3",
    ]


def test_one_configuration_is_not_repeated_unless_asked() -> None:
    assert len(planned("shm").executions) == 1
    assert len(planned("shm", repeats=4).executions) == 4


def test_the_same_fabric_twice() -> None:
    assert [configuration.label for configuration in planned("tcp", "tcp").configurations] == [
        "tcp",
        "tcp-2",
    ]


@pytest.mark.parametrize(
    ("fabrics", "hosts", "configurations"),
    [
        ((AB,), (AWS,), ["efa", "tcp"]),
        ((AB,), (AWS, AWS), ["efa", "tcp"]),
        ((AB,), (ROCE, ROCE), ["roce", "tcp"]),
        ((), (AWS,), ["efa"]),
        ((), (HERE,), ["shm"]),
        ((), (HERE, HERE), ["tcp"]),
        ((), (AWS, HERE), ["tcp"]),
    ],
)
def test_the_best_fabric_that_every_host_has(
    fabrics: tuple[str, ...], hosts: tuple[Host, ...], configurations: list[str]
) -> None:
    assert [
        configuration.label for configuration in planned(*fabrics, hosts=hosts).configurations
    ] == configurations


@pytest.mark.parametrize(
    ("fabrics", "hosts", "kind", "expected"),
    [
        (("ib",), (ROCE, ROCE), MachineError, "no ib device"),
        (("efa",), (HERE,), MachineError, "efa is not available on here: .* found shm, tcp"),
        (("efa",), (AWS, HERE), MachineError, "on here"),
        ((AB,), (HERE,), MachineError, "none was found"),
        (("warp",), (AWS,), MachineError, "no provider warp"),
        (("shm",), (HERE, HERE), RequestError, "within one host only"),
        (("p2p",), (HERE,), RequestError, "no fabric p2p"),
    ],
)
def test_refused(
    fabrics: tuple[str, ...], hosts: tuple[Host, ...], kind: type[Exception], expected: str
) -> None:
    with pytest.raises(kind, match=expected):
        planned(*fabrics, hosts=hosts)


@pytest.mark.parametrize(
    ("hosts", "can"), [((HERE,), "--fabric shm"), ((HERE, HERE), "fabbench check")]
)
def test_without_an_rdma_fabric_ab_says_what_to_do(hosts: tuple[Host, ...], can: str) -> None:
    with pytest.raises(MachineError) as refused:
        planned(AB, hosts=hosts)
    assert can in (refused.value.hint or "")


EFA_HOST = Host(name="box", gpus=2, devices={"rdmap0s6": "efa"})


@pytest.mark.parametrize(
    ("fabrics", "host", "configurations"),
    [
        ((), Host(name="box", gpus=2), ["p2p"]),
        ((), EFA_HOST, ["p2p"]),
        (("shm",), Host(name="box", gpus=2), ["shm"]),
    ],
)
def test_ranks_of_one_host_are_measured_inside_it(
    fabrics: tuple[str, ...], host: Host, configurations: list[str]
) -> None:
    made = plan(request("nccl", NcclWork(), *fabrics), Inventory(target="local", hosts=(host,)))
    assert [configuration.label for configuration in made.configurations] == configurations


@pytest.mark.parametrize(
    ("fabrics", "host", "kind", "expected", "hint"),
    [
        (
            (),
            Host(name="box", gpus=1),
            MachineError,
            "it takes two GPUs of one host, and 1 was found",
            "--gpus N",
        ),
        (
            (),
            Host(name="box"),
            MachineError,
            "p2p is not available on box: .* 0 were found",
            "--gpus N",
        ),
        ((AB,), EFA_HOST, RequestError, "tcp cannot be measured on box alone", "--virtual-nodes 2"),
        (
            ("tcp",),
            EFA_HOST,
            RequestError,
            "tcp cannot be measured on box alone",
            "--virtual-nodes 2",
        ),
    ],
)
def test_what_one_host_cannot_measure_says_what_to_do(
    fabrics: tuple[str, ...], host: Host, kind: type[FabbenchError], expected: str, hint: str
) -> None:
    run_request = request("nccl", NcclWork(), *fabrics)
    with pytest.raises(kind, match=expected) as refused:
        plan(run_request, Inventory(target="local", hosts=(host,)))
    assert hint in (refused.value.hint or "")


def test_both_sides_of_a_pair_agree() -> None:
    (server, client) = commands(planned("tcp"))
    assert server[:-2] == client[:-3]
    assert server[-2:] == ("-B", "{port}")
    assert client[-3:] == ("-P", "{port}", "{server}")
    assert server[:10] == (
        *("fi_pingpong", "-p", "tcp", "-e", "msg", "-v", "-S", "64", "-I"),
        server[9],
    )


@pytest.mark.parametrize(
    ("fabric", "provider", "endpoint"),
    [
        ("tcp", "tcp", "msg"),
        ("shm", "shm", "rdm"),
        ("efa", "efa", "rdm"),
        ("ofi-tcp", "tcp", "msg"),
    ],
)
def test_provider_and_endpoint(fabric: str, provider: str, endpoint: str) -> None:
    (server, _) = commands(planned(fabric, hosts=(AWS,)))
    assert server[1:5] == ("-p", provider, "-e", endpoint)


def test_a_domain_is_asked_for_and_proven() -> None:
    (execution,) = planned("tcp", work=PingpongWork(sizes=(64,), domain="eth1")).executions
    assert execution.proof.domain == "eth1"
    assert [command.env for command in execution.steps[0].commands] == [
        {"FI_TCP_IFACE": "eth1"}
    ] * 2
    (server, _) = commands(
        planned("efa", hosts=(AWS,), work=PingpongWork(sizes=(64,), domain="rdmap0s6-rdm"))
    )
    assert server[-2:] == ("-d", "rdmap0s6-rdm")


def test_what_an_image_sets_is_taken_away() -> None:
    (execution,) = planned("tcp").executions
    assert {command.unset for command in execution.steps[0].commands} == {("FI_PROVIDER",)}


@given(
    st.sampled_from(
        [("efa", "rdm"), ("tcp", "rdm"), ("tcp", "msg"), ("shm", "rdm"), ("new", "rdm")]
    ),
    st.integers(0, 1 << 32),
)
def test_iterations_print_unharmed(kind: tuple[str, str], size: int) -> None:
    name, endpoint = kind
    number = PingpongWork(endpoint=endpoint).iterations_on(name, size) or 0
    assert 10 <= number <= 10_000_000
    assert len(str(number).rstrip("0")) <= 2


def test_enough_iterations_for_the_connection_s_set_up() -> None:
    """At the speed that EFA really has (about 16 us), set-up is below its share."""
    measured = (PingpongWork().iterations_on("efa", 64) or 0) * 2 * 16e-6
    assert setup_s("rdm", "efa") < SETUP_SHARE * measured


def test_sizes() -> None:
    assert PingpongWork().step_sizes == (64, 1024, 16384, 262144, 4194304)
    assert PingpongWork(min_bytes=8, max_bytes=8, factor=2).step_sizes == (8,)
    for first, last, factor in ((8, 4, 2), (8, 16, 1), (0, 16, 2)):
        with pytest.raises(RequestError):
            PingpongWork(min_bytes=first, max_bytes=last, factor=factor)


def test_executions_know_what_the_nodes_are_where_all_are_of_one_type() -> None:
    one, other = (replace(AWS, name=name, instance_type="p4d.24xlarge") for name in "ab")
    proof = planned("efa", hosts=(one, other)).executions[0].proof
    assert (proof.instance_type, proof.nodes) == ("p4d.24xlarge", 2)
    for hosts in (
        (one, replace(other, instance_type="p5.48xlarge")),
        (one, replace(other, virtual=True)),
    ):
        proof = planned("efa", hosts=hosts).executions[0].proof
        assert (proof.instance_type, proof.nodes) == ("", None)


@pytest.mark.parametrize(
    ("hosts", "gpu_model", "name"),
    [(1, "NVIDIA H200", "8xH200"), (2, "NVIDIA H200", ""), (2, "NVIDIA GB10", "dgx-spark")],
)
def test_nodes_of_no_type_are_known_by_their_gpus(hosts: int, gpu_model: str, name: str) -> None:
    gpus = 1 if "GB10" in gpu_model else 8
    nodes = tuple(
        replace(AWS, name=f"n{number}", instance_type="", gpus=gpus, gpu_model=gpu_model)
        for number in range(hosts)
    )
    assert planned("tcp", hosts=nodes).executions[0].proof.instance_type == name


def test_nodes_with_different_gpus_are_of_no_one_type() -> None:
    models = {"a": "NVIDIA GB10", "b": "NVIDIA H200"}
    nodes = tuple(
        replace(AWS, name=name, instance_type="", gpus=1, gpu_model=model)
        for name, model in models.items()
    )
    proof = planned("tcp", hosts=nodes).executions[0].proof
    assert (proof.instance_type, proof.nodes) == ("", None)


@pytest.mark.parametrize(("limit_s", "expected"), [(1000.0, (200, 80)), (150.0, (150, 80))])
def test_limits_are_multiplied_and_the_time_that_is_left_stays(
    limit_s: float, expected: tuple[float, float]
) -> None:
    work = NcclWork(timeout_s=100, silence_s=40)
    made = plan(request("nccl", work, "tcp", limits=2, limit_s=limit_s), two_hosts())
    (step,) = made.executions[0].steps
    assert (step.timeout_s, step.silence_s) == expected
