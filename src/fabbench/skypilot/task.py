"""A plan → the task that SkyPilot runs: what its nodes are, and the script of rank 0. Pure.

It means what SkyPilot's own example does (examples/aws_efa/nccl_efa.yaml), but for this: the baseline is a
transport that is chosen and proven, and not what an empty FI_PROVIDER happens to give; no folder of one CUDA
or plugin release is named; NCCL tunes itself; every step has a time limit.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fabbench.errors import RequestError
from fabbench.model import Plan
from fabbench.pods.checks import TOLERATED
from fabbench.pods.images import image_of, require_benchmark
from fabbench.pods.profiles import GPU
from fabbench.pods.share import Share, requested, share_of_type
from fabbench.rendering import Job
from fabbench.script import Ranks, Reach, Way, script
from fabbench.script.way import SKYPILOT_HOSTS, SLURM_HOSTS, SSH
from fabbench.skypilot.infra import DEFAULT as USUAL_INFRA
from fabbench.skypilot.infra import Flavour, accelerator, flavour, network_tier
from fabbench.skypilot.toggle import chosen

Task = dict[str, Any]

_MIB_OF_GIB = 1024
_DOCKER = "docker:"
_DOCKER_PORT = "10022"
"""Of the sshd that SkyPilot starts in a container on a virtual machine."""
_END = "FABBENCH_SCRIPT"
_RUN = """\
# The first node runs everything, and starts programs on the others. SkyPilot runs this text in an interactive
# shell, in which errors and signals mean something else: hence a bash of its own.
[ "${{SKYPILOT_NODE_RANK:-0}}" = 0 ] || exit 0
{preamble}exec bash /dev/fd/9 9<<'{end}'
{script}{end}
"""
_IMAGE_OF_MACHINES = """\
# Where AWS's images for machines have libfabric's programs and nccl-tests: the newest CUDA comes last.
for folder in /opt/amazon/efa/bin /usr/local/cuda/efa/test-cuda-*; do
    [ ! -d "$folder" ] || PATH=$folder:$PATH
