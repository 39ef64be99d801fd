"""The use case of ``fabbench run``: allocate hosts, carry out a plan on them, compare the results.

Nothing is printed here: events are passed to callables, and errors are part of the result.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import Comparison, ComparisonRow, ComparisonSection, compare
from fabbench.analysis.gate import check
from fabbench.analysis.gate_results import Verdict
from fabbench.analysis.headline import headline_row
from fabbench.analysis.progress import ALLOWED
from fabbench.analysis.sequential import FIRST_LOOK
from fabbench.analysis.statistics import Difference
from fabbench.catalog.offline_inventory import require_names
from fabbench.hosts.discover import provided_by_variants
from fabbench.launchers import Allocation, BatchAllocation, RenderInput, launcher_named
from fabbench.model.errors import Exit, FabbenchError, RequestError, worst
from fabbench.model.hosts import Inventory, Needs
from fabbench.model.log import Log
from fabbench.model.mappings import Sentences, distinct, map_values
from fabbench.model.messages import counted
from fabbench.model.plan import Execution, Plan
from fabbench.model.units import format_sizes
from fabbench.model.values import frozen
from fabbench.plan.build import plan, require_measurable
from fabbench.plan.gates import Gate, parse_gates
from fabbench.plan.request import Adaptive, RunRequest
from fabbench.remote.transport import HostGoneError
from fabbench.runs.execute import (
    Logs,
    Notify,
    PlanResult,
    Stop,
    Watcher,
    carry_out,
    on_machines,
    preview_machines,
)
from fabbench.runs.load_columns import load, matching_column, stored_columns, with_labels
from fabbench.runs.store import RunWriter, StoredRun, document_of, write_verdict
from fabbench.runs.summary import LAST_GOOD, last_good, write_summary
from fabbench.runs.sweep import same_nodes
from fabbench.runs.tuned_settings import elsewhere

Columns: TypeAlias = Sequence[Column]
Watching: TypeAlias = Callable[[Plan], AbstractContextManager[Watcher]]
"""Makes the watcher of a plan as a context, which is left when the plan has been carried out."""
Steering: TypeAlias = Callable[..., Iterable[Execution]]
"""An `Order` of executions that takes the run that has begun, too, as the first."""


# ---------------------------------------------------------------- --repeat auto


def undecided(
    comparison: Comparison, gates: Sequence[Gate], verdict: Verdict | None
) -> tuple[Sentences, Sentences]:
    """Return as sentences what repeats are to decide, and what else is undecided.

    Repeats are to decide the gates that need a baseline or, without such gates, what the headlines
    quote: the plateau, or the only size of it.
    """
    at_headlines: list[str] = []
    elsewhere: list[str] = []
    for section in comparison.sections:
        for index, column in enumerate(comparison.compared):
            what = f"{section.metric.name} of {column.label}"
            quoted, others = _where_undecided(section, index)
            at_headlines += (f"{what} {where}" for where in quoted)
            elsewhere += (f"{what} {where}" for where in others)
    if verdict is not None and any(gate.needs_baseline for gate in gates):
        return verdict.undecided, (*at_headlines, *elsewhere)
    return at_headlines, elsewhere


def _where_undecided(section: ComparisonSection, index: int) -> tuple[Sentences, Sentences]:
    """Return where a column is undecided: what the headline quotes, and the other sizes.

    The headline quotes the verdict of the plateau or, where that is one size, of a row.
    """
    rows = [row for row in section.rows if row.verdict(index) is Difference.UNDECIDED]
    plateau = section.plateaus[index]
    if plateau is None or len(plateau.sizes) == 1:
        headline = headline_row(section)
        quoted = [row for row in rows if row == headline]
        others = [row for row in rows if row != headline]
        return _at_sizes(quoted), _at_sizes(others)
    if plateau.test.verdict is Difference.UNDECIDED:
        return ["at the plateau"], _at_sizes(rows)
    return [], _at_sizes(rows)


def _at_sizes(rows: Sequence[ComparisonRow]) -> Sentences:
    sizes = format_sizes(row.size for row in rows)
    return [f"at {sizes}"] if rows else []


def stop_condition(
    adaptive: Adaptive | None,
    configurations: int,
    look_at: Callable[[Logs], tuple[Sentences, Sentences]],
    notify: Notify,
    clock: Callable[[], float] = time.monotonic,
) -> Callable[[int, Logs], bool]:
    """Return what decides whether execution `number` was the last one needed.

    Without `adaptive`, none is. `look_at` returns what is `undecided` in the logs so far.
    """
    started = clock()

    def enough(number: int, logs: Logs) -> bool:
        repeats, in_repeat = divmod(number, configurations)
        if adaptive is None or in_repeat:  # each configuration is repeated equally often
            return False
        timed_out = adaptive.seconds is not None and clock() - started >= adaptive.seconds
        if repeats < FIRST_LOOK:  # too few to decide anything
            return timed_out
        to_decide, besides = look_at(logs)
        if to_decide:
            sentences = "; ".join(to_decide)
            notify(f"Undecided after {repeats} repeats: {sentences}")
            return timed_out
        sentences = "; ".join(besides)
        left_open_too = f" Left open: {sentences}." if besides else ""
        notify(f"Decided after {repeats} repeats.{left_open_too}")
        return True

    return enough


# ---------------------------------------------------------------- a run


@frozen
class RunResult:
    """The result of a run."""

    id: str
    path: Path
    columns: tuple[Column, ...] = ()  # the configurations with results, in order
    comparison: Comparison | None = None
    """None if nothing was measured, or it cannot be compared (see `failure`)."""
    verdict: Verdict | None = None
    """The gates' verdict; None if there are no gates, or the run was interrupted."""
    interrupted: bool = False
    missing: int = 0  # as in `PlanResult`
    failure: FabbenchError | None = None
    """The error that ended the run early, or prevented the comparison of its results."""
    release_failure: Stop | None = None

    @property
    def status(self) -> Exit:
        """Return the exit status for the run."""
        if self.interrupted:
            return Exit.INTERRUPTED
        errors = (self.failure, self.release_failure)
        return worst(
            self.comparison.status if self.comparison else Exit.FINE,
            self.verdict.status if self.verdict else Exit.FINE,
            *(error.exit for error in errors if isinstance(error, FabbenchError)),
        )


