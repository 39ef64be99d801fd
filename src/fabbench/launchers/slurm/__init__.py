"""The launcher ``slurm``: steps of a job submitted from a login node, or of an allocation.

Its options.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fabbench.launchers.shared_options import InstanceOptions, start_timeout
from fabbench.model.compat import override
from fabbench.model.options import HOST, IMAGE, RARE, Choice, Flag, Seconds, Text, Type, option
from fabbench.remote import SshOptions

_WORD = r"^[^\s\"'`$\\#-][^\s\"'`$\\#]*$"
"""A value in an ``#SBATCH`` line: no blanks, no quotes, nothing that a shell expands."""
_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.,:@+-]*$"  # A name of something in Slurm
_OPTION = re.compile(r"[a-z][a-z-]*(?:=[^\s\"'`$\\#]+)?")
_RESERVED = frozenset({
    *("array", "comment", "error", "input", "nodes", "ntasks", "ntasks-per-node", "open-mode"),
    *("output", "parsable", "test-only", "wait", "wrap"),
})  # fmt: skip
"""Options that fabbench sets itself, or with which it could not follow the job."""

# Minutes, H:MM:SS or D-HH:MM:SS.
_LIMIT = r"^(\d+(:\d\d?)?|\d+:\d\d?:\d\d?|\d+-\d\d?(:\d\d?){0,2})$"


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


@dataclass(frozen=True, kw_only=True)
class SlurmOptions(SshOptions, InstanceOptions):
    """Options of the launcher and format ``slurm``."""

    order = 1
    divides = True
    without = ("silence_s",)  # A job's script has no silence limit

    login: str | None = option(
        HOST, "Slurm login node (ssh host). Default: this machine.", only="run", reaches=True
    )
    partition: str | None = option(
        Text("a partition", "NAME", _NAME), "Slurm partition. Default: the cluster's default."
    )
    account: str | None = option(Text("an account", "NAME", _NAME), "Slurm account to charge.")
    qos: str | None = option(
        Text("a quality of service", "NAME", _NAME), "Slurm quality of service."
    )
    time: str | None = option(
        Text("a time limit: minutes, H:MM:SS or D-HH:MM:SS", "LIMIT", _LIMIT),
        "Time limit of the job, such as 2:00:00. Default: estimated from the plan.",
    )
    reservation: str | None = option(Text("a reservation", "NAME", _NAME), "Slurm reservation.")
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
    no_gres: bool = option(Flag(), "Do not request GPUs (for clusters without GRES).", RARE)
    lost_after: float = option(
        Seconds(1),
        "Abort if the login node is silent for SECONDS.",
        RARE,
        default="300",
        only="run",
    )
    start_timeout: float | None = start_timeout("a job that Slurm has not started")

    @override
    def surroundings(self, environment: Mapping[str, str]) -> tuple[bool, str]:
        if "SLURM_JOB_ID" in environment:
            return True, "this is inside a Slurm allocation"
        sentence = "this is not inside a Slurm allocation (SLURM_JOB_ID is not set)"
        return False, sentence


OPTIONS = SlurmOptions
