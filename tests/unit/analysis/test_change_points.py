"""Changes of level: found where they are, and seldom where there is none."""

import math
import random

import pytest

from fabbench.analysis.change_points import LevelShift, watched
from tests.performance.history import (
    ASSUMED,
    LATEST,
    Noise,
    Step,
    drifting,
    drifts_named,
    false_alarms,
    heavy,
    lognormal,
    normal,
    outliers,
    runs_until_found,
    seen_as_said,
)

NIGHTS = (299.59, 298.63, 299.15, 298.77, 299.08, 298.64, 298.42, 298.58)
SLOWER = (155.76, 155.55, 155.29, 155.26, 155.29, 155.29, 155.29, 155.88)


def indices(values: list[float]) -> list[int]:
    return [each.start for each in watched(values, ASSUMED).shifts]


def test_a_change_is_found_where_it_is() -> None:
    assert indices([*NIGHTS, *SLOWER]) == indices([*SLOWER, *NIGHTS]) == [len(NIGHTS)]
    assert indices([*NIGHTS]) == indices([*SLOWER]) == []


def test_several_changes() -> None:
    assert indices([*NIGHTS * 3, *SLOWER * 3, *NIGHTS * 3]) == [24, 48]
    assert indices([*NIGHTS * 3, *SLOWER, *NIGHTS * 3]) == [24, 32]  # soon reverted


@pytest.mark.slow
def test_a_late_change_of_a_long_series_is_one_change() -> None:
    chance = random.Random(3)
    values = [chance.gauss(100, 2) * (1 if number < 1250 else 0.9) for number in range(1500)]
    (found,) = watched(values, ASSUMED).shifts
    assert abs(found.start - 1250) <= 1


def test_one_outlier_is_no_change_and_hides_none() -> None:
    values = [*NIGHTS * 2, *SLOWER * 2]
    assert indices([*NIGHTS[:4], 10.0, *NIGHTS, *NIGHTS]) == []
    assert indices([*NIGHTS, *NIGHTS[:3], 10.0, *NIGHTS[:4], *SLOWER * 2]) == [16]
    values[3] = 1.0
    assert indices(values) == [16]
    # Two of the last five, without noise in any other.
    assert indices([1.0] * 30 + [0.7, 0.7]) == []


def test_what_cannot_be_shown() -> None:
    few = [2.0] * 5 + [1.0] * 5
    assert indices(few) == [5]
    assert indices(few[1:]) == indices([]) == indices([1.0]) == []
    assert indices([1.0] * 50) == []
    # Shown, and too small to matter.
    assert indices([1.0] * 40 + [1.009] * 40) == []
    assert indices([1.0] * 40 + [1.02] * 40) == [40]


@pytest.mark.slow
def test_a_report_stays_and_does_not_depend_on_later_runs() -> None:
    chance = random.Random(5)
    values = [100 * value for value in normal(chance, 0.0, 90)]
    values[50:] = [0.8 * value for value in values[50:]]
    looks = [watched(values[:runs], ASSUMED).shifts for runs in range(len(values) + 1)]
    (found,) = looks[-1]
    assert abs(found.start - 50) <= 1
    assert not found.drift
    assert [bool(look) for look in looks] == [runs >= found.shown for runs in range(len(looks))]
    assert all(look == (found,) for look in looks[found.shown :])


@pytest.mark.slow
def test_a_drift_is_named_and_counts_once() -> None:
    (found,) = watched(drifting(random.Random(1), 0.0, 200, -0.3, 0.001), ASSUMED).shifts
    assert (found.rises, found.drift) == (False, True)
    (found,) = watched(drifting(random.Random(1), 0.0, 200, 0.3, 0.001), ASSUMED).shifts
    assert (found.rises, found.drift) == (True, True)
    assert drifts_named(-0.1, 0.005, 20) == (1.0, 1.0)


def test_the_baseline_does_not_learn_from_what_is_slower() -> None:
    """A step that six runs do not show is shown by more of them."""
    chance = random.Random(8)
    values = normal(chance, 0.0, 140, 0.05)
    values[100:] = [0.95 * value for value in values[100:]]
    found = watched(values, ASSUMED).shifts
    assert found == (LevelShift(found[0].start, rises=False, drift=False, shown=found[0].shown),)
    assert found[0].shown - 100 > 6
    assert abs(found[0].start - 100) <= 8


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "rho"), [(lognormal, 0.5), (outliers, 0.0)])
def test_healthy_series_seldom_have_a_change(noise: Noise, rho: float) -> None:
    """At most 5 % of series of 200 runs: of 20 of a fixed seed, two may be.

    Without regard to correlation, most are.
    """
    assert false_alarms(noise, rho, 20) <= 0.1


@pytest.mark.slow
def test_steps_are_found_soon() -> None:
    assert runs_until_found(Step(0.3, 50), 20)[18] <= 6
    found = runs_until_found(Step(0.1, 100), 20)
    assert found[10] <= 8
    assert found[14] <= 10


@pytest.mark.slow
def test_a_large_loss_in_the_first_weeks_is_heard() -> None:
    """A loss of 30 % after ten nights: of 20 series, one may be missed within 40 more."""
    assert runs_until_found(Step(0.3, 10, 0.02), 20)[18] <= 16
    assert runs_until_found(Step(0.3, 10), 20)[18] <= LATEST
    assert runs_until_found(Step(0.3, 10, correlation=0.3), 20)[18] <= LATEST
    assert runs_until_found(Step(0.3, 5, 0.02), 20)[17] <= LATEST


def test_it_is_known_when_a_loss_would_be_seen() -> None:
    said, seen = seen_as_said(Step(0.1, 20, 0.02), 20)
    assert said >= 18
    assert seen >= said - 2


def test_what_is_needed_to_see_a_change() -> None:
    assert watched([], ASSUMED).needed == 10
    assert watched([1.0] * 3, ASSUMED).needed == 7
    found = watched([1.0] * 9, ASSUMED)
    assert (found.needed, found.runs_to_see(-0.1)) == (0, 5)
    assert watched(normal(random.Random(1), 0.0, 20, 0.3), ASSUMED).runs_to_see(-0.1) is None
    assert watched([1.0, 2.0], ASSUMED).runs_to_see(-0.1) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "rho"),
    [
        (normal, 0.0),
        (normal, 0.5),
        (lognormal, 0.3),
        (drifting, 0.3),
        (outliers, 0.3),
        (heavy, 0.0),
    ],
)
def test_the_promise(noise: Noise, rho: float) -> None:
    """At most 5 % of all series: with 100 of them, two standard errors are 4.4 %.

    `make bench` measures every kind of noise with many more.
    """
    assert false_alarms(noise, rho, 100) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 100)


@pytest.mark.slow
def test_the_promised_delays() -> None:
    for before in (20, 30, 50, 100):
        assert runs_until_found(Step(0.3, before), 200, latest=6)[180] <= 6
    assert runs_until_found(Step(0.1, 100), 200, latest=10)[140] <= 10
    assert runs_until_found(Step(0.3, 10), 200)[190] <= LATEST
