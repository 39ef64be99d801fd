"""Hosts as the catalog of instance types and AWS's images describe them, for rendered plans.

What only a machine knows is left open: addresses (a script fills in ``{server}``), network
interfaces, and the names of devices: `require_names` ensures that no plan needs them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from fabbench.catalog.images import BELOW_PREFIX, below
from fabbench.catalog.kubernetes_resources import (
    EFA,
    PodResources,
    Profile,
    override_resources,
    pod_resources,
)
from fabbench.catalog.systems import System, require_system
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hosts import Host, Inventory, Mpi, MpiKind, Needs, Target
from fabbench.model.mappings import Paths, distinct, first_of, without
from fabbench.model.messages import counted
from fabbench.model.plan import Plan, Variant

MPIRUN = "/opt/amazon/openmpi/bin/mpirun"
"""Of the EFA installer, and so of AWS's images."""
# How the name of a device begins that only the machine knows
_UNNAMED_DEVICE = "{device "
_PROVIDERS = {"tcp": frozenset({"msg", "rdm"}), "shm": frozenset({"rdm"})}


def inventory_of(  # noqa: PLR0913 - everything that describes hosts
    instance_type: str,
    nodes: int,
    *,
    target: Target,
    needs: Needs,
    amounts: Sequence[str] = (),
    image: str = "",
    profile: Profile | None = None,
) -> Inventory:
    """Return the inventory of `nodes` hosts of one type. Raise RequestError for an unknown type.

    `target` overrides the defaults: GPUs, the interface, mpirun, directories of programs, names of
    the hosts; `amounts` are what pods request (``NAME=AMOUNT``). An empty type is what `profile` or
    the user's `needs` say.

    All hosts are alike but for their names; the first one carries the note on where all of this is
    from. Variants have views of their own; the hosts of the inventory are those of the first.
    """
    node_type = require_system(instance_type) if instance_type else None
    resources = override_resources(pod_resources(node_type, profile), amounts)
    mpirun = MPIRUN
    nics = _nics(node_type, resources, needs)
    if not image and not nics.by_aws:
        # Only AWS's machines and images have programs in folders that are known.
        needs = replace(needs, folders={})
        mpirun = "mpirun"
    numbers = range(1, nics.number + 1)
    unnamed = (f"{_UNNAMED_DEVICE}{number}}}" for number in numbers)
    devices = needs.devices or tuple(unnamed)
    name = node_type.name if node_type else ""
    has_efa = bool(devices) and nics.link == "efa"
    folders = {program: _folders(program, target, needs) for program in needs.programs}
    programs = _certain_paths(folders)  # the others are searched for when they are started
    host = Host(
        name="",
        address="{server}",  # which the rendered script fills in
        interface=target.interface or "",
        providers={**_PROVIDERS, "efa": _EFA_ENDPOINTS} if has_efa else _PROVIDERS,
        domains={"efa": tuple(f"{device}-rdm" for device in devices)} if has_efa else {},
        devices=dict.fromkeys(devices, nics.link),
        settings=profile.settings if profile else {},
        gpus=_gpus(name, resources, target, needs),
        gpu_model=node_type.gpu_model if node_type else "",
        instance_type=name,
        programs=programs,
        searched=without(folders, programs),
        # As the EFA installer has it, and assumed elsewhere
        mpi=Mpi(program=target.mpirun or mpirun, kind=MpiKind.OPEN_MPI_4, version="4"),
    )
    hosts = [replace(host, name=host_name) for host_name in _names(nodes, name, target)]
    if hosts:
        note = _origin_note(node_type, resources, amounts, profile)
        hosts[0] = replace(hosts[0], search_notes=(note,))
    views = {
        variant.name: tuple(_as_seen(host, variant, target, needs) for host in hosts)
        for variant in target.variants
    }
    first = first_of(views.values(), tuple(hosts))
    return Inventory(target=target.name, hosts=first, image=image, variants=views)


