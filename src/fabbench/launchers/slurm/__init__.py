"""The launcher ``slurm``: steps of a job submitted from a login node, or of an allocation.

Its options.
"""

import re

from fabbench.launchers.shared_options import (
    InstanceOptions,
    LoginOptions,
    name_in,
)
from fabbench.model.compat import override
from fabbench.model.mappings import Variables
from fabbench.model.options import IMAGE, RARE, Choice, Flag, Text, Type, option
from fabbench.model.values import frozen

# A value in an ``#SBATCH`` line: no blanks, no quotes, nothing that a shell expands.
_WORD = r"^[^\s\"'`$\\#-][^\s\"'`$\\#]*$"
_SLURM_NAME = name_in("Slurm")
_OPTION = re.compile(r"[a-z][a-z-]*(?:=[^\s\"'`$\\#]+)?")
# Options that fabbench sets itself, or with which it could not follow the job.
_RESERVED = frozenset({
    *("array", "comment", "error", "input", "nodes", "ntasks", "ntasks-per-node", "open-mode"),
    *("output", "parsable", "test-only", "wait", "wrap"),
})  # fmt: skip


def format_time_limit(limit_s: int) -> str:
    """Format seconds as a time limit: ``D-HH:MM:SS``, without days if there are none."""
    minutes, seconds = divmod(limit_s, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    text = f"{hours:02}:{minutes:02}:{seconds:02}"
    return f"{days}-{text}" if days else text


def _sbatch_option(text: str) -> str:
    if not _OPTION.fullmatch(text):
        raise ValueError(f"{text!r} is not a valid sbatch option, such as exclude=node7")
    if text.partition("=")[0] in _RESERVED:
        raise ValueError(f"{text!r} is set by fabbench itself; remove it")
    return text


@frozen
class SlurmOptions(LoginOptions, InstanceOptions):
    """Options of the launcher and format ``slurm``."""

    order = 1
    divides = True
    without = ("silence_s",)  # A job's script has no silence limit

    partition: str | None = option(_SLURM_NAME, "Slurm partition. Default: the cluster's default.")
    qos: str | None = option(_SLURM_NAME, "Slurm quality of service.")
    reservation: str | None = option(_SLURM_NAME, "Slurm reservation.")
    constraint: str | None = option(
        Text("features", "FEATURES", _WORD), "Slurm node features to require."
    )
    mpi: str = option(
        Choice(("srun", "mpirun")),
        "What starts the ranks in a Slurm job: srun with PMIx, or mpirun.",
        default="srun",
    )
    image: str = option(
        IMAGE, "Container image of the job (Pyxis). Default: no container.", unset=""
    )
    container_mounts: tuple[str, ...] = option(
        Text("FROM:TO", "FROM:TO", r"^[^\s,]+:[^\s,]+$"),
        "Directory to mount into the job's container (--image). Can be given several times.",
        many=tuple,
    )
    chdir: str | None = option(
        Text("a directory", "DIRECTORY", _WORD),
        "Directory in which the job starts. A script of render writes its output there.",
        RARE,
    )
    sbatch_options: tuple[str, ...] = option(
        Type("NAME=VALUE", "NAME=VALUE", _sbatch_option),
        "Additional sbatch option, such as exclude=node7. Can be given several times.",
        "--sbatch-option",
        many=tuple,
    )
    job: str | None = option(
        Text("a job id, such as 4711", "ID", r"^[0-9][0-9_+]*$"),
        "A Slurm job: its nodes are watched.",
        only="watch",
    )
    no_gres: bool = option(Flag(), "Do not request GPUs (for clusters without GRES).", RARE)

    @override
    def surroundings(self, environment: Variables) -> tuple[bool, str]:
        # Whether the launcher is implied, and by what, or why not.
        if self.job:
            return True, "implied by --job"
        if "SLURM_JOB_ID" in environment:
            return True, "this is inside a Slurm allocation"
        sentence = "this is not inside a Slurm allocation (SLURM_JOB_ID is not set)"
        return False, sentence


OPTIONS = SlurmOptions
