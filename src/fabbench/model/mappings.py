"""Mappings of texts that stand in many places, by what they say."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeVar

V = TypeVar("V")

Variables: TypeAlias = Mapping[str, str]
"""Variable of an environment → its value."""
Reasons: TypeAlias = Mapping[str, str]
"""Node, NIC or whatever else is named → why: it is bad, or left out."""
Documents: TypeAlias = Mapping[str, str]
"""File → what was submitted to get machines, without secrets."""
HostLines: TypeAlias = Mapping[str, Sequence[str]]
"""Host → the lines that it printed."""


def without_empty(values: Mapping[str, V]) -> dict[str, V]:
    """Return the values that are there: not None, not 0, and not empty."""
    return dict(item for item in values.items() if item[1])
