"""The launcher ``mpijob``: a run as one MPIJob, where Kubeflow's operator is installed."""

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fabbench.check import Around, Check, Status
from fabbench.errors import MachineError
from fabbench.instances import instance
from fabbench.jobs import JobPlace
from fabbench.kube.client import Cluster
from fabbench.kube.found import nodes, require_rights, site_of, wish_of
from fabbench.kube.mpijob import MpiJobRun, Patience, require_operator
from fabbench.launchers import Examined, Progress
from fabbench.machines import Needs, Where
from fabbench.offline import inventory_of
from fabbench.pods.checks import check_nodes
from fabbench.pods.choice import check_choice, choose, wished
from fabbench.pods.images import image_of
from fabbench.pods.rights import MPIJOB
from fabbench.pods.share import requested, share_of
from fabbench.rendering import Job, rendering_named
from fabbench.telling import tell

_FILE = "mpijob.yaml"
_START_S, _LOST_S = 300.0, 60.0


class MpiJob:
    """The launcher ``mpijob``."""

    name = "mpijob"

    @contextlib.contextmanager
    def open(self, where: Where, needs: Needs) -> Iterator[JobPlace]:
        """Choose nodes, and say what is known of them. Leaving it leaves nothing in the cluster."""
        settings = where.settings
        site = site_of(where)
        require_operator(site)
        require_rights(site, MPIJOB, "examples/rbac-mpijob.yaml")
        chosen = choose(nodes(site), wish_of(where, needs))
        share = requested(share_of(chosen, gpus=needs.mpi), settings.get("pod_requests") or ())
        run = secrets.token_hex(4)
        told = replace(
            where,
            hosts=tuple(node.hostname for node in chosen),
            settings={**settings, "run_id": run, "pod_requests": share.texts(), "image": image_of(settings)},
        )
        of_type = instance(chosen[0].instance_type)
        known = of_type.instance_type if of_type else None
        found = inventory_of(known, len(chosen), where=told, needs=needs)
        patience = Patience(
            start_s=float(settings.get("start_timeout") or _START_S),
            lost_s=float(settings.get("lost_after") or _LOST_S),
        )
        with MpiJobRun(site, run, f"fabbench-{run}", patience, tell) as going:
            place = JobPlace(found, _Settled(told), _FILE, going.follow, begins=True)
            try:
                yield place
            finally:
                place.close()

    def examine(self, where: Where, needs: Needs, *, full: bool, progress: Progress) -> Examined:
        """Look at the cluster's nodes, and for the operator. Nothing is started."""
        del full
        site = site_of(where)
        progress("looking at the nodes", 0, 1)
        seen = nodes(site)
        wish = wish_of(where, needs)
        shown = wished(seen, replace(wish, needs_gpu=False))
        checks = (*check_nodes(shown), check_choice(seen, wish, site.context), _check_operator(site))
        return Examined(probes={}, around=Around(), checks=checks, nodes=shown)


LAUNCHER = MpiJob()


@dataclass(frozen=True, slots=True)
class _Settled:
    """The format ``mpijob``, of what was found in place of what was asked for."""

    where: Where
    name: str = "mpijob"

    def render(self, job: Job) -> str:
        """Write what `fabbench render` writes when it is told of these nodes, requests and this run."""
        return rendering_named(self.name).render(replace(job, request=replace(job.request, where=self.where)))


def _check_operator(site: Cluster) -> Check:
    try:
        require_operator(site)
    except MachineError as error:
        return Check(
            host=site.context, name="operator", status=Status.FAIL, seen=str(error), advice=error.hint or ""
        )
    seen = "The cluster knows MPIJobs of Kubeflow's (v2beta1)."
    return Check(host=site.context, name="operator", status=Status.PASS, seen=seen)
