"""What users name → logs: files, directories, lists, and runs of a store.

One grammar for all commands.

Many are read on all cores. A large log is split into parts that can be read independently: each
begins where one nccl-tests program follows another. Text between the closing line of a table and
the next banner belongs to neither, so reading the parts gives the same result as reading the whole.
A log without such boundaries, or with prefixes, is one.
"""

import os
import re
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, groupby, islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fabbench.benchmarks import benchmarks
from fabbench.logs.signs import NO_KNOWN_OUTPUT, Unread, UnreadWarning, unread_reason
from fabbench.model.errors import FabbenchError, MachineError, RequestError
from fabbench.model.log import FLIGHT_RECORDER, MARKER_SIGN, MPI_DEBUG, Log, Outcome, Proof
from fabbench.model.messages import counted, did_you_mean, nearest
from fabbench.model.patterns import lazy
from fabbench.model.plugins import PluginWarning
from fabbench.model.units import Sizes
from fabbench.model.values import T, frozen
from fabbench.plan import STORE
from fabbench.report.log_report import log_tables, log_writer
from fabbench.runs.directories import REQUEST, SWEEP_LOGS, runs, store_here
from fabbench.runs.parse_file import LogStream, open_log, parse_stream, within

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

    from fabbench.analysis.gate_results import Verdict
    from fabbench.runs.store import StoredRun

