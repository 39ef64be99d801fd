"""The fast path for rows: in long logs they are nearly all lines.

A row that differs only in size and finite figures from one that was read has the same labels,
metrics and checks. Cells repeat, too: each is read once.
"""

import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from fabbench.benchmarks import Shortcut
from fabbench.benchmarks.consistency import ANYTHING, Printed
from fabbench.benchmarks.events import RowLine
from fabbench.benchmarks.nccl.rows import DTYPE_BYTES, Sample, Side
from fabbench.benchmarks.tables import COUNT, Column, Layout
from fabbench.model.log import Point

_MOST_CELLS = 1 << 17
_FIGURES = ("time", "algbw", "busbw")
_NO_WRONG = 0  # `Sample.wrong` of a row like a model: no model reports wrong data


class Model(NamedTuple):
    """A row of two sides without wrong data: what rows like it have in common."""

    dtype_bytes: int
    checked: bool
    # Without the values of time, algbw and busbw:
    out_of_place: Point
    in_place: Point


class Models(dict[tuple[str, ...], Model]):
    """Models of the rows of a table, by the cells for type, redop, root and both checks."""

    def learn(self, printed: RowLine, row: Sample) -> None:
        """Keep a row as a model for others, if it can be one: two sides, finite and not wrong."""
        metrics = [column.metric for column in printed.layout[-8:]]
        is_usual = metrics == [*_FIGURES, metrics[-1]] * 2  # three figures and a check, twice
        are_finite = {point.metrics[:3] for point in row.points} == {_FIGURES}
        if row.wrong or not is_usual or not are_finite:
            return
        if len(self) >= _MOST_CELLS:
            self.clear()
        dtype, *kind = printed.cells[2:-8]  # type, redop and root, between count and sides
        checks = printed.cells[-5::4]  # the last cell of each side
        out_of_place, in_place = map(_without_figures, row.points)
        model = Model(DTYPE_BYTES[dtype], row.checked, out_of_place, in_place)
        self[dtype, *kind, *checks] = model


def _without_figures(point: Point) -> Point:
    return point._replace(values=point.values[len(_FIGURES) :])


@lru_cache(maxsize=16)
def models_of(layout: Layout) -> Models:
    """Return the models of the tables with a layout, of all executions."""
    del layout  # the key of the cache
    return Models()


_COUNT = re.compile(COUNT, re.ASCII)


@lru_cache(_MOST_CELLS)
def _count(cell: str) -> int:
    """Return what a cell counts; raise ValueError for any other text."""
    if not _COUNT.fullmatch(cell):
        raise ValueError(cell)
    return int(cell)


@lru_cache(maxsize=16)
def _reader_of_figures(column: Column) -> Callable[[str], Printed]:
    """Return a function that reads figures of a column; it raises ValueError unless finite."""
    pattern = re.compile(column.pattern, re.ASCII)

    @lru_cache(_MOST_CELLS)
    def read(cell: str) -> Printed:
        figure = column.read(cell) if pattern.fullmatch(cell) else ANYTHING
        if figure.high == math.inf:  # inf, nan, or another text
            raise ValueError(cell)
        return figure

    return read


AddSample: TypeAlias = Callable[[int, str, Sample], Sequence[Point]]
"""Takes a row, given its line's number and text; returns the points of one that counts."""


def fast_rows(layout: Layout, models: Models, add_sample: AddSample) -> Shortcut:
    """Return a reader of rows that are like a model; it returns None for other lines.

    For speed, tuples are made directly, at half the cost of a NamedTuple's own constructor.
    """
    # The check of the first side, then the second side: both sides and rates have the same form.
    _, time_column, rate_column, *_ = layout[-5:]
    as_time = _reader_of_figures(time_column._replace(stat=""))
    as_rate = _reader_of_figures(rate_column._replace(stat=""))
    new_tuple = tuple.__new__

    def read(text: str, number: int) -> Sequence[Point] | None:
        # None: not the usual row; it is then read the slow way.
        cells = text.split()
        kind = cells[2:-8]  # type, redop and root, between the count and the two sides
        try:
            time, algbw, busbw, check, *second = cells[-8:]  # the two sides have as many cells
            time2, algbw2, busbw2, check2 = second
            model = models[*kind, check, check2]
            size = _count(cells[0])
            count_bytes = _count(cells[1]) * model.dtype_bytes
            one = (as_time(time), as_rate(algbw), as_rate(busbw))
            two = (as_time(time2), as_rate(algbw2), as_rate(busbw2))
        except (KeyError, ValueError):  # no model, other numbers of cells, or no finite figures
            return None
        out_of_place = _point_like(size, one, model.out_of_place)
        in_place = _point_like(size, two, model.in_place)
        points = (out_of_place, in_place)
        row = (size, count_bytes, (one, two), points, model.checked, _NO_WRONG)
        return add_sample(number, text, new_tuple(Sample, row))

    return read


def _point_like(size: int, side: Side, model: Point) -> Point:
    """Return the point of a side: the labels and metrics are those of the model."""
    time, algbw, busbw = side
    _, labels, metrics, wrong = model  # the wrong elements alone, if they are stated
    values = (time.value, algbw.value, busbw.value, *wrong)
    return tuple.__new__(Point, (size, labels, metrics, values))
