"""The stage that makes whole rows of torn ones. Pure.

NCCL's debug text interrupts the table in mid-row; what precedes and what follows it are pieces of
one row. Pieces are joined as they are, or with a blank where a launcher removed one, and the result
must be a whole row with consistent figures; otherwise the pieces are reported as damaged.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from fabbench.benchmarks import UNREADABLE
from fabbench.benchmarks.events import Remains, RowLine
from fabbench.benchmarks.executions import whole_row
from fabbench.benchmarks.nccl.rows import begins_row, has_open_end, sample
from fabbench.benchmarks.tables import Layout, is_rest_of_row
from fabbench.model.log import Line
from fabbench.model.patterns import lazy

_LONGEST = 4096
"""Characters of a row in pieces."""
_WORD = lazy(r"\S+\s*")
Rows: TypeAlias = Sequence[RowLine | Remains]


class Held(NamedTuple):
    """A row, or the beginning of one, that may go on in the next line.

    Before UNREADABLE, the last characters of its text may belong to the name of a host.
    """

    line: Line
    """The first one, with the text so far."""
    row: RowLine | None = None
    """If it is complete."""


class TornRows:
    """Returns the rows of one table, and what is left of those that cannot be read."""

    def __init__(self, layouts: Sequence[Layout]) -> None:
        self._layouts = layouts
        self.held: Held | None = None

    def feed(self, line: Line, *, closed: bool) -> Rows | None:
        """Read one line; None if it is no part of the table.

        It is, in this order: what goes on from the line above, a whole row, the beginning of one,
        or what is left of one. `closed`: whether the closing lines were read: what follows is no
        row, unless a whole one.
        """
        row = self._whole(line)
        joined = self._joined(line, row)
        if joined is not None:
            return joined
        if row is not None:
            return [*self.release_held(before=row), *self._return_or_hold(row)]
        if closed:
            return None
        if self._may_begin_row(line.text):
            before = self.release_held()
            self.held = Held(line)
            return before
        has_cells = len(line.text.split()) > 2  # two may be of any text
        if not has_cells or not is_rest_of_row(line.text, self._layouts[0]):
            return None
        return [*self.release_whole_row(), Remains(line)]

    def has_whole(self, rows: Rows) -> bool:
        """Return whether one of the last rows, or what is held, is a whole row."""
        held = () if self.held is None else (self.held.row,)
        return any(isinstance(row, RowLine) for row in (*rows, *held))

    def release_whole_row(self) -> Rows:
        """Return the whole row that is held: it did not go on.

        The beginning of one stays held: between two pieces may be lines of others.
        """
        is_whole = self.held is not None and self.held.row is not None
        return self.release_held() if is_whole else ()

    def release_held(self, before: RowLine | None = None) -> Rows:
        """Return what is held, whole or damaged, and hold nothing. `before`: the row that follows.

        A single word above a whole row may be the name of a host, and nothing of the table: where
        debug text tore the line, it ends in UNREADABLE.
        """
        held = self.held
        self.held = None
        if held is None:
            return ()
        if held.row is not None:
            return (held.row,)
        text = held.line.text.strip()
        is_word = text.endswith(UNREADABLE) and " " not in text
        is_host = before is not None and is_word
        return () if is_host else (Remains(held.line),)

    def _whole(self, line: Line) -> RowLine | None:
        """Return the row that a line is by itself; None if it is none.

        The rest of a row may look like one where numbers may belong to the name of a host, before
        UNREADABLE: then its figures have to be plausible.
        """
        row = whole_row(line, self._layouts)
        is_behind_name = self.held is not None and self.held.line.text.endswith(UNREADABLE)
        if row is not None and is_behind_name and not sample(row).is_plausible():
            return None
        return row

    def _return_or_hold(self, row: RowLine) -> Rows:
        """Return a row; hold it if what follows may be the rest of its last number."""
        is_open = has_open_end(row)
        self.held = Held(row.line, row) if is_open else None
        return () if is_open else (row,)

    def _joined(self, line: Line, alone: RowLine | None) -> Rows | None:
        """Append a line to what is held: return the row that it completes.

        Empty: more of the row is to come. None: the line does not go on with it. `alone`: the row
        that the line is by itself.
        """
        held = self.held
        if held is None:
            return None
        if held.row is not None and not _WORD.fullmatch(line.text):
            return None  # what goes on behind a whole row is the rest of its last number
        candidates = self._candidates(held, line.text)
        read = (whole_row(candidate, self._layouts) for candidate in candidates)
        rows = [row for row in read if row is not None]
        whole = [row for row in rows if sample(row).is_plausible()]
        if len({row.cells for row in whole}) == 1:
            return self._return_or_hold(whole[0])
        # Several rows: which one was printed is not known.
        if whole or alone is not None or held.row is not None:
            return None
        beginnings = (piece for piece in candidates if self._may_begin_row(piece.text))
        begun = next(beginnings, None)
        if begun is None or len(begun.text) > _LONGEST:
            return None
        self.held = Held(begun)  # a row in three pieces or more
        return ()

    def _candidates(self, held: Held, text: str) -> Sequence[Line]:
        """Return what is held with a line behind it; with a blank between them, too, if need be."""
        before = held.line.text
        glued = held.line._replace(text=before + text)
        if held.row is not None or self._may_begin_row(glued.text):
            return [glued]
        return [glued, held.line._replace(text=f"{before} {text}")]

    def _may_begin_row(self, text: str) -> bool:
        """Return whether a line may be the beginning of a torn row.

        The end of its last cell may be that of a host's name, where UNREADABLE stands behind it.
        """
        may_be_name = text.endswith(UNREADABLE) and text.lstrip()[0].isdigit()
        return may_be_name or begins_row(text, self._layouts)
