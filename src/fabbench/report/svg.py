"""Pictures: lines by message size, trends, heat maps. Text that needs no library, no script, no network.

This is their geometry; `templates/plot.svg` writes it. What differs in color differs in dashes, markers or
words too. Colors are classes: they follow the reader's light or dark setting.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import ceil, floor, isnan, log2, log10
from typing import TYPE_CHECKING, Any, NamedTuple

from fabbench.model.messages import one_line
from fabbench.model.units import format_decimal, format_size
from fabbench.report.templates import rendered

if TYPE_CHECKING:
    from markupsafe import Markup

    from fabbench.analysis.history import Series
    from fabbench.sweep.matrix import Matrix

WIDTH, WIDE, NARROW = 600, 1000, 360  # Of a plot beside its table, of a trend, of both on a phone
_HEIGHT, _TOP, _BOTTOM = 330, 30, 32
_LETTER, _LINE = 7.6, 15  # Width and height of a letter, in the units of the picture
_LONGEST, _MOST = 24, 18  # Letters of a label beside a line, and how many labels there are at most
KINDS = 6  # Kinds of lines; plot.css has the color and the dashes of each


class Picture(NamedTuple):
    """What is drawn: its macro in the template with what that takes, for wide windows and for phones."""

    kind: str
    drawn: Sequence[Mapping[str, Any]]
    title: str
    headline: str = ""  # The title where it stands alone
    description: str = ""  # Sentences for readers who cannot see it


def to_svg(picture: Picture, *, name: str = "plot") -> "Markup":
    """Write a picture for a page, also as phones show it; `name` is unique there."""
    return rendered("page.svg", picture=picture, name=name)


def to_svg_file(pictures: Sequence[Picture]) -> str:
    """Write pictures one below the other as a standalone file. Ends with a newline."""
    parts, y, width = list[dict[str, Any]](), 0, max([WIDTH, *(each.drawn[0]["width"] for each in pictures)])
    for each in pictures:
        lines = textwrap.wrap(one_line(each.headline or each.title), width // 9)[:4]
        parts.append({"picture": each, "y": y, "lines": lines, "top": 12 + 20 * len(lines)})
        y += parts[-1]["top"] + each.drawn[0]["height"]
    title = "; ".join(each.title for each in pictures) or "no plot"
    return str(rendered("file.svg", parts=parts, title=title, width=width, height=y or 44))


def cut(text: str, limit: int) -> str:
    """Return text on one line of at most `limit` characters."""
    line = one_line(text)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


# ---------------------------------------------------------------- axes


class Axis(NamedTuple):
    """Values between two places; one outside is at the edge. A logarithmic axis has no 0."""

    low: float
    high: float
    start: float
    end: float
    linear: bool = False

    def place(self, value: float) -> float:
        """Return where a value is."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if not self.linear:
            low, high, at = log2(low), log2(high), log2(at)
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Return the places of round values, with labels: steps or powers of ten, or parts of these if they are few."""
        if self.linear:
            power = floor(log10(self.high - self.low))
            steps = [step * 10.0 ** (power - less) for less in (0, 1) for step in (5, 2, 1)]
            tried = [[number * each for number in range(floor(self.high / each) + 1)] for each in steps]
        else:
            powers = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
            parts = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8))
            tried = [[part * 10.0**power for power in powers for part in each] for each in parts]
        within = [[value for value in values if self.low <= value <= self.high] for values in tried]
        values = next((each for each in within if len(each) > 2), within[-1])
        return [(self.place(value), _number(value)) for value in values[:: 1 + (len(values) - 1) // 8]]


def _number(value: float) -> str:
    for least, unit in ((1e6, "M"), (1e4, "k")):
        if value >= least:
            return f"{value / (least if unit == 'M' else 1e3):g}{unit}"
    return format_decimal(value, 6 if value >= 1e-4 or value <= 0 else 2 - floor(log10(value)))


def _figure(value: float) -> str:
    return format_decimal(value, 0 if value >= 1e4 else 2 if value >= 0.1 else 1 - floor(log10(value)))


def _frame(width: int, ends: tuple[float, float], y: Axis, right: float, caption: str) -> dict[str, Any]:
    """Return what pictures with axes have in common; on the left there is room for the labels of the ticks."""
    ticks = y.ticks()
    left = 18 + 7 * max((len(label) for _, label in ticks), default=0)
    return {
        "width": width,
        "height": y.start + _BOTTOM,
        "area": {"left": left, "top": y.end, "right": right, "bottom": y.start},
        "caption": caption,
        "ticks": ticks,
        "x": Axis(*ends, left, right, linear=y.linear).place,
        "y": y.place,
        "letter": _LETTER,
    }


# ---------------------------------------------------------------- lines


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotLine:
    """One line."""

    label: str
    points: Sequence[tuple[int, float]]  # Size and value, which is more than 0, in the unit of the axis
    band: Sequence[tuple[int, float, float]] = ()  # Size, lower and upper bound
    kind: int = 0  # Selects the color, dashes and marker


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
    headline: str = ""
    ceilings: Sequence[float] = ()  # Levels that no value can exceed
    published: Sequence[PublishedRange] = ()
    description: str = ""
    even: bool = False  # Whether there is a line at 1

    def picture(self) -> Picture:
        """Return it with labels beside the ends of its lines; on a phone they are above it."""
        drawn = [_lines(self, width) for width in (WIDTH, NARROW)]
        return Picture("lines", drawn, self.title, self.headline, self.description)


def _lines(plot: Plot, width: int) -> dict[str, Any]:
    labels, beside = list(_labels(plot)), width >= WIDTH
    values = [value for line in plot.lines for _, value in line.points]
    values += [bound for line in plot.lines for _, *bounds in line.band for bound in bounds if bound > 0]
    values += [*plot.ceilings, *(bound for each in plot.published for bound in each[1:3]), *[1.0] * plot.even]
    low, high = min(values, default=1.0), max(values, default=10.0)
    low, high = (low / 1.4, high * 1.4) if high < 2 * low else (low, high)
    room, top = (high / low) ** 0.04, _TOP + (0 if beside else _LINE * len(labels))
    y = Axis(low / room, high * room, top + _HEIGHT - _TOP - _BOTTOM, top)
    right = width - 28 - _LETTER * max((len(each[-1]) for each in labels), default=0) if beside else width - 24

    sizes = sorted({size for line in plot.lines for size, _ in line.points})
    ends = [*sizes, *(each.size for each in plot.published)] or [1]
    first, last = float(max(min(ends), 1)), float(max(ends))
    first, last = (first / 2, last * 2) if first == last else (first, last)
    least, most = ceil(log2(first)), floor(log2(last))
    powers = range(most, least - 1, -(1 + (most - least) // (6 if beside else 4)))
    return {
        **_frame(width, (first, last), y, right, plot.axis),
        "below": [(1 << power, format_size(1 << power)) for power in reversed(powers)],
        "plot": plot,
        "side": right if beside else 0,
        "labels": list(zip(_apart([y.place(each[0]) for each in labels], y, beside=beside), labels, strict=True)),
        "told": [(size, [format_size(size), *_values(plot, size)]) for size in sizes if beside],
    }


def _labels(plot: Plot) -> Iterator[tuple[float, str, int, str]]:
    """Yield a value, what it is, the kind of its line, and its text: lines with their last value, the largest first."""
    ends = sorted(((each.points[-1][1], each) for each in plot.lines if each.points), key=lambda end: -end[0])
    for value, each in ends[:_MOST]:
        number = _figure(value)
        yield value, "line", each.kind, f"{cut(each.label, _LONGEST - len(number) - 1)} {number}"
    if more := ends[_MOST:]:
        yield more[0][0], "more", 0, f"and {len(more)} more"
    for level in plot.ceilings:
        yield level, "ceiling", 0, f"ceiling {_figure(level)}"
    spans = dict[str, PublishedRange]()
    for found in plot.published:
        spans.setdefault("–".join(dict.fromkeys(map(_figure, found[1:3]))), found)
    yield from ((found.high, "published", found.kind, f"published {span}") for span, found in spans.items())


def _values(plot: Plot, size: int) -> list[str]:
    lines = ((cut(line.label, _LONGEST), dict(line.points).get(size)) for line in plot.lines)
    return [f"{label} {_figure(value)}" for label, value in lines if value is not None][:_MOST]


def _apart(wanted: Sequence[float], y: Axis, *, beside: bool) -> list[float]:
    """Return places as near to the wanted ones as they can be without covering each other; else one below the other."""
    if not beside:
        return [10.0 + _LINE * number for number in range(len(wanted))]
    order = sorted(range(len(wanted)), key=lambda each: wanted[each])
    placed, edge = [0.0] * len(wanted), y.end - _LINE / 2
    for each in order:
        edge = placed[each] = max(wanted[each], edge + _LINE)
    edge = y.start + _LINE
    for each in reversed(order):
        edge = placed[each] = min(placed[each], edge - _LINE)
    return placed


# ---------------------------------------------------------------- trends

_SPAN = 0.1  # The smallest fraction of a value that the height covers, so that noise looks flat
_NAMED = 400  # Up to so many runs, each dot says which run it is


def trend(series: "Series", axis: str, factor: float, title: str, description: str) -> Picture:
    """Return values by run: dots, the levels between changes, a number at each change."""
    drawn = [_trend(series, axis, factor, width) for width in (WIDE, NARROW)]
    return Picture("trend", drawn, title, description=description)


def _trend(series: "Series", axis: str, factor: float, width: int) -> dict[str, Any]:
    points, values = series.points, [point.value / factor for point in series.points]
    changes, count = [change.index for change in series.changes], len(values)
    low, high = min(values), max(values)
    span = max(high - low, _SPAN * high)
    bottom = max((low + high - span) / 2 - 0.06 * span, 0.0)
    y = Axis(bottom, bottom + 1.12 * span, _HEIGHT - _BOTTOM, _TOP + 12, linear=True)
    levels = [each / factor for each in (*(change.before for change in series.changes), series.level)]
    latest = f"level {_figure(levels[-1])}"
    told = [
        (index, [point.run, point.created[:16].replace("T", " "), _figure(value)])
        for index, (point, value) in enumerate(zip(points, values, strict=True))
        if count <= _NAMED and value > 0 and width > NARROW
    ]
    return {
        **_frame(width, (-0.5, count - 0.5), y, width - 12 - _LETTER * len(latest), axis),
        "below": list(_moments([point.created for point in points], 4 if width > NARROW else 2)),
        "dots": list(enumerate(values)),
        "large": 6.0 if count <= 60 else 4.0 if count <= 300 else 2.5,
        "levels": list(zip(pairwise([0, *changes, count]), levels, strict=True)),
        "changes": changes,
        "latest": latest,
        "told": told,
    }


def _moments(created: Sequence[str], steps: int) -> Iterator[tuple[int, str]]:
    """Yield some of the runs with when they were: as dates, or with the time where days are the same."""
    shown = sorted({round(step * (len(created) - 1) / steps) for step in range(steps + 1)})
    texts = [created[index].replace("T", " ") for index in shown]
    tried = [[text[start:end] for text in texts] for start, end in ((0, 10), (5, 16), (11, 19))]
    yield from zip(shown, next((each for each in tried if len({*each}) == len(each)), tried[-1]), strict=True)


# ---------------------------------------------------------------- heat maps

MAX_ROWS = 64
_WIDE = 900
_LEVELS, _OTHERS = (0.95, 0.9, 0.75, 0.5, 0.25), ("less", "failed", "not tested")
_LEGEND = 74  # Width of an element of it
_WRITTEN = 18  # Up to so many rows, cells have their value and columns their names


def heat_map(matrix: "Matrix", headline: str) -> Picture:
    """Return a matrix: neighbors of one color in a row are one rectangle, unless they have values."""
    rows, names = len(matrix.names), [cut(name, 26) for name in matrix.names]
    written, longest = rows <= _WRITTEN, max(map(len, names), default=0)
    side = 24 + int(_LETTER * (longest + 5 * (max(matrix.sizes, default=1) > 1)))
    across = max(12, min(36 if written else 28, (_WIDE - side - 20) // max(rows, 1)))
    width = max(side + rows * across + (60 if written else 20), NARROW)
    legend = list(zip("012345xn", [*(f"≥ {each:.0%}" for each in _LEVELS), *_OTHERS], strict=True))
    a_line = (width - 90) // _LEGEND
    head = 16 + 18 * ceil(len(legend) / a_line) + (12 + int(4.6 * longest) if written else 8)
    drawn = {
        "width": width,
        "height": head + rows * min(across, 30) + 16,
        "side": side,
        "head": head,
        "across": across,
        "down": min(across, 30),
        "legend": [legend[at : at + a_line] for at in range(0, len(legend), a_line)],
        "rows": list(zip(names, matrix.sizes, matrix.suspects, strict=True)),
        "columns": names if written else [],
        "cells": [list(_cells(matrix, row, written=written)) for row in range(rows)],
        "edges": [row for row in range(1, rows) if matrix.groups[row] != matrix.groups[row - 1]],
    }
    return Picture("heat", [drawn], headline)


def _cells(matrix: "Matrix", row: int, *, written: bool) -> Iterator[tuple[str, int, int, str, str]]:
    """Yield the rectangles of a row: kind, column, how many columns, what it is, the value in it."""
    parts = list(map(float, matrix.cells[row]))
    alike = {"n"} if written else {"n", "0", "1"}
    kinds = [(kind := _level(part), -1 if kind in alike else column) for column, part in enumerate(parts)]
    for (kind, alone), columns in groupby(range(len(parts)), kinds.__getitem__):
        start, *more = columns
        if kind != "n":
            title = "" if alone < 0 else f"{matrix.names[row]}, {matrix.names[start]}: {part_words(parts[start])}"
            value = (f"{100 * parts[start]:.0f}" if parts[start] > 0 else "x") if written else ""
            yield kind, start, 1 + len(more), title, value


def part_words(part: float) -> str:
    """Say what a cell of a matrix is."""
    return "not tested" if isnan(part) else "failed" if part <= 0 else f"{part:.0%} of typical"


def _level(part: float) -> str:
    if isnan(part) or part <= 0:
        return "n" if isnan(part) else "x"
    return str(next((index for index, level in enumerate(_LEVELS) if part >= level), len(_LEVELS)))
