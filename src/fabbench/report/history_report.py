"""A history as text: a table of series, the changes below it, CSV, JSON. Pure."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from fabbench.analysis.history import History, LevelChange, Series
from fabbench.model.messages import counted
from fabbench.model.units import Scale, format_decimal, format_size, format_time, scale
from fabbench.report.svg import to_svg, trend
from fabbench.report.table import Table, picked, records_to_csv, write_result
from fabbench.report.templates import template

# the keys that name a series; others come after them
NAMED = (
    "configuration",
    "benchmark",
    "case",
    "target",
)
_COLUMNS = ("run", "created", "metric", "size", "value", "unit")


def render_history(history: History, form: str = "markdown", **drawing: Any) -> str:
    """Write a history as a page (`html`), or in a format of `write_result`. Ends with a newline."""
    if form == "html":
        return "".join(history_page(history))
    document = history_document(history)
    rows = (
        {**document, **series["key"], **point}
        for series in document["series"]
        for point in series["points"]
    )
    header = (*dict.fromkeys(name for each in history.series for name in each.key), *_COLUMNS)
    return write_result(
        form,
        lambda: [history_table(history)],
        lambda: document,
        lambda: records_to_csv(rows, header),
        **drawing,
    )


def history_table(history: History) -> Table:
    """Return one row per series; its changes are notes."""
    columns = (*NAMED, *history.distinguishing(NAMED))
    rows: list[Sequence[str]] = []
    notes: list[str] = []
    for name, each in zip(_names(history), history.series, strict=True):
        cells = [each.key.get(column) or "-" for column in columns]
        rows.append([*cells, *_levels(history, each)])
        notes += [f"{name}: {sentence}" for sentence in _sentences(history, each)]
    return Table(
        header=(*columns, "runs", "level", "latest", "change"),
        rows=rows,
        align="l" * len(columns) + "rrrr",
        headline=headline(history),
        notes=notes,
    )


def _levels(history: History, series: Series) -> tuple[str, ...]:
    """Return the number of runs, the level, the newest figure, and the last change."""
    quantity = _scale(history, series).quantity
    newest = quantity(series.points[-1].value)
    change = _percent(series.changes[-1]) if series.changes else "-"
    return str(len(series.points)), quantity(series.level), newest, change


def _names(history: History) -> Iterator[str]:
    """Yield a name of each series: what it is, and what distinguishes it from others."""
    others = history.distinguishing(NAMED)
    for key in (each.key for each in history.series):
        words = dict.fromkeys(filter(None, (key.get("benchmark"), key.get("case"))))
        where = f" on {key['target']}" if key.get("target") else ""
        more = [f"{name} {key[name]}" for name in others if key.get(name)]
        yield ", ".join((f"{' '.join(words)}{where}: {key.get('configuration') or ''}", *more))


def _scale(history: History, series: Series) -> Scale:
    return scale(history.metric.unit, max(point.value for point in series.points))


def headline(history: History) -> str:
    """Return the result in one sentence."""
    changes = sum(len(each.changes) for each in history.series)
    where = (
        f" at {format_size(history.size)}"
        if history.size is not None
        else f", best of each run{history.span}"
    )
    points = sum(len(each.points) for each in history.series)
    found = counted(changes, "change") if changes else "no change detected"
    return (
        f"{history.metric.name}{where}: {counted(points, 'run')} in {len(history.series)} "
        f"series, {found}."
    )


def _percent(change: LevelChange) -> str:
    percent = 100 * (change.ratio - 1)
    return f"{'+' if percent > 0 else ''}{format_decimal(percent, 1)}%"


def _sentences(history: History, series: Series) -> Iterator[str]:
    """Yield each change with its first run, and what else changed then."""
    quantity = _scale(history, series).quantity
    for change in series.changes:
        first = series.points[change.index]
        named = [
            f"{name} {old or '(none)'} → {new or '(none)'}"
            for name, (old, new) in change.different.items()
        ]
        others = (
            f"Changed with it: {', '.join(named)}."
            if named
            else "Nothing else that is recorded changed."
        )
        how = "in a slow drift, shown from" if change.drift else "with"
        levels = f"{_percent(change)} ({quantity(change.before)} to {quantity(change.after)})"
        yield f"{levels} {how} run {first.run}, {format_time(first.created)}. {others}"


def history_document(history: History) -> dict[str, Any]:
    """Return a history as plain data; documented in docs/runs.md."""
    return {
        "format": 1,
        **picked(history, "size", metric="metric.name", unit="metric.unit"),
        "series": [
            {
                "key": dict(each.key),
                "level": each.level,
                "points": [picked(point, "run", "created", "value") for point in each.points],
                "changes": [
                    {
                        "run": each.points[change.index].run,
                        "previous": each.points[change.index - 1].run,
                        **picked(change, "before", "after", "ratio", "drift", "different"),
                    }
                    for change in each.changes
                ],
            }
            for each in history.series
        ],
    }


def history_page(history: History) -> Iterator[str]:
    """Yield a page in pieces: an overview of several series, then each of them."""
    return template("history.html").generate(
        title=headline(history).rstrip("."),
        history=history,
        overview=history_table(history),
        all=list(zip(_names(history), history.series, strict=True)),
        scale_of=partial(_scale, history),
        sentences_of=partial(_sentences, history),
        draw=lambda name, *what: to_svg(trend(*what), name=name),
        percent=_percent,
        counted=counted,
        time=format_time,
    )
