"""Reads the output of the fabtests: tables, machine-readable rows and errors, of both sides of a pair."""

from collections.abc import Sequence
from dataclasses import dataclass

from fabbench.benchmarks import Reading
from fabbench.benchmarks.command_line import CommandLine, Syntax
from fabbench.benchmarks.fabtests import rows
from fabbench.benchmarks.fabtests.rows import FabtestLayout, FabtestRow
from fabbench.benchmarks.libfabric.facts import Range, exact_count, logged_facts, truncated_size
from fabbench.benchmarks.libfabric.pair_reader import PairExecution, PairProcess, PairReader
from fabbench.model.compat import override
from fabbench.model.log import Damaged, Line, Marker, Point, Record, Stream
from fabbench.model.patterns import lazy

_PROGRAMS = (
    r"fi_(?:(?:rdm|msg|dgram|rma|rc|ud|efa)_\w*?(?:pingpong|bw|rma|lat|atomic|tx_completion)\w*"
    r"|rdm_atomic|rma_\w+|multi_recv|unmap_mem|ubertest)"
)
"""A pattern for the programs' names, since 2014. Other fabtests are functional tests and measure nothing."""

_SYNTAX = Syntax(
    names=_PROGRAMS,
    short="B:P:s:a:C:F:O:f:d:p:KD:i:HRe:M:I:QS:mc:t:w:lo:rvkj:W:UT:n:hxu:",
    long=(
        *("pin-core=", "timeout=", "debug-assert", "data-progress=", "control-progress=", "max-msg-size="),
        *("use-fi-more", "threading=", "no-rx-cq-data", "expect-error=", "sync-comp="),
    ),
    optional="bE",
)
_ARGUMENTS = lazy(rf"(?:--- # )?\s*(?:\S*/)?(?:lt-)?(?P<program>{_PROGRAMS})(?P<rest> .*)")
_ENDPOINT = lazy(r"fi_(msg|rdm|dgram)_")
# FT_ERR and FT_PRINTERR, by the directories of the sources; and messages of programs that cannot start.
_ERROR = lazy(
    r"\[error\] (?:\d+:)?fabtests:\S+:\d+: .*"
    r"|(?:fi|ft|eq|cq)_\w+(?:\([^()]*\))?\(\): (?:\S*/)?"
    r"(?:common|benchmarks|functional|ubertest|simple|streaming)/\w+\.c:\d+ ?, ret=-?\d+.*"
    rf"|(?:\S*/)?(?:lt-)?{_PROGRAMS}: (?:error while loading|(?:command )?not found|invalid option"
    r"|option requires|unrecognized option|No such file).*"
    rf"|(?:\S+: )+(?:line \d+: )?(?:\S*/)?{_PROGRAMS}: (?:command not found|not found|No such file).*"
)
# Too common to begin an execution, but meaningful inside one.
_ERROR_INSIDE = lazy(
    r"Event queue read -?\d+.*|(?:fi|ft)_\w+(?:\(.*\))?:? (?:\S+\.c:\d+ ?, ret=)?-\d+(?: \(.*)?"
    r"|(?:eq|cq|\w+ fi_cq)_readerr.*|\w+(?:\([^()]*\))?\(\): \S+\.c:\d+ ?, ret=-?\d+.*|Usage:\s*"
)
_TIMED_OUT = lazy(r"\d+s timeout expired.*")
_WRONG = lazy(r"Data check error .*")
_BANNER = lazy(r"\s*[A-Z][\w ]*: \S.*")
_PROVIDER = lazy(r"\s*[Pp]rovider: ([a-z][\w;-]*)\s*")
_MAY_BEGIN = lazy(r"bytes |xfer_size|fi_|fabtests:|rovider:|\.\d\ds *\d")


_ONE_WAY = lazy(r"pingpong|_lat")  # in names of programs that send one message at a time back and forth
# The names of 2014 and 2015 only repeat the size.
_NO_NAME = lazy(r"[\d.]+[kmg]?_(?:lat|bw)|custom")


def _read_arguments(text: str) -> CommandLine | None:
    """Read the argument vector above machine-readable rows: ``fi_rdm_bw -m :``, or ``--- # fi_rdm_bw -m`` (2014)."""
    match = _ARGUMENTS.fullmatch(text)
    if match is None or not (text.startswith("--- # ") or text.rstrip().endswith(" :")):
        return None
    return _SYNTAX.read_arguments(match["program"], match["rest"].rstrip().removesuffix(" :").split())


def _transfers(program: str) -> Range:
    """Return the minimum and maximum number of transfers per iteration."""
    if not program or program.endswith(("_mt", "ubertest")) or "_efa_" in program:
        return Range(1, 1 << 20)
    return Range(2, 2) if "pingpong" in program else Range(1, 1)


@dataclass(slots=True, kw_only=True)
class FabtestProcess(PairProcess):
    """A process of a fabtest, and the layout of its table."""

    layout: FabtestLayout | None = None  # None: there is no table, or its rows are machine-readable


