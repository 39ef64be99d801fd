"""Text → judged logs. The same code reads files, pipes, and runs in progress.

Each line loses its launcher's prefixes (launcher_prefixes.py) and NCCL's debug text; the rest is
offered to the benchmark that reads this part of the text, and then to the others.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from fabbench.benchmarks import Reader, Reading, Shortcut, benchmarks
from fabbench.benchmarks.mpi_transport import WORDS, TransportLines
from fabbench.evidence import known_errors, transport
from fabbench.evidence.first_error import ErrorLine
from fabbench.evidence.hangs import join
from fabbench.evidence.judge import judge
from fabbench.evidence.known_errors import Kind, Message, by_cause, fatal_message, with_cause
from fabbench.evidence.nccl import CHAIN, CHANNEL, HANDLERS, HEAD, is_significant
from fabbench.logs.debug_text import GAP, INFO, HostNames, without_row
from fabbench.logs.launcher_prefixes import Prefixes, RepeatedCuts, inner_tag
from fabbench.logs.signs import find_sign
from fabbench.logs.stream_group import TIMEOUT_STATUS, StepEndings, StreamGroup
from fabbench.model.log import (
    MARKER_SIGN,
    MPI_DEBUG,
    NCCL_DEBUG,
    NO_STREAM,
    Ending,
    Line,
    Log,
    Marker,
    MutableFacts,
    Point,
    Proof,
    Record,
    Stream,
    read_marker,
)
from fabbench.model.patterns import LONGEST_LINE, bounded, lazy, with_usual_numbers

if TYPE_CHECKING:
    from fabbench.counters.execution_counters import ExecutionMarkers

Result: TypeAlias = Point | Log

LONGEST_ENTRY = 1 << 16
"""Characters of a log's entry that are read, which may hold several lines as one JSON string."""

_DEVICE_HOST = lazy(r"Rank\s+\d+\s(?:.{0,200}?\s)?on\s+(\S+)\s+device\s+\d+")
_VERSIONS = ("NCCL version ", "RCCL version", "HIP version", "ROCm version")
_CHANNEL = INFO + CHANNEL
_EMPTY = frozenset({"", "#"})  # Texts of lines that never begin a benchmark's output


