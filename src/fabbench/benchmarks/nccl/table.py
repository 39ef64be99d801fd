"""Rows, headers and tables of nccl-tests, v1.0 to 2.19.

Rows are checked against each other, torn ones joined. Pure.

A row is read by its cells, from the right, because numbers outgrow their columns. The layouts, with
the source lines that print them, are in docs/formats.md. NCCL's debug text interrupts the table in
mid-row; what precedes and what follows it are pieces of one row. Pieces are joined as they are, or
with a blank where a launcher removed one, and the result must be a complete row with consistent
figures; otherwise the pieces are reported as damaged.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from fabbench.benchmarks import UNREADABLE, Shortcut, consistency
from fabbench.benchmarks.consistency import (
    ALL_REDUCE,
    ANYTHING,
    GATHERING,
    SAME,
    BandwidthFormula,
    Formula,
    Printed,
    printed,
    printed_number,
    ratios,
)
from fabbench.model.log import Damaged, Labels, Point
from fabbench.model.patterns import lazy

DTYPE_BYTES: Mapping[str, int] = {
    "int8": 1, "char": 1, "uint8": 1, "int32": 4, "int": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "half": 2, "float": 4, "double": 8, "bfloat16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1,
    "f8e4m3": 1, "f8e5m2": 1,
}  # fmt: skip
"""Bytes of each type name that nccl-tests prints (its `test_typenames`)."""

_CACHE = 1 << 17
_UNCHECKED = -2.0
_NAMES, _new = ("time", "algbw", "busbw", "wrong"), tuple.__new__
_NUMBER = r"(?:0|[1-9]\d*)(?:\.\d+)?(?:e[+-]\d\d\d?)?"
_COUNT, _ERROR = r"0|[1-9]\d*|\d(?:\.\d+)?e\+\d\d\d?", r"\d+e[+-]\d\d+"
_WORD, _INTEGER, _DTYPE = (
    lazy(r"[a-z][a-z_0-9]*"),
    lazy(r"-?\d{1,4}", re.ASCII),
    lazy("|".join(DTYPE_BYTES)),
)
_CELL = lazy(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:e[+-]\d\d+)?|N/A|[a-z]{3,6}|\d{4}-\d\d-\d\d", re.ASCII)
_CUT_CELL = lazy(
    r"-?(?:(?:0|[1-9]\d*)(?:\.\d*)?(?:e[+-]?\d*)?)?|N/?A?|[a-z]{1,6}|\d{4}-[\d-]*|\d\d?:[\d:]*",
    re.ASCII,
)


class _Kind(dict[str, Any]):
    """Cell of a column → what it says; KeyError for any other text."""

    def __init__(self, pattern: str, read: Callable[[str], Any]) -> None:
        super().__init__()
        self.pattern, self._read = lazy(pattern, re.ASCII), read

    def __missing__(self, cell: str) -> Any:
        if not self.pattern.fullmatch(cell):
            raise KeyError(cell)
        if len(self) >= _CACHE:
            self.clear()
        value = self[cell] = self._read(cell)
        return value


def _figures(pattern: str, exponent: int, decimals: int | None = None) -> _Kind:
    """Return the kind of figures in units of 10^exponent. nan and inf have no finite upper bound."""

    def read(cell: str) -> Printed:
        if cell[-1] in "nf":
            return printed(cell)
        number = printed_number(cell, exponent, decimals)
        if number.high == math.inf:
            raise KeyError(cell)
        return number

    return _Kind(pattern + r"|-?nan|-?inf", read)


def _count(cell: str) -> float:
    return _UNCHECKED if cell in {"N/A", "nan"} else float(cell)


def _error(cell: str) -> float:
    """Read a relative error, of which only nan and inf are wrong, or a count.

    -1 if it states none.
    """
    return -1.0 if re.fullmatch(_ERROR, cell) else math.inf if cell[-1] in "nf" else _count(cell)


_WHOLE, _DATES, _CLOCKS = (
    _Kind(r"0|[1-9]\d{0,17}", int),
    _Kind(r"\d{4}-\d\d-\d\d", str),
    _Kind(r"\d\d:\d\d:\d\d", str),
)
_NAME, _CHANNELS = _Kind(r"[A-Z][A-Za-z\d]*|N/A", str.upper), _Kind(r"\d{1,3}|N/A", str)
# Two decimals, except for numbers that do not fit with them.
_RATES = _figures(r"(?:0|[1-9]\d*)\.\d\d|[1-9]\d{3,}(?:\.\d)?|[1-9](?:\.\d)?e\+\d\d\d?", 9)
_TIMES = _figures(r"(?:0|[1-9]\d?)\.\d\d|[1-9]\d{2,}(?:\.\d\d?)?|[1-9](?:\.\d)?e\+\d\d\d?", -6)
_MILLISECONDS, _STATISTICS = _figures(_NUMBER, -3), _figures(_NUMBER, -6)
_EXACT_TIMES, _EXACT_RATES = _figures(_NUMBER, -6, 6), _figures(_NUMBER, 9, 6)
_CHECK_NAMES = {"#wrong": "wrong", "error": "error", "res": "error"}
_SIDE = ("time", "algbw", "busbw", "check")
_STATS = {"i_min": "min", "i_max": "max", "i_p99": "p99", "hipevt": "hip_event"}
_COLUMNS = {
    **{name: name for name in _SIDE},
    "cputime": "time",
    **dict.fromkeys(_CHECK_NAMES, "check"),
    **_STATS,
}
_CHECKS: Mapping[str, _Kind] = {
    "wrong": _Kind(rf"{_COUNT}|N/A", _count),
    "error": _Kind(rf"{_ERROR}|N/A|-?nan|inf", _error),
    "unknown": _Kind(rf"{_ERROR}|{_COUNT}|N/A", _error),
    "exact": _Kind(rf"{_NUMBER}|nan", _count),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The columns of a table, as its header names them."""

    sides: int = 2  # groups of columns: out-of-place and in-place, or one
    columns: tuple[str, ...] = (
        _SIDE  # those of a side; others than these four are statistics, and not read if empty
    )
    placement: str = (
        ""  # that of the only side, if the line above the header names it (rccl-tests' ``-O 0``)
    )
    check: str = "unknown"
    """`wrong`: a count of wrong elements; `error`: a relative error; `unknown`: no header seen; `exact`: a count, and
    all figures have six decimals (JSON)."""
    time: str = "time"
    milliseconds: bool = False
    timestamp: bool = False
    algorithm: bool = (
        False  # whether rows end with algorithm, protocol and channels (rccl-tests' ``-A 1``)
    )
    left: tuple[str, ...] | None = None  # columns between type and time; None: no header seen


