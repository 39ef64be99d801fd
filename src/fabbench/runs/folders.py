"""Where runs lie in a store: in itself, and in the stores of several machines that are folders of it."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

REQUEST = "request.json"
"""A directory without it is of no run."""
VERDICT = "verdict.json"
"""What came of the gates; written last."""
SWEEP = "sweep.json"
"""Is there where the run is a sweep: see `fabbench.runs.sweep_store`."""
RUN_NAME = re.compile(r"(?P<when>\d{8}T\d{6}Z)-(?P<benchmark>.+)-(?P<id>[0-9a-f]{6})")
BASELINES = "baselines"
"""The folder of a store that holds the names of baselines."""


def run_folders(store: Path) -> list[str]:
    """Return the paths of all runs of a store, from the store on, newest first.

    A folder in the store that is itself a store, such as that of another machine, counts too.
    """
    own, others = _entries(os.fspath(store))
    found = [(name, name) for name in own]
    for other in others:
        found += [(name, f"{other}/{name}") for name in _entries(f"{store}/{other}")[0]]
    seconds = Counter(name[:16] for name, _ in found)
    aged = ((name[:16], _written(store, path, seconds[name[:16]] > 1), path) for name, path in found)
    return [path for _, _, path in sorted(aged, reverse=True)]


def runs(store: Path) -> Iterator[Path]:
    """Yield the directories of all runs of a store, newest first."""
    for path in run_folders(store):
        if (store / path / REQUEST).is_file():
            yield store / path


def _entries(folder: str) -> tuple[list[str], list[str]]:
    """Return the names in a folder that runs have, and the other folders in it."""
    own, others = [], []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if RUN_NAME.fullmatch(entry.name):
                    own.append(entry.name)
                elif not entry.name.startswith(".") and entry.name != BASELINES and entry.is_dir():
                    others.append(entry.name)
    except OSError:
        return [], []
    return own, others


def _written(store: Path, path: str, ask: bool) -> int:  # noqa: FBT001 - one caller
    """Return when a run's request was written: what tells runs of one second apart."""
    if not ask:
        return 0
    try:
        return (store / path / REQUEST).stat().st_mtime_ns
    except OSError:
        return 0
