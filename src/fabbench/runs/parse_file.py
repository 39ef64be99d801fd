"""Files of logs → judged logs, one or many at once. Memory is bound by one execution, not by the file.

A large log is split into ranges that can be read apart: each begins where one nccl-tests program follows
another. Between the closing line of a table and the next banner nothing belongs to either, so what
is read of the ranges is what is read of the whole. A log without such places, or with prefixes, is one range.
"""

import os
import re
import stat
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from fabbench.benchmarks import benchmarks
from fabbench.evidence.judge import judge
from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.logs.learned_prefixes import NOTHING, Unread, UnreadWarning, why
from fabbench.logs.parser import LONGEST_LINE, LogParser, logs
from fabbench.model.errors import FabbenchError, MachineError
from fabbench.model.log import MARKER_SIGN, Ending, Log, Outcome, Proof, Record
from fabbench.model.patterns import lazy
from fabbench.runs.log_files import (
    COMPRESSED,
    Bytes,
    LogStream,
    Source,
    expand,
    is_plain,
    open_all,
    open_logs,
)
from fabbench.runs.processes import processes

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor
    from mmap import mmap

RANGE = 2 << 20
"""Bytes of a range, at least: enough to make its own cost not count;
and few, so that all cores end together."""
_BOUNDARY = (
    rb"\n# (?:Collective test concluded: \w+|Avg bus bandwidth    : \S+) *\r?\n(?:#? *\r?\n)*"
    rb"(?=# nccl-tests version \d|# Collective test starting: |# nThread \d)"
)
_LONGEST_SEARCH = 16 << 20
"""Bytes that are searched for the next boundary: a log without any is not read twice."""


class ByteRange(NamedTuple):
    """A part of a file. `line` is the number of the line before it."""

    start: int
    end: int
    line: int


def byte_ranges(path: Path, *, least: int = RANGE) -> Iterator[ByteRange]:
    """Yield the ranges of a file, in order; a single one where it cannot be split. Raise OSError."""
    import mmap

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        start, line, size, boundary = 0, 0, len(text), re.compile(_BOUNDARY)
        if _has_marker(text):
            # How a step ended counts for all that was printed in it.
            least = size
        while start < size:
            found = boundary.search(text, start + least, min(start + least + _LONGEST_SEARCH, size))
            end = found.end() if found is not None else size
            yield ByteRange(start, end, line)
            line += _newlines(text, start, end)
            start = end


def _has_marker(text: "mmap") -> bool:
    """Return whether fabbench itself wrote a file; a piece at a time, as what was read counts as memory."""
    sign = MARKER_SIGN.encode()
    return any(_read_piece(text, at, len(sign)).find(sign) >= 0 for at in range(0, len(text), RANGE))


class Window:
    """The next bytes of an open file, and no more."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = size

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes; none at the end."""
        found = self._file.read(min(size, self._left) if size >= 0 else self._left)
        self._left -= len(found)
        return found


def _newlines(text: "mmap", start: int, end: int) -> int:
    """Count the newlines of a part, a piece at a time."""
    return sum(_read_piece(text, at, 0, end).count(b"\n") for at in range(start, end, RANGE))


def _read_piece(text: "mmap", start: int, more: int, end: int | None = None) -> bytes:
    """Read a piece of a file, and a few bytes more; its pages are given back."""
    from mmap import MADV_DONTNEED

    found = text[start : min(start + RANGE + more, len(text) if end is None else end)]
    text.madvise(MADV_DONTNEED)
    return found


_BLOCK = 1 << 18
_MAY_BE_LOG = lazy(r"(?:^|[/!])[^./]*$|\.(?:txt|log|out|err|std\w+|[oe]?\d+)(?:\.(?:gz|bz2|xz|zst))?$")
_LARGEST_DOCUMENT = 1 << 27
"""Bytes of a document that is read whole; a file that is larger is none."""
_LONGEST_PREAMBLE = 100_000
"""Lines before the first marker that are kept for configurations which begin later."""
_ARM = lazy(rf"{MARKER_SIGN}(?:begin|nics) \d+-(\S+)-r\d+[/ ]")


def parse_file(
    path: str | Path, *, proof: Proof | None = None, ending: Ending | None = None
) -> Iterator[Log]:
    """Read a log file, a document such as nccl-tests' JSON, or an `output.log` of fabbench's own.

    It may be compressed, or an archive of such files. Raise MachineError where the file cannot be read; a
    file with nothing in it that is known gives no log.
    """
    for log in open_logs(str(path)):
        yield from parse_stream(log, log.name, proof=proof, ending=ending)


