"""Rows and headers of nccl-tests tables, v1.0 to 2.19. Pure.

A row is read by its tokens, from the right: numbers outgrow their columns. The layouts, and the source
lines they were read in, are in docs/formats.md.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from fabbench.benchmarks import Shortcut
from fabbench.model import Labels, Point

DTYPE_BYTES: Mapping[str, int] = {
    "int8": 1, "char": 1, "uint8": 1, "int32": 4, "int": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "half": 2, "float": 4, "double": 8, "bfloat16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1,
    "f8e4m3": 1, "f8e5m2": 1,
}  # fmt: skip
"""Bytes of each type name that nccl-tests prints (its `test_typenames`)."""

_NUMBER = re.compile(r"(?:0|[1-9]\d*)(?:\.\d+)?(?:e[+-]\d\d\d?)?", re.ASCII)
_COUNT = re.compile(r"0|[1-9]\d*|\d(?:\.\d+)?e\+\d\d\d?", re.ASCII)
_WORD = re.compile(r"[a-z][a-z_0-9]*", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,4}", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_CLOCK = re.compile(r"\d\d:\d\d:\d\d", re.ASCII)
_RELATIVE_ERROR = re.compile(r"\d+e[+-]\d\d+", re.ASCII)
_DIGITS = re.compile(r"0|[1-9]\d{0,17}", re.ASCII)
_CELL = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:e[+-]\d\d+)?|N/A|[a-z]{3,6}|\d{4}-\d\d-\d\d", re.ASCII)
_CUT_CELL = re.compile(
    r"-?(?:(?:0|[1-9]\d*)(?:\.\d*)?(?:e[+-]?\d*)?)?|N/?A?|[a-z]{1,6}|\d{4}-[\d-]*|\d\d?:[\d:]*", re.ASCII
)
_CACHE = 1 << 17


class Scaled(dict[str, float]):
    """Token → value in base units; KeyError for what is no number. Exact: the exponent joins the text."""

    def __init__(self, exponent: int) -> None:
        super().__init__()
        self._exponent = exponent

    def __missing__(self, token: str) -> float:
        if not _NUMBER.fullmatch(token):
            raise KeyError(token)
        if len(self) >= _CACHE:
            self.clear()
        digits, _, exponent = token.partition("e")
        value = float(f"{digits}e{int(exponent or 0) + self._exponent}")
        if not math.isfinite(value):
            raise KeyError(token)
        self[token] = value
        return value


class Whole(dict[str, int]):
    """Token → whole number; KeyError for what is none."""

    def __missing__(self, token: str) -> int:
        if not _DIGITS.fullmatch(token):
            raise KeyError(token)
        if len(self) >= _CACHE:
            self.clear()
        value = self[token] = int(token)
        return value


WHOLE = Whole()
MICROSECONDS, MILLISECONDS, GIGABYTES, PLAIN = Scaled(-6), Scaled(-3), Scaled(9), Scaled(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What the header says of the columns."""

    sides: int = 2
    """Groups of time, algbw, busbw and check: out-of-place and in-place, or one."""
    check: str = "unknown"
    """`wrong`: a count of wrong elements; `error`: a relative error; `unknown`: no header was seen."""
    time: str = "time"
    milliseconds: bool = False
    per_iteration: bool = False
    timestamp: bool = False
    left: tuple[str, ...] | None = None
    """Columns between type and time; None: no header was seen."""

    @property
    def group(self) -> int:
        """Tokens of one side."""
        return 8 if self.per_iteration else 4

    @property
    def most(self) -> int:
        """Tokens of a whole row, at most."""
        return 5 + self.sides * self.group + (2 if self.timestamp else 0)

    @property
    def rounding(self) -> float:
        """Seconds by which a short time may be off for being printed."""
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
        # v1 says neither (us) nor (ms); its source divides by 1e3 less (all_reduce.cu of v1.0.0).
        milliseconds=words[0] == "bytes",
        per_iteration="i_min" in words,
        timestamp="timestamp" in words,
        left=tuple("redop" if word == "op" else word for word in left),
    )


class Row(NamedTuple):
    """One whole row. `points` holds one point a side, and one for each per-iteration statistic."""

    size: int
    elements: int
    dtype: str
    points: tuple[Point, ...]
    checked: bool
    """Whether a side states the result of a data check."""
    wrong: int
    """Sides that state wrong data."""
    open_end: bool
    """The last number may go on behind a tear."""


@lru_cache(maxsize=10_000)
def _labels(placement: str, dtype: str, redop: str, root: str) -> Labels:
    """Give the labels of one kind of row: one object, shared by all its points."""
    names = {"placement": placement, "dtype": dtype, "redop": redop, "root": root}
    return {name: value for name, value in names.items() if value}


