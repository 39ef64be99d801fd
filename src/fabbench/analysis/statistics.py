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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache, partial
from itertools import chain
from operator import mul
from statistics import fmean, median
from typing import NamedTuple, TypeAlias

from fabbench.model.mappings import map_values
from fabbench.model.values import frozen

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
_PLATEAU_SHARE = 0.3  # and for the plateau, taken from that of the sum, where there is one

_ASSUMED_FREEDOM = 200
"""The degrees of freedom of an assumed deviation: Student's t is then all but normal."""
_LEAST_TRIMMED = 5  # executions of each side
_TRIMMED = 0.2  # the fraction of executions at each end that the robust estimate leaves out
_EACH = 0.6  # the fraction of the level for each of two estimates, which mostly agree: simulated
_EXACT = 1e-9  # allowance for rounding errors in a logarithm
_LARGEST_LOGARITHM = 700.0  # of a number that a float can hold

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
    error: float  # The standard error of the difference
    freedom: int  # Degrees of freedom of the deviation

    def least(self, level: float) -> float:
        """Return the lower bound of the difference, one-sided, at `level`."""
        return self.difference - t_quantile(level, self.freedom) * self.error


@frozen
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
    def fewest(self) -> int:
        """The number of executions of the side that has fewer."""
        return min(len(self.new), len(self.base))

    @property
    def measured(self) -> bool:
        """Whether both sides have the two executions that an estimate of noise needs."""
        return self.fewest > 1

    @property
    def middle(self) -> float:
        """The logarithm of the ratio that is shown: that of the medians."""
        if self.shown is not None:
            return self.shown
        return median(self.new.values()) - median(self.base.values())

    @property
    def may_be_rounding(self) -> bool:
        """Whether the difference may be one of last digits alone: repeats do not average it out."""
        return abs(self.middle) <= 2 * self.rounding * (1 + 1e-6)

    @property
    def everything(self) -> list[float]:
        """The figures of both sides."""
        return [*self.new.values(), *self.base.values()]

    @property
    def spread(self) -> float:
        """The standard deviation of all executions, as if both sides were one."""
        everything = self.everything
        variance = squares(everything) / (len(everything) - 1)
        return math.sqrt(variance + self.rounding**2)

    @property
    def estimates(self) -> list[Estimate]:
        """The difference of the means; with enough executions also that of the trimmed means."""
        estimates = [self._estimate(trimmed=0.0)]
        if self.fewest >= _LEAST_TRIMMED:
            estimates.append(self._estimate(_TRIMMED))
        return estimates

    def _estimate(self, trimmed: float) -> Estimate:
        """Return the estimate without this fraction at each end (Yuen and Dixon).

        Rounding may hide some noise.
        """
        new = _trimmed(self.new, trimmed)
        base = _trimmed(self.base, trimmed)
        freedom = new.kept + base.kept - 2
        variance = (new.squares + base.squares) / max(freedom, 1)
        if not self.measured:  # one execution on a side shows no noise of its own
            variance = max(variance, self.assumed**2)
            freedom = _ASSUMED_FREEDOM
        deviation = math.sqrt(variance + self.rounding**2)
        error = deviation * _error_factor(new.kept, base.kept)
        return Estimate(new.mean - base.mean, deviation, error, freedom)

    def least(self, level: float) -> float:
        """Return the lower bound of the difference, one-sided, at `level` over all estimates.

        The best bound of any estimate counts, so that each has a part of the level.
        """
        estimates = self.estimates
        if len(estimates) > 1:
            level *= _EACH
        return max(estimate.least(level) for estimate in estimates)

    def exceeds(self, limit: float, level: float) -> bool:
        """Return whether the difference is shown to be larger than `limit`.

        One-sided, at `level`.
        """
        return self.least(level) > limit + _EXACT  # rounding errors show nothing

    def mirrored(self, by: float = 0.0) -> "TwoSamples":
        """Return the same with `by` subtracted from the new side, and then the sides swapped.

        Its difference is positive where the new side does not reach `by` over the base.
        """
        return replace(
            self,
            new=self.base,
            base={run: value - by for run, value in self.new.items()},
            shown=None,
        )


