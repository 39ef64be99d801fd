"""Rows and headers of nccl-tests' tables, v1.0 to 2.19. Pure.

A row is read by its tokens, from the right, because numbers outgrow their columns. The layouts, with the
source lines that print them, are in docs/formats.md.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from fabbench.benchmarks import Shortcut
from fabbench.benchmarks.consistency import ANYTHING, Formula, Printed, Ratios, decimal, printed, ratios
from fabbench.model.log import Labels, Point
from fabbench.model.patterns import lazy

DTYPE_BYTES: Mapping[str, int] = {
    "int8": 1, "char": 1, "uint8": 1, "int32": 4, "int": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "half": 2, "float": 4, "double": 8, "bfloat16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1,
    "f8e4m3": 1, "f8e5m2": 1,
}  # fmt: skip
"""Bytes of each type name that nccl-tests prints (its `test_typenames`)."""

_NUMBER = lazy(r"(?:0|[1-9]\d*)(?:\.\d+)?(?:e[+-]\d\d\d?)?", re.ASCII)
# Two decimals, except for numbers that do not fit with them.
_RATE = lazy(r"(?:0|[1-9]\d*)\.\d\d|[1-9]\d{3,}(?:\.\d)?|[1-9](?:\.\d)?e\+\d\d\d?", re.ASCII)
_TIME = lazy(r"(?:0|[1-9]\d?)\.\d\d|[1-9]\d{2,}(?:\.\d\d?)?|[1-9](?:\.\d)?e\+\d\d\d?", re.ASCII)
_COUNT = lazy(r"0|[1-9]\d*|\d(?:\.\d+)?e\+\d\d\d?", re.ASCII)
_WORD = lazy(r"[a-z][a-z_0-9]*", re.ASCII)
_INTEGER = lazy(r"-?\d{1,4}", re.ASCII)
_DATE = lazy(r"\d{4}-\d\d-\d\d", re.ASCII)
_CLOCK = lazy(r"\d\d:\d\d:\d\d", re.ASCII)
_RELATIVE_ERROR = lazy(r"\d+e[+-]\d\d+", re.ASCII)
_DIGITS = lazy(r"0|[1-9]\d{0,17}", re.ASCII)
_CELL = lazy(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:e[+-]\d\d+)?|N/A|[a-z]{3,6}|\d{4}-\d\d-\d\d", re.ASCII)
_CUT_CELL = lazy(r"-?(?:(?:0|[1-9]\d*)(?:\.\d*)?(?:e[+-]?\d*)?)?|N/?A?|[a-z]{1,6}|\d{4}-[\d-]*|\d\d?:[\d:]*", re.ASCII)
_DTYPE = lazy("|".join(DTYPE_BYTES))
_FIGURE = lazy(r"\d+(?:\.\d+)?(?:e[+-]\d\d)?|-?nan|-?inf", re.ASCII)
_NOT_A_NUMBER = frozenset({"nan", "-nan", "inf", "-inf"})
_VERDICT = lazy(r"\d+(?:\.\d+)?(?:e[+-]\d\d)?|N/A", re.ASCII)
_CACHE = 1 << 17
_PLAIN = ("time", "algbw", "busbw", "wrong")
_ONE_DIGIT = 1e15  # bandwidths from here up (B/s) are printed with one digit


class ScaledNumbers(dict[str, Printed]):
    """Token → number in base units; KeyError if it is not a number. Exact: the exponent is added as text."""

    def __init__(self, exponent: int, pattern: re.Pattern[str] = _NUMBER) -> None:
        super().__init__()
        self._exponent = exponent
        self._pattern = pattern

    def __missing__(self, token: str) -> Printed:
        if not self._pattern.fullmatch(token):
            raise KeyError(token)
        if len(self) >= _CACHE:
            self.clear()
        if "e" in token:
            number = printed(token, self._exponent)
        else:
            number = decimal(token, len(token.partition(".")[2]), self._exponent)
        if not math.isfinite(number.high):
            raise KeyError(token)
        self[token] = number
        return number


class WholeNumbers(dict[str, int]):
    """Token → whole number; KeyError if it is not one."""

    def __missing__(self, token: str) -> int:
        if not _DIGITS.fullmatch(token):
            raise KeyError(token)
        if len(self) >= _CACHE:
            self.clear()
        value = self[token] = int(token)
        return value


WHOLE = WholeNumbers()
TIMES, MICROSECONDS, MILLISECONDS = ScaledNumbers(-6, _TIME), ScaledNumbers(-6), ScaledNumbers(-3)
GIGABYTES, PLAIN = ScaledNumbers(9, _RATE), ScaledNumbers(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The columns of a table, as its header names them."""

    sides: int = 2  # groups of time, algbw, busbw and check: out-of-place and in-place, or one
    check: str = "unknown"  # `wrong`: a count of wrong elements; `error`: a relative error; `unknown`: no header seen
    time: str = "time"
    milliseconds: bool = False
    per_iteration: bool = False
    timestamp: bool = False
    placement: str = ""  # placement of the only side, if the line above the header names it (rccl-tests' ``-O 0``)
    left: tuple[str, ...] | None = None  # columns between type and time; None: no header seen

    @property
    def group(self) -> int:
        """Number of tokens of one side."""
        return 8 if self.per_iteration else 4

    @property
    def rounding(self) -> float:
        """Seconds by which printing may round a short time."""
        return 5e-7 if self.milliseconds else 5e-9


