"""NCCL's debug text in a line, which may have split a row.

NCCL writes ``host:pid:tid [dev] NCCL INFO text`` whole, newline included, wherever the table
printer just stopped: ``…   sum      -1vm:871:871 [0] NCCL INFO AllReduce: …``. Cutting exactly
there requires knowing where the host name begins, so the names are learned from lines that are not
split.
"""

import re
from typing import NamedTuple

from fabbench.benchmarks import UNREADABLE
from fabbench.logs.signs import find_sign
from fabbench.model.patterns import lazy

_LEVEL = r"(?P<level>INFO|WARN|TRACE|ABORT)\b ?"  # NCCL 2.2 prints no NCCL before it
_DEBUG = lazy(
    r" ?:(?P<process>\d+:\d+) \[ ?-?\d+ ?\] (?:(?P<place>[^\n]{0,400}?)NCCL |(?:\S+:\d+ )?)"
    + _LEVEL
)
_BARE = lazy(r"(?:\[ ?(?P<rank>\d+) ?\] )?(?P<place>\S+:\d+ (?:\([^)]*\) )?)?NCCL " + _LEVEL)
_BEFORE_HOST = lazy(r"[\s:]")
_LONGEST_HOST = 255
_TIMESTAMP = lazy(r"\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\]|\.\d+\]?) ?$")
# Cells of a row, the last of which may be cut off.
_CELLS = lazy(r"[\w.:+/ \t-]*", re.ASCII)
_CELL = lazy(r"-?[\d.:e+-]*|N/?A?|[a-z][a-z_\d]{0,8}", re.ASCII)
INFO = " NCCL INFO "
_MAX_NAMES = 100_000
GAP = "   "  # Between the cells of rows


class DebugText(NamedTuple):
    """One debug message, and the piece of another line before it (usually nothing).

    Blanks count: they may be all that a split left between two cells.
    """

    before: str
    origin: str  # `host:pid:tid`, as far as the line shows it
    level: str
    message: str
    place: str = ""  # The file and line of NCCL's source that printed it, with a blank


class HostNames:
    """The host names of one log, learned as they come."""

    def __init__(self) -> None:
        self.names: set[str] = set()  # Of hosts
        self.origins: set[str] = set()
        """The texts before INFO in whole debug lines (`host:pid:tid [dev]`)."""

    def learn(self, name: str) -> None:
        """Add a name that a device line shows."""
        if len(self.names) < _MAX_NAMES:
            self.names.add(name)

    def split(self, text: str) -> DebugText | None:
        """Find the debug text in a line; None if it has none.

        The word before `:pid:tid` is the host name, or has one at its end, glued to a cell.
        """
        match = _DEBUG.search(text)
        if match is None:
            return _without_process(text)
        # Searched from its end: a forward search for the host name would start at every character
        # of a line.
        end = match.start()
        tail = text[max(end - _LONGEST_HOST, 0) : end]
        word = _BEFORE_HOST.split(tail)[-1]
        if not word and end:  # only at the beginning of a line may the name be missing
            return None
        begin = end - len(word)
        glued = ""
        before, stamped = _TIMESTAMP.subn("", text[:begin])
        if stamped:  # behind a time stands a host name
            self.learn(word)
        elif before or word not in self.names:
            glued = self._part_before_host(before, word)
            before += glued
        # A whole line: others that begin alike are read without a search.
        if not before and begin == 0 and len(self.origins) < _MAX_NAMES:
            self.origins.add(text.partition(INFO)[0])
        host = word.removeprefix(glued)
        return DebugText(
            before=before,
            origin=f"{host}:{match['process']}",
            level=match["level"],
            message=text[match.end() :],
            place=match["place"] or "",
        )

    def _part_before_host(self, before: str, word: str) -> str:
        """Return the part of `word` that belongs to the split line before the host name.

        It ends in UNREADABLE if that is unknown: a host name that has not been seen may begin with
        digits. Empty: the whole word is a host name. `before`: the text before the word.
        """
        if word in self.names:
            return ""
        host_name = self._known_end(word)
        cell = word.removesuffix(host_name)
        if host_name and _CELL.fullmatch(cell):
            return cell
        # Cells of a row; where the word has the last of them, its end is unknown.
        if before.strip():
            return f"{word}{UNREADABLE}" if _CELLS.fullmatch(before) else ""
        # Rows begin with blanks, and debug lines do not.
        if before and word[0].isdigit():
            return f"{word}{UNREADABLE}"
        self.learn(word)
        return ""

    def _known_end(self, word: str) -> str:
        """Return the longest host name that a text ends with, and is longer than; empty: none."""
        for at in range(1, len(word)):
            if word[at:] in self.names:
                return word[at:]
        return ""


def _without_process(text: str) -> DebugText | None:
    """Return a debug line without `host:pid:tid`, which some tools drop; None: it is none."""
    bare = _BARE.match(text)
    if bare is None:
        return None
    rank = bare["rank"] or ""  # which stands for the process: nothing else tells ranks apart
    return DebugText(
        before="",
        origin=f":[{rank}]",
        level=bare["level"],
        message=text[bare.end() :],
        place=bare["place"] or "",
    )


def without_row(message: str) -> tuple[str, str]:
    """Return a debug message without, and then, the row behind it if its newline was lost."""
    if GAP in message:  # blanks as between the cells of a row; without any, there is none
        at = find_sign(message)
        if at > 0:
            return message[:at], message[at:]
    return message, ""
