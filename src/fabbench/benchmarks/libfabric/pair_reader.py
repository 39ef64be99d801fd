"""Reads a server and a client of libfabric's tools: their processes, tables, facts and ends.

fi_pingpong and the fabtests print similar output. Subclasses handle the rows and the text around them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

from fabbench.benchmarks import Reader, Reading
from fabbench.benchmarks.command_line import CommandLine
from fabbench.benchmarks.consistency import unmeasured
from fabbench.benchmarks.libfabric.facts import InfoBlock, ReportedFacts
from fabbench.model.compat import override
from fabbench.model.log import NO_STREAM, Damaged, Labels, Line, Marker, Point, Record, Stream
from fabbench.model.messages import quoted


@dataclass(slots=True, kw_only=True)
class PairProcess:
    """One process, as far as the log shows."""

    stream: Stream
    side: str = ""  # `server` or `client`; empty: unknown
    command: CommandLine | None = None
    table: bool = False  # whether it has started to print figures
    rows: int = 0


P = TypeVar("P", bound=PairProcess)


@dataclass(slots=True)
class _Position(Generic[P]):
    process: P | None = None
    info: InfoBlock | None = None


class PairExecution(Generic[P]):
    """One execution, read line by line; `finish` returns its record."""

    mirrored: Sequence[str] = ()  # parts of error messages that the other side causes
    default_program = ""  # the program of steps whose marker does not name it; empty: unknown

    def __init__(self, execution: str, record: Record) -> None:
        self.execution = execution  # its name in fabbench's markers; empty without markers
        self.record = record
        self.step: Marker | None = None
        self.reported = ReportedFacts()
        self.processes: list[P] = []
        self.iterations: set[int | None] = set()
        """Iterations of each row; None: the printed count does not determine them."""
        self._in_steps = False
        self._positions: dict[Stream, _Position[P]] = {}
        self._consequences: list[str] = []
        self._domains_by_step = False

    @property
    def program(self) -> str:
        """The program's name; empty: unknown."""
        raise NotImplementedError

    def row_point(self, line: Line, process: P) -> Point | Damaged | None:
        """Read a line as a complete row of the open table; None: it is not a row."""
        raise NotImplementedError

    def is_damaged(self, text: str, process: P) -> bool:
        """Return whether a line in a table that is not a complete row is the remains of one."""
        raise NotImplementedError

    def begin(self, marker: Marker) -> None:
        """Begin a step: the next size or device of the same execution."""
        self.end()
        self.step, self._in_steps = marker, True
        if together := marker.facts.get("together"):
            self.record.facts["together"] = together

    def end(self) -> None:
        """End a step."""
        self.step = None
        self.processes.clear()
        self._positions.clear()

    def accepts(self, process: P) -> bool:
        """Return whether a new process belongs to this execution."""
        if self._in_steps:
            return self.step is not None
        program = process.command.program if process.command else ""
        if program and self.program and program != self.program:
            return False
        peers = [peer for peer in self.processes if peer.stream == process.stream]
        if process.stream != NO_STREAM or not peers:
            return not peers
        return len(peers) == 1 and {peers[0].side, process.side} == {"server", "client"}

    def add(self, process: P) -> None:
        """Add a process."""
        self.processes.append(process)
        self._position(process.stream).process = process
        command = process.command
        if command is None and self.step is not None:
            program = self.step.facts.get("program") or self.default_program
            command = CommandLine.of_facts(program, process.side, self.step.facts) if program else None
        if command is not None:
            self.set_command(process, command)

    def set_command(self, process: P, command: CommandLine) -> None:
        """Set the command line of a process."""
        process.command, process.side = command, process.side or command.side
        if endpoint := self.endpoint(command):
            self.report("endpoint", endpoint, process.stream)

    def endpoint(self, command: CommandLine) -> str:
        """Return the endpoint type that a command uses; empty: not stated."""
        return command.endpoint

    def process(self, stream: Stream) -> P | None:
        """Return the process whose output this stream currently carries."""
        position = self._positions.get(stream)
        return position.process if position else None

    def in_table(self, stream: Stream) -> bool:
        """Return whether a table is open in this stream."""
        process = self.process(stream)
        return process is not None and process.table

    def has_waiting(self, stream: Stream) -> bool:
        """Return whether a process of this stream has not started its table."""
        return any(process.stream == stream and not process.table for process in self.processes)

    def expects_more(self, stream: Stream) -> bool:
        """Return whether the next line of this stream counts, because an fi_info block is open."""
        position = self._positions.get(stream)
        return position is not None and position.info is not None

    def open_table(self, stream: Stream, side: str = "") -> P:
        """Begin the table of the process that is waiting for one, and return that process.

        Of several, it is the one of `side`; if there is none of that side, which one it is remains unknown.
        """
        waiting = [process for process in self.processes if process.stream == stream and not process.table]
        process = next((each for each in waiting if each.side == side), waiting[0])
        if process.side != side and len(waiting) > 1:
            for each in waiting:
                each.side = ""
        process.table, self._position(stream).process = True, process
        return process

    def row(self, line: Line) -> Point | Damaged | None:
        """Read a line as a row of the open table; None: it is not a row."""
        process = self._position(line.stream).process
        if process is None or not process.table:
            return None
        point = self.row_point(line, process)
        if isinstance(point, Point):
            self.record.points.append(point)
        elif point is not None:
            self.record.damaged.append(point)
        return point

    def remains(self, line: Line) -> bool:
        """Report the remains of a row; False: a line is none."""
        # A damaged tag does not identify the stream: the row may belong to any table.
        if any(self.is_damaged(line.text, each) for each in self.processes if each.table):
            self.record.damaged.append(Damaged(line.number, line.text))
            return True
        return False

    def labels(self, process: P, **more: str) -> Labels:
        """Return the labels of a row of `process`: one mapping for all rows with the same labels."""
        return _labels(
            (
                ("side", process.stream.side or process.side),
                ("rank", process.stream.rank),
                ("endpoint", self.reported.first("endpoint")),
                *more.items(),
                ("device", self.step.facts.get("device", "") if self.step is not None else ""),
            )
        )

    def begin_info(self, stream: Stream) -> None:
        """Begin an fi_info block."""
        self._position(stream).info = InfoBlock()

    def info(self, text: str, stream: Stream) -> bool:
        """Read a line of an open fi_info block; return whether it was part of one."""
        position = self._position(stream)
        if position.info is None:
            return False
        if text.strip() == "fi_info:":
            return True
        fact, inside = position.info.feed(text)
        if fact is not None:
            self.report(*fact, stream)
        if not inside:
            position.info = None
        return inside

    def report(self, fact: str, value: str, stream: Stream) -> None:
        """Record a fact that a process reports about itself."""
        side = self.side(stream)
        self.reported.add(fact, value, side)
        if fact == "domain" and self.step is not None:
            self.record.off_fabric = self.record.off_fabric or self.step.other("domain", value, side)
            self._domains_by_step = self._domains_by_step or "domain" in self.step.facts

    def fail(self, text: str, stream: Stream) -> None:
        """Record an error message as a sentence. One that only mirrors the other side's error goes last."""
        mirrored = any(part in text for part in self.mirrored)
        (self._consequences if mirrored else self.record.failures).append(self.sentence(text, stream))

    def sentence(self, text: str, stream: Stream) -> str:
        """Return a sentence that quotes a message of a process."""
        side = self.side(stream)
        return f"{f'The {side}' if side else self.program or 'The program'} said: {quoted(text)}"

    def finish(self) -> Record:
        """End the execution: add the facts and findings that need all of it."""
        self.record.failures += self._consequences
        self.record.facts.update(self.reported.facts())
        iterations = next(iter(self.iterations)) if len(self.iterations) == 1 else None
        if iterations is not None:
            self.record.facts["iterations"] = iterations
        # If each step has a domain of its own, several are expected.
        facts = ("provider",) if self._domains_by_step else ("provider", "domain")
        self.record.findings += self.reported.findings(facts)
        self.record.findings += unmeasured(point.size for point in self.record.points if not point.metrics)
        return self.record

    def side(self, stream: Stream) -> str:
        """Return the side that prints to a stream; empty: unknown."""
        process = self.process(stream)
        return stream.side or (process.side if process else "")

    def _position(self, stream: Stream) -> _Position[P]:
        return self._positions.setdefault(stream, _Position())