class RowReader:
    """Reads the rows of one table."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._pairs: dict[tuple[str, ...], tuple[Labels, Labels]] = {}  # by the cells between count and time
        self._tokens = 0

    def read(self, tokens: list[str], *, in_place_only: bool = False) -> Row | None:
        """Read a row's tokens; None if they are not a whole row of this table."""
        layout = self.layout
        tail = 1 if in_place_only else layout.sides
        numbers = tail * layout.group + (2 if layout.timestamp else 0)
        between = len(tokens) - 3 - numbers
        if not 0 <= between <= 2 or tokens[2] not in DTYPE_BYTES:
            return None
        if not (_DIGITS.fullmatch(tokens[0]) and _DIGITS.fullmatch(tokens[1])):
            return None
        left = self._left(tokens[3 : 3 + between])
        if left is None or (layout.timestamp and not self._stamped(tokens)):
            return None
        size, key = int(tokens[0]), (tokens[2], *left)
        self._tokens = len(tokens)
        self._pairs[tuple(tokens[2 : 3 + between])] = (
            _labels("out-of-place", *key),
            _labels("in-place", *key),
        )
        placements = ("in-place",) if in_place_only else ("out-of-place", "in-place")
        points: list[Point] = []
        checked, wrong, last = False, 0, 0.0
        for side in range(tail):
            at = 3 + between + side * layout.group
            check = tokens[at + 3]
            verdict = self._check(check)
            values = self._values(tokens, at)
            if verdict is None or values is None:
                return None
            labels = _labels(placements[side] if layout.sides == 2 else "", *key)
            points += self._points(size, labels, values, verdict)
            if layout.per_iteration:
                statistics = self._statistics(tokens, at + 4, size, labels)
                if statistics is None:
                    return None
                points += statistics
            checked = checked or check != "N/A"
            wrong += verdict > 0
            last = verdict
        # Statistics have as many decimals as fit; a date, a 0 and N/A say themselves where they end.
        open_end = not layout.timestamp and (layout.per_iteration or last > 0)
        return Row(size, int(tokens[1]), tokens[2], tuple(points), checked, wrong, open_end)

    def shortcut(self, points: list[Point]) -> Shortcut | None:
        """Give a quick way to read rows that differ from those read before in size and figures alone.

        It takes whole rows of the usual layout whose checks found nothing wrong, appends their points to
        `points`, and gives None for any other line.
        """
        layout, pairs = self.layout, self._pairs
        if self._tokens != 13 or layout != Layout(check=layout.check, left=layout.left):
            return None
        times, rates, wholes, names = MICROSECONDS, GIGABYTES, WHOLE, ("time", "algbw", "busbw", "wrong")
        make, kind = tuple.__new__, Point

        def read(text: str) -> Sequence[Point] | None:
            cells = text.split()
            if len(cells) != 13:
                return None
            size, elements, dtype, redop, root, time, algbw, busbw, wrong, again, algbw2, busbw2, wrong2 = (
                cells
            )
            if wrong != "0" or wrong2 != "0":
                return None
            try:
                out_of_place, in_place = pairs[dtype, redop, root]
                bytes_, _ = wholes[size], wholes[elements]
                first = (times[time], rates[algbw], rates[busbw], 0.0)
                second = (times[again], rates[algbw2], rates[busbw2], 0.0)
            except KeyError:
                return None
            found = (
                make(kind, (bytes_, out_of_place, names, first)),
                make(kind, (bytes_, in_place, names, second)),
            )
            points.extend(found)
            return found

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
        if expected is not None and (
            (redop and "redop" not in expected) or bool(root) != ("root" in expected)
        ):
            return None
        return redop, root

    def _check(self, cell: str) -> float | None:
        """Read the check column: a count, -1 where it states none, None if it cannot be read."""
        if cell == "N/A":
            return -1
        if self.layout.check != "wrong" and _RELATIVE_ERROR.fullmatch(cell):
            return -1
        if self.layout.check == "error":
            return math.inf if cell in {"nan", "-nan", "inf"} else None
        return PLAIN[cell] if _COUNT.fullmatch(cell) else None

    def _values(self, tokens: list[str], at: int) -> tuple[float, float, float] | None:
        scale = MILLISECONDS if self.layout.milliseconds else MICROSECONDS
        try:
            return scale[tokens[at]], GIGABYTES[tokens[at + 1]], GIGABYTES[tokens[at + 2]]
        except KeyError:
            return None

    def _points(
        self, size: int, labels: Labels, values: tuple[float, float, float], verdict: float
    ) -> tuple[Point, ...]:
        time = self.layout.time
        if verdict < 0 or self.layout.check == "error":
            return (Point(size, labels, (time, "algbw", "busbw"), values),)
        return (Point(size, labels, (time, "algbw", "busbw", "wrong"), (*values, verdict)),)

    def _statistics(self, tokens: list[str], at: int, size: int, labels: Labels) -> list[Point] | None:
        """Read `i_min i_max i_p99 i_cv%`; the last has no metric of its own."""
        try:
            values = [MICROSECONDS[token] for token in tokens[at : at + 3]]
            PLAIN[tokens[at + 3]]
        except KeyError:
            return None
        return [
            Point(size, {**labels, "stat": stat}, ("time",), (value,))
            for stat, value in zip(("min", "max", "p99"), values, strict=True)
        ]

    @staticmethod
    def _stamped(tokens: list[str]) -> bool:
        return bool(_DATE.fullmatch(tokens[-2]) and _CLOCK.fullmatch(tokens[-1]))


def starts_row(tokens: list[str], layout: Layout) -> bool:
    """Tell whether these tokens may be the beginning of a row that was torn off (its last token cut)."""
    if not 0 < len(tokens) <= layout.most or not all(map(_DIGITS.fullmatch, tokens[:2])):
        return False
    if len(tokens) <= 3:
        return len(tokens) < 3 or any(name.startswith(tokens[2]) for name in DTYPE_BYTES)
    inner, last = tokens[3:-1], tokens[-1]
    return tokens[2] in DTYPE_BYTES and all(map(_CELL.fullmatch, inner)) and bool(_CUT_CELL.fullmatch(last))
