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
from fabbench.logs.signs import Unread
from fabbench.model.errors import MachineError
from fabbench.model.log import MARKER_SIGN, Log, Outcome, Proof
from fabbench.model.plugins import PluginWarning
from fabbench.report.log_report import log_writer
from fabbench.runs.inputs import Source, read_labeled
from fabbench.runs.parse_file import LogStream, open_log, within

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
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
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
    """A log with its text to print, or a file that could not be read."""

    text: str = ""
    outcome: Outcome | None = None
    unread: Unread | None = None
    ends: bool = False  # Whether it is the end of a source, and no more


class Part(NamedTuple):
    """A source, or a part of it that can be read by itself."""

    source: Source
    text: bytes | LogStream | None = None  # None: the whole file
    line: int = 0  # The number of the line before it
    more: bool = False  # Whether other parts follow


def read(sources: Sequence[Source], job: ParseJob, *, cores: int | None = None) -> Iterator[Piece]:
    """Read sources in order. Closing the iterator early ends the processes."""
    count = cores or os.cpu_count() or 1
    alone = count < 2 or (len(sources) <= _FEW and not any(map(_is_large, sources)))
    # What the first file has compiled and remembered, the processes inherit.
    here = len(sources) if alone else int(not _is_large(sources[0]))
    yield from _pieces(map(Part, sources[:here]), job)
    if alone:
        return
    benchmarks()
    with processes(count) as pool:
        rest = _begun(sources[here:], job, pool)
        waiting: deque[Future[list[Piece]] | Iterator[Piece]] = deque()
        while True:
            # What this process reads comes from a file that stays open until the next is asked for.
            while len(waiting) < 4 * count and not (waiting and isinstance(waiting[-1], Iterator)):
                if (begun := next(rest, None)) is None:
                    break
                waiting.append(begun)
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
            yield pool.submit(_all_pieces, [*map(Part, batch)], job)
        for part in chain.from_iterable(map(parts, some)):
            in_pool = isinstance(part.text, bytes)
            yield pool.submit(_all_pieces, [part], job) if in_pool else _pieces([part], job)


def parts(source: Source) -> Iterator[Part]:
    """Yield the parts of a large file; the last may be the open file, to be read before the next is asked for."""
    text, line, boundary, sign = b"", 0, re.compile(_BOUNDARY), MARKER_SIGN.encode()
    with suppress(MachineError), open_log(source.name) as file:
        with suppress(MachineError):  # whoever reads the rest meets the damage again
            while len(text) < _MAX_SEARCH and (block := file.read(PART)):
                at, text = max(len(text) - len(sign), 0), text + block
                if text.find(sign, at) >= 0:  # fabbench wrote it: the end of a step applies to all of its output
                    break
                while (match := boundary.search(text, PART)) is not None:
                    yield Part(source, text[: match.end()], line, more=True)
                    line, text = line + text.count(b"\n", 0, match.end()), text[match.end() :]
            else:
                if line and len(text) < _MAX_SEARCH:
                    yield Part(source, text, line)
                    return
        file.put_back(text)
        yield Part(source, file, line)
        return
    yield Part(source)


def _is_large(source: Source) -> bool:
    """Return whether a source is a file of at least `LARGE` bytes; compressed, of fewer."""
    try:
        status = Path(source.name).stat()
    except OSError:
        return False
    min_size = LARGE // 32 if source.name.endswith(_COMPRESSED) else LARGE
    return source.name != "-" and stat.S_ISREG(status.st_mode) and status.st_size >= min_size


def _all_pieces(parts: Iterable[Part], job: ParseJob) -> list[Piece]:
    return list(_pieces(parts, job))


def _pieces(parts: Iterable[Part], job: ParseJob) -> Iterator[Piece]:
    write = log_writer(job.form, color=job.color, width=job.width).log
    for part in parts:
        for entry in read_part(part, job.proof):
            if isinstance(entry, Unread):
                yield Piece(unread=entry)
            else:
                yield Piece(text="".join(write(within(entry, job.sizes))), outcome=entry.outcome)
        if not part.more:
            yield Piece(ends=True)


def read_part(part: Part, proof: Proof | None) -> Iterator[Log | Unread]:
    """Read a part, from `parts`."""
    name, text = part.source.name, part.text
    stream = LogStream(name, iter([text])) if isinstance(text, bytes) else text
    labeled = read_labeled(part.source, proof=proof, tables=True, part=stream, line=part.line)
    return (entry for _, entry in labeled)


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
