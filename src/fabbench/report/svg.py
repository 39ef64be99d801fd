"""Line plots with two logarithmic axes, as SVG: text that needs no library, no script and no network. Pure.

Lines differ in color, dashes and markers, so that they can be told apart without color too. Colors are
classes: they follow the reader's light or dark setting, and a page has them once for all of its plots.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from math import ceil, floor, log2, log10

from fabbench.model.messages import one_line
from fabbench.model.units import format_decimal, format_size

WIDTH, HEIGHT = 560, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 16, 30, 34
_TITLE = 34
"""Room for a title, and for each line of the legend, in a file of its own."""
_LEGEND = 22
_MOST_TICKS = 6

_SHAPES = (
    '<circle cx="5" cy="5" r="3.2"/>',
    '<rect x="2.1" y="2.1" width="5.8" height="5.8"/>',
    '<path d="M5 1 9 8.4H1z"/>',
    '<path d="M5 .8 9.2 5 5 9.2.8 5z"/>',
    '<path d="M5 9 1 1.6h8z"/>',
    '<path d="M3.8 1h2.4v2.8H9v2.4H6.2V9H3.8V6.2H1V3.8h2.8z"/>',
)
KINDS = len(_SHAPES)
"""Kinds of lines; plot.css has the color and the dashes of each."""

MARKERS = "".join(
    f'<marker id="mark{index}" viewBox="0 0 10 10" refX="5" refY="5" markerWidth="8" markerHeight="8" '
    f'markerUnits="userSpaceOnUse">{shape}</marker>'
    for index, shape in enumerate(_SHAPES)
)
"""The markers of lines: `<defs>` of a document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotLine:
    """One line."""

    label: str
    points: Sequence[tuple[int, float]]
    """Size and value, which is more than 0, as written on the axis."""
    band: Sequence[tuple[int, float, float]] = ()
    """Size, lower and upper bound."""
    kind: int = 0
    """Which color, dashes and marker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Values by message size."""

    title: str
    axis: str
    """What the values are, with their unit."""
    lines: Sequence[PlotLine]
    about: str = ""
    """A sentence for those who do not see it."""
    even: bool = False
    """Whether there is a line at 1."""


@dataclass(frozen=True, slots=True)
class _Area:
    """Where values are drawn."""

    low_size: float
    high_size: float
    low: float
    high: float
    top: float

    def x(self, size: float) -> float:
        part = (log2(size) - self.low_size) / (self.high_size - self.low_size)
        return _LEFT + part * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        part = (log10(value) - self.low) / (self.high - self.low)
        return self.top + (1 - min(max(part, 0.0), 1.0)) * (HEIGHT - _TOP - _BOTTOM)


@cache
def style() -> str:
    """Return what plots need of a page."""
    return files("fabbench.report").joinpath("plot.css").read_text("utf-8")


def to_svg(plot: Plot, *, name: str = "plot") -> str:
    """Write a plot for a page that has `style`, `MARKERS` and a legend; `name` is unique there."""
    title, about = f"{name}-title", f"{name}-about"
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{title} {about}">'
        f'<title id="{title}">{_text(plot.title)}</title><desc id="{about}">{_text(plot.about)}</desc>'
        f"{''.join(_drawn(plot, _TOP))}</svg>"
    )


def to_svg_file(plots: Sequence[Plot]) -> str:
    """Write plots below each other as a file of its own. Ends with a newline."""
    parts, y = [], 0.0
    for plot in plots:
        legend = list(_legend(plot))
        top = _TITLE + _LEGEND * (1 + max((row for row, _, _ in legend), default=0)) + _TOP
        drawn = "".join((*(_entry(*each, plot) for each in enumerate(legend)), *_drawn(plot, top)))
        title = f'<text class="title" x="12" y="24">{_text(_cut(plot.title, 66))}</text>'
        about = f"<desc>{_text(plot.about)}</desc>"
        parts.append(f'<g transform="translate(0 {y:g})">{about}{title}{drawn}</g>\n')
        y += top + HEIGHT - _TOP
    if not plots:
        parts, y = ['<text x="12" y="28">No value can be drawn.</text>'], 44.0
    height = f"{y:g}"
    name = _text("; ".join(plot.title for plot in plots) or "no plot")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">\n<title>{name}</title>\n<style>\n{style()}</style>\n'
        f"<defs>{MARKERS}</defs>\n"
        f'<rect width="{WIDTH}" height="{height}" rx="6" class="back"/>\n{"".join(parts)}</svg>\n'
    )


