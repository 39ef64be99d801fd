"""Where the runs of a store are."""

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


def run_folders(store: Path) -> list[str]:
    """Return the names of the directories of all runs of a store, newest first."""
    names = list[str]()
    with suppress(OSError):
        names = [path.name for path in store.iterdir() if RUN_NAME.fullmatch(path.name)]
    seconds = Counter(name[:16] for name in names)

    def written(name: str) -> int:
        """Return when a request was written, which orders runs of the same second."""
        with suppress(OSError):
            return (store / name / REQUEST).stat().st_mtime_ns
        return 0

    return sorted(names, key=lambda name: (name[:16], written(name) if seconds[name[:16]] > 1 else 0, name))[::-1]


def runs(store: Path, known: Iterable[str] | None = None) -> Iterator[Path]:
    """Yield the directories of all runs of a store, newest first, or of those that are `known`."""
    for path in run_folders(store) if known is None else known:
        if (store / path / REQUEST).is_file():
            yield store / path


def store_here(store: Path | None) -> Path:
    """Return a store; None: that of ``FABBENCH_STORE``, or the usual one."""
    return store or Path(os.environ.get(ENVIRONMENT_VARIABLE) or STORE)
