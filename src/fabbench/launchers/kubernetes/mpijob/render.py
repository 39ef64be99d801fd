"""The format ``mpijob``: one object of Kubeflow's MPI operator, with a script that its launcher runs. Pure.

It is what the EKS user guide (node-efa) applies, except that the launcher starts once every worker's sshd answers;
requests come from the nodes or the catalog; /dev/shm is memory of the pod; no variable has ``$PATH`` in it, which
nothing expands; nothing is retried. Fields: kubeflow/mpi-operator, pkg/apis/kubeflow/v2beta1/types.go (0.5 on).
"""

from collections.abc import Callable

from fabbench.catalog.kubernetes_resources import GPU, arch_of_type
from fabbench.execution.script import script_body
from fabbench.execution.script.target import READ_MPIJOB, SSH
from fabbench.launchers import Rendering, RenderInput
from fabbench.launchers.kubernetes.manifests import (
    ROLE,
    RunSpec,
    benchmark_container,
    check_spec,
    claim_template,
    container_security,
    env_list,
    escape_argument,
    escape_names,
    lean_metadata,
    lean_template,
    owner_metadata,
    pod_security,
    run_labels,
    template,
)
from fabbench.launchers.kubernetes.mpijob import MpiJobOptions
from fabbench.launchers.kubernetes.render import pod_inventory, rendered_spec
from fabbench.launchers.pod_options import Object, Toleration, yaml_documents
from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Inventory, Needs, Target

LAUNCHER_ROLE = "launcher"  # Job-role label, and container, of the pod whose log is the run's
_KUBEFLOW = "training.kubeflow.org"  # Prefix of the labels that the operator gives to pods
WORKER_CONTAINER = "worker"
_PORT = 22
_SSHD = (
    "mkdir -p /run/sshd && ssh-keygen -A && exec /usr/sbin/sshd -De "
    "-o StrictModes=no -o PermitRootLogin=prohibit-password"
)
"""The operator would only start sshd, but images lack its directory and host keys. The key directory is a
world-writable volume, which sshd's strict modes reject."""
_LIMIT = 120 * 1024  # Maximum bytes of one argument of a program; Linux's limit is 128 KiB


def mpijob(spec: RunSpec, script: str, *, arch: str = "", escape: Callable[[str], str] = escape_argument) -> Object:
    """Return the MPIJob of a run whose launcher runs `script` with bash. It needs no heartbeat.

    A worker has a slot per GPU. `arch` is the architecture of the nodes; empty: any. Raise RequestError.
    """
    check_spec(spec, key=False)
    text = escape(script)
    size = len(text.encode())
    if size > _LIMIT:
        raise RequestError(
            f"The script of this run has {size // 1024} KiB, but a job holds at most {_LIMIT // 1024} KiB.",
            hint="Use fewer sizes, configurations or repeats per job.",
        )
    port = _port(spec)
    sshd = " ".join((_SSHD, *_on_port(spec)))
    workers = template(spec, benchmark_container(spec, WORKER_CONTAINER, ("/bin/sh", "-c", sshd), port))
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": owner_metadata(spec),
        "spec": {
            "slotsPerWorker": max(spec.resources.gpus, 1),
            "sshAuthMountPath": "/root/.ssh",
            "mpiImplementation": "OpenMPI",
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0, "activeDeadlineSeconds": spec.deadline_s},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": _launcher(spec, text, arch)},
                "Worker": {"replicas": spec.count, "restartPolicy": "Never", "template": workers},
            },
        },
    }


def _port(spec: RunSpec) -> int:
    """Return the port of the workers' sshd: on the nodes' network, 22 belongs to the nodes' sshd."""
    return spec.port if spec.host_network else _PORT


def _launcher(spec: RunSpec, text: str, arch: str) -> Object:
    """Return the pod that runs the script: small, on any node of the image's architecture."""
    container: Object = {
        "name": LAUNCHER_ROLE,
        "image": spec.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/bash", "-c", text],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "securityContext": container_security(),
    }
    options, profile = spec.options, spec.resources.profile
    env = dict(profile.env) if profile is not None else {}  # mpirun passes LD_LIBRARY_PATH on
    if env:
        container["env"] = env_list(env)
    pod_spec: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": pod_security(),
        "tolerations": [each.manifest() for each in (Toleration(GPU), *options.tolerations)],
        "containers": [container],
    }
    if arch:
        pod_spec["nodeSelector"] = {"kubernetes.io/arch": arch}
    if options.pull_secrets:
        pod_spec["imagePullSecrets"] = [{"name": name} for name in options.pull_secrets]
    metadata: Object = {"labels": {**options.labels, **run_labels(spec), ROLE: LAUNCHER_ROLE}}
    if options.annotations:
        metadata["annotations"] = dict(options.annotations)
    return {"metadata": metadata, "spec": pod_spec}


_ABOUT = """\
For Kubeflow's MPI operator (kubeflow.org/v2beta1, 0.5 and later). The launcher's log is what `fabbench parse`
and `fabbench compare` read: kubectl logs -l training.kubeflow.org/job-role=launcher --tail=-1"""

# Workers generate their host keys when they start, and the operator does not publish them. The launcher logs
# in with this job's key, from its Secret.
_ANY_HOST_KEY = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null")


def _on_port(spec: RunSpec) -> tuple[str, ...]:
    return ("-p", str(_port(spec))) if spec.host_network else ()


class MpiJobManifest(Rendering):
    """The format ``mpijob``."""

    name = "mpijob"
    options = MpiJobOptions

    @override
    def inventory(self, target: Target, needs: Needs) -> Inventory:
        return pod_inventory(target, needs)

    def render(self, source: RenderInput) -> str:
        """Write the MPIJob, whose launcher has the script of all configurations."""
        spec = rendered_spec(source)
        ssh = (*SSH, "-o", "LogLevel=ERROR", *_ANY_HOST_KEY, *_on_port(spec))
        target = source.script_target(
            READ_MPIJOB, here=False, ssh=ssh, agent=("ssh", *ssh), toggled=False, inventory=None
        )
        text = script_body(source.plan, target)
        job = mpijob(spec, text, arch=arch_of_type(spec.instance_type), escape=escape_names)
        if not source.options_as(MpiJobOptions).run_id:  # fabbench finds its own by their labels
            job["metadata"] = lean_metadata(spec)
            labels = {f"{_KUBEFLOW}/job-name": spec.name, f"{_KUBEFLOW}/job-role": "worker"}
            for replicas in job["spec"]["mpiReplicaSpecs"].values():
                replicas["template"] = lean_template(replicas["template"], spec.options, labels)
        return yaml_documents([*claim_template(spec, {"name": spec.name}), job], source.command + _ABOUT, compact=True)


RENDERING = MpiJobManifest()
