"""The rungs of ``fabbench accept`` and their limits, as data: each rung is a run or a sweep that exists anyway."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path

import msgspec
import yaml

from fabbench.benchmarks import Benchmark, runnable
from fabbench.benchmarks.standard import Work
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hosts import Host, Inventory, Needs
from fabbench.model.log import METRICS
from fabbench.model.options import FABRIC, Choice, File, Flag, Seconds, declared, option, parsed
from fabbench.model.units import scale
from fabbench.plan.gates import parse_gates
from fabbench.report.certificate import ALL, Certificate
from fabbench.runs.document import writing

LEVELS = ("quick", "full", "soak")
CHECK, SOAK, INTERFERENCE = "check", "soak", "interference"  # Rungs without a benchmark of their own
MARGIN = 0.1
"""How much worse than a good run nodes may be, where its figures become limits."""
_NCCL = {
    "training": ("all_reduce", "all_gather", "reduce_scatter"),
    "inference": ("all_reduce", "alltoall", "sendrecv"),
    "hpc": ("all_reduce", "alltoall"),
}
_OSU = {
    "training": ("osu_allreduce", "osu_allgather", "osu_reduce_scatter"),
    "inference": ("osu_allreduce", "osu_alltoall"),
    "hpc": ("osu_allreduce", "osu_alltoall", "osu_bcast"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptOptions:
    """Options of a ladder."""

    level: str = option(
        Choice(LEVELS),
        "How much to test. quick: checks, GPUs, pairs, one collective; full: each NIC and more collectives, repeated; "
        "soak: then load.",
        default=LEVELS[0],
    )
    profile: str = option(Choice(tuple(_NCCL)), "Which collectives all nodes run together.", default="training")
    fabric: str | None = option(
        FABRIC, "Fabric that every rung between nodes must use and prove. Default: the best one available."
    )
    max_time: float | None = option(Seconds(), "Start no rung after this time. What is left counts as not tested.")
    soak: float | None = option(Seconds(), "How long --level soak keeps all nodes loaded. Default: 3600.")
    background: bool = option(Flag(), "Also measure half of the nodes while the others are loaded.")
    thresholds: Path | None = option(File("a file"), "Limits to judge by, as --write-thresholds wrote them.")
    write_thresholds: Path | None = option(
        File("a file"), "If nothing is bad, write limits that are 10% worse than these figures."
    )


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung of the ladder. Without a benchmark it repeats what rungs before it ran."""

    name: str
    what: str = ""  # For people
    benchmark: str = ""
    options: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)  # Of the benchmark, as users write them
    mode: str = ""  # Of the sweep; empty: a run on all nodes
    level: str = "quick"  # The first that has it
    after: str = CHECK  # The rung whose failure stops it
    alone: bool = False  # Whether nodes are tested by themselves
    absent: str = ""  # Why it does not apply, as a sentence; empty: it does

    @property
    def tested(self) -> tuple[Benchmark, Work]:
        """Return the benchmark, and what it measures. Raise RequestError if the benchmark is unknown."""
        benchmark = runnable(self.benchmark)
        kind = benchmark.work_type()
        assert kind is not None  # noqa: S101 - it is runnable
        given = {**(benchmark.sweep_defaults if self.mode or self.alone else {}), **self.options}
        work: Work = kind(**{name: parsed(declared(kind)[name], value) for name, value in given.items()})
        return benchmark, benchmark.each_nic(work) if self.alone else work

    @property
    def work(self) -> Work:
        """Return what is measured."""
        return self.tested[1]


def ladder(inventory: Inventory, how: AcceptOptions) -> list[Rung]:
    """Return the rungs for machines like these, in order. What only some nodes have is tested: the others lack it."""
    hosts, gpus = inventory.hosts, max((host.gpus for host in inventory.hosts), default=0)
    no_gpus = "" if gpus > 1 else "The nodes have one GPU each." if gpus else "The nodes have no GPUs."
    no_nics = "" if any({*host.devices.values()} - {"unknown"} for host in hosts) else "The nodes have no RDMA NICs."
    few = "" if len(hosts) > 1 else "There is one node."
    alone = partial(Rung, mode="" if few else "single", alone=True)
    together = partial(Rung, after="pairs", absent=few)
    benchmark, key, cases = ("nccl", "collectives", _NCCL) if gpus else ("osu", "tests", _OSU)
    pairs, first = ("nccl", "gpus") if gpus else ("pingpong", CHECK)
    sizes = {"min_bytes": "64M", "max_bytes": "1G", "factor": "4"} if gpus else {"min_bytes": "1M", "max_bytes": "1M"}
    rungs = [
        alone("gpus", "GPUs and NVLink of each node", "nccl", absent=no_gpus),
        alone("nics", "Each NIC of each node", "pingpong", level="full", absent=no_nics),
        Rung("rails", "Each NIC between nodes", "perftest", {}, "rails", "full", "nics", absent=few or no_nics),
        Rung("pairs", "Pairs of nodes", pairs, mode="diagnose", after=first, absent=few),
        *(
            together(f"{ALL}{case.removeprefix('osu_')}", f"{case} of all nodes", benchmark, {**sizes, key: (case,)})
            for case in cases[how.profile][: None if how.level != LEVELS[0] else 1]
        ),
        together(SOAK, "All nodes under load", level="soak"),
        *([together(INTERFERENCE, "Half of the nodes beside load on the others")] if how.background else []),
    ]
    return [rung for rung in rungs if LEVELS.index(rung.level) <= LEVELS.index(how.level)]


