"""Columns of logs → one comparison.

Pure, and the only module that pairs figures and computes ratios.

Columns are configurations of a run, or files; the last one is the baseline. Rows are identified by
their size and by `aggregate.FIELDS`. Fields with several values split the comparison into sections:
one table each, with a metric that suits it.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeAlias

from fabbench.analysis.aggregate import (
    FIELDS,
    MUST_MATCH,
    RAIL,
    UNUSABLE,
    Column,
    ColumnRows,
    Figure,
    RowGroup,
    column_rows,
    is_hidden,
    metric_scales,
    require_metric,
    row_groups,
    section_fields,
)
from fabbench.analysis.sequential import FIRST_LOOK, level_at
from fabbench.analysis.statistics import (
    LEVEL,
    Difference,
    RowTest,
    TableTest,
    TwoSamples,
    Values,
    compare_table,
    overall,
)
from fabbench.benchmarks import benchmark_named
from fabbench.catalog.expectations import PAIRS, assumed_noise, noise_kinds
from fabbench.model.errors import Exit, RequestError, one_named, worst
from fabbench.model.log import METRICS, Finding, Log, Metric, Outcome, fact_text, status_of
from fabbench.model.mappings import Sentences, distinct, gathered, map_values
from fabbench.model.units import Scale
from fabbench.model.values import frozen

if TYPE_CHECKING:
    from fabbench.model.plan import Variant

__all__ = ["Column", "Comparison", "Figure", "compare"]

Stated: TypeAlias = tuple[str | int, ...]
_Labelled: TypeAlias = tuple[str, Stated]
_Ratios: TypeAlias = Sequence[float | None]
_MAX_LISTED = 5  # so many values of a field are listed; of more, the first ones
_FIRST_LISTED = 4
PLACEMENTS = ("out-of-place", "in-place")
NEW = 0
"""The index of the column that a gate tests: it is the first one."""
BASE = -1
"""The index of the baseline among columns: it is the last one."""


@frozen
class ColumnSummary:
    """What is known of one column as a whole."""

    label: str
    source: str
    label_given: bool
    outcome: Outcome
    reasons: Sentences
    """Why its logs are not all ok, each sentence once."""
    not_ok: int
    """How many of its logs are not ok."""
    executions: int
    facts: Mapping[str, Stated]
    """Every value of each fact of its logs, in order of appearance."""
    fields: Mapping[str, tuple[str, ...]]
    """Every known value of each of `aggregate.FIELDS`."""
    empty: int  # Rows of size 0, which were left out
    hidden: int
    """How many of its logs are not shown, because of their outcome."""
    findings: tuple[Finding, ...] = ()
    """What its logs show besides figures, each once."""
    variant: "Variant | None" = None
    copies: int = 0  # Logs that repeat the table of another, and count once
    measured: bool = True  # any row at all

    @property
    def is_shown(self) -> bool:
        """Whether figures of any of its logs are shown."""
        return self.hidden < self.executions


@frozen
class ComparisonRow:
    """One size. `figures` and `ratios` have one element per column."""

    size: int
    figures: tuple[Figure | None, ...]
    ratios: tuple[float | None, ...]
    """How many times better than the base.

    None for the base itself, and where there is no ratio.
    """
    times: tuple[Figure | None, ...] = ()
    """The times, for a small size whose metric is a rate; empty: unknown."""
    tests: tuple[RowTest | None, ...] = ()
    """The interval of each ratio, and its verdict; None where there is no ratio."""

    def verdict(self, column: int) -> Difference | None:
        """Return the verdict on a column; None: there is no ratio."""
        test = self.tests[column] if self.tests else None
        return test.verdict if test else None


@frozen
class Plateau:
    """The sizes next to the peak that are at most 10 % worse, as one figure against the base.

    The peak is the best figure: a latency is best at small sizes.
    """

    sizes: Sequence[int]
    ratio: float
    """How many times better than the base: of the means of all these sizes."""
    test: RowTest


@frozen
class ComparisonSection:
    """The rows of one key, which become one table. Values are in the metric's base unit."""

    key: Mapping[str, str]
    metric: Metric
    scale: Scale
    outcomes: tuple[Outcome, ...]
    """For each column, the worst outcome of the logs that belong here."""
    shown: tuple[bool, ...]
    """For each column, whether its figures may be shown; otherwise its outcome is."""
    partial: tuple[bool, ...]
    """For each column, whether its figures are shown without a ratio: it was truncated."""
    rows: tuple[ComparisonRow, ...]
    noise: tuple[frozenset[str], ...]
    """For each column, the kinds of noise that is assumed where it was measured once."""
    level: float = LEVEL
    """The chance of a false verdict on one column, over all of these rows and its plateau."""
    plateaus: tuple[Plateau | None, ...] = ()
    """For each column; None for the base, and where no execution has all of its sizes."""

    def figures(self, column: int) -> Iterator[tuple[int, Figure]]:
        """Yield the sizes that a column has, ascending, and its figures."""
        for row in self.rows:
            figure = row.figures[column]
            if figure is not None:
                yield row.size, figure

    def verdict(self, column: int) -> Difference | None:
        """Return the verdict on a column over all sizes; None: no size has one."""
        return overall(verdict for row in self.rows if (verdict := row.verdict(column)))


