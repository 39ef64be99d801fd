"""One execution of fi_pingpong while it is being read: its processes, its facts, and its record."""

from dataclasses import dataclass, field
from functools import cache

from fabbench.benchmarks.libfabric.info import InfoBlock
from fabbench.benchmarks.libfabric.printed import number, printed_count
from fabbench.benchmarks.libfabric.told import Told, said, truncated_size
from fabbench.benchmarks.pingpong import findings
from fabbench.benchmarks.pingpong.commands import Asked
from fabbench.benchmarks.pingpong.rows import Row, joined, read_row, row_size
from fabbench.benchmarks.pingpong.setup import SHARE, setup_s
from fabbench.markers import Marker
from fabbench.model import UNTOLD, Damaged, Labels, Line, Point, Record, Stream

_METRICS = (("latency", "latency", "e-6"), ("bandwidth", "bandwidth", "e6"), ("message_rate", "rate", "e6"))
# What a process says when the other one is the cause.
_CONSEQUENCES = ("remote connection closed", "Connection reset by peer", "failed to connect")


@dataclass(slots=True, kw_only=True)
class Process:
    """One fi_pingpong process, as far as the log tells."""

    stream: Stream
    side: str = ""
    asked: Asked | None = None
    debugs: bool = False
    """Whether its first ``-v`` text was seen."""
    table: bool = False
    rows: int = 0


@dataclass(slots=True)
class _Pipe:
    """Where the reading of one stream stands."""

    process: Process | None = None
    piece: Line | None = None
    info: InfoBlock | None = None


