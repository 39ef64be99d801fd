"""The objects of a run on Kubernetes, from manifests.yaml, and what pods have in any case. Pure.

The Job is indexed: one unprivileged pod per node, with all devices, in which fabbench starts
programs. It exits soon after fabbench does (pod_watchdog.sh). Nothing is restarted. A Job that has
ended is removed with all it owns.
"""

import re
from collections.abc import Sequence
from dataclasses import field
from functools import cache
from typing import Any

from fabbench.catalog.images import DEFAULT
from fabbench.catalog.kubernetes_resources import Mount, PodResources, Profile, mebibytes
from fabbench.launchers.kubernetes import LEASE_S, PORT
from fabbench.launchers.pod_options import Labels, Object, Objects, PodOptions, filled, forms
from fabbench.model.errors import RequestError
from fabbench.model.mappings import Names, Variables, map_values, without
from fabbench.model.plan import Words
from fabbench.model.templates import text_of
from fabbench.model.values import frozen

NAME = "app.kubernetes.io/name"
RUN = "fabbench/run"  # The label for the run's id. All of fabbench's objects have it and `NAME`.
ROLE = "fabbench/role"  # The label of pods: `WORKER` if they measure
WORKER = "worker"
INDEX = ("training.kubeflow.org/replica-index", "batch.kubernetes.io/job-completion-index")
"""Labels that number pods."""
SELECTOR = f"{NAME}=fabbench,{RUN}"  # Selects all of fabbench's objects, of any run

CONTAINER = "fabbench"
HEARTBEAT_FILE = "/tmp/fabbench-beat"  # noqa: S108 - in the pod, which removes it; created every few seconds
# Seconds after its end until a Job is removed. With `LEASE_S`, all is gone in less than two
# minutes.
TTL_S = 20

_NO_FABRIC = Profile(name="", platform="", fabrics=(), capabilities=())
_ARGUMENT = re.compile(r"\$(?=[$(])")
_REFERENCE = re.compile(r"\$(?=\$|\([^\s()]+\))")


@frozen
class RunSpec:
    """What the objects of a run are created from."""

    run: str  # The run's id: lowercase letters, digits and dashes
    count: int  # Number of pods, each on its own node
    resources: PodResources
    deadline_s: int  # Seconds after which the Job ends in any case
    image: str = DEFAULT
    hostnames: Names = ()
    """Labels ``kubernetes.io/hostname`` of the nodes; empty: any of `instance_type`."""
    instance_type: str = ""  # The label of nodes, if none are named; empty: any
    arch: str = ""  # The nodes' architecture; empty: unknown
    port: int = PORT  # Of the sshd in pods that run without fabbench
    lease_s: int = LEASE_S
    host_network: bool = False
    """Whether pods use the nodes' network: a variant, not how pods usually run."""
    rdma: bool = True  # Whether RDMA may be measured, which locks memory
    claim: str = ""  # ResourceClaimTemplate of the user
    secrets: Names = ()  # Variables that a Secret named as all objects has
    user: int | None = None  # The non-root user that pods run as; None: the image's
    options: PodOptions = field(default_factory=PodOptions)
    independent: bool = False  # Whether the other pods keep running when one fails

    @property
    def name(self) -> str:
        """The name of all objects."""
        return f"fabbench-{self.run}"

    @property
    def profile(self) -> Profile:
        """How pods get access to the fabric; without one, an empty profile."""
        return self.resources.profile or _NO_FABRIC

    @property
    def labels(self) -> dict[str, str]:
        """The labels of all objects."""
        return {NAME: "fabbench", RUN: self.run}

    @property
    def ttl_s(self) -> int:
        """Seconds after its end until the Job is removed."""
        return min(TTL_S, self.lease_s)


def escape_argument(text: str) -> str:
    """Escape text for use as an argument: Kubernetes replaces ``$(NAME)`` and ``$$``."""
    return _ARGUMENT.sub("$$", text)


def escape_names(text: str) -> str:
    """Escape text for use as an argument, readably: ``$(a b)`` is not a reference and stays."""
    return _REFERENCE.sub("$$", text)


def manifest(of: str, spec: RunSpec, **values: Any) -> Object:
    """Return an object of manifests.yaml, or a part of one, with values filled in."""
    form = forms("fabbench.launchers.kubernetes", "manifests.yaml")[of]
    made: Object = filled(form, {"spec": spec, **values})
    return made