Pairs: TypeAlias = Mapping[int, TwoSamples]
"""Size → the executions of both sides."""


@frozen
class RowTest:
    """What is known about the ratio at one size."""

    low: float
    """The interval of the ratio."""
    high: float
    verdict: Difference
    repeats: int | None
    """About how many repeats would decide; None: decided, more than `MAX_REPEATS`, or `once`."""
    once: bool
    """Whether a side was measured once, so that the noise is assumed."""


class LossTest(NamedTuple):
    """What is known about a loss beyond a tolerance, over several sizes together."""

    shown: tuple[int, ...] = ()
    possible: tuple[int, ...] = ()
    """Sizes at which it is neither shown nor excluded."""


class TableTest(NamedTuple):
    """What is known about each size of a table, and about its plateau as a whole."""

    sizes: Mapping[int, RowTest]
    plateau: RowTest | None
    ratio: float | None
    """The ratio at the plateau."""


def compare_sizes(pairs: Pairs, level: float = LEVEL) -> Mapping[int, RowTest]:
    """Return what is known about each size that both sides have.

    With equal configurations, the chance that any size is faster or slower is at most `level`.
    """
    return compare_table(pairs, plateau=(), level=level).sizes


def compare_table(pairs: Pairs, plateau: Collection[int], level: float = LEVEL) -> TableTest:
    """Return what is known about each size, as `compare_sizes`, and about some sizes together.

    `plateau`: the sizes that are tested together, too. The chance of `level` is that of a false
    difference at any size or at the plateau.
    """
    complete = _on_both_sides(pairs)
    together = pooled([complete[size] for size in plateau if size in complete])
    opposite = {size: pair.mirrored() for size, pair in complete.items()}
    mirrored = together.mirrored() if together else None
    # First whether the table differs at all, either way; only then do single sizes claim anything.
    one_sided = _MARGIN * level / 2  # of each way; a margin is left for noise that is not normal
    differs = any_above(complete, one_sided, together) or any_above(opposite, one_sided, mirrored)
    test = partial(_row_test, level=level, differs=differs)
    sizes = map_values(test, complete)
    if together is None:
        return TableTest(sizes, plateau=None, ratio=None)
    return TableTest(sizes, test(together), _ratio(together.middle))


def pooled(pairs: Sequence[TwoSamples]) -> TwoSamples | None:
    """Return the mean over several sizes, of each execution that has them all.

    None if a side has no such execution, or one whose noise is not known. The sizes of an
    execution move together, so that neither their rounding nor an assumed deviation becomes
    smaller.
    """
    if not pairs:
        return None
    new = _means([pair.new for pair in pairs])
    base = _means([pair.base for pair in pairs])
    assumed = [pair.assumed for pair in pairs if pair.assumed < math.inf]  # inf: not known
    together = TwoSamples(
        new=new,
        base=base,
        rounding=fmean([pair.rounding for pair in pairs]),
        assumed=fmean(assumed) if assumed else math.inf,
    )
    has_noise = together.measured or bool(assumed)
    return together if together.fewest and has_noise else None


def _means(sides: Sequence[Values]) -> Values:
    """Return the mean of each execution that has every size."""
    first, *others = sides
    means: dict[int, float] = {}
    for run in first:
        if all(run in side for side in others):
            means[run] = fmean([side[run] for side in sides])
    return means


def loss_test(pairs: Pairs, limits: Mapping[int, float], level: float = LEVEL) -> LossTest:
    """Return where a difference below its limit is shown, and where it cannot be excluded.

    `limits`: size → the logarithm of the lowest ratio that is allowed. If no difference is below
    its limit, the chance that one is shown to be is at most `level`.
    """
    known = _on_both_sides(pairs)
    # Positive where the new side is below its limit
    lost = {size: known[size].mirrored(limits[size]) for size in known}
    shown: list[int] = []
    if any_above(lost, _MARGIN * level):
        beyond = (size for size, pair in lost.items() if not pair.may_be_rounding)
        shown += (size for size in beyond if lost[size].exceeds(0.0, level=level))

    def excluded(size: int) -> bool:
        pair = known[size]
        limit = limits[size] - 2 * _EXACT  # `exceeds` adds one: rounding errors are no loss
        if pair.middle < limit and not pair.may_be_rounding:
            return False  # the ratio that is shown is a loss itself
        return pair.exceeds(limit, level)

    rest = (size for size in known if size not in shown)
    possible = tuple(size for size in rest if not excluded(size))
    return LossTest(tuple(shown), possible)


