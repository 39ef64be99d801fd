"""The launcher ``mpijob``: a run as one MPIJob, for clusters with Kubeflow's operator."""

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fabbench.catalog.kubernetes_resources import override_resources
from fabbench.hosts.check import Check, HostRelations, Progress, Status
from fabbench.launchers import Examined, Launcher, Rendering, RenderInput, notify, rendering_named
from fabbench.launchers.batch_job import JobAllocation
from fabbench.launchers.kubernetes.checks import MPIJOB_RIGHTS, check_nodes, nodes_overview
from fabbench.launchers.kubernetes.discover import (
    api_of,
    cluster_nodes,
    criteria_of,
    inventory_on,
    list_nodes,
    notify_undeclared,
    require_claims,
    require_profile,
    require_rights,
    rights_of_profile,
)
from fabbench.launchers.kubernetes.mpijob import MpiJobOptions
from fabbench.launchers.kubernetes.mpijob.job import MpiJobRun, require_operator
from fabbench.launchers.kubernetes.select_nodes import check_choice, choose, matching_nodes, resources_on
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.model.hosts import Needs, Target
from fabbench.report.table import Overview


class MpiJobLauncher(Launcher):
    """The launcher ``mpijob``."""

    name = "mpijob"
    options = MpiJobOptions
    open_starts_nothing = True

    @contextlib.contextmanager
    def open(self, target: Target, needs: Needs) -> Iterator[JobAllocation]:
        """Choose nodes, and describe them from the catalog. Leaving it leaves nothing in the cluster."""
        options = target.options_as(MpiJobOptions)
        require_profile(options, seen=True)
        api = api_of(target)
        require_operator(api)
        require_claims(api, options)
        rights = (*MPIJOB_RIGHTS, *rights_of_profile(options))
        require_rights(api, rights, "examples/rbac-mpijob.yaml")
        criteria = criteria_of(target, needs)
        chosen = choose(list_nodes(api, notify, labels=criteria.labels), criteria)
        notify_undeclared(options, chosen)
        seen = resources_on(chosen, gpus=needs.mpi, declared=options.profile)
        resources = override_resources(seen, options.pod_requests)
        run = secrets.token_hex(4)
        resolved = replace(
            target,
            hosts=tuple(node.hostname for node in chosen),
            options=replace(options, run_id=run, pod_requests=resources.texts()),
        )
        inventory = inventory_on(chosen, resolved, needs, resources)
        with MpiJobRun(api, run, options, notify) as job_run:
            manifest = _ResolvedManifest(resolved)
            allocation = JobAllocation(inventory, manifest, "mpijob.yaml", job_run.follow, waits_for_start=True)
            allocation.read_counters = job_run.counters
            allocation.remote = True
            try:
                yield allocation
            finally:
                allocation.close()

    @override
    def nodes(self, target: Target) -> Overview:
        return cluster_nodes(target)

    def examine(self, target: Target, needs: Needs, *, deep: bool, progress: Progress) -> Examined:
        """Check the cluster's nodes, and for the operator. Start nothing."""
        del deep
        api = api_of(target)
        progress("reading the nodes", 0, 1)
        criteria = criteria_of(target, needs)
        seen = list_nodes(api, labels=criteria.labels)
        shown = matching_nodes(seen, replace(criteria, needs_gpu=False))
        status, found, advice = Status.PASS, "The cluster has Kubeflow MPIJobs (v2beta1).", ""
        try:
            require_operator(api)
        except MachineError as error:
            status, found, advice = Status.FAIL, str(error), error.hint or ""
        operator = Check(host=api.context, name="operator", status=status, seen=found, advice=advice)
        checks = (*check_nodes(shown, criteria.tolerations), check_choice(seen, criteria, api.context), operator)
        return Examined(probes={}, relations=HostRelations(), checks=checks, overviews=nodes_overview(shown))


LAUNCHER = MpiJobLauncher()


@dataclass(frozen=True, slots=True)
class _ResolvedManifest(Rendering):
    """What `fabbench render --as mpijob` would write, given the chosen nodes, requests and this run."""

    target: Target
    name: str = "mpijob"

    def render(self, source: RenderInput) -> str:
        return rendering_named(self.name).render(replace(source, request=replace(source.request, target=self.target)))
