"""A user's reference to a run → the run."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fabbench.model.errors import RequestError
from fabbench.plan import STORE
from fabbench.runs.folders import REQUEST, RUN_NAME, run_folders
from fabbench.runs.log_files import Source, expand, is_log_file
from fabbench.runs.store import StoredRun


def open_run(ref: str, store: Path = STORE, known: Sequence[str] | None = None) -> StoredRun:
    """Find a run by its directory, by its id or folder name or the beginning or end of one, or as ``last``.

    The user's own name (`RunRequest.name`) finds it too. `known` is what the store holds, if it has been listed.

    Raise RequestError if there is no match, or more than one.
    """
    if (Path(ref) / REQUEST).is_file():
        return StoredRun(Path(ref))
    known = run_folders(store) if known is None else known
    if ref == "last" and (newest := next(_existing(store, known), None)):
        return StoredRun(newest)
    named = ((path, RUN_NAME.fullmatch(Path(path).name)) for path in known if ref and ref in path)
    candidates = (
        path
        for path, name in named
        if name and (name[0].startswith(ref) or name[0].endswith(ref) or name["id"].startswith(ref))
    )
    matches = list(_existing(store, candidates))
    exact = [path for path in matches if path.name.endswith(f"-{ref}") or path.name == ref]
    if not matches:
        matches = [path for path in _existing(store, known) if ref and StoredRun(path).name == ref]
    if len(exact or matches) == 1:
        return StoredRun((exact or matches)[0])
    if matches:
        names = ", ".join(path.name for path in matches[:5])
        raise RequestError(f"{ref} matches {len(matches)} runs: {names}.", hint="Use more characters of it.")
    if ref == "-" or is_log_file(ref) or Path(ref).is_dir():
        raise RequestError(f"{ref} is not a run.", hint="fabbench parse, explain, compare, report and show read logs.")
    has_runs = any(_existing(store, known))
    hint = "fabbench runs lists them." if has_runs else f"No runs in {store}; see --store."
    raise RequestError(f"Run {ref} not found in {store}.", hint=hint)


def open_runs(refs: Iterable[str], store: Path = STORE) -> list[StoredRun]:
    """Find runs as `open_run` does, listing the store only once."""
    known = run_folders(store)
    return [open_run(ref, store, known) for ref in refs]


def run_source(name: str, store: Path) -> Source:
    """Find a run, or one configuration of it as RUN:CONFIG. Raise RequestError."""
    ref, _, configuration = name.rpartition(":") if ":" in name else (name, "", "")
    run = open_run(ref, store)
    labels = [each.label for each in run.configurations]
    if configuration and configuration not in labels:
        raise RequestError(f"Run {run.id} has no configuration {configuration}.", hint=f"It has {', '.join(labels)}.")
    return Source(name=str(run.path), run=True, configuration=configuration)


def whole_runs(name: str, store: Path) -> list[Path]:
    """Return the runs that an input stands for; none if it stands for anything else, too."""
    sources = expand([name], store)
    return [Path(each.name) for each in sources] if all(each.run and not each.configuration for each in sources) else []


def _existing(store: Path, known: Iterable[str]) -> Iterator[Path]:
    """Yield the directories that have a request."""
    return (store / path for path in known if (store / path / REQUEST).is_file())
