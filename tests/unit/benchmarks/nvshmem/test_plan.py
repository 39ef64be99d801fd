"""How NVSHMEM's perftests are planned, and what their logs have to show."""

from collections.abc import Sequence

import pytest

from fabbench.benchmarks.nvshmem import BENCHMARK
from fabbench.benchmarks.nvshmem.plan import NvshmemWork
from fabbench.logs.parser import LogParser, logs
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.fabrics import AUTO
from fabbench.model.hosts import Host, Mpi, MpiKind
from fabbench.model.log import Ending, Log, Outcome, begin_marker, end_marker
from fabbench.model.plan import Proof

OPEN_MPI = Mpi(program="mpirun", kind=MpiKind.OPEN_MPI_4, version="4.1.7")
HYDRA = Mpi(program="mpiexec", kind=MpiKind.HYDRA, version="5.0")
A = Host(name="a", gpus=8, mpi=OPEN_MPI, devices={"rdmap0s31": "efa"})
B = Host(name="b", gpus=8, mpi=OPEN_MPI, devices={"rdmap0s31": "efa"})
COMMON = {
    "NVSHMEM_DEBUG": "INFO",
    "NVSHMEM_VERSION": "1",
    "NVSHMEM_DEBUG_FILE": "{folder}/debug.%h.%p",
    "NVSHMEM_SYMMETRIC_SIZE": str(1 << 30),
    "NVSHMEM_DISABLE_NCCL": "1",
    "NVSHMEMTEST_USE_MPI_LAUNCHER": "1",
}
NETWORK = {**COMMON, "NVSHMEM_DISABLE_MNNVL": "1"}
EFA = {
    "NVSHMEM_REMOTE_TRANSPORT": "libfabric",
    "NVSHMEM_LIBFABRIC_PROVIDER": "efa",
    "FI_PROVIDER": "efa",
    "FI_EFA_USE_DEVICE_RDMA": "1",
    "FI_EFA_FORK_SAFE": "1",
    "FI_EFA_ENABLE_SHM_TRANSFER": "0",
    "NVSHMEM_DISABLE_CUDA_VMM": "1",
}


@pytest.mark.parametrize(
    ("fabric", "hosts", "expected"),
    [
        ("efa", (A, B), {**NETWORK, **EFA}),
        ("ib", (A, B), {**NETWORK, "NVSHMEM_REMOTE_TRANSPORT": "ibrc"}),
        ("ucx", (A, B), {**NETWORK, "NVSHMEM_REMOTE_TRANSPORT": "ucx"}),
        ("p2p", (A,), {**COMMON, "NVSHMEM_REMOTE_TRANSPORT": "none"}),
    ],
)
def test_each_fabric_names_its_transport(fabric: str, hosts: Sequence[Host], expected: dict[str, str]) -> None:
    (step,) = NvshmemWork().steps("t", fabric, hosts)
    (command,) = step.commands
    assert command.env == expected
    assert command.env.keys().isdisjoint(command.unset)
    assert "NVSHMEM_DISABLE_P2P" in command.unset
    assert ("NVSHMEM_LIBFABRIC_PROVIDER" in command.unset) == (fabric != "efa")


def test_roce_names_its_gid_and_hydra_needs_no_help_to_start_pes() -> None:
    host = Host(name="a", gpus=1, mpi=HYDRA, devices={"mlx5_0": "roce"}, gids={"mlx5_0": 3})
    ((command,),) = (step.commands for step in NvshmemWork(nics_per_pe=4).steps("t", "roce", (host, host)))
    assert command.env["NVSHMEM_IB_GID_INDEX"] == "3"
    assert command.env["NVSHMEM_LIBFABRIC_MAX_NIC_PER_PE"] == "4"
    assert "NVSHMEMTEST_USE_MPI_LAUNCHER" not in command.env


@pytest.mark.parametrize(
    ("test", "hosts", "ranks"),
    [
        ("shmem_put_bw", (A,), 2),
        ("shmem_put_bw", (A, B), 2),
        ("alltoall_latency", (A, B), 16),
        ("reduction_on_stream", (A,), 8),
    ],
)
def test_pairs_take_two_pes_and_collectives_one_for_each_gpu(test: str, hosts: Sequence[Host], ranks: int) -> None:
    fabric = "efa" if len(hosts) > 1 else "p2p"
    work = NvshmemWork(tests=(test,), max_bytes=1 << 30, factor=8, iterations=7, warmup=1, extra=("-c", "1"))
    ((command,),) = (step.commands for step in work.steps("t", fabric, hosts))
    assert command.argv == (test, *f"-b 8 -e {1 << 30} -f 8 -n 7 -w 1 -c 1".split())
    assert command.ranks == ranks
    assert command.env["NVSHMEM_SYMMETRIC_SIZE"] == str(4 << 30)