class HowToRun(TypedDict):
    """What else `run` needs: how a run is shown, and the machines that it has."""

    notify: Notify
    watching: Watching
    held: Allocation


def run(  # noqa: PLR0913 - a run, how it is shown, and where it goes on
    request: RunRequest,
    *,
    notify: Notify = lambda sentence: None,  # noqa: ARG005 - ignored by default
    watching: Watching = lambda planned: nullcontext(Watcher()),  # noqa: ARG005 - ignored by default
    resume: StoredRun | None = None,
    held: Allocation | None = None,
    steering: Steering | None = None,
) -> RunResult:
    """Carry out a request, store it, and compare the results.

    `resume` is a run of the same request that was interrupted: its executions that are ok are kept.
    `held` are machines to use, which stay held; None: those of the request's target. `steering`
    decides in place of the request how often what is measured.

    Raise FabbenchError if it cannot start: for an invalid request, or hosts that cannot be
    allocated. Any later error is part of the result.
    """
    if resume is not None:
        # What steers may go on with another run, from what this one has
        if steering is None and all(each.is_ok for each in resume.executions):
            raise RequestError(
                f"All executions of run {resume.id} are ok.",
                hint=f"Measure again: fabbench rerun {resume.id}.",
            )
        request = same_nodes(request, resume.hosts)
    measure = partial(
        _measure, request, _early_baseline(request), notify, watching, resume, steering
    )
    (baseline, writer, measured), release_failure = on_machines(
        request.target, needs_of(request), held, measure
    )
    with closing(writer):
        result = _result(request, baseline, writer, measured, release_failure)
    for sentence in distinct(elsewhere(request, writer.run, result.columns)):
        notify(sentence)
    return result


