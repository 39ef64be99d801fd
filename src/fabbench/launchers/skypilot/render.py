"""A plan → the SkyPilot task: its infrastructure, configurations, nodes, and the script of rank 0.

Pure.

It is SkyPilot's own example (examples/aws_efa/nccl_efa.yaml), except that the baseline is a
transport that is chosen and proven, not what an empty FI_PROVIDER happens to select, and that every
step has a time limit.
"""

from dataclasses import replace
from typing import Any, NamedTuple

from fabbench.catalog.kubernetes_resources import (
    GPU,
    PodResources,
    override_resources,
    pod_resources,
)
from fabbench.catalog.systems import System
from fabbench.execution.script import script_body
from fabbench.execution.script.target import READ_SKYPILOT, READ_SLURM, SSH, ScriptTarget
from fabbench.launchers import Rendering, RenderInput, require_way
from fabbench.launchers.pod_options import Object, PodOptions, filled, forms, yaml_documents
from fabbench.launchers.skypilot import NodeKind, SkyPilotOptions, cloud_of
from fabbench.model.errors import RequestError
from fabbench.model.options import declared
from fabbench.model.units import whole_or_text

_GIB = 1024  # in MiB
# GPUs that come with several sizes of memory → the size that SkyPilot's name leaves out.
_UNNAMED_GIB = {"A100": 40, "V100": 16}
_MACHINE_NAMES = {"a3-megagpu-8g": "H100-MEGA"}  # Whose GPUs have a name for the machine alone
_BY_TYPE = {"aws", "azure"}  # Where SkyPilot takes the catalog's names of machines


def accelerator(instance: System) -> str:
    """Return SkyPilot's name for an instance type's GPUs, such as ``A100-80GB``."""
    if instance.name in _MACHINE_NAMES:
        return _MACHINE_NAMES[instance.name]
    name = instance.gpu_model.replace(" ", "")
    gib = (instance.gpu_memory_mib or 0) // _GIB
    # Of a model with one size of memory, no name has it.
    larger = gib > _UNNAMED_GIB.get(name, gib)
    return f"{name}-{gib}GB" if larger else name


_DOCKER = "docker:"
_DOCKER_PORT = (
    "10022"  # The port of the sshd that SkyPilot starts in a container on a virtual machine
)
_FIRST_NODE = '[ "${SKYPILOT_NODE_RANK:-0}" = 0 ] || exit 0 # the first node starts all ranks\n'
_IMAGE_OF_MACHINES = """\
# Where AWS's machine images have libfabric's programs and nccl-tests: the newest CUDA comes last.
for folder in /opt/amazon/efa/bin /usr/local/cuda/efa/test-cuda-*; do
    [ ! -d "$folder" ] || PATH=$folder:$PATH
done
export PATH
"""


class _Nodes(NamedTuple):
    """What a task needs to know about its nodes."""

    infra: str
    where: NodeKind
    image: str  # As SkyPilot writes it; empty for none
    share: PodResources
    """What each node has of its type, and what the user says instead."""


def task(source: RenderInput) -> Object:
    """Return a plan as a SkyPilot task. Raise RequestError."""
    planned = source.plan
    nodes = _node_info(source)
    options = source.options_as(SkyPilotOptions)
    cloud = cloud_of(nodes.infra)
    uses_machine_image = cloud == "aws" and not nodes.image and not source.request.target.bin_dirs
    # The machine image has the programs, in folders that are not in PATH.
    set_path = _IMAGE_OF_MACHINES if uses_machine_image else ""
    profile = nodes.share.profile
    user_set = any(getattr(options, name) for name in declared(PodOptions))
    # Without the user's options or a fabric, pods stay as SkyPilot makes them.
    changed = nodes.where is NodeKind.PODS and (profile or user_set)
    values = {
        "name": f"fabbench-{planned.benchmark}",
        "nodes": nodes,
        "planned": planned,
        "machine": {**_machine(source, nodes), **_cpus(nodes)},
        "network_tier": _network_tier(source, nodes),
        "fabric": "all" if len(planned.configurations) > 1 else "",
        "on_slurm": nodes.where is NodeKind.SLURM,
        "on_pods": changed and cloud != "ssh",
        "on_pool": changed and cloud == "ssh",
        "metadata": options.metadata(options.annotations),
        "pod_options": options.pod_spec(),
        "profile": profile,
        "devices": _devices(nodes.share),
        "script": f"{_FIRST_NODE}{set_path}{script_body(planned, _script_target(source, nodes))}",
    }
    made: Object = filled(forms("fabbench.launchers.skypilot", "task.yaml"), values)
    return made