def test_fewer_pes_of_a_collective_can_be_asked_for() -> None:
    work = NvshmemWork(tests=("alltoall_latency",), pes_per_host=2)
    ((command,),) = (step.commands for step in work.steps("t", "efa", (A, B)))
    assert command.ranks == 4


def test_sizes_are_planned_only_where_the_programs_print_them_as_asked() -> None:
    assert NvshmemWork(max_bytes=64).planned_sizes((A,)) == (8, 16, 32, 64)
    assert NvshmemWork(tests=("shmem_put_bw", "alltoall_latency"), max_bytes=64).planned_sizes((A,)) == ()


@pytest.mark.parametrize("fabric", ["tcp", "ofi-tcp", "shm", "ab"])
def test_nvshmem_has_no_sockets(fabric: str) -> None:
    assert "it has no sockets" in NvshmemWork().why_unsupported(fabric, A)
    with pytest.raises(RequestError, match="it has no sockets"):
        BENCHMARK.advice(NvshmemWork(), ("efa", AUTO, fabric))


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(RequestError, match="-e is after --"):
        NvshmemWork(extra=("-e", "1G"))
    with pytest.raises(RequestError, match="there are 3 hosts"):
        NvshmemWork().steps("t", "efa", (A, B, A))
    with pytest.raises(MachineError, match="On one host"):
        NvshmemWork().steps("t", "efa", (A,))
    with pytest.raises(RequestError, match="does not support --virtual-nodes"):
        NvshmemWork().steps("t", "efa", (Host(name="a", gpus=1, virtual=True),) * 2)


TABLE = ["#shmem_put_bw_uni", "size(B)     scope     BW (GB/sec)     ", "8           None      0.005724        "]
SELECTED = (
    "[1,0]<stderr>:/src/modules/transport/libfabric/libfabric.cpp 1524 Selected provider efa, "
    "fabric efa-direct, nic rdmap0s31-rdm, hmem yes"
)


def read(lines: Sequence[str], proof: Proof, *, hosts: int) -> Log:
    """Judge a log as a run has it: debug files' lines come between the ranks' own."""
    pes = [f"[1,{pe}]<stdout>:mype: {pe} mype_node: {pe // hosts} device name: H200 bus id: 0 " for pe in (0, 1)]
    begin = begin_marker("000-x-r1/shmem_put_bw", {"benchmark": "nvshmem"})
    text = [begin, pes[0], *lines, pes[1], *(f"[1,0]<stdout>:{line}" for line in TABLE)]
    session = LogParser("x", proof=proof)
    found = session.feed_lines([*text, end_marker("000-x-r1/shmem_put_bw", 0)])
    (log,) = logs([*found, *session.close(Ending(status=0, planned_sizes=(8,)))])
    return log


INFO = "node0:11:12 [0] NVSHMEM INFO "


def test_debug_lines_of_the_transport_prove_efa_between_hosts() -> None:
    used = f"{INFO}Successfully initialized the transport: libfabric"
    log = read([used, SELECTED], Proof(fabric="efa"), hosts=2)
    assert (log.outcome, log.facts["transport"], log.facts["fabric"]) == (Outcome.OK, "efa", "efa-direct")
    assert log.facts["complete"] == "yes"
    assert read([used], Proof(fabric="efa"), hosts=2).outcome is Outcome.UNPROVEN


def test_no_transport_to_other_hosts_proves_that_gpus_reach_each_other() -> None:
    without = f"{INFO}IBRC transport skipped in favor of: none"
    log = read([without], Proof(fabric="p2p"), hosts=1)
    assert (log.outcome, log.facts["transport"]) == (Outcome.OK, "p2p")
    assert read([without], Proof(fabric="efa"), hosts=1).outcome is Outcome.OFF_FABRIC
    assert read([], Proof(fabric="p2p"), hosts=1).outcome is Outcome.UNPROVEN
