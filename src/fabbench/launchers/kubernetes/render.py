"""The format ``kubernetes``: a self-contained Indexed Job.

Supervised, it is what ``fabbench run --on kubernetes`` creates: pods that wait for programs.
With ``--schedule`` it is a CronJob that starts such a Job, and a container that writes its results.
"""

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from fabbench.benchmarks import benchmark_named
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
from fabbench.launchers.kubernetes.manifests import (
    RUN,
    RunSpec,
    SshKey,
    indexed_job,
    without_private_keys,
    workload,
)
from fabbench.launchers.pod_options import Object, yaml_documents
from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.fabrics import may_use_rdma
from fabbench.model.hosts import Inventory, Needs, Target
from fabbench.plan.request import refuse_images

if TYPE_CHECKING:
    from fabbench.plan.request import RunRequest

METRICS_FOLDER = "/var/lib/node_exporter/textfile_collector"
_RUN = "rendered"
_PUBLIC_KEY = "ssh-ed25519 GENERATED-FOR-EVERY-RUN fabbench"
_CRON = """\
A CronJob for kubectl apply -f FILE. No private key leaves its pod. To start it now, and see its log:
kubectl create job --from=cronjob/@NAME@ @NAME@-now
kubectl logs -f -l batch.kubernetes.io/job-completion-index=0,job-name=@NAME@-now -c fabbench --tail=-1 |
  fabbench compare -"""
_INDEXED = """\
An Indexed Job for kubectl apply -f FILE. No private key leaves its pod. The first pod's log has the results:
kubectl logs -f -l batch.kubernetes.io/job-completion-index=0,job-name=@NAME@ --tail=-1 |
  fabbench compare -"""
_START = """\
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
    benchmark_named(source.plan.benchmark).require_image(options.image)
    needs_gpus = any(host.gpus for host in source.inventory.hosts)
    instance_type = source.instance.instance_type if source.instance else ""
    resources = _default_resources(options.profile, instance_type, gpus=needs_gpus)
    if resources == PodResources() and not amounts:
        raise RequestError(
            "The nodes' resources are unknown.", hint="Pass their type, such as --instance-type p5.48xlarge."
        )
    return RunSpec(
        run=options.run_id or _RUN,
        count=len(source.inventory.hosts),
        resources=override_resources(resources, amounts),
        deadline_s=longest_s(source.plan),
        image=options.image,
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
    if profile is None:
        return resources
    return replace(resources, resource="", devices=0, declared=profile)


def pod_inventory(target: Target, needs: Needs) -> Inventory:
    """Return nodes of the requested type, with what pods request of them. Raise RequestError."""
    options = target.options_as(ClusterPodOptions)
    require_profile(options, seen=False)
    nodes = target.nodes or len(target.hosts) or NODES
    amounts = options.pod_requests
    return inventory_of(
        options.instance_type, nodes, target=target, needs=needs, amounts=amounts, profile=options.profile
    )


class KubernetesManifests(Rendering):
    """The format ``kubernetes``."""

    name = "kubernetes"
    options = KubernetesOptions

    @override
    def inventory(self, target: Target, needs: Needs) -> Inventory:
        return pod_inventory(target, needs)

    @override
    def evaluates_gates(self, target: Target) -> bool:
        return bool(target.options_as(KubernetesOptions).metrics_image)

    def render(self, source: RenderInput) -> str:
        """Write the Job, its Secret and its Service. Its pods wait for programs and name none."""
        target = source.request.target
        options = target.options_as(KubernetesOptions)
        times = {"--schedule": options.schedule, "--metrics-image": options.metrics_image}
        times["--metrics-dir"] = options.metrics_dir
        given = {
            **times,
            "--interface": target.interface,
            "--bin-dir": target.bin_dirs,
            "--mpirun": target.mpirun,
        }
        for option, value in {**given, "--gpus": target.gpus}.items():
            if value:
                raise RequestError(
                    f"{option} has no effect on pods that wait for programs.",
                    hint="Drop it, or --supervised.",
                )
        return yaml_documents(without_private_keys(workload(rendered_spec(source))), source.command + _ABOUT)

    @override
    def readable(self, source: RenderInput) -> str:
        """Write a Job that runs by itself, and its Service."""
        options = source.options_as(KubernetesOptions)
        if options.mpi_agent == "exec":
            raise RequestError(
                "--mpi-agent exec has no effect in a self-contained Job.",
                hint="Add --supervised, or drop it.",
            )
        _require_schedule(options)
        spec = rendered_spec(source)
        names = host_names(spec, scheduled=bool(options.schedule))
        start = _START.replace("@PORT@", str(spec.port))
        start = wrap_start(start, spec, metrics=bool(options.metrics_image))
        target = source.script_target("", ssh=BATCH, opening=f"hosts=({names})\n{start}", toggled=False)
        script = readable_body(source.plan, target, hosts="")
        objects = cron_job(spec, script, options.schedule) if options.schedule else indexed_job(spec, script)
        if options.metrics_image:
            pods = objects[-1]["spec"]["jobTemplate"]["spec"]["template"]
            folder, gates = options.metrics_dir or METRICS_FOLDER, gate_words(source.request)
            add_metrics(pods, spec, image=options.metrics_image, folder=folder, gates=gates)
        comment = source.command + (_CRON if options.schedule else _INDEXED).replace("@NAME@", spec.name)
        return yaml_documents(objects, comment, compact=True)


def _require_schedule(options: KubernetesOptions) -> None:
    """Raise RequestError for metrics options without the options that they require."""
    if options.metrics_image and not options.schedule:
        raise RequestError(
            "--metrics-image has no effect without --schedule.",
            hint="Add it, or pipe the log of the Job into fabbench compare - --format openmetrics.",
        )
    if options.metrics_dir and not options.metrics_image:
        raise RequestError("--metrics-dir has no effect without --metrics-image.", hint="Add it.")


RENDERING = KubernetesManifests()


RESULTS = "/results"
"""Where the containers of a pod share its log."""
_NAME = "batch.kubernetes.io/job-name"
_LOST_S = 3600
"""A start that is late by more than this is skipped."""
_SHARED = f"""\
exec > >(tee {RESULTS}/log) 2>&1 && tee=$! # for the container that writes metrics
trap 'end; exec >&- 2>&-; wait "$tee"; touch {RESULTS}/done' EXIT
"""
_STALE = """\
[ "$JOB_COMPLETION_INDEX" = 0 ] || rm -f /metrics/@FILE@ # from a run in which this node was first
"""
_METRICS = f"""\
[ "$JOB_COMPLETION_INDEX" = 0 ] || exit 0
until [ -e {RESULTS}/done ]; do sleep 1; done
cd /metrics || exit
fabbench compare {RESULTS}/log --format openmetrics@GATES@ >.@FILE@
status=$?
[ -s .@FILE@ ] || echo "fabbench_exit_status $status" >.@FILE@ # nothing was measured
mv .@FILE@ @FILE@ # atomic
exit "$status"
"""


def host_names(spec: RunSpec, *, scheduled: bool) -> str:
    """Return the pods' names as shell words. A scheduled Job's name is known only when it starts."""
    job = '"$JOB_NAME"' if scheduled else spec.name
    return " ".join(f"{job}-{number}.{spec.name}" for number in range(spec.count))


def wrap_start(start: str, spec: RunSpec, *, metrics: bool) -> str:
    """Return the start of the script, which shares the first pod's log if `metrics` are written."""
    return f"{_STALE.replace('@FILE@', _file(spec))}{start}{_SHARED}" if metrics else start


