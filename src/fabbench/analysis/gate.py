"""Gates: what must hold for a build to pass, read from text and checked against columns. Pure.

``METRIC[@SIZE[..SIZE]]`` and then ``:TOLERANCE`` (how much worse than the baseline, in % or a unit),
``>=LIMIT`` or ``<=LIMIT`` (no baseline needed), where a limit may be ``80%ceiling``. ``ratio@1G>=10``
checks how many times better than the baseline. Sizes are 1024-based; rates are 1000-based, and GB/s is not
Gb/s.

A gate on a difference follows the statistics: it fails when a loss beyond the tolerance is shown over all
its sizes together, at a size whose verdict does not contradict it. A loss neither shown nor excluded is a
note, and fails a strict check.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from fabbench.analysis.aggregate import UNUSABLE, Column, Figure
from fabbench.analysis.compare import (
    ColumnSummary,
    Comparison,
    ComparisonRow,
    ComparisonSection,
    pair_of,
    sections_of,
)
from fabbench.analysis.gate_results import GateResult, GateState, Verdict
from fabbench.analysis.highlights import bounds, confidence, repeats_needed
from fabbench.analysis.statistics import (
    Difference,
    RowTest,
    TwoSamples,
    compare_sizes,
    loss_test,
    repeats_within,
)
from fabbench.model.errors import Exit, RequestError
from fabbench.model.log import METRICS, Metric, Outcome
from fabbench.model.units import (
    RATE_UNITS,
    TIME_UNITS,
    format_decimal,
    format_size,
    format_sizes,
    parse_quantity,
    parse_size,
)

EXAMPLES = "busbw:5%, latency@64:20us, busbw@1M..1G:5%, ratio@1G>=10 or busbw@1G>=70GB/s"
RATIO = Metric("ratio", "times")
"""The metric of a gate on how many times better than the baseline a column is."""
CEILING = "%ceiling"

Ceiling: TypeAlias = Callable[[Column, ComparisonSection, int], float | None]
"""Returns the ceiling of a column's figure at a size, in the metric's base unit; None: unknown."""
_UNITS: Mapping[str, dict[str, float]] = {
    "B/s": RATE_UNITS,
    "s": TIME_UNITS,
    "1/s": {"1/s": 1.0, "K/s": 1e3, "M/s": 1e6},
    "count": {"": 1.0},
    "times": {"": 1.0, "x": 1.0},
}


class GateKind(StrEnum):
    """How a gate decides."""

    TOLERANCE = ":"
    AT_LEAST = ">="
    AT_MOST = "<="


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One gate. `bound` is in the metric's base unit, or a fraction of the baseline or the ceiling."""

    text: str
    metric: Metric
    kind: GateKind
    bound: float
    relative: bool = False
    low: int | None = None
    """Smallest size in bytes; None: any."""
    high: int | None = None
    """Largest size in bytes; None: any."""

    @property
    def needs_baseline(self) -> bool:
        """Whether it compares with the baseline."""
        return self.kind is GateKind.TOLERANCE or self.metric is RATIO

    @property
    def needs_ceiling(self) -> bool:
        """Whether its limit is a fraction of the ceiling."""
        return self.relative and self.kind is not GateKind.TOLERANCE

    def covers(self, size: int) -> bool:
        """Return whether a size is in the gate's range."""
        return (self.low is None or size >= self.low) and (self.high is None or size <= self.high)

    @property
    def range(self) -> str:
        """The range in words: ``"at any size"``, ``"at 1 GB"``, ``"from 1 MB to 1 GB"``."""
        if self.low is None or self.high is None:
            return "at any size"
        if self.low == self.high:
            return f"at {format_size(self.low)}"
        return f"from {format_size(self.low)} to {format_size(self.high)}"


# ---------------------------------------------------------------- parsing


