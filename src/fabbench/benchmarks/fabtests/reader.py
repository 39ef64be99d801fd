"""Reads the fabtests' output: tables, machine readable rows and errors, of both sides of a pair."""

import re
from collections.abc import Sequence

from fabbench.benchmarks import Shortcut
from fabbench.benchmarks.fabtests import rows
from fabbench.benchmarks.fabtests.commands import PROGRAMS, read_arguments, read_command
from fabbench.benchmarks.fabtests.execution import Execution, Process
from fabbench.benchmarks.fabtests.rows import Layout
from fabbench.benchmarks.libfabric.commands import Asked
from fabbench.benchmarks.libfabric.reading import Executions
from fabbench.markers import Marker
from fabbench.model import Line, Point, Record, Stream

# FT_ERR and FT_PRINTERR, by the folders of the sources; the program's own words where it cannot start.
_ERROR = re.compile(
    r"\[error\] (?:\d+:)?fabtests:\S+:\d+: .*"
    r"|(?:fi|ft|eq|cq)_\w+(?:\([^()]*\))?\(\): (?:\S*/)?"
    r"(?:common|benchmarks|functional|ubertest|simple|streaming)/\w+\.c:\d+ ?, ret=-?\d+.*"
    rf"|(?:\S*/)?(?:lt-)?{PROGRAMS}: (?:error while loading|(?:command )?not found|invalid option"
    r"|option requires|unrecognized option|No such file).*"
    rf"|(?:\S+: )+(?:line \d+: )?(?:\S*/)?{PROGRAMS}: (?:command not found|not found|No such file).*"
)
# These are too common to begin an execution, and say something inside one.
_ERROR_INSIDE = re.compile(
    r"Event queue read -?\d+.*|(?:fi|ft)_\w+(?:\(.*\))?:? (?:\S+\.c:\d+ ?, ret=)?-\d+(?: \(.*)?"
    r"|(?:eq|cq|\w+ fi_cq)_readerr.*|\w+(?:\([^()]*\))?\(\): \S+\.c:\d+ ?, ret=-?\d+.*|Usage:\s*"
)
_TIMED_OUT = re.compile(r"\d+s timeout expired.*")
_WRONG = re.compile(r"Data check error .*")
_BANNER = re.compile(r"\s*[A-Z][\w ]*: \S.*")
_PROVIDER = re.compile(r"\s*[Pp]rovider: ([a-z][\w;-]*)\s*")
_MAY_BEGIN = re.compile(r"bytes |xfer_size|fi_|fabtests:|rovider:|\.\d\ds *\d")


class FabtestsReader:
    """Reads one stream group; see `fabbench.benchmarks.Reader`."""

    def __init__(self) -> None:
        self._executions = Executions("fabtests", Execution)
        self._provider = ""
        """What a banner above a table that has not come says."""

    # ------------------------------------------------------------ the protocol

    def feed(self, line: Line) -> Sequence[Point | Record] | None:
        """Read one line; None: it says nothing about a fabtest."""
        if self._executions.current is None and not _MAY_BEGIN.search(line.text):
            self._note_banner(line.text)
            return None
        if not self._read(line):
            self._note_banner(line.text)
            return self._executions.given() or None
        return self._executions.given()

    def shortcut(self, rank: str) -> Shortcut | None:
        """Give no quick way: a table has a few dozen rows."""
        del rank
        return None

    def mark(self, marker: Marker) -> Sequence[Point | Record]:
        """Begin or end a step. Steps of one trial are one execution."""
        return self._executions.mark(marker)

    def close(self) -> Sequence[Point | Record]:
        """End the execution that is open."""
        self._executions.finish()
        self._provider = ""
        return self._executions.given()

    # ------------------------------------------------------------ lines

    def _read(self, line: Line) -> bool:
        """Read one line; whether it is ours."""
        text, stream = line.text, line.stream
        execution = self._executions.current
        if execution is not None and (execution.info(text, stream) or execution.library(text, stream)):
            return True
        layout = rows.read_header(text)
        if layout is not None:
            self._table(stream, layout)
        elif _ERROR.fullmatch(text):
            self._executions.begun().fail(text, stream)
        elif (asked := read_command(text)) is not None:
            self._executions.add(Process(stream=stream, side=asked.side, asked=asked))
        elif (asked := read_arguments(text)) is not None:
            self._arguments(stream, asked)
        elif self._begins_without_header(text, stream):
            self._table(stream, None if "xfer_size" in text else Layout())
            self._inside(line)
        else:
            return self._inside(line)
        return True

    def _begins_without_header(self, text: str, stream: Stream) -> bool:
        """Whether figures begin here: machine readable ones, or a table whose header the log left out."""
        process = self._executions.current.process(stream) if self._executions.current is not None else None
        if process is not None and process.table:
            return False
        if rows.may_be_cut(text, None):
            return True
        # Without a header the newest layout alone can be told: its unit is known by its last column.
        row = rows.read_row(text, Layout())
        return row is not None and row.text() == text.strip()

    def _inside(self, line: Line) -> bool:
        """Read what counts only while an execution is open."""
        execution = self._executions.current
        if execution is None:
            return False
        point = execution.row(line)
        if point is not None:
            self._executions.out.append(point)
        elif _ERROR_INSIDE.fullmatch(line.text):
            execution.fail(line.text, line.stream)
        elif _TIMED_OUT.fullmatch(line.text):
            execution.time_out(line.text, line.stream)
        elif _WRONG.fullmatch(line.text):
            execution.record.wrong += 1
        else:
            return execution.hold(line)
        return True

    # ------------------------------------------------------------ executions

    def _table(self, stream: Stream, layout: Layout | None) -> None:
        """Begin figures, and with them a process unless one was waiting for its own."""
        if self._executions.current is None or not self._executions.current.waiting(stream):
            self._executions.add(Process(stream=stream, side=stream.side))
        execution = self._executions.begun()
        execution.open_table(stream, layout)
        if self._provider:
            execution.tell("provider", self._provider, stream)
            self._provider = ""

    def _arguments(self, stream: Stream, asked: Asked) -> None:
        """Take the argument vector above machine readable rows: the process may be known already."""
        process = self._executions.current.process(stream) if self._executions.current is not None else None
        if process is None or process.table or (process.asked and process.asked != asked):
            self._executions.add(Process(stream=stream, side=asked.side, asked=asked))
        elif self._executions.current is not None and process.asked is None:
            self._executions.current.ask(process, asked)

    def _note_banner(self, text: str) -> None:
        """Remember the provider that a banner names, until something else than a banner comes."""
        provider = _PROVIDER.fullmatch(text)
        if provider is not None:
            self._provider = provider[1]
        elif not _BANNER.fullmatch(text):
            self._provider = ""
