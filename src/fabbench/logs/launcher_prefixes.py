"""Launcher prefixes: cut from each line, and converted to the line's `Stream`.

Those listed here are unmistakable: mpirun's tags and timestamps (Open MPI 4 and 5), SageMaker, SkyPilot,
Modal, torchrun, `kubectl logs --timestamps --prefix`, colors, `>` quotation marks, and fabbench's own tag.
All others are learned from the log (`learned_prefixes`). Several may be stacked: docs/formats.md.
"""

import re
from collections.abc import Iterable, Sequence

from fabbench.logs import learned_prefixes
from fabbench.logs.learned_prefixes import HeaderSign, NumberedPrefix, Prefix, Signs, Stripped, find_sign, signs_in
from fabbench.model.log import NO_STREAM, Stream
from fabbench.model.patterns import lazy

_STD = r"<std(?:out|err|diag)>: ?"
_TASK = r"\[(?:[^\]\s@]*@)?\d+,(?P<mpi>\d+|WILDCARD)\](?:\[[^\]]*\])?"
_DATE = r"[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ [\d:]{8} \d{4}"
_SAFE = lazy(
    "|".join(
        (
            r"\[fabbench:(?P<side>server|client)\](?: |$)",
            rf"(?:\[{_DATE}\]|{_DATE})?{_TASK}{_STD}",
            rf"\[?{_DATE}\]?{_STD}",
            r"\((?P<sky>head|worker\d+|setup|[\w.-]+)(?:,? [^()]*)?pid=\d+[^()]*\) ?",
            r"\[rank (?P<modal>\d+)\] ",
            r"\[pod/(?P<pod>[^\]\s]+)\] ",
            r"\[(?P<torchrun>default\d+|[\w.-]+:\d+)\]:",
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)(?: std(?:out|err) [FP])?(?: |$)",
            r"\[\d+,mpirank:(?P<sagemaker>\d+),[\w.-]+\]<std(?:out|err)>:",
            r"#?> ",
        )
    )
)
_STARTS = frozenset("\x1b[(#> 0123456789MTWFS")
"""First characters of the prefixes above (a blank may precede them): any other line has none."""

_INNER = lazy(rf"(?:\[{_DATE}\]|{_DATE})?{_TASK}{_STD}")

_NESTED = _STARTS - {" ", "#"}
_LINES_AGAIN = '"stdout_lines": ['
_MAX_FORMS = 16
"""Limit of the learned prefixes that are tried: the latest."""
_MAX_STACKED = 32
"""Limit of the prefixes of a line; real lines have three."""

_ROW = lazy(r"\d+ +\d")
"""A line that begins with blanks and a digit is nearly always a row."""

_COLOR = lazy(r"\x1b\[[0-9;?]*[A-Za-z]")


