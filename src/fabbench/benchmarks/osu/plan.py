"""How the OSU micro-benchmarks are started: one step of mpirun (Open MPI) or srun per program."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from fabbench.benchmarks import nccl_env
from fabbench.benchmarks.standard import (
    MEMORY,
    extra,
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
from fabbench.model.errors import RequestError
from fabbench.model.fabrics import provider
from fabbench.model.hosts import Host, MpiKind, Needs
from fabbench.model.mappings import distinct
from fabbench.model.options import Flag, Text, Whole, option
from fabbench.model.plan import Command, Step
from fabbench.model.units import Sweep
from fabbench.model.values import frozen

PAIRS = (
    "osu_latency",
    "osu_bw",
    "osu_bibw",
    "osu_put_latency",
    "osu_put_bw",
    "osu_put_bibw",
    "osu_get_latency",
    "osu_get_bw",
    "osu_acc_latency",
    "osu_get_acc_latency",
    "osu_fop_latency",
    "osu_cas_latency",
)
"""Programs that take two ranks, the default first. All but these and HALVES are collectives."""
HALVES = ("osu_mbw_mr", "osu_multi_lat")
"""Programs whose ranks form pairs: the first half with the second half."""
_OF_TWO_SIDES = frozenset({*PAIRS, *HALVES})
INSTALL = (
    "configure CC=mpicc and make in https://mvapich.cse.ohio-state.edu/benchmarks, pass "
    "its folder with --bin-dir"
)
SUBFOLDERS = (
    "",
    "bin",
    "libexec/osu-micro-benchmarks/mpi/pt2pt",
    "libexec/osu-micro-benchmarks/mpi/one-sided",
    "libexec/osu-micro-benchmarks/mpi/collective",
    "mpi/pt2pt",
    "mpi/one-sided",
    "mpi/collective",
    "pt2pt",
    "one-sided",
    "collective",
    "pt2pt/standard",
    "collective/blocking",
    "collective/non_blocking",
)
"""Of the programs below their installation or build directory, in the various versions."""
# They print each power of two from the first size to the last, in any release.
_POWERS_OF_TWO = frozenset({"osu_latency", "osu_bw", "osu_bibw", "osu_mbw_mr", "osu_multi_lat"})
_SIZELESS = frozenset({"osu_barrier", "osu_ibarrier", "osu_fop_latency", "osu_cas_latency"})
_WORDS = (
    "[has_sizes? -m {min_bytes}:{max_bytes}] [iterations? -i {iterations}] [warmup? -x {warmup}] "
    "[check? -c] [is_on_gpus? -d cuda]"
)
# If inherited, they would make a configuration measure something other than its name says.
_MISLEADING = (
    "OMPI_MCA_pml",
    "OMPI_MCA_btl",
    "OMPI_MCA_mtl",
    "OMPI_MCA_mtl_ofi_provider_include",
    "OMPI_MCA_mtl_ofi_provider_exclude",
    "FI_PROVIDER",
    "FI_EFA_IFACE",
    "FI_EFA_USE_DEVICE_RDMA",
    "UCX_TLS",
    "UCX_NET_DEVICES",
)


@frozen
class OsuWork(nccl_env.RankWork):
    """Programs over a range of sizes."""

    tests: tuple[str, ...] = option(
        Text("the name of a program, such as osu_bw", "NAME", "^osu_[a-z_]+$"),
        "The program, such as osu_allreduce. Can be given several times.",
        "--program",
        many=distinct,
        default=PAIRS[:1],
    )
    min_bytes: int = min_bytes("1")
    max_bytes: int = max_bytes("4M")
    iterations: int | None = iterations(
        default=None, each=" per size. Default: fewer for large sizes"
    )
    warmup: int | None = warmup(default=None, more=" Default: OSU's own.")
    ranks_per_host: int = option(
        Whole(1),
        (
            "Ranks per host for collectives, osu_mbw_mr and osu_multi_lat. The others use two in "
            "total."
        ),
        default="1",
    )
    check: bool = option(Flag(), "Compare the data (OSU 5.7 and later).", "--verify")
    memory: str = option(
        MEMORY, "Buffer location; cuda needs programs that were built with CUDA.", default="host"
    )
    timeout_s: float = timeout("900")
    silence_s: float = silence()
    extra: tuple[str, ...] = extra()

    def __post_init__(self) -> None:
        nccl_env.reject_own_options(
            self.extra,
            "-m --message-size -i --iterations -x --warmup -c --validation -d --accelerator",
        )
        _ = self.sizes  # which raises RequestError for a wrong range

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes, which the programs double.

        Raise RequestError if they are not a valid range.
        """
        if not self.min_bytes and not self.max_bytes:
            return (0,)
        size_zero = () if self.min_bytes else (0,)  # behind it comes 1, and then they double
        sweep = Sweep(first=self.min_bytes or 1, last=self.max_bytes, program="OSU")
        return (*size_zero, *sweep.sizes())

    @property
    def needs(self) -> Needs:
        """The programs, and an mpirun."""
        return Needs(
            programs=self.tests,
            install=INSTALL,
            mpi=True,
            gpus=self.memory == "cuda",
            host_memory=self.memory == "host",
            subfolders=SUBFOLDERS,
        )

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Return the sizes, if the programs are known to print them as requested; else empty."""
        del hosts
        return self.sizes if _POWERS_OF_TWO.issuperset(self.tests) else ()

    def why_unsupported(self, fabric: str, host: Host) -> str:
        """Return why `fabric` cannot be measured on `host`; empty: it can."""
        if fabric in {"p2p", "nvlink"}:
            return (
                "MPI does not report whether ranks reach each other's GPUs; nccl measures "
                f"{fabric}."
            )
        return "" if fabric in {"tcp", "shm"} else nccl_env.why_unsupported(fabric, host)

    def steps(self, execution: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Return one step per program."""
        mpi = hosts[0].mpi
        if mpi is not None and mpi.kind is MpiKind.HYDRA:
            meaning = (
                f"{mpi.program} is not Open MPI's: fabbench sets the transport of OSU's "
                "programs through Open MPI's parameters."
            )
            hint = (
                "Pass Open MPI's mpirun with --mpirun, and programs built with it with --bin-dir."
            )
            raise RequestError(meaning, hint=hint)
        env = environment(fabric)
        unset = tuple(variable for variable in _MISLEADING if variable not in env)
        commands: dict[str, tuple[Command, ...]] = {}
        for name in self.tests:
            program = hosts[0].programs.get(name, name)  # mpirun starts one path on all hosts
            ranks = self._ranks(name, len(hosts))
            argv = (program, *self._options(name))
            command = Command(argv=argv, env=env, unset=unset, ranks=ranks)
            commands[name] = (command,)
        return self.rank_steps(execution, "osu", commands, called="test")

    def _options(self, name: str) -> Sequence[str]:
        """Return the options of a program; those of two sides end in where each has its buffer."""
        is_on_gpus = self.memory == "cuda"
        values = {**asdict(self), "has_sizes": name not in _SIZELESS, "is_on_gpus": is_on_gpus}
        buffers = ("D", "D") if is_on_gpus and name in _OF_TWO_SIDES else ()
        return (*words_of(_WORDS, values), *self.extra, *buffers)

    def _ranks(self, name: str, hosts: int) -> int:
        """Return the ranks of a program on a number of hosts.

        Raise RequestError where it takes no such number, or a host would have none.
        """
        ranks = self.ranks_per_host * hosts
        takes = "two or more"
        hint = "Pass a larger --ranks-per-host."
        if name in PAIRS:
            ranks = 2
            takes = "two"
            hint = "Choose two: --nodes 2."
        is_odd_half = name in HALVES and ranks % 2
        if name in HALVES:
            takes = "an even number of"
        if ranks < max(hosts, 2) or is_odd_half:
            given = f"there are {hosts} hosts, with {self.ranks_per_host} each"
            raise RequestError(f"{name} takes {takes} ranks, and {given}.", hint=hint)
        return ranks


def environment(fabric: str) -> Mapping[str, str]:
    """Return the environment that makes Open MPI use a fabric and nothing else, and report it."""
    known = variables_of("osu")
    text = known.get(fabric, known["*"])
    return read_variables(text.format(provider=provider(fabric)))
