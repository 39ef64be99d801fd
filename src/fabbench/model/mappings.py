"""Names, and mappings of texts, by what they say, for many places; and values by a key."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")

Variables: TypeAlias = Mapping[str, str]
"""Variable of an environment → its value."""
Reasons: TypeAlias = Mapping[str, str]
"""Node, NIC or whatever else is named → why: it is bad, or left out."""
Paths: TypeAlias = tuple[str, ...]
"""Files or directories, as hosts have them."""
GroupOfNode: TypeAlias = Mapping[str, str]
"""Node → its rack, switch or other group."""
Documents: TypeAlias = Mapping[str, str]
"""File → what was submitted to get machines, without secrets."""
Names: TypeAlias = tuple[str, ...]
"""Names of hosts, devices, variables or whatever else is named, in order."""
Sentences: TypeAlias = Sequence[str]
HostLines: TypeAlias = Mapping[str, Sequence[str]]
"""Host → the lines that it printed."""


def without_empty(values: Mapping[str, ValueT]) -> dict[str, ValueT]:
    """Return the values that are there: not None, not 0, and not empty."""
    return dict(item for item in values.items() if item[1])


def gathered(
    pairs: Iterable[tuple[KeyT, ValueT]],
) -> dict[KeyT, list[ValueT]]:
    """Return key → all of its values; both in the order in which the pairs come."""
    values_of: dict[KeyT, list[ValueT]] = {}
    for key, value in pairs:
        values_of.setdefault(key, []).append(value)
    return values_of


def most_common(values: Iterable[KeyT], default: KeyT) -> KeyT:
    """Return the most common of values, of equals the first; without any, the default."""
    counts = Counter(values)
    return max(counts, key=counts.__getitem__, default=default)


def distinct(values: Iterable[KeyT]) -> tuple[KeyT, ...]:
    """Return each of several values once, in the order in which they come first."""
    return tuple(dict.fromkeys(values))
