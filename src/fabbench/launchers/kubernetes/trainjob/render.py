"""The format ``trainjob``: a TrainJob of Kubeflow Trainer v2, and a runtime of its own.

A TrainJob alone cannot say all that pods need, such as IPC_LOCK. Trainer makes a JobSet of both,
whose name is the TrainJob's. Fields: kubeflow/trainer, pkg/apis/trainer/v1alpha1, and what its
webhooks require of a runtime: the label of the job, and the name of the container.
"""

from fabbench.launchers.kubernetes.jobset.render import JobSetManifest


class TrainJobManifest(JobSetManifest):
    """The format ``trainjob``."""

    name = "trainjob"
    what = "A TrainJob of Kubeflow Trainer v2, with its runtime,"
    objects = ("runtime", "trainjob")
    container = "node"


RENDERING = TrainJobManifest()
