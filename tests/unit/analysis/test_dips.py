"""Dips of one to three sizes, anywhere on a curve, and healthy curves."""

import random

import pytest

from fabbench.analysis.dips import dip
from tests.performance.dips import SIZES, Injected, assumed, curve


@pytest.mark.parametrize("at", [19, 23])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_dip_to_half_is_found_where_it_is(at: int, width: int) -> None:
    dice = random.Random(1)
    for shape in range(6):
        found = dip(curve(shape, 0.02, dice, Injected(at, width, 0.5)), assumed)
        assert found is not None
        assert found.worst in SIZES[at : at + width]
        assert SIZES[at] <= found.first <= found.last <= SIZES[at + width - 1]
        assert 1.1 < found.factor < 2.15


@pytest.mark.slow
def test_healthy_curves_of_any_shape_have_almost_none() -> None:
    dice = random.Random(1)
    found = [dip(curve(shape, 0.06, dice)) for shape in range(300)]
    assert sum(each is not None for each in found) <= 4


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_a_curve_without_enough_sizes_around_has_none(count: int) -> None:
    series = curve(0, 0.0, random.Random(1)).part(0, count)
    assert dip(series) is None
