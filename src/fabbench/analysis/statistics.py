"""Executions of two configurations → what differs, and how sure that is. Pure.

The execution is the unit of replication: its sizes move together. Values are logarithms, larger is
better, so that a difference is the logarithm of a ratio. Two stages keep the chance of any false
difference in a table of equal configurations at 5 %. First one test asks whether the table differs
at all: most of the level goes to Läuter's standardized sum test, and the rest to Bonferroni's bound
over the sizes, for a difference at few of them. Only then do the 95 % intervals of single sizes
count. From five executions on a side, trimmed means stand beside the means, so that a slow
execution hides nothing. docs/honest-numbers.md explains the choice.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, TypeAlias

LEVEL = 0.05
"""The maximum chance of any false difference in a table of equal configurations."""
EQUIVALENT = 0.05
"""Two figures are the same when their ratio is shown to be within this distance of 1."""
NEGLIGIBLE = 0.01
"""A difference that is shown to be smaller than this does not count, however certain."""
MAX_REPEATS = 50
"""Where more repeats would be needed, the noise is the problem."""
_MARGIN = 0.8  # the fraction of the level that is used: the rest is for noise that is not normal
_SUM_SHARE = 0.8  # the fraction of that for the sum of all sizes

_ASSUMED_FREEDOM = (
    200  # the degrees of freedom of an assumed deviation: Student's t is then all but normal
)
_LEAST_TRIMMED = 5  # executions of each side
_TRIMMED = 0.2  # the fraction of executions at each end that the robust estimate leaves out
_EACH = 0.6  # the fraction of the level for each of two estimates, which mostly agree: simulated
_EXACT = 1e-9  # allowance for rounding errors in a logarithm

Values: TypeAlias = Mapping[int, float]
"""Execution → the logarithm of its figure at one size, negative for times: larger is better."""


class Difference(StrEnum):
    """How a configuration compares with the baseline."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNDECIDED = "undecided"
    MIXED = "mixed"
    """Faster at some sizes and slower at others: only for several sizes."""


