"""Changes of level: found where they are, and seldom where there is none."""

import random
from collections import Counter
from collections.abc import Callable
from itertools import combinations

import pytest

from fabbench.analysis.change_points import LEAST_VALUES, _exact_tails, change_points

NIGHTS = (299.59, 298.63, 299.15, 298.77, 299.08, 298.64, 298.42, 298.58)
SLOWER = (155.76, 155.55, 155.29, 155.26, 155.29, 155.29, 155.29, 155.88)


def test_a_change_is_found_where_it_is() -> None:
    assert change_points([*NIGHTS, *SLOWER]) == (len(NIGHTS),)
    assert change_points([*SLOWER, *NIGHTS], series=20) == (len(SLOWER),)
    assert change_points(NIGHTS) == change_points(SLOWER) == ()


def test_several_changes() -> None:
    assert change_points([*NIGHTS * 3, *SLOWER * 3, *NIGHTS * 3]) == (24, 48)


def test_a_late_change_of_a_long_series_is_one_change() -> None:
    chance = random.Random(3)
    values = [chance.gauss(100, 2) * (1 if number < 2250 else 0.9) for number in range(3000)]
    assert change_points(values) == (2250,)


def test_one_outlier_is_no_change_and_hides_none() -> None:
    values = [*NIGHTS * 2, *SLOWER * 2]
    assert change_points([*NIGHTS[:4], 10.0, *NIGHTS, *NIGHTS]) == ()
    assert change_points([*NIGHTS, *NIGHTS[:3], 10.0, *NIGHTS[:4], *SLOWER * 2]) == (16,)
    values[3] = 1.0
    assert change_points(values) == (16,)


def test_what_cannot_be_shown() -> None:
    few = [2.0] * (LEAST_VALUES // 2) + [1.0] * (LEAST_VALUES // 2)
    assert change_points(few) == (LEAST_VALUES // 2,)
    assert change_points(few[1:]) == change_points([]) == change_points([1.0]) == ()
    assert change_points(few, series=2) == ()
    assert change_points([1.0] * 50) == ()
    # Shown, and too small to matter.
    assert change_points([1.0] * 20 + [1.005] * 20) == ()


def test_the_exact_distribution() -> None:
    few, count = 4, 9
    others = [set(range(count)) - set(side) for side in combinations(range(count), few)]
    above = Counter(sum(a > b for a in set(range(count)) - rest for b in rest) for rest in others)
    tails = _exact_tails(few, count)
    for pairs in range(few * (count - few) + 1):
        share = sum(number for found, number in above.items() if found >= pairs) / len(others)
        assert tails[pairs] == pytest.approx(share)


@pytest.mark.parametrize(
    "noise",
    [
        lambda chance: chance.gauss(100, 2),
        lambda chance: 100 + chance.gauss(0, 2) * (20 if chance.random() < 0.1 else 1),
        lambda chance: round(chance.gauss(100, 1)),
    ],
    ids=["normal", "outliers", "rounded"],
)
@pytest.mark.parametrize("series", [1, 8])
def test_equal_values_seldom_have_a_change(noise: Callable[[random.Random], float], series: int) -> None:
    """At most 5 % of the families: 400 of a fixed seed, far from the bound."""
    chance = random.Random(7)
    families = [
        any(change_points([noise(chance) for _ in range(20)], series=series) for _ in range(series))
        for _ in range(400 // series)
    ]
    assert sum(families) <= 0.05 * len(families)
