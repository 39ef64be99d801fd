"""Gates: what must hold for a build to pass, read from text and checked against columns. Pure.

``METRIC[@SIZE[..SIZE]]`` and then ``:TOLERANCE`` (worse than the base by more, in % or a unit), ``>=LIMIT``
or ``<=LIMIT`` (no base needed). Sizes are 1024-based; rates are 1000-based, and GB/s is not Gb/s.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from fabbench.compare import Comparison, Section, compare
from fabbench.errors import Exit, RequestError
from fabbench.model import METRICS, Metric, Outcome
from fabbench.pool import UNUSABLE, Column, Figure, read
from fabbench.standout import within_step
from fabbench.units import (
    RATE_UNITS,
    TIME_UNITS,
    Scale,
    format_decimal,
    format_size,
    format_sizes,
    parse_quantity,
    parse_size,
)

EXAMPLES = "busbw:5%, latency@64:20us, busbw@1M..1G:5% or busbw@1G>=70GB/s"
_UNITS: Mapping[str, dict[str, float]] = {
    "B/s": RATE_UNITS,
    "s": TIME_UNITS,
    "1/s": {"1/s": 1.0, "K/s": 1e3, "M/s": 1e6},
    "count": {"": 1.0},
}


class Kind(StrEnum):
    """How a gate decides."""

    TOLERANCE = ":"
    AT_LEAST = ">="
    AT_MOST = "<="


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One gate. `bound` is in the metric's base unit, or a part of the base's figure if `relative`."""

    text: str
    metric: Metric
    kind: Kind
    bound: float
    relative: bool = False
    low: int | None = None
    """Smallest size in bytes; None: any."""
    high: int | None = None
    """Largest size in bytes; None: any."""

    def covers(self, size: int) -> bool:
        """Whether a size is in the gate's range."""
        return (self.low is None or size >= self.low) and (self.high is None or size <= self.high)

    @property
    def range(self) -> str:
        """The range in words: ``"at any size"``, ``"at 1 GB"``, ``"from 1 MB to 1 GB"``."""
        if self.low is None or self.high is None:
            return "at any size"
        if self.low == self.high:
            return f"at {format_size(self.low)}"
        return f"from {format_size(self.low)} to {format_size(self.high)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the gates found, as sentences."""

    breaches: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    status: Exit = Exit.FINE


# ---------------------------------------------------------------- reading


def parse_gate(text: str) -> Gate:
    """Read one gate. Raises RequestError that says where it stops making sense, and what belongs there."""
    name = re.match(r"(\w*)\s*", text)
    metric = METRICS.get(name[1] if name else "")
    if name is None or metric is None:
        raise _misread(text, 0, f"a metric is expected, one of {', '.join(METRICS)}")
    position = name.end()
    low = high = None
    if text.startswith("@", position):
        found = re.compile(r"[^:<>]*").match(text, position + 1)
        sizes = found[0] if found else ""
        low, high = _read_sizes(text, position + 1, sizes)
        position += 1 + len(sizes)
    kind = next((kind for kind in Kind if text.startswith(kind, position)), None)
    if kind is None:
        raise _misread(text, position, "one of :TOLERANCE, >=LIMIT, <=LIMIT is expected")
    position += len(kind)
    bound, relative = _read_bound(text, position, metric, kind)
    return Gate(text=text, metric=metric, kind=kind, bound=bound, relative=relative, low=low, high=high)


