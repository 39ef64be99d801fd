"""How NVSHMEM's perftests are started: one step of mpirun for each."""

from collections.abc import Sequence
from dataclasses import asdict

from fabbench.benchmarks import nccl_env
from fabbench.benchmarks.nvshmem.figures import PROGRAM, collective
from fabbench.benchmarks.standard import (
    extra,
    factor,
    iterations,
    max_bytes,
    min_bytes,
    read_variables,
    silence,
    timeout,
    variables_of,
    warmup,
    words_of,
)
from fabbench.catalog.nccl_environment import DEBUG_FILE, NcclEnvironment, gid_setting
from fabbench.model.errors import RequestError
from fabbench.model.fabrics import AB, AUTO, INTRA_HOST
from fabbench.model.hosts import Host, MpiKind, Needs
from fabbench.model.mappings import distinct
from fabbench.model.options import Text, Whole, option
from fabbench.model.plan import Command, Step
from fabbench.model.units import Sweep
from fabbench.model.values import frozen

_PERFTEST = "/opt/nvshmem/bin/perftest"
INSTALL = (
    "NVSHMEM's perftests are in the directory perftest of https://github.com/NVIDIA/nvshmem; "
    "AWS's images "
    f"and NVIDIA's packages have them below {_PERFTEST}; --bin-dir specifies another directory"
)
# These print one row for each requested size, in any release.
_PRINT_EVERY_SIZE = frozenset(
    {"shmem_put_bw", "shmem_get_bw", "shmem_p_bw", "shmem_put_latency", "shmem_get_latency"}
)
_NO_SOCKETS = (
    "its transports are ibrc, ibgda, ucx and libfabric with cxi, efa or verbs; it has no sockets."
)
_TRANSPORTS = variables_of("nvshmem")
# If inherited, they would make a configuration measure something other than its name says.
_MISLEADING = (
    "NVSHMEM_LIBFABRIC_PROVIDER",
    "NVSHMEM_DISABLE_P2P",
    "NVSHMEM_IB_ENABLE_IBGDA",
    "NVSHMEM_LIBFABRIC_MAX_NIC_PER_PE",
    "NVSHMEM_BOOTSTRAP",
    "NVSHMEM_MACHINE_READABLE_OUTPUT",
    "NVSHMEM_DEBUG_SUBSYS",
    "FI_PROVIDER",
    "FI_EFA_IFACE",
    "FI_EFA_USE_DEVICE_RDMA",
    "FI_EFA_ENABLE_SHM_TRANSFER",
)


