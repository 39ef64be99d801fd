"""Options of the format ``jobset``: those of an Indexed Job, which a JobSet makes."""

from fabbench.launchers.kubernetes import KubernetesOptions

OPTIONS = KubernetesOptions
