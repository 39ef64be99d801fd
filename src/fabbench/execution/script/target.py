"""What a script needs to know about where it runs: how to list hosts, start ranks and programs."""

from collections.abc import Mapping
from dataclasses import asdict, field, replace

from fabbench.model.hosts import Inventory
from fabbench.model.mappings import Paths, distinct
from fabbench.model.plan import Words
from fabbench.model.values import frozen

READ_NAMED = """\
read -ra hosts <<<"${*:-${HOSTS:-}}"
[ "${#hosts[@]}" -ge @HOSTS@ ] || { echo "usage: bash $0 HOST… (@HOSTS@ hosts)" >&2; exit 3; }
"""
READ_SLURM = 'mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")\n'
READ_SKYPILOT = 'mapfile -t hosts <<<"$SKYPILOT_NODE_IPS"\n'
READ_MPIJOB = """\
mapfile -t hosts < <(cut -d' ' -f1 /etc/mpi/hostfile)
for host in "${hosts[@]}"; do until getent hosts "$host" >/dev/null; do sleep 1; done; done
"""
"""Texts that read the array of hosts; a cluster's DNS gets pods only after they are ready."""
SSH = ("-o", "BatchMode=yes", "-o", "ServerAliveInterval=15")
SRUN = ("--overlap", "--quiet", "-N1", "-n1", "--ntasks-per-node=1", "--cpu-bind=none")


@frozen
class VariantOverrides:
    """How a variant's configurations differ from the others."""

    mpirun: str = "mpirun"
    interface: str = ""
    inside: Words = ()  # As `ScriptTarget.inside`
    folders: Paths = ()  # Directories without which nothing of it is started


@frozen
class ScriptTarget:
    """Where a script runs, and how it starts programs there."""

    hosts: str
    """Bash text that reads the array `hosts`, in rank order; ``@HOSTS@`` is how many are needed."""
    ranks_by_srun: bool = False  # Otherwise mpirun starts the ranks
    programs_by_srun: bool = False  # Otherwise ssh starts the programs on other hosts
    here: bool = True
    """Whether the script runs on the first host; otherwise it runs on none of them."""
    mpirun: str = "mpirun"
    """Its path; ``mpiexec.hydra`` is MPICH's or Intel's, everything else Open MPI's."""
    agent: Words = ()  # What mpirun starts its daemons with; empty for its default
    interface: str = ""  # For MPI's own messages; if empty, any but the usual wrong ones
    extra: Words = ()  # More options of mpirun, or of srun
    ssh: Words = SSH  # Options of ssh
    programs: Mapping[str, str] = field(default_factory=dict)
    """Program → path, the same on every host."""
    inside: Words = ()
    """Options of srun that start a program in a container; empty for the host itself."""
    folders: Paths = ()  # As `VariantOverrides.folders`
    in_container: bool = False  # Whether all that it started ends with it
    chosen_by_variable: bool = True  # Whether FABRIC=LABEL runs one configuration alone
    head: str = ""
    """Comments before everything else: the command that generated it, directives."""
    opening: str = ""  # Text before the first execution
    at_exit: str = ""  # A command that runs at the end, no matter how it ends
    variants: Mapping[str, VariantOverrides] = field(default_factory=dict)  # Variant → what differs
    inventory: Inventory | None = None
    """What NICs are judged against; None if NIC counters are not read."""

    def of(self, variant: str) -> "ScriptTarget":
        """Return the target of a variant's configurations."""
        overrides = self.variants.get(variant)
        return self if overrides is None else replace(self, **asdict(overrides))

    @property
    def mpiruns(self) -> Paths:
        """Every mpirun that is used."""
        return distinct(target.mpirun for target in self._of_variants())

    @property
    def contained(self) -> bool:
        """Whether programs run in containers."""
        return any(target.inside for target in self._of_variants())

    def _of_variants(self) -> "list[ScriptTarget]":
        """Return the target of each variant; this one if there are none."""
        return [self.of(name) for name in self.variants] or [self]