def workload(spec: RunSpec) -> Objects:
    """Return the objects of a run in order of creation; the first, the Job, owns the others.

    Raise RequestError.
    """
    job = _indexed(spec, waiting_pods(spec, of_job=True), live=True)
    return job, *claim_template(spec, live=True)


def indexed_job(
    spec: RunSpec, script: str, objects: Sequence[str], label: str, container: str
) -> Objects:
    """Return `objects` of a Job whose pods all run `script` with bash.

    `label` is that of pods which has the name of what makes them; `container`: its name.
    """
    # Else Kubernetes replaces $(NAME) in an argument.
    program = benchmark_container(spec, ("/bin/bash", "-c", escape_names(script)), container)
    pods = template(spec, program, {label: spec.name}, of_job=True)
    job = _indexed(spec, pods)
    made = [
        manifest(name, spec, job=job, job_spec=job["spec"], labels=spec.options.labels)
        for name in objects  # parts of manifests.yaml
    ]
    return *claim_template(spec), *made


def _indexed(spec: RunSpec, pods: Object, *, live: bool = False) -> Object:
    """Return an Indexed Job that starts each of its pods once.

    Raise RequestError if not each has its own node.
    """
    if spec.hostnames and len(set(spec.hostnames)) != spec.count:
        given = len(set(spec.hostnames))
        raise RequestError(
            f"{spec.count} pods need {spec.count} nodes, one each, but {given} were given.",
            hint="List as many nodes as pods.",
        )
    backoff = spec.count if spec.independent else 0  # How many may fail before the Job does
    labels = labels_of_run(spec, live=live)
    return manifest("job", spec, live=live, labels=labels, backoff=backoff, pods=pods)


def owned_by(objects: Objects, owner: Object) -> Objects:
    """Add an owner, as returned by the API, to objects: they are deleted with it."""
    meta = owner["metadata"]
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
    }
    return tuple(
        {**each, "metadata": {**each["metadata"], "ownerReferences": [reference]}}
        for each in objects
    )


def labels_of_run(spec: RunSpec, *, live: bool, **more: str) -> Object:
    """Return the user's labels; if fabbench itself starts a run, with those to find it again."""
    return {**spec.options.labels, **(spec.labels | more if live else {})}


@cache
def watchdog_script() -> str:
    """Return the script that runs as process 1 of a pod."""
    return text_of("fabbench.launchers.kubernetes", "pod_watchdog.sh")


def watchdog(spec: RunSpec) -> Words:
    """Return the command with which a pod ends when fabbench does."""
    return (
        "/bin/sh",
        "-c",
        escape_argument(watchdog_script()),
        "fabbench",  # $0 of the script; the others are its arguments
        HEARTBEAT_FILE,
        str(spec.lease_s),
    )


def waiting_pods(spec: RunSpec, *, of_job: bool = False) -> Object:
    """Return the template of pods in which fabbench starts programs."""
    container = benchmark_container(spec, watchdog(spec), live=True)
    labels = {**spec.labels, ROLE: WORKER}
    return template(spec, container, labels, live=True, of_job=of_job)


def template(
    spec: RunSpec,
    container: Object,
    match_labels: Labels,
    *,
    live: bool = False,
    of_job: bool = False,
) -> Object:
    """Return the template of pods, each on a node of its own.

    `match_labels`: the labels by which the scheduler knows the others, which it keeps apart.
    `live`: fabbench itself starts them, and finds them by the labels of a run. `of_job`: a Job
    has them, and no MPIJob.
    """
    pod_options = spec.options.pod_spec()
    if spec.instance_type and not spec.hostnames:  # named nodes are chosen by their names
        pod_options["nodeSelector"] = {  # the user's own labels win
            "node.kubernetes.io/instance-type": spec.instance_type,
            **spec.options.node_selector,
        }
    return manifest(
        "pods",
        spec,
        live=live,
        labels=labels_of_run(spec, live=live, **{ROLE: WORKER}),
        annotations={**profile_annotations(spec), **spec.options.annotations},
        match_labels=match_labels,
        of_job=of_job,
        # The Service that gives pods names is there where fabbench is not: see `indexed_job`
        subdomain=spec.name if of_job and not live else "",
        pod_options=pod_options,
        volumes=_volumes(spec),
        sidecars=_sidecars(spec),
        claims=[
            {"name": key, "resourceClaimTemplateName": name} for key, name in _claims(spec).items()
        ],
        container=container,
        non_root=spec.user is not None or None,  # None: the field is left out
    )


