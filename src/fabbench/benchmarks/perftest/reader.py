"""Splits a log's lines into perftest's processes, and these into executions of a server and a client."""

from collections.abc import Sequence

from fabbench.benchmarks import Reading, Shortcut
from fabbench.benchmarks.perftest import text as text_of
from fabbench.benchmarks.perftest import written
from fabbench.benchmarks.perftest.block import Block
from fabbench.benchmarks.perftest.commands import Asked, read_command, unwrapped
from fabbench.benchmarks.perftest.execution import Execution
from fabbench.benchmarks.perftest.summaries import Summary, benchmark_of
from fabbench.benchmarks.perftest.tables import plain, read_header
from fabbench.benchmarks.perftest.text import Stage, Statement
from fabbench.markers import Marker
from fabbench.model import Line, Stream

_HEADER = Statement("header", Stage.TABLE)
_COMMAND = Statement("command", Stage.START)


class PerftestReader:
    """Reads all stream groups together; see `fabbench.benchmarks.Reader`."""

    def __init__(self) -> None:
        self._executions: list[Execution] = []
        self._blocks: dict[Stream, Block] = {}
        self._homes: dict[Stream, Execution] = {}
        self._step: Execution | None = None
        self._summary: Summary | None = None
        self._side_title = ""
        self._command: Line | None = None
        self._version = ""
        self._rules: set[Stream] = set()
        """Streams whose last line that nobody took was a rule."""
        self._out: list[Reading] = []

    # ------------------------------------------------------------ the protocol

    def feed(self, line: Line) -> Sequence[Reading] | None:
        """Read one line; None: it says nothing about perftest."""
        open_here = bool(self._executions) or self._summary is not None
        matters = text_of.may_matter(line.text) if open_here else text_of.may_begin(line.text)
        if not matters and self._command is None:
            self._note(line)
            return None
        line = line._replace(text=plain(line.text))
        command, self._command = self._command, None
        if self._read(line):
            self._rules.discard(line.stream)
            return self._given()
        if command is None or not self._unwrap(command, line):
            self._note(line)
            return None
        return self._given()

    def shortcut(self, rank: str) -> Shortcut | None:
        """Give no quick way: a table has a few dozen rows."""
        del rank
        return None

    def mark(self, marker: Marker) -> Sequence[Reading]:
        """Begin or end a step. Steps of one trial are one execution."""
        step = self._step
        if marker.kind == "begin":
            ours = marker.facts.get("benchmark") == "perftest"
            if not (ours and step is not None and step.trial == marker.trial):
                self._finish()
                step = Execution(marker.trial) if ours else None
                self._executions = [step] if step is not None else []
            self._step = step
            self._blocks, self._homes = {}, {}
            if step is not None:
                step.begin(marker)
        elif step is not None and step.trial == marker.trial:
            step.end(marker)
        return self._given()

    def close(self) -> Sequence[Reading]:
        """End the executions that are open."""
        self._finish()
        self._side_title, self._version, self._command = "", "", None
        self._rules.clear()
        return self._given()

    # ------------------------------------------------------------ lines

    def _read(self, line: Line) -> bool:
        """Read one line; whether it is perftest's."""
        text, stream = line.text, line.stream
        block = self._blocks.get(stream)
        if block is not None and block.in_json:
            self._out += block.json(line)
            return True
        if block is not None and (found := block.row(line)) is not None:
            self._out += found
            return True
        layout = read_header(text)
        if layout is not None:
            self._block(_HEADER, stream).header(layout, line, ruled=stream in self._rules)
            self._settle(stream)
        elif (statement := text_of.read(text)) is not None:
            self._state(statement, line)
        elif written.begins(text):
            block = self._block(Statement("json", Stage.START), stream)
            block.begin_json(line)
            self._out += block.json(line)
        elif (asked := read_command(text)) is not None:
            self._started(asked, line)
        elif (summarised := benchmark_of(text)) != "":
            self._summarise(summarised, line)
        elif block is not None and (statement := text_of.read_inside(text)) is not None:
            self._state(statement, line)
        else:
            return False
        return True

    def _state(self, statement: Statement, line: Line) -> None:
        self._block(statement, line.stream).state(statement, line)
        if statement.kind in {"failure", "status", "at"}:
            self._settle(line.stream)

    def _started(self, asked: Asked, line: Line) -> None:
        """Begin a block with its command line."""
        block = self._block(_COMMAND, line.stream, new=True)
        block.ask(asked)
        self._command = line

    def _unwrap(self, command: Line, line: Line) -> bool:
        """Read a line as the rest of the command line above it, which a terminal broke."""
        joined = unwrapped(command.text, line.text)
        asked = read_command(joined) if joined else None
        block = self._blocks.get(line.stream)
        if asked is None or block is None or command.stream != line.stream:
            return False
        block.ask(asked)
        return True

    def _summarise(self, benchmark: str, line: Line) -> None:
        if self._summary is not None and self._summary.record.benchmark != benchmark:
            self._finish()
        self._summary = self._summary or Summary(benchmark)
        self._out += self._summary.take(line)

    def _note(self, line: Line) -> None:
        """Keep what a line outside says of what follows."""
        self._side_title = text_of.side_title(line.text) or self._side_title
        self._version = text_of.read_version(line.text) or self._version
        if text_of.is_rule(line.text):
            self._rules.add(line.stream)
        elif line.text.strip():
            self._rules.discard(line.stream)

    # ------------------------------------------------------------ blocks and executions

    def _block(self, statement: Statement, stream: Stream, *, new: bool = False) -> Block:
        """Give the block that a statement belongs to: the stream's own, or a new one."""
        block = self._blocks.get(stream)
        if block is not None and not new and not block.ended_by(statement):
            return block
        if block is not None and block.announced_only and not new:
            return block
        step = self._step.step if self._step is not None else None
        fresh = Block(stream, side=stream.side or self._side_title, step=step)
        self._side_title = ""
        home = self._home(stream, first=block is None)
        if self._version:
            fresh.found.fact("perftest", self._version)
        home.blocks.append(fresh)
        self._blocks[stream], self._homes[stream] = fresh, home
        return fresh

    def _home(self, stream: Stream, *, first: bool) -> Execution:
        """Give the execution that a stream's next block belongs to, as far as that is known by now.

        The k-th blocks of all streams are one execution; what has no tag may turn out to be the other side.
        """
        if self._step is not None:
            return self._step
        if first and self._executions:
            return self._executions[-1]
        old = self._homes.get(stream)
        at = self._executions.index(old) + 1 if old in self._executions else len(self._executions)
        if at == len(self._executions):
            self._executions.append(Execution())
        return self._executions[at]

    def _settle(self, stream: Stream) -> None:
        """Decide about a block whose sides and addresses are known now, and give executions that are over."""
        if self._step is not None:
            return
        home = self._homes[stream]
        at = self._executions.index(home)
        if at and home.blocks == [self._blocks[stream]] and not (stream.rank or stream.side):
            before = self._executions[at - 1]
            others = [block for block in before.blocks if block.stream == stream]
            if len(others) == 1 and others[0].paired(home.blocks[0]):
                before.blocks += home.blocks
                self._homes[stream] = before
                del self._executions[at]
        while len(self._executions) > 1 and self._executions[0] not in self._homes.values():
            self._out.append(self._executions.pop(0).finish())

    def _finish(self) -> None:
        executions, self._executions = self._executions, []
        self._out += [execution.finish() for execution in executions if execution.blocks or execution.trial]
        self._blocks, self._homes, self._step = {}, {}, None
        if self._summary is not None:
            self._out.append(self._summary.record)
            self._summary = None

    def _given(self) -> Sequence[Reading]:
        out, self._out = self._out, []
        return out
