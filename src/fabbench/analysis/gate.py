"""Gates (`fabbench.plan.gates`), checked against columns. Pure.

A gate on a difference follows the statistics: it fails when a loss beyond the tolerance is shown
over all its sizes together, at a size whose verdict does not contradict it. A loss neither shown
nor excluded is a note, and fails a strict check.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fabbench.analysis.aggregate import UNUSABLE, Column, Figure
from fabbench.analysis.compare import (
    ColumnSummary,
    Comparison,
    ComparisonRow,
    ComparisonSection,
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
from fabbench.model.errors import Exit, RequestError, worst
from fabbench.model.log import Outcome
from fabbench.model.units import format_decimal, format_size, format_sizes
from fabbench.plan.gates import AT_LEAST, RATIO, Gate


class _Remark(NamedTuple):
    """The result of one row, or of a whole gate."""

    text: str = ""
    breach: bool = False
    compared: bool = False
    undecided: bool = False


def check(gates: Sequence[Gate], comparison: Comparison, *, strict: bool = False) -> Verdict:
    """Check every gate on the first column, against the last one.

    Each breach is a sentence with its figures.

    A gate that compared nothing is breached, and so is one whose range includes a size that only
    the baseline has. A column that is not ok passes no gate, and the status is that of its log. A
    loss that is neither shown nor excluded is a note, unless `strict`. Raise RequestError for a
    tolerance without a baseline, and for an unknown ceiling.
    """
    pair = [comparison.inputs[0], *comparison.inputs[1:][-1:]]
    columns = [column for column, _ in pair]
    bad = [log for log in columns[0].logs if log.outcome is not Outcome.OK]
    bad += [log for column in columns for log in column.logs if log.outcome in UNUSABLE]
    results, undecided = [], []
    for gate in gates:
        _require(gate, comparison)
        metric = gate.metric.name
        needed = [] if gate.metric is RATIO else pair if gate.needs_baseline else pair[:1]
        lacking = [column.label for column, rows in needed if metric not in rows.metrics()]
        remarks = list(_untrusted(gate, columns))
        if lacking:
            why = f"there is no {metric} in {' and '.join(lacking)}"
            remarks.append(_Remark(f"{gate.text} matched no data: {why}.", breach=True))
        else:
            remarks += _Check(gate, comparison, strict=strict).remarks()
        breaches = tuple(each.text for each in remarks if each.breach)
        notes = tuple(each.text for each in remarks if each.text and not each.breach)
        state = GateState.FAILED if breaches else GateState.UNTRUSTED if bad else GateState.PASSED
        results.append(GateResult(gate=gate.text, state=state, breaches=breaches, notes=notes))
        undecided += [each.text for each in remarks if each.undecided]
    breaches = tuple(text for result in results for text in result.breaches)
    return Verdict(
        breaches=breaches,
        notes=tuple(text for result in results for text in result.notes),
        status=worst(*(log.status for log in bad if gates), *(Exit.BAD_ANSWER for _ in breaches)),
        passed=tuple(result.gate for result in results if result.state is GateState.PASSED),
        undecided=tuple(undecided),
        results=tuple(results),
    )


def _require(gate: Gate, comparison: Comparison) -> None:
    if gate.needs_baseline and len(comparison.columns) == 1:
        raise RequestError(
            f"The gate {gate.text} {'is a ratio' if gate.metric is RATIO else 'has a tolerance'}, "
            "and there is no baseline to compare with.",
            hint=(
                "Specify a baseline as the last argument, or give a limit such as busbw@1G>=70GB/s."
            ),
        )


def _untrusted(gate: Gate, columns: Sequence[Column]) -> Iterator[_Remark]:
    """Yield a remark for each column that is not ok: the first column is the one under test."""
    for number, column in enumerate(columns):
        outcome = worst_of(column.logs, Outcome.SKIPPED)
        if outcome is not Outcome.OK:
            reason = next((log.reason for log in column.logs if log.outcome is outcome), None)
            effect = ", and passes no gate" if number == 0 else ""
            text = (
                f"{gate.text}: {column.label} is {outcome}{effect}: {reason or 'no reason given'}"
            )
            yield _Remark(text, breach=number == 0)


class _Compared(NamedTuple):
    row: ComparisonRow
    new: Figure
    base: Figure


class _Tested(NamedTuple):
    compared: _Compared
    pair: TwoSamples
    test: RowTest
    limit: float
    """The logarithm of the lowest ratio that is allowed."""


class _Check:
    def __init__(self, gate: Gate, comparison: Comparison, *, strict: bool) -> None:
        self._gate = gate
        self._strict = strict
        self._column = comparison.inputs[0][0]
        self._ratio = gate.metric is RATIO
        self._sections = comparison.sections
        if not self._ratio:
            metric = gate.metric.name
            self._sections = sections_of(
                comparison.inputs, metric, comparison.allowed, level=comparison.level
            )
        self._level = comparison.level / max(len(self._sections), 1)
        self._names = [_named(comparison.columns[index]) for index in (0, -1)]
        self._alone = len(comparison.columns) == 1

    def remarks(self) -> Iterator[_Remark]:
        """Yield the results."""
        remarks = [each for section in self._sections for each in self._section(section)]
        yield from remarks
        if not any(each.compared or each.breach for each in remarks):
            what = f"no {self._gate.metric.name} {self._gate.where} could be checked"
            yield _Remark(f"{self._gate.text} matched no data: {what}.", breach=True)

    def _section(self, section: ComparisonSection) -> Iterator[_Remark]:
        skipped: dict[str, list[int]] = {}
        compared: list[_Compared] = []
        for row in section.rows:
            if not self._gate.covers(row.size) or not section.shown[0]:
                continue
            new, base = row.figures[0], None if self._alone else row.figures[-1]
            if not self._gate.needs_baseline and new is not None:
                yield self._limit(section, row.size, new)
            elif new is None:
                if base is not None:
                    gone = (
                        f"is missing from {self._names[0]}; the baseline has "
                        f"{section.scale.quantity(base.value)}."
                    )
                    yield _Remark(f"{self._at(section, row.size)} {gone}", breach=True)
            elif base is None:
                skipped.setdefault("the baseline has no figure there", []).append(row.size)
            elif self._ratio and row.ratios[0] is None:
                skipped.setdefault("there is no ratio", []).append(row.size)
            elif base.value == 0 and self._gate.relative:
                skipped.setdefault("the baseline has 0 there", []).append(row.size)
            else:
                compared.append(_Compared(row, new, base))
        yield from self._relative(section, compared)
        for why, sizes in skipped.items():
            text = f"{self._where(section)} was not compared at {format_sizes(sizes)}: {why}."
            yield _Remark(f"{self._gate.text}: {text}")

    def _where(self, section: ComparisonSection, at: str = "") -> str:
        where = "".join(f", {name} {value or 'unknown'}" for name, value in section.key.items())
        return f"{section.metric.name}{at}{where}"

    def _at(self, section: ComparisonSection, size: int) -> str:
        return f"{self._gate.text}: {self._where(section, f' at {format_size(size)}')}"

    def _relative(
        self, section: ComparisonSection, compared: Sequence[_Compared]
    ) -> Iterator[_Remark]:
        """Yield the decisions of the statistics, or of the plain figures where one of them is exactly 0."""
        tested: dict[int, _Tested] = {}
        for each in compared:
            size, pair = each.row.size, pair_of(section, each.row, 0)
            if pair is not None and each.base.value > 0:
                test = each.row.tests[0] or compare_sizes({size: pair}, section.level)[size]
                tested[size] = _Tested(each, pair, test, self._lowest_ratio(section, each))
                yield _Remark(compared=True)
            else:
                allowed = self._gate.bound * (each.base.value if self._gate.relative else 1)
                lost = _loss(section, each) > allowed * (1 + 1e-9)
                if self._ratio:
                    lost = (each.row.ratios[0] or 0.0) < self._gate.bound * (1 - 1e-9)
                yield _Remark(
                    f"{self._difference(section, each)}." if lost else "",
                    breach=lost,
                    compared=True,
                )
        yield from self._statistics(
            section, {size: each for size, each in tested.items() if each.limit > -math.inf}
        )

    def _lowest_ratio(self, section: ComparisonSection, each: _Compared) -> float:
        """Return the logarithm of the lowest ratio that the gate allows; minus infinity: any."""
        if self._ratio:
            return math.log(self._gate.bound) if self._gate.bound > 0 else -math.inf
        allowed = self._gate.bound if self._gate.relative else self._gate.bound / each.base.value
        if section.metric.lower_is_better:
            return -math.log1p(allowed)
        return math.log1p(-allowed) if allowed < 1 else -math.inf

    def _statistics(
        self, section: ComparisonSection, tested: Mapping[int, _Tested]
    ) -> Iterator[_Remark]:
        limits = {size: each.limit for size, each in tested.items()}
        loss = loss_test({size: each.pair for size, each in tested.items()}, limits, self._level)
        # A loss counts only where the table shows it too, so that the two do not contradict each
        # other.
        breached = [
            size
            for size in loss.shown
            if limits[size] > 0 or tested[size].test.verdict is Difference.SLOWER
        ]
        for each in (tested[size] for size in breached):
            counts = f"{len(each.pair.new)} and {len(each.pair.base)} executions"
            text = (
                f"{self._difference(section, each.compared)} ({_interval(section, each)}; "
                f"{counts})."
            )
            yield _Remark(text, breach=True, compared=True)
        unclear = [
            tested[size] for size in tested if size in {*loss.shown, *loss.possible} - {*breached}
        ]
        if unclear:
            yield self._unclear(section, unclear)

    def _unclear(self, section: ComparisonSection, unclear: Sequence[_Tested]) -> _Remark:
        worst = min(unclear, key=lambda each: each.test.low)
        at, sizes = (
            worst.compared.row.size,
            format_sizes([each.compared.row.size for each in unclear]),
        )
        needed = [
            repeats_within(
                each.pair, abs(each.pair.estimates[-1].difference - each.limit), self._level
            )
            for each in unclear
        ]
        remedy = would_decide(needed, once=any(each.test.once for each in unclear))
        figures = (
            section.scale.quantity(figure.value)
            for figure in (worst.compared.new, worst.compared.base)
        )
        both = " and ".join(
            f"{figure} in {name}" for figure, name in zip(figures, self._names, strict=True)
        )
        beyond = "a ratio below" if self._ratio else "a loss of more than"
        text = (
            f"{self._gate.text}: {self._where(section)}: {beyond} {self._allowed(section)} is "
            "neither shown nor "
            f"excluded at {sizes}. {_worse(section, worst.test.low)} at {format_size(at)} cannot "
            "be excluded "
            f"({both}; {_interval(section, worst)}); {remedy}."
        )
        return _Remark(text, breach=self._strict, compared=True, undecided=True)

    def _difference(self, section: ComparisonSection, each: _Compared) -> str:
        new, base = (section.scale.quantity(figure.value) for figure in (each.new, each.base))
        if self._ratio:
            than = f"{format_decimal(each.row.ratios[0] or 0.0, 2)} times as good as"
            expected = f"expected at least {self._allowed(section)}"
        else:
            loss = _loss(section, each)
            relative = self._gate.relative
            by = (
                f"{format_decimal(100 * loss / each.base.value, 1)} %"
                if relative
                else section.scale.quantity(loss)
            )
            than = f"{by} worse than"
            expected = f"{self._allowed(section)} is allowed"
        at, (name, base_name) = self._at(section, each.row.size), self._names
        return f"{at} is {new} in {name}, {than} {base} in {base_name}; {expected}"

    def _allowed(self, section: ComparisonSection) -> str:
        if self._ratio:
            return f"{format_decimal(self._gate.bound, 2)} x"
        if self._gate.relative:
            return f"{format_decimal(100 * self._gate.bound, 2)} %"
        return section.scale.quantity(self._gate.bound)

    def _limit(self, section: ComparisonSection, size: int, new: Figure) -> _Remark:
        bound, share = self._gate.bound, ""
        if self._gate.needs_ceiling:
            from fabbench.analysis.setting import setting_of  # most gates need no ceiling

            setting = setting_of(self._column, section)
            ceiling = setting.ceiling(section.metric) if setting else None
            if ceiling is None:
                raise RequestError(
                    f"The gate {self._gate.text} needs a ceiling, and none is known for "
                    f"{section.metric.name} at {format_size(size)} in {self._column.label}.",
                    hint="Pass --instance-type and --nodes, or the limit itself: busbw@1G>=70GB/s.",
                )
            share = f", {format_decimal(100 * bound, 2)} % of the ceiling"
            bound *= ceiling
        least = self._gate.kind == AT_LEAST
        beyond = bound - new.value if least else new.value - bound
        if beyond <= 1e-9 * bound:
            return _Remark(compared=True)
        expected = (
            f"expected at {'least' if least else 'most'} {section.scale.quantity(bound)}{share}"
        )
        text = (
            f"{self._at(section, size)} is {section.scale.quantity(new.value)} in "
            f"{self._names[0]}; {expected}."
        )
        return _Remark(text, breach=True, compared=True)


def _loss(section: ComparisonSection, each: _Compared) -> float:
    worse = each.base.value - each.new.value
    return -worse if section.metric.lower_is_better else worse


def _interval(section: ComparisonSection, each: _Tested) -> str:
    once = ", measured once" if each.test.once else ""
    return f"{confidence(section.level)} interval of the ratio {bounds([each.test])}{once}"


def _named(column: ColumnSummary) -> str:
    """Return a column's label, and the id of its run."""
    is_run = column.source.startswith("run ") and column.source not in column.label
    return f"{column.label} ({column.source})" if is_run else column.label


def _worse(section: ComparisonSection, ratio: float) -> str:
    """Describe the loss of a ratio below 1: ``"A loss of 17 %"``."""
    loss = 1 / ratio - 1 if section.metric.lower_is_better else 1 - ratio
    return (
        f"A loss of {format_decimal(100 * loss, 1)} %"
        if loss > 0
        else f"A ratio of {format_decimal(ratio, 2)}"
    )
