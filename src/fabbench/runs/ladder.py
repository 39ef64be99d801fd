"""The rungs of ``fabbench accept`` and their limits, as data.

Each rung is a run or a sweep that exists anyway.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from fabbench.benchmarks import runnable
from fabbench.benchmarks.standard import Work
from fabbench.model.errors import FabbenchError, RequestError
from fabbench.model.hosts import Host, Inventory, Needs
from fabbench.model.log import METRICS
from fabbench.model.options import FABRIC, Choice, File, Flag, Seconds, declared, option, parsed
from fabbench.plan.gates import parse_gates
from fabbench.report.certificate import ALL, Certificate
from fabbench.runs.document import read, write

LEVELS = ("quick", "full", "soak")
CHECK, SOAK = "check", "soak"  # Rungs without a benchmark of their own
_MARGIN = 0.1  # How much worse than a good run nodes may be, where its figures become limits
_PROFILES = {
    "training": ("all_reduce", "all_gather", "reduce_scatter"),
    "inference": ("all_reduce", "alltoall", "sendrecv"),
    "hpc": ("all_reduce", "alltoall"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptOptions:
    """Options of a ladder."""

    level: str = option(
        Choice(LEVELS),
        (
            "How much to test. quick: checks, GPUs, pairs, one collective; full: NICs and more, "
            "repeated; soak: then load."
        ),
        default="quick",
    )
    profile: str = option(
        Choice(tuple(_PROFILES)), "Which collectives all nodes run together.", default="training"
    )
    fabric: str | None = option(
        FABRIC, "Fabric that every rung between nodes must prove. Default: the best one."
    )
    max_time: float | None = option(
        Seconds(), "Stop after this time. What is left counts as not tested."
    )
    soak: float = option(Seconds(), "How long --level soak keeps all nodes loaded.", default="3600")
    background: bool = option(Flag(), "Also measure half of the nodes while the others are loaded.")
    thresholds: Path | None = option(
        File("a file"), "Limits to judge by, as --write-thresholds wrote them."
    )
    write_thresholds: Path | None = option(
        File("a file"), "If nothing is bad, write limits that are 10% worse."
    )


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung of the ladder."""

    name: str
    what: str = ""  # For people
    benchmark: str = ""
    options: Mapping[str, Any] = field(
        default_factory=dict
    )  # Of the benchmark, as users write them
    mode: str = ""  # Of the sweep; empty: a run on all nodes
    after: str = CHECK  # The rung whose failure stops it
    alone: bool = False  # Whether nodes are tested by themselves
    # Whether half of the nodes are measured; with a baseline, the others run the same meanwhile
    half: bool = False
    baseline: str = ""  # The rung to compare with
    absent: str = ""  # Why it does not apply, as a sentence; empty: it does

    @property
    def work(self) -> Work:
        """Return what is measured. Raise RequestError if the benchmark is unknown."""
        benchmark = runnable(self.benchmark)
        kind = benchmark.work_type()
        assert kind is not None  # noqa: S101 - it is runnable
        given = {**(benchmark.sweep_defaults if self.mode or self.alone else {}), **self.options}
        work: Work = kind(
            **{name: parsed(declared(kind)[name], value) for name, value in given.items()}
        )
        return benchmark.each_nic(work) if self.alone else work


