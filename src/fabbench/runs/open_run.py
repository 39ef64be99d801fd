"""What users call a run → the run."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fabbench.model.errors import RequestError
from fabbench.plan import STORE
from fabbench.runs.folders import REQUEST, RUN_NAME, run_folders
from fabbench.runs.store import StoredRun


def open_run(ref: str, store: Path = STORE) -> StoredRun:
    """Find a run by its directory, by its id or name or the beginning or end of one, or as ``last``.

    The user's own name (`RunRequest.name`) finds it too.

    Raise RequestError where there is none such, or more than one.
    """
    return open_runs((ref,), store)[0]


def open_runs(refs: Iterable[str], store: Path = STORE) -> list[StoredRun]:
    """Find runs as `open_run` does, and list the store once for all of them."""
    known: list[str] | None = None
    found = []
    for ref in refs:
        if (Path(ref) / REQUEST).is_file():
            found.append(StoredRun(Path(ref)))
        else:
            known = run_folders(store) if known is None else known
            found.append(_found(ref, store, known))
    return found


def _found(ref: str, store: Path, known: Sequence[str]) -> StoredRun:
    if ref == "last" and (newest := next(_begun(store, known), None)):
        return StoredRun(newest)
    found = list(_begun(store, (path for path in known if ref in path and _matches(ref, Path(path).name))))
    exact = [path for path in found if path.name.endswith(f"-{ref}") or path.name == ref]
    if not found:
        found = [path for path in _begun(store, known) if ref and StoredRun(path).name == ref]
    if len(exact or found) == 1:
        return StoredRun((exact or found)[0])
    if found:
        names = ", ".join(path.name for path in found[:5])
        raise RequestError(f"{ref} matches {len(found)} runs: {names}.", hint="Type more characters of it.")
    hint = "fabbench runs lists them." if any(_begun(store, known)) else f"No runs in {store}; see --store."
    raise RequestError(f"Run {ref} not found in {store}.", hint=hint)


def _begun(store: Path, known: Iterable[str]) -> Iterator[Path]:
    """Yield the directories that have a request."""
    return (store / path for path in known if (store / path / REQUEST).is_file())


def _matches(ref: str, folder: str) -> bool:
    name = RUN_NAME.fullmatch(folder)
    return (
        bool(ref)
        and name is not None
        and (folder.startswith(ref) or folder.endswith(ref) or name["id"].startswith(ref))
    )
