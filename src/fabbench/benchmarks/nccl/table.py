"""One table of nccl-tests: its rows are checked against each other, and torn rows are joined or reported. Pure.

NCCL's debug text interrupts the table in mid-row; what precedes and what follows it are pieces of one row. Pieces are
joined as they are, or with a blank where a launcher removed one, and the result must be a complete row with consistent
figures; otherwise the pieces are reported as damaged.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fabbench.benchmarks import UNREADABLE, Shortcut, consistency
from fabbench.benchmarks.consistency import ALL_REDUCE, GATHERING, SAME, BandwidthFormula, Formula
from fabbench.benchmarks.nccl.rows import Layout, Row, RowReader
from fabbench.model.log import Damaged, Point

_OLD, _UNSIZED = BandwidthFormula("n", "1"), BandwidthFormula("", "n")


class Collective(NamedTuple):
    """The rows that a program prints."""

    shapes: tuple[BandwidthFormula, ...]
    reduces: bool = False
    rooted: bool = False
    in_place_checked: bool = True  # or its data are checked out of place only (nccl-tests' reportErrors)


COLLECTIVES: Mapping[str, Collective] = {
    "all_reduce": Collective((ALL_REDUCE,), reduces=True),
    # Up to 2.0.0 one rank's own share was not counted.
    "all_gather": Collective((GATHERING, _OLD)),
    "reduce_scatter": Collective((GATHERING, _OLD), reduces=True),
    "alltoall": Collective((GATHERING,), in_place_checked=False),
    # The bytes are those of the rank with the most data: the size does not determine them.
    "alltoallv": Collective((_UNSIZED,)),
    "broadcast": Collective((SAME,), rooted=True),
    "reduce": Collective((SAME,), reduces=True, rooted=True),
    "gather": Collective((GATHERING,), rooted=True),
    "scatter": Collective((GATHERING,), rooted=True),
    "sendrecv": Collective((SAME,), reduces=True, in_place_checked=False),
    "hypercube": Collective((_OLD,)),
}  # the programs, with the source lines that define their formulas: docs/formats.md
_ANY = Collective((ALL_REDUCE, GATHERING, SAME, _OLD))
_ROWS_TO_SETTLE = 64
_LONGEST = 4096  # characters of a row in pieces


def shapes(case: str | None) -> tuple[BandwidthFormula, ...]:
    """Return the formulas of a collective; of any if it is None."""
    return COLLECTIVES.get(case or "", _ANY).shapes


class Held(NamedTuple):
    """What may go on in the next line."""

    number: int  # of its first line
    text: str  # before UNREADABLE, its last characters may belong to the name of a host
    row: Row | None = None  # if it is complete


class Table:
    """Reads the lines of one table into `points`. What could not be read is in `damaged`.

    `context` returns case and ranks, as far as they are stated.
    """

    def __init__(self, layout: Layout, context: Callable[[], tuple[str | None, int | None]]) -> None:
        self.points: list[Point] = []
        self.damaged: list[Damaged] = []
        self.checked: bool | None = None
        self.wrong = 0  # number of sides that report wrong data
        self.closed = False  # whether the closing lines were read: what follows is no row, unless it is a complete one
        self.layout = layout
        self._context = context
        self._rows = RowReader(layout)
        self.formula: Formula | None = None  # None: not settled, or the rows fit no known one
        self._unsettled: list[tuple[int, str, Row, int]] | None = []  # with the number of points before each
        self._multiple: int | None = None  # the usual ratio of size to count; None: it is not known, or there is none
        self.held: Held | None = None

    def accept(self, number: int, text: str, row: Row) -> Sequence[Point]:
        """Add a complete row; return its points, unless it contradicts those above."""
        if self._unsettled is not None:
            self._unsettled.append((number, text, row, len(self.points)))
        elif not self._fits(row):
            self.damage(number, text)
            return ()
        self.points += row.points
        self.wrong += row.wrong
        self.checked = row.checked or bool(self.checked)
        if self._unsettled is not None and len(self._unsettled) == _ROWS_TO_SETTLE:
            self.settle()
        return row.points

    def settle(self) -> None:
        """Choose the formula that the rows so far fit, and take back those that do not."""
        rows, self._unsettled = self._unsettled or [], None
        if not rows:
            return
        case, ranks = self._context()
        self._multiple = None if case == "alltoallv" else rows[0][2].multiple
        for self.formula in (shape.of(ranks) for shape in shapes(case) if ranks is not None and self._multiple != 0):
            if all(self._fits(row) for _, _, row, _ in rows):
                return  # as nearly always
        counts = Counter(row.multiple for _, _, row, _ in rows if row.multiple > 0)
        if case != "alltoallv":
            self._multiple = max(counts, key=lambda each: counts[each], default=0)
        self.formula = consistency.choose_formula(
            [consistency.ratios(row.size, *side) for _, _, row, _ in rows for side in row.sides], shapes(case), ranks
        )
        for number, text, row, at in reversed(rows):
            if not self._fits(row):
                self.damage(number, text)
                del self.points[at : at + len(row.points)]

    def _fits(self, row: Row) -> bool:
        """Return whether a row has the formula, and the usual ratio of size and count, unless both are zero."""
        usual = self._multiple
        if usual is not None and (row.size != row.unit * usual if usual else row.multiple < 0):
            return False
        return self.formula is None or self.formula.agrees(row.size, row.sides)

    def damage(self, number: int, text: str) -> None:
        """Note a row that cannot be read."""
        self.damaged.append(Damaged(number, " ".join(text.split())))

    def shortcut(self) -> Shortcut | None:
        """Return a fast path for whole rows; None while the last line may go on."""
        if self.held is not None:
            return None
        reader, accept = self._rows.read, self.accept

        def read(text: str, number: int) -> Sequence[Point] | None:
            row = reader(text.split())
            return None if row is None or row.open_end else accept(number, text, row)

        return read

    def feed(self, number: int, text: str) -> tuple[Sequence[Point], bool]:
        """Read one line: return the points of rows it completes, and whether it was part of the table."""
        tokens, held = text.split(), self.held
        row = self._rows.read(tokens)
        if held is not None and held.text.endswith(UNREADABLE) and row is not None and not row.is_plausible():
            row = None  # the rest of a row may look like one
        if held is not None and (joined := self._join(held, text, row)) is not None:
            return joined, True
        begins = row is not None or (not self.closed and self._starts(text))
        # Between two pieces of a row there may be lines of others.
        points = self.release(row) if begins or (held is not None and held.row is not None) else ()
        if row is not None:
            points = [*points, *self._hold(number, text, row)]
        elif begins:
            self.held = Held(number, text)
        elif not self.closed and len(tokens) > 2 and consistency.is_remains(tokens, self._rows.patterns):
            self.damage(number, text)
        else:
            return points, False
        return points, True

    def release(self, by: Row | None = None) -> Sequence[Point]:
        """End what is held: return the points of a complete row, report anything else. `by`: the row that follows."""
        held, self.held = self.held, None
        if held is None:
            return ()
        if held.row is not None:
            return self.accept(held.number, held.text, held.row)
        if by is None or " " in held.text.strip() or not held.text.endswith(UNREADABLE):  # or it was only a host's name
            self.damage(held.number, held.text)
        return ()

    def _hold(self, number: int, text: str, row: Row) -> Sequence[Point]:
        """Accept a row, unless what follows may be the rest of its last number."""
        self.held = Held(number, text, row) if row.open_end else None
        return () if row.open_end else self.accept(number, text, row)

    def _join(self, held: Held, text: str, alone: Row | None) -> Sequence[Point] | None:
        """Append a line to what is held: return the points of a row that it completes; None: it does not go on."""
        candidates = [held.text + text]
        if held.row is None and not self._starts(candidates[0]):
            candidates.append(f"{held.text} {text}")
        rows = [(candidate, self._rows.read(candidate.split())) for candidate in candidates]
        whole = [(candidate, row) for candidate, row in rows if row is not None and row.is_plausible()]
        # What goes on behind a whole row is the rest of its last number.
        if held.row is not None and (text[:1].isspace() or len(text.split()) != 1):
            whole = []
        if whole and all(row == whole[0][1] for _, row in whole):
            return self._hold(held.number, *whole[0])
        begun = next((candidate for candidate in candidates if self._starts(candidate)), None)
        if whole or alone is not None or held.row is not None or begun is None or len(begun) > _LONGEST:
            return None
        self.held = Held(held.number, begun)
        return ()

    def _starts(self, text: str) -> bool:
        """Return whether a line may be the beginning of a torn row; the end of its last cell may be that of a name."""
        return self._rows.starts(text.split()) or (text.endswith(UNREADABLE) and text.lstrip()[0].isdigit())
