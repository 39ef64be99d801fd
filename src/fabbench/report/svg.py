"""Pictures: plots of a comparison, trends. Text that needs no library, no script, no network.

This is their geometry; `templates/plot.svg` writes it. What differs in color differs in dashes,
markers or words too. Colors are classes: they follow the reader's light or dark setting.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from math import ceil, floor, log2, log10
from typing import TYPE_CHECKING, Any, NamedTuple

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
    width = max([WIDTH, *(each.drawn[0]["width"] for each in pictures)])
    parts = [
        (each, textwrap.wrap(one_line(each.headline or each.title), width // 9)[:4])
        for each in pictures
    ]
    height = sum(12 + 20 * len(lines) + each.drawn[0]["height"] for each, lines in parts)
    title = "; ".join(each.title for each in pictures) or "no plot"
    return str(rendered("file.svg", parts=parts, title=title, width=width, height=height or 44))


def to_png(text: str) -> bytes:
    """Draw an SVG file of ours in light colors; an empty one is nothing.

    Raise MachineError if that is not possible.
    """
    try:
        from resvg_py import svg_to_bytes
    except ImportError as error:
        hint = "pip install 'fabbench[png]', or write a .svg file."
        raise MachineError("A PNG file needs the package resvg-py.", hint=hint) from error
    blank, letter = (svg_to_bytes(svg_string=_LETTER.format(_FONTS, each)) for each in ("", "M"))
    if blank == letter:
        hint = "Install one (fonts-dejavu-core), or write a .svg file."
        raise MachineError("No font was found to write a PNG file with.", hint=hint)
    # CSS variables are ours to replace
    light = dict(re.findall(r"(--\w+):([^;}]+)", text.partition("@media")[0]))
    plain = re.sub(r"var\((--\w+)\)", lambda match: light[match[1]], text).replace(
        "system-ui", _FONTS
    )
    return bytes(svg_to_bytes(svg_string=plain, background="#fff", zoom=2)) if text else b""


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
        inside = min(max(value, self.low), self.high)
        if self.linear:
            part = (inside - self.low) / (self.high - self.low)
        else:
            low = log2(self.low)
            part = (log2(inside) - low) / (log2(self.high) - low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Return the places of round values, with labels.

        Steps or powers of ten, or parts of these if they are few.
        """
        if self.linear:
            power = floor(log10(self.high - self.low))
            steps = [step * 10.0 ** (power - less) for less in (0, 1) for step in (5, 2, 1)]
            tried = [
                [number * each for number in range(floor(self.high / each) + 1)] for each in steps
            ]
        else:
            powers = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
            parts = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8))
            tried = [[part * 10.0**power for power in powers for part in each] for each in parts]
        within = [[value for value in values if self.low <= value <= self.high] for values in tried]
        values = next((each for each in within if len(each) > 2), within[-1])
        return [
            (self.place(value), _figure(value)) for value in values[:: 1 + (len(values) - 1) // 8]
        ]


def _figure(value: float) -> str:
    return format_decimal(
        value, 0 if value >= 1e4 else 2 if value >= 0.1 or not value else 1 - floor(log10(value))
    )


def _frame(
    width: int, ends: tuple[float, float], y: Axis, right: float, caption: str
) -> dict[str, Any]:
    """Return what pictures with axes have in common.

    On the left there is room for the labels of the ticks.
    """
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
    }


# ---------------------------------------------------------------- lines


class PlotLine(NamedTuple):
    """One line."""

    label: str
    # Size and value, which is more than 0, in the unit of the axis
    points: Sequence[tuple[int, float]]
    band: Sequence[tuple[int, float, float]] = ()  # Size, lower and upper bound
    kind: int = 0  # Selects the color, dashes and marker


class PublishedRange(NamedTuple):
    """What others measured at one size, for one line."""

    size: int
    low: float
    high: float
    kind: int = 0