@frozen
class Comparison:
    """Columns side by side."""

    placement: str
    """Empty: the rows have none."""
    columns: tuple[ColumnSummary, ...]
    sections: tuple[ComparisonSection, ...]
    status: Exit
    inputs: tuple[tuple[Column, ColumnRows], ...] = field(default=(), repr=False, compare=False)
    """What was compared, with the rows that count for gates: also those that the table hides."""
    allowed: frozenset[str] = frozenset()
    level: float = LEVEL
    """The chance of a false verdict over one table."""

    @property
    def base(self) -> ColumnSummary:
        """The column with which the others are compared."""
        return self.columns[BASE]

    @property
    def compared(self) -> Sequence[ColumnSummary]:
        """The columns but the baseline, which is the last."""
        return self.columns[:-1]

    def common(self, name: str) -> str:
        """Return the value of a field that every column with figures states.

        Empty where they differ, or one does not state it.
        """
        shown = [column for column in self.columns if column.is_shown]
        stated = [column.fields[name] for column in shown or self.columns]
        values = set().union(*stated)
        is_common = len(values) == 1 and all(stated)
        return values.pop() if is_common else ""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of the sections, each once: benchmarks of several kinds have several."""
        return distinct(section.metric for section in self.sections)


def compare(
    columns: Sequence[Column],
    *,
    metric: str | None = None,
    placement: str | None = None,
    allow: Collection[str] = (),
    only_ok: bool = False,
) -> Comparison:
    """Put columns side by side, size by size; repeats pool to the median.

    `metric` is chosen per section unless given. `placement` is out-of-place unless given, or
    in-place where nothing else was measured. `allow` names fields that may differ. With
    `only_ok`, a column that is not ok shows its outcome, even if it is only unproven; one that is
    only truncated shows the rows that it has, without a ratio; and the status tells a lost
    environment apart. Raise RequestError for columns that differ in fields that must match, and for
    an invalid request.
    """
    allowed = _check_request(columns, metric, allow)
    placement = placement or _usual_placement(columns)
    unusable = frozenset(Outcome) - {Outcome.OK, Outcome.TRUNCATED} if only_ok else UNUSABLE
    partial = frozenset({Outcome.TRUNCATED} if only_ok else ())
    readings = [column_rows(column, placement=placement, unusable=unusable) for column in columns]
    summaries = tuple(map(_summary, columns, readings))
    _refuse_differences(summaries, allowed)
    require_metric(metric, readings, placement)
    level = _level(columns)
    # Gates also count rows that only `only_ok` hides.
    rows_for_gates = [
        rows
        if all(log.outcome in UNUSABLE for log in rows.hidden)
        else column_rows(column, placement=placement)
        for column, rows in zip(columns, readings, strict=True)
    ]
    pairs = list(zip(columns, readings, strict=True))
    return Comparison(
        placement=placement if any(placement in reading.placements for reading in readings) else "",
        columns=summaries,
        sections=sections_of(pairs, metric, allowed, unusable, partial, level=level),
        status=_status(columns, unusable, only_ok=only_ok),
        inputs=tuple(zip(columns, rows_for_gates, strict=True)),
        allowed=allowed,
        level=level,
    )


def _usual_placement(columns: Sequence[Column]) -> str:
    """Return in-place if nothing else was measured, else out-of-place."""
    usual, other = PLACEMENTS
    points = (point for column in columns for log in column.logs for point in log.points)
    measured = (point.labels.get("placement", usual) for point in points)
    return other if set(measured) == {other} else usual


def _status(columns: Sequence[Column], unusable: frozenset[Outcome], *, only_ok: bool) -> Exit:
    """Return the exit status for what was measured, which is that of its logs.

    Only a baseline need not be ok: one whose figures are shown will do.
    """
    *others, base = columns
    statuses: list[Exit] = []
    for column in columns:
        is_baseline = column is base and bool(others) and not only_ok
        allowed = frozenset(Outcome) - unusable if is_baseline else frozenset()
        for log in column.logs:
            of_outcomes = status_of({log.outcome, *log.also}, allowed)
            statuses.append(log.status if only_ok else of_outcomes)
        # A column whose logs are ok and have no row measured nothing.
        measured = any(log.points for log in column.logs)
        if not (measured or is_baseline or any(statuses)):  # no status yet but fine
            statuses.append(Exit.UNTRUSTED)
    return worst(*statuses)


def _level(columns: Sequence[Column]) -> float:
    """Return the chance of a false verdict that is allowed.

    A run that tested after each repeat has already spent some of it: the lowest level counts.
    """
    levels = [LEVEL]
    for column in columns:
        if column.max_repeats and column.max_repeats >= FIRST_LOOK:
            # Each repeat has a log of each program.
            programs = {(log.benchmark, log.case) for log in column.logs}
            repeats = len(column.logs) // len(programs)
            levels.append(level_at(repeats, column.max_repeats))
    return min(levels)


def sections_of(  # noqa: PLR0913 - what is paired, and what of it counts
    inputs: Sequence[tuple[Column, ColumnRows]],
    metric: str | None,
    allowed: Collection[str],
    unusable: Collection[Outcome] = UNUSABLE,
    partial: Collection[Outcome] = (),
    *,
    level: float,
) -> tuple[ComparisonSection, ...]:
    """Pair figures by a metric (None: each section's own).

    `allowed`: fields that may differ between columns. Columns with an outcome in `unusable` show no
    figures, those with one in `partial` show them without a ratio.
    """
    readings = [rows for _, rows in inputs]
    groups = row_groups(readings, section_fields(readings, allowed), metric)
    # As the benchmark's own tables are: always GB/s, with two decimals.
    coarse = any(
        benchmark_named(name).one_scale for rows in readings for name in rows.known("benchmark")
    )
    scales = metric_scales(groups, coarse=coarse)
    sections = [
        _section(
            group,
            scales[group.metric.name],
            [column.logs for column, _ in inputs],
            unusable,
            partial,
        )
        for group in groups
    ]
    return tuple(_tested(section, sections, level) for section in sections)


def _check_request(
    columns: Sequence[Column], metric: str | None, allow: Collection[str]
) -> frozenset[str]:
    """Return the fields that `allow` lets differ. Raise RequestError if nothing can be compared."""
    if not columns:
        raise RequestError("Nothing to compare.", hint="Pass a run, or two log files.")
    for column in columns:
        if not column.logs:
            raise RequestError(f"{column.label} ({column.source}) contains no benchmark output.")
    if metric is not None:
        one_named("metric", metric, METRICS)  # raises for one that is not known
    allowed = frozenset(name.replace("-", "_") for name in allow)
    for name in sorted(allowed - set(FIELDS)):
        one_named("field", name, dict.fromkeys(FIELDS))
    return allowed


def _refuse_differences(columns: Sequence[ColumnSummary], allowed: Collection[str]) -> None:
    """Raise RequestError if columns differ in a field in which they may not."""
    details: dict[str, str] = {}
    for name in MUST_MATCH:
        stated = differing((column.label, column.fields[name]) for column in columns)
        if stated and name not in allowed:
            where = [f"{_listed(values)} in {label}" for label, values in stated]
            details[name] = f"{name} is " + ", ".join(where)
    if details:
        what = "; ".join(details.values())
        flags = " ".join(f"--allow {name}" for name in details)
        raise RequestError(
            f"These cannot be compared: {what}.",
            hint=f"Compare runs of one kind, or compare these anyway with {flags}.",
        )


def _listed(values: Stated) -> str:
    texts = [str(value) for value in values]
    if len(texts) > _MAX_LISTED:
        more = len(texts) - _FIRST_LISTED
        first = ", ".join(texts[:_FIRST_LISTED])
        texts = [first, f"{more} more"]
    return " and ".join(texts)


def differing(stated: Iterable[_Labelled]) -> list[_Labelled]:
    """Return what each column states, by its label, where they differ; empty: they do not.

    Unknown against known is no difference.
    """
    known = [(label, values) for label, values in stated if values]
    different = {frozenset(values) for _, values in known}
    return known if len(different) > 1 else []


def _summary(column: Column, reading: ColumnRows) -> ColumnSummary:
    facts = gathered(item for log in column.logs for item in log.facts.items())
    bad = [log for log in column.logs if log.outcome is not Outcome.OK]
    return ColumnSummary(
        label=column.label,
        source=column.source,
        label_given=column.label_given,
        outcome=worst_of(column.logs),
        reasons=distinct(map(_outcome_and_reason, bad)),
        not_ok=len(bad),
        executions=len(column.logs) - reading.copies,
        facts=map_values(distinct, facts),
        fields={name: reading.known(name) for name in FIELDS},
        empty=reading.empty,
        hidden=len(reading.hidden),
        findings=tuple(
            {
                (each.code, each.meaning): each for log in column.logs for each in log.findings
            }.values()
        ),
        variant=column.variant,
        copies=reading.copies,
        measured=any(log.points for log in column.logs),
    )


def _outcome_and_reason(log: Log) -> str:
    reason = log.reason or "no reason given"
    return f"{log.outcome}: {reason}"


def worst_of(logs: Sequence[Log], default: Outcome = Outcome.OK) -> Outcome:
    """Return the worst outcome of several logs."""
    outcomes = {log.outcome for log in logs}
    return next((each for each in Outcome if each in outcomes), default)  # the worst first


def _section(
    group: RowGroup,
    scale: Scale,
    logs: Sequence[Sequence[Log]],
    unusable: Collection[Outcome],
    partial: Collection[Outcome],
) -> ComparisonSection:
    """Pair the figures of each size; no statistics yet. `logs`: those of each column."""

    def belongs(log: Log) -> bool:  # an unknown benchmark or case belongs to every section
        benchmark = group.key.get("benchmark", log.benchmark)
        case = group.key.get("case", log.case)
        return log.benchmark in {None, benchmark} and log.case in {None, case}

    def has_no_hidden(column_logs: Iterable[Log]) -> bool:
        return not any(is_hidden(log, unusable) for log in column_logs)

    logs = [list(filter(belongs, column_logs)) for column_logs in logs]
    outcomes = tuple(map(worst_of, logs))
    shown = tuple(map(has_no_hidden, logs))
    without_ratio = tuple(
        visible and outcome in partial for visible, outcome in zip(shown, outcomes, strict=True)
    )
    # For each column, its figures by size: none of one that is not shown
    cells, times = (
        [figures if visible else {} for figures, visible in zip(columns, shown, strict=True)]
        for columns in (group.cells, group.times)
    )
    rows = []
    # Sizes of columns that are not shown have rows, too; there these columns are empty
    for size in sorted(set().union(*group.cells)):
        figures = tuple(column.get(size) for column in cells)
        *others, base = figures  # the last column is the baseline, and has no ratio itself
        ratios = [_times_better(figure, base, group.metric, scale) for figure in others]
        rows.append(
            ComparisonRow(
                size=size,
                figures=figures,
                # None in a partial column; in all of them if the baseline is partial
                ratios=(*_unless_partial(ratios, without_ratio), None),
                times=tuple(column.get(size) for column in times),
            )
        )
    return ComparisonSection(
        key=group.key,
        metric=group.metric,
        scale=scale,
        outcomes=outcomes,
        shown=shown,
        partial=without_ratio,
        rows=tuple(rows),
        noise=tuple(map(_noise_of, logs)),
    )


def _unless_partial(ratios: _Ratios, partial: Sequence[bool]) -> Iterator[float | None]:
    """Yield ratios, but none of a column that was truncated, or with a base that was."""
    for ratio, is_partial in zip(ratios, partial, strict=False):  # the base has no ratio
        yield None if is_partial or partial[BASE] else ratio


def _noise_of(logs: Sequence[Log]) -> frozenset[str]:
    """Return the catalog's names for the noise of logs: of tests of two hosts, or by transport."""
    if logs and all(benchmark_named(log.benchmark).between_two for log in logs):
        return frozenset({PAIRS})
    return noise_kinds({fact_text(log.facts, "transport") for log in logs})


def _tested(
    section: ComparisonSection, sections: Sequence[ComparisonSection], level: float
) -> ComparisonSection:
    """Add the statistics of each ratio.

    `level` is the chance that any verdict of a table is false (Bonferroni): its columns, and the
    sections of its rails, which differ in the rail alone, share it.
    """
    without_rails = [(other.metric, {**other.key, RAIL: ""}) for other in sections]
    columns = range(len(section.shown) - 1)  # all but the base
    rails = without_rails.count((section.metric, {**section.key, RAIL: ""}))
    column_level = level / max(len(columns) * rails, 1)
    tests: list[Mapping[int, RowTest]] = []
    plateaus: list[Plateau | None] = []
    for column in columns:
        pairs = _column_pairs(section, column)
        sizes = _plateau_sizes(section, column)
        tested = compare_table(pairs, sizes, column_level)
        tests.append(tested.sizes)
        plateaus.append(_plateau(sizes, tested))
    plateaus.append(None)  # of the base
    rows = []
    for row in section.rows:
        of_columns = [by_size.get(row.size) for by_size in tests]
        rows.append(replace(row, tests=(*of_columns, None)))
    return replace(section, rows=tuple(rows), level=column_level, plateaus=tuple(plateaus))


def _column_pairs(section: ComparisonSection, column: int) -> Mapping[int, TwoSamples]:
    """Return size → the executions of a column and of the base, where there is a ratio."""
    pairs = {}
    for row in section.rows:
        pair = pair_of(section, row, column) if row.ratios[column] else None
        if pair is not None:
            pairs[row.size] = pair
    return pairs


_PLATEAU = 0.9
"""The least part of the peak's figure that counts as the plateau."""


def _plateau_sizes(section: ComparisonSection, column: int) -> Sequence[int]:
    """Return the sizes next to the peak of both columns that are not much worse (see `Plateau`)."""
    rows = [row for row in section.rows if row.ratios[column]]
    if not rows:
        return []
    levels = {row.size: _level_of_both(row, column) for row in rows}
    if section.metric.lower_is_better:
        levels = {size: 1 / level for size, level in levels.items()}  # larger is better
    peak = max(levels, key=levels.__getitem__)
    least = _PLATEAU * levels[peak]
    sizes: list[int] = []
    for size, level in levels.items():
        if level >= least:
            sizes.append(size)
        elif size > peak:
            break
        else:  # what is on its other side is not next to the peak
            sizes.clear()
    return sizes


def _level_of_both(row: ComparisonRow, column: int) -> float:
    """Return the geometric mean of the figures of a column and of the base."""
    figures = (row.figures[column], row.figures[BASE])
    return math.prod(figure.value for figure in figures if figure) ** 0.5


def _plateau(sizes: Sequence[int], test: TableTest) -> Plateau | None:
    # None: no execution of a side has all of these sizes.
    if test.plateau is None or test.ratio is None:
        return None
    return Plateau(sizes=sizes, ratio=test.ratio, test=test.plateau)


def pair_of(section: ComparisonSection, row: ComparisonRow, column: int) -> TwoSamples | None:
    """Return the executions of a column and of the base at one size; None where one has 0.

    A 0 that was printed is at most half of a printed step, and counts as that.
    """
    new = row.figures[column]
    base = row.figures[BASE]
    if new is None or base is None:
        return None
    half = max(new.step, base.step) / 2
    values = [value for _, value in (*new.executions, *base.executions)]
    least = max(min(values), half)
    if least <= 0:
        return None
    sign = -1 if section.metric.lower_is_better else 1  # of logarithms: larger is better

    def logarithms(figure: Figure) -> Values:
        values = ((run, max(value, half)) for run, value in figure.executions)
        return {run: sign * math.log(value) for run, value in values}

    ratio = row.ratios[column]
    once = 1 in {len(new.executions), len(base.executions)}
    kinds = section.noise[column] | section.noise[BASE]
    return TwoSamples(
        new=logarithms(new),
        base=logarithms(base),
        # Half a printed step, as a part of the smaller figure
        rounding=half / max(min(new.value, base.value), least),
        shown=math.log(ratio) if ratio else None,
        # Repeats of both sides show their own noise: then none is assumed.
        assumed=assumed_noise(kinds, row.size) if once else math.inf,
    )


def _times_better(
    new: Figure | None,
    base: Figure | None,
    metric: Metric,
    scale: Scale,
) -> float | None:
    """Return how many times better `new` is.

    None where one of the two is missing or displays as 0.
    """
    if new is None or base is None:
        return None
    if "0" in map(scale.text, (new.value, base.value)):
        return None
    return base.value / new.value if metric.lower_is_better else new.value / base.value
