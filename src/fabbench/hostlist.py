"""Lists of hosts as Slurm writes them: ``node[01-03,7],gpu1`` → names.

The syntax is that of ``scontrol show hostnames`` (https://slurm.schedmd.com/scontrol.html): commas between
names, and in brackets numbers and ranges. A name may have several brackets, and text after them.
"""

import itertools
import re
from collections.abc import Iterator

LARGEST = 1 << 16
"""Names in one list. More is a slip of the pen."""

_PIECES = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_NAME = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9._:%-]*")
_WITH_PORT = re.compile(r"[^:]+:\d+")


def expand(text: str) -> tuple[str, ...]:
    """Give the names in a list, in its order. Zeros in front of a range's first number are kept.

    Raises ValueError that says what is wrong: brackets that do not close, ranges that go down, characters
    that no host name has, no name at all.
    """
    names: list[str] = []
    for item in _items(text):
        if not item:
            raise ValueError(f"{text!r} has nothing between two commas, or at an end")
        for name in _names(item):
            names.append(_checked(name))
            if len(names) > LARGEST:
                raise ValueError(f"{text!r} means more than {LARGEST} hosts")
    return tuple(names)


def _items(text: str) -> Iterator[str]:
    """Split at the commas outside brackets."""
    depth = start = 0
    for index, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if depth not in {0, 1}:
            wrong = "a bracket inside brackets" if depth > 1 else "a ] without its ["
            raise ValueError(f"{text!r} has {wrong} (character {index + 1})")
        if character == "," and not depth:
            yield text[start:index].strip()
            start = index + 1
    if depth:
        raise ValueError(f"{text!r} has a [ without its ]")
    yield text[start:].strip()


def _names(item: str) -> Iterator[str]:
    """Give the names of one item: every combination of what its brackets hold, the last one fastest."""
    pieces = [
        tuple(_numbers(match[1], item)) if match[2] is None else (match[2],)
        for match in _PIECES.finditer(item)
    ]
    return map("".join, itertools.product(*pieces))


def _numbers(text: str, item: str) -> Iterator[str]:
    """Give the numbers of one bracket, with their zeros."""
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"[{text}] in {item!r} is not a list of numbers and ranges such as [1-4,7]")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise ValueError(f"{first}-{last} in {item!r} ends before it begins")
        if last.startswith("0") and len(last) != len(first):
            raise ValueError(f"{first}-{last} in {item!r} begins and ends with different numbers of digits")
        if int(last) - int(first) >= LARGEST:
            raise ValueError(f"{first}-{last} in {item!r} means more than {LARGEST} hosts")
        # A first number without zeros in front is never longer than those after it.
        yield from (f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1))


def _checked(name: str) -> str:
    if "@" in name:
        raise ValueError(f"{name!r} names a user, which does not belong to the name of a host")
    if _WITH_PORT.fullmatch(name):
        raise ValueError(f"{name!r} names a port, which does not belong to the name of a host")
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not the name of a host, nor a list such as node[01-16]")
    return name
