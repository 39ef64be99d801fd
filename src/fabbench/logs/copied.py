"""Undo what copying does to text: a margin before each line, lines cut at a window's width."""

from collections.abc import Sequence
from textwrap import dedent

from fabbench.model.patterns import lazy

_INDENTED = lazy(r"\n*(?:\t| {4})")
"""As Markdown and mail set off what they quote."""
_ROW = lazy(r"\s*(?:\d+\s|$)")
_NUMBER = lazy(r"[ \t]*(\d{1,9})(?:\t|[:.|)]? |[:|])")
"""A line's number, as `cat -n`, `less -N`, editors and pages print it."""
_FEWEST_NUMBERS = 3

_WIDTHS = range(40, 301)
"""Columns of terminals, as people have them."""
_BEGINNING = 8
"""Characters of a line that show what it is: a host, a tag, a time."""
_DIGIT = lazy(r"\d")
_DIGITS = lazy(r"\d+")
_TABLE = lazy(r"[#|+]|(.)\1*\Z|.{0,400}\S {3}")
"""A comment, a border, cells, or a rule: their readers put halves of rows together."""
_NO_PROSE = lazy(r"[\d/=_[\]]")
_FEWEST = 2
"""Lines that have to be cut, of different words: one alone may have the width by chance."""


def without_margin(text: str) -> str:
    """Return text without the number, or the blanks, before each of its lines."""
    if _NUMBER.match(text):
        text = _without_numbers(text)
    if not _INDENTED.match(text):
        return text
    is_table = all(map(_ROW.match, text.split("\n")))  # rows begin with blanks, too
    return text if is_table else dedent(text)


def _without_numbers(text: str) -> str:
    """Return text without the numbers of its lines, if they are numbered one after another."""
    lines = text.rstrip("\n").split("\n")
    numbered = [match for match in map(_NUMBER.match, lines) if match is not None]
    if len(numbered) < max(len(lines), _FEWEST_NUMBERS):
        return text
    first = int(numbered[0][1])
    expected = range(first, first + len(lines))
    if [int(match[1]) for match in numbered] != [*expected]:
        return text
    return "\n".join(match.string[match.end() :] for match in numbered)


def unwrapped(text: str) -> str:
    """Return text whose lines are whole again; text that no terminal has cut stays as it is.

    The lines below keep their numbers: an empty line stands for each piece.
    """
    lines = text.split("\n")
    width = max(map(len, lines))
    if width not in _WIDTHS or not _shows_cuts(lines, width):
        return text
    pieces = _pieces(lines, frozenset({width, width - 1}))  # a copy may lose the blank at a cut
    whole: list[str] = []
    begun_at = 0
    for at, line in enumerate(lines):
        if at in pieces:
            blank_at_the_cut = " " * (width - len(lines[at - 1]))
            whole[begun_at] += blank_at_the_cut + line
            whole.append("")
        else:
            begun_at = at
            whole.append(line)
    return "\n".join(whole)


def _shows_cuts(lines: Sequence[str], width: int) -> bool:
    """Return whether lines of at least two sorts go on below where they have the width.

    Those of one sort may be as long as each other, unless their numbers have other lengths.
    """
    if [*map(len, lines)].count(width) < _FEWEST:  # as mostly
        return False
    pieces = _pieces(lines, frozenset({width}))
    cut = filter(_NO_PROSE.search, (lines[at - 1] for at in pieces))
    kinds = {_DIGIT.sub("0", line) for line in cut}
    return len(kinds) >= _FEWEST


def _pieces(lines: Sequence[str], lengths: frozenset[int]) -> frozenset[int]:
    """Return the positions of lines that go on with the one above, which has one of the lengths."""
    texts = (line if len(line) in lengths else "" for line in lines)
    may_go_on = [bool(text) and not _TABLE.match(text) for text in texts]
    below = [False, *may_go_on[:-1]]  # whether the line above may go on
    beginnings = {
        _beginning(line) for line, is_below in zip(lines, below, strict=True) if not is_below
    }
    rests = (at for at, line in enumerate(lines) if _is_rest(line, beginnings))
    return frozenset(at for at in rests if below[at])


def _is_rest(line: str, beginnings: set[str]) -> bool:
    """Return whether a line begins as no whole line does."""
    is_indented = line.startswith("  ")
    return bool(line) and not is_indented and _beginning(line) not in beginnings


def _beginning(line: str) -> str:
    return _DIGITS.sub("0", line[:_BEGINNING])
