"""Steps as command lines of mpirun. Nothing is started."""

import pytest

from fabbench.execution.mpirun import MpiHosts, mpirun
from fabbench.model.hosts import Mpi, MpiKind
from fabbench.model.plan import Command, Step

ENV = {"NCCL_NET": "AWS Libfabric"}
RANK = (
    "env",
    "-u",
    "FI_PROVIDER",
    "NCCL_NET=AWS Libfabric",
    "stdbuf",
    "-oL",
    "/opt/all_reduce_perf",
    "-b",
    "8",
)


def step(*ranks: int) -> Step:
    words, unset = ("all_reduce_perf", "-b", "8"), ("FI_PROVIDER",)
    commands = tuple(Command(argv=words, env=ENV, unset=unset, ranks=count) for count in ranks)
    return Step(id="000-efa-r1/a", label="all_reduce", commands=commands, timeout_s=60)


def mpi_hosts(kind: MpiKind, **more: object) -> MpiHosts:
    mpi = Mpi(program="/opt/mpi/bin/mpirun", kind=kind, version="1")
    programs = {"all_reduce_perf": "/opt/all_reduce_perf"}
    return MpiHosts(mpi=mpi, programs=programs, **more)  # type: ignore[arg-type]


def follows(words: tuple[str, ...], *wanted: str) -> bool:
    """Whether the words stand in a row somewhere."""
    return any(words[index : index + len(wanted)] == wanted for index in range(len(words)))


@pytest.mark.parametrize("kind", list(MpiKind))
def test_every_rank_gets_what_the_plan_says_whatever_the_launcher(kind: MpiKind) -> None:
    argv = mpirun(step(8), mpi_hosts(kind, addresses=("10.0.0.1", "10.0.0.2"))).argv
    assert argv[0] == "/opt/mpi/bin/mpirun"
    assert argv[-len(RANK) :] == RANK
    assert follows(argv, "-np", "8", "env")


@pytest.mark.parametrize("kind", [MpiKind.OPEN_MPI_4, MpiKind.OPEN_MPI_5])
def test_open_mpi_always_gets_slots(kind: MpiKind) -> None:
    argv = mpirun(step(16), mpi_hosts(kind, addresses=("10.0.0.1", "10.0.0.2"))).argv
    assert follows(argv, "-H", "10.0.0.1:8,10.0.0.2:8")
    assert follows(argv, "-N", "8")
    assert follows(argv, "--bind-to", "none")
    assert "--tag-output" in argv


def test_hydra_gets_hosts_with_their_ranks() -> None:
    argv = mpirun(
        step(4), mpi_hosts(MpiKind.HYDRA, addresses=("10.0.0.1", "10.0.0.2"), forward=("PATH",))
    ).argv
    assert follows(argv, "-hosts", "10.0.0.1:2,10.0.0.2:2")
    assert follows(argv, "-ppn", "2")
    assert follows(argv, "-genvlist", "PATH")
    assert "--bind-to" not in argv


def test_the_agent_is_named_as_each_release_wants_it() -> None:
    agent = ("ssh", "-F", "/tmp/x/ssh_config")
    hosts = ("10.0.0.1", "10.0.0.2")
    old = mpirun(step(2), mpi_hosts(MpiKind.OPEN_MPI_4, addresses=hosts, agent=agent)).argv
    assert follows(old, "--mca", "plm_rsh_agent", "ssh -F /tmp/x/ssh_config")
    assert follows(old, "--mca", "plm_rsh_no_tree_spawn", "1")
    new = mpirun(step(2), mpi_hosts(MpiKind.OPEN_MPI_5, addresses=hosts, agent=agent)).argv
    assert follows(new, "--prtemca", "plm_ssh_agent", "ssh -F /tmp/x/ssh_config")
    hydra = mpirun(step(2), mpi_hosts(MpiKind.HYDRA, addresses=hosts, agent=agent))
    assert follows(hydra.argv, "-launcher", "ssh", "-launcher-exec", "ssh")
    assert hydra.env == {"HYDRA_LAUNCHER_EXTRA_ARGS": "-F /tmp/x/ssh_config"}


def test_virtual_hosts_are_contexts_of_one_command() -> None:
    argv = mpirun(step(2, 2), mpi_hosts(MpiKind.OPEN_MPI_4)).argv
    assert follows(argv, "-H", "localhost:4")
    assert "-N" not in argv
    assert argv.count(":") == 1
    assert argv.count("-np") == 2


def test_the_interface_of_mpi_is_the_one_that_all_hosts_have() -> None:
    hosts = ("10.0.0.1", "10.0.0.2")
    named = mpirun(step(2), mpi_hosts(MpiKind.OPEN_MPI_4, addresses=hosts, interface="eth0")).argv
    assert follows(named, "--mca", "btl_tcp_if_include", "eth0")
    unknown = mpirun(step(2), mpi_hosts(MpiKind.OPEN_MPI_4, addresses=hosts)).argv
    assert "btl_tcp_if_include" not in unknown
    assert "btl_tcp_if_exclude" in unknown


def test_mpi_itself_keeps_off_the_fabric() -> None:
    argv = mpirun(step(2), mpi_hosts(MpiKind.OPEN_MPI_4)).argv
    assert follows(argv, "--mca", "pml", "^cm,ucx")
    assert follows(argv, "--mca", "btl", "tcp,self")
