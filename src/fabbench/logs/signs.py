"""Lines that only a benchmark prints: they show prefixes, and explain why a file has no result."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from fabbench.benchmarks import benchmarks
from fabbench.model import records
from fabbench.model.log import MARKER_SIGN
from fabbench.model.messages import single_spaced
from fabbench.model.patterns import Match, lazy
from fabbench.model.signature import Signature


@cache
def all_signs(*, begins: bool = False) -> Sequence[Signature]:
    """Return the signs of all benchmarks; with `begins`, without those of rows and footers."""
    signs = [Signature(MARKER_SIGN, re.escape(MARKER_SIGN))]
    signs += (
        signature for benchmark in benchmarks().values() for signature in benchmark.signatures
    )
    return [sign for sign in signs if sign.begins or not begins]


def signs_in(text: str) -> Sequence[Signature]:
    """Return the signs whose words occur in a text."""
    return [sign for sign in all_signs() if sign.word in text]


def find_sign(text: str, signs: Sequence[Signature] | None = None) -> int:
    """Return at which character of a text a line that only a benchmark prints begins; -1: none.

    `signs`: those to look for; None: all.
    """
    for word, pattern, _ in all_signs() if signs is None else signs:
        if word in text:
            match = re.search(pattern, text)
            if match is not None:
                return match.start()
    return -1


NO_KNOWN_OUTPUT = "No recognized output of a benchmark or launcher."


class ForeignOutput(records.PatternRecord, frozen=True):
    """What a program prints that fabbench does not read: its pattern occurs anywhere in a text."""

    program: str


@cache
def foreign_outputs() -> Sequence[ForeignOutput]:
    """Return the records of foreign.toml."""
    return records.load("fabbench.logs", "foreign.toml", ForeignOutput)


_TABLE = lazy(r"(?m)^ *\|.{0,200}\b(?:busbw|algbw)\b.{0,200}\|")
_MADE_BY_FABBENCH = lazy(
    r'\s*\{\s*"format":\s*\d+,?\s*(?P<json>"logs"|"metric":[^{[]*"lower_is_better")?'
    r"|(?P<csv>(?:\w+,)*size,(?:\w+,)*metric,(?:\w+,)*value,)"
)
"""The beginning of fabbench's own files, which quote lines of logs."""
_LONGEST_QUOTE = 100
_RESULTS = (
    "This is a table of results and no log: pass the logs that it was made of, or the run. Of "
    "tables, fabbench compare, parse, report and show read those that it wrote as JSON."
)


_BINARY = "This is binary data and no log."
_GAPS = lazy(r"\0+")  # Of any length
_CONTROLS = str.maketrans(
    "",
    "",
    "\x01\x02\x03\x04\x05\x06\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1c\x1d\x1e\x1f\x7f",
)
"""Characters that neither text nor colors have, to be deleted: faster than a pattern."""
_MOST_CONTROLS = 1 / 20  # Random bytes have twice as many; rows that each end in a gap, fewer
_MOST_UNDECODED = 1 / 2
_SHORTEST_BINARY = 400  # Of fewer characters, a few damaged ones would be too large a part


class Unread(NamedTuple):
    """A file without a result, and the reason."""

    source: str
    reason: str
    remark: bool = False  # Whether nothing seems to be lost: the file names a program, and no more
    damaged: bool = False  # Whether the file itself cannot be read


def none_found(inputs: Iterable[str], unread: Iterable[Unread]) -> list[Unread]:
    """Return that inputs have no log, unless a file already says why it has none."""
    if all(each.remark for each in unread):
        return [Unread(", ".join(inputs), "No log found in it.")]
    return []


class UnreadWarning(UserWarning):
    """A file of a directory has a benchmark's output, but no result could be read."""


def made_by_fabbench(text: str) -> Match | None:
    """Match the beginning of JSON or CSV of fabbench's own, which quotes logs.

    Groups: `json` of logs or a comparison, and `csv`; neither: it has no results.
    """
    return _MADE_BY_FABBENCH.match(text)


def is_binary(text: str) -> bool:
    """Return whether what begins like this is no text; damage and gaps alone do not make it so."""
    gaps = len(_GAPS.findall(text)) if "\0" in text else 0
    controls = gaps + len(text) - len(text.translate(_CONTROLS))
    undecoded = text.count("\ufffd")
    length = max(len(text) - text.count("\0"), _SHORTEST_BINARY)
    return controls > _MOST_CONTROLS * length or undecoded > _MOST_UNDECODED * length


def unread_reason(text: str) -> tuple[str, bool]:
    """Return why a text that begins like this has no result, and whether that is only a remark.

    The reason is empty if nothing in the text is related to a benchmark.
    """
    if is_binary(text):
        return _BINARY, True
    own = made_by_fabbench(text)
    if own:
        return _RESULTS if own.lastgroup else "", True
    program = _foreign_program(text)
    if program:
        return f"This is output of {program}, which fabbench does not read.", False
    if _TABLE.search(text):
        return _RESULTS, True
    unread = _unread_line(text)
    if unread:
        return unread, False
    named = _named_program(text)
    return f"It names {named}, but has no result of it." if named else "", True


def _foreign_program(text: str) -> str:
    """Return which program that fabbench does not read has printed a text; empty: not known."""
    for output in foreign_outputs():
        if re.search(output.pattern, text):
            return output.program
    return ""


def _unread_line(text: str) -> str:
    """Return a sentence on the first line that only a benchmark prints; empty: there is none."""
    signs = signs_in(text)
    if not signs:
        return ""
    for number, line in enumerate(text.split("\n"), start=1):
        if find_sign(line, signs) >= 0:
            quote = single_spaced(line)[:_LONGEST_QUOTE]
            more = " …" if len(line) > _LONGEST_QUOTE else ""
            what = "is from a benchmark, but no result could be read"
            return f"Line {number} {what}: {quote}{more}"
    return ""


def _named_program(text: str) -> str:
    """Return the first name of a benchmark's program in a text; empty: there is none."""
    for benchmark in benchmarks().values():
        if benchmark.program_names:
            named = re.search(benchmark.program_names, text)
            if named is not None:
                return named[0]
    return ""
