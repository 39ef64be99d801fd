"""A store's index → the history of a metric: one series for each key, with changes of level."""

import json
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from fabbench.analysis.change_points import LEAST_VALUES
from fabbench.analysis.history import History, HistoryPoint, with_changes
from fabbench.model.errors import RequestError
from fabbench.model.log import METRICS, Metric
from fabbench.model.units import parse_size

if TYPE_CHECKING:
    from fabbench.runs.indexed_run import IndexedRun, Measured


def parse_metric(text: str) -> tuple[Metric, int | None]:
    """Read METRIC or METRIC@SIZE. Raise RequestError."""
    name, at, size = text.partition("@")
    if name not in METRICS:
        raise RequestError(f"Unknown metric {name}.", hint=f"One of {', '.join(METRICS)}.")
    try:
        return METRICS[name], parse_size(size) if at else None
    except ValueError as error:
        raise RequestError(f"Invalid size in {text!r}: {error}.", hint=f"Such as {name}@1G.") from None


def parse_where(texts: Sequence[str]) -> dict[str, str]:
    """Read KEY=VALUE of `--where`. Raise RequestError."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise RequestError(
                f"Invalid condition {text!r}.", hint="--where KEY=VALUE, such as case=all_reduce."
            )
        if found.setdefault(name, value) != value:
            raise RequestError(f"--where {name} is given twice.", hint="A pattern fits several: case=all_*.")
    return found


def history(
    measured: Sequence[tuple["IndexedRun", "Measured"]],
    metric: Metric,
    size: int | None = None,
    where: Mapping[str, str] | None = None,
) -> History:
    """Return the history of a metric, from what an index has of it: newest run first.

    `where` has patterns for values of keys and of circumstances. Raise RequestError for a name that no run
    has.
    """
    found: dict[tuple[tuple[str, str], ...], list[HistoryPoint]] = {}
    known: dict[str, None] = {}
    for run, each in measured:
        value = _value(each, metric, size)
        if value is None or value <= 0:
            continue
        key, circumstances = _key(run, each), _circumstances(run, each.configuration)
        named = {**circumstances, **_names(run), **key}
        known.update(dict.fromkeys(named))
        if all(fnmatchcase(named.get(name, ""), pattern) for name, pattern in (where or {}).items()):
            point = HistoryPoint(run=run.id, created=run.created, value=value, circumstances=circumstances)
            found.setdefault(tuple(key.items()), []).append(point)
    unknown = next((name for name in where or () if known and name not in known), None)
    if unknown is not None:
        raise RequestError(f"No run has {unknown}.", hint=f"Known: {', '.join(sorted(known))}.")
    # How many runs a series has says nothing of their values, so that short ones take no part of the level.
    together = sum(len(points) >= LEAST_VALUES for points in found.values())
    series = [with_changes(dict(key), points[::-1], together) for key, points in found.items()]
    return History(metric=metric, size=size, series=series)


def _value(measured: "Measured", metric: Metric, size: int | None) -> float | None:
    if size is None:
        return (min if metric.lower_is_better else max)(measured.values, default=None)
    return dict(zip(measured.sizes, measured.values, strict=True)).get(size)


def _key(run: "IndexedRun", measured: "Measured") -> dict[str, str]:
    """Return what the runs of one series have in common: what was measured, and on which nodes."""
    first = {
        "benchmark": run.benchmark,
        "case": "",
        "configuration": measured.configuration,
        "target": run.target,
        "nodes": str(len(run.hosts)),
        "type": ", ".join(run.instance_types),
    }
    return {**first, **dict(measured.key), **dict(_options(run, {*first, *dict(measured.key)}))}


def _options(run: "IndexedRun", taken: set[str]) -> Iterator[tuple[str, str]]:
    for name, value in json.loads(run.options).items():
        if name not in taken and value not in (None, "", [], False):
            yield name, ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _circumstances(run: "IndexedRun", configuration: str) -> dict[str, str]:
    """Return what may differ from run to run of one series."""
    own = next((each for each in run.configurations if each.label == configuration), None)
    return {
        **(own.versions if own else {}),
        **({"variant": own.variant} if own else {}),
        "image": run.image,
        "node names": ", ".join(run.hosts),
        **{f"env {name}": value for name, value in run.env.items()},
        "fabbench": run.fabbench,
    }


def _names(run: "IndexedRun") -> dict[str, str]:
    """Return what else chooses runs."""
    return {"name": run.name, "store": run.folder}