def parse_source(source: Source, *, proof: Proof | None = None) -> Iterator[Log | Unread]:
    """Read a file as a user named it: its logs, and for each log file without a result why it has none.

    A file in a directory or an archive that has nothing to do with a benchmark is left out.
    """
    found = False
    try:
        for file in open_logs(source.name):
            for entry in _read_whole(file, proof, named=source.named and file.name == source.name):
                found = True
                yield entry
    except FabbenchError as error:
        found = True
        yield Unread(source.name, str(error), damaged=True)
    if not found and source.named:
        yield Unread(source.name, NOTHING)


def _read_whole(file: LogStream, proof: Proof | None, *, named: bool) -> Iterator[Log | Unread]:
    empty = True
    try:
        for log in parse_stream(file, file.name, proof=proof):
            empty = False
            yield log
    except FabbenchError as error:
        yield Unread(file.name, str(error), damaged=True)
        return
    if not empty:
        return
    reason, remark = why(file.head.decode("utf-8", "replace"))
    if named and (remark or not reason):
        yield Unread(file.name, NOTHING)
    elif reason and (not remark or _MAY_BE_LOG.search(file.name)):
        yield Unread(file.name, reason, remark=remark)


def parse_configurations(path: str | Path, *, proof: Proof | None = None) -> dict[str, tuple[Log, ...]]:
    """Read a log file once: configuration → its logs, in the order in which configurations begin.

    The output of a script of fabbench's names them; all of another file is of configuration ``""``. What
    stands before the first marker belongs to each. Raise MachineError where the file cannot be read.
    """
    found: dict[str, tuple[Log, ...]] = {}
    for file in open_logs(str(path)):
        for configuration, read in _configurations(file, proof).items():
            found[configuration] = (*found.get(configuration, ()), *read)
    if len(found) > 1 and not found.get("", ("",)):
        del found[""]
    return found


def _configurations(file: LogStream, proof: Proof | None) -> dict[str, tuple[Log, ...]]:
    source, before, kept = file.name, list[str](), 0
    block = file.read(_BLOCK)
    record, block = _document(block, file)
    if record is not None:
        return {"": (judge(record, source=source, proof=proof),)}
    sample = _sample(block)
    found: dict[str, tuple[LogParser, list[Log]]] = {
        "": (LogParser(source, proof=proof, prefixes=Prefixes(sample), live=False), [])
    }
    for configuration, text in _by_configuration(_blocks(block, file)):
        if configuration and "" in found:
            found = {configuration: found[""]}
        elif configuration not in found:
            parser = LogParser(source, proof=proof, prefixes=Prefixes(sample), live=False)
            found[configuration] = parser, [log for each in before for log in logs(parser.feed_text(each))]
        if not configuration and kept < _LONGEST_PREAMBLE:
            before.append(text)
            kept += text.count("\n") + 1
        parser, read = found[configuration]
        read += logs(parser.feed_text(text))
    return {
        configuration: (*read, *logs(parser.close(None))) for configuration, (parser, read) in found.items()
    }


def parse_range(path: Path, part: ByteRange, *, proof: Proof | None = None) -> Iterator[Log]:
    """Read a part of a log file that `byte_ranges` gave. Raise OSError where it cannot be read."""
    with path.open("rb") as file:
        prefixes = deepcopy(_learned(file.read(_BLOCK)))
        file.seek(part.start)
        parser = LogParser(str(path), proof=proof, prefixes=prefixes, live=False, line=part.line)
        window = Window(file, part.end - part.start)
        for text in _blocks(window.read(_BLOCK), window):
            yield from logs(parser.feed_text(text))
        yield from logs(parser.close(None))


@lru_cache(maxsize=1)
def _learned(block: bytes) -> Prefixes:
    """Return the prefixes of a file that begins so: each of its ranges needs them. Copy them, they change."""
    return Prefixes(_sample(block))


def parse_together(names: Sequence[str], *, proof: Proof | None = None) -> list[Log]:
    """Read files as one text: those that the processes of a job wrote (NCCL_DEBUG_FILE).

    Raise MachineError where a file cannot be read.
    """
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    parser = LogParser(f"{names[0]}{more}", proof=proof, live=False)
    found: list[Log] = []
    for file in open_all(names):
        for text in _blocks(file.read(_BLOCK), file):
            found += logs(parser.feed_text(text))
    return [*found, *logs(parser.close(None))]


