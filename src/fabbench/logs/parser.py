"""Text → judged logs. The same code reads files, pipes, and runs in progress.

Each line loses its launcher's prefixes (launcher_prefixes.py) and NCCL's debug text; the rest is
offered to the benchmark that reads this part of the text, and then to the others.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias, cast

from fabbench.benchmarks import Reader, Reading, Shortcut, benchmarks
from fabbench.benchmarks.mpi_transport import WORDS, TransportLines
from fabbench.evidence import known_errors, transport
from fabbench.evidence.judge import judge
from fabbench.evidence.known_errors import Kind, Message, by_cause, fatal_message, with_cause
from fabbench.evidence.nccl import CHAIN, CHANNEL, HANDLERS, HEAD, is_significant, join
from fabbench.logs.debug_text import GAP, INFO, HostNames, without_row
from fabbench.logs.launcher_prefixes import Prefixes, inner_tag
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
    Point,
    Proof,
    Record,
    Stream,
    read_marker,
)
from fabbench.model.patterns import lazy

if TYPE_CHECKING:
    from fabbench.counters.execution_counters import ExecutionMarkers

Result: TypeAlias = Point | Log

LONGEST_LINE = (
    1 << 16
)  # Characters of a line that are read; no tool of this field prints longer lines

_DEVICE_HOST = lazy(r"Rank\s+\d+\s(?:.*?\s)?on\s+(\S+)\s+device\s+\d+")
_VERSIONS = ("NCCL version ", "RCCL version", "HIP version", "ROCm version")
_CHANNEL = INFO + CHANNEL
_EMPTY = frozenset({"", "#"})  # Lines that never begin a benchmark's output


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
        self._number = line
        self._groups: dict[str, StreamGroup] = {}
        self._counted: ExecutionMarkers | None = None  # None: the log has no NIC counters
        self._joint: dict[str, Reader] = {}  # Readers that all groups share
        # What an MPI application without a benchmark tells; None: the text has a log.
        self._transport: TransportLines | None = TransportLines()

    def feed(self, raw: str) -> list[Result]:
        """Read one line (without its newline)."""
        return self.feed_lines((raw,))

    def feed_lines(self, lines: Iterable[str]) -> list[Result]:
        """Read many lines."""
        # Nearly all lines are rows and debug lines, of which channel lines with a known ending add
        # nothing. Whole ones whose prefix has been cut before are handled here, with a few lookups;
        # all others take the slow path.
        out: list[Result] = []
        origins, cut, live = self._hosts.origins, self._prefixes.cut, self._live
        streams, length, number, endings = (
            {"": NO_STREAM},
            0,
            self._number,
            self._group(NO_STREAM).evidence.endings,
        )
        shortcut, reading = cast("Shortcut | None", None), cast("Stream | None", None)
        for raw in lines:
            number += 1
            if raw[raw.rfind(" via ") :] in endings and raw.partition(_CHANNEL)[0] in origins:
                continue
            text, known = raw[length:LONGEST_LINE], streams.get(raw[:length])
            text, stream = (text, known) if known is not None else cut(raw[:LONGEST_LINE])
            origin, info, message = text.partition(INFO)
            if not info or text[:1] == " ":
                if stream == reading and text[:1] != "#":  # rows never start with this
                    shortcut = shortcut or self._shortcut(stream)
                    if (points := shortcut(text, number)) is not None:
                        out += points if live else ()
                        continue
            elif origin in origins and not (GAP in message or "<std" in text or "\n" in text):
                if message[:HEAD] in HANDLERS or CHAIN in message:
                    self._group(stream).evidence.feed(message, origin)
                continue
            forms = self._prefixes.forms
            if known is not None:  # what follows may be another prefix
                text, stream = cut(raw[:LONGEST_LINE]) if forms else cut(text, stream)
            if not forms and raw.endswith(text):
                length = len(raw) - len(text)
                streams[raw[:length]] = stream
            self._number = number
            several = "<std" in text or "\n" in text or "\r" in text
            out += self._blocks(text, stream) if several else self._read(text, stream)
            shortcut, reading, endings = (
                None,
                None if several else stream,
                self._group(NO_STREAM).evidence.endings,
            )
        self._number = number
        return out

    def _blocks(self, text: str, stream: Stream) -> list[Result]:
        """Read a line that contains more mpirun tags, or a log entry of several lines."""
        out: list[Result] = []
        if "\n" in text or "\r" in text:  # a progress bar begins a line again and again
            for line in text.replace("\r", "\n").split("\n"):
                out += self._blocks(*self._prefixes.cut(line, stream))
            return out
        text = text[:LONGEST_LINE]
        while (inner := inner_tag(text)) >= 0:
            if inner:
                out += self._read(text[:inner], stream)
            text, stream = self._prefixes.cut(text[inner:])
        return out + self._read(text, stream)

    def _shortcut(self, stream: Stream) -> Shortcut:
        """Return a fast way to read more rows like the last line, if it was one."""
        group = self._group(stream)
        fast = (
            group.current.shortcut(stream.rank)
            if group.current is not None and group.ended is None
            else None
        )
        return fast or (lambda _text, _number: None)

    def close(self, ending: Ending | None = None) -> list[Result]:
        """End the text: return the logs that are still open."""
        out: list[Result] = []
        groups = list(self._groups.values())
        tables = [group for group in groups if group.current is not None]
        join([group.evidence.hangs for group in groups])
        for group in groups:
            group.steps.end(group.steps.open, None)
            group.ended = None
            # What a group without a table says of the end of a run belongs to the tables of the
            # others.
            if (
                tables
                and group.current is None
                and any(each.kind < Kind.NOT_STARTED for each in group.messages)
            ):
                for table in tables:
                    table.messages += group.messages
                group.messages = []
        for group in groups:
            out += self._logs(group.steps.release())
            out += self._close_group(group, ending)
            out += self._logs(group.steps.silent_step(), ending)
        if self._transport is not None and self._transport.lines and ending is None:
            told = self._transport
            record = Record(
                benchmark=None, case=MPI_DEBUG, facts=told.facts(), hosts=frozenset(told.nodes)
            )
            record.evidence = told.evidence()
            out += self._logs([record])
        self._groups.clear()
        return [*out, *(self._counted.close() if self._counted is not None else ())]

    def network_so_far(self) -> dict[str, str | int]:
        """Return what the debug lines of open executions show, as facts."""
        facts: dict[str, str | int] = {}
        for group in self._groups.values():
            if group.evidence.networks:
                facts |= transport.transport_facts(group.evidence)
        return facts

    # -- one line

    def _read(self, text: str, stream: Stream) -> list[Result]:
        """Read a line that is neither a plain row nor plain debug text of a known host."""
        group = self._group(stream)
        if text.startswith(MARKER_SIGN) and (marker := read_marker(text)) is not None:
            return self._mark(group, marker)
        if ("NCCL " in text or " INFO " in text or " WARN " in text) and (
            debug := self._hosts.split(text)
        ) is not None:
            message, row = without_row(debug.message)
            group.evidence.feed(
                message, debug.origin, warning=debug.level in {"WARN", "ABORT"}, place=debug.place
            )
            if not debug.before and not row:
                return []
            text = debug.before or row
        elif text.startswith(_VERSIONS):
            group.evidence.version(text)
            return []
        return self._dispatch(
            group, tuple.__new__(Line, (self._number, text, stream))
        )  # at half the cost of Line()

    def _dispatch(self, group: StreamGroup, line: Line) -> list[Result]:
        """Offer a line to the table of fatal texts, to the current reader, then to the others."""
        message = fatal_message(line.text)
        if message is not None and message.kind < Kind.NOT_STARTED:
            group.add(message)
            group.evidence.other(line.text)
            return []
        if group.ended is not None and line.text not in _EMPTY:
            return self._after_status(group, line)
        known = line._replace(text=with_cause(line.text, group.unknown)) if group.unknown else line
        if (claimed := self._claimed(group, known)) is not None:
            if " failure " in line.text:  # nccl-tests' own report of what may be a known error
                group.evidence.other(line.text)
            return claimed
        if group.messages and group.messages[-1].takes(line.text):
            group.evidence.other(line.text)
        elif message is not None:
            group.add(message)
            group.evidence.other(line.text)
        elif line.text not in _EMPTY:
            group.unknown = line.text.strip()
            return [] if _kind(known.text)[1] else self._unknown_line(group, known)
        return []

    def _claimed(self, group: StreamGroup, line: Line) -> list[Result] | None:
        """Offer a line to the readers; None if it is none of theirs."""
        current = group.current
        if current is not None and (readings := current.feed(line)) is not None:
            if (
                not readings
                and "Rank" in line.text
                and (device := _DEVICE_HOST.search(line.text)) is not None
            ):
                self._hosts.learn(device[1])
            out = self._judged(group, readings, another=True) if readings else []
            group.claim()
            return out
        if line.text in _EMPTY:
            return None
        begins, _ = _kind(line.text)
        for name in [
            name for name, reader in group.readers.items() if reader is not None or name in begins
        ]:
            reader = self._reader(group, name)
            if reader is not current and (readings := reader.feed(line)) is not None:
                out = self._open(group, name)
                group.claim()
                return out + self._judged(group, readings)
        return None

    def _after_status(self, group: StreamGroup, line: Line) -> list[Result]:
        """Read a line after an exit status: the output above ends, with a launcher's last words.

        Unless these have an exit status of their own: then they are another start, that failed.
        """
        if group.messages and group.messages[-1].takes(line.text):
            return []
        if known_errors.exit_status(line.text) is None:
            group.ended = None
        out = self._close_group(group, None)
        group.ended = None
        return out + self._dispatch(group, line)

    def _unknown_line(self, group: StreamGroup, line: Line) -> list[Result]:
        """Read a line that no benchmark knows: it may have a prefix, or be a launcher's message."""
        if self._prefixes.learn(line.text):
            return self._blocks(*self._prefixes.cut(line.text, line.stream))
        if self._transport is not None:
            self._transport.read(line.text)
        if (status := known_errors.exit_status(line.text)) is None:
            group.evidence.other(line.text)
            return []
        if status:
            late = ": it timed out" if status == TIMEOUT_STATUS else ""
            group.add(
                Message(
                    "",
                    Kind.TIMEOUT if late else Kind.STATUS,
                    f"The exit status was {status}{late}.",
                )
            )
        # A launcher's last words may follow, unless they have an exit status of their own.
        group.ended = len(group.messages)
        return []

    def _mark(self, group: StreamGroup, marker: Marker) -> list[Result]:
        """Follow fabbench's own markers: they name the benchmark that begins."""
        if marker.kind == "nics":
            if self._counted is None:
                from fabbench.counters.execution_counters import ExecutionMarkers

                self._counted = ExecutionMarkers()
            self._counted.take(marker)
            return []
        if marker.kind == "begin":
            out = self._begin_step(group, marker)
            return [*out, *self._counted.begun(marker)] if self._counted is not None else out
        group.steps.seen = True
        out = self._judged(group, group.current.mark(marker)) if group.current is not None else []
        group.steps.end(marker.name, marker.status)
        return out + self._logs(group.steps.release())

    def _begin_step(self, group: StreamGroup, marker: Marker) -> list[Result]:
        """Begin a step. The text so far belongs to other steps, unless the benchmark joins them."""
        name, steps = marker.facts.get("benchmark", ""), group.steps
        joins = (
            name == group.name
            and benchmarks()[name].joins_steps
            and marker.execution == steps.execution
        )
        steps.end(steps.open, None)
        out = self._open(group, name) if name in group.readers and name != group.name else []
        if group.current is not None:
            out += self._judged(group, group.current.mark(marker))
        if not joins:
            out += self._logs([*steps.release(), *steps.silent_step()])
            steps = group.steps = StepEndings()
        steps.begin(marker, group.name or name or None)
        return out

    # -- executions

    def _group(self, stream: Stream) -> StreamGroup:
        group = self._groups.get(stream.group)
        if group is None:
            names = sorted(benchmarks(), key=lambda name: benchmarks()[name].joins_groups)
            group = self._groups[stream.group] = StreamGroup(
                {name: self._joint.get(name) for name in names}
            )
        return group

    def _reader(self, group: StreamGroup, name: str) -> Reader:
        """Return the reader of a benchmark, made for one group or for all of them."""
        reader, benchmark = group.readers[name], benchmarks()[name]
        if reader is None:
            reader = benchmark.reader()
            if benchmark.joins_groups:
                self._joint[name] = reader
            for each in self._groups.values() if benchmark.joins_groups else (group,):
                each.readers[name] = reader
        return reader

    def _open(self, group: StreamGroup, name: str) -> list[Result]:
        """Switch to a benchmark's reader.

        Another one's open output, or a failed start, is its own log.
        """
        failed = any(message.kind is Kind.NOT_STARTED for message in group.messages)
        out = self._close_group(group, None) if group.current is not None or failed else []
        group.current, group.name = self._reader(group, name), name
        return out

    def _close_group(self, group: StreamGroup, ending: Ending | None) -> list[Result]:
        readings = list(group.current.close()) if group.current is not None else []
        if not any(isinstance(reading, Record) for reading in readings):
            if group.current is not None and ending is not None:
                # A step that began and printed nothing: the overall ending is its own, not its
                # predecessor's.
                readings.append(Record(benchmark=group.name))
            elif group.is_over() or group.evidence.seen(alone=self._transport is not None):
                named = group.name if group.steps.open else None
                debug = NCCL_DEBUG if group.evidence.debugging and named is None else None
                readings.append(Record(benchmark=named, case=debug))
        group.current = group.name = None
        return self._judged(group, readings, ending)

    def _judged(
        self,
        group: StreamGroup,
        readings: Iterable[Reading],
        ending: Ending | None = None,
        *,
        another: bool = False,
    ) -> list[Result]:
        """Judge the records among the readings. What was printed around them belongs to the last.

        Records of a step that has not ended wait for its end.
        """
        batch = list(readings)
        records = [reading for reading in batch if isinstance(reading, Record)]
        if not records and self._counted is None:
            return cast("list[Result]", batch)
        for record in records:
            record.failures = by_cause(record.failures)
        if records:
            group.attach(records[-1], another=another)
        if not group.steps.open:
            marked = [each.steps for each in self._groups.values() if each.steps.seen]
            return self._logs(batch, ending, (group.steps,) if group.steps.seen else marked)
        group.steps.held += records
        return [reading for reading in batch if isinstance(reading, Point)]

    def _logs(
        self,
        readings: Iterable[Reading],
        ending: Ending | None = None,
        steps: Iterable[StepEndings] = (),
    ) -> list[Result]:
        """Judge the records among the readings, after adding how their steps ended."""
        known, results = list(steps), list[Result]()
        for reading in readings:
            if isinstance(reading, Record):
                self._transport = None
                for each in known:
                    each.apply(reading)
                results.append(
                    judge(reading, source=self._source, proof=self._proof, ending=ending)
                )
            else:
                results.append(reading)
        return results if self._counted is None else self._counted.keep(results)


@lru_cache(maxsize=256)
def _kind(text: str) -> tuple[frozenset[str], bool]:
    """Classify a line by itself.

    The benchmarks whose readers must see it, and whether nothing else needs it.

    Nothing does if it is no launcher's message or error, and has no prefix.
    """
    begins = frozenset(
        name for name, benchmark in benchmarks().items() if benchmark.may_begin(text)
    )
    return begins, find_sign(text) <= 0 and not is_significant(text) and not any(
        word in text for word in WORDS
    )


def logs(results: Iterable[Result]) -> Iterator[Log]:
    """Yield the logs among results."""
    return (result for result in results if isinstance(result, Log))
