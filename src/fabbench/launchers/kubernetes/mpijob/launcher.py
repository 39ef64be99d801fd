"""The launcher ``mpijob``: as ``kubernetes``, but pods are workers of Kubeflow's operator."""

from fabbench.hosts.check import Check, refusal
from fabbench.launchers.kubernetes import ClusterPodOptions
from fabbench.launchers.kubernetes.api import KubernetesApi
from fabbench.launchers.kubernetes.checks import outcome
from fabbench.launchers.kubernetes.discover import require_claims
from fabbench.launchers.kubernetes.launcher import KubernetesLauncher
from fabbench.launchers.kubernetes.manifests import (
    CONTAINER,
    RunSpec,
    claim_template,
    labels_of_run,
    manifest,
    waiting_pods,
    watchdog,
)
from fabbench.launchers.kubernetes.mpijob import MpiJobOptions
from fabbench.launchers.kubernetes.mpijob.render import launcher_pod
from fabbench.launchers.pod_options import Objects
from fabbench.model.compat import override
from fabbench.model.errors import MachineError

_INSTALL = "https://raw.githubusercontent.com/kubeflow/mpi-operator/v0.6.0/deploy/v2beta1/mpi-operator.yaml"


def workload(spec: RunSpec) -> Objects:
    """Return the objects of a run: an MPIJob whose launcher only waits, and what it owns."""
    job = manifest(
        "mpijob",
        spec,
        labels=labels_of_run(spec, live=True),
        # If fabbench dies before workers are ready, the end of the launcher ends them.
        creation_policy="AtStartup",
        clean_policy="All",  # workers are removed at its end, even those that have ended
        launcher=launcher_pod(spec, watchdog(spec), CONTAINER, live=True),
        workers=waiting_pods(spec),
    )
    return job, *claim_template(spec, live=True)


class MpiJobLauncher(KubernetesLauncher):
    """The launcher ``mpijob``."""

    name = "mpijob"
    options = MpiJobOptions
    rights_example = "examples/rbac-mpijob.yaml"
    workload = staticmethod(workload)

    @override
    def require(self, api: KubernetesApi, options: ClusterPodOptions) -> None:
        if not api.serves("MPIJob"):
            raise MachineError(
                f"The cluster of {api.context} has no MPIJobs (mpijobs.kubeflow.org, v2beta1).",
                hint="Install the Kubeflow MPI Operator, 0.5 or later: kubectl apply "
                f"--server-side -f {_INSTALL}. Or use --on kubernetes, which needs nothing "
                "installed.",
            )
        require_claims(api, options)

    @override
    def cluster_checks(self, api: KubernetesApi, options: ClusterPodOptions) -> tuple[Check, ...]:
        try:
            self.require(api, options)
        except MachineError as error:
            result = refusal(error)
        else:
            result = outcome("operator.there")
        return (result.of(api.context, "operator"),)


LAUNCHER = MpiJobLauncher()
