"""The launcher ``pbs``."""

from fabbench.launchers.queues import QueueLauncher, batch_system

LAUNCHER = QueueLauncher(batch_system("pbs"))
