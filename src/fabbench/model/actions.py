"""What fabbench does outside its process, one line each: programs started, hosts reached, API requests.

Logged for ``--verbose`` and ``--debug``. Secrets are redacted: see `fabbench.model.messages`.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from fabbench.model.messages import word

if TYPE_CHECKING:
    import logging

_MAX_LENGTH = 2000


@cache
def action_logger() -> "logging.Logger":
    """Return the logger. `logging` is imported here: commands that only read logs do not need it."""
    import logging

    logger = logging.getLogger("fabbench.actions")
    logger.propagate = False
    return logger


def action(where: str, what: str | Sequence[str]) -> None:
    """Log an action: a sentence, or the words of a command."""
    logger = action_logger()
    if not logger.handlers:
        return
    import shlex

    text = word(what) if isinstance(what, str) else shlex.join(map(_shown, what))
    line = " ".join(text.split())
    logger.debug("%s: %s", where, line if len(line) <= _MAX_LENGTH else f"{line[:_MAX_LENGTH]} …")


def _shown(text: str) -> str:
    """Return an argument of a command without secrets; of a script only the first line."""
    first, *rest = word(text).strip().split("\n", 1)
    return f"{first} …" if rest else word(text)
