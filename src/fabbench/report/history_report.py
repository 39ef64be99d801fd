"""A history as text: a table of series, the changes below it, CSV, JSON. Pure."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from fabbench.analysis.history import NOTICED, History, LevelChange, Series
from fabbench.model.mappings import distinct
from fabbench.model.messages import counted
from fabbench.model.units import Scale, format_change, format_percent, format_time, scale
from fabbench.report.svg import to_svg, trend
from fabbench.report.table import Cells, PlainData, Table, picked, records_to_csv, write_result
from fabbench.report.templates import template

NAMED = ("configuration", "benchmark", "case", "target")
"""The keys that name a series; others come after them."""
_COLUMNS = ("run", "created", "metric", "size", "value", "unit")


def render_history(history: History, form: str = "markdown", **drawing: Any) -> str:
    """Write a history as a page (`html`), or in a format of `write_result`. Ends with a newline."""
    if form == "html":
        return "".join(history_page(history))
    return write_result(
        form,
        lambda: [history_table(history)],
        lambda: history_document(history),
        lambda: _history_csv(history),
        **drawing,
    )


def _history_csv(history: History) -> str:
    """Write a row per point, with the keys of its series."""
    document = history_document(history)
    records = [
        {**document, **series["key"], **point}
        for series in document["series"]
        for point in series["points"]
    ]
    keys = distinct(name for series in document["series"] for name in series["key"])
    # Of the document it has only what is the same for all points: metric, size and unit
    return records_to_csv(records, [*keys, *_COLUMNS])


def history_table(history: History) -> Table:
    """Return one row per series; its changes are notes."""
    columns = (*NAMED, *history.distinguishing(NAMED))
    rows: list[Sequence[str]] = []
    notes: list[str] = []
    for name, each in zip(_series_names(history), history.series, strict=True):
        cells = [each.key.get(column) or "-" for column in columns]
        rows.append([*cells, *_level_cells(history, each)])
        sentences = [*_change_sentences(history, each), sensitivity(each)]
        notes += [f"{name}: {sentence}" for sentence in sentences]
    return Table(
        header=(*columns, "runs", "level", "latest", "change"),
        rows=rows,
        align="l" * len(columns) + "rrrr",
        headline=headline(history),
        notes=notes,
    )


def _level_cells(history: History, series: Series) -> Cells:
    """Return the number of runs, the level, the newest figure, and the last change."""
    quantity = _scale(history, series).quantity
    newest = quantity(series.points[-1].value)
    change = format_change(series.changes[-1].ratio) if series.changes else "-"
    return str(len(series.points)), quantity(series.level), newest, change


def _series_names(history: History) -> Iterator[str]:
    """Yield a name of each series: what it is, and what distinguishes it from others."""
    others = history.distinguishing(NAMED)
    for series in history.series:
        key = series.key
        # A case with the benchmark's name is said once
        what = dict.fromkeys([key.get("benchmark"), key.get("case")])
        words = " ".join(filter(None, what))
        if key.get("target"):
            words += f" on {key['target']}"
        if key.get("configuration"):  # a log may not show its transport
            words += f": {key['configuration']}"
        more = [f"{name} {key[name]}" for name in others if key.get(name)]
        yield ", ".join([words, *more])


def _scale(history: History, series: Series) -> Scale:
    return scale(history.metric.unit, max(point.value for point in series.points))


def headline(history: History) -> str:
    """Return the result in one sentence."""
    where = f" {history.sizes}" if history.sizes else ""  # ` at 1 GB`
    if history.size is None:
        where = f", best of each run{where}"
    changes = sum(len(each.changes) for each in history.series)
    what_changed = counted(changes, "change") if changes else "no change detected"
    points = sum(len(each.points) for each in history.series)
    runs = counted(points, "run")
    series = len(history.series)
    metric = history.metric.name
    return f"{metric}{where}: {runs} in {series} series, {what_changed}."


def _change_sentences(history: History, series: Series) -> Iterator[str]:
    """Yield each change with its first run, and what else changed then."""
    quantity = _scale(history, series).quantity
    for change in series.changes:
        first = series.points[change.index]  # The first run of the new level
        before = quantity(change.before)
        after = quantity(change.after)
        levels = f"{format_change(change.ratio)} ({before} to {after})"
        # A drift began earlier: its run is the first that shows it
        how = "in a slow drift, shown from" if change.drift else "with"
        moment = format_time(first.created)
        others = _changed_with(change)
        yield f"{levels} {how} run {first.run}, {moment}. {others}"


def _changed_with(change: LevelChange) -> str:
    """Say what else changed."""
    named: list[str] = []
    for name, (was, now) in change.different.items():
        before = was or "(none)"
        after = now or "(none)"
        named.append(f"{name} {before} → {after}")
    if not named:
        return "Nothing else that is recorded changed."
    return "Changed with it: " + ", ".join(named) + "."


def sensitivity(series: Series) -> str:
    """Return after how many more runs a change would be seen, in a sentence; or that none would."""
    change = f"A change of {format_percent(NOTICED, 0)}"
    if series.runs_needed:
        return f"{counted(series.runs_needed, 'more run')} must follow before a change can be seen."
    if series.runs_to_see is None:
        return f"{change} would not be seen: the runs differ too much."
    return f"{change} would be seen after {counted(series.runs_to_see, 'more run')}."


def history_document(history: History) -> PlainData:
    """Return a history as plain data; documented in docs/runs.md."""
    return {
        "format": 1,
        **picked(history, "size", metric="metric.name", unit="metric.unit"),
        "series": [_series_record(each) for each in history.series],
    }


def _series_record(series: Series) -> PlainData:
    return {
        "key": dict(series.key),
        **picked(series, "level", "runs_needed", "runs_to_see"),
        "points": [picked(point, "run", "created", "dated", "value") for point in series.points],
        "changes": [_change_record(series, change) for change in series.changes],
    }


def _change_record(series: Series, change: LevelChange) -> PlainData:
    return {
        "run": series.points[change.index].run,
        "previous": series.points[change.index - 1].run,
        **picked(change, "before", "after", "ratio", "drift", "different"),
    }


def history_page(history: History) -> Iterator[str]:
    """Yield a page in pieces: an overview of several series, then each of them."""
    return template("history.html").generate(
        title=headline(history).rstrip("."),
        history=history,
        overview=history_table(history),
        all=list(zip(_series_names(history), history.series, strict=True)),
        scale_of=partial(_scale, history),
        sentences_of=partial(_change_sentences, history),
        sensitivity=sensitivity,
        draw=lambda name, *what: to_svg(trend(*what), name=name),
        change_of=format_change,
        counted=counted,
        time=format_time,
    )
