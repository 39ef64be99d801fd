"""RunRequest + inventory → plan.

Pure: what cannot be measured is refused here, before anything starts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fabbench.benchmarks import benchmark_named
from fabbench.benchmarks.standard import Work
from fabbench.catalog.images import require_fit
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.fabrics import AB, AUTO, INTRA_HOST, RDMA
from fabbench.model.hosts import Host, Inventory
from fabbench.model.mappings import Names, distinct
from fabbench.model.plan import DEFAULT_VARIANT, Configuration, Execution, Plan, Variant
from fabbench.model.units import format_sizes
from fabbench.plan.gates import Gate, limit_example, parse_gates
from fabbench.plan.request import RunRequest, applied

REPEATS = 3  # Repeats of each configuration, where there are several configurations


def plan(request: RunRequest, inventory: Inventory) -> Plan:
    """Return the plan. Configurations are fabrics × variants; repeats interleave them: A B, B A.

    Raise MachineError for a fabric that a host does not have, RequestError for an invalid one and
    for a gate that cannot hold.
    """
    work = request.work
    for variant in request.target.variants or (DEFAULT_VARIANT,):
        _require_variant(variant, request.benchmark, inventory)
    fabrics: list[str] = []
    for token in request.fabrics or (AUTO,):
        fabrics += _available_fabrics(token, inventory, work)
    for fabric in distinct(fabrics):
        _require_fabric(fabric, request.benchmark, inventory, work)
    configurations = tuple(_configurations(fabrics, request.target.variants))
    gates = require_measurable(request, inventory.hosts)
    require_comparable(request, gates, configurations, len(inventory.hosts))
    default_repeats = REPEATS if len(configurations) > 1 else 1
    repeats = request.repeats or default_repeats
    if request.adaptive is not None:
        repeats = request.adaptive.max_repeats
    return Plan(
        benchmark=request.benchmark,
        target=request.target.name,
        configurations=configurations,
        executions=tuple(_executions(configurations, repeats, request, inventory)),
        hosts=len(inventory.hosts),
    )


def _require_variant(variant: Variant, benchmark: str, inventory: Inventory) -> None:
    """Raise FabbenchError for a variant that a target cannot have, or an image that is unfit."""
    # Environment variables can be set on any target.
    others = replace(variant, env={}, measured="")
    only_variables = others == Variant(name=variant.name)
    if variant.name not in inventory.variants and not only_variables:
        raise RequestError(
            f"The target {inventory.target} does not support what the variant {variant.name} "
            f"sets ({variant}).",
            hint="Variants can only set environment variables there, such as --variant "
            "ring=NCCL_ALGO=Ring.",
        )
    image = variant.image or inventory.image
    benchmark_named(benchmark).require_image(image)
    require_fit(image, inventory.hosts_for_variant(variant.name))


def _available_fabrics(token: str, inventory: Inventory, work: Work) -> Names:
    """Replace `AB` and `AUTO` with available fabrics."""
    if token not in {AB, AUTO}:
        return (token,)
    best = _best_fabric(token, inventory, work)
    if token == AUTO:
        # Ranks inside one host use no network: the first way that they may have there, p2p.
        fallback = INTRA_HOST[0] if _is_inside_host(inventory, work) else "tcp"
        return (best or fallback,)
    if best is None:
        names = ", ".join(inventory.names)
        hint = (
            "fabbench check shows what is missing; render takes --instance-type. --fabric tcp "
            "measures TCP."
        )
        if len(inventory.hosts) == 1:
            hint = "Specify the fabrics: --fabric shm --fabric tcp works on any single host."
        notes = _search_notes(inventory)
        raise MachineError(
            f"--ab needs an RDMA fabric, and none was found on {names}. {notes}", hint=hint
        )
    return best, "tcp"


def _best_fabric(token: str, inventory: Inventory, work: Work) -> str | None:
    """Return the first fabric that all hosts have, of those that `AB` or `AUTO` may stand for."""
    candidates: Names = RDMA
    if _is_inside_host(inventory, work):
        candidates = INTRA_HOST
    elif token == AUTO and len(inventory.hosts) == 1:
        candidates = (*RDMA, *INTRA_HOST)  # both are possible there
    views = [host for _, host in inventory.views()]
    for name in candidates:
        if not any(_why_unmeasurable(name, host, work) for host in views):
            return name
    return None


def _why_unmeasurable(fabric: str, host: Host, work: Work) -> str:
    """Return why `fabric` cannot be measured on `host`.

    To libfabric, InfiniBand and RoCE are one provider.
    """
    if fabric in {"ib", "roce"} and host.devices and not host.linked(fabric):
        return f"it has no {fabric} device."
    return work.why_unsupported(fabric, host)


def _require_fabric(fabric: str, benchmark: str, inventory: Inventory, work: Work) -> None:
    """Raise RequestError for a fabric that cannot be chosen, MachineError if a host lacks it."""
    benchmark_named(benchmark).transports(fabric)  # raises if the benchmark never supports it
    if fabric not in INTRA_HOST and _is_inside_host(inventory, work):
        raise RequestError(
            f"{fabric} cannot be measured on {inventory.first.name} alone: its ranks do not use "
            "the network.",
            hint="Specify more hosts, or --fabric p2p or shm inside one. On local, "
            "--virtual-nodes 2 splits its GPUs.",
        )
    hosts = len(inventory.hosts)
    # Virtual nodes are parts of one host.
    several = hosts > 1 and not any(host.virtual for host in inventory.hosts)
    if fabric in INTRA_HOST and several:
        raise RequestError(
            f"{fabric} works within one host only, but there are {hosts} hosts.",
            hint="Choose a network fabric, or a single host.",
        )
    for name, host in inventory.views():
        if why := _why_unmeasurable(fabric, host, work):
            raise MachineError(
                f"{fabric} is not available on {name}: {why} {_search_notes(inventory)}",
                hint="Nothing was started. Choose a fabric that was found, or more or other "
                "machines (--on, --host; with render: --instance-type). If a host has more GPUs "
                "than were found, pass --gpus N.",
            )


def _is_inside_host(inventory: Inventory, work: Work) -> bool:
    """Return whether all stays inside one host: ranks with GPUs use no network there."""
    return work.needs.mpi and work.needs.gpus and len(inventory.hosts) == 1


def _search_notes(inventory: Inventory) -> str:
    hosts = [host for _, host in inventory.views()]
    notes = [note for host in hosts for note in host.search_notes]
    return " ".join(distinct(notes))


def _configurations(fabrics: Sequence[str], variants: Sequence[Variant]) -> Iterator[Configuration]:
    """Yield ``efa``, ``tcp``, ``tcp-2``; with variants ``patched``, or ``efa+patched``.

    A fabric that is named again is another configuration, with a number.
    """
    for index, fabric in enumerate(fabrics):
        earlier = fabrics[:index].count(fabric)
        label = f"{fabric}-{earlier + 1}" if earlier else fabric
        if not variants:
            yield Configuration(label=label, fabric=fabric)
        for variant in variants:
            name = variant.name if len(fabrics) == 1 else f"{label}+{variant.name}"
            yield Configuration(label=name, fabric=fabric, variant=variant.name)


def _executions(
    configurations: Sequence[Configuration], repeats: int, request: RunRequest, inventory: Inventory
) -> Iterator[Execution]:
    """Yield the executions in order: of every second repeat the configurations are reversed.

    So what drifts with time favors none of them.
    """
    work = request.work
    variants = {each.name: each for each in request.target.variants}
    number = 0
    for repeat in range(1, repeats + 1):
        forward = repeat % 2 == 1
        for configuration in configurations if forward else reversed(configurations):
            name = f"{number:03}-{configuration.label}-r{repeat}"
            fabric = configuration.fabric
            hosts = inventory.hosts_for_variant(configuration.variant)
            variant = variants.get(configuration.variant, DEFAULT_VARIANT)
            steps = work.steps(name, fabric, hosts)
            yield Execution(
                id=name,
                configuration=configuration,
                repeat=repeat,
                steps=tuple(applied(step, request, variant, fabric, hosts) for step in steps),
                proof=replace(work.proof(fabric, hosts), **_facts_of_nodes(hosts)),
                planned_sizes=work.planned_sizes(hosts),
                together=work.together,
            )
            number += 1


def _facts_of_nodes(hosts: Sequence[Host]) -> dict[str, Any]:
    """Return the type and the number of nodes, if the hosts are whole machines of one type."""
    types = {host.instance_type for host in hosts}
    virtual = any(host.virtual for host in hosts)
    if types == {""}:  # no cloud says it: a system of the catalog may have these GPUs
        types = {_type_by_gpus(hosts)}
    if len(types) > 1 or "" in types or virtual:
        return {}
    return {"instance_type": types.pop(), "nodes": len(hosts)}


def _type_by_gpus(hosts: Sequence[Host]) -> str:
    """Return the catalog's name of nodes without an instance type, by their GPUs; empty: none.

    All have to have the same GPUs. Of several, the catalog has to know their NICs, too, which bound
    what is expected between nodes.
    """
    from fabbench.catalog.systems import system, system_of_gpus  # here: --help needs none

    names = {system_of_gpus(host.gpu_model, host.gpus) for host in hosts}
    if len(names) > 1:
        return ""
    name = names.pop()
    known = system(name)
    if known is None or (len(hosts) > 1 and not known.rate):  # that of its NICs
        return ""
    return name


def require_measurable(request: RunRequest, hosts: Sequence[Host] = ()) -> tuple[Gate, ...]:
    """Return a request's gates.

    Raise RequestError for one, or a metric, that it certainly will not measure.
    """
    gates = parse_gates(request.gates, strict=request.strict)
    benchmark = benchmark_named(request.benchmark)
    # What asks for a metric, in words → the metric
    metrics = {f"The gate {each.text}": each.metric.name for each in gates if not each.is_ratio}
    if request.metric:
        metrics[f"--metric {request.metric}"] = request.metric
    name = request.benchmark
    if cases := ", ".join(filter(None, benchmark.cases(request.work))):
        name = f"{name} ({cases})"
    objection = f"would compare nothing: {name} measures"
    measured = benchmark.printed_metrics(request.work)
    listed = ", ".join(measured)
    for what, metric in metrics.items():
        if metric not in measured:
            raise RequestError(f"{what} {objection} {listed}.", hint=f"It has no {metric}.")
    if gates:
        sizes = list(filter(None, benchmark.printed_sizes(request.work, hosts)))
        _require_sizes(gates, sizes, objection)
    return gates


def _require_sizes(gates: Sequence[Gate], sizes: Sequence[int], objection: str) -> None:
    """Raise RequestError for a gate on a size or a range that is not measured, where it is known.

    `objection` is said between the gate and what is measured.
    """
    for gate in gates:
        if sizes and gate.lacks(sizes):
            measured = format_sizes(sizes)
            what = f"The gate {gate.text} {objection} {measured}."
            raise RequestError(what, hint="Choose one of these sizes.")


def require_comparable(
    request: RunRequest, gates: Sequence[Gate], configurations: Sequence[Configuration], hosts: int
) -> None:
    """Raise RequestError for gates and adaptive repeats that lack what to compare with.

    With two configurations, the last is the baseline; else an earlier run has to be named.
    """
    for gate in gates:
        if gate.needs_ceiling and hosts == 1:
            raise RequestError(
                f"The gate {gate.text} needs a ceiling, and none is known within one node.",
                hint="Use two nodes or more, or give the limit itself, such as busbw@1G>=300GB/s.",
            )
    if len(configurations) > 1 or request.baseline is not None:
        return
    if request.adaptive is not None:
        raise _incomparable("--repeat auto needs something to decide", "a number of repeats")
    relative = next((gate for gate in gates if gate.needs_baseline), None)
    if relative is not None:
        metric, *_ = benchmark_named(request.benchmark).default_metrics
        limit = limit_example(metric)
        raise _incomparable(f"The gate {relative.text} needs a baseline", f"a limit, as {limit}")


def _incomparable(what: str, instead: str) -> RequestError:
    return RequestError(
        f"{what}, and there is nothing to compare with.",
        hint=f"Add --baseline or a second configuration, or give {instead}.",
    )
