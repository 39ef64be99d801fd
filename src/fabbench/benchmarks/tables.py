"""What tables have: columns, cells and rows, and how names of columns and rows are read. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from math import inf
from string import ascii_letters
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from fabbench.benchmarks import consistency
from fabbench.benchmarks.consistency import Printed, printed
from fabbench.benchmarks.findings import finding
from fabbench.catalog.systems import rows_of
from fabbench.model.log import METRICS, Finding, Labels, Line, Point, Record
from fabbench.model.mappings import first_of
from fabbench.model.messages import LONGEST_QUOTE
from fabbench.model.patterns import expand, lazy

# Patterns of cells.
COUNT = r"0|[1-9]\d{0,15}"
NUMBER = r"(?:0|[1-9]\d{0,11})(?:\.\d{1,18})?"  # More digits are of no measurement
WORD = r"\S+"

GAP = lazy(r"\s{2,}|\t|(?<=\))\s")
"""Between names of columns."""
_MOST_WORDS = 40
"""Of one name, with those of its neighbors where the blanks between them are collapsed."""


class Column(NamedTuple):
    """One column of a table."""

    metric: str = ""
    """A metric of the contract, `size`, or another name, for checks: it is not read."""
    factor: float = 1.0
    """Base units per printed unit."""
    stat: str = ""
    """Its statistic, or another label of its figures alone: `rank=0->1`."""
    cell: str = NUMBER
    """The pattern of a cell."""
    label: str = ""
    """The label whose value the cell is."""
    decimals: int | None = None
    """How many decimals the program rounds to, where it omits trailing zeros."""
    joined: bool = False
    """Whether the blank before it may be missing: patterns of both cells show where one ends."""
    exponent: int = 0
    """Base units per printed unit as a power of ten, which is exact."""
    units: tuple[tuple[str, float], ...] = ()
    """Units that a cell may end in, and their base units, not `factor`."""

    @property
    def pattern(self) -> str:
        """The pattern of a cell with its unit."""
        if not self.units:
            return self.cell
        units = "|".join(unit for unit, _ in self.units)
        return rf"(?:{self.cell})(?:{units})"

    def read(self, cell: str) -> Printed:
        """Read a cell, in base units."""
        if self.units:
            return self._with_unit(cell)
        decimals = self.decimals if "." in cell else None
        number = printed(cell, self.exponent, decimals=decimals)
        return number if self.factor == 1 else number.times(self.factor)

    def bytes(self, cell: str) -> int:
        """Read a size."""
        return int(self._with_unit(cell).value) if self.units else int(cell)

    def _with_unit(self, cell: str) -> Printed:
        """Read a cell like `1.5GiB`; the value is exact, as sizes have to be."""
        digits = cell.rstrip(ascii_letters)
        unit = cell[len(digits) :]
        factor = dict(self.units)[unit]
        exact = Decimal(digits) * Decimal(str(factor))
        return printed(digits).times(factor)._replace(value=float(exact))


SIZE: Final = Column("size", cell=COUNT)
IGNORED: Final = Column(cell=r"\d{1,18}(?:\.\d{1,18})?")  # It may be of no measurement
UNKNOWN: Final = Column(cell=WORD)
NEVER: Final = Column(cell="(?!)")
"""No row has such a cell."""
CHECK: Final = Column("check", cell="Pass|Fail")
PASSED = frozenset({"Pass", "0.00"})
"""Cells of a column `check` that report no wrong data."""
Layout: TypeAlias = tuple[Column, ...]


# ---------------------------------------------------------------- names of columns

_CELLS = {
    "COUNT": COUNT,
    "NUMBER": NUMBER,
    "REAL": r"(?:0|[1-9]\d{0,11})\.",  # up to its decimals
    "NONE": "-?nan|-?inf",
    "THOUSANDS": r"\d{1,18}[kmb]?",
    "TYPE": r"[A-Za-z(][\w()+-]*|\d+-bit",
}
"""What names in the cells of columns.csv stand for."""


def columns_of(benchmark: str) -> Mapping[str, Column]:
    """Return the columns of a benchmark's tables (columns.csv), by the patterns of their names."""
    rows = rows_of("columns.csv", "fabbench.benchmarks")
    own = [row for row in rows if row["benchmark"] == benchmark]
    return {row["name"]: _column_of(row) for row in own}


