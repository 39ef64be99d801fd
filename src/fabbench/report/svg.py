"""Pictures: lines with two logarithmic axes, heat maps, trends. Text that needs no library, no script, no network.

This is their geometry; `templates/plot.svg` writes it. What differs in color differs in dashes, markers or
words too. Colors are classes: they follow the reader's light or dark setting.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, isnan, log2, log10
from typing import TYPE_CHECKING, Any, NamedTuple

from fabbench.model.messages import one_line
from fabbench.model.units import format_decimal, format_size
from fabbench.report.templates import rendered

if TYPE_CHECKING:
    from markupsafe import Markup

    from fabbench.analysis.history import Series
    from fabbench.sweep.matrix import Matrix

WIDTH, HEIGHT = 600, 330
_LEFT, _TOP, _BOTTOM = 54, 30, 32
_LETTER, _LINE = 7.6, 15  # Width and height of a letter, in the units of the picture
_LONGEST, _MOST = 24, 18  # Letters of a label beside a line, and how many labels there are at most
KINDS = 6  # Kinds of lines; plot.css has the color and the dashes of each


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotLine:
    """One line."""

    label: str
    points: Sequence[tuple[int, float]]  # Size and value, which is more than 0, in the unit of the axis
    band: Sequence[tuple[int, float, float]] = ()  # Size, lower and upper bound
    kind: int = 0  # Selects the color, dashes and marker


class Ceiling(NamedTuple):
    """A level that no value of some lines can exceed."""

    value: float
    kind: int | None = None  # The line that it is for; None: all of them


class PublishedRange(NamedTuple):
    """What others measured at one size, for one line."""

    size: int
    low: float
    high: float
    kind: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Values by message size."""

    title: str
    axis: str  # What the values are, with their unit
    lines: Sequence[PlotLine]
    headline: str = ""  # The title of a picture that stands alone
    ceilings: Sequence[Ceiling] = ()
    published: Sequence[PublishedRange] = ()
    description: str = ""  # Sentences for readers who cannot see it
    even: bool = False  # Whether there is a line at 1


def to_svg(plot: Plot, *, name: str = "plot") -> "Markup":
    """Write a plot for a page; `name` is unique there."""
    return rendered("page.svg", kind="lines", d=_drawn(plot), title=plot.title, about=plot.description, name=name)


def trend_svg(series: "Series", axis: str, factor: float, about: str, *, name: str) -> "Markup":
    """Write the trend of a series for a page: dots, the levels between changes, a number at each change."""
    drawn = _trend(series, axis, factor)
    return rendered("page.svg", kind="trend", d=drawn, title=f"{axis} by run", about=about, name=name)


def heat_map_svg(matrix: "Matrix", headline: str) -> "Markup":
    """Write a matrix for a page."""
    return rendered("page.svg", kind="heat", d=_heat(matrix), title=headline, about="", name="heat-map")


def to_svg_file(plots: Sequence[Plot]) -> str:
    """Write plots one below the other as a standalone file. Ends with a newline."""
    drawn = [("lines", each.headline or each.title, each.description, _drawn(each)) for each in plots]
    return _file(drawn, "; ".join(each.title for each in plots) or "no plot")


def heat_map_file(matrix: "Matrix", headline: str) -> str:
    """Write a matrix as a standalone file. Ends with a newline."""
    return _file([("heat", headline, "", _heat(matrix))], headline)


