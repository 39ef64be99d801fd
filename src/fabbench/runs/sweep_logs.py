"""Existing logs of pairs, runs and sweeps → the results of a sweep.

The nodes of a log are named in the log itself (NCCL, MPI), or in its file name. A log that shows
why it failed is a failed test of its nodes; a file that names two nodes and shows nothing is a test
of which nothing is known.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias, TypeGuard

from fabbench.analysis.aggregate import is_copy, printed_step
from fabbench.benchmarks import benchmark_named
from fabbench.benchmarks.nccl.collectives import MISMATCH
from fabbench.logs.signs import Unread
from fabbench.model.errors import MachineError, RequestError, one_named
from fabbench.model.fabrics import natural_order
from fabbench.model.log import METRICS, Log, Metric, Outcome, Point
from fabbench.model.mappings import GroupOfNode, Names, distinct, gathered, most_common
from fabbench.model.messages import counted, listed
from fabbench.model.units import format_size
from fabbench.model.values import frozen
from fabbench.runs.document import VERDICT, TestResult
from fabbench.runs.inputs import Source, read_source, sources_of
from fabbench.runs.load_columns import judged_together
from fabbench.runs.parse_file import parse_file
from fabbench.runs.store import StoredRun, StoredSweep, stored_sweep
from fabbench.runs.sweep import printed_as_zero, unfinished, values_of, with_figures
from fabbench.sweep.node_names import NodeNames
from fabbench.sweep.values import (
    SweepOutcome,
    SweepResult,
    SweepTest,
    outcome_of_test,
    pair_text,
)

_COMPARABLE_WITHIN = ("ranks", "gpus_per_host", "dtype", "redop", "direction", "way", "endpoint")
"""Properties in which figures of one size may differ, so that they cannot be compared."""


@frozen
class SweepLogs:
    """The results of logs."""

    results: Sequence[SweepResult]
    nodes: Sequence[str]  # All nodes in natural order, also those of files without a result
    metric: Metric
    left_out: Sequence[tuple[str, str]]  # Files without a result, and the reasons
    group_of: GroupOfNode  # Node → its group, as sweeps know it; none unless all have one
    types: Mapping[str, str]  # Node → its instance type, as sweeps know it
    unfinished: str
    slow_nics: Sequence[tuple[str, str]]  # Files, and a NIC far below the others of its nodes
    copies: int  # How many logs were left out, because they repeat another


def read_sweep_logs(names: Sequence[str], store: Path, metric: str | None = None) -> SweepLogs:
    """Read logs, runs and sweeps. Raise FabbenchError if there is nothing to compare.

    Figures are those of `metric`; None: of the metric by which a sweep was judged, else of the
    usual one of most logs. Sweeps have been reduced to that metric, so another one is refused.
    """
    sources = sources_of(names, store)
    sweeps = _sweeps(sources)
    entries = _entries(sources, sweeps)
    with_copies = [entry for entry in entries if _is_result(entry)]
    node_names = NodeNames((log.source, log.hosts) for log in with_copies)
    counting = list(_without_copies(entries, node_names))
    logs = [entry for entry in counting if _is_result(entry)]
    chosen = _chosen_metric(logs, metric or next((each.document.metric for each in sweeps), None))
    if any(each.document.metric != chosen.name for each in sweeps):
        raise RequestError(
            f"The sweep was not judged by {chosen.name}.", hint="Leave --metric out."
        )
    read = [(entry.source, _result(entry, chosen, node_names)) for entry in counting]
    results = [each for _, each in read if each.test.nodes]
    groups: dict[str, str] = {}
    types: dict[str, str] = {}
    for sweep in sweeps:
        results += sweep.results
        groups |= sweep.document.group_of
        types |= sweep.document.types
    left_out = [
        (source, each.reason) for source, each in read if each.outcome is SweepOutcome.UNUSABLE
    ]
    slow = _slow_nics(logs, node_names)
    if not any(result.is_measured for result in results):
        reasons = [each.reason for each in results if each.outcome is not SweepOutcome.UNUSABLE]
        if reasons:
            raise MachineError(f"No test succeeded. {reasons[0]}")
        # A slow NIC, or the only file that says nothing, may be why.
        whys = [meaning for _, meaning in slow]
        if len(left_out) == 1:
            _, why = left_out[0]
            whys.append(why)
        raise _nothing_to_compare(names, chosen, whys)
    named = {node for result in results for node in result.test.nodes}
    of_sweeps = {node for sweep in sweeps for node in sweep.document.nodes}
    nodes = sorted(named | of_sweeps, key=natural_order)
    missing = [*_ended_early(sweeps), _not_compared(results)]
    if metric is None:
        missing += _of_other_metrics(logs, chosen)
    return SweepLogs(
        results=results,
        nodes=nodes,
        metric=chosen,
        left_out=left_out,
        group_of=groups if groups.keys() >= set(nodes) else {},
        types=types,
        unfinished="; ".join(filter(None, missing)),
        slow_nics=slow,
        copies=len(entries) - len(counting),
    )


def _sweeps(sources: Sequence[Source]) -> list[StoredSweep]:
    """Return the sweeps among sources, which may be runs and logs, too; each once."""
    names = distinct(each.name for each in sources if each.run)
    runs = [StoredRun(Path(name)) for name in names]
    return [_reread(stored_sweep(run)) for run in runs if run.sweep is not None]


def _reread(sweep: StoredSweep) -> StoredSweep:
    """Return a sweep with its tests as this version reads them."""
    return sweep._replace(tests=[_reread_test(sweep, test) for test in sweep.tests])


def _reread_test(sweep: StoredSweep, test: TestResult) -> TestResult:
    """Return a test with the step of its figure, or with its figures if it did not fail after all.

    An older version stored no step, and called a test failed whose figure was printed as 0.
    """
    metric = sweep.document.metric
    if test.value and not test.step:
        step = printed_step(sweep.document.benchmark, metric, [test.value])
        return replace(test, step=step)
    logs = _reread_logs(sweep, test) if test.outcome == Outcome.FAILED else []
    if logs and all(log.outcome is Outcome.OK for log in logs):
        return with_figures(test, logs, metric)
    return test


def _reread_logs(sweep: StoredSweep, test: TestResult) -> Sequence[Log]:
    """Return the logs of a test; none where they cannot be read."""
    try:
        return list(parse_file(sweep.log_of(test)))
    except MachineError:
        return []


def _entries(sources: Sequence[Source], sweeps: Sequence[StoredSweep]) -> list[Log | Unread]:
    """Read all that is no sweep, as if each file had been named."""
    known = {str(sweep.path) for sweep in sweeps}
    others = [replace(each, named=True) for each in sources if each.name not in known]
    return [entry for source in others for _, entry in read_source(source)]


def _is_result(entry: Log | Unread) -> TypeGuard[Log]:
    """Return whether a file has results of a benchmark, and is not only observed."""
    return isinstance(entry, Log) and entry.outcome is not Outcome.OBSERVED


def _without_copies(
    entries: Sequence[Log | Unread], node_names: NodeNames
) -> Iterator[Log | Unread]:
    """Yield all but the logs that repeat one of the same nodes, NIC and whatever else is stated."""
    logs_of: dict[Names, list[Log]] = {}
    for entry in entries:
        if isinstance(entry, Log):
            nodes = node_names.of(entry.source, entry.hosts)
            of_nodes = logs_of.setdefault(nodes, [])
            alike = [other for other in of_nodes if other.facts == entry.facts]
            if is_copy(entry, alike):
                continue
            of_nodes.append(entry)
        yield entry


def _slow_nics(logs: Sequence[Log], node_names: NodeNames) -> list[tuple[str, str]]:
    """Return files, and a NIC far below the others of its nodes."""
    judged = judged_together([_with_nodes(log, node_names) for log in logs])
    return [
        (log.source, each.meaning)
        for log in judged
        for each in log.findings
        if each.code == "slow-nic"
    ]


def _with_nodes(log: Log, node_names: NodeNames) -> Log:
    """Return a log whose hosts have the names that the sweep has for them."""
    nodes = node_names.of(log.source, log.hosts)
    return replace(log, hosts=frozenset(nodes))


def _nothing_to_compare(names: Sequence[str], metric: Metric, whys: Sequence[str]) -> MachineError:
    inputs = ", ".join(names)
    nothing = f"Nothing in {inputs} is a {metric.name} of nodes that can be identified."
    return MachineError(
        " ".join([nothing, *whys]),
        hint="The log must name its nodes, as NCCL's do, or its file name, by names that differ "
        "only in their numbers: nccl_node-01_node-02.log.",
    )


def _ended_early(sweeps: Sequence[StoredSweep]) -> Iterator[str]:
    """Yield what was not tested in sweeps without an end, as ends of sentences."""
    return (unfinished(each) for each in sweeps if not (each.path / VERDICT).is_file())


def _of_other_metrics(logs: Sequence[Log], chosen: Metric) -> Iterator[str]:
    """Yield how many logs have only another metric, as ends of sentences: nobody judged them."""
    others = [log for log in logs if chosen.name not in _metrics_of(log)]
    for name, count in Counter(map(_usual_metric, others)).items():
        if name:
            yield f"{counted(count, 'log')} of {name}, which --metric {name} judges"


def _not_compared(results: Sequence[SweepResult]) -> str:
    """Return what is compared with nothing, as the end of a sentence; empty: nothing, or two nodes.

    A node that all tests of what they measured have, or a test that is the only one of the kind:
    nothing tells whether they are slow.
    """
    measured = ((each.series, each.test) for each in results if each.is_measured)
    in_all: list[set[str]] = []
    compared: list[set[str]] = []
    for of_series in gathered(measured).values():
        tests = [{*each.nodes} for each in of_series]
        always = set.intersection(*tests)
        in_all.append(always)
        compared += [test - always for test in tests]
    elsewhere = set[str]().union(*compared)
    # Of a test of many nodes, it is enough that these are compared elsewhere.
    of_pairs = [each for each in in_all if len(each) == 2]
    left = [each for each in in_all if each in of_pairs or each - elsewhere]
    alone = [sorted(each) for each in left if each not in compared]
    names = {pair_text(nodes, rail="") for nodes in alone}
    if not names or len(elsewhere.union(*in_all)) < 3:  # two are too few to compare
        return ""
    return f"the speed of {listed(sorted(names))}, without which there is no test of the kind"


def _chosen_metric(logs: Sequence[Log], requested: str | None) -> Metric:
    """Return the requested metric, or the one that most logs' benchmarks would show.

    A log votes for the first of its benchmark's usual metrics that it measured; without any vote
    it is busbw.
    """
    if requested is not None:
        return one_named("metric", requested, METRICS)
    votes = filter(None, map(_usual_metric, logs))
    return METRICS[most_common(votes, default="busbw")]


def _usual_metric(log: Log) -> str:
    """Return the first of its benchmark's usual metrics that a log measured; empty: none."""
    measured = _metrics_of(log)
    preferred = benchmark_named(log.benchmark or "").metrics_of(log.case or "")
    return next((name for name in preferred if name in measured), "")


