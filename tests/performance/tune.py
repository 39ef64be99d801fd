"""Tunes of simulated arms with known truth: false winners, best arms found, executions.

`python -m tests.performance.tune 100` prints a line for each kind of study, of as many each.
Further arguments choose kinds, by words in their names.
"""

import random
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

from fabbench.plan.arms import DEFAULT
from tests.support.simulated_tunes import (
    CELLS,
    Gains,
    drawn,
    no_better,
    one_better,
    recorded,
    simulated,
)

KINDS: dict[str, Callable[[random.Random], Gains]] = {
    "6 arms, none better, recorded noise": no_better,
    "18 arms, all equal, recorded noise": lambda _: {f"arm{number}": {} for number in range(18)},
    "6 arms, one 10 % better at half of the sizes, recorded noise": one_better,
    "6 arms, none better": no_better,
    "6 arms, all equal": lambda _: {f"arm{number}": {} for number in range(6)},
    "18 arms, all equal": lambda _: {f"arm{number}": {} for number in range(18)},
    "6 arms, one 10 % better at half of the sizes": one_better,
    "18 arms, one 10 % better at half of the sizes": partial(one_better, arms=18),
    "6 arms, one 5 % better at half of the sizes": partial(one_better, gain=0.05),
}


class Study(NamedTuple):
    """What one tune claimed, and what it cost."""

    false: bool
    """Whether an arm led where it is not better, after any look."""
    found: float
    """The fraction of the cells with a better arm that it leads at the end; 1 without any."""
    cost: float
    """Executions, as a fraction of the full grid."""


def study(kind: str, seed: int) -> Study:
    """Carry out one."""
    chance = random.Random(f"{kind} {seed}")
    gains = KINDS[kind](chance)
    done = simulated(chance, gains, recorded if "recorded" in kind else drawn)
    false = any(gains[arm].get(cell, 0.0) <= 0 for arm, cell in done.claimed)
    best = [cell for cell in CELLS if any(gain.get(cell, 0.0) > 0 for gain in gains.values())]
    leads = [done.tuning.leaders[cell] != DEFAULT for cell in best]
    return Study(
        false, sum(leads) / max(len(leads), 1) if best else 1.0, done.executions / done.full
    )


def main(number: int, *words: str) -> None:
    """Print the figures of all kinds, or of those that have these words in their names."""
    with ProcessPoolExecutor(2) as pool:
        for kind in (each for each in KINDS if all(word in each for word in words)):
            studies = [*pool.map(partial(study, kind), range(number), chunksize=5)]
            false = sum(each.false for each in studies)
            found = sum(each.found == 1 for each in studies)
            cells = sum(each.found for each in studies) / number
            cost = sum(each.cost for each in studies) / number
            print(
                f"{kind}: false winner in {false} of {number}; found at all its sizes in {found}, "
                f"at {cells:.1%} of them; {cost:.0%} of the executions of a full grid",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, *sys.argv[2:])