def read_header(text: str) -> Layout | None:
    """Read the header line with the column names; None for any other line."""
    words = text.lstrip("# \t").split()
    timed = [at for at, word in enumerate(words) if word in {"time", "cputime"}]
    check = next((_CHECK_NAMES[word] for word in words if word in _CHECK_NAMES), None)
    if (
        not timed
        or words[0] not in {"size", "bytes"}
        or not {"algbw", "type"} <= {*words}
        or check is None
    ):
        return None
    left = tuple(
        "redop" if word == "op" else word for word in words[words.index("type") + 1 : timed[0]]
    )
    last = next((at for at, word in enumerate(words) if word in {"timestamp", "algo"}), None)
    columns = tuple(_COLUMNS.get(word, "") for word in words[timed[0] : [*timed, last][1]])
    if not {*left} <= {"redop", "root"} or not {*_SIDE} <= {*columns}:
        return None
    return Layout(
        sides=min(len(timed), 2),
        check=check,
        columns=columns,
        time="cpu_time" if words[timed[0]] == "cputime" else "time",
        # v1 prints neither (us) nor (ms); its source divides by 1e3 less (all_reduce.cu of v1.0.0).
        milliseconds=words[0] == "bytes",
        timestamp="timestamp" in words,
        algorithm="algo" in words,
        left=left,
    )


Side: TypeAlias = tuple[
    Printed, Printed, Printed
]  # time (ANYTHING if it is not that of the rates), algbw and busbw


