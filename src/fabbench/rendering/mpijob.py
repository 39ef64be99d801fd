"""The format ``mpijob``: one object for Kubeflow's MPI operator, which runs by itself."""

from fabbench.pods.mpijob import mpijob
from fabbench.pods.share import arch_of_type
from fabbench.rendering import Job
from fabbench.rendering.manifests import asked, written
from fabbench.script import script
from fabbench.script.way import MPIJOB_HOSTS, SSH

_ABOUT = """\
For Kubeflow's MPI operator (kubeflow.org/v2beta1, 0.5 and later). The launcher's log is what `fabbench parse`
and `fabbench compare` read: kubectl logs -l training.kubeflow.org/job-role=launcher --tail=-1"""

# Workers make their host keys when they start, and the operator tells nobody which they are. It is the key of
# this job, from its Secret, that lets the launcher in.
_SSH = (*SSH, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null")


class MpiJob:
    """The format ``mpijob``."""

    name = "mpijob"

    def render(self, job: Job) -> str:
        """Write the MPIJob, with the script of all arms in its launcher."""
        wanted = asked(job)
        text = script(job.plan, job.way(MPIJOB_HOSTS, here=False, ssh=_SSH, agent=("ssh", *_SSH)))
        return written([mpijob(wanted, text, arch=arch_of_type(wanted.instance_type))], _ABOUT)


RENDERING = MpiJob()
