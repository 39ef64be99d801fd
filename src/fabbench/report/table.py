"""A table made of text: built once, written many ways."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells are finished text: no writer computes, rounds or scales.

    `align` has one letter for each column, `l` or `r`; empty means left everywhere. `notes` are sentences
    for under the table.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    align: str = ""
    notes: Sequence[str] = ()

    def aligns(self) -> str:
        """One letter for each column."""
        return self.align or "l" * len(self.header)
