"""Reads ep_bench's output, and that of DeepEP's and UCCL-EP's tests."""

from collections.abc import Sequence

from fabbench.benchmarks.ep import deepep, ep_bench
from fabbench.benchmarks.events import Events
from fabbench.benchmarks.executions import Execution, Table
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.tables import Row
from fabbench.model.messages import listed


def _events(text: str, execution: Execution | None) -> Events | None:
    text = text.strip()
    events = ep_bench.events(text, execution)
    return deepep.events(text, execution) if events is None else events


def _settle(execution: Execution) -> Sequence[Row]:
    """Return the rows that count, and name the slowest ranks in a finding."""
    if execution.record.case == ep_bench.CASE:
        summary = ep_bench.Summary()
        rows = execution.reread_rows(summary.read)
        slowest = summary.slowest
    else:
        rows = deepep.settle(execution)
        slowest = deepep.slowest(rows)
    if slowest:
        execution.record.findings.append(finding("slowest-rank", ranks=listed(slowest)))
    return rows


TABLE = Table(
    benchmark="ep",
    events=_events,
    settle=_settle,
    wrong=deepep.FAILED_CHECK,
    failing="=== NCCL EP",  # a failed assertion may be any program's
    over_mpi=False,
)
