"""Gates: what must hold for a build to pass, read from text and checked against a request. Pure.

``METRIC[@SIZE[..SIZE]]`` and then ``:TOLERANCE`` (how much worse than the baseline, in % or a unit),
``>=LIMIT`` or ``<=LIMIT`` (no baseline needed), where a limit may be ``80%ceiling``. ``ratio@1G>=10``
checks how many times better than the baseline. Sizes are 1024-based; rates are 1000-based, and GB/s is not
Gb/s. `fabbench.analysis.gate` checks them against what was measured.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from fabbench.benchmarks import benchmark_named
from fabbench.model.errors import RequestError
from fabbench.model.log import METRICS, Metric
from fabbench.model.units import (
    RATE_UNITS,
    TIME_UNITS,
    format_size,
    format_sizes,
    parse_quantity,
    parse_size,
)

if TYPE_CHECKING:
    from fabbench.model.hosts import Host
    from fabbench.model.plan import Configuration
    from fabbench.plan.request import RunRequest

EXAMPLES = "busbw:5%, latency@64:20us, busbw@1M..1G:5%, ratio@1G>=10 or busbw@1G>=70GB/s"
RATIO = Metric("ratio", "times")
"""The metric of a gate on how many times better than the baseline a column is."""
CEILING = "%ceiling"
_LIMITS: Mapping[str, str] = {"B/s": ">=10GB/s", "s": "<=20us", "1/s": ">=1M/s", "count": "<=0"}
"""Unit of a metric → the limit in an example."""

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


# ---------------------------------------------------------------- against a request


def limit_example(metric: str) -> str:
    """Return a gate with a limit on a metric, as an example."""
    return f"{metric}{_LIMITS[METRICS[metric].unit]}"


def require_measurable(request: "RunRequest", hosts: "Sequence[Host]" = ()) -> tuple[Gate, ...]:
    """Return the gates of a request. Raise RequestError for one, or a metric, that it will not measure.

    Only what is certain is refused. Without hosts, sizes that depend on them are not known.
    """
    benchmark = benchmark_named(request.benchmark)
    measured = benchmark.printed_metrics(request.work)
    gates = parse_gates(request.gates, strict=request.strict)
    sizes = [size for size in benchmark.printed_sizes(request.work, hosts) if size] if gates else ()
    cases = ", ".join(filter(None, benchmark.cases(request.work)))
    name = f"{request.benchmark} ({cases})" if cases else request.benchmark
    metrics = f"{name} measures {', '.join(measured)}."
    if request.metric is not None and request.metric not in measured:
        raise RequestError(f"{request.metric} is not measured: {metrics}", hint="Choose one of these.")
    for gate in gates:
        nothing = f"The gate {gate.text} would compare nothing:"
        if gate.metric is not RATIO and gate.metric.name not in measured:
            raise RequestError(f"{nothing} {metrics}", hint="Choose one of these metrics.")
        if sizes and not any(map(gate.covers, sizes)):
            raise RequestError(
                f"{nothing} {name} measures {format_sizes(sizes)}.",
                hint=f"Choose one of these sizes, or measure others: fabbench run {request.benchmark} -h",
            )
    return gates


def require_comparable(
    request: "RunRequest", gates: Sequence[Gate], configurations: "Sequence[Configuration]", hosts: int
) -> None:
    """Raise RequestError for gates, or repeats until they are decided, that lack what to compare with."""
    limited = next((gate.text for gate in gates if gate.needs_ceiling), "")
    if limited and hosts == 1:
        raise RequestError(
            f"The gate {limited} needs a ceiling, and none is known within one node.",
            hint="Use two nodes or more, or give the limit itself, such as busbw@1G>=300GB/s.",
        )
    if len(configurations) > 1 or request.baseline is not None:
        return
    if request.adaptive is not None:
        raise RequestError(
            "--repeat auto needs something to decide, and there is nothing to compare with.",
            hint="Add --baseline or a second configuration, or give a number of repeats.",
        )
    relative = next((gate for gate in gates if gate.needs_baseline), None)
    if relative is not None:
        limit = limit_example(benchmark_named(request.benchmark).printed_metrics(request.work)[0])
        raise RequestError(
            f"The gate {relative.text} needs a baseline, and there is nothing to compare with.",
            hint=f"Add --baseline or a second configuration, or give a limit such as {limit}.",
        )
