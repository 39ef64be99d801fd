"""How NVSHMEM's perftests are started: one step of mpirun for each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fabbench import environments
from fabbench.benchmarks.nvshmem.settings import PROVIDER, TRANSPORT
from fabbench.errors import MachineError, RequestError
from fabbench.fabrics import INTRA_HOST
from fabbench.hosts.mpi import MpiKind
from fabbench.machines import Host, Needs
from fabbench.model import Proof, Shape, Step
from fabbench.plan import AUTO
from fabbench.sizes import Sweep

PAIRS = (
    *("shmem_put_bw", "shmem_get_bw", "shmem_p_bw", "shmem_g_bw", "shmem_st_bw", "shmem_atomic_bw"),
    *("shmem_put_latency", "shmem_get_latency", "shmem_p_latency", "shmem_g_latency"),
    *("shmem_atomic_latency", "shmem_put_ping_pong_latency", "shmem_p_ping_pong_latency"),
    *("shmem_signal_ping_pong_latency", "shmem_put_signal_ping_pong_latency"),
    *("shmem_atomic_ping_pong_latency", "shmem_put_atomic_ping_pong_latency"),
    *("bw", "latency", "stream_latency"),
)
"""Programs that take two PEs, no more and no less."""
COLLECTIVES = (
    *("alltoall_latency", "bcast_latency", "fcollect_latency", "reduction_latency", "reducescatter_latency"),
    *("barrier_latency", "sync_latency", "alltoall_on_stream", "broadcast_on_stream", "fcollect_on_stream"),
    *("reduction_on_stream", "reducescatter_on_stream", "barrier_on_stream", "barrier_all_on_stream"),
    *("sync_on_stream", "sync_all_on_stream"),
)
"""Programs that take any number of PEs."""
INSTALL = (
    "NVSHMEM's perftests are in the folder perftest of https://github.com/NVIDIA/nvshmem; AWS's images and "
    "NVIDIA's packages have them below /opt/nvshmem/bin/perftest; --bin-dir names another folder"
)
TIMEOUT_S = 900.0
SILENCE_S = 300.0
_GIB = 1 << 30
_BUFFERS = 4
"""The programs take up to two buffers of the largest size; the rest of the heap is for NVSHMEM itself."""
# These print one row for each size asked for, whichever their release.
_PLAIN = frozenset(
    {"shmem_put_bw", "shmem_get_bw", "shmem_p_bw", "shmem_put_latency", "shmem_get_latency"},
)
_LIBFABRIC = frozenset({"efa", "cxi", "verbs"})
"""What NVSHMEM's libfabric transport knows (NVSHMEM_LIBFABRIC_PROVIDER)."""
_EFA = {
    "FI_PROVIDER": "efa",
    "FI_EFA_USE_DEVICE_RDMA": "1",
    "FI_EFA_FORK_SAFE": "1",
    # Its own path inside one host would be taken for the network.
    "FI_EFA_ENABLE_SHM_TRANSFER": "0",
    # Memory of CUDA's VMM cannot be registered (libfabric issue 12853).
    "NVSHMEM_DISABLE_CUDA_VMM": "1",
}
_TRANSPORTS: Mapping[str, Mapping[str, str]] = {
    "efa": {TRANSPORT: "libfabric", PROVIDER: "efa", **_EFA},
    "cxi": {TRANSPORT: "libfabric", PROVIDER: "cxi"},
    "verbs": {TRANSPORT: "libfabric", PROVIDER: "verbs"},
    "ib": {TRANSPORT: "ibrc"},
    "roce": {TRANSPORT: "ibrc"},
    "ucx": {TRANSPORT: "ucx"},
    "p2p": {TRANSPORT: "none"},
}
# Inherited, they would let an arm measure something else than its name says.
_FALSIFYING = (
    *(PROVIDER, "NVSHMEM_DISABLE_P2P", "NVSHMEM_IB_ENABLE_IBGDA", "NVSHMEM_LIBFABRIC_MAX_NIC_PER_PE"),
    *("NVSHMEM_BOOTSTRAP", "NVSHMEM_MACHINE_READABLE_OUTPUT", "NVSHMEM_DEBUG_SUBSYS", "FI_PROVIDER"),
    *("FI_EFA_IFACE", "FI_EFA_USE_DEVICE_RDMA", "FI_EFA_ENABLE_SHM_TRANSFER"),
)
_OWN = ("-b", "-e", "-f", "-n", "-w")
_OWN_LONG = ("--min_size", "--max_size", "--step", "--iters", "--warmup_iters")


