"""Reads a server and a client of libfabric's tools, whose tables are alike, on the engine of tables.

Both print to one log: to streams of their own, one after the other, or in steps between fabbench's markers.
"""

import getopt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from fabbench.benchmarks import Reading
from fabbench.benchmarks.command_line import read_words
from fabbench.benchmarks.consistency import is_remains, unmeasured, warning
from fabbench.benchmarks.engine import Cells, Execution, Layout, Row, Statement, Table, TableReader, cell_patterns
from fabbench.benchmarks.libfabric.facts import InfoBlock
from fabbench.benchmarks.libfabric.figures import count_range, measure
from fabbench.model.compat import override
from fabbench.model.log import NO_STREAM, Finding, Line, Marker, Record, Severity, Stream
from fabbench.model.messages import quoted
from fabbench.model.patterns import lazy

_TIMED_OUT = lazy(r"\s*\d+s timeout expired.*")
_MIRRORED = (
    *("Connection reset by peer", "Connection refused", "Broken pipe", "remote connection closed"),
    "failed to connect",
)
"""Parts of error messages that the other side causes: its own message comes first."""
# The names of 2014 and 2015 only repeat the size.
_NO_NAME = lazy(r"[\d.]+[kmg]?_(?:lat|bw)|custom")
_ENDPOINT = re.compile(r"fi_(msg|rdm|dgram)_")


class Options(NamedTuple):
    """The options that programs take, in getopt's notation."""

    short: str
    long: str = ""
    optional: str = ""  # letters of options whose value may be omitted (``-E`` and ``-E=4000``)


def read_command(text: str, program: re.Pattern[str], known: Options) -> Statement | None:
    """Read a line that starts a program; None for a line that only names it."""
    command = read_words(text, program)
    return read_arguments(*command, known, above=True) if command else None


def read_arguments(program: str, words: list[str], known: Options, *, above: bool = False) -> Statement | None:
    """Read the arguments of a program: its side, endpoint, size and iterations. None if they are not valid."""
    kept = [word for word in words if not (word[:1] == "-" and word[1:2] and word[1] in known.optional)]
    try:
        options, operands = getopt.gnu_getopt(kept, known.short, known.long.split())
    except getopt.GetoptError:
        return None
    given, side = dict(options), "client" if operands else "server"
    facts = {"side": side, "endpoint": given.get("-e") or endpoint_of(program)}
    said = Statement(above=above, case=program, facts=facts, size=_whole(given, "-S"), end=_whole(given, "-I"))
    return said if len(operands) < 2 else None


def error_lines(programs: str, sources: str) -> re.Pattern[str]:
    """Return a pattern for error lines that name a source file, and for those of programs that cannot start."""
    return lazy(
        rf"\[error\] (?:\d+:)?(?:fabtests:)?(?:\S*/)?{sources}:\d+.*"
        rf"|[\w/]+(?:\([^()]*\))?(?:\(\))?: (?:\S*/)?{sources}:\d+ ?, ret=-?\d+.*"
        rf"|(?:\S+: )*(?:line \d+: )?(?:\S*/)?(?:lt-)?{programs}: (?:error while loading|(?:command )?not found"
        r"|invalid option|option requires|unrecognized option|No such file).*"
    )


def is_left(text: str, layout: Layout) -> bool:
    """Return whether a line may be what is left of a row."""
    return is_remains(text.split(), cell_patterns(layout))


_GLUED = lazy(r"(?<=\.\d\d)(?=\d)|(?<=\.\d\ds)(?=\d)")


def cells(text: str) -> Cells:
    """Return the cells of a row: there is no blank between full columns, and decimals show where each ends."""
    return Cells(_GLUED.sub(" ", text))


def endpoint_of(program: str) -> str:
    """Return the endpoint type that a program is named after; empty: it has several."""
    return named[1] if (named := _ENDPOINT.match(program)) else ""


def _whole(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name, "")
    return int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else None


@dataclass(slots=True, eq=False)
class Process(Execution):
    """A process: its table, and with `size` and `end` the size and the iterations of its command line."""

    step: Marker | None = None
    stream: Stream = NO_STREAM
    side: str = ""  # `server` or `client`; empty: unknown
    info: InfoBlock | None = None
    counts: set[str] = field(default_factory=set)  # the iterations of its rows, as printed


