"""One execution of a fabtest while it is being read: its processes, its facts, and its record."""

import re
from dataclasses import dataclass, field
from functools import cache

from fabbench.benchmarks.fabtests import commands, library, rows
from fabbench.benchmarks.fabtests.rows import Layout, Row
from fabbench.benchmarks.libfabric.commands import Asked
from fabbench.benchmarks.libfabric.info import InfoBlock
from fabbench.benchmarks.libfabric.printed import printed_count
from fabbench.benchmarks.libfabric.told import Told, said, truncated_size
from fabbench.markers import Marker
from fabbench.model import UNTOLD, Damaged, Finding, Labels, Line, Point, Record, Severity, Stream
from fabbench.units import format_size

# What a process says when the other one is the cause.
_CONSEQUENCES = ("Connection reset by peer", "Connection refused", "Broken pipe")
# The names of 2014 and 2015 say the size again, and nothing else.
_NO_NAME = re.compile(r"[\d.]+[kmg]?_(?:lat|bw)|custom")


@dataclass(slots=True, kw_only=True)
class Process:
    """One process, as far as the log tells, and where the reading of it stands."""

    stream: Stream
    side: str = ""
    asked: Asked | None = None
    table: bool = False
    """Whether it has begun to print figures."""
    layout: Layout | None = None
    """Of its table; None: there is none, or its rows are machine readable."""
    exact: bool = False
    """Whether its table's first row was laid out exactly, so that the others must be."""
    rows: int = 0
    piece: Line | None = None
    """The first part of a row that stopped short."""
    info: InfoBlock | None = None


