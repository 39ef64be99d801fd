"""NCCL's debug text in a line, which may have split a row.

NCCL writes ``host:pid:tid [dev] NCCL INFO text`` whole, newline included, wherever the table printer just
stopped: ``…   sum      -1vm:871:871 [0] NCCL INFO AllReduce: …``. Cutting exactly there requires knowing
where the host name begins, so the names are learned from lines that are not split.

A log is mostly lines such as ``host:pid:tid [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0``. From a
known process (its origin), a line with a known ending adds nothing new. Splitting a block at the words that all of
them contain, and looking up the ending of one line and the origin of the next, takes half the time of reading each.
Lines that are not skipped are read like any other.
"""

import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import NamedTuple

from fabbench.benchmarks import UNREADABLE
from fabbench.evidence.nccl import CHANNEL
from fabbench.logs.learned_prefixes import find_sign
from fabbench.model.patterns import lazy

_LEVEL = r"(?P<level>INFO|WARN|TRACE|ABORT)\b ?"  # NCCL 2.2 prints no NCCL before it
_DEBUG = lazy(r" ?:(?P<process>\d+:\d+) \[ ?-?\d+ ?\] (?:(?P<place>[^\n]{0,400}?)NCCL |(?:\S+:\d+ )?)" + _LEVEL)
_BARE = lazy(r"(?:\[ ?(?P<rank>\d+) ?\] )?(?:\S+:\d+ (?:\([^)]*\) )?)?NCCL " + _LEVEL)
"""Without `host:pid:tid`, which some tools drop."""
_HOST_END = lazy(r"[\s:]")
_LONGEST_HOST = 255
_TIMESTAMP = lazy(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] ?$")
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
    origin: str
    """`host:pid:tid`, as far as the line shows it."""
    level: str
    message: str
    place: str = ""  # The file and line of NCCL's source that printed it, with a blank


class HostNames:
    """The host names of one log, learned as they come."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.origins: set[str] = set()
        """The texts before INFO in whole debug lines (`host:pid:tid [dev]`)."""

    def learn(self, name: str) -> None:
        """Add a name that a device line shows."""
        if len(self.names) < _MAX_NAMES:
            self.names.add(name)

    def split(self, text: str) -> DebugText | None:
        """Find the debug text in a line; None if it has none."""
        match = _DEBUG.search(text)
        if match is None:
            bare = _BARE.match(text)
            return bare and DebugText("", f":{bare['rank'] or ''}", bare["level"], text[bare.end() :])
        # Searched from its end: a forward search for the host name would start at every character of a line.
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
        if not before and begin == 0 and len(self.origins) < _MAX_NAMES:
            self.origins.add(text.partition(INFO)[0])
        origin = f"{token.removeprefix(glued)}:{match['process']}"
        return DebugText(before, origin, match["level"], text[match.end() :], match["place"] or "")

    def _glued(self, before: str, token: str) -> str:
        """Return the part of `token` that belongs to the split line before the host name.

        It ends in UNREADABLE if that is unknown: a host name that has not been seen may begin with digits.
        """
        if token in self.names:
            return ""
        suffixes = (token[at:] for at in range(1, len(token)))
        known = next((name for name in suffixes if name in self.names), "")
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
    """Split off the row that follows a debug message whose newline was lost."""
    sign = find_sign(message) if GAP in message else None
    return (message[: sign.at], message[sign.at :]) if sign is not None and sign.at else (message, "")


_SIGN = INFO + CHANNEL
_VIA = " via "
_MAX_TAILS = 100_000
_MAX_RUNS, _LONGEST_RUN = 512, 4096


class _Run(NamedTuple):
    """Consecutive channel lines of known processes."""

    lines: int
    endings: frozenset[str]
    """The endings of the lines: if all are known, none of the lines adds anything new."""
    origins: frozenset[str]


@lru_cache(maxsize=_MAX_RUNS)
def _read_run(text: str) -> _Run | None:
    endings, origins = dict[str, None](), dict[str, None]()
    lines = text.split("\n")
    for line in lines:
        origin, _, message = line.partition(INFO)
        via = message.rfind(_VIA)
        if via < 0 or not message.startswith(CHANNEL):
            return None
        endings[message[via:]] = origins[origin] = None
    return _Run(len(lines), frozenset(endings), frozenset(origins))


class ChannelLines:
    """Skips channel lines that add nothing new. `origins`: the texts before INFO in debug lines; it only grows."""

    def __init__(self, origins: AbstractSet[str]) -> None:
        self.skipped = 0
        self.endings: AbstractSet[str] = frozenset()
        """Known endings of lines, from ``via`` on: another line with one adds nothing new."""
        self._origins = origins
        self._tails: dict[str, str] = {}
        """The text from behind ``via`` to the end of the next line's origin → the ending in it."""
        self._runs: dict[str, _Run] = {}
        self._examined = 0

    def others(self, text: str) -> Iterator[str]:
        """Yield the lines of a block that are not skipped. `endings` and `origins` may change in between."""
        if _SIGN not in text:
            yield from text.split("\n")
            return
        first, *parts = text.split("\n ")  # rows begin with a blank
        yield from self._others(first)
        for part in parts:
            row, newline, rest = part.partition("\n")
            yield f" {row}"
            run = self._runs.get(rest)
            if run is not None and run.endings <= self.endings:
                self.skipped += run.lines
            elif newline:
                yield from self._others(rest)
                if run is None:
                    self._learn(rest)

    def _learn(self, text: str) -> None:
        """Remember lines that may follow other rows too, if they are channel lines of known processes."""
        if len(text) > _LONGEST_RUN or self._examined >= _MAX_RUNS:
            return
        self._examined += 1
        run = _read_run(text)
        if run is not None and run.origins <= self._origins:
            self._runs[text] = run

    def _others(self, text: str) -> Iterator[str]:
        """Yield the lines of a part of a block that are not skipped."""
        pieces = text.split(_SIGN)
        last = pieces.pop()
        tails, origins, endings, skipped = self._tails, self._origins, self.endings, self.skipped
        start, before = "", ""  # the start of the line that a piece continues, and the piece before it
        plain = False
        for piece in pieces:
            if plain:
                front, _, tail = piece.rpartition(_VIA)
                if tails.get(tail) in endings and "\n" not in front:
                    skipped += 1
                    before = piece
                    continue
                start = before.rpartition("\n")[2] + _SIGN
            *lines, origin = (start + piece).split("\n")
            self.skipped = skipped
            yield from lines
            endings = self.endings
            if plain and len(lines) == 1 and origin in origins and len(tails) < _MAX_TAILS:
                front, via, ending = lines[0].rpartition(_VIA)
                tails[f"{ending}\n{origin}"] = via + ending
            plain, start, before = origin in origins, origin + _SIGN, piece
        if plain:
            start = before.rpartition("\n")[2] + _SIGN
        self.skipped = skipped
        yield from (start + last).split("\n")