def _node_info(source: RenderInput) -> _Nodes:
    """Return what is known of the nodes. Raise RequestError if that is too little for a task."""
    options = source.options_as(SkyPilotOptions)
    where = options.node_kind
    image = options.node_image
    if image and where is NodeKind.SLURM:
        raise RequestError(
            "SkyPilot's containers on Slurm have no srun, which starts the ranks.",
            hint="Drop --image, or use --on slurm.",
        )
    image = image.removeprefix(_DOCKER)  # which it has again below, once
    gpus = source.inventory.first.gpus  # All are alike
    share = pod_resources(source.system, gpus=gpus > 0, all_cpus=True)
    # Maybe fewer GPUs than the type has: --gpus
    share = override_resources(replace(share, gpus=gpus), options.pod_requests)
    if gpus and source.system is None:  # GPUs are requested by the name of their model
        raise RequestError(
            "The instance type for SkyPilot is unknown.",
            hint="Pass their type, such as --instance-type p5.48xlarge.",
        )
    return _Nodes(options.infra, where, f"{_DOCKER}{image}" if image else "", share)


# What SkyPilot gives nodes of the best network tier: pods of EKS, Nebius, CoreWeave, Together and
# OCI. It refuses other clusters (sky/clouds/kubernetes.py, 0.14.1), and on Nebius other machines
# than H100:8 and H200:8 (sky/clouds/nebius.py). Google's TCPX is none of these fabrics.
_OF_PODS = ("efa", "ib", "roce")
_BY_TIER = {"k8s": _OF_PODS, "kubernetes": _OF_PODS, "aws": ("efa",), "nebius": ("ib",)}
_ADVICE = """\
With --set network-tier=best, SkyPilot gives pods InfiniBand or RoCE, machines of AWS EFA, and of \
Nebius InfiniBand. For others, and nvlink, see render --as kubernetes."""


def _network_tier(source: RenderInput, nodes: _Nodes) -> str:
    """Return the tier that the user wants, or the best where a fabric needs it.

    Raise RequestError if nodes do not get a fabric.
    """
    tier = source.options_as(SkyPilotOptions).network_tier or ""
    if nodes.where is NodeKind.SLURM:  # its jobs have what the nodes have
        return tier
    by_tier = _BY_TIER.get(cloud_of(nodes.infra), ())
    profile = nodes.share.profile if nodes.where is NodeKind.PODS else None
    requested = profile.fabrics if profile else ()
    fabrics = {configuration.fabric for configuration in source.plan.configurations}
    if not tier and not fabrics.difference(requested).isdisjoint(by_tier):
        tier = "best"
    ways = (*requested, *by_tier) if tier == "best" else requested
    require_way(source.plan, ways, f"SkyPilot's {nodes.where}", _ADVICE)
    return tier


def _machine(source: RenderInput, nodes: _Nodes) -> Object:
    """Return the type of machine, or else the GPUs that a node has; nothing without GPUs.

    Only machines have a type: pods and nodes of Slurm are chosen by their GPUs. Raise RequestError
    for machines of which neither is known.
    """
    of_type = source.system
    on_machines = nodes.where is NodeKind.MACHINES
    cloud = cloud_of(nodes.infra)
    if of_type and of_type.cloud == cloud and cloud in _BY_TYPE:
        return {"instance_type": of_type.name}
    gpus = nodes.share.gpus
    if of_type and gpus:
        return {"accelerators": f"{accelerator(of_type)}:{gpus}"}
    if on_machines:
        raise RequestError(
            "SkyPilot chooses machines by their type, or else by their GPUs: neither is known.",
            hint="Pass their type, such as --instance-type p5.48xlarge.",
        )
    return {}


