"""What a rendered script needs to know about its launcher: how to list hosts, start ranks, start programs."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from fabbench.model.hosts import Inventory

SLURM_HOSTS = 'scontrol show hostnames "$SLURM_JOB_NODELIST"'
SKYPILOT_HOSTS = "printf '%s\\n' \"$SKYPILOT_NODE_IPS\""
MPIJOB_HOSTS = (
    "while read -r host _; do\n"
    "    for _ in {1..60}; do\n"
    '        ! getent hosts "$host" >/dev/null || break\n'
    "        sleep 1\n"
    "    done\n"
    "done </etc/mpi/hostfile\n"
    "cat /etc/mpi/hostfile"
)
"""Waits up to a minute for each to be in the cluster's DNS, which gets pods only after they are ready."""
NAMED_HOSTS = "tr -s ' ,' '\\n' <<<\"$* ${HOSTS:-}\""  # The script's arguments, or the variable HOSTS
SSH = (
    *("-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-o", "LogLevel=ERROR"),
    *("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"),
)
SRUN = ("--overlap", "--quiet", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--cpu-bind=none")
BATCH = ("-o", "BatchMode=yes")  # Options of ssh in a script that is meant to be read


class RankStarter(StrEnum):
    """What starts ranks on all hosts."""

    MPIRUN = "mpirun"  # Of any kind: the script distinguishes Open MPI 4, Open MPI 5 and hydra when it runs
    SRUN = "srun"


class ProgramStarter(StrEnum):
    """What starts a single program on another host."""

    SSH = "ssh"
    SRUN = "srun"


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantOverrides:
    """How a variant's configurations differ from the others."""

    mpirun: str = "mpirun"
    interface: str = ""
    inside: tuple[str, ...] | None = None  # As `ScriptTarget.inside`; None if unchanged
    folders: tuple[str, ...] = ()  # Directories that must exist on every host, or in every container


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptTarget:
    """Where a script runs, and how it starts programs there."""

    hosts: str  # A bash command that prints the hosts in rank order: the first word of each line
    ranks: RankStarter = RankStarter.MPIRUN
    reach: ProgramStarter = ProgramStarter.SSH
    here: bool = True  # Whether the script runs on the first host; otherwise it runs on none of them
    mpirun: str = "mpirun"  # Its path
    agent: tuple[str, ...] = ()  # What mpirun starts its daemons with; empty for its default
    interface: str = ""  # For MPI's own messages; if empty, any but the usual wrong ones
    extra: tuple[str, ...] = ()  # More options of mpirun, or of srun
    ssh: tuple[str, ...] = SSH  # Options of ssh
    programs: Mapping[str, str] = field(default_factory=dict)  # Program → path, the same on every host
    env: Mapping[str, str] = field(default_factory=dict)  # Environment of every rank, in addition to the plan's
    inside: tuple[str, ...] = ()  # Options of srun that start a program in a container; empty for the host itself
    toggled: bool = True  # Whether the variable FABRIC chooses configurations, in a script that is meant to be read
    command: str = ""  # A comment: the command line that generated the script
    header: str = ""  # Comments that precede everything else
    opening: str = ""  # Script text that runs before the first execution, when the directory and the traps are in place
    closing: str = ""  # Script text that runs after the last execution
    variants: Mapping[str, VariantOverrides] = field(default_factory=dict)  # Variant → what differs
    inventory: Inventory | None = None  # What NICs are judged against; None if NIC counters are not read

    def of(self, variant: str) -> "ScriptTarget":
        """Return the target of a variant's configurations."""
        overrides = self.variants.get(variant)
        if overrides is None:
            return self
        inside = self.inside if overrides.inside is None else overrides.inside
        return replace(self, mpirun=overrides.mpirun, interface=overrides.interface, inside=inside)

    @property
    def mpiruns(self) -> tuple[str, ...]:
        """Every mpirun that is used."""
        return tuple(dict.fromkeys(self.of(name).mpirun for name in self.variants or ("",)))

    @property
    def insides(self) -> tuple[tuple[str, ...], ...]:
        """The srun options of every container that is used; empty options for the host itself."""
        return tuple(dict.fromkeys(self.of(name).inside for name in self.variants or ("",)))


def named(hosts: Sequence[str]) -> str:
    """Return the command that prints these hosts."""
    return shlex.join(("printf", "%s\\n", *hosts))
