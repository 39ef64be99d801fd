"""SkyPilot's own library: an optional one. Its errors become ours here, and nowhere else."""

import functools
import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import TextIOBase
from typing import Any

from fabbench.errors import FabbenchError, MachineError, RequestError
from fabbench.prefixes import uncoloured

_INSTALL = "pip install 'fabbench[sky]', and what SkyPilot needs for the place: pip install 'skypilot[aws]'."
_REQUESTS = frozenset({
    *("InvalidSkyPilotConfigError", "InvalidClusterNameError", "NotSupportedError", "ValueError"),
    "ResourcesMismatchError",
})  # fmt: skip
"""Names of SkyPilot's errors that say that a request makes no sense."""
_OLDEST = (0, 14)
"""The release that fabbench is tried with; those before have not all of it."""
_RELEASE = re.compile(r"(\d+)\.(\d+)")
_LONGEST = 1500


class _Aside(TextIOBase):
    """Where SkyPilot's own words go: to standard error, as standard output is for results."""

    def write(self, text: str) -> int:
        """Pass text on, without colours where nobody sees them."""
        return sys.stderr.write(text if sys.stderr.isatty() else uncoloured(text))

    def flush(self) -> None:
        """Nothing is kept back."""
        sys.stderr.flush()


ASIDE = _Aside()


@functools.cache
def sky() -> Any:
    """Load SkyPilot, which takes seconds. Raises MachineError where it is not installed."""
    try:
        # Its loggers keep the standard output that they find when they are made.
        with redirect_stdout(ASIDE):
            loaded = importlib.import_module("sky")
    except ImportError as error:
        raise MachineError(f"SkyPilot cannot be loaded: {error}.", hint=_INSTALL) from error
    if not hasattr(loaded, "tail_logs"):
        raise MachineError(f"The package sky in {loaded.__file__} is not SkyPilot.", hint=_INSTALL)
    release = _RELEASE.match(str(getattr(loaded, "__version__", "")))
    if release and tuple(map(int, release.groups())) < _OLDEST:
        wanted = ".".join(map(str, _OLDEST))
        raise MachineError(
            f"SkyPilot {loaded.__version__} is installed, and {wanted} or later is wanted.", hint=_INSTALL
        )
    return loaded


@contextmanager
def asking(what: str, hint: str | None = None) -> Iterator[Any]:
    """Ask SkyPilot something: gives its library. Raises MachineError, or RequestError, for its errors.

    `what` begins a sentence: "The cluster x cannot be launched".
    """
    library = sky()
    try:
        with redirect_stdout(ASIDE):
            yield library
    except (FabbenchError, GeneratorExit):
        raise
    except Exception as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        wrong = kinds & _REQUESTS and "ClusterDoesNotExist" not in kinds
        kind = RequestError if wrong else MachineError
        raise kind(f"{what}: {told(error)}", hint=hint) from error


def told(error: BaseException) -> str:
    """Say in one line what an error of SkyPilot's says."""
    text = " ".join(uncoloured(str(error)).split()) or type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def is_gone(error: BaseException | None) -> bool:
    """Whether an error, or what it comes from, says that there is no such cluster."""
    while error is not None:
        if type(error).__name__ == "ClusterDoesNotExist":
            return True
        error = error.__cause__
    return False
