"""Options of ``mpijob``: pods of an MPIJob, for clusters with Kubeflow's operator."""

from fabbench.launchers.kubernetes import ClusterPodOptions
from fabbench.model.values import frozen


@frozen
class MpiJobOptions(ClusterPodOptions):
    """Options of the launcher and format ``mpijob``."""


OPTIONS = MpiJobOptions