def sample(kind: int) -> str:
    """Write the line of a legend in a page."""
    return (
        f'<svg class="plot sample" viewBox="0 0 34 12" width="34" height="12" aria-hidden="true">'
        f'<polyline class="k{kind % KINDS}" points="2,6 17,6 32,6"/></svg>'
    )


def _drawn(plot: Plot, top: float) -> Iterator[str]:
    area = _area(plot, top)
    bottom = top + HEIGHT - _TOP - _BOTTOM
    yield f'<text class="faint" x="12" y="{top - 12:g}">{_text(plot.axis)}</text>'
    for value in _ticks(area.low, area.high):
        y = area.y(value)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>'
        yield (
            f'<text class="faint" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_number(value)}</text>'
        )
    for size in _sizes(area.low_size, area.high_size):
        label = format_size(size)
        yield (
            f'<text class="faint" x="{area.x(size):.1f}" y="{bottom + 20:g}" '
            f'text-anchor="middle">{label}</text>'
        )
    if plot.even:
        yield f'<path class="even" d="M{_LEFT} {area.y(1):.1f}H{WIDTH - _RIGHT}"/>'
    for line in plot.lines:
        yield from _line(line, area)


def _line(line: PlotLine, area: _Area) -> Iterator[str]:
    kind = line.kind % KINDS
    if line.band:
        upper = [f"{area.x(size):.1f},{area.y(high):.1f}" for size, _, high in line.band]
        lower = [f"{area.x(size):.1f},{area.y(low):.1f}" for size, low, _ in reversed(line.band)]
        yield f'<polygon class="b{kind}" points="{" ".join((*upper, *lower))}"/>'
    points = [f"{area.x(size):.1f},{area.y(value):.1f}" for size, value in line.points]
    if points:
        # Of one point alone a polyline draws nothing.
        drawn = " ".join(points if len(points) > 1 else points * 2)
        yield f'<polyline class="k{kind}" points="{drawn}"/>'


def _area(plot: Plot, top: float) -> _Area:
    sizes = [log2(size) for line in plot.lines for size, _ in line.points] or [0.0]
    values = [value for line in plot.lines for _, value in line.points]
    values += [bound for line in plot.lines for _, *bounds in line.band for bound in bounds]
    values += [1.0] if plot.even else []
    low, high = log10(min(values, default=1.0)), log10(max(values, default=10.0))
    if high - low < 0.3:
        low, high = low - 0.15, high + 0.15
    room = 0.04 * (high - low)
    first, last = min(sizes), max(sizes)
    if first == last:
        first, last = first - 1, last + 1
    return _Area(first, last, low - room, high + room, top)


def _ticks(low: float, high: float) -> Iterator[float]:
    """Yield whole powers of ten, and of few of them 2 and 5 times these, or finer."""
    for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
        powers = range(floor(low), ceil(high) + 1)
        found = [step * 10.0**power for power in powers for step in steps]
        within = [value for value in found if low <= log10(value) <= high]
        if len(within) > 2 or steps[-1] == 8:
            yield from within[:: 1 + (len(within) - 1) // 8]
            return


def _sizes(low: float, high: float) -> Iterator[int]:
    first, last = ceil(low), floor(high)
    yield from (1 << power for power in range(first, last + 1, 1 + (last - first) // _MOST_TICKS))


def _number(value: float) -> str:
    return format_decimal(value, max(0, 2 - floor(log10(value)))) if value < 10 else f"{value:.0f}"


def _legend(plot: Plot) -> Iterator[tuple[int, float, str]]:
    """Yield the row, the x and the label of each line."""
    row, x = 0, 12.0
    for line in plot.lines:
        label = _cut(line.label, 60)
        wide = 50 + 7.2 * len(label)
        if x > 12 and x + wide > WIDTH:
            row, x = row + 1, 12.0
        yield row, x, label
        x += wide


def _entry(index: int, entry: tuple[int, float, str], plot: Plot) -> str:
    row, x, label = entry
    y = _TITLE + _LEGEND * row + 10
    kind = plot.lines[index].kind % KINDS
    return (
        f'<polyline class="k{kind}" points="{x:g},{y} {x + 15:g},{y} {x + 30:g},{y}"/>'
        f'<text x="{x + 38:g}" y="{y + 4}">{_text(label)}</text>'
    )


def _cut(text: str, most: int) -> str:
    line = one_line(text)
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _text(text: str) -> str:
    return escape(one_line(text))