class Estimate(NamedTuple):
    """A difference with its noise."""

    difference: float
    """The logarithm of a ratio."""
    deviation: float
    """Of single executions, including what rounding may hide."""
    error: float
    freedom: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoSamples:
    """The executions of two configurations at one size."""

    new: Values
    base: Values
    rounding: float = 0.0
    """Half of the printed step, as a fraction of the figure."""
    shown: float | None = None
    """The logarithm of the ratio that is shown; None: that of the medians."""
    assumed: float = math.inf
    """The standard deviation between executions, where a side has only one; infinite: not known."""

    @property
    def measured(self) -> bool:
        """Whether both sides have the two executions that an estimate of noise needs."""
        return min(len(self.new), len(self.base)) > 1

    @property
    def middle(self) -> float:
        """The logarithm of the ratio that is shown: that of the medians."""
        return (
            median(self.new.values()) - median(self.base.values())
            if self.shown is None
            else self.shown
        )

    @property
    def estimates(self) -> list[Estimate]:
        """The difference of the means and, where both sides have enough executions, of the trimmed means."""
        enough = min(len(self.new), len(self.base)) >= _LEAST_TRIMMED
        return [self._estimate(trimmed) for trimmed in ((0.0, _TRIMMED) if enough else (0.0,))]

    def _estimate(self, trimmed: float) -> Estimate:
        """Return the estimate without this fraction at each end (Yuen and Dixon).

        Rounding may hide some noise.
        """
        (new, new_noise, n), (base, base_noise, m) = (
            _trimmed(side, trimmed) for side in (self.new, self.base)
        )
        variance = (new_noise + base_noise) / max(n + m - 2, 1)
        freedom = n + m - 2
        if not self.measured:
            variance, freedom = max(variance, self.assumed**2), _ASSUMED_FREEDOM
        deviation = math.sqrt(variance + self.rounding**2)
        return Estimate(new - base, deviation, deviation * math.sqrt(1 / n + 1 / m), freedom)

    def least(self, level: float) -> float:
        """Return the lower bound of the difference, one-sided, at `level` over all estimates."""
        estimates = self.estimates
        each = level * (_EACH if len(estimates) > 1 else 1.0)
        return max(
            found.difference - t_quantile(each, found.freedom) * found.error for found in estimates
        )

    def exceeds(self, limit: float, level: float) -> bool:
        """Return whether the difference is shown to be larger than `limit`.

        One-sided, at `level`.
        """
        return self.least(level) > limit + _EXACT

    def mirrored(self, by: float = 0.0) -> "TwoSamples":
        """Return the same with `by` subtracted from the new side, and then the sides swapped."""
        return replace(
            self,
            new=self.base,
            base={run: value - by for run, value in self.new.items()},
            shown=None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTest:
    """What is known about the ratio at one size."""

    low: float
    """The interval of the ratio."""
    high: float
    verdict: Difference
    repeats: int | None = None
    """About how many repeats would decide; None: decided, more than `MAX_REPEATS`, or `once`."""
    once: bool = False
    """Whether a side was measured once, so that the noise is assumed."""


class LossTest(NamedTuple):
    """What is known about a loss beyond a tolerance, over several sizes together."""

    shown: tuple[int, ...] = ()
    possible: tuple[int, ...] = ()
    """Sizes at which it is neither shown nor excluded."""


def compare_sizes(pairs: Mapping[int, TwoSamples], level: float = LEVEL) -> Mapping[int, RowTest]:
    """Return what is known about each size that both sides have.

    With equal configurations, the chance that any size is faster or slower is at most `level`.
    """
    known = {size: pair for size, pair in pairs.items() if pair.new and pair.base}
    opposite = {size: pair.mirrored() for size, pair in known.items()}
    differs = any(any_above(side, _MARGIN * level / 2) for side in (known, opposite))
    return {size: _row(pair, level, differs=differs) for size, pair in known.items()}


def loss_test(
    pairs: Mapping[int, TwoSamples], limits: Mapping[int, float], level: float = LEVEL
) -> LossTest:
    """Return where the difference is shown to be below its limit, and where that cannot be excluded.

    If it is not below its limit anywhere, the chance that it is shown to be below is at most `level`.
    """
    lost = {
        size: pair.mirrored(limits[size]) for size, pair in pairs.items() if pair.new and pair.base
    }
    any_loss = any_above(lost, _MARGIN * level)
    shown = tuple(size for size, pair in lost.items() if any_loss and pair.exceeds(0.0, level))
    rest = (size for size in lost if size not in shown)
    return LossTest(
        shown,
        tuple(size for size in rest if not pairs[size].exceeds(limits[size] - 2 * _EXACT, level)),
    )


def any_above(pairs: Mapping[int, TwoSamples], level: float) -> bool:
    """Return whether the new side is shown to be larger at any size.

    One-sided, at `level` over all sizes.
    """
    if len(pairs) < 2:
        return any(pair.exceeds(0.0, level) for pair in pairs.values())
    total = standardized_sum(pairs)
    share = _SUM_SHARE if total else 0.0
    single = level * (1 - share) / len(pairs)
    summed = total is not None and total.exceeds(0.0, level * share)
    return summed or any(pair.exceeds(0.0, single) for pair in pairs.values())


def standardized_sum(pairs: Mapping[int, TwoSamples]) -> TwoSamples | None:
    """Return Läuter's standardized sum of the sizes that every execution has.

    None without such sizes.

    Each size is divided by its standard deviation over all executions of both sides: such weights
    leave the t-test of the sum exact. Where a side has one execution, each size is divided by its
    assumed deviation, and that of the sum is the largest possible: all sizes move together.
    """
    new = dict.fromkeys((run for pair in pairs.values() for run in pair.new), 0.0)
    base = dict.fromkeys((run for pair in pairs.values() for run in pair.base), 0.0)
    rounding, used, measured = 0.0, 0, min(len(new), len(base)) > 1
    for pair in pairs.values():
        if len(pair.new) < len(new) or len(pair.base) < len(base):
            continue
        everything = [*pair.new.values(), *pair.base.values()]
        middle, spread = mean(everything), pair.estimates[0].deviation
        if measured:
            spread = math.sqrt(squares(everything) / (len(everything) - 1) + pair.rounding**2)
        if spread == 0:
            continue
        used += 1
        rounding += (pair.rounding / spread) ** 2
        for total, side in ((new, pair.new), (base, pair.base)):
            for run, value in side.items():
                total[run] += (value - middle) / spread
    # The deviation of each size includes its rounding already, where it is assumed.
    rounding = math.sqrt(rounding) if measured else 0.0
    return TwoSamples(new=new, base=base, rounding=rounding, assumed=float(used)) if used else None


def _row(pair: TwoSamples, level: float, *, differs: bool) -> RowTest:
    middle, ends = pair.middle, (pair.least(level / 2), -pair.mirrored().least(level / 2))
    low, high = min(*ends, middle), max(*ends, middle)
    if not differs or abs(middle) <= 2 * pair.rounding * (1 + 1e-6):
        low, high = min(low, 0.0), max(high, 0.0)
    verdict = _verdict(low, high)
    undecided = verdict is Difference.UNDECIDED and pair.measured
    apart = abs(pair.estimates[-1].difference)
    margin = max(
        apart, math.log1p(EQUIVALENT) - apart
    )  # if the true ratio and noise are those measured
    repeats = repeats_within(pair, margin, level / 2) if undecided else None
    low, high = (math.exp(min(end, 700.0)) for end in (low, high))
    return RowTest(low=low, high=high, verdict=verdict, repeats=repeats, once=not pair.measured)


def _verdict(low: float, high: float) -> Difference:
    widest = max(-low, high)
    if widest <= math.log1p(NEGLIGIBLE):
        return Difference.SAME
    if low > 0:
        return Difference.FASTER
    if high < 0:
        return Difference.SLOWER
    return Difference.SAME if widest <= math.log1p(EQUIVALENT) else Difference.UNDECIDED


def overall(verdicts: Iterable[Difference]) -> Difference | None:
    """Return the verdict on several sizes.

    That of the sizes that differ, if they all differ alike.
    """
    found = set(verdicts)
    differing = found & {Difference.FASTER, Difference.SLOWER}
    if len(differing) > 1:
        return Difference.MIXED
    return next(
        iter(differing or (found if len(found) == 1 else {Difference.UNDECIDED} & found)), None
    )


def repeats_within(pair: TwoSamples, margin: float, level: float) -> int | None:
    """Return how many repeats narrow the one-sided bound to `margin`.

    None: more than `MAX_REPEATS`.
    """

    def enough(count: int) -> bool:
        return t_quantile(level, 2 * count - 2) * noise * math.sqrt(2 / count) < margin

    noise = min(found.error for found in pair.estimates) / math.sqrt(
        1 / len(pair.new) + 1 / len(pair.base)
    )

    counts = range(min(len(pair.new), len(pair.base)) + 1, MAX_REPEATS + 1)
    found = bisect_left(counts, True, key=enough) if margin > 0 else len(counts)  # noqa: FBT003 - the value to find
    return counts[found] if found < len(counts) else None


def _trimmed(side: Values, fraction: float) -> tuple[float, float, int]:
    """Return the mean without this fraction of values at each end, winsorized squares, and how many values remain."""
    cut, ordered = int(fraction * len(side)), sorted(side.values())
    kept = ordered[cut : len(ordered) - cut]
    return mean(kept), squares([kept[0]] * cut + kept + [kept[-1]] * cut), len(kept)


def mean(values: Collection[float]) -> float:
    """Return the arithmetic mean.

    Importing Python's module takes longer than a whole comparison.
    """
    return math.fsum(values) / len(values)


def squares(values: Collection[float]) -> float:
    """Return the sum of squared distances from the mean."""
    middle = mean(values)
    return sum((value - middle) ** 2 for value in values)


def median(values: Iterable[float]) -> float:
    """Return the middle value, or the mean of the two in the middle."""
    ordered = sorted(values)
    half, odd = divmod(len(ordered), 2)
    return ordered[half] if odd else (ordered[half - 1] + ordered[half]) / 2


@lru_cache(maxsize=4096)
def t_quantile(tail: float, freedom: int) -> float:
    """Return the value that Student's t exceeds with the chance `tail`, which is below one half."""
    return falls_to(lambda value: t_tail(value, freedom), tail)


def falls_to(function: Callable[[float], float], value: float, precision: float = 1e-12) -> float:
    """Return where a function that falls from 0 on reaches a value."""
    low, high = 0.0, 2.0
    while function(high) > value:
        low, high = high, 2 * high
    while high - low > precision * high:
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) > value else (low, middle)
    return high


def t_tail(value: float, freedom: int) -> float:
    """Return the chance that Student's t exceeds a positive value.

    Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    angle, odd = math.atan(value / math.sqrt(freedom)), freedom % 2
    sine, square = math.sin(angle), math.cos(angle) ** 2
    term, total = math.cos(angle) if odd else 1.0, 0.0
    for step in range(2 + odd, freedom + 1, 2):
        total += term
        term *= square * (step - 1) / step
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return max((1 - inside) / 2, 0.0)
