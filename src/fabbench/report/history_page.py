"""A history as one HTML page: a trend for each series, its changes, and the runs behind it. Pure."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from fabbench.analysis.history import History, Series
from fabbench.analysis.statistics import median
from fabbench.model.messages import counted
from fabbench.model.units import Scale, format_time, scale
from fabbench.report.history_report import NAMED, change_sentence, change_text, headline
from fabbench.report.html import document, grid, listed, text
from fabbench.report.trend_plot import MARKS, TrendPlot, trend_svg

_METHOD = (
    "A dot is one run: the median of its repeats that are ok. A change is shown by Wilcoxon's rank-sum test; "
    "in series without one, any is named with a chance of 5% at most."
)


def history_page(history: History, version: str) -> Iterator[str]:
    """Yield a page in pieces: an overview of several series, then each of them."""
    return document(headline(history).rstrip("."), _parts(history), version)


def _parts(history: History) -> Iterator[str]:
    yield f'<p class="faint">{text(_METHOD)}</p>\n'
    others = history.told_apart(NAMED)
    if len(history.series) > 1:
        yield _overview(history, others)
    for number, each in enumerate(history.series, 1):
        yield from _series(history, each, others, number)


def _overview(history: History, others: Sequence[str]) -> str:
    rows = []
    for number, each in enumerate(history.series, 1):
        written = _scale(history, each)
        changes = [change_text(change) for change in each.changes]
        latest = written.quantity(each.points[-1].value)
        cells = (str(len(each.points)), written.quantity(each.level), latest, ", ".join(changes) or "-")
        link = f'<a href="#series-{number}">{text(_name(each, others))}</a>'
        rows.append([link, *map(text, cells)])
    return grid("Overview", ("Series", "Runs", "Level", "Latest", "Changes"), rows, "lrrrr")


def _series(history: History, series: Series, others: Sequence[str], number: int) -> Iterator[str]:
    written, name = _scale(history, series), _name(series, others)
    sentences = [change_sentence(series, change, written) for change in series.changes]
    yield f'<section class="series" id="series-{number}" aria-label="{text(name)}">\n<h2>{text(name)}</h2>\n'
    key = ", ".join(f"{field} {value}" for field, value in series.key.items() if value)
    yield f'<p class="faint">{text(key)}</p>\n'
    yield _figure(history, series, sentences, number)
    if sentences:
        items = "".join(f"<li>{text(sentence)}</li>\n" for sentence in sentences)
        yield f"<h3>Changes</h3>\n<ol>\n{items}</ol>\n"
    else:
        yield listed(["No change is shown."])
    yield f"<details>\n<summary>Runs as a table</summary>\n{_table(history, series)}</details>\n</section>\n"


def _figure(history: History, series: Series, sentences: Sequence[str], number: int) -> str:
    written, points = _scale(history, series), series.points
    values = [point.value / written.factor for point in points]
    changes = [change.index for change in series.changes]
    ends = (0, *changes, len(points))
    span = f"{counted(len(points), 'run')} from {_day(points[0].created)} to {_day(points[-1].created)}."
    level = f"The level is {written.quantity(series.level)}."
    trend = TrendPlot(
        title=f"{history.metric.name} run after run",
        axis=f"{history.metric.name} ({written.unit})",
        about=" ".join((span, level, *sentences)),
        values=values,
        dates=[_day(point.created) for point in points],
        changes=changes,
        levels=[median(values[start:end]) for start, end in pairwise(ends)],
    )
    legend = "".join(
        f'<li><svg class="plot sample" viewBox="0 0 34 12" width="34" height="12" aria-hidden="true">'
        f"{mark}</svg>{text(label)}</li>"
        for label, mark in MARKS.items()
        if changes or "change," not in label
    )
    drawn = trend_svg(trend, name=f"trend-{number}")
    return (
        f"<figure>\n<figcaption>{text(trend.title)}</figcaption>\n"
        f'<ul class="legend">{legend}</ul>\n{drawn}\n</figure>\n'
    )


def _table(history: History, series: Series) -> str:
    written = _scale(history, series)
    changes = {change.index: change_text(change) for change in series.changes}
    rows = [
        [
            text(point.run),
            text(format_time(point.created)),
            text(written.text(point.value)),
            changes.get(place, ""),
        ]
        for place, point in enumerate(series.points)
    ]
    header = ("Run", "Created", f"{history.metric.name} ({written.unit})", "Change")
    return grid("Runs, the oldest first", header, rows, "llrr")


def _scale(history: History, series: Series) -> Scale:
    return scale(history.metric.unit, max(point.value for point in series.points))


def _name(series: Series, others: Sequence[str]) -> str:
    benchmark, case, configuration, target = (series.key.get(name) or "" for name in NAMED)
    more = [f"{name} {series.key.get(name) or 'none'}" for name in others]
    place = f"{benchmark} {case}".strip() + (f" on {target}" if target else "")
    return ", ".join((f"{place}: {configuration}", *more))


def _day(created: str) -> str:
    return created[:10]
