"""The rungs of ``fabbench accept``, as data: each is a run or a sweep that exists anyway."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fabbench.benchmarks import runnable
from fabbench.model.hosts import Inventory, Needs
from fabbench.model.options import declared, parsed
from fabbench.plan.request import Work

LEVELS = ("quick", "full", "soak")
PROFILES = ("training", "inference", "hpc")
CHECK = "check"
"""The first rung, which needs no benchmark."""
ALL = "all:"
"""How the names of rungs on all nodes together begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One rung of the ladder."""

    name: str
    what: str
    """What it tests, for people."""
    benchmark: str
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

    @property
    def work(self) -> Work:
        """Return what is measured. Raise RequestError if the benchmark is unknown."""
        benchmark = runnable(self.benchmark)
        kind = benchmark.work_type()
        assert kind is not None  # noqa: S101 - it is runnable
        given = {**(benchmark.sweep_defaults if self.mode or self.alone else {}), **self.options}
        work: Work = kind(**{name: parsed(declared(kind)[name], value) for name, value in given.items()})
        return benchmark.each_nic(work) if self.alone else work


SOAK = Rung(name="soak", what="All nodes under load", benchmark="", after="pairs")
INTERFERENCE = Rung(
    name="interference", what="Half of the nodes beside load on the others", benchmark="", after="pairs"
)
_LARGE = {"min_bytes": "64M", "max_bytes": "1G", "factor": "4"}
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


def ladder(inventory: Inventory, profile: str) -> Iterator[Rung | tuple[str, str]]:
    """Yield the rungs for machines like these, in order; for one that does not apply, its name and why."""
    hosts = inventory.hosts
    gpus, nics = all(host.gpus for host in hosts), all(set(host.devices.values()) - {"unknown"} for host in hosts)
    few, single = "There is one node.", "single" if len(hosts) > 1 else ""
    if all(host.gpus > 1 for host in hosts):
        yield Rung(name="gpus", what="GPUs and NVLink of each node", benchmark="nccl", mode=single, alone=True)
    else:
        yield "gpus", "The nodes have one GPU each." if gpus else "The nodes have no GPUs."
    if nics:
        what = "Each NIC of each node"
        yield Rung(name="nics", what=what, benchmark="pingpong", mode=single, level="full", alone=True)
    else:
        yield "nics", "The nodes have no RDMA NICs."
    if len(hosts) < 2:
        yield from ((name, few) for name in ("rails", "pairs", "all"))
        return
    if nics:
        yield Rung(
            name="rails", what="Each NIC between nodes", benchmark="perftest", mode="rails", level="full", after="nics"
        )
    else:
        yield "rails", "The nodes have no RDMA NICs."
    yield Rung(
        name="pairs",
        what="Pairs of nodes",
        benchmark="nccl" if gpus else "pingpong",
        mode="diagnose",
        after="gpus" if gpus else CHECK,
    )
    cases: Sequence[str] = (_NCCL if gpus else _OSU)[profile]
    name, options = ("collectives", _LARGE) if gpus else ("tests", {"min_bytes": "1M", "max_bytes": "1M"})
    for number, case in enumerate(cases):
        yield Rung(
            name=f"{ALL}{case.removeprefix('osu_')}",
            what=f"{case} of all nodes",
            benchmark="nccl" if gpus else "osu",
            options={**options, name: (case,)},
            level="full" if number else "quick",
            after="pairs",
        )


def planned(inventory: Inventory, level: str, profile: str) -> tuple[list[Rung], dict[str, str]]:
    """Return the rungs of a level, and those that do not apply → why."""
    found = list(ladder(inventory, profile))
    rungs = [each for each in found if isinstance(each, Rung) and LEVELS.index(each.level) <= LEVELS.index(level)]
    return rungs, dict(each for each in found if not isinstance(each, Rung))


def needs(profile: str) -> Needs:
    """Return what the rungs of any machines may need; nothing of it is required."""
    works = [
        Rung(name="", what="", benchmark="nccl", options={"collectives": _NCCL[profile]}).work,
        Rung(name="", what="", benchmark="osu", options={"tests": _OSU[profile]}).work,
        *(Rung(name="", what="", benchmark=name).work for name in ("pingpong", "perftest")),
    ]
    every = [work.needs for work in works]
    return Needs(
        programs=tuple(dict.fromkeys(program for each in every for program in each.programs)),
        install="",
        optional=True,
        mpi=True,
        divided=True,
        folders={program: folder for each in every for program, folder in each.folders.items()},
        subfolders=tuple(dict.fromkeys(folder for each in every for folder in each.subfolders)),
    )
