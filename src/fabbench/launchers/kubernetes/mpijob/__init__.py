"""Options of ``mpijob``: pods of an MPIJob, for clusters with Kubeflow's operator."""

from dataclasses import dataclass

from fabbench.launchers.kubernetes import ClusterPodOptions


@dataclass(frozen=True, kw_only=True)
class MpiJobOptions(ClusterPodOptions):
    """Options of the launcher and format ``mpijob``."""


OPTIONS = MpiJobOptions