def _certain_paths(folders: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the paths of programs that can be in one folder only.

    Of one without any folder the name alone, for the PATH.
    """
    return {
        program: "/".join((*places, program))
        for program, places in folders.items()
        if len(places) <= 1
    }


_EFA_ENDPOINTS = frozenset({"rdm", "dgram"})


def _names(nodes: int, instance_type: str, target: Target) -> Iterator[str]:
    """Yield names of hosts: those of the target, then numbers (`host 3`), with their type."""
    of_type = f" ({instance_type})" if instance_type else ""
    for number in range(1, nodes + 1):
        is_named = number <= len(target.hosts)
        yield target.hosts[number - 1] if is_named else f"host {number}{of_type}"


class _Nics(NamedTuple):
    """The RDMA devices of a host."""

    link: str
    number: int
    by_aws: bool
    """Whether it is a machine of AWS: the type says so, or the fabric that is asked for."""


# What NICs of a fabric are for programs that do not know it; empty: nothing.
_LINKS = {"gib": "roce", "tcpxo": "", "nvlink": ""}


def _nics(of_type: System | None, resources: PodResources, needs: Needs) -> _Nics:
    """Return the RDMA devices of a system, of the fabric that is asked for, or of pods.

    Of EC2 they are those that any node of the type has, or that pods request.
    """
    declared = resources.declared
    asked = [fabric for fabric in needs.fabrics if fabric in {"ib", "roce"}]
    fabrics = declared.fabrics if declared else (*asked, "efa")
    fabric = (of_type and of_type.fabric) or fabrics[0]
    by_aws = of_type.is_ec2 if of_type else "efa" in needs.fabrics or declared is not None
    if fabric == "efa" and declared is None:
        return _Nics(fabric, _efa_interfaces(resources), by_aws=by_aws)
    number = needs.nics
    if of_type is not None and of_type.fabric:
        number = min(of_type.nics)
    if declared is not None:  # a node has eight NICs or more; nothing depends on how many
        number = number or resources.devices or 8
    link = _LINKS.get(fabric, fabric)
    return _Nics(link, number if link else 0, by_aws=by_aws)


def _gpus(name: str, resources: PodResources, target: Target, needs: Needs) -> int:
    """Return the GPUs of a host. Raise MachineError if it has none, and the benchmark needs one."""
    gpus = target.gpus if target.gpus is not None else resources.gpus
    if needs.gpus and not gpus:
        host = name or "Without --instance-type a host"
        raise MachineError(
            f"{host} has no GPU.",
            hint="Pass the --instance-type of hosts with GPUs, or how many each has: --gpus N, for "
            "pods --pod-request nvidia.com/gpu=N.",
        )
    return gpus


def _efa_interfaces(resources: PodResources) -> int:
    """Return how many EFA interfaces pods request."""
    return resources.devices if resources.resource == EFA else 0


def _as_seen(host: Host, variant: Variant, target: Target, needs: Needs) -> Host:
    """Return a host as a variant sees it.

    Below a variant's install prefixes, programs are searched for when they are started.
    """
    view = replace(host, interface=variant.interface or host.interface)
    if variant.mpirun and host.mpi is not None:
        view = replace(view, mpi=replace(host.mpi, program=variant.mpirun))
    searched = {name: _searched_folders(name, variant, target, needs) for name in needs.programs}
    return replace(view, programs={}, searched=searched) if variant.paths else view


def _searched_folders(program: str, variant: Variant, target: Target, needs: Needs) -> Paths:
    """Return the directories of a variant in which a program may be, then its usual one.

    Below a prefix it may be where its usual directory ends alike, or where it was built.
    """
    usual = _folders(program, target, needs)
    subfolders = [name for name in BELOW_PREFIX if name and _ends_one(usual, name)]
    subfolders += needs.subfolders
    folders = [below(path, name) for path in variant.paths for name in subfolders]
    return distinct((*folders, *usual))


def _ends_one(folders: Sequence[str], name: str) -> bool:
    return any(folder.endswith(f"/{name}") for folder in folders)


def require_names(plan: Plan) -> None:
    """Raise RequestError for a plan that names devices which only a machine can name."""
    for step in chain.from_iterable(execution.steps for execution in plan.executions):
        texts = chain(
            *(command.argv for command in step.commands),
            *(command.env.values() for command in step.commands),
            map(str, step.facts.values()),
        )
        if any(_UNNAMED_DEVICE in text for text in texts):
            raise RequestError(
                (
                    f"{plan.benchmark} needs the name of each device, which is known only on the "
                    "machines."
                ),
                hint=(
                    "Specify them, as fi_info or ls /sys/class/infiniband shows: --device "
                    "rdmap79s0 …"
                ),
            )


def _folders(program: str, target: Target, needs: Needs) -> Paths:
    """Return where a program may be.

    The given directories, else the one in which AWS's images have it.
    """
    folders = target.bin_dirs or (needs.folders.get(program, ""),)
    return tuple(folder.rstrip("/") for folder in folders if folder)


def _origin_note(
    entry: System | None, resources: PodResources, amounts: Sequence[str], profile: Profile | None
) -> str:
    """Return a sentence on where the description of a host is from."""
    if entry is None and profile is not None:
        fabrics = ", ".join(profile.fabrics)
        return f"The cluster profile {profile.name} has {fabrics}: {profile.platform}."
    has = f"{counted(_efa_interfaces(resources), 'EFA interface')}, {resources.gpus} GPUs."
    if amounts:
        return f"Pods request {has}"
    if entry is None:
        return (
            "RDMA devices are unknown without --instance-type; --fabric ib and roce can have "
            "--nics or --device."
        )
    if not entry.is_ec2:
        nics = f"{entry.most_nics} NICs of {entry.fabric}" if entry.fabric else "unknown NICs"
        has = f"{nics}, {entry.gpus} GPUs."
    return f"According to the catalog, {entry.name} has {has}"
