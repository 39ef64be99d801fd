"""Options of every benchmark's command, which `defaults.run` of `fabbench.yaml` may have too."""

from collections.abc import Mapping
from pathlib import Path

from fabbench.model.mappings import Names
from fabbench.model.options import FABRIC, Environment, File, Flag, Seconds, Text, Whole, option
from fabbench.model.values import frozen


@frozen
class RunOptions:
    """Options of every benchmark's command."""

    on: str | None = option(
        Text("a target", "TARGET"),
        "Where to run: a target of fabbench.yaml, or a launcher. Default: FABBENCH_TARGET.",
    )
    fabrics: Names = option(
        FABRIC,
        "Add a configuration on this fabric: efa, ib, roce, tcp, p2p, shm, or any libfabric "
        "provider. "
        "Default: the best one available.",
        "--fabric",
        many=tuple,
    )
    variants: Names = option(
        Text("a variant", "NAME=…"),
        "Add a configuration, on each fabric, that differs in something else: "
        "NAME=/DIRECTORY[:/DIRECTORY…] "
        "for programs and libraries installed there, NAME=KEY=VALUE[,KEY=VALUE…] for path, image, "
        "interface, mpirun or a variable, NAME=host-network for pods in their nodes' network, "
        "NAME for "
        "one from fabbench.yaml, NAME= for no changes.",
        "--variant",
        many=tuple,
    )
    repeats: int | None = option(
        Whole(1, 999, "N|auto", auto=True),
        "Repeats of each configuration, in turns (A B B A). auto: until every gate, or else the "
        "headline, is decided. "
        "Default: 3 with several configurations, else 1.",
        "--repeat",
    )
    max_repeats: int | None = option(
        Whole(3, 999),
        "Maximum repeats with --repeat auto, or of each variant of a tune. Default: 20.",
        "--max-repeats",
    )
    max_time: float | None = option(
        Seconds(),
        "With --repeat auto, or in each run of a tune, start no repeat after this time.",
        "--max-time",
    )
    env: Mapping[str, str | None] = option(
        Environment(passed=True),
        "Environment variable of every configuration. NAME alone takes its value from the "
        "current environment, "
        "and keeps it out of command lines and stored files. Can be given several times.",
        "--env",
        many=dict,
    )
    dry_run: bool = option(
        Flag(),
        (
            "Only show what would run. Nodes, commands, environment, executions, time; nothing is "
            "started."
        ),
    )
    keep_going: bool = option(Flag(), "Do not abort an execution on the wrong network.")
    name: str = option(
        Text("a name", "NAME"),
        "Name of the run, to find it by: fabbench runs --name NAME.",
        unset="",
    )
    gates: tuple[str, ...] = option(
        Text("a gate", "GATE"),
        "Fail (exit 1) unless this holds. For the first configuration: METRIC[@SIZE[..SIZE]] and "
        ":TOLERANCE, "
        ">=LIMIT or <=LIMIT. Can be given several times.",
        "--gate",
        many=tuple,
    )
    strict: bool = option(Flag(), "Also fail inconclusive gates.")
    baseline: str | None = option(
        Text("a run or a file", "RUN|FILE"),
        (
            "What gates compare with: last-good (the newest run of this that is good), a run, "
            "RUN:CONFIG, or a log file."
        ),
    )
    metric: str | None = option(
        Text("a metric", "METRIC"), "Metric to compare. Default: the benchmark's usual one."
    )
    form: str = option(
        Text("a format", "FORMAT"),
        "Output format of the comparison.",
        "--format",
        default="markdown",
    )
    junit: Path | None = option(
        File("a file"), "Write JUnit XML to FILE: one test case per configuration and per gate."
    )
    store: Path = option(
        File("a directory", "DIRECTORY", directory=True),
        "Directory of stored runs.",
        default="fabbench-runs",
        variable="FABBENCH_STORE",
    )
