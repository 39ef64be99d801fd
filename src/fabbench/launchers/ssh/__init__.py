"""The launcher ``ssh``: hosts that ssh reaches; the first runs mpirun. Its options."""

from fabbench.model.values import frozen
from fabbench.remote import SshOptions


@frozen
class SshLauncherOptions(SshOptions):
    """Options of the launcher ``ssh``."""

    requires = ("hosts",)
    divides = True


OPTIONS = SshLauncherOptions
