"""Pictures: plots of a comparison, trends. Text that needs no library, no script, no network.

This is their geometry; `templates/plot.svg` writes it. What differs in color differs in dashes,
markers or words too. Colors are classes: they follow the reader's light or dark setting.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from math import ceil, floor, log2, log10
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from fabbench.analysis.compare import Comparison, ComparisonSection
from fabbench.analysis.headline import headline
from fabbench.model.errors import MachineError
from fabbench.model.messages import counted, one_line
from fabbench.model.units import format_decimal, format_size
from fabbench.report.comparison_tables import title_of
from fabbench.report.expectations import expectations_of
from fabbench.report.table import cut
from fabbench.report.templates import rendered

if TYPE_CHECKING:
    from markupsafe import Markup

    from fabbench.analysis.expectations import Expectation
    from fabbench.analysis.history import Series

WIDTH = 600  # Of a plot beside its table
WIDE = 1000  # Of a trend
NARROW = 360  # Of both on a phone
_HEIGHT = 330
_TOP = 30
_BOTTOM = 32
LETTER = 7.6  # The width of a letter, in the units of the picture
_LINE = 15  # Its height
_LONGEST = 24  # Letters of a label beside a line
_MOST = 18  # How many labels there are at most
KINDS = 6  # Kinds of lines; plot.css has the color and the dashes of each
# for a PNG, which knows no system-ui
_FONTS = "Arial,Helvetica,'DejaVu Sans','Liberation Sans','Noto Sans',Roboto"
_LETTER = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><text y="9" '
    'font-family="{}">{}</text></svg>'
)


class Picture(NamedTuple):
    """What is drawn.

    Its macro in the template with what that takes, for wide windows and for phones.
    """

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
    width = WIDTH
    height = 0
    titled: list[tuple[Picture, list[str]]] = []
    for each in pictures:
        width = max(width, each.drawn[0]["width"])
    for each in pictures:
        title = one_line(each.headline or each.title)
        lines = textwrap.wrap(title, width // 9)[:4]
        height += each.drawn[0]["height"]
        height += 12 + 20 * len(lines)
        titled.append((each, lines))
    titles = "; ".join(each.title for each in pictures) or "no plot"
    size = {"width": width, "height": height or 44}
    return str(rendered("file.svg", parts=titled, title=titles, **size))


def to_png(text: str) -> bytes:
    """Draw an SVG file of ours in light colors; an empty one is nothing.

    Raise MachineError if that is not possible.
    """
    try:
        from resvg_py import svg_to_bytes
    except ImportError as error:
        hint = "pip install 'fabbench[png]', or write a .svg file."
        raise MachineError("A PNG file needs the package resvg-py.", hint=hint) from error
    blank = svg_to_bytes(svg_string=_LETTER.format(_FONTS, ""))
    if blank == svg_to_bytes(svg_string=_LETTER.format(_FONTS, "M")):
        hint = "Install one (fonts-dejavu-core), or write a .svg file."
        raise MachineError("No font was found to write a PNG file with.", hint=hint)
    if not text:
        return b""
    # CSS variables are ours to replace
    light_style, _, _ = text.partition("@media")
    light = dict(re.findall(r"(--\w+):([^;}]+)", light_style))
    plain = re.sub(r"var\((--\w+)\)", lambda match: light[match[1]], text)
    in_fonts = plain.replace("system-ui", _FONTS)
    return bytes(svg_to_bytes(svg_string=in_fonts, background="#fff", zoom=2))


# ---------------------------------------------------------------- axes


_MOST_TICKS = 8
_DIGITS: Sequence[Sequence[float]] = (
    (1,),
    (1, 2, 5),
    (1, 1.5, 2, 3, 4, 5, 6, 8),
)
"""With which the ticks of a logarithmic axis begin: the first that make three."""


class Axis(NamedTuple):
    """Values between two places; one outside is at the edge. A logarithmic axis has no 0."""

    low: float
    high: float
    start: float
    end: float
    linear: bool = False

    def place(self, value: float) -> float:
        """Return where a value is."""
        inside = min(max(value, self.low), self.high)
        if self.linear:
            part = (inside - self.low) / (self.high - self.low)
        else:
            low = log2(self.low)
            part = (log2(inside) - low) / (log2(self.high) - low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Return the places of round values, with labels: three or more if there are so many."""
        values: list[float] = []
        for tried in self._round_values():
            values = [value for value in tried if self.low <= value <= self.high]
            if len(values) > 2:
                break
        every = 1 + (len(values) - 1) // _MOST_TICKS
        shown = values[::every]
        return [(self.place(value), _figure(value)) for value in shown]

    def _round_values(self) -> Iterator[Sequence[float]]:
        """Yield round values of about this axis, each time more of them."""
        if self.linear:
            power = floor(log10(self.high - self.low))
            for exponent in (power, power - 1):
                for digit in (5, 2, 1):
                    step = digit * 10.0**exponent
                    steps = range(floor(self.high / step) + 1)
                    yield [number * step for number in steps]
            return
        lowest = floor(log10(self.low))
        highest = ceil(log10(self.high))
        powers = [10.0**exponent for exponent in range(lowest, highest + 1)]
        for digits in _DIGITS:
            yield [digit * power for power in powers for digit in digits]