def _lines(
    width: int,
    axis: str,
    lines: Sequence[PlotLine],
    ceilings: Sequence[float] = (),
    published: Sequence[PublishedRange] = (),
) -> dict[str, Any]:
    """Draw values by message size; `ceilings`: levels that no value can exceed.

    Labels are beside the ends of the lines; on a phone they are above the plot.
    """
    labels = list(_labels(lines, ceilings, published))
    beside = width >= WIDTH
    values = [value for line in lines for _, value in line.points]
    values += [bound for line in lines for _, *bounds in line.band for bound in bounds if bound > 0]
    values += [*ceilings, *(bound for each in published for bound in each[1:3])]
    low = min(values, default=1.0)
    high = max(values, default=10.0)
    if high < 2 * low:
        low /= 1.4
        high *= 1.4
    room = (high / low) ** 0.04
    top = _TOP if beside else _TOP + _LINE * len(labels)
    y = Axis(low / room, high * room, top + _HEIGHT - _TOP - _BOTTOM, top)
    right = (
        width - 28 - LETTER * max((len(each[-1]) for each in labels), default=0)
        if beside
        else width - 24
    )

    sizes = sorted({size for line in lines for size, _ in line.points})
    ends = [*sizes, *(each.size for each in published)] or [1]
    first = float(max(min(ends), 1))
    last = float(max(ends))
    if first == last:
        first /= 2
        last *= 2
    least = ceil(log2(first))
    most = floor(log2(last))
    labeled = 6 if beside else 4
    step = 1 + (most - least) // labeled
    powers = range(most, least - 1, -step)
    return {
        **_frame(width, (first, last), y, right, axis),
        "below": [(1 << power, format_size(1 << power)) for power in reversed(powers)],
        "lines": lines,
        "ceilings": ceilings,
        "published": published,
        "side": right if beside else 0,
        "labels": list(
            zip(
                _apart([y.place(each[0]) for each in labels], y, beside=beside), labels, strict=True
            )
        ),
        "told": list(_told(lines, sizes)) if beside else [],
    }


def _labels(
    lines: Sequence[PlotLine], ceilings: Sequence[float], published: Sequence[PublishedRange]
) -> Iterator[tuple[float, str, int, str]]:
    """Yield a value, what it is, the kind of its line, and its text.

    Lines with their last value, the largest first.
    """
    ends = sorted(
        ((each.points[-1][1], each) for each in lines if each.points), key=lambda end: -end[0]
    )
    for value, each in ends[:_MOST]:
        number = _figure(value)
        yield value, "line", each.kind, f"{cut(each.label, _LONGEST - len(number) - 1)} {number}"
    if more := ends[_MOST:]:
        yield more[0][0], "more", 0, f"and {len(more)} more"
    for level in ceilings:
        yield level, "ceiling", 0, f"ceiling {_figure(level)}"
    spans = dict[str, PublishedRange]()
    for found in published:
        spans.setdefault("–".join(dict.fromkeys(map(_figure, found[1:3]))), found)
    yield from (
        (found.high, "published", found.kind, f"published {span}") for span, found in spans.items()
    )


def _told(lines: Sequence[PlotLine], sizes: Sequence[int]) -> Iterator[tuple[int, list[str]]]:
    named = [(cut(line.label, _LONGEST), dict(line.points)) for line in lines[:_MOST]]
    for size in sizes:
        yield (
            size,
            [
                format_size(size),
                *(f"{name} {_figure(known[size])}" for name, known in named if size in known),
            ],
        )


def _apart(wanted: Sequence[float], y: Axis, *, beside: bool) -> list[float]:
    """Return places as near to the wanted ones as they can be without covering each other.

    Else one below the other.
    """
    if not beside:
        return [10.0 + _LINE * number for number in range(len(wanted))]
    order = sorted(range(len(wanted)), key=lambda each: wanted[each])
    placed = [0.0] * len(wanted)
    edge = y.end - _LINE / 2
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
    points = series.points
    values = [point.value / factor for point in points]
    changes = [change.index for change in series.changes]
    count = len(values)
    low = min(values)
    high = max(values)
    span = max(high - low, _SPAN * high)
    bottom = max((low + high - span) / 2 - 0.06 * span, 0.0)
    y = Axis(bottom, bottom + 1.12 * span, _HEIGHT - _BOTTOM, _TOP + 12, linear=True)
    levels = [
        each / factor for each in (*(change.before for change in series.changes), series.level)
    ]
    latest = f"level {_figure(levels[-1])}"
    told = [
        (index, [point.run, point.created[:16].replace("T", " "), _figure(value)])
        for index, (point, value) in enumerate(zip(points, values, strict=True))
        if count <= _NAMED and value > 0 and width > NARROW
    ]
    return {
        **_frame(width, (-0.5, count - 0.5), y, width - 12 - LETTER * len(latest), axis),
        "below": list(_moments([point.created for point in points], 4 if width > NARROW else 2)),
        "dots": values,
        "levels": list(zip(pairwise([0, *changes, count]), levels, strict=True)),
        "latest": latest,
        "told": told,
    }


