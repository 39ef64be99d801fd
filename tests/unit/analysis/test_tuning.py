"""Arms with known truth: what wins, what is out, and what is not claimed.

`python -m tests.performance.tune 100` has the rates.
"""

import math
import random

import pytest

from fabbench.analysis.tuning import TunedSize, Tuning
from fabbench.plan.arms import DEFAULT
from tests.support.simulated_tunes import (
    CELLS,
    Gains,
    Noise,
    against_default,
    drawn,
    recorded,
    simulated,
)

HALF = CELLS[len(CELLS) // 2 :]
BETTER = dict.fromkeys(HALF, math.log(1.1))
SLOWER = dict.fromkeys(CELLS, math.log(0.8))
MIXED = {**SLOWER, **BETTER}
CELL = TunedSize("all_reduce", 8)


def tuned(gains: Gains, seed: int = 1) -> Tuning:
    return simulated(random.Random(seed), gains).tuning


@pytest.mark.parametrize("noise", [drawn, recorded])
def test_equal_arms_win_nowhere(noise: Noise) -> None:
    equal = {name: dict.fromkeys(CELLS, 0.0) for name in ("one", "two", "three")}
    claimed = [simulated(random.Random(seed), equal, noise).claimed for seed in range(5)]
    assert claimed == [set()] * 5


def test_an_arm_that_is_better_at_half_of_the_sizes_wins_there() -> None:
    tuning = tuned({"slow": SLOWER, "mixed": MIXED})
    assert not tuning.open
    assert tuning.out == {"slow": "likely nowhere better than what leads"}
    default, best = tuning.gains()
    assert (default.arm, default.cells) == (DEFAULT, CELLS[: len(CELLS) // 2])
    assert (best.arm, best.cells) == ("mixed", HALF)
    assert 1 < best.low < 1.1 < best.high < 1.2
    # It is slower elsewhere: the job's environment would set it for all sizes.
    assert tuning.best_of_all() == DEFAULT


def test_an_arm_that_is_slower_nowhere_is_best_of_all() -> None:
    """What leads is slower elsewhere: the second is what a job can set for all sizes."""
    third = CELLS[: len(CELLS) // 3]
    first = {**SLOWER, **dict.fromkeys(CELLS[len(third) :], math.log(1.2))}
    second = dict.fromkeys(CELLS[:-2], math.log(1.1))
    tuning = tuned({"first": first, "second": second})
    assert {*tuning.leaders.values()} == {"first", "second"}
    assert tuning.best_of_all() == "second"


@pytest.mark.parametrize("there", [0.0, math.log(1.1)])
@pytest.mark.parametrize("seed", range(5))
def test_an_arm_that_beats_the_default_stays_while_nothing_wins_at_all_sizes(
    seed: int, there: float
) -> None:
    """Another is better than it nearly everywhere, but slower than the default at one size."""
    *most, last = CELLS
    steady = {**dict.fromkeys(most, math.log(1.1)), last: there}
    larger = {**dict.fromkeys(most, math.log(1.2)), last: math.log(0.8)}
    tuning = tuned({"steady": steady, "larger": larger}, seed)
    assert tuning.leaders[CELLS[0]] == "larger"
    assert tuning.best_of_all() == "steady"
    assert not tuning.open


def test_what_is_out_is_measured_no_more() -> None:
    done = simulated(random.Random(1), {"slow": SLOWER, "slower": SLOWER})
    assert done.executions < done.full / 2
    assert done.tuning.repeats < done.tuning.maximum


def looked(sides: dict[str, dict[int, float]], repeats: int, rounding: float = 0.0) -> Tuning:
    arms = tuple(arm for arm in sides if arm != DEFAULT)
    tuning = Tuning(arms=arms, maximum=5)
    tuning.look(against_default({CELL: sides}, rounding), repeats)
    return tuning


def test_before_the_third_repeat_nothing_is_claimed() -> None:
    tuning = looked({"fast": {0: 9.0, 1: 9.0}, DEFAULT: {0: 1.0, 1: 1.0}}, 2)
    assert tuning.open
    assert tuning.gains() == []


def test_the_last_digit_of_a_figure_is_no_gain() -> None:
    fast, usual = (dict.fromkeys(range(5), value) for value in (0.1, 0.0))
    sides = {"fast": fast, DEFAULT: usual}
    assert [each.arm for each in looked(sides, 5, rounding=0.06).gains()] == [DEFAULT]
    assert [each.arm for each in looked(sides, 5, rounding=0.001).gains()] == ["fast"]


def test_without_figures_nothing_is_decided() -> None:
    tuning = Tuning(arms=("fast",), maximum=5)
    tuning.look({}, 5)
    assert tuning.open


def test_executions_that_are_alike_by_chance_show_nothing() -> None:
    """Of three arms one has no noise in its few executions, but all are of one machine."""
    noisy = {0: 0.0, 1: 0.1, 2: -0.1}
    even = {0: 0.05, 1: 0.0501, 2: 0.0499}
    usual = {0: 0.0, 1: 0.0001, 2: -0.0001}
    tuning = looked({"even": even, "other": noisy, "third": noisy, DEFAULT: usual}, 3)
    assert [gain.arm for gain in tuning.gains()] == [DEFAULT]


def test_what_is_likely_slower_somewhere_is_not_best_of_all() -> None:
    """Three repeats do not show for certain that it is slower: it is likely, and that is enough."""
    other = TunedSize("all_reduce", 16)
    fast = {0: 0.5, 1: 0.51, 2: 0.49}
    usual = {0: 0.0, 1: 0.01, 2: -0.01}
    slow = {0: -0.02, 1: -0.04, 2: -0.06}
    tuning = Tuning(arms=("fast",), maximum=5)
    samples = {CELL: {"fast": fast, DEFAULT: usual}, other: {"fast": slow, DEFAULT: usual}}
    tuning.look(against_default(samples), 3)
    assert tuning.leaders == {CELL: "fast", other: DEFAULT}
    assert tuning.gain("fast", [other]).high > 1
    assert tuning.best_of_all() == DEFAULT


def test_the_interval_of_a_range_is_the_mean_of_those_of_its_sizes() -> None:
    tuning = tuned({"mixed": MIXED})
    _, best = tuning.gains()
    lows = [math.log(tuning.gain("mixed", [cell]).low) for cell in best.cells]
    assert math.log(best.low) == pytest.approx(sum(lows) / len(lows))