def _figure(value: float) -> str:
    if value >= 1e4:
        return format_decimal(value, 0)
    if value >= 0.1 or not value:
        return format_decimal(value, 2)
    return format_decimal(value, 1 - floor(log10(value)))


def _axes(x: Axis, y: Axis, caption: str) -> dict[str, Any]:
    """Return what pictures with axes have in common.

    On the left of `x` there is room for the labels of the ticks.
    """
    ticks = y.ticks()
    longest = max((len(label) for _, label in ticks), default=0)
    left = 18 + 7 * longest
    return {
        "height": y.start + _BOTTOM,
        "area": {"left": left, "top": y.end, "right": x.end, "bottom": y.start},
        "caption": caption,
        "ticks": ticks,
        "x": x._replace(start=left).place,
        "y": y.place,
    }


# ---------------------------------------------------------------- lines


class PlotLine(NamedTuple):
    """One line."""

    label: str
    # Size and value, which is more than 0, in the unit of the axis
    points: Sequence[tuple[int, float]]
    band: Sequence[tuple[int, float, float]] = ()  # Size, lower and upper bound
    kind: int = 0  # Selects the color, dashes and marker

    @property
    def last(self) -> float:
        """The value at the largest size."""
        _, value = self.points[-1]
        return value


class PublishedRange(NamedTuple):
    """What others measured at one size, for one line."""

    size: int
    low: float
    high: float
    kind: int = 0


class _Label(NamedTuple):
    """What is written beside a plot, as near to a value as there is room."""

    value: float
    mark: str  # Of which the template draws a sample
    kind: int  # Of the line
    text: str


class LinePlot(NamedTuple):
    """Values by message size. `ceilings`: levels that no value can exceed."""

    caption: str
    lines: Sequence[PlotLine]
    ceilings: Sequence[float] = ()
    published: Sequence[PublishedRange] = ()

    def drawn(self, width: int) -> dict[str, Any]:
        """Return what the template takes.

        Labels are beside the ends of the lines; on a phone they are above the plot.
        """
        labels = list(self._labels())
        beside = width >= WIDTH
        top = _TOP
        right: float = width - 24
        if beside:
            longest = max((len(each.text) for each in labels), default=0)
            right = width - 28 - LETTER * longest
        else:
            top += _LINE * len(labels)
        y = self._y(top)
        x = self._x(right)
        wanted = [y.place(each.value) for each in labels]
        places = _places(wanted, y, beside=beside)
        return {
            **_axes(x, y, self.caption),
            "width": width,
            "below": _powers_of_two(x, 6 if beside else 4),
            "lines": self.lines,
            "ceilings": self.ceilings,
            "published": self.published,
            "side": right if beside else 0,
            "labels": list(zip(places, labels, strict=True)),
            "told": list(self._told()) if beside else [],
        }

    def _y(self, top: float) -> Axis:
        values = list(self._values())
        low = min(values, default=1.0)
        high = max(values, default=10.0)
        if high < 2 * low:
            low /= 1.4
            high *= 1.4
        room = (high / low) ** 0.04
        bottom = top + _HEIGHT - _TOP - _BOTTOM
        return Axis(low / room, high * room, bottom, top)

    def _values(self) -> Iterator[float]:
        """Yield all values that the plot must have room for."""
        for line in self.lines:
            yield from (value for _, value in line.points)
            for _, low, high in line.band:
                yield from (bound for bound in (low, high) if bound > 0)
        yield from self.ceilings
        for each in self.published:
            yield from (each.low, each.high)

    def _x(self, right: float) -> Axis:
        published = [each.size for each in self.published]
        sizes = [*self._sizes(), *published] or [1]
        first = float(max(min(sizes), 1))
        last = float(max(1, *sizes))
        if first == last:
            first /= 2
            last *= 2
        return Axis(first, last, 0, right)

    def _sizes(self) -> Sequence[int]:
        return sorted({size for line in self.lines for size, _ in line.points})

    def _labels(self) -> Iterator[_Label]:
        """Yield the lines with their last value, the largest first, then what else is drawn."""
        drawn = [each for each in self.lines if each.points]
        drawn.sort(key=lambda each: -each.last)
        for each in drawn[:_MOST]:
            number = _figure(each.last)
            name = cut(each.label, _LONGEST - len(number) - 1)
            yield _Label(each.last, "line", each.kind, f"{name} {number}")
        others = drawn[_MOST:]
        if others:
            more = f"and {len(others)} more"
            yield _Label(others[0].last, "more", 0, more)
        for level in self.ceilings:
            yield _Label(level, "ceiling", 0, f"ceiling {_figure(level)}")
        spans: dict[str, PublishedRange] = {}
        for found in self.published:
            ends = dict.fromkeys(map(_figure, (found.low, found.high)))
            spans.setdefault("–".join(ends), found)
        for span, found in spans.items():
            yield _Label(found.high, "published", found.kind, f"published {span}")

    def _told(self) -> Iterator[tuple[int, list[str]]]:
        """Yield each size, and what a reader is told who points there."""
        for size in self._sizes():
            told = [format_size(size)]
            for line in self.lines[:_MOST]:
                value = dict(line.points).get(size)
                if value is not None:
                    name = cut(line.label, _LONGEST)
                    told.append(f"{name} {_figure(value)}")
            yield size, told