def _misread(text: str, position: int, wanted: str) -> RequestError:
    rest = f" before {text[position:]!r}" if position < len(text) else ", at its end"
    return RequestError(
        f"The gate {text!r} makes no sense at character {position + 1}{rest}: {wanted}.",
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


def _read_bound(text: str, position: int, metric: Metric, kind: Kind) -> tuple[float, bool]:
    bound = text[position:].strip()
    if kind is Kind.TOLERANCE and bound.endswith("%"):
        try:
            return parse_quantity(bound, {"%": 0.01}), True
        except ValueError:
            raise _misread(text, position, f"{bound!r} is not a percentage such as 5%") from None
    units = _UNITS[metric.unit]
    try:
        return parse_quantity(bound, units), False
    except ValueError:
        named = ", ".join(unit for unit in units if unit)
        percent = "a percentage or " if kind is Kind.TOLERANCE else ""
        wanted = f"{percent}a number{f' with one of {named}' if named else ''} is expected for {metric.name}"
        raise _misread(text, position, wanted) from None


# ---------------------------------------------------------------- checking


class _Said(NamedTuple):
    """What came of one row, or of a whole gate."""

    breach: bool
    compared: bool
    text: str = ""


def check(
    gates: Sequence[Gate],
    new: Column,
    base: Column | None,
    *,
    placement: str = "out-of-place",
    allow: Collection[str] = (),
) -> Verdict:
    """Check every gate; each breach is a sentence with its figures.

    A gate that compared nothing is breached, and so is one inside whose range a size of the base vanished.
    A column that is not ok passes no gate, and the status is then that it cannot be trusted. A change within
    one step of what the benchmark prints is a note. Raises RequestError for a tolerance without a base, and
    for columns that cannot be compared.
    """
    said: list[_Said] = []
    for gate in gates:
        if gate.kind is Kind.TOLERANCE and base is None:
            raise RequestError(
                f"The gate {gate.text} has a tolerance, and there is no base to compare with.",
                hint="Name a base as the last argument, or give a limit such as busbw@1G>=70GB/s.",
            )
        said += _gate(gate, new, base, placement, allow)
    untrusted = _outcome(new) is not Outcome.OK or (base is not None and _outcome(base) in UNUSABLE)
    breaches = tuple(each.text for each in said if each.breach)
    status = Exit.UNTRUSTED if gates and untrusted else Exit.BAD_ANSWER if breaches else Exit.FINE
    notes = tuple(each.text for each in said if each.text and not each.breach)
    return Verdict(breaches=breaches, notes=notes, status=status)


def _gate(
    gate: Gate, new: Column, base: Column | None, placement: str, allow: Collection[str]
) -> Iterator[_Said]:
    columns = [new] if base is None else [new, base]
    for column in columns:
        if (outcome := _outcome(column)) is not Outcome.OK:
            reason = next((log.reason for log in column.logs if log.outcome is outcome), None)
            effect = ", and passes no gate" if column is new else ""
            yield _Said(
                column is new,
                compared=False,
                text=f"{gate.text}: {column.label} is {outcome}{effect}: {reason or 'no reason given'}",
            )
    needed = columns if gate.kind is Kind.TOLERANCE else [new]
    lacking = [
        column.label
        for column in needed
        if gate.metric.name not in read(column, placement=placement).metrics()
    ]
    if lacking:
        why = f"there is no {gate.metric.name} in {' and '.join(lacking)}"
        yield _Said(breach=True, compared=False, text=f"{gate.text} compared nothing: {why}.")
        return
    comparison = compare(columns, metric=gate.metric.name, placement=placement, allow=allow)
    rows = [each for section in comparison.sections for each in _rows(gate, comparison, section)]
    yield from rows
    if not any(each.compared or each.breach for each in rows):
        yield _Said(
            breach=True,
            compared=False,
            text=f"{gate.text} compared nothing: no {gate.metric.name} {gate.range} could be checked.",
        )


def _outcome(column: Column) -> Outcome:
    order = list(Outcome)
    return min((log.outcome for log in column.logs), key=order.index, default=Outcome.SKIPPED)


def _rows(gate: Gate, comparison: Comparison, section: Section) -> Iterator[_Said]:
    where = "".join(f", {name} {value or 'unknown'}" for name, value in section.key.items())
    skipped: dict[str, list[int]] = {}
    for row in section.rows:
        if not gate.covers(row.size) or not section.shown[0]:
            continue
        at = f"{gate.text}: {gate.metric.name} at {format_size(row.size)}{where}"
        new = row.figures[0]
        base = row.figures[1] if len(row.figures) > 1 else None
        if new is None:
            had = section.scale.quantity(base.value) if base else "nothing"
            told = f"{at} has vanished: {comparison.columns[0].label} has none, and {had} is in the base."
            yield _Said(breach=True, compared=False, text=told)
        elif gate.kind is not Kind.TOLERANCE:
            yield _limit(gate, comparison, section.scale, at, new)
        elif base is None:
            skipped.setdefault("the base has no figure there", []).append(row.size)
        elif base.value == 0 and gate.relative:
            skipped.setdefault("the base has 0 there", []).append(row.size)
        else:
            yield _tolerance(gate, comparison, section.scale, at, new, base)
    for why, sizes in skipped.items():
        told = f"{gate.text}: {gate.metric.name}{where} was not compared at {format_sizes(sizes)}: {why}."
        yield _Said(breach=False, compared=False, text=told)


def _tolerance(  # noqa: PLR0913, PLR0917 - what is said of one row
    gate: Gate, comparison: Comparison, written: Scale, at: str, new: Figure, base: Figure
) -> _Said:
    loss = new.value - base.value if gate.metric.lower_is_better else base.value - new.value
    if loss <= gate.bound * (base.value if gate.relative else 1) * (1 + 1e-9):
        return _Said(breach=False, compared=True)
    by, allowed = (
        (f"{format_decimal(100 * loss / base.value, 1)} %", f"{format_decimal(100 * gate.bound, 2)} %")
        if gate.relative
        else (written.quantity(loss), written.quantity(gate.bound))
    )
    labels = [column.label for column in comparison.columns]
    told = (
        f"{at} is {written.quantity(new.value)} in {labels[0]}, "
        f"{by} worse than {written.quantity(base.value)} in {labels[-1]}"
    )
    if within_step(new, base):
        step = written.quantity(max(new.step, base.step))
        return _Said(
            breach=False, compared=True, text=f"{told}, but within the printed step of {step}: no breach."
        )
    return _Said(breach=True, compared=True, text=f"{told}; {allowed} is allowed.")


def _limit(gate: Gate, comparison: Comparison, written: Scale, at: str, new: Figure) -> _Said:
    least = gate.kind is Kind.AT_LEAST
    beyond = gate.bound - new.value if least else new.value - gate.bound
    if beyond <= 1e-9 * gate.bound:
        return _Said(breach=False, compared=True)
    return _Said(
        breach=True,
        compared=True,
        text=f"{at} is {written.quantity(new.value)} in {comparison.columns[0].label}; "
        f"at {'least' if least else 'most'} {written.quantity(gate.bound)} is wanted.",
    )
