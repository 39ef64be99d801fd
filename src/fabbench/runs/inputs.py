"""What users name → logs: files, directories, lists, and runs of a store. One grammar for all commands."""

import os
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fabbench.logs.signs import NO_KNOWN_OUTPUT, Unread, UnreadWarning, unread_reason
from fabbench.model.errors import FabbenchError, MachineError, RequestError
from fabbench.model.log import MPI_DEBUG, Log, Proof
from fabbench.model.messages import did_you_mean, nearest
from fabbench.model.patterns import lazy
from fabbench.plan import STORE
from fabbench.runs.document import REQUEST, SWEEP_LOGS, runs, store_here
from fabbench.runs.parse_file import LogStream, open_log, parse_stream
from fabbench.runs.result_tables import table_logs

if TYPE_CHECKING:
    from fabbench.runs.store import StoredRun

_ARCHIVES = (".tar", ".tgz", ".zip", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst")
_MAY_BE_LOG = lazy(r"(?:^|/)[^./]*$|\.(?:txt|log|out|err|std\w+|[oe]?\d+)(?:\.(?:gz|bz2|xz|zst))?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a command reads: a log file, or a run of a store."""

    name: str  # The file, or the directory of the run
    named: bool = True  # Whether the user named it, so that it must contain a log
    run: bool = False
    configuration: str = ""  # The only one of a run that was named; empty: all


def listed(name: str) -> list[str]:
    """Return the parts of a comma-separated list of files and directories; of any other name only itself."""
    parts = [part for part in name.split(",") if part]
    several = len(parts) > 1 and not Path(name).exists() and any(Path(part).exists() for part in parts)
    return parts if several else [name]


def expand(names: Iterable[str]) -> list[Source]:
    """List the files: a directory stands for all files and runs in and below it, except hidden ones.

    A comma-separated list stands for its parts. For skipped archives, pipes, sockets and devices, UnreadWarning is
    issued. Raise MachineError if a directory cannot be listed.
    """
    return [source for name in names for part in listed(name) for source in _expanded(part)]


def _expanded(name: str) -> Iterator[Source]:
    path = Path(name)
    if name == "-" or not path.is_dir():
        yield Source(name=name)
        return

    def refuse(error: OSError) -> None:
        raise MachineError(f"{error.filename} cannot be listed: {error.strerror}") from error

    for folder, folders, files in os.walk(path, onerror=refuse):
        if REQUEST in files:
            yield Source(name=folder, named=folder == str(path), run=True)
            folders.clear()
            continue
        folders[:] = sorted(entry for entry in folders if not entry.startswith("."))
        for file in sorted(entry for entry in files if not entry.startswith(".")):
            full = Path(folder, file)
            if file.endswith(_ARCHIVES):
                warnings.warn(f"{full} is an archive: it was skipped. Unpack it.", UnreadWarning, stacklevel=2)
            elif os.path.exists(full) and not os.path.isfile(full):  # noqa: PTH110, PTH113 - raise no error
                warnings.warn(f"{full} is not a regular file: it was skipped.", UnreadWarning, stacklevel=2)
            else:
                yield Source(name=str(full), named=False)


def sources_of(names: Iterable[str], store: Path, proof: Proof | None = None) -> list[Source]:
    """List the log files and runs that inputs of a command stand for.

    An input is one of `expand`, or a run of the store: an id, ``last``, a name, or ``RUN:CONFIG``. Raise
    FabbenchError if it does not exist, or if logs are to be judged by `proof` and there are only runs.
    """
    found = [source for name in names for source in _sources(name, store)]
    require_logs(found, proof)
    return found


def _sources(name: str, store: Path) -> list[Source]:
    path = Path(name)
    if name == "-" or path.exists() or len(listed(name)) > 1:
        return expand([name])
    ref, _, configuration = name.rpartition(":") if ":" in name else (name, "", "")
    try:
        run = open_run(ref, store)
    except RequestError:
        if ref == name and (path.suffix or len(path.parts) > 1):
            return expand([name])  # opening it says what is wrong
        raise
    labels = [each.label for each in run.configurations]
    if configuration and configuration not in labels:
        raise RequestError(f"Run {run.id} has no configuration {configuration}.", hint=f"It has {', '.join(labels)}.")
    return [Source(name=str(run.path), run=True, configuration=configuration)]


def require_logs(sources: Sequence[Source], proof: Proof | None) -> None:
    """Raise RequestError if there are only runs, and something is said about logs."""
    if proof is not None and proof != Proof() and sources and all(source.run for source in sources):
        raise RequestError(
            "--fabric, --instance-type, --nodes and --nics are for logs, and have no effect on a run.",
            hint="It was judged when it was measured, and knows its nodes: leave them out, or pass --fabric any.",
        )


def whole_runs(name: str, store: Path) -> list[Path]:
    """Return the runs that an input stands for; none if it stands for anything else, too."""
    sources = sources_of([name], store)
    return [Path(each.name) for each in sources] if all(each.run and not each.configuration for each in sources) else []


def read_source(source: Source, *, proof: Proof | None = None, tables: bool = False) -> Iterator[Log | Unread]:
    """Read a file or a run: yield its logs or, if it has no result, the reason. A run is judged as it was measured.

    With `tables`, a file that was named may be fabbench's own JSON or CSV. A file in a directory that is unrelated to
    any benchmark is left out.
    """
    return (entry for _, entry in read_labeled(source, proof=proof, tables=tables))


def read_labeled(  # noqa: PLR0913 - what is known about a file
    source: Source,
    *,
    proof: Proof | None = None,
    tables: bool = False,
    markdown: bool = False,
    part: LogStream | None = None,
    line: int = 0,
) -> Iterator[tuple[str, Log | Unread]]:
    """Read a source like `read_source`. Each log comes with its configuration, if the file, or table, has several.

    With `markdown`, a file may also be a table in Markdown. `part`: what to read of a file, after a number of lines.
    """
    if source.run:
        yield from _read_run(source)
        return
    name, named, empty = source.name, source.named, not line
    try:
        with nullcontext(part) if part else open_log(name) as file:
            for label, log in parse_stream(file, name, proof=proof, tables=tables and named, line=line):
                empty = False
                if named or log.case != MPI_DEBUG:  # else it may be another rank, or a server
                    yield label, log
            begin = file.head.decode("utf-8", "replace") if empty else ""
            for label, log in table_logs(begin, name, proof) if markdown and named and empty else ():
                empty = False
                yield label, log
    except FabbenchError as error:
        yield "", Unread(name, str(error), damaged=True)
        return
    reason, remark = unread_reason(begin) if empty else ("", False)
    if empty and named:
        yield "", Unread(name, reason or NO_KNOWN_OUTPUT)
    elif reason and (not remark or _MAY_BE_LOG.search(name)):
        yield "", Unread(name, reason, remark=remark)


def _read_run(source: Source) -> Iterator[tuple[str, Log | Unread]]:
    from fabbench.runs.store import StoredRun

    run, empty = StoredRun(Path(source.name)), source.named
    if run.sweep is not None:
        for each in expand([f"{source.name}/{SWEEP_LOGS}"]):
            yield from read_labeled(each)
        return
    for execution in run.executions:
        for log in execution.logs if source.configuration in {"", execution.configuration} else ():
            empty = False
            yield execution.configuration, log if log.hosts else replace(log, hosts=frozenset(run.hosts))
    for reason in run.damage or ([f"Nothing was measured in run {run.id}."] if empty else ()):
        yield "", Unread(source.name, reason, damaged=True)


def open_run(ref: str, store: Path = STORE) -> "StoredRun":
    """Find a run by its directory, by its id or folder name or the beginning or end of one, or as ``last``.

    The user's own name finds it too. Raise RequestError unless one run matches.
    """
    from fabbench.runs.store import StoredRun

    if (Path(ref) / REQUEST).is_file():
        return StoredRun(Path(ref))
    if ref == "last" and (newest := next(runs(store), None)):
        return StoredRun(newest)
    known = list(runs(store))
    part = re.escape(ref)
    fits = re.compile(rf"{part}[^/]*|[^/]*{part}|[^/]*-{part}[0-9a-f]*").fullmatch
    matches = [path for path in known if ref and fits(path.name)]
    exact = [path for path in matches if path.name.endswith(f"-{ref}") or path.name == ref]
    matches = exact or matches or [path for path in known if ref and StoredRun(path).name == ref]
    if len(matches) == 1:
        return StoredRun(matches[0])
    if matches:
        names = ", ".join(path.name for path in matches[:5])
        raise RequestError(f"{ref} matches {len(matches)} runs: {names}.", hint="Use more characters of it.")
    if ref == "-" or Path(ref).exists():
        raise RequestError(f"{ref} is not a run.", hint="fabbench parse, explain, compare, report and show read logs.")
    hint = "fabbench runs lists them." if known else f"No runs in {store}; see --store."
    near = did_you_mean(nearest(ref, ("last", *(path.name.rpartition("-")[2] for path in known))))
    raise RequestError(f"Run {ref} not found in {store}.{near}", hint=hint)


def parse(*sources: str | Path, fabric: str | None = None, store: Path | None = None) -> list[Log]:
    """Read and judge logs of files, all files in directories, and runs, as `fabbench parse` does.

    `fabric` judges logs as measured on it; `store` has the runs, by default ``FABBENCH_STORE``. Raise
    MachineError if a file cannot be read. A file without any known output yields no log, and UnreadWarning if
    it is nevertheless a benchmark's output.
    """
    proof, found = Proof(fabric=fabric) if fabric is not None else None, list[Log]()
    for source in sources_of(map(str, sources), store_here(store), proof):
        for entry in read_source(source, proof=proof, tables=True):
            if isinstance(entry, Log):
                found.append(entry)
            elif entry.damaged:
                raise MachineError(entry.reason)
            elif not entry.remark and entry.reason != NO_KNOWN_OUTPUT:
                warnings.warn(f"{entry.source}: {entry.reason}", UnreadWarning, stacklevel=2)
    return found
