"""A clock that stands still while this process is stopped: programs elsewhere went on meanwhile.

A step is not late because the laptop that started it slept, or a shell's Ctrl-Z stopped fabbench.
"""

import threading
import time
from collections.abc import Callable
from functools import cache

from fabbench.execution.background import in_background

_TICK_S = 0.5
_STOPPED_S = 5.0
"""A longer time between two ticks was no load of this machine: the process was stopped."""


class AwakeClock:
    """Seconds as of time.monotonic(), without those for which nobody looked at it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked = clock()  # When somebody last looked
        self._stopped_s = 0.0  # In gaps in which the process was stopped
        self._looking = threading.Lock()

    def now(self) -> float:
        """Return the seconds; any thread may call it."""
        with self._looking:
            now = self._clock()
            gap_s = now - self._looked
            if gap_s > _STOPPED_S:
                self._stopped_s += gap_s - _TICK_S  # What an ordinary gap takes was awake
            self._looked = now
            return now - self._stopped_s

    def tick(self) -> None:
        """Look at it, for ever."""
        while True:
            self.now()
            time.sleep(_TICK_S)


@cache
def _clock() -> AwakeClock:
    clock = AwakeClock()
    in_background(clock.tick, name="clock")
    return clock


def awake_s() -> float:
    """Return the seconds since the first call, by the clock of this process."""
    return _clock().now()
