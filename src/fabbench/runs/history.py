"""Summaries of runs → the history of a metric: one series per key, with level changes."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from fabbench.analysis.history import History, HistoryPoint, Series, with_changes
from fabbench.benchmarks import benchmark_named
from fabbench.catalog.expectations import PAIRS, assumed_noise, noise_kinds
from fabbench.model.errors import RequestError, one_named
from fabbench.model.log import METRICS, Metric
from fabbench.model.units import Sizes, parse_sizes
from fabbench.runs.summary import FullSummary, Measured, Pairs, Summary

_LARGE = 1 << 30
"""A size at which rates are at their peak, in bytes."""


def parse_metric(text: str, sizes: Sizes | None) -> tuple[Metric, Sizes | None]:
    """Parse METRIC[@SIZE[..SIZE]], besides the `sizes` of ``--size``. Raise RequestError."""
    name, at, size = text.partition("@")
    metric = one_named("metric", name, METRICS)
    if at and sizes is not None:
        raise RequestError(f"Both {text} and --size give a size.", hint="Leave one out.")
    try:
        return metric, parse_sizes(size) if at else sizes
    except ValueError as error:
        raise RequestError(f"Invalid size in {text!r}: {error}.") from None


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
    runs: Iterable[Summary], metric: Metric, sizes: Sizes | None, where: Mapping[str, str]
) -> History:
    """Return the history of a metric, from the summaries of runs, newest first.

    `where` has patterns for values of keys and circumstances. Raise RequestError for a name that no
    run has.
    """
    known: set[str] = set()
    by_key: dict[Pairs, list[HistoryPoint]] = {}
    for run in runs:
        if not isinstance(run, FullSummary):  # it has no figures
            continue
        for measured, value in _values_of_metric(run, metric, sizes):
            circumstances = run.circumstances[measured.configuration]
            labels = {**circumstances, "name": run.name, **dict(measured.key)}
            known.update(labels)
            if _meets_conditions(labels, where):
                point = HistoryPoint(run.id, run.created, value, circumstances, run.dated)
                by_key.setdefault(measured.key, []).append(point)
    _require_known(where, known)
    series: list[Series] = []
    for key, points in by_key.items():
        named = dict(key)
        assumed = _assumed_noise(named, metric, sizes)
        series.append(with_changes(named, points[::-1], assumed))  # oldest first
    return History(metric=metric, sizes=sizes, series=series)


def _assumed_noise(key: Mapping[str, str], metric: Metric, sizes: Sizes | None) -> float:
    """Return the noise that the catalog has for the figures of a series."""
    of_pair = benchmark_named(key["benchmark"]).between_two
    # A configuration is usually called as its fabric; other names stand for all kinds of noise.
    kinds = {PAIRS} if of_pair else noise_kinds({key["configuration"]})
    # The best time is that of the smallest size, the best rate usually that of the largest.
    smallest, largest = sizes.ends if sizes else (0, _LARGE)
    return assumed_noise(kinds, smallest if metric.lower_is_better else largest)


def _values_of_metric(
    run: FullSummary, metric: Metric, sizes: Sizes | None
) -> Iterator[tuple[Measured, float]]:
    for measured in run.measured:
        if measured.metric != metric.name:
            continue
        value = measured.value(metric, sizes)
        if value and value >= 0:  # neither 0 nor NaN
            yield measured, value


def _meets_conditions(labels: Mapping[str, str], where: Mapping[str, str]) -> bool:
    """Return whether each pattern fits its label; one that is not there is empty."""
    values = [labels.get(name, "") for name in where]
    return all(map(fnmatchcase, values, where.values()))


def _require_known(where: Iterable[str], known: Collection[str]) -> None:
    """Raise RequestError for a name that no run has, if there are runs."""
    unknown = [name for name in where if name not in known]
    if known and unknown:
        names = ", ".join(sorted(known))
        raise RequestError(f"No run has {unknown[0]}.", hint=f"Known: {names}.")
