"""No regular expression takes more time than in proportion to the length of what it sees."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from fabbench.model.patterns import LONGEST_LINE
from tests.support.growth import grows_too_fast
from tests.support.patterns import Pattern, every_pattern
from tests.support.pumped_lines import parser, pumps

PARTS = 4


@cache
def patterns() -> list[Pattern]:
    return sorted(every_pattern(), key=lambda each: each.pattern)


def too_slow(pattern: Pattern) -> str:
    """Return on which line, and by which method, a pattern takes too long; empty: on none."""
    compiled = re.compile(pattern.pattern, pattern.flags)
    for pump in pumps(pattern.pattern, pattern.flags):
        for method in pattern.searched():
            if grows_too_fast(getattr(compiled, method), pump.line, LONGEST_LINE):
                return f"{method} {pump} {sorted(pattern.places)}"
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_each_pattern_takes_time_in_proportion_to_a_line(part: int) -> None:
    slow = {each.pattern: why for each in patterns()[part::PARTS] if (why := too_slow(each))}
    assert slow == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern",
    [
        r"(?!(?:\s*\d+){3,}\s*$)\s*\d+\s",  # exponential: OSU's until 0.9
        r"(?:\d+(?:\.\d+)?[smhd]?)+",
        r"\w+(?:a|b)\w+!",  # with the third power
        r"device\s+(\S.*?)\s+on\s+\d",  # with the square
        r"\d+ payload",
        r"(?:a|aa)+x",
        r"\d*\.?\d*x",
        r"\s*\s*\s*x",
    ],
)
def test_a_slow_pattern_is_found(pattern: str) -> None:
    assert too_slow(Pattern(pattern, 0))


@pytest.mark.parametrize("pattern", [r"(?<!\d)\d++ x", r"a|b|c", r"^\d+x"])
def test_another_pattern_is_not(pattern: str) -> None:
    assert not too_slow(Pattern(pattern, 0))


@pytest.mark.slow
def test_every_kind_of_pattern_is_gathered() -> None:
    places = {place.partition(":")[0] for each in patterns() for place in each.places}
    assert {
        "evidence/known_errors.py",  # records
        "logs/launcher_prefixes.py",  # learned from logs
        "benchmarks/tables.py",  # made of columns
        "benchmarks/osu/reader.py",  # lazy
        "hosts/probe.py",  # compiled at import
        "launchers/kubernetes/objects.py",  # given to a function of re
        "launchers/kubernetes/messages.toml",
        "remote/failures.toml",
    } <= places
    texts = {each.pattern for each in patterns()}
    assert any("BAD TERMINATION" in each for each in texts)
    assert len(texts) > 500


WHOLE = "ATOMIC_GROUP"
POSSESSIVE = "POSSESSIVE_REPEAT"
GROUPS = frozenset({"BRANCH", "SUBPATTERN", WHOLE, "MAX_REPEAT", "MIN_REPEAT", POSSESSIVE})


def _keeps_a_group_whole(tree: Any) -> bool:
    """Return whether a group is atomic, or its repetition possessive."""
    for operation, argument in tree:
        if str(operation) == WHOLE:
            return True
        if str(operation) == POSSESSIVE and not _is_one_character(argument[2]):
            return True
        if any(_keeps_a_group_whole(inner) for inner in _trees_in(argument)):
            return True
    return False


def _is_one_character(tree: Any) -> bool:
    return len(tree) == 1 and str(tree[0][0]) not in GROUPS


def _trees_in(argument: Any) -> Iterator[Any]:
    """Yield the parts of a node that are patterns of their own."""
    if isinstance(argument, parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for each in argument:
            yield from _trees_in(each)


@pytest.mark.parametrize("pattern", [r"(?>a+)b", r"(?:ab?)++c", r"x(y(?:ab|c)*+)", r"(?:\d\s*)?+"])
def test_a_group_that_is_kept_whole_is_found(pattern: str) -> None:
    assert _keeps_a_group_whole(parser.parse(pattern))


@pytest.mark.parametrize("pattern", [r"\s*+\d++x", r"[a-z]++", r"(?:ab?)+c"])
def test_a_character_that_is_kept_whole_is_none(pattern: str) -> None:
    assert not _keeps_a_group_whole(parser.parse(pattern))


@pytest.mark.slow
def test_no_pattern_keeps_a_group_whole() -> None:
    """Python before 3.11.5, such as Debian 12's, then misses matches (python/cpython#106052)."""
    whole = [
        each.pattern
        for each in patterns()
        if _keeps_a_group_whole(parser.parse(each.pattern, each.flags & ~re.DEBUG))
    ]
    assert whole == []
