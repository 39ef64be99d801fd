"""Lists of hosts as Slurm writes them: ``node[01-03,7],gpu1`` → names.

The syntax is that of ``scontrol show hostnames`` (https://slurm.schedmd.com/scontrol.html): commas
between names, and in brackets numbers and ranges. A name may have several brackets, and text after
them; and a user before it (``ubuntu@node1``).
"""

from collections.abc import Iterable, Iterator
from itertools import islice, product

from fabbench.model.patterns import lazy

MAX_HOSTS = 1 << 16  # Maximum names in one list. More is a typo

_COMMA = lazy(r",(?![^\[\]]*\])")  # Outside brackets
_BRACKETS = lazy(r"\[([^\[\]]*)\]")
_RANGE = lazy(r"(\d{1,18})(?:-(\d{1,18}))?")
_NAME = lazy(r"(?![^:]+:\d+$)(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_:][A-Za-z0-9._:%-]*")
_NUMBERED = lazy(r"(.*?)(\d{0,9})")


def expand_hostlist(text: str) -> tuple[str, ...]:
    """Return the names in a list, in its order. Leading zeros of a range's first number are kept.

    Raise ValueError that says what is wrong: brackets that do not close, ranges that go down,
    characters that no host name has, no name at all.
    """
    names: list[str] = []
    for item in map(str.strip, _COMMA.split(text)):
        texts = _BRACKETS.split(item)  # Every second one is what brackets hold
        if not item:
            raise ValueError(f"{text!r} has an empty item")
        if any(sign in each for each in texts[::2] for sign in "[]"):
            raise ValueError(f"{item!r} in {text!r} has a [ without a ], or a ] without a [")
        pieces = (
            [*_numbers(each, item)] if index % 2 else [each] for index, each in enumerate(texts)
        )
        names += islice(map("".join, product(*pieces)), MAX_HOSTS + 1)
        if len(names) > MAX_HOSTS:
            raise ValueError(f"{text!r} expands to more than {MAX_HOSTS} hosts")
    if wrong := next((name for name in names if not _NAME.fullmatch(name)), ""):
        raise ValueError(
            f"{wrong!r} is not a valid host name (without a port) or list such as node[01-16]"
        )
    return tuple(names)


def _numbers(text: str, item: str) -> Iterator[str]:
    """Yield the numbers of one bracket, with their leading zeros.

    Of too many, one more than hosts may be.
    """
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(
                f"[{text}] in {item!r} is not a list of numbers and ranges such as [1-4,7]"
            )
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first) or (last.startswith("0") and len(last) != len(first)):
            raise ValueError(
                f"{first}-{last} in {item!r} is not a range that goes up, such as 1-16 or 01-16"
            )
        # A first number without leading zeros is never longer than those after it.
        numbers = range(int(first), min(int(last), int(first) + MAX_HOSTS) + 1)
        yield from (f"{number:0{len(first)}}" for number in numbers)


def compress_hostlist(names: Iterable[str]) -> str:
    """Return names as one list, ``node[01-03,07],gpu1``.

    Numbers at the end of names become ranges.
    """
    groups: dict[tuple[str, bool], list[str]] = {}
    for prefix, digits in (match.groups() for match in map(_NUMBERED.fullmatch, names) if match):
        groups.setdefault((prefix, not digits), []).append(digits)
    texts = []
    for (prefix, _), digits in groups.items():
        ranges: list[list[str]] = []
        for number in sorted(digits, key=lambda each: (int(each or 0), each)):
            last = ranges[-1][-1] if ranges else ""
            if last and number == f"{int(last) + 1:0{len(last)}}":
                ranges[-1][1:] = [number]
            else:
                ranges.append([number])
        joined = ",".join(map("-".join, ranges))
        texts.append(f"{prefix}[{joined}]" if len(digits) > 1 else f"{prefix}{joined}")
    return ",".join(texts)
