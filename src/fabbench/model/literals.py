"""Which texts every match of a regular expression contains: most lines have none of them."""

import re
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any, Generic, NamedTuple

from fabbench.model.mappings import ValueT, gathered

_LONG_ENOUGH = 12
"""Characters from which on a literal is rare in any log: then fewer literals are better."""
_RAREST_FIRST = "JqQzZXjKkvxYwybgfhpHmVudWcDUGBFlMOPASEIRTLNCsrtoaine()=,/[] 0123456789:.-_"
"""Characters of logs: most lines have none of the first ones."""

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
    needed = required_literals(pattern) or {Literal("")}
    return frozenset(text for literal in needed for text in _as_they_stand(literal))


class Index(Generic[ValueT]):
    """Many patterns, each with what it stands for: finds those that a text may match."""

    def __init__(self, patterns: Iterable[tuple[str, ValueT]]) -> None:
        self._patterns = [*patterns]
        self._by_rarest = gathered(
            (_rarest(needed), (needed, position))
            for position, (pattern, _) in enumerate(self._patterns)
            for needed in needed_texts(pattern)
        )

    def possible(self, text: str) -> list[tuple[str, ValueT]]:
        """Return the patterns that a text may match, in their order; mostly none."""
        # Most texts have few of the rare characters: all other patterns are ruled out at once.
        positions = {
            position
            for rarest, needing in self._by_rarest.items()
            if rarest in text
            for needed, position in needing
            if needed in text
        }
        return [self._patterns[position] for position in sorted(positions)]


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


def _rarest(characters: Iterable[str]) -> str:
    """Return the character that the fewest lines have; empty if there are none."""
    return min(characters, key=_RAREST_FIRST.find, default="")


def _as_they_stand(literal: Literal) -> tuple[str, ...]:
    """Return texts of which every spelling of a literal contains one: itself, or its letter."""
    if not literal.any_case:
        return (literal.text,)
    letters = filter(_has_few_spellings, literal.text)
    rarest = _rarest(letters)
    return rarest.lower(), rarest.upper()


def _has_few_spellings(character: str) -> bool:
    return character.isascii() and character.lower() not in _MORE_SPELLINGS


@cache
def _parser() -> Any:
    return import_module("re._parser")  # private, without types, and the same since Python 3.11