_ARCHIVES = (".tar", ".tgz", ".zip", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst")
_MAY_BE_LOG = lazy(
    r"(?:^|/)[^./]*$|\.(?:[\w-]*(?:txt|log|out|err|\d)|std\w+)(?:\.(?:gz|bz2|xz|zst))?$"
)
"""No extension, one that ends like that of a log, or in the number of a host, rank, job or copy."""
CORES: int | None = None
"""How many processes read at most; None: as many as there are cores."""
PART = 2 << 20
"""Minimum bytes of a part: its overhead is negligible, and all cores end together."""
_BOUNDARY = (
    rb"\n# (?:Collective test concluded: \w+|Avg bus bandwidth    : \S+) *\r?\n(?:#? *\r?\n)*"
    rb"(?=# [nr]ccl-tests version \d|# Collective test starting: |# nThread \d)"
)
_MARKER = MARKER_SIGN.encode()
_MAX_SEARCH = 8 << 20  # Bytes searched for the next boundary, all of which are in memory
LARGE = 4 << 20  # Size in bytes from which a file is split, or read in this process
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_AHEAD = 4  # Batches per core that are submitted before the first is waited for
_FEW = 8  # Number of files up to which processes are not worth their start (about 30 ms each)


@frozen
class Source:
    """What a command reads.

    A log file, a part of it that can be read by itself, or a run of a store.
    """

    name: str  # The file, or the directory of the run
    named: bool = True  # Whether the user named it, so that it must contain a log
    run: bool = False
    configuration: str = ""  # The only one of a run that was named; empty: all
    text: bytes | LogStream | None = None  # What is read of a file; None: all
    line: int = 0  # The number of the line before the text
    more: bool = False  # Whether other parts follow
    label: str = ""  # What it is called instead, by the user

    def labeled(self, log: Log) -> Log:
        """Return a log of it, as the user calls it."""
        return replace(log, source=self.label) if self.label else log


def listed_files(name: str) -> list[str]:
    """Return the parts of a comma-separated list of files and directories.

    Of any other name only itself.
    """
    parts = [part for part in name.split(",") if part]
    if len(parts) < 2 or Path(name).exists():
        return [name]
    known = any(Path(part).exists() for part in parts)
    return parts if known else [name]


def expand(names: Iterable[str]) -> Iterator[Source]:
    """Yield the files and runs that names stand for.

    A directory stands for all files and runs in and below it, except hidden ones.

    A comma-separated list stands for its parts. For skipped archives, pipes, sockets and devices,
    UnreadWarning is issued. Raise MachineError if a directory cannot be listed.
    """
    for name in chain.from_iterable(map(listed_files, names)):
        if name != "-" and Path(name).is_dir():
            yield from _sources_below(Path(name))
        else:
            yield Source(name=name)


def _sources_below(directory: Path) -> Iterator[Source]:
    def refuse(error: OSError) -> None:
        raise MachineError(f"{error.filename} cannot be listed: {error.strerror}") from error

    for folder, folders, files in os.walk(directory, onerror=refuse):
        if REQUEST in files:
            yield Source(name=folder, named=folder == str(directory), run=True)
            folders.clear()  # os.walk goes no deeper: what a run holds are no inputs
            continue
        folders[:] = _visible(folders)  # those that os.walk enters
        for file in _visible(files):
            full = os.path.join(folder, file)  # noqa: PTH118 - folder is a string
            if _is_readable(full):
                yield Source(name=full, named=False)


def _visible(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith("."))


def _is_readable(file: str) -> bool:
    """Return whether a file may be a log; of any other, UnreadWarning is issued."""
    special = not os.path.isfile(file) and os.path.exists(file)  # noqa: PTH110, PTH113 - raise no error
    if special:
        what = "not a regular file: it"
    elif file.endswith(_ARCHIVES):
        what = "an archive: unpack it; it"
    else:
        return True
    warnings.warn(f"{file} is {what} was skipped.", UnreadWarning, stacklevel=2)
    return False


def require_names(names: Sequence[str]) -> None:
    """Raise RequestError if an input has no name, or standard input is to be read twice."""
    if "" in names:  # which is no name of this directory: an unset variable of a script
        raise RequestError(
            "An input has no name.", hint="Pass a file, a directory, - or a run of the store."
        )
    if names.count("-") > 1:
        raise RequestError(
            "- is given twice: standard input can be read once.", hint="Save it to a file first."
        )


def sources_of(
    names: Iterable[str],
    store: Path,
    proof: Proof | None = None,
    labels: Sequence[str] = (),
) -> list[Source]:
    """List the log files and runs that inputs of a command stand for, with the labels of these.

    An input is one of `expand`, or a run of the store: an id, ``last``, a name, or ``RUN:CONFIG``.
    Raise FabbenchError if it does not exist, if logs are to be judged by `proof` and there are
    only runs, or for a wrong number of labels.
    """
    names = list(names)
    require_names(names)
    if labels and len(labels) != len(names):
        given = counted(len(labels), "label")
        wanted = counted(len(names), "input")
        raise RequestError(
            f"Got {given} for {wanted}.",
            hint="Pass --label once per input, in order, or not at all.",
        )
    sources: list[Source] = []
    for name, label in zip_longest(names, labels, fillvalue=""):
        of_input = _sources_of_input(name, store)
        sources += (replace(each, label=label) for each in of_input)
    require_logs(sources, proof)
    return sources


def _sources_of_input(name: str, store: Path) -> Iterable[Source]:
    """Return the files of an input if there are any, else the run of the store (RUN, RUN:CONFIG).

    What looks like a file, and is neither, is opened, for the better message.
    """
    path = Path(name)
    if name == "-" or path.exists() or len(listed_files(name)) > 1:
        return expand([name])
    run_name, colon, configuration = name.rpartition(":")
    try:
        run = open_run(run_name if colon else name, store)
    except RequestError:
        looks_like_file = path.suffix or len(path.parts) > 1
        if looks_like_file and not colon:
            return expand([name])  # opening it says what is wrong
        raise
    if not colon:
        configuration = ""
    _require_configuration(run, configuration)
    return [Source(name=str(run.path), run=True, configuration=configuration)]


def _require_configuration(run: "StoredRun", configuration: str) -> None:
    labels = [each.label for each in run.configurations]
    if configuration and configuration not in labels:
        known = ", ".join(labels)
        raise RequestError(
            f"Run {run.id} has no configuration {configuration}.", hint=f"It has {known}."
        )


def require_logs(sources: Sequence[Source], proof: Proof | None) -> None:
    """Raise RequestError if there are only runs, and something is said about logs."""
    if proof is None or proof == Proof():
        return
    if sources and all(source.run for source in sources):
        raise RequestError(
            "--fabric, --instance-type, --nodes and --nics are for logs, and have no effect on a "
            "run.",
            hint="It was judged when it was measured, and knows its nodes: leave them out, or "
            "pass --fabric any.",
        )


def whole_runs(name: str, store: Path) -> list[Path]:
    """Return the runs that an input stands for; none if it stands for anything else, too."""
    sources = sources_of([name], store)
    if any(not each.run or each.configuration for each in sources):
        return []
    return [Path(each.name) for each in sources]


def read_source(
    source: Source, *, proof: Proof | None = None, tables: bool = False
) -> Iterator[tuple[str, Log | Unread]]:
    """Read a file or a run: yield its logs or, if it has no result, the reason.

    A run is judged as it was measured.

    Each log comes with its configuration, if the file has several, or its column of a table. With
    `tables`, a file that was named may be fabbench's own JSON. A file in a directory that is
    unrelated to any benchmark is left out.
    """
    if source.run:
        yield from _read_run(source)
        return
    # A large file is read in parts: only the first one, at line 0, says that there is nothing.
    empty = not source.line
    tables = tables and source.named
    name = source.name
    try:
        with _opened_stream(source) as file:
            for label, log in parse_stream(
                file, name, proof=proof, tables=tables, line=source.line
            ):
                empty = False
                if source.named or _counts_in_directory(log, name):
                    yield label, log
            begin = file.head.decode("utf-8", "replace") if empty else ""
    except FabbenchError as error:
        yield "", Unread(name, str(error), damaged=True)
        return
    if empty:
        yield from _why_without_log(source, begin)


def _opened_stream(source: Source) -> AbstractContextManager[LogStream]:
    """Open a file, a part of one in memory, or take the rest of one that is open already."""
    if source.text is None:
        return open_log(source.name)
    if isinstance(source.text, bytes):
        return nullcontext(LogStream(source.name, iter([source.text])))
    return nullcontext(source.text)


def _counts_in_directory(log: Log, name: str) -> bool:
    """Return whether a log of a file that only its directory was named for counts.

    Documents and programs may quote what others printed: of these only rows count.
    """
    if log.case == MPI_DEBUG:  # another rank or a server may have written it
        return False
    if log.facts.get("report") == FLIGHT_RECORDER:  # never has rows, and is no quotation
        return True
    if log.points or log.damaged or _MAY_BE_LOG.search(name):
        return True
    return log.benchmark is not None and ".json" in name  # a benchmark's own document


def _why_without_log(source: Source, begin: str) -> Iterator[tuple[str, Unread]]:
    """Yield why a file has no log; of one that was not named, only if it is a benchmark's.

    A remark is a reason with which nothing seems to be lost.
    """
    reason, remark = unread_reason(begin)
    if source.named:
        yield "", Unread(source.name, reason or NO_KNOWN_OUTPUT)
    # Any text may name a program: that remark counts only in what may be a log.
    elif reason and (not remark or _MAY_BE_LOG.search(source.name)):
        yield "", Unread(source.name, reason, remark=remark)


def _read_run(source: Source) -> Iterator[tuple[str, Log | Unread]]:
    """Yield the logs of a run with their configurations, or of a sweep, and what is damaged.

    Of a RUN:CONFIG only those of its configuration. A log that does not name its hosts has those of
    the run.
    """
    from fabbench.runs.store import StoredRun

    run = StoredRun(Path(source.name))
    if run.sweep is not None:
        for test_log in expand([f"{source.name}/{SWEEP_LOGS}"]):
            yield from read_source(test_log)
        return
    hosts = frozenset(run.hosts)
    logs = [
        (execution.configuration, log)
        for execution in run.executions
        if source.configuration in {"", execution.configuration}
        for log in execution.logs
    ]
    for configuration, log in logs:
        yield configuration, log if log.hosts else replace(log, hosts=hosts)
    reasons = run.damage
    if source.named and not logs and not reasons:
        reasons = (f"Nothing was measured in run {run.id}.",)
    for reason in reasons:
        yield "", Unread(source.name, reason, damaged=True)


def open_run(ref: str, store: Path = STORE) -> "StoredRun":
    """Find a run by its directory, its id or folder name, the beginning or end of one, or ``last``.

    The user's own name finds it too. Raise RequestError unless one run matches: it says whether
    several do, a log file was meant, or which ids are similar.
    """
    from fabbench.runs.store import StoredRun

    if (Path(ref) / REQUEST).is_file():
        return StoredRun(Path(ref))
    stored = list(runs(store))
    if ref == "last" and stored:
        return StoredRun(stored[0])
    matches = _matching_runs(ref, stored) if ref else []
    if len(matches) == 1:
        return StoredRun(matches[0])
    if matches:
        names = ", ".join(path.name for path in matches[:5])
        raise RequestError(
            f"{ref} matches {len(matches)} runs: {names}.", hint="Use more characters of it."
        )
    if ref == "-" or Path(ref).exists():
        raise RequestError(
            f"{ref} is not a run.",
            hint="fabbench parse, explain, compare, report and show read logs.",
        )
    hint = f"No benchmark was run in {store} (--store). For others, pass ids: see fabbench runs."
    if stored:
        hint = "fabbench runs lists them."
    ids = [path.name.rpartition("-")[2] for path in stored]
    near = did_you_mean(nearest(ref, ["last", *ids] if ids else ids))
    raise RequestError(f"Run {ref} not found in {store}.{near}", hint=hint)


def _matching_runs(ref: str, stored: Sequence[Path]) -> list[Path]:
    """Return the runs of which a reference is the id or folder name; else a part; else the name."""
    from fabbench.runs.store import StoredRun

    part = re.escape(ref)
    # A folder is named WHEN-BENCHMARK-ID. It begins that, ends it, or begins the id.
    fits = re.compile(rf"{part}[^/]*|[^/]*{part}|[^/]*-{part}[0-9a-f]*").fullmatch
    matches = [path for path in stored if fits(path.name)]
    exact = [path for path in matches if f"-{path.name}".endswith(f"-{ref}")]
    return exact or matches or [path for path in stored if StoredRun(path).name == ref]


def parse(*sources: str | Path, fabric: str | None = None, store: Path | None = None) -> list[Log]:
    """Read and judge logs of files, all files in directories, and runs, as `fabbench parse` does.

    A file that is named may also be JSON that fabbench has written.

    `fabric` judges logs as measured on it; `store` has the runs, by default ``FABBENCH_STORE``.
    Raise MachineError if a file cannot be read. A file without any known output yields no log, and
    UnreadWarning if it is nevertheless a benchmark's output.
    """
    proof = None if fabric is None else Proof(fabric=fabric)
    logs: list[Log] = []
    for source in sources_of(map(str, sources), store_here(store), proof):
        for _, entry in read_source(source, proof=proof, tables=True):
            if isinstance(entry, Log):
                logs.append(entry)
            else:
                _raise_or_warn(entry)
    return logs


def _raise_or_warn(unread: Unread) -> None:
    """Raise MachineError for a damaged file; warn of one whose output could not be read."""
    if unread.damaged:
        raise MachineError(unread.reason)
    # A remark: the file only names a program, so that nothing seems to be lost.
    if not unread.remark and unread.reason != NO_KNOWN_OUTPUT:
        warnings.warn(f"{unread.source}: {unread.reason}", UnreadWarning, stacklevel=3)


# ---------------------------------------------------------------- on all cores


class ParseJob(NamedTuple):
    """How to parse each file, and format its logs."""

    form: str
    sizes: Sizes | None = None
    proof: Proof | None = None
    judge: "Callable[[Log], Verdict] | None" = None  # Checks gates
    color: bool = False
    width: int | None = None


class Piece(NamedTuple):
    """A log with its text to print, or a file that could not be read."""

    text: str = ""
    heading: str = ""  # Of a text for a terminal
    rows: int = 0  # Of the sizes that were asked for
    outcome: Outcome | None = None
    verdict: "Verdict | None" = None
    unread: Unread | None = None
    ends: bool = False  # Whether it only marks the end of a source


def read(sources: Sequence[Source], job: ParseJob, *, cores: int | None = None) -> Iterator[Piece]:
    """Read sources in order. Closing the iterator early ends the processes."""
    count = cores or CORES or os.cpu_count() or 1
    few_and_small = len(sources) <= _FEW and not any(map(_is_large, sources))
    if few_and_small or count < 2:
        yield from _pieces(sources, job)
        return
    # What the first file has compiled and remembered, the processes inherit.
    read_here = 0 if _is_large(sources[0]) else 1
    yield from _pieces(sources[:read_here], job)
    with processes(count) as pool:
        waiting = deque["Future[list[Piece]]"]()
        for batch in _batches(sources[read_here:]):
            in_memory = not isinstance(batch[0].text, LogStream)
            # What is read here comes after all that was submitted before it; in processes, a few
            # batches per core may be waiting, with the one below.
            yield from _results_in_order(waiting, backlog=_AHEAD * count - 1 if in_memory else 0)
            if in_memory:
                waiting.append(pool.submit(_list_of_pieces, batch, job))
            else:  # too large to keep its output in memory
                yield from _pieces(batch, job)
        yield from _results_in_order(waiting, backlog=0)


def _results_in_order(waiting: "deque[Future[list[Piece]]]", backlog: int) -> Iterator[Piece]:
    """Yield the results of what was submitted first, until no more than `backlog` wait."""
    while len(waiting) > backlog:
        yield from waiting.popleft().result()


def _batches(sources: Iterable[Source]) -> Iterator[list[Source]]:
    """Yield what one call of a process reads: several small files, or one part of a large one.

    A call costs as much as a small file.
    """
    for in_parts, some in groupby(sources, key=_is_read_in_parts):
        if in_parts:
            for part in chain.from_iterable(map(parts, some)):
                yield [part]
        while batch := list(islice(some, _FEW)):  # of large ones nothing is left here
            yield batch


def _is_read_in_parts(source: Source) -> bool:
    return source.name == "-" or _is_large(source)


def parts(source: Source) -> Iterator[Source]:
    """Yield the parts of a large file.

    The last may be the open file, to be read before the next is asked for. A file that cannot be
    opened is one part: whoever reads it reports why.
    """
    with suppress(MachineError), open_log(source.name) as file:
        rest = yield from _whole_parts(source, file)
        yield rest
        return
    yield source


def _whole_parts(source: Source, file: LogStream) -> Generator[Source, None, Source]:
    """Yield the parts that end at a boundary, and return what follows the last.

    That is the open file if no boundary was found in what may be kept in memory.
    """
    boundary = re.compile(_BOUNDARY)
    text = b""
    line = 0
    with suppress(MachineError):  # whoever reads the rest meets the damage again
        while len(text) < _MAX_SEARCH:
            block = file.read(PART)
            if not block:
                break
            unsearched = max(len(text) - len(_MARKER), 0)  # where a marker that was cut may begin
            text += block
            if text.find(_MARKER, unsearched) >= 0:
                # fabbench's own mark: what it says of a step's end applies to all of its output.
                file.put_back(text)
                return replace(source, text=file, line=line)
            # A part has at least `PART` bytes, and then ends at the next boundary.
            while (match := boundary.search(text, PART)) is not None:
                end = match.end()
                yield replace(source, text=text[:end], line=line, more=True)
                line += text.count(b"\n", 0, end)  # not 0 from the first part on
                text = text[end:]
        if line and len(text) < _MAX_SEARCH:  # the file was read to its end, and has parts
            return replace(source, text=text, line=line)
    file.put_back(text)
    return replace(source, text=file, line=line)


def _is_large(source: Source) -> bool:
    """Return whether a source is a file of at least `LARGE` bytes; compressed, of fewer."""
    path = Path(source.name)
    # A log may be packed into a thirty-second of its size.
    least = LARGE // 32 if source.name.endswith(_COMPRESSED) else LARGE
    return path.is_file() and path.stat().st_size >= least


def _list_of_pieces(parts: Iterable[Source], job: ParseJob) -> list[Piece]:
    return list(_pieces(parts, job))


def _pieces(parts: Iterable[Source], job: ParseJob) -> Iterator[Piece]:
    """Yield the logs of parts as texts, and a mark after the last part of each source."""
    for part in parts:
        for _, entry in read_source(part, proof=job.proof, tables=True):
            if isinstance(entry, Unread):
                yield Piece(unread=entry)
            else:
                yield _written(part.labeled(within(entry, job.sizes)), job)
        if not part.more:
            yield Piece(ends=True)


def _written(log: Log, job: ParseJob) -> Piece:
    """Return a log as text, with its verdict."""
    verdict = job.judge(log) if job.judge else None
    writer = log_writer(job.form, color=job.color, width=job.width)
    text = "".join(writer.log(log, verdict))
    heading = log_tables(log)[0].title if job.width else ""
    return Piece(text, heading, len(log.points), log.outcome, verdict)


def on_cores(
    function: Callable[..., T], *items: Sequence[Any], cores: int | None = None, chunk: int = 1
) -> Iterator[T]:
    """Yield what a function returns for the first of all `items`, the second, and so on, as `map`.

    Many are spread over processes, `chunk` of them a call. Closing the iterator ends these.
    """
    count = cores or CORES or os.cpu_count() or 1
    if count < 2 or len(items[0]) <= 2 * _FEW:
        yield from map(function, *items)
        return
    with processes(count) as pool:
        yield from pool.map(function, *items, chunksize=chunk)


@contextmanager
def processes(count: int) -> Iterator["ProcessPoolExecutor"]:
    """Start processes, and end them even if the block is left early."""
    from concurrent.futures import ProcessPoolExecutor

    from fabbench.execution.process import end_with_parent

    benchmarks()  # loaded before this process is forked
    begin = partial(_begin_process, os.getpid(), end_with_parent)
    with ProcessPoolExecutor(count, initializer=begin) as pool:
        try:
            yield pool
        finally:
            # Waits: else the interpreter exits while its thread is ending.
            pool.shutdown(cancel_futures=True)


def _begin_process(main: int, end_with_parent: Callable[[int], None]) -> None:
    """End with the main process, leave Ctrl-C to it, and do not repeat its warnings."""
    import multiprocessing
    import signal

    # Without fork, the parent may be a fork server, which ends with the main process.
    forked = multiprocessing.get_start_method() == "fork"
    end_with_parent(main if forked else os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore", PluginWarning)
