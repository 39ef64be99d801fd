"""Options that several commands share, each declared once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from fabbench.cli.click_options import CommandT, click_options, with_parameters
from fabbench.cli.output import COMPARED
from fabbench.model.log import Proof
from fabbench.model.option_types import FABRIC, Environment, File, Flag, Parsed, Seconds, Text, Whole
from fabbench.model.options import declared, latest, option
from fabbench.model.patterns import lazy
from fabbench.model.units import parse_sizes

_AGE = lazy(r"([0-9]{1,9})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def _age(text: str) -> timedelta:
    match = _AGE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a valid age. Write 90s, 10m, 2h, 7d or 2w")
    return timedelta(seconds=int(match[1]) * _SECONDS[match[2]])


def written_age(age: timedelta) -> str:
    """Write an age in its largest whole unit, as kubectl does."""
    seconds = int(age.total_seconds())
    unit = next((unit for unit in "dhm" if seconds >= 2 * _SECONDS[unit]), "s")
    return f"{seconds // _SECONDS[unit]}{unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of every benchmark's command."""

    on: str | None = option(
        Text("a target", "TARGET"), "Where to run: a target of fabbench.yaml, or a launcher. Default: FABBENCH_TARGET."
    )
    fabrics: tuple[str, ...] = option(
        FABRIC,
        "Add a configuration on this fabric: efa, ib, roce, tcp, p2p, shm, or any libfabric provider. "
        "Default: the best one available.",
        "--fabric",
        many=tuple,
    )
    variants: tuple[str, ...] = option(
        Text("a variant", "NAME=…"),
        "Add a configuration, on each fabric, that differs in something else: NAME=/DIRECTORY[:/DIRECTORY…] "
        "for programs and libraries installed there, NAME=KEY=VALUE[,KEY=VALUE…] for path, image, "
        "interface, mpirun or a variable, NAME=host-network for pods in their nodes' network, NAME for "
        "one from fabbench.yaml, NAME= for no changes.",
        "--variant",
        many=tuple,
    )
    repeats: int | None = option(
        Whole(1, 999, "N|auto", auto=True),
        "Repeats of each configuration. auto: until every gate, or else the headline, is decided. "
        "Default: 3 with several configurations, else 1.",
        "--repeat",
    )
    max_repeats: int | None = option(Whole(3, 999), "Maximum repeats with --repeat auto. Default: 20.", "--max-repeats")
    max_time: float | None = option(Seconds(), "With --repeat auto, start no repeat after this time.", "--max-time")
    env: Mapping[str, str | None] = option(
        Environment(passed=True),
        "Environment variable of every configuration. NAME alone takes its value from the current environment, "
        "and keeps it out of command lines and stored files. Can be given several times.",
        "--env",
        many=latest,
    )
    dry_run: bool = option(
        Flag(), "Only show what would run. Nodes, commands, environment, executions, time; nothing is started."
    )
    keep_going: bool = option(Flag(), "Do not abort an execution on the wrong network.")
    name: str = option(Text("a name", "NAME"), "Name of the run, to find it by: fabbench runs --name NAME.", unset="")
    gates: tuple[str, ...] = option(
        Text("a gate", "GATE"),
        "Fail (exit 1) unless this holds. For the first configuration: METRIC[@SIZE[..SIZE]] and :TOLERANCE, "
        ">=LIMIT or <=LIMIT. Can be given several times.",
        "--gate",
        many=tuple,
    )
    strict: bool = option(Flag(), "Also fail inconclusive gates.")
    baseline: str | None = option(
        Text("a run or a file", "NAME|RUN|FILE"),
        "What gates compare with. A name (fabbench baseline set), last-good, a run, RUN:CONFIG, or a log file.",
    )
    metric: str | None = option(Text("a metric", "METRIC"), "Metric to compare. Default: the benchmark's usual one.")
    form: str = option(Text("a format", "FORMAT"), "Output format of the comparison.", "--format", default=COMPARED[0])
    junit: Path | None = option(
        File("a file"), "Write JUnit XML to FILE: one test case per configuration and per gate."
    )
    store: Path = option(
        File("a directory", "DIRECTORY", directory=True),
        "Directory of stored runs.",
        default="fabbench-runs",
        variable="FABBENCH_STORE",
    )


@dataclass(init=False, repr=False, eq=False)  # It is only declared: `parse --help` makes it, too
class PastOptions:
    """Options of commands that read logs and past runs."""

    sizes: range | None = option(
        Parsed("sizes", "SIZE[..SIZE]", parse_sizes), "Only these message sizes: 1M, 1M..1G, 1M.., ..64K.", "--size"
    )
    fabric: str | None = option(
        Text("a fabric", "NAME"),
        "Judge the logs as measured on this fabric (efa, tcp, ib, roce, shm, p2p, ofi-tcp, or a libfabric "
        "provider): a log that shows another transport is off-fabric, one that shows none is unproven.",
    )
    instance_type: str | None = option(
        Text("an instance type", "TYPE"),
        "Type of the nodes, such as p5.48xlarge, or the link of one NIC, such as ib-ndr, if the log does not state "
        "it. It tells whether figures are normal; fewer EFA NICs than the type has are off-fabric.",
    )
    nodes: int | None = option(Whole(1, 65536), "Number of nodes, if the log does not state it.")
    nics: int | None = option(Whole(0, 1024), "Required NICs per rank (0: any). Default: those of the instance type.")
    benchmark: str | None = option(Text("a benchmark", "NAME"), "Only runs of this benchmark.")
    target: str | None = option(Text("a target", "TARGET"), "Only runs on this target.", "--on")
    name: str | None = option(Text("a name", "NAME"), "Only runs with this name (run --name).")
    wide: bool = option(Flag(), "Show all columns, however wide the table is.")
    since: timedelta | None = option(Parsed("an age", "AGE", _age), "Only runs younger than AGE: 90m, 12h, 7d, 4w.")
    older_than: timedelta | None = option(Parsed("an age", "AGE", _age), "Remove runs older than AGE: 12h, 30d, 8w.")
    yes: bool = option(Flag(), "Do not ask for confirmation.")


FILTERS = ("benchmark", "target", "name")
"""Which runs of a store."""
ON_NODES = ("instance_type", "nodes", "nics")
"""What logs ran on: `known_proof` combines them."""


def takes(*names: str, **instead: str) -> Callable[[CommandT], CommandT]:
    """Add shared options to a command; those of `instead` with another help."""
    known = {**declared(RunOptions), **declared(PastOptions)}
    made = [replace(known[name], help=instead.get(name, known[name].help)) for name in (*names, *instead)]
    return with_parameters(click_options(made))


def known_proof(**known: Any) -> Proof | None:
    """Return what logs are judged against; None: nothing. Raise RequestError for an unknown type."""
    given = {name: value for name, value in known.items() if value is not None}
    if "instance_type" in given:
        from fabbench.catalog.expectations import require_system

        given["instance_type"] = require_system(given["instance_type"]).name
    return Proof(**given) if given else None