def parse_stream(
    file: Bytes, source: str, *, proof: Proof | None = None, ending: Ending | None = None
) -> Iterator[Log]:
    """Read an open binary stream."""
    record, block = _document(file.read(_BLOCK), file)
    if record is not None:
        yield judge(record, source=source, proof=proof, ending=ending)
        return
    parser = LogParser(source, proof=proof, prefixes=Prefixes(_sample(block)), live=False)
    try:
        for text in _blocks(block, file):
            yield from logs(parser.feed_text(text))
    except MachineError:
        yield from logs(parser.close(Ending(stopped="The file could not be read to its end.")))
        raise
    yield from logs(parser.close(ending))


def _document(block: bytes, file: Bytes) -> tuple[Record | None, bytes]:
    """Read a document such as JSON; else return None, and what was read of the file until now."""
    writers = [benchmark for benchmark in benchmarks().values() if benchmark.is_document(block)]
    if not writers:
        return None, block
    whole = bytearray(block)
    while more := file.read(_BLOCK):
        whole += more
        if len(whole) > _LARGEST_DOCUMENT:
            raise MachineError(
                f"It begins as a benchmark's JSON does, but is larger than {_LARGEST_DOCUMENT >> 20} MiB.",
                hint="Give the text that the program printed instead.",
            )
    text = whole.decode("utf-8", "replace")
    record = next(filter(None, (benchmark.document(text) for benchmark in writers)), None)
    return record, text.encode()


def _sample(block: bytes) -> list[str]:
    """Return the lines that prefixes are learned from; none where fabbench itself wrote the first one."""
    text = block.decode("utf-8", "replace")
    return [] if text.startswith(MARKER_SIGN) else text.replace("\r\n", "\n").split("\n")


