"""The launcher and format ``lsf``: a script submitted to LSF. Its options."""

from fabbench.launchers.shared_options import QueueOptions

OPTIONS = QueueOptions