def every_rung() -> Iterator[Rung]:
    """Yield the rungs of any machines that measure, some of them several times: for GPUs, and without."""
    for gpus, profile in product((2, 0), _NCCL):
        hosts = tuple(Host(name=name, gpus=gpus, devices={"nic": "ib"}) for name in "ab")
        rungs = ladder(Inventory(target="", hosts=hosts), AcceptOptions(level=LEVELS[-1], profile=profile))
        yield from (each for each in rungs if each.benchmark)


def needs() -> Needs:
    """Return what the rungs of any machines may need; nothing of it is required."""
    every = [rung.work.needs for rung in every_rung()]
    return Needs(
        programs=tuple(dict.fromkeys(program for each in every for program in each.programs)),
        install="",
        optional=True,
        mpi=True,
        divided=True,
        folders={program: folder for each in every for program, folder in each.folders.items()},
        subfolders=tuple(dict.fromkeys(folder for each in every for folder in each.subfolders)),
    )


# ---------------------------------------------------------------- limits


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What figures must reach: the document of ``--thresholds``."""

    rungs: Mapping[str, tuple[str, ...]]  # Rung → gates
    source: str = ""  # Where they come from, for people


def write_thresholds(file: Path, certificate: Certificate) -> None:
    """Write limits from the figures of a ladder: `MARGIN` worse than these."""
    rungs: dict[str, list[str]] = {}
    for rung in certificate.rungs:
        for figure in rung.figures if rung.name not in {SOAK, INTERFERENCE} else ():
            metric = METRICS[figure.metric]
            bound = figure.value * (1 + MARGIN if metric.lower_is_better else 1 - MARGIN)
            limit = f"{'<=' if metric.lower_is_better else '>='}{scale(metric.unit, bound).quantity(bound)}"
            rungs.setdefault(rung.name, []).append(f"{figure.what}{limit}".replace(" at ", "@").replace(" ", ""))
    source = f"certificate {certificate.id}, minus {100 * MARGIN:g} %"
    with writing(file):
        file.write_text(yaml.safe_dump({"source": source, "rungs": rungs}, sort_keys=False), "utf-8")


def read_thresholds(file: Path) -> Limits:
    """Read limits. Raise MachineError if they cannot be read, RequestError for an invalid one."""
    try:
        limits = msgspec.convert(yaml.safe_load(file.read_text("utf-8")), Limits)
    except OSError as error:
        raise MachineError(f"{file} cannot be read: {error.strerror}.") from error
    except (ValueError, yaml.YAMLError, msgspec.ValidationError) as error:
        hint = "fabbench accept --write-thresholds FILE writes one."
        raise RequestError(f"{file} is no file of thresholds: {' '.join(str(error).split())}.", hint=hint) from None
    known = _limited()
    for name, gates in limits.rungs.items():
        if name not in known:
            raise RequestError(f"{file}: no limits can be for {name}.", hint=f"Limits are for {', '.join(known)}.")
        metrics, form = known[name]
        for gate in parse_gates(gates):
            relative, sized = gate.needs_baseline, gate.sizes is not None or gate.needs_ceiling
            if gate.metric.name not in metrics or relative != ("%" in form) or (sized and "@" not in form):
                hint = f"{name} takes METRIC{form} of {', '.join(sorted(metrics))}."
                raise RequestError(f"{file}: {gate.text} has no effect in {name}.", hint=hint)
    return limits


def _limited() -> Mapping[str, tuple[set[str], str]]:
    """Return the rungs that limits can be for → the metrics that they may measure, and the form of their gates."""
    found: dict[str, tuple[set[str], str]] = {}
    for rung in every_rung():
        benchmark, work = rung.tested
        metrics = benchmark.printed_metrics(work)
        compared = [benchmark.sweep_metric or metrics[0]] if rung.mode else metrics
        form = ">=LIMIT" if rung.mode and not rung.alone else "[@SIZE]>=LIMIT"
        found.setdefault(rung.name, (set(), form))[0].update(compared)
        if not rung.mode:
            found.setdefault(INTERFERENCE, ({"ratio"}, ":PERCENT%"))[0].update(compared)
    return found
