"""Records of batch systems, and the time limits of their jobs."""

import pytest

from fabbench.launchers.queues import batch_system
from fabbench.launchers.shared_options import seconds_of


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        ("30", 1800),
        ("1:30", 90),
        ("2:00:00", 7200),
        ("1-00", 86400),
        ("1-02:30", 95400),
        ("1-0:0:1", 86401),
    ],
)
def test_time_limits(limit: str, seconds: int) -> None:
    assert seconds_of(limit) == seconds


@pytest.mark.parametrize("name", ["pbs", "lsf", "flux"])
def test_no_state_is_two_things(name: str) -> None:
    system = batch_system(name)
    assert not set(system.pending) & set(system.runs)
