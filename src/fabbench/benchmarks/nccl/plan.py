"""How nccl-tests are started: one step of mpirun per collective, one rank per GPU."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from fabbench.benchmarks import nccl_env, standard
from fabbench.benchmarks.nccl.collectives import COLLECTIVES
from fabbench.benchmarks.nccl.rows import DTYPE_BYTES
from fabbench.catalog.nccl_environment import NIC_SELECTORS, environment
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Host, Needs
from fabbench.model.mappings import distinct
from fabbench.model.messages import listed
from fabbench.model.options import RARE, SIZE, Choice, Type, Whole, option
from fabbench.model.plan import Command, Step
from fabbench.model.units import Sweep
from fabbench.model.values import frozen

FOLDER = "/opt/nccl-tests/build"  # the folder of the programs in AWS's images
INSTALL = (
    "make MPI=1 in https://github.com/NVIDIA/nccl-tests, and pass its directory with --bin-dir; "
    f"in AWS's images it is {FOLDER}"
)
_ONLY_PRINTED = frozenset({"char", "int", "fp8_e4m3", "fp8_e5m2"})
TYPES = tuple(name for name in DTYPE_BYTES if name not in _ONLY_PRINTED)
"""Those that -d takes."""
ALL = "all"
"""Stands for every type."""
OPS = ("sum", "prod", "max", "min", "avg", "mulsum", ALL)
_COLLECTIVES = ", ".join(COLLECTIVES)
_OPERATORS = ", ".join(OPS)

# Each rank has a part of the size.
_SPLIT = frozenset({"all_gather", "reduce_scatter", "alltoall", "gather", "scatter", "hypercube"})
_OF_UNKNOWN_SIZES = frozenset({"alltoallv"})  # the printed sizes depend on a pattern of its own
_WORDS = "-g 1 -n {iterations} -w {warmup} -c {check} -d {dtype} -o {op} -r {root}"
"""Options of the programs beside the sizes, with fields of the work."""
# Options that fabbench passes itself: given again, they would change what is measured without its
# knowledge.
_OWN = (
    "-b --minbytes -e --maxbytes -i --stepbytes -f --stepfactor -d --datatype -g --ngpus "
    "-t --nthreads -n --iters -w --warmup_iters -c --check -o --op -r --root"
)


def _collective(text: str) -> str:
    name = text.removesuffix("_perf")
    if name not in COLLECTIVES:
        raise ValueError(f"nccl-tests has no collective {name}. One of {_COLLECTIVES}")
    return name


def _round_down(unit: int, size: int) -> int:
    """Return the largest multiple that is not above a size."""
    return size // unit * unit


@frozen
class NcclWork(nccl_env.NcclRankWork):
    """Collectives over a sweep of sizes."""

    collectives: tuple[str, ...] = option(
        Type("a collective", "NAME", _collective, names=tuple(COLLECTIVES)),
        f"Collective to run: {_COLLECTIVES}. Can be given several times.",
        "--collective",
        many=distinct,
        default=("all_reduce",),
    )
    min_bytes: int = standard.min_bytes("8")
    max_bytes: int = standard.max_bytes("2G")
    factor: int = standard.factor("2")
    step_bytes: int = option(
        SIZE,
        "Add this to the size at each step, instead of the factor.",
        "-i",
        "--step-bytes",
        unset=0,
    )
    iterations: int = standard.iterations("20")
    warmup: int = standard.warmup("5")
    check: int = option(
        Whole(0), "Correctness-check iterations per size; 0: off.", "-c", "--check", default="1"
    )
    dtype: str = option(
        Choice((*TYPES, ALL), "TYPE"),
        "Data type of nccl-tests, or all.",
        "-d",
        "--dtype",
        default="float",
    )
    op: str = option(Choice(OPS, "OP"), f"Reduction: {_OPERATORS}.", "--op", default="sum")
    root: int = option(Whole(-1), "Root rank; -1: every rank in turn.", "-r", "--root", default="0")
    nics: int | None = standard.nics()
    devices: tuple[str, ...] = standard.devices(
        "Use only this NIC of every host (NCCL_IB_HCA; FI_EFA_IFACE for EFA). Default: all."
    )
    debug: str = option(
        Choice(("INFO", "TRACE")),
        "NCCL_DEBUG level: the lines are the proof of the fabric.",
        f"{RARE}nccl-debug",
        default="INFO",
    )
    timeout_s: float = standard.timeout("1800")
    silence_s: float = standard.silence()
    extra: tuple[str, ...] = standard.extra()

    def __post_init__(self) -> None:
        nccl_env.reject_own_options(self.extra, _OWN)
        if self.devices and self.nics is not None:
            raise RequestError(
                "--nics has no effect with --device, which names the NICs.", hint="Leave it out."
            )
        _ = self.sweep  # raises RequestError if it is not valid

    @property
    def sweep(self) -> Sweep:
        """The sizes. Raise RequestError if they are not a valid sweep."""
        return Sweep(
            first=self.min_bytes,
            last=self.max_bytes,
            factor=self.factor,
            step=self.step_bytes,
            program="nccl-tests",
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
        common: set[int] | None = None  # None: no collective's sizes are known so far
        for pairs in self._printed_sizes(hosts):
            alike = {old for old, new in pairs if old == new}
            common = alike if common is None else common & alike
        return tuple(sorted(common or ()))

    def possible_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Return the sizes that any collective prints, in whatever release; empty: unknown."""
        # Without hosts it is not known between how many ranks a size is split.
        unknown = _OF_UNKNOWN_SIZES if hosts else _OF_UNKNOWN_SIZES | _SPLIT
        if not unknown.isdisjoint(self.collectives):
            return ()
        sizes: set[int] = set()
        for pairs in self._printed_sizes(hosts):
            sizes.update(*pairs)
        return tuple(sorted(sizes))

    def _printed_sizes(self, hosts: Sequence[Host]) -> Iterator[Sequence[tuple[int, int]]]:
        """Yield what old and new releases print for each size, by collective and type's width.

        Old ones are those before 2.13.12. They round a size down to whole elements. Where ranks
        share it, each rank's part is a multiple of an element or, later, of 16 bytes (`setupArgs`
        in common.cu, `GetCollByteCount` of each program).
        """
        ranks = nccl_env.gpus_per_host(hosts) * len(hosts) if hosts else 0
        types = TYPES if self.dtype == ALL else (self.dtype,)
        widths = {DTYPE_BYTES[name] for name in types}
        for name in self.collectives:
            if name in _OF_UNKNOWN_SIZES:
                continue
            for width in widths:
                # The bytes of which a printed size is a multiple.
                old = width * ranks if name in _SPLIT else width
                new = 16 * ranks if name in _SPLIT else width
                sizes = self.sweep.sizes()
                yield [(_round_down(old, size), _round_down(new, size)) for size in sizes]

    def why_unsupported(self, fabric: str, host: Host) -> str:
        """Return why `fabric` cannot be measured on `host`."""
        linked = host.linked(fabric)
        if self.devices and fabric not in NIC_SELECTORS:
            return f"--device chooses NICs of {listed(tuple(NIC_SELECTORS))} alone."
        # No NIC is asked for, or the host's are known and none is of the fabric.
        if not self.devices or (host.devices and not linked):
            return nccl_env.why_unsupported(fabric, host)
        missing = [name for name in self.devices if name not in linked]
        # Where none can be listed, as in some containers, NCCL itself reports whether there are
        # any.
        if not linked or not missing:
            return ""
        available = ", ".join(linked)
        return f"it has no {listed(missing)} of {fabric}, but {available}."

    def nics_of(self, fabric: str, host: Host) -> Sequence[str]:
        """Return the NICs of a host that can be measured one by one."""
        if self.nics is not None:
            raise RequestError(
                "--nics has no effect where NICs are tested one by one.", hint="Leave it out."
            )
        if fabric not in NIC_SELECTORS:
            return ()
        return self.devices or host.linked(fabric)

    def steps(self, execution: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Return one step per collective."""
        env_of_ranks = environment(fabric, hosts, debug=self.debug, devices=self.devices)
        per_host = nccl_env.gpus_per_host(hosts)
        sizes = self.sweep.words()
        words = _WORDS.format(**asdict(self)).split()
        options = (*sizes, *words, *self.extra)
        commands: dict[str, tuple[Command, ...]] = {}
        for name in self.collectives:
            argv = (f"{name}_perf", *options)
            commands[name] = nccl_env.rank_commands(argv, fabric, hosts, env_of_ranks, per_host)
        return self.rank_steps(execution, "nccl", commands, called="collective")
