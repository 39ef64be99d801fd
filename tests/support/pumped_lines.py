"""Lines on which a regular expression may take long: what it matches, with a part repeated."""

import random
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple

parser: Any = import_module("re._parser")
"""What a pattern is made of; Python does not document it."""

_TRIED = 240
"""About how many pieces of a pattern are tried, in all samples."""
_ENDS = ("\x01", " !")
"""What no pattern goes on with, so that it looks for another way to match."""
_OF_CATEGORY = {
    "CATEGORY_DIGIT": "1",
    "CATEGORY_NOT_DIGIT": "a",
    "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_SPACE": "a",
    "CATEGORY_WORD": "a",
    "CATEGORY_NOT_WORD": "-",
}


class Pump(NamedTuple):
    """A text of which one part can be repeated."""

    head: str
    unit: str
    tail: str

    def line(self, length: int) -> str:
        """Return a line of about a length."""
        return self.head + self.unit * max(1, length // len(self.unit)) + self.tail


def pumps(pattern: str, flags: int) -> list[Pump]:
    """Return what to try: each piece that repeats, alone and where it stands in a match."""
    made = random.Random(ascii(pattern))  # the same in each run
    texts = _Texts(made)
    tree = parser.parse(pattern, flags)
    found: dict[Pump, None] = {}
    pieces = list(_repeated(tree))
    for _ in range(min(6, 1 + _TRIED // max(1, len(pieces)))):
        for before, piece in pieces:
            head, unit = texts.of(before), texts.of(piece)
            for end in _ENDS:
                for start in {head, ""} if unit else ():
                    found[Pump(start, unit, end)] = None
        whole = texts.of(tree)
        if whole:
            at = made.randrange(len(whole))
            stop = min(len(whole), at + made.choice((1, 2, 3, 6, len(whole))))
            found[Pump(whole[:at], whole[at:stop], made.choice(_ENDS))] = None
            found[Pump("", whole, made.choice(_ENDS))] = None
    return list(found)


def _repeated(tree: Sequence[Any], before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """Yield what may repeat in a pattern, with all that stands before it."""
    for operation, argument in tree:
        for inner in _inner(str(operation), argument):
            if str(operation) in _REPEATS:
                yield before, inner
            yield from _repeated(inner, before)
        before = (*before, (operation, argument))


_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


def _inner(operation: str, argument: Any) -> list[Any]:
    """Return the parts that an operation of a pattern holds."""
    match operation:
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            parts = [argument[2]]
        case "BRANCH":
            parts = list(argument[1])
        case "SUBPATTERN":
            parts = [argument[-1]]
        case "ASSERT" | "ASSERT_NOT":
            parts = [argument[1]]
        case "ATOMIC_GROUP":
            parts = [argument]
        case "GROUPREF_EXISTS":
            parts = [each for each in argument[1:] if each is not None]
        case _:
            parts = []
    return parts


class _Texts:
    """Makes texts that parts of a pattern match, mostly."""

    def __init__(self, made: random.Random) -> None:
        self._made = made

    def of(self, tree: Sequence[Any]) -> str:
        """Return a text of a part."""
        return "".join(self._one(str(operation), argument) for operation, argument in tree)

    def _one(self, operation: str, argument: Any) -> str:
        match operation:
            case "LITERAL":
                text = chr(argument)
            case "NOT_LITERAL":
                text = "a" if argument != ord("a") else "b"
            case "ANY":
                text = self._made.choice("a1 ")
            case "IN":
                text = self._of_class(argument)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, inner = argument
                count = min(int(most), 50, least + self._made.choice((0, 1, 2)))
                text = "".join(self.of(inner) for _ in range(count))
            case "BRANCH":
                text = self.of(self._made.choice(argument[1]))
            case "SUBPATTERN" | "ATOMIC_GROUP" | "GROUPREF_EXISTS":
                text = self.of(_inner(operation, argument)[0])
            case _:
                text = ""  # an anchor, or what is looked for beside the match
        return text

    def _of_class(self, items: Sequence[Any]) -> str:
        if str(items[0][0]) == "NEGATE":
            fits = re.compile(f"[{''.join(map(_class_text, items[1:]))}]")
            return next((each for each in 'a1 -_Z."~' if not fits.match(each)), "~")
        operation, argument = self._made.choice(items)
        if str(operation) == "LITERAL":
            return chr(argument)
        if str(operation) == "RANGE":
            first, last = argument
            return chr(self._made.randint(first, min(last, first + 9)))
        return _OF_CATEGORY[str(argument)]


def _class_text(item: tuple[Any, Any]) -> str:
    operation, argument = item
    if str(operation) == "LITERAL":
        return re.escape(chr(argument))
    if str(operation) == "RANGE":
        first, last = argument
        return f"{re.escape(chr(first))}-{re.escape(chr(last))}"
    kind = str(argument).removeprefix("CATEGORY_")
    letter = kind.removeprefix("NOT_")[0].lower()
    return "\\" + (letter.upper() if kind.startswith("NOT_") else letter)
