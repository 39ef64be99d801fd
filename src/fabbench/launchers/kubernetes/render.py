"""The format ``kubernetes``: a self-contained Indexed Job."""

from dataclasses import replace

from fabbench.catalog.kubernetes_resources import (
    PodResources,
    override_resources,
    pod_resources,
)
from fabbench.catalog.systems import system
from fabbench.execution.script import script_body
from fabbench.execution.script.words import script_template
from fabbench.launchers import NODES, Rendering, RenderInput, refuse_images, require_way
from fabbench.launchers.batch_job import log_in, longest_s
from fabbench.launchers.kubernetes import PORT, ClusterPodOptions, KubernetesOptions
from fabbench.launchers.kubernetes.discover import pod_inventory, reject_profile_conflicts
from fabbench.launchers.kubernetes.manifests import CONTAINER, RunSpec, indexed_job
from fabbench.launchers.pod_options import yaml_documents
from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.fabrics import may_use_rdma
from fabbench.model.hosts import Inventory, Needs, Target
from fabbench.model.mappings import Names

_INDEXED = """\
{what} for kubectl apply -f FILE. Private keys never leave the pod. The first one's log:
kubectl logs -f -l batch.kubernetes.io/job-completion-index=0,{label}={name} --tail=-1 |
  fabbench compare -"""


def _with_profile(target: Target) -> Target:
    """Return the target with the profile that the instance type implies.

    A run does not imply one: its user would not see that pods get more rights.
    """
    options = target.options_as(ClusterPodOptions)
    of_type = system(options.instance_type)
    if options.cluster_profile or of_type is None:
        return target
    return replace(target, options=replace(options, cluster_profile=of_type.pods))


def rendered_spec(source: RenderInput) -> RunSpec:
    """Return the spec of a run on nodes of the plan's type, with all devices or those named.

    Raise RequestError if neither the type nor amounts are known, or pods do not get a fabric.
    """
    target = _with_profile(source.request.target)
    options = target.options_as(ClusterPodOptions)
    refuse_images(target.variants, "one job")
    amounts = options.pod_requests
    gpus = source.gpus
    of_type = source.system
    resources = pod_resources(of_type, options.profile, gpus=gpus > 0)
    if resources == PodResources() and not amounts:
        raise RequestError("What pods request of the nodes is unknown.", hint=_REQUESTS)
    resources = override_resources(replace(resources, gpus=gpus), amounts)
    # Nodes have the names of a cloud as their label, and HyperPod's begin with ``ml.``
    label = of_type.name if of_type and of_type.cloud else ""
    if label and options.instance_type.lower().startswith("ml."):
        label = f"ml.{label}"
    spec = RunSpec(
        run=options.run_id or "rendered",
        count=len(source.inventory.hosts),
        resources=resources,
        deadline_s=longest_s(source.plan),
        image=options.image,
        claim=options.resource_claim,
        secrets=target.inherited,
        hostnames=target.hosts,
        instance_type=label,
        arch=of_type.arch if of_type else "",
        host_network=options.on_host_network,
        rdma=may_use_rdma([configuration.fabric for configuration in source.plan.configurations]),
        # Only pods of a Job have the option.
        port=options.pod_ssh_port if isinstance(options, KubernetesOptions) else PORT,
        options=options,
    )
    ways = (*spec.profile.fabrics, spec.claim and "nvlink")
    require_way(source.plan, ways, "pods of these nodes", _WAYS)
    return spec


_REQUESTS = """\
Pass their type (--instance-type p5.48xlarge), or --pod-request nvidia.com/gpu=8 and the same for \
the NICs, as kubectl describe node names them."""
_WAYS = """\
Pass --pod-request with the NICs as kubectl describe node names them, such as rdma/ib=1, or \
--cluster-profile; for nvlink --resource-claim, or --cluster-profile imex."""


def about(source: RenderInput, spec: RunSpec, text: str) -> str:
    """Return the comment of a document: its command, a text, how to make its Secret."""
    comment = source.command + text
    if spec.secrets:
        values = " ".join(f'--from-literal {name}="${name}"' for name in spec.secrets)
        comment += f"\nFirst: kubectl create secret generic {spec.name} {values}"
    return comment


class KubernetesManifests(Rendering):
    """The format ``kubernetes``."""

    name = "kubernetes"
    inherits = True
    options: type[ClusterPodOptions] = KubernetesOptions
    what = "An Indexed Job"
    objects: Names = ("service", "indexed")
    """What is made of the Job: parts of manifests.yaml."""
    label = "job-name"
    """The label of pods that has the name of what makes them."""
    first_names = "{name}"
    """Names of pods, without their number."""
    container = CONTAINER

    @override
    def inventory(self, target: Target, needs: Needs) -> Inventory:
        target = _with_profile(target)
        options = target.options_as(ClusterPodOptions)
        reject_profile_conflicts(options, nodes_seen=False)
        nodes = target.nodes or len(target.hosts) or NODES
        return pod_inventory(target, needs, options.instance_type, nodes, options.pod_requests)

    def render(self, source: RenderInput) -> str:
        """Write a Job that runs by itself, and what gives its pods names."""
        spec = rendered_spec(source)
        names = {"what": self.what, "label": self.label, "name": spec.name}
        logging_in = log_in("$JOB_COMPLETION_INDEX", port=spec.port, sshd="-e")
        opening = script_template("fabbench.launchers.kubernetes", "opening.txt").render(
            spec=spec, log_in=logging_in, first_names=self.first_names.format(**names)
        )
        target = source.script_target(
            hosts="",  # the opening reads them
            opening=opening,
            at_exit="complete",  # By which the first pod lets the others go: see `log_in`
            in_container=True,
            chosen_by_variable=False,  # a job runs all of them
            inventory=None,  # such a script does not read NIC counters
        )
        script = script_body(source.plan, target)
        objects = indexed_job(spec, script, self.objects, self.label, self.container)
        comment = about(source, spec, _INDEXED.format(**names))
        documents = yaml_documents(objects, comment, compact=True)
        return documents.replace("\n---\n", "\n", 1)  # the first document needs no mark


RENDERING = KubernetesManifests()
