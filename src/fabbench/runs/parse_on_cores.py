"""Log files → text of judged logs, on all cores.

A large log is split into ranges that can be read independently: each begins where one nccl-tests program
follows another. Text between the closing line of a table and the next banner belongs to neither, so reading
the ranges gives the same result as reading the whole. A log without such boundaries, or with prefixes, is one
range.
"""

import os
import re
import stat
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeVar

from fabbench.benchmarks import benchmarks
from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.logs.parser import LogParser, logs
from fabbench.logs.signs import Unread
from fabbench.model.log import MARKER_SIGN, Log, Outcome, Proof
from fabbench.model.plugins import PluginWarning
from fabbench.report.log_report import log_writer
from fabbench.runs.inputs import read_source
from fabbench.runs.log_files import COMPRESSED, Source, is_plain
from fabbench.runs.parse_file import BLOCK, blocks, lines_to_learn_from, within

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor
    from mmap import mmap

T = TypeVar("T")
RANGE = 2 << 20
"""Minimum bytes of a range: enough to make its overhead negligible; few, so that all cores end together."""
_BOUNDARY = (
    rb"\n# (?:Collective test concluded: \w+|Avg bus bandwidth    : \S+) *\r?\n(?:#? *\r?\n)*"
    rb"(?=# nccl-tests version \d|# Collective test starting: |# nThread \d)"
)
_MAX_SEARCH = 16 << 20
"""Bytes searched for the next boundary, so that a log without any is not read twice."""


class ByteRange(NamedTuple):
    """A part of a file. `line` is the number of the line before it."""

    start: int
    end: int
    line: int


def byte_ranges(path: Path, *, min_size: int = RANGE) -> Iterator[ByteRange]:
    """Yield the ranges of a file, in order; a single one if it cannot be split. Raise OSError."""
    import mmap

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        start, line, size, boundary = 0, 0, len(text), re.compile(_BOUNDARY)
        sign = MARKER_SIGN.encode()
        if any(sign in _read_piece(text, at, len(sign)) for at in range(0, size, RANGE)):
            # fabbench itself wrote it: the end of a step applies to all of its output, so do not split.
            min_size = size
        while start < size:
            match = boundary.search(text, start + min_size, min(start + min_size + _MAX_SEARCH, size))
            end = match.end() if match is not None else size
            yield ByteRange(start, end, line)
            line += sum(_read_piece(text, at, 0, end).count(b"\n") for at in range(start, end, RANGE))
            start = end


class Window:
    """A limited number of bytes of an open file."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = size

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes; empty at the end."""
        data = self._file.read(min(size, self._left) if size >= 0 else self._left)
        self._left -= len(data)
        return data


def _read_piece(text: "mmap", start: int, more: int, end: int | None = None) -> bytes:
    """Read a piece of a file, and `more` bytes; its pages, which count as memory, are released."""
    from mmap import MADV_DONTNEED

    piece = text[start : min(start + RANGE + more, len(text) if end is None else end)]
    text.madvise(MADV_DONTNEED)
    return piece


def parse_range(path: Path, part: ByteRange, *, proof: Proof | None = None) -> Iterator[Log]:
    """Read a range of a log file, from `byte_ranges`. Raise OSError if it cannot be read."""
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
    """Return the prefixes of a file by its first block, for all of its ranges. Copy them: they change."""
    return Prefixes(lines_to_learn_from(block))


LARGE = 4 << 20
"""Size in bytes from which a file is split, or read in this process."""
_FEW = 8
"""Number of files up to which processes are not worth their start (about 30 ms each)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseJob:
    """How to parse each file, and format its logs."""

    form: str
    sizes: range | None = None
    proof: Proof | None = None
    color: bool = False
    width: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Text to print, a file that could not be read, or the end of a source, or of a range of it, with its totals."""

    text: str = ""
    begins: bool = False
    """Whether a log begins with this text."""
    done: Source | None = None  # the source that ends
    logs: int = 0
    untrusted: bool = False
    unread: Unread | None = None


def read(sources: Sequence[Source], job: ParseJob, *, cores: int | None = None) -> Iterator[Piece]:
    """Read sources in order. Closing the iterator early ends the processes."""
    count = cores or os.cpu_count() or 1
    alone = count < 2 or (len(sources) <= _FEW and not any(map(_is_large, sources)))
    # What the first file has compiled and remembered, the processes inherit.
    here = len(sources) if alone else int(not _is_large(sources[0]))
    for source in sources[:here]:
        yield from _pieces(source, job)
    if alone:
        return
    benchmarks()
    with processes(count) as pool:
        yield from _in_order(sources[here:], job, pool, ahead=4 * count)


