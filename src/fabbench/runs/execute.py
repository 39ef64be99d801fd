"""Carries out a plan: lines go from the hosts to the store, and through the parser to the watcher.

A line is stored before it is parsed or shown. However a run ends, what was measured until then is
judged and returned.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, TypeAlias, TypeVar, cast

from fabbench.evidence.judge import refusal, with_counters
from fabbench.execution.awake import awake_s
from fabbench.execution.nic_sampler import NicSampler, View
from fabbench.execution.session import FloodedError, OutputLimit
from fabbench.launchers import Allocation, launcher_named, require_support
from fabbench.logs.parser import LogParser, Result
from fabbench.model.errors import FabbenchError, MachineError
from fabbench.model.hosts import Inventory, Needs, Target
from fabbench.model.log import MARKER_SIGN, Ending, ExecutionLines, Log, Point, own_line
from fabbench.model.log import Logs as Logs  # noqa: PLC0414 - a part of plans' results, too
from fabbench.model.mappings import first_of, map_values
from fabbench.model.plan import Execution, Plan
from fabbench.model.values import T
from fabbench.plan.request import RunRequest
from fabbench.runs.store import OUTPUT, ExecutionWriter, RunWriter, nothing_read

_NETWORK_LINES = (
    "Using network",
    "Selected provider",
    "Selected Provider",
    "NET/IB : Using",
    "NET/Socket : Using",
)
_EXTRA_OUTPUT = 1 << 16  # allowance in bytes and lines for output between steps
_INTERRUPTED = "fabbench was interrupted before this execution ended."

AllocationT = TypeVar("AllocationT", bound=Allocation)
Stop: TypeAlias = FabbenchError | KeyboardInterrupt  # What ends a run early
Notify: TypeAlias = Callable[[str], None]  # Called with sentences about events, in order
ShouldStop: TypeAlias = Callable[[int, Logs], bool]
Order: TypeAlias = Callable[[Sequence[Execution], Logs], Iterable[Execution]]


class Watcher:
    """Is notified of events as they happen. This one shows nothing."""

    def __init__(self, nics: View | None = None) -> None:
        self.nics = nics  # Called every few seconds while an execution runs

    def begin(self, execution: Execution, number: int) -> None:
        """Handle the start of an execution; `number` counts from 1."""

    def point(self, execution: Execution, point: Point) -> None:
        """Handle a row."""

    def read(self, execution: Execution, log: Log) -> None:
        """Handle the log of a program whose output has ended; an execution may have several."""

    def end(self, execution: Execution, logs: tuple[Log, ...]) -> None:
        """Handle the end of an execution, with its judged logs."""

    def notify(self, sentence: str) -> None:
        """Handle a report of what is undecided, if repeats continue until everything is decided."""


class PlanResult(NamedTuple):
    """The result of a plan."""

    logs: Mapping[str, tuple[Log, ...]]  # Label of a configuration → its judged logs, in order
    stop: Stop | None
    missing: int  # executions that were not finished, of those that were wanted


def carry_out(  # noqa: PLR0913 - a run, its watcher, and how it ends early
    plan: Plan,
    allocation: Allocation,
    writer: RunWriter,
    watcher: Watcher,
    *,
    keep_going: bool = False,
    should_stop: ShouldStop = lambda number, logs: False,  # noqa: ARG005
    order: Order = lambda executions, logs: executions,  # noqa: ARG005
) -> PlanResult:
    """Run all executions in order. Ctrl-C and errors end it early; they are part of the result.

    `should_stop` returns after each execution whether it was the last one needed. `order` yields
    those of a plan that are carried out, while the logs of its configurations grow: the stored
    schedule has no others then. An execution on the wrong network is aborted at once, unless
    `keep_going`.
    """
    logs: dict[str, list[Log]] = {configuration.label: [] for configuration in plan.configurations}
    missing = len(plan.executions)
    stops: list[Stop] = []
    with _collecting(stops):
        carried_out: list[Execution] = []
        for number, execution in enumerate(order(plan.executions, logs), 1):
            watcher.begin(execution, number)
            judged: Sequence[Log] = writer.kept.get(execution.id, ())  # of a resumed run
            stop: Stop | None = None
            if not judged:
                running = RunningExecution(
                    execution, plan.benchmark, watcher, keep_going=keep_going
                )
                judged, stop = running.run(allocation, writer)
            if stop is None:
                missing -= 1
            carried_out.append(execution)
            logs[execution.configuration.label] += judged
            watcher.end(execution, tuple(judged))
            if stop is not None:
                raise stop
            if should_stop(number, logs):
                break
        missing = 0  # what was not carried out is not wanted
        if len(carried_out) != len(writer.run.schedule):
            writer.end_schedule(carried_out)
    by_configuration = map_values(tuple, logs)
    return PlanResult(by_configuration, first_of(stops, None), missing)


def on_machines(
    target: Target, needs: Needs, held: AllocationT | None, work: Callable[[AllocationT], T]
) -> tuple[T, Stop | None]:
    """Return what `work` makes of machines: of those `held`, else of the target's.

    And why these were not released.

    Raise FabbenchError or KeyboardInterrupt where that ends before there is a result.
    """
    launcher = launcher_named(target.launcher)
    require_support(launcher, target)
    machines = nullcontext(held) if held else launcher.open(target, needs)
    results: list[T] = []
    stops: list[Stop] = []
    # Machines are left inside: a failure to release them spoils no result.
    with _collecting(stops), machines as allocation:
        results.append(work(cast("AllocationT", allocation)))
    if not results:
        raise stops[0]
    return results[0], first_of(stops, None)


def preview_machines(request: RunRequest) -> Inventory:
    """Return the machines of a request, where nothing is started. Raise FabbenchError.

    Programs need not be there yet, but for an mpirun that is named.
    """
    target = request.target
    launcher = launcher_named(target.launcher)
    require_support(launcher, target)
    needs = replace(request.work.needs, fabrics=request.fabrics, optional=not target.mpirun)
    return launcher.preview(target, needs)


@contextmanager
def _collecting(stops: list[Stop]) -> Iterator[None]:
    """Add what ends the block early to `stops`: an interrupt before anything else."""
    try:
        yield
    except FabbenchError as error:
        stops.append(error)
    except KeyboardInterrupt as interrupt:
        stops.insert(0, interrupt)


class RunningExecution:
    """One execution in progress."""

    def __init__(
        self, execution: Execution, benchmark: str, watcher: Watcher, *, keep_going: bool = False
    ) -> None:
        self._execution = execution
        self._benchmark = benchmark
        self._watcher = watcher
        self._keep_going = keep_going  # On the wrong network, which else aborts it
        self._logs: list[Log] = []
        self._marked_s: list[float] = []
        """When each marker line came: steps are between them."""

    @property
    def longest_s(self) -> float:
        """Return how long its longest step took, or all of its steps that ran together."""
        steps = [after - before for before, after in pairwise(self._marked_s)]
        if self._execution.together:  # their lines come later than they were printed
            return sum(steps)
        return max(steps, default=0.0)

    def run(self, allocation: Allocation, writer: RunWriter) -> tuple[tuple[Log, ...], Stop | None]:
        """Run the execution, and judge it however it ends.

        Return its logs, and what ended the run early.
        """
        execution = self._execution
        hosts = allocation.inventory.hosts_for_variant(execution.configuration.variant)
        nics = NicSampler(execution, hosts, allocation.counters, self._watcher.nics)
        ending = Ending()
        stops: list[Stop] = []
        with writer.execution(execution) as stored:
            output = stored.path / OUTPUT
            parser = LogParser(str(output), proof=execution.proof)
            # It may have to prepare the machines first; its lines come later.
            with _collecting(stops), closing(allocation.execute(execution)) as lines:
                stored.write_counters(nics.begin())
                ending = self._follow(lines, nics, stored, parser)
            if stops:  # one: nothing before it could add any
                ending = self._ending_after(stops[-1])
            with _collecting(stops):
                stored.write_counters(nics.end())
            self._keep_and_show(parser.close(ending))
            if not self._logs:
                self._logs = [nothing_read(self._benchmark, output, execution.proof, ending)]
            with _collecting(stops):
                stored.finish(ending)
        counted = nics.counters if nics.counters.hosts else None
        return with_counters(tuple(self._logs), counted), first_of(stops, None)

    def _ending_after(self, stop: Stop) -> Ending:
        """Return how the execution ended that an error or an interrupt ended early."""
        why = _INTERRUPTED
        if isinstance(stop, FabbenchError):
            why = f"fabbench could not continue: {stop}"
        sizes = self._execution.planned_sizes
        # A MachineError: it failed with its environment.
        return Ending(stopped=why, lost=isinstance(stop, MachineError), planned_sizes=sizes)

    def _follow(
        self,
        lines: ExecutionLines,
        nics: NicSampler,
        stored: ExecutionWriter,
        parser: LogParser,
    ) -> Ending:
        """Store each line, then parse it, until the end, a flood of output or a wrong network.

        Closing `lines` early ends the execution.
        """
        # Sessions and scripts end a step at the usual limit. This one, a little higher, also bounds
        # what comes between steps.
        limit = OutputLimit(above=_EXTRA_OUTPUT)
        planned = self._execution.planned_sizes
        while True:
            try:
                line = next(lines)
                limit.count_or_flood(line)
            except StopIteration as end:
                ending: Ending = end.value
                return ending
            except FloodedError as flood:
                why = f"The execution was aborted: {flood}."
                stored.write(own_line(why))
                self._keep_and_show(parser.feed(own_line(why)))
                return Ending(timed_out=why, planned_sizes=planned)
            if MARKER_SIGN in line:
                self._marked_s.append(awake_s())
            if nics.take_printed(line):  # counters of NICs
                continue
            stored.write(line)
            self._keep_and_show(parser.feed(line))
            if why := self._wrong_network(line, parser):
                return Ending(refused=f"{why} fabbench then aborted it.", planned_sizes=planned)

    def _wrong_network(self, line: str, parser: LogParser) -> str:
        """Return why the execution is refused, after a line that states its network."""
        if self._keep_going or not any(words in line for words in _NETWORK_LINES):
            return ""
        return refusal(parser.network_so_far(), self._execution.proof, self._benchmark)

    def _keep_and_show(self, results: Sequence[Result]) -> None:
        """Show rows and logs to the watcher, and keep the logs."""
        for result in results:
            if isinstance(result, Log):
                self._logs.append(result)
                self._watcher.read(self._execution, result)
            else:
                self._watcher.point(self._execution, result)
