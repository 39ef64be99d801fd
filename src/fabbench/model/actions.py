"""What fabbench does to the world, one line each: programs started, hosts reached, requests to an API.

Logged for ``--verbose`` and ``--debug``. Secrets are not in it: see `fabbench.model.messages`.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from fabbench.model.messages import word

if TYPE_CHECKING:
    import logging

_LONGEST = 2000


@cache
def action_logger() -> "logging.Logger":
    """Return the logger. What only reads logs does nothing to the world, and needs no logging."""
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
    logger.debug("%s: %s", where, line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …")


def _shown(text: str) -> str:
    """Return a word of a command; of a script the first line."""
    first, *rest = word(text).strip().split("\n", 1)
    return f"{first} …" if rest else word(text)
