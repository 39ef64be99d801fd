"""Judged logs and columns written by hand, for tests."""

from collections.abc import Iterable, Mapping

from fabbench.analysis.aggregate import Column
from fabbench.model.log import Log, Outcome, Point

ALL_REDUCE = {"placement": "out-of-place", "dtype": "float", "redop": "sum", "root": "-1"}
FACTS: Mapping[str, str | int] = {"ranks": 16, "hosts": 2, "gpus_per_host": 8}
KB, MB, GB = 1 << 10, 1 << 20, 1 << 30


def log(  # noqa: PLR0913 - every part of a log, each with a default
    rows: Iterable[tuple[int, float]],
    *,
    metric: str = "busbw",
    labels: Mapping[str, str] = ALL_REDUCE,
    facts: Mapping[str, str | int] = FACTS,
    benchmark: str | None = "nccl",
    case: str | None = "all_reduce",
    outcome: Outcome = Outcome.OK,
    reason: str | None = None,
) -> Log:
    """Write a log of rows (size in bytes, value in base units)."""
    return Log(
        source="x.log",
        benchmark=benchmark,
        case=case,
        outcome=outcome,
        reason=reason,
        facts=facts,
        points=[Point(size, labels, (metric,), (value,)) for size, value in rows],
    )


def column(label: str, *logs: Log, given: bool = False) -> Column:
    """Name logs."""
    return Column(label=label, logs=logs, source=f"{label}.log", label_given=given)


def rates(label: str, rows: Iterable[tuple[int, float]], **changes: str | int) -> Column:
    """Make a column of one nccl-tests log; rows are (size in bytes, busbw in GB/s)."""
    return column(
        label, log([(size, value * 1e9) for size, value in rows], facts={**FACTS, **changes})
    )


def latencies(label: str, rows: Iterable[tuple[int, float]]) -> Column:
    """Make a column of one fi_pingpong log; rows are (size in bytes, us)."""
    made = [(size, value * 1e-6) for size, value in rows]
    return column(
        label,
        log(made, metric="latency", labels={}, facts={}, benchmark="pingpong", case="pingpong"),
    )
