"""Series of simulated runs.

How often one without a change has one reported, and after how many runs a step is found.

`python -m tests.performance.history 2 1000` prints the tables of docs/honest-numbers.md: with 2
processes, of 1,000 series a cell. Seeds are fixed. The limit of `change_points` was chosen so that
no cell that is promised is above 5 %.
"""

import math
import random
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from typing import NamedTuple, TypeAlias

from fabbench.analysis.change_points import watched

RUNS = 200
CORRELATIONS = (0.0, 0.3, 0.5, 0.7, 0.8)
"""Those at which at most 5 % of series without outliers have a false alarm."""
ASSUMED = 0.1
"""The noise that is assumed beforehand: the catalog's, of RDMA."""
LATEST = 40
"""How many runs after a step are simulated."""
Noise: TypeAlias = Callable[[random.Random, float, int], list[float]]
"""Makes values around 1: of a correlation between neighbors, so many."""


def correlated(chance: random.Random, rho: float, runs: int) -> list[float]:
    """An AR(1) process of standard normal values."""
    values = [chance.gauss(0, 1)]
    while len(values) < runs:
        values.append(rho * values[-1] + math.sqrt(1 - rho * rho) * chance.gauss(0, 1))
    return values


def normal(chance: random.Random, rho: float, runs: int, deviation: float = 0.05) -> list[float]:
    return [1 + deviation * value for value in correlated(chance, rho, runs)]


def lognormal(chance: random.Random, rho: float, runs: int, deviation: float = 0.15) -> list[float]:
    return [math.exp(deviation * value) for value in correlated(chance, rho, runs)]


def outliers(chance: random.Random, rho: float, runs: int) -> list[float]:
    """One run in twenty is 30 % slower."""
    return [value * (0.7 if chance.random() < 0.05 else 1.0) for value in normal(chance, rho, runs)]


def heavy(chance: random.Random, rho: float, runs: int) -> list[float]:
    """Student's t with three degrees of freedom, where runs are independent.

    One in twenty is 3.2 deviations away.
    """
    values = correlated(chance, rho, runs)
    return [
        math.exp(0.05 * value / math.sqrt(chance.gammavariate(1.5, 2.0) / 3)) for value in values
    ]


def drifting(
    chance: random.Random, rho: float, runs: int, by: float = -0.01, deviation: float = 0.005
) -> list[float]:
    """A slow drift by 1 %, whose noise is smaller."""
    values = normal(chance, rho, runs, deviation)
    return [value * (1 + by * place / runs) for place, value in enumerate(values)]


NOISES: Mapping[str, Noise] = {
    "normal, 5 %": normal,
    "lognormal, 15 %": lognormal,
    "one in twenty 30 % slower": outliers,
    "heavy tails": heavy,
    "drift of 1 %, noise of 0.5 %": drifting,
}


def false_alarms(noise: Noise, rho: float, series: int, runs: int = RUNS) -> float:
    """Return the fraction of series without a change that ever have one reported."""
    chance = random.Random(11)
    return (
        sum(bool(watched(noise(chance, rho, runs), ASSUMED).shifts) for _ in range(series)) / series
    )


class Step(NamedTuple):
    """A loss after some runs, in correlated noise."""

    loss: float
    before: int
    deviation: float = 0.05
    correlation: float = 0.0


def runs_until_found(step: Step, series: int, *, latest: int = LATEST) -> list[float]:
    """Return after how many runs each step is found, ascending; infinity: not within `latest`."""
    chance, found = random.Random(12), []
    for _ in range(series):
        values = normal(chance, step.correlation, step.before + latest, step.deviation)
        values[step.before :] = [value * (1 - step.loss) for value in values[step.before :]]
        shown = (each.shown - step.before for each in watched(values, ASSUMED).shifts)
        found.append(next((runs for runs in shown if runs > 0), math.inf))
    return sorted(found)


def seen_as_said(step: Step, series: int) -> tuple[int, int]:
    """Return how often it was said when the step would be seen, and how often it was by then."""
    chance, said, seen = random.Random(14), 0, 0
    for _ in range(series):
        values = normal(chance, step.correlation, step.before, step.deviation)
        runs = watched(values, ASSUMED).runs_to_see(-step.loss)
        if runs is None:
            continue
        said += 1
        after = normal(chance, step.correlation, runs, step.deviation)
        values += [value * (1 - step.loss) for value in after]
        seen += any(each.shown > step.before for each in watched(values, ASSUMED).shifts)
    return said, seen


def drifts_named(by: float, deviation: float, series: int) -> tuple[float, float]:
    """Return the fractions of drifting series with a reported change, and with a drift."""
    chance, changed, named = random.Random(13), 0, 0
    for _ in range(series):
        shifts = watched(drifting(chance, 0.0, RUNS, by, deviation), ASSUMED).shifts
        changed += bool(shifts)
        named += any(shift.drift for shift in shifts)
    return changed / series, named / series


LOSSES = (0.05, 0.1, 0.2, 0.3)
BEFORE = (5, 10, 20, 50)
DEVIATIONS = (0.02, 0.05, 0.1)


def _cells(series: int) -> Iterable[tuple[str, Callable[[], str]]]:
    for name, noise in NOISES.items():
        for rho in CORRELATIONS:
            yield f"false alarms, {name}, {rho}", partial(_false, noise, rho, series)
    for deviation, rho, loss in product(DEVIATIONS, (0.0, 0.3, 0.5), LOSSES):
        name = f"noise of {deviation:.0%}, {rho}: step of {loss:.0%} after {BEFORE}"
        steps = [Step(loss, before, deviation, rho) for before in BEFORE]
        yield name, partial(_found, steps, max(series // 10, 1))
    for deviation, before in product(DEVIATIONS, BEFORE):
        step = Step(0.1, before, deviation)
        name = f"noise of {deviation:.0%}: step of 10% after {before} seen as said"
        yield name, partial(_said, step, max(series // 10, 1))
    for by, deviation in ((-0.1, 0.005), (-0.1, 0.02), (-0.3, 0.02), (-0.05, 0.05)):
        yield (
            f"drift of {by:.0%}, noise of {deviation:.1%}",
            partial(_drift, by, deviation, max(series // 10, 1)),
        )


def _false(noise: Noise, rho: float, series: int) -> str:
    return f"{false_alarms(noise, rho, series):.1%}"


def _found(steps: Sequence[Step], series: int) -> str:
    """Return the median and the misses of each step."""
    texts = []
    for step in steps:
        found = runs_until_found(step, series)
        missed = sum(math.isinf(runs) for runs in found) / series
        texts.append(f"{statistics.median(found):.0f} ({missed:.0%} missed)")
    return ", ".join(texts)


def _said(step: Step, series: int) -> str:
    said, seen = seen_as_said(step, series)
    return f"{seen} of {said}, of {series} series"


def _drift(by: float, deviation: float, series: int) -> str:
    return "changed {:.0%}, named as drift {:.0%}".format(*drifts_named(by, deviation, series))


def simulate(processes: int, series: int) -> None:
    """Print all of it."""
    with ProcessPoolExecutor(processes) as pool:
        for name, cell in [(name, pool.submit(cell)) for name, cell in _cells(series)]:
            print(f"{name}: {cell.result()}", flush=True)


if __name__ == "__main__":
    simulate(int(sys.argv[1]), int(sys.argv[2]))
