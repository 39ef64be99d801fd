"""The modes of ``fabbench sweep``: each has a planner, and defines what a test is."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fabbench.benchmarks import benchmark_named
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Host, Inventory
from fabbench.model.log import METRICS
from fabbench.model.messages import counted, listed
from fabbench.model.plan import Plan
from fabbench.plan.build import plan
from fabbench.plan.request import RunRequest
from fabbench.runs.document import SweepDocument
from fabbench.runs.sweep_store import StoredSweep
from fabbench.sweep.analyze import analyze
from fabbench.sweep.diagnose import SCREENING, DiagnosePlanner
from fabbench.sweep.planner import Planner, all_pairs, rails, single
from fabbench.sweep.readings import Readings
from fabbench.sweep.values import Diagnosis, SweepResult

PARTNERS = {"diagnose": SCREENING, "rails": 3}
"""Mode → random partners that each node, or each of its NICs, is tested with."""


def planner_of(sweep: SweepDocument) -> Planner:
    """Return the planner of a sweep."""
    nodes = sweep.nodes
    if sweep.mode == "rails":
        partners = min(sweep.partners or PARTNERS[sweep.mode], len(nodes) - 1 + len(nodes) % 2)
        rounds = rails(nodes, sweep.nics, rounds=partners, seed=sweep.seed)
        return Planner(rounds, max_rounds=partners * len(sweep.nics))
    # What is tested first. Outliers are then tested again: one slow test may be chance.
    screening = all_pairs(nodes) if sweep.mode == "pairs" else single(nodes) if sweep.mode == "single" else None
    return DiagnosePlanner(
        nodes,
        METRICS[sweep.metric],
        group_of=sweep.group_of,
        confidence=sweep.confidence,
        tolerance=sweep.tolerance,
        seed=sweep.seed,
        partners=sweep.partners,
        size=1 if sweep.mode == "single" else 2,
        screening=screening,
    )


def diagnosed(sweep: SweepDocument, results: Iterable[SweepResult]) -> Diagnosis:
    """Return what the results of a sweep say."""
    readings = Readings(METRICS[sweep.metric], sweep.nodes, group_of=sweep.group_of)
    for each in results:
        readings.add(each)
    return analyze(readings, tolerance=sweep.tolerance, confidence=sweep.confidence)


def unfinished(sweep: StoredSweep) -> str:
    """Return which planned tests a sweep has no result of, as the end of a sentence; empty: none."""
    planner = planner_of(sweep.document)
    for each in sweep.tests:
        planner.add(each.result)
    left = planner.next_round()
    if left is None:
        return ""
    return f"{counted(len(left.tests), 'test')} of round {left.number} ({left.purpose}) and any later ones"


def work_of(mode: str, request: RunRequest) -> RunRequest:
    """Return the request of a test."""
    work = request.work
    if mode == "single":
        work = benchmark_named(request.benchmark).each_nic(work)
    return replace(request, work=work, repeats=1)


def nics_of(mode: str, request: RunRequest, inventory: Inventory) -> tuple[str, ...]:
    """Return the NICs to test one by one. Raise RequestError if nodes have none, or different ones."""
    if mode != "rails":
        return ()
    first, *others = inventory.hosts
    names = nics_of_host(request, first)
    if not names:
        raise RequestError(
            f"{request.benchmark} on {request.fabrics[0]} cannot choose a NIC, as --mode rails requires.",
            hint="NICs of efa, ib and roce can be chosen, by nccl, perftest and pingpong.",
        )
    for host in others:
        if set(other := nics_of_host(request, host)) != set(names):
            raise RequestError(
                f"{first.name} has the NICs {listed(names)}; {host.name} has {listed(other) or 'none'}.",
                hint="--mode rails needs the same NIC names on all nodes. --mode pairs pairs them in order.",
            )
    return tuple(names)


def nics_of_host(request: RunRequest, host: Host) -> Sequence[str]:
    """Return the NICs of a host that tests can choose."""
    return benchmark_named(request.benchmark).nics(request.work, request.fabrics[0], host)


def on_nic(request: RunRequest, nic: str) -> RunRequest:
    """Return the request of a test over one NIC of each node; empty: over all NICs."""
    work = benchmark_named(request.benchmark).on_nic(request.work, nic) if nic else request.work
    return replace(request, work=work)


def whole_plan(mode: str, request: RunRequest, inventory: Inventory) -> Plan:
    """Return the plan of a test of all nodes, or of one node if nodes are tested alone.

    Raise FabbenchError if a node cannot measure it.
    """
    if mode != "single":
        return plan(request, inventory)
    plans = [plan(request, inventory.part((index,))) for index in range(len(inventory.hosts))]
    fabrics = {each.fabric: None for one in plans for each in one.configurations}
    if len(fabrics) > 1 and not request.fabrics:
        raise RequestError(
            f"The best fabric of one node alone is not the same on all nodes: {', '.join(fabrics)}.",
            hint="Choose one with --fabric.",
        )
    return plans[0]
