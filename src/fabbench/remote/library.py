"""Loading paramiko: lazily, and so that it never writes to the user's terminal."""

import functools
import logging
import warnings
from types import ModuleType


@functools.cache
def paramiko() -> ModuleType:
    """Load paramiko without the warnings of some pairs of it and cryptography, and silence its logger."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import paramiko as loaded
    # What its threads log (tracebacks too) would reach stderr; the errors are raised as well.
    logger = logging.getLogger("paramiko")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    logger.setLevel(logging.CRITICAL + 1)
    return loaded
