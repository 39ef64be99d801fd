"""Hosts as the catalogue of instance types and AWS's images have them, for plans that nobody runs yet. Pure.

What only a machine can tell is left open: addresses (a script fills in ``{server}``), network interfaces, and
the names of devices: `require_names` sees to it that no plan needs them.
"""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from fabbench.benchmarks.nvshmem.steps import COLLECTIVES, PAIRS
from fabbench.errors import RequestError
from fabbench.hosts.mpi import Mpi, MpiKind
from fabbench.hosts.places import BELOW_PREFIX
from fabbench.instances import Instance, catalogue, instance
from fabbench.machines import Host, Inventory, Needs, Where
from fabbench.model import Plan
from fabbench.pods.profiles import EFA
from fabbench.pods.share import Share, requested
from fabbench.variants import Variant, below

MPIRUN = "/opt/amazon/openmpi/bin/mpirun"
"""Of the EFA installer, and so of AWS's images."""
_NCCL_TESTS = "/opt/nccl-tests/build"
_EFA = "/opt/amazon/efa/bin"
_PERFTEST = "/opt/perftest/bin"
_NVSHMEM = "/opt/nvshmem/bin/perftest"
_FABTESTS = "libexec/fabtests"
_NAMELESS = "{device "
_PROVIDERS = {"tcp": frozenset({"msg", "rdm"}), "shm": frozenset({"rdm"})}


def looked_up(instance_type: str) -> Instance:
    """Find an instance type in the catalogue; raises RequestError that names those written like it."""
    found = instance(instance_type)
    if found is None:
        near = difflib.get_close_matches(instance_type.lower(), catalogue(), n=4, cutoff=0.5)
        raise RequestError(
            f"The catalogue has no instance type {instance_type} with EFA.",
            hint=f"Is it {' or '.join(near)}?" if near else "Write it as EC2 does, such as p5.48xlarge.",
        )
    return found


def inventory_of(instance_type: str | None, nodes: int, *, where: Where, needs: Needs) -> Inventory:
    """Give the inventory of so many hosts of one type. Raises RequestError for a type that is not known.

    `where` says what is otherwise than usual: GPUs, the interface, mpirun, folders of programs, names of the
    hosts, and what pods request.
    """
    found = looked_up(instance_type) if instance_type else None
    share = Share(gpus=found.gpus if found else 0, resource=EFA, devices=found.efa_counts[-1] if found else 0)
    amounts = tuple(where.settings.get("pod_requests") or ())
    share = requested(share, amounts)
    count = share.devices if share.resource == EFA else 0
    names = needs.devices or tuple(f"{_NAMELESS}{number}}}" for number in range(1, count + 1))
    gpus = where.gpus if where.gpus is not None else share.gpus
    efa = {"efa": frozenset({"rdm", "dgram"})} if names else {}
    of_type = f" ({found.instance_type})" if found else ""
    hosts = tuple(
        Host(
            name=next(iter(where.hosts[number - 1 :]), f"host {number}{of_type}"),
            address="{server}",
            interface=where.interface or "",
            providers={**_PROVIDERS, **efa},
            domains={"efa": tuple(f"{name}-rdm" for name in names)} if names else {},
            devices=dict.fromkeys(names, "efa"),
            gpus=gpus,
            instance_type=found.instance_type if found else "",
            programs={name: _path(name, where) for name in needs.programs},
            mpi=Mpi(program=where.mpirun or MPIRUN, kind=MpiKind.OPEN_MPI_4, version="4"),
            looked=(_looked(found, share, amounts),) if number == 1 else (),
        )
        for number in range(1, nodes + 1)
    )
    views = {
        variant.name: tuple(_as_seen(host, variant, where) for host in hosts) for variant in where.variants
    }
    image = str(where.settings.get("image") or "")
    return Inventory(
        target=where.target, hosts=next(iter(views.values()), hosts), image=image, variants=views
    )


def _as_seen(host: Host, variant: Variant, where: Where) -> Host:
    """Give a host as a variant sees it: where its programs are is seen when they are started."""
    seen = replace(host, interface=variant.interface or host.interface)
    if variant.mpirun and host.mpi is not None:
        seen = replace(seen, mpi=replace(host.mpi, program=variant.mpirun))
    if not variant.paths:
        return seen
    return replace(
        seen, programs={}, searched={name: _searched(name, variant, where) for name in host.programs}
    )


def _searched(program: str, variant: Variant, where: Where) -> tuple[str, ...]:
    """Name the folders of a variant in which a program may be, and then the one where it is else."""
    usual = _path(program, where).rpartition("/")[0]
    there = [name for name in BELOW_PREFIX if name and usual.endswith(f"/{name}")]
    there += ["bin", _FABTESTS, ""] if program.startswith("fi_") else ["bin", ""]
    own = (below(path, name) for path in variant.paths for name in there)
    return tuple(dict.fromkeys((*own, *filter(None, (usual,)))))


def require_names(plan: Plan) -> None:
    """Raise RequestError for a plan that names devices which only a machine can name."""
    for step in chain.from_iterable(trial.steps for trial in plan.trials):
        texts = chain(
            *(command.argv for command in step.commands),
            *(command.env.values() for command in step.commands),
            map(str, step.facts.values()),
        )
        if any(_NAMELESS in text for text in texts):
            raise RequestError(
                f"{plan.benchmark} has to name each device, and their names are known on the machines only.",
                hint="Name them, as fi_info or ls /sys/class/infiniband does there: --device rdmap79s0 …",
            )


def _path(program: str, where: Where) -> str:
    """Say where a program is: in the folder that was named, else where AWS's images have it."""
    folder = where.bin_dirs[0].rstrip("/") if where.bin_dirs else next(_usual(program), "")
    return f"{folder}/{program}" if folder else program


def _usual(program: str) -> Iterator[str]:
    if program.endswith("_perf"):
        yield _NCCL_TESTS
    if program.startswith("fi_"):
        yield _EFA
    if program.startswith("ib_"):
        yield _PERFTEST
    if program in PAIRS:
        yield f"{_NVSHMEM}/{'host' if program in _OF_HOST else 'device'}/pt-to-pt"
    if program in COLLECTIVES:
        yield f"{_NVSHMEM}/{'host' if program.endswith('_on_stream') else 'device'}/coll"


_OF_HOST = ("bw", "latency", "stream_latency")


def _looked(found: Instance | None, share: Share, amounts: Sequence[str]) -> str:
    count = share.devices if share.resource == EFA else 0
    has = f"{count} EFA interface{'' if count == 1 else 's'}, {share.gpus} GPUs."
    if amounts:
        return f"Pods request {has}"
    if found is None:
        return "No instance type was named (--instance-type), so there is no RDMA device."
    return f"The catalogue says of {found.instance_type}: {has}"
