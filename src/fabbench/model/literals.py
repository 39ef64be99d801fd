"""Which texts every match of a regular expression contains: a cheap filter before it."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

_LONG_ENOUGH = 12
"""Characters from which on a literal is rare in any log: then fewer literals are better."""
_RAREST_FIRST = "JqQzZXjKkvxYwybgfhpHmVudWcDUGBFlMOPASEIRTLNCsrtoaine 0123456789:.-_"
"""Characters of logs; where a search begins with rare ones, it ends early most often."""

_MORE_SPELLINGS = frozenset("iks")
"""Letters that `re.IGNORECASE` also finds as letters beyond ASCII."""


class Literal(NamedTuple):
    """A text that a match contains, in any case if `any_case`."""

    text: str
    any_case: bool = False


@cache
def required_literals(pattern: str) -> frozenset[Literal] | None:
    """Return texts of which every match of a pattern contains one; None if there are none.

    Raise ValueError for a pattern that does not compile.
    """
    try:
        parsed = _parser().parse(pattern)
    except re.error as error:
        raise ValueError(f"the pattern {pattern!r} does not compile: {error}") from None
    needed = _Needed(any_case=bool(parsed.state.flags & re.IGNORECASE))
    needed.read(parsed)
    return needed.best()


@cache
def needed_texts(pattern: str) -> frozenset[str]:
    """Return texts of which every match of a pattern contains one; an empty one if none is known.

    They are as they stand in the match, so that no pattern must be compiled to look for them.
    """
    needed = required_literals(pattern)
    if needed is None or any(literal.any_case for literal in needed):
        return frozenset({""})
    return frozenset(literal.text for literal in needed)


def may_match(pattern: str, text: str) -> bool:
    """Return whether a text has what every match of a pattern needs."""
    return any(needed in text for needed in needed_texts(pattern))


def prefilter(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that is found in every text in which one of the patterns is.

    It consists of literals, and is a fast way to see that a text has none of the patterns.
    """
    literals: set[Literal] = set()
    for pattern in patterns:
        needed = required_literals(pattern)
        if needed is None:
            return re.compile("")  # found in every text: nothing can be ruled out
        literals |= needed
    return re.compile(_alternation(literals))


class _Needed:
    """Reads a parsed pattern; notes sets of literals of which every match contains one."""

    def __init__(self, *, any_case: bool) -> None:
        self._any_case = any_case
        self._adjacent = ""  # Characters that every match has next to each other, so far
        self._candidates: list[frozenset[Literal]] = []

    def best(self) -> frozenset[Literal] | None:
        """Return the set that the fewest texts contain by chance; None if there is none."""
        self._end_adjacent()
        return max(self._candidates, key=_rarity, default=None)

    def read(self, parsed: Any) -> None:
        """Read a sequence of operations: what matches one after the other."""
        for operation, argument in parsed:
            self._read_operation(str(operation), argument)

    def _read_operation(self, name: str, argument: Any) -> None:
        # Python's parser names the operations of a pattern, and what arguments each has.
        match name:
            case "LITERAL":
                self._adjacent += chr(argument)
            case "AT" | "ASSERT" | "ASSERT_NOT":
                pass  # no character: what is before and behind it is one run
            case "SUBPATTERN":
                _, added, removed, inner = argument
                self._read_group(inner, added, removed)
            case "ATOMIC_GROUP":
                self.read(argument)
            case "BRANCH":
                self._read_branch(argument[1])  # the alternatives; before them stands None
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, _, inner = argument
                if least:  # else there may be no repeat at all
                    self.read(inner)  # the first time
                self._end_adjacent()
            case _:  # a set of characters, a reference: any may stand there
                self._end_adjacent()

    def _read_group(self, inner: Any, added: int, removed: int) -> None:
        """Read a group; apart from what is around it if its flags change whether case counts."""
        any_case = self._any_case
        if added & re.IGNORECASE:
            any_case = True
        elif removed & re.IGNORECASE:
            any_case = False
        if any_case == self._any_case:
            self.read(inner)
            return
        self._end_adjacent()
        self._add_candidate(self._needed_by(inner, any_case=any_case))

    def _read_branch(self, alternatives: Iterable[Any]) -> None:
        """Read alternatives: a match contains a text of one of them, or nothing that is known."""
        self._end_adjacent()
        union: frozenset[Literal] = frozenset()
        for alternative in alternatives:
            needed = self._needed_by(alternative, any_case=self._any_case)
            if needed is None:  # a match of this alternative may contain none of the texts
                return
            union |= needed
        self._add_candidate(union)

    def _needed_by(self, parsed: Any, *, any_case: bool) -> frozenset[Literal] | None:
        # The best set of literals of a part of the pattern alone; None: it needs none.
        nested = _Needed(any_case=any_case)
        nested.read(parsed)
        return nested.best()

    def _add_candidate(self, literals: frozenset[Literal] | None) -> None:
        if literals:
            self._candidates.append(literals)

    def _end_adjacent(self) -> None:
        # What comes next may be anything: the characters so far are one literal.
        if self._adjacent:
            self._add_candidate(frozenset({Literal(self._adjacent, self._any_case)}))
        self._adjacent = ""


def _rarity(literals: frozenset[Literal]) -> tuple[int, int, int]:
    """Return a sort key: long literals first, up to a length that is rare anyway; then few."""
    shortest = min(len(literal.text) for literal in literals)
    return min(shortest, _LONG_ENOUGH), -len(literals), shortest


def _alternation(literals: Iterable[Literal]) -> str:
    """Return a pattern that finds the literals, each from its rarest character on.

    Each alternative begins with one character: where none of these is, such a pattern finds
    nothing, and fast. What stands before it is checked backwards from the end of the literal.
    """
    alternatives: list[str] = []
    rests: dict[str, list[str]] = {}  # rarest character → patterns of what follows it
    for text, any_case in sorted(literals):
        if any_case:
            alternatives += _spellings(text)
            continue
        rarest = min(text, key=_RAREST_FIRST.find)
        before, _, after = text.partition(rarest)
        rest = re.escape(after)
        if before:
            rest += f"(?<={re.escape(text)})"
        rests.setdefault(rarest, []).append(rest)
    for rarest, endings in rests.items():
        either = "|".join(endings)
        alternatives.append(f"{re.escape(rarest)}(?:{either})")
    return "|".join(alternatives)


def _spellings(text: str) -> Iterator[str]:
    """Yield patterns of a text in any case: one for each spelling of its first letter."""
    first = text[0]
    if not first.isascii() or first.lower() in _MORE_SPELLINGS:  # more than upper and lower case
        yield f"(?i:{re.escape(text)})"
        return
    rest = re.escape(text[1:])
    spellings = {first.lower(), first.upper()}
    for spelling in sorted(spellings):
        yield f"{re.escape(spelling)}(?i:{rest})"


@cache
def _parser() -> Any:
    return import_module("re._parser")  # private, without types, and the same since Python 3.11
