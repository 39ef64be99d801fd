"""Summaries of runs → the history of a metric: one series per key, with level changes."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from fabbench.analysis.change_points import LEAST_VALUES
from fabbench.analysis.history import History, HistoryPoint, with_changes
from fabbench.model.errors import RequestError
from fabbench.model.log import METRICS, Metric
from fabbench.model.units import format_size, parse_size
from fabbench.runs.summary import FullSummary, Measured, RunSetup, Summary

UNLIMITED = 1 << 62
"""The end of sizes that have none."""


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


class _Kind:
    """The key of a series, and the circumstances of some of its runs."""

    def __init__(self, setup: RunSetup, figure: Measured) -> None:
        self.key = _key(setup, figure)
        self.circumstances = _circumstances(setup, figure.configuration)

    def value(self, run: Summary, name: str) -> str | None:
        """Return the value that `--where` matches by a name; None if there is none."""
        return self.key.get(name) or {"name": run.name, "store": run.folder}.get(name) or self.circumstances.get(name)

    def fits(self, run: Summary, where: Mapping[str, str]) -> bool:
        """Return whether the values of a run match all patterns."""
        return all(fnmatchcase(self.value(run, name) or "", pattern) for name, pattern in where.items())


def history(
    runs: Iterable[Summary], metric: Metric, sizes: range | None = None, where: Mapping[str, str] | None = None
) -> History:
    """Return the history of a metric, from the summaries of runs, newest first.

    `where` has patterns for values of keys and circumstances. Raise RequestError for a name that no run has.
    """
    kinds: dict[tuple[RunSetup, str, object], tuple[_Kind, list[HistoryPoint]]] = {}
    by_key: dict[tuple[tuple[str, str], ...], list[HistoryPoint]] = {}
    full = [run for run in runs if isinstance(run, FullSummary)]
    for run, each in [(one, each) for one in full for each in one.measured if each.metric == metric.name]:
        value = each.value(metric, sizes)
        if value is None or value <= 0:
            continue
        shared = (run.setup, each.configuration, each.key)
        known = kinds.get(shared)
        if known is None:
            new = _Kind(run.setup, each)
            known = kinds[shared] = new, by_key.setdefault(tuple(new.key.items()), [])
        kind, points = known
        if not where or kind.fits(run, where):
            points.append(HistoryPoint(run.id, run.created, value, kind.circumstances))
    _require_known(where or (), [kind for kind, _ in kinds.values()])
    chosen = {key: points for key, points in by_key.items() if points}
    # The length of a series does not depend on its values, so short series take no share of the level.
    together = sum(len(points) >= LEAST_VALUES for points in chosen.values())
    series = [with_changes(dict(key), points[::-1], together) for key, points in chosen.items()]
    size = sizes[0] if sizes is not None and len(sizes) == 1 else None
    return History(metric=metric, size=size, series=series, span=_span(sizes))


def _span(sizes: range | None) -> str:
    if sizes is None:
        return ""
    first = f" from {format_size(sizes[0])}" if sizes[0] else ""
    return first + (f" to {format_size(sizes[-1])}" if sizes[-1] < UNLIMITED else "")


def _require_known(names: Iterable[str], kinds: Sequence[_Kind]) -> None:
    known = {name for kind in kinds for name in (*kind.key, *kind.circumstances)}
    known |= {"name", "store"} if kinds else set()
    unknown = next((name for name in names if known and name not in known), None)
    if unknown is not None:
        raise RequestError(f"No run has {unknown}.", hint=f"Known: {', '.join(sorted(known))}.")


def _key(setup: RunSetup, figure: Measured) -> dict[str, str]:
    """Return what the runs of a series have in common: what was measured, and on which nodes."""
    first = {
        "benchmark": setup.benchmark,
        "case": "",
        "configuration": figure.configuration,
        "target": setup.target,
        "nodes": str(len(setup.hosts)),
        "type": ", ".join(setup.instance_types),
    }
    return {**first, **dict(figure.key), **dict(_options(setup, {*first, *dict(figure.key)}))}


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
