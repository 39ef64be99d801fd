"""The launcher ``ssh``: hosts that ssh reaches; the first runs mpirun. Its options."""

from dataclasses import dataclass

from fabbench.remote import SshOptions


@dataclass(frozen=True, kw_only=True)
class SshLauncherOptions(SshOptions):
    """Options of the launcher ``ssh``."""

    requires = ("hosts",)
    divides = True


OPTIONS = SshLauncherOptions
