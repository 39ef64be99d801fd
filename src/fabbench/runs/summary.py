"""What a list of runs shows of one: sizes, the peak, whether its gates held.

Apart from the index, which lists thousands of runs without loading what compares them.
"""

from collections import Counter
from dataclasses import dataclass

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import Comparison, compare
from fabbench.model.errors import Exit, FabbenchError
from fabbench.model.units import format_size
from fabbench.runs.store import StoredRun

NOT_BEGUN = "not begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """Figures of a run's first configuration; empty if unknown."""

    sizes: str = ""
    """Smallest and largest: ``8 B - 2 GB``."""
    peak: str = ""
    """The best value of the compared metric: ``77.35 GB/s``."""
    gate: str = ""
    """`passed` or `failed`."""


def outcomes(run: StoredRun) -> dict[str, int]:
    """Count the outcomes of a run's executions. Scheduled ones that never started are `not begun`."""
    counts = Counter(str(log.outcome) for execution in run.executions for log in execution.logs)
    counts.update(NOT_BEGUN for execution in run.executions if not execution.begun)
    return dict(counts)


def gate_of(run: StoredRun) -> str:
    """Return whether a run's gates `passed` or `failed`; empty if there were none, or it did not end."""
    return "" if run.verdict is None else "passed" if run.verdict == Exit.FINE else "failed"


def summary(run: StoredRun) -> RunSummary:
    """Summarize a run for a list of runs."""
    gate = gate_of(run)
    first = next((each.label for each in run.configurations), "")
    logs = run.logs(first)
    sizes = sorted({point.size for log in logs for point in log.points if point.size})
    span = " - ".join(dict.fromkeys(map(format_size, (*sizes[:1], *sizes[-1:]))))
    try:
        column = Column(label=first, logs=logs, source=f"run {run.id}")
        return RunSummary(sizes=span, peak=_peak(compare([column], only_ok=True)) if logs else "", gate=gate)
    except FabbenchError:
        return RunSummary(sizes=span, gate=gate)


def _peak(comparison: Comparison) -> str:
    metric, *_ = comparison.metrics or (None,)
    sections = [section for section in comparison.sections if section.metric == metric and section.shown[0]]
    figures = [row.figures[0] for section in sections for row in section.rows]
    values = [figure.value for figure in figures if figure is not None]
    if metric is None or not values:
        return ""
    return sections[0].scale.quantity((min if metric.lower_is_better else max)(values))