def _on_both_sides(pairs: Pairs) -> Pairs:
    return {size: pair for size, pair in pairs.items() if pair.fewest}


def any_above(pairs: Pairs, level: float, plateau: TwoSamples | None = None) -> bool:
    """Return whether the new side is shown to be larger at any size, or at the plateau.

    One-sided, at `level` over all of them: the sum of sizes, the plateau, and single sizes each
    have a part of it. Without a sum, which needs executions with all sizes, single sizes have all.
    """
    if len(pairs) < 2:
        return any(pair.exceeds(0.0, level=level) for pair in pairs.values())
    total = standardized_sum(pairs)
    share = _SUM_SHARE if total else 0.0
    single = level * (1 - share) / len(pairs)
    if total is not None and plateau is not None:
        share -= _PLATEAU_SHARE
        if plateau.exceeds(limit=0.0, level=level * _PLATEAU_SHARE):
            return True
    if total is not None and total.exceeds(limit=0.0, level=level * share):
        return True
    return any(pair.exceeds(0.0, level=single) for pair in pairs.values())


def standardized_sum(pairs: Pairs) -> TwoSamples | None:
    """Return Läuter's standardized sum of the sizes that every execution has.

    None without such sizes.

    Each size is divided by its standard deviation over all executions of both sides: such weights
    leave the t-test of the sum exact. Where a side has one execution, each size is divided by its
    assumed deviation, and that of the sum is the largest possible: all sizes move together.
    """
    new = _zeros(pair.new for pair in pairs.values())
    base = _zeros(pair.base for pair in pairs.values())
    measured = min(len(new), len(base)) > 1
    squared_rounding = 0.0
    used = 0
    for pair in pairs.values():
        if len(pair.everything) < len(new) + len(base):  # an execution lacks this size
            continue
        spread = pair.spread if measured else pair.estimates[0].deviation
        if spread == 0:  # all figures are the same
            continue
        used += 1
        squared_rounding += (pair.rounding / spread) ** 2
        middle = fmean(pair.everything)
        _add_scores(new, pair.new, middle, spread)
        _add_scores(base, pair.base, middle, spread)
    if not used:
        return None
    # Where the deviation of a size is assumed, it includes rounding, and is 1 after the division:
    # that of sizes that all move together is their number.
    rounding = math.sqrt(squared_rounding) if measured else 0.0
    return TwoSamples(new=new, base=base, rounding=rounding, assumed=float(used))


def _zeros(sides: Iterable[Values]) -> dict[int, float]:
    """Return a 0 for each execution of any size."""
    return dict.fromkeys(chain.from_iterable(sides), 0.0)


def _add_scores(totals: dict[int, float], side: Values, middle: float, spread: float) -> None:
    for run, value in side.items():
        totals[run] += (value - middle) / spread


def _row_test(pair: TwoSamples, level: float, *, differs: bool) -> RowTest:
    """Return the interval of a ratio and its verdict, two-sided at `level`.

    It includes "no difference" unless the table `differs`, by more than last digits here.
    """
    middle = pair.middle
    least = pair.least(level / 2)
    most = -pair.mirrored().least(level / 2)
    # The ratio that is shown is of medians, and may lie outside of an interval of means.
    low = min(least, most, middle)
    high = max(least, most, middle)
    if pair.may_be_rounding or not differs:
        low = min(low, 0.0)
        high = max(high, 0.0)
    verdict = _verdict(low, high)
    undecided = verdict is Difference.UNDECIDED and pair.measured
    return RowTest(
        low=_ratio(low),
        high=_ratio(high),
        verdict=verdict,
        repeats=_repeats_to_decide(pair, level / 2) if undecided else None,
        once=not pair.measured,
    )


def _ratio(logarithm: float) -> float:
    return math.exp(min(logarithm, _LARGEST_LOGARITHM))