def _column_of(row: Mapping[str, str]) -> Column:
    return Column(
        row["metric"],
        float(row["factor"] or 1),
        row["stat"],
        expand(row["cell"], _CELLS),
        row["label"],
        exponent=int(row["exponent"] or 0),
    )


def read_columns(names: Sequence[str], known: Mapping[str, Column]) -> Layout:
    """Return the layout of a line of column names.

    Names are compared in lower case and without blanks. The keys of `known` are regular
    expressions; the text of their first group replaces `{}` in the statistic.
    """
    layout: list[Column] = []
    for name in names:
        layout += _named_columns(name.lower().split(), known)
    return tuple(layout)


def _named_columns(words: Sequence[str], known: Mapping[str, Column]) -> list[Column]:
    """Return the column of a name; several where the blanks between them are collapsed."""
    columns: list[Column] = []
    name = ""  # of the words since the last known column
    # Longer text is not tried word by word: that would take time.
    for word in words if len(words) < _MOST_WORDS else ():
        name += word
        column = _column(name, known)
        if column != UNKNOWN:
            columns.append(column)
            name = ""
    if columns and not name:
        return columns
    return [_column("".join(words), known)]  # one name, or an unknown one


def _column(name: str, known: Mapping[str, Column]) -> Column:
    """Return the column whose pattern a name matches; UNKNOWN if there is none."""
    for pattern, column in known.items():
        match = re.fullmatch(pattern, name)
        if match is not None:
            return column._replace(stat=column.stat.format(*match.groups()))
    return UNKNOWN


def unknown_columns(layout: Layout, text: str) -> Sequence[Finding]:
    """Return a finding if a line of column names has one that is not read."""
    if UNKNOWN not in layout:
        return ()
    line = text.strip()[:LONGEST_QUOTE]
    return (finding("unknown-column", line=line),)


# ---------------------------------------------------------------- rows


class Cells(NamedTuple):
    """The cells of a row, as one text, and what stands beside them."""

    text: str
    name: str = ""
    """The label `operation` of its figures."""
    final: bool | None = None
    """Whether it is marked as the result, or (False) as progress on the way to it.

    None: it is not marked.
    """


Figures: TypeAlias = Mapping[str, Mapping[str, Printed]]
"""Statistic (empty: the main figure) → metric → figure, in base units."""


class Row(NamedTuple):
    """A complete row."""

    line: Line
    layout: Layout
    cells: tuple[str, ...]
    size: int
    labels: Labels
    figures: Figures
    final: bool | None
    wrong: bool
    """Whether its data failed the check."""
    record: Record
    """That of its execution."""
    title: str = ""
    table: int = 0
    """Which line of column names it stands below, counted."""

    def main(self, metric: str) -> Printed | None:
        """Return the main figure of a metric."""
        return self.figures.get("", {}).get(metric)

    def cell(self, name: str) -> str:
        """Return what is printed in a column; empty if there is none."""
        for _, cell in self._in_column(name):
            return cell
        return ""

    def read(self, name: str) -> Printed | None:
        """Return the figure in a column; None if there is none."""
        for column, cell in self._in_column(name):
            return column.read(cell)
        return None

    def bus_ratio(self) -> consistency.Ratios:
        """Return what it allows for bus bandwidth by algorithm bandwidth: any, if it lacks one."""
        rate = self.main("algbw") or consistency.ANYTHING
        bus = self.main("busbw") or consistency.ANYTHING
        return consistency.ratios(0, consistency.ANYTHING, rate, bus)

    def _in_column(self, name: str) -> Iterator[tuple[Column, str]]:
        for column, cell in zip(self.layout, self.cells, strict=True):
            if column.metric == name:
                yield column, cell

    def points(self) -> list[Point]:
        """Return its points: one per statistic."""
        points = []
        for stat, figures in self.figures.items():
            of_stat = stat_labels(stat)
            labels = {**self.labels, **of_stat} if self.labels else of_stat
            values = tuple(figure.value for figure in figures.values())
            points.append(Point(self.size, labels, tuple(figures), values))
        return points


def read_figures(layout: Layout, cells: Sequence[str]) -> Figures:
    """Return the figures of a row."""
    figures: dict[str, dict[str, Printed]] = {}
    for column, cell in zip(layout, cells, strict=True):
        if column.metric in METRICS and not column.label:
            figures.setdefault(column.stat, {})[column.metric] = column.read(cell)
    return figures