def _metrics_of(log: Log) -> set[str]:
    return {name for point in log.points for name in point.metrics}


_Row: TypeAlias = tuple[Point, float]


def _result(entry: Log | Unread, metric: Metric, node_names: NodeNames) -> SweepResult:
    """Return a file's or log's result as a test of its nodes; UNUSABLE: it says nothing of them.

    A log that is not ok has an outcome and a reason, and no figure.
    """
    if isinstance(entry, Unread):
        unread = SweepTest(node_names.without_log(entry.source))
        return SweepResult(unread, SweepOutcome.UNUSABLE, reason=entry.reason)
    test = SweepTest(node_names.of(entry.source, entry.hosts))
    # An altered log is a problem of the file, not of the nodes.
    altered = [finding.meaning for finding in entry.findings if finding.code == MISMATCH]
    if altered:
        return SweepResult(test, SweepOutcome.UNUSABLE, reason=altered[0])
    if not test.nodes:
        why = "Neither the log nor its file name names its nodes."
        return SweepResult(test, SweepOutcome.UNUSABLE, reason=why)
    outcome = outcome_of_test(entry.outcome)
    if outcome is not SweepOutcome.OK:
        why = entry.reason or str(entry.outcome)
        return SweepResult(test, outcome, reason=why, series=_in_common(entry, point=None))
    return _measured(entry, metric, test)