def read_header(text: str) -> Layout | None:
    """Read the header line with the column names; None for any other line."""
    words = text.lstrip("# \t").split()
    if not words or words[0] not in {"size", "bytes"}:
        return None
    timed = [word for word in words if word in {"time", "cputime"}]
    if not timed or "algbw" not in words or "type" not in words:
        return None
    checks = {"#wrong": "wrong", "error": "error", "res": "error"}
    check = next((checks[word] for word in words if word in checks), None)
    left = words[words.index("type") + 1 : words.index(timed[0])]
    if check is None or not {*left} <= {"redop", "op", "root"}:
        return None
    return Layout(
        sides=min(len(timed), 2),
        check=check,
        time="cpu_time" if timed[0] == "cputime" else "time",
        # v1 prints neither (us) nor (ms); its source divides by 1e3 less (all_reduce.cu of v1.0.0).
        milliseconds=words[0] == "bytes",
        per_iteration="i_min" in words,
        timestamp="timestamp" in words,
        left=tuple("redop" if word == "op" else word for word in left),
    )


class Row(NamedTuple):
    """One complete row. `points` has one point per side, and one per per-iteration statistic."""

    size: int
    elements: int
    dtype: str
    points: tuple[Point, ...]
    checked: bool  # whether a side states the result of a data check
    wrong: int  # number of sides that report wrong data
    open_end: bool  # whether the last number may continue after a tear
    ratios: tuple[Ratios, ...]


@lru_cache(maxsize=10_000)
def _labels(placement: str, dtype: str, redop: str, root: str) -> Labels:
    """Return the labels for one kind of row: one object, shared by all its points."""
    names = {"placement": placement, "dtype": dtype, "redop": redop, "root": root}
    return {name: value for name, value in names.items() if value}


