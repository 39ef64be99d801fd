"""NCCL's debug text in a line, which may have torn a row apart.

NCCL writes ``host:pid:tid [dev] NCCL INFO text`` whole, newline included, wherever the table printer has
just stopped: ``…   sum      -1vm:871:871 [0] NCCL INFO AllReduce: …``. To cut there exactly, one must know
where the host's name begins, so the names are learnt from lines that are not torn.
"""

import re
from typing import NamedTuple

from fabbench.benchmarks import UNREADABLE
from fabbench.logs.learned_prefixes import find_sign
from fabbench.model.patterns import lazy

_DEBUG = lazy(
    r" ?:(?P<process>\d+:\d+) \[-?\d+\] (?:[^\n]{0,400}?)"
    r"NCCL (?P<level>INFO|WARN|TRACE|ABORT) ?"
)
_HOST_END = lazy(r"[\s:]")
_LONGEST_HOST = 255
_TIMESTAMP = lazy(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] ?$")
# Cells of a row, the last of which may be cut.
_CELLS = lazy(r"[\w.:+/ \t-]*", re.ASCII)
_CELL = lazy(r"-?[\d.:e+-]*|N/?A?|[a-z][a-z_\d]{0,8}", re.ASCII)
INFO = " NCCL INFO "
_MOST = 100_000

GAP = "   "
"""What rows have between their cells."""


class DebugText(NamedTuple):
    """One debug message, and the piece of another line that stood before it (usually nothing).

    Blanks count: they may be all that a tear left between two cells.
    """

    before: str
    origin: str
    """`host:pid:tid`, as far as the line tells."""
    level: str
    message: str


class HostNames:
    """The host names of one log, learnt as they come."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.origins: set[str] = set()
        """What stood before INFO in whole debug lines (`host:pid:tid [dev]`)."""

    def learn(self, name: str) -> None:
        """Take note of a name that a device line tells."""
        if len(self.names) < _MOST:
            self.names.add(name)

    def split(self, text: str) -> DebugText | None:
        """Find debug text in a line; None if there is none."""
        match = _DEBUG.search(text)
        if match is None:
            return None
        # Looked for from its end: a search for the host's beginning would start at every character of a line.
        tail = text[max(match.start() - _LONGEST_HOST, 0) : match.start()]
        token, glued = _HOST_END.split(tail)[-1], ""
        if not token:
            return None
        begin = match.start() - len(token)
        before, stamped = _TIMESTAMP.subn("", text[:begin])
        if stamped:
            self.learn(token)
        elif before or token not in self.names:
            glued = self._glued(before, token)
            before += glued
        if not before and begin == 0 and len(self.origins) < _MOST:
            self.origins.add(text.partition(INFO)[0])
        origin = f"{token.removeprefix(glued)}:{match['process']}"
        return DebugText(before, origin, match["level"], text[match.end() :])

    def _glued(self, before: str, token: str) -> str:
        """Return the part of `token` that belongs to the torn piece before the host's name.

        It ends in UNREADABLE where that is not known: a host that nothing has named yet may begin with
        digits.
        """
        if token in self.names:
            return ""
        ends = (token[at:] for at in range(1, len(token)))
        known = next((name for name in ends if name in self.names), "")
        if known and _CELL.fullmatch(token, 0, len(token) - len(known)):
            return token.removesuffix(known)
        if before.strip():
            return f"{token}{UNREADABLE}" if _CELLS.fullmatch(before) else ""
        # Rows begin with blanks, and debug lines do not.
        if before and token[0].isdigit():
            return f"{token}{UNREADABLE}"
        self.learn(token)
        return ""


def without_row(message: str) -> tuple[str, str]:
    """Split off the row that stands behind a debug message whose newline was lost."""
    sign = find_sign(message) if GAP in message else None
    return (message[: sign.at], message[sign.at :]) if sign is not None and sign.at else (message, "")
