"""The launcher ``lsf``."""

from fabbench.launchers.queues import QueueLauncher, batch_system

LAUNCHER = QueueLauncher(batch_system("lsf"))