@cache
def _labels(pairs: tuple[tuple[str, str], ...]) -> Labels:
    return {name: value for name, value in pairs if value}


E = TypeVar("E", bound=PairExecution[Any])


class PairReader(Reader, Generic[E]):
    """Reads one execution after another, from lines and markers."""

    benchmark = ""
    new_execution: Callable[[str], E]
    """Takes the name in fabbench's markers, empty without markers."""

    def __init__(self) -> None:
        self.current: E | None = None
        self._readings: list[Reading] = []

    @override
    def mark(self, marker: Marker) -> Sequence[Reading]:
        # All steps of an execution form one record.
        current = self.current
        if marker.kind == "begin":
            ours = marker.facts.get("benchmark") == self.benchmark
            if current is not None and not (ours and current.execution == marker.execution):
                self.finish()
            if ours:
                self.open_execution(marker.execution).begin(marker)
        elif current is not None and current.execution == marker.execution:
            current.end()
        return self.take_readings()

    @override
    def close(self) -> Sequence[Reading]:
        self.finish()
        return self.take_readings()

    def add(self, process: PairProcess) -> None:
        """Add a process to the execution, or begin the next execution with it."""
        if self.current is not None and not self.current.accepts(process):
            self.finish()
        self.open_execution().add(process)

    def open_execution(self, name: str = "") -> E:
        """Return the open execution; begin one if there is none."""
        self.current = self.current or self.new_execution(name)
        return self.current

    def open_table(self, process: PairProcess, side: str = "") -> E:
        """Begin the table of the process that waits for one in this stream, or else that of a new `process`."""
        if self.current is None or not self.current.has_waiting(process.stream):
            self.add(process)
        execution = self.open_execution()
        execution.open_table(process.stream, side)
        return execution

    def read_row(self, line: Line) -> bool:
        """Read a row of the open table; return whether it was one."""
        row = self.current.row(line) if self.current is not None else None
        if isinstance(row, Point):
            self._readings.append(row)
        return row is not None

    def finish(self) -> None:
        """End the open execution."""
        if self.current is not None:
            self._readings.append(self.current.finish())
            self.current = None

    def take_readings(self) -> Sequence[Reading]:
        """Return what was read since the last call."""
        readings, self._readings = self._readings, []
        return readings
