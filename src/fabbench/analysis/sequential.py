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
    """Return the level at which to test after `repeats` of `maximum` repeats, with a look after each."""
    return spent_levels(maximum, level)[min(max(repeats, FIRST_LOOK), maximum) - FIRST_LOOK]


@lru_cache(maxsize=32)
def spent_levels(maximum: int, level: float = LEVEL) -> tuple[float, ...]:
    """Return the level of each look, from `FIRST_LOOK` repeats to `maximum`."""
    found: list[float] = []
    spent = 0.0
    grid, density = [0.0], [1.0]
    for count in range(FIRST_LOOK, maximum + 1):
        time = count / maximum
        step = math.sqrt(time - (0.0 if count == FIRST_LOOK else (count - 1) / maximum))
        allowed = level * math.log1p((math.e - 1) * time)
        bound = falls_to(partial(_outside, grid, density, step), allowed - spent, 1e-7)
        spent = allowed
        found.append(2 * _below(-bound / math.sqrt(time)))
        grid, density = _inside(grid, density, step, bound)
    return tuple(found)


def _below(value: float) -> float:
    """Return the chance that a standard normal value is below this one."""
    return 0.5 * (1 + math.erf(value / math.sqrt(2)))


def _outside(grid: list[float], density: list[float], step: float, bound: float) -> float:
    """Return the chance that a normal step from a density on a grid ends farther from 0 than a bound."""
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