def finite(figures: Mapping[str, Printed]) -> dict[str, Printed]:
    """Return the figures that are neither nan nor inf."""
    return {name: figure for name, figure in figures.items() if figure.high < inf}


NO_LABELS: Labels = MappingProxyType({})


@lru_cache(maxsize=256)
def stat_labels(stat: str) -> Labels:
    """Return the labels of the figures of a statistic (`Column.stat`).

    ``min`` is the label `stat`, and ``rank=0->1`` the label `rank`; empty: the main figure.
    """
    if not stat:
        return {}
    name, _, value = stat.rpartition("=")
    return {name or "stat": value}


def row_texts(text: str) -> Sequence[str]:
    """Return the texts that may be a row: a line and, of a row of Markdown, its cells alone."""
    row = text.strip()
    if not row.startswith("|") or not row.endswith("|"):
        return (text,)
    cells = row[1:-1].split("|")
    return (text, "\t".join(map(str.strip, cells)))


_MEASURES = lazy(r"(?<![a-z])(?:lat|latency|((?:bi|m)?bw))(?![a-z])")
"""In the name of a test: what it measures."""


def are_of_test(layout: Layout, test: str) -> bool:
    """Return whether columns can be those of a test whose name says what it measures per size."""
    match = _MEASURES.search(test)
    if match is None or SIZE not in layout:
        return True
    wanted = "bandwidth" if match[1] else "latency"
    return any(column.metric == wanted for column in layout)


def rate_agrees(row: Row) -> bool | None:
    """Return whether the bandwidth of a row is that of its size and message rate.

    None: the row does not have both.
    """
    bandwidth = row.main("bandwidth")
    rate = row.main("message_rate")
    if not row.size or bandwidth is None or rate is None:
        return None
    return bandwidth.agrees(rate.times(row.size))


@lru_cache(maxsize=256)
def row_pattern(layout: Layout) -> re.Pattern[str]:
    """Return the pattern of a whole row: one group per cell."""
    pattern = ""
    for column in layout:
        blanks = r"\s*" if column.joined or not pattern else r"\s+"
        pattern += f"{blanks}({column.pattern})"
    return re.compile(rf"{pattern}\s*", re.ASCII)


@lru_cache(maxsize=256)
def cell_patterns(layout: Layout) -> tuple[re.Pattern[str], ...]:
    """Return the pattern of each cell of a row."""
    return tuple(re.compile(column.pattern, re.ASCII) for column in layout)


def is_rest_of_row(text: str, layout: Layout) -> bool:
    """Return whether a line that is not a row may be what is left of one."""
    return consistency.is_remains(text.split(), cell_patterns(layout))


_PROSE = lazy(r"\s*\S+ (?!-?(?:nan?|inf?|[ni])(?:\s|$))[A-Za-z].*")


def is_prose(text: str) -> bool:
    """Return whether one blank and a word stand behind the first cell, as in no table.

    The word is not a number that is `nan` or `inf`, even a cut one.
    """
    return _PROSE.fullmatch(text) is not None


_ASCENDING = (
    ("min", "", "max"),
    ("min", "mean", "max"),
    ("min-comm", "max-comm"),
    ("p25", "p50", "p90", "p95", "p99"),
)
_ASCENDING_WITH_MEDIAN = ("min", "median", "p99", "p99.9", "max")
"""Without a median, the most may be that of ranks, and the percentiles those of iterations."""


def is_ascending(row: Row) -> bool:
    """Return whether the statistics of a row ascend, as those of one measurement do."""
    figures = row.figures
    if len(figures) < 2:
        return True
    orders = (*_ASCENDING, _ASCENDING_WITH_MEDIAN) if "median" in figures else _ASCENDING
    return all(_in_order(stats, figures) for stats in orders)


def _in_order(stats: Sequence[str], figures: Figures) -> bool:
    """Return whether each metric of the first printed statistic ascends to the last one.

    Statistics that are not printed are passed over.
    """
    ascending = [figures[stat] for stat in stats if stat in figures]
    for metric in first_of(ascending, ()):
        values = [of_stat[metric] for of_stat in ascending if metric in of_stat]
        if not consistency.is_ordered(*values):
            return False
    return True
