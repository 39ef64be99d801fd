"""The launcher ``local``: this machine only. Its options."""

from fabbench.model.options import LauncherOptions, Whole, option
from fabbench.model.values import frozen


@frozen
class LocalOptions(LauncherOptions):
    """Options of the launcher ``local``."""

    without = ("hosts", "nodes")
    divides = True
    concurrent = False

    virtual_nodes: int = option(
        Whole(1, 1024),
        "Split this machine's GPUs into N virtual hosts that NCCL connects over the loopback (lo).",
        default="1",
    )


OPTIONS = LocalOptions
