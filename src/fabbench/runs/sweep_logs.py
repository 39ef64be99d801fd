"""Existing logs of pairs, runs and sweeps → the results of a sweep.

The nodes of a log are named in the log itself (NCCL, MPI), or in its file name. A log that shows
why it failed is a failed test of its nodes; a file that names two nodes and shows nothing is a test
of which nothing is known.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import itemgetter
from pathlib import Path

from fabbench.benchmarks import benchmark_named
from fabbench.benchmarks.nccl.reader import MISMATCH
from fabbench.logs.signs import Unread
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.fabrics import natural_order
from fabbench.model.log import METRICS, Log, Metric, Outcome, Point
from fabbench.model.units import format_size
from fabbench.runs.document import VERDICT
from fabbench.runs.inputs import read_source, sources_of
from fabbench.runs.load_columns import judged_together
from fabbench.runs.store import StoredRun, stored_sweep
from fabbench.runs.sweep import unfinished, values_of
from fabbench.sweep.node_names import NodeNames
from fabbench.sweep.values import SweepOutcome, SweepResult, SweepTest, outcome_of_test

_SERIES = ("ranks", "gpus_per_host", "dtype", "redop", "direction", "way", "endpoint")
"""Properties in which figures of one size may differ, so that they cannot be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepLogs:
    """The results of logs."""

    results: Sequence[SweepResult]
    nodes: Sequence[str]  # All nodes in natural order, also those of files without a result
    metric: Metric
    left_out: Sequence[tuple[str, str]]  # Files without a result, and the reasons
    group_of: Mapping[str, str]  # Node → its group, as sweeps know it
    unfinished: str
    slow_nics: Sequence[tuple[str, str]]  # Files, and a NIC far below the others of its nodes


def read_sweep_logs(names: Sequence[str], store: Path, metric: str | None = None) -> SweepLogs:
    """Read logs, runs and sweeps. Raise FabbenchError if there is nothing to compare."""
    sources = sources_of(names, store)
    runs = [StoredRun(Path(each.name)) for each in sources if each.run]
    sweeps = [stored_sweep(run) for run in runs if run.sweep is not None]
    others = [
        replace(each, named=True)
        for each in sources
        if all(each.name != str(one.path) for one in sweeps)
    ]
    entries = [entry for source in others for _, entry in read_source(source)]
    logs = [
        entry
        for entry in entries
        if isinstance(entry, Log) and entry.outcome is not Outcome.OBSERVED
    ]
    chosen = _metric(logs, metric or next((each.document.metric for each in sweeps), None))
    if any(each.document.metric != chosen.name for each in sweeps):
        raise RequestError(
            f"The sweep was not judged by {chosen.name}.", hint="Leave --metric out."
        )
    known = NodeNames((log.source, log.hosts) for log in logs)
    read = [(entry.source, _result(entry, chosen, known)) for entry in entries]
    left_out = [
        (source, each.reason) for source, each in read if each.outcome is SweepOutcome.UNUSABLE
    ]
    results = [each for _, each in read if each.test.nodes]
    results += [result for sweep in sweeps for result in sweep.results]
    at = judged_together(
        [replace(log, hosts=frozenset(known.of(log.source, log.hosts))) for log in logs]
    )
    slow = [
        (log.source, each.meaning) for log in at for each in log.findings if each.code == "slow-nic"
    ]
    if not any(result.figure for result in results):
        why = "".join(
            f" {meaning}" for _, meaning in (*slow, *(left_out if len(left_out) == 1 else ()))
        )
        raise MachineError(
            (
                f"Nothing in {', '.join(names)} is a {chosen.name} of nodes that can be "
                f"identified.{why}"
            ),
            hint=(
                "The log must name its nodes, as NCCL's do, or its file name: "
                "nccl_node-01_node-02.log."
            ),
        )
    named = {node for result in results for node in result.test.nodes}
    nodes = sorted(named.union(*(each.document.nodes for each in sweeps)), key=natural_order)
    groups = {node: group for each in sweeps for node, group in each.document.group_of.items()}
    groups = groups if groups.keys() >= {*nodes} else {}
    left = "; ".join(
        filter(None, (unfinished(each) for each in sweeps if not (each.path / VERDICT).is_file()))
    )
    return SweepLogs(
        results=results,
        nodes=nodes,
        metric=chosen,
        left_out=left_out,
        group_of=groups,
        unfinished=left,
        slow_nics=slow,
    )


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


def _result(entry: Log | Unread, metric: Metric, known: NodeNames) -> SweepResult:
    if isinstance(entry, Unread):
        return SweepResult(
            SweepTest(known.without_log(entry.source)), SweepOutcome.UNUSABLE, reason=entry.reason
        )
    test = SweepTest(known.of(entry.source, entry.hosts))
    # An altered log is a problem of the file, not of the nodes.
    unusable = next((finding.meaning for finding in entry.findings if finding.code == MISMATCH), "")
    if unusable or not test.nodes:
        why = unusable or "Neither the log nor its file name names its nodes."
        return SweepResult(test, SweepOutcome.UNUSABLE, reason=why)
    outcome = outcome_of_test(entry.outcome)
    if outcome is not SweepOutcome.OK:
        return SweepResult(
            test, outcome, reason=entry.reason or str(entry.outcome), series=_series(entry, None)
        )
    # The row that counts: largest size, client side of a pair, worst NIC.
    rows = list(values_of(entry, metric.name))
    rows = [row for row in rows if row[0].labels.get("side") == "client"] or rows
    if not rows:
        return SweepResult(test, SweepOutcome.UNUSABLE, reason=f"It has no {metric.name}.")
    size = max(point.size for point, _ in rows)
    worst = max if metric.lower_is_better else min
    point, value = worst((row for row in rows if row[0].size == size), key=itemgetter(1))
    return SweepResult(test, outcome, value, series=_series(entry, point))


def _series(log: Log, point: Point | None) -> str:
    known = {**log.facts, **(point.labels if point else {})}
    words = [
        str(log.benchmark),
        str(log.case),
        *(f"{name} {known[name]}" for name in _SERIES if name in known),
    ]
    return ", ".join([*words, format_size(point.size)] if point else words)
