"""The directories of a store: which are runs, and what the parts of a run are called.

It loads nothing else.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fabbench.plan import STORE

ENVIRONMENT_VARIABLE = "FABBENCH_STORE"
REQUEST = "request.json"  # A directory without it is not a run
SWEEP_LOGS, TESTS = (
    "logs",
    "tests",
)  # The folders of a sweep that hold the output of its tests, and their results
RUN_NAME = re.compile(r"(?P<when>\d{8}T\d{6}Z)-(?P<benchmark>.+)-(?P<id>[0-9a-f]{6})")


def runs(store: Path) -> Iterator[Path]:
    """Return the directories of all runs of a store, newest first.

    Of one second, by when a request was written.
    """
    found = list[tuple[str, int, Path]]()
    for path in store.iterdir() if os.access(store, os.R_OK) and store.is_dir() else ():
        with suppress(OSError):  # without a request, or removed meanwhile
            if RUN_NAME.fullmatch(path.name):
                found.append((path.name[:16], (path / REQUEST).stat().st_mtime_ns, path))
    return (path for *_, path in sorted(found, reverse=True))


def store_here(store: Path | None) -> Path:
    """Return a store; None: that of ``FABBENCH_STORE``, or the usual one."""
    return store or Path(os.environ.get(ENVIRONMENT_VARIABLE) or STORE)
