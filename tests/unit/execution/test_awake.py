"""Time limits of steps do not go on while fabbench itself is stopped."""

import pytest

from fabbench.execution import session
from fabbench.execution.awake import AwakeClock
from fabbench.execution.session import TimedOutError, raise_when_late


class Hands:
    """The hands of a clock."""

    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_stopped_process_does_not_age() -> None:
    hands = Hands()
    clock = AwakeClock(hands)
    started = clock.now()
    for _ in range(4):
        hands.seconds += 1
        assert clock.now() == hands.seconds
    hands.seconds += 1000
    assert clock.now() - started == 4.5
    hands.seconds += 2
    assert clock.now() - started == 6.5


def test_a_step_is_late_only_by_the_time_that_fabbench_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    hands = Hands()
    clock = AwakeClock(hands)
    monkeypatch.setattr(session, "awake_s", clock.now)
    deadline = clock.now() + 10
    hands.seconds += 100
    raise_when_late(clock.now(), 5, deadline)
    for _ in range(10):
        hands.seconds += 1
        clock.now()
    with pytest.raises(TimedOutError):
        raise_when_late(clock.now(), 5, deadline)
