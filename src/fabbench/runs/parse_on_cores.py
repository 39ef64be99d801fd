"""Files of logs → text of judged logs, on all cores.

A large log is split into ranges that can be read apart: each begins where one nccl-tests program follows
another. Between the closing line of a table and the next banner nothing belongs to either, so what
is read of the ranges is what is read of the whole. A log without such places, or with prefixes, is one range.
"""

import os
import re
import stat
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from fabbench.benchmarks import benchmarks
from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.logs.learned_prefixes import Unread
from fabbench.logs.parser import LogParser, logs
from fabbench.model.log import MARKER_SIGN, Log, Outcome, Proof
from fabbench.model.plugins import PluginWarning
from fabbench.report.log_report import log_writer
from fabbench.runs.log_files import COMPRESSED, Source, is_plain
from fabbench.runs.parse_file import BLOCK, blocks, lines_to_learn_from, parse_source

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


def parse_range(path: Path, part: ByteRange, *, proof: Proof | None = None) -> Iterator[Log]:
    """Read a part of a log file that `byte_ranges` gave. Raise OSError where it cannot be read."""
    with path.open("rb") as file:
        prefixes = deepcopy(_learned(file.read(BLOCK)))
        file.seek(part.start)
        parser = LogParser(str(path), proof=proof, prefixes=prefixes, live=False, line=part.line)
        window = Window(file, part.end - part.start)
        for text in blocks(window.read(BLOCK), window):
            yield from logs(parser.feed_text(text))
        yield from logs(parser.close(None))


@lru_cache(maxsize=1)
def _learned(block: bytes) -> Prefixes:
    """Return the prefixes of a file that begins so: each of its ranges needs them. Copy them, they change."""
    return Prefixes(lines_to_learn_from(block))


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


def read(sources: Sequence[Source], job: ParseJob, *, cores: int | None = None) -> Iterator[Piece]:
    """Read sources in order. Leaving it early ends the processes."""
    count = cores or os.cpu_count() or 1
    if count < 2 or (len(sources) <= _FEW and not any(map(_is_large, sources))):
        for source in sources:
            yield from _pieces(source, job)
        return
    benchmarks()
    with processes(count) as pool:
        yield from _in_order(sources, job, pool, ahead=4 * count)


def _in_order(
    sources: Sequence[Source], job: ParseJob, pool: "ProcessPoolExecutor", *, ahead: int
) -> Iterator[Piece]:
    waiting: deque[tuple[Source, Future[list[Piece]] | None]] = deque()
    rest = (part for source in sources for part in _parts(source))
    logs, untrusted = 0, False
    while True:
        while len(waiting) < ahead and (part := next(rest, None)) is not None:
            future = pool.submit(_all_pieces, *part, job) if part.apart else None
            waiting.append((part.source, future))
        if not waiting:
            return
        source, future = waiting.popleft()
        for piece in _pieces(source, job) if future is None else future.result():
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


@contextmanager
def processes(count: int) -> Iterator["ProcessPoolExecutor"]:
    """Start processes, and end them, also where the block is left early."""
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(count, initializer=_begin_process, initargs=(os.getpid(),)) as pool:
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)  # and wait: the interpreter would meet its thread half gone


def _begin_process(main: int) -> None:
    """End with the main process, and leave Ctrl-C to it, and what it has warned of already."""
    import multiprocessing
    import signal

    from fabbench.execution.process import end_with_parent

    # Else its parent is a server of processes, which ends with the main one.
    end_with_parent(main if multiprocessing.get_start_method() == "fork" else os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore", PluginWarning)
