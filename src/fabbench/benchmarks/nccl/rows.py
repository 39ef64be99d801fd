"""Names of columns and rows of nccl-tests, v1.0 to 2.19. Pure.

The layouts, with the source lines that print them, are in docs/formats.md. Numbers outgrow their
columns: a row is read by its cells, which differ in their form.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from fabbench.benchmarks.consistency import ANYTHING, Printed, ratios
from fabbench.benchmarks.events import RowLine
from fabbench.benchmarks.tables import (
    COUNT,
    SIZE,
    UNKNOWN,
    Column,
    Figures,
    Layout,
    Row,
    cell_patterns,
    columns_of,
    finite,
    read_columns,
    read_figures,
)
from fabbench.catalog.systems import rows_of
from fabbench.model.log import Point
from fabbench.model.mappings import without_empty
from fabbench.model.patterns import lazy

DTYPE_BYTES = {
    row["dtype"]: int(row["bytes"]) for row in rows_of("dtypes.csv", "fabbench.benchmarks.nccl")
}
"""Bytes of each type name that nccl-tests prints."""

# ---------------------------------------------------------------- columns

_NUMBER = r"(?:0|[1-9]\d{0,17})(?:\.\d+)?(?:e[+-][0-2]?\d\d)?"
_RELATIVE_ERROR = r"\d+e[+-][0-2]?\d\d"

_COLUMNS = columns_of("nccl")
_REDOP = _COLUMNS["redop|op"]
_ROOT = _COLUMNS["root"]
_TIME = _COLUMNS["time"]
_WRONG = _COLUMNS["#wrong"]
_STATISTIC = _COLUMNS["i_(min|max|p99)"]
_ELEMENTS = Column("elements", cell=COUNT)
_DTYPE = Column(label="dtype", cell="|".join(DTYPE_BYTES))
_MILLISECONDS = Column("time", exponent=-3, cell=_STATISTIC.cell)
_WRONG_OR_ERROR = Column("error", cell=f"{_RELATIVE_ERROR}|{_WRONG.cell}")
"""Where no names of columns were seen."""
_NOT_READ = _STATISTIC._replace(metric="", stat="")
_CLOCK = Column(cell=r"\d\d:\d\d:\d\d")
_TIMESTAMP = (Column(cell=r"\d{4}-\d\d-\d\d"), _CLOCK)
_NAME = r"[A-Z][A-Za-z\d]*|N/A"
_ALGORITHM = (
    Column("algorithm", cell=_NAME),
    Column("protocol", cell=_NAME),
    Column("channels", cell=r"\d{1,3}|N/A"),
)
_ENDS = {"timestamp": _TIMESTAMP, "algo": _ALGORITHM}
"""The name of the first column behind the figures → these columns, in the order of rows."""
_CHECKS = frozenset({"wrong elements", "error"})
_PLACEMENTS: Final = ("out-of-place", "in-place")


def _layouts(
    kinds: Sequence[Layout],
    side: Layout,
    placements: Sequence[str],
    end: Sequence[Column] = (),
) -> Sequence[Layout]:
    """Return the columns of rows, one layout for each of `kinds`: the columns of redop and root.

    `side`: the columns of one placement. The statistic of a figure's column is
    `PLACEMENT/STATISTIC`; either may be empty.
    """
    figures: list[Column] = []
    for placement in placements:
        figures += (column._replace(stat=f"{placement}/{column.stat}") for column in side)
    return [(SIZE, _ELEMENTS, _DTYPE, *kind, *figures, *end) for kind in kinds]


UNNAMED = _layouts(
    [(), (_REDOP,), (_ROOT,), (_REDOP, _ROOT)],
    (_TIME, _COLUMNS["algbw"], _COLUMNS["busbw"], _WRONG_OR_ERROR),
    _PLACEMENTS,
)
"""The columns where no names of columns were seen."""


UNREADABLE_UNITS: Layout = (SIZE, _ELEMENTS, _DTYPE, *[Column(cell="(?!)")] * 5)
"""The columns where units are not the usual ones: no row can be read."""


def read_header(text: str) -> Sequence[Layout]:
    """Read a line of column names; empty for any other line.

    Its parts: size, count and type; redop and root, of which some programs print one or none; the
    figures of each placement (side); then columns that follow them once (`_ENDS`).
    """
    first, *names = text.lstrip("# \t").split() or ("",)
    if first not in {"size", "bytes"} or "type" not in names:
        return ()
    behind_type = names[names.index("type") + 1 :]
    kind, *sides = _by_side(behind_type)
    kind_columns = read_columns(kind, _COLUMNS)
    side = read_columns(sides[0] if sides else (), _COLUMNS)  # both have the same
    metrics = {column.metric for column in side}
    is_side = {"algbw", "busbw"} <= metrics and not metrics.isdisjoint(_CHECKS)
    if not is_side or not {*kind_columns} <= {_REDOP, _ROOT}:
        return ()
    side = tuple(_NOT_READ if column == UNKNOWN else column for column in side)
    if first == "bytes":
        # v1 prints neither (us) nor (ms); its source divides by 1e3 less (all_reduce.cu of v1.0.0).
        side = tuple(_MILLISECONDS if column == _TIME else column for column in side)
    without_redop = tuple(column for column in kind_columns if column != _REDOP)
    kinds = dict.fromkeys((kind_columns, without_redop))  # its cell may be blank
    placements = _PLACEMENTS if len(sides) > 1 else ("",)
    ends = [columns for name, columns in _ENDS.items() if name in names]
    return _layouts([*kinds], side, placements, [*chain.from_iterable(ends)])


def _by_side(names: Sequence[str]) -> Sequence[Sequence[str]]:
    """Split names of columns: before the figures (redop, root), then those of each side."""
    parts: list[list[str]] = [[]]
    for name in names:
        if name in _ENDS:
            break
        if name in {"time", "cputime"}:  # the first column of a side
            parts.append([])
        parts[-1].append(name)
    return parts


_Words: TypeAlias = tuple[str, ...]


@lru_cache(maxsize=64)
def exact_layout(placements: _Words, time: str, statistics: _Words) -> Layout:
    """Return the columns of the JSON, whose figures have six decimals."""
    exact = Column(exponent=-6, cell=_STATISTIC.cell, decimals=6)
    rate = exact._replace(exponent=9)
    side = (
        exact._replace(metric=time),
        rate._replace(metric="algbw"),
        rate._replace(metric="busbw"),
        _WRONG._replace(cell=f"{_NUMBER}|N/A"),
        *(_STATISTIC._replace(stat=stat) for stat in statistics),
    )
    (layout,) = _layouts([(_REDOP, _ROOT)], side, placements)
    return layout


# ---------------------------------------------------------------- rows


class Check(NamedTuple):
    """What a side of a row says of the check of its data."""

    is_done: bool
    is_wrong: bool = False
    wrong: float | None = None
    """Wrong elements. None: not stated."""


def read_check(column: Column, cell: str) -> Check:
    """Read the cell of a check: wrong elements, or a relative error, which may be any number."""
    if cell == "N/A":
        return Check(is_done=False)
    if cell[-1] in "nf":  # nan and inf, by their last letters: of errors, only these are wrong
        return Check(is_done=True, is_wrong=True)
    if column.metric == "error" and re.fullmatch(_RELATIVE_ERROR, cell):
        return Check(is_done=True)
    wrong = float(cell)
    return Check(is_done=True, is_wrong=wrong > 0, wrong=wrong)


Side: TypeAlias = tuple[Printed, Printed, Printed]
"""Time (ANYTHING if it is not that of the rates), algbw and busbw."""


class Sample(NamedTuple):
    """What a row measured."""

    size: int
    unit: int
    """Bytes of its count."""
    sides: tuple[Side, ...]
    points: Sequence[Point] = ()
    checked: bool = False
    """Whether a side states the result of a data check."""
    wrong: int = 0
    """Number of sides that report wrong data."""

    @property
    def multiple(self) -> int:
        """The size as a multiple of `unit`; 0: both are zero; -1: it is not a multiple."""
        if not self.size and not self.unit:
            return 0
        if not self.size or not self.unit or self.size % self.unit:
            return -1
        return self.size // self.unit

    def is_plausible(self) -> bool:
        """Return whether some formula on some number of ranks explains its figures."""
        if self.multiple < 0:
            return False
        return all(_is_side_plausible(self.size, side) for side in self.sides)


def _is_side_plausible(size: int, side: Side) -> bool:
    """Return whether algbw x time is 0.5 to 1 times the size, and busbw 0.5 to 2 times algbw.

    No formula leaves these ranges: (n-1)/n of two ranks is 0.5, and 2(n-1)/n is below 2.
    """
    low, high, bus_low, bus_high = ratios(size, *side)
    _, _, bus = side
    is_rate = low <= 1 and high >= 0.5
    is_one_rank = bus.value == 0
    return is_rate and bus_low <= 2 and (bus_high >= 0.5 or is_one_rank)


def sample(printed: RowLine, figures: Figures | None = None) -> Sample:
    """Return what a row measured, without its points. `figures`: those of its cells, if known."""
    if figures is None:
        figures = read_figures(printed.layout, printed.cells)
    # Where the time is that of the CPU, nothing is known of that of the rates.
    sides = [
        (side.get("time", ANYTHING), side["algbw"], side["busbw"])
        for stat, side in figures.items()
        if stat.endswith("/")  # the figures of a side itself, not one of its statistics
    ]
    size, count, dtype = printed.cells[:3]
    checks = _checks(printed.layout, printed.cells).values()
    return Sample(
        int(size),
        int(count) * DTYPE_BYTES[dtype],
        tuple(sides),
        checked=any(check.is_done for check in checks),
        wrong=sum(check.is_wrong for check in checks),
    )


def _checks(layout: Layout, cells: Sequence[str]) -> Mapping[str, Check]:
    """Return the checks of a row, by the statistic of their column: `out-of-place/` and so on."""
    return {
        column.stat: read_check(column, cell)
        for column, cell in zip(layout, cells, strict=True)
        if column.metric in _CHECKS
    }


def points(row: Row) -> list[Point]:
    """Return the points of a row: of each side one, and one per statistic (-I).

    A side whose figures are not finite still has a point: it shows that the size was measured.
    """
    checks = _checks(row.layout, row.cells)
    counted: list[Point] = []
    for stat, figures in row.figures.items():
        placement, _, statistic = stat.partition("/")
        labels = {"placement": "", **row.labels, "stat": statistic}
        labels["placement"] = placement or labels["placement"]  # else a line above states it
        by_metric: dict[str, float] = {}
        for name, figure in finite(figures).items():
            by_metric[name] = figure.value
        wrong = checks[stat].wrong if stat in checks else None
        if wrong is not None:
            by_metric["wrong"] = wrong
        if by_metric or not statistic:
            values = tuple(by_metric.values())
            point = Point(row.size, without_empty(labels), tuple(by_metric), values)
            counted.append(point)
    return counted


def has_open_end(printed: RowLine) -> bool:
    """Return whether the last cell may go on behind a tear.

    Statistics have as many decimals as fit. The ends of a time of day, and of a check that passed
    (0, N/A), are unambiguous.
    """
    last = printed.layout[-1]
    if last.metric in _CHECKS:
        return read_check(last, printed.cells[-1]).is_wrong
    return last != _CLOCK


_CUT_CELL = lazy(
    r"-?(?:(?:0|[1-9]\d*)(?:\.\d*)?(?:e[+-]?\d*)?)?|N/?A?|[a-z]{1,6}|\d{4}-[\d-]*|\d\d?:[\d:]*",
    re.ASCII,
)
_WHOLE = lazy(COUNT, re.ASCII)


_NO_SIDE = " " * 32
"""What is printed for the figures of a side that was not measured."""


def one_sided(layouts: Sequence[Layout], text: str) -> Sequence[Layout]:
    """Return layouts without the figures of the side that the blanks of a row show to be missing.

    Blanks in the middle stand for out-of-place figures; else those at the end were stripped. No
    layouts where blanks were lost.
    """
    if "  " not in text:
        return ()
    missing = "out-of-place/" if _NO_SIDE in text.strip() else "in-place/"
    return [
        tuple(column for column in layout if not column.stat.startswith(missing))
        for layout in layouts
    ]


def begins_row(text: str, layouts: Sequence[Layout]) -> bool:
    """Return whether a line may be the beginning of a torn row: its last cell may be cut."""
    *whole, last = text.split() or ("",)
    size_and_count = (*whole, last)[:2]
    if not all(map(_WHOLE.fullmatch, size_and_count)):
        return False
    if not _CUT_CELL.fullmatch(last):
        return False
    return any(_are_first_cells(whole, cell_patterns(layout)) for layout in layouts)


def _are_first_cells(cells: Sequence[str], columns: Sequence[re.Pattern[str]]) -> bool:
    if len(cells) >= len(columns):  # no cell is left to be cut
        return False
    pairs = zip(cells, columns, strict=False)
    return all(column.fullmatch(cell) for cell, column in pairs)
