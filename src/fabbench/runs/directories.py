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
SWEEP_LOGS = "logs"  # The folder of a sweep that holds the output of its tests
TESTS = "tests"  # And that of their results
RUN_NAME = re.compile(r"(?P<when>\d{8}T\d{6}Z)-(?P<benchmark>.+)-(?P<id>[0-9a-f]{6})")


def runs(store: Path) -> Iterator[Path]:
    """Return the directories of all runs of a store, newest first.

    Those of one second are in the order in which their requests were written.
    """
    dated: list[tuple[str, int, Path]] = []
    for path in _entries(store):
        with suppress(OSError):  # without a request, or removed meanwhile
            if match := RUN_NAME.fullmatch(path.name):
                written_ns = (path / REQUEST).stat().st_mtime_ns
                dated.append((match["when"], written_ns, path))
    return (path for _, _, path in sorted(dated, reverse=True))


def _entries(store: Path) -> Iterator[Path]:
    if is_readable(store):
        yield from store.iterdir()


def is_readable(store: Path) -> bool:
    """Return whether a store is a directory that can be read."""
    return os.access(store, os.R_OK) and store.is_dir()


def store_here(store: Path | None, of_file: Path | None = None) -> Path:
    """Return a store; None: that of ``FABBENCH_STORE``, of ``fabbench.yaml``, or the usual one."""
    return store or Path(os.environ.get(ENVIRONMENT_VARIABLE) or of_file or STORE)