def _by_configuration(blocks: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield text with its configuration: that of the last marker; empty before the first one."""
    configuration = ""
    for text in blocks:
        begin, lines = 0, text.split("\n") if MARKER_SIGN in text else [text]
        for number, line in enumerate(lines):
            match = _ARM.search(line) if MARKER_SIGN in line else None
            if match and match[1] != configuration:
                if number > begin:
                    yield configuration, "\n".join(lines[begin:number])
                configuration, begin = match[1], number
        yield configuration, "\n".join(lines[begin:])


def _blocks(block: bytes, file: Bytes) -> Iterator[str]:
    """Yield the text in blocks of whole lines; a carriage return before a newline belongs to it."""
    rest = b""
    while block:
        whole, newline, tail = block.rpartition(b"\n")
        if newline:
            text = (rest + whole).decode("utf-8", "replace")
            yield text.replace("\r\n", "\n").removesuffix("\r") if "\r" in text else text
            rest = tail
        elif len(rest) < 8 * LONGEST_LINE:
            rest += block
        block = file.read(_BLOCK)
    if rest:
        yield rest.decode("utf-8", "replace").rstrip("\r")


LARGE = 4 << 20
"""Bytes from which on a file is not given to another process."""
_FEW = 8
"""Files up to which other processes are not worth their start (some 30 ms each)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseJob:
    """How to read and write each file."""

    form: str
    proof: Proof | None = None
    colour: bool = False
    width: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Text to print, a file that could not be read, or what came of a source: `done` ends it."""

    text: str = ""
    begins: bool = False
    """Whether a log begins with it."""
    done: Source | None = None
    logs: int = 0
    untrusted: bool = False
    unread: Unread | None = None
    more: bool = False
    """Whether it ends a range of the source, and others follow."""


def parse(*sources: str | Path, fabric: str | None = None) -> list[Log]:
    """Read and judge logs, as `fabbench parse` does: of files, archives, and all files in directories.

    `fabric` judges them as measured on it. Raise MachineError where a file cannot be read. A file with
    nothing in it that is known gives no log, and UnreadWarning where it is still a benchmark's output.
    """
    return list(parse_all(sources, fabric=fabric))


def parse_all(sources: Iterable[str | Path], *, fabric: str | None = None) -> Iterator[Log]:
    """Read and judge logs one by one; see `parse`."""
    proof = Proof(fabric=fabric) if fabric is not None else None
    for source in expand(map(str, sources)):
        for entry in parse_source(source, proof=proof):
            if isinstance(entry, Log):
                yield entry
            elif entry.damaged:
                raise MachineError(entry.reason)
            elif not entry.remark and entry.reason != NOTHING:
                warnings.warn(f"{entry.source}: {entry.reason}", UnreadWarning, stacklevel=3)


def read(sources: Sequence[Source], job: ParseJob, *, cores: int | None = None) -> Iterator[Piece]:
    """Read sources in order. Leaving it early ends the processes."""
    count = cores or os.cpu_count() or 1
    if count < 2 or (len(sources) <= _FEW and not any(map(_is_large, sources))):
        for source in sources:
            yield from _pieces(source, job)
        return
    benchmarks()
    # Ranges take long enough for this process to read some of them, too: what it reads it need not be sent.
    helps = any(map(_is_large, sources))
    with processes(count - helps) as pool:
        yield from _in_order(sources, job, pool, ahead=4 * count, helps=helps)


class _Task:
    """A part that is read, or waits to be. `future` is None where no other process reads it."""

    def __init__(self, part: "_Part", future: "Future[list[Piece]] | None") -> None:
        self.part, self.future = part, future
        self.pieces: list[Piece] | None = None

    def begin(self, job: ParseJob) -> bool:
        """Read the part here, if no other process has begun to."""
        if self.future is None or not self.future.cancel():
            return False
        self.future, self.pieces = None, _all_pieces(*self.part, job)
        return True

    def result(self, job: ParseJob) -> Iterable[Piece]:
        """Return what came of the part; wait for it."""
        if self.future is not None:
            return self.future.result()
        return _pieces(self.part.source, job) if self.pieces is None else self.pieces


def _in_order(
    sources: Sequence[Source], job: ParseJob, pool: "ProcessPoolExecutor", *, ahead: int, helps: bool
) -> Iterator[Piece]:
    waiting: deque[_Task] = deque()
    rest = (part for source in sources for part in _parts(source))
    logs, untrusted = 0, False
    while True:
        while len(waiting) < ahead and (part := next(rest, None)) is not None:
            waiting.append(_Task(part, pool.submit(_all_pieces, *part, job) if part.apart else None))
        if not waiting:
            return
        first = waiting[0].future
        if helps and first is not None and not first.done() and any(task.begin(job) for task in waiting):
            continue
        for piece in waiting.popleft().result(job):
            if piece.done is None:
                yield piece
                continue
            logs, untrusted = logs + piece.logs, untrusted or piece.untrusted
            if not piece.more:
                yield replace(piece, logs=logs, untrusted=untrusted)
                logs, untrusted = 0, False


class _Part(NamedTuple):
    """A source, or a range of its bytes. `more`: there are others behind it."""

    source: Source
    range: ByteRange | None = None
    more: bool = False

    @property
    def apart(self) -> bool:
        """Return whether another process reads it: what is printed of it is not too much to keep."""
        return self.range is not None or not (self.source.name == "-" or _is_large(self.source))


def _parts(source: Source) -> Iterator[_Part]:
    """Yield the ranges of a large file that can be split, and else the whole of it."""
    before: ByteRange | None = None
    for found in byte_ranges(Path(source.name)) if _is_large(source) and is_plain(source.name) else ():
        if before is not None:
            yield _Part(source, before, more=True)
        before = found
    yield _Part(source, before if before is not None and before.start else None)


def _is_large(source: Source) -> bool:
    """Return whether a source is a file of more bytes than are worth another process."""
    try:
        found = Path(source.name).stat()
    except OSError:
        return False
    least = LARGE // 32 if source.name.endswith(COMPRESSED) else LARGE
    return source.name != "-" and stat.S_ISREG(found.st_mode) and found.st_size >= least


def _all_pieces(source: Source, part: ByteRange | None, more: bool, job: ParseJob) -> list[Piece]:  # noqa: FBT001
    """Read a small file, or a range of a large one, in another process: one piece for each log."""
    found: list[Piece] = []
    texts: list[str] = []
    for piece in _pieces(source, job, part):
        if texts and (piece.begins or not piece.text):
            found.append(Piece(text="".join(texts), begins=True))
            texts.clear()
        if piece.text:
            texts.append(piece.text)
        else:
            found.append(replace(piece, more=more))
    return found


def _pieces(source: Source, job: ParseJob, part: ByteRange | None = None) -> Iterator[Piece]:
    from fabbench.report.log_report import log_writer

    write = log_writer(job.form, colour=job.colour, width=job.width).log
    logs, untrusted = 0, False
    for entry in parse_source(source, proof=job.proof) if part is None else _range(source, part, job):
        if isinstance(entry, Unread):
            yield Piece(unread=entry)
            continue
        logs += 1
        untrusted = untrusted or entry.outcome is not Outcome.OK
        begins = True
        for text in write(entry):
            yield Piece(text=text, begins=begins)
            begins = False
    yield Piece(done=source, logs=logs, untrusted=untrusted)


def _range(source: Source, part: ByteRange, job: ParseJob) -> Iterator[Log | Unread]:
    try:
        yield from parse_range(Path(source.name), part, proof=job.proof)
    except OSError as error:
        yield Unread(source.name, f"{source.name} cannot be read: {error.strerror or error}", damaged=True)
