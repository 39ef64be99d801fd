"""RunRequest + inventory → plan. Pure.

What cannot be measured is refused here, before anything starts.
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
from fabbench.model.plan import DEFAULT_VARIANT, Configuration, Execution, Plan, Variant
from fabbench.model.units import format_sizes
from fabbench.plan.gates import RATIO, Gate, limit_example, parse_gates
from fabbench.plan.request import RunRequest, applied

REPEATS = 3  # Repeats of each configuration, where there are several configurations


def plan(request: RunRequest, inventory: Inventory) -> Plan:
    """Return the plan. Configurations are fabrics × variants; repeats interleave them.

    A B, B A, A B.

    Raise MachineError for a fabric that a host does not have, RequestError for an invalid one and
    for a gate that cannot hold.
    """
    work = request.work
    for variant in request.target.variants or (DEFAULT_VARIANT,):
        if variant.name not in inventory.variants and replace(variant, env={}) != Variant(
            name=variant.name
        ):
            raise RequestError(
                (
                    f"The target {inventory.target} does not support what the variant "
                    f"{variant.name} "
                    f"sets ({variant})."
                ),
                hint=(
                    "Variants can only set environment variables there, such as --variant "
                    "ring=NCCL_ALGO=Ring."
                ),
            )
        image = variant.image or inventory.image
        benchmark_named(request.benchmark).require_image(image)
        require_fit(image, inventory.hosts_for_variant(variant.name))
    fabrics = [
        name for token in request.fabrics or (AUTO,) for name in _resolve(token, inventory, work)
    ]
    for fabric in dict.fromkeys(fabrics):
        _require(fabric, request.benchmark, inventory, work)
    configurations = tuple(_configurations(fabrics, request.target.variants))
    gates = require_measurable(request, inventory.hosts)
    require_comparable(request, gates, configurations, len(inventory.hosts))
    usual = REPEATS if len(configurations) > 1 else 1
    repeats = (
        request.adaptive.max_repeats if request.adaptive is not None else request.repeats or usual
    )
    return Plan(
        benchmark=request.benchmark,
        target=request.target.name,
        configurations=configurations,
        executions=tuple(_executions(configurations, repeats, request, inventory)),
        hosts=len(inventory.hosts),
    )


def _resolve(token: str, inventory: Inventory, work: Work) -> tuple[str, ...]:
    """Replace `AB` and `AUTO` with available fabrics."""
    if token not in {AB, AUTO}:
        return (token,)
    inside, alone = _inside(inventory, work), len(inventory.hosts) == 1
    among = INTRA_HOST if inside else (*RDMA, *INTRA_HOST) if alone and token == AUTO else RDMA
    views = [host for _, host in inventory.views()]
    best = next(
        (name for name in among if not any(_why_not(name, host, work) for host in views)), None
    )
    if token == AUTO:
        return (best or (INTRA_HOST[0] if inside else "tcp"),)
    if best is None:
        names = ", ".join(host.name for host in inventory.hosts)
        raise MachineError(
            f"--ab needs an RDMA fabric, and none was found on {names}. {_search_notes(inventory)}",
            hint="Specify the fabrics: --fabric shm --fabric tcp works on any single host."
            if alone
            else (
                "fabbench check shows what is missing; render takes --instance-type. --fabric "
                "tcp measures TCP."
            ),
        )
    return best, "tcp"


def _why_not(fabric: str, host: Host, work: Work) -> str:
    """Return why `fabric` cannot be measured on `host`.

    To libfabric, InfiniBand and RoCE are one provider.
    """
    if fabric in {"ib", "roce"} and host.devices and not host.linked(fabric):
        return f"it has no {fabric} device."
    return work.why_unsupported(fabric, host)


def _require(fabric: str, benchmark: str, inventory: Inventory, work: Work) -> None:
    benchmark_named(benchmark).transports(fabric)
    if fabric not in INTRA_HOST and _inside(inventory, work):
        raise RequestError(
            (
                f"{fabric} cannot be measured on {inventory.hosts[0].name} alone: its ranks do not "
                "use the network."
            ),
            hint=(
                "Specify more hosts, or --fabric p2p or shm inside one. On local, "
                "--virtual-nodes 2 splits its GPUs."
            ),
        )
    several = len(inventory.hosts) > 1 and not any(host.virtual for host in inventory.hosts)
    if fabric in INTRA_HOST and several:
        raise RequestError(
            f"{fabric} works within one host only, but there are {len(inventory.hosts)} hosts.",
            hint="Choose a network fabric, or a single host.",
        )
    for name, host in inventory.views():
        if why := _why_not(fabric, host, work):
            raise MachineError(
                f"{fabric} is not available on {name}: {why} {_search_notes(inventory)}",
                hint="Nothing was started. Choose a fabric that was found, or more or other "
                "machines (--on, --host; "
                "with render: --instance-type). If a host has more GPUs than were found, pass "
                "--gpus N.",
            )


def _inside(inventory: Inventory, work: Work) -> bool:
    """Return whether everything stays inside one host, where ranks with GPUs never use the network."""
    return work.needs.mpi and work.needs.gpus and len(inventory.hosts) == 1


def _search_notes(inventory: Inventory) -> str:
    return " ".join(
        dict.fromkeys(sentence for _, host in inventory.views() for sentence in host.search_notes)
    )


def _configurations(fabrics: Sequence[str], variants: Sequence[Variant]) -> Iterator[Configuration]:
    """Yield the configurations: ``efa``, ``tcp``, ``tcp-2``.

    With variants ``patched``, or ``efa+patched``.
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
    work, variants, rounds = (
        request.work,
        request.target.variants,
        (configurations, configurations[::-1]),
    )
    in_order = [
        (repeat, each) for repeat in range(1, repeats + 1) for each in rounds[(repeat - 1) % 2]
    ]
    for number, (repeat, configuration) in enumerate(in_order):
        name = f"{number:03}-{configuration.label}-r{repeat}"
        hosts = inventory.hosts_for_variant(configuration.variant)
        variant = next(
            (each for each in variants if each.name == configuration.variant), DEFAULT_VARIANT
        )
        steps = work.steps(name, configuration.fabric, hosts)
        yield Execution(
            id=name,
            configuration=configuration,
            repeat=repeat,
            steps=tuple(
                applied(step, request, variant, configuration.fabric, hosts) for step in steps
            ),
            proof=replace(work.proof(configuration.fabric, hosts), **_nodes(hosts)),
            planned_sizes=work.planned_sizes(hosts),
            together=work.together,
        )