class Row(NamedTuple):
    """One complete row."""

    size: int
    unit: int  # bytes of its count
    points: tuple[Point, ...]  # one per side, and one per statistic of -I
    sides: tuple[Side, ...]
    checked: bool = False  # whether a side states the result of a data check
    wrong: int = 0  # number of sides that report wrong data
    open_end: bool = False  # whether the last number may continue after a tear

    @property
    def multiple(self) -> int:
        """The size as a multiple of `unit`; 0: both are zero; -1: it is not a multiple."""
        if not self.size and not self.unit:
            return 0
        return (
            self.size // self.unit if self.unit and self.size and self.size % self.unit == 0 else -1
        )

    def is_plausible(self) -> bool:
        """Return whether a row that was joined from pieces fits some formula on some number of ranks."""
        if self.multiple < 0:
            return False
        for side in self.sides:
            low, high, bus_low, bus_high = ratios(self.size, *side)
            # One rank has a busbw of 0.
            if low > 1 or high < 0.5 or bus_low > 2 or (bus_high < 0.5 and side[2].value):
                return False
        return True


class RowReader:
    """Reads the rows of one table."""

    def __init__(self, layout: Layout) -> None:
        self._layout, exact = layout, layout.check == "exact"
        self.algorithms: dict[str, int] = {}  # with the channels of the last row of each
        self._usual = layout == Layout(check=layout.check, left=layout.left) and layout.check in {
            "wrong",
            "unknown",
        }
        time = _EXACT_TIMES if exact else _MILLISECONDS if layout.milliseconds else _TIMES
        rate = _EXACT_RATES if exact else _RATES
        known = {"time": time, "algbw": rate, "busbw": rate, "check": _CHECKS[layout.check]}
        side = [known.get(name, _STATISTICS) for name in layout.columns]
        ends = ((_DATES, _CLOCKS) if layout.timestamp else ()) + (
            (_NAME, _NAME, _CHANNELS) if layout.algorithm else ()
        )
        self._kinds: tuple[_Kind, ...] = (*side * layout.sides, *ends)
        left = (_WORD if name == "redop" else _INTEGER for name in layout.left or ())
        # Those of the cells of a complete row.
        self.patterns = (
            *(_WHOLE.pattern,) * 2,
            _DTYPE,
            *left,
            *(kind.pattern for kind in self._kinds),
        )
        self._kept: dict[
            tuple[str, ...], tuple[int, Labels, Labels]
        ] = {}  # by the cells between count and time

    def read(self, tokens: list[str]) -> Row | None:
        """Read the cells of a row; None if they are not a complete row of this table."""
        if (
            len(tokens) == 13 and self._usual and tokens[8] == "0" == tokens[12]
        ):  # nearly every row: for speed
            size_, count, dtype, redop, root, time_, algbw_, busbw_, _, again, algbw2, busbw2, _ = (
                tokens
            )
            try:
                width, out_of_place, in_place = self._kept[dtype, redop, root]
                size, unit = _WHOLE[size_], _WHOLE[count] * width
                one = time, algbw, busbw = _TIMES[time_], _RATES[algbw_], _RATES[busbw_]
                two = _TIMES[again], _RATES[algbw2], _RATES[busbw2]
            except KeyError:
                pass
            else:
                if time[2] + algbw[2] + busbw[2] + two[0][2] + two[1][2] + two[2][2] < math.inf:
                    points = (
                        _new(
                            Point, (size, out_of_place, _NAMES, (time[0], algbw[0], busbw[0], 0.0))
                        ),
                        _new(
                            Point, (size, in_place, _NAMES, (two[0][0], two[1][0], two[2][0], 0.0))
                        ),
                    )
                    return _new(Row, (size, unit, points, (one, two), True, 0, False))
        first = len(tokens) - len(self._kinds)
        if not 3 <= first <= 5:
            return None
        between = tuple(tokens[2:first])
        try:
            width, out_of_place, in_place = self._kept.get(between) or self._keep(between)
            size, unit = _WHOLE[tokens[0]], _WHOLE[tokens[1]] * width
            values = [kind[cell] for kind, cell in zip(self._kinds, tokens[first:], strict=True)]
        except KeyError:
            return None
        return self._row(size, unit, (out_of_place, in_place)[: self._layout.sides], values)

    def _row(self, size: int, unit: int, labels: Sequence[Labels], values: list[Any]) -> Row:
        layout, points, sides, checks = self._layout, list[Point](), list[Side](), list[float]()
        for at, placed in enumerate(labels):
            statistics = dict(zip(layout.columns, values[at * len(layout.columns) :], strict=False))
            time, algbw, busbw, check = (statistics.pop(name) for name in _SIDE)
            figures = ((layout.time, time), ("algbw", algbw), ("busbw", busbw))
            known = {name: figure.value for name, figure in figures if figure.high < math.inf}
            if check >= 0 and layout.check != "error":
                known["wrong"] = check
            points.append(Point(size, placed, tuple(known), tuple(known.values())))
            for stat, each in statistics.items():
                if stat and each.high < math.inf:
                    points.append(Point(size, {**placed, "stat": stat}, ("time",), (each.value,)))
            # With -C the printed time is not that of the rates.
            sides.append((time if layout.time == "time" else ANYTHING, algbw, busbw))
            checks.append(check)
        # Statistics have as many decimals as fit; the ends of a date, a 0 and N/A are unambiguous.
        open_end = layout.algorithm or (
            not layout.timestamp and (layout.columns[-1] != "check" or checks[-1] > 0)
        )
        if layout.algorithm and values[-1].isdigit():
            self.algorithms["/".join(values[-3:-1])] = int(values[-1])
        wrong, checked = (
            sum(check > 0 for check in checks),
            any(check != _UNCHECKED for check in checks),
        )
        return Row(size, unit, tuple(points), tuple(sides), checked, wrong, open_end)

    def _keep(self, between: tuple[str, ...]) -> tuple[int, Labels, Labels]:
        """Read type, redop and root; redop may be blank, and either may be missing.

        Raise KeyError.
        """
        dtype, *rest = between
        root = rest.pop() if rest and _INTEGER.fullmatch(rest[-1]) else ""
        redop = rest.pop() if rest and _WORD.fullmatch(rest[-1]) else ""
        expected = self._layout.left
        known = expected is None or (
            bool(root) == ("root" in expected) and (not redop or "redop" in expected)
        )
        if rest or not known:
            raise KeyError(between)
        first = "out-of-place" if self._layout.sides == 2 else self._layout.placement
        named = (
            {"placement": each, "dtype": dtype, "redop": redop, "root": root}
            for each in (first, "in-place")
        )
        out_of_place, in_place = (
            {name: label for name, label in each.items() if label} for each in named
        )
        kept = self._kept[between] = (DTYPE_BYTES[dtype], out_of_place, in_place)
        return kept

    def starts(self, tokens: list[str]) -> bool:
        """Return whether these cells may be the beginning of a torn row (its last cell cut off)."""
        if not 0 < len(tokens) <= 5 + len(self._kinds) or not all(
            map(_WHOLE.pattern.fullmatch, tokens[:2])
        ):
            return False
        if len(tokens) <= 3:
            return len(tokens) < 3 or any(name.startswith(tokens[2]) for name in DTYPE_BYTES)
        inner, last = tokens[3:-1], tokens[-1]
        return (
            tokens[2] in DTYPE_BYTES
            and all(map(_CELL.fullmatch, inner))
            and bool(_CUT_CELL.fullmatch(last))
        )


