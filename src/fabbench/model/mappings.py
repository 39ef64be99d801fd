"""Names, and mappings of texts, by what they say, for many places; and values by a key."""

from collections import Counter
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")
ResultT = TypeVar("ResultT")

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


def without_none(values: Mapping[KeyT, ValueT | None]) -> dict[KeyT, ValueT]:
    """Return the values that are known, also 0 and empty ones: all but None."""
    return {key: value for key, value in values.items() if value is not None}


def without(
    values: Mapping[KeyT, ValueT],
    keys: Container[KeyT],
) -> dict[KeyT, ValueT]:
    """Return the values of all keys but some."""
    return {key: value for key, value in values.items() if key not in keys}


def map_values(
    function: Callable[[ValueT], ResultT], values: Mapping[KeyT, ValueT]
) -> dict[KeyT, ResultT]:
    """Return key → what a function makes of its value."""
    return {key: function(value) for key, value in values.items()}


def gathered(
    pairs: Iterable[tuple[KeyT, ValueT]],
) -> dict[KeyT, list[ValueT]]:
    """Return key → all of its values; both in the order in which the pairs come."""
    values_of: dict[KeyT, list[ValueT]] = {}
    for key, value in pairs:
        values_of.setdefault(key, []).append(value)
    return values_of


def grouped_by(
    key: Callable[[ValueT], KeyT],
    values: Iterable[ValueT],
) -> dict[KeyT, list[ValueT]]:
    """Return key → the values that have it; both in the order in which the values come."""
    return gathered((key(value), value) for value in values)


def most_common(values: Iterable[KeyT], default: KeyT) -> KeyT:
    """Return the most common of values, of equals the first; without any, the default."""
    counts = Counter(values)
    return max(counts, key=counts.__getitem__, default=default)


def distinct(values: Iterable[KeyT]) -> tuple[KeyT, ...]:
    """Return each of several values once, in the order in which they come first."""
    return tuple(dict.fromkeys(values))


def first_of(values: Iterable[ValueT], default: ResultT) -> ValueT | ResultT:
    """Return the first value; without any, the default."""
    return next(iter(values), default)


def only(values: Collection[ValueT], default: ResultT) -> ValueT | ResultT:
    """Return the value if there is exactly one; without any, or of several, the default."""
    return first_of(values, default) if len(values) == 1 else default
