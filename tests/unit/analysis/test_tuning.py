"""Arms with known truth: what wins, what is out, and what is not claimed.

`python -m tests.performance.tune 100` has the rates.
"""

import math
import random

import pytest

from fabbench.analysis.tuning import DEFAULT, TunedSize, Tuning
from tests.support.simulated_tunes import CELLS, Gains, Noise, drawn, recorded, simulated

HALF = CELLS[len(CELLS) // 2 :]
BETTER = dict.fromkeys(HALF, math.log(1.1))
SLOWER = dict.fromkeys(CELLS, math.log(0.8))
MIXED = {**SLOWER, **BETTER}


def tuned(gains: Gains, seed: int = 1) -> Tuning:
    return simulated(random.Random(seed), gains).tuning


@pytest.mark.parametrize("noise", [drawn, recorded])
def test_equal_arms_win_nowhere(noise: Noise) -> None:
    equal = {name: dict.fromkeys(CELLS, 0.0) for name in ("one", "two", "three")}
    claimed = [simulated(random.Random(seed), equal, noise).claimed for seed in range(5)]
    assert claimed == [set()] * 5


def test_an_arm_that_is_better_at_half_of_the_sizes_wins_there() -> None:
    tuning = tuned({"slow": SLOWER, "mixed": MIXED})
    assert tuning.decided
    assert tuning.out == {"slow": "slower than the default"}
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


def test_what_is_out_is_measured_no_more() -> None:
    done = simulated(random.Random(1), {"slow": SLOWER, "slower": SLOWER})
    assert done.executions < done.full / 2
    assert done.tuning.repeats < done.tuning.maximum


def test_before_the_third_repeat_nothing_is_claimed() -> None:
    cell = TunedSize("all_reduce", 8)
    tuning = Tuning(arms=("fast",), maximum=5)
    tuning.look({cell: {"fast": {0: 9.0, 1: 9.0}, DEFAULT: {0: 1.0, 1: 1.0}}}, {}, 2)
    assert not tuning.decided
    assert tuning.gains() == []


def test_the_last_digit_of_a_figure_is_no_gain() -> None:
    cell = TunedSize("all_reduce", 8)
    fast, usual = (dict.fromkeys(range(5), value) for value in (0.1, 0.0))
    tuning = Tuning(arms=("fast",), maximum=5)
    tuning.look({cell: {"fast": fast, DEFAULT: usual}}, {cell: 0.06}, 5)
    assert [each.arm for each in tuning.gains()] == [DEFAULT]
    tuning = Tuning(arms=("fast",), maximum=5)
    tuning.look({cell: {"fast": fast, DEFAULT: usual}}, {cell: 0.001}, 5)
    assert [each.arm for each in tuning.gains()] == ["fast"]


def test_without_figures_of_the_default_nothing_is_decided() -> None:
    tuning = Tuning(arms=("fast",), maximum=5)
    tuning.look({}, {}, 5)
    assert not tuning.decided


def test_executions_that_are_alike_by_chance_show_nothing() -> None:
    """Of three arms one has no noise in its few executions, but all are of one machine."""
    cell = TunedSize("all_reduce", 8)
    noisy = {0: 0.0, 1: 0.1, 2: -0.1}
    even = {0: 0.05, 1: 0.0501, 2: 0.0499}
    usual = {0: 0.0, 1: 0.0001, 2: -0.0001}
    sides = {"even": even, "other": noisy, "third": noisy, DEFAULT: usual}
    tuning = Tuning(arms=("even", "other", "third"), maximum=5)
    tuning.look({cell: sides}, {}, 3)
    assert [gain.arm for gain in tuning.gains()] == [DEFAULT]
