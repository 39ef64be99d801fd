"""The format ``mpijob``: an object of Kubeflow's MPI operator, whose launcher runs a script. Pure.

It is what the EKS user guide (node-efa) applies, except that the launcher starts once every
worker's sshd answers, and that nothing is retried. Fields: kubeflow/mpi-operator,
pkg/apis/kubeflow/v2beta1/types.go (0.5 on).
"""

from collections.abc import Sequence

from fabbench.catalog.kubernetes_resources import GPU
from fabbench.execution.script import script_body
from fabbench.execution.script.target import READ_MPIJOB, SSH
from fabbench.launchers import RenderInput
from fabbench.launchers.kubernetes.manifests import (
    ROLE,
    RunSpec,
    benchmark_container,
    claim_template,
    environment,
    escape_names,
    labels_of_run,
    manifest,
    template,
)
from fabbench.launchers.kubernetes.mpijob import MpiJobOptions
from fabbench.launchers.kubernetes.render import KubernetesManifests, about, rendered_spec
from fabbench.launchers.pod_options import Object, Toleration, yaml_documents
from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.plan import Words

_KUBEFLOW = "training.kubeflow.org"  # Prefix of the labels that the operator gives to pods
# The operator would only start sshd, but images lack its directory and host keys. The operator's
# directory of keys is a world-writable volume, which sshd's strict modes reject: hence a copy.
_SSHD = (
    "mkdir -p /run/sshd && ssh-keygen -A && cp /root/.ssh/authorized_keys /run/sshd/keys && exec "
    "/usr/sbin/sshd -De -o AuthorizedKeysFile=/run/sshd/keys -o PermitRootLogin=prohibit-password"
)
_MAX_ARGUMENT = 120 * 1024  # Maximum bytes of one argument of a program; Linux's limit is 128 KiB


def scripted(spec: RunSpec, script: str) -> Object:
    """Return the MPIJob whose launcher runs `script` with bash. It needs no heartbeat.

    Raise RequestError.
    """
    text = escape_names(script)
    size = len(text.encode())
    if size > _MAX_ARGUMENT:
        kib = size // 1024
        most_kib = _MAX_ARGUMENT // 1024
        raise RequestError(
            f"The script of this run has {kib} KiB, but a job holds at most {most_kib} KiB.",
            hint="Use fewer sizes, configurations or repeats per job.",
        )
    sshd = ("/bin/sh", "-c", " ".join((_SSHD, *_port_option(spec))))
    labels = {f"{_KUBEFLOW}/job-name": spec.name, f"{_KUBEFLOW}/job-role": "worker"}
    # Ready once sshd listens: on its usual port, unless that is the node's own (`_port_option`)
    probe = {"tcpSocket": {"port": spec.port if spec.host_network else 22}, "periodSeconds": 1}
    return manifest(
        "mpijob",
        spec,
        labels=spec.options.labels,
        creation_policy="WaitForWorkersReady",  # the script needs all of them at once
        clean_policy="Running",  # workers that still run at its end are removed
        launcher=launcher_pod(spec, ("/bin/bash", "-c", text), "launcher"),
        workers=template(spec, benchmark_container(spec, sshd, "worker", probe=probe), labels),
    )


def launcher_pod(spec: RunSpec, command: Sequence[str], name: str, *, live: bool = False) -> Object:
    """Return the template of the launcher's pod, whose only container has this name.

    `live`: fabbench itself starts it, and finds it by the labels of a run.
    """
    options = spec.options
    *program, last = command  # After `bash -c` it is a script, which is readable apart as `args`
    return manifest(
        "launcher",
        spec,
        live=live,
        labels=labels_of_run(spec, live=live, **{ROLE: "launcher"}),
        # It uses no GPU, but there may only be nodes that have some.
        tolerations=[each.manifest() for each in (Toleration(GPU), *options.tolerations)],
        pull_secrets=[{"name": secret} for secret in options.pull_secrets],
        name=name,
        env=environment(spec),
        program=program,
        arguments=[last],
        non_root=spec.user is not None or None,  # None: the field is left out
    )


_ABOUT = """\
For Kubeflow's MPI operator, 0.5 or later. Its log:
kubectl logs -l training.kubeflow.org/job-role=launcher --tail=-1"""

# Workers generate their host keys when they start, and the operator does not publish them. The
# launcher logs in with this job's key, from its Secret.
_ANY_HOST_KEY = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null")


def _port_option(spec: RunSpec) -> Words:
    """Return the option of ssh and sshd for another port than 22, if it must be another."""
    # On the hosts' network, 22 belongs to the nodes' sshd.
    return ("-p", str(spec.port)) if spec.host_network else ()


class MpiJobManifest(KubernetesManifests):
    """The format ``mpijob``."""

    name = "mpijob"
    options = MpiJobOptions

    @override
    def render(self, source: RenderInput) -> str:
        """Write the MPIJob, whose launcher has the script of all configurations."""
        spec = rendered_spec(source)
        ssh = (*SSH, "-o", "LogLevel=ERROR", *_ANY_HOST_KEY, *_port_option(spec))
        target = source.script_target(
            READ_MPIJOB,
            here=False,  # the launcher is no worker
            ssh=ssh,
            agent=("ssh", *ssh),
            in_container=True,
            chosen_by_variable=False,  # a job runs all of them
            inventory=None,  # such a script does not read NIC counters
        )
        claims = claim_template(spec)
        job = scripted(spec, script_body(source.plan, target))
        return yaml_documents([*claims, job], about(source, spec, _ABOUT), compact=True)


RENDERING = MpiJobManifest()