def _file(spec: RunSpec) -> str:
    return f"{spec.name}.prom"


def cron_job(spec: RunSpec, script: str, schedule: str) -> tuple[Object, ...]:
    """Return the CronJob of an Indexed Job, and its Service. Its Jobs never run at the same time."""
    service, job = indexed_job(spec, script, {RUN: spec.run})
    pods = job["spec"]["template"]["spec"]
    (container,) = pods["containers"]
    name = {"name": "JOB_NAME", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{_NAME}']"}}}
    run = {key: container.pop(key) for key in ("command", "args")}
    pods["containers"] = [{**container, "env": [*container.get("env", ()), name], **run}]
    cron_spec: Object = {
        "schedule": schedule,
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": _LOST_S,
        "jobTemplate": {"spec": job["spec"]},
    }
    return (service, {**job, "kind": "CronJob", "spec": cron_spec})


def gate_words(request: "RunRequest") -> str:
    """Return the gates of a request as shell words, with a space before each."""
    words = [word for gate in request.gates for word in ("--gate", gate)]
    return "".join(f" {shlex.quote(word)}" for word in (*words, *(["--strict"] if request.strict else [])))


def add_metrics(pods: Object, spec: RunSpec, *, image: str, folder: str, gates: str = "") -> None:
    """Add a container to a pod template that writes the first pod's results to `folder` of its node.

    It also evaluates `gates`: the Job fails if one fails.
    """
    pod_spec = pods["spec"]
    (container,) = pod_spec["containers"]
    mounts: list[Object] = [
        {"name": "results", "mountPath": RESULTS},
        {"name": "metrics", "mountPath": "/metrics"},
    ]
    container["volumeMounts"] += [{**each} for each in mounts]
    pod_spec["volumes"] += [
        {"name": "results", "emptyDir": {}},
        {"name": "metrics", "hostPath": {"path": folder, "type": "DirectoryOrCreate"}},
    ]
    pod_spec["containers"].append(
        {
            "name": "metrics",
            "image": image,
            "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
            "volumeMounts": mounts,
            "command": ["/bin/sh", "-c"],
            "args": [_METRICS.replace("@FILE@", _file(spec)).replace("@GATES@", gates)],
        }
    )