def _powers_of_two(x: Axis, labeled: int) -> list[tuple[int, str]]:
    """Return sizes to label below a plot, at most so many, the largest power of two among them.

    None: all sizes are between two powers of two.
    """
    least = ceil(log2(max(x.low, 1.0)))
    most = floor(log2(x.high))
    step = 1 + max(most - least, 0) // labeled
    powers = reversed(range(most, least - 1, -step))
    return [(1 << power, format_size(1 << power)) for power in powers]


def _places(wanted: Sequence[float], y: Axis, *, beside: bool) -> list[float]:
    """Return places as near to the wanted ones as they can be without covering each other.

    Else one below the other.
    """
    if not beside:
        return [10.0 + _LINE * number for number in range(len(wanted))]
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    placed = list(wanted)
    edge = y.end - _LINE / 2
    for each in order:
        edge = max(placed[each], edge + _LINE)
        placed[each] = edge
    edge = y.start + _LINE
    for each in reversed(order):
        edge = min(placed[each], edge - _LINE)
        placed[each] = edge
    return placed


# ---------------------------------------------------------------- trends

_SPAN = 0.1  # The smallest fraction of a value that the height covers, so that noise looks flat
_NAMED = 400  # Up to so many runs, each dot says which run it is


def trend(series: "Series", axis: str, factor: float, title: str, description: str) -> Picture:
    """Return values by run: dots, the levels between changes, a number at each change."""
    drawn = [_trend(series, axis, factor, width) for width in (WIDE, NARROW)]
    return Picture("trend", drawn, title, description=description)


def _trend(series: "Series", caption: str, factor: float, width: int) -> dict[str, Any]:
    values = [point.value / factor for point in series.points]
    count = len(values)
    changes = [change.index for change in series.changes]
    levels = [change.before / factor for change in series.changes]
    level = series.level / factor
    latest = f"level {_figure(level)}"
    wide = width > NARROW
    low = min(values)
    high = max(values)
    span = max(high - low, _SPAN * high)
    middle = (low + high - span) / 2
    least = max(middle - 0.06 * span, 0.0)
    y = Axis(least, least + 1.12 * span, _HEIGHT - _BOTTOM, _TOP + 12, linear=True)
    right = width - 12 - LETTER * len(latest)
    x = Axis(-0.5, count - 0.5, 0, right, linear=True)
    created = [point.created for point in series.points]
    spans = pairwise([0, *changes, count])
    return {
        **_axes(x, y, caption),
        "width": width,
        "below": list(_moments(created, 4 if wide else 2)),
        "dots": values,
        "levels": list(zip(spans, [*levels, level], strict=True)),
        "latest": latest,
        "told": list(_runs(series, values)) if wide and count <= _NAMED else [],
    }