def profile_annotations(spec: RunSpec) -> dict[str, str]:
    """Return the annotations that give pods access to a fabric."""
    annotations = dict(spec.profile.annotations)
    if spec.profile.device_annotation and spec.resources.devices:
        key, value_per_device = spec.profile.device_annotation
        # The plugin counts: the value stands there once per device.
        annotations[key] = ",".join([value_per_device] * spec.resources.devices)
    return annotations


def _sidecars(spec: RunSpec) -> list[Object]:
    """Return the platform's program beside the benchmark, if there is one."""
    sidecar = spec.profile.sidecar
    if sidecar is None:
        return []
    made = manifest(
        "sidecar",
        spec,
        sidecar=sidecar,
        script=escape_names(sidecar.script),  # else Kubernetes replaces $(NAME)
        mounts=_mounted(sidecar.mounts),
        env=env_list(sidecar.env),
    )
    return [made]


def _mounted(mounts: Sequence[Mount]) -> list[Object]:
    return [{"name": each.name, "mountPath": each.path} for each in mounts]


def env_list(env: Variables) -> list[Object]:
    """Return environment variables as in a container spec."""
    escaped = map_values(escape_argument, env)
    return [{"name": name, "value": value} for name, value in escaped.items()]


def environment(spec: RunSpec) -> list[Object]:
    """Return the variables of programs: those of the profile, and those of the Secret."""
    return [
        *env_list(spec.profile.env),
        *(manifest("secret", spec, key=key) for key in spec.secrets),
    ]


def _claims(spec: RunSpec) -> dict[str, str]:
    """Return the pod's device claims: name in the pod → name of the ResourceClaimTemplate."""
    claims: dict[str, str] = {}
    if spec.profile.device_class:
        claims["fabric"] = spec.name  # of the run's own template, see `claim_template`
    if spec.claim:
        claims["claim"] = spec.claim  # of the user's
    return claims


def claim_template(spec: RunSpec, *, live: bool = False) -> Objects:
    """Return the ResourceClaimTemplate of pods that claim devices; nothing if they request them."""
    if not spec.profile.device_class:
        return ()
    return (manifest("claim", spec, labels=spec.labels if live else {}),)


def benchmark_container(
    spec: RunSpec,
    command: Sequence[str],
    name: str = CONTAINER,
    *,
    live: bool = False,
    probe: Object | None = None,
) -> Object:
    """Return the container that programs run in; `probe` tells when it is ready."""
    profile = spec.profile
    limits = spec.resources.limits()
    requests = spec.resources.requests()
    *program, last = command  # After `bash -c` it is a script, which is readable apart as `args`
    return manifest(
        "container",
        spec,
        live=live,
        name=name,
        # What has a limit is requested to that limit, without saying so
        requests=without(requests, limits),
        limits=limits,
        claims=[{"name": name} for name in _claims(spec)],
        mounts=[{"name": "shm", "mountPath": "/dev/shm"}, *_mounted(profile.mounts)],  # noqa: S108 - in a container
        env=environment(spec),
        probe=probe,
        # None: left out. Strict policies want to be told False of pods that fabbench itself starts
        privileged=profile.privileged if live or profile.privileged else None,
        capabilities=sorted(profile.capabilities) if spec.rdma else (),  # RDMA locks memory
        program=program,
        arguments=[last],
    )


def _volumes(spec: RunSpec) -> list[Object]:
    """Return /dev/shm, limited if its size is known, and what the profile and its sidecar mount."""
    shm: Object = {"medium": "Memory"}
    if spec.resources.shm:
        shm["sizeLimit"] = mebibytes(spec.resources.shm)
    mounts = list(spec.profile.mounts)
    if spec.profile.sidecar:
        mounts += spec.profile.sidecar.mounts
    volumes = {each.name: {"name": each.name, **each.source} for each in mounts}
    return [{"name": "shm", "emptyDir": shm}, *volumes.values()]