@dataclass(slots=True)
class Execution:
    """Grows line by line; `finish` gives its record."""

    trial: str = ""
    record: Record = field(default_factory=lambda: Record(benchmark="fabtests", finished=None))
    _step: Marker | None = None
    _stepped: bool = False
    _processes: list[Process] = field(default_factory=list)
    _current: dict[Stream, Process] = field(default_factory=dict)
    _told: Told = field(default_factory=Told)
    _iterations: set[int | None] = field(default_factory=set)
    """Of each row; None: the print does not tell."""
    _consequences: list[str] = field(default_factory=list)
    _misfit: bool = False
    _domains: bool = False
    """Whether steps say which domain they are to use."""

    # ------------------------------------------------------------ steps and processes

    def begin(self, marker: Marker) -> None:
        """Begin a step: the next size or device of the same trial."""
        self._close_step(seen=False)
        self._step, self._stepped = marker, True
        self.record.case = self.record.case or marker.facts.get("program")
        if together := marker.facts.get("together"):
            self.record.facts["together"] = together

    def end(self, marker: Marker) -> None:
        """End a step, with the exit status that its processes ended with."""
        self._close_step(seen=marker.status is not None)
        if marker.status:
            program = self.record.case or "The program"
            self._consequences.append(
                f"{program} ended with exit status {marker.status} in step {marker.name}."
            )

    def _close_step(self, *, seen: bool) -> None:
        if self._step is not None and not seen:
            self.record.finished = False
        self._step = None
        for process in self._processes:
            self._drop_piece(process)
        self._processes.clear()
        self._current.clear()

    def takes(self, process: Process) -> bool:
        """Whether a process that begins now belongs to this execution."""
        if self._stepped:
            return self._step is not None
        program = process.asked.program if process.asked else None
        if program and self.record.case and program != self.record.case:
            return False
        peers = [peer for peer in self._processes if peer.stream == process.stream]
        if process.stream != UNTOLD or not peers:
            return not peers
        return len(peers) == 1 and {peers[0].side, process.side} == {"server", "client"}

    def add(self, process: Process) -> None:
        """Take a process in."""
        self._processes.append(process)
        self._current[process.stream] = process
        if self._step is not None:
            process.asked = process.asked or commands.of_step(self._step, process.side)
        if process.asked is not None:
            self.ask(process, process.asked)

    def ask(self, process: Process, asked: Asked) -> None:
        """Note what a process was started with."""
        process.asked, process.side = asked, process.side or asked.side
        self.record.case = self.record.case or asked.program
        if endpoint := commands.endpoint(asked):
            self.tell("endpoint", endpoint, process.stream)

    def process(self, stream: Stream) -> Process | None:
        """Give the process whose output this stream has now."""
        return self._current.get(stream)

    def waiting(self, stream: Stream) -> bool:
        """Whether a process of this stream has not begun its figures."""
        return any(process.stream == stream and not process.table for process in self._processes)

    def open_table(self, stream: Stream, layout: Layout | None) -> None:
        """Begin the figures of the process that waits; of two that wait, nobody knows which it is."""
        waiting = [process for process in self._processes if process.stream == stream and not process.table]
        if len(waiting) > 1:
            for process in waiting:
                process.side = ""
        self._drop_piece(waiting[0])
        waiting[0].table, waiting[0].layout = True, layout
        self._current[stream] = waiting[0]

    # ------------------------------------------------------------ rows

    def row(self, line: Line) -> Point | None:
        """Read a line as a row of the open table, or as the rest of a torn one; None: it is neither."""
        process = self.process(line.stream)
        if process is None or not process.table:
            return None
        if process.piece is not None:
            piece, process.piece = process.piece, None
            whole = rows.joined(piece.text, line.text, process.layout)
            if whole is None:
                self.record.damaged.append(Damaged(piece.number, piece.text))
            else:
                line = line._replace(text=whole)
        row = self._read_row(line, process)
        if row is None:
            return None
        process.rows += 1
        point = self._point(row, process)
        self.record.points.append(point)
        return point

    def _read_row(self, line: Line, process: Process) -> Row | None:
        """Read a row of what is open. The rest of a torn row may look like one with a shorter name."""
        layout = process.layout
        row = rows.read_row(line.text, layout) if layout else rows.read_machine_row(line.text)
        if layout and not layout.name:
            return row
        exact = row is not None and (not layout or rows.is_exact(row, line.text))
        if not process.rows:
            process.exact = exact
        if row is not None and (exact or not process.exact):
            return row
        if rows.is_rest(line.text) and not rows.may_be_cut(line.text, layout):
            self.record.damaged.append(Damaged(line.number, line.text))
        return None

    def hold(self, line: Line) -> bool:
        """Keep a row that stops short, until its rest comes or does not; False: it is no such row."""
        process = self.process(line.stream)
        if process is None or not process.table or not rows.may_be_cut(line.text, process.layout):
            return False
        process.piece = line
        return True

    def _point(self, row: Row, process: Process) -> Point:
        asked, program = process.asked, self.record.case
        size = rows.row_size(
            row,
            asked=asked.size if asked else None,
            iterations=asked.iterations if asked else None,
            times=commands.transfers(program),
        )
        if not size.exact:
            self.record.findings.append(truncated_size(row.size, size.value))
        self._note(row, size.value, asked.iterations if asked else None)
        values = rows.measured(row)
        told = {
            "side": process.stream.side or process.side,
            "rank": process.stream.rank,
            "endpoint": self._told.first("endpoint"),
            "way": "one-way" if program is not None and "pingpong" in program else "",
            "name": "" if _NO_NAME.fullmatch(row.name) else row.name,
            "device": self._step.facts.get("device", "") if self._step is not None else "",
        }
        labels = _labels(tuple(told.items()))
        return Point(size.value, labels, tuple(values), tuple(values.values()))

    def _note(self, row: Row, size: int, asked: int | None) -> None:
        """Note the row's iterations, and whether its figures fit each other."""
        if asked is not None and printed_count(asked) == row.iters:
            self._iterations.add(asked)
        else:
            self._iterations.add(int(row.iters) if row.iters.isdigit() else None)
        if not self._misfit and not row.machine and not rows.fits(row, size):
            self._misfit = True
            self.record.findings.append(
                Finding(
                    code="row-arithmetic",
                    severity=Severity.WARNING,
                    meaning=f"At {format_size(size)} the printed {row.unit} and usec/xfer do not fit.",
                    line=row.text(),
                )
            )

    # ------------------------------------------------------------ facts and failures

    def info(self, text: str, stream: Stream) -> bool:
        """Read a line of a printed fi_info, if one is open or begins; whether it was one."""
        process = self.process(stream)
        if process is None:
            return False
        if text.strip() == "fi_info:":
            process.info = InfoBlock()
            return True
        if process.info is None:
            return False
        certain, inside = process.info.feed(text)
        if certain is not None:
            self.tell(*certain, stream)
        if not inside:
            process.info = None
        return inside

    def tell(self, fact: str, value: str, stream: Stream) -> None:
        """Note what a process says of itself."""
        side = self._side(stream)
        self._told.add(fact, value, side)
        if fact == "domain" and self._step is not None:
            self.record.off_fabric = self.record.off_fabric or self._step.other("domain", value, side)
            self._domains = self._domains or "domain" in self._step.facts

    def library(self, text: str, stream: Stream) -> bool:
        """Read a line of libfabric's own log; whether it was one."""
        if not text.startswith("libfabric:"):
            return False
        wanted = self._step.facts.get("provider", "") if self._step is not None else ""
        for fact, value in library.used(text, wanted):
            self.tell(fact, value, stream)
        return True

    def fail(self, text: str, stream: Stream) -> None:
        """Note an error text as a sentence. What only mirrors the other side's error goes last."""
        sentence = said(self._side(stream), self.record.case or "The program", text)
        mirrored = any(sign in text for sign in _CONSEQUENCES)
        (self._consequences if mirrored else self.record.failures).append(sentence)

    def time_out(self, text: str, stream: Stream) -> None:
        """Note that the program waited for as long as it was told to."""
        sentence = said(self._side(stream), self.record.case or "The program", text)
        self.record.timed_out = self.record.timed_out or sentence

    def finish(self) -> Record:
        """End the execution: facts and findings that need all of it."""
        for process in self._processes:
            self._drop_piece(process)
        if self._step is not None:
            self.record.finished = False
        self.record.failures += self._consequences
        self.record.facts.update(self._told.facts())
        iterations = next(iter(self._iterations)) if len(self._iterations) == 1 else None
        if iterations is not None:
            self.record.facts["iterations"] = iterations
        # Where each step has a domain of its own, several are no surprise.
        self.record.findings += self._told.findings(
            ("provider",) if self._domains else ("provider", "domain")
        )
        return self.record

    def _side(self, stream: Stream) -> str:
        process = self.process(stream)
        return stream.side or (process.side if process else "")

    def _drop_piece(self, process: Process) -> None:
        if process.piece is not None:
            self.record.damaged.append(Damaged(process.piece.number, process.piece.text))
            process.piece = None


@cache
def _labels(told: tuple[tuple[str, str], ...]) -> Labels:
    """Give the labels of a row: one mapping for all rows that share them."""
    return {name: value for name, value in told if value}