def _measured(entry: Log, metric: Metric, test: SweepTest) -> SweepResult:
    """Return the result of a log with the figure that counts; without one it is unusable.

    A figure of 0 counts where rounding to the printed step explains it.
    """
    rows = list(values_of(entry, metric.name))
    if not rows:
        rows = list(_zeros(entry, metric.name))
    if not rows:
        return SweepResult(test, SweepOutcome.UNUSABLE, reason=f"It has no {metric.name}.")
    point, value = _row_that_counts(rows, metric)
    figures = [figure for _, figure in rows]
    step = printed_step(str(entry.benchmark), metric.name, figures)
    if not (value or step):
        reason = f"It prints {metric.name} as 0: the size is too small to measure."
        return SweepResult(test, SweepOutcome.UNUSABLE, reason=reason)
    series = _in_common(entry, point)
    return SweepResult(test, SweepOutcome.OK, value, series=series, step=step)


def _zeros(entry: Log, metric: str) -> Iterator[_Row]:
    """Yield the rows of a log whose figures are all printed as 0, with this figure."""
    for zero in printed_as_zero(entry, metric).values():
        for point in entry.points:
            yield point, zero


def _row_that_counts(rows: Sequence[_Row], metric: Metric) -> _Row:
    """Return the row of the largest size, the client side of a pair, and the worst NIC."""
    of_client = [row for row in rows if _is_of_client(row[0])]  # both sides print
    counting = of_client or rows
    size = max(point.size for point, _ in counting)
    largest = [row for row in counting if row[0].size == size]
    worst = max if metric.lower_is_better else min
    return worst(largest, key=itemgetter(1))


def _is_of_client(point: Point) -> bool:
    return point.labels.get("side") == "client"


def _in_common(log: Log, point: Point | None) -> str:
    """Return in words what tests must have in common; without a point, what a failed log shows."""
    properties = {**log.facts, **point.labels} if point else log.facts
    words = [str(log.benchmark), str(log.case)]
    words += [f"{name} {properties[name]}" for name in _COMPARABLE_WITHIN if name in properties]
    if point:
        words.append(format_size(point.size))
    return ", ".join(words)
