"""Where the runs of a store are: in itself, and in its subfolders that are stores of other machines."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from fabbench.plan import STORE

ENVIRONMENT_VARIABLE = "FABBENCH_STORE"
REQUEST = "request.json"
"""A directory without it is not a run."""
VERDICT = "verdict.json"  # The result of the gates; written last
SUMMARY = "summary.json"  # See `fabbench.runs.summary`
SWEEP_LOGS = "logs"  # The folder of a sweep that holds the output of its tests
RUN_NAME = re.compile(r"(?P<when>\d{8}T\d{6}Z)-(?P<benchmark>.+)-(?P<id>[0-9a-f]{6})")
BASELINES = "baselines"  # The folder of a store that holds the names of baselines


def run_folders(store: Path) -> list[str]:
    """Return the paths of all runs of a store, relative to the store, newest first.

    Runs in a folder of the store that is itself a store, such as another machine's, are included.
    """
    names, others = _entries(os.fspath(store))
    paths = [(name, name) for name in names]
    for other in others:
        paths += [(name, f"{other}/{name}") for name in _entries(f"{store}/{other}")[0]]
    seconds = Counter(name[:16] for name, _ in paths)

    def written(path: str) -> int:
        """Return when a request was written, which orders runs of the same second."""
        with suppress(OSError):
            return (store / path / REQUEST).stat().st_mtime_ns
        return 0

    aged = ((name[:16], written(path) if seconds[name[:16]] > 1 else 0, path) for name, path in paths)
    return [path for _, _, path in sorted(aged, reverse=True)]


def runs(store: Path, known: Iterable[str] | None = None) -> Iterator[Path]:
    """Yield the directories of all runs of a store, newest first, or of those that are `known`."""
    for path in run_folders(store) if known is None else known:
        if (store / path / REQUEST).is_file():
            yield store / path


def store_here(store: Path | None) -> Path:
    """Return a store; None: that of ``FABBENCH_STORE``, or the usual one."""
    return store or Path(os.environ.get(ENVIRONMENT_VARIABLE) or STORE)


def _entries(folder: str) -> tuple[list[str], list[str]]:
    runs, others = [], []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if RUN_NAME.fullmatch(entry.name):
                    runs.append(entry.name)
                elif not entry.name.startswith(".") and entry.name != BASELINES and entry.is_dir():
                    others.append(entry.name)
    except OSError:
        return [], []
    return runs, others