def _nodes(hosts: Sequence[Host]) -> dict[str, Any]:
    """Return the type and the number of nodes, if the hosts are whole machines of one type."""
    types = {host.instance_type for host in hosts}
    known = len(types) == 1 and "" not in types and not any(host.virtual for host in hosts)
    return {"instance_type": types.pop(), "nodes": len(hosts)} if known else {}


def require_measurable(request: RunRequest, hosts: Sequence[Host] = ()) -> tuple[Gate, ...]:
    """Return a request's gates.

    Raise RequestError for one, or a metric, that it certainly will not measure.
    """
    gates = parse_gates(request.gates, strict=request.strict)
    benchmark = benchmark_named(request.benchmark)
    metrics = {
        f"The gate {gate.text}": gate.metric.name for gate in gates if gate.metric is not RATIO
    }
    metrics |= {f"--metric {request.metric}": request.metric} if request.metric else {}
    measured = benchmark.printed_metrics(request.work)
    sizes = [size for size in benchmark.printed_sizes(request.work, hosts) if size] if gates else ()
    cases = ", ".join(filter(None, benchmark.cases(request.work)))
    nothing = f"would compare nothing: {request.benchmark}{f' ({cases})' if cases else ''} measures"
    for what, metric in metrics.items():
        if metric not in measured:
            raise RequestError(
                f"{what} {nothing} {', '.join(measured)}.", hint=f"It has no {metric}."
            )
    for gate in gates:
        if sizes and not any(map(gate.covers, sizes)):
            what = f"The gate {gate.text} {nothing} {format_sizes(sizes)}."
            raise RequestError(what, hint="Choose one of these sizes.")
    return gates


def require_comparable(
    request: RunRequest, gates: Sequence[Gate], configurations: Sequence[Configuration], hosts: int
) -> None:
    """Raise RequestError for gates, or repeats until they are decided, that lack what to compare with."""
    alone = len(configurations) == 1 and request.baseline is None
    nothing, add = (
        "and there is nothing to compare with.",
        "Add --baseline or a second configuration, or give",
    )
    if alone and request.adaptive is not None:
        raise RequestError(
            f"--repeat auto needs something to decide, {nothing}",
            hint=f"{add} a number of repeats.",
        )
    for gate in gates:
        if gate.needs_ceiling and hosts == 1:
            raise RequestError(
                f"The gate {gate.text} needs a ceiling, and none is known within one node.",
                hint="Use two nodes or more, or give the limit itself, such as busbw@1G>=300GB/s.",
            )
        if gate.needs_baseline and alone:
            limit = limit_example(benchmark_named(request.benchmark).default_metrics[0])
            raise RequestError(
                f"The gate {gate.text} needs a baseline, {nothing}",
                hint=f"{add} a limit, as {limit}.",
            )
