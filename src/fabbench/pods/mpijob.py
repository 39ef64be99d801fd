"""An MPIJob of Kubeflow's operator: the run as one object, with a script that its launcher runs. Pure.

It is what the EKS user guide (node-efa) applies, but for this: the launcher starts once every worker's sshd
answers, instead of being restarted until it works; requests come from the nodes or the catalogue; /dev/shm is
memory of the pod and no folder of the host; no variable has ``$PATH`` in it, which nobody would expand; and
nothing is tried again. Fields: kubeflow/mpi-operator, pkg/apis/kubeflow/v2beta1/types.go (0.5 and later).
"""

from fabbench.errors import RequestError
from fabbench.pods.asked import ROLE, Asked, Object, check_asked, labels, literal, meta
from fabbench.pods.template import measuring, template

LAUNCHER = "launcher"
"""The label ``training.kubeflow.org/job-role`` of the pod whose log is the run's, and its container."""
_SSH = "/root/.ssh"
_PORT = 22
_SSHD = (
    "mkdir -p /run/sshd && ssh-keygen -A && exec /usr/sbin/sshd -De "
    "-o StrictModes=no -o PermitRootLogin=prohibit-password"
)
"""The operator would start sshd alone; images leave out its folder and its host keys. The folder of keys is a
volume that everybody could write to, which sshd's strict modes refuse."""
_LONGEST = 120 * 1024
"""Bytes of one argument of a program, which Linux limits to 128 KiB."""


def mpijob(asked: Asked, script: str, *, slots: int = 0, arch: str = "") -> Object:
    """Give the MPIJob of a run whose launcher runs `script` with bash, which needs no heartbeat.

    `slots` are the ranks of each worker; 0: one for each GPU. `arch` is that of the nodes to run on; empty:
    any. Raises RequestError.
    """
    check_asked(asked, key=False)
    text = literal(script)
    size = len(text.encode())
    if size > _LONGEST:
        raise RequestError(
            f"The script of this run has {size // 1024} KiB, and {_LONGEST // 1024} go into a job.",
            hint="Ask for fewer sizes, arms or repeats in one job.",
        )
    about = meta(asked)
    about["labels"] |= asked.labels
    workers = template(asked, measuring(asked, "worker", ("/bin/sh", "-c", _SSHD), _PORT))
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": about,
        "spec": {
            "slotsPerWorker": slots or max(asked.share.gpus, 1),
            "sshAuthMountPath": _SSH,
            "mpiImplementation": "OpenMPI",
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runPolicy": {
                "cleanPodPolicy": "Running",
                "backoffLimit": 0,
                "activeDeadlineSeconds": asked.deadline_s,
            },
            "mpiReplicaSpecs": {
                "Launcher": {
                    "replicas": 1,
                    "restartPolicy": "Never",
                    "template": _launcher(asked, text, arch),
                },
                "Worker": {"replicas": asked.count, "restartPolicy": "Never", "template": workers},
            },
        },
    }


def _launcher(asked: Asked, text: str, arch: str) -> Object:
    """Give the pod that runs the script: small, on any node that has the image's architecture."""
    container: Object = {
        "name": LAUNCHER,
        "image": asked.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/bash", "-c", text],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {"privileged": False, "allowPrivilegeEscalation": False},
    }
    spec: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "containers": [container],
    }
    if arch:
        spec["nodeSelector"] = {"kubernetes.io/arch": arch}
    if asked.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in asked.pull_secrets]
    return {"metadata": {"labels": {**labels(asked), ROLE: LAUNCHER}}, "spec": spec}
