"""Options of the format ``trainjob``: those of an Indexed Job, which Kubeflow Trainer makes."""

from fabbench.launchers.kubernetes import KubernetesOptions

OPTIONS = KubernetesOptions
