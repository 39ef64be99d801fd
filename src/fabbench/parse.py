"""Text → judged logs. One code for a file, a pipe, and a run that is still going on.

Each line loses its launcher's prefixes (prefixes.py) and NCCL's debug text (debug.py, evidence.py); what is
left is offered to the benchmark that reads this part of the text, and else to the others.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from fabbench import carrier, launches
from fabbench.benchmarks import Reader, Reading, Shortcut, benchmarks
from fabbench.counters.printed import Counted
from fabbench.debug import INFO, Hosts
from fabbench.evidence import HANDLERS, HEAD, Evidence
from fabbench.judge import judge
from fabbench.markers import SIGN, Marker, read_marker
from fabbench.model import UNTOLD, Ending, Line, Log, Point, Proof, Record, Stream
from fabbench.prefixes import Prefixes, uncoloured

Result: TypeAlias = Point | Log

LONGEST_LINE = 1 << 16
"""Characters of a line that are read; no tool of this field prints longer ones."""

_DEVICE_HOST = re.compile(r"Rank\s+\d+\s(?:.*?\s)?on\s+(\S+)\s+device\s+\d+")
_MOST_FAILURES = 50


@dataclass(slots=True)
class _Group:
    """What is known of one stream group (a SkyPilot node, a pod; usually there is just one)."""

    readers: dict[str, Reader]
    current: Reader | None = None
    evidence: Evidence = field(default_factory=Evidence)
    failures: list[str] = field(default_factory=list)
    timed_out: str = ""

    @property
    def name(self) -> str | None:
        """The benchmark that is read for now."""
        return next((name for name, reader in self.readers.items() if reader is self.current), None)

    def fail(self, sentence: str) -> None:
        """Take note of an error text, once."""
        if len(self.failures) < _MOST_FAILURES and sentence not in self.failures:
            self.failures.append(sentence)

    def attach(self, record: Record) -> None:
        """Give to a record what was said around it, and begin anew."""
        told = record.facts.get("hosts")
        hosts = told if isinstance(told, int) else 0
        if self.evidence.seen:
            record.facts = {**carrier.stated(self.evidence, hosts), **record.facts}
            record.findings += carrier.findings(self.evidence, hosts)
            record.evidence = dict(self.evidence.lines)
        record.failures += [text for text in self.failures if text not in record.failures]
        record.timed_out = record.timed_out or self.timed_out
        self.evidence, self.failures, self.timed_out = Evidence(), [], ""


class Session:
    """Reads one text, a line at a time: points as they come, and a log when an execution has ended.

    `proof`: what the logs must show to count as measured on the fabric asked for. `risky`: prefix forms that
    nearly every line has (`prefixes.sniff`). `live`: give every point as it comes, not only in its log.
    """

    def __init__(
        self, source: str, *, proof: Proof | None = None, risky: Iterable[str] = (), live: bool = True
    ) -> None:
        self._live = live
        self._source = source
        self._proof = proof
        self._prefixes = Prefixes(risky)
        self._hosts = Hosts()
        self._number = 0
        self._groups: dict[str, _Group] = {}
        self._counted = Counted()
        self._joint: dict[str, Reader] = {
            name: benchmark.reader() for name, benchmark in benchmarks().items() if benchmark.joins_groups
        }

    def feed(self, raw: str) -> list[Result]:
        """Read one line (without its newline)."""
        return self.feed_lines((raw,))

    def feed_lines(self, lines: Iterable[str]) -> list[Result]:
        """Read many lines."""
        # Rows and debug lines are nearly all of a log. Where they are whole and plain they are dealt with
        # here, in a few look-ups; whatever else there is goes the long way, which decides.
        out: list[Result] = []
        origins, starts, cut = self._hosts.origins, self._prefixes.starts, self._prefixes.cut
        groups, shortcut = self._groups, cast("Shortcut | None", None)
        number, live = self._number, self._live
        for raw in lines:
            number += 1
            points = shortcut(raw) if shortcut is not None else None
            if points is not None:
                if live:
                    out += points
                continue
            text, stream = raw, UNTOLD
            if raw[:1] in starts:
                text, stream = cut(raw)
                if "<std" in text:
                    self._number = number
                    out += self._blocks(text, stream)
                    continue
            origin, said, message = text.partition(INFO)
            if said and origin in origins:
                if message[:HEAD] in HANDLERS:
                    group = groups.get(stream.group) or self._group(stream)
                    group.evidence.feed(message, origin)
                continue
            self._number = number
            out += self._read(text, stream)
            shortcut = self._shortcut(stream)
        self._number = number
        return out

    def _blocks(self, text: str, stream: Stream) -> list[Result]:
        """Read a line in which other tags of mpirun's stand: each begins a piece of its own."""
        out: list[Result] = []
        text = text[:LONGEST_LINE]
        while (inner := self._prefixes.inner(text)) >= 0:
            if inner:
                out += self._read(text[:inner], stream)
            text, stream = self._prefixes.cut(text[inner:])
        return out + self._read(text, stream)

    def _shortcut(self, stream: Stream) -> Shortcut | None:
        """Give a quick way to read rows, where no prefix stands before them."""
        reader = self._group(stream).current if stream == UNTOLD else None
        return reader.shortcut("") if reader is not None else None

    def close(self, ending: Ending | None = None) -> list[Result]:
        """End of the text: give the logs that are still open."""
        out: list[Result] = []
        for group in self._groups.values():
            out += self._close_group(group, ending)
        self._groups.clear()
        return [*out, *self._counted.close()]

    def stated(self) -> dict[str, str | int]:
        """Say what the debug lines of executions that are still open come to, as facts."""
        facts: dict[str, str | int] = {}
        for group in self._groups.values():
            if group.evidence.networks:
                facts |= carrier.stated(group.evidence)
        return facts

    # -- one line

    def _read(self, text: str, stream: Stream) -> list[Result]:
        """Read a line that is neither a plain row nor plain debug text of a known host."""
        text = text[:LONGEST_LINE]
        if "\x1b" in text:
            text = uncoloured(text)
        group = self._group(stream)
        if text.startswith(SIGN) and (marker := read_marker(text)) is not None:
            return self._mark(group, marker)
        if " NCCL " in text and (debug := self._hosts.split(text)) is not None:
            group.evidence.feed(debug.message, origin=debug.origin, warning=debug.level != "INFO")
            if not debug.before:
                return []
            text = debug.before
        elif text.startswith("NCCL version "):
            group.evidence.version(text)
            return []
        return self._offer(group, Line(self._number, text, stream))

    def _offer(self, group: _Group, line: Line) -> list[Result]:
        """Offer a line to the reader whose text this is, then to the others."""
        current = group.current
        if current is not None and (readings := current.feed(line)) is not None:
            if not readings and "Rank" in line.text and (match := _DEVICE_HOST.search(line.text)):
                self._hosts.learn(match[1])
            return self._judged(group, readings) if readings else []
        for reader in group.readers.values():
            if reader is not current and (readings := reader.feed(line)) is not None:
                out = self._open(group, reader)
                return out + self._judged(group, readings)
        return self._around(group, line.text)

    def _around(self, group: _Group, text: str) -> list[Result]:
        """Read a line that no benchmark knows: a launcher's word, or nothing."""
        if (sentence := launches.failure(text)) is not None:
            group.fail(sentence)
        elif (sentence := launches.time_limit(text)) is not None:
            group.timed_out = group.timed_out or sentence
        elif (status := launches.exit_status(text)) is not None:
            if status:
                group.fail(f"The exit status was {status}.")
            return self._close_group(group, None)
        else:
            group.evidence.other(text)
        return []

    def _mark(self, group: _Group, marker: Marker) -> list[Result]:
        """Follow fabbench's own markers: they say which benchmark begins."""
        if marker.kind == "nics":
            self._counted.take(marker)
            return []
        out: list[Result] = []
        reader = group.readers.get(marker.facts.get("benchmark", ""), group.current)
        if reader is not None:
            out = self._open(group, reader) if reader is not group.current else []
            out += self._judged(group, reader.mark(marker))
        return [*out, *self._counted.begun(marker)] if marker.kind == "begin" else out

    # -- executions

    def _group(self, stream: Stream) -> _Group:
        group = self._groups.get(stream.group)
        if group is None:
            own = {
                name: benchmark.reader()
                for name, benchmark in benchmarks().items()
                if name not in self._joint
            }
            group = self._groups[stream.group] = _Group({**own, **self._joint})
        return group

    def _open(self, group: _Group, reader: Reader) -> list[Result]:
        """Begin to read for a benchmark: what is open of another, or was said before, is a log of its own."""
        out = self._close_group(group, None) if group.current is not None or group.failures else []
        group.current = reader
        return out

    def _close_group(self, group: _Group, ending: Ending | None) -> list[Result]:
        readings = list(group.current.close()) if group.current is not None else []
        if not any(isinstance(reading, Record) for reading in readings):
            if group.current is not None and ending is not None:
                # A step that began and said nothing: how it all ended is its end, not that of the one before.
                readings.append(Record(benchmark=group.name))
            elif group.failures or group.timed_out or group.evidence.seen:
                readings.append(Record(benchmark=None))
        group.current = None
        return self._judged(group, readings, ending)

    def _judged(
        self, group: _Group, readings: Iterable[Reading], ending: Ending | None = None
    ) -> list[Result]:
        """Judge the records among the readings. What was said around them belongs to the last."""
        batch = list(readings)
        records = [reading for reading in batch if isinstance(reading, Record)]
        if records:
            group.attach(records[-1])
        results = [
            judge(reading, source=self._source, proof=self._proof, ending=ending)
            if isinstance(reading, Record)
            else reading
            for reading in batch
        ]
        return self._counted.keep(results)


def logs(results: Iterable[Result]) -> Iterator[Log]:
    """Of what a session gave, the logs."""
    return (result for result in results if isinstance(result, Log))
