"""Tunes of simulated arms whose true gains are known."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from fabbench.analysis.statistics import TwoSamples, Values
from fabbench.analysis.tuning import Samples, TunedSize, Tuning
from fabbench.plan.arms import DEFAULT
from tests.support.paths import DATA

SIZES = tuple(8 << (2 * step) for step in range(14))
CELLS = tuple(TunedSize("all_reduce", size) for size in SIZES)
NOISE = 0.03
"""Between executions: most of it is common to all sizes of one."""
_COMMON = 0.9
MAXIMUM = 20

Gains = Mapping[str, Mapping[TunedSize, float]]
"""Arm → cell → the true logarithm of its ratio to the default; none: 0."""
Noise = Callable[[random.Random], Mapping[TunedSize, float]]


@dataclass
class Simulated:
    """One tune, and what it cost."""

    tuning: Tuning
    executions: int
    full: int
    """Those of a full grid."""
    claimed: set[tuple[str, TunedSize]] = field(default_factory=set)
    """Arms that led a cell after any look."""


def drawn(chance: random.Random) -> Mapping[TunedSize, float]:
    """Return the noise of one execution, as logarithms."""
    common = chance.gauss(0.0, NOISE * math.sqrt(_COMMON))
    return {cell: common + chance.gauss(0.0, NOISE * math.sqrt(1 - _COMMON)) for cell in CELLS}


@cache
def _recorded(name: str) -> Sequence[Sequence[float]]:
    """Return how far each recorded execution is from the mean of each size, as logarithms."""
    lines = (DATA / "aa" / name).read_text().splitlines()[1:]
    rows = [[math.log(float(figure)) for figure in line.split(",")[1:]] for line in lines]
    means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    return [[value - mean for value, mean in zip(row, means, strict=True)] for row in rows]


def recorded(chance: random.Random, name: str = "p2p.csv") -> Mapping[TunedSize, float]:
    """Return the noise of an execution that was recorded (tests/data/aa)."""
    row = chance.choice(_recorded(name))
    return {cell: row[number % len(row)] for number, cell in enumerate(CELLS)}


def simulated(
    chance: random.Random, gains: Gains, noise: Noise = drawn, *, maximum: int = MAXIMUM
) -> Simulated:
    """Tune arms until it is decided."""
    arms = (*gains, DEFAULT)
    samples: dict[TunedSize, dict[str, dict[int, float]]] = {
        cell: {arm: {} for arm in arms} for cell in CELLS
    }
    tuning = Tuning(arms=tuple(gains), maximum=maximum)
    done = Simulated(tuning, executions=0, full=maximum * len(arms))
    for repeat in range(1, maximum + 1):
        for arm in sorted({*arms} - tuning.out.keys()):
            done.executions += 1
            of_execution = noise(chance)
            for cell, sides in samples.items():
                sides[arm][repeat] = gains.get(arm, {}).get(cell, 0.0) + of_execution[cell]
        tuning.look(against_default(samples), repeat)
        done.claimed |= {(arm, cell) for cell, arm in tuning.leaders.items() if arm != DEFAULT}
        if not tuning.open:
            break
    return done


def against_default(
    samples: Mapping[TunedSize, Mapping[str, Values]], rounding: float = 0.0
) -> Samples:
    """Return samples as a tuning looks at them."""
    return {
        cell: {
            arm: TwoSamples(new=values, base=every[DEFAULT], rounding=rounding)
            for arm, values in every.items()
            if len(values) > 1
        }
        for cell, every in samples.items()
    }


def no_better(chance: random.Random, arms: int = 6) -> Gains:
    """Return arms of which none is better: a third is equal, the others are slower."""
    equal = arms // 3
    losses = [0.0] * equal + [-chance.uniform(0.02, 0.7) for _ in range(arms - equal)]
    return {f"arm{number}": dict.fromkeys(CELLS, loss) for number, loss in enumerate(losses)}


def one_better(chance: random.Random, arms: int = 6, gain: float = 0.10) -> Gains:
    """Return arms of which the last is better at half of the sizes, and slower at the others."""
    gains = dict(no_better(chance, arms - 1))
    half = len(CELLS) // 2
    better = dict.fromkeys(CELLS[half:], math.log1p(gain))
    gains["best"] = {**dict.fromkeys(CELLS[:half], -0.1), **better}
    return gains
