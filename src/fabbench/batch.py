"""Many log files at once: read, judged and written by as many processes as there are cores.

Results come in the order of the files. A file that is large is read by the main process, piece by piece,
so that memory stays bound by one execution.
"""

import os
import signal
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fabbench.benchmarks import benchmarks
from fabbench.errors import FabbenchError, MachineError
from fabbench.files import parse_file, parse_stdin
from fabbench.model import Log, Outcome, Proof
from fabbench.plugins import PluginWarning
from fabbench.report.parsed import writer

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

_LARGE = 4 << 20
"""Bytes from which on a file is not given to another process."""
_FEW = 8
"""Files up to which other processes are not worth their start (some 30 ms each)."""
NOTHING = "Nothing in it is the output of a benchmark or launcher known here."


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """How to read and write each file."""

    form: str
    proof: Proof | None = None
    colour: bool = False
    width: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file to read. `named`: the user named it, so there must be a log in it."""

    name: str
    named: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Text to print, or what came of a source: `done` ends it."""

    text: str = ""
    begins: bool = False
    """Whether a log begins with it."""
    done: Source | None = None
    logs: int = 0
    untrusted: bool = False
    error: str = ""


def expand(names: Iterable[str]) -> list[Source]:
    """List the files: a directory stands for every file in it and below, but for hidden ones.

    Raises MachineError where a directory cannot be listed.
    """
    return [source for name in names for source in _expanded(name)]


def _expanded(name: str) -> Iterator[Source]:
    path = Path(name)
    if name == "-" or not path.is_dir():
        yield Source(name=name)
        return

    def refuse(error: OSError) -> None:
        raise MachineError(f"{error.filename} cannot be listed: {error.strerror}") from error

    for folder, folders, files in os.walk(path, onerror=refuse):
        folders[:] = sorted(entry for entry in folders if not entry.startswith("."))
        for file in sorted(files):
            if not file.startswith("."):
                yield Source(name=str(Path(folder, file)), named=False)


def read(sources: Sequence[Source], job: Job, *, cores: int | None = None) -> Iterator[Piece]:
    """Read sources in order. Leaving it early ends the processes."""
    count = min(cores or os.cpu_count() or 1, len(sources))
    if count < 2 or len(sources) <= _FEW:
        for source in sources:
            yield from _pieces(source, job)
        return
    from concurrent.futures import ProcessPoolExecutor

    benchmarks()
    with ProcessPoolExecutor(count, initializer=_begin_process) as pool:
        try:
            yield from _in_order(sources, job, pool, ahead=4 * count)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _in_order(
    sources: Sequence[Source], job: Job, pool: "ProcessPoolExecutor", *, ahead: int
) -> Iterator[Piece]:
    waiting: deque[tuple[Source, Future[list[Piece]] | None]] = deque()
    rest = iter(sources)
    while True:
        while len(waiting) < ahead and (source := next(rest, None)) is not None:
            waiting.append((source, None if _is_large(source) else pool.submit(_all_pieces, source, job)))
        if not waiting:
            return
        source, future = waiting.popleft()
        yield from _pieces(source, job) if future is None else future.result()


def _is_large(source: Source) -> bool:
    try:
        return source.name == "-" or Path(source.name).stat().st_size >= _LARGE
    except OSError:
        return False


def _begin_process() -> None:
    """Leave Ctrl-C to the main process, and what it has warned of already."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore", PluginWarning)


def _all_pieces(source: Source, job: Job) -> list[Piece]:
    """Read a small file in another process: one piece for each log."""
    logs: list[list[str]] = []
    for piece in _pieces(source, job):
        if piece.done is not None:
            return [*(Piece(text="".join(texts), begins=True) for texts in logs), piece]
        if piece.begins:
            logs.append([])
        logs[-1].append(piece.text)
    return []


def _pieces(source: Source, job: Job) -> Iterator[Piece]:
    write = writer(job.form, colour=job.colour, width=job.width).log
    logs, untrusted, error = 0, False, ""
    try:
        for log in _logs(source, job):
            logs += 1
            untrusted = untrusted or log.outcome is not Outcome.OK
            begins = True
            for text in write(log):
                yield Piece(text=text, begins=begins)
                begins = False
    except FabbenchError as failure:
        error = str(failure)
    if not logs and not error and source.named:
        error = NOTHING
    yield Piece(done=source, logs=logs, untrusted=untrusted, error=error)


def _logs(source: Source, job: Job) -> Iterator[Log]:
    if source.name == "-":
        return parse_stdin(proof=job.proof)
    return parse_file(Path(source.name), proof=job.proof)