class LogParser:
    """Reads one text line by line.

    Returns points as they come, and a log when an execution has ended.

    `proof`: what the logs must show to count as measured on the requested fabric. `prefixes`: the
    known prefixes of the log; others are learned. `live`: also return points as they come. `line`:
    the number of the line before the first.
    """

    def __init__(
        self,
        source: str,
        *,
        proof: Proof | None = None,
        prefixes: Prefixes | None = None,
        live: bool = True,
        line: int = 0,
    ) -> None:
        self._live = live
        self._source = source
        self._proof = proof
        self._prefixes = prefixes or Prefixes()
        self._hosts = HostNames()
        self._number = line  # Of the last line
        self._groups: dict[str, StreamGroup] = {}  # By `Stream.group`
        self._with_table: dict[int, StreamGroup] = {}  # Those whose table is open, by `id`
        self._nic_counters: ExecutionMarkers | None = None  # None: the log has no NIC counters
        self._joint_readers: dict[str, Reader] = {}  # By benchmark: those that all groups share
        self._row_stream: Stream | None = None  # That of the last line, if a row may follow
        self._read_row: Shortcut = _no_row
        # What an MPI application without a benchmark tells; None: the text has a log.
        self._transport: TransportLines | None = TransportLines()

    def feed(self, raw: str) -> list[Result]:
        """Read one line (without its newline)."""
        return self.feed_lines((with_usual_numbers(raw),))

    def feed_lines(self, lines: Iterable[str]) -> list[Result]:
        """Read many lines, with usual numbers."""
        # Nearly all lines are rows and debug lines, of which channel lines with a known ending add
        # nothing. Whole ones whose prefix has been cut before are read with a few lookups.
        out: list[Result] = []
        number = self._number
        self._row_stream = None
        origins = self._hosts.origins
        # Of channel lines already read in the open execution, from " via " on
        endings = self._group_of(NO_STREAM).evidence.endings
        cuts = RepeatedCuts(self._prefixes)
        for raw in lines:
            number += 1
            # One more with such an ending says nothing new. A ring has no " via " (rfind: -1), and
            # no ending is its last character: rings differ.
            if raw[raw.rfind(" via ") :] in endings and raw.partition(_CHANNEL)[0] in origins:
                continue
            if len(raw) > LONGEST_LINE:
                self._number = number
                out += self._read_long(raw)
                # A log may have ended: the next one has evidence of its own.
                endings = self._group_of(NO_STREAM).evidence.endings
                continue
            text, stream = cuts.cut(raw)
            points = self._read_usual(text, stream, number)
            if points is None:
                self._number = number
                out += self._read_unusual(*cuts.cut_whole(raw))
                endings = self._group_of(NO_STREAM).evidence.endings
            elif self._live:
                out += points
        self._number = number
        return out

    def _read_usual(self, text: str, stream: Stream, number: int) -> Sequence[Point] | None:
        """Read one more row, or a debug line of a known process; None: it is neither.

        Only a row has points; a debug line's evidence is kept.
        """
        origin, info, message = text.partition(INFO)
        if not info or text[:1] == " ":  # rows begin with blanks, and debug lines do not
            may_be_row = stream == self._row_stream and text[:1] != "#"
            return self._read_row(text, number) if may_be_row else None
        if origin not in self._hosts.origins:
            return None
        if GAP in message or "<std" in text or "\n" in text:  # a row, tag or line may be inside
            return None
        # Evidence is known by its first characters, or has an arrow, as failed calls have.
        if message[:HEAD] in HANDLERS or CHAIN in message:
            self._group_of(stream).evidence.feed(bounded(message), origin)
        return ()

    def _read_long(self, raw: str) -> list[Result]:
        """Read an entry that is longer than lines are; it may hold several, as a JSON string."""
        self._row_stream = None
        return self._read_lines_in(*self._prefixes.cut(raw[:LONGEST_ENTRY]))

    def _read_unusual(self, text: str, stream: Stream) -> list[Result]:
        """Read any other line, with all that may be in it: mpirun's tags, or more lines."""
        if "<std" in text or "\n" in text or "\r" in text:
            self._row_stream = None
            return self._read_lines_in(text, stream)
        out = self._read_line(text, stream)
        self._row_stream = stream
        self._read_row = self._shortcut(stream)
        return out

    def _read_lines_in(self, text: str, stream: Stream) -> list[Result]:
        """Read a line that contains more mpirun tags, or a log entry of several lines."""
        out: list[Result] = []
        if "\n" in text or "\r" in text:  # a progress bar begins a line again and again
            for line in text.replace("\r", "\n").split("\n"):
                out += self._read_lines_in(*self._prefixes.cut(line, stream))
            return out
        while (tag_at := inner_tag(text)) >= 0:  # -1: there is no more tag
            if tag_at:
                out += self._read_line(text[:tag_at], stream)
            rest, stream = self._prefixes.cut(text[tag_at:])
            if rest == text:  # the tag is longer than prefixes are
                break
            text = rest
        return out + self._read_line(text, stream)

    def _shortcut(self, stream: Stream) -> Shortcut:
        """Return a fast way to read more rows like the last line, if it was one."""
        group = self._group_of(stream)
        # With an exit status the output is over; a row below an unknown line shows that it goes on.
        if group.current is None or group.messages_before_status is not None or group.unread_line:
            return _no_row
        return group.current.shortcut(stream.rank) or _no_row

    def close(self, ending: Ending | None = None) -> list[Result]:
        """End the text: return the logs that are still open.

        `ending`: how an execution that fabbench itself started ended; None: for any other text.
        """
        out: list[Result] = []
        groups = list(self._groups.values())
        # A rank's hang is explained by what other ranks said, who may print in other groups.
        join([group.evidence.hangs for group in groups])
        for group in groups:
            group.steps.end(group.steps.open_step, status=None)  # None: its end is not shown
            group.messages_before_status = None  # no next record: all messages are of the last one
        _give_messages_to_tables(groups)
        self._end_without_benchmark(groups, ending)
        for group in groups:
            out += self._judge_records(group.steps.release_records())
            out += self._close_group(group, ending)
            out += self._judge_records(group.steps.record_of_silent_step(), ending)
        if ending is None:  # what fabbench itself started is a benchmark
            out += self._judge_records(self._record_of_mpi())
        self._groups.clear()
        if self._nic_counters is not None:
            out += self._nic_counters.close()
        return out

    def _end_without_benchmark(self, groups: Sequence[StreamGroup], ending: Ending | None) -> None:
        """Take the last words of a program that died, in a text with nothing else, as its end."""
        has_no_log = self._transport is not None and ending is None
        if has_no_log and not any(map(_is_read, groups)):
            for group in groups:
                group.take_last_words()

    def _record_of_mpi(self) -> Iterator[Record]:
        """Yield what an MPI application without a benchmark tells, if it does."""
        mpi = self._transport
        if mpi is not None and mpi.lines:
            hosts = frozenset(mpi.nodes)
            record = Record(benchmark=None, case=MPI_DEBUG, facts=mpi.facts(), hosts=hosts)
            record.evidence = mpi.evidence()
            yield record

    def network_so_far(self) -> MutableFacts:
        """Return what the debug lines of open executions show, as facts."""
        facts: MutableFacts = {}
        for group in self._groups.values():
            if group.evidence.networks:
                facts |= transport.transport_facts(group.evidence)
        return facts

    # -- one line

    def _read_line(self, text: str, stream: Stream) -> list[Result]:
        """Read a line that is neither a plain row nor plain debug text of a known host.

        It is a marker of fabbench, debug text, NCCL's version, or a line for `_dispatch`; so is
        the piece of a row that debug text has split off.
        """
        group = self._group_of(stream)
        group.evidence.errors.number = self._number  # of the line, for errors that it shows
        text = bounded(text)
        if text.startswith("#\t") or "\tNCCL\t" in text:  # a spreadsheet made its blanks tabs
            text = text.replace("\t", " ")
        marker = read_marker(text.strip()) if MARKER_SIGN in text else None
        if marker is not None:
            return self._follow_marker(group, marker)
        may_be_debug = "NCCL " in text or " INFO " in text or " WARN " in text
        debug = self._hosts.split(text) if may_be_debug else None
        if debug is not None:
            message, row = without_row(debug.message)
            warning = debug.level in {"WARN", "ABORT"}
            group.evidence.feed(message, debug.origin, warning=warning, place=debug.place)
            text = debug.before or row
            if not text:
                return []
        elif text.startswith(_VERSIONS):
            group.evidence.version(text)
            return []
        line = tuple.__new__(Line, (self._number, text, stream))  # at half the cost of Line()
        return self._dispatch(self._group_with_table(group), line)

    def _group_with_table(self, group: StreamGroup) -> StreamGroup:
        """Return the group whose table a line belongs to.

        A line without a label may have lost it: it is of the only table that is open, if one is.
        If several are, rows of any may be of another one.
        """
        if group is not self._group_of(NO_STREAM):
            return group
        if len(self._with_table) != 1:
            for other in self._with_table.values():
                cast("Reader", other.current).doubt_rows()
            return group
        (only,) = self._with_table.values()
        only.evidence.errors.number = self._number
        return only

    def _dispatch(self, group: StreamGroup, line: Line) -> list[Result]:
        """Offer a line to the table of fatal texts, to the current reader, then to the others.

        Of the table, what does not end a run for sure counts only if no reader knows the line.
        Return what the line completes: mostly nothing.
        """
        message = fatal_message(line.text)
        if message is not None and message.kind < Kind.NOT_STARTED:  # it ends a run for sure
            group.add_message(message, line.text)
            return []
        if group.messages_before_status is not None and line.text not in _EMPTY:
            return self._read_after_status(group, line)
        with_reason = line
        if group.unread_line:  # the line above may be the cause that this one lacks
            with_reason = line._replace(text=with_cause(line.text, group.unread_line))
        results = self._offer_to_readers(group, with_reason)
        if results is not None:
            if " failure " in line.text:  # nccl-tests' own report of what may be a known error
                group.evidence.read_unclaimed(line.text)
            return results
        if group.takes(line.text, message):  # the last message goes on in this line
            group.evidence.errors.read(line.text)
            group.evidence.read_unclaimed(line.text)
        elif message is not None:
            group.add_message(message, line.text)
        elif line.text not in _EMPTY:
            return self._keep_unclaimed(group, line, with_reason)
        return []

    def _keep_unclaimed(self, group: StreamGroup, line: Line, with_reason: Line) -> list[Result]:
        """Keep a line that no reader knows: it may be the cause that the next one lacks.

        `with_reason`: the same, with the cause that the line above it gave.
        """
        group.evidence.errors.read(line.text)
        group.note_unread(line)
        # A plain line has no sign of a benchmark, an MPI library or an error.
        is_plain = _line_kind(with_reason.text).is_plain
        return [] if is_plain else self._read_unknown(group, with_reason)

    def _offer_to_readers(self, group: StreamGroup, line: Line) -> list[Result] | None:
        """Offer a line to the current reader, then to the others; None if it is none of theirs."""
        current = group.current
        readings = current.feed(line) if current is not None else None
        if readings is None:
            return self._offer_to_others(group, line)
        if not readings and "Rank" in line.text:  # as in nccl-tests' list of devices
            self._learn_host(line.text)
        # Without a closing line, what completes a record is that another table begins.
        out = self._complete_and_judge(group, readings, another=True) if readings else []
        group.note_read()
        return out

    def _offer_to_others(self, group: StreamGroup, line: Line) -> list[Result] | None:
        """Offer a line to all readers but the current one; one that takes it becomes current.

        A reader that does not exist yet is made only for a line with which its output may begin.
        """
        if line.text in _EMPTY:
            return None
        current = group.current
        begins = _line_kind(line.text).begins
        for name, existing in tuple(group.readers.items()):
            if existing is None and name not in begins:
                continue
            reader = self._reader(group, name)
            readings = reader.feed(line) if reader is not current else None
            if readings is not None:
                out = self._switch_to(group, name)
                group.note_read()
                return out + self._complete_and_judge(group, readings)
        return None

    def _learn_host(self, text: str) -> None:
        # nccl-tests list each rank's host and device above their table: names that help to split
        # torn lines.
        device = _DEVICE_HOST.search(text)
        if device is not None:
            self._hosts.learn(device[1])

    def _read_after_status(self, group: StreamGroup, line: Line) -> list[Result]:
        """Read a line after an exit status: the output above ends, with a launcher's last words.

        If the line is a second exit status, what came since the first is of another start, that
        failed.
        """
        if group.messages and group.messages[-1].takes(line.text):  # the launcher's words go on
            return []
        if known_errors.exit_status(line.text) is None:
            # What came since the status is of the output above, too.
            group.messages_before_status = None
        out = self._close_group(group, ending=None)
        group.messages_before_status = None
        return out + self._dispatch(group, line)

    def _read_unknown(self, group: StreamGroup, line: Line) -> list[Result]:
        """Read a line that no benchmark knows: it may have a prefix, or be a launcher's message."""
        if self._prefixes.learn(line.text):
            return self._read_lines_in(*self._prefixes.cut(line.text, line.stream))
        if self._transport is not None:
            self._transport.read(line.text)
        status = known_errors.exit_status(line.text)
        if status is None:
            group.evidence.read_unclaimed(line.text)
            return []
        if status == TIMEOUT_STATUS:
            sentence = f"The exit status was {status}: it timed out."
            message = Message(source="", kind=Kind.TIMEOUT, text=sentence)
            group.add_message(message, line="")
        elif status:
            group.add_message(
                Message(source="", kind=Kind.STATUS, text=f"The exit status was {status}."), line=""
            )
        # A launcher's last words may follow, unless they have an exit status of their own.
        group.status = status
        group.messages_before_status = len(group.messages)
        return []

    def _follow_marker(self, group: StreamGroup, marker: Marker) -> list[Result]:
        """Follow a marker of fabbench: a step's NIC counters, its begin, or its end."""
        if marker.kind == "nics":
            if self._nic_counters is None:
                from fabbench.counters.execution_counters import ExecutionMarkers

                self._nic_counters = ExecutionMarkers()
            self._nic_counters.take(marker)
            return []
        if marker.kind == "begin":
            out = self._begin_step(group, marker)
            if self._nic_counters is not None:
                out += self._nic_counters.begun(marker)
            return out
        group.steps.has_markers = True
        out = self._read_marker(group, marker)
        group.steps.end(marker.name, marker.status)
        return out + self._judge_records(group.steps.release_records())

    def _begin_step(self, group: StreamGroup, marker: Marker) -> list[Result]:
        """Begin a step. The text so far belongs to other steps, unless the benchmark joins them."""
        name = marker.facts.get("benchmark", "")
        steps = group.steps
        same_execution = name == group.name and marker.execution == steps.execution
        joins = same_execution and benchmarks()[name].joins_steps  # to one record
        steps.end(steps.open_step, status=None)  # one without an end marker
        out: list[Result] = []
        if name in group.readers and name != group.name:
            out += self._switch_to(group, name)
        out += self._read_marker(group, marker)
        if not joins:
            out += self._judge_records([*steps.release_records(), *steps.record_of_silent_step()])
            group.steps = StepEndings()
        # That of the text outranks what the marker states.
        group.steps.begin(marker, benchmark=group.name or name or None)
        return out

    def _read_marker(self, group: StreamGroup, marker: Marker) -> list[Result]:
        """Offer a marker to the current reader."""
        if group.current is None:
            return []
        return self._complete_and_judge(group, group.current.mark(marker))

    # -- executions

    def _group_of(self, stream: Stream) -> StreamGroup:
        """Return the group of a stream, made for its first line.

        Its readers are tried in order: those that groups share come last. A reader is None until it
        is first needed.
        """
        group = self._groups.get(stream.group)
        if group is None:
            all_benchmarks = benchmarks()
            names = sorted(all_benchmarks, key=lambda name: all_benchmarks[name].joins_groups)
            readers = {name: self._joint_readers.get(name) for name in names}
            group = self._groups[stream.group] = StreamGroup(readers)
        return group

    def _reader(self, group: StreamGroup, name: str) -> Reader:
        """Return the reader of a benchmark, made for one group or for all of them."""
        reader = group.readers[name]
        if reader is not None:
            return reader
        benchmark = benchmarks()[name]
        reader = group.readers[name] = benchmark.reader()
        if benchmark.joins_groups:
            self._joint_readers[name] = reader
            for other in self._groups.values():
                other.readers[name] = reader
        return reader

    def _switch_to(self, group: StreamGroup, name: str) -> list[Result]:
        """Make a benchmark's reader the current one.

        Another one's open output, or a failed start, is its own log.
        """
        failed = any(message.kind is Kind.NOT_STARTED for message in group.messages)
        out: list[Result] = []
        if group.current is not None or failed:
            out += self._close_group(group, ending=None)
        group.current = self._reader(group, name)
        group.name = name
        self._with_table[id(group)] = group
        return out

    def _close_group(self, group: StreamGroup, ending: Ending | None) -> list[Result]:
        """Return the logs of what a group has open: its table, or what else it shows."""
        readings = list(group.current.close()) if group.current is not None else []
        if not any(isinstance(reading, Record) for reading in readings):
            readings += self._record_without_table(group, ending)
        group.current = group.name = None
        self._with_table.pop(id(group), None)
        return self._complete_and_judge(group, readings, ending)

    def _record_without_table(self, group: StreamGroup, ending: Ending | None) -> Iterator[Record]:
        """Yield a record for what a group shows that has no table, if it shows anything."""
        if group.current is not None and ending is not None:
            # A step that began and printed nothing: how the run ended is said of this one, and not
            # of the step before it.
            yield Record(benchmark=group.name)
        elif group.is_over() or group.evidence.is_shown(alone=self._transport is not None):
            # Only an open step says whose text it is.
            benchmark = group.name if group.steps.open_step else None
            is_debug_text = benchmark is None and group.evidence.is_debug_text
            yield Record(benchmark=benchmark, case=NCCL_DEBUG if is_debug_text else None)

    def _complete_and_judge(
        self,
        group: StreamGroup,
        readings: Iterable[Reading],
        ending: Ending | None = None,
        *,
        another: bool = False,
    ) -> list[Result]:
        """Add what was printed around the records among the readings, and judge them.

        It belongs to the last one. Records of a step that has not ended wait for its end.
        `another`: another table begins.
        """
        batch = list(readings)
        records = [reading for reading in batch if isinstance(reading, Record)]
        if not records:
            return cast("list[Result]", batch)
        for record in records:
            record.failures = by_cause(record.failures)  # the cause first
        group.attach_to(records[-1], another=another)
        if group.steps.open_step:
            group.steps.held_records += records
            return [reading for reading in batch if isinstance(reading, Point)]
        # The markers may stand in another group than the output.
        steps = [group.steps]
        if not group.steps.has_markers:
            steps = [other.steps for other in self._groups.values() if other.steps.has_markers]
        return self._judge_records(batch, ending, steps)

    def _judge_records(
        self,
        readings: Iterable[Reading],
        ending: Ending | None = None,
        steps: Sequence[StepEndings] = (),
    ) -> list[Result]:
        """Judge the records among the readings, after adding how their steps ended."""
        results: list[Result] = []
        for reading in readings:
            if isinstance(reading, Point):  # it has no verdict
                results.append(reading)
                continue
            self._transport = None  # the text has a log
            for endings in steps:
                endings.add_endings_to(reading)
            log = judge(reading, source=self._source, proof=self._proof, ending=ending)
            results.append(log)
        return results if self._nic_counters is None else self._nic_counters.keep(results)


