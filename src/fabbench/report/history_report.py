"""A history as text: a table with a sparkline for each series, the changes below it, CSV, JSON. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from fabbench.analysis.history import History, LevelChange, Series
from fabbench.analysis.statistics import median
from fabbench.model.messages import counted
from fabbench.model.units import Scale, format_decimal, format_size, format_time, scale
from fabbench.report.json_contract import picked
from fabbench.report.svg import to_svg, trend
from fabbench.report.table import Table, records_to_csv, write_result
from fabbench.report.templates import template

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 32
_SPAN = 0.05  # The smallest fraction of a value that a sparkline's height covers, so that noise looks flat
NAMED = ("benchmark", "case", "configuration", "target")  # the keys that name a series; others come after them
_COLUMNS = ("run", "created", "metric", "size", "value", "unit", "change")


def render_history(history: History, form: str = "markdown", *, color: bool = False, width: int | None = None) -> str:
    """Write a history as a page (`html`), or in a format of `write_result`. Ends with a newline."""
    if form == "html":
        from fabbench import __version__

        return "".join(history_page(history, __version__))
    keys = dict.fromkeys(name for each in history.series for name in each.key)
    csv, document = partial(records_to_csv, _records(history), (*keys, *_COLUMNS)), partial(history_document, history)
    return write_result(form, lambda: [history_table(history)], document, csv, color=color, width=width)


def history_table(history: History) -> Table:
    """Return one row per series; its changes are notes, after what all series have."""
    known = {name: {each.key.get(name) or "" for each in history.series} for name in NAMED}
    same = {name: value for name in NAMED if name != "configuration" and len(known[name]) == 1 for value in known[name]}
    columns = [name for name in (*NAMED, *history.distinguishing(NAMED)) if name not in same]
    shared = ", ".join(f"{name} {value}" for name, value in same.items() if value)
    rows, notes = [], [f"Every series: {shared}."] if shared else []
    for name, each in zip(_names(history), history.series, strict=True):
        quantity, values = _scale(history, each).quantity, [point.value for point in each.points]
        change = _percent(each.changes[-1]) if each.changes else "-"
        cells = [each.key.get(column) or "-" for column in columns]
        rows.append([*cells, str(len(values)), sparkline(values), quantity(each.level), quantity(values[-1]), change])
        notes += [f"{name}: {sentence}" for sentence in _sentences(history, each)]
    return Table(
        header=(*columns, "runs", "trend", "level", "latest", "change"),
        rows=rows,
        align="l" * len(columns) + "rlrrr",
        headline=headline(history),
        notes=notes,
    )


def _names(history: History) -> list[str]:
    """Return a name of each series: what it is, and what distinguishes it from series that are the same."""
    groups: dict[tuple[str, ...], list[Series]] = {}
    for each in history.series:
        groups.setdefault(tuple(each.key.get(name) or "" for name in NAMED), []).append(each)
    names = {}
    for (benchmark, case, configuration, target), some in groups.items():
        others = replace(history, series=some).distinguishing(NAMED)
        where = " ".join(dict.fromkeys(filter(None, (benchmark, case)))) + (f" on {target}" if target else "")
        for each in some:
            more = [f"{name} {value}" for name in others if (value := each.key.get(name))]
            names[id(each)] = ", ".join((f"{where}: {configuration}", *more))
    return [names[id(each)] for each in history.series]


def _scale(history: History, series: Series) -> Scale:
    return scale(history.metric.unit, max(point.value for point in series.points))


def sparkline(values: Sequence[float]) -> str:
    """Draw values as bars, oldest first; if there are many, medians of neighbors."""
    count = min(len(values), _WIDTH)
    edges = [len(values) * bar // count for bar in range(count + 1)]
    drawn = [median(values[start:end]) for start, end in pairwise(edges)]
    low, high = min(drawn), max(drawn)
    span = max(high - low, _SPAN * high)
    bottom = (low + high - span) / 2
    return "".join(_BARS[min(int((value - bottom) / span * len(_BARS)), len(_BARS) - 1)] for value in drawn)


def headline(history: History) -> str:
    """Return the result in one sentence."""
    changes = sum(len(each.changes) for each in history.series)
    where = f" at {format_size(history.size)}" if history.size is not None else f", best of each run{history.span}"
    points = sum(len(each.points) for each in history.series)
    found = counted(changes, "change") if changes else "no change detected"
    return f"{history.metric.name}{where}: {counted(points, 'run')} in {len(history.series)} series, {found}."


def _percent(change: LevelChange) -> str:
    percent = 100 * (change.ratio - 1)
    return f"{'+' if percent > 0 else ''}{format_decimal(percent, 1)}%"


def _sentences(history: History, series: Series) -> Iterator[str]:
    """Yield each change with its first run, and what else changed then."""
    quantity = _scale(history, series).quantity
    for change in series.changes:
        first = series.points[change.index]
        named = [f"{name} {old or '(none)'} → {new or '(none)'}" for name, (old, new) in change.different.items()]
        others = f"Changed with it: {', '.join(named)}." if named else "Nothing else that is recorded changed."
        how = "in a slow drift, shown from" if change.drift else "with"
        levels = f"{_percent(change)} ({quantity(change.before)} to {quantity(change.after)})"
        yield f"{levels} {how} run {first.run}, {format_time(first.created)}. {others}"


def _records(history: History) -> Iterator[dict[str, object]]:
    for each in history.series:
        changes = {change.index: change for change in each.changes}
        for index, point in enumerate(each.points):
            yield {
                **each.key,
                "run": point.run,
                "created": point.created,
                "metric": history.metric.name,
                "size": history.size,
                "value": point.value,
                "unit": history.metric.unit,
                "change": changes[index].ratio if index in changes else None,
            }


def history_document(history: History) -> dict[str, object]:
    """Return a history as plain data; documented in docs/runs.md."""
    return {
        "format": 1,
        "metric": history.metric.name,
        "unit": history.metric.unit,
        "size": history.size,
        "series": [
            {
                "key": dict(each.key),
                "level": each.level,
                "points": [picked(point, "run", "created", "value") for point in each.points],
                "changes": [
                    {
                        "run": each.points[change.index].run,
                        "previous": each.points[change.index - 1].run,
                        **picked(change, "before", "after", "ratio", "drift"),
                        "different": {name: list(pair) for name, pair in change.different.items()},
                    }
                    for change in each.changes
                ],
            }
            for each in history.series
        ],
    }


def history_page(history: History, version: str) -> Iterator[str]:
    """Yield a page in pieces: an overview of several series, then each of them."""
    named = zip(_names(history), history.series, strict=True)
    return template("history.html").generate(
        title=headline(history).rstrip("."),
        metric=history.metric.name,
        overview=history_table(history),
        all=[_series(history, name, each, number) for number, (name, each) in enumerate(named, 1)],
        version=version,
    )


def _series(history: History, name: str, series: Series, number: int) -> dict[str, Any]:
    points, unit_scale, sentences = series.points, _scale(history, series), list(_sentences(history, series))
    axis, changes = (
        f"{history.metric.name} ({unit_scale.unit})",
        {each.index: _percent(each) for each in series.changes},
    )
    span = f"{counted(len(points), 'run')} from {points[0].created[:10]} to {points[-1].created[:10]}."
    about = " ".join((span, f"The level is {unit_scale.quantity(series.level)}.", *sentences))
    picture = trend(series, axis, unit_scale.factor, f"{axis} by run", about)
    return {
        "name": name,
        "series": series,
        "span": span,
        "axis": axis,
        "scale": unit_scale,
        "drawn": to_svg(picture, name=f"trend-{number}") if points[1:] else None,
        "changes": changes,
        "sentences": sentences,
        "rows": [
            (point.run, format_time(point.created), unit_scale.text(point.value), changes.get(index, ""))
            for index, point in enumerate(points)
        ],
    }