_OLD, _UNSIZED = BandwidthFormula("n", "1"), BandwidthFormula("", "n")


class Collective(NamedTuple):
    """The rows that a program prints."""

    shapes: tuple[BandwidthFormula, ...]
    reduces: bool = False
    rooted: bool = False
    in_place_checked: bool = (
        True  # or its data are checked out of place only (nccl-tests' reportErrors)
    )


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
ANY = Collective((ALL_REDUCE, GATHERING, SAME, _OLD))
_ROWS_TO_SETTLE = 64
_LONGEST = 4096  # characters of a row in pieces


class Held(NamedTuple):
    """What may go on in the next line."""

    number: int  # of its first line
    text: str  # before UNREADABLE, its last characters may belong to the name of a host
    row: Row | None = None  # if it is complete


class Table:
    """Reads the lines of one table into `points`. What could not be read is in `damaged`.

    `context` returns case and ranks, as far as they are stated.
    """

    def __init__(
        self, layout: Layout, context: Callable[[], tuple[str | None, int | None]]
    ) -> None:
        self.points: list[Point] = []
        self.damaged: list[Damaged] = []
        self.checked: bool | None = None
        self.wrong = 0  # number of sides that report wrong data
        # whether the closing lines were read: what follows is no row, unless it is a complete one
        self.closed = False
        self.layout = layout
        self._context = context
        self.rows = RowReader(layout)
        self.formula: Formula | None = None  # None: not settled, or the rows fit no known one
        self._unsettled: (
            list[tuple[int, str, Row, int]] | None
        ) = []  # with the number of points before each
        self._multiple: int | None = (
            None  # the usual ratio of size to count; None: it is not known, or there is none
        )
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
        shapes = COLLECTIVES.get(case or "", ANY).shapes
        self._multiple = None if case == "alltoallv" else rows[0][2].multiple
        for self.formula in (
            shape.of(ranks) for shape in shapes if ranks is not None and self._multiple != 0
        ):
            if all(self._fits(row) for _, _, row, _ in rows):
                return  # as nearly always
        counts = Counter(row.multiple for _, _, row, _ in rows if row.multiple > 0)
        if case != "alltoallv":
            self._multiple = max(counts, key=lambda each: counts[each], default=0)
        self.formula = consistency.choose_formula(
            [consistency.ratios(row.size, *side) for _, _, row, _ in rows for side in row.sides],
            shapes,
            ranks,
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
        reader, accept = self.rows.read, self.accept

        def read(text: str, number: int) -> Sequence[Point] | None:
            row = reader(text.split())
            return None if row is None or row.open_end else accept(number, text, row)

        return read

    def feed(self, number: int, text: str) -> tuple[Sequence[Point], bool]:
        """Read one line.

        Return the points of rows it completes, and whether it was part of the table.
        """
        tokens, held = text.split(), self.held
        row = self.rows.read(tokens)
        if (
            held is not None
            and held.text.endswith(UNREADABLE)
            and row is not None
            and not row.is_plausible()
        ):
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
        elif (
            not self.closed
            and len(tokens) > 2
            and consistency.is_remains(tokens, self.rows.patterns)
        ):
            self.damage(number, text)
        else:
            return points, False
        return points, True

    def release(self, by: Row | None = None) -> Sequence[Point]:
        """End what is held: return the points of a complete row, report anything else.

        `by`: the row that follows.
        """
        held, self.held = self.held, None
        if held is None:
            return ()
        if held.row is not None:
            return self.accept(held.number, held.text, held.row)
        if (
            by is None or " " in held.text.strip() or not held.text.endswith(UNREADABLE)
        ):  # or it was only a host's name
            self.damage(held.number, held.text)
        return ()

    def _hold(self, number: int, text: str, row: Row) -> Sequence[Point]:
        """Accept a row, unless what follows may be the rest of its last number."""
        self.held = Held(number, text, row) if row.open_end else None
        return () if row.open_end else self.accept(number, text, row)

    def _join(self, held: Held, text: str, alone: Row | None) -> Sequence[Point] | None:
        """Append a line to what is held: return the points of a row that it completes.

        None: it does not go on.
        """
        candidates = [held.text + text]
        if held.row is None and not self._starts(candidates[0]):
            candidates.append(f"{held.text} {text}")
        rows = [(candidate, self.rows.read(candidate.split())) for candidate in candidates]
        whole = [
            (candidate, row) for candidate, row in rows if row is not None and row.is_plausible()
        ]
        # What goes on behind a whole row is the rest of its last number.
        if held.row is not None and (text[:1].isspace() or len(text.split()) != 1):
            whole = []
        if whole and all(row == whole[0][1] for _, row in whole):
            return self._hold(held.number, *whole[0])
        begun = next((candidate for candidate in candidates if self._starts(candidate)), None)
        if (
            whole
            or alone is not None
            or held.row is not None
            or begun is None
            or len(begun) > _LONGEST
        ):
            return None
        self.held = Held(held.number, begun)
        return ()

    def _starts(self, text: str) -> bool:
        """Return whether a line may be the beginning of a torn row.

        The end of its last cell may be that of a name.
        """
        return self.rows.starts(text.split()) or (
            text.endswith(UNREADABLE) and text.lstrip()[0].isdigit()
        )
