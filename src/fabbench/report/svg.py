"""Pictures: lines by message size, trends, heat maps. Text that needs no library, no script, no network.

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

WIDTH, WIDE, NARROW = 600, 1000, 360  # Of a plot beside its table, of a trend, of both on a phone
_HEIGHT, _TOP, _BOTTOM = 330, 30, 32
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
    """Write a plot for a page, also as phones show it; `name` is unique there."""
    drawn = [_lines(plot, width) for width in (WIDTH, NARROW)]
    return rendered("page.svg", kind="lines", drawn=drawn, title=plot.title, about=plot.description, name=name)


def trend_svg(series: "Series", axis: str, factor: float, about: str, *, name: str) -> "Markup":
    """Write the trend of a series for a page: dots, the levels between changes, a number at each change."""
    drawn = [_trend(series, axis, factor, width) for width in (WIDE, NARROW)]
    return rendered("page.svg", kind="trend", drawn=drawn, title=f"{axis} by run", about=about, name=name)


def heat_map_svg(matrix: "Matrix", headline: str) -> "Markup":
    """Write a matrix for a page."""
    return rendered("page.svg", kind="heat", drawn=[_heat(matrix)], title=headline, about="", name="heat-map")


def to_svg_file(plots: Sequence[Plot]) -> str:
    """Write plots one below the other as a standalone file. Ends with a newline."""
    drawn = [("lines", each.headline or each.title, each.description, _lines(each, WIDTH)) for each in plots]
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
            tried = [
                [number * step for number in range(ceil(self.low / step), floor(self.high / step) + 1)]
                for step in steps
            ]
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


def _frame(width: int, y: Axis, right: float, caption: str) -> dict[str, Any]:
    """Return what pictures with axes have in common; on the left there is room for the labels of the ticks."""
    ticks = y.ticks()
    left = 18 + 7 * max((len(label) for _, label in ticks), default=0)
    area = {"left": left, "top": y.end, "right": right, "bottom": y.start}
    return {"width": width, "height": y.start + _BOTTOM, "area": area, "caption": caption, "ticks": ticks, "y": y.place}


def _hover(places: Sequence[tuple[float, Sequence[str]]], area: Mapping[str, float], width: int) -> Iterator[Any]:
    """Yield what is shown while a reader points near each place: lines of text in a box beside it."""
    middles = [(one + other) / 2 for one, other in pairwise(x for x, _ in places)]
    edges = [area["left"] - 10, *middles, area["right"] + 10]
    for (x, lines), (start, end) in zip(places, pairwise(edges), strict=False):
        wide = 12 + _LETTER * max(map(len, lines))
        left = x + 8 if x + 8 + wide <= width else x - 8 - wide
        yield {"x": x, "start": start, "across": end - start, "lines": lines, "box": left, "wide": wide}


# ---------------------------------------------------------------- lines


def _lines(plot: Plot, width: int) -> dict[str, Any]:
    """Return a plot with labels beside the ends of its lines; a narrow one has them above it."""
    labels, beside = list(_labels(plot)), width >= WIDTH
    values = [value for line in plot.lines for _, value in line.points]
    values += [bound for line in plot.lines for _, *bounds in line.band for bound in bounds if bound > 0]
    values += [each.value for each in plot.ceilings] + [1.0] * plot.even
    values += [bound for each in plot.published for bound in (each.low, each.high)]
    low, high = min(values, default=1.0), max(values, default=10.0)
    low, high = (low / 1.4, high * 1.4) if high < 2 * low else (low, high)
    room, top = (high / low) ** 0.04, _TOP + (0 if beside else _LINE * len(labels))
    y = Axis(low / room, high * room, top + _HEIGHT - _TOP - _BOTTOM, top)
    right = width - 28 - _LETTER * max((len(each[-1]) for each in labels), default=0) if beside else width - 24
    frame = _frame(width, y, right, plot.axis)

    sizes = [size for line in plot.lines for size, _ in line.points] + [each.size for each in plot.published]
    first, last = float(max(min(sizes, default=1), 1)), float(max(sizes, default=1))
    first, last = (first / 2, last * 2) if first == last else (first, last)
    x = Axis(first, last, frame["area"]["left"], right)
    least, most = ceil(log2(first)), floor(log2(last))
    powers = range(most, least - 1, -(1 + (most - least) // (6 if beside else 4)))
    return {
        **frame,
        "x": x.place,
        "below": [(x.place(1 << power), format_size(1 << power)) for power in reversed(powers)],
        "plot": plot,
        "side": right if beside else 0,
        "labels": list(zip(_apart([y.place(each[0]) for each in labels], y, beside=beside), labels, strict=True)),
        "hover": list(_hover(list(_values(plot, x)), frame["area"], width)) if beside else [],
    }


def _labels(plot: Plot) -> Iterator[tuple[float, str, int | None, str]]:
    """Yield a value, what it is, the kind of its line, and its text: lines with their last value, the largest first."""
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


def _values(plot: Plot, x: Axis) -> Iterator[tuple[float, Sequence[str]]]:
    """Yield the place of each size, and its values."""
    lines = [(cut(line.label, _LONGEST), dict(line.points)) for line in plot.lines]
    for size in sorted({size for line in plot.lines for size, _ in line.points}):
        known = [f"{label} {_figure(values[size])}" for label, values in lines if size in values]
        yield x.place(size), [format_size(size), *known[:_MOST]]


# ---------------------------------------------------------------- trends

_SPAN = 0.1  # The smallest fraction of a value that the height covers, so that noise looks flat
_DOTS = ((60, 6.0), (300, 4.0), (1 << 60, 2.5))  # Sizes of dots: up to so many runs
_NAMED = 400  # Up to so many runs, each dot says which run it is


def _trend(series: "Series", axis: str, factor: float, width: int) -> dict[str, Any]:
    values = [point.value / factor for point in series.points]
    changes, count = [change.index for change in series.changes], len(values)
    low, high = min(values), max(values)
    span = max(high - low, _SPAN * high)
    bottom = max((low + high - span) / 2 - 0.06 * span, 0.0)
    y = Axis(bottom, bottom + 1.12 * span, _HEIGHT - _BOTTOM, _TOP + 12, linear=True)
    levels = [change.before / factor for change in series.changes] + [series.level / factor]
    latest = f"level {_figure(levels[-1])}"
    frame = _frame(width, y, width - 12 - _LETTER * len(latest), axis)
    x = Axis(-0.5, count - 0.5, frame["area"]["left"], frame["area"]["right"], linear=True)
    shown = [
        (x.place(index), [point.run, point.created[:16].replace("T", " "), _figure(value)])
        for index, (point, value) in enumerate(zip(series.points, values, strict=True))
        if count <= _NAMED and value > 0
    ]
    moments = _moments([point.created for point in series.points], 4 if width > NARROW else 2)
    return {
        **frame,
        "x": x.place,
        "below": [(x.place(index), label) for index, label in moments],
        "dots": list(enumerate(values)),
        "large": next(each for limit, each in _DOTS if count <= limit),
        "levels": list(zip(pairwise([0, *changes, count]), levels, strict=True)),
        "changes": changes,
        "latest": latest,
        "hover": list(_hover(shown, frame["area"], width)) if width > NARROW else [],
    }


def _moments(created: Sequence[str], steps: int) -> Iterator[tuple[int, str]]:
    """Yield some of the runs with when they were: as dates, or with the time where days are the same."""
    shown = sorted({round(step * (len(created) - 1) / steps) for step in range(steps + 1)})
    texts = [created[index].replace("T", " ") for index in shown]
    for start, end in ((0, 10), (5, 16), (11, 19)):
        labels = [text[start:end] for text in texts]
        if len({*labels}) == len(labels) or (start, end) == (11, 19):
            yield from zip(shown, labels, strict=True)
            return


# ---------------------------------------------------------------- heat maps

MAX_ROWS = 64
_WIDE = 900
_LEVELS, _OTHERS = (0.95, 0.9, 0.75, 0.5, 0.25), ("less", "failed", "not tested")
_LEGEND = 74  # Width of an element of it
_WRITTEN = 18  # Up to so many rows, cells have their value and columns their names


def _heat(matrix: "Matrix") -> dict[str, Any]:
    """Return a heat map: neighbors of one color in a row are one rectangle, unless they have values."""
    rows, names = len(matrix.names), [cut(name, 26) for name in matrix.names]
    written, longest = rows <= _WRITTEN, max(map(len, names), default=0)
    side = 24 + int(_LETTER * (longest + 5 * (max(matrix.sizes, default=1) > 1)))
    across = max(12, min(36 if written else 28, (_WIDE - side - 20) // max(rows, 1)))
    width = max(side + rows * across + (60 if written else 20), NARROW)
    words = [*(f"≥ {each:.0%}" for each in _LEVELS), *_OTHERS]
    across_legend = (width - 90) // _LEGEND
    head = 16 + 18 * ceil(len(words) / across_legend) + (12 + int(4.6 * longest) if written else 8)
    down = min(across, 30)
    return {
        "width": width,
        "height": head + rows * down + 16,
        "side": side,
        "head": head,
        "across": across,
        "down": down,
        "legend": [
            list(zip("012345xn", words, strict=True))[at : at + across_legend] for at in range(0, 8, across_legend)
        ],
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
            value = (f"{100 * parts[column]:.0f}" if parts[column] > 0 else "x") if written else ""
            yield kind, start, column + 1 - start, title, value
        start = column + 1


def part_words(part: float) -> str:
    """Say what a cell of a matrix is."""
    return "not tested" if isnan(part) else "failed" if part <= 0 else f"{part:.0%} of typical"


def _level(part: float) -> str:
    if isnan(part) or part <= 0:
        return "n" if isnan(part) else "x"
    return str(next((index for index, level in enumerate(_LEVELS) if part >= level), len(_LEVELS)))
