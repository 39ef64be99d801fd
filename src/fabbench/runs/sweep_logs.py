"""Existing logs of pairs → the results of a sweep.

The nodes of a log are named in the log itself (NCCL, MPI), or in its file name. A file that names two nodes
and has no result is a failed test of that pair.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import itemgetter
from pathlib import Path

from fabbench.benchmarks import benchmark_named
from fabbench.benchmarks.nccl.findings import MISMATCH
from fabbench.logs.learned_prefixes import Unread
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.fabrics import natural_order
from fabbench.model.log import METRICS, Log, Metric, Outcome, Point
from fabbench.model.units import format_size
from fabbench.runs.log_files import expand
from fabbench.runs.parse_file import parse_source
from fabbench.runs.sweep_store import MEASURED, values_of
from fabbench.sweep.node_names import known_in, pair_in
from fabbench.sweep.values import SweepOutcome, SweepResult, SweepTest

_SERIES = ("ranks", "gpus_per_host", "dtype", "redop", "direction", "way", "endpoint")
"""Properties in which figures of one size may differ, so that they cannot be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepLogs:
    """The results of logs."""

    results: Sequence[SweepResult]
    nodes: Sequence[str]
    """All nodes in natural order, also those of files without a result."""
    metric: Metric
    left_out: Sequence[tuple[str, str]]
    """Files without a result, and the reasons."""


def read_sweep_logs(names: Sequence[str], metric: str | None = None) -> SweepLogs:
    """Read logs in directories, files and archives. Raise FabbenchError if there is nothing to compare."""
    for name in names:
        if name != "-" and not Path(name).exists():
            raise MachineError(f"File not found: {name}.", hint="Pass a directory, an archive or a log file.")
    entries = [entry for source in expand(names) for entry in parse_source(replace(source, named=True))]
    logs = [entry for entry in entries if isinstance(entry, Log) and entry.outcome is not Outcome.OBSERVED]
    chosen = _metric(logs, metric)
    hosts = {host for log in logs for host in log.hosts}
    hosts |= {name for log in logs for name in _named(log.source, log.hosts, hosts)}
    left_out: list[tuple[str, str]] = []
    results = [result for entry in entries for result in _result(entry, chosen, hosts, left_out)]
    if not any(result.figure for result in results):
        raise MachineError(
            f"No log in {', '.join(names)} has a {chosen.name} of nodes that can be identified.",
            hint="The log must name its nodes, as NCCL's do, or its file name: nccl_node-01_node-02.log.",
        )
    nodes = sorted({node for entry in entries for node in _nodes(entry, hosts)}, key=natural_order)
    return SweepLogs(results=results, nodes=nodes, metric=chosen, left_out=left_out)


def _metric(logs: Sequence[Log], requested: str | None) -> Metric:
    if requested is not None:
        if requested not in METRICS:
            raise RequestError(f"Unknown metric {requested}.", hint=f"One of {', '.join(METRICS)}.")
        return METRICS[requested]
    counts: Counter[str] = Counter()
    for log in logs:
        measured = {name for point in log.points for name in point.metrics}
        preferred = benchmark_named(log.benchmark or "").metrics_of(log.case or "")
        counts.update(islice((name for name in preferred if name in measured), 1))
    return METRICS[counts.most_common(1)[0][0] if counts else "busbw"]


def _result(
    entry: Log | Unread, metric: Metric, hosts: set[str], left_out: list[tuple[str, str]]
) -> Iterator[SweepResult]:
    nodes = _nodes(entry, hosts)
    if isinstance(entry, Unread):
        if nodes:
            yield SweepResult(SweepTest(nodes), SweepOutcome.FAILED, reason=entry.reason)
        else:
            left_out.append((entry.source, entry.reason))
        return
    if not nodes:
        left_out.append((entry.source, "Neither the log nor its file name names its nodes."))
        return
    altered = [finding.meaning for finding in entry.findings if finding.code == MISMATCH]
    if altered:  # a problem of the file, not of the nodes
        left_out.append((entry.source, altered[0]))
        return
    if entry.outcome not in MEASURED:
        outcome = SweepOutcome.HUNG if entry.outcome is Outcome.TIMEOUT else SweepOutcome.FAILED
        reason = entry.reason or str(entry.outcome)
        yield SweepResult(SweepTest(nodes), outcome, reason=reason, series=_series(entry, None))
        return
    # The row that counts: largest size, client side of a pair, worst NIC.
    rows = list(values_of(entry, metric.name))
    rows = [row for row in rows if row[0].labels.get("side") == "client"] or rows
    if not rows:
        left_out.append((entry.source, f"It has no {metric.name}."))
        return
    size = max(point.size for point, _ in rows)
    worst = max if metric.lower_is_better else min
    point, value = worst((row for row in rows if row[0].size == size), key=itemgetter(1))
    yield SweepResult(SweepTest(nodes), SweepOutcome.OK, value, series=_series(entry, point))


def _nodes(entry: Log | Unread, known: set[str]) -> tuple[str, ...]:
    """Return the nodes of a file; of one without a result, the pair that its name gives."""
    if isinstance(entry, Log):
        return _named(entry.source, entry.hosts, known)
    named = _named(entry.source, frozenset(), known)
    # Both names of a pair have the same form: if one is a node, so is the other.
    return () if len(named) < 2 or known.isdisjoint(named) else named


def _named(source: str, hosts: frozenset[str], known: set[str]) -> tuple[str, ...]:
    """Return the nodes of a log: from the log, else known from other logs, else from its file name."""
    if len(hosts) > 1:
        return tuple(sorted(hosts, key=natural_order))
    names = known_in(source, known)
    if len(names) > 1:
        return names
    return pair_in(source) or tuple(hosts)


def _series(log: Log, point: Point | None) -> str:
    known = {**log.facts, **(point.labels if point else {})}
    words = [str(log.benchmark), str(log.case), *(f"{name} {known[name]}" for name in _SERIES if name in known)]
    return ", ".join([*words, format_size(point.size)] if point else words)