def parse_gate(text: str) -> Gate:
    """Parse one gate. Raise RequestError that states where parsing stopped, and what is expected there."""
    name = re.match(r"(\w*)\s*", text)
    metric = {**METRICS, RATIO.name: RATIO}.get(name[1] if name else "")
    if name is None or metric is None:
        raise _misread(text, 0, f"a metric is expected, one of {', '.join(METRICS)}, {RATIO.name}")
    position = name.end()
    low = high = None
    if text.startswith("@", position):
        found = re.compile(r"[^:<>]*").match(text, position + 1)
        sizes = found[0] if found else ""
        low, high = _read_sizes(text, position + 1, sizes)
        position += 1 + len(sizes)
    kind = next((kind for kind in GateKind if text.startswith(kind, position)), None)
    if kind is None:
        raise _misread(text, position, "one of :TOLERANCE, >=LIMIT, <=LIMIT is expected")
    if metric is RATIO and kind is not GateKind.AT_LEAST:
        raise _misread(text, position, "ratio takes >= and how many times better, such as ratio@1G>=10")
    position += len(kind)
    bound, relative = _read_bound(text, position, metric, kind)
    return Gate(text=text, metric=metric, kind=kind, bound=bound, relative=relative, low=low, high=high)


def parse_gates(texts: Sequence[str], *, strict: bool = False) -> tuple[Gate, ...]:
    """Parse gates. Raise RequestError for an invalid one, and for `strict` without any."""
    if strict and not texts:
        raise RequestError("--strict has no effect without --gate.", hint="Add a gate, or leave it out.")
    return tuple(map(parse_gate, texts))


def _misread(text: str, position: int, expected: str) -> RequestError:
    rest = f" before {text[position:]!r}" if position < len(text) else ", at its end"
    return RequestError(
        f"Invalid gate {text!r} at character {position + 1}{rest}: {expected}.",
        hint=f"Write METRIC[@SIZE[..SIZE]] and :TOLERANCE, >=LIMIT or <=LIMIT: {EXAMPLES}.",
    )


def _read_sizes(text: str, position: int, sizes: str) -> tuple[int, int]:
    first, dots, second = sizes.partition("..")
    try:
        low = parse_size(first)
        high = parse_size(second) if dots else low
    except ValueError as error:
        raise _misread(text, position, str(error)) from None
    if high < low:
        raise _misread(text, position, f"the range ends ({second}) before it begins ({first})")
    return low, high


def _read_bound(text: str, position: int, metric: Metric, kind: GateKind) -> tuple[float, bool]:
    bound = text[position:].strip()
    if kind is GateKind.TOLERANCE and bound.endswith("%"):
        try:
            return parse_quantity(bound, {"%": 0.01}), True
        except ValueError:
            raise _misread(text, position, f"{bound!r} is not a percentage such as 5%") from None
    if kind is not GateKind.TOLERANCE and bound.endswith(CEILING) and metric is not RATIO:
        try:
            return parse_quantity(bound.removesuffix("ceiling"), {"%": 0.01}), True
        except ValueError:
            raise _misread(text, position, f"{bound!r} is not a share such as 80{CEILING}") from None
    units = _UNITS[metric.unit]
    try:
        return parse_quantity(bound, units), False
    except ValueError:
        named = ", ".join(unit for unit in units if unit)
        percent = "a percentage or " if kind is GateKind.TOLERANCE else ""
        expected = (
            f"{percent}a number{f' with one of {named}' if named else ''} is expected for {metric.name}"
        )
        raise _misread(text, position, expected) from None


# ---------------------------------------------------------------- checking


class _Remark(NamedTuple):
    """The result of one row, or of a whole gate."""

    breach: bool
    compared: bool
    text: str = ""
    undecided: bool = False


def _nic_ceiling(column: Column, section: ComparisonSection, size: int) -> float | None:
    from fabbench.analysis.expectations import ceiling_of  # most gates need no ceiling

    return ceiling_of(column, section, size)


