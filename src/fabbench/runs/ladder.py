"""The rungs of ``fabbench accept``, as data: each is a run or a sweep that exists anyway."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path

from fabbench.benchmarks import runnable
from fabbench.model.hosts import Host, Inventory, Needs
from fabbench.model.option_types import FABRIC, Choice, File, Flag, Seconds
from fabbench.model.options import declared, option, parsed
from fabbench.plan.request import Work
from fabbench.report.certificate import ALL

LEVELS = ("quick", "full", "soak")
CHECK = "check"
"""The first rung, which needs no benchmark."""
SOAK = "soak"
INTERFERENCE = "interference"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One rung of the ladder."""

    name: str
    what: str = ""
    """What it tests, for people."""
    benchmark: str = ""
    """Empty: it repeats what rungs before it ran."""
    options: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    """Field of the benchmark's work → its value, as users write it."""
    mode: str = ""
    """Of the sweep; empty: a run on all nodes."""
    level: str = "quick"
    """The first level that has it."""
    after: str = CHECK
    """The rung whose failure stops it."""
    alone: bool = False
    """Whether nodes are tested by themselves."""
    absent: str = ""
    """Why it does not apply, as a sentence; empty: it does."""

    @property
    def work(self) -> Work:
        """Return what is measured. Raise RequestError if the benchmark is unknown."""
        benchmark = runnable(self.benchmark)
        kind = benchmark.work_type()
        assert kind is not None  # noqa: S101 - it is runnable
        given = {**(benchmark.sweep_defaults if self.mode or self.alone else {}), **self.options}
        work: Work = kind(**{name: parsed(declared(kind)[name], value) for name, value in given.items()})
        return benchmark.each_nic(work) if self.alone else work


def ladder(inventory: Inventory, how: AcceptOptions) -> list[Rung]:
    """Return the rungs for machines like these, in order. What only some nodes have is tested: the others lack it."""
    hosts = inventory.hosts
    gpus, nics = any(host.gpus for host in hosts), any(set(host.devices.values()) - {"unknown"} for host in hosts)
    several = any(host.gpus > 1 for host in hosts)
    no_gpus = "" if several else "The nodes have one GPU each." if gpus else "The nodes have no GPUs."
    no_nics, few = "" if nics else "The nodes have no RDMA NICs.", "" if len(hosts) > 1 else "There is one node."
    alone = partial(Rung, mode="" if few else "single", alone=True)
    first, benchmark = ("gpus", "nccl") if gpus else (CHECK, "osu")
    options: dict[str, str] = {"min_bytes": "1M", "max_bytes": "1M"}
    if gpus:
        options = {"min_bytes": "64M", "max_bytes": "1G", "factor": "4"}
    together = [
        Rung(
            name=f"{ALL}{case.removeprefix('osu_')}",
            what=f"{case} of all nodes",
            benchmark=benchmark,
            options={**options, "collectives" if gpus else "tests": (case,)},
            level="full" if number else "quick",
            after="pairs",
            absent=few,
        )
        for number, case in enumerate((_NCCL if gpus else _OSU)[how.profile])
    ]
    pairs, nodes = "nccl" if gpus else "pingpong", "Half of the nodes beside load on the others"
    rungs = [
        alone(name="gpus", what="GPUs and NVLink of each node", benchmark="nccl", absent=no_gpus),
        alone(name="nics", what="Each NIC of each node", benchmark="pingpong", level="full", absent=no_nics),
        Rung(
            name="rails",
            what="Each NIC between nodes",
            benchmark="perftest",
            mode="rails",
            level="full",
            after="nics",
            absent=few or no_nics,
        ),
        Rung(name="pairs", what="Pairs of nodes", benchmark=pairs, mode="diagnose", after=first, absent=few),
        *together,
        Rung(name=SOAK, what="All nodes under load", level="soak", after="pairs", absent=few),
        *([Rung(name=INTERFERENCE, what=nodes, after="pairs", absent=few)] if how.background else []),
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
