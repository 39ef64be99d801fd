"""A history as text: a table with a sparkline for each series, the changes below it, CSV, JSON. Pure."""

from collections.abc import Iterator, Sequence
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
    names = [name for name in (*NAMED, *history.distinguishing(NAMED)) if name not in same]
    shared = ", ".join(f"{name} {value}" for name, value in same.items() if value)
    rows, notes = [], [f"Every series: {shared}."] if shared else []
    for each in history.series:
        unit_scale = scale(history.metric.unit, max(point.value for point in each.points))
        values = [point.value for point in each.points]
        figures = (unit_scale.quantity(each.level), unit_scale.quantity(values[-1]))
        latest = change_text(each.changes[-1]) if each.changes else "-"
        cells = (each.key.get(name) or "-" for name in names)
        rows.append((*cells, str(len(values)), sparkline(values), *figures, latest))
        title = " ".join(each.key[name] for name in NAMED[:3] if each.key.get(name))
        notes += [f"{title}: {change_sentence(each, change, unit_scale)}" for change in each.changes]
    return Table(
        header=(*names, "runs", "trend", "level", "latest", "change"),
        rows=rows,
        align="l" * len(names) + "rlrrr",
        headline=headline(history),
        notes=notes,
    )


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


def change_text(change: LevelChange) -> str:
    """Return the relative change of a level: ``-48%``."""
    percent = 100 * (change.ratio - 1)
    return f"{'+' if percent > 0 else ''}{format_decimal(percent, 1)}%"


def change_sentence(series: Series, change: LevelChange, unit_scale: Scale) -> str:
    """Return a change with its first run, and what else changed then."""
    first = series.points[change.index]
    levels = f"{unit_scale.quantity(change.before)} to {unit_scale.quantity(change.after)}"
    named = [f"{name} {old or '(none)'} → {new or '(none)'}" for name, (old, new) in change.different.items()]
    others = f"Changed with it: {', '.join(named)}." if named else "Nothing else that is recorded changed."
    how = "in a slow drift, shown from" if change.drift else "with"
    return f"{change_text(change)} ({levels}) {how} run {first.run}, {format_time(first.created)}. {others}"


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


_METHOD = """Each dot is one run: the median of its repeats that are ok. The chance that 200 runs without a change,
seen after each, ever have one reported is at most 5%, if neighbors correlate by at most 0.8 (0.3 with outliers)."""


def history_page(history: History, version: str) -> Iterator[str]:
    """Yield a page in pieces: an overview of several series, then each of them."""
    others = history.distinguishing(NAMED)
    shown = [_series(history, each, others, number) for number, each in enumerate(history.series, 1)]
    return template("history.html").generate(
        title=headline(history).rstrip("."),
        method=_METHOD,
        rows=[each["row"] for each in shown] if len(shown) > 1 else [],
        links=[f"#series-{number}" for number in range(1, len(shown) + 1)],
        series=shown,
        version=version,
    )


def _series(history: History, series: Series, others: Sequence[str], number: int) -> dict[str, Any]:
    metric, points = history.metric, series.points
    unit_scale, name = scale(metric.unit, max(point.value for point in points)), _name(series, others)
    sentences = [change_sentence(series, change, unit_scale) for change in series.changes]
    changes = {change.index: change_text(change) for change in series.changes}
    level, latest = unit_scale.quantity(series.level), unit_scale.quantity(points[-1].value)
    span = f"{counted(len(points), 'run')} from {points[0].created[:10]} to {points[-1].created[:10]}."
    title, axis = f"{metric.name} by run", f"{metric.name} ({unit_scale.unit})"
    about = " ".join((span, f"The level is {level}.", *sentences))
    picture = trend(series, axis, unit_scale.factor, f"{axis} by run", about)
    return {
        "name": name,
        "key": ", ".join(f"{field} {value}" for field, value in series.key.items() if value),
        "title": title if not changes else f"{title}; numbered: changes, see the list",
        "drawn": to_svg(picture, name=f"trend-{number}") if points[1:] else None,
        "figures": [
            ("level", *level.split(" "), span),
            ("latest", *latest.split(" "), format_time(points[-1].created)),
            ("changes", str(len(changes)), "", ", ".join(changes.values())),
        ],
        "changes": sentences,
        "row": (name, str(len(points)), level, latest, ", ".join(changes.values()) or "-"),
        "header": ("Run", "Created", axis, "Change"),
        "rows": [
            (point.run, format_time(point.created), unit_scale.text(point.value), changes.get(index, ""))
            for index, point in enumerate(points)
        ],
    }


def _name(series: Series, others: Sequence[str]) -> str:
    benchmark, case, configuration, target = (series.key.get(name) or "" for name in NAMED)
    more = [f"{name} {value}" for name in others if (value := series.key.get(name))]
    where = " ".join(dict.fromkeys(filter(None, (benchmark, case)))) + (f" on {target}" if target else "")
    return ", ".join((f"{where}: {configuration}", *more))
