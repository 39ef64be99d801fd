"""Columns of logs → one comparison. Pure, and the only place that pairs figures and takes ratios.

Columns are arms of a run, or files; the last one is the base. Rows are told apart by their size and by
`pool.FIELDS`. A field of which every column has one value at most separates nothing; the others split the
comparison into sections, one table each, and each with a metric that suits it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fabbench.errors import Exit, RequestError
from fabbench.grouping import Group, groups, require, scales, split
from fabbench.model import METRICS, Finding, Log, Metric, Outcome
from fabbench.pool import FIELDS, REFUSED, UNUSABLE, Column, Figure, Reading, read
from fabbench.units import Scale
from fabbench.variants import AS_IT_IS, Variant

__all__ = ["PLACEMENTS", "Column", "Comparison", "Figure", "Row", "Section", "Summary", "compare"]

PLACEMENTS = ("out-of-place", "in-place")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What is known of one column as a whole."""

    label: str
    source: str
    label_given: bool
    outcome: Outcome
    """The worst of its logs'."""
    reasons: tuple[str, ...]
    """Why its logs are not all ok: one sentence for each that is not."""
    executions: int
    facts: Mapping[str, tuple[str | int, ...]]
    """Every value of each fact of its logs, in order of appearance."""
    fields: Mapping[str, tuple[str, ...]]
    """Every known value of each of `pool.FIELDS`."""
    empty: int
    """How many rows of size 0 were left out."""
    hidden: int
    """How many of its logs are not shown, because of their outcome."""
    findings: tuple[Finding, ...] = ()
    """What its logs show besides figures, each once."""
    variant: Variant = AS_IT_IS


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One size. `figures` and `ratios` have one element for each column."""

    size: int
    figures: tuple[Figure | None, ...]
    ratios: tuple[float | None, ...]
    """How many times better than the base; None for the base itself, and where there is no ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The rows of one key set: what becomes one table. Values are in the metric's base unit."""

    key: Mapping[str, str]
    """The fields that tell it from the comparison's other sections."""
    metric: Metric
    scale: Scale
    """How to write its values: the same for all sections of one metric."""
    outcomes: tuple[Outcome, ...]
    """For each column, the worst outcome of the logs that belong here."""
    shown: tuple[bool, ...]
    """For each column, whether its figures may be shown; its outcome stands there if not."""
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Columns side by side."""

    placement: str
    """Empty: the rows have none."""
    columns: tuple[Summary, ...]
    sections: tuple[Section, ...]
    status: Exit

    @property
    def base(self) -> Summary:
        """The column with which the others are compared."""
        return self.columns[-1]

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of the sections, each once: benchmarks of several kinds have several."""
        return tuple(dict.fromkeys(section.metric for section in self.sections))


def compare(
    columns: Sequence[Column],
    *,
    metric: str | None = None,
    placement: str = "out-of-place",
    allow: Collection[str] = (),
    only_ok: bool = False,
) -> Comparison:
    """Put columns side by side, size by size; repeats pool to the median.

    `metric` is chosen for each section unless named. `allow` names fields that may differ. With
    `only_ok` a column that is not ok shows its outcome, also where it is only truncated or unproven.
    Raises RequestError for columns that differ in what matters, and for a request that makes no sense.
    """
    allowed = _check_request(columns, metric, placement, allow)
    unusable = frozenset(Outcome) - {Outcome.OK} if only_ok else UNUSABLE
    readings = [read(column, placement=placement, unusable=unusable) for column in columns]
    summaries = tuple(_summary(column, reading) for column, reading in zip(columns, readings, strict=True))
    _refuse(summaries, allowed)
    require(metric, readings, placement)
    found = groups(readings, split([column.fields for column in summaries], allowed), metric)
    coarse = any({"nccl", "torch"} & set(column.fields["benchmark"]) for column in summaries)
    written = scales(found, coarse=coarse)
    sections = tuple(
        _section(
            group, written[group.metric.name], [_here(column.logs, group.key) for column in columns], unusable
        )
        for group in found
    )
    trusted = not any(reading.hidden for reading in readings)
    return Comparison(
        placement=placement if any(placement in reading.placements for reading in readings) else "",
        columns=summaries,
        sections=sections,
        status=Exit.FINE if trusted else Exit.UNTRUSTED,
    )


