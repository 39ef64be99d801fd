"""The format ``kubernetes``: a self-contained Indexed Job.

Supervised, it is what ``fabbench run --on kubernetes`` creates: pods that wait for programs.
"""

from dataclasses import replace

from fabbench.catalog.cluster_profiles import Profile
from fabbench.catalog.kubernetes_resources import (
    PodResources,
    override_resources,
    resources_of_profile,
    resources_of_type,
)
from fabbench.catalog.offline_inventory import inventory_of
from fabbench.execution.script.readable import readable_body
from fabbench.execution.script.target import BATCH
from fabbench.launchers import NODES, Rendering, RenderInput
from fabbench.launchers.batch_job import longest_s
from fabbench.launchers.kubernetes import ClusterPodOptions, KubernetesOptions
from fabbench.launchers.kubernetes.discover import require_profile
from fabbench.launchers.kubernetes.manifests import RunSpec, SshKey, indexed_job, without_private_keys, workload
from fabbench.launchers.pod_options import yaml_documents
from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.fabrics import may_use_rdma
from fabbench.model.hosts import Inventory, Needs, Target
from fabbench.plan.request import refuse_images

_PUBLIC_KEY = "ssh-ed25519 GENERATED-FOR-EVERY-RUN fabbench"
_INDEXED = """\
An Indexed Job for kubectl apply -f FILE. No private key leaves its pod. The first pod's log has the results:
kubectl logs -f -l batch.kubernetes.io/job-completion-index=0,job-name=@NAME@ --tail=-1 |
  fabbench compare -"""
_START = """\
[ "$JOB_COMPLETION_INDEX" -lt "$nodes" ] || { echo "Set nodes to the number of pods."; exit 3; }
mapfile -t hosts < <(seq -f '@NAME@-%g.@NAME@' 0 $((nodes - 1)))
# Every pod: an sshd that passes on the image's environment, and a key that is also its host key.
mkdir -p /run/sshd ~/.ssh && chmod 700 ~/.ssh && cd ~/.ssh || exit
ssh-keygen -q -t ed25519 -N '' -f id_ed25519
printf '%s\\n' 'Port @PORT@' 'StrictHostKeyChecking accept-new' 'LogLevel ERROR' >config
env | grep '^[A-Za-z_]*=' >environment
sed 's/^root:!/root:*/' /etc/shadow >shadow && cat shadow >/etc/shadow # sshd refuses locked accounts
sshd=(/usr/sbin/sshd -e -p @PORT@ -h ~/.ssh/id_ed25519 -o StrictModes=no -o PermitUserEnvironment=yes)
if [ "$JOB_COMPLETION_INDEX" != 0 ]; then # the first pod's key may log in to the others
    scan() { ssh-keyscan -p @PORT@ -t ed25519 "${hosts[0]}" | cut -d' ' -f2-; }
    until scan | grep . >authorized_keys; do sleep 1; done
    exec "${sshd[@]}" -D
fi
"${sshd[@]}"
for host in "${hosts[@]:1}"; do until ssh "$host" true; do sleep 1; done; done 2>/dev/null
export OMPI_MCA_orte_keep_fqdn_hostnames=1 PRTE_MCA_prte_keep_fqdn_hostnames=1 # names end in the Service's
end() { for host in "${hosts[@]:1}"; do ssh "$host" kill 1; done; } # so that the Job completes
trap end EXIT
"""
_ABOUT = """\
What `fabbench run --on kubernetes` creates, without the run's private key, and with the type of nodes
instead of the nodes that it chooses. The pods wait for programs that fabbench starts with exec, and exit
soon after losing contact with it. For a self-contained job, use --as mpijob."""


