"""Lists of hosts as Slurm writes them: ``node[01-03,7],gpu1`` → names; and host files.

The syntax is that of ``scontrol show hostnames`` (https://slurm.schedmd.com/scontrol.html): commas between
names, and in brackets numbers and ranges. A name may have several brackets, and text after them; and a user
before it (``ubuntu@node1``).
"""

import itertools
from collections.abc import Iterable, Iterator

from fabbench.model.patterns import lazy

MAX_HOSTS = 1 << 16
"""Maximum names in one list. More is a typo."""

_COMMA = lazy(r",(?![^\[\]]*\])")  # Outside brackets
_ITEM = lazy(r"(?:[^\[\]]|\[[^\[\]]*\])*")
_PIECES = lazy(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = lazy(r"(\d{1,18})(?:-(\d{1,18}))?")
_NAME = lazy(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_:][A-Za-z0-9._:%-]*")
_NUMBERED = lazy(r"(.*?)(\d{1,9})")
_WITH_PORT = lazy(r"[^:]+:\d+")
_IN_FILE = lazy(r"(?:\[[^\]]*\]|[^\s:\[\]])+")
_RANKS = lazy(r"(?:\s+(?:slots|max[-_]slots)\s*=\s*\d+)*|:\d+")


def expand_hostlist(text: str) -> tuple[str, ...]:
    """Return the names in a list, in its order. Leading zeros of a range's first number are kept.

    Raise ValueError that says what is wrong: brackets that do not close, ranges that go down, characters
    that no host name has, no name at all.
    """
    names: list[str] = []
    for item in map(str.strip, _COMMA.split(text)):
        if not item:
            raise ValueError(f"{text!r} has an empty item")
        if not _ITEM.fullmatch(item):
            raise ValueError(f"{item!r} in {text!r} has a [ without a ], or a ] without a [")
        for name in _names(item):
            names.append(_checked(name))
            if len(names) > MAX_HOSTS:
                raise ValueError(f"{text!r} expands to more than {MAX_HOSTS} hosts")
    return tuple(names)


def compress_hostlist(names: Iterable[str]) -> str:
    """Return names as one list, ``node[01-03,07],gpu1``: numbers at the end of names become ranges."""
    numbers: dict[tuple[str, int], list[int]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        prefix, digits = (match[1], match[2]) if match else (name, "")
        # Without leading zeros, numbers of any length are one range.
        numbers.setdefault((prefix, len(digits) if digits.startswith("0") else 0), []).append(int(digits or -1))
    for prefix, width in [key for key in numbers if key[1]]:
        numbers[prefix, width] += [each for each in numbers.get((prefix, 0), ()) if len(str(each)) == width]
        numbers[prefix, 0] = [each for each in numbers.get((prefix, 0), ()) if len(str(each)) != width]
    return ",".join(_compressed(prefix, width, sorted(some)) for (prefix, width), some in numbers.items() if some)


def _compressed(prefix: str, width: int, numbers: list[int]) -> str:
    starts = [index for index, number in enumerate(numbers) if not index or number != numbers[index - 1] + 1]
    ends = [*(start - 1 for start in starts[1:]), len(numbers) - 1]
    texts = [f"{number:0{width}}" if number >= 0 else "" for number in numbers]
    ranges = [texts[a] if a == b else f"{texts[a]}-{texts[b]}" for a, b in zip(starts, ends, strict=True)]
    return f"{prefix}{texts[0]}" if len(numbers) == 1 else f"{prefix}[{','.join(ranges)}]"


def read_hostfile(text: str) -> tuple[str, ...]:
    """Return the hosts of a host file, in its order: a name or a list of names per line.

    ``slots=`` and ``max_slots=`` (Open MPI) and ``:N`` (MPICH) after a name count ranks, and are left out.
    Raise ValueError that names the line that cannot be read.
    """
    names: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].strip()
        match = _IN_FILE.match(words)
        if match is None or _RANKS.fullmatch(words, match.end()) is None:
            if words:
                raise ValueError(f"line {number}: {words!r} is not a host, such as node1 or node1 slots=8")
            continue
        names += expand_hostlist(match[0])
    if not names:
        raise ValueError("it names no host")
    return tuple(names)


def _names(item: str) -> Iterator[str]:
    """Yield the names of one item: every combination of what its brackets hold, the last one fastest."""
    pieces = [tuple(_numbers(match[1], item)) if match[2] is None else (match[2],) for match in _PIECES.finditer(item)]
    return map("".join, itertools.product(*pieces))


def _numbers(text: str, item: str) -> Iterator[str]:
    """Yield the numbers of one bracket, with their leading zeros."""
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"[{text}] in {item!r} is not a list of numbers and ranges such as [1-4,7]")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise ValueError(f"{first}-{last} in {item!r} ends before it begins")
        if last.startswith("0") and len(last) != len(first):
            raise ValueError(f"{first}-{last} in {item!r} begins and ends with different numbers of digits")
        if int(last) - int(first) >= MAX_HOSTS:
            raise ValueError(f"{first}-{last} in {item!r} expands to more than {MAX_HOSTS} hosts")
        # A first number without leading zeros is never longer than those after it.
        yield from (f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1))


def _checked(name: str) -> str:
    if _WITH_PORT.fullmatch(name):
        raise ValueError(f"{name!r} includes a port, which is not part of a host name")
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not a valid host name or list such as node[01-16]")
    return name
