"""The format ``slurm``.

A batch script with directives, as ``fabbench run --on slurm`` submits it.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from fabbench.execution.script import script
from fabbench.execution.script.target import READ_SLURM
from fabbench.launchers import Rendering, RenderInput
from fabbench.launchers.batch_job import longest_s, most_ranks
from fabbench.launchers.slurm import SlurmOptions, format_time_limit
from fabbench.model.errors import RequestError
from fabbench.model.mappings import Names
from fabbench.model.plan import Words
from fabbench.model.templates import text_of

OUTPUT = "fabbench-%j.out"  # The output file; ``%j`` is the job's id
JOB_NAME = "fabbench-"  # The prefix of job names
# Variables that would make a different job of it, without ``SBATCH_``.
_OVERRULING = (
    *(
        "ARRAY_INX",
        "ERROR",
        "EXPORT",
        "GPUS",
        "GPUS_PER_TASK",
        "INPUT",
        "MEM_PER_CPU",
        "MEM_PER_GPU",
    ),
    *("REQUEUE", "WAIT"),
)
_VARIABLES = {
    "time": "TIMELIMIT",
    "mem": "MEM_PER_NODE",
}  # Options whose variables have different names
_TASKS = re.compile(r"^#SBATCH --ntasks-per-node=(\d+)", re.MULTILINE)
_DIRECTIVE = re.compile(r"^#SBATCH --([a-z-]+)", re.MULTILINE)


def _slurm_options(options: SlurmOptions) -> Iterator[tuple[str, str]]:
    """Yield name and value of the given options that sbatch and srun have under the same name."""
    for name in ("partition", "account", "qos", "reservation", "constraint", "chdir"):
        if value := getattr(options, name):
            yield name, value


def requests(  # noqa: PLR0913 - what a job requests
    options: SlurmOptions,
    name: str,
    *,
    nodes: int,
    tasks: int,
    gpus: int,
    named: Sequence[str],
    limit_s: float | None,
    more: Sequence[str] = (),
) -> list[str]:
    """Return what sbatch or srun is to request for a job, without the dashes.

    `tasks` and `gpus` are per node; no limit: the partition's; `named` are the nodes to use.
    """
    lines = [f"job-name={JOB_NAME}{name}", f"nodes={nodes}", f"ntasks-per-node={tasks}"]
    if gpus and not options.no_gres:
        lines.append(f"gpus-per-node={gpus}")
    lines += ("exclusive", "mem=0")  # whole nodes, with all of their memory
    time = options.time
    if limit_s and not time:
        minutes = math.ceil(limit_s / 60)
        time = format_time_limit(60 * minutes)
    if time:
        lines.append(f"time={time}")
    lines += more
    lines += [f"{name}={value}" for name, value in _slurm_options(options)]
    lines += options.sbatch_options
    if named:
        nodelist = ",".join(named)
        lines.append(f"nodelist={nodelist}")
    return lines


def directives(
    options: SlurmOptions, name: str, *, more: Sequence[str] = (), **requested: Any
) -> str:
    """Return the lines that say what a job requests; `requested` is as for `requests`."""
    of_scripts = (f"output={OUTPUT}", "no-requeue", *more)  # only a script has these
    lines = requests(options, name, more=of_scripts, **requested)
    return "".join(f"#SBATCH --{text}\n" for text in lines)


def overruling(script: str) -> Names:
    """Return the names of the variables that would override lines of a script for sbatch.

    Each option that a line sets has one, and some would make a different job of any script.
    """
    options = _DIRECTIVE.findall(script)
    # Most variables are named after their option; `_VARIABLES` has the others.
    of_options = {_VARIABLES.get(name) or _as_variable(name) for name in options}
    return tuple(f"SBATCH_{name}" for name in sorted(of_options.union(_OVERRULING)))


def _as_variable(option: str) -> str:
    """Return the end of the name of an option's variable: SBATCH_CPUS_PER_TASK."""
    return option.upper().replace("-", "_")


_SCHEME = "docker://"


def hold_script(document: str) -> str:
    """Return the script of a job that requests what a document does, and only holds its nodes."""
    requested = [line for line in document.splitlines() if line.startswith("#SBATCH ")]
    body = text_of("fabbench.launchers.slurm", "hold.sh")
    return "\n".join(("#!/usr/bin/env bash", *requested, body))


def tasks_per_node(document: str) -> int:
    """Return the maximum number of ranks that a document starts per node."""
    return int(_TASKS.findall(document)[0])


class SlurmRendering(Rendering):
    """A batch script: ``sbatch SCRIPT``, or ``bash SCRIPT`` on the first node of an allocation."""

    name: Final = "slurm"
    options = SlurmOptions
    inherits = True

    def render(self, source: RenderInput) -> str:
        """Return the script. Raise RequestError for what a script cannot express."""
        options = source.options_as(SlurmOptions)
        chosen = source.request.target.hosts
        if len(chosen) > source.plan.hosts:
            raise RequestError(
                f"{len(chosen)} nodes were given, but {source.plan.hosts} are used.",
                hint="Drop --nodes.",
            )
        if source.request.target.mpirun and options.mpi == "srun":
            raise RequestError(
                "--mpirun has no effect when srun starts the ranks.",
                hint="Add --mpi mpirun, or drop it.",
            )
        plan = source.plan
        lines = directives(
            options,
            plan.benchmark,
            nodes=plan.hosts,
            tasks=most_ranks(plan),
            gpus=source.gpus,
            named=chosen,
            limit_s=longest_s(plan),
        )
        target = source.script_target(
            READ_SLURM,
            ranks_by_srun=options.mpi == "srun",
            programs_by_srun=True,
            inside=lambda image: _container(options, image or options.image),
            head=source.command + lines,
            # Else sbatch's --export is srun's, too, which would drop variables of the script
            opening="export SLURM_EXPORT_ENV=ALL\n",
        )
        return script(source.plan, target)


RENDERING: Rendering = SlurmRendering()


def _container(options: SlurmOptions, name: str) -> Words:
    """Return the Pyxis options for an image; none for no image."""
    if not name:
        if options.container_mounts:
            raise RequestError(
                "--container-mounts needs a container.", hint="Pass one with --image NAME."
            )
        return ()
    mounts = ",".join(options.container_mounts)
    image = f"--container-image={container_image(name)}"
    return (image, f"--container-mounts={mounts}") if mounts else (image,)


def container_image(name: str) -> str:
    """Return an image's name in the form of Pyxis's ``--container-image``.

    A file is a squashfs image.

    enroot expects ``docker://REGISTRY#PATH``: without the ``#`` it uses Docker's own registry (its
    doc/cmd/import.md).
    """
    if name.startswith(("/", "./", "~")) or name.endswith(".sqsh"):
        return name
    path = name.removeprefix(_SCHEME)
    first, slash, rest = path.partition("/")
    if "#" not in path and slash and ("." in first or ":" in first or first == "localhost"):
        path = f"{first}#{rest}"
    return f"{_SCHEME}{path}"