done
export PATH
"""
_ON_SLURM = """\
# SkyPilot removes this folder from every node when the cluster goes, also where the script was killed.
export FABBENCH_FOLDER=${SKY_RUNTIME_DIR:-/tmp}
"""


class _Place(NamedTuple):
    """What a task needs to know of its nodes."""

    infra: str
    where: Flavour
    image: str
    """As SkyPilot writes it; empty: none."""
    gpus: int
    share: Share | None
    """None: nothing says what the nodes have."""


def task(job: Job, planned: Plan) -> Task:
    """Give the task that runs a plan, in the order in which SkyPilot's examples have it.

    Left alone it runs what `job` asks for. Raises RequestError for what cannot be expressed.
    """
    place = _place(job)
    made: Task = {"name": f"fabbench-{planned.benchmark}", "resources": _resources(job, place)}
    made |= {"num_nodes": planned.hosts, "envs": {"FABRIC": chosen(job.plan)}}
    if config := _config(place):
        made["config"] = config
    text = script(planned, _way(job, place))
    made["run"] = _RUN.format(preamble=_preamble(job, place), end=_end(text), script=text)
    return made


def _end(text: str) -> str:
    """Give a word that is no line of a text, to stand behind it."""
    word = _END
    while word in text.splitlines():
        word += "_"
    return word


def image_in(infra: str, settings: Mapping[str, Any]) -> str:
    """Give the image of the nodes, as it was asked for; empty: the usual one. Raises RequestError."""
    return image_of(settings) if flavour(infra) is Flavour.PODS else str(settings.get("image") or "")


def _place(job: Job) -> _Place:
    infra = str(job.settings.get("infra") or USUAL_INFRA)
    where = flavour(infra)
    image = image_in(infra, job.settings)
    if image and where is Flavour.SLURM:
        raise RequestError(
            "SkyPilot's containers on Slurm have no srun, which starts the ranks.",
            hint="Leave --image out, or use --on slurm.",
        )
    image = image.removeprefix(_DOCKER)
    require_benchmark(job.plan.benchmark, image)
    gpus = max(host.gpus for host in job.inventory.hosts)
    share = share_of_type(job.instance.instance_type, gpus=gpus > 0) if job.instance else None
    share = requested(share, job.settings.get("pod_requests") or ()) if share else None
    if share is None and (where is Flavour.MACHINES or gpus):
        raise RequestError(
            "Nothing says which machines SkyPilot is to take.",
            hint="Name their type, such as --instance-type p5.48xlarge.",
        )
    return _Place(infra, where, f"{_DOCKER}{image}" if image else "", gpus, share)


def _resources(job: Job, place: _Place) -> Task:
    found: Task = {"infra": place.infra}
    instance, share = job.instance, place.share
    if place.where is Flavour.MACHINES and instance is not None:
        found["instance_type"] = instance.instance_type
    elif instance is not None and share is not None and share.gpus:
        found["accelerators"] = f"{accelerator(instance)}:{share.gpus}"
    if place.where is Flavour.PODS and share is not None:
        found["cpus"] = f"{max(share.cpus // 1000, 1)}+"
        found["memory"] = f"{max((share.memory >> 20) // _MIB_OF_GIB, 1)}+"
    elif place.where is not Flavour.MACHINES:
        found["cpus"] = "1+"
    if place.image:
        found["image_id"] = place.image
    fabrics = [arm.fabric for arm in job.plan.arms]
    tier = network_tier(str(job.settings.get("network_tier") or ""), place.where, fabrics)
    return {**found, "network_tier": tier} if tier else found


def _config(place: _Place) -> Task:
    """Give what SkyPilot has no field for."""
    if place.where is Flavour.SLURM:
        # Nobody else on the nodes, and all of their CPUs.
        return {"slurm": {"sbatch_options": {"exclusive": True}}}
    if place.where is Flavour.MACHINES or place.share is None or place.share.profile is None:
        return {}
    # GPUs, CPUs and memory are SkyPilot's to ask for, by `resources`.
    devices = {
        name: int(text) if text.isdigit() else text
        for name, text in place.share.limits().items()
        if name not in {GPU, "memory"}
    }
    container: Task = {
        "resources": {"limits": devices, "requests": dict(devices)},
        "securityContext": {"capabilities": {"add": list(place.share.profile.capabilities)}},
    }
    tolerations = [{"key": key, "operator": "Exists"} for key in TOLERATED]
    return {"kubernetes": {"pod_config": {"spec": {"tolerations": tolerations, "containers": [container]}}}}


def _way(job: Job, place: _Place) -> Way:
    """Say how the script gets to the nodes: by ssh, which SkyPilot sets up between them, or by srun."""
    by_name = {} if place.image or _folders(job) else _bare(job)
    if place.where is Flavour.SLURM:
        gpus = (f"--gpus-per-node={place.gpus}",) if place.gpus else ()
        extra = ("--overlap", *gpus)
        return job.way(SLURM_HOSTS, ranks=Ranks.SRUN, reach=Reach.SRUN, extra=extra, **by_name)
    if place.where is Flavour.MACHINES and place.image:
        port = ("-p", _DOCKER_PORT)
        return job.way(SKYPILOT_HOSTS, ssh=(*SSH, *port), agent=("ssh", *SSH, *port))
    return job.way(SKYPILOT_HOSTS, **by_name)


def _bare(job: Job) -> dict[str, Any]:
    """Let PATH find the programs, where no image of the catalogue's is used."""
    programs = job.inventory.hosts[0].programs
    return {"programs": {path: name for name, path in programs.items()}}


def _preamble(job: Job, place: _Place) -> str:
    if place.where is Flavour.SLURM:
        return _ON_SLURM
    plain = place.where is Flavour.MACHINES and not place.image and not _folders(job)
    return _IMAGE_OF_MACHINES if plain else ""


def _folders(job: Job) -> bool:
    """Whether the user says where the programs are."""
    return job.request.where is not None and bool(job.request.where.bin_dirs)