def _no_row(text: str, number: int) -> Sequence[Point] | None:
    """Read no row: a shortcut where there is none."""
    del text, number
    return None


def _give_messages_to_tables(groups: Sequence[StreamGroup]) -> None:
    """Give what groups without a table say of the end of a run to the tables of the others."""
    with_table = [group for group in groups if group.current is not None]
    if not with_table:
        return
    for group in groups:
        if group.current is not None:
            continue
        _give_death(group.evidence.errors.death, with_table)
        # A time limit, a signal, or a library or launcher that died.
        if any(message.kind < Kind.NOT_STARTED for message in group.messages):
            for other in with_table:
                other.messages += group.messages
            group.messages = []


def _give_death(death: ErrorLine | None, groups: Sequence[StreamGroup]) -> None:
    """Give the line of a death to the tables that it stands below."""
    for group in groups:
        errors = group.evidence.errors
        if death and death.number > errors.number:
            errors.death = death


def _is_read(group: StreamGroup) -> bool:
    """Return whether a benchmark reads a group, or a launcher said how it ended."""
    return group.current is not None or group.is_over()


class _LineKind(NamedTuple):
    """What a line is by itself."""

    begins: frozenset[str]
    """The benchmarks whose readers must see it."""
    is_plain: bool
    """Whether nothing else needs it: it is no launcher's message or error, and has no prefix."""


@lru_cache(maxsize=256)  # the same line may be asked about again and again
def _line_kind(text: str) -> _LineKind:
    all_benchmarks = benchmarks()
    begins = frozenset(name for name in all_benchmarks if all_benchmarks[name].may_begin(text))
    is_mpi = any(word in text for word in WORDS)
    # A sign at the very beginning (0) has no prefix before it; -1: there is none.
    is_plain = find_sign(text) <= 0 and not is_significant(text) and not is_mpi
    return _LineKind(begins, is_plain)


def logs(results: Iterable[Result]) -> Iterator[Log]:
    """Yield the logs among results."""
    return (result for result in results if isinstance(result, Log))
