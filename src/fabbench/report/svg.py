"""Pictures: plots of a comparison, trends. Text that needs no library, no script, no network.

This is their geometry; `templates/plot.svg` writes it. What differs in color differs in dashes,
markers or words too. Colors are classes: they follow the reader's light or dark setting.
"""

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from math import ceil, floor, log2, log10
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from fabbench.analysis.compare import Comparison, ComparisonRow, ComparisonSection
from fabbench.analysis.headline import headline
from fabbench.analysis.highlights import bounds, confidence
from fabbench.model.errors import MachineError
from fabbench.model.mappings import distinct, gathered
from fabbench.model.messages import one_line
from fabbench.model.units import format_change, format_decimal, format_ends, format_size
from fabbench.report.comparison_tables import title_of
from fabbench.report.expectations import expectations_of, sentences
from fabbench.report.table import cut
from fabbench.report.templates import rendered

if TYPE_CHECKING:
    from markupsafe import Markup

    from fabbench.analysis.expectations import Expectation
    from fabbench.analysis.history import Series

# Lengths are in pixels; y grows downward, so that a panel's top is less than its bottom
WIDTH = 720  # Of a picture in a file, on paper and in a window of medium width
WIDE = 1100  # In a wide window
NARROW = 360  # On a phone
_WIDTHS = (WIDTH, WIDE, NARROW)
_VALUES_HEIGHT = 268  # Of the area of values
_CHANGES_HEIGHT = 140  # Of the area of changes below
_LEAST_CHANGE = 1.02  # The least that its axis has room for, so that noise looks flat
_ABOVE_PANEL = 30  # For its caption
_BELOW_PANEL = 32  # For the labels of its horizontal axis
_TITLE_LETTER = 9  # The width of a bold letter, in a title
_TITLE_LINE = 20  # The height of a line of it
_ABOVE_TITLE = 12
_MOST_TITLE_LINES = 4
_BESIDE_LABEL = 28  # For a label's mark, and a gap beyond its text
_RIGHT_MARGIN = 24  # Where labels are above
LETTER = 7.6  # The width of a letter, in the units of the picture
_LINE_HEIGHT = 15  # Its height
_ABOVE_FIRST_LABEL = 10  # Where labels are above a panel
_LABEL_DISTANCE = 72  # From one label below a plot to the next, at least
_LONGEST_LABEL = 24  # Letters of a label beside a line
_MOST_LABELS = 18  # How many labels there are at most
_SHADED = 3  # Of how many lines intervals are shaded; more would cover each other
_NOT_SHADED = (
    f"Intervals of changes are shaded for up to {_SHADED} columns. "
    "Point at a size to read those of all."
)
KINDS = 6  # Kinds of lines; plot.css has the color and the dashes of each
# for a PNG, which knows no system-ui
_FONTS = "Arial,Helvetica,'DejaVu Sans','Liberation Sans','Noto Sans',Roboto"
_LETTER = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><text y="9" '
    'font-family="{}">{}</text></svg>'
)


class Picture(NamedTuple):
    """What is drawn.

    Its macro in the template with what that takes: for each of `_WIDTHS`, or for all.
    """

    kind: str
    drawn: Sequence[Mapping[str, Any]]
    title: str
    headline: str = ""  # The title where it stands alone
    description: str = ""  # Sentences for readers who cannot see it
    notes: Sequence[str] = ()  # Sentences below it on a page


def to_svg(picture: Picture, *, name: str = "plot") -> "Markup":
    """Write a picture for a page, in each of its widths; `name` is unique there."""
    return rendered("page.svg", picture=picture, name=name)


