"""Executions of several processes: a server and a client, of each rail or rank.

A program gives its `Process`: what begins one, what lines say about it, and which others may be of
its run. A `ProcessesReader` follows one process per stream, groups them into runs, and makes one
record of each run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from fabbench.benchmarks import LogReadings, Reader, Reading
from fabbench.benchmarks.commands import whole_number
from fabbench.benchmarks.events import (
    Ahead,
    Error,
    Events,
    Fail,
    Header,
    Note,
    RowLine,
    Setting,
    Statement,
    Turn,
)
from fabbench.benchmarks.executions import Execution, Table, join_processes, read_any_line
from fabbench.model.compat import override
from fabbench.model.log import NO_STEP, NO_STREAM, Facts, Line, Marker, Point, Record, Stream
from fabbench.model.mappings import first_of
from fabbench.model.messages import quoted

_CHOSEN = frozenset({"device", "domain"})
"""Facts that contradict fabbench's step if it states another value."""
_OF_STEP = ("together", "endpoint")
"""What a step states of its processes."""

Reported: TypeAlias = dict[str | int, str]
"""The values of a fact → the side that first reported each."""


@dataclass(slots=True, eq=False)
class Process(Execution):
    """What one process prints into a stream."""

    stream: Stream = NO_STREAM
    step: Marker = NO_STEP
    """Fabbench's own, in which it was started."""
    reported: dict[str, Reported] = field(default_factory=dict)
    run: "list[Process]" = field(default_factory=list)
    """All processes of its run, and itself; empty as long as that is not known."""

    def __post_init__(self) -> None:
        stated = self.step.facts
        self.size = whole_number(stated, "size")
        self.iterations = whole_number(stated, "iterations")
        self.record.case = self.record.case or stated.get("program")
        self.report({name: stated[name] for name in _OF_STEP if name in stated})

    @property
    def case(self) -> str:
        """The program; empty if it is not known."""
        return self.record.case or ""

    @property
    def side(self) -> str:
        """`server` or `client`; empty if it is not known."""
        return self.stream.side

    # -- its run

    def is_ended_by(self, events: Events) -> bool:
        """Return whether a line can only belong to a later process of the stream."""
        raise NotImplementedError

    @property
    def shows_run(self) -> bool:
        """Whether all that shows its run has been read."""
        return True

    @property
    def is_told_by_peer(self) -> bool:
        """Whether only the other side shows its run, and not the order of processes."""
        return False

    def is_peer(self, other: "Process") -> bool:
        """Return whether another process is the other side of its run."""
        raise NotImplementedError

    def is_peer_of(self, run: Sequence["Process"]) -> bool:
        """Return whether a run is that of one process, which is the other side."""
        return len(run) == 1 and self.is_peer(run[0])

    def may_be_of(self, run: Sequence["Process"]) -> bool:
        """Return whether it may be of the program of a run: one may not say of which it is."""
        cases = {process.case for process in (self, *run)}
        return len(cases - {""}) < 2

    # -- what lines say

    def report(self, facts: Facts) -> None:
        """Add facts; another device than that of fabbench's step is not what was to be measured."""
        for name, value in facts.items():
            if value == "":  # not known
                continue
            self.reported.setdefault(name, {}).setdefault(value, self.side)
            if name in _CHOSEN and not self.record.off_fabric:
                contradiction = self.step.contradiction(name, str(value), self.side)
                self.record.off_fabric = contradiction

    @override
    def add(self, statement: Statement) -> None:
        match statement:
            case Setting(facts=facts):
                self.report(facts)
                Execution.add(self, statement._replace(facts={}))
            case Error():
                Execution.add(self, Fail(self.said(statement.text)))
            case _:
                Execution.add(self, statement)

    def said(self, text: str) -> str:
        """Return a sentence that quotes an error; it names the side, if that is known."""
        program = self.table.program or self.case or "The program"
        speaker = f"The {self.side}" if self.side else program
        return f"{speaker} said: {quoted(text)}"

    def add_events(self, events: Events) -> Sequence[Point]:
        """Add what a line says; return the points of a row."""
        points: list[Point] = []
        for event in events:
            if isinstance(event, RowLine):
                points += self.add_row(event)
            elif not isinstance(event, Turn):  # of which the reader makes something
                self.add(event)
        return points