_Told: TypeAlias = tuple[int, list[str]]
"""A value of x, and what a reader is told who points there."""


def _runs(series: "Series", values: Sequence[float]) -> Iterator[_Told]:
    """Yield each run with a value."""
    for index, point in enumerate(series.points):
        if values[index] > 0:
            minute = point.created[:16].replace("T", " ")
            yield index, [point.run, minute, _figure(values[index])]


_PARTS_OF_TIME = ((0, 10), (5, 16), (11, 19))
"""Of ``2026-01-02 03:04:05``: the day, day and minute, the second."""


def _moments(created: Sequence[str], steps: int) -> Iterator[tuple[int, str]]:
    """Yield some of the runs with when they were.

    As dates, or with the time where days are the same.
    """
    last = len(created) - 1
    places = (step * last / steps for step in range(steps + 1))
    shown = list(dict.fromkeys(map(round, places)))
    times = [created[index].replace("T", " ") for index in shown]
    texts: list[str] = []
    for start, end in _PARTS_OF_TIME:
        texts = [time[start:end] for time in times]
        if len(set(texts)) == len(texts):
            break
    yield from zip(shown, texts, strict=True)


# ---------------------------------------------------------------- plots of a comparison

# Published figures at sizes of more than this times the largest measured size are not drawn
_BEYOND = 4


def plots(comparison: Comparison, sections: Sequence[ComparisonSection] = ()) -> Iterator[Picture]:
    """Yield the plots of sections, without any of all; none for a section without values."""
    for section in sections or comparison.sections:
        lines = list(_values(comparison, section))
        if lines:
            yield _plot(comparison, section, lines)


def _plot(comparison: Comparison, section: ComparisonSection, lines: Sequence[PlotLine]) -> Picture:
    factor = section.scale.factor
    metric = section.metric.name
    expected = [each for each in expectations_of(comparison) if each.key == section.key]
    ceilings = dict.fromkeys(each.ceiling / factor for each in expected if each.ceiling)
    unit = section.scale.unit
    caption = f"{metric} ({unit})"
    if any(line.band for line in lines):
        caption += "; shaded: range of repeats"
    published = list(_published(expected, lines, factor))
    plot = LinePlot(caption, lines, list(ceilings), published)
    title = f"{metric} by message size"
    if section.key:
        title += f": {title_of(section)}"
    result = headline(comparison, comparison.sections.index(section))
    judged = [f"{each.column}: {each.sentence()}" for each in expected]
    return Picture(
        "lines",
        [plot.drawn(width) for width in (WIDTH, NARROW)],
        title,
        result,
        " ".join([f"{result}.", *judged]),
    )


def _values(comparison: Comparison, section: ComparisonSection) -> Iterator[PlotLine]:
    factor = section.scale.factor
    for index, column in enumerate(comparison.columns):
        points: list[tuple[int, float]] = []
        band: list[tuple[int, float, float]] = []
        several = False
        for size, figure in section.figures(index):
            if figure.value > 0:
                points.append((size, figure.value / factor))
                band.append((size, figure.low / factor, figure.high / factor))
                several |= figure.n > 1
        if points:
            yield PlotLine(column.label, points, tuple(band) if several else (), index)


def _published(
    expected: Sequence["Expectation"], lines: Sequence[PlotLine], factor: float
) -> Iterator[PublishedRange]:
    """Yield the smallest and the largest published figure of each size and line."""
    largest = max(size for line in lines for size, _ in line.points)
    for line, each in product(lines, expected):
        if each.column != line.label:
            continue
        sizes: dict[int, list[float]] = {}
        for figure in each.figures:
            of_size = sizes.setdefault(figure.size or each.size, [])
            of_size.append(figure.value / factor)
        for size, values in sizes.items():
            if size <= largest * _BEYOND:
                yield PublishedRange(size, min(values), max(values), line.kind)


def left_out(comparison: Comparison, section: ComparisonSection) -> Iterator[str]:
    """Describe what the plot of a section leaves out.

    A logarithmic axis cannot show values of 0.
    """
    for number, column in enumerate(comparison.columns):
        values = [figure.value for _, figure in section.figures(number)]
        zeros = sum(value <= 0 for value in values)
        if zeros:
            yield f"{counted(zeros, 'zero value')} of {column.label} not plotted."
