"""How nccl-tests are started: one step of mpirun per collective, one rank per GPU."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fabbench.benchmarks import nccl_env
from fabbench.benchmarks.nccl.rows import DTYPE_BYTES
from fabbench.benchmarks.shared_options import (
    devices,
    extra,
    factor,
    iterations,
    max_bytes,
    min_bytes,
    nics,
    silence,
    timeout,
    warmup,
)
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Host, Needs
from fabbench.model.option_types import Choice, Parsed, Size, Whole
from fabbench.model.options import RARE, option, unique
from fabbench.model.plan import Proof, Shape, Step
from fabbench.model.units import Sweep

COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "alltoall", "alltoallv", "broadcast", "reduce"),
    *("gather", "scatter", "sendrecv", "hypercube"),
)
"""The programs of nccl-tests, without their `_perf`."""
FOLDER = "/opt/nccl-tests/build"  # the folder of the programs in AWS's images
INSTALL = (
    "make MPI=1 in https://github.com/NVIDIA/nccl-tests, and pass its directory with --bin-dir; "
    f"in AWS's images it is {FOLDER}"
)
TYPES = (
    *("int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16"),
    *("f8e4m3", "f8e5m2"),
)
ALL = "all"  # stands for every type
OPS = ("sum", "prod", "max", "min", "avg", "mulsum", ALL)

# Each rank has a part of the size.
_SPLIT = frozenset({"all_gather", "reduce_scatter", "alltoall", "gather", "scatter", "hypercube"})
_UNKNOWN = frozenset({"alltoallv"})  # the printed sizes depend on a pattern of its own
# Options that fabbench passes itself: given again, they would change what is measured without its knowledge.
_OWN_SHORT = ("-b", "-e", "-i", "-f", "-d", "-g", "-t", "-n", "-w", "-c", "-o", "-r")
_OWN_LONG = (
    *("--minbytes", "--maxbytes", "--stepbytes", "--stepfactor", "--datatype", "--ngpus", "--nthreads"),
    *("--iters", "--warmup_iters", "--check", "--op", "--root"),
)
LARGEST_OVER_SOCKETS = 4 << 30


def _collective(text: str) -> str:
    name = text.removesuffix("_perf")
    if name not in COLLECTIVES:
        raise ValueError(f"nccl-tests has no collective {name}. One of {', '.join(COLLECTIVES)}")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclWork:
    """Collectives over a sweep of sizes. See `fabbench.plan.request.Work`."""

    collectives: tuple[str, ...] = option(
        Parsed("a collective", "NAME", _collective, names=COLLECTIVES),
        f"Collective to run: {', '.join(COLLECTIVES)}. Can be given several times.",
        "--collective",
        many=unique,
        default=COLLECTIVES[:1],
    )
    min_bytes: int = min_bytes("8")
    max_bytes: int = max_bytes("2G")
    factor: int = factor("2")
    step_bytes: int = option(
        Size(), "Add this to the size at each step, instead of the factor.", "-i", "--step-bytes", unset=0
    )
    iterations: int = iterations("20")
    warmup: int = warmup("5")
    check: int = option(Whole(0), "Correctness-check iterations per size; 0: off.", "-c", "--check", default="1")
    dtype: str = option(
        Choice((*TYPES, ALL), "TYPE"), "Data type of nccl-tests, or all.", "-d", "--dtype", default="float"
    )
    op: str = option(Choice(OPS, "OP"), f"Reduction: {', '.join(OPS)}.", "--op", default="sum")
    root: int = option(Whole(-1), "Root rank; -1: every rank in turn.", "-r", "--root", default="0")
    nics: int | None = nics()
    devices: tuple[str, ...] = devices(
        "Use only this NIC of every host (NCCL_IB_HCA; FI_EFA_IFACE for EFA). Default: all."
    )
    debug: str = option(
        Choice(("INFO", "TRACE")),
        "NCCL_DEBUG level: the lines are the proof of the fabric.",
        f"{RARE}nccl-debug",
        default="INFO",
    )
    timeout_s: float = timeout("1800")
    silence_s: float = silence()
    extra: tuple[str, ...] = extra()

    together = False

    def __post_init__(self) -> None:
        """Raise RequestError for options given twice, and sizes that are no sweep."""
        nccl_env.reject_own_options(self.extra, _OWN_SHORT, _OWN_LONG)
        if self.devices and self.nics is not None:
            raise RequestError("--nics has no effect with --device, which names the NICs.", hint="Leave it out.")
        _ = self.sweep

    @property
    def sweep(self) -> Sweep:
        """The sizes. Raise RequestError if they are not a valid sweep."""
        return Sweep(
            first=self.min_bytes, last=self.max_bytes, factor=self.factor, step=self.step_bytes, program="nccl-tests"
        )

    @property
    def needs(self) -> Needs:
        """The programs, and an mpirun."""
        programs = tuple(f"{name}_perf" for name in self.collectives)
        return Needs(
            programs=programs,
            install=INSTALL,
            mpi=True,
            gpus=True,
            folders=dict.fromkeys(programs, FOLDER),
            devices=self.devices,
            nics=self.nics or 0,
        )

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Return the sizes that every collective prints, in any release.

        Where a size is split between ranks, older releases round it differently from newer ones.
        """
        common = [{old for old, new in pairs if old == new} for pairs in self._printed(hosts)]
        return tuple(sorted(set.intersection(*common))) if common else ()

    def possible_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Return the sizes that any collective prints, in whatever release; empty: unknown."""
        if not (_UNKNOWN if hosts else _UNKNOWN | _SPLIT).isdisjoint(self.collectives):
            return ()
        return tuple(sorted({size for pairs in self._printed(hosts) for pair in pairs for size in pair}))

    def _printed(self, hosts: Sequence[Host]) -> Iterator[Sequence[tuple[int, int]]]:
        """Yield, by collective and type, what releases before 2.13.12, and later ones, print for each size.

        They round a size down to whole elements. Where ranks share it, each rank's part is a multiple of an
        element or, later, of 16 bytes (`setupArgs` in common.cu, `GetCollByteCount` of each program).
        """
        ranks = nccl_env.gpus_per_host(hosts) * len(hosts) if hosts else 0
        for name in self.collectives:
            for width in (1, 2, 4, 8) if self.dtype == ALL else (DTYPE_BYTES[self.dtype],):
                old, new = (width * ranks, 16 * ranks) if name in _SPLIT else (width, width)
                if name not in _UNKNOWN:
                    yield [(size // old * old, size // new * new) for size in self.sweep.sizes()]

    def why_unsupported(self, fabric: str, host: Host) -> str:
        """Return why `fabric` cannot be measured on `host`."""
        if self.devices:
            return nccl_env.why_no_choice(fabric, host, self.devices)
        return nccl_env.why_unsupported(fabric, host)

    def steps(self, execution: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Return one step per collective."""
        return tuple(self._step(execution, name, fabric, hosts) for name in self.collectives)

    def proof(self, fabric: str, hosts: Sequence[Host]) -> Proof:
        """Return what the log must show: the network, and the NICs if their number is known."""
        return nccl_env.network_proof(fabric, hosts, self.nics, self.devices)

    def _step(self, execution: str, name: str, fabric: str, hosts: Sequence[Host]) -> Step:
        given = nccl_env.environment(fabric, hosts, debug=self.debug, devices=self.devices)
        each = nccl_env.gpus_per_host(hosts)
        ranks = each * len(hosts)
        return Step(
            id=f"{execution}/{name}",
            label=name,
            shape=Shape.MPI,
            commands=nccl_env.rank_commands(self._words(name), fabric, hosts, given, each),
            timeout_s=self.timeout_s,
            silence_s=self.silence_s,
            facts={"benchmark": "nccl", "collective": name, "ranks": ranks},
        )

    def _words(self, name: str) -> tuple[str, ...]:
        return (
            f"{name}_perf",
            *self.sweep.words(),
            *("-g", "1", "-n", str(self.iterations), "-w", str(self.warmup), "-c", str(self.check)),
            *("-d", self.dtype, "-o", self.op, "-r", str(self.root)),
            *self.extra,
        )
