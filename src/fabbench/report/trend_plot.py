"""Values run after run as SVG: dots, the levels between changes, and a number at each change. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import ceil, floor, log10

from fabbench.model.messages import one_line
from fabbench.report.svg import HEIGHT, WIDTH

_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 16, 42, 34
_DATES = 4
_SPAN = 0.1
"""The least part of a value that the height stands for: noise is to look flat."""
_DOTS = ((60, 6.0), (300, 4.0))
_SMALLEST = 2.5
"""How large dots are: of so many runs or fewer, and of more."""

MARKS = {
    "one run": '<path class="dots" stroke-width="6" d="M17 6h0"/>',
    "level: median between changes": '<path class="level" d="M2 6h30"/>',
    "change, by its number in the list": '<path class="changed" d="M17 0v12"/>',
}
"""What a legend has: label → its mark, 34 wide and 12 high."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPlot:
    """What is drawn of a series."""

    title: str
    axis: str
    about: str
    """Sentences for those who do not see it."""
    values: Sequence[float]
    """The oldest first, as written on the axis."""
    dates: Sequence[str]
    changes: Sequence[int] = ()
    """The places at which a new level begins."""
    levels: Sequence[float] = ()
    """One more than there are changes."""


@dataclass(frozen=True, slots=True)
class _Area:
    count: int
    low: float
    high: float

    def x(self, place: float) -> float:
        part = (place + 0.5) / self.count
        return _LEFT + part * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        part = (value - self.low) / (self.high - self.low)
        return _TOP + (1 - part) * (HEIGHT - _TOP - _BOTTOM)


def trend_svg(trend: TrendPlot, *, name: str) -> str:
    """Write a plot for a page that has the style of plots; `name` is unique there."""
    title, about = f"{name}-title", f"{name}-about"
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{title} {about}">'
        f'<title id="{title}">{_text(trend.title)}</title><desc id="{about}">{_text(trend.about)}</desc>'
        f"{''.join(_drawn(trend))}</svg>"
    )


def _drawn(trend: TrendPlot) -> Iterator[str]:
    area, bottom = _area(trend), HEIGHT - _BOTTOM
    yield f'<text class="faint" x="12" y="14">{_text(trend.axis)}</text>'
    for value, label in _ticks(area):
        y = area.y(value)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>'
        yield f'<text class="faint" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    count = len(trend.values)
    shown = sorted({round(step * (count - 1) / (_DATES - 1)) for step in range(_DATES)})
    for place in shown:
        side = "middle" if len(shown) == 1 else {shown[0]: "start", shown[-1]: "end"}.get(place, "middle")
        yield (
            f'<text class="faint" x="{area.x(place):.1f}" y="{bottom + 20}" text-anchor="{side}">'
            f"{_text(trend.dates[place])}</text>"
        )
    dots = "".join(f"M{area.x(place):.1f} {area.y(value):.1f}h0" for place, value in enumerate(trend.values))
    large = next((each for most, each in _DOTS if count <= most), _SMALLEST)
    yield f'<path class="dots" stroke-width="{large:g}" d="{dots}"/>'
    for (start, end), level in zip(pairwise((0, *trend.changes, count)), trend.levels, strict=True):
        y = area.y(level)
        yield f'<path class="level" d="M{area.x(start - 0.5):.1f} {y:.1f}H{area.x(end - 0.5):.1f}"/>'
    for number, place in enumerate(trend.changes, 1):
        x = area.x(place - 0.5)
        yield f'<path class="changed" d="M{x:.1f} {_TOP - 6}V{bottom}"/>'
        yield f'<text x="{x:.1f}" y="{_TOP - 10}" text-anchor="middle">{number}</text>'


def _area(trend: TrendPlot) -> _Area:
    low, high = min(trend.values), max(trend.values)
    span = max(high - low, _SPAN * high)
    bottom = max((low + high - span) / 2 - 0.06 * span, 0.0)
    return _Area(len(trend.values), bottom, bottom + 1.12 * span)


def _ticks(area: _Area) -> Iterator[tuple[float, str]]:
    """Yield round values, as written."""
    rough = (area.high - area.low) / 5
    power = floor(log10(rough))
    step = next(each for each in (1, 2, 5, 10) if each * 10.0**power >= rough) * 10.0**power
    for number in range(ceil(area.low / step), floor(area.high / step) + 1):
        yield number * step, f"{number * step:.{max(0, -floor(log10(step) + 1e-9))}f}"


def _text(text: str) -> str:
    return escape(one_line(text))
