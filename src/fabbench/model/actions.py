"""What fabbench does to the world, one line each: programs started, hosts reached, requests to an API.

Logged for ``--verbose`` and ``--debug``. Secrets are not in it: see `fabbench.model.messages`.
"""

import logging
import shlex
from collections.abc import Sequence

from fabbench.model.messages import word

LOGGER = logging.getLogger("fabbench.actions")
LOGGER.propagate = False
_LONGEST = 2000


def action(where: str, what: str | Sequence[str]) -> None:
    """Log an action: a sentence, or the words of a command."""
    if not LOGGER.isEnabledFor(logging.DEBUG) or not LOGGER.handlers:
        return
    text = word(what) if isinstance(what, str) else shlex.join(map(_shown, what))
    line = " ".join(text.split())
    LOGGER.debug("%s: %s", where, line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …")


def _shown(text: str) -> str:
    """Return a word of a command; of a script the first line."""
    first, *rest = word(text).strip().split("\n", 1)
    return f"{first} …" if rest else word(text)
