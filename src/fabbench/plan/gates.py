"""Gates: what must hold for a build to pass, read from text. Pure.

``METRIC[@SIZE[..SIZE]]`` and then ``:TOLERANCE`` (how much worse than the baseline, in % or a
unit), ``>=LIMIT`` or ``<=LIMIT`` (no baseline needed), where a limit may be ``80%ceiling``.
``ratio@1G>=10`` checks how many times better than the baseline. Sizes are 1024-based; rates are
1000-based, and GB/s is not Gb/s. `fabbench.analysis.gate` checks them against what was measured.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from fabbench.model.errors import RequestError
from fabbench.model.log import METRICS, Metric
from fabbench.model.patterns import lazy
from fabbench.model.units import RATE_UNITS, TIME_UNITS, format_size, parse_quantity, parse_sizes

EXAMPLES = "busbw:5%, latency@64:20us, busbw@1M..1G:5%, ratio@1G>=10 or busbw@1G>=70GB/s"
RATIO = Metric(
    "ratio", "times"
)  # The metric of a gate on how many times better than the baseline a column is
CEILING = "%ceiling"
AT_LEAST = ">="
_UNITS: Mapping[str, tuple[dict[str, float], str]] = {
    "B/s": (RATE_UNITS, ">=10GB/s"),
    "s": (TIME_UNITS, "<=20us"),
    "1/s": ({"1/s": 1.0, "K/s": 1e3, "M/s": 1e6}, ">=1M/s"),
    "count": ({"": 1.0}, "<=0"),
    "times": ({"": 1.0, "x": 1.0}, ">=10"),
}
"""Unit of a metric → the units of a bound, and an example."""
_GATE = lazy(
    r"(?P<metric>\w*)\s*(?:@(?P<sizes>[^:<>]*))?(?P<kind>:|>=|<=)?\s*(?P<bound>.*?)\s*", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One gate.

    `bound` is in the metric's base unit, or a fraction of the baseline or the ceiling.
    """

    text: str
    metric: Metric
    kind: str  # `:` (a tolerance), `>=` or `<=`
    bound: float
    relative: bool = False
    sizes: range | None = None  # In bytes; None: any

    @property
    def needs_baseline(self) -> bool:
        """Whether it compares with the baseline."""
        return self.kind == ":" or self.metric is RATIO

    @property
    def needs_ceiling(self) -> bool:
        """Whether its limit is a fraction of the ceiling."""
        return self.relative and self.kind != ":"

    def covers(self, size: int) -> bool:
        """Return whether a size is in the gate's range."""
        return self.sizes is None or size in self.sizes

    @property
    def where(self) -> str:
        """The range in words: ``"at any size"``, ``"at 1 GB"``, ``"from 1 MB to 1 GB"``."""
        ends = dict.fromkeys(
            map(format_size, (self.sizes[0], self.sizes[-1]) if self.sizes else ())
        )
        return f"{'from' if len(ends) > 1 else 'at'} {' to '.join(ends) or 'any size'}"


def parse_gate(text: str) -> Gate:
    """Parse one gate.

    Raise RequestError that states where parsing stopped, and what is expected there.
    """
    parts = cast("re.Match[str]", _GATE.fullmatch(text))  # It matches any text

    def misread(part: str, expected: str) -> RequestError:
        return RequestError(
            f"Invalid gate {text!r} at column {parts.start(part) + 1}: {expected}.",
            hint=f"Write METRIC[@SIZE[..SIZE]] and :TOLERANCE, >=LIMIT or <=LIMIT: {EXAMPLES}.",
        )

    metric = {**METRICS, RATIO.name: RATIO}.get(parts["metric"])
    if metric is None:
        raise misread("metric", f"expected a metric, one of {', '.join(METRICS)}, {RATIO.name}")
    try:
        sizes = None if parts["sizes"] is None else parse_sizes(parts["sizes"])
    except ValueError as error:
        raise misread("sizes", str(error)) from None
    kind, bound = parts["kind"], parts["bound"]
    if not kind:
        raise misread("bound", "expected :TOLERANCE, >=LIMIT or <=LIMIT")
    if metric is RATIO and kind != AT_LEAST:
        raise misread("kind", "ratio takes >= and how many times better, such as ratio@1G>=10")
    share, example = (
        ("%", "percentage such as 5%") if kind == ":" else (CEILING, f"share such as 80{CEILING}")
    )
    relative = bound.endswith(share) and metric is not RATIO
    units = {share: 0.01} if relative else _UNITS[metric.unit][0]
    try:
        limit = parse_quantity(bound, units)
    except ValueError:
        number = f"a number with one of {', '.join(units)}" if all(units) else "a number"
        either = (
            f"{'a percentage or ' if kind == ':' else ''}{number} is expected for {metric.name}"
        )
        raise misread("bound", f"{bound!r} is not a {example}" if relative else either) from None
    return Gate(text=text, metric=metric, kind=kind, bound=limit, relative=relative, sizes=sizes)


def parse_gates(texts: Sequence[str], *, strict: bool = False) -> tuple[Gate, ...]:
    """Parse gates. Raise RequestError for an invalid one, and for `strict` without any."""
    if strict and not texts:
        raise RequestError(
            "--strict has no effect without --gate.", hint="Add a gate, or leave it out."
        )
    return tuple(map(parse_gate, texts))


def limit_example(metric: str) -> str:
    """Return a gate with a limit on a metric, as an example."""
    return f"{metric}{_UNITS[METRICS[metric].unit][1]}"