def _moments(created: Sequence[str], steps: int) -> Iterator[tuple[int, str]]:
    """Yield some of the runs with when they were.

    As dates, or with the time where days are the same.
    """
    shown = sorted({round(step * (len(created) - 1) / steps) for step in range(steps + 1)})
    texts = [created[index].replace("T", " ") for index in shown]
    tried = [[text[start:end] for text in texts] for start, end in ((0, 10), (5, 16), (11, 19))]
    yield from zip(
        shown, next((each for each in tried if len({*each}) == len(each)), tried[-1]), strict=True
    )


# ---------------------------------------------------------------- plots of a comparison

# Published figures at sizes of more than this times the largest measured size are not drawn
_BEYOND = 4


def plots(comparison: Comparison, sections: Sequence[ComparisonSection] = ()) -> Iterator[Picture]:
    """Yield the plots of sections, without any of all; none for a section without values."""
    for section in sections or comparison.sections:
        factor = section.scale.factor
        if lines := list(_values(comparison, section)):
            expected = [each for each in expectations_of(comparison) if each.key == section.key]
            ceilings = list(
                dict.fromkeys(each.ceiling / factor for each in expected if each.ceiling)
            )
            published = list(_published(expected, lines, factor))
            said = headline(comparison, comparison.sections.index(section))
            axis = f"{section.metric.name} ({section.scale.unit})"
            axis += "; shaded: range of repeats" if any(line.band for line in lines) else ""
            yield Picture(
                "lines",
                [_lines(width, axis, lines, ceilings, published) for width in (WIDTH, NARROW)],
                (
                    f"{section.metric.name} by message "
                    f"size{f': {title_of(section)}' if section.key else ''}"
                ),
                said,
                " ".join([f"{said}.", *(f"{each.column}: {each.sentence()}" for each in expected)]),
            )


def _values(comparison: Comparison, section: ComparisonSection) -> Iterator[PlotLine]:
    factor = section.scale.factor
    for index, column in enumerate(comparison.columns):
        figures = [(row.size, row.figures[index]) for row in section.rows]
        drawn = [
            (size, figure) for size, figure in figures if figure is not None and figure.value > 0
        ]
        several = any(figure.n > 1 for _, figure in drawn)
        if drawn:
            yield PlotLine(
                label=column.label,
                points=[(size, figure.value / factor) for size, figure in drawn],
                band=tuple(
                    (size, figure.low / factor, figure.high / factor)
                    for size, figure in drawn
                    if several
                ),
                kind=index,
            )


def _published(
    expected: Sequence["Expectation"], lines: Sequence[PlotLine], factor: float
) -> Iterator[PublishedRange]:
    """Yield the smallest and the largest published figure of each size and line."""
    largest = max(size for line in lines for size, _ in line.points)
    for line, each in product(lines, expected):
        sizes: dict[int, list[float]] = {}
        for figure in each.figures if each.column == line.label else ():
            sizes.setdefault(figure.size or each.size, []).append(figure.value / factor)
        for size, values in sizes.items():
            if size <= largest * _BEYOND:
                yield PublishedRange(size, min(values), max(values), line.kind)


def left_out(comparison: Comparison, section: ComparisonSection) -> Iterator[str]:
    """Describe what the plot of a section leaves out.

    A logarithmic axis cannot show values of 0.
    """
    for number, column in enumerate(comparison.columns):
        figures = (row.figures[number] for row in section.rows)
        if zeros := sum(figure is not None and figure.value <= 0 for figure in figures):
            yield f"{counted(zeros, 'zero value')} of {column.label} not plotted."
