"""Summaries of runs → the history of a metric: one series per key, with level changes."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from fabbench.analysis.history import History, HistoryPoint, with_changes
from fabbench.model.errors import RequestError
from fabbench.model.log import METRICS, Metric
from fabbench.model.units import format_size, parse_size
from fabbench.runs.summary import FullSummary, Pairs, Summary


def parse_metric(text: str, sizes: range | None = None) -> tuple[Metric, range | None]:
    """Parse METRIC or METRIC@SIZE, besides the `sizes` of ``--size``. Raise RequestError."""
    name, at, size = text.partition("@")
    if name not in METRICS:
        raise RequestError(f"Unknown metric {name}.", hint=f"One of {', '.join(METRICS)}.")
    if at and sizes is not None:
        raise RequestError(f"Both {text} and --size give a size.", hint="Leave one out.")
    try:
        return METRICS[name], range(parse_size(size), parse_size(size) + 1) if at else sizes
    except ValueError as error:
        raise RequestError(
            f"Invalid size in {text!r}: {error}.", hint=f"Such as {name}@1G."
        ) from None


def parse_where(texts: Sequence[str]) -> dict[str, str]:
    """Parse the KEY=VALUE conditions of `--where`. Raise RequestError."""
    where: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise RequestError(
                f"Invalid condition {text!r}.", hint="--where KEY=VALUE, such as case=all_reduce."
            )
        if where.setdefault(name, value) != value:
            raise RequestError(
                f"--where {name} is given twice.", hint="A pattern fits several: case=all_*."
            )
    return where


def history(
    runs: Iterable[Summary], metric: Metric, sizes: range | None, where: Mapping[str, str]
) -> History:
    """Return the history of a metric, from the summaries of runs, newest first.

    `where` has patterns for values of keys and circumstances. Raise RequestError for a name that no
    run has.
    """
    known, by_key = set[str](), dict[Pairs, list[HistoryPoint]]()
    for run in (each for each in runs if isinstance(each, FullSummary)):
        for each in run.measured:
            if each.metric != metric.name or not (value := each.value(metric, sizes)) or value < 0:
                continue
            around = run.circumstances[each.configuration]
            values = {**around, "name": run.name, **dict(each.key)}
            known.update(values)
            if all(fnmatchcase(values.get(name, ""), pattern) for name, pattern in where.items()):
                by_key.setdefault(each.key, []).append(
                    HistoryPoint(run.id, run.created, value, around)
                )
    if unknown := [name for name in where if known and name not in known]:
        raise RequestError(f"No run has {unknown[0]}.", hint=f"Known: {', '.join(sorted(known))}.")
    series = [with_changes(dict(key), points[::-1]) for key, points in by_key.items()]
    size = sizes[0] if sizes is not None and len(sizes) == 1 else None
    span = f" from {format_size(sizes[0])} to {format_size(sizes[-1])}" if sizes else ""
    return History(metric=metric, size=size, series=series, span=span)
