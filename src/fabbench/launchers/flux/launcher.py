"""The launcher ``flux``."""

from fabbench.launchers.queues import QueueLauncher, batch_system

LAUNCHER = QueueLauncher(batch_system("flux"))
