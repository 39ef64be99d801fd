"""Two networks of a known ratio, measured: it is inside the interval. `make bench` prints more of these."""

import pytest

from tests.support.host_fixtures import Labs
from tests.support.shaped_runs import compared

pytestmark = [pytest.mark.lab, pytest.mark.slow]

MARGIN = 0.15
"""What a busy machine adds to each message is the same on both networks, and draws the ratio towards 1."""


@pytest.mark.parametrize(("new", "base"), [(24, 24), (40, 20)])
def test_the_interval_contains_a_known_ratio(lab: Labs, new: int, base: int) -> None:
    (row,) = compared(lab(2, fresh=True), new, base, ("1M",), repeats=3)
    assert row.low <= row.ratio <= row.high
    assert row.holds(new / base, MARGIN), row
