"""Log files → text of judged logs, on all cores.

A large log is split into parts that can be read independently: each begins where one nccl-tests program follows
another. Text between the closing line of a table and the next banner belongs to neither, so reading the parts gives
the same result as reading the whole. A log without such boundaries, or with prefixes, is one part.
"""

import os
import re
import stat
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fabbench.benchmarks import benchmarks
from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.logs.parser import LogParser, logs
from fabbench.logs.signs import Unread
from fabbench.model.errors import MachineError
from fabbench.model.log import MARKER_SIGN, Log, Outcome, Proof
from fabbench.model.plugins import PluginWarning
from fabbench.report.log_report import log_writer
from fabbench.runs.inputs import read_source
from fabbench.runs.log_files import COMPRESSED, Source, open_log
from fabbench.runs.parse_file import BLOCK, lines_to_learn_from, parse_stream, within

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

T = TypeVar("T")
PART = 2 << 20  # Minimum bytes of a part: enough to make its overhead negligible; few, so that all cores end together
_BOUNDARY = (
    rb"\n# (?:Collective test concluded: \w+|Avg bus bandwidth    : \S+) *\r?\n(?:#? *\r?\n)*"
    rb"(?=# nccl-tests version \d|# Collective test starting: |# nThread \d)"
)
_MAX_SEARCH = 8 << 20  # Bytes searched for the next boundary, so that a log without any is not read twice
LARGE = 4 << 20  # Size in bytes from which a file is split, or read in this process
_FEW = 8  # Number of files up to which processes are not worth their start (about 30 ms each)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseJob:
    """How to parse each file, and format its logs."""

    form: str
    sizes: range | None = None
    proof: Proof | None = None
    color: bool = False
    width: int | None = None


class Piece(NamedTuple):
    """A log with its text to print, a file that could not be read, or the end of a source."""

    text: str = ""
    outcome: Outcome | None = None
    unread: Unread | None = None
    done: Source | None = None  # the source that ends


def read(sources: Sequence[Source], job: ParseJob, *, cores: int | None = None) -> Iterator[Piece]:
    """Read sources in order. Closing the iterator early ends the processes."""
    count = cores or os.cpu_count() or 1
    alone = count < 2 or (len(sources) <= _FEW and not any(map(_is_large, sources)))
    # What the first file has compiled and remembered, the processes inherit.
    here = len(sources) if alone else int(not _is_large(sources[0]))
    for source in sources[:here]:
        yield from _pieces(_Part(source), job)
    if alone:
        return
    benchmarks()
    with processes(count) as pool:
        yield from _in_order(sources[here:], job, pool, ahead=4 * count)


def _in_order(sources: Sequence[Source], job: ParseJob, pool: "ProcessPoolExecutor", *, ahead: int) -> Iterator[Piece]:
    waiting: deque[Future[list[Piece]] | Iterator[Piece]] = deque()
    rest = _begun(sources, job, pool)
    while True:
        waiting.extend(islice(rest, ahead - len(waiting)))
        if not waiting:
            return
        first = waiting.popleft()
        yield from first if isinstance(first, Iterator) else first.result()


def _begun(
    sources: Iterable[Source], job: ParseJob, pool: "ProcessPoolExecutor"
) -> Iterator["Future[list[Piece]] | Iterator[Piece]"]:
    """Yield what reads sources in order: calls of other processes, or what is too large to keep its output in memory.

    A call of another process costs as much as a small file: each reads several.
    """
    for here, some in groupby(sources, key=lambda source: source.name == "-" or _is_large(source)):
        while not here and (batch := list(islice(some, _FEW))):
            yield pool.submit(_all_pieces, [_Part(each) for each in batch], job)
        for part in chain.from_iterable(map(parts, some)):
            yield _pieces(part, job) if part.text is None else pool.submit(_all_pieces, [part], job)


class _Part(NamedTuple):
    """A source, or a part of it that can be read by itself."""

    source: Source
    text: bytes | None = None  # None: all that is left of the file
    start: int = 0
    line: int = 0  # The number of the line before it
    prefixes: Prefixes | None = None
    more: bool = False  # Whether other parts follow


def parts(source: Source) -> Iterator[_Part]:
    """Yield the parts of a large file, or the whole if it cannot be split."""
    if source.name == "-":
        yield _Part(source)
        return
    whole, text, boundary, sign = _Part(source), b"", re.compile(_BOUNDARY), MARKER_SIGN.encode()
    with suppress(MachineError), open_log(source.name) as file:  # whoever reads the rest meets the damage again
        while len(text) < _MAX_SEARCH and (block := file.read(PART)):
            at, text = max(len(text) - len(sign), 0), text + block
            if text.find(sign, at) >= 0:  # fabbench wrote it: the end of a step applies to all of its output
                break
            while (match := boundary.search(text, PART)) is not None:
                end, known = match.end(), whole.prefixes or Prefixes(lines_to_learn_from(file.head[:BLOCK]))
                yield whole._replace(text=text[:end], prefixes=known, more=True)
                start, line = whole.start + end, whole.line + text.count(b"\n", 0, end)
                whole, text = _Part(source, None, start, line, known), text[end:]
        else:
            whole = whole._replace(text=text if whole.start and len(text) < _MAX_SEARCH else None)
    yield whole


def _is_large(source: Source) -> bool:
    """Return whether a source is a file of at least `LARGE` bytes; compressed, of fewer."""
    try:
        status = Path(source.name).stat()
    except OSError:
        return False
    min_size = LARGE // 32 if source.name.endswith(COMPRESSED) else LARGE
    return source.name != "-" and stat.S_ISREG(status.st_mode) and status.st_size >= min_size


def _all_pieces(parts: Iterable[_Part], job: ParseJob) -> list[Piece]:
    return [piece for part in parts for piece in _pieces(part, job)]


def _pieces(part: _Part, job: ParseJob) -> Iterator[Piece]:
    write = log_writer(job.form, color=job.color, width=job.width).log
    for entry in read_part(part, job.proof):
        if isinstance(entry, Unread):
            yield Piece(unread=entry)
        else:
            yield Piece(text="".join(write(within(entry, job.sizes))), outcome=entry.outcome)
    if not part.more:
        yield Piece(done=part.source)


def read_part(part: _Part, proof: Proof | None) -> Iterator[Log | Unread]:
    """Read a part, from `parts`."""
    name, start = part.source.name, part.start
    if part.prefixes is None:
        yield from read_source(part.source, proof=proof, tables=True)
        return
    if part.text is not None:
        parser = LogParser(name, proof=proof, prefixes=part.prefixes, live=False, line=part.line)
        text = part.text.decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\n")
        yield from logs([*parser.feed_lines(text.split("\n")), *parser.close(None)])
        return
    try:
        with open_log(name) as file:
            while start:
                start -= len(file.read(min(start, PART)))
            yield from parse_stream(file, name, proof=proof, prefixes=part.prefixes, line=part.line)
    except MachineError as error:
        yield Unread(name, str(error), damaged=True)


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
