"""A history as one HTML page: a trend for each series, its changes, and the runs behind it. Pure.

A trend is SVG: dots, the levels between changes, and a number at each change.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import ceil, floor, log10
from typing import Any

from fabbench.analysis.history import History, Series
from fabbench.analysis.statistics import median
from fabbench.model.messages import counted
from fabbench.model.units import Scale, format_time, scale
from fabbench.report import svg
from fabbench.report.history_report import NAMED, change_sentence, change_text, headline, render_history
from fabbench.report.html import bullet_list, document, figure, grid, text
from fabbench.report.svg import HEIGHT, WIDTH

_METHOD = (
    "Each dot is one run: the median of its repeats that are ok. Changes are detected with Wilcoxon's "
    "rank-sum test; in series without one, the chance of reporting any is at most 5%."
)


def write_history(history: History, form: str, **more: Any) -> str:
    """Write a history as a page (`html`), or in a format of `render_history`."""
    from fabbench import __version__

    return "".join(history_page(history, __version__)) if form == "html" else render_history(history, form, **more)


def history_page(history: History, version: str) -> Iterator[str]:
    """Yield a page in pieces: an overview of several series, then each of them."""
    others = history.distinguishing(NAMED)
    parts = [f'<p class="faint">{text(_METHOD)}</p>\n']
    if len(history.series) > 1:
        parts.append(_overview(history, others))
    series = (_series(history, each, others, number) for number, each in enumerate(history.series, 1))
    return document(headline(history).rstrip("."), chain(parts, chain.from_iterable(series)), version)


def _overview(history: History, others: Sequence[str]) -> str:
    rows = []
    for number, each in enumerate(history.series, 1):
        unit_scale = _scale(history, each)
        changes = [change_text(change) for change in each.changes]
        latest = unit_scale.quantity(each.points[-1].value)
        cells = (str(len(each.points)), unit_scale.quantity(each.level), latest, ", ".join(changes) or "-")
        link = f'<a href="#series-{number}">{text(_name(each, others))}</a>'
        rows.append([link, *map(text, cells)])
    return grid("Overview", ("Series", "Runs", "Level", "Latest", "Changes"), rows, "lrrrr")


def _series(history: History, series: Series, others: Sequence[str], number: int) -> Iterator[str]:
    unit_scale, name = _scale(history, series), _name(series, others)
    sentences = [change_sentence(series, change, unit_scale) for change in series.changes]
    yield f'<section class="series" id="series-{number}" aria-label="{text(name)}">\n<h2>{text(name)}</h2>\n'
    key = ", ".join(f"{field} {value}" for field, value in series.key.items() if value)
    yield f'<p class="faint">{text(key)}</p>\n'
    yield _figure(history, series, sentences, number)
    if sentences:
        items = "".join(f"<li>{text(sentence)}</li>\n" for sentence in sentences)
        yield f"<h3>Changes</h3>\n<ol>\n{items}</ol>\n"
    else:
        yield bullet_list(["No change is shown."])
    yield f"<details>\n<summary>Runs as a table</summary>\n{_table(history, series)}</details>\n</section>\n"


def _figure(history: History, series: Series, sentences: Sequence[str], number: int) -> str:
    unit_scale, points = _scale(history, series), series.points
    span = f"{counted(len(points), 'run')} from {points[0].created[:10]} to {points[-1].created[:10]}."
    description = " ".join((span, f"The level is {unit_scale.quantity(series.level)}.", *sentences))
    title = f"{history.metric.name} by run"
    marks = [(label, mark) for label, mark in _MARKS.items() if series.changes or "change," not in label]
    legend = [(svg.sample_of(mark), label) for label, mark in marks]
    drawn = _drawn(series, f"{history.metric.name} ({unit_scale.unit})", unit_scale.factor)
    return figure(title, legend, svg.framed(drawn, title, description, name=f"trend-{number}"))


def _table(history: History, series: Series) -> str:
    unit_scale = _scale(history, series)
    changes = {change.index: change_text(change) for change in series.changes}
    rows = [
        [text(point.run), text(format_time(point.created)), text(unit_scale.text(point.value)), changes.get(index, "")]
        for index, point in enumerate(series.points)
    ]
    header = ("Run", "Created", f"{history.metric.name} ({unit_scale.unit})", "Change")
    return grid("Runs, oldest first", header, rows, "llrr")


def _scale(history: History, series: Series) -> Scale:
    return scale(history.metric.unit, max(point.value for point in series.points))


def _name(series: Series, others: Sequence[str]) -> str:
    benchmark, case, configuration, target = (series.key.get(name) or "" for name in NAMED)
    more = [f"{name} {series.key.get(name) or 'none'}" for name in others]
    where = f"{benchmark} {case}".strip() + (f" on {target}" if target else "")
    return ", ".join((f"{where}: {configuration}", *more))


_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 16, 42, 34
_DATES = 4
_SPAN = 0.1
"""The smallest fraction of a value that the height covers, so that noise looks flat."""
_DOTS = ((60, 6.0), (300, 4.0))
_SMALLEST = 2.5
"""Sizes of dots: up to so many runs, and for more."""

_MARKS = {
    "one run": '<path class="dots" stroke-width="6" d="M17 6h0"/>',
    "level: median between changes": '<path class="level" d="M2 6h30"/>',
    "numbered change (see list)": '<path class="changed" d="M17 0v12"/>',
}
"""The entries of a legend: label → mark, 34 wide and 12 high."""


@dataclass(frozen=True, slots=True)
class _TrendArea:
    count: int
    low: float
    high: float

    def x(self, index: float) -> float:
        return _LEFT + (index + 0.5) / self.count * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _TOP + (1 - (value - self.low) / (self.high - self.low)) * (HEIGHT - _TOP - _BOTTOM)


def _drawn(series: Series, axis: str, factor: float) -> Iterator[str]:
    """Yield the parts of a plot, with values in the unit of the axis, which has this factor."""
    values = [point.value / factor for point in series.points]
    changes = [change.index for change in series.changes]
    area, bottom, count = _area(values), HEIGHT - _BOTTOM, len(values)
    yield f'<text class="faint" x="12" y="14">{svg.text_of(axis)}</text>'
    for value, label in _ticks(area):
        y = area.y(value)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>'
        yield f'<text class="faint" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    shown = sorted({round(step * (count - 1) / (_DATES - 1)) for step in range(_DATES)})
    for index in shown:
        side = "middle" if len(shown) == 1 else {shown[0]: "start", shown[-1]: "end"}.get(index, "middle")
        yield (
            f'<text class="faint" x="{area.x(index):.1f}" y="{bottom + 20}" text-anchor="{side}">'
            f"{svg.text_of(series.points[index].created[:10])}</text>"
        )
    dots = "".join(f"M{area.x(index):.1f} {area.y(value):.1f}h0" for index, value in enumerate(values))
    large = next((each for limit, each in _DOTS if count <= limit), _SMALLEST)
    yield f'<path class="dots" stroke-width="{large:g}" d="{dots}"/>'
    for start, end in pairwise((0, *changes, count)):
        y = area.y(median(values[start:end]))
        yield f'<path class="level" d="M{area.x(start - 0.5):.1f} {y:.1f}H{area.x(end - 0.5):.1f}"/>'
    for number, index in enumerate(changes, 1):
        x = area.x(index - 0.5)
        yield f'<path class="changed" d="M{x:.1f} {_TOP - 6}V{bottom}"/>'
        yield f'<text x="{x:.1f}" y="{_TOP - 10}" text-anchor="middle">{number}</text>'


def _area(values: Sequence[float]) -> _TrendArea:
    low, high = min(values), max(values)
    span = max(high - low, _SPAN * high)
    bottom = max((low + high - span) / 2 - 0.06 * span, 0.0)
    return _TrendArea(len(values), bottom, bottom + 1.12 * span)


def _ticks(area: _TrendArea) -> Iterator[tuple[float, str]]:
    rough = (area.high - area.low) / 5
    power = floor(log10(rough))
    step = next(each for each in (1, 2, 5, 10) if each * 10.0**power >= rough) * 10.0**power
    for number in range(ceil(area.low / step), floor(area.high / step) + 1):
        yield number * step, f"{number * step:.{max(0, -floor(log10(step) + 1e-9))}f}"
