"""Every pattern of the program is timed: a line of twice the length takes about twice as long.

A line from a host must not be able to stop a reader. Lines are made of a pattern's own literals and
character classes, as long as `bounded` lets them be. Only processor time of this thread counts, of
which a busy machine takes none, and what seems slow is measured again.
"""

import importlib
import pkgutil
import re
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from re import _constants as code
from re import _parser
from types import FrameType
from typing import Any

import pytest

import fabbench
from fabbench.evidence import known_errors
from fabbench.logs.signs import all_signs
from fabbench.model.patterns import LONGEST_LINE, lazy
from tests.support.paths import ROOT

LAZY = type(lazy(""))
MOST_GROWTH = 2.5
"""Of the time, when a line has twice the length."""
FLOOR_S = 0.2
"""Times below this say nothing: some patterns take 0.05 s, and a slow machine twice that."""
LIMIT_S = 1.0
"""Processor time after which a search is given up: it may never end."""
SAMPLES = 8
PUMPS = 4
COMMON_PUMPS = ("1", "a", " ", "a ", "1 ", "1.", "[", ":")
ENDS = ("!", "\x01 ")
BEGINNING = frozenset({"match", "fullmatch"})
EVERYWHERE = frozenset({"search", "sub", "subn", "split", "findall", "finditer"})
CLASSES = {
    code.CATEGORY_DIGIT: "1",
    code.CATEGORY_NOT_DIGIT: "a",
    code.CATEGORY_SPACE: " ",
    code.CATEGORY_NOT_SPACE: "a",
    code.CATEGORY_WORD: "a",
    code.CATEGORY_NOT_WORD: " ",
}
REPEATS = frozenset({code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT})
GROUPS = frozenset({code.BRANCH, code.SUBPATTERN, code.ATOMIC_GROUP})
FREQUENT = "a1 .:-_/Z]"


class _TimeIsUpError(BaseException):
    """A search took longer than the limit."""


