"""Line plots with two logarithmic axes, as SVG: text that needs no library, no script and no network. Pure.

Lines differ in color, dashes and markers, so that they can be distinguished without color too. Colors are
classes: they follow the reader's light or dark setting, and a page defines them once for all plots.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files

from fabbench.model.messages import one_line
from fabbench.report.plot import Axes, Ceiling, Plot, PlotLine, PublishedRange, axes

WIDTH, HEIGHT = 560, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 16, 30, 34
_TITLE = 34
"""Room for a title, and for each line of the legend, in a standalone file."""
_LEGEND = 22

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


@dataclass(frozen=True, slots=True)
class _Area:
    axes: Axes
    top: float

    def x(self, size: float) -> float:
        return _LEFT + self.axes.across(size) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return self.top + (1 - self.axes.up(value)) * (HEIGHT - _TOP - _BOTTOM)


@cache
def style(name: str = "plot.css") -> str:
    """Return a style sheet of this package; by default the one that plots need in a page."""
    return files("fabbench.report").joinpath(name).read_text("utf-8")


def to_svg(plot: Plot, *, name: str = "plot") -> str:
    """Write a plot for a page that includes `style`, `MARKERS` and a legend; `name` is unique there."""
    return framed(_drawn(plot, _TOP), plot.title, plot.description, name=name)


def framed(drawn: Iterable[str], title: str, description: str, *, name: str) -> str:
    """Write what is drawn as a plot of a page, with the texts that screen readers read."""
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{name}-title {name}-about">'
        f'<title id="{name}-title">{text_of(title)}</title>'
        f'<desc id="{name}-about">{text_of(description)}</desc>'
        f"{''.join(drawn)}</svg>"
    )


def to_svg_file(plots: Sequence[Plot]) -> str:
    """Write plots one below the other as a standalone file. Ends with a newline."""
    parts, y = [], 0.0
    for plot in plots:
        legend = list(_legend(plot))
        top = _TITLE + _LEGEND * (1 + max((row for row, _ in legend), default=0)) + _TOP
        drawn = "".join((*(entry for _, entry in legend), *_drawn(plot, top)))
        title = f'<text class="title" x="12" y="24">{text_of(cut(plot.title, 66))}</text>'
        description = f"<desc>{text_of(plot.description)}</desc>"
        parts.append(f'<g transform="translate(0 {y:g})">{description}{title}{drawn}</g>\n')
        y += top + HEIGHT - _TOP
    if not plots:
        parts, y = ['<text x="12" y="28">No value can be drawn.</text>'], 44.0
    height = f"{y:g}"
    name = text_of("; ".join(plot.title for plot in plots) or "no plot")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">\n<title>{name}</title>\n<style>\n{style()}</style>\n'
        f"<defs>{MARKERS}</defs>\n"
        f'<rect width="{WIDTH}" height="{height}" rx="6" class="back"/>\n{"".join(parts)}</svg>\n'
    )


def sample(entry: PlotLine | Ceiling | PublishedRange) -> str:
    """Write the mark of a legend entry for a page."""
    return sample_of(_mark(entry, 2, 6))


def sample_of(mark: str) -> str:
    """Write a mark, 34 wide and 12 high, for the legend of a page."""
    return f'<svg class="plot sample" viewBox="0 0 34 12" width="34" height="12" aria-hidden="true">{mark}</svg>'


def _mark(entry: PlotLine | Ceiling | PublishedRange, x: float, y: float) -> str:
    if isinstance(entry, Ceiling):
        return f'<path class="ceiling {_kind(entry)}" d="M{x:g} {y:g}h30"/>'
    if isinstance(entry, PublishedRange):
        return f'<path class="published {_kind(entry)}" d="M{x + 9:g} {y - 5:g}h12m-6 0v10m-6 0h12"/>'
    return f'<polyline class="k{entry.kind % KINDS}" points="{x:g},{y:g} {x + 15:g},{y:g} {x + 30:g},{y:g}"/>'


def _kind(entry: Ceiling | PublishedRange) -> str:
    return "all" if entry.kind is None else f"c{entry.kind % KINDS}"


def _drawn(plot: Plot, top: float) -> Iterator[str]:
    area = _Area(axes(plot), top)
    bottom = top + HEIGHT - _TOP - _BOTTOM
    yield f'<text class="faint" x="12" y="{top - 12:g}">{text_of(plot.axis)}</text>'
    for value, label in area.axes.values():
        y = area.y(value)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>'
        yield f'<text class="faint" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    for size, label in area.axes.sizes():
        yield f'<text class="faint" x="{area.x(size):.1f}" y="{bottom + 20:g}" text-anchor="middle">{label}</text>'
    if plot.even:
        yield f'<path class="even" d="M{_LEFT} {area.y(1):.1f}H{WIDTH - _RIGHT}"/>'
    for level in plot.ceilings:
        y = area.y(level.value)
        yield f'<path class="ceiling {_kind(level)}" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>'
    for found in plot.published:
        x, low, high = area.x(found.size), area.y(found.low), area.y(found.high)
        path = f"M{x - 6:.1f} {high:.1f}h12m-6 0V{low:.1f}m-6 0h12"
        yield f'<path class="published {_kind(found)}" d="{path}"/>'
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
        # A polyline of a single point draws nothing.
        drawn = " ".join(points if len(points) > 1 else points * 2)
        yield f'<polyline class="k{kind}" points="{drawn}"/>'


def _legend(plot: Plot) -> Iterator[tuple[int, str]]:
    """Yield the row of each entry, and the entry."""
    row, x = 0, 12.0
    for entry in plot.legend:
        label = cut(entry.label, 60)
        width = 50 + 7.2 * len(label)
        if x > 12 and x + width > WIDTH:
            row, x = row + 1, 12.0
        y = _TITLE + _LEGEND * row
        yield row, f'{_mark(entry, x, y + 10)}<text x="{x + 38:g}" y="{y + 14}">{text_of(label)}</text>'
        x += width


def cut(text: str, limit: int) -> str:
    """Return text on one line of at most `limit` characters."""
    line = one_line(text)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def text_of(text: str) -> str:
    """Escape text for SVG."""
    return escape(one_line(text))