def check(
    gates: Sequence[Gate], comparison: Comparison, *, strict: bool = False, ceiling: Ceiling = _nic_ceiling
) -> Verdict:
    """Check every gate on the first column, against the last one; each breach is a sentence with its figures.

    A gate that compared nothing is breached, and so is one whose range includes a size that only the
    baseline has. A column that is not ok passes no gate, and the status is then UNTRUSTED. A loss that is
    neither shown nor excluded is a note, unless `strict`. Raise RequestError for a tolerance without a
    baseline, and for an unknown ceiling.
    """
    pair = [comparison.inputs[0], *comparison.inputs[1:][-1:]]
    columns = [column for column, _ in pair]
    untrusted = _outcome(columns[0]) is not Outcome.OK or any(_outcome(each) in UNUSABLE for each in columns)
    checked: list[tuple[Gate, list[_Remark]]] = []
    for gate in gates:
        _require(gate, comparison)
        metric = gate.metric.name
        needed = [] if gate.metric is RATIO else pair if gate.needs_baseline else pair[:1]
        lacking = [column.label for column, rows in needed if metric not in rows.metrics()]
        remarks = list(_untrusted(gate, columns))
        if lacking:
            why = f"there is no {metric} in {' and '.join(lacking)}"
            remarks.append(_Remark(breach=True, compared=False, text=f"{gate.text} compared nothing: {why}."))
        else:
            remarks += _Check(gate, comparison, strict=strict, ceiling=ceiling).remarks()
        checked.append((gate, remarks))
    results = tuple(_result(gate, remarks, untrusted=untrusted) for gate, remarks in checked)
    breaches = tuple(text for result in results for text in result.breaches)
    return Verdict(
        breaches=breaches,
        notes=tuple(text for result in results for text in result.notes),
        status=Exit.UNTRUSTED if gates and untrusted else Exit.BAD_ANSWER if breaches else Exit.FINE,
        passed=tuple(result.gate for result in results if result.state is GateState.PASSED),
        undecided=tuple(each.text for _, remarks in checked for each in remarks if each.undecided),
        results=results,
    )


def _result(gate: Gate, remarks: Sequence[_Remark], *, untrusted: bool) -> GateResult:
    breaches = tuple(each.text for each in remarks if each.breach)
    return GateResult(
        gate=gate.text,
        state=GateState.FAILED if breaches else GateState.UNTRUSTED if untrusted else GateState.PASSED,
        breaches=breaches,
        notes=tuple(each.text for each in remarks if each.text and not each.breach),
    )


def _require(gate: Gate, comparison: Comparison) -> None:
    if gate.needs_baseline and len(comparison.columns) == 1:
        raise RequestError(
            f"The gate {gate.text} {'is a ratio' if gate.metric is RATIO else 'has a tolerance'}, "
            "and there is no baseline to compare with.",
            hint="Specify a baseline as the last argument, or give a limit such as busbw@1G>=70GB/s.",
        )


def _untrusted(gate: Gate, columns: Sequence[Column]) -> Iterator[_Remark]:
    """Yield a remark for each column that is not ok: the first column is the one under test."""
    for number, column in enumerate(columns):
        if (outcome := _outcome(column)) is not Outcome.OK:
            reason = next((log.reason for log in column.logs if log.outcome is outcome), None)
            effect = ", and passes no gate" if number == 0 else ""
            yield _Remark(
                number == 0,
                compared=False,
                text=f"{gate.text}: {column.label} is {outcome}{effect}: {reason or 'no reason given'}",
            )


def _outcome(column: Column) -> Outcome:
    order = list(Outcome)
    return min((log.outcome for log in column.logs), key=order.index, default=Outcome.SKIPPED)


class _Compared(NamedTuple):
    """One size that both sides have."""

    row: ComparisonRow
    new: Figure
    base: Figure


class _Tested(NamedTuple):
    """One size at which both sides have repeats."""

    compared: _Compared
    pair: TwoSamples
    test: RowTest
    limit: float
    """The logarithm of the lowest ratio that is allowed."""