class FabtestExecution(PairExecution[FabtestProcess]):
    """One execution of a fabtest, read line by line."""

    mirrored = ("Connection reset by peer", "Connection refused", "Broken pipe")

    def __init__(self, execution: str) -> None:
        super().__init__(execution, Record(benchmark="fabtests", finished=None))

    @property
    @override
    def program(self) -> str:
        return self.record.case or ""

    @override
    def begin(self, marker: Marker) -> None:
        super().begin(marker)
        self.record.case = self.record.case or marker.facts.get("program")

    @override
    def set_command(self, process: FabtestProcess, command: CommandLine) -> None:
        self.record.case = self.record.case or command.program
        super().set_command(process, command)

    @override
    def endpoint(self, command: CommandLine) -> str:
        # Most programs have only one, and are named after it.
        named = _ENDPOINT.match(command.program)
        return command.endpoint or (named[1] if named else "")

    @override
    def is_damaged(self, text: str, process: FabtestProcess) -> bool:
        return rows.is_damaged(text, process.layout)

    @override
    def row_point(self, line: Line, process: FabtestProcess) -> Point | Damaged | None:
        row = self._whole_row(line, process)
        if row is None:
            return None
        process.rows += 1
        command, times = process.command, _transfers(self.program)
        requested, size_ = (command.iterations, command.size) if command else (None, None)
        size = rows.row_size(row, requested=size_, iterations=requested, times=times)
        # Newer programs have options to send both ways: only for ping-pongs is the number certain.
        either = times if times.low == 2 else Range(1, max(times.high, 2))
        if not rows.fits(row, size, iterations=requested, times=either):
            return Damaged(line.number, line.text)
        if not size.exact:
            self.record.findings.append(truncated_size(row.size, size.value))
        self.iterations.add(exact_count(row.iters, requested))
        twice = rows.fits(row, size, iterations=requested, times=Range(2, 2))
        one_way = bool(_ONE_WAY.search(self.program)) if self.program else twice
        values = rows.measured(row, one_way=one_way)
        labels = self.labels(
            process,
            way="one-way" if "pingpong" in self.program else "",
            name="" if _NO_NAME.fullmatch(row.name) else row.name,
        )
        return Point(size.value, labels, tuple(values), tuple(values.values()))

    def _whole_row(self, line: Line, process: FabtestProcess) -> FabtestRow | None:
        """Read a row of the open table. The rest of a torn row may look like a row with a shorter name."""
        layout = process.layout
        row = rows.read_row(line.text, layout) if layout else rows.read_machine_row(line.text)
        if row is not None and (not layout or not layout.name or rows.is_exact(row, line.text)):
            return row
        if rows.is_rest(line.text) and not rows.is_damaged(line.text, layout):
            self.record.damaged.append(Damaged(line.number, line.text))
        return None

    @override
    def info(self, text: str, stream: Stream) -> bool:
        if text.strip() == "fi_info:" and self.process(stream) is not None:
            self.begin_info(stream)
        return super().info(text, stream)

    def library(self, text: str, stream: Stream) -> bool:
        """Read a line of libfabric's own log; return whether it was one."""
        if not text.startswith("libfabric:"):
            return False
        requested = self.step.facts.get("provider", "") if self.step is not None else ""
        for fact, value in logged_facts(text, requested):
            self.report(fact, value, stream)
        return True


class FabtestsReader(PairReader[FabtestExecution]):
    """Reads one stream group."""

    benchmark = "fabtests"
    new_execution = FabtestExecution

    def __init__(self) -> None:
        super().__init__()
        self._provider = ""  # the provider that a banner names, until its table begins

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        used = (self.current is not None or bool(_MAY_BEGIN.search(line.text))) and self._read(line)
        if not used:
            # A banner's provider counts until a line is not a banner.
            provider = _PROVIDER.fullmatch(line.text)
            self._provider = provider[1] if provider else self._provider if _BANNER.fullmatch(line.text) else ""
        return self.take_readings() or (() if used else None)

    @override
    def close(self) -> Sequence[Reading]:
        self._provider = ""
        return super().close()

    def _read(self, line: Line) -> bool:
        """Read one line; return whether it comes from a fabtest."""
        text, stream = line.text, line.stream
        execution = self.current
        if execution is not None and (execution.info(text, stream) or execution.library(text, stream)):
            return True
        layout = rows.read_header(text)
        if layout is not None:
            self._table(stream, layout)
        elif _ERROR.fullmatch(text):
            self.open_execution().fail(text, stream)
        elif (command := _SYNTAX.read(text)) is not None:
            self.add(FabtestProcess(stream=stream, side=command.side, command=command))
        elif (command := _read_arguments(text)) is not None:
            self._arguments(stream, command)
        elif self._begins_without_header(text, stream):
            self._table(stream, None if "xfer_size" in text else FabtestLayout())
            self._inside(line)
        else:
            return self._inside(line)
        return True

    def _begins_without_header(self, text: str, stream: Stream) -> bool:
        if self.current is not None and self.current.in_table(stream):
            return False
        if rows.is_damaged(text, None):
            return True
        # Without a header, only the newest layout can be recognized: its last column implies its unit.
        row = rows.read_row(text, FabtestLayout())
        return row is not None and row.text() == text.strip()

    def _inside(self, line: Line) -> bool:
        """Read a line that counts only while an execution is open; return whether it did."""
        execution = self.current
        if execution is None or self.read_row(line):
            return execution is not None
        if _ERROR_INSIDE.fullmatch(line.text):
            execution.fail(line.text, line.stream)
        elif _TIMED_OUT.fullmatch(line.text):
            execution.record.timed_out = execution.record.timed_out or execution.sentence(line.text, line.stream)
        elif _WRONG.fullmatch(line.text):
            execution.record.wrong += 1
        else:
            return execution.remains(line)
        return True

    def _table(self, stream: Stream, layout: FabtestLayout | None) -> None:
        execution = self.open_table(FabtestProcess(stream=stream, side=stream.side))
        if (process := execution.process(stream)) is not None:
            process.layout = layout
        if self._provider:
            execution.report("provider", self._provider, stream)
            self._provider = ""

    def _arguments(self, stream: Stream, command: CommandLine) -> None:
        process = self.current.process(stream) if self.current is not None else None
        if process is None or process.table or (process.command and process.command != command):
            self.add(FabtestProcess(stream=stream, side=command.side, command=command))
        elif self.current is not None and process.command is None:
            self.current.set_command(process, command)
