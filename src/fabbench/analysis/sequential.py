"""Levels for looking at a comparison after every repeat, so that all looks together keep one level.

Pure.

Lan and DeMets' alpha spending with Pocock's function: after a fraction t of the maximum number of
repeats, level × ln(1 + (e − 1) t) may be spent. The level of each look follows from how much looks
have in common: a Brownian motion that leaves its bounds, integrated over a grid. The levels are
those of normal statistics; Student's t uses them unchanged.
"""

import math
from functools import lru_cache, partial

from fabbench.analysis.statistics import LEVEL, falls_to

FIRST_LOOK = 3
"""Repeats before the first look."""
_CELLS = 160


def level_at(repeats: int, maximum: int, level: float = LEVEL) -> float:
    """Return the level of a test after `repeats` of `maximum` repeats, with a look after each."""
    looked = min(max(repeats, FIRST_LOOK), maximum)
    return spent_levels(maximum, level)[looked - FIRST_LOOK]


@lru_cache(maxsize=32)
def spent_levels(maximum: int, level: float = LEVEL) -> tuple[float, ...]:
    """Return the level of each look, from `FIRST_LOOK` repeats to `maximum`.

    All looks together have a chance of `level` of a false verdict, of which each spends a part
    (Lan and DeMets). The grid has what may have been seen so far without a verdict.
    """
    levels: list[float] = []
    spent = 0.0
    before = 0.0
    grid = [0.0]
    density = [1.0]
    for count in range(FIRST_LOOK, maximum + 1):
        time = count / maximum  # as a part of the longest that may be measured
        step = math.sqrt(time - before)  # the deviation of what a Brownian motion adds meanwhile
        before = time
        # Spent evenly, nearly: the spending function of Pocock's kind. All of it at time 1.
        allowed = level * math.log1p((math.e - 1) * time)
        bound = falls_to(partial(_outside, grid, density, step), allowed - spent, 1e-7)
        spent = allowed
        beyond = -bound / math.sqrt(time)  # as a standard normal value
        levels.append(2 * _below(beyond))  # two-sided
        grid, density = _inside(grid, density, step, bound)
    return tuple(levels)


def _below(value: float) -> float:
    """Return the chance that a standard normal value is below this one."""
    return 0.5 * (1 + math.erf(value / math.sqrt(2)))


def _outside(grid: list[float], density: list[float], step: float, bound: float) -> float:
    """Return the chance that a normal step from a density on a grid ends beyond a bound."""
    return sum(
        mass * (_below((-bound - at) / step) + _below((at - bound) / step))
        for at, mass in zip(grid, density, strict=True)
    )


def _inside(
    grid: list[float], density: list[float], step: float, bound: float
) -> tuple[list[float], list[float]]:
    """Return the density after a normal step, restricted to what stays within the bound."""
    width = 2 * bound / _CELLS
    cells = [-bound + width * (cell + 0.5) for cell in range(_CELLS)]
    scale = width / (step * math.sqrt(2 * math.pi))
    return cells, [
        scale
        * sum(
            mass * math.exp(-0.5 * ((cell - at) / step) ** 2)
            for at, mass in zip(grid, density, strict=True)
        )
        for cell in cells
    ]