def _repeats_to_decide(pair: TwoSamples, level: float) -> int | None:
    """Return how many repeats would decide, if the true ratio and noise are those measured."""
    # Either the bound excludes 0, or both bounds are within what counts as the same.
    apart = abs(pair.estimates[-1].difference)  # of the trimmed means, if there are any
    margin = max(apart, math.log1p(EQUIVALENT) - apart)
    return repeats_within(pair, margin, level)


def _verdict(low: float, high: float) -> Difference:
    """Return the verdict of an interval of the logarithm of a ratio: positive is faster.

    An interval that is nearly nothing on both sides is the same, whatever it excludes.
    """
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
    distinct = set(verdicts)
    differing = distinct & {Difference.FASTER, Difference.SLOWER}
    if len(differing) > 1:
        return Difference.MIXED
    if differing:
        return differing.pop()
    if Difference.UNDECIDED in distinct:
        return Difference.UNDECIDED
    return Difference.SAME if distinct else None


def repeats_within(pair: TwoSamples, margin: float, level: float) -> int | None:
    """Return how many repeats narrow the one-sided bound to `margin`.

    None: more than `MAX_REPEATS`.
    """
    error = min(estimate.error for estimate in pair.estimates)
    noise = error / _error_factor(len(pair.new), len(pair.base))  # of single executions

    def enough(count: int) -> bool:
        quantile = t_quantile(level, 2 * count - 2)  # with so many repeats on each side
        return quantile * noise * math.sqrt(2 / count) < margin

    counts = range(pair.fewest + 1, MAX_REPEATS + 1)
    fewest = bisect_left(counts, True, key=enough)  # noqa: FBT003 - the value to find
    return counts[fewest] if fewest < len(counts) else None


def _error_factor(new: int, base: int) -> float:
    """Return the standard error of a difference of means, over the deviation of single values."""
    return math.sqrt(1 / new + 1 / base)


class _TrimmedMean(NamedTuple):
    mean: float
    squares: float
    """Winsorized: what was cut counts as the nearest value that was kept."""
    kept: int


def _trimmed(side: Values, fraction: float) -> _TrimmedMean:
    """Return the mean without this fraction of values at each end.

    Its noise is told by the winsorized values: those that are left out count as their neighbors.
    """
    ordered = sorted(side.values())
    cut = int(fraction * len(ordered))
    kept = ordered[cut : len(ordered) - cut]
    lowest = [kept[0]] * cut
    highest = [kept[-1]] * cut
    winsorized = lowest + kept + highest
    return _TrimmedMean(fmean(kept), squares(winsorized), len(kept))


def squares(values: Collection[float]) -> float:
    """Return the sum of squared distances from the mean."""
    middle = fmean(values)
    return sum((value - middle) ** 2 for value in values)


def dot(left: Iterable[float], right: Iterable[float]) -> float:
    """Return the sum of products."""
    products: Iterable[float] = map(mul, left, right)
    return sum(products)


@lru_cache(maxsize=4096)
def t_quantile(tail: float, freedom: int) -> float:
    """Return the value that Student's t exceeds with the chance `tail`, which is below one half."""
    return falls_to(lambda value: t_tail(value, freedom), tail)


def falls_to(function: Callable[[float], float], value: float, precision: float = 1e-12) -> float:
    """Return where a function that falls from 0 on reaches a value, by bisection.

    `precision`: as a fraction of the result.
    """
    low = 0.0
    high = 2.0
    while function(high) > value:
        low = high
        high = 2 * high
    while high - low > precision * high:
        middle = (low + high) / 2
        if function(middle) > value:
            low = middle
        else:
            high = middle
    return high


def t_tail(value: float, freedom: int) -> float:
    """Return the chance that Student's t exceeds a positive value.

    Abramowitz and Stegun, 26.7.3 and 26.7.4: series for odd and even degrees of freedom.
    """
    angle = math.atan(value / math.sqrt(freedom))
    sine = math.sin(angle)
    cosine = math.cos(angle)
    square = cosine**2
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = 0.0
    for step in range(2 + odd, freedom + 1, 2):
        total += term
        term *= square * (step - 1) / step
    inside = sine * total
    if odd:
        inside = 2 / math.pi * (angle + inside)
    return max((1 - inside) / 2, 0.0)