def _cpus(nodes: _Nodes) -> Object:
    """Return the least CPUs, and memory in GiB, that a node must have; a machine's type has both.

    Pods request their share. On Slurm, or if that is unknown, any number is enough: SkyPilot's own
    default grows with the GPUs, and may be more than a node has.
    """
    share = nodes.share
    if nodes.where is NodeKind.PODS and share.cpus:
        cpus = max(share.cpus // 1000, 1)
        memory = max(share.memory >> 30, 1)
        return {"cpus": f"{cpus}+", "memory": f"{memory}+"}
    return {} if nodes.where is NodeKind.MACHINES else {"cpus": "1+"}


def _devices(share: PodResources) -> Object:
    """Return what pods request of a fabric, as numbers where they are."""
    devices: Object = {}
    for name, text in share.limits().items():
        if name not in {GPU, "memory"}:  # SkyPilot requests these, see `_machine` and `_cpus`
            devices[name] = whole_or_text(text)
    return devices


def _script_target(source: RenderInput, nodes: _Nodes) -> ScriptTarget:
    """Return how the script reaches the nodes.

    By ssh, which SkyPilot sets up between them, or by srun.
    """
    fields: dict[str, Any] = {}
    if not nodes.image and not source.request.target.bin_dirs:
        # PATH finds the programs: their paths are replaced by names.
        programs = source.inventory.first.programs.items()
        fields["programs"] = {path: name for name, path in programs}
    if nodes.where is NodeKind.SLURM:
        # --overlap: ranks may use what other steps of the job hold
        gpus = nodes.share.gpus
        extra = ("--overlap", *((f"--gpus-per-node={gpus}",) if gpus else ()))
        return source.script_target(
            READ_SLURM, ranks_by_srun=True, programs_by_srun=True, extra=extra, **fields
        )
    if nodes.where is NodeKind.MACHINES and nodes.image:
        ssh = (*SSH, "-p", _DOCKER_PORT)  # into the containers, not the machines around them
        return source.script_target(READ_SKYPILOT, ssh=ssh, agent=("ssh", *ssh))
    return source.script_target(READ_SKYPILOT, **fields)


_ABOUT = """\
sky launch -c fabbench FILE runs it, and sky logs fabbench | fabbench parse - reads its output."""
_TOGGLE = """
envs.FABRIC chooses one of {configurations}: sky launch -c fabbench --env FABRIC={other} FILE"""
_ON_PODS = """
SkyPilot itself mounts /dev/shm in memory."""
_ON_AWS = """
SkyPilot gives a machine more than one EFA interface only with aws.use_internal_ips: true, and
aws.use_ssm or aws.ssh_proxy_command, in ~/.sky/config.yaml. In a task's own config these keys are
silently dropped."""


class SkyPilotRendering(Rendering):
    """The format ``skypilot``."""

    name = "skypilot"
    options = SkyPilotOptions
    inherits = True

    def render(self, source: RenderInput) -> str:
        """Return the task as YAML."""
        about = source.command + _about(source)
        made = task(source)
        return yaml_documents((made,), about, compact=True, explicit_start=False)


def _about(source: RenderInput) -> str:
    """Return a comment on how to use the task, and on what SkyPilot does itself."""
    labels = [configuration.label for configuration in source.plan.configurations]
    text = _ABOUT
    if len(labels) > 1:
        choices = ", ".join((*labels, "all"))
        text += _TOGGLE.format(configurations=choices, other=labels[-1])
    if names := source.request.target.inherited:
        secrets = " ".join(f"--secret {name}" for name in names)
        text += (
            f"\nIts programs inherit variables from where it is launched: sky launch {secrets} FILE"
        )
    options = source.options_as(SkyPilotOptions)
    if options.node_kind is NodeKind.PODS:
        return text + _ON_PODS
    return text + _ON_AWS if cloud_of(options.infra) == "aws" else text


RENDERING = SkyPilotRendering()
