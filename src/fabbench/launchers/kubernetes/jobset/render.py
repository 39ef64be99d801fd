"""The format ``jobset``: the Indexed Job as the only one of a JobSet, which names its pods.

Fields: kubernetes-sigs/jobset, api/jobset/v1alpha2/jobset_types.go.
"""

from fabbench.launchers.kubernetes.render import KubernetesManifests
from fabbench.model.mappings import Names


class JobSetManifest(KubernetesManifests):
    """The format ``jobset``."""

    name = "jobset"
    what = "A JobSet"
    objects: Names = ("jobset",)
    label = "jobset.sigs.k8s.io/jobset-name"
    first_names = "{name}-node-0"  # JobSet's name, that of its job, the job's number


RENDERING = JobSetManifest()
