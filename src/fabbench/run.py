"""Carries out a plan: lines from the place into the store, and through the parser to whoever watches.

A line is in the store before anybody sees what it says. However a run ends, what was measured until then is
judged and given back.
"""

from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from fabbench.counters.around import judged
from fabbench.errors import FabbenchError
from fabbench.execution import ExecutionWriter
from fabbench.judge import refusal
from fabbench.launchers import Place
from fabbench.model import Ending, Log, Plan, Point, Trial
from fabbench.parse import Result, Session
from fabbench.split import Begun
from fabbench.store import RunWriter, nothing_read
from fabbench.watch import View, Watch

_SETTLING = (
    "Using network",
    "Selected provider",
    "Selected Provider",
    "NET/IB : Using",
    "NET/Socket : Using",
)
_INTERRUPTED = "fabbench was interrupted before this execution ended."


class Watcher(Protocol):
    """Who is told what happens, as it happens."""

    def begin(self, trial: Trial, number: int) -> None:
        """Take note that a trial begins; `number` counts from 1."""

    def point(self, trial: Trial, point: Point) -> None:
        """Take note of a row."""

    def end(self, trial: Trial, logs: tuple[Log, ...]) -> None:
        """Take note that a trial has ended, and of how it is judged."""

    @property
    def nics(self) -> View | None:
        """Who is told every few seconds what the NICs move; None: nobody."""


@dataclass(slots=True, kw_only=True)
class Results:
    """What came of a plan."""

    logs: Mapping[str, list[Log]]
    """Arm label → its judged logs, in order."""
    interrupted: bool = False
    failure: FabbenchError | None = None
    """What made it impossible to go on."""


def carry_out(
    plan: Plan, place: Place, writer: RunWriter, watcher: Watcher, *, keep_going: bool = False
) -> Results:
    """Run all trials in order. Ctrl-C and errors end it early; they are part of the results.

    An execution that is seen to be off its fabric is ended at once, unless `keep_going`.
    """
    results = Results(logs={arm.label: [] for arm in plan.arms})
    try:
        for number, trial in enumerate(plan.trials, 1):
            watcher.begin(trial, number)
            with writer.execution(trial) as execution:
                running = _Execution(trial, execution, watcher, results, stops_off_fabric=not keep_going)
                logs = running.run(plan.benchmark, place, Watch(place, trial, watcher.nics))
            results.logs[trial.arm.label] += logs
            watcher.end(trial, logs)
            if results.interrupted or results.failure is not None:
                break
    except KeyboardInterrupt:
        results.interrupted = True
    except FabbenchError as error:
        results.failure = error
    return results


class _Execution:
    """One trial that is going on."""

    def __init__(
        self,
        trial: Trial,
        writer: ExecutionWriter,
        watcher: Watcher,
        results: Results,
        *,
        stops_off_fabric: bool,
    ) -> None:
        self._stops_off_fabric = stops_off_fabric
        self._trial = trial
        self._writer = writer
        self._watcher = watcher
        self._results = results
        self._output = writer.path / "output.log"
        self._session = Session(str(self._output), proof=trial.proof)
        self._logs: list[Log] = []
        self._begun = Begun()

    def run(self, benchmark: str, place: Place, nics: Watch) -> tuple[Log, ...]:
        """Run the trial, and judge it however it ends."""
        ending = self._executed(benchmark, place, nics)
        self._counted(nics)
        self._take(self._session.close(ending))
        logs = tuple(self._logs) or (nothing_read(benchmark, self._output, self._trial.proof, ending),)
        logs = judged(logs, nics.around if nics.around.hosts else None)
        try:
            self._writer.finish(ending, logs)
        except FabbenchError as error:
            self._results.failure = self._results.failure or error
        return logs

    def _executed(self, benchmark: str, place: Place, nics: Watch) -> Ending:
        """Run the trial, and say how it ended."""
        trial, results = self._trial, self._results
        try:
            # It may have to make the place ready; its lines come later.
            with closing(place.execute(trial)) as lines:
                self._writer.counters(nics.begin())
                return self._follow(lines, benchmark, nics)
        except KeyboardInterrupt:
            results.interrupted = True
            return Ending(stopped=_INTERRUPTED, planned_sizes=trial.planned_sizes)
        except FabbenchError as error:
            results.failure = error
            return Ending(stopped=f"fabbench could not go on: {error}", planned_sizes=trial.planned_sizes)

    def _counted(self, nics: Watch) -> None:
        """Store what the NICs moved."""
        try:
            self._writer.counters(nics.end())
        except KeyboardInterrupt:
            self._results.interrupted = True
        except FabbenchError as error:
            self._results.failure = self._results.failure or error

    def _follow(self, lines: Generator[str, None, Ending], benchmark: str, nics: Watch) -> Ending:
        """Store each line, then read it. Closing `lines` early ends what runs."""
        while True:
            try:
                line = next(lines)
            except StopIteration as end:
                ending: Ending = end.value
                return ending
            if nics.printed(line):
                continue
            if self._begun.again(line):
                self._begin_anew()
            self._writer.write(line)
            self._take(self._session.feed(line))
            nics.look()
            if self._stops_off_fabric and (why := self._off_fabric(line, benchmark)):
                return Ending(refused=why, planned_sizes=self._trial.planned_sizes)

    def _begin_anew(self) -> None:
        """Forget what was measured: a job that was requeued begins the execution again."""
        self._writer.begin_anew()
        self._session = Session(str(self._output), proof=self._trial.proof)
        self._logs.clear()

    def _off_fabric(self, line: str, benchmark: str) -> str:
        """Say why going on is in vain, once a line settles the network."""
        if not any(word in line for word in _SETTLING):
            return ""
        why = refusal(self._session.stated(), self._trial.proof, benchmark)
        return f"{why} fabbench ended it then." if why else ""

    def _take(self, read: list[Result]) -> None:
        for result in read:
            if isinstance(result, Log):
                self._logs.append(result)
            else:
                self._watcher.point(self._trial, result)
