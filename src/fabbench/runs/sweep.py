"""The use case of ``fabbench sweep``: allocate machines once, and run tests on parts of them, round by round.

A round's tests share no node, and run concurrently where that disturbs none. A test that fails, hangs or uses
another network is a result like any other. Nothing is printed here.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeAlias

from fabbench.catalog.offline_inventory import require_names
from fabbench.execution.worker_pool import PARTS, concurrently
from fabbench.launchers import LABEL, DivisibleAllocation, launcher_named
from fabbench.model.errors import Exit, FabbenchError, RequestError
from fabbench.model.hosts import Inventory, Needs, Target
from fabbench.model.log import Outcome
from fabbench.model.messages import counted, listed
from fabbench.model.plan import Plan
from fabbench.plan.gates import require_measurable
from fabbench.plan.request import RunRequest
from fabbench.runs.document import SweepDocument
from fabbench.runs.execute import Stop, on_machines
from fabbench.runs.store import RunWriter, StoredRun, require_same, write_verdict
from fabbench.runs.summary import write_summary
from fabbench.runs.sweep_store import StoredSweep, TestResult, stored_sweep
from fabbench.runs.sweep_tests import SweepTests, metric_of, nics_of, planner_of, whole_plan, work_of
from fabbench.sweep.planner import Planner
from fabbench.sweep.values import Round

Watching: TypeAlias = "Callable[[SweepDocument], AbstractContextManager[SweepWatcher]]"
Notify: TypeAlias = Callable[[str], None]


class SweepWatcher(Protocol):
    """Is notified of events as they happen, always in the main thread."""

    def begin(self, planned: Round, max_rounds: int | None) -> None:
        """Handle the start of a round; `max_rounds` is the maximum number of rounds."""

    def measured(self, result: TestResult) -> None:
        """Handle the end of a test."""

    def end(self, planned: Round, results: Sequence[TestResult]) -> None:
        """Handle the end of a round, with all results so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """One sweep, as requested."""

    run: RunRequest  # What a test measures, and where
    mode: str
    confidence: float
    tolerance: float
    group_of: Mapping[str, str] = field(default_factory=dict)  # Node → its rack or other group; of all nodes or of none
    groups_by: str = ""  # What the launcher groups nodes by (`Launcher.node_groups`); empty if it is not queried
    seed: int = 0
    partners: int | None = None  # Random partners of each node; None: the mode's default
    max_time: float | None = None  # Seconds after which no test starts; None: no limit
    resume: StoredRun | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRun:
    """A sweep that has ended in any way."""

    sweep: StoredSweep
    interrupted: bool = False
    out_of_time: bool = False
    failure: FabbenchError | None = None
    release_failure: Stop | None = None

    @property
    def whole(self) -> bool:
        """Return whether every planned test has ended."""
        return not (self.interrupted or self.out_of_time or self.failure)


def end_sweep(sweep: StoredSweep, status: Exit) -> None:
    """Write the result of a sweep, which marks its end."""
    write_verdict(sweep.path, status)
    write_summary(sweep.path)


def sweep(
    request: SweepRequest, *, notify: Notify, watching: Watching, held: DivisibleAllocation | None = None
) -> SweepRun:
    """Carry out a sweep, on machines that are `held` or its target's. Raise FabbenchError if it cannot start."""
    request, stored = _checked(request)
    measure = partial(_measure, request, stored, notify, watching)
    result, release_failure = on_machines(request.run.target, _needs(request), held, measure)
    interrupted = result.interrupted or isinstance(release_failure, KeyboardInterrupt)
    return replace(result, interrupted=interrupted, release_failure=release_failure)


def _checked(request: SweepRequest) -> tuple[SweepRequest, StoredSweep | None]:
    """Return the request, and the sweep that it resumes. Raise FabbenchError."""
    stored = stored_sweep(request.resume) if request.resume else None
    if stored is not None:  # it goes on with its own options
        run = same_nodes(request.run, stored.document.nodes)
        request = replace(request, mode=stored.document.mode, run=run)
    require_divisible(request.run.target)
    launcher, by = launcher_named(request.run.target.launcher), request.groups_by
    if by and not by.startswith(launcher.groups_by):
        others = "".join(f"--groups {each.replace(LABEL, f'{LABEL}KEY')}, or " for each in launcher.groups_by)
        raise RequestError(
            f"--groups {by} has no effect with --on {launcher.name}.",
            hint=f"Pass {others}a file with lines such as node[01-08] rack-1.",
        )
    require_measurable(request.run)
    return request, stored


def require_divisible(target: Target) -> None:
    """Raise RequestError if a launcher's machines cannot be measured in parts."""
    if not target.options.divides:
        raise RequestError(
            f"fabbench sweep does not run on {target.launcher}.",
            hint="It runs with --on ssh, kubernetes, slurm and local. Elsewhere, test pairs with a loop of "
            "your own, and pass the logs to fabbench sweep --from.",
        )


def same_nodes(run: RunRequest, nodes: Sequence[str]) -> RunRequest:
    """Return the request with a sweep's nodes, if it gives only their number: others may be free now."""
    target = run.target
    if "hosts" in target.options.without or (target.hosts and target.nodes is None):
        return run
    if target.nodes not in {None, len(nodes)} or not set(nodes) <= set(target.hosts or nodes):
        return run
    return replace(run, target=replace(target, hosts=tuple(nodes), nodes=None))


