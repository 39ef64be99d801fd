"""The rungs of ``fabbench accept`` and their limits, as data.

Each rung is a run or a sweep that exists anyway.
"""

from collections.abc import Iterator, Mapping, Sequence
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
from fabbench.model.mappings import distinct, without_empty
from fabbench.model.options import (
    FABRIC,
    Choice,
    File,
    Flag,
    Seconds,
    Whole,
    declared,
    option,
    parsed,
)
from fabbench.model.values import frozen
from fabbench.plan.gates import parse_gates
from fabbench.report.certificate import ALL, Certificate, RungFigure
from fabbench.runs.document import read, write

LEVELS = ("quick", "full", "soak")
CHECK = "check"  # Rungs without a benchmark of their own
SOAK = "soak"
_PROFILES = {
    "training": ("all_reduce", "all_gather", "reduce_scatter"),
    "inference": ("all_reduce", "alltoall", "sendrecv"),
    "hpc": ("all_reduce", "alltoall"),
}


@frozen
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
    timeout: float | None = option(
        Seconds(), "Abort a test of one node or of a pair that takes longer. Default: the sweep's."
    )
    iterations: int | None = option(
        Whole(5), "Timed operations of such a test; fewer make it shorter. Default: the sweep's."
    )
    soak: float = option(Seconds(), "How long --level soak keeps all nodes loaded.", default="3600")
    background: bool = option(Flag(), "Also measure half of the nodes while the others are loaded.")
    thresholds: Path | None = option(
        File("a file"), "Limits to judge by, as --write-thresholds wrote them."
    )
    write_thresholds: Path | None = option(
        File("a file"), "If nothing is bad, write limits that are worse by --tolerance."
    )


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung of the ladder."""

    name: str
    what: str = ""  # For people
    benchmark: str = ""
    # Of the benchmark, as users write them
    options: Mapping[str, Any] = field(default_factory=dict)
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
        given = dict(self.options)
        if self.mode or self.alone:  # a run of one node alone is as short as a sweep's test
            given = {**benchmark.sweep_defaults, **given}
        known = declared(kind)
        values = {
            name: parsed(known[name], text)
            for name, text in given.items()  # as users write them
        }
        work: Work = kind(**values)
        # On one node alone each NIC is measured, if the benchmark can choose them
        return benchmark.each_nic(work) if self.alone else work


@frozen
class _Nodes:
    """What rungs depend on, and sentences: why some do not apply to the nodes; empty: they do."""

    gpus: bool
    no_pairs: str
    no_gpus: str
    no_nics: str

    @classmethod
    def of(cls, inventory: Inventory) -> "_Nodes":
        """Return what is so of an inventory: what only some nodes have, counts."""
        hosts = inventory.hosts
        gpus = max((host.gpus for host in hosts), default=0)
        # What is measured between the GPUs of a node takes two.
        no_gpus = {0: "The nodes have no GPUs.", 1: "The nodes have one GPU each."}
        kinds = {kind for host in hosts for kind in host.devices.values()}
        return cls(
            gpus=gpus > 0,
            no_pairs="" if len(hosts) > 1 else "There is one node.",
            no_gpus=no_gpus.get(gpus, ""),
            no_nics="" if kinds - {"unknown"} else "The nodes have no RDMA NICs.",
        )

    def alone(self, name: str, what: str, benchmark: str, absent: str) -> Rung:
        """Return a rung that tests each node by itself: a sweep, or of one node a run."""
        mode = "" if self.no_pairs else "single"
        return Rung(name, what, benchmark, mode=mode, alone=True, absent=absent)

    def together(self, name: str, case: str, which_nodes: str, **fields: Any) -> Rung:
        """Return a rung of a collective of all nodes, or of half of them: by NCCL with GPUs.

        `fields`: others of the rung.
        """
        size = "1G" if self.gpus else "1M"
        options: dict[str, Any] = {"min_bytes": size, "max_bytes": size}
        if self.gpus:
            benchmark = "nccl"
            options["collectives"] = (case,)
        else:
            benchmark = "osu"
            test = case.replace("all_", "all")  # as OSU spells allreduce
            options["tests"] = (f"osu_{test}",)
        what = f"{case} of {which_nodes}"
        return Rung(name, what, benchmark, options, after="pairs", absent=self.no_pairs, **fields)


def ladder(inventory: Inventory, how: AcceptOptions) -> list[Rung]:
    """Return the rungs for machines like these, in order.

    What only some nodes have is tested: the others lack it.
    """
    nodes = _Nodes.of(inventory)
    cases = _collectives(nodes, how)
    of_nodes = _rungs_of_nodes(nodes, thorough=how.level != LEVELS[0])
    given = without_empty({"timeout_s": how.timeout, "iterations": how.iterations})
    options = {name: format(value, ".15g") for name, value in given.items()}
    of_nodes = (replace(each, options=options) for each in of_nodes)  # they have none of their own
    rungs = [
        *of_nodes,
        *(nodes.together(f"{ALL}{case}", case, "all nodes") for case in cases),
    ]
    if how.level == LEVELS[-1]:
        rungs.append(Rung(SOAK, "All nodes under load", after="pairs", absent=nodes.no_pairs))
        for case in cases:  # the same as before the load, to compare with
            again = nodes.together(
                f"drift:{case}", case, "all nodes again", baseline=f"{ALL}{case}"
            )
            rungs.append(again)
    if how.background:
        half = partial(nodes.together, case=cases[0], half=True)
        loaded = "half of the nodes, the others loaded"
        rungs.append(half("quiet", which_nodes="half of the nodes, the others quiet"))
        rungs.append(half("interference", which_nodes=loaded, baseline="quiet"))
    return rungs


def _collectives(nodes: _Nodes, how: AcceptOptions) -> Sequence[str]:
    """Return the collectives that all nodes run together: of the quick level only one."""
    cases = _PROFILES[how.profile]
    if not nodes.gpus:
        cases = tuple(case for case in cases if case != "sendrecv")  # which OSU does not have
    return cases[:1] if how.level == LEVELS[0] else cases


def _rungs_of_nodes(nodes: _Nodes, *, thorough: bool) -> Iterator[Rung]:
    """Yield the tests of nodes by themselves and of pairs; `thorough`: of NICs, too."""
    yield nodes.alone("gpus", "GPUs and NVLink of each node", "nccl", nodes.no_gpus)
    if thorough:
        yield nodes.alone("nics", "Each NIC of each node", "pingpong", nodes.no_nics)
        yield Rung(
            "rails",
            "Each NIC between nodes",
            "perftest",
            mode="rails",
            after="nics",
            absent=nodes.no_pairs or nodes.no_nics,
        )
    yield Rung(
        "pairs",
        "Pairs of nodes",
        "nccl" if nodes.gpus else "pingpong",
        mode="diagnose",
        after="gpus" if nodes.gpus else CHECK,
        absent=nodes.no_pairs,
    )


def every_rung() -> Iterator[Rung]:
    """Yield the rungs with figures that any machines may have, before theirs are known.

    One that machines with GPUs and those without have is there several times.
    """
    for gpus, profile in product((2, 0), _PROFILES):
        # Two nodes with RDMA NICs, to which every rung applies; GPUs are tested from two on
        hosts = tuple(Host(name=name, gpus=gpus, devices={"nic": "ib"}) for name in "ab")
        how = AcceptOptions(level=LEVELS[-1], profile=profile, background=True)
        inventory = Inventory(target="", hosts=hosts)
        yield from (each for each in ladder(inventory, how) if each.benchmark)


def needs() -> Needs:
    """Return what the rungs of any machines may need; nothing of it is required.

    `divided`: a rung may run on a part of the nodes, with its own mpirun.
    """
    every = [rung.work.needs for rung in every_rung()]
    programs = distinct(program for each in every for program in each.programs)
    folders = {program: folder for each in every for program, folder in each.folders.items()}
    return Needs(
        programs=programs, install="", optional=True, mpi=True, divided=True, folders=folders
    )


def write_thresholds(file: Path, certificate: Certificate, tolerance: float) -> None:
    """Write limits from the figures of a ladder: worse than these by the tolerance."""
    # These are compared with another rung, and need no limits.
    relative = {each.name for each in every_rung() if each.baseline}
    limits = {
        rung.name: [_limit(figure, tolerance) for figure in rung.figures]
        for rung in certificate.rungs
        if rung.figures and rung.name not in relative
    }
    write(file, limits)


def _limit(figure: RungFigure, tolerance: float) -> str:
    """Return the gate that a figure just holds if it is worse by the tolerance."""
    lower_is_better = METRICS[figure.metric].lower_is_better
    bound = "<=" if lower_is_better else ">="
    margin = tolerance if lower_is_better else -tolerance
    worst = replace(figure, value=figure.value * (1 + margin))
    text = f"{figure.what}{bound}{worst}"
    return text.replace(" at ", "@").replace(" ", "")  # `busbw at 1 GB` → `busbw@1GB`


def read_thresholds(file: Path) -> Mapping[str, tuple[str, ...]]:
    """Return rung → gates.

    Raise MachineError if they cannot be read, RequestError for an invalid one.
    """
    known = distinct(rung.name for rung in every_rung())
    try:
        limits = read(file, dict[str, tuple[str, ...]])
        for name, gates in limits.items():
            parse_gates(gates)
            if name not in known:
                raise RequestError(f"{name} is no rung with figures.")
    except FabbenchError as error:
        names = ", ".join(known)
        form = f"{file} has lists of gates by rung ({names}); --write-thresholds FILE writes one."
        hint = f"{error.hint} {form}" if error.hint else form
        raise type(error)(str(error), hint=hint) from None
    return limits