@dataclass(frozen=True, slots=True, kw_only=True)
class NvshmemWork:
    """Some perftests over some sizes. See `fabbench.plan.Work`."""

    tests: tuple[str, ...] = PAIRS[:1]
    sweep: Sweep = field(default_factory=lambda: Sweep(last=64 << 20))
    iterations: int = 200
    warmup: int = 20
    pes_per_host: int | None = None
    """Of collectives; None: one for each GPU."""
    nics_per_pe: int | None = None
    """NVSHMEM_LIBFABRIC_MAX_NIC_PER_PE; None: as NVSHMEM has it."""
    extra: tuple[str, ...] = ()
    timeout_s: float = TIMEOUT_S
    silence_s: float = SILENCE_S

    together = False

    def __post_init__(self) -> None:
        """Raise RequestError for programs that there are not, and for options given twice."""
        for name in self.tests:
            if name not in {*PAIRS, *COLLECTIVES}:
                known = ", ".join((*PAIRS, *COLLECTIVES))
                raise RequestError(f"NVSHMEM has no perftest {name}.", hint=f"One of {known}.")
        environments.refuse_own(self.extra, _OWN, _OWN_LONG)

    @property
    def needs(self) -> Needs:
        """The programs, and an mpirun."""
        return Needs(programs=self.tests, install=INSTALL, mpi=True, gpus=True)

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Give the sizes, where the programs are known to print them as they were asked for."""
        del hosts
        return tuple(self.sweep.sizes()) if _PLAIN.issuperset(self.tests) else ()

    def lacks(self, fabric: str, host: Host) -> str:
        """Say why `fabric` cannot be measured on `host`."""
        if fabric not in _TRANSPORTS:
            return unknown(fabric)
        return "" if fabric == "ucx" else environments.lacks(fabric, host)

    def steps(self, trial: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Give one step for each perftest."""
        _check(fabric, hosts)
        return tuple(self._step(f"{trial}/{name}", name, fabric, hosts) for name in self.tests)

    def proof(self, fabric: str, hosts: Sequence[Host]) -> Proof:
        """Say what NVSHMEM's debug lines must show: the transport, and libfabric's provider."""
        del hosts
        return Proof(fabric=fabric)

    def _step(self, identity: str, name: str, fabric: str, hosts: Sequence[Host]) -> Step:
        each = self._pes(name, hosts)
        commands = environments.commands(
            lambda host: self._words(name, host), fabric, hosts, self._environment(fabric, hosts), each
        )
        facts: dict[str, str | int] = {"benchmark": "nvshmem", "test": name, "ranks": each * len(hosts)}
        return Step(
            id=identity,
            label=name,
            shape=Shape.MPI,
            commands=commands,
            timeout_s=self.timeout_s,
            silence_s=self.silence_s,
            facts=facts,
        )

    def _pes(self, name: str, hosts: Sequence[Host]) -> int:
        """Give the number of PEs of each host."""
        gpus = environments.gpus_each(hosts)
        if name in PAIRS:
            if len(hosts) > 2:
                raise RequestError(
                    f"{name} takes two PEs, and there are {len(hosts)} hosts.", hint="Choose two: --nodes 2."
                )
            return 2 // len(hosts)
        return self.pes_per_host or gpus

    def _environment(self, fabric: str, hosts: Sequence[Host]) -> environments.Environment:
        env = {
            **_TRANSPORTS[fabric],
            **environments.gid("NVSHMEM_IB_GID_INDEX", fabric, hosts),
            # What NVSHMEM says of its transport is no proof for what NCCL, or NVLink between hosts, carries.
            "NVSHMEM_DISABLE_NCCL": "1",
            **({} if fabric in INTRA_HOST else {"NVSHMEM_DISABLE_MNNVL": "1"}),
            "NVSHMEM_DEBUG": "INFO",
            # The log shall say which library was loaded.
            "NVSHMEM_VERSION": "1",
            "NVSHMEM_DEBUG_FILE": environments.DEBUG_FILE,
            "NVSHMEM_SYMMETRIC_SIZE": str(max(_GIB, _BUFFERS * self.sweep.last)),
        }
        if hosts[0].mpi is None or hosts[0].mpi.kind is not MpiKind.HYDRA:
            # With hydra the programs find each other by PMI, which Open MPI does not have.
            env["NVSHMEMTEST_USE_MPI_LAUNCHER"] = "1"
        if self.nics_per_pe is not None:
            env["NVSHMEM_LIBFABRIC_MAX_NIC_PER_PE"] = str(self.nics_per_pe)
        return environments.Environment(env=env, unset=tuple(name for name in _FALSIFYING if name not in env))

    def _words(self, name: str, host: Host) -> tuple[str, ...]:
        return (
            environments.program(name, host),
            *self.sweep.words(),
            *("-n", str(self.iterations), "-w", str(self.warmup)),
            *self.extra,
        )


def refuse(fabrics: Sequence[str]) -> None:
    """Raise RequestError for a fabric that NVSHMEM has no transport for, wherever it runs."""
    for fabric in fabrics:
        if fabric not in {*_TRANSPORTS, AUTO}:
            raise RequestError(
                f"{fabric} cannot be measured with NVSHMEM: {unknown(fabric)}",
                hint=f"One of {', '.join(_TRANSPORTS)}.",
            )


def unknown(fabric: str) -> str:
    """Say why NVSHMEM cannot use a fabric."""
    comparison = " --ab compares with tcp." if fabric == "ab" else ""
    return (
        f"its transports are ibrc, ibgda, ucx and libfabric with {', '.join(sorted(_LIBFABRIC))}; it has no "
        f"sockets.{comparison}"
    )


def _check(fabric: str, hosts: Sequence[Host]) -> None:
    """Raise errors for hosts that NVSHMEM cannot use in this way."""
    if any(host.virtual for host in hosts):
        raise RequestError(
            "NVSHMEM does not take parts of one machine for hosts.",
            hint="Leave --virtual-nodes away; --fabric p2p measures inside one host.",
        )
    if len(hosts) == 1 and fabric != "p2p":
        raise MachineError(
            f"On one host NVSHMEM would not use {fabric}, and there is {hosts[0].name} alone.",
            hint="Name a second host, or measure --fabric p2p.",
        )
