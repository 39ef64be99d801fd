"""The launcher and format ``flux``: a script submitted to Flux. Its options."""

from fabbench.launchers.shared_options import QueueOptions

OPTIONS = QueueOptions