@dataclass(slots=True)
class Execution:
    """Grows line by line; `finish` gives its record."""

    trial: str = ""
    record: Record = field(
        default_factory=lambda: Record(benchmark="pingpong", case="pingpong", finished=None)
    )
    _step: Marker | None = None
    _stepped: bool = False
    _processes: list[Process] = field(default_factory=list)
    _pipes: dict[Stream, _Pipe] = field(default_factory=dict)
    _told: Told = field(default_factory=Told)
    _setup: list[int] = field(default_factory=list)
    """Sizes whose figure holds the connection's set-up."""
    _iterations: set[int] = field(default_factory=set)
    _consequences: list[str] = field(default_factory=list)
    _domains: bool = False
    """Whether steps say which domain they are to use."""

    # ------------------------------------------------------------ steps and processes

    def begin(self, marker: Marker) -> None:
        """Begin a step: the next size of the same trial."""
        self._close_step(seen=False)
        self._step, self._stepped = marker, True
        if marker.facts.get("endpoint"):
            self.tell("endpoint", marker.facts["endpoint"], UNTOLD)

    def end(self, marker: Marker) -> None:
        """End a step, with the exit status that its processes ended with."""
        self._close_step(seen=marker.status is not None)
        if marker.status:
            told = f"fi_pingpong ended with exit status {marker.status} in step {marker.name}."
            self._consequences.append(told)

    def _close_step(self, *, seen: bool) -> None:
        if self._step is not None and not seen:
            self.record.finished = False
        self._step = None
        self._drop_pieces()
        self._processes.clear()
        self._pipes.clear()

    def takes(self, process: Process) -> bool:
        """Whether a process that begins now belongs to this execution."""
        if self._step is not None:
            return True
        if self._stepped:
            return False
        peers = [peer for peer in self._processes if peer.stream == process.stream]
        if process.stream != UNTOLD:
            return not peers
        if not peers:
            return True
        return len(peers) == 1 and {peers[0].side, process.side} == {"server", "client"}

    def add(self, process: Process) -> None:
        """Take a process in."""
        self._processes.append(process)
        self._pipe(process.stream).process = process
        if process.asked is not None and process.asked.endpoint:
            self.tell("endpoint", process.asked.endpoint, process.stream)

    def has(self, side: str, stream: Stream, *, starting: bool) -> bool:
        """Whether debug text of `side` is of a process that is known; one without a side learns it here.

        `starting`: the text is what a process says first, so that one which said it before is another.
        """
        for process in self._processes:
            if process.stream == stream and not (process.table and starting) and process.side in {side, ""}:
                if starting and process.debugs:
                    continue
                process.side = side
                process.debugs = process.debugs or starting
                return True
        return False

    def waits(self, stream: Stream) -> bool:
        """Whether any next line of this stream has a meaning: a torn row or an fi_info block is open."""
        pipe = self._pipes.get(stream)
        return pipe is not None and (pipe.piece is not None or pipe.info is not None)

    def has_table(self, stream: Stream) -> bool:
        """Whether a table is open in this stream."""
        process = self._pipe(stream).process
        return process is not None and process.table

    def waiting(self, stream: Stream) -> bool:
        """Whether a process of this stream has not begun its table."""
        return any(process.stream == stream and not process.table for process in self._processes)

    def open_table(self, stream: Stream, title: str) -> None:
        """Begin the table of the process that waits for it; of two that wait, nobody knows which."""
        waiting = [process for process in self._processes if process.stream == stream and not process.table]
        process = waiting[0]
        if title in {waiter.side for waiter in waiting}:
            process = next(waiter for waiter in waiting if waiter.side == title)
        elif len(waiting) > 1:
            for waiter in waiting:
                waiter.side = ""
        process.table = True
        pipe = self._pipe(stream)
        self._drop_piece(pipe)
        pipe.process = process

    # ------------------------------------------------------------ rows

    def row(self, line: Line) -> Point | None:
        """Read a line as a row of the open table, or as the rest of a torn one; None: it is neither."""
        pipe = self._pipe(line.stream)
        process = pipe.process
        if process is None or not process.table:
            return None
        if pipe.piece is not None:
            piece, pipe.piece = pipe.piece, None
            whole = joined(piece.text, line.text)
            if whole is not None:
                line = line._replace(text=whole)
            else:
                self.record.damaged.append(Damaged(piece.number, piece.text))
        row = read_row(line.text)
        if row is None:
            return None
        point = self._point(row, process)
        self.record.points.append(point)
        return point

    def hold(self, line: Line) -> bool:
        """Keep a row that stops short, until its rest comes or does not; False: no table is open."""
        pipe = self._pipe(line.stream)
        process = pipe.process
        if process is None or not process.table or (process.rows and line.text.strip() == "0"):
            return False
        pipe.piece = line
        return True

    def _point(self, row: Row, process: Process) -> Point:
        asked, sent = self._asked(process)
        size = row_size(row, asked=asked, sent=sent)
        if not size.exact:
            self.record.findings.append(truncated_size(row.size, size.value))
        if not row.acknowledged():
            self.record.failures.append(findings.unacknowledged(row, size.value))
        process.rows += 1
        values = {name: number(getattr(row, column), exponent) for name, column, exponent in _METRICS}
        measured = {name: value for name, value in values.items() if value is not None}
        self._note_setup(row, process, size.value, measured.get("latency"), sent)
        labels = _labels(
            process.stream.side or process.side,
            process.stream.rank,
            self._told.first("endpoint"),
            self._step.facts.get("device", "") if self._step is not None else "",
        )
        return Point(size.value, labels, tuple(measured), tuple(measured.values()))

    def _asked(self, process: Process) -> tuple[int | None, int | None]:
        """Give the size and the number of messages that the step or the command line asked for."""
        if self._step is not None:
            facts = self._step.facts
            return _whole(facts.get("size", "")), _whole(facts.get("iterations", ""))
        if process.asked is not None:
            return process.asked.size, process.asked.iterations
        return None, None

    def _note_setup(
        self, row: Row, process: Process, size: int, latency: float | None, sent: int | None
    ) -> None:
        """Note whether set-up is more than its share of this figure: only the first row can hold it."""
        known = sent is not None and printed_count(sent) == row.sent
        if known or row.sent.isdigit():
            self._iterations.add(sent if known and sent is not None else int(row.sent))
        if process.rows != 1 or latency is None:
            return
        fewest = sent if known and sent is not None else int(row.sent.rstrip("kmb")) * _step(row.sent)
        setup = setup_s(self._told.first("endpoint"), self._told.first("provider").partition(";")[0])
        if setup > SHARE * latency * 2 * fewest and size not in self._setup:
            self._setup.append(size)

    # ------------------------------------------------------------ facts and failures

    def begin_info(self, stream: Stream) -> None:
        """Expect the fi_info block."""
        self._pipe(stream).info = InfoBlock()

    def info(self, text: str, stream: Stream) -> bool:
        """Read a line of the fi_info block, if one is open; whether it was one."""
        pipe = self._pipe(stream)
        if pipe.info is None:
            return False
        if text.strip() == "fi_info:":
            return True
        certain, inside = pipe.info.feed(text)
        if certain is not None:
            self.tell(*certain, stream)
        if not inside:
            pipe.info = None
        return inside

    def tell(self, fact: str, value: str, stream: Stream) -> None:
        """Note what a process says of itself."""
        side = self._side(stream)
        self._told.add(fact, value, side)
        if fact == "domain" and self._step is not None:
            self.record.off_fabric = self.record.off_fabric or self._step.other("domain", value, side)
            self._domains = self._domains or "domain" in self._step.facts

    def fail(self, text: str, stream: Stream) -> None:
        """Note an error text as a sentence. What only mirrors the other side's error goes last."""
        sentence, words = said(self._side(stream), "fi_pingpong", text), text.strip()
        if any(sign in text for sign in _CONSEQUENCES):
            self._consequences.append(sentence)
        elif not words.startswith(("Usage:", "fi_pingpong [OPTIONS]")) or not self.record.failures:
            self.record.failures.append(sentence)
        if self._step is not None and words.startswith("Error at iteration="):
            # Both sides of a step check alike, so this is the network's doing and no mistake in the call.
            self.record.wrong += 1

    def finish(self) -> Record:
        """End the execution: facts and findings that need all of it."""
        if self._step is not None:
            self.record.finished = False
        self._drop_pieces()
        self.record.failures += self._consequences
        self.record.facts.update(self._told.facts())
        if len(self._iterations) == 1:
            self.record.facts["iterations"] = next(iter(self._iterations))
        # Where each step has a domain of its own, several are no surprise.
        differing = self._told.findings(("provider",) if self._domains else ("provider", "domain"))
        self.record.findings += [*differing, *findings.setup(self._setup)]
        return self.record

    # ------------------------------------------------------------ streams

    def _side(self, stream: Stream) -> str:
        process = self._pipe(stream).process
        return stream.side or (process.side if process else "")

    def _pipe(self, stream: Stream) -> _Pipe:
        return self._pipes.setdefault(stream, _Pipe())

    def _drop_pieces(self) -> None:
        for pipe in self._pipes.values():
            self._drop_piece(pipe)

    def _drop_piece(self, pipe: _Pipe) -> None:
        if pipe.piece is not None:
            self.record.damaged.append(Damaged(pipe.piece.number, pipe.piece.text))
            pipe.piece = None


@cache
def _labels(side: str, rank: str, endpoint: str, device: str) -> Labels:
    """Give the labels of a row: one mapping for all rows that share them."""
    told = {"side": side, "rank": rank, "endpoint": endpoint, "device": device}
    return {name: value for name, value in told.items() if value}


def _step(count: str) -> int:
    return {"k": 10**3, "m": 10**6, "b": 10**9}.get(count[-1], 1)


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