class RowReader:
    """Reads the rows of one table."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._pairs: dict[tuple[str, ...], tuple[Labels, Labels]] = {}  # by the cells between count and time
        self._tokens = 0
        self._plain = layout.check != "error" and layout == Layout(check=layout.check, left=layout.left)
        """Whether rows have the usual columns."""

    def read(self, tokens: list[str], *, in_place_only: bool = False) -> Row | None:
        """Read the tokens of a row; None if they are not a complete row of this table."""
        plain = self.read_plain(tokens) if len(tokens) == 13 and not in_place_only else None
        return plain or self._read(tokens, in_place_only=in_place_only)

    def _read(self, tokens: list[str], *, in_place_only: bool) -> Row | None:
        layout = self.layout
        tail = 1 if in_place_only else layout.sides
        numbers = tail * layout.group + (2 if layout.timestamp else 0)
        between = len(tokens) - 3 - numbers
        if not 0 <= between <= 2 or tokens[2] not in DTYPE_BYTES:
            return None
        if not (_DIGITS.fullmatch(tokens[0]) and _DIGITS.fullmatch(tokens[1])):
            return None
        left = self._left(tokens[3 : 3 + between])
        stamp = not layout.timestamp or (_DATE.fullmatch(tokens[-2]) and _CLOCK.fullmatch(tokens[-1]))
        if left is None or not stamp:
            return None
        size, key = int(tokens[0]), (tokens[2], *left)
        self._tokens = len(tokens)
        self._pairs[tuple(tokens[2 : 3 + between])] = (_labels("out-of-place", *key), _labels("in-place", *key))
        placements = ("in-place",) if in_place_only else ("out-of-place", "in-place")
        points: list[Point] = []
        allowed: list[Ratios] = []
        checked, wrong, last = False, 0, 0.0
        for side in range(tail):
            at = 3 + between + side * layout.group
            check = tokens[at + 3]
            verdict = self._check(check)
            figures = self._figures(tokens[at : at + 3])
            if verdict is None or figures is None:
                return None
            labels = _labels(placements[side] if layout.sides == 2 else layout.placement, *key)
            names = (layout.time, "algbw", "busbw")
            known = {name: figure.value for name, figure in zip(names, figures, strict=True) if figure.high < math.inf}
            if verdict >= 0 and layout.check != "error":
                known["wrong"] = verdict
            points.append(Point(size, labels, tuple(known), tuple(known.values())))
            # With -C the printed time is not that of the rates.
            time = figures[0] if layout.time == "time" else ANYTHING
            allowed.append(ratios(size, time, *figures[1:]))
            if layout.per_iteration:
                statistics = self._statistics(tokens, at + 4, size, labels)
                if statistics is None:
                    return None
                points += statistics
            checked = checked or check != "N/A"
            wrong += verdict > 0
            last = verdict
        # Statistics have as many decimals as fit; the ends of a date, a 0 and N/A are unambiguous.
        open_end = not layout.timestamp and (layout.per_iteration or last > 0)
        return Row(size, int(tokens[1]), tokens[2], tuple(points), checked, wrong, open_end, tuple(allowed))

    def read_plain(self, tokens: list[str]) -> Row | None:
        """Read 13 cells of an error-free row that differs from an earlier one only in size and figures.

        None: it may be a different kind of row.
        """
        if not self._plain:
            return None
        size_, elements, dtype, redop, root, time, algbw, busbw, wrong, again, algbw2, busbw2, wrong2 = tokens
        if wrong != "0" or wrong2 != "0":
            return None
        try:
            labels, in_place = self._pairs[dtype, redop, root]
            size, count = WHOLE[size_], WHOLE[elements]
            times, rates = TIMES, GIGABYTES
            one = times[time], rates[algbw], rates[busbw]
            two = times[again], rates[algbw2], rates[busbw2]
        except KeyError:
            return None
        points = (
            Point(size, labels, _PLAIN, (one[0].value, one[1].value, one[2].value, 0.0)),
            Point(size, in_place, _PLAIN, (two[0].value, two[1].value, two[2].value, 0.0)),
        )
        allowed = ratios(size, *one), ratios(size, *two)
        return Row(size, count, dtype, points, checked=True, wrong=0, open_end=False, ratios=allowed)

    def shortcut(self, points: list[Point], formula: Formula, multiple: int) -> Shortcut | None:
        """Return a fast path that appends to `points` those of rows like earlier ones, if they fit `formula`.

        `multiple`: the size as a multiple of the count's bytes.
        """
        share, bus = formula
        if self._tokens != 13 or not self._plain or share is None or bus is None:
            return None
        widths = {name: width * multiple for name, width in DTYPE_BYTES.items()}
        return self._plain_rows(points, share, bus, widths)

    def _plain_rows(self, points: list[Point], share: float, bus: float, widths: Mapping[str, int]) -> Shortcut:
        """Return a reader of rows of 13 cells. `widths`: data type → bytes of one counted element."""
        pairs, names = self._pairs, _PLAIN
        times, rates, wholes = TIMES, GIGABYTES, WHOLE
        make, kind = tuple.__new__, Point

        def read(text: str, _number: int) -> Sequence[Point] | None:
            cells = text.split()
            if len(cells) != 13:
                return None
            size, elements, dtype, redop, root, time, algbw, busbw, wrong, again, algbw2, busbw2, wrong2 = cells
            if wrong != "0" or wrong2 != "0":
                return None
            try:
                out_of_place, in_place = pairs[dtype, redop, root]
                bytes_ = wholes[size]
                time1, low1, high1 = times[time]
                rate1, rate_low1, rate_high1 = rates[algbw]
                bus1, bus_low1, bus_high1 = rates[busbw]
                time2, low2, high2 = times[again]
                rate2, rate_low2, rate_high2 = rates[algbw2]
                bus2, bus_low2, bus_high2 = rates[busbw2]
                if wholes[elements] * widths[dtype] != bytes_:
                    return None
            except KeyError:
                return None
            moved = bytes_ * share
            if not (
                low1 * rate_low1 <= moved <= high1 * rate_high1
                and low2 * rate_low2 <= moved <= high2 * rate_high2
                and rate_low1 * bus <= bus_high1
                and rate_high1 * bus >= bus_low1
                and rate_low2 * bus <= bus_high2
                and rate_high2 * bus >= bus_low2
            ):
                return None
            read_points = (
                make(kind, (bytes_, out_of_place, names, (time1, rate1, bus1, 0.0))),
                make(kind, (bytes_, in_place, names, (time2, rate2, bus2, 0.0))),
            )
            points.extend(read_points)
            return read_points

        return read

    def _left(self, between: list[str]) -> tuple[str, str] | None:
        """Read redop and root; either may be missing, and redop may be blank."""
        redop = root = ""
        for token in between:
            if _INTEGER.fullmatch(token) and not root:
                root = token
            elif _WORD.fullmatch(token) and not redop and not root:
                redop = token
            else:
                return None
        expected = self.layout.left
        if expected is not None and ((redop and "redop" not in expected) or bool(root) != ("root" in expected)):
            return None
        return redop, root

    def _check(self, cell: str) -> float | None:
        """Read the check column: a count, -1 if it states none, None if it cannot be read."""
        if cell == "N/A":
            return -1
        if self.layout.check != "wrong" and _RELATIVE_ERROR.fullmatch(cell):
            return -1
        if self.layout.check == "error":
            return math.inf if cell in {"nan", "-nan", "inf"} else None
        return PLAIN[cell].value if _COUNT.fullmatch(cell) else None

    def _figures(self, tokens: list[str]) -> tuple[Printed, Printed, Printed] | None:
        """Read time, algbw and busbw; nan and inf have no finite upper bound."""
        scales = (MILLISECONDS if self.layout.milliseconds else TIMES, GIGABYTES, GIGABYTES)
        try:
            time, algbw, busbw = (
                printed(token) if token in _NOT_A_NUMBER else scale[token]
                for scale, token in zip(scales, tokens, strict=True)
            )
        except KeyError:
            return None
        return time, algbw, busbw

    def _statistics(self, tokens: list[str], at: int, size: int, labels: Labels) -> list[Point] | None:
        """Read `i_min i_max i_p99 i_cv%`; the last has no metric of its own."""
        try:
            values = [MICROSECONDS[token].value for token in tokens[at : at + 3]]
            PLAIN[tokens[at + 3]]
        except KeyError:
            return None
        return [
            Point(size, {**labels, "stat": stat}, ("time",), (value,))
            for stat, value in zip(("min", "max", "p99"), values, strict=True)
        ]


@lru_cache(maxsize=1000)
def cell_patterns(layout: Layout) -> tuple[re.Pattern[str], ...]:
    """Return the patterns of the cells of a complete row."""
    left = tuple(_WORD if name == "redop" else _INTEGER for name in layout.left or ())
    side = (_FIGURE, _FIGURE, _FIGURE, _VERDICT, *((_FIGURE,) * 4 if layout.per_iteration else ()))
    stamp = (_DATE, _CLOCK) if layout.timestamp else ()
    return (_DIGITS, _DIGITS, _DTYPE, *left, *side * layout.sides, *stamp)


def starts_row(tokens: list[str], layout: Layout) -> bool:
    """Return whether these tokens may be the beginning of a torn row (its last token cut off)."""
    longest = 5 + layout.sides * layout.group + (2 if layout.timestamp else 0)
    if not 0 < len(tokens) <= longest or not all(map(_DIGITS.fullmatch, tokens[:2])):
        return False
    if len(tokens) <= 3:
        return len(tokens) < 3 or any(name.startswith(tokens[2]) for name in DTYPE_BYTES)
    inner, last = tokens[3:-1], tokens[-1]
    return tokens[2] in DTYPE_BYTES and all(map(_CELL.fullmatch, inner)) and bool(_CUT_CELL.fullmatch(last))


def plausible(row: Row, rounding: float) -> bool:
    """Return whether a row's figures are consistent: required of rows that were joined from pieces."""
    unit = row.elements * DTYPE_BYTES[row.dtype]
    if (unit and row.size % unit) or (not unit and row.size):
        return False
    for point in row.points:
        if point.metrics[1:3] != ("algbw", "busbw"):
            continue
        time, algbw, busbw = point.values[:3]
        # Half of size / time with the old formulas and two ranks. The printed resolution is 0.01 GB/s.
        low = 0.45 * point.size / (time * 1.001 + rounding)
        high = point.size * 1.06 / max(time * 0.999 - rounding, 1e-12)
        if algbw < _ONE_DIGIT and not low - 6e6 <= algbw <= high + 6e6:
            return False
        # 0 with one rank, between half and twice algbw with more.
        if busbw and not 0.47 * algbw - 1.1e7 <= busbw <= 2.06 * algbw + 1.1e7:
            return False
    return True
