"""What all tests share."""

import signal

from hypothesis import HealthCheck, settings

from cluster_nodes import cluster, kwok, mpijobs, namespace
from lab_hosts import lab, mpi
from sky_lab import skypilot

__all__ = ["cluster", "kwok", "lab", "mpi", "mpijobs", "namespace", "skypilot"]

# Where tests are started in the background of a script, what they start would ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No test may fail because the machine is busy.
settings.register_profile("fabbench", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fabbench")
