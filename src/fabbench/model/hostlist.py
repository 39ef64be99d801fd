"""Lists of hosts as Slurm writes them: ``node[01-03,7],gpu1`` → names.

The syntax is that of ``scontrol show hostnames`` (https://slurm.schedmd.com/scontrol.html): commas
between names, and in brackets numbers and ranges. A name may have several brackets, and text after
them; and a user before it (``ubuntu@node1``).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product

from fabbench.model.mappings import Names, gathered
from fabbench.model.patterns import lazy

MAX_HOSTS = 1 << 16  # Maximum names in one list. More is a typo

_COMMA = lazy(r",(?![^\[\]]*\])")  # Outside brackets
_BRACKETS = lazy(r"\[([^\[\]]*)\]")
_RANGE = lazy(r"(\d{1,18})(?:-(\d{1,18}))?")
_NAME = lazy(r"(?![^:]+:\d+$)(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_:][A-Za-z0-9._:%-]*")
_NUMBERED = lazy(r"(.*?)(\d{0,9})")


def expand_hostlist(text: str) -> Names:
    """Return the names in a list, in its order. Leading zeros of a range's first number are kept.

    Raise ValueError that says what is wrong: brackets that do not close, ranges that go down,
    characters that no host name has, no name at all.
    """
    names: list[str] = []
    for part in _COMMA.split(text):
        item = part.strip()
        if not item:
            raise ValueError(f"{text!r} has an empty item")
        names += _names_of_item(item, text)
        if len(names) > MAX_HOSTS:
            raise ValueError(f"{text!r} expands to more than {MAX_HOSTS} hosts")
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not a valid host name (without a port) or list such as node[01-16]"
            )
    return tuple(names)


def _names_of_item(item: str, text: str) -> Iterator[str]:
    """Yield the names of an item of the list `text`.

    Of too many only `MAX_HOSTS` + 1: enough for the caller to refuse them.
    """
    pieces: list[Sequence[str]] = []
    for index, piece in enumerate(_BRACKETS.split(item)):
        if index % 2:  # what brackets hold
            pieces.append([*_numbers(piece, item)])
        elif "[" in piece or "]" in piece:
            raise ValueError(f"{item!r} in {text!r} has a [ without a ], or a ] without a [")
        else:
            pieces.append([piece])
    names = map("".join, product(*pieces))
    return islice(names, MAX_HOSTS + 1)


def _numbers(text: str, item: str) -> Iterator[str]:
    """Yield the numbers of one bracket, with their leading zeros.

    Of a range that is too long only `MAX_HOSTS` + 1: enough for the caller to refuse them.
    """
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(
                f"[{text}] in {item!r} is not a list of numbers and ranges such as [1-4,7]"
            )
        first = match[1]
        last = match[2] or first
        width = len(first)
        low = int(first)
        high = int(last)
        uneven = last.startswith("0") and len(last) != width  # 1-08: with zeros, or without?
        if high < low or uneven:
            raise ValueError(
                f"{first}-{last} in {item!r} is not a range that goes up, such as 1-16 or 01-16"
            )
        # A first number without leading zeros is never longer than those after it.
        for number in range(low, min(high, low + MAX_HOSTS) + 1):
            yield str(number).zfill(width)


def compress_hostlist(names: Iterable[str]) -> str:
    """Return names as one list, ``node[01-03,07],gpu1``.

    Numbers at the end of names become ranges.
    """
    matches = map(_NUMBERED.fullmatch, names)
    parts = [match.groups() for match in matches if match]
    numbers_of = gathered(
        # Prefix, and whether a number follows it (`node` cannot be in `node[1-2]`) → the numbers
        ((prefix, bool(number)), number)
        for prefix, number in parts
    )
    texts: list[str] = []
    for (prefix, _), numbers in numbers_of.items():
        ranges = ",".join(_ranges(numbers))
        if len(numbers) > 1:
            ranges = f"[{ranges}]"
        texts.append(prefix + ranges)
    return ",".join(texts)


def _ranges(numbers: Iterable[str]) -> Iterator[str]:
    """Return numbers as ascending ranges."""
    ranges: list[list[str]] = []  # of each, the first number, and the last if it is another
    following = ""
    for number in sorted(numbers, key=_by_value):
        if number and number == following:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
        following = _successor(number)
    return map("-".join, ranges)


def _by_value(number: str) -> tuple[int, str]:
    return int(number or 0), number


def _successor(number: str) -> str:
    """Return the next number, with leading zeros as in this one."""
    following = int(number or 0) + 1
    return str(following).zfill(len(number))