class _Sampler:
    """Makes texts that a pattern matches."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def text(self, tree: Iterable[tuple[Any, Any]]) -> str:
        return "".join(self._part(kind, about) for kind, about in tree)

    def _part(self, kind: Any, about: Any) -> str:
        if kind is code.IN:
            return self._one_of(about)
        if kind in REPEATS:
            least, most, item = about
            count = min(least + self._random.choice((0, 1, 2)), int(most), 50)
            return "".join(self.text(item) for _ in range(count))
        if kind in GROUPS:
            return self._group(kind, about)
        return self._sign(kind, about)

    def _group(self, kind: Any, about: Any) -> str:
        if kind is code.BRANCH:
            return self.text(self._random.choice(about[1]))
        return self.text(about[-1] if kind is code.SUBPATTERN else about)

    def _sign(self, kind: Any, about: Any) -> str:
        if kind is code.LITERAL:
            return chr(about)
        if kind is code.ANY:
            return self._random.choice(FREQUENT)
        if kind is code.NOT_LITERAL:
            return "b" if chr(about) == "a" else "a"
        return ""

    def _one_of(self, items: list[tuple[Any, Any]]) -> str:
        if items[0][0] is code.NEGATE:
            return next((each for each in FREQUENT if not _has(items[1:], each)), "~")
        kind, about = self._random.choice(items)
        if kind is code.CATEGORY:
            return CLASSES[about]
        return chr(about if kind is code.LITERAL else about[0])


def _has(items: list[tuple[Any, Any]], sign: str) -> bool:
    """Return whether a character is one of a class."""
    for kind, about in items:
        if kind is code.LITERAL and chr(about) == sign:
            return True
        if kind is code.RANGE and about[0] <= ord(sign) <= about[1]:
            return True
        if kind is code.CATEGORY and _in_category(about, sign):
            return True
    return False


def _in_category(category: Any, sign: str) -> bool:
    if category in {code.CATEGORY_DIGIT, code.CATEGORY_NOT_DIGIT}:
        found = sign.isdigit()
    elif category in {code.CATEGORY_SPACE, code.CATEGORY_NOT_SPACE}:
        found = sign.isspace()
    else:
        found = sign.isalnum() or sign == "_"
    return found != ("NOT" in str(category))


def _inside(value: object, depth: int = 5) -> Iterator[tuple[str, int]]:
    """Yield the patterns in a value, each with its flags."""
    if isinstance(value, LAZY):
        yield value._source  # type: ignore[attr-defined]
    elif isinstance(value, re.Pattern):
        if isinstance(value.pattern, str):
            yield value.pattern, value.flags
    elif depth and not isinstance(value, (str, bytes, type)):
        if isinstance(value, Mapping):
            parts: Iterable[object] = (*value, *value.values())
        elif isinstance(value, (list, tuple, set, frozenset)):
            parts = value
        elif type(value).__module__.startswith("fabbench."):
            names = getattr(type(value), "__slots__", None) or vars(value)
            parts = [getattr(value, name, None) for name in names]
        else:
            parts = ()
        for part in parts:
            yield from _inside(part, depth - 1)


def _used(source: str) -> dict[str, set[str]]:
    """Return the constants of a text → the methods of patterns that they are used with."""
    used: dict[str, set[str]] = {}
    for name, method in re.findall(r"\b(_?[A-Z]\w*)\.([a-z]+)\b", source):
        if method in BEGINNING | EVERYWHERE:
            used.setdefault(name, set()).add(method)
    return used


def _patterns() -> dict[tuple[str, int], frozenset[str]]:
    """Return each pattern of the program → the methods that it is used with."""
    texts = {path: path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py")}
    anywhere = _used("".join(texts.values()))
    found: dict[tuple[str, int], frozenset[str]] = {}
    for info in pkgutil.walk_packages(fabbench.__path__, "fabbench."):
        if info.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(info.name)
        except ImportError:  # of an optional library
            continue
        own = _used(texts.get(Path(module.__file__ or ""), ""))
        for name, value in vars(module).items():
            used = own if name.startswith("_") else anywhere
            methods = frozenset(used.get(name, ()))
            for pattern in _inside(value):
                found[pattern] = found.get(pattern, frozenset()) | methods
    knowledge = (
        known_errors._fatal(),
        known_errors._fatal_filter(),
        [re.compile(sign) for _, sign, _ in all_signs()],
    )
    found |= dict.fromkeys(_inside(knowledge), frozenset({"search"}))
    return found


def _lines(pattern: str, flags: int, length: int) -> Iterator[str]:
    """Yield lines of a length that are hard for a pattern: a part of a match, again and again."""
    random = Random(ascii(pattern))  # the same lines at every length
    tree, sampler = _parser.parse(pattern, flags & ~re.DEBUG), _Sampler(random)
    for pump in COMMON_PUMPS:
        yield (pump * length)[: length - 1] + "!"
    for sample in filter(None, (sampler.text(tree) for _ in range(SAMPLES))):
        for _ in range(PUMPS):
            at = random.randrange(len(sample))
            pump = sample[at : at + random.choice((1, 1, 2, 3, 6, len(sample)))]
            end = random.choice((sample[at + len(pump) :], *ENDS))
            room = max(length - at - len(end), 1)
            yield sample[:at] + (pump * room)[:room] + end


def _seconds(search: Any, line: str) -> float:
    """Return the processor time of a search; the limit, if it has not ended by then."""
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    started = time.thread_time()
    try:
        search(line)
    except _TimeIsUpError:
        return LIMIT_S
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return time.thread_time() - started


def _is_slow(search: Any, half: str, whole: str) -> bool:
    """Return whether the time grows faster than the line."""
    seconds = _seconds(search, whole)
    if seconds < FLOOR_S:
        return False
    if seconds >= LIMIT_S:
        return True
    for _ in range(3):  # what was slow by chance is not slow again
        shorter = min(_seconds(search, half) for _ in range(3))
        longer = min(_seconds(search, whole) for _ in range(3))
        if longer < FLOOR_S or longer < MOST_GROWTH * shorter:
            return False
    return True


def _slow_line(pattern: str, flags: int, methods: frozenset[str]) -> str | None:
    """Return a line on which the pattern is slow; None if it is on none."""
    compiled = re.compile(pattern, flags)
    names = {"search" if method in EVERYWHERE else method for method in methods}
    searches = [getattr(compiled, name) for name in sorted(names or BEGINNING)]
    halves, wholes = (_lines(pattern, flags, LONGEST_LINE // parts) for parts in (2, 1))
    for half, whole in zip(halves, wholes, strict=True):
        if any(_is_slow(search, half, whole) for search in searches):
            return whole
    return None


@pytest.fixture(autouse=True)
def _limited() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise _TimeIsUpError

    before = signal.signal(signal.SIGVTALRM, stop)
    yield
    signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize(
    "pattern", [r"(?:\s*\d+){3,}\s*!x", r"(?:a|aa)+x", r"\d*\.?\d*\.?\d*x", r"\s*\s*\s*x"]
)
def test_a_pattern_that_backtracks_is_found(pattern: str) -> None:
    assert _slow_line(pattern, 0, frozenset()) is not None


@pytest.mark.parametrize("pattern", [r"\s*+(?:\d++\s++)++x", r"a|b|c", r"^\d+x"])
def test_a_pattern_that_does_not_is_not(pattern: str) -> None:
    assert _slow_line(pattern, 0, frozenset()) is None


def test_no_pattern_takes_more_than_twice_as_long_for_a_line_of_twice_the_length() -> None:
    patterns = _patterns()
    assert len(patterns) > 400
    slow = {}
    for (pattern, flags), methods in patterns.items():
        line = _slow_line(pattern, flags, methods)
        if line is not None:
            slow[pattern] = f"{line[:40]!r} … {line[-20:]!r}"
    assert not slow


def _keeps_a_group_whole(tree: Any) -> bool:
    """Return whether a group is atomic, or its repetition possessive."""
    for kind, argument in tree:
        if kind is code.ATOMIC_GROUP:
            return True
        if kind is code.POSSESSIVE_REPEAT and not _is_one_character(argument[2]):
            return True
        if any(_keeps_a_group_whole(inner) for inner in _trees_in(argument)):
            return True
    return False


def _is_one_character(tree: Any) -> bool:
    return len(tree) == 1 and tree[0][0] not in GROUPS | REPEATS


def _trees_in(argument: Any) -> Iterator[Any]:
    """Yield the parts of a node that are patterns of their own."""
    if isinstance(argument, _parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for each in argument:
            yield from _trees_in(each)


@pytest.mark.parametrize("pattern", [r"(?>a+)b", r"(?:ab?)++c", r"x(y(?:ab|c)*+)", r"(?:\d\s*)?+"])
def test_a_group_that_is_kept_whole_is_found(pattern: str) -> None:
    assert _keeps_a_group_whole(_parser.parse(pattern))


@pytest.mark.parametrize("pattern", [r"\s*+\d++x", r"[a-z]++", r"(?:ab?)+c"])
def test_a_character_that_is_kept_whole_is_none(pattern: str) -> None:
    assert not _keeps_a_group_whole(_parser.parse(pattern))


def test_no_pattern_keeps_a_group_whole() -> None:
    """Python before 3.11.5, such as Debian 12's, then misses matches (python/cpython#106052)."""
    whole = [
        pattern
        for pattern, flags in _patterns()
        if _keeps_a_group_whole(_parser.parse(pattern, flags & ~re.DEBUG))
    ]
    assert whole == []