@frozen
class NvshmemWork(nccl_env.RankWork):
    """Perftests over a sweep of sizes."""

    tests: tuple[str, ...] = option(
        Text("the name of a perftest, such as shmem_put_bw", "NAME", f"^(?:{PROGRAM}|bw|latency)$"),
        "The perftest, such as alltoall_latency. Can be given several times.",
        "--program",
        many=distinct,
        default=("shmem_put_bw",),
    )
    min_bytes: int = min_bytes("8")
    max_bytes: int = max_bytes("64M")
    factor: int = factor("2")
    iterations: int = iterations("200")
    warmup: int = warmup("20")
    pes_per_host: int | None = option(
        Whole(1),
        (
            "PEs per host for collectives. Default: one per GPU. Point-to-point tests use two in "
            "total."
        ),
    )
    nics_per_pe: int | None = option(
        Whole(1),
        "NICs that each PE uses over libfabric (NVSHMEM 3.6.5 and later). Default: NVSHMEM's own.",
    )
    timeout_s: float = timeout("900")
    silence_s: float = silence()
    extra: tuple[str, ...] = extra()

    def __post_init__(self) -> None:
        nccl_env.reject_own_options(
            self.extra, "-b --min_size -e --max_size -f --step -n --iters -w --warmup_iters"
        )
        _ = self.sweep  # raises RequestError if it is not valid

    @property
    def sweep(self) -> Sweep:
        """The sizes. Raise RequestError if they are not a valid sweep."""
        return Sweep(
            first=self.min_bytes, last=self.max_bytes, factor=self.factor, program="NVSHMEM"
        )

    @property
    def needs(self) -> Needs:
        """The programs, and an mpirun."""
        folders = {}
        for name in self.tests:
            on_host = name in {"bw", "latency", "stream_latency"} or name.endswith("_on_stream")
            where = "host" if on_host else "device"
            kind = "coll" if collective(name) else "pt-to-pt"
            folders[name] = f"{_PERFTEST}/{where}/{kind}"
        return Needs(programs=self.tests, install=INSTALL, mpi=True, gpus=True, folders=folders)

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Return the sizes, if the programs are known to print them as requested."""
        del hosts
        return tuple(self.sweep.sizes()) if _PRINT_EVERY_SIZE.issuperset(self.tests) else ()

    def reject(self, fabrics: Sequence[str]) -> None:
        """Raise RequestError for a fabric for which NVSHMEM has no transport on any host."""
        for fabric in fabrics:
            if fabric not in {*_TRANSPORTS, AUTO}:
                why = f"{fabric} cannot be measured with NVSHMEM: {_NO_SOCKETS}"
                hint = " --ab compares with tcp." if fabric == AB else ""
                supported = ", ".join(_TRANSPORTS)
                raise RequestError(why, hint=f"One of {supported}.{hint}")

    def why_unsupported(self, fabric: str, host: Host) -> str:
        """Return why `fabric` cannot be measured on `host`."""
        if fabric not in _TRANSPORTS:
            return _NO_SOCKETS
        return "" if fabric == "ucx" else nccl_env.why_unsupported(fabric, host)

    def steps(self, execution: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Return one step per perftest."""
        if any(host.virtual for host in hosts):
            hint = "Leave out --virtual-nodes; --fabric p2p measures inside one host."
            raise RequestError("NVSHMEM does not support --virtual-nodes.", hint=hint)
        gpus = nccl_env.gpus_per_host(hosts)
        env_of_ranks = self._environment(fabric, hosts)
        words = words_of("-n {iterations} -w {warmup}", asdict(self))
        options = (*self.sweep.words(), *words, *self.extra)
        commands: dict[str, tuple[Command, ...]] = {}
        for name in self.tests:
            per_host = self.pes_per_host or gpus
            if not collective(name):  # point-to-point: two PEs in total
                per_host = 2 // len(hosts)
            if not per_host:  # of more than two hosts
                many = f"{name} takes two PEs, but there are {len(hosts)} hosts."
                raise RequestError(many, hint="Choose two: --nodes 2.")
            argv = (name, *options)
            commands[name] = nccl_env.rank_commands(argv, fabric, hosts, env_of_ranks, per_host)
        return self.rank_steps(execution, "nvshmem", commands, called="test")

    def _environment(self, fabric: str, hosts: Sequence[Host]) -> NcclEnvironment:
        """Return what makes NVSHMEM use the fabric alone, say so, and have memory enough."""
        largest = self.sweep.last
        without_mnnvl = {} if fabric in INTRA_HOST else {"NVSHMEM_DISABLE_MNNVL": "1"}
        env = {
            **read_variables(_TRANSPORTS[fabric]),
            **gid_setting("NVSHMEM_IB_GID_INDEX", fabric, hosts),
            # NVSHMEM's report on its transport does not cover traffic over NCCL, or NVLink between
            # hosts.
            "NVSHMEM_DISABLE_NCCL": "1",
            **without_mnnvl,
            "NVSHMEM_DEBUG": "INFO",
            # Log the version of the loaded library.
            "NVSHMEM_VERSION": "1",
            "NVSHMEM_DEBUG_FILE": DEBUG_FILE,
            # The programs use up to two buffers of the largest size; the rest of the heap is for
            # NVSHMEM itself.
            "NVSHMEM_SYMMETRIC_SIZE": str(max(1 << 30, 4 * largest)),
        }
        mpi = hosts[0].mpi
        if mpi is None or mpi.kind is not MpiKind.HYDRA:
            # With Hydra the programs find each other through PMI, which Open MPI does not have.
            env["NVSHMEMTEST_USE_MPI_LAUNCHER"] = "1"
        if self.nics_per_pe is not None:
            env["NVSHMEM_LIBFABRIC_MAX_NIC_PER_PE"] = str(self.nics_per_pe)
        unset = tuple(name for name in _MISLEADING if name not in env)
        return NcclEnvironment(env=env, unset=unset)
