"""Gates (`fabbench.plan.gates`), checked against columns. Pure.

A gate on a difference follows the statistics: it fails when a loss beyond the tolerance is shown
over all its sizes together, at a size whose verdict does not contradict it. With a loss that is
neither shown nor excluded it is inconclusive, and fails a strict check.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from fabbench.analysis.aggregate import UNUSABLE, Column, ColumnRows, Figure
from fabbench.analysis.compare import (
    BASE,
    NEW,
    ColumnSummary,
    Comparison,
    ComparisonRow,
    ComparisonSection,
    compare,
    pair_of,
    sections_of,
    worst_of,
)
from fabbench.analysis.gate_results import GateResult, GateState, Verdict
from fabbench.analysis.highlights import bounds, confidence, would_decide
from fabbench.analysis.statistics import (
    Difference,
    RowTest,
    TwoSamples,
    compare_sizes,
    loss_test,
    repeats_within,
)
from fabbench.model import records
from fabbench.model.errors import Exit, RequestError, worst
from fabbench.model.log import Log, Outcome
from fabbench.model.messages import key_words
from fabbench.model.units import format_decimal, format_percent, format_size, format_sizes
from fabbench.plan.gates import AT_LEAST, SLACK, Gate, require_limits

_Inputs: TypeAlias = Sequence[tuple[Column, ColumnRows]]
_said = partial(records.sentence, "fabbench.analysis", "gates.toml")
"""Return what is said of a gate by its code, with the values that are in it."""


class _Remark(NamedTuple):
    """The result of one row, or of a whole gate."""

    text: str = ""  # empty: there is nothing to say
    breach: bool = False
    compared: bool = False
    undecided: bool = False

    @property
    def answers(self) -> bool:
        """Whether something was held against the gate."""
        return self.compared or self.breach or self.undecided


def check(gates: Sequence[Gate], comparison: Comparison, *, strict: bool = False) -> Verdict:
    """Check every gate on the first column, against the last one.

    Each breach is a sentence with its figures.

    A gate that compared nothing is breached, and so is one whose range includes a size that only
    the baseline has. A column that is not ok passes no gate, and the status is that of its log. A
    loss that is neither shown nor excluded is inconclusive, unless `strict`. Raise RequestError for
    a tolerance without a baseline, and for an unknown ceiling.
    """
    pair = list(comparison.inputs[:1])  # the column under test, and the base if there is one
    if len(comparison.inputs) > 1:
        pair.append(comparison.inputs[BASE])
    remarks = [_gate_remarks(gate, comparison, pair, strict=strict) for gate in gates]
    bad = list(_logs_not_trusted([column for column, _ in pair]))
    results = tuple(map(partial(_result, trusted=not bad), gates, remarks))
    statuses = [log.status for log in bad if gates]
    if any(result.breaches for result in results):
        statuses.append(Exit.BAD_ANSWER)
    every = chain.from_iterable(remarks)
    undecided = tuple(each.text for each in every if each.undecided)
    return Verdict(status=worst(*statuses), undecided=undecided, results=results)


def check_log(checked: Callable[[Comparison], Verdict], log: Log) -> Verdict:
    """Check gates that need no baseline on one log alone; `checked`: `check` of these gates."""
    column = Column(label=log.source, logs=(log,), source=log.source)
    return checked(compare([column]))


def _logs_not_trusted(columns: Sequence[Column]) -> Iterator[Log]:
    """Yield the logs for which no gate passes: those of the first column have to be ok.

    The baseline's may be less, as long as their figures are shown.
    """
    for log in columns[0].logs:
        if log.outcome is not Outcome.OK:
            yield log
    for column in columns:
        yield from (log for log in column.logs if log.outcome in UNUSABLE)


def _gate_remarks(
    gate: Gate, comparison: Comparison, pair: _Inputs, *, strict: bool
) -> list[_Remark]:
    """Return what there is to say on a gate. `pair`: the first column, and the base if any."""
    if len(comparison.columns) == 1:
        require_limits([gate])  # a tolerance needs a baseline
    columns = [column for column, _ in pair]
    remarks = list(_remarks_on_trust(gate, columns, strict=strict))
    lacking = _columns_without_metric(gate, pair)
    if lacking:
        text = _said("metric-missing", gate=gate, where=" and ".join(lacking))
        return [*remarks, _Remark(text, breach=True)]
    remarks += _Check(gate, comparison, strict=strict).remarks()
    return remarks


def _columns_without_metric(gate: Gate, pair: _Inputs) -> list[str]:
    """Return the columns that lack the metric of a gate and need it, with those they have."""
    if gate.is_ratio:  # of whatever metric the comparison has
        return []
    metric = gate.metric.name
    needed = pair if gate.needs_baseline else pair[:1]
    return [
        _with_metrics(column.label, rows.metrics())
        for column, rows in needed
        if metric not in rows.metrics()
    ]


def _with_metrics(label: str, metrics: Iterable[str]) -> str:
    there = ", ".join(sorted(metrics))
    return f"{label} (it has {there})" if there else label


def _result(gate: Gate, remarks: Sequence[_Remark], *, trusted: bool) -> GateResult:
    # A breach outweighs that the logs are not to be trusted, and this that some are undecided.
    breaches = tuple(each.text for each in remarks if each.breach)
    notes = (each.text for each in remarks if not each.breach)
    state = GateState.PASSED
    if breaches:
        state = GateState.FAILED
    elif not trusted:
        state = GateState.UNTRUSTED
    elif any(each.undecided for each in remarks):
        state = GateState.INCONCLUSIVE
    return GateResult(
        gate=gate.text,
        state=state,
        breaches=breaches,
        notes=tuple(filter(None, notes)),
    )


def _remarks_on_trust(gate: Gate, columns: Sequence[Column], *, strict: bool) -> Iterator[_Remark]:
    """Yield a remark for each column that is not ok, or may lack rows, as its end is not shown.

    The first column is the one under test: if it is not ok, the gate fails. `strict`: so it does
    where an end is not shown.
    """
    for number, column in enumerate(columns):
        outcome = worst_of(column.logs, Outcome.SKIPPED)
        if outcome is not Outcome.OK:
            reasons = (log.reason for log in column.logs if log.outcome is outcome)
            reason = next(reasons, None) or "no reason given"
            in_question = number == 0
            code = "not-ok.in-question" if in_question else "not-ok"
            text = _said(code, gate=gate, column=column, outcome=outcome, reason=reason)
            yield _Remark(text, breach=in_question)
        elif not all(log.shows_end for log in column.logs):
            text = _said("end-not-shown", gate=gate, column=column)
            yield _Remark(text, breach=strict, undecided=True)


class _Compared(NamedTuple):
    row: ComparisonRow
    new: Figure  # Of the first column, which the gate is on
    base: Figure

    @property
    def ratio(self) -> float:
        """How many times better than the baseline; gates on it skip rows that have none."""
        return self.row.ratios[NEW] or 0.0


class _Tested(NamedTuple):
    compared: _Compared
    pair: TwoSamples
    test: RowTest
    limit: float
    """The logarithm of the lowest ratio that is allowed."""

    @property
    def size(self) -> int:
        """The size of the row."""
        return self.compared.row.size

    @property
    def ratio(self) -> float:
        """How many times better the new figure is."""
        return math.exp(self.pair.middle)

    @property
    def is_shown(self) -> bool:
        """Whether the table shows the loss too: a gate and its table may not contradict."""
        # A limit above 0 asks for more than the baseline, of which the table claims nothing.
        return self.limit > 0 or self.test.verdict is Difference.SLOWER


class _Check:
    def __init__(self, gate: Gate, comparison: Comparison, *, strict: bool) -> None:
        self._gate = gate
        self._strict = strict
        self._column = comparison.inputs[NEW][0]
        self._sections = comparison.sections
        if not gate.is_ratio:  # the comparison's own sections may have another metric
            self._sections = sections_of(
                comparison.inputs, gate.metric.name, comparison.allowed, level=comparison.level
            )
        self._level = comparison.level / max(len(self._sections), 1)
        self._name = _label_and_run(comparison.columns[NEW])
        self._base_name = _label_and_run(comparison.columns[BASE])

    def remarks(self) -> Iterator[_Remark]:
        """Yield the results of all rows; a gate, or a size of it, without any is breached."""
        remarks = [each for section in self._sections for each in self._remarks_on(section)]
        yield from remarks
        has_answer = any(each.answers for each in remarks)
        where = self._gate.lacks(self._measured() if has_answer else set())
        if where:
            yield self._remark("nothing-checked", where=where, breach=True)

    def _measured(self) -> set[int]:
        """Return the sizes that can be held against the gate, or of which a remark says why not."""
        rows = [row for section in self._sections for row in section.rows]
        if self._gate.needs_baseline:
            rows = [row for row in rows if row.figures[BASE]]
        return {row.size for row in rows}

    def _remarks_on(self, section: ComparisonSection) -> Iterator[_Remark]:
        """Yield how the first column, the one in question, passes the gate at its sizes.

        Nothing where the outcome of that column hides its figures.
        """
        rows = [row for row in section.rows if self._gate.covers(row.size)]
        if not section.shown[NEW]:
            return
        for row in rows:
            new = row.figures[NEW]
            if new is None:
                yield from self._remark_if_vanished(section, row)
            elif not self._gate.needs_baseline:
                yield self._judged_by_limit(section, row.size, new)
        if self._gate.needs_baseline:
            yield from self._compared_with_baseline(section, rows)

    def _remark(
        self, code: str, *, breach: bool = False, undecided: bool = False, **values: object
    ) -> _Remark:
        """Return a remark with a sentence that has these values."""
        return _Remark(self._words(code, **values), breach, undecided=undecided)

    def _words(self, code: str, **values: object) -> str:
        names = {"name": self._name, "base_name": self._base_name}
        return _said(code, gate=self._gate, **names, **values)

    def _remark_if_vanished(
        self, section: ComparisonSection, row: ComparisonRow
    ) -> Iterator[_Remark]:
        """Yield a breach for a row without a new figure, if the baseline has one."""
        base = row.figures[BASE]
        if base is not None:
            figure = section.scale.quantity(base.value)
            at = _where(section, row.size)
            yield self._remark("vanished", at=at, figure=figure, breach=True)

    def _why_not_compared(self, row: ComparisonRow, base: Figure | None) -> str:
        """Return why a row cannot be compared; empty if it can."""
        if base is None:
            return "the baseline has no figure there"
        if self._gate.is_ratio and row.ratios[NEW] is None:
            return "there is no ratio"
        if self._gate.relative and base.value == 0:
            return "the baseline has 0 there"
        return ""

    def _compared_with_baseline(
        self, section: ComparisonSection, rows: Iterable[ComparisonRow]
    ) -> Iterator[_Remark]:
        """Yield the decisions of the statistics; where a figure is exactly 0, of the figures."""
        skipped: dict[str, list[int]] = {}
        bounded: list[_Tested] = []
        for compared in self._compared(rows, skipped):
            tested = self._tested(section, compared)
            if tested is None:
                yield self._judged_by_figures(section, compared)
                continue
            yield _Remark(compared=True)
            if tested.limit > -math.inf:  # else no loss is too large
                bounded.append(tested)
        yield from self._judged_by_statistics(section, bounded)
        for why, sizes in skipped.items():
            at = format_sizes(sizes)
            yield self._remark("not-compared", what=_where(section), sizes=at, why=why)

    def _compared(
        self, rows: Iterable[ComparisonRow], skipped: dict[str, list[int]]
    ) -> Iterator[_Compared]:
        """Yield what can be compared; the sizes of other rows go to their reason in `skipped`."""
        for row in rows:
            new = row.figures[NEW]
            base = row.figures[BASE]
            obstacle = self._why_not_compared(row, base)
            if new is None:  # a remark already says so
                continue
            if base is None or obstacle:
                skipped.setdefault(obstacle, []).append(row.size)
            else:
                yield _Compared(row, new, base)

    def _tested(self, section: ComparisonSection, compared: _Compared) -> _Tested | None:
        """Return what the statistics know of a row; None: a figure is exactly 0."""
        pair = pair_of(section, compared.row, column=0)
        if pair is None or compared.base.value <= 0:
            return None
        size = compared.row.size
        test = compared.row.tests[NEW]
        if test is None:  # the table shows no ratio there
            test = compare_sizes({size: pair}, section.level)[size]
        return _Tested(compared, pair, test, self._lowest_log_ratio(section, compared))

    def _judged_by_figures(self, section: ComparisonSection, compared: _Compared) -> _Remark:
        """Hold figures themselves against the gate: a 0 has no logarithm for the statistics."""
        bound = self._gate.bound
        if self._gate.is_ratio:
            lost = compared.ratio < bound * (1 - 1e-9)  # as floats are not exact
        else:
            allowed = bound * compared.base.value if self._gate.relative else bound
            rounded = (compared.new.step + compared.base.step) / 2  # half a step of each
            lost = _loss(section, compared) - rounded > allowed * (1 + 1e-9)
        if not lost:
            return _Remark(compared=True)
        difference = self._difference_words(section, compared)
        return self._remark("lost", difference=difference, breach=True)

    def _lowest_log_ratio(self, section: ComparisonSection, compared: _Compared) -> float:
        """Return the logarithm of the lowest ratio that the gate allows; minus infinity: any."""
        bound = self._gate.bound
        if self._gate.is_ratio:
            return math.log(bound) if bound > 0 else -math.inf
        allowed = bound if self._gate.relative else bound / compared.base.value
        if section.metric.lower_is_better:  # times: the ratio is that of base to new
            return -math.log1p(allowed)
        return math.log1p(-allowed) if allowed < 1 else -math.inf

    def _judged_by_statistics(
        self, section: ComparisonSection, tested: Sequence[_Tested]
    ) -> Iterator[_Remark]:
        """Yield a breach for each size whose loss is shown, and one remark on all that are unclear.

        A loss that is shown here, and not by the table, is unclear too.
        """
        loss = loss_test(
            {each.size: each.pair for each in tested},
            {each.size: each.limit for each in tested},
            self._level,
        )
        unclear: list[_Tested] = []
        for each in tested:
            shown = each.size in loss.shown
            if shown and each.is_shown:
                yield self._shown_loss(section, each)
            elif shown or each.size in loss.possible:
                unclear.append(each)
        if unclear:
            yield self._unclear_loss(section, unclear)

    def _shown_loss(self, section: ComparisonSection, tested: _Tested) -> _Remark:
        return self._remark(
            "lost.shown",
            breach=True,
            difference=self._difference_words(section, tested.compared),
            interval=_interval_words(section, tested),
            count=len(tested.pair.new),
            base_count=len(tested.pair.base),
        )

    def _unclear_loss(self, section: ComparisonSection, unclear: Sequence[_Tested]) -> _Remark:
        # Quoted is the size at which the largest loss is possible.
        worst = min(unclear, key=lambda each: each.test.low)
        once = any(each.test.once for each in unclear)
        write = section.scale.quantity
        return self._remark(
            "unclear.ratio" if self._gate.is_ratio else "unclear",
            breach=self._strict,
            undecided=True,
            what=_where(section),
            allowed=self._allowed_words(section),
            sizes=format_sizes([each.size for each in unclear]),
            lost=_loss_words(section, worst.test.low),
            size=format_size(worst.size),
            new=write(worst.compared.new.value),
            base=write(worst.compared.base.value),
            interval=_interval_words(section, worst),
            remedy=would_decide([self._repeats_to_decide(each) for each in unclear], once=once),
        )

    def _repeats_to_decide(self, tested: _Tested) -> int | None:
        """Return about how many repeats would decide; None: too many."""
        # Of the trimmed means, if there are any
        difference = tested.pair.estimates[-1].difference
        return repeats_within(tested.pair, abs(difference - tested.limit), self._level)

    def _difference_words(self, section: ComparisonSection, compared: _Compared) -> str:
        write = section.scale.quantity
        return self._words(
            "worse.ratio" if self._gate.is_ratio else "worse",
            at=_where(section, compared.row.size),
            new=write(compared.new.value),
            base=write(compared.base.value),
            ratio=format_decimal(compared.ratio, 2),
            lost=self._lost_words(section, compared),
            allowed=self._allowed_words(section),
        )

    def _lost_words(self, section: ComparisonSection, compared: _Compared) -> str:
        """Write a loss as the gate writes its tolerance."""
        loss = _loss(section, compared)
        if not self._gate.relative:
            return section.scale.quantity(loss)
        return format_percent(loss / compared.base.value, 1)

    def _allowed_words(self, section: ComparisonSection) -> str:
        # By how much it may be worse: to a factor, by a fraction, or by an amount.
        bound = self._gate.bound
        if self._gate.is_ratio:
            return f"{format_decimal(bound, 2)} x"
        if self._gate.relative:
            return format_percent(bound, 2)
        return section.scale.quantity(bound)

    def _judged_by_limit(self, section: ComparisonSection, size: int, new: Figure) -> _Remark:
        """Hold a figure against a limit that needs no baseline: a value, or a part of a ceiling."""
        bound = self._gate.bound
        share = ""
        if self._gate.needs_ceiling:
            ceiling = self._ceiling(section, size)
            if new.value > ceiling * SLACK:
                return self._remark(
                    "impossible",
                    at=_where(section, size),
                    breach=self._strict,
                    undecided=True,
                )
            share = f", {format_percent(bound, 2)} of the ceiling"
            bound *= ceiling
        least = self._gate.kind == AT_LEAST
        beyond = bound - new.value if least else new.value - bound
        if beyond <= 1e-9 * bound:  # as floats are not exact
            return _Remark(compared=True)
        write = section.scale.quantity
        values: dict[str, Any] = {
            "at": _where(section, size),
            "figure": write(new.value),
            "limit": write(bound) + share,
        }
        if beyond <= new.step / 2:
            return self._remark("limit.rounding", **values, breach=self._strict, undecided=True)
        return self._remark("limit.least" if least else "limit.most", **values, breach=True)

    def _ceiling(self, section: ComparisonSection, size: int) -> float:
        """Return the ceiling at a size. Raise RequestError if it is not known."""
        from fabbench.analysis.setting import setting_of  # most gates need no ceiling

        setting = setting_of(self._column, section)
        ceiling = setting.ceiling(section.metric) if setting else None
        if ceiling is None:
            gate = self._gate
            metric = gate.metric.name
            column = self._column
            where = f"{metric} at {format_size(size)} in {column.label}"
            raise RequestError(
                f"The gate {gate.text} needs a ceiling, and none is known for {where}.",
                hint="Pass --instance-type and --nodes, or the limit itself: busbw@1G>=70GB/s.",
            )
        return ceiling


def _where(section: ComparisonSection, size: int | None = None) -> str:
    """Return the metric, the size if it is one, and what distinguishes a section."""
    at = "" if size is None else f" at {format_size(size)}"
    metric = section.metric.name + at
    return ", ".join([metric, *key_words(section.key)])


def _loss(section: ComparisonSection, compared: _Compared) -> float:
    """Return by how much the new figure is worse, in base units; negative: it is better."""
    worse = compared.base.value - compared.new.value
    return -worse if section.metric.lower_is_better else worse


def _interval_words(section: ComparisonSection, tested: _Tested) -> str:
    once = ", measured once" if tested.test.once else ""
    interval = bounds([tested.test], [tested.ratio])
    return f"{confidence(section.level)} interval {interval}{once}"


def _label_and_run(column: ColumnSummary) -> str:
    """Return a column's label, and the id of its run."""
    is_run = column.source.startswith("run ") and column.source not in column.label
    return f"{column.label} ({column.source})" if is_run else column.label


def _loss_words(section: ComparisonSection, ratio: float) -> str:
    """Describe the loss of a ratio below 1: ``"A loss of 17 %"``; a ratio from 1 up as one."""
    loss = 1 / ratio - 1 if section.metric.lower_is_better else 1 - ratio
    if loss > 0:
        return f"A loss of {format_percent(loss, 1)}"
    return f"A ratio of {format_decimal(ratio, 2)}"