class ProcessesReader(Reader):
    """Reads the processes of a program, or of a family of programs, of all streams."""

    table: Table
    process: type[Process]
    """A subclass states both."""

    def __init__(self) -> None:
        self._processes: dict[Stream, Process] = {}
        """The one that prints to each stream now."""
        self._ahead: dict[Stream, list[Statement]] = {}
        """What was said about the table, or the process, that comes next in a stream."""
        self._runs: dict[int, list[Process]] = {}
        """Numbers, which ascend, of the runs that more processes may be of → their processes."""
        self._run_of: dict[Stream, int] = {}
        """The last run of each stream."""
        self._step = NO_STEP
        """The last one that fabbench marked, if it is of this benchmark."""

    def judge(self, record: Record, processes: Sequence[Process]) -> None:
        """Add what only the whole run shows; usually rows and messages say it all."""

    @override
    def feed(self, line: Line) -> LogReadings | None:
        process = self._processes.get(line.stream)
        if process is None and self._step is not NO_STEP:  # all text in it is of the program
            process = self._begin_process(line.stream)
        events = read_any_line(self.table, line, process, may_fail=process is not None)
        match events:
            case None:
                if self._ahead and line.text.strip():
                    self._forget_notes_ahead(line.stream)
                return None
            case (Ahead(statements),):  # another benchmark may read the line, too
                ahead = self._ahead.setdefault(line.stream, [])
                ahead += (statement for statement in statements if statement not in ahead)
                return None
        return self._assemble(events, line.stream, process)

    def _forget_notes_ahead(self, stream: Stream) -> None:
        """Forget the notes of lines above another program's: they are about the next line alone."""
        ahead = self._ahead.get(stream, ())
        self._ahead[stream] = [said for said in ahead if not isinstance(said, Note)]

    def _assemble(self, events: Events, stream: Stream, above: Process | None) -> LogReadings:
        """Add events to the process that they are about, which may begin with them.

        `above`: the one that has printed to the stream so far; None: none has.
        """
        with_ahead = [*self._ahead.get(stream, ()), *events]
        if above is not None and not above.is_ended_by(with_ahead):
            process = above
        else:
            process = self._begin_process(stream)
        if process is not above or any(isinstance(event, Header) for event in events):
            events = with_ahead
            self._ahead.pop(stream, None)
        readings: list[Reading] = [*process.add_events(events)]
        for each in (above, process):
            readings += self._group(each)
        return readings

    @override
    def mark(self, marker: Marker) -> LogReadings:
        if marker.kind != "begin":
            return ()
        is_ours = marker.facts.get("benchmark") == self.table.benchmark
        # All steps of one execution of fabbench are one run, which goes on in this step.
        goes_on = is_ours and self._step.execution == marker.execution
        before = self._end_processes() if goes_on else self.close()
        self._step = marker if is_ours else NO_STEP
        if is_ours and not goes_on:  # it has a record even if it prints nothing
            self._group(self._begin_process(NO_STREAM))
        return before

    @override
    def doubt_rows(self) -> None:
        for process in self._processes.values():
            process.may_mix_rows = True

    @override
    def close(self) -> LogReadings:
        ended = self._end_processes()
        runs = self._runs
        self._runs = {}
        self._run_of = {}
        self._ahead = {}
        self._step = NO_STEP
        return [*ended, *map(self._record, runs.values())]

    def _begin_process(self, stream: Stream) -> Process:
        record = self.table.record()
        process = self.process(self.table, record, stream=stream, step=self._step)
        self._processes[stream] = process
        return process

    def _end_processes(self) -> LogReadings:
        """End the process of each stream; return the runs that are over by that."""
        ended = self._processes
        self._processes = {}
        return [record for process in ended.values() for record in self._group(process)]

    # -- processes → runs

    def _group(self, process: Process | None) -> Sequence[Record]:
        """Assign a process to its run, if that is known by now; return those that are over."""
        if process is None or process.run:
            return ()
        stream = process.stream
        if self._processes.get(stream) is process and not process.shows_run:
            return ()
        number = self._run_number(process)
        process.run = self._runs.setdefault(number, [])
        process.run.append(process)
        # Another one of the run may have said of which program it is.
        cases = (other.record.case for other in process.run if other.case)
        process.record.case = first_of(cases, None)
        self._run_of[stream] = number
        # More processes may be of the latest run, and of the last one of each stream.
        may_go_on = {max(self._runs), *self._run_of.values()}
        over = self._runs.keys() - may_go_on
        return [self._record(self._runs.pop(each)) for each in sorted(over)]

    def _run_number(self, process: Process) -> int:
        """Return the number of the run that a process is of, which may be a new one.

        It is that of its other side; where the order shows it, the k-th ones of all streams are of
        one run.
        """
        latest = max(self._runs, default=-1)
        before = self._run_of.get(process.stream)
        if process.is_told_by_peer:
            runs = self._runs.items()
            numbers = [number for number, run in runs if process.is_peer_of(run)]
        elif before is None:  # the first one of a stream is of the run that others have begun
            numbers = [max(latest, 0)]
        else:  # in a step of fabbench all are of one run
            numbers = [before if self._step is not NO_STEP else before + 1]
        for number in numbers:
            run = self._runs.get(number, ())
            if process.may_be_of(run):
                return number
        return latest + 1

    # -- a run → a record

    def _record(self, processes: Sequence[Process]) -> Record:
        """Return the record of a run: of what all its processes printed."""
        record = self.table.record()
        for process in processes:
            _merge(record, process.finish())
        for name, values in reported_by(processes).items():
            first, *others = values
            as_text = ", ".join(map(str, values))
            record.facts[name] = as_text if others else first
        of_tables = [process.record.finished for process in processes if process.rows]
        expected = [finished for finished in of_tables if finished is not None]
        record.finished = all(expected) if expected else None  # None: no end is expected
        join_processes(record, processes)
        self.judge(record, processes)
        return record


def reported_by(processes: Sequence[Process]) -> dict[str, Reported]:
    """Return fact → its different values, in order → the side that reported each first."""
    values: dict[str, Reported] = {}
    for process in processes:
        for name, sides in process.reported.items():
            of_fact = values.setdefault(name, {})
            for value, side in sides.items():
                of_fact.setdefault(value, side)
    return values


def _merge(record: Record, other: Record) -> None:
    """Add what a process reported."""
    record.benchmark = other.benchmark  # another one where a script's summary is of it
    record.case = record.case or other.case
    record.incomplete = record.incomplete or other.incomplete
    record.off_fabric = record.off_fabric or other.off_fabric
    record.timed_out = record.timed_out or other.timed_out
    record.wrong += other.wrong
    record.damaged += other.damaged
    record.failures += (failure for failure in other.failures if failure not in record.failures)
    record.findings += (found for found in other.findings if found not in record.findings)
