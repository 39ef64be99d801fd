"""Summaries of runs → the history of a metric: one series per key, with level changes."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache

from fabbench.analysis.history import History, HistoryPoint, with_changes
from fabbench.model.errors import RequestError
from fabbench.model.log import METRICS, Metric
from fabbench.model.units import format_size, parse_size
from fabbench.runs.summary import FullSummary, Pairs, RunSetup, Summary

UNLIMITED = 1 << 62  # The end of sizes that have none


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
        raise RequestError(f"Invalid size in {text!r}: {error}.", hint=f"Such as {name}@1G.") from None


def parse_where(texts: Sequence[str]) -> dict[str, str]:
    """Parse the KEY=VALUE conditions of `--where`. Raise RequestError."""
    where: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise RequestError(f"Invalid condition {text!r}.", hint="--where KEY=VALUE, such as case=all_reduce.")
        if where.setdefault(name, value) != value:
            raise RequestError(f"--where {name} is given twice.", hint="A pattern fits several: case=all_*.")
    return where


def history(
    runs: Iterable[Summary], metric: Metric, sizes: range | None = None, where: Mapping[str, str] | None = None
) -> History:
    """Return the history of a metric, from the summaries of runs, newest first.

    `where` has patterns for values of keys and circumstances. Raise RequestError for a name that no run has.
    """
    known, by_key = set[str](), dict[Pairs, list[HistoryPoint]]()

    @cache
    def kind(setup: RunSetup, configuration: str, key: Pairs) -> tuple[Pairs, dict[str, str]]:
        about, around = _key(setup, configuration, dict(key)), _circumstances(setup, configuration)
        known.update(("name", *about, *around))
        return tuple(about.items()), around

    full = [run for run in runs if isinstance(run, FullSummary)]
    for run, each in [(one, each) for one in full for each in one.measured if each.metric == metric.name]:
        value = each.value(metric, sizes)
        if value is None or value <= 0:
            continue
        key, around = kind(run.setup, each.configuration, each.key)
        if where:
            values = {**around, "name": run.name, **{name: text for name, text in key if text}}
            if not all(fnmatchcase(values.get(name, ""), pattern) for name, pattern in where.items()):
                continue
        by_key.setdefault(key, []).append(HistoryPoint(run.id, run.created, value, around))
    unknown = next((name for name in where or () if known and name not in known), None)
    if unknown is not None:
        raise RequestError(f"No run has {unknown}.", hint=f"Known: {', '.join(sorted(known))}.")
    series = [with_changes(dict(key), points[::-1]) for key, points in by_key.items()]
    size = sizes[0] if sizes is not None and len(sizes) == 1 else None
    return History(metric=metric, size=size, series=series, span=_span(sizes))


def _span(sizes: range | None) -> str:
    if sizes is None:
        return ""
    first = f" from {format_size(sizes[0])}" if sizes[0] else ""
    return first + (f" to {format_size(sizes[-1])}" if sizes[-1] < UNLIMITED else "")


def _key(setup: RunSetup, configuration: str, key: Mapping[str, str]) -> dict[str, str]:
    """Return what the runs of a series have in common: what was measured, and on which nodes."""
    first = {
        "benchmark": setup.benchmark,
        "case": "",
        "configuration": configuration,
        "target": setup.target,
        "nodes": str(len(setup.hosts)),
        "type": ", ".join(setup.instance_types),
    }
    return {**first, **key, **dict(_options(setup, {*first, *key}))}


def _options(setup: RunSetup, taken: set[str]) -> Iterator[tuple[str, str]]:
    for name, value in json.loads(setup.options).items():
        if name not in taken and value not in (None, "", [], False):
            yield name, ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _circumstances(setup: RunSetup, configuration: str) -> dict[str, str]:
    measured = next((each for each in setup.configurations if each.label == configuration), None)
    return {
        **dict(measured.versions if measured else ()),
        **({"variant": measured.variant} if measured else {}),
        "image": setup.image,
        "node names": ", ".join(setup.hosts),
        **{f"env {name}": value for name, value in setup.env},
        "fabbench": setup.fabbench,
    }
