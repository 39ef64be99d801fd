"""Loading paramiko: lazily, and so that it never writes to the user's terminal."""

import functools
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@functools.cache
def paramiko() -> ModuleType:
    """Load paramiko without the warnings of some pairs of it and cryptography, and silence its logger."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # paramiko tries this for `Match exec` in its own reader of configurations, and does without. It would
        # be a third of the time that loading takes.
        with _hidden("invoke"):
            import paramiko as loaded
    # What its threads log (tracebacks too) would reach stderr; the errors are raised as well.
    logger = logging.getLogger("paramiko")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    logger.setLevel(logging.CRITICAL + 1)
    return loaded


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Make a module that is not loaded yet look as if it were not installed."""
    if name in sys.modules:
        yield
        return
    # None is what an import takes for "there is none".
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]