def rendered_spec(source: RenderInput) -> RunSpec:
    """Return the spec of a run on nodes of the plan's instance type, with all their devices.

    The options `run_id` and `pod_requests` override it. Named hosts are ``kubernetes.io/hostname`` labels.
    Raise RequestError if neither the type nor amounts are known, or the image lacks the benchmark.
    """
    options = source.options_as(ClusterPodOptions)
    refuse_images(source.request.variants, "one job")
    pod_options = options if isinstance(options, KubernetesOptions) else KubernetesOptions()
    amounts = options.pod_requests
    needs_gpus = any(host.gpus for host in source.inventory.hosts)
    instance_type = source.instance.instance_type if source.instance else ""
    resources = _default_resources(options.profile, instance_type, gpus=needs_gpus)
    if resources == PodResources() and not amounts:
        raise RequestError(
            "What pods request of the nodes is unknown.",
            hint="Pass their type if it is of EC2 (--instance-type p5.48xlarge), or --pod-request nvidia.com/gpu=8 "
            "and the same for the NICs, as kubectl describe node names them.",
        )
    return RunSpec(
        run=options.run_id or "rendered",
        count=len(source.inventory.hosts),
        resources=override_resources(resources, amounts),
        deadline_s=longest_s(source.plan),
        image=options.image,
        claim=options.resource_claim,
        hostnames=source.request.target.hosts,
        instance_type=instance_type,
        agent="exec" if pod_options.mpi_agent == "exec" else "ssh",
        key=SshKey(public=_PUBLIC_KEY),
        host_network=options.on_host_network,
        rdma=may_use_rdma([configuration.fabric for configuration in source.plan.configurations]),
        user=pod_options.run_as_user,
        port=pod_options.pod_ssh_port,
        options=options,
        request=f"fabbench run {source.plan.benchmark}",
    )


def _default_resources(profile: Profile | None, instance_type: str, *, gpus: bool) -> PodResources:
    """Return what pods request if no nodes were seen. A device claim replaces a request."""
    if not instance_type:
        resources = resources_of_profile(profile) if profile else PodResources()
        return resources if gpus else replace(resources, gpus=0)
    resources = resources_of_type(instance_type, gpus=gpus)
    return replace(resources, resource="", devices=0, declared=profile) if profile else resources


def pod_inventory(target: Target, needs: Needs) -> Inventory:
    """Return nodes of the requested type, with what pods request of them. Raise RequestError."""
    options = target.options_as(ClusterPodOptions)
    require_profile(options, seen=False)
    nodes = target.nodes or len(target.hosts) or NODES
    amounts = options.pod_requests
    return inventory_of(
        options.instance_type,
        nodes,
        target=target,
        needs=needs,
        amounts=amounts,
        image=options.image,
        profile=options.profile,
    )


class KubernetesManifests(Rendering):
    """The format ``kubernetes``."""

    name = "kubernetes"
    options = KubernetesOptions

    @override
    def inventory(self, target: Target, needs: Needs) -> Inventory:
        return pod_inventory(target, needs)

    def render(self, source: RenderInput) -> str:
        """Write the Job, its Secret and its Service. Its pods wait for programs and name none."""
        target = source.request.target
        given = {"--interface": target.interface, "--bin-dir": target.bin_dirs, "--mpirun": target.mpirun}
        for option, value in {**given, "--gpus": target.gpus}.items():
            if value:
                raise RequestError(
                    f"{option} has no effect on pods that wait for programs.", hint="Drop it, or --supervised."
                )
        return yaml_documents(without_private_keys(workload(rendered_spec(source))), source.command + _ABOUT)

    @override
    def readable(self, source: RenderInput) -> str:
        """Write a Job that runs by itself, and its Service."""
        if source.options_as(KubernetesOptions).mpi_agent == "exec":
            raise RequestError(
                "--mpi-agent exec has no effect in a self-contained Job.", hint="Add --supervised, or drop it."
            )
        spec = rendered_spec(source)
        start = _START.replace("@PORT@", str(spec.port)).replace("@NAME@", spec.name)
        opening = f"nodes={spec.count} # the Job's completions and parallelism\n{start}"
        target = source.script_target("", ssh=BATCH, opening=opening, toggled=False)
        script = readable_body(source.plan, target, hosts="")
        comment = source.command + _INDEXED.replace("@NAME@", spec.name)
        return yaml_documents(indexed_job(spec, script), comment, compact=True)


RENDERING = KubernetesManifests()