@dataclass(slots=True)
class Pair:
    """One execution of a server and a client while it is read."""

    record: Record
    is_open: bool = False
    name: str = ""  # in fabbench's markers; empty without markers
    step: Marker | None = None
    running: list[Process] = field(default_factory=list)  # those of the step
    ended: list[Process] = field(default_factory=list)
    current: dict[Stream, Process] = field(default_factory=dict)
    reported: dict[str, dict[str, str]] = field(default_factory=dict)
    """Fact → value → the side that first reported it: both do, in every step."""
    has_domains: bool = False  # whether its steps state one each

    def begin(self, step: Marker | None) -> None:
        """Begin a step: the next size or device. None: the step has ended."""
        self.step, self.ended, self.running = step, [*self.ended, *self.running], []
        self.current.clear()

    def at(self, stream: Stream) -> Process:
        """Return the process that prints to a stream."""
        if stream not in self.current:
            self.current[stream] = Process(self.record, step=self.step, stream=stream, side=stream.side)
        return self.current[stream]

    def accepts(self, program: str | None, stream: Stream, side: str) -> bool:
        """Return whether a new process belongs to this execution."""
        if self.name:
            return self.step is not None
        if program and self.record.case and program != self.record.case:
            return False
        peers = [process.side for process in self.running if process.stream == stream]
        return not peers or (stream == NO_STREAM and sorted([*peers, side]) == ["client", "server"])

    def report(self, fact: str, value: str, side: str) -> None:
        """Record a fact that a process reports about itself."""
        if value:
            self.reported.setdefault(fact, {}).setdefault(value, side)
        if fact == "domain" and self.step is not None:
            self.record.off_fabric = self.record.off_fabric or self.step.other("domain", value, side)
            self.has_domains = self.has_domains or "domain" in self.step.facts

    def first(self, fact: str) -> str:
        """Return the first value of a fact; empty: not reported."""
        return next(iter(self.reported.get(fact, {})), "")

    def finish(self) -> None:
        """Add the facts to the record, and a finding for each in which processes that should agree differ."""
        facts = self.record.facts
        for name, values in self.reported.items():
            clients = [value for value, side in values.items() if side == "client"]
            # Addresses are as the client sees them.
            facts[name] = (clients or [*values])[0] if name.endswith("_address") else ", ".join(values)
            if len(values) < 2 or name not in {"provider", *(() if self.has_domains else ("domain",))}:
                continue
            used = ", ".join(f"{value} ({side})" if side else value for value, side in values.items())
            self.record.findings.append(
                Finding(
                    code=f"mixed-{name}",
                    severity=Severity.ERROR if name == "provider" else Severity.WARNING,
                    meaning=f"The processes did not use one {name}: {used}.",
                    advice="Measure again with one provider and one domain on both sides.",
                )
            )
        if providers := self.reported.get("provider"):
            facts["transport"] = "mixed" if len(providers) > 1 else self.first("provider")


