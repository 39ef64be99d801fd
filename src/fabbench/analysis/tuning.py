"""Which arms of a tune beat the default, and at which sizes. Pure.

An arm is a configuration; the default is one, and wins ties. After each repeat every arm is tested
against the default at every size. All arms, sizes and looks together have one chance of 5 % that
any interval is wrong: arms and sizes share it evenly, and `sequential` spreads it over the looks.
At each size one arm leads: the best of those that are certainly better than the default, else the
default. An arm is out once it is likely nowhere better than what leads there, by a gain that
matters and that the remaining repeats could still show. While no arm wins at all sizes together,
one that is likely slower nowhere has to beat no more than the default: it may be that arm. This
only ever drops arms: no false "better" comes of it, so that it need not be as sure.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from statistics import fmean
from typing import NamedTuple, TypeAlias

from fabbench.analysis.sequential import FIRST_LOOK, level_at
from fabbench.analysis.statistics import LEVEL, TwoSamples, squares, t_quantile
from fabbench.model.mappings import Names
from fabbench.plan.arms import DEFAULT

MARGIN = math.log1p(0.02)
"""A gain, or a loss, that is likely smaller is none: the logarithm of a ratio."""
_USED = 0.8  # the fraction of the level that is used: the rest is for noise that is not normal
_LIKELY = 0.2  # one-sided level at which an arm is out


class TunedSize(NamedTuple):
    """What is tuned by itself: one size of one program."""

    case: str
    size: int


class Gain(NamedTuple):
    """How an arm compares with the default over some cells, as ratios: means over the cells."""

    arm: str
    cells: tuple[TunedSize, ...]
    low: float = 1.0
    """Its interval: all arms, cells and looks together are right at 95 %."""
    ratio: float = 1.0
    high: float = 1.0


Samples: TypeAlias = Mapping[TunedSize, Mapping[str, TwoSamples]]
"""Cell → arm → its executions, and those of the default; of the default itself twice the same."""


@dataclass(slots=True, kw_only=True)
class Tuning:
    """What is known of the arms. Grows with each look."""

    arms: Names
    """All but the default."""
    maximum: int
    """Repeats."""
    repeats: int = 0
    samples: Samples = field(default_factory=dict)
    out: dict[str, str] = field(default_factory=dict)
    """Arm → why it is measured no more."""
    leaders: Mapping[TunedSize, str] = field(default_factory=dict)
    open: Collection[str] = ("all",)
    """Arms that may still beat what leads somewhere; without any, all is decided."""

    def look(self, samples: Samples, repeats: int) -> None:
        """Add what was measured in some repeats, and decide what can be."""
        self.repeats = repeats
        self.samples = samples
        if repeats < FIRST_LOOK or not samples:
            return
        live = [arm for arm in self.arms if arm not in self.out]
        self.leaders = {
            cell: self._best(live, [cell])
            for cell in sorted(samples)  # by program, then by size
        }
        # Those that lead no more than some sizes
        at_sizes = self._slower() if self.best_of_all() == DEFAULT else live
        self.open = [
            arm
            for arm in live  # of those that lead, too: they may win elsewhere
            if any(self._may_win(arm, cell, for_all=arm not in at_sizes) for cell in samples)
        ]
        kept = {*self.open, *self.leaders.values()}
        self.out |= {
            arm: "likely nowhere better than what leads" for arm in live if arm not in kept
        }

    def gains(self) -> list[Gain]:
        """Return what leads in each range of neighboring sizes, in order."""
        ranges = groupby(
            self.leaders,
            lambda cell: (cell.case, self.leaders[cell]),
        )
        return [self.gain(arm, cells) for (_, arm), cells in ranges]

    def gain(self, arm: str, cells: Iterable[TunedSize]) -> Gain:
        """Return how an arm compares with the default over cells, of which it has some."""
        cells = tuple(cells)
        known = [
            self._bounds(arm, cell)
            for cell in cells  # an arm may lack some
            if arm in self.samples[cell]
        ]
        means = map(fmean, zip(*known, strict=True))
        return Gain(arm, cells, *map(math.exp, means))

    def best_of_all(self) -> str:
        """Return the arm that is certainly better somewhere and nowhere likely slower.

        Of several, the one with the largest gain over all sizes: it need not lead anywhere. The
        default, if there is none.
        """
        slower = self._slower()
        return self._best([arm for arm in self.arms if arm not in slower], self.leaders)

    # -- inside

    def _slower(self) -> set[str]:
        """Return the arms that are likely slower than the default somewhere."""
        return {
            arm
            for every in self.samples.values()
            for arm, pair in every.items()
            if pair.mirrored().exceeds(MARGIN, _LIKELY)
        }

    def _best(self, arms: Iterable[str], cells: Collection[TunedSize]) -> str:
        """Return the best arm of those that are certainly better in a cell; else the default."""
        better = [
            arm
            for arm in arms  # each by itself
            if any(self.gain(arm, [cell]).low > 1 for cell in cells)
        ]
        return max(
            (DEFAULT, *better),  # the first wins ties
            key=lambda arm: self.gain(arm, cells).ratio,
        )

    def _level(self, repeats: int) -> float:
        """Return the level of one arm at one cell and look, for each end of its interval."""
        tests = len(self.arms) * len(self.samples)
        return level_at(repeats, self.maximum, _USED * LEVEL / tests) / 2

    def _bounds(self, arm: str, cell: TunedSize) -> list[float]:
        """Return the lower bound, the median and the upper bound against the default."""
        pair = self.samples[cell][arm]
        high = -self._least(pair.mirrored(), cell)
        # A bound is one of means, and may lie beyond the median.
        return sorted((self._least(pair, cell), pair.middle, high))

    def _least(self, pair: TwoSamples, cell: TunedSize) -> float:
        """Return the lower bound of a difference, which is none if it may be one of last digits.

        So few executions may be alike by chance: the noise of all arms counts, too.
        """
        level = self._level(self.repeats)
        sides = [each.new.values() for each in self.samples[cell].values()]
        freedom = sum(map(len, sides)) - len(sides)
        variance = sum(map(squares, sides)) / freedom
        error = math.sqrt(2 * variance / pair.fewest)
        by_all = pair.estimates[0]._replace(error=error, freedom=freedom)
        least = min(pair.least(level), by_all.least(level))
        return min(least, 0.0) if pair.may_be_rounding else least

    def _may_win(self, arm: str, cell: TunedSize, *, for_all: bool) -> bool:
        """Return whether an arm may beat what leads, by a gain that matters and can be shown.

        One that may be the arm for all sizes has to beat the default only.
        """
        every = self.samples[cell]
        leader = self.leaders[cell]
        if arm not in every or arm == leader:
            return False
        rival = DEFAULT if for_all else leader
        pair = replace(every[rival], base=every[arm].new, shown=None)
        *_, estimate = pair.estimates
        last = self.maximum
        noise = estimate.deviation * math.sqrt(2 / last)
        quantile = t_quantile(self._level(last), 2 * last - 2)
        margin = max(MARGIN, noise * quantile)
        return not pair.exceeds(-margin, _LIKELY)