def to_svg_file(pictures: Sequence[Picture]) -> str:
    """Write pictures one below the other as a standalone file. Ends with a newline."""
    # A picture is drawn for the width of a file first: see `_WIDTHS`
    widths = [each.drawn[0]["width"] for each in pictures]
    width = max([WIDTH, *widths])
    height = 0
    titled: list[tuple[Picture, list[str]]] = []
    for each in pictures:
        title = one_line(each.headline or each.title)
        lines = textwrap.wrap(title, width // _TITLE_LETTER)[:_MOST_TITLE_LINES]
        height += each.drawn[0]["height"]
        height += _ABOVE_TITLE + _TITLE_LINE * len(lines)  # As file.svg places them
        titled.append((each, lines))
    titles = "; ".join(each.title for each in pictures) or "no plot"
    size = {"width": width, "height": height or 44}  # Without pictures, one sentence
    return str(rendered("file.svg", parts=titled, title=titles, **size))


def to_png(text: str) -> bytes:
    """Draw an SVG file of ours in light colors; an empty text only tries whether that is possible.

    Raise MachineError if it is not.
    """
    try:
        from resvg_py import svg_to_bytes
    except ImportError as error:
        hint = "pip install 'fabbench[png]', or write a .svg file."
        raise MachineError("A PNG file needs the package resvg-py.", hint=hint) from error
    # Without any font, a letter draws as much as no letter
    blank = svg_to_bytes(svg_string=_LETTER.format(_FONTS, ""))
    if blank == svg_to_bytes(svg_string=_LETTER.format(_FONTS, "M")):
        hint = "Install one (fonts-dejavu-core), or write a .svg file."
        raise MachineError("No font was found to write a PNG file with.", hint=hint)
    if not text:
        return b""
    # resvg knows no CSS variables, nor the reader's dark setting, which is below @media
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


def _number(value: float) -> str:
    """Write whole numbers from 10,000 on, two decimals from 0.1 on, else two digits that count."""
    if value >= 1e4:
        return format_decimal(value, 0)
    if value >= 0.1 or not value:
        return format_decimal(value, 2)
    return format_decimal(value, 1 - floor(log10(value)))


_Tick: TypeAlias = tuple[float, str]
"""A place on an axis, in pixels, and its label."""


class Axis(NamedTuple):
    """Values from `low`, drawn at the pixel `start`, to `high`, at `end`; others are at the edge.

    A logarithmic axis has no 0.
    """

    low: float
    high: float
    start: float
    end: float
    linear: bool = False

    def place(self, value: float) -> float:
        """Return the pixel at which a value is drawn."""
        scaled = float if self.linear else log2
        inside = scaled(min(max(value, self.low), self.high))
        low = scaled(self.low)
        part = (inside - low) / (scaled(self.high) - low)
        return self.start + part * (self.end - self.start)

    def ticks(self, written: Callable[[float], str] = _number) -> list[_Tick]:
        """Return the places of round values, with labels: three or more if there are so many."""
        values: list[float] = []
        for tried in self._round_values():
            values = [value for value in tried if self.low <= value <= self.high]
            if len(values) > 2:
                break
        every = 1 + (len(values) - 1) // _MOST_TICKS
        shown = values[::every]
        return [(self.place(value), written(value)) for value in shown]

    def _round_values(self) -> Iterator[Sequence[float]]:
        """Yield round values of about this axis, each time more of them."""
        if self.linear:
            power = 10.0 ** floor(log10(self.high - self.low))
            # From 0, in steps of a power of ten, then of a half, a fifth and a tenth of it
            for parts in (1, 2, 5, 10):
                steps = range(floor(self.high * parts / power) + 1)
                yield [number * power / parts for number in steps]
            return
        lowest = floor(log10(self.low))
        highest = ceil(log10(self.high))
        powers = [10.0**exponent for exponent in range(lowest, highest + 1)]
        for digits in _DIGITS:
            yield [digit * power for power in powers for digit in digits]


def _room_left_of(ticks: Sequence[_Tick]) -> int:
    """Return how much room the labels of ticks need on the left."""
    longest = max((len(label) for _, label in ticks), default=0)
    return 18 + 7 * longest


# ---------------------------------------------------------------- lines


class PlotPoint(NamedTuple):
    """A value, which is more than 0, and its bounds, in the unit of the axis."""

    size: int
    value: float
    low: float
    high: float


class PlotLine(NamedTuple):
    """The values of one column, by size."""

    label: str
    points: Sequence[PlotPoint]
    kind: int  # The index of its column, which selects the color, dashes and marker
    shaded: bool  # Whether the area between the bounds is

    @property
    def last(self) -> float:
        """The value at the largest size."""
        return self.points[-1].value


class PublishedRange(NamedTuple):
    """What others measured at one size, for one line."""

    size: int
    low: float
    high: float
    kind: int  # Of the line


class _Label(NamedTuple):
    """What is written beside a plot, as near to a value as there is room."""

    value: float
    mark: str  # Of which the template draws a sample
    kind: int  # Of the line; where a label is of none, 0, which the template does not read
    text: str


class Panel(NamedTuple):
    """Lines by message size, on an axis from `low` to `high`.

    `ceilings`: levels that no value can exceed. `changes`: the values say how many times better
    than the baseline, and bounds are those of intervals.
    """

    caption: str
    lines: Sequence[PlotLine]
    low: float
    high: float
    ceilings: Sequence[float] = ()
    published: Sequence[PublishedRange] = ()
    changes: bool = False

    def written(self, value: float) -> str:
        """Write a value of the axis."""
        return format_change(value).replace(".0 ", " ") if self.changes else _number(value)

    def labels(self) -> list[_Label]:
        """Return the lines with their last value, the largest first, then what else is drawn."""
        labels: list[_Label] = []
        lines = sorted(self.lines, key=lambda line: -line.last)
        for line in lines[:_MOST_LABELS]:
            number = self.written(line.last)
            name = cut(line.label, _LONGEST_LABEL - len(number) - 1)
            text = f"{name} {number}"
            labels.append(_Label(line.last, "line", line.kind, text))
        others = lines[_MOST_LABELS:]
        if others:
            more = f"and {len(others)} more"
            labels.append(_Label(others[0].last, "more", 0, text=more))
        if self.changes:
            # As good as the baseline
            labels.append(_Label(value=1.0, mark="reference", kind=0, text="no change"))
        labels += (
            _Label(level, "ceiling", kind=0, text=f"ceiling {_number(level)}")
            for level in self.ceilings
        )
        # Ranges that are written alike get one label
        spans: dict[str, PublishedRange] = {}
        for figures in self.published:
            span = format_ends((figures.low, figures.high), _number, "–")
            spans.setdefault(span, figures)
        for span, figures in spans.items():
            labels.append(_Label(figures.high, "published", figures.kind, f"published {span}"))
        return labels

    def drawn(self, above: float, *, beside: bool) -> "DrawnPanel":
        """Return the panel below the height `above`: its labels `beside` it, else on top of it."""
        labels = self.labels()
        labels_height = _LINE_HEIGHT * len(labels)
        top = above + _ABOVE_PANEL
        height = _CHANGES_HEIGHT if self.changes else _VALUES_HEIGHT
        if beside:
            height = max(height, labels_height)
        else:
            top += labels_height
        # Changes below a factor of 2 are written in percent, which need no logarithmic axis
        is_percent = self.changes and self.high < 2 * self.low
        # Upward: the lowest value is at the bottom
        y = Axis(self.low, self.high, top + height, top, linear=is_percent)
        # The axis that a reader of the page can have instead: of values, which begin at 0
        linear = None if self.changes else y._replace(low=0.0, linear=True)
        if beside:
            places = _label_places(labels, y)
            return DrawnPanel(self, y, linear, labels, places, _label_places(labels, linear or y))
        # Above the caption, one below the other from the top, whichever axis is shown
        first = above + _ABOVE_FIRST_LABEL
        stacked = [first + _LINE_HEIGHT * number for number in range(len(labels))]
        return DrawnPanel(self, y, linear, labels, stacked, stacked)


class DrawnPanel(NamedTuple):
    """A panel in its place."""

    content: Panel
    y: Axis
    linear: Axis | None  # From 0, to which a reader may switch; None: a panel of changes
    labels: Sequence[_Label]
    places: Sequence[float]  # Of the labels
    linear_places: Sequence[float]


_Readout: TypeAlias = tuple[int, list[str]]
"""A value of x, and the lines that a reader is told who points there."""


def line_plot(
    panels: Sequence[Panel], readouts: Sequence[_Readout], *, width: int
) -> Mapping[str, object]:
    """Return what the template takes: panels one below the other, with one axis of sizes.

    Labels are beside the ends of the lines; on a phone they are above each panel.
    """
    beside = width > NARROW
    drawn: list[DrawnPanel] = []
    left = longest = 0
    bottom = 0.0
    for panel in panels:
        placed = panel.drawn(bottom, beside=beside)
        drawn.append(placed)
        longest = max(longest, *(len(label.text) for label in placed.labels))
        left = max(left, _room_left_of(placed.y.ticks(panel.written)))
        bottom = placed.y.start + _BELOW_PANEL
    right = width - _BESIDE_LABEL - LETTER * longest if beside else width - _RIGHT_MARGIN
    sizes = [size for size, _ in readouts]
    # Only the first panel, that of values, has published figures: changes have none.
    sizes += [each.size for each in panels[0].published]
    x = _size_axis(sizes, left, right)
    return {
        "width": width,
        "height": bottom,
        "side": right if beside else 0,  # Where the labels begin
        "panels": drawn,
        "x": x,
        "below": _labeled_sizes(x, int((right - left) / _LABEL_DISTANCE)),
        "told": readouts if beside else (),  # On hovering, which a phone does not know
    }


def _size_axis(sizes: Sequence[int], left: float, right: float) -> Axis:
    first = max(min(sizes), 1)  # There is no 0 on it
    last = max(1, *sizes)
    # A single size is in the middle: from half of it to twice as much
    single = 2 if first >= last else 1
    return Axis(first / single, last * single, left, right)


def _labeled_sizes(x: Axis, most: int) -> list[tuple[int, str]]:
    """Return sizes and their labels below a plot: powers of two, at most so many, largest first.

    An empty list if all sizes lie between two powers of two.
    """
    largest = floor(log2(x.high))
    smallest = max(ceil(log2(x.low)), 0)
    powers = range(largest, smallest - 1, -1)
    step = 1 + len(powers) // most
    sizes = [1 << power for power in powers[::step]]
    return [(size, format_size(size)) for size in sizes]


def _label_places(labels: Sequence[_Label], y: Axis) -> list[float]:
    """Return the heights of labels: as near to their values as without covering each other."""
    placed = [y.place(label.value) for label in labels]
    order = sorted(range(len(labels)), key=placed.__getitem__)
    # From the top, each is moved below the one above; then from the bottom, those beyond it up
    edge = y.end - _LINE_HEIGHT / 2
    for index in order:
        edge = max(placed[index], edge + _LINE_HEIGHT)
        placed[index] = edge
    edge = y.start + _LINE_HEIGHT
    for index in reversed(order):
        edge = min(placed[index], edge - _LINE_HEIGHT)
        placed[index] = edge
    return placed


# ---------------------------------------------------------------- trends

_ROOM_OF_RANGE = 0.06  # Of all values, above and below them
_ROOM_OF_LEVEL = 0.05  # Of a value, above and below it, so that noise looks flat
_NAMED = 400  # Up to so many runs, each dot says which run it is


def trend(series: "Series", axis: str, factor: float, title: str, description: str) -> Picture:
    """Return values by run: dots, the levels between changes, a number at each change.

    `axis` is its caption, and `factor` the axis's unit in base units.
    """
    drawn = [_trend(series, axis, factor, width) for width in _WIDTHS]
    return Picture("trend", drawn, title, description=description)


def _trend(series: "Series", caption: str, factor: float, width: int) -> dict[str, Any]:
    """Return what the template takes for one width: the axes, a dot per run, and the levels."""
    values = [point.value / factor for point in series.points]
    count = len(values)
    changes = [change.index for change in series.changes]
    levels = [change.before / factor for change in series.changes]
    level = series.level / factor
    latest = f"level {_number(level)}"
    wide = width > NARROW
    low = min(values)
    high = max(values)
    room = max(_ROOM_OF_RANGE * (high - low), _ROOM_OF_LEVEL * high)
    least = max(low - room, 0.0)
    top = _ABOVE_PANEL + 12  # Below the numbers of changes
    y = Axis(least, high + room, _VALUES_HEIGHT + _ABOVE_PANEL, top, linear=True)
    right = width - 12 - LETTER * len(latest)  # The level is written beside its line
    left = _room_left_of(y.ticks())
    # The indexes of runs, with half a place on both sides
    x = Axis(-0.5, count - 0.5, left, right, linear=True)
    spans = pairwise([0, *changes, count])  # Of run indexes, one for each level
    return {
        "width": width,
        "height": y.start + _BELOW_PANEL,
        "caption": caption,
        "x": x,
        "y": y,
        "below": _labeled_runs(series, steps=4 if wide else 1),
        "dots": values,
        "levels": list(zip(spans, [*levels, level], strict=True)),
        "latest": latest,
        "told": list(_run_readouts(series, values)) if wide and count <= _NAMED else (),
    }


def _run_readouts(series: "Series", values: Sequence[float]) -> Iterator[_Readout]:
    """Yield what a reader is told at each dot: the run, when it was, its figure."""
    for index, point in enumerate(series.points):
        figure = _number(values[index])
        yield index, [point.run, _minute(point.created), figure]


def _labeled_runs(series: "Series", steps: int) -> list[tuple[int, str]]:
    """Return the indexes of runs at equal distances, the first and last among them, and when."""
    last = len(series.points) - 1
    places = [step * last / steps for step in range(steps + 1)]
    shown = dict.fromkeys(map(round, places))
    return [(index, _minute(series.points[index].created)) for index in shown]


def _minute(created: str) -> str:
    return created[:16].replace("T", " ")


# ---------------------------------------------------------------- plots of a comparison

# Published figures at sizes of more than this times the largest measured size are not drawn
_BEYOND = 4


def plots(comparison: Comparison, sections: Sequence[ComparisonSection] = ()) -> Iterator[Picture]:
    """Yield the plot of each section that has values; `sections` empty: of all."""
    for section in sections or comparison.sections:
        lines = list(_value_lines(comparison, section))
        if lines:
            yield _plot(comparison, section, lines)


def _plot(comparison: Comparison, section: ComparisonSection, lines: Sequence[PlotLine]) -> Picture:
    """Return a panel of the values, with ceilings and published figures, and one of the changes."""
    factor = section.scale.factor
    metric = section.metric.name
    expected = [each for each in expectations_of(comparison) if each.key == section.key]
    ceilings = distinct(each.ceiling / factor for each in expected if each.ceiling)
    unit = section.scale.unit
    caption = f"{metric} ({unit})"
    if any(line.shaded for line in lines):
        caption += "; shaded: range of repeats"
    # Ceilings and published figures are in the unit of the plot, as the lines are.
    published = list(_published_ranges(expected, lines, factor))
    panels = [_value_panel(caption, lines, ceilings, published)]
    notes: list[str] = []
    shown = (figure for row in section.rows for figure in row.figures if figure)
    if any(figure.value <= 0 for figure in shown):
        notes.append("Values of 0 are not plotted: a logarithmic axis has no place for them.")
    changes = list(_change_lines(comparison, section))
    if changes:
        panels.append(_change_panel(comparison, section, changes))
        if not changes[0].shaded:  # All of them are, or none
            notes.append(_NOT_SHADED)
    title = f"{metric} by message size"
    if section.key:
        title += f": {title_of(section)}"
    result = headline(comparison, comparison.sections.index(section))
    readouts = list(_readouts(comparison, section))
    return Picture(
        "lines",
        [line_plot(panels, readouts, width=width) for width in _WIDTHS],
        title,
        result,
        " ".join([f"{result}.", *sentences(expected)]),
        notes,
    )


def _readouts(comparison: Comparison, section: ComparisonSection) -> Iterator[_Readout]:
    """Yield each size with values, and what a reader is told there: a line per column."""
    for row in section.rows:
        lines: list[str] = []
        for index, column in enumerate(comparison.columns[:_MOST_LABELS]):
            figure = row.figures[index]
            if figure and figure.value > 0:  # a logarithmic axis has no 0
                name = cut(column.label, _LONGEST_LABEL)
                value = section.scale.text(figure.value)
                change = _change_text(row, index)
                lines.append(f"{name} {value}{change}")
        if lines:
            yield row.size, [format_size(row.size), *lines]


def _change_text(row: ComparisonRow, column: int) -> str:
    """Write a change and its interval as the end of a line; empty where there is no ratio."""
    ratio = row.ratios[column]
    test = row.tests[column]
    if not ratio or not test:
        return ""
    interval = bounds([test], [ratio])
    return f", {format_change(ratio)} ({interval})"


def _value_lines(comparison: Comparison, section: ComparisonSection) -> Iterator[PlotLine]:
    """Yield the line of each column with values above 0; shaded: the range of its repeats."""
    factor = section.scale.factor
    for index, column in enumerate(comparison.columns):
        points: list[PlotPoint] = []
        repeated = False
        for size, figure in section.figures(index):
            if figure.value > 0:
                bounded = (figure.value, figure.low, figure.high)
                points.append(PlotPoint(size, *(each / factor for each in bounded)))
                repeated |= figure.n > 1
        if points:
            yield PlotLine(column.label, points, index, repeated)


def _value_panel(
    caption: str,
    lines: Sequence[PlotLine],
    ceilings: Sequence[float],
    published: Sequence[PublishedRange],
) -> Panel:
    """Return the panel of values, with room for all of them."""
    values = [*ceilings]
    for line in lines:
        for point in line.points:
            values += (point.value, point.low, point.high)
    for each in published:
        values += (each.low, each.high)
    least = min(filter(None, values))
    most = max(values)
    # Values within a factor of 2 have much room, and look flat; others have 4 % of the logarithmic
    # axis on both sides.
    room = 1.4 if most < 2 * least else (most / least) ** 0.04
    return Panel(caption, lines, least / room, most * room, ceilings, published)


def _change_lines(comparison: Comparison, section: ComparisonSection) -> Iterator[PlotLine]:
    """Yield how many times better each column is than the baseline, with intervals."""
    few = len(comparison.compared) <= _SHADED
    for index, column in enumerate(comparison.compared):
        points: list[PlotPoint] = []
        for row in section.rows:
            ratio = row.ratios[index]
            test = row.tests[index]
            if ratio and test:
                points.append(PlotPoint(row.size, ratio, test.low, test.high))
        if points:
            yield PlotLine(column.label, points, index, shaded=few)


def _change_panel(
    comparison: Comparison, section: ComparisonSection, lines: Sequence[PlotLine]
) -> Panel:
    """Return the panel of changes.

    It has room for the middle three quarters, and half as much again on both sides. What is beyond
    is at its edge: the rare changes, as of sizes whose figures have few digits, and intervals that
    reach much further than changes do.
    """
    ratios = sorted(point.value for line in lines for point in line.points)
    rare = len(ratios) // 8  # As many at either end of the order are left out
    least = min(1.0, ratios[rare])  # No change, 1, is always within
    most = max(1.0, ratios[-1 - rare])
    margin = max((most / least) ** 0.5, _LEAST_CHANGE)
    caption = f"vs {cut(comparison.base.label, limit=14)}, up is better"
    if lines[0].shaded:
        caption += f"; shaded: {confidence(section.level)} interval"
    return Panel(caption, lines, least / margin, most * margin, changes=True)


def _published_ranges(
    expected: Sequence["Expectation"], lines: Sequence[PlotLine], factor: float
) -> Iterator[PublishedRange]:
    """Yield the smallest and the largest published figure of each size and line.

    They are divided by `factor`, the unit of the plot. Those far beyond the largest size that was
    measured are left out; one without a size is drawn at the size that was judged.
    """
    largest = max(line.points[-1].size for line in lines)
    for line, each in product(lines, expected):
        if each.column != line.label:
            continue
        sizes = gathered(
            (figure.size or each.size, figure.value / factor) for figure in each.figures
        )
        for size, values in sizes.items():
            if size <= largest * _BEYOND:
                yield PublishedRange(size, min(values), max(values), line.kind)
