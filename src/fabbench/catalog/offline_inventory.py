"""Hosts as the catalog of instance types and AWS's images describe them, for plans that are rendered. Pure.

What only a machine knows is left open: addresses (a script fills in ``{server}``), network interfaces, and
the names of devices: `require_names` ensures that no plan needs them.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from fabbench.catalog.expectations import System, system, systems
from fabbench.catalog.images import BELOW_PREFIX, below
from fabbench.catalog.instances import Instance, instance, similar_types
from fabbench.catalog.kubernetes_resources import (
    EFA,
    PodResources,
    Profile,
    override_resources,
    resources_of_profile,
)
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hosts import Host, Inventory, Mpi, MpiKind, Needs, Target
from fabbench.model.messages import counted
from fabbench.model.plan import Plan, Variant

MPIRUN = "/opt/amazon/openmpi/bin/mpirun"
"""Of the EFA installer, and so of AWS's images."""
_NAMELESS = "{device "
_PROVIDERS = {"tcp": frozenset({"msg", "rdm"}), "shm": frozenset({"rdm"})}


def require_instance(instance_type: str) -> Instance:
    """Return an instance type of the catalog. Raise RequestError that suggests similar names."""
    entry = instance(instance_type)
    if entry is None:
        raise RequestError(
            (
                f"The catalog knows no NICs of an instance type {instance_type}: neither EFA, "
                "InfiniBand nor RoCE."
            ),
            hint=similar_types(
                instance_type, [each.name for each in systems().values() if each.fabric]
            ),
        )
    return entry


def _known(name: str) -> System:
    """Return an instance type with EFA, or a system with InfiniBand or RoCE. Raise RequestError."""
    found = system(name)
    return (
        found
        if found is not None and found.fabric
        else systems()[require_instance(name).instance_type]
    )


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
    """
    known = _known(instance_type) if instance_type else None
    resources = override_resources(_resources(known, profile), amounts)
    link, count, mpirun = *_devices(resources, profile), MPIRUN
    asked = [] if known or profile else [name for name in needs.fabrics if name in {"ib", "roce"}]
    if asked or (known is not None and not known.is_ec2):
        link, count = (known.fabric, known.nics[0]) if known else (asked[0], needs.nics)
        if not image:  # only AWS's machines and images have programs in folders that are known
            needs, mpirun = replace(needs, folders={}), "mpirun"
    names = needs.devices or tuple(f"{_NAMELESS}{number}}}" for number in range(1, count + 1))
    name = known.name if known else ""
    gpus = _gpus(name, resources, target, needs)
    efa = {"efa": frozenset({"rdm", "dgram"})} if names and link == "efa" else {}
    of_type = f" ({name})" if name else ""
    folders = {name: _folders(name, target, needs) for name in needs.programs}
    hosts = tuple(
        Host(
            name=next(iter(target.hosts[number - 1 :]), f"host {number}{of_type}"),
            address="{server}",
            interface=target.interface or "",
            providers={**_PROVIDERS, **efa},
            domains={"efa": tuple(f"{name}-rdm" for name in names)} if efa else {},
            devices=dict.fromkeys(names, link),
            settings=profile.settings if profile else {},
            gpus=gpus,
            gpu_model=known.gpu_model if known else "",
            instance_type=name,
            programs={name: "/".join((*of, name)) for name, of in folders.items() if len(of) < 2},
            searched={name: of for name, of in folders.items() if len(of) > 1},
            mpi=Mpi(program=target.mpirun or mpirun, kind=MpiKind.OPEN_MPI_4, version="4"),
            search_notes=(_search_note(known, resources, amounts, profile),) if number == 1 else (),
        )
        for number in range(1, nodes + 1)
    )
    views = {
        each.name: tuple(_as_seen(host, each, target, needs) for host in hosts)
        for each in target.variants
    }
    return Inventory(
        target=target.name, hosts=next(iter(views.values()), hosts), image=image, variants=views
    )


def _gpus(name: str, resources: PodResources, target: Target, needs: Needs) -> int:
    gpus = target.gpus if target.gpus is not None else resources.gpus
    if needs.gpus and not gpus:
        raise MachineError(
            f"{name or 'Without --instance-type a host'} has no GPU.",
            hint="Pass the --instance-type of hosts with GPUs, or --gpus N (GPUs per host).",
        )
    return gpus


def _resources(known: System | None, profile: Profile | None) -> PodResources:
    if known is None:
        return resources_of_profile(profile) if profile else PodResources()
    return PodResources(
        gpus=known.gpus, resource=EFA, devices=known.nics[-1] if known.is_ec2 else 0
    )


def _devices(resources: PodResources, profile: Profile | None) -> tuple[str, int]:
    """Return the link of the RDMA devices that pods get, and how many there are."""
    if profile is None or profile.fabrics == ("efa",):
        return "efa", resources.devices if resources.resource == EFA else 0
    # A node has eight NICs or more; nothing depends on how many.
    return "roce", resources.devices or 8


def _as_seen(host: Host, variant: Variant, target: Target, needs: Needs) -> Host:
    """Return a host as a variant sees it: its programs are searched for when they are started."""
    seen = replace(host, interface=variant.interface or host.interface)
    if variant.mpirun and host.mpi is not None:
        seen = replace(seen, mpi=replace(host.mpi, program=variant.mpirun))
    searched = {name: _searched(name, variant, target, needs) for name in needs.programs}
    return replace(seen, programs={}, searched=searched) if variant.paths else seen


def _searched(program: str, variant: Variant, target: Target, needs: Needs) -> tuple[str, ...]:
    """Return the directories of a variant in which a program may be, then its usual one."""
    usual = _folders(program, target, needs)
    subfolders = [
        name for name in BELOW_PREFIX if name and any(each.endswith(f"/{name}") for each in usual)
    ]
    subfolders += needs.subfolders
    folders = (below(path, name) for path in variant.paths for name in subfolders)
    return tuple(dict.fromkeys((*folders, *usual)))


def require_names(plan: Plan) -> None:
    """Raise RequestError for a plan that names devices which only a machine can name."""
    for step in chain.from_iterable(execution.steps for execution in plan.executions):
        texts = chain(
            *(command.argv for command in step.commands),
            *(command.env.values() for command in step.commands),
            map(str, step.facts.values()),
        )
        if any(_NAMELESS in text for text in texts):
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


def _folders(program: str, target: Target, needs: Needs) -> tuple[str, ...]:
    """Return where a program may be.

    The given directories, else the one in which AWS's images have it.
    """
    return tuple(
        each.rstrip("/") for each in target.bin_dirs or filter(None, [needs.folders.get(program)])
    )


def _search_note(
    entry: System | None, resources: PodResources, amounts: Sequence[str], profile: Profile | None
) -> str:
    if entry is None and profile is not None:
        return (
            f"The cluster profile {profile.name} has {', '.join(profile.fabrics)}: "
            f"{profile.platform}."
        )
    has = f"{counted(_devices(resources, None)[1], 'EFA interface')}, {resources.gpus} GPUs."
    if amounts:
        return f"Pods request {has}"
    if entry is None:
        return (
            "RDMA devices are unknown without --instance-type; --fabric ib and roce can have "
            "--nics or --device."
        )
    if not entry.is_ec2:
        has = f"{entry.nics[0]} NICs of {entry.fabric}, {entry.gpus} GPUs."
    return f"According to the catalog, {entry.name} has {has}"