def _file(drawn: Sequence[tuple[str, str, str, Mapping[str, Any]]], title: str) -> str:
    parts, y, width = [], 0, max([WIDTH, *(each["width"] for *_, each in drawn)])
    for kind, headline, about, each in drawn:
        lines = textwrap.wrap(one_line(headline), width // 9)[:4]
        top = 12 + 20 * len(lines)
        parts.append({"kind": kind, "y": y, "lines": lines, "about": about, "d": each, "top": top})
        y += top + each["height"]
    return str(rendered("file.svg", parts=parts, title=title, width=width, height=y or 44))


def cut(text: str, limit: int) -> str:
    """Return text on one line of at most `limit` characters."""
    line = one_line(text)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


# ---------------------------------------------------------------- lines


@dataclass(frozen=True, slots=True)
class Axes:
    """Both axes, which are logarithmic: sizes to the base 2, values to the base 10."""

    low_size: float
    high_size: float
    low: float
    high: float
    right: float = float(WIDTH)
    left, top, bottom = _LEFT, _TOP, HEIGHT - _BOTTOM

    def x(self, size: float) -> float:
        """Return where a size is."""
        return _LEFT + (log2(size) - self.low_size) / (self.high_size - self.low_size) * (self.right - _LEFT)

    def y(self, value: float) -> float:
        """Return where a value is; one outside is at the edge."""
        part = (log10(value) - self.low) / (self.high - self.low) if value > 0 else 0.0
        return _TOP + (1 - min(max(part, 0.0), 1.0)) * (HEIGHT - _TOP - _BOTTOM)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Yield where powers of ten are, with labels; if they are few, also 2 and 5 times these, or finer steps."""
        for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
            powers = range(floor(self.low), ceil(self.high) + 1)
            ticks = [step * 10.0**power for power in powers for step in steps]
            within = [value for value in ticks if self.low <= log10(value) <= self.high]
            if len(within) > 2 or steps[-1] == 8:
                yield from ((self.y(value), _number(value)) for value in within[:: 1 + (len(within) - 1) // 8])
                return

    def sizes(self) -> Iterator[tuple[int, str]]:
        """Yield powers of two with labels, at equal steps that end with the largest."""
        first, last = ceil(self.low_size), floor(self.high_size)
        powers = reversed(range(last, first - 1, -(1 + (last - first) // 6)))
        yield from ((1 << power, format_size(1 << power)) for power in powers)


def axes(plot: Plot, right: float = WIDTH) -> Axes:
    """Return axes that fit everything in a plot."""
    sizes = [size for line in plot.lines for size, _ in line.points] + [each.size for each in plot.published]
    values = [value for line in plot.lines for _, value in line.points]
    values += [bound for line in plot.lines for _, *bounds in line.band for bound in bounds if bound > 0]
    values += [each.value for each in plot.ceilings]
    values += [bound for each in plot.published for bound in (each.low, each.high)] + [1.0] * plot.even
    low, high = log10(min(values, default=1.0)), log10(max(values, default=10.0))
    if high - low < 0.3:
        low, high = low - 0.15, high + 0.15
    room = 0.04 * (high - low)
    first, last = log2(min(sizes, default=1)), log2(max(sizes, default=1))
    if first == last:
        first, last = first - 1, last + 1
    return Axes(first, last, low - room, high + room, right)


def _number(value: float) -> str:
    for least, unit in ((1e6, "M"), (1e4, "k")):
        if value >= least:
            return f"{value / (least if unit == 'M' else 1e3):g}{unit}"
    return format_decimal(value, max(0, 2 - floor(log10(value)))) if value < 10 else f"{value:.0f}"


def _drawn(plot: Plot) -> dict[str, Any]:
    labels = list(_labels(plot))
    area = axes(plot, WIDTH - 28 - _LETTER * max((len(each[-1]) for each in labels), default=0))
    spread = _apart([area.y(value) for value, *_ in labels])
    points = list(_points(plot, area))
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "plot": plot,
        "area": area,
        "points": points,
        "labels": list(zip(spread, labels, strict=True)),
    }


def _labels(plot: Plot) -> Iterator[tuple[float, str, int | None, str]]:
    """Yield what is written at the right end: where, its kind of mark, of which line, and the text."""
    ends = sorted(((each.points[-1][1], each) for each in plot.lines if each.points), key=lambda end: -end[0])
    for value, each in ends[:_MOST]:
        number = _figure(value)
        yield value, "line", each.kind, f"{cut(each.label, _LONGEST - len(number) - 1)} {number}"
    if more := ends[_MOST:]:
        yield more[0][0], "more", None, f"and {len(more)} more"
    for level in plot.ceilings:
        yield level.value, "ceiling", level.kind, f"ceiling {_figure(level.value)}"
    spans = set[tuple[str, str]]()
    for found in plot.published:
        if (span := (_figure(found.low), _figure(found.high))) not in spans:
            yield found.high, "published", found.kind, f"published {'–'.join(dict.fromkeys(span))}"
        spans.add(span)


def _figure(value: float) -> str:
    return format_decimal(value, 0 if value >= 1e4 else 2 if value >= 0.1 else 1 - floor(log10(value)))


def _apart(wanted: Sequence[float]) -> list[float]:
    """Return places as near to the wanted ones as they can be without covering each other."""
    order = sorted(range(len(wanted)), key=lambda each: wanted[each])
    placed, edge = [0.0] * len(wanted), _TOP - _LINE / 2
    for each in order:
        edge = placed[each] = max(wanted[each], edge + _LINE)
    edge = HEIGHT - _BOTTOM + _LINE
    for each in reversed(order):
        edge = placed[each] = min(placed[each], edge - _LINE)
    return placed


def _points(plot: Plot, area: Axes) -> Iterator[dict[str, Any]]:
    """Yield the values at each size, for a reader who points at it."""
    lines = [(line.label, dict(line.points)) for line in plot.lines]
    sizes = sorted({size for line in plot.lines for size, _ in line.points})
    places = list(map(area.x, sizes))
    middles = [(before + after) / 2 for before, after in pairwise(places)]
    edges = [_LEFT - 10.0, *middles, area.right + 10] if places else []
    for size, x, (start, end) in zip(sizes, places, pairwise(edges), strict=True):
        values = ", ".join(f"{label} {_figure(known[size])}" for label, known in lines if size in known)
        shown = cut(here := f"{format_size(size)}: {values}", 60)
        yield {"x": x, "start": start, "width": end - start, "shown": shown, "all": here if here != shown else ""}


# ---------------------------------------------------------------- heat maps

MAX_ROWS = 64
_HEAD = 40
_WIDE = 900
_LEVELS, _OTHERS = (0.95, 0.9, 0.75, 0.5, 0.25), ("less", "failed", "not tested")
_WRITTEN = 18  # Up to so many rows, cells have their value and columns their names


def _heat(matrix: "Matrix") -> dict[str, Any]:
    """Return a heat map: neighbors of one color in a row are one rectangle, unless they have values."""
    rows, names = len(matrix.names), [cut(name, 26) for name in matrix.names]
    written, longest = rows <= _WRITTEN, max(map(len, names), default=0)
    side = 24 + int(_LETTER * (longest + 5 * (max(matrix.sizes, default=1) > 1)))
    across = max(12, min(48 if written else 28, (_WIDE - side - 20) // max(rows, 1)))
    down = min(across, 30)
    head = _HEAD + (12 + int(4.6 * longest) if written else 8)
    return {
        "width": max(side + rows * across + (70 if written else 20), 700),
        "height": head + rows * down + 16,
        "side": side,
        "head": head,
        "across": across,
        "down": down,
        "legend": list(zip("012345xn", [*(f"≥ {each:.0%}" for each in _LEVELS), *_OTHERS], strict=True)),
        "rows": list(zip(names, matrix.sizes, matrix.suspects, strict=True)),
        "columns": names if written else [],
        "cells": [list(_cells(matrix, row, written=written)) for row in range(rows)],
        "edges": [row for row in range(1, rows) if matrix.groups[row] != matrix.groups[row - 1]],
    }


def _cells(matrix: "Matrix", row: int, *, written: bool) -> Iterator[tuple[str, int, int, str, str]]:
    start = 0
    parts = list(map(float, matrix.cells[row]))
    kinds = list(map(_level, parts))
    for column, kind in enumerate(kinds):
        fine = kind in {"0", "1", "n"} and not (written and kind != "n")
        if fine and column + 1 < len(kinds) and kinds[column + 1] == kind:
            continue
        if kind != "n":
            title = "" if fine else f"{matrix.names[row]}, {matrix.names[column]}: {part_words(parts[column])}"
            value = f"{100 * parts[column]:.0f}" if written and parts[column] > 0 else ""
            yield kind, start, column + 1 - start, title, value
        start = column + 1


def part_words(part: float) -> str:
    """Say what a cell of a matrix is."""
    return "not tested" if isnan(part) else "failed" if part <= 0 else f"{part:.0%} of typical"


def _level(part: float) -> str:
    if isnan(part) or part <= 0:
        return "n" if isnan(part) else "x"
    return str(next((index for index, level in enumerate(_LEVELS) if part >= level), len(_LEVELS)))


# ---------------------------------------------------------------- trends

_SPAN = 0.1  # The smallest fraction of a value that the height covers, so that noise looks flat
_DOTS = ((60, 6.0), (300, 4.0), (1 << 60, 2.5))  # Sizes of dots: up to so many runs
_NAMED = 400  # Up to so many runs, each dot says which run it is


def _trend(series: "Series", axis: str, factor: float) -> dict[str, Any]:
    values = [point.value / factor for point in series.points]
    changes, count = [change.index for change in series.changes], len(values)
    low, high = min(values), max(values)
    span = max(high - low, _SPAN * high)
    bottom = max((low + high - span) / 2 - 0.06 * span, 0.0)
    top, right, foot = _TOP + 12, WIDTH - 90, HEIGHT - _BOTTOM

    def x(index: float) -> float:
        return _LEFT + (index + 0.5) / count * (right - _LEFT)

    def y(value: float) -> float:
        return top + (1 - (value - bottom) / (1.12 * span)) * (foot - top)

    ends = [0, *changes, count]
    levels = [change.before / factor for change in series.changes] + [series.level / factor]
    large = next(each for limit, each in _DOTS if count <= limit)
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "area": {"left": _LEFT, "top": top, "right": right, "bottom": foot},
        "axis": axis,
        "values": [(y(value), label) for value, label in _steps(bottom, bottom + 1.12 * span)],
        "moments": [(x(index), label) for index, label in _moments([point.created for point in series.points])],
        "dots": " ".join(f"M{x(index):.1f} {y(value):.1f}h0" for index, value in enumerate(values)),
        "large": large,
        "named": [
            (x(index), y(value), f"{point.run}, {point.created[:16].replace('T', ' ')}: {_figure(value)}")
            for index, (point, value) in enumerate(zip(series.points, values, strict=True))
            if count <= _NAMED and value > 0
        ],
        "levels": [
            (x(start - 0.5), x(end - 0.5), y(level)) for (start, end), level in zip(pairwise(ends), levels, strict=True)
        ],
        "changes": [(number, x(index - 0.5)) for number, index in enumerate(changes, 1)],
        "latest": (y(levels[-1]), f"level {_figure(levels[-1])}"),
    }


def _steps(low: float, high: float) -> Iterator[tuple[float, str]]:
    rough = (high - low) / 5
    power = floor(log10(rough))
    step = next(each for each in (1, 2, 5, 10) if each * 10.0**power >= rough) * 10.0**power
    for number in range(ceil(low / step), floor(high / step) + 1):
        yield number * step, f"{number * step:.{max(0, -floor(log10(step) + 1e-9))}f}"


def _moments(created: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield up to five of the runs with when they were: as dates, or with the time where days are the same."""
    shown = sorted({round(step * (len(created) - 1) / 4) for step in range(5)})
    texts = [created[index].replace("T", " ") for index in shown]
    for start, end in ((0, 10), (5, 16), (11, 19)):
        labels = [text[start:end] for text in texts]
        if len({*labels}) == len(labels) or (start, end) == (11, 19):
            yield from zip(shown, labels, strict=True)
            return
