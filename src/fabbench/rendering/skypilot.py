"""The format ``skypilot``: a task for ``sky launch``, with both arms in it."""

from fabbench.model import Plan
from fabbench.rendering import Job
from fabbench.rendering.manifests import document
from fabbench.skypilot.infra import DEFAULT, Flavour, flavour
from fabbench.skypilot.task import task
from fabbench.skypilot.toggle import ALL, chosen, with_base

_ABOUT = """\
Written by `fabbench render {benchmark} --as skypilot`. sky launch -c fabbench FILE runs it, and
sky logs fabbench | fabbench parse - reads what it printed."""
_TOGGLE = """
envs.FABRIC chooses the arms ({arms}): sky launch -c fabbench --env FABRIC={other} FILE"""
_ON_PODS = """
SkyPilot itself mounts /dev/shm in memory. Huge pages are asked for by --pod-request."""
_ON_MACHINES = """
SkyPilot gives a machine more than one EFA interface only with aws.use_internal_ips: true, and aws.use_ssm or
aws.ssh_proxy_command, in ~/.sky/config.yaml. In a task's own config these keys are dropped in silence."""


class SkyPilot:
    """The format ``skypilot``."""

    name = "skypilot"

    def render(self, job: Job) -> str:
        """Write the task."""
        planned = with_base(job.plan, job.request, job.inventory, job.work)
        return document(task(job, planned), _about(job, planned))


def _about(job: Job, planned: Plan) -> str:
    """Say how it is used, and what SkyPilot does besides."""
    labels = [arm.label for arm in planned.arms]
    text = _ABOUT.format(benchmark=planned.benchmark)
    if len(labels) > 1:
        other = labels[-1] if chosen(job.plan) != labels[-1] else ALL
        text += _TOGGLE.format(arms=", ".join((*labels, ALL)), other=other)
    where = flavour(str(job.settings.get("infra") or DEFAULT))
    return text + {Flavour.PODS: _ON_PODS, Flavour.MACHINES: _ON_MACHINES}.get(where, "")


RENDERING = SkyPilot()
