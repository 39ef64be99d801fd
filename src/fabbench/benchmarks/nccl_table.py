"""One nccl-tests table while it is read: torn rows put together again, or reported. Pure.

NCCL's debug text stops the table's printer in mid-row; what stood before it and what comes after are pieces
of one row. Pieces are joined as they stand, or with a blank where a launcher took one, and the result must
be a whole row whose figures fit each other; else the pieces are reported as damaged.
"""

import re

from fabbench.benchmarks import Shortcut
from fabbench.benchmarks.nccl_arithmetic import plausible
from fabbench.benchmarks.nccl_rows import Layout, Row, RowReader, starts_row
from fabbench.debug import UNREADABLE
from fabbench.model import Damaged, Point

# In-place only (trace replay): the out-of-place half is 32 blanks (writeBenchMarkLineNullBody).
_BLANK_HALF = re.compile(r"\S {30,}\S")
_MOST_PIECES = 64
_REST = re.compile(r"[\d.:e+-]+|N?/?A?|[a-z][a-z_0-9]*", re.ASCII)


class Table:
    """Takes the lines of one table, gives its rows. What could not be read is in `damaged`."""

    def __init__(self, layout: Layout) -> None:
        self.damaged: list[Damaged] = []
        self._rows = RowReader(layout)
        self._pieces: list[str] = []
        self._began = 0
        self._held: tuple[int, str, Row] | None = None
        self._doubt: Damaged | None = None

    def feed(self, number: int, text: str) -> tuple[list[Row], bool]:
        """Read one line: the rows that are whole now, and whether the line was a part of the table."""
        tokens = text.split()
        if not self._pieces and self._held is None and self._doubt is None:
            row = self._rows.read(tokens)
            if row is not None and not row.open_end:
                return [row], True
        if not tokens:
            self._pieces += [text] if self._pieces and text else []
            return [], True
        if text.endswith(UNREADABLE) and (self._pieces or tokens[0][0].isdigit()):
            return self._give_up(number, text), True
        if self._held is not None and self._lengthen(text, tokens):
            return [], True
        rows = self.flush_held()
        if self._pieces:
            joined = self._join(text, tokens)
            if joined is not None:
                return rows + joined, True
        return self._fresh(number, text, tokens, rows)

    def shortcut(self, points: list[Point]) -> Shortcut | None:
        """Give a quick way to read plain rows into `points`; None while pieces or a row are kept."""
        if self._pieces or self._held is not None or self._doubt is not None:
            return None
        return self._rows.shortcut(points)

    @property
    def holds_row(self) -> bool:
        """Whether a whole row is held back."""
        return self._held is not None

    def flush(self) -> list[Row]:
        """End of the table: give the row that was held back, report pieces that stayed alone."""
        rows = self.flush_held()
        if self._pieces:
            self._report(self._began, "".join(self._pieces))
            self._pieces = []
        if self._doubt is not None:
            self.damaged.append(self._doubt)
            self._doubt = None
        return rows

    def flush_held(self) -> list[Row]:
        """Give the row that was held back because its last number might go on."""
        held, self._held = self._held, None
        return [held[2]] if held else []

    def _report(self, number: int, text: str) -> None:
        self.damaged.append(Damaged(number, " ".join(text.split())))

    def _give_up(self, number: int, text: str) -> list[Row]:
        """Take a piece whose end cannot be told from a host's name: what follows may be the row's rest."""
        number = self._began if self._pieces else number
        text = "".join([*self._pieces, text])
        self._pieces = []
        rows = self.flush()
        self._doubt = Damaged(number, " ".join(text.split()))
        return rows

    def _rest_of_doubt(self, doubt: Damaged, row: Row | None, tokens: list[str]) -> bool:
        """Tell whether a line is the rest of a row that cannot be read, which may look like another row."""
        if row is None and not all(map(_REST.fullmatch, tokens)):
            return False
        self._doubt = None
        whole = row is not None and self._plausible(row)
        if not whole or " " in doubt.text:
            self.damaged.append(doubt)
        return not whole

    def _fresh(self, number: int, text: str, tokens: list[str], rows: list[Row]) -> tuple[list[Row], bool]:
        """Read a line that continues nothing. `rows` are whole already."""
        row = self._rows.read(tokens)
        if row is None and _BLANK_HALF.search(text):
            row = self._rows.read(tokens, in_place_only=True)
        if self._doubt is not None and self._rest_of_doubt(self._doubt, row, tokens):
            return rows, True
        if row is not None:
            return rows + self._hold(number, text, row), True
        if self._starts(tokens):
            self._pieces, self._began = [text], number
            return rows, True
        return rows, False

    def _plausible(self, row: Row) -> bool:
        return plausible(row, self._rows.layout.rounding)

    def _starts(self, tokens: list[str]) -> bool:
        return starts_row(tokens, self._rows.layout)

    def _hold(self, number: int, text: str, row: Row) -> list[Row]:
        """Keep a row back if what follows may be the rest of its last number."""
        if not row.open_end:
            return [row]
        self._held = (number, text, row)
        return []

    def _lengthen(self, text: str, tokens: list[str]) -> bool:
        """Join a lone number to the last one of the row that is held back, if it fits."""
        if self._held is None or len(tokens) != 1 or text[:1].isspace():
            return False
        row = self._rows.read((self._held[1] + text).split())
        if row is None or not self._plausible(row):
            return False
        self._held = (self._held[0], self._held[1] + text, row)
        return True

    def _join(self, text: str, tokens: list[str]) -> list[Row] | None:
        """Continue the pieces with a line: rows made whole (or none yet); None: it is no continuation."""
        so_far = "".join(self._pieces)
        candidates = [so_far + text]
        if not self._starts(candidates[0].split()):
            candidates.append(f"{so_far} {text}")
        read = [(candidate, self._rows.read(candidate.split())) for candidate in candidates]
        whole = [(candidate, row) for candidate, row in read if row is not None and self._plausible(row)]
        if whole and all(row == whole[0][1] for _, row in whole):
            self._pieces = []
            return self._hold(self._began, *whole[0])
        if whole or self._rows.read(tokens) is not None or len(self._pieces) >= _MOST_PIECES:
            self.flush()
            return None
        for candidate in candidates:
            if self._starts(candidate.split()):
                self._pieces = [candidate]
                return []
        if self._starts(tokens):
            self.flush()
        return None
