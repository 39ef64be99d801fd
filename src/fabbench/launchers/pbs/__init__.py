"""The launcher and format ``pbs``: a script submitted to PBS. Its options."""

from fabbench.launchers.shared_options import QueueOptions

OPTIONS = QueueOptions
