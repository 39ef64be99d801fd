"""How OSU's programs are started, and what is refused."""

import pytest

from fabbench.benchmarks.osu.plan import OsuWork
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Host, Mpi, MpiKind

HOSTS = (Host(name="a", devices={"rdmap0s6": "efa"}), Host(name="b", devices={"rdmap0s6": "efa"}))


def argv(work: OsuWork, hosts: tuple[Host, ...] = HOSTS) -> tuple[str, ...]:
    (step,) = work.steps("001", "tcp", hosts)
    return step.commands[0].argv


def test_sizes_iterations_and_checks_are_options_of_the_program() -> None:
    work = OsuWork(min_bytes=8, max_bytes=64, iterations=100, warmup=10, check=True, extra=("-W", "32"))
    expected = ("osu_latency", "-m", "8:64", "-i", "100", "-x", "10", "-c", "-W", "32")
    assert argv(work) == expected
    assert work.planned_sizes(HOSTS) == (8, 16, 32, 64)


def test_sizes_from_zero_go_on_with_one() -> None:
    assert OsuWork(min_bytes=0, max_bytes=4).planned_sizes(HOSTS) == (0, 1, 2, 4)


def test_gpu_memory_is_named_as_each_kind_of_program_takes_it() -> None:
    assert argv(OsuWork(memory="cuda"))[-4:] == ("-d", "cuda", "D", "D")
    assert argv(OsuWork(tests=("osu_allreduce",), memory="cuda"))[-2:] == ("-d", "cuda")


@pytest.mark.parametrize(
    ("fabric", "expected"),
    [
        ("tcp", {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self"}),
        ("shm", {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "vader,self"}),
        ("efa", {"OMPI_MCA_mtl": "ofi", "OMPI_MCA_mtl_ofi_provider_include": "efa", "FI_PROVIDER": "efa"}),
        ("ofi-tcp", {"OMPI_MCA_mtl": "ofi", "OMPI_MCA_mtl_ofi_provider_include": "tcp"}),
        ("ib", {"OMPI_MCA_pml": "ucx", "UCX_TLS": "rc,self"}),
    ],
)
def test_every_fabric_names_its_transport_and_has_it_said(fabric: str, expected: dict[str, str]) -> None:
    (step,) = OsuWork().steps("001", fabric, HOSTS[:1] if fabric == "shm" else HOSTS)
    command = step.commands[0]

    assert command.env.items() >= expected.items()
    assert any("verbose" in name or name == "UCX_LOG_LEVEL" for name in command.env)
    assert not set(command.unset) & set(command.env)
    assert {"OMPI_MCA_btl", "UCX_TLS", "FI_PROVIDER"} <= {*command.unset, *command.env}


@pytest.mark.parametrize(
    ("test", "each", "hosts", "ranks"),
    [("osu_latency", 4, 1, 2), ("osu_bw", 4, 2, 2), ("osu_allreduce", 4, 2, 8), ("osu_mbw_mr", 3, 2, 6)],
)
def test_ranks(test: str, each: int, hosts: int, ranks: int) -> None:
    (step,) = OsuWork(tests=(test,), ranks_per_host=each).steps("001", "tcp", HOSTS[:hosts])
    assert (step.commands[0].ranks, step.facts["ranks"]) == (ranks, ranks)


@pytest.mark.parametrize(
    ("test", "each", "hosts"), [("osu_latency", 1, 3), ("osu_allreduce", 1, 1), ("osu_mbw_mr", 1, 3)]
)
def test_ranks_that_a_program_cannot_have_are_refused(test: str, each: int, hosts: int) -> None:
    with pytest.raises(RequestError):
        OsuWork(tests=(test,), ranks_per_host=each).steps("001", "tcp", (*HOSTS, HOSTS[0])[:hosts])


@pytest.mark.parametrize("given", [{"min_bytes": 8, "max_bytes": 4}, {"extra": ("-i", "3")}])
def test_what_makes_no_test_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(RequestError):
        OsuWork(**given)  # type: ignore[arg-type]


def test_another_mpi_is_refused_as_its_transport_cannot_be_chosen() -> None:
    host = Host(name="a", mpi=Mpi(program="/opt/intel/mpirun", kind=MpiKind.HYDRA, version="2021.12"))
    with pytest.raises(RequestError, match="Open MPI"):
        OsuWork().steps("001", "tcp", (host, host))


def test_what_a_host_lacks() -> None:
    assert not OsuWork().why_unsupported("efa", HOSTS[0])
    assert OsuWork().why_unsupported("ib", HOSTS[0])
    assert OsuWork().why_unsupported("p2p", HOSTS[0])
    assert not OsuWork().why_unsupported("shm", HOSTS[0])
