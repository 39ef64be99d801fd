"""How nccl-tests are started: one step of mpirun for each collective, one rank for each GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fabbench import environments
from fabbench.errors import RequestError
from fabbench.machines import Host, Needs
from fabbench.model import Proof, Shape, Step
from fabbench.sizes import Sweep

COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "alltoall", "alltoallv", "broadcast", "reduce"),
    *("gather", "scatter", "sendrecv", "hypercube"),
)
"""The programs of nccl-tests, less their `_perf`."""
INSTALL = (
    "make MPI=1 in https://github.com/NVIDIA/nccl-tests, and name the folder by --bin-dir; "
    "in AWS's images it is /opt/nccl-tests/build"
)
WIDTHS: Mapping[str, int] = {
    **dict.fromkeys(("int8", "uint8", "f8e4m3", "f8e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float"), 4),
    **dict.fromkeys(("int64", "uint64", "double"), 8),
}
"""Bytes of one element of each type, as nccl-tests call them."""
ALL = "all"
"""Stands for every type."""
OPS = ("sum", "prod", "max", "min", "avg", "mulsum", ALL)

TIMEOUT_S = 1800.0
SILENCE_S = 300.0
# Each rank has a part of the size; since nccl-tests 2.13.12 it is a multiple of as many bytes.
_PARTED = frozenset({"all_gather", "reduce_scatter", "alltoall", "gather", "scatter", "hypercube"})
_ALIGNMENT = 16
# What is printed depends on a pattern of its own.
_UNKNOWN = frozenset({"alltoallv"})
# What fabbench says itself: given twice, it would not know what is measured.
_OWN = ("-b", "-e", "-i", "-f", "-d", "-g", "-t", "-n", "-w", "-c", "-o", "-r")
_OWN_LONG = (
    *("--minbytes", "--maxbytes", "--stepbytes", "--stepfactor", "--datatype", "--ngpus", "--nthreads"),
    *("--iters", "--warmup_iters", "--check", "--op", "--root"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclWork:
    """Some collectives over some sizes. See `fabbench.plan.Work`."""

    collectives: tuple[str, ...] = COLLECTIVES[:1]
    sweep: Sweep = field(default_factory=Sweep)
    iterations: int = 20
    warmup: int = 5
    check: int = 1
    """How many times the data of each size are compared; 0: never."""
    dtype: str = "float"
    op: str = "sum"
    root: int = 0
    extra: tuple[str, ...] = ()
    """More options of the programs."""
    nics: int | None = None
    """NICs that each rank must have used; 0: any number; None: all that the hosts have."""
    debug: str = "INFO"
    timeout_s: float = TIMEOUT_S
    silence_s: float = SILENCE_S

    together = False

    def __post_init__(self) -> None:
        """Raise RequestError for names that nccl-tests do not know, and for options given twice."""
        _one_of("collective", self.collectives, COLLECTIVES)
        _one_of("type", (self.dtype,), (*WIDTHS, ALL))
        _one_of("operation", (self.op,), OPS)
        environments.refuse_own(self.extra, _OWN, _OWN_LONG)

    @property
    def needs(self) -> Needs:
        """The programs, and an mpirun."""
        return Needs(
            programs=tuple(f"{name}_perf" for name in self.collectives), install=INSTALL, mpi=True, gpus=True
        )

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Give the sizes that every collective prints, whichever its release.

        Where a size is shared out between ranks, older releases round it otherwise than newer ones.
        """
        ranks = environments.gpus_each(hosts) * len(hosts)
        widths = tuple(WIDTHS.values()) if self.dtype == ALL else (WIDTHS[self.dtype],)
        kinds = [(name, width) for name in self.collectives if name not in _UNKNOWN for width in widths]
        common = [_printed(self.sweep, name, width, ranks) for name, width in kinds]
        return tuple(sorted(set.intersection(*common))) if common else ()

    def lacks(self, fabric: str, host: Host) -> str:
        """Say why `fabric` cannot be measured on `host`."""
        return environments.lacks(fabric, host)

    def steps(self, trial: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Give one step for each collective."""
        return tuple(self._step(f"{trial}/{name}", name, fabric, hosts) for name in self.collectives)

    def proof(self, fabric: str, hosts: Sequence[Host]) -> Proof:
        """Say what the log must show: the network, and the NICs where their number is known."""
        wanted = environments.nics(fabric, hosts) if self.nics is None else self.nics or None
        return Proof(fabric=fabric, nics=wanted)

    def _step(self, identity: str, name: str, fabric: str, hosts: Sequence[Host]) -> Step:
        given = environments.environment(fabric, hosts, debug=self.debug)
        each = environments.gpus_each(hosts)
        if name == "hypercube" and (each * len(hosts)).bit_count() != 1:
            raise RequestError(
                f"hypercube takes 2, 4, 8, … ranks, and there are {each * len(hosts)} GPUs.",
                hint="Choose fewer by --gpus or --nodes.",
            )
        return Step(
            id=identity,
            label=name,
            shape=Shape.MPI,
            commands=environments.commands(lambda host: self._words(name, host), fabric, hosts, given, each),
            timeout_s=self.timeout_s,
            silence_s=self.silence_s,
            facts={"benchmark": "nccl", "collective": name, "ranks": each * len(hosts)},
        )

    def _words(self, name: str, host: Host) -> tuple[str, ...]:
        return (
            environments.program(f"{name}_perf", host),
            *self.sweep.words(),
            *("-g", "1", "-n", str(self.iterations), "-w", str(self.warmup), "-c", str(self.check)),
            *("-d", self.dtype, "-o", self.op, "-r", str(self.root)),
            *self.extra,
        )


def _one_of(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Raise RequestError for a name that is not known."""
    for name in names:
        if name not in known:
            raise RequestError(f"nccl-tests have no {what} {name}.", hint=f"One of {', '.join(known)}.")


def _printed(sweep: Sweep, name: str, width: int, ranks: int) -> set[int]:
    """Give the sizes that a program prints for those asked for.

    It makes whole elements of a size, and of each rank's part a multiple of 16 bytes: such as 0, for all
    sizes that are too small. A size of which releases before 2.13.12, without that multiple, make something
    else is left out. Sources: `setupArgs` in common.cu, `GetCollByteCount` of each program.
    """
    if name not in _PARTED:
        return {size // width * width for size in sweep.sizes()}
    plain = ((size, size // (width * ranks) * width * ranks) for size in sweep.sizes())
    aligned = _ALIGNMENT * ranks
    return {old for size, old in plain if size // aligned * aligned == old}
