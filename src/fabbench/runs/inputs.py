"""What users name → logs: files, directories, lists, and runs of a store. One grammar for all commands."""

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fabbench.logs.signs import NO_KNOWN_OUTPUT, Unread, UnreadWarning
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.log import Log, Proof
from fabbench.model.messages import did_you_mean, nearest
from fabbench.plan import STORE
from fabbench.runs.document import REQUEST, SWEEP_LOGS, runs, store_here
from fabbench.runs.log_files import Source, expand, is_log_file, listed
from fabbench.runs.parse_file import parse_source

if TYPE_CHECKING:
    from fabbench.runs.store import StoredRun


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
    if name == "-" or is_log_file(name) or path.is_dir() or len(listed(name)) > 1:
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
    """Read a file as `parse_source` does, or a run, whose logs are judged as they were measured."""
    if not source.run:
        yield from parse_source(source, proof=proof, tables=tables)
        return

    from fabbench.runs.store import StoredRun

    run, empty = StoredRun(Path(source.name)), source.named
    if run.sweep is not None:
        logs = expand([f"{source.name}/{SWEEP_LOGS}"])
        yield from (entry for each in logs for entry in parse_source(each))
        return
    for execution in run.executions:
        for log in execution.logs if source.configuration in {"", execution.configuration} else ():
            empty = False
            yield log if log.hosts else replace(log, hosts=frozenset(run.hosts))
    for reason in run.damage or ([f"Nothing was measured in run {run.id}."] if empty else ()):
        yield Unread(source.name, reason, damaged=True)


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
    if ref == "-" or is_log_file(ref) or Path(ref).is_dir():
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