def _check_request(
    columns: Sequence[Column], metric: str | None, placement: str, allow: Collection[str]
) -> frozenset[str]:
    if not columns:
        raise RequestError("There is nothing to compare.", hint="Name a run, or two log files.")
    for column in columns:
        if not column.logs:
            raise RequestError(f"{column.label} ({column.source}) has no benchmark in it.")
    if metric is not None and metric not in METRICS:
        raise RequestError(f"There is no metric {metric}.", hint=f"One of {', '.join(METRICS)}.")
    if placement not in PLACEMENTS:
        raise RequestError(f"There is no placement {placement}.", hint=f"One of {', '.join(PLACEMENTS)}.")
    allowed = frozenset(name.replace("-", "_") for name in allow)
    for name in sorted(allowed - set(FIELDS)):
        raise RequestError(f"There is no field {name} to allow.", hint=f"One of {', '.join(FIELDS)}.")
    return allowed


def _refuse(columns: Sequence[Summary], allowed: Collection[str]) -> None:
    """Raise RequestError if columns differ in what matters. Unknown against known is no difference."""
    differences = []
    for name in REFUSED:
        known = [(column.label, column.fields[name]) for column in columns if column.fields[name]]
        if name not in allowed and len({frozenset(values) for _, values in known}) > 1:
            differences.append((name, known))
    if not differences:
        return
    told = "; ".join(
        f"{name} is {', '.join(f'{_listed(values)} in {label}' for label, values in known)}"
        for name, known in differences
    )
    ways_out = " ".join(f"--allow {name}" for name, _ in differences)
    raise RequestError(
        f"These cannot be compared as they are: {told}.",
        hint=f"Compare runs of one kind, or compare these anyway with {ways_out}.",
    )


def _listed(values: Sequence[str]) -> str:
    more = f" and {len(values) - 4} more" if len(values) > 5 else ""
    return " and ".join(values) if not more else ", ".join(values[:4]) + more


def _summary(column: Column, reading: Reading) -> Summary:
    facts: dict[str, dict[str | int, None]] = {}
    for log in column.logs:
        for name, value in log.facts.items():
            facts.setdefault(name, {})[value] = None
    bad = [log for log in column.logs if log.outcome is not Outcome.OK]
    return Summary(
        label=column.label,
        source=column.source,
        label_given=column.label_given,
        outcome=_worst(column.logs),
        reasons=tuple(dict.fromkeys(f"{log.outcome}: {log.reason or 'no reason given'}" for log in bad)),
        executions=len(column.logs),
        facts={name: tuple(values) for name, values in facts.items()},
        fields={name: reading.known(name) for name in FIELDS},
        empty=reading.empty,
        hidden=len(reading.hidden),
        findings=tuple({(found.code, found.meaning): found for found in _found(column)}.values()),
        variant=column.variant,
    )


def _found(column: Column) -> Iterator[Finding]:
    return (found for log in column.logs for found in log.findings)


def _worst(logs: Sequence[Log]) -> Outcome:
    order = list(Outcome)
    return min((log.outcome for log in logs), key=order.index, default=Outcome.OK)


def _here(logs: Sequence[Log], key: Sequence[tuple[str, str]]) -> Sequence[Log]:
    """Choose the logs that belong to a section; those of which nothing is known belong to every one."""
    wanted = dict(key)
    return [
        log
        for log in logs
        if log.benchmark in {None, wanted.get("benchmark", log.benchmark)}
        and log.case in {None, wanted.get("case", log.case)}
    ]


def _section(
    group: Group, written: Scale, logs: Sequence[Sequence[Log]], unusable: Collection[Outcome]
) -> Section:
    outcomes = tuple(_worst(own) for own in logs)
    shown = tuple(outcome not in unusable for outcome in outcomes)
    rows = []
    for size in sorted({size for column in group.cells for size in column}):
        cells = tuple(
            column.get(size) if visible else None for column, visible in zip(group.cells, shown, strict=True)
        )
        ratios = (*(_ratio(cell, cells[-1], group.metric, written) for cell in cells[:-1]), None)
        rows.append(Row(size=size, figures=cells, ratios=ratios))
    return Section(
        key=dict(group.key),
        metric=group.metric,
        scale=written,
        outcomes=outcomes,
        shown=shown,
        rows=tuple(rows),
    )


def _ratio(new: Figure | None, base: Figure | None, metric: Metric, written: Scale) -> float | None:
    """Say how many times better `new` is; None where one of the two is missing or displays as 0."""
    if new is None or base is None or "0" in {written.text(new.value), written.text(base.value)}:
        return None
    return base.value / new.value if metric.lower_is_better else new.value / base.value