def ladder(inventory: Inventory, how: AcceptOptions) -> list[Rung]:
    """Return the rungs for machines like these, in order. What only some nodes have is tested.

    The others lack it.
    """
    hosts, gpus = inventory.hosts, max((host.gpus for host in inventory.hosts), default=0)
    no_gpus = (
        "" if gpus > 1 else "The nodes have one GPU each." if gpus else "The nodes have no GPUs."
    )
    no_nics = (
        ""
        if any({*host.devices.values()} - {"unknown"} for host in hosts)
        else "The nodes have no RDMA NICs."
    )
    few = "" if len(hosts) > 1 else "There is one node."
    alone = partial(Rung, mode="" if few else "single", alone=True)
    cases = [
        case for case in _PROFILES[how.profile] if gpus or case != "sendrecv"
    ]  # which OSU does not have
    cases = cases[: None if how.level != LEVELS[0] else 1]
    pairs, first = ("nccl", "gpus") if gpus else ("pingpong", CHECK)

    def together(name: str, case: str, more: str, **kind: Any) -> Rung:
        sizes: dict[str, Any] = dict.fromkeys(("min_bytes", "max_bytes"), "1G" if gpus else "1M")
        osu = {**sizes, "tests": (f"osu_{case.replace('all_', 'all')}",)}
        measured = ("nccl", {**sizes, "collectives": (case,)}) if gpus else ("osu", osu)
        return Rung(name, f"{case} of {more}", *measured, after="pairs", absent=few, **kind)

    rungs = [alone("gpus", "GPUs and NVLink of each node", "nccl", absent=no_gpus)]
    if how.level != LEVELS[0]:
        rungs.append(alone("nics", "Each NIC of each node", "pingpong", absent=no_nics))
        rungs.append(
            Rung(
                "rails",
                "Each NIC between nodes",
                "perftest",
                {},
                "rails",
                "nics",
                absent=few or no_nics,
            )
        )
    rungs.append(Rung("pairs", "Pairs of nodes", pairs, mode="diagnose", after=first, absent=few))
    rungs += [together(f"{ALL}{case}", case, "all nodes") for case in cases]
    if how.level == LEVELS[-1]:
        rungs.append(Rung(SOAK, "All nodes under load", after="pairs", absent=few))
        rungs += [
            together(f"drift:{case}", case, "all nodes again", baseline=f"{ALL}{case}")
            for case in cases
        ]
    if how.background:
        half = partial(together, case=cases[0], half=True)
        rungs.append(half("quiet", more="half of the nodes, the others quiet"))
        rungs.append(
            half("interference", more="half of the nodes, the others loaded", baseline="quiet")
        )
    return rungs


def every_rung() -> Iterator[Rung]:
    """Yield the rungs of any machines that measure, some of them several times.

    For GPUs, and without.
    """
    for gpus, profile in product((2, 0), _PROFILES):
        hosts = tuple(Host(name=name, gpus=gpus, devices={"nic": "ib"}) for name in "ab")
        how = AcceptOptions(level=LEVELS[-1], profile=profile, background=True)
        yield from (
            each for each in ladder(Inventory(target="", hosts=hosts), how) if each.benchmark
        )


def needs() -> Needs:
    """Return what the rungs of any machines may need; nothing of it is required."""
    every = [rung.work.needs for rung in every_rung()]
    programs = dict.fromkeys(program for each in every for program in each.programs)
    folders = {program: folder for each in every for program, folder in each.folders.items()}
    return Needs(
        programs=(*programs,), install="", optional=True, mpi=True, divided=True, folders=folders
    )


def write_thresholds(file: Path, certificate: Certificate) -> None:
    """Write limits from the figures of a ladder: `_MARGIN` worse than these."""
    relative, limits = (
        {each.name for each in every_rung() if each.baseline},
        defaultdict[str, list[str]](list),
    )
    for rung in certificate.rungs:
        for figure in rung.figures if rung.name not in relative else ():
            sign, factor = (
                ("<=", 1 + _MARGIN)
                if METRICS[figure.metric].lower_is_better
                else (">=", 1 - _MARGIN)
            )
            text = f"{figure.what}{sign}{replace(figure, value=figure.value * factor)}"
            limits[rung.name].append(text.replace(" at ", "@").replace(" ", ""))
    write(file, limits)


def read_thresholds(file: Path) -> Mapping[str, tuple[str, ...]]:
    """Return rung → gates.

    Raise MachineError if they cannot be read, RequestError for an invalid one.
    """
    known = dict.fromkeys(rung.name for rung in every_rung())
    try:
        limits = read(file, dict[str, tuple[str, ...]])
        for name, gates in limits.items():
            parse_gates(gates)
            if name not in known:
                raise RequestError(f"{name} is no rung with figures.")
    except FabbenchError as error:
        hint = (
            f"{file} has lists of gates by rung ({', '.join(known)}); --write-thresholds FILE "
            "writes one."
        )
        raise type(error)(str(error), hint=f"{error.hint or ''} {hint}".strip()) from None
    return limits