def needs_of(request: RunRequest, runs: int = 1) -> Needs:
    """Return what a run needs of its machines, or so many one after the other."""
    adaptive = request.adaptive

    def held_s(inventory: Inventory) -> float | None:
        """Return twice the time in which repeats may begin. Raise FabbenchError as a run would."""
        require_names(plan(request, inventory))
        seconds = adaptive.seconds if adaptive else None
        return None if seconds is None else 2 * seconds * runs

    needs = request.work.needs
    return replace(needs, fabrics=request.fabrics, one_by_one=bool(adaptive), held_s=held_s)


def require_startable(request: RunRequest) -> None:
    """Raise RequestError for what cannot be measured, or not in the way that is asked for."""
    require_measurable(request)
    launcher = launcher_named(request.target.launcher)
    if request.adaptive and launcher.one_job:
        raise RequestError(
            f"--repeat auto and tune have no effect with {launcher.name}: it runs all as one job.",
            hint="Give a number of repeats, or run where executions are started one by one: local, "
            "ssh, kubernetes or slurm.",
        )


def preview(request: RunRequest) -> tuple[Inventory, Plan]:
    """Return the machines and the plan of a request, checked as by `run`. Nothing is started.

    Programs need not be there yet, but for an mpirun that is named. Raise FabbenchError if it could
    not start for another reason.
    """
    baseline = _early_baseline(request)
    inventory = preview_machines(request)
    planned, _ = _planned(request, baseline, inventory)
    return inventory, planned


def _early_baseline(request: RunRequest) -> Columns:
    """Return the baseline, as far as it is known before anything starts. Raise FabbenchError."""
    require_startable(request)
    named = request.baseline if request.baseline != LAST_GOOD else None
    return load(named, store=request.store) if named else []


def _planned(request: RunRequest, baseline: Columns, inventory: Inventory) -> tuple[Plan, Columns]:
    """Return the plan and the baseline: what the last good run must have measured is known by now.

    Raise RequestError for a baseline without a column for the first configuration.
    """
    planned = plan(request, inventory)
    if request.baseline == LAST_GOOD:
        document = document_of(request, inventory, planned)
        baseline = load(
            last_good(document, planned.configurations[0].label, request.store), store=request.store
        )
    if baseline:
        matching_column(baseline, planned.configurations[0].label)
    return planned, baseline


def _measure(  # noqa: PLR0913, PLR0917 - all that `run` is called with
    request: RunRequest,
    baseline: Columns,
    notify: Notify,
    watching: Watching,
    resume: StoredRun | None,
    steering: Steering | None,
    allocation: Allocation,
) -> tuple[Columns, RunWriter, PlanResult]:
    """Plan a request for machines and carry it out. Return its baseline, store and result."""
    inventory = allocation.inventory
    notify(_chosen_target(request, inventory))
    planned, baseline = _planned(request, baseline, inventory)
    writer = RunWriter(request, inventory, planned, resume)
    for sentence in provided_by_variants(inventory, request.target.variants):
        notify(sentence)
    kept = f", {len(writer.kept)} of them kept" if resume else ""
    bound = "at most " if request.adaptive else ""
    notify(f"{_plan_in_words(planned, bound)}{kept}.")
    if isinstance(allocation, BatchAllocation):
        _submit(allocation, request, planned, writer)
    writer.write_rendered(allocation.documents)

    def look_at(logs: Logs) -> tuple[Sentences, Sentences]:
        comparison, verdict = _compared_and_judged(
            request, baseline, stored_columns(writer.run, logs=logs)
        )
        return undecided(comparison, parse_gates(request.gates), verdict)

    with watching(planned) as watcher:
        how: Any = {"keep_going": request.keep_going}
        if steering is None:
            how["should_stop"] = stop_condition(
                request.adaptive, len(planned.configurations), look_at, watcher.notify
            )
        else:
            how["order"] = partial(steering, writer.run)
        return baseline, writer, carry_out(planned, allocation, writer, watcher, **how)


