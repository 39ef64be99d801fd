"""Gates: what must hold for a build to pass, read from text. Pure.

``METRIC[@SIZE[..SIZE]]`` and then ``:TOLERANCE`` (how much worse than the baseline, in % or a
unit), ``>=LIMIT`` or ``<=LIMIT`` (no baseline needed), where a limit may be ``80%ceiling``.
``ratio@1G>=10`` checks how many times better than the baseline. Sizes are 1024-based; rates are
1000-based, and GB/s is not Gb/s. `fabbench.analysis.gate` checks them against what was measured.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import cast

from fabbench.model.errors import RequestError
from fabbench.model.log import METRICS, Metric
from fabbench.model.patterns import lazy
from fabbench.model.units import RATE_UNITS, TIME_UNITS, Sizes, parse_quantity, parse_sizes
from fabbench.model.values import frozen

EXAMPLES = "busbw:5%, latency@64:20us, busbw@1M..1G:5%, ratio@1G>=10 or busbw@1G>=70GB/s"
RATIO = Metric("ratio", "times")
"""The metric of a gate on how many times better than the baseline a column is."""
CEILING = "%ceiling"
SLACK = 1.03
"""More than this factor above the ceiling is impossible; less is rounding of nominal rates."""
AT_LEAST = ">="
TOLERANCE = ":"
"""The kind of a gate on how much worse than the baseline a figure may be."""
_UNITS: Mapping[str, dict[str, float]] = {
    "B/s": RATE_UNITS,
    "s": TIME_UNITS,
    "1/s": {"1/s": 1.0, "K/s": 1e3, "M/s": 1e6},
    "count": {"": 1.0},
    RATIO.unit: {"": 1.0, "x": 1.0},
}
"""Unit of a metric → the units of a bound."""
_LIMITS = {"B/s": ">=10GB/s", "s": "<=20us", "1/s": ">=1M/s", "count": "<=0"}
"""Unit of a metric that benchmarks print → an example of a limit."""
_GATE = lazy(
    r"(?P<metric>\w*)\s*+(?:@(?P<sizes>[^:<>]*))?(?P<kind>:|>=|<=)?\s*+(?P<bound>(?:.*?\S)??)\s*+",
    re.DOTALL,
)


@frozen
class Gate:
    """One gate.

    `bound` is in the metric's base unit, or a fraction of the baseline or the ceiling.
    """

    text: str
    metric: Metric
    kind: str  # `TOLERANCE`, `AT_LEAST` or `<=`
    bound: float
    relative: bool  # Whether `bound` is such a fraction
    sizes: Sizes | None  # In bytes; None: any

    @property
    def is_ratio(self) -> bool:
        """Whether it is on how many times better than the baseline a column is."""
        return self.metric is RATIO

    @property
    def needs_baseline(self) -> bool:
        """Whether it compares with the baseline."""
        return self.kind == TOLERANCE or self.is_ratio

    @property
    def needs_ceiling(self) -> bool:
        """Whether its limit is a fraction of the ceiling."""
        return self.relative and self.kind != TOLERANCE

    def covers(self, size: int) -> bool:
        """Return whether a size is in the gate's range."""
        return self.sizes is None or size in self.sizes

    def lacks(self, measured: Collection[int]) -> str:
        """Return in words where it has none of some sizes: ``"at any size"``, ``"at 1 GB"``.

        Of each size or range that it lists; empty: nowhere.
        """
        if self.sizes is None:
            return "" if measured else "at any size"
        return self.sizes.without(measured)