class _Check:
    """One gate, checked against a comparison."""

    def __init__(self, gate: Gate, comparison: Comparison, *, strict: bool, ceiling: Ceiling) -> None:
        self._gate = gate
        self._strict = strict
        self._ceiling = ceiling
        self._column = comparison.inputs[0][0]
        metric = None if gate.metric is RATIO else gate.metric.name
        self._sections = (
            sections_of(comparison.inputs, metric, comparison.allowed, level=comparison.level)
            if metric
            else comparison.sections
        )
        self._level = comparison.level / max(len(self._sections), 1)
        self._names = [_named(comparison.columns[index]) for index in (0, -1)]
        self._alone = len(comparison.columns) == 1

    def remarks(self) -> Iterator[_Remark]:
        """Yield the results."""
        remarks = [each for section in self._sections for each in self._section(section)]
        yield from remarks
        if not any(each.compared or each.breach for each in remarks):
            what = f"no {self._gate.metric.name} {self._gate.range} could be checked"
            yield _Remark(breach=True, compared=False, text=f"{self._gate.text} compared nothing: {what}.")

    def _section(self, section: ComparisonSection) -> Iterator[_Remark]:
        skipped: dict[str, list[int]] = {}
        compared: list[_Compared] = []
        for row in section.rows:
            if not self._gate.covers(row.size) or not section.shown[0]:
                continue
            new, base = row.figures[0], None if self._alone else row.figures[-1]
            if new is None:
                old = "" if base is None else section.scale.quantity(base.value)
                text = (
                    f"{self._at(section, row.size)} is missing from {self._names[0]}; the baseline has {old}."
                )
                if base is not None:
                    yield _Remark(breach=True, compared=False, text=text)
            elif not self._gate.needs_baseline:
                yield self._limit(section, row.size, new)
            elif base is None:
                skipped.setdefault("the baseline has no figure there", []).append(row.size)
            elif self._gate.metric is RATIO and row.ratios[0] is None:
                skipped.setdefault("there is no ratio", []).append(row.size)
            elif base.value == 0 and self._gate.relative:
                skipped.setdefault("the baseline has 0 there", []).append(row.size)
            else:
                compared.append(_Compared(row, new, base))
        yield from self._relative(section, compared)
        for why, sizes in skipped.items():
            text = f"{self._where(section)} was not compared at {format_sizes(sizes)}: {why}."
            yield _Remark(breach=False, compared=False, text=f"{self._gate.text}: {text}")

    def _where(self, section: ComparisonSection, at: str = "") -> str:
        where = "".join(f", {name} {value or 'unknown'}" for name, value in section.key.items())
        return f"{section.metric.name}{at}{where}"

    def _at(self, section: ComparisonSection, size: int) -> str:
        return f"{self._gate.text}: {self._where(section, f' at {format_size(size)}')}"

    def _relative(self, section: ComparisonSection, compared: Sequence[_Compared]) -> Iterator[_Remark]:
        """Yield the decisions of the statistics, or of the plain figures where one of them is exactly 0."""
        tested: dict[int, _Tested] = {}
        for each in compared:
            size, pair = each.row.size, pair_of(section, each.row, 0)
            if pair is not None and each.base.value > 0:
                test = each.row.tests[0] or compare_sizes({size: pair}, section.level)[size]
                tested[size] = _Tested(each, pair, test, self._lowest_ratio(section, each))
            else:
                yield self._plain(section, each)
        yield from self._statistics(section, tested)

    def _lowest_ratio(self, section: ComparisonSection, each: _Compared) -> float:
        """Return the logarithm of the lowest ratio that the gate allows; minus infinity: any."""
        if self._gate.metric is RATIO:
            return math.log(self._gate.bound) if self._gate.bound > 0 else -math.inf
        allowed = self._gate.bound if self._gate.relative else self._gate.bound / each.base.value
        if section.metric.lower_is_better:
            return -math.log1p(allowed)
        return math.log1p(-allowed) if allowed < 1 else -math.inf

    def _statistics(self, section: ComparisonSection, tested: Mapping[int, _Tested]) -> Iterator[_Remark]:
        finite = {size: each for size, each in tested.items() if each.limit > -math.inf}
        yield from (_Remark(breach=False, compared=True) for _ in tested)
        limits = {size: each.limit for size, each in finite.items()}
        loss = loss_test({size: each.pair for size, each in finite.items()}, limits, self._level)
        # A loss counts only where the table shows it too, so that the two do not contradict each other.
        breached = [
            size for size in loss.shown if limits[size] > 0 or finite[size].test.verdict is Difference.SLOWER
        ]
        for size in breached:
            yield self._breach(section, finite[size])
        unclear = [size for size in finite if size in {*loss.shown, *loss.possible} - {*breached}]
        if unclear:
            yield self._unclear(section, [finite[size] for size in unclear])

    def _breach(self, section: ComparisonSection, each: _Tested) -> _Remark:
        counts = " and ".join(str(len(side)) for side in (each.pair.new, each.pair.base))
        text = (
            f"{self._difference(section, each.compared)} ({_interval(section, each)}; {counts} executions)."
        )
        return _Remark(breach=True, compared=True, text=text)

    def _unclear(self, section: ComparisonSection, unclear: Sequence[_Tested]) -> _Remark:
        """Report which loss cannot be excluded, and how many repeats would decide."""
        worst = min(unclear, key=lambda each: each.test.low)
        sizes = format_sizes([each.compared.row.size for each in unclear])
        needed = [
            repeats_within(each.pair, abs(each.pair.difference - each.limit), self._level) for each in unclear
        ]
        repeats = repeats_needed(needed, once=any(each.test.once for each in unclear))
        figures = " and ".join(
            f"{section.scale.quantity(figure.value)} in {name}"
            for figure, name in zip((worst.compared.new, worst.compared.base), self._names, strict=True)
        )
        beyond = "a ratio below" if self._gate.metric is RATIO else "a loss of more than"
        text = (
            f"{self._gate.text}: {self._where(section)}: {beyond} {self._allowed(section)} is neither shown "
            f"nor excluded at {sizes}. "
            f"{_worse(section, worst.test.low)} at {format_size(worst.compared.row.size)} cannot be excluded "
            f"({figures}; {_interval(section, worst)}); {repeats} would decide."
        )
        return _Remark(breach=self._strict, compared=True, text=text, undecided=True)

    def _plain(self, section: ComparisonSection, each: _Compared) -> _Remark:
        row, new, base = each
        if self._gate.metric is RATIO:
            held = (row.ratios[0] or 0.0) >= self._gate.bound * (1 - 1e-9)
        else:
            loss = new.value - base.value if section.metric.lower_is_better else base.value - new.value
            held = loss <= self._gate.bound * (base.value if self._gate.relative else 1) * (1 + 1e-9)
        if held:
            return _Remark(breach=False, compared=True)
        return _Remark(breach=True, compared=True, text=f"{self._difference(section, each)}.")

    def _difference(self, section: ComparisonSection, each: _Compared) -> str:
        """Describe how a size compares, and what is allowed."""
        row, new, base = each
        figures = [section.scale.quantity(figure.value) for figure in (new, base)]
        is_, at = f"is {figures[0]} in {self._names[0]}", self._at(section, row.size)
        if self._gate.metric is RATIO:
            times = f"{format_decimal(row.ratios[0] or 0.0, 2)} times as good as {figures[1]}"
            return f"{at} {is_}, {times} in {self._names[1]}; expected at least {self._allowed(section)}"
        loss = new.value - base.value if section.metric.lower_is_better else base.value - new.value
        by = f"{format_decimal(100 * loss / base.value, 1)} %"
        if not self._gate.relative:
            by = section.scale.quantity(loss)
        worse = f"{by} worse than {figures[1]} in {self._names[1]}"
        return f"{at} {is_}, {worse}; {self._allowed(section)} is allowed"

    def _allowed(self, section: ComparisonSection) -> str:
        if self._gate.metric is RATIO:
            return f"{format_decimal(self._gate.bound, 2)} x"
        if self._gate.relative:
            return f"{format_decimal(100 * self._gate.bound, 2)} %"
        return section.scale.quantity(self._gate.bound)

    def _limit(self, section: ComparisonSection, size: int, new: Figure) -> _Remark:
        bound, share = self._gate.bound, ""
        if self._gate.needs_ceiling:
            ceiling = self._ceiling(self._column, section, size)
            if ceiling is None:
                raise RequestError(
                    f"The gate {self._gate.text} needs a ceiling, and none is known for "
                    f"{section.metric.name} at {format_size(size)} in {self._column.label}.",
                    hint="Pass --instance-type and --nodes, or the limit itself: busbw@1G>=70GB/s.",
                )
            share = f", {format_decimal(100 * bound, 2)} % of the ceiling"
            bound *= ceiling
        least = self._gate.kind is GateKind.AT_LEAST
        beyond = bound - new.value if least else new.value - bound
        if beyond <= 1e-9 * bound:
            return _Remark(breach=False, compared=True)
        return _Remark(
            breach=True,
            compared=True,
            text=f"{self._at(section, size)} is {section.scale.quantity(new.value)} in {self._names[0]}; "
            f"expected at {'least' if least else 'most'} {section.scale.quantity(bound)}{share}.",
        )


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
    if loss <= 0:
        return f"A ratio of {format_decimal(ratio, 2)}"
    return f"A loss of {format_decimal(100 * loss, 1)} %"