def _chosen_target(request: RunRequest, inventory: Inventory) -> str:
    """Return the target, what it has, and why it was chosen."""
    machines = _machines_in_words(request, inventory)
    reason = f": {request.target_reason}" if request.target_reason else ""
    name = request.target.name
    return f"Target {name} ({machines}){reason}."


def _plan_in_words(planned: Plan, bound: str) -> str:
    """Return what is measured how often; `bound`: words before the number of executions."""
    configurations = " and ".join(map(str, planned.configurations))
    executions = counted(len(planned.executions), "execution")
    return f"{planned.benchmark} on {configurations}: {bound}{executions}"


def _submit(
    allocation: BatchAllocation, request: RunRequest, planned: Plan, writer: RunWriter
) -> None:
    """Submit the executions that are not kept."""
    executions = tuple(each for each in planned.executions if each.id not in writer.kept)
    plan_left = replace(planned, executions=executions)
    inventory = allocation.inventory
    allocation.submit(RenderInput(plan=plan_left, request=request, inventory=inventory))


def _machines_in_words(request: RunRequest, inventory: Inventory) -> str:
    """Return the hosts, and the images that programs run in."""
    hosts = ", ".join(inventory.names)
    variants = request.target.variants
    images = [variant.image or inventory.image for variant in variants] or [inventory.image]
    named = ", ".join(filter(None, distinct(images)))
    return f"{hosts}; image {named}" if named else hosts


def _result(
    request: RunRequest,
    baseline: Columns,
    writer: RunWriter,
    measured: PlanResult,
    release_failure: Stop | None,
) -> RunResult:
    """Compare what was measured, judge it by the gates, and store the verdict and the summary."""
    logs = measured.logs
    if isinstance(release_failure, HostGoneError):
        # Its programs were killed before it was known to be gone: they failed with their
        # environment.
        logs = map_values(_marked_lost, logs)
    columns = stored_columns(writer.run, logs=logs)
    stops = (measured.stop, release_failure)
    result = RunResult(
        id=writer.id,
        path=writer.path,
        columns=tuple(columns),
        interrupted=any(isinstance(each, KeyboardInterrupt) for each in stops),
        missing=measured.missing,
        failure=measured.stop if isinstance(measured.stop, FabbenchError) else None,
        release_failure=release_failure,
    )
    try:
        if columns:
            comparison, verdict = _compared_and_judged(
                request, baseline, columns, gates=not result.interrupted
            )
            result = replace(result, comparison=comparison, verdict=verdict)
            if verdict is not None:
                write_verdict(writer.path, verdict.status, verdict.breaches, verdict.state)
    except FabbenchError as error:
        result = replace(result, failure=error)
    # As whoever reads the stored logs again makes it: they have no mark of a lost host.
    write_summary(writer.path, measured.logs)
    return result


def _marked_lost(logs: Sequence[Log]) -> tuple[Log, ...]:
    return tuple(replace(log, lost=True) for log in logs)


def _compared_and_judged(
    request: RunRequest, baseline: Columns, configurations: Sequence[Column], *, gates: bool = True
) -> tuple[Comparison, Verdict | None]:
    """Return the comparison, and the verdict of the gates on it; None without `gates`.

    One configuration is compared with the baseline. Several are compared with one another; gates
    compare the first of them with the baseline, if there is one.
    """
    first, *others = configurations
    fitting = [matching_column(baseline, first.label)] if baseline else []
    fitting = with_labels([first, *fitting], labels=())[1:]  # it may have the label of the first
    compared = configurations if others else [first, *fitting]
    comparison = compare(compared, metric=request.metric, allow=ALLOWED, only_ok=True)
    gated = comparison
    # Then the baseline is not a column of the table. Gates count rows that `only_ok` hides anyway.
    if others and fitting:
        gated = compare([first, *fitting], allow=ALLOWED)
    if not gates or not request.gates:
        return comparison, None
    return comparison, check(parse_gates(request.gates), gated, strict=request.strict)