def _in_order(sources: Sequence[Source], job: ParseJob, pool: "ProcessPoolExecutor", *, ahead: int) -> Iterator[Piece]:
    waiting: deque[tuple[Source, Future[list[Piece]] | None]] = deque()
    rest = _batches(part for source in sources for part in _parts(source))
    while True:
        while len(waiting) < ahead and (batch := next(rest, None)) is not None:
            future = pool.submit(_all_pieces, batch, job) if batch[0].in_pool else None
            waiting.append((batch[0].source, future))
        if not waiting:
            return
        source, future = waiting.popleft()
        yield from _pieces(source, job) if future is None else future.result()


class _Part(NamedTuple):
    """A source, or a range of its bytes. `more`: other ranges follow."""

    source: Source
    range: ByteRange | None = None
    more: bool = False

    @property
    def in_pool(self) -> bool:
        """Return whether another process reads it: its output is small enough to keep in memory."""
        return self.range is not None or not (self.source.name == "-" or _is_large(self.source))


def _batches(parts: Iterable[_Part]) -> Iterator[list[_Part]]:
    """Yield what is read at once: several small files, as a call of another process costs as much as one."""
    for small, each in groupby(parts, key=lambda part: part.in_pool and part.range is None):
        while batch := list(islice(each, _FEW if small else 1)):
            yield batch


def _parts(source: Source) -> Iterator[_Part]:
    previous: ByteRange | None = None
    for current in byte_ranges(Path(source.name)) if _is_large(source) and is_plain(source.name) else ():
        if previous is not None:
            yield _Part(source, previous, more=True)
        previous = current
    yield _Part(source, previous if previous is not None and previous.start else None)


def _is_large(source: Source) -> bool:
    """Return whether a source is a file of at least `LARGE` bytes; compressed, of fewer."""
    try:
        status = Path(source.name).stat()
    except OSError:
        return False
    min_size = LARGE // 32 if source.name.endswith(COMPRESSED) else LARGE
    return source.name != "-" and stat.S_ISREG(status.st_mode) and status.st_size >= min_size


def _all_pieces(parts: Iterable[_Part], job: ParseJob) -> list[Piece]:
    pieces: list[Piece] = []
    texts: list[str] = []
    for source, part, more in parts:
        for piece in _pieces(source, job, part):
            if texts and (piece.begins or not piece.text):
                pieces.append(Piece(text="".join(texts), begins=True))
                texts.clear()
            if piece.text:
                texts.append(piece.text)
            else:
                pieces.append(replace(piece, done=None if more else piece.done))
    return pieces


def _pieces(source: Source, job: ParseJob, part: ByteRange | None = None) -> Iterator[Piece]:
    write = log_writer(job.form, color=job.color, width=job.width).log
    logs, untrusted = 0, False
    for entry in read_source(source, proof=job.proof, tables=True) if part is None else _range(source, part, job):
        if isinstance(entry, Unread):
            yield Piece(unread=entry)
            continue
        logs += 1
        untrusted = untrusted or entry.outcome is not Outcome.OK
        begins = True
        for text in write(within(entry, job.sizes)):
            yield Piece(text=text, begins=begins)
            begins = False
    yield Piece(done=source, logs=logs, untrusted=untrusted)


def _range(source: Source, part: ByteRange, job: ParseJob) -> Iterator[Log | Unread]:
    try:
        yield from parse_range(Path(source.name), part, proof=job.proof)
    except OSError as error:
        yield Unread(source.name, f"{source.name} cannot be read: {error.strerror or error}", damaged=True)


def on_cores(
    function: Callable[..., T], *items: Sequence[Any], cores: int | None = None, chunk: int = 1
) -> Iterator[T]:
    """Yield what a function returns for each item, in order; of many, by processes that closing the iterator ends."""
    count = cores or os.cpu_count() or 1
    if count < 2 or len(items[0]) <= 2 * _FEW:
        yield from map(function, *items)
        return
    benchmarks()  # loaded before this process is forked
    with processes(count) as pool:
        yield from pool.map(function, *items, chunksize=chunk)


@contextmanager
def processes(count: int) -> Iterator["ProcessPoolExecutor"]:
    """Start processes, and end them even if the block is left early."""
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(count, initializer=_begin_process, initargs=(os.getpid(),)) as pool:
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)  # waits: else the interpreter exits while its thread is ending


def _begin_process(main: int) -> None:
    """End with the main process, leave Ctrl-C to it, and do not repeat its warnings."""
    import multiprocessing
    import signal

    from fabbench.execution.process import end_with_parent

    # Without fork, the parent may be a fork server, which ends with the main process.
    end_with_parent(main if multiprocessing.get_start_method() == "fork" else os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore", PluginWarning)