class PairReader(TableReader):
    """Reads the executions of one program or a family of programs."""

    newest: Layout
    width: int
    """The characters of a row."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._pair = Pair(self._new({}).record)
        self._stream = NO_STREAM
        self._title = ""  # the side that a heading names, until the next table

    def without_header(self, text: str) -> Sequence[Layout]:
        """Return the layouts of a table that begins with this row, where its header is missing."""
        # Other layouts cannot be recognized: the last column of the newest implies its unit.
        words = text.split() if len(text) == self.width and text[0].isdigit() else []
        patterns = cell_patterns(self.newest)
        is_row = len(words) == len(patterns) and all(map(re.Pattern.fullmatch, patterns, words))
        return (self.newest,) if is_row else ()

    def judge(self, pair: Pair, processes: Sequence[Process]) -> None:
        """Add what only the whole execution shows."""

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        text, self._stream, before = line.text, line.stream, list[Reading]()
        process = self._pair.at(line.stream)
        if process.info is not None and self._information(process, process.info, text):
            return ()
        if not process.layouts and (layouts := self.without_header(text)):
            before += self._apply(Statement(begins=True, layouts=layouts)) or ()
        self._open = self._pair.at(line.stream) if self._pair.is_open else None
        readings = super().feed(line)
        if text.endswith("fi_info:") and self._pair.is_open:
            self._pair.at(line.stream).info = InfoBlock()
            return [*before, *(readings or ())]
        # A damaged tag does not identify the stream: the row may belong to any table.
        for other in self._pair.running if readings is None and not process.layouts else ():
            if other.layouts and self._table.remains(text, other.layouts[0]):
                other.damage(line)
                return ()
        return [*before, *(readings or ())] if before else readings

    @override
    def mark(self, marker: Marker) -> Sequence[Reading]:
        # All steps of an execution form one record.
        before: Sequence[Reading] = ()
        ours = marker.kind == "begin" and marker.facts.get("benchmark") == self._table.benchmark
        if marker.kind == "begin" and not (ours and self._pair.name == marker.execution):
            before = self.close()
        if ours:
            pair, facts = self._pair, marker.facts
            pair.is_open, pair.name, pair.record.case = True, marker.execution, pair.record.case or facts.get("program")
            pair.record.facts |= {name: facts[name] for name in ("together",) if name in facts}
            pair.begin(marker)
            pair.report("endpoint", facts.get("endpoint") or endpoint_of(facts.get("program", "")), "")
        elif self._pair.name == marker.execution:
            self._pair.begin(None)
        return before

    @override
    def close(self) -> Sequence[Reading]:
        pair, self._pair, self._title = self._pair, Pair(self._new({}).record), ""
        if not pair.is_open:
            return ()
        record, processes = pair.record, [*pair.ended, *pair.running]
        # The points of streams in the order of their lines.
        points = [each for process in processes for each in zip(process.rows, self._points(process), strict=True)]
        record.points = [point for _, row in sorted(points, key=lambda each: each[0].line.number) for point in row]
        record.damaged.sort()
        self.judge(pair, processes)
        record.failures.sort(key=lambda sentence: any(part in sentence for part in _MIRRORED))
        pair.finish()
        counts = {count_range(count, process.end) for process in processes for count in process.counts}
        if len(counts) == 1 and (only := counts.pop()).low == only.high:
            record.facts["iterations"] = only.low
        record.findings += unmeasured(point.size for point in record.points if not point.metrics)
        return (record,)

    @override
    def _failure(self, text: str) -> Statement:
        return Statement(failure=text)

    @override
    def _apply(self, said: Statement) -> Sequence[Reading] | None:
        before: Sequence[Reading] = ()
        if said.above and said.case is None:
            self._title = str(said.facts["side"])
            return None
        if said.begins or said.case is not None:
            before = self._begin(said, str(said.facts.get("side", "")))
        elif not self._pair.is_open and not said.failure:
            return None
        pair, process = self._pair, self._pair.at(self._stream)
        pair.is_open = True
        pair.record.wrong += said.wrong
        for name, value in said.facts.items():
            if isinstance(value, int):
                pair.record.facts[name] = value
            elif name != "side":
                pair.report(name, value, process.side)
        if said.failure:
            program = f"The {process.side}" if process.side else self._table.program or pair.record.case
            sentence = f"{program or 'The program'} said: {quoted(said.failure)}"
            if _TIMED_OUT.fullmatch(said.failure):
                pair.record.timed_out = pair.record.timed_out or sentence
            else:
                pair.record.failures.append(sentence)
        return before

    def _begin(self, said: Statement, side: str) -> Sequence[Reading]:
        """Find the process that a command line, its own text or the beginning of its table is about."""
        before: Sequence[Reading] = ()
        stream, process, program = self._stream, None, None if self._table.case else said.case
        waiting = [each for each in self._pair.running if each.stream == stream and not each.layouts]
        if said.begins:
            side, self._title = self._title, ""
            process = next((each for each in waiting if each.side == side), waiting[0] if waiting else None)
            for each in waiting if process is not None and process.side != side and len(waiting) > 1 else ():
                each.side = ""  # which of them it is is not known
        elif "side" in said.facts and not said.above:
            process = next((each for each in waiting if each.side in {side, ""}), None)
        elif not said.above and program in {None, self._pair.record.case}:
            process = self._pair.current.get(stream)
        if process is None or process not in self._pair.running:
            side = stream.side or side
            if not self._pair.accepts(program, stream, side):
                before = self.close()
            process, step = self._pair.at(stream), self._pair.step
            if process in self._pair.running:
                process = Process(self._pair.record, step=step, stream=stream)
            process.side = side
            if step is not None:
                process.size, process.end = _whole(step.facts, "size"), _whole(step.facts, "iterations")
            self._pair.running.append(process)
        self._pair.is_open, self._pair.current[stream] = True, process
        process.layouts, process.side = said.layouts or process.layouts, process.side or side
        process.size, process.end = said.size or process.size, said.end or process.end
        process.record.case = self._table.case or process.record.case or said.case
        return before

    def _information(self, process: Process, info: InfoBlock, text: str) -> bool:
        """Read a line of an open fi_info block; return whether it was part of one."""
        held, inside = info.held, info.feed(text)
        if held is not None:
            self._pair.report(*held, process.side)
        process.info = info if inside else None
        return inside

    @override
    def _take(self, row: Row, execution: Execution) -> Sequence[Reading]:
        process, program = cast("Process", execution), execution.record.case or ""
        cells = {column.metric: cell for column, cell in zip(row.layout, row.cells, strict=True)}
        measured = measure(cells, process.size, process.end, program)
        if measured is None:
            process.damage(row.line)
            return ()
        if not measured.exact:
            meaning = f"The program truncated the size to {cells['bytes']}; {measured.size} bytes are assumed."
            found = warning("size-truncated", meaning, "Keep the command line, with -S, in the log.")
            process.record.findings.append(found)
        process.counts.add(cells["count"])
        labels = {
            "side": process.side,
            "rank": process.stream.rank,
            "endpoint": self._pair.first("endpoint"),
            "way": "one-way" if "pingpong" in program and not self._table.case else "",
            **row.labels,
            "device": process.step.facts.get("device", "") if process.step is not None else "",
        }
        labels = {name: text for name, text in labels.items() if text and not _NO_NAME.fullmatch(text)}
        return super()._take(row._replace(size=measured.size, labels=labels, figures={"": measured.figures}), process)