def _measure(
    request: SweepRequest,
    stored: StoredSweep | None,
    notify: Notify,
    watching: Watching,
    allocation: DivisibleAllocation,
) -> SweepRun:
    """Measure until the planner is done, the time is up, or an error or interrupt ends it."""
    inventory, run = allocation.inventory, request.run
    reason = f": {run.target_reason}" if run.target_reason else ""
    notify(f"Target {run.target.name} ({len(inventory.hosts)} nodes){reason}.")
    for name, why in inventory.unreachable.items():
        notify(f"{why} {name} is left out.")
    run, document, whole, planner = _planned(request, stored, inventory)
    writer = RunWriter(run, inventory, whole, request.resume, document)
    if request.resume is None:
        writer.rendered(allocation.documents)
    deadline = None if request.max_time is None else time.monotonic() + request.max_time
    tests = SweepTests(request=run, allocation=allocation, writer=writer, metric=document.metric, deadline=deadline)
    ended = stored.tests if stored else ()
    kept = f", {counted(len(ended), 'test')} kept" if stored else ""
    notify(f"Sweep of {run.benchmark} on {run.fabrics[0]}, mode {request.mode}{kept}.")
    interrupted, out_of_time, failure = False, False, None
    try:
        with watching(document) as watcher:
            out_of_time = _carry_out(planner, ended, tests, watcher, concurrent=allocation.concurrent)
    except KeyboardInterrupt:
        interrupted = True
    except FabbenchError as error:
        failure = error
    return SweepRun(
        sweep=stored_sweep(StoredRun(writer.path)), interrupted=interrupted, out_of_time=out_of_time, failure=failure
    )


def _needs(request: SweepRequest) -> Needs:
    def check(inventory: Inventory) -> None:
        """Raise RequestError for devices whose names are unknown until the hosts are probed."""
        require_names(whole_plan(request.mode, work_of(request.mode, run), inventory))

    run = request.run
    return replace(run.work.needs, fabrics=run.fabrics, divided=True, held_s=request.max_time, check=check)


def _planned(
    request: SweepRequest, stored: StoredSweep | None, inventory: Inventory
) -> tuple[RunRequest, SweepDocument, Plan, Planner]:
    """Return the request of a test, the sweep's document, its plan, and what is tested. Raise FabbenchError."""
    if (count := len(inventory.hosts)) < 2:
        raise RequestError(
            f"A sweep needs 2 nodes or more, not {count}.",
            hint="Name more with --host or --nodes. On local, --virtual-nodes 4 --gpus 4 makes four.",
        )
    run = work_of(request.mode, request.run)
    whole = whole_plan(request.mode, run, inventory)
    if (count := len(whole.configurations)) != 1:
        raise RequestError(f"A sweep has one fabric, not {count}.", hint="Run a sweep for each.")
    run = replace(run, fabrics=(whole.configurations[0].fabric,))
    if request.resume is not None:
        require_same(request.resume, run, inventory, whole)
    document = stored.document if stored else _document(request, run, inventory)
    return run, document, whole, planner_of(document, stored.tests if stored else ())


def _document(request: SweepRequest, run: RunRequest, inventory: Inventory) -> SweepDocument:
    """Return the document of a new sweep. Raise RequestError for a node without a group."""
    nodes, by = tuple(host.name for host in inventory.hosts), request.groups_by
    launcher = launcher_named(run.target.launcher)
    group_of = launcher.node_groups(run.target, nodes, by) if by else request.group_of
    if missing := [node for node in nodes if group_of and node not in group_of]:
        raise RequestError(f"The groups lack {listed(missing)}.", hint="Add them to the file of --groups.")
    return SweepDocument(
        **{name: getattr(request, name) for name in ("mode", "seed", "confidence", "tolerance", "partners")},
        benchmark=run.benchmark,
        metric=metric_of(run),
        fabric=run.fabrics[0],
        nodes=nodes,
        group_of={node: group_of[node] for node in nodes if group_of},
        nics=nics_of(request.mode, run, inventory),
        unreachable=inventory.unreachable,
    )


def _carry_out(
    planner: Planner, stored: Sequence[TestResult], tests: SweepTests, watcher: SweepWatcher, *, concurrent: bool
) -> bool:
    """Measure until the planner is done, after tests that are `stored`. Return whether the time was up before."""
    results, number, out_of_time = [*stored], 1 + max((each.number for each in stored), default=-1), False
    while not out_of_time and (planned := planner.next_round()) is not None:
        watcher.begin(planned, planner.max_rounds)
        batch = [
            TestResult(number=at, round=planned.number, nodes=test.nodes, rail=test.rail, outcome=Outcome.SKIPPED)
            for at, test in enumerate(planned.tests, number)
        ]
        number += len(batch)
        with closing(concurrently(batch, tests.measure, tests.ended, PARTS if concurrent else 1)) as measured:
            for _, result in measured:
                if result is None:
                    out_of_time = True
                    continue
                results.append(result)
                planner.add(result.result)
                watcher.measured(result)
        watcher.end(planned, results)
    return out_of_time
