"""One table of nccl-tests: its rows are checked against each other, and torn rows are joined or reported. Pure.

NCCL's debug text interrupts the table in mid-row; what precedes and what follows it are pieces of one row. Pieces are
joined as they are, or with a blank where a launcher removed one, and the result must be a complete row with consistent
figures; otherwise the pieces are reported as damaged.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fabbench.benchmarks import UNREADABLE, Shortcut
from fabbench.benchmarks.consistency import (
    ALL_REDUCE,
    GATHERING,
    SAME,
    BandwidthFormula,
    Formula,
    choose_formula,
    is_damaged_row,
    ratios,
)
from fabbench.benchmarks.nccl.rows import Layout, Row, RowReader
from fabbench.model.log import Damaged, Point
from fabbench.model.patterns import lazy

_OLD, _UNSIZED = BandwidthFormula("n", "1"), BandwidthFormula("", "n")
_SHAPES: Mapping[str, tuple[BandwidthFormula, ...]] = {
    "all_reduce": (ALL_REDUCE,),
    # Up to 2.0.0 one rank's own share was not counted.
    "all_gather": (GATHERING, _OLD),
    "reduce_scatter": (GATHERING, _OLD),
    "alltoall": (GATHERING,),
    "scatter": (GATHERING,),
    "gather": (GATHERING,),
    "broadcast": (SAME,),
    "reduce": (SAME,),
    "sendrecv": (SAME,),
    "hypercube": (_OLD,),
    # The bytes are those of the rank with the most data: the size does not determine them.
    "alltoallv": (_UNSIZED,),
}
"""The formulas by program, with the source lines that define them: docs/formats.md."""
_ALL = (ALL_REDUCE, GATHERING, SAME, _OLD)
_ROWS_TO_SETTLE = 64
# In-place only (trace replay): the out-of-place half is 32 blanks (writeBenchMarkLineNullBody).
_BLANK_HALF = lazy(r"\S {30,}\S")
_LONGEST = 4096  # characters of a row in pieces
_REST = lazy(r"[\d.:e+-]+|N?/?A?|[a-z][a-z_0-9]*", re.ASCII)


def shapes(case: str | None) -> tuple[BandwidthFormula, ...]:
    """Return the formulas of a collective; of any if it is None."""
    return _SHAPES.get(case or "", _ALL)


class _Held(NamedTuple):
    """What may go on in the next line."""

    number: int  # of its first line
    text: str
    row: Row | None = None  # if it is complete


def _agrees(row: Row, formula: Formula) -> bool:
    share, bus = formula
    moved = row.size * share if share is not None else 0  # 0: says nothing
    for (_, low, high), (_, rate_low, rate_high), (_, bus_low, bus_high) in row.sides:
        if moved and (low * rate_low > moved or high * rate_high < moved):
            return False
        if bus is not None and (rate_low * bus > bus_high or rate_high * bus < bus_low):
            return False
    return True


class Table:
    """Reads the lines of one table into `points`. What could not be read is in `damaged`.

    `context` returns case and ranks, as far as they are stated.
    """

    def __init__(self, layout: Layout, context: Callable[[], tuple[str | None, int | None]]) -> None:
        self.points: list[Point] = []
        self.damaged: list[Damaged] = []
        self.checked: bool | None = None
        self.wrong = 0  # number of sides that report wrong data
        self.formula: Formula | None = None  # None: not settled, or the rows fit no known one
        self.unexplained = False  # whether there were rows that fit no known formula
        self.closed = False  # whether the closing lines were read: what follows is no row, unless it is a complete one
        self._context = context
        self._rows = RowReader(layout)
        self._settled, self._multiple, self._uneven = False, 0, False
        self._unsettled: list[tuple[int, str, Row, int]] = []  # with the number of points before each
        self._held: _Held | None = None
        self._unsure: Damaged | None = None  # the end of a row's first piece may be part of a host name

    # ---------------------------------------------------------------- rows

    def accept(self, number: int, text: str, row: Row) -> Sequence[Point]:
        """Add a complete row; return its points, unless it contradicts those above."""
        if not self._settled:
            self._unsettled.append((number, text, row, len(self.points)))
        elif not self._fits(row):
            self.damage(number, text)
            return ()
        self.points += row.points
        self.wrong += row.wrong
        self.checked = row.checked or bool(self.checked)
        if len(self._unsettled) == _ROWS_TO_SETTLE:
            self.settle()
        return row.points

    def settle(self) -> None:
        """Choose the formula that the rows so far fit, and take back those that do not."""
        if self._settled:
            return
        rows, self._unsettled, self._settled = self._unsettled, [], True
        case, ranks = self._context()
        self._uneven = case == "alltoallv"
        counts = Counter(row.multiple for _, _, row, _ in rows if row.multiple > 0)
        self._multiple = max(counts, key=lambda each: counts[each]) if counts and not self._uneven else 0
        stated = [shape.of(ranks) for shape in shapes(case)] if ranks is not None else []
        for formula in stated:  # as choose_formula finds it, but quickly
            if all(_agrees(row, formula) for _, _, row, _ in rows):
                self.formula = formula
                break
        else:
            allowed = [ratios(row.size, *side) for _, _, row, _ in rows for side in row.sides]
            self.formula = choose_formula(allowed, shapes(case), ranks) if rows else None
        self.unexplained = bool(rows) and self.formula is None
        for number, text, row, at in reversed(rows):
            if not self._fits(row):
                self.damage(number, text)
                del self.points[at : at + len(row.points)]

    def _fits(self, row: Row) -> bool:
        size, unit, multiple = row.size, row.unit, self._multiple
        if unit * multiple != size if multiple else not self._uneven and row.multiple < 0:
            return False
        return self.formula is None or _agrees(row, self.formula)

    def damage(self, number: int, text: str) -> None:
        """Note a row that cannot be read."""
        self.damaged.append(Damaged(number, " ".join(text.split())))

    # ---------------------------------------------------------------- lines

    def shortcut(self) -> Shortcut | None:
        """Return a fast path for whole rows; None while the last line may go on."""
        if self.holds:
            return None
        reader, accept = self._rows.read, self.accept

        def read(text: str, number: int) -> Sequence[Point] | None:
            row = reader(text.split())
            return None if row is None or row.open_end else accept(number, text, row)

        return read

    @property
    def holds(self) -> bool:
        """Whether the last line may go on."""
        return self._held is not None or self._unsure is not None

    @property
    def holds_row(self) -> bool:
        """Whether a complete row is held."""
        return self._held is not None and self._held.row is not None

    def feed(self, number: int, text: str) -> tuple[Sequence[Point], bool]:
        """Read one line: return the points of rows it completes, and whether it was part of the table."""
        tokens = text.split()
        row, held = self._rows.read(tokens), self._held
        if row is not None and not row.open_end and not self.holds:
            return self.accept(number, text, row), True
        if not tokens:
            if held is not None and held.row is None and len(held.text) < _LONGEST:
                self._held = held._replace(text=held.text + text)
            return (), True
        begun = held if held is not None and held.row is None else None
        if text.endswith(UNREADABLE) and (begun is not None or tokens[0][0].isdigit()):
            if begun is not None:
                number, text, self._held = begun.number, begun.text + text, None
            points = self.release()
            self._unsure = Damaged(number, " ".join(text.split()))
            return points, True
        points = ()
        if held is not None:
            joined = self._extend(held, text, tokens) if begun is None else self._join(held, text, tokens, row)
            if joined is not None:
                return joined, True
            points = self.release() if begun is None else ()
        read, mine = self._begin(number, text, tokens, row)
        return [*points, *read], mine

    def release(self) -> Sequence[Point]:
        """End what is held: return the points of a complete row, report anything else."""
        held, self._held = self._held, None
        if self._unsure is not None:
            self.damaged.append(self._unsure)
            self._unsure = None
        if held is not None and held.row is not None:
            return self.accept(held.number, held.text, held.row)
        if held is not None:
            self.damage(held.number, held.text)
        return ()

    def _hold(self, number: int, text: str, row: Row) -> Sequence[Point]:
        """Accept a row, unless what follows may be the rest of its last number."""
        if not row.open_end:
            self._held = None
            return self.accept(number, text, row)
        self._held = _Held(number, text, row)
        return ()

    def _extend(self, held: _Held, text: str, tokens: list[str]) -> Sequence[Point] | None:
        """Append a lone number to the last one of a complete row, if it fits."""
        row = self._rows.read((held.text + text).split()) if len(tokens) == 1 and not text[0].isspace() else None
        if row is None or not row.is_plausible():
            return None
        self._held = _Held(held.number, held.text + text, row)
        return ()

    def _join(self, held: _Held, text: str, tokens: list[str], alone: Row | None) -> Sequence[Point] | None:
        """Append a line to pieces: return the points of a row that it completes; None: it is no continuation."""
        candidates = [held.text + text]
        if not self._rows.starts(candidates[0].split()):
            candidates.append(f"{held.text} {text}")
        rows = [(candidate, self._rows.read(candidate.split())) for candidate in candidates]
        whole = [(candidate, row) for candidate, row in rows if row is not None and row.is_plausible()]
        if whole and all(row == whole[0][1] for _, row in whole):
            return self._hold(held.number, *whole[0])
        if not whole and alone is None:
            for candidate in candidates:
                if self._rows.starts(candidate.split()):
                    self._held = _Held(held.number, candidate)
                    return ()
            if not self._rows.starts(tokens):
                return None
        self.release()
        return None

    def _begin(self, number: int, text: str, tokens: list[str], row: Row | None) -> tuple[Sequence[Point], bool]:
        """Read a line that continues nothing and may be a row by itself."""
        if row is None and _BLANK_HALF.search(text):
            row = self._rows.read(tokens, in_place_only=True)
        if self._unsure is not None and (row is not None or all(map(_REST.fullmatch, tokens))):
            # The rest of an unreadable row may look like a row itself; or its first piece was only a host's name.
            piece, self._unsure = self._unsure, None
            whole = row is not None and row.is_plausible()
            if not whole or " " in piece.text:
                self.damaged.append(piece)
            if not whole:
                return (), True
        if row is not None:
            return self._hold(number, text, row), True
        if not self.closed and self._rows.starts(tokens):
            self._held = _Held(number, text)
        elif not self.closed and is_damaged_row(tokens, self._rows.patterns):
            self.damage(number, text)
        else:
            return (), False
        return (), True
