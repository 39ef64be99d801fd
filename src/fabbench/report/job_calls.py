"""What NCCL's inspector writes of a job while it is watched, in sentences. Pure."""

from collections.abc import Iterable, Iterator

from fabbench.counters.watch import JobView
from fabbench.evidence.inspector import LATE, RANKS, records
from fabbench.evidence.judge import judge
from fabbench.evidence.known_errors import finding
from fabbench.model.log import METRICS, Finding, Log, Point, Proof
from fabbench.model.units import format_percent, format_quantity, format_size
from fabbench.report.expectations import expectations_of_log

_SILENT = "NCCL's inspector has written nothing new to {}: docs/watch.md says what it needs."


def with_calls(view: JobView, lines: Iterable[str], folder: str, proof: Proof | None) -> JobView:
    """Return a view of a job with what its inspector wrote into a folder; empty: none was asked."""
    calls = [*_findings(lines, proof)]
    silent = "" if calls or not folder else _SILENT.format(folder)
    return view._replace(calls=calls, note=f"{view.note} {silent}".strip())


def _findings(lines: Iterable[str], proof: Proof | None) -> Iterator[Finding]:
    """Yield how fast calls are, and for whom others wait."""
    for record in records(lines):
        log = judge(record, source="", proof=proof)
        yield finding("inspector-speed", report=_speed(log))
        yield from (each for each in log.findings if each.code in {LATE, RANKS})


def _speed(log: Log) -> str:
    """Say how fast calls are: beside what is published, else those that take the most time."""
    for each in expectations_of_log(log):
        if each.range and each.judgement != "unknown":
            share = format_percent(each.value / each.range[0], 0)
            place = f"{log.case} at {format_size(each.size)}"
            return f"{place} runs at {share} of what is normal here: {each.sentence()}"
    medians = log.points[::2]  # each is followed by the slowest
    most = max(medians, key=_time_of_all)
    *_, metric = most.metrics  # busbw, if there is one
    *_, value = most.values
    figure = format_quantity(value, METRICS[metric].unit)
    return f"{log.case} at {format_size(most.size)}: {metric} {figure}."


def _time_of_all(point: Point) -> float:
    time, calls, *_ = point.values
    return time * calls