class Prefixes:
    """Cuts the prefixes of one log: those listed above, and those learned from the log's own lines.

    `sample`: lines to learn from before the first one is cut.
    """

    def __init__(self, sample: Iterable[str] = ()) -> None:
        self.starts = set(_STARTS)
        """First characters of lines that may have a prefix; other lines need no check."""
        self._known: dict[str, Stream] = {}
        self._forms: list[Prefix] = []
        self._groups: dict[tuple[str, ...], str] = {}
        """Names in learned prefixes found before a banner → the stream group of their lines."""
        lines = list(sample)
        self._repeated = any(_LINES_AGAIN in line for line in lines)
        """Whether ansible prints a program's output twice: as one string, and line by line."""
        self._learn_all(lines)

    def cut(self, raw: str, outer: Stream = NO_STREAM) -> tuple[str, Stream]:
        """Return the text without its prefixes, and the stream that it belongs to.

        `outer`: what prefixes cut before have stated. The text contains newlines if a log entry holds several
        lines.
        """
        first = raw[:1]
        if first == "\x1b":
            raw = strip_colors(raw)
            first = raw[:1]
        if self._forms and first in self.starts:
            text, stream = self._cut_all(raw, outer)
            if text is not raw:
                return text, stream
        if first == " ":
            if (bare := raw.lstrip())[:1] in _NESTED and not _ROW.match(bare):
                text, stream = self._cut_all(bare, outer)
                if len(text) < len(bare):
                    return text, stream
            return strip_colors(raw) if "\x1b" in raw else raw, outer  # none of those above begins with a blank
        if first not in _STARTS or (first == "#" and raw[1:2] != ">"):
            return raw, outer
        # An mpirun tag repeats on most lines of a log: looking it up beats matching it again.
        end = raw.find(">:", 0, 40) + 2 if first == "[" and outer is NO_STREAM else 0
        if end > 1 and (known := self._known.get(raw[:end])) is not None:
            text = raw[end + 1 :] if raw[end : end + 1] == " " else raw[end:]
            return (text, known) if text[:1] not in _NESTED else self._cut_all(text, known)
        text, stream = self._cut_all(raw, outer)
        if end > 1 and raw[end:] in {text, f" {text}"} and len(self._known) < 10_000:
            self._known[raw[:end]] = stream
        return text, stream

    def learn(self, text: str) -> bool:
        """Learn from a line that no reader could read. Return whether it has a prefix that was unknown.

        `text` is without the known prefixes.
        """
        sign = find_sign(text)
        return sign is not None and sign.begins and sign.at > 0 and self._learn(text, sign) is not None

    @staticmethod
    def inner(text: str) -> int:
        """Return where in a line another mpirun tag begins; -1 if nowhere.

        Open MPI 4 reads blocks and begins each with a tag, even in the middle of a line.
        """
        match = _INNER.search(text) if "<std" in text else None
        return match.start() if match else -1

    def _learn_all(self, sample: Sequence[str]) -> None:
        """Learn from lines that show which prefixes the log has.

        Banners and headers show it best, then a footer, a debug line after a rank, a label on nearly all lines.
        """
        numbered: list[tuple[int, NumberedPrefix]] = []
        # A debug line shows no sign that others do not, unless it is a string of many lines.
        lines = [(number, line) for number, line in enumerate(sample) if " NCCL " not in line or '"' in line]
        signs = signs_in("\n".join(line for _, line in lines))
        begins = [entry for entry in signs if entry[2]]
        signed = _lines_with(begins, lines) or _lines_with(signs, lines)
        for number, line in signed:
            for where, counter in numbered:
                counter.rewind(where - number)
            while (sign := find_sign(text := self.cut(line)[0], signs)) is not None and sign.at:
                form = self._learn(text, sign)
                if form is None:
                    break
                if isinstance(form, NumberedPrefix):
                    numbered.append((number, form))
        for where, counter in numbered:
            counter.rewind(where)
        if self._forms:
            return
        # A line with another first character has neither a prefix nor a label.
        labeled = (self.cut(line)[0] for line in sample if " NCCL " in line and line[:1] in self.starts)
        labels = map(learned_prefixes.learn_rank, labeled)
        label = next((form for form in labels if form is not None), None)
        if label is None and not signed:
            texts = [self.cut(line)[0] for line in sample]
            label = learned_prefixes.rank_labels(texts) or learned_prefixes.line_numbers(texts)
        if label is not None:
            self._add(label)

    def _learn(self, text: str, sign: HeaderSign) -> Prefix | None:
        """Learn the prefix before a sign; return its form, if it was unknown."""
        if 0 < (inner := self.inner(text)) < sign.at and text[inner - 1].isalnum():
            return None  # mpirun's own tag, after text without a newline
        if self._repeated and text.lstrip().startswith('"stdout":'):
            return None
        form = learned_prefixes.learn(text, sign)
        cut = form.cut(text) if form is not None else None
        if form is None or cut is None or form in self._forms:
            return None
        self._add(form)
        return form

    def _add(self, form: Prefix) -> None:
        self._forms = [form, *self._forms][:_MAX_FORMS]
        self.starts |= form.starts

    def _cut_all(self, text: str, stream: Stream) -> tuple[str, Stream]:
        """Cut prefixes until nothing matches; learned ones once each."""
        if "\x1b" in text:
            text = strip_colors(text)
        forms = self._forms
        for _ in range(_MAX_STACKED):
            matched = False
            match = _SAFE.match(text)
            if match is not None and match.end():
                text, stream, matched = text[match.end() :], _merged(stream, match), True
            for form in forms:
                cut = form.cut(text)
                if cut is not None:
                    # hydra labels each block that it reads, also in the middle of a row.
                    label = text[: len(text) - len(cut.text)] if cut.rank and _ROW.match(cut.text.lstrip()) else ""
                    text = cut.text.replace(label, "") if label else cut.text
                    stream, matched = self._stream(stream, cut), True
                    forms = [other for other in forms if other is not form]
                    break
            if not matched:
                break
        return text, stream

    def _stream(self, stream: Stream, cut: Stripped) -> Stream:
        """Add what a learned prefix states to what outer ones stated."""
        if cut.names and cut.names not in self._groups:
            # Each name that begins an execution is a group. The first one's group also has all the others.
            sign = find_sign(cut.text)
            if sign is not None and sign.begins:
                self._groups[cut.names] = " ".join(cut.names) if self._groups else ""
        group = self._groups.get(cut.names, "")
        if not group and not cut.rank:
            return stream
        return stream._replace(group=group or stream.group, rank=cut.rank or stream.rank)


def _lines_with(signs: Signs, lines: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    return [numbered for numbered in lines if signs and find_sign(numbered[1], signs)]


def strip_colors(text: str) -> str:
    """Remove terminal colors."""
    return _COLOR.sub("", text)


def _merged(stream: Stream, match: re.Match[str]) -> Stream:
    named = {name: value for name, value in match.groupdict().items() if value is not None}
    group = named.get("sky") or named.get("pod") or stream.group
    ranks = (named.get(name) for name in ("mpi", "sagemaker", "modal", "torchrun"))
    rank = next(filter(None, ranks), stream.rank)
    return Stream(group, rank if rank != "WILDCARD" else stream.rank, named.get("side") or stream.side)
