"""Which arms of a tune beat the default, and at which sizes. Pure.

An arm is a configuration; the default is one, and wins ties. After each repeat every arm is tested
against the default at every size. All arms, sizes and looks together have one chance of 5 % of any
false "better than the default": arms and sizes share it evenly, and `sequential` spreads it over
the looks. At each size one arm leads: the best of those that are certainly better than the default,
else the default. An arm is out once it is likely nowhere better than what leads there, by a gain
that matters and that the remaining repeats could still show. This only ever drops arms: no false
"better" comes of it, so that it need not be as sure.
"""

import itertools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from fabbench.analysis.sequential import FIRST_LOOK, level_at
from fabbench.analysis.statistics import (
    LEVEL,
    TwoSamples,
    Values,
    median,
    pooled,
    squares,
    t_quantile,
)

DEFAULT = "default"
MARGIN = 0.02
"""A gain that is likely smaller is none."""
_USED = 0.8  # the fraction of the level that is used: the rest is for noise that is not normal
_LIKELY = 0.2  # one-sided level at which an arm is out


class TunedSize(NamedTuple):
    """What is tuned by itself: one size of one program."""

    case: str
    size: int


class Gain(NamedTuple):
    """How an arm compares with the default over some cells, as ratios."""

    arm: str
    cells: tuple[TunedSize, ...]
    ratio: float = 1.0
    low: float = 1.0
    """Its interval: all arms, cells and looks together are right at 95 %."""
    high: float = 1.0


Samples: TypeAlias = Mapping[TunedSize, Mapping[str, Values]]
"""Cell → arm → execution → the logarithm of its figure, larger is better."""


@dataclass(slots=True, kw_only=True)
class Tuning:
    """What is known of the arms. Grows with each look."""

    arms: tuple[str, ...]
    """All but the default."""
    maximum: int
    """Repeats."""
    repeats: int = 0
    samples: Samples = field(default_factory=dict)
    rounding: Mapping[TunedSize, float] = field(default_factory=dict)
    """Half of the printed step, as a fraction of the figure."""
    out: dict[str, str] = field(default_factory=dict)
    """Arm → why it is measured no more."""
    leaders: Mapping[TunedSize, str] = field(default_factory=dict)
    open: Collection[str] = ()
    """Arms that may still beat what leads somewhere."""

    @property
    def decided(self) -> bool:
        """Whether no more repeats are needed."""
        return bool(self.leaders) and not self.open

    def look(self, samples: Samples, rounding: Mapping[TunedSize, float], repeats: int) -> None:
        """Add what was measured in some repeats, and decide what can be."""
        self.repeats = repeats
        self.samples = samples
        self.rounding = rounding
        if repeats < FIRST_LOOK or not samples:
            return
        live = [arm for arm in self.arms if arm not in self.out]
        cells = sorted(samples)
        self.leaders = {cell: self._best(live, [cell]) for cell in cells}
        self.open = list(filter(self._may_win, live))
        leading = self.leaders.values()
        for arm in {*live}.difference(self.open, leading):
            self.out[arm] = "no gain that the repeats could show"
            if len(self.slower(arm)) == len(samples):
                self.out[arm] = "slower than the default"

    def gains(self) -> list[Gain]:
        """Return what leads in each range of neighboring sizes, in order."""
        gains: list[Gain] = []
        before = ("", "")
        for cell, arm in self.leaders.items():
            same = before == (cell.case, arm)
            cells = gains.pop().cells if same else ()
            gains.append(self.gain(arm, (*cells, cell)))
            before = (cell.case, arm)
        return gains

    def gain(self, arm: str, cells: Iterable[TunedSize]) -> Gain:
        """Return how an arm compares with the default over cells that both have."""
        cells = tuple(cells)
        pairs = [self._pair(arm, DEFAULT, cell) for cell in cells]
        pair = pooled(list(filter(None, pairs)))
        if pair is None or arm == DEFAULT:
            return Gain(arm, cells)
        low = pair.least(self._level())
        high = -pair.mirrored().least(self._level())
        ratios = map(math.exp, (pair.middle, low, high))
        return Gain(arm, cells, *ratios)

    def slower(self, arm: str) -> list[TunedSize]:
        """Return where an arm is certainly slower than the default."""
        level = self._one_sided(LEVEL / len(self.samples))
        return [cell for cell in self.samples if self._beats(DEFAULT, arm, cell, level)]

    def best_of_all(self) -> str:
        """Return the arm that is certainly better somewhere and slower nowhere; else the default.

        Of several, the one with the largest gain over all sizes. It need not lead anywhere.
        """
        nowhere_slower = itertools.filterfalse(self.slower, self.arms)
        return self._best(nowhere_slower, self.leaders)

    # -- inside

    def _one_sided(self, level: float, repeats: int = 0) -> float:
        """Return the one-sided level of this look, or of another."""
        return level_at(repeats or self.repeats, self.maximum, 2 * level) / 2

    def _level(self, repeats: int = 0) -> float:
        """Return the level of "better" for one arm and cell, at this look or another."""
        tests = len(self.arms) * len(self.samples)
        each = _USED * LEVEL / tests
        return self._one_sided(each, repeats)

    def _pair(self, new: str, base: str, cell: TunedSize) -> TwoSamples | None:
        """Return the executions of two arms; None where one has less than two."""
        every = self.samples[cell]
        sides = [every.get(arm, {}) for arm in (new, base)]
        rounding = self.rounding.get(cell, 0.0)
        pair = TwoSamples(new=sides[0], base=sides[1], rounding=rounding)
        return pair if pair.measured else None

    def _beats(self, new: str, base: str, cell: TunedSize, level: float) -> bool:
        """Return whether an arm is shown to be better than another, by more than last digits.

        So few executions may be alike by chance: the noise of all arms counts, too.
        """
        pair = self._pair(new, base, cell)
        if pair is None or pair.may_be_rounding or not pair.exceeds(0.0, level):
            return False
        every = self.samples[cell].values()
        sides = [side.values() for side in every if len(side) > 1]
        variances = [squares(side) / (len(side) - 1) for side in sides]
        freedom = sum(map(len, sides)) - len(sides)
        error = math.sqrt(2 * median(variances) / pair.fewest)
        shown = t_quantile(level, freedom) * error
        return pair.estimates[0].difference > shown

    def _best(self, arms: Iterable[str], cells: Collection[TunedSize]) -> str:
        """Return the best arm of those that are certainly better in a cell; else the default."""
        level = self._level()
        gains = [Gain(DEFAULT, ())]
        for arm in arms:
            better = (self._beats(arm, DEFAULT, cell, level) for cell in cells)
            gains += [self.gain(arm, cells)] if any(better) else []
        return max(gains, key=attrgetter("ratio")).arm

    def _may_win(self, arm: str) -> bool:
        """Return whether an arm may beat what leads, by a gain that matters and can be shown."""
        last = self.maximum
        quantile = t_quantile(self._level(last), 2 * last - 2)
        for cell, leader in self.leaders.items():
            pair = self._pair(leader, arm, cell)
            if pair is None or leader == arm:
                continue
            *_, estimate = pair.estimates
            noise = estimate.deviation * math.sqrt(2 / last)
            margin = max(math.log1p(MARGIN), noise * quantile)
            if not pair.exceeds(-margin, _LIKELY):
                return True
        return False
