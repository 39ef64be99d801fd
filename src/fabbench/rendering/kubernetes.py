"""The format ``kubernetes``: the objects that ``fabbench run --on kubernetes`` makes."""

from fabbench.pods.workload import without_private_keys, workload
from fabbench.rendering import Job
from fabbench.rendering.manifests import asked, written

_ABOUT = """\
What `fabbench run --on kubernetes` makes, less the private key of the run, and with the type of nodes in
place of the nodes that it chooses. The pods wait for programs that fabbench starts in them by exec, and end
soon after they last heard of it. For a job that runs by itself: --as mpijob."""


class Kubernetes:
    """The format ``kubernetes``."""

    name = "kubernetes"

    def render(self, job: Job) -> str:
        """Write the Job, its Secret and its Service."""
        return written(without_private_keys(workload(asked(job))), _ABOUT)


RENDERING = Kubernetes()
