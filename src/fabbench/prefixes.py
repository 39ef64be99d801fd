"""Launcher prefixes: cut from each line, and turned into the line's `Stream`.

mpirun's tags and timestamps (Open MPI 4 and 5), `srun -l`, hydra's `-prepend-rank`, SkyPilot, Modal,
torchrun, `kubectl logs --timestamps --prefix`, colours, quotation signs, and fabbench's own tag. Several
may be stacked. docs/formats.md lists the forms.
"""

import re
from collections.abc import Iterable

from fabbench.model import UNTOLD, Stream

_STD = r"<std(?:out|err|diag)>: ?"
_TASK = r"\[(?:[^\]\s@]*@)?\d+,(?P<mpi>\d+|WILDCARD)\](?:\[[^\]]*\])?"
_DATE = r"[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ [\d:]{8} \d{4}"
_SAFE = re.compile(
    "|".join(
        (
            r"\[fabbench:(?P<side>server|client)\](?: |$)",
            rf"(?:\[{_DATE}\]|{_DATE})?{_TASK}{_STD}",
            rf"\[?{_DATE}\]?{_STD}",
            r"\((?P<sky>head|worker\d+|setup|[\w.-]+)(?:,? [^()]*)?pid=\d+[^()]*\) ?",
            r"\[rank (?P<modal>\d+)\] ",
            r"\[pod/(?P<pod>[^\]\s]+)\] ",
            r"\[(?P<torchrun>default\d+|[\w.-]+:\d+)\]:",
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z ",
            r"#?> ",
        )
    )
)
_STARTS = frozenset("\x1b[(#> 0123456789MTWFS")
"""First characters of the prefixes above (a blank may stand before them): any other line has none."""

_INNER = re.compile(rf"(?:\[{_DATE}\]|{_DATE})?{_TASK}{_STD}")

_NESTED = _STARTS - {" ", "#"}

_ROW = re.compile(r"\d+ +\d")
"""What begins with blanks and a digit is nearly always a row."""

# Forms that plain text may have too: only where nearly every line of a log has them.
_RISKY = {"srun": re.compile(r" *(?P<rank>\d+): ?"), "rank": re.compile(r" *\[(?P<rank>\d+)\] ")}
_NEARLY_EVERY = 0.9

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Prefixes:
    """Cuts the prefixes of one log. `risky` names the forms that `sniff` found in it."""

    def __init__(self, risky: Iterable[str] = ()) -> None:
        self._patterns = (_SAFE, *(_RISKY[name] for name in risky))
        self._known: dict[str, Stream] = {}

    starts = _STARTS
    """First characters of lines that may have a prefix; all others need not be asked about."""

    def cut(self, raw: str) -> tuple[str, Stream]:
        """Give the text without its prefixes, and who printed it."""
        first = raw[:1]
        if first == "\x1b":
            raw = uncoloured(raw)
            first = raw[:1]
        if first == " " and (bare := raw.lstrip())[:1] in _NESTED and not _ROW.match(bare):
            text, stream = self._cut_all(bare, UNTOLD)
            if len(text) < len(bare):
                return text, stream
        if first not in _STARTS:
            return raw, UNTOLD
        # An mpirun tag repeats on most lines of a log: looking it up beats matching it again.
        end = raw.find(">:", 0, 40) + 2 if first == "[" else 0
        if end > 1 and (known := self._known.get(raw[:end])) is not None:
            text = raw[end + 1 :] if raw[end : end + 1] == " " else raw[end:]
            return (text, known) if text[:1] not in _NESTED else self._cut_all(text, known)
        text, stream = self._cut_all(raw, UNTOLD)
        if end > 1 and raw[end:] in {text, f" {text}"} and len(self._known) < 10_000:
            self._known[raw[:end]] = stream
        return text, stream

    @staticmethod
    def inner(text: str) -> int:
        """Say where in a line another tag of mpirun's begins; -1: nowhere.

        Open MPI 4 reads blocks and begins each with a tag, wherever in a line that is.
        """
        match = _INNER.search(text) if "<std" in text else None
        return match.start() if match else -1

    def _cut_all(self, text: str, stream: Stream) -> tuple[str, Stream]:
        """Cut prefixes until nothing matches."""
        if "\x1b" in text:
            text = uncoloured(text)
        found = True
        while found:
            found = False
            for pattern in self._patterns:
                match = pattern.match(text)
                if match is not None and match.end():
                    text, stream, found = text[match.end() :], _merged(stream, match), True
        return text, stream


def uncoloured(text: str) -> str:
    """Take out terminal colours."""
    return _COLOUR.sub("", text)


def _merged(stream: Stream, match: re.Match[str]) -> Stream:
    """Add what one prefix tells to what outer ones told."""
    told = {name: value for name, value in match.groupdict().items() if value is not None}
    group = told.get("sky") or told.get("pod") or stream.group
    rank = told.get("mpi") or told.get("modal") or told.get("torchrun") or told.get("rank") or stream.rank
    return Stream(group, rank if rank != "WILDCARD" else stream.rank, told.get("side") or stream.side)


def sniff(lines: Iterable[str]) -> tuple[str, ...]:
    """Name the risky prefix forms that (nearly) every one of these lines has, also inside each other."""
    texts = list(lines)
    found: tuple[str, ...] = ()
    for _ in _RISKY:
        cut = Prefixes(found).cut
        inner = [text for text in (cut(line)[0] for line in texts) if text.strip()]
        more = tuple(
            name
            for name, pattern in _RISKY.items()
            if len(inner) > 1 and sum(map(bool, map(pattern.match, inner))) >= _NEARLY_EVERY * len(inner)
        )
        if not more:
            break
        found += more
    return found
