"""Skips NCCL's channel lines that add nothing new in a block of text.

A log with NCCL_DEBUG=INFO is mostly lines such as ``host:pid:tid [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1]
[send] via NET/IB/0``. From a known process (its origin), a line with a known ending adds nothing new.
Splitting a block at the words that all of them contain, and looking up what is then adjacent (the ending of
one line, and the origin of the next), takes half the time of reading each line. Where the same lines follow
row after row, they are looked up together. Lines that are not skipped here are read like any other, so this
code only has to skip nothing that `LogParser.feed_lines` would not.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import NamedTuple

from fabbench.evidence.nccl import CHANNEL
from fabbench.logs.debug_text import INFO

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
    """The channel lines of one log. `origins`: the texts before INFO in its debug lines; it only grows."""

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