class _Parser:
    """Parses one gate; what it raises states where parsing stopped."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.parts = cast("re.Match[str]", _GATE.fullmatch(text))  # It matches any text

    def metric(self) -> Metric:
        """Return the metric."""
        metric = {**METRICS, RATIO.name: RATIO}.get(self.parts["metric"])
        if metric is None:
            known = ", ".join(METRICS)
            raise self._misread("metric", f"expected a metric, one of {known}, {RATIO.name}")
        return metric

    def sizes(self) -> Sizes | None:
        """Return the sizes, in bytes; None: any."""
        text = self.parts["sizes"]
        try:
            return None if text is None else parse_sizes(text)
        except ValueError as error:
            raise self._misread("sizes", str(error)) from None

    def kind(self, metric: Metric) -> str:
        """Return ``:``, ``>=`` or ``<=``."""
        kind = self.parts["kind"]
        if not kind:
            raise self._misread("bound", "expected :TOLERANCE, >=LIMIT or <=LIMIT")
        if metric is RATIO and kind != AT_LEAST:
            expected = "ratio takes >= and how many times better, such as ratio@1G>=10"
            raise self._misread("kind", expected)
        return kind

    def share(self, kind: str) -> float:
        """Return a bound in percent, as a fraction of the baseline or the ceiling."""
        bound = self.parts["bound"]
        unit = "%" if kind == TOLERANCE else CEILING
        example = "percentage such as 5%" if kind == TOLERANCE else f"share such as 80{CEILING}"
        try:
            return parse_quantity(bound, {unit: 0.01})
        except ValueError:
            raise self._misread("bound", f"{bound!r} is not a {example}") from None

    def limit(self, metric: Metric, kind: str) -> float:
        """Return a bound in the metric's base unit."""
        units = _UNITS[metric.unit]
        try:
            return parse_quantity(self.parts["bound"], units)
        except ValueError:
            number = "a number"
            if all(units):  # the number needs one of them: "" is not among them
                known = ", ".join(units)
                number = f"a number with one of {known}"
            if kind == TOLERANCE:
                number = f"a percentage or {number}"
            raise self._misread("bound", f"{number} is expected for {metric.name}") from None

    def _misread(self, part: str, expected: str) -> RequestError:
        column = self.parts.start(part) + 1
        return RequestError(
            f"Invalid gate {self._text!r} at column {column}: {expected}.",
            hint=f"Write METRIC[@SIZE[..SIZE]] and :TOLERANCE, >=LIMIT or <=LIMIT: {EXAMPLES}.",
        )


def parse_gate(text: str) -> Gate:
    """Parse one gate.

    Raise RequestError that states where parsing stopped, and what is expected there.
    """
    parser = _Parser(text)
    metric = parser.metric()
    sizes = parser.sizes()
    kind = parser.kind(metric)
    share = "%" if kind == TOLERANCE else CEILING
    # The bound of a ratio is how many times better, and never a percentage.
    relative = metric is not RATIO and parser.parts["bound"].endswith(share)
    bound = parser.share(kind) if relative else parser.limit(metric, kind)
    return Gate(text=text, metric=metric, kind=kind, bound=bound, relative=relative, sizes=sizes)


def parse_gates(texts: Sequence[str], *, strict: bool = False) -> tuple[Gate, ...]:
    """Parse gates. Raise RequestError for an invalid one, and for `strict` without any."""
    if strict and not texts:
        raise RequestError(
            "--strict has no effect without --gate.", hint="Add a gate, or leave it out."
        )
    return tuple(map(parse_gate, texts))


def require_limits(gates: Sequence[Gate]) -> None:
    """Raise RequestError if a gate compares with a baseline, where there is none."""
    for gate in gates:
        if gate.needs_baseline:
            kind = "is a ratio" if gate.is_ratio else "has a tolerance"
            raise RequestError(
                f"The gate {gate.text} {kind}, and there is no baseline to compare with.",
                hint="fabbench compare takes one as its last argument; or give a limit such as "
                "busbw@1G>=70GB/s.",
            )


def limit_example(metric: str) -> str:
    """Return a gate with a limit on a metric, as an example."""
    limit = _LIMITS[METRICS[metric].unit]
    return f"{metric}{limit}"
