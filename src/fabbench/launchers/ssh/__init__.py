"""The launcher ``ssh``: hosts that ssh reaches; the first runs mpirun. Its options."""

from dataclasses import dataclass

from fabbench.model.option_types import Choice
from fabbench.model.options import option
from fabbench.remote.options import SshOptions


@dataclass(frozen=True, kw_only=True)
class SshLauncherOptions(SshOptions):
    """Options of the launcher ``ssh``."""

    requires = ("hosts",)
    logins = True
    divides = True

    mpi_ssh: str = option(
        Choice(("ephemeral", "existing")),
        "How mpirun reaches the other hosts: with a key generated for this run and removed after it "
        "(ephemeral), or with the hosts' own ssh setup (existing).",
        default="ephemeral",
        only="run",
    )


OPTIONS = SshLauncherOptions
