"""The format ``lsf``."""

from fabbench.launchers.queues import QueueRendering, batch_system

RENDERING = QueueRendering(batch_system("lsf"))
